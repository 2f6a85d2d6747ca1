//! The list behind locks as they are commonly used, and without any lock.

use std::{
    cell::RefCell,
    sync::{Mutex, PoisonError, RwLock},
};

use crossbeam_utils::CachePadded;

use super::{SweepImpl, walk};
use crate::list::{ElementList, ListOp};

/// The baseline: one thread's own.
pub(super) struct Unshared(RefCell<ElementList>);

// SAFETY: the workload gives it to one thread alone (`cases` leaves baselines out elsewhere).
unsafe impl Sync for Unshared {}

impl SweepImpl for Unshared {
    fn new(list: ElementList) -> Self {
        Self(RefCell::new(list))
    }

    #[inline(always)]
    fn update(&self, op: ListOp) {
        self.0.borrow_mut().apply(op);
    }

    #[inline(always)]
    fn read(&self) -> u64 {
        walk(&self.0.borrow())
    }
}

macro_rules! behind_a_lock {
    ($($(#[$doc:meta])* $name:ident: $lock:ty, |$inner:ident| $update:expr, $read:expr;)*) => {$(
        $(#[$doc])*
        pub(super) struct $name(CachePadded<$lock>);

        impl SweepImpl for $name {
            fn new(list: ElementList) -> Self {
                Self(CachePadded::new(<$lock>::new(list)))
            }

            #[inline(always)]
            fn update(&self, op: ListOp) {
                let $inner = &*self.0;
                $update.apply(op);
            }

            #[inline(always)]
            fn read(&self) -> u64 {
                let $inner = &*self.0;
                walk(&$read)
            }
        }
    )*};
}

behind_a_lock! {
    /// std's lock.
    StdMutex: Mutex<ElementList>,
        |lock| lock.lock().unwrap_or_else(PoisonError::into_inner),
        lock.lock().unwrap_or_else(PoisonError::into_inner);
    /// parking_lot's lock.
    ParkMutex: parking_lot::Mutex<ElementList>, |lock| lock.lock(), lock.lock();
    /// std's lock that knows readers.
    StdRwLock: RwLock<ElementList>,
        |lock| lock.write().unwrap_or_else(PoisonError::into_inner),
        lock.read().unwrap_or_else(PoisonError::into_inner);
    /// parking_lot's lock that knows readers.
    ParkRwLock: parking_lot::RwLock<ElementList>, |lock| lock.write(), lock.read();
}

/// Flat combining: the lock holder does the work of the waiters.
pub(super) struct FlatCombining(CachePadded<lamlock::Lock<ElementList>>);

impl SweepImpl for FlatCombining {
    fn new(list: ElementList) -> Self {
        Self(CachePadded::new(lamlock::Lock::new(list)))
    }

    #[inline(always)]
    fn update(&self, op: ListOp) {
        self.0.run(|list| list.apply(op)).expect("no update of the list panics");
    }

    #[inline(always)]
    fn read(&self) -> u64 {
        self.0.run(|list| walk(list)).expect("no walk panics")
    }
}
