//! The sequential list behind locks, and without any lock.

use std::sync::PoisonError;

use crossbeam_utils::CachePadded;

use super::{Element, ElementList, ListHandle, ListImpl, OWN_ELEMENTS, first_element};

/// An empty sequential list with room for these threads' elements.
pub(super) fn sequential(threads: usize) -> ElementList {
    ElementList::with_limit(first_element(threads))
}

/// The baseline: the list lives in its only thread's handle.
pub(super) struct Unshared(usize);

impl ListImpl for Unshared {
    type Handle<'a> = ElementList;

    fn new(threads: usize) -> Self {
        Self(threads)
    }

    fn handle(&self, _: usize) -> ElementList {
        sequential(self.0)
    }
}

impl ListHandle for ElementList {
    fn add(&mut self, element: Element) {
        ElementList::add(self, element);
    }

    fn remove(&mut self, element: Element) {
        ElementList::remove(self, element);
    }

    fn for_each(&mut self, f: impl FnMut(Element) + Send) {
        ElementList::for_each(self, f);
    }
}

/// No list: the ceiling that the loop itself sets.
pub(super) struct SpinsOnly;

impl ListImpl for SpinsOnly {
    type Handle<'a> = SpinsOnly;

    fn new(_: usize) -> Self {
        Self
    }

    fn handle(&self, _: usize) -> SpinsOnly {
        Self
    }
}

impl ListHandle for SpinsOnly {
    fn add(&mut self, _: Element) {}

    fn remove(&mut self, _: Element) {}

    fn for_each(&mut self, _: impl FnMut(Element) + Send) {}
}

/// A mutual exclusion around the list; a handle is a reference to it.
trait Exclusive: Sync {
    fn with<R: Send>(&self, f: impl FnOnce(&mut ElementList) -> R + Send) -> R;
}

/// The handle of a list behind one lock.
pub(super) struct Locked<'a, X>(&'a X);

impl<X: Exclusive> ListHandle for Locked<'_, X> {
    #[inline]
    fn add(&mut self, element: Element) {
        self.0.with(|list| list.add(element));
    }

    #[inline]
    fn remove(&mut self, element: Element) {
        self.0.with(|list| list.remove(element));
    }

    fn for_each(&mut self, f: impl FnMut(Element) + Send) {
        self.0.with(|list| list.for_each(f));
    }
}

/// The lock of the standard library.
pub(super) struct StdMutex(CachePadded<std::sync::Mutex<ElementList>>);

impl Exclusive for StdMutex {
    #[inline]
    fn with<R: Send>(&self, f: impl FnOnce(&mut ElementList) -> R + Send) -> R {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The lock of parking_lot.
pub(super) struct ParkingLot(CachePadded<parking_lot::Mutex<ElementList>>);

impl Exclusive for ParkingLot {
    #[inline]
    fn with<R: Send>(&self, f: impl FnOnce(&mut ElementList) -> R + Send) -> R {
        f(&mut self.0.lock())
    }
}

/// Flat combining: the lock holder runs the updates of the waiters.
pub(super) struct FlatCombining(CachePadded<lamlock::Lock<ElementList>>);

impl Exclusive for FlatCombining {
    #[inline]
    fn with<R: Send>(&self, f: impl FnOnce(&mut ElementList) -> R + Send) -> R {
        self.0.run(f).expect("no update of the list panics")
    }
}

macro_rules! list_behind_one_lock {
    ($type:ident, $new:expr) => {
        impl ListImpl for $type {
            type Handle<'a> = Locked<'a, Self>;

            fn new(threads: usize) -> Self {
                Self(CachePadded::new($new(sequential(threads))))
            }

            fn handle(&self, _: usize) -> Locked<'_, Self> {
                Locked(self)
            }
        }
    };
}

list_behind_one_lock!(StdMutex, std::sync::Mutex::new);
list_behind_one_lock!(ParkingLot, parking_lot::Mutex::new);
list_behind_one_lock!(FlatCombining, lamlock::Lock::new);

/// One lock and one list for each thread: what a programmer does by hand when a lock is hot.
pub(super) struct HandSharded(Box<[CachePadded<std::sync::Mutex<ElementList>>]>);

impl ListImpl for HandSharded {
    type Handle<'a> = Sharded<'a>;

    fn new(threads: usize) -> Self {
        let shard =
            || CachePadded::new(std::sync::Mutex::new(ElementList::with_limit(OWN_ELEMENTS)));
        Self((0..threads).map(|_| shard()).collect())
    }

    fn handle(&self, thread: usize) -> Sharded<'_> {
        Sharded { shards: &self.0, own: &self.0[thread], first: first_element(thread) }
    }
}

/// A thread's own shard, and all of them for reads.
pub(super) struct Sharded<'a> {
    shards: &'a [CachePadded<std::sync::Mutex<ElementList>>],
    own: &'a std::sync::Mutex<ElementList>,
    first: Element,
}

impl ListHandle for Sharded<'_> {
    #[inline]
    fn add(&mut self, element: Element) {
        let own = self.own.lock();
        own.unwrap_or_else(PoisonError::into_inner).add(element - self.first);
    }

    #[inline]
    fn remove(&mut self, element: Element) {
        let own = self.own.lock();
        own.unwrap_or_else(PoisonError::into_inner).remove(element - self.first);
    }

    fn for_each(&mut self, mut f: impl FnMut(Element) + Send) {
        // All at once and in one order, so that the read is a snapshot and cannot deadlock.
        let all: Vec<_> = self
            .shards
            .iter()
            .map(|shard| shard.lock().unwrap_or_else(PoisonError::into_inner))
            .collect();
        for (first, list) in (0..).step_by(OWN_ELEMENTS as usize).zip(&all) {
            list.for_each(|element| f(first + element));
        }
    }
}
