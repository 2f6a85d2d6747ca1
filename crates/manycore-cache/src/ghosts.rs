//! Ghosts: what a table remembers of entries that were evicted.

use crate::huge_pages::{LINE, ZeroedLines};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// For each bucket a word with the tags of the two keys that were evicted from it last; or none.
/// A word is written and read under its bucket's lock. (Two or four make no difference to the hit
/// ratio under a Zipfian load; under a loop two are better, for each key that is remembered takes
/// the room of one that has proved itself.)
pub(crate) struct Ghosts {
    first: NonNull<AtomicU32>,
    len: usize,
    /// Where they are.
    _lines: Arc<ZeroedLines>,
}

impl Ghosts {
    /// Lines for so many words.
    pub(crate) fn lines(words: usize) -> usize {
        words.div_ceil(LINE / size_of::<AtomicU32>())
    }

    /// So many words, from this line on.
    pub(crate) fn new(lines: &Arc<ZeroedLines>, line: usize, words: usize) -> Self {
        Self { first: lines.line(line).cast(), len: words, _lines: Arc::clone(lines) }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn bytes(&self) -> usize {
        size_of_val(self.words())
    }

    fn words(&self) -> &[AtomicU32] {
        // SAFETY: so many words in lines that stay as long as `self`, zeroed, and written as
        // atomics alone.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.len) }
    }

    /// Remembers that an entry with this tag, which is not 0, was evicted from a bucket.
    #[inline(always)]
    pub(crate) fn remember(&self, bucket: usize, tag: usize) {
        if let Some(word) = self.words().get(bucket) {
            // ORDER: Relaxed; written under the bucket's lock.
            let before = word.load(Ordering::Relaxed);
            debug_assert!(tag != 0, "cache.T1: a free place is remembered as evicted");
            word.store(before << 16 | tag as u32, Ordering::Relaxed);
        }
    }

    /// Whether an entry with this tag is among the last that were evicted from a bucket.
    #[inline(always)]
    pub(crate) fn remembers(&self, bucket: usize, tag: usize) -> bool {
        self.words().get(bucket).is_some_and(|word| {
            // ORDER: Relaxed; written under the bucket's lock.
            let tags = word.load(Ordering::Relaxed) as usize;
            tags & 0xffff == tag || tags >> 16 == tag
        })
    }
}

#[cfg(all(test, not(manycore_loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_last_two_of_each_bucket_are_remembered() {
        assert_eq!((Ghosts::lines(16), Ghosts::lines(17)), (1, 2));
        let lines = Arc::new(ZeroedLines::zeroed(2, 0));
        let ghosts = Ghosts::new(&lines, 0, 17);
        assert_eq!((ghosts.bytes(), ghosts.is_empty()), (68, false));
        let tags = [0x0001, 0x3fff, 0x1234];
        for tag in tags {
            ghosts.remember(16, tag);
        }
        assert_eq!(tags.map(|tag| ghosts.remembers(16, tag)), [false, true, true]);
        assert_eq!(tags.map(|tag| ghosts.remembers(15, tag)), [false; 3]);
        // There is no such bucket.
        ghosts.remember(17, 1);
        assert!(!ghosts.remembers(17, 1));
        let none = Ghosts::new(&lines, 0, 0);
        assert_eq!((none.bytes(), none.is_empty()), (0, true));
    }
}
