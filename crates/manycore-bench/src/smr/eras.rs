//! Schemes that count, for each batch of retired nodes, the sections that may still read it
//! (Hyaline). With eras, a reader that stalls holds back only what is older than its section.

use std::sync::atomic::{
    AtomicPtr,
    Ordering::{AcqRel, Acquire, Relaxed},
};

use seize::Guard as _;
use seize_portable::Guard as _;

use super::{Counts, Node, Payload, Scheme, SchemeHandle, Setup};

type Plain = Node;

/// seize: a collector of the table's own, with the batches it chooses itself.
pub(super) struct Seize {
    table: Box<[AtomicPtr<Plain>]>,
    collector: seize::Collector,
    counts: &'static Counts,
}

fn boxed(value: u64, counts: &'static Counts) -> *mut Plain {
    Box::into_raw(Box::new(Plain::new(value, counts)))
}

impl Scheme for Seize {
    type Handle<'a> = &'a Seize;

    fn new(setup: Setup) -> Self {
        Self {
            table: setup.table(|value, counts| AtomicPtr::new(boxed(value, counts))),
            collector: seize::Collector::new(),
            counts: setup.counts,
        }
    }

    fn handle(&self, _: usize) -> &Seize {
        self
    }
}

impl Drop for Seize {
    fn drop(&mut self) {
        for slot in &mut self.table {
            // SAFETY: the slot owns its node, which came from a box, and with `&mut self` no other
            // thread has access.
            drop(unsafe { Box::from_raw(*slot.get_mut()) });
        }
    }
}

impl SchemeHandle for &Seize {
    #[inline]
    fn empty(&mut self, _: usize) {
        drop(self.collector.enter());
    }

    #[inline]
    fn read(&mut self, slot: usize) -> u64 {
        let guard = self.collector.enter();
        // SAFETY: a slot is never null, and the guard keeps what it held at the load.
        unsafe { &*guard.protect(&self.table[slot], Acquire) }.payload().value()
    }

    #[inline]
    fn update(&mut self, slot: usize, value: u64) {
        let new = boxed(value, self.counts);
        let guard = self.collector.enter();
        let old = guard.swap(&self.table[slot], new, AcqRel);
        // SAFETY: the swap took it out of the table, and gave it to this thread alone; it came
        // from a box.
        unsafe { guard.defer_retire(old, seize::reclaim::boxed) };
    }

    fn hold(&mut self, slot: usize, inside: &mut dyn FnMut(&Payload)) {
        let guard = self.collector.enter();
        // SAFETY: a slot is never null, and the guard, which is dropped after `inside`, keeps what
        // it held at the load.
        inside(unsafe { &*guard.protect(&self.table[slot], Acquire) }.payload());
    }

    fn flush(&mut self) {
        self.collector.enter().flush();
    }
}

/// A node that starts with the word of seize 0.4.
type PortableNode = Node<seize_portable::Link, 4>;

// SAFETY: a `Node` is `repr(C)` and starts with its head, here a `Link`.
unsafe impl seize_portable::AsLink for PortableNode {}

/// seize before 0.5, built without its asymmetric fence. Cargo builds one crate of each compatible
/// version, with the union of the features that dependents enable; so 0.5 cannot be here twice.
/// Without epochs, which 0.5 no longer has.
pub(super) struct SeizePortable {
    table: Box<[AtomicPtr<PortableNode>]>,
    collector: seize_portable::Collector,
    counts: &'static Counts,
}

impl SeizePortable {
    fn node(
        collector: &seize_portable::Collector,
        value: u64,
        counts: &'static Counts,
    ) -> *mut PortableNode {
        Box::into_raw(Box::new(PortableNode::with_head(collector.link(), value, counts)))
    }
}

impl Scheme for SeizePortable {
    type Handle<'a> = &'a Self;

    fn new(setup: Setup) -> Self {
        let collector = seize_portable::Collector::new().epoch_frequency(None);
        let slot = |value, counts| AtomicPtr::new(Self::node(&collector, value, counts));
        Self { table: setup.table(slot), collector, counts: setup.counts }
    }

    fn handle(&self, _: usize) -> &Self {
        self
    }
}

