//! A chunk: a piece of memory aligned to its size, a header, and blocks of one size.
//!
//! The header has a read-only line that names the owner, and a line for the owner alone, so that a
//! remote free does not contend for the owner's line. Blocks lie before and after the header, which
//! takes 256 bytes of 64 KiB.

use super::check::{self, Check};
use super::layout::{Block, ChunkLayout};
use super::system::{self, Reserve};
use crate::config::SMALL;
use std::ptr::{self, NonNull};

/// Bytes of fresh memory that are put on a list at a time.
const CARVE_BYTES: usize = if SMALL { 128 } else { 2048 };

/// A pointer of the slab's creator, which only the creator follows.
#[derive(Debug, Clone, Copy)]
pub(super) struct Owner(pub(super) *const ());

// SAFETY: it is handed out and never followed here; following it is unsafe code elsewhere.
unsafe impl Send for Owner {}
// SAFETY: a shared owner gives out the pointer's value, which never changes; `owner_of` hands it to
// code that is unsafe where it follows it.
unsafe impl Sync for Owner {}

/// Bytes of a header.
pub(super) const HEADER_BYTES: usize = size_of::<Chunk<()>>();

/// Header of a chunk that a heap `H` owns. This module does not look into the heap.
#[repr(C, align(128))]
pub(super) struct Chunk<H> {
    /// The heap that the chunk belongs to. Never changes, like the next five fields.
    pub(super) heap: *const H,
    /// The pointer that the slab was made with.
    pub(super) owner: Owner,
    /// Start of the chunk, and of the first block.
    base: *mut u8,
    /// Blocks before the header.
    before: usize,
    /// Offset of the first block after the header.
    behind: usize,
    /// Blocks in the chunk.
    pub(super) blocks: usize,
    pub(super) own: Own<H>,
    pub(super) check: Check,
}

/// The owner's data in a chunk.
#[repr(align(128))]
pub(super) struct Own<H> {
    /// Blocks that were taken and came back.
    pub(super) free: *mut Block,
    /// Blocks that are not on `free`: in use, on their way home, or at hand in the heap.
    pub(super) taken: usize,
    /// Blocks that were ever taken.
    carved: usize,
    /// True if the chunk is on the list of chunks with free or fresh blocks.
    pub(super) is_listed: bool,
    /// Neighbours on that list; `next` also on the list of empty chunks.
    pub(super) next: *mut Chunk<H>,
    pub(super) previous: *mut Chunk<H>,
    /// Neighbours among all chunks of the heap.
    pub(super) all_next: *mut Chunk<H>,
    pub(super) all_previous: *mut Chunk<H>,
}

impl<H> Chunk<H> {
    /// Makes a chunk of `heap`, in a huge page if there is a reserve.
    pub(super) fn make(
        heap: *const H,
        layout: ChunkLayout,
        owner: Owner,
        reserve: Option<&mut Reserve>,
    ) -> *mut Self {
        let base = match reserve {
            Some(reserve) => reserve.take(layout.chunk).as_ptr(),
            None => system::take(layout.chunk).as_ptr(),
        };
        let header = layout.header(base.addr());
        let before = header / layout.block;
        let behind = (header + size_of::<Self>()).next_multiple_of(layout.align);
        let own = Own {
            free: ptr::null_mut(),
            taken: 0,
            carved: 0,
            is_listed: false,
            next: ptr::null_mut(),
            previous: ptr::null_mut(),
            all_next: ptr::null_mut(),
            all_previous: ptr::null_mut(),
        };
        let blocks = before + (layout.chunk - behind) / layout.block;
        let check = Check::new();
        // SAFETY: the header lies in the chunk that `take` gave (`ChunkLayout::of`), aligned to
        // lines.
        let chunk = unsafe { base.add(header) }.cast::<Self>();
        // SAFETY: `take` gave `layout.chunk` bytes to this call alone, and the header lies in them,
        // aligned to lines (`ChunkLayout::of`).
        unsafe { chunk.write(Self { heap, owner, base, before, behind, blocks, own, check }) };
        chunk
    }

    /// Gives the memory back.
    ///
    /// # Safety
    /// The chunk was made with this layout, none of its blocks is in use, and no list that it is on
    /// is looked at again.
    pub(super) unsafe fn give_back(chunk: *mut Self, layout: ChunkLayout) {
        // SAFETY: the caller promises a chunk of this layout without a block in use, whose lists
        // are not looked at again (# Safety). `make` got `base` from `take`, so it is not null.
        unsafe { system::give_back(NonNull::new_unchecked((*chunk).base), layout.chunk) };
    }

    /// Returns the chunk that a block lies in.
    #[inline(always)]
    pub(super) fn of(block: *mut Block, layout: ChunkLayout) -> *mut Self {
        let header = |address: usize| {
            let base = address & !(layout.chunk - 1);
            base + layout.header(base)
        };
        block.map_addr(header).cast()
    }

    /// Takes the blocks on the chunk's list, or else some fresh ones, in rising order. Returns the
    /// list and its length: zero if the chunk has neither.
    ///
    /// # Safety
    /// The caller owns the chunk, and this is its layout.
    pub(super) unsafe fn take(chunk: *mut Self, layout: ChunkLayout) -> (*mut Block, usize) {
        // SAFETY: slab.B1 - the caller promises that it owns the chunk (# Safety), so `own` is this
        // thread's.
        let own = unsafe { &mut (*chunk).own };
        debug_assert!(own.taken <= own.carved, "slab.B4: more blocks are taken than were carved");
        let came_back = own.carved - own.taken;
        debug_assert!(
            // SAFETY: slab.B2 - the list is this chunk's, and the caller owns the chunk (# Safety).
            unsafe { Block::count(own.free) } == came_back,
            "slab.B2: a chunk's list has not the blocks that came back"
        );
        if came_back > 0 {
            own.taken = own.carved;
            return (std::mem::replace(&mut own.free, ptr::null_mut()), came_back);
        }
        // SAFETY: slab.B1 - the caller promises that it owns the chunk, and that this is its layout
        // (# Safety). The reference to `own` above is not used any more.
        let list = unsafe { Self::carve(chunk, layout) };
        // SAFETY: slab.B1 - the caller owns the chunk (# Safety), and `carve` has returned, so this
        // is the only reference to `own`.
        let own = unsafe { &mut (*chunk).own };
        let fresh = own.carved - own.taken;
        own.taken = own.carved;
        (list, fresh)
    }

