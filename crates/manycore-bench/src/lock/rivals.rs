//! Locks as they are commonly used.

use std::sync::{Mutex, PoisonError, RwLock};

use crossbeam_utils::sync::ShardedLock;

use super::{LockImpl, Words};

macro_rules! lock {
    ($(#[$doc:meta])* $Name:ident, $Lock:ty, |$inner:ident| $read:expr, $write:expr) => {
        $(#[$doc])*
        pub(super) struct $Name($Lock);

        impl LockImpl for $Name {
            fn new() -> Self {
                Self(<$Lock>::new([0; 4]))
            }

            #[inline]
            fn read<R>(&self, f: impl FnOnce(&Words) -> R) -> R {
                let $inner = &self.0;
                f(&$read)
            }

            #[inline]
            fn update<R>(&self, f: impl FnOnce(&mut Words) -> R) -> R {
                let $inner = &self.0;
                f(&mut $write)
            }
        }
    };
}

lock!(
    /// std's.
    StdMutex,
    Mutex<Words>,
    |lock| lock.lock().unwrap_or_else(PoisonError::into_inner),
    lock.lock().unwrap_or_else(PoisonError::into_inner)
);
lock!(
    /// std's.
    StdRwLock,
    RwLock<Words>,
    |lock| lock.read().unwrap_or_else(PoisonError::into_inner),
    lock.write().unwrap_or_else(PoisonError::into_inner)
);
lock!(
    /// parking_lot's.
    ParkMutex,
    parking_lot::Mutex<Words>,
    |lock| lock.lock(),
    lock.lock()
);
lock!(
    /// parking_lot's.
    ParkRwLock,
    parking_lot::RwLock<Words>,
    |lock| lock.read(),
    lock.write()
);
lock!(
    /// A lock for each group of threads; a writer takes them all.
    Sharded,
    ShardedLock<Words>,
    |lock| lock.read().unwrap_or_else(PoisonError::into_inner),
    lock.write().unwrap_or_else(PoisonError::into_inner)
);

/// parking_lot's, with fair unlocking to the thread that has waited longest, to compare with fair
/// locks.
pub(super) struct ParkFair(parking_lot::Mutex<Words>);

impl LockImpl for ParkFair {
    fn new() -> Self {
        Self(parking_lot::Mutex::new([0; 4]))
    }

    #[inline]
    fn read<R>(&self, f: impl FnOnce(&Words) -> R) -> R {
        let guard = self.0.lock();
        let result = f(&guard);
        parking_lot::MutexGuard::unlock_fair(guard);
        result
    }

    #[inline]
    fn update<R>(&self, f: impl FnOnce(&mut Words) -> R) -> R {
        let mut guard = self.0.lock();
        let result = f(&mut guard);
        parking_lot::MutexGuard::unlock_fair(guard);
        result
    }
}

/// The baseline: no lock at all.
pub(super) struct Unshared(std::cell::UnsafeCell<Words>);

// SAFETY: the baseline runs on one thread, one after the other (`Kind::Baseline`).
unsafe impl Sync for Unshared {}

impl LockImpl for Unshared {
    fn new() -> Self {
        Self([0; 4].into())
    }

    #[inline]
    fn read<R>(&self, f: impl FnOnce(&Words) -> R) -> R {
        // SAFETY: one thread's, and `f` is not given the lock.
        f(unsafe { &*self.0.get() })
    }

    #[inline]
    fn update<R>(&self, f: impl FnOnce(&mut Words) -> R) -> R {
        // SAFETY: one thread's (`Kind::Baseline`), and `f` is not given the lock: no other
        // reference is alive.
        f(unsafe { &mut *self.0.get() })
    }
}
