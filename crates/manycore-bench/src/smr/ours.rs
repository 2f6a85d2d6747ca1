//! The library's sections, in each of their modes, through its typed pointers; and by the raw layer
//! below them, with nodes from the library's slab.

use std::{
    marker::PhantomData,
    ptr::NonNull,
    sync::atomic::{AtomicPtr, Ordering::AcqRel},
};

use manycore::{
    section::{Atomic, Domain, Mode, Owned},
    slab::Slab,
};

use super::{Counts, Node, Payload, Scheme, SchemeHandle, Setup};

type Plain = Node;

/// How a domain is set up; all else is as it comes.
pub(super) trait Setting: Sync + Send + 'static {
    /// Its mode.
    const MODE: Mode;
}

macro_rules! setting {
    ($(#[$doc:meta])* $mode:ident) => {
        $(#[$doc])*
        pub(super) struct $mode;

        impl Setting for $mode {
            const MODE: Mode = Mode::$mode;
        }
    };
}

setting!(
    /// The default: eras, and nodes that know theirs.
    Bounded
);
setting!(
    /// Eras alone.
    Epoch
);
setting!(
    /// The paper's literal form.
    Clock
);

/// A table with a domain of its own.
pub(super) struct Sections<M: Setting> {
    table: Box<[Atomic<Plain>]>,
    domain: Domain,
    counts: &'static Counts,
    setting: PhantomData<M>,
}

impl<M: Setting> Scheme for Sections<M> {
    type Handle<'a> = &'a Self;

    fn new(setup: Setup) -> Self {
        let domain = Domain::builder().mode(M::MODE).build();
        Self {
            table: setup.table(|value, counts| Atomic::new(Plain::new(value, counts))),
            domain: domain.expect("the bounds are the defaults"),
            counts: setup.counts,
            setting: PhantomData,
        }
    }

    fn handle(&self, _: usize) -> &Self {
        self
    }
}

impl<M: Setting> Drop for Sections<M> {
    fn drop(&mut self) {
        for slot in std::mem::take(&mut self.table) {
            // SAFETY: the slot owns its node, and with `&mut self` no other thread has access.
            drop(unsafe { slot.into_owned() });
        }
    }
}

impl<M: Setting> SchemeHandle for &Sections<M> {
    #[inline]
    fn empty(&mut self, _: usize) {
        drop(self.domain.enter());
    }

    #[inline]
    fn read(&mut self, slot: usize) -> u64 {
        let section = self.domain.enter();
        let node = self.table[slot].load(&section);
        node.as_ref().expect("a slot is never null").payload().value()
    }

    #[inline]
    fn update(&mut self, slot: usize, value: u64) {
        let new = Owned::new(Plain::new(value, self.counts));
        let section = self.domain.enter();
        let old = self.table[slot].swap(new, &section);
        // SAFETY: the swap took it out of the table, and gave it to this thread alone.
        unsafe { section.retire(old) };
    }

    fn hold(&mut self, slot: usize, inside: &mut dyn FnMut(&Payload)) {
        let section = self.domain.enter();
        let node = self.table[slot].load(&section);
        inside(node.as_ref().expect("a slot is never null").payload());
    }

    fn flush(&mut self) {
        self.domain.collect();
    }
}

/// Of all tables: what is retired is freed without a word on where it came from.
static SLAB: Slab<Plain> = Slab::new();

/// A table in a domain without birth eras, its nodes from a slab.
pub(super) struct Slabbed {
    table: Box<[AtomicPtr<Plain>]>,
    domain: Domain,
    counts: &'static Counts,
}

fn in_slab(node: Plain) -> NonNull<Plain> {
    let place = SLAB.alloc_raw();
    // SAFETY: fresh memory for a node.
    unsafe { place.write(node) };
    place
}

/// # Safety
/// A node of `in_slab` without other pointers to it.
unsafe fn free(node: NonNull<()>) {
    let node = node.cast::<Plain>();
    // SAFETY: the caller promises a node of `in_slab` that no other thread has: its value is
    // dropped once, and its memory goes back to the slab that it came from.
    unsafe {
        node.drop_in_place();
        SLAB.free_raw(node);
    }
}

impl Scheme for Slabbed {
    type Handle<'a> = &'a Self;

    fn new(setup: Setup) -> Self {
        let domain = Domain::builder().mode(Mode::Epoch).build();
        let node = |value, counts| AtomicPtr::new(in_slab(Plain::new(value, counts)).as_ptr());
        Self {
            table: setup.table(node),
            domain: domain.expect("the bounds are the defaults"),
            counts: setup.counts,
        }
    }

    fn handle(&self, _: usize) -> &Self {
        self
    }
}

impl Drop for Slabbed {
    fn drop(&mut self) {
        for slot in &mut self.table {
            let node = NonNull::new(*slot.get_mut()).expect("a slot is never null");
            // SAFETY: the slot owns its node, and with `&mut self` no other thread has access.
            unsafe { free(node.cast()) };
        }
    }
}

impl SchemeHandle for &Slabbed {
    #[inline]
    fn empty(&mut self, _: usize) {
        drop(self.domain.enter());
    }

    #[inline]
    fn read(&mut self, slot: usize) -> u64 {
        let section = self.domain.enter();
        let node = section.protect(&self.table[slot]);
        // SAFETY: in the table, which is never null, when the section was open.
        unsafe { &*node }.payload().value()
    }

    #[inline]
    fn update(&mut self, slot: usize, value: u64) {
        let new = in_slab(Plain::new(value, self.counts));
        let section = self.domain.enter();
        // ORDER: AcqRel; the node's contents before the pointer, both ways.
        let old = NonNull::new(self.table[slot].swap(new.as_ptr(), AcqRel));
        let old = old.expect("a slot is never null").cast();
        // SAFETY: the swap took it out of the table, and gave it to this thread alone.
        unsafe { section.retire_raw(old, size_of::<Plain>(), free) };
    }

    fn hold(&mut self, slot: usize, inside: &mut dyn FnMut(&Payload)) {
        let section = self.domain.enter();
        let node = section.protect(&self.table[slot]);
        // SAFETY: loaded from a slot, which is never null, in a section that is open until `inside`
        // has returned.
        inside(unsafe { &*node }.payload());
    }

    fn flush(&mut self) {
        self.domain.collect();
    }
}
