//! Ghosts: a table's memory of evicted entries. A key that was evicted from probation and comes
//! back has proved itself; every key that comes back moves the target of probation (probation.Q3).
//!
//! ```text
//! word of a bucket:   (2 bits) | oldest ghost | ghost | newest ghost
//! a ghost, 10 bits:   part (1) | tag (9), or all zero if there is none
//! ```

use crate::huge_pages::{LINE, ZeroedLines};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// The part of the table that an entry was in when it was evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// On probation.
    Probation,
    /// Among the entries that have proved themselves.
    Proved,
}

/// Bits of a ghost: nine bits of a tag, and the part.
const BITS: u32 = 10;
const TAG: u32 = (1 << (BITS - 1)) - 1;
/// The number of ghosts in a word, and a word with the lowest bit of each ghost set.
const GHOSTS: u32 = 3;
const EACH: u32 = 1 | 1 << BITS | 1 << (2 * BITS);

/// A word for each bucket, with the last three keys that were evicted from it, by some bits of
/// their tags. A word is read and written under its bucket's lock.
///
/// A new key is mistaken for a ghost in three cases of 511. Three ghosts for each bucket are about
/// half as many as there are entries. With more ghosts, the keys of a loop that is twice as long as
/// the cache would be remembered. They would then take the room of others that are worth as much.
pub(crate) struct Ghosts {
    first: NonNull<AtomicU32>,
    len: usize,
    /// Keeps the memory of the words.
    _lines: Arc<ZeroedLines>,
}

impl Ghosts {
    /// Returns the number of lines that this number of words takes.
    pub(crate) fn lines(words: usize) -> usize {
        words.div_ceil(LINE / size_of::<AtomicU32>())
    }

    /// Makes this number of words, from `line` on.
    pub(crate) fn new(lines: &Arc<ZeroedLines>, line: usize, words: usize) -> Self {
        Self { first: lines.line(line).cast(), len: words, _lines: Arc::clone(lines) }
    }

    pub(crate) fn bytes(&self) -> usize {
        size_of_val(self.words())
    }

    #[inline(always)]
    fn words(&self) -> &[AtomicU32] {
        // SAFETY: there are `len` words in lines that live as long as `self`. They are zeroed, and
        // written as atomics alone.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.len) }
    }

    /// Returns the bits that a ghost keeps of a tag. They are not zero, because zero means no
    /// ghost.
    #[inline(always)]
    fn ghost(tag: usize) -> u32 {
        debug_assert!(tag != 0, "cache_table.T1: a free place is remembered as evicted");
        (tag as u32 & TAG).max(1)
    }

    /// Remembers that an entry with this tag was evicted from a bucket. The tag is not zero.
    /// Returns false if there are no ghosts.
    #[inline(always)]
    pub(crate) fn remember(&self, bucket: usize, tag: usize, part: Part) -> bool {
        let Some(word) = self.words().get(bucket) else { return false };
        // ORDER: Relaxed; under the bucket's lock.
        let before = word.load(Ordering::Relaxed);
        let ghost = Self::ghost(tag) | (part as u32) << (BITS - 1);
        let all = (before << BITS | ghost) & ((1 << (BITS * GHOSTS)) - 1);
        word.store(all, Ordering::Relaxed);
        true
    }

    /// Returns the part from which the last entry with this tag was evicted, if it is among the
    /// last three of the bucket.
    #[inline(always)]
    pub(crate) fn recall(&self, bucket: usize, tag: usize) -> Option<Part> {
        // ORDER: Relaxed; under the bucket's lock.
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
        assert_eq!(ghosts.bytes(), 68);
        let tags = [0x0001, 0x3fff, 0x1234, 0x2000];
        let parts = [Part::Proved, Part::Proved, Part::Probation, Part::Proved];
        assert_eq!(tags.map(|tag| ghosts.recall(16, tag)), [None; 4]);
        for (tag, part) in tags.into_iter().zip(parts) {
            assert!(ghosts.remember(16, tag, part));
            assert_eq!(ghosts.recall(16, tag), Some(part));
        }
        ghosts.remember(16, 0x0155, Part::Probation);
        let [_, _, third, last] = parts.map(Some);
        assert_eq!(tags.map(|tag| ghosts.recall(16, tag)), [last, None, third, last]);
        assert_eq!(tags.map(|tag| ghosts.recall(15, tag)), [None; 4]);
        // The newest ghost of a tag says where the key was.
        ghosts.remember(16, 0x1234, Part::Proved);
        assert_eq!(ghosts.recall(16, 0x1234), Some(Part::Proved));
        // There is no such bucket.
        assert!(!ghosts.remember(17, 1, Part::Proved));
        assert_eq!(ghosts.recall(17, 1), None);
        let none = Ghosts::new(&lines, 0, 0);
        assert_eq!(none.bytes(), 0);
    }
}
