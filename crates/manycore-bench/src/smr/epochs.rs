//! Schemes that count epochs: a retired node waits until every section that was open has closed.
//! One reader that stalls holds back everything.

use std::sync::atomic::Ordering::{AcqRel, Acquire};

use crossbeam_epoch as crossbeam;
use flize::Shield;

use super::{Counts, Node, Payload, Scheme, SchemeHandle, Setup};

type Plain = Node;

/// crossbeam-epoch: a collector of the table's own, and a handle for each thread, which spares the
/// look-up of the default collector.
pub(super) struct Crossbeam {
    table: Box<[crossbeam::Atomic<Plain>]>,
    collector: crossbeam::Collector,
    counts: &'static Counts,
}

/// A thread's participation in the collector.
pub(super) struct CrossbeamHandle<'a> {
    scheme: &'a Crossbeam,
    local: crossbeam::LocalHandle,
}

impl Scheme for Crossbeam {
    type Handle<'a> = CrossbeamHandle<'a>;

    fn new(setup: Setup) -> Self {
        Self {
            table: setup.table(|value, counts| crossbeam::Atomic::new(Plain::new(value, counts))),
            collector: crossbeam::Collector::new(),
            counts: setup.counts,
        }
    }

    fn handle(&self, _: usize) -> CrossbeamHandle<'_> {
        CrossbeamHandle { scheme: self, local: self.collector.register() }
    }
}

impl Drop for Crossbeam {
    fn drop(&mut self) {
        for slot in std::mem::take(&mut self.table) {
            // SAFETY: the slot owns its node, and with `&mut self` no other thread has access.
            drop(unsafe { slot.into_owned() });
        }
    }
}

impl SchemeHandle for CrossbeamHandle<'_> {
    #[inline]
    fn empty(&mut self, _: usize) {
        drop(self.local.pin());
    }

    #[inline]
    fn read(&mut self, slot: usize) -> u64 {
        let guard = self.local.pin();
        // SAFETY: a slot is never null, and the guard keeps what it held at the load.
        unsafe { self.scheme.table[slot].load(Acquire, &guard).deref() }.payload().value()
    }

    #[inline]
    fn update(&mut self, slot: usize, value: u64) {
        let new = crossbeam::Owned::new(Plain::new(value, self.scheme.counts));
        let guard = self.local.pin();
        let old = self.scheme.table[slot].swap(new, AcqRel, &guard);
        // SAFETY: the swap took it out of the table, and gave it to this thread alone.
        unsafe { guard.defer_destroy(old) };
    }

    fn hold(&mut self, slot: usize, inside: &mut dyn FnMut(&Payload)) {
        let guard = self.local.pin();
        // SAFETY: a slot is never null, and the guard, which is dropped after `inside`, keeps what
        // it held at the load.
        inside(unsafe { self.scheme.table[slot].load(Acquire, &guard).deref() }.payload());
    }

    fn flush(&mut self) {
        self.local.pin().flush();
    }
}

/// flize, through the local of each thread.
pub(super) struct Flize {
    table: Box<[flize::Atomic<Plain>]>,
    collector: flize::Collector,
    counts: &'static Counts,
}

/// A thread's participation in the collector.
pub(super) struct FlizeHandle<'a> {
    scheme: &'a Flize,
    local: flize::Local,
}

fn shared<'a>(node: Plain) -> flize::Shared<'a, Plain> {
    // SAFETY: a pointer fresh from a box, aligned and so without a tag.
    unsafe { flize::Shared::from_ptr(Box::into_raw(Box::new(node))) }
}

impl Scheme for Flize {
    type Handle<'a> = FlizeHandle<'a>;

    fn new(setup: Setup) -> Self {
        let slot = |value, counts| flize::Atomic::new(shared(Plain::new(value, counts)));
        Self { table: setup.table(slot), collector: flize::Collector::new(), counts: setup.counts }
    }

    fn handle(&self, _: usize) -> FlizeHandle<'_> {
        FlizeHandle { scheme: self, local: self.collector.local() }
    }
}

