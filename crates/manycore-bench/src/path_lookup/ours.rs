//! The library's counted reference, taken by its generation.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use manycore::collections::{ScalableArc, ScalableWeak};

use super::Dentry;

/// Name and parent stand beside the weak handle, as a cache's table has them.
pub(super) struct Auto {
    words: [AtomicU64; 2],
    weak: ScalableWeak<()>,
    /// The inode's own.
    entry: ScalableArc<()>,
}

impl Dentry for Auto {
    fn new(word: u64) -> Self {
        let entry = ScalableArc::new(());
        Self { words: [word.into(), word.into()], weak: ScalableArc::downgrade(&entry), entry }
    }

    #[inline]
    fn stat(&self) -> [u64; 2] {
        loop {
            let generation = self.weak.generation();
            let words = [self.words[0].load(Relaxed), self.words[1].load(Relaxed)];
            if self.weak.try_acquire(generation).is_some() {
                return words;
            }
        }
    }

    fn rename(&self, word: u64) {
        let store = || self.words.iter().for_each(|own| own.store(word, Relaxed));
        ScalableArc::change(&self.entry, store);
    }
}

/// Hot from the start.
pub(super) struct Hot(Auto);

impl Dentry for Hot {
    fn new(word: u64) -> Self {
        let auto = Auto::new(word);
        ScalableArc::promote(&auto.entry);
        Self(auto)
    }

    #[inline]
    fn stat(&self) -> [u64; 2] {
        self.0.stat()
    }

    fn rename(&self, word: u64) {
        self.0.rename(word);
    }
}
