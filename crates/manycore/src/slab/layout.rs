//! The division of a slab's memory: chunks, and blocks of one size in them.

use crate::config::SMALL;

/// Bytes of a chunk, unless its blocks are large.
pub(super) const CHUNK_BYTES: usize = if SMALL { 2048 } else { 64 << 10 };
/// A chunk has at least this many blocks.
pub(super) const BLOCKS_MIN: usize = if SMALL { 2 } else { 12 };
/// Number of places in a chunk at which headers begin, by the chunk's number. If all headers were
/// at the beginning, they would all fall into one set of the caches.
const COLOURS: usize = if SMALL { 2 } else { 16 };
/// Bytes from one such place to the next.
const COLOUR_BYTES: usize = 256;
/// Bytes of free objects that a heap has at hand.
const READY_BYTES: usize = if SMALL { 1024 } else { 64 << 10 };
/// Size of the largest object.
pub(super) const SIZE_MAX: usize = 64 << 10;
/// The strictest alignment.
pub(super) const ALIGN_MAX: usize = 4096;

/// The division of the memory for a type. A constant of the type.
#[derive(Debug, Clone, Copy)]
pub(super) struct ChunkLayout {
    /// Bytes from one block to the next.
    pub(super) block: usize,
    /// Bytes of a chunk; a power of two.
    pub(super) chunk: usize,
    /// Free blocks that a heap has at hand, about.
    pub(super) ready: usize,
    pub(super) align: usize,
}

impl ChunkLayout {
    /// Returns the layout for blocks of `T` in chunks with a header of `header` bytes.
    pub(super) const fn of<T>(header: usize) -> Self {
        assert!(size_of::<T>() <= SIZE_MAX, "manycore: a slab holds objects of at most 64 KiB");
        assert!(align_of::<T>() <= ALIGN_MAX, "manycore: a slab aligns objects to at most 4096");
        let align = max(align_of::<T>(), align_of::<Block>());
        let block = max(size_of::<T>(), size_of::<Block>()).next_multiple_of(align);
        let header = (COLOURS * COLOUR_BYTES + header).next_multiple_of(align);
        let chunk = max((header + BLOCKS_MIN * block).next_power_of_two(), CHUNK_BYTES);
        let ready = max(READY_BYTES / block, 4);
        Self { block, chunk, ready: if ready > 1024 { 1024 } else { ready }, align }
    }

    /// Returns the bytes of a free block after its links.
    pub(super) const fn rest(self) -> usize {
        self.block - size_of::<Block>()
    }

    /// Returns the offset of the header in a chunk.
    #[inline(always)]
    pub(super) const fn header(self, base: usize) -> usize {
        base / self.chunk % COLOURS * COLOUR_BYTES
    }
}

const fn max(a: usize, b: usize) -> usize {
    if a > b { a } else { b }
}

/// A free block.
#[repr(C)]
pub(super) struct Block {
    pub(super) next: *mut Block,
    /// In the first block of a parcel that was sent home: the parcel below it.
    pub(super) below: *mut Block,
}

impl Block {
    /// Counts the blocks on a list: for checks of debug builds.
    ///
    /// # Safety
    /// `list` is null, or the first block of a list that no other thread changes.
    pub(super) unsafe fn count(mut list: *const Self) -> usize {
        let mut count = 0;
        while !list.is_null() {
            // SAFETY: the caller promises that the list is its own (# Safety).
            list = unsafe { (*list).next };
            count += 1;
        }
        count
    }
}