    /// Makes a list of some fresh blocks, in rising order; null if there are none.
    ///
    /// # Safety
    /// Same as for [`take`](Self::take), and the caller has no reference to `own`.
    unsafe fn carve(chunk: *mut Self, layout: ChunkLayout) -> *mut Block {
        // SAFETY: slab.B1 - the caller promises that it owns the chunk and has no reference to
        // `own` (# Safety); `base` and `blocks` never change.
        let (own, base, blocks) = unsafe { (&mut (*chunk).own, (*chunk).base, (*chunk).blocks) };
        let until = blocks.min(own.carved + (CARVE_BYTES / layout.block).max(1));
        let mut list = ptr::null_mut();
        for index in (own.carved..until).rev() {
            // SAFETY: a live chunk; `index < blocks`, so the block lies within it.
            let block = unsafe { base.add(Self::offset(chunk, index, layout)) }.cast::<Block>();
            // SAFETY: the block is fresh, aligned, and not shared.
            unsafe {
                block.write(Block { next: list, below: ptr::null_mut() });
                Self::poison(block, layout);
            }
            list = block;
        }
        debug_assert!(own.carved <= until && until <= blocks, "slab.B2: blocks are carved twice");
        own.carved = until;
        list
    }

    /// Returns the offset of a block in the chunk.
    ///
    /// # Safety
    /// The chunk is live, and this is its layout.
    unsafe fn offset(chunk: *mut Self, index: usize, layout: ChunkLayout) -> usize {
        // SAFETY: the caller promises that the chunk is live (# Safety); these never change.
        let (before, behind) = unsafe { ((*chunk).before, (*chunk).behind) };
        match index.checked_sub(before) {
            None => index * layout.block,
            Some(index) => behind + index * layout.block,
        }
    }

    /// In a debug build: the block leaves its heap's list, for a user.
    ///
    /// # Safety
    /// `block` is a block of a live chunk with this layout, and the caller's alone; `carve` or
    /// [`check_freed`](Self::check_freed) had it last.
    #[inline(always)]
    pub(super) unsafe fn check_allocated(block: *mut Block, layout: ChunkLayout) {
        if !check::ON {
            return;
        }
        // SAFETY: slab.B2 - the caller promises a block of its own, in a live chunk of this layout
        // (# Safety). The block's bytes behind the links were filled when it was freed or carved.
        // The bits are atomic.
        unsafe {
            let index = Self::index_of(block, layout);
            let rest = std::slice::from_raw_parts(block.add(1).cast(), layout.rest());
            (*Self::of(block, layout)).check.allocated(index, rest);
        }
    }

    /// In a debug build: a user gives the block up.
    ///
    /// # Safety
    /// `block` is a block of a live chunk with this layout.
    #[inline(always)]
    pub(super) unsafe fn check_freed(block: *mut Block, layout: ChunkLayout) {
        if !check::ON {
            return;
        }
        // SAFETY: the caller promises a block of a live chunk with this layout (# Safety). The bits
        // are atomic; if they say that the block was in use, it is the caller's to free.
        unsafe {
            let index = Self::index_of(block, layout);
            (*Self::of(block, layout)).check.freed(index);
            Self::poison(block, layout);
        }
    }

    /// # Safety
    /// The block is the caller's alone, and of this layout.
    unsafe fn poison(block: *mut Block, layout: ChunkLayout) {
        if check::ON {
            // SAFETY: the caller promises that the block is its own alone (# Safety); what comes
            // after its links is within it (`ChunkLayout::of`).
            unsafe { check::poison(block.add(1).cast(), layout.rest()) };
        }
    }

    /// Returns true if `take` would find something.
    ///
    /// # Safety
    /// The caller owns the chunk.
    pub(super) unsafe fn has_more(chunk: *mut Self) -> bool {
        // SAFETY: slab.B1 - the caller promises that it owns the chunk (# Safety); `blocks` never
        // changes.
        unsafe { (*chunk).own.taken < (*chunk).blocks }
    }

    /// Returns the block's index in its chunk.
    ///
    /// # Safety
    /// The block lies in a live chunk of this layout.
    unsafe fn index_of(block: *mut Block, layout: ChunkLayout) -> usize {
        let chunk = Self::of(block, layout);
        // SAFETY: the caller promises that the block lies in a live chunk of this layout (#
        // Safety); these never change.
        let (before, behind, blocks) =
            unsafe { ((*chunk).before, (*chunk).behind, (*chunk).blocks) };
        let offset = block.addr() & (layout.chunk - 1);
        let index = match offset.checked_sub(behind) {
            None => offset / layout.block,
            Some(offset) => before + offset / layout.block,
        };
        assert!(
            // SAFETY: the caller promises a live chunk of this layout (# Safety).
            index < blocks && offset == unsafe { Self::offset(chunk, index, layout) },
            "manycore: {block:?} was freed, but it is no block of a slab"
        );
        index
    }
}
