//! Memory for items of all sizes. It consists of regions, in which any free run can be allocated.
//!
//! A node is the part of an item that the cache's table points to, 64 bytes. The bytes that do not
//! fit into the node are the item's *tail*: granules of 16 bytes. The tail is one piece if there is
//! a long enough run, and otherwise a chain of pieces. So there are no size classes between which
//! memory could be lost: the memory of an evicted item serves items of any size.
//!
//! ```text
//! table --> node (64 B) --> piece --> piece      (pieces only of items above 48 bytes)
//! ```
//!
//! ```text
//! region of nodes:   | header, bitmap | node | free | node | ...
//! region of tails:   | header, bitmap | piece       | free | piece | ...
//! ```
//!
//! Owns: regions, their leases, pieces of tails. Does not own: how much memory items may take (the
//! cache's capacity), and when an item may be freed (the cache's sections).
//!
//! Laws:
//! - memory.R1 A region holds nodes or tails. Its kind changes only while the whole region is
//!   free, under the lock of the list of regions.
//! - memory.R2 A set bit is a free unit (a node's block, or a granule). Only the lessee of a
//!   region clears bits. So a unit that the lessee has seen free stays free until the lessee takes
//!   it. Any thread may set the bits of units that it frees, once.
//! - memory.R3 A region is leased to one slot at a time, or is being vacated, or neither. This is
//!   decided under the lock of the list. No unit of a region that is being vacated is allocated.
//! - memory.R4 A tail is a list of pieces, each in one region. Its layout never changes. Each
//!   piece except the last begins with a link to the next piece. The first piece of a chain also
//!   holds the chain's length.
//! - memory.R5 Regions live as long as the memory. The store drops the memory after the cache.
//!
//! Source: file systems allocate extents as runs in a bitmap. K42's and ParSec's allocators lease
//! regions to threads (section 3.4 of the ParSec paper).

mod lease;
mod region;
mod tail;

pub(super) use tail::Tail;

use lease::{Leases, Regions};
use manycore_cache::NodeMemory;
use region::{Kind, Region};
use std::alloc::Layout;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Bytes of a node.
const NODE: usize = 64;
/// Bytes of a granule.
pub(super) const GRANULE: usize = 16;
/// Bytes of a region, and its alignment.
const REGION: usize = manycore_cache::NODE_AREA;

/// The most bytes that are copied to free an item's part of a region. An item has only one or a few
/// pieces in a region.
const MOVED_FOR_REGION: usize = 32 * REGION;

/// A slot's lock on a line that no other slot writes.
#[repr(align(128))]
struct Slot(Mutex<Leases>);

/// Memory for the items of one store.
pub(super) struct Memory {
    slots: Box<[Slot]>,
    regions: Mutex<Regions>,
    /// The budget of regions. Above it, regions are vacated before new regions are made.
    budget: AtomicUsize,
    /// Whether there are more regions than the budget.
    is_over: AtomicBool,
}

/// Statistics of a store's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Bytes mapped from the system.
    pub mapped: usize,
    /// Mapped bytes that no item uses.
    pub free: usize,
    /// The number of regions that were vacated so far.
    pub vacated: usize,
}

