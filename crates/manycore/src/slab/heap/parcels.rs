//! Parcels: blocks of other slots that are gathered, and go home together (slab.B2, slab.B3).

use super::{Block, ChunkLayout, Heap, Local};
use crate::config::SMALL;
use crate::percpu;
use crate::sync::{self, Ordering};
use std::ptr;

/// Owners that a heap gathers blocks for at a time, at first.
const PARCELS: usize = if SMALL { 2 } else { 4 };
/// Owners that it gathers for, at most, if they prove to be many.
const PARCELS_MAX: usize = if SMALL { 2 } else { 64 };
/// Blocks that go home in one atomic instruction.
pub(in crate::slab) const PARCEL_BLOCKS: usize = if SMALL { 2 } else { 32 };

/// Blocks of one other slot, on their way home.
pub(super) struct Parcel {
    pub(super) heap: *const Heap,
    pub(super) first: *mut Block,
    pub(super) len: usize,
}

impl Local {
    /// Returns the parcel in which blocks of `home` are gathered; another owner's parcel may be in
    /// its place.
    pub(super) fn parcel_for(&mut self, home: *const Heap) -> &mut Parcel {
        if self.parcels.is_empty() {
            self.parcels.resize_with(PARCELS, || Parcel::EMPTY);
        }
        let mask = self.parcels.len() - 1;
        &mut self.parcels[(home.addr() / size_of::<Heap>()) & mask]
    }

    /// Sends home what is gathered.
    pub(super) fn send_all(&mut self, layout: ChunkLayout) {
        debug_assert!(
            self.parcels.iter().map(|parcel| parcel.len).sum::<usize>() == self.packed,
            "slab.B3: another number of blocks is in parcels than was packed"
        );
        for parcel in &mut self.parcels {
            parcel.send(layout);
        }
        self.packed = 0;
    }

    /// Begins a parcel for `home`. Sends home what is in its place. If that was little, there are
    /// more owners than places, so makes more places.
    #[cold]
    pub(super) fn begin_parcel(&mut self, home: *const Heap, layout: ChunkLayout) {
        let other = self.parcel_for(home);
        let is_thin = (1..PARCEL_BLOCKS / 2).contains(&other.len);
        self.packed -= other.send(layout);
        if is_thin && self.parcels.len() < PARCELS_MAX {
            self.send_all(layout);
            self.parcels.resize_with(2 * self.parcels.len(), || Parcel::EMPTY);
        }
        self.parcel_for(home).heap = home;
    }
}

impl Parcel {
    pub(super) const EMPTY: Self = Self { heap: ptr::null(), first: ptr::null_mut(), len: 0 };

    /// Puts all blocks on their owner's list at once. If the slot has no owner, takes the slot, and
    /// puts the blocks away. Returns how many blocks there were.
    pub(super) fn send(&mut self, layout: ChunkLayout) -> usize {
        if self.len == 0 {
            return 0;
        }
        debug_assert!(
            // SAFETY: slab.B2 - the parcel's blocks are on no other list.
            unsafe { Block::count(self.first) } == self.len,
            "slab.B3: a parcel has not the blocks that were packed"
        );
        // SAFETY: a heap lives as long as its slab, and its blocks were in use.
        let home = unsafe { &*self.heap };
        let list = &home.remote.list;
        // BUG: blocks of a slab go home without the order that lets their owner reuse them
        // (slab.B3).
        let order = if sync::seeded_bug!("relaxed-return") {
            Ordering::Relaxed
        } else {
            // ORDER: Release; pairs with Acquire in `arrival`: the links, and what the last users
            // did with the blocks.
            Ordering::Release
        };
        // A guess: a look first would fetch the line twice, to read and then to write.
        let mut top = ptr::null_mut();
        loop {
            // SAFETY: slab.B2 - the parcel's blocks are on no other list. (slab.B3: the list is
            // only ever taken whole, so an equal top is the same list.)
            unsafe { (*self.first).below = top };
            match list.compare_exchange_weak(top, self.first, order, Ordering::Relaxed) {
                Ok(_) => break,
                Err(now) => top = now,
            }
        }
        // SAFETY: slab.B1 - `f` runs with the slot taken, by a thread that is in this heap already
        // only if the slot is its own, and then it is not free.
        percpu::with_free_slot(home.remote.slot, || unsafe { home.clear_up(layout) });
        std::mem::replace(self, Self::EMPTY).len
    }
}
