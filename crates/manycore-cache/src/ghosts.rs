//! Ghosts: what a table remembers of entries that were evicted.

use crate::huge_pages::{LINE, ZeroedLines};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Of the four tags in a word the lowest bits, and the highest.
const FOUR_ONES: u64 = 0x1_0001_0001_0001;
const FOUR_HIGHEST: u64 = FOUR_ONES << 15;

/// For each bucket a word with the tags of the four keys that were evicted from it last; or none.
/// A word is written and read under its bucket's lock.
pub(crate) struct Ghosts {
    first: NonNull<AtomicU64>,
    len: usize,
    /// Where they are.
    _lines: Arc<ZeroedLines>,
}

impl Ghosts {
    /// Lines for so many words.
    pub(crate) fn lines(words: usize) -> usize {
        words.div_ceil(LINE / size_of::<AtomicU64>())
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

    fn words(&self) -> &[AtomicU64] {
        // SAFETY: so many words in lines that stay as long as `self`, zeroed, and written as
        // atomics alone.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.len) }
    }

    /// Remembers that an entry with this tag, which is not 0, was evicted from a bucket.
    pub(crate) fn remember(&self, bucket: usize, tag: usize) {
        if let Some(word) = self.words().get(bucket) {
            // ORDER: Relaxed; written under the bucket's lock.
            let before = word.load(Ordering::Relaxed);
            debug_assert!(tag != 0, "cache.T1: a free place is remembered as evicted");
            word.store(before << 16 | tag as u64, Ordering::Relaxed);
        }
    }

    /// Whether an entry with this tag is among the last that were evicted from a bucket.
    pub(crate) fn remembers(&self, bucket: usize, tag: usize) -> bool {
        self.words().get(bucket).is_some_and(|word| {
            // ORDER: Relaxed; written under the bucket's lock.
            let differ = word.load(Ordering::Relaxed) ^ (tag as u64 * FOUR_ONES);
            // Whether one of the four is zero: their highest bits are free.
            differ.wrapping_sub(FOUR_ONES) & FOUR_HIGHEST & !differ != 0
        })
    }
}