fn locked<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    // The data behind these locks is consistent at each step that could panic.
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Memory {
    /// Makes memory for `threads` threads, with a budget of about `bytes` bytes.
    pub(super) fn new(bytes: u64, threads: usize) -> Self {
        let memory = Self {
            slots: (0..threads.max(1)).map(|_| Slot(Mutex::default())).collect(),
            regions: Mutex::new(Regions::default()),
            budget: AtomicUsize::new(0),
            is_over: AtomicBool::new(false),
        };
        memory.set_bytes(bytes);
        memory
    }

    /// Sets the budget in bytes.
    pub(super) fn set_bytes(&self, bytes: u64) {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        // Each slot has a region for nodes and one for tails, and releases them when they are full.
        let regions = (bytes / REGION).saturating_add(2 * self.slots.len() + 2);
        // ORDER: Relaxed; a limit, which orders nothing.
        self.budget.store(regions, Ordering::Relaxed);
        if locked(&self.regions).count() > regions {
            // Set here, because no lease may follow that would set it.
            // ORDER: Relaxed; a hint.
            self.is_over.store(true, Ordering::Relaxed);
        }
    }

    /// Returns the bytes of the regions above the budget.
    pub(super) fn bytes_over(&self) -> usize {
        // ORDER: Relaxed; a limit.
        let budget = self.budget.load(Ordering::Relaxed);
        locked(&self.regions).count().saturating_sub(budget) * REGION
    }

    /// Returns true if there are more regions than the budget allows, because free memory is
    /// fragmented or in regions of the other kind. Then it is time to vacate some regions.
    pub(super) fn is_over(&self) -> bool {
        // ORDER: Relaxed; a hint.
        self.is_over.load(Ordering::Relaxed)
    }

    /// Returns the slot of the calling thread. If there are more threads than slots, threads share
    /// slots.
    fn slot(&self) -> MutexGuard<'_, Leases> {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        thread_local! {
            // ORDER: Relaxed; a number.
            static OWN: usize = NEXT.fetch_add(1, Ordering::Relaxed);
        }
        let own = OWN.try_with(|own| *own).unwrap_or(0);
        locked(&self.slots[own % self.slots.len()].0)
    }

    /// Allocates a tail of `bytes` bytes, at least one. The first `together` bytes lie in one
    /// piece.
    pub(super) fn tail(&self, bytes: usize, together: usize) -> Tail {
        Tail::allocate(&mut self.slot(), self, bytes, together)
    }

    /// Chooses regions to be vacated: the regions with the most free room, as far as the other
    /// regions have room for their content. Returns how many. No unit of these regions is allocated
    /// until [`end_vacating`](Self::end_vacating).
    pub(super) fn begin_vacating(&self) -> usize {
        // ORDER: Relaxed; a limit.
        let budget = self.budget.load(Ordering::Relaxed);
        let mut regions = locked(&self.regions);
        regions.give_back(budget);
        let chosen = regions.choose_to_vacate();
        drop(regions);
        if chosen == 0 {
            // Vacating would gain nothing, because that much memory is in use or waits for
            // reclamation.
            // ORDER: Relaxed; a hint.
            self.is_over.store(false, Ordering::Relaxed);
        }
        chosen
    }

    /// Ends the walk over the items. The vacated regions can be leased again.
    pub(super) fn end_vacating(&self) {
        // ORDER: Relaxed; a limit.
        let budget = self.budget.load(Ordering::Relaxed);
        let mut regions = locked(&self.regions);
        regions.end_vacating();
        regions.give_back(budget);
        drop(regions);
        // ORDER: Relaxed; a hint, which is set again if it still holds.
        self.is_over.store(false, Ordering::Relaxed);
    }

    /// Returns true if the object at this address should be relocated.
    #[inline]
    pub(super) fn is_vacated(address: *const u8) -> bool {
        // The address may come from a reference to an item, whose provenance does not cover the
        // region's header: the memory of regions is exposed.
        Region::of(std::ptr::with_exposed_provenance_mut(address.addr())).is_vacated()
    }

    /// Returns true if it is worth relocating an item of `bytes` bytes with `pieces` pieces in
    /// regions that are being vacated. Otherwise a large item would be copied whole, and exist
    /// twice for that time, for a region that holds little of it.
    pub(super) fn is_worth_moving(bytes: usize, pieces: usize) -> bool {
        bytes <= pieces * MOVED_FOR_REGION
    }

    /// Returns the current statistics. Reads the header of every region.
    pub(super) fn usage(&self) -> Usage {
        locked(&self.regions).usage()
    }

    fn lease(
        &self,
        kind: Kind,
        before: Option<NonNull<Region>>,
        all_free: bool,
    ) -> NonNull<Region> {
        // ORDER: Relaxed; a limit.
        let budget = self.budget.load(Ordering::Relaxed);
        let leased = locked(&self.regions).lease(kind, before, budget, all_free);
        if leased.is_over {
            // ORDER: Relaxed; a hint.
            self.is_over.store(true, Ordering::Relaxed);
        }
        leased.region
    }
}

// SAFETY: nodes lie in regions, which are aligned to `NODE_AREA` and begin with the note
// (memory.R5: they live as long as this); a block is given out once until it is freed (memory.R2).
unsafe impl NodeMemory for Memory {
    fn begin(&self, node: Layout, note: *const ()) {
        assert!(node.size() <= NODE && node.align() <= NODE, "manycored: a node of {node:?}");
        locked(&self.regions).note(note);
    }

    #[inline]
    fn allocate(&self) -> NonNull<u8> {
        self.slot().node(self)
    }

    #[inline]
    unsafe fn free(&self, node: NonNull<u8>) {
        Region::of(node.as_ptr()).free_node(node.as_ptr());
    }

    fn bytes(&self) -> (usize, usize) {
        let usage = self.usage();
        (usage.mapped, usage.free)
    }
}

#[cfg(test)]
mod tests;
