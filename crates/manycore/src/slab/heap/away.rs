//! Memory that leaves the hand: blocks on their way back to their chunks, and chunks on theirs to
//! the system (slab.B2, slab.B4).

use super::{Block, Chunk, ChunkLayout, EMPTIES_MIN, Heap, Local, PARCEL_BLOCKS, add};
use crate::sync::Ordering;
use std::ptr;

impl Heap {
    /// Gives half of the blocks that may be at hand back to the chunks, and as many of those that
    /// came home.
    ///
    /// # Safety
    /// As for [`Heap::pop`], and no reference to `local` is in use.
    #[cold]
    #[inline(never)]
    pub(super) unsafe fn put_away(&self, layout: ChunkLayout) {
        self.local.with_mut(|local| {
            // SAFETY: slab.B1 - the caller owns the slot, and with it every chunk here.
            unsafe {
                let local = &mut *local;
                let half = layout.ready / 2;
                let at_hand = local.free;
                local.free = self.put_some(local, at_hand, half, layout);
                for _ in 0..half.div_ceil(PARCEL_BLOCKS) {
                    let parcel = self.arrival(local);
                    self.put_all(local, parcel, layout);
                }
                // ORDER: Relaxed; see `add`.
                local.limit = self.live.load(Ordering::Relaxed).wrapping_sub(half);
            }
        });
    }

    /// Gives the blocks of a list back to their chunks.
    ///
    /// # Safety
    /// As for [`put_run`](Self::put_run), for each block.
    unsafe fn put_all(&self, local: &mut Local, list: *mut Block, layout: ChunkLayout) {
        // SAFETY: slab.B1, slab.B2 - the caller owns the slot, and gives the list up.
        let rest = unsafe { self.put_some(local, list, usize::MAX, layout) };
        debug_assert!(rest.is_null(), "slab.B2: blocks are dropped");
    }

    /// Gives up to `most` blocks of a list back to their chunks. Blocks of one chunk that follow
    /// one another go together. Returns the rest of the list.
    ///
    /// # Safety
    /// As for [`put_run`](Self::put_run), for each block.
    unsafe fn put_some(
        &self,
        local: &mut Local,
        mut list: *mut Block,
        mut most: usize,
        layout: ChunkLayout,
    ) -> *mut Block {
        while !list.is_null() && most > 0 {
            // Chunks are aligned to their size.
            let is_beside = |block: *mut Block| (block.addr() ^ list.addr()) < layout.chunk;
            // SAFETY: slab.B1, slab.B2 - the caller owns the slot, and gives the list up.
            unsafe {
                let (first, mut last, mut len) = (list, list, 1);
                let mut next = (*last).next;
                while len < most && !next.is_null() && is_beside(next) {
                    last = next;
                    next = (*last).next;
                    len += 1;
                }
                list = next;
                most -= len;
                self.put_run(local, (first, last, len), layout);
            }
        }
        list
    }

    /// Gives a run of blocks of one chunk of this slot back to it: the first, the last, and how
    /// many.
    ///
    /// # Safety
    /// Same as for [`Heap::pop`]; `local` is this heap's. The blocks are of one of its chunks, and
    /// the caller gives them up.
    unsafe fn put_run(
        &self,
        local: &mut Local,
        (first, last, len): (*mut Block, *mut Block, usize),
        layout: ChunkLayout,
    ) {
        let chunk = Chunk::of(first, layout);
        // SAFETY: slab.B1 - this slot's chunk; slab.B2 - the caller gives the blocks up.
        unsafe {
            debug_assert!(ptr::eq((*chunk).heap, self), "slab.B1: a block of another slot's chunk");
            let own = &mut (*chunk).own;
            debug_assert!(own.taken >= len, "slab.B2: a block comes back that is not out");
            (*last).next = own.free;
            own.free = first;
            own.taken -= len;
            if own.taken > 0 {
                if !own.is_listed {
                    local.list(chunk);
                }
                return;
            }
            if own.is_listed {
                local.unlist(chunk);
            }
            if local.empties_len < local.empties_max {
                (*chunk).own.next = local.empties;
                local.empties = chunk;
                local.empties_len += 1;
            } else {
                local.given_back += 1;
                self.give_back(local, chunk, layout);
            }
        }
    }

    /// Gives an empty chunk, which is only on the list of all chunks, back to the system.
    ///
    /// # Safety
    /// As for [`Heap::pop`]; `local` is this heap's, and the chunk one of its own of which no block
    /// is taken.
    unsafe fn give_back(&self, local: &mut Local, chunk: *mut Chunk, layout: ChunkLayout) {
        add(&self.chunks, -1);
        // SAFETY: slab.B1 - the caller owns the slot; slab.B4 - the chunk is empty, so no user has
        // a block.
        unsafe {
            debug_assert!(
                (*chunk).own.taken == 0 && !(*chunk).own.is_listed,
                "slab.B4: a chunk goes back that is in use"
            );
            add(&self.blocks, -((*chunk).blocks as isize));
            local.forget(chunk);
            Chunk::give_back(chunk, layout);
        }
    }

    /// Sends home what is gathered, gives what is at hand or came home back to the chunks, and all
    /// empty chunks except `kept` to the system.
    ///
    /// # Safety
    /// As for [`Heap::pop`].
    pub(in crate::slab) unsafe fn trim(&self, layout: ChunkLayout, kept: usize) {
        self.local.with_mut(|local| {
            // SAFETY: slab.B1 - the caller owns the slot, and with it every chunk here.
            unsafe {
                let local = &mut *local;
                local.send_all(layout);
                self.put_all_away(local, layout, kept);
                local.reserve.give_back();
                local.empties_max = EMPTIES_MIN;
                local.given_back = 0;
                debug_assert!(
                    local.empties_len <= kept && local.incoming.is_null() && local.packed == 0,
                    "slab.B4: something is left after a trim"
                );
            }
        });
    }

    /// Puts away what came home to a slot that has no owner.
    ///
    /// # Safety
    /// As for [`Heap::pop`]: the caller has taken the slot.
    pub(super) unsafe fn clear_up(&self, layout: ChunkLayout) {
        self.local.with_mut(|local| {
            // SAFETY: slab.B1 - the caller has taken the slot, and with it every chunk here.
            unsafe { self.put_all_away(&mut *local, layout, 1) };
        });
    }

    /// Gives what is at hand or came home back to the chunks, and all empty chunks except `kept` to
    /// the system.
    ///
    /// # Safety
    /// As for [`Heap::pop`]; `local` is this heap's.
    unsafe fn put_all_away(&self, local: &mut Local, layout: ChunkLayout, kept: usize) {
        // SAFETY: slab.B1 - the caller owns the slot, and with it every chunk here.
        unsafe {
            let at_hand = std::mem::replace(&mut local.free, ptr::null_mut());
            self.put_all(local, at_hand, layout);
            // This ends: whatever comes home meanwhile was out before.
            loop {
                let parcel = self.arrival(local);
                if parcel.is_null() {
                    break;
                }
                self.put_all(local, parcel, layout);
            }
            while local.empties_len > kept {
                let chunk = local.empties;
                local.empties = (*chunk).own.next;
                local.empties_len -= 1;
                self.give_back(local, chunk, layout);
            }
        }
        // ORDER: Relaxed; see `add`.
        local.limit = self.live.load(Ordering::Relaxed).wrapping_sub(layout.ready);
    }
}
