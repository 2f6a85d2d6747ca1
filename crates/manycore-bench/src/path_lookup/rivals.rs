//! Counts of directory entries as they are commonly kept.

use std::{
    hint::{black_box, spin_loop},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering, fence},
    },
};

use super::Dentry;

/// Name and parent under a sequence lock with one writer.
struct Words {
    generation: AtomicU64,
    words: [AtomicU64; 2],
}

impl Words {
    fn new(word: u64) -> Self {
        Self { generation: AtomicU64::new(0), words: [word.into(), word.into()] }
    }

    /// The generation, even, and what was read after it.
    #[inline]
    fn look(&self) -> (u64, [u64; 2]) {
        loop {
            // ORDER: Acquire; pairs with Release at the end of `rename`.
            let generation = self.generation.load(Ordering::Acquire);
            if generation.is_multiple_of(2) {
                let load = |word: usize| self.words[word].load(Ordering::Relaxed);
                return (generation, [load(0), load(1)]);
            }
            spin_loop();
        }
    }

    #[inline]
    fn is_still(&self, then: u64) -> bool {
        // ORDER: Acquire; pairs with the fence in `rename`: the loads before come before the look.
        fence(Ordering::Acquire);
        self.generation.load(Ordering::Relaxed) == then
    }

    fn rename(&self, word: u64) {
        let before = self.generation.load(Ordering::Relaxed);
        self.generation.store(before + 1, Ordering::Relaxed);
        // ORDER: Release; see `is_still`.
        fence(Ordering::Release);
        self.words.iter().for_each(|own| own.store(word, Ordering::Relaxed));
        // ORDER: Release; see `look`.
        self.generation.store(before + 2, Ordering::Release);
    }
}

/// No reference counts: the upper bound.
pub(super) struct Uncounted(Words);

impl Dentry for Uncounted {
    fn new(word: u64) -> Self {
        Self(Words::new(word))
    }

    #[inline]
    fn stat(&self) -> [u64; 2] {
        loop {
            let (generation, words) = self.0.look();
            if self.0.is_still(generation) {
                return words;
            }
        }
    }

    fn rename(&self, word: u64) {
        self.0.rename(word);
    }
}

/// The count under a lock, which a renaming takes too.
pub(super) struct Locked {
    words: Words,
    count: Mutex<u64>,
}

impl Dentry for Locked {
    fn new(word: u64) -> Self {
        Self { words: Words::new(word), count: Mutex::new(1) }
    }

    #[inline]
    fn stat(&self) -> [u64; 2] {
        loop {
            let (generation, words) = self.words.look();
            let mut count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
            if self.words.is_still(generation) {
                *count += 1;
                drop(count);
                *self.count.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
                return words;
            }
        }
    }

    fn rename(&self, word: u64) {
        let _count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        self.words.rename(word);
    }
}

/// The generation in the upper half of the count's word, so that one exchange takes a reference and
/// checks. Odd during a renaming.
pub(super) struct Exchange {
    word: AtomicU64,
    words: [AtomicU64; 2],
}

const GENERATION: u64 = 1 << 32;

impl Dentry for Exchange {
    fn new(word: u64) -> Self {
        Self { word: AtomicU64::new(1), words: [word.into(), word.into()] }
    }

    #[inline]
    fn stat(&self) -> [u64; 2] {
        let mut seen = self.word.load(Ordering::Acquire);
        loop {
            if (seen / GENERATION).is_multiple_of(2) {
                let load = |word: usize| self.words[word].load(Ordering::Relaxed);
                let words = [load(0), load(1)];
                // ORDER: Acquire; pairs with Release in `rename`. The loads above come before it.
                fence(Ordering::Acquire);
                let taken = self.word.compare_exchange_weak(
                    seen,
                    seen + 1,
                    Ordering::Acquire,
                    Ordering::Acquire,
                );
                match taken {
                    Ok(_) => {
                        self.word.fetch_sub(1, Ordering::Release);
                        return words;
                    }
                    Err(now) => seen = now,
                }
            } else {
                spin_loop();
                seen = self.word.load(Ordering::Acquire);
            }
        }
    }

    fn rename(&self, word: u64) {
        self.word.fetch_add(GENERATION, Ordering::Acquire);
        // ORDER: Release; pairs with the fence in `stat`.
        fence(Ordering::Release);
        self.words.iter().for_each(|own| own.store(word, Ordering::Relaxed));
        self.word.fetch_add(GENERATION, Ordering::Release);
    }
}

/// std's counts.
pub(super) struct Weak {
    words: Words,
    weak: std::sync::Weak<()>,
    _entry: Arc<()>,
}

impl Dentry for Weak {
    fn new(word: u64) -> Self {
        let entry = Arc::new(());
        Self { words: Words::new(word), weak: Arc::downgrade(&entry), _entry: entry }
    }

    #[inline]
    fn stat(&self) -> [u64; 2] {
        loop {
            let (generation, words) = self.words.look();
            let taken = black_box(self.weak.upgrade());
            if taken.is_some() && self.words.is_still(generation) {
                return words;
            }
        }
    }

    fn rename(&self, word: u64) {
        self.words.rename(word);
    }
}
