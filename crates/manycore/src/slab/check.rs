//! Checks of debug builds: a block is freed once, by its owner, and not written after that.
//!
//! Owns: a bit for each block of a chunk (in use or not), and the pattern in blocks that are not in
//! use. Release builds have none of this, and check nothing.

use super::layout::CHUNK_BYTES;
use crate::sync::{AtomicU64, Ordering};

/// True if anything is checked.
pub(super) const ON: bool = cfg!(all(debug_assertions, not(manycore_loom)));

/// Enough bits for the smallest blocks. Chunks for larger blocks have fewer of them.
const WORDS: usize = if ON { CHUNK_BYTES / 8 / 64 } else { 0 };

/// The byte that fills a free block, except its links.
const POISON: u8 = 0xd5;

/// Which blocks of a chunk are in use.
pub(super) struct Check {
    used: [AtomicU64; WORDS],
}

impl Check {
    pub(super) fn new() -> Self {
        Self { used: std::array::from_fn(|_| AtomicU64::new(0)) }
    }

    /// A block is allocated; `rest` is what a free one is filled with.
    pub(super) fn allocated(&self, index: usize, rest: &[u8]) {
        assert!(
            rest.iter().all(|byte| *byte == POISON),
            "manycore: memory of a slab was written after it was freed"
        );
        assert!(!self.flip(index, true), "manycore: a slab gave memory out twice");
    }

    /// A block is freed; the caller poisons it.
    pub(super) fn freed(&self, index: usize) {
        assert!(self.flip(index, false), "manycore: memory of a slab was freed twice");
    }

    /// Sets or clears the block's bit; returns what it was.
    fn flip(&self, index: usize, used: bool) -> bool {
        let (word, bit) = (&self.used[index / 64], 1 << (index % 64));
        // ORDER: Relaxed; the bit only tells on callers that are wrong.
        let old = if used {
            word.fetch_or(bit, Ordering::Relaxed)
        } else {
            word.fetch_and(!bit, Ordering::Relaxed)
        };
        old & bit != 0
    }
}

/// Fills what a free block has beside its links.
///
/// # Safety
/// The bytes are those of a block that is the caller's alone.
pub(super) unsafe fn poison(rest: *mut u8, len: usize) {
    // SAFETY: the caller promises that the bytes are a block's that is its own alone (# Safety).
    unsafe { rest.write_bytes(POISON, len) };
}
