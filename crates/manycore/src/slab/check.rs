//! Checks of debug builds: a block is freed once, by its owner, and not written after that.
//!
//! Owns: a bit for each block of a chunk (in use or not), and the pattern in blocks that are not.
//! In release builds nothing is here and nothing is checked.

#[cfg(all(debug_assertions, not(manycore_loom)))]
pub(super) use on::Check;

#[cfg(not(all(debug_assertions, not(manycore_loom))))]
pub(super) use off::Check;

#[cfg(all(debug_assertions, not(manycore_loom)))]
mod on {
    use crate::slab::chunk::{Block, CHUNK_BYTES, Chunk, ChunkLayout};
    use crate::sync::{AtomicU64, Ordering};

    /// Enough bits for the smallest blocks; chunks for large ones have fewer blocks.
    const WORDS: usize = CHUNK_BYTES / 8 / 64;

    /// What a free block is filled with.
    const POISON: u8 = 0xd5;

    /// Which blocks of a chunk are in use.
    pub(in crate::slab) struct Check {
        used: [AtomicU64; WORDS],
    }

    impl Check {
        pub(in crate::slab) fn new() -> Self {
            Self { used: std::array::from_fn(|_| AtomicU64::new(0)) }
        }

        /// # Safety
        /// As for [`Check::freed`], and the block comes from its owner's list.
        pub(in crate::slab) unsafe fn allocated(block: *mut Block, layout: ChunkLayout) {
            // SAFETY: a block of a slab lies in a chunk, which outlives it; the caller has it.
            let bytes = unsafe { Self::rest(block, layout) };
            assert!(
                bytes.iter().all(|byte| *byte == POISON),
                "manycore: memory of a slab was written after it was freed"
            );
            // SAFETY: the caller promises a block of a live chunk with this layout (# Safety).
            let was_used = unsafe { Self::flip(block, layout, true) };
            assert!(!was_used, "manycore: a slab gave memory out twice");
        }

        /// # Safety
        /// `block` is a block of a live chunk with this layout.
        pub(in crate::slab) unsafe fn freed(block: *mut Block, layout: ChunkLayout) {
            // SAFETY: the caller promises a block of a live chunk with this layout (# Safety).
            let was_used = unsafe { Self::flip(block, layout, false) };
            assert!(was_used, "manycore: memory of a slab was freed twice");
            // SAFETY: the bit said that the block was in use, so it is the caller's to free.
            unsafe { Self::poison(block, layout) };
        }

        /// # Safety
        /// The block is the caller's alone.
        pub(in crate::slab) unsafe fn poison(block: *mut Block, layout: ChunkLayout) {
            // SAFETY: the caller promises that the block is its own alone (# Safety); the bytes
            // after the link are within the block (`ChunkLayout::of`).
            unsafe {
                block.add(1).cast::<u8>().write_bytes(POISON, layout.block - size_of::<Block>());
            };
        }

        /// Sets or clears the block's bit; returns what it was.
        unsafe fn flip(block: *mut Block, layout: ChunkLayout, used: bool) -> bool {
            // SAFETY: `allocated` and `freed` promise a block of a live chunk with this layout.
            let index = unsafe { Chunk::index_of(block, layout) };
            // SAFETY: `allocated` and `freed` promise a live chunk. The bits are atomic, and the
            // reference is to one word of them.
            let word = unsafe { &(*Chunk::of(block, layout)).check.used[index / 64] };
            let bit = 1 << (index % 64);
            // ORDER: Relaxed; the bit only tells on callers that are wrong.
            let old = if used {
                word.fetch_or(bit, Ordering::Relaxed)
            } else {
                word.fetch_and(!bit, Ordering::Relaxed)
            };
            old & bit != 0
        }

        /// What of a free block is filled.
        unsafe fn rest<'a>(block: *mut Block, layout: ChunkLayout) -> &'a [u8] {
            let len = layout.block - size_of::<Block>();
            // SAFETY: slab.B2 - `allocated` has the block from its owner's list, so no other thread
            // writes it; `carve` or `freed` filled these bytes.
            unsafe { std::slice::from_raw_parts(block.add(1).cast(), len) }
        }
    }
}

#[cfg(not(all(debug_assertions, not(manycore_loom))))]
mod off {
    use crate::slab::chunk::{Block, ChunkLayout};

    pub(in crate::slab) struct Check;

    impl Check {
        pub(in crate::slab) fn new() -> Self {
            Self
        }

        /// # Safety
        /// None needed.
        #[inline(always)]
        pub(in crate::slab) unsafe fn allocated(_: *mut Block, _: ChunkLayout) {}

        /// # Safety
        /// None needed.
        #[inline(always)]
        pub(in crate::slab) unsafe fn freed(_: *mut Block, _: ChunkLayout) {}

        /// # Safety
        /// None needed.
        #[inline(always)]
        pub(in crate::slab) unsafe fn poison(_: *mut Block, _: ChunkLayout) {}
    }
}
