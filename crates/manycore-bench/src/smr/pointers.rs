//! Schemes without sections: a reader guards the one pointer that it reads through.

use std::sync::Arc;

use arc_swap::ArcSwap;
use haphazard::{AtomicPtr, Domain, HazardPointer};

use super::{Counts, Node, Payload, Scheme, SchemeHandle, Setup};

type Plain = Node;

/// The family of the tables' own domains: a table uses no other domain than its own.
pub(super) struct OfTable;

type Slot = AtomicPtr<Plain, OfTable>;

/// haphazard: a domain of the table's own, and one hazard pointer for each thread, kept between
/// reads as its documentation advises.
pub(super) struct Hazard {
    // Dropped after the table: nothing in it is retired by that.
    table: Box<[Slot]>,
    domain: Domain<OfTable>,
    counts: &'static Counts,
}

/// A thread's hazard pointer.
pub(super) struct HazardHandle<'a> {
    scheme: &'a Hazard,
    pointer: HazardPointer<'a, OfTable>,
}

impl Scheme for Hazard {
    type Handle<'a> = HazardHandle<'a>;

    fn new(setup: Setup) -> Self {
        Self {
            table: setup.table(|value, counts| Slot::from(Box::new(Plain::new(value, counts)))),
            domain: Domain::new(&OfTable),
            counts: setup.counts,
        }
    }

    fn handle(&self, _: usize) -> HazardHandle<'_> {
        HazardHandle { scheme: self, pointer: HazardPointer::new_in_domain(&self.domain) }
    }
}

impl Drop for Hazard {
    fn drop(&mut self) {
        for slot in std::mem::take(&mut self.table) {
            // SAFETY: the slot owns its node, which came from a box, and with `&mut self` no other
            // thread has access.
            drop(unsafe { Box::from_raw(slot.into_inner()) });
        }
    }
}

impl SchemeHandle for HazardHandle<'_> {
    #[inline]
    fn empty(&mut self, slot: usize) {
        // SAFETY: the thread that takes a node out of the table retires it in the table's domain.
        let node = unsafe { self.scheme.table[slot].load(&mut self.pointer) };
        std::hint::black_box(node.is_some());
        self.pointer.reset_protection();
    }

    #[inline]
    fn read(&mut self, slot: usize) -> u64 {
        // SAFETY: a node that leaves the table is retired in the table's domain, which this
        // thread's hazard pointer is of.
        let node = unsafe { self.scheme.table[slot].load(&mut self.pointer) };
        let value = node.expect("a slot is never null").payload().value();
        self.pointer.reset_protection();
        value
    }

    #[inline]
    fn update(&mut self, slot: usize, value: u64) {
        let new = Box::new(Plain::new(value, self.scheme.counts));
        let old = self.scheme.table[slot].swap(new).expect("a slot is never null");
        // SAFETY: the swap took it out of the table, and gave it to this thread alone; every
        // hazard pointer that can guard it is of the table's domain.
        unsafe { old.retire_in(&self.scheme.domain) };
    }

    fn hold(&mut self, slot: usize, inside: &mut dyn FnMut(&Payload)) {
        // SAFETY: a node that leaves the table is retired in the table's domain, which this
        // thread's hazard pointer is of.
        let node = unsafe { self.scheme.table[slot].load(&mut self.pointer) };
        inside(node.expect("a slot is never null").payload());
        self.pointer.reset_protection();
    }

    fn flush(&mut self) {
        self.scheme.domain.eager_reclaim();
    }
}

/// arc-swap: each slot keeps a counted reference; a read borrows it with a debt.
pub(super) struct ArcSwapped {
    table: Box<[ArcSwap<Plain>]>,
    counts: &'static Counts,
}

impl Scheme for ArcSwapped {
    type Handle<'a> = &'a ArcSwapped;

    fn new(setup: Setup) -> Self {
        let slot = |value, counts| ArcSwap::from_pointee(Plain::new(value, counts));
        Self { table: setup.table(slot), counts: setup.counts }
    }

    fn handle(&self, _: usize) -> &ArcSwapped {
        self
    }
}

impl SchemeHandle for &ArcSwapped {
    #[inline]
    fn empty(&mut self, slot: usize) {
        drop(self.table[slot].load());
    }

    #[inline]
    fn read(&mut self, slot: usize) -> u64 {
        self.table[slot].load().payload().value()
    }

    #[inline]
    fn update(&mut self, slot: usize, value: u64) {
        drop(self.table[slot].swap(Arc::new(Plain::new(value, self.counts))));
    }

    fn hold(&mut self, slot: usize, inside: &mut dyn FnMut(&Payload)) {
        inside(self.table[slot].load().payload());
    }
}
