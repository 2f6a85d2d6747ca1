//! Ghosts: what a table remembers of entries that were evicted.

use crate::huge_pages::{LINE, ZeroedLines};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Where an entry was when it was evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// On probation.
    Probation,
    /// Among those that have proved themselves.
    Proved,
}

/// Bits of a ghost: nine of a tag, and its part.
const BITS: u32 = 10;
const TAG: u32 = (1 << (BITS - 1)) - 1;
/// As many ghosts as a word has room for, and the same bit of each.
const GHOSTS: u32 = 3;
const EACH: u32 = 1 | 1 << BITS | 1 << (2 * BITS);

/// For each bucket a word with the last three keys that were evicted from it, by some bits of their
/// tags; or none. A word is written and read under its bucket's lock.
///
/// A new key is taken for one of them by mistake in three cases of 511. Three ghosts for each
/// bucket are about half as many as there are entries. With more, the keys of a loop that is twice
/// as long as the cache would be remembered, and would take the room of others that are worth as
/// much.
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

    #[inline(always)]
    fn words(&self) -> &[AtomicU32] {
        // SAFETY: so many words in lines that stay as long as `self`, zeroed, and written as
        // atomics alone.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.len) }
    }

    /// What a ghost keeps of a tag; not zero, which is no ghost.
    #[inline(always)]
    fn ghost(tag: usize) -> u32 {
        debug_assert!(tag != 0, "cache_table.T1: a free place is remembered as evicted");
        (tag as u32 & TAG).max(1)
    }

    /// Remembers that an entry with this tag, which is not 0, was evicted from a bucket.
    #[inline(always)]
    pub(crate) fn remember(&self, bucket: usize, tag: usize, part: Part) {
        if let Some(word) = self.words().get(bucket) {
            // ORDER: Relaxed; written under the bucket's lock.
            let before = word.load(Ordering::Relaxed);
            let ghost = Self::ghost(tag) | (part as u32) << (BITS - 1);
            let all = (before << BITS | ghost) & ((1 << (BITS * GHOSTS)) - 1);
            word.store(all, Ordering::Relaxed);
        }
    }

    /// Which part the last entry with this tag was in that was evicted from a bucket, if it is
    /// among the last ones.
    #[inline(always)]
    pub(crate) fn recall(&self, bucket: usize, tag: usize) -> Option<Part> {
        // ORDER: Relaxed; written under the bucket's lock.
        let all = self.words().get(bucket)?.load(Ordering::Relaxed);
        let other = all ^ (Self::ghost(tag) * EACH);
        let at = (0..GHOSTS).find(|at| other >> (BITS * at) & TAG == 0)?;
        let is_protected = all >> (BITS * at + BITS - 1) & 1 != 0;
        Some(if is_protected { Part::Proved } else { Part::Probation })
    }
}

#[cfg(all(test, not(manycore_loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_last_three_of_each_bucket_are_remembered() {
        assert_eq!((Ghosts::lines(16), Ghosts::lines(17)), (1, 2));
        let lines = Arc::new(ZeroedLines::zeroed(2, 0));
        let ghosts = Ghosts::new(&lines, 0, 17);
        assert_eq!((ghosts.bytes(), ghosts.is_empty()), (68, false));
        let tags = [0x0001, 0x3fff, 0x1234, 0x2000];
        let parts = [Part::Proved, Part::Proved, Part::Probation, Part::Proved];
        assert_eq!(tags.map(|tag| ghosts.recall(16, tag)), [None; 4]);
        for (tag, part) in tags.into_iter().zip(parts) {
            ghosts.remember(16, tag, part);
            assert_eq!(ghosts.recall(16, tag), Some(part));
        }
        ghosts.remember(16, 0x0155, Part::Probation);
        let [_, _, third, last] = parts.map(Some);
        assert_eq!(tags.map(|tag| ghosts.recall(16, tag)), [last, None, third, last]);
        assert_eq!(tags.map(|tag| ghosts.recall(15, tag)), [None; 4]);
        // The newest says where the key was.
        ghosts.remember(16, 0x1234, Part::Proved);
        assert_eq!(ghosts.recall(16, 0x1234), Some(Part::Proved));
        // There is no such bucket.
        ghosts.remember(17, 1, Part::Proved);
        assert_eq!(ghosts.recall(17, 1), None);
        let none = Ghosts::new(&lines, 0, 0);
        assert_eq!((none.bytes(), none.is_empty()), (0, true));
    }
}
