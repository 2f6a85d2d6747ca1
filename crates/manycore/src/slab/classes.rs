//! Blocks by size: memory for types without a slab of their own, such as the users' nodes of
//! read-side sections.
//!
//! Owns: the slabs of the process, one for each size. Does not own: what lies in the blocks. Larger
//! or more strictly aligned blocks come from the global allocator.
//!
//! Blocks are taken and freed by their layout, as with the global allocator. What two threads take
//! never shares a line (slab.B5), and freed blocks are at hand again. Model checkers, Miri and the
//! build for sanitizers (`cfg(manycore_sanitized)`) take every block from the global allocator, and
//! so see its end.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::NonNull;

/// Alignment of the blocks. Stricter alignments are left to the global allocator.
pub(crate) const ALIGN: usize = 16;

/// Allocates memory of this layout, from the slabs that the process shares: one for each size up to
/// 512 bytes, in steps of a quarter at most. If the layout is larger, or aligned to more than 16
/// bytes, the memory comes from the global allocator.
///
/// What for: nodes of many small structures, which would each need a chunk in a [`Slab`] of their
/// own. When it was freed, such memory is at hand for all of them again. Costs and progress are
/// those of a slab, if the layout is a constant. Errors too: out of memory ends the process.
///
/// # Panics
/// If the layout has no size.
///
/// ```
/// use manycore::slab;
/// use std::alloc::Layout;
///
/// const PAIR: Layout = Layout::new::<(u64, u64)>();
/// let pair = slab::allocate(PAIR).cast();
/// // SAFETY: memory for a pair, which is this thread's, and freed once by the same layout.
/// unsafe {
///     pair.write((1_u64, 2_u64));
///     assert_eq!(pair.read(), (1, 2));
///     slab::free(pair.cast(), PAIR);
/// }
/// ```
///
/// [`Slab`]: super::Slab
#[inline(always)]
#[must_use]
pub fn allocate(layout: Layout) -> NonNull<u8> {
    match slabs::allocate(layout) {
        Some(block) => block,
        None => allocate_apart(layout),
    }
}

/// Gives memory back, on any thread.
///
/// # Safety
/// It is what [`allocate`] returned for this layout, and is not used any more.
///
/// ```
/// use manycore::slab;
/// use std::alloc::Layout;
///
/// let memory = slab::allocate(Layout::new::<u64>());
/// // SAFETY: allocated just now with this layout, and not used.
/// unsafe { slab::free(memory, Layout::new::<u64>()) };
/// ```
#[inline(always)]
pub unsafe fn free(memory: NonNull<u8>, layout: Layout) {
    // SAFETY: the caller promises memory that `allocate` returned for this layout (# Safety), so it
    // came from the same slab, or else from the global allocator.
    unsafe {
        if !slabs::free(memory, layout) {
            dealloc(memory.as_ptr(), layout);
        }
    }
}

fn allocate_apart(layout: Layout) -> NonNull<u8> {
    assert!(layout.size() > 0, "manycore: memory without size");
    // SAFETY: not of size zero.
    let memory = unsafe { alloc(layout) };
    NonNull::new(memory).unwrap_or_else(|| handle_alloc_error(layout))
}

#[cfg(any(manycore_loom, manycore_shuttle, miri, manycore_sanitized))]
mod slabs {
    use crate::percpu::Slot;
    use std::alloc::Layout;
    use std::ptr::NonNull;

    #[inline(always)]
    pub(super) fn allocate(_: Layout) -> Option<NonNull<u8>> {
        None
    }

    #[inline(always)]
    pub(super) unsafe fn free(_: NonNull<u8>, _: Layout) -> bool {
        false
    }

    pub(crate) fn trim_before_exit(_: Slot) {}
}

#[cfg(not(any(manycore_loom, manycore_shuttle, miri, manycore_sanitized)))]
mod slabs {
    use super::super::Slab;
    use super::ALIGN;
    use crate::percpu::Slot;
    use std::alloc::Layout;
    use std::mem::MaybeUninit;
    use std::ptr::NonNull;

    #[repr(align(16))]
    #[allow(dead_code, reason = "only its size counts")]
    struct Block<const N: usize>(MaybeUninit<[u8; N]>);

    /// The slabs by size. The steps are those of most allocators: at most a quarter of a block is
    /// lost. Multiples of 16, the sizes of small nodes, lose nothing.
    macro_rules! by_size {
        ($($slab:ident: $above:literal to $size:literal,)*) => {
            $(static $slab: Slab<Block<$size>> = Slab::new();)*

            #[inline(always)]
            pub(super) fn allocate(layout: Layout) -> Option<NonNull<u8>> {
                const { $(assert!(align_of::<Block<$size>>() == ALIGN);)* }
                if layout.align() > ALIGN {
                    return None;
                }
                match layout.size() {
                    $($above..=$size => Some($slab.alloc_raw().cast()),)*
                    _ => None,
                }
            }

            /// # Safety
            /// What `allocate` returned for this layout, if it returned any, and not used any more.
            #[inline(always)]
            pub(super) unsafe fn free(memory: NonNull<u8>, layout: Layout) -> bool {
                if layout.align() > ALIGN {
                    return false;
                }
                // SAFETY: the caller's memory is of this layout, so of the slab that `allocate`
                // chose for it, and is not used any more (# Safety).
                unsafe {
                    match layout.size() {
                        $($above..=$size => $slab.free_raw(memory.cast()),)*
                        _ => return false,
                    }
                }
                true
            }

            /// Trims the slabs of a slot when its thread ends.
            pub(crate) fn trim_before_exit(slot: Slot) {
                $($slab.trim_before_exit(slot);)*
            }
        };
    }

    by_size! {
        OF_16: 1 to 16,
        OF_32: 17 to 32,
        OF_48: 33 to 48,
        OF_64: 49 to 64,
        OF_80: 65 to 80,
        OF_96: 81 to 96,
        OF_112: 97 to 112,
        OF_128: 113 to 128,
        OF_160: 129 to 160,
        OF_192: 161 to 192,
        OF_224: 193 to 224,
        OF_256: 225 to 256,
        OF_320: 257 to 320,
        OF_384: 321 to 384,
        OF_448: 385 to 448,
        OF_512: 449 to 512,
    }
}

/// Puts away what a slot keeps at hand before its thread ends: its next owner may come late.
pub(crate) use slabs::trim_before_exit;