impl Drop for Flize {
    fn drop(&mut self) {
        // A collector is never dropped, as its locals and it keep each other: what is still to be
        // freed would be lost. Two epochs must pass; a few more tries do no harm.
        for _ in 0..8 {
            let _no_thread_is_inside = self.collector.try_collect_light();
        }
        // SAFETY: with `&mut self` no other thread has access to the table.
        let alone = unsafe { flize::unprotected() };
        for slot in &self.table {
            // SAFETY: the slot owns its node, which came from a box.
            drop(unsafe { Box::from_raw(slot.load(Acquire, alone).as_ptr()) });
        }
    }
}

impl Drop for FlizeHandle<'_> {
    fn drop(&mut self) {
        // What a thread leaves in its own bag is lost otherwise.
        self.flush();
    }
}

impl SchemeHandle for FlizeHandle<'_> {
    #[inline]
    fn empty(&mut self, _: usize) {
        drop(self.local.thin_shield());
    }

    #[inline]
    fn read(&mut self, slot: usize) -> u64 {
        let shield = self.local.thin_shield();
        // SAFETY: a slot is never null, and the shield keeps what it held at the load.
        unsafe { self.scheme.table[slot].load(Acquire, &shield).as_ref_unchecked() }
            .payload()
            .value()
    }

    #[inline]
    fn update(&mut self, slot: usize, value: u64) {
        let new = shared(Plain::new(value, self.scheme.counts));
        let shield = self.local.thin_shield();
        let old = self.scheme.table[slot].swap(new, AcqRel, &shield).as_ptr();
        // SAFETY: the swap took it out of the table, and gave it to this thread alone; it came
        // from a box.
        shield.retire(move || drop(unsafe { Box::from_raw(old) }));
    }

    fn hold(&mut self, slot: usize, inside: &mut dyn FnMut(&Payload)) {
        let shield = self.local.thin_shield();
        // SAFETY: a slot is never null, and the shield, which is dropped after `inside`, keeps what
        // it held at the load.
        let node = unsafe { self.scheme.table[slot].load(Acquire, &shield).as_ref_unchecked() };
        inside(node.payload());
    }

    fn flush(&mut self) {
        self.local.thin_shield().flush();
        let _nothing_to_do_if_others_are_inside = self.scheme.collector.try_collect_light();
    }
}

/// sdd, whose one collector serves the whole process.
pub(super) struct Sdd {
    table: Box<[sdd::AtomicOwned<Plain>]>,
    counts: &'static Counts,
}

impl Scheme for Sdd {
    type Handle<'a> = &'a Sdd;

    fn new(setup: Setup) -> Self {
        let slot = |value, counts| sdd::AtomicOwned::new(Plain::new(value, counts));
        Self { table: setup.table(slot), counts: setup.counts }
    }

    fn handle(&self, _: usize) -> &Sdd {
        self
    }

    fn settle() {
        let guard = sdd::Guard::new();
        guard.set_has_garbage();
        guard.accelerate();
    }
}

impl SchemeHandle for &Sdd {
    #[inline]
    fn empty(&mut self, _: usize) {
        drop(sdd::Guard::new());
    }

    #[inline]
    fn read(&mut self, slot: usize) -> u64 {
        let guard = sdd::Guard::new();
        let node = self.table[slot].load(Acquire, &guard);
        node.as_ref().expect("a slot is never null").payload().value()
    }

    #[inline]
    fn update(&mut self, slot: usize, value: u64) {
        let new = sdd::Owned::new(Plain::new(value, self.counts));
        // Not needed to retire; but what is retired is only looked at when a guard ends.
        let _guard = sdd::Guard::new();
        drop(self.table[slot].swap((Some(new), sdd::Tag::None), AcqRel));
    }

    fn hold(&mut self, slot: usize, inside: &mut dyn FnMut(&Payload)) {
        let guard = sdd::Guard::new();
        let node = self.table[slot].load(Acquire, &guard);
        inside(node.as_ref().expect("a slot is never null").payload());
    }

    fn flush(&mut self) {
        Sdd::settle();
    }
}
