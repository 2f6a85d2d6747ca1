//! Memory of entries and lists: from slabs by size, so that what two threads allocate never shares
//! a line (slab.B5), and what was freed is at hand again.
//!
//! The slabs are the process's, because entries may outlive their map (`with_domain`). Model
//! checkers and Miri see each block of the system's allocator instead, and its end.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::NonNull;

/// Entries and lists are aligned to this, so that the tags of a word have room.
pub(super) const ALIGN: usize = 16;

#[cfg(not(any(manycore_loom, manycore_shuttle, miri)))]
mod slabs {
    use crate::slab::Slab;
    use std::mem::MaybeUninit;

    #[repr(align(16))]
    pub(super) struct Block<const N: usize>(MaybeUninit<[u8; N]>);

    pub(super) static OF_32: Slab<Block<32>> = Slab::new();
    pub(super) static OF_48: Slab<Block<48>> = Slab::new();
    pub(super) static OF_64: Slab<Block<64>> = Slab::new();
    pub(super) static OF_96: Slab<Block<96>> = Slab::new();
    pub(super) static OF_128: Slab<Block<128>> = Slab::new();
    pub(super) static OF_176: Slab<Block<176>> = Slab::new();
}

/// Memory of this layout, aligned to 16 at least.
#[inline(always)]
pub(super) fn allocate(layout: Layout) -> NonNull<u8> {
    #[cfg(not(any(manycore_loom, manycore_shuttle, miri)))]
    if layout.align() <= ALIGN {
        match layout.size() {
            0..=32 => return slabs::OF_32.alloc_raw().cast(),
            33..=48 => return slabs::OF_48.alloc_raw().cast(),
            49..=64 => return slabs::OF_64.alloc_raw().cast(),
            65..=96 => return slabs::OF_96.alloc_raw().cast(),
            97..=128 => return slabs::OF_128.alloc_raw().cast(),
            129..=176 => return slabs::OF_176.alloc_raw().cast(),
            _ => {}
        }
    }
    // SAFETY: entries and lists have a size.
    let memory = unsafe { alloc(layout) };
    NonNull::new(memory).unwrap_or_else(|| handle_alloc_error(layout))
}

/// Gives memory back.
///
/// # Safety
/// It is what [`allocate`] returned for this layout, and is not used any more.
#[inline(always)]
pub(super) unsafe fn free(memory: NonNull<u8>, layout: Layout) {
    #[cfg(not(any(manycore_loom, manycore_shuttle, miri)))]
    if layout.align() <= ALIGN {
        // SAFETY: the caller's memory is of this layout, so of the slab that `allocate` chose for
        // it (# Safety).
        unsafe {
            match layout.size() {
                0..=32 => return slabs::OF_32.free_raw(memory.cast()),
                33..=48 => return slabs::OF_48.free_raw(memory.cast()),
                49..=64 => return slabs::OF_64.free_raw(memory.cast()),
                65..=96 => return slabs::OF_96.free_raw(memory.cast()),
                97..=128 => return slabs::OF_128.free_raw(memory.cast()),
                129..=176 => return slabs::OF_176.free_raw(memory.cast()),
                _ => {}
            }
        }
    }
    // SAFETY: allocated with this layout (# Safety).
    unsafe { dealloc(memory.as_ptr(), layout) };
}
