//! Recency lists as they are commonly shared.

use std::sync::{Mutex, PoisonError};

use lru::LruCache;

use super::LruImpl;

type Plain = LruCache<u64, ()>;

macro_rules! locked {
    ($(#[$doc:meta])* $Name:ident, $Lock:ty, |$lock:ident| $guard:expr) => {
        $(#[$doc])*
        pub(super) struct $Name($Lock);

        impl LruImpl for $Name {
            fn new() -> Self {
                Self(<$Lock>::new(LruCache::unbounded()))
            }

            #[inline]
            fn touch(&self, key: u64) {
                let $lock = &self.0;
                $guard.put(key, ());
            }

            fn evict(&self) -> Option<u64> {
                let $lock = &self.0;
                $guard.pop_lru().map(|(key, ())| key)
            }
        }
    };
}

locked!(
    /// std's.
    StdMutex,
    Mutex<Plain>,
    |lock| lock.lock().unwrap_or_else(PoisonError::into_inner)
);
locked!(
    /// parking_lot's.
    ParkMutex,
    parking_lot::Mutex<Plain>,
    |lock| lock.lock()
);

/// The baseline: one thread's.
pub(super) struct Unshared(std::cell::UnsafeCell<Plain>);

// SAFETY: the baseline runs on one thread, one after the other (`Kind::Baseline`).
unsafe impl Sync for Unshared {}

impl LruImpl for Unshared {
    fn new() -> Self {
        Self(LruCache::unbounded().into())
    }

    #[inline]
    fn touch(&self, key: u64) {
        // SAFETY: one thread's, for the length of the call.
        unsafe { &mut *self.0.get() }.put(key, ());
    }

    fn evict(&self) -> Option<u64> {
        // SAFETY: one thread's (`Kind::Baseline`), for the length of the call.
        unsafe { &mut *self.0.get() }.pop_lru().map(|(key, ())| key)
    }
}