impl Drop for SeizePortable {
    fn drop(&mut self) {
        for slot in &mut self.table {
            // SAFETY: the slot owns its node, which came from a box, and with `&mut self` no other
            // thread has access.
            drop(unsafe { Box::from_raw(*slot.get_mut()) });
        }
    }
}

impl SchemeHandle for &SeizePortable {
    #[inline]
    fn empty(&mut self, _: usize) {
        drop(self.collector.enter());
    }

    #[inline]
    fn read(&mut self, slot: usize) -> u64 {
        let guard = self.collector.enter();
        // SAFETY: a slot is never null, and the guard keeps what it held at the load.
        unsafe { &*guard.protect(&self.table[slot], Acquire) }.payload().value()
    }

    #[inline]
    fn update(&mut self, slot: usize, value: u64) {
        let new = SeizePortable::node(&self.collector, value, self.counts);
        let guard = self.collector.enter();
        let old = self.table[slot].swap(new, AcqRel);
        // SAFETY: the swap took it out of the table, and gave it to this thread alone; it came
        // from a box.
        unsafe { guard.defer_retire(old, seize_portable::reclaim::boxed::<PortableNode>) };
    }

    fn hold(&mut self, slot: usize, inside: &mut dyn FnMut(&Payload)) {
        let guard = self.collector.enter();
        // SAFETY: a slot is never null, and the guard, which is dropped after `inside`, keeps what
        // it held at the load.
        inside(unsafe { &*guard.protect(&self.table[slot], Acquire) }.payload());
    }

    fn flush(&mut self) {
        self.collector.enter().flush();
    }
}

/// A node that starts with kovan's five words.
type KovanNode = Node<kovan::RetiredNode, 0>;

/// kovan, whose one collector serves the whole process.
pub(super) struct Kovan {
    table: Box<[kovan::Atomic<KovanNode>]>,
    counts: &'static Counts,
}

fn kovan_node(value: u64, counts: &'static Counts) -> *mut KovanNode {
    kovan::alloc_node(KovanNode::new(value, counts))
}

impl Scheme for Kovan {
    type Handle<'a> = &'a Kovan;

    fn new(setup: Setup) -> Self {
        let slot = |value, counts| kovan::Atomic::new(kovan_node(value, counts));
        Self { table: setup.table(slot), counts: setup.counts }
    }

    fn handle(&self, _: usize) -> &Kovan {
        self
    }

    fn settle() {
        kovan::flush();
    }
}

impl Drop for Kovan {
    fn drop(&mut self) {
        let guard = kovan::pin();
        for slot in &self.table {
            // SAFETY: the slot owns its node, which `alloc_node` made, and with `&mut self` no
            // other thread has access.
            unsafe { kovan::drop_node(slot.load(Relaxed, &guard).as_raw()) };
        }
    }
}

impl SchemeHandle for &Kovan {
    #[inline]
    fn empty(&mut self, _: usize) {
        drop(kovan::pin());
    }

    #[inline]
    fn read(&mut self, slot: usize) -> u64 {
        let guard = kovan::pin();
        // SAFETY: a slot is never null, and the guard keeps what it held at the load.
        unsafe { self.table[slot].load(Acquire, &guard).deref() }.payload().value()
    }

    #[inline]
    fn update(&mut self, slot: usize, value: u64) {
        let guard = kovan::pin();
        // SAFETY: a fresh node, published here once.
        let new = unsafe { kovan::Shared::from_raw(kovan_node(value, self.counts)) };
        let old = self.table[slot].swap(new, AcqRel, &guard);
        // SAFETY: the swap took it out of the table, and gave it to this thread alone.
        unsafe { kovan::retire_node(old.as_raw()) };
    }

    fn hold(&mut self, slot: usize, inside: &mut dyn FnMut(&Payload)) {
        let guard = kovan::pin();
        // SAFETY: a slot is never null, and the guard, which is dropped after `inside`, keeps what
        // it held at the load.
        inside(unsafe { self.table[slot].load(Acquire, &guard).deref() }.payload());
    }

    fn flush(&mut self) {
        kovan::flush();
    }
}
