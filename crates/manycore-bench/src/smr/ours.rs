//! The library's sections, in each of their modes, through its typed pointers.

use std::marker::PhantomData;

use manycore::section::{Atomic, Domain, Mode, Owned};

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
