//! These locks as raw locks of the crate [`lock_api`](::lock_api), behind the feature `lock_api`.
//!
//! Owns: [`RawTicketLock`], [`RawMcsLock`] and [`RawBrLock`]. They do, cost and promise the same as
//! the locks without "Raw" in the name. A guard stays on its thread (`GuardNoSend`). Laws lock.K4
//! to lock.K6 of the parent module.
//!
//! This is version 0.4 of that crate, because 0.5 needs a newer compiler than this library. The
//! crate gives an acquisition no place for state, so a queue lock with a node for its holder could
//! not implement it. Here that works: the node of an [`McsLock`](super::McsLock) lies on the stack
//! of a waiter, and is gone when the waiter holds the lock. The lane of a reader of a [`BrLock`] is
//! found again by the reader's thread.

use super::br::BrLock;
use super::exclusive::Raw;
use super::mcs::Mcs;
use super::ticket::Ticket;
use lock_api::{GuardNoSend, RawMutex, RawMutexFair, RawRwLock, RawRwLockRecursive};
use std::fmt;
use std::mem::forget;

macro_rules! raw_mutex {
    ($(#[$doc:meta])* $Name:ident, $Raw:ty;) => {
        $(#[$doc])*
        pub struct $Name($Raw);

        // SAFETY: Raw - between `lock` and `unlock`, no other thread acquires it.
        unsafe impl RawMutex for $Name {
            #[allow(clippy::declare_interior_mutable_const)] // the trait's way to make a lock
            const INIT: Self = Self(<$Raw>::new());
            type GuardMarker = GuardNoSend;

            #[inline]
            #[track_caller]
            fn lock(&self) {
                self.0.lock();
            }

            #[inline]
            fn try_lock(&self) -> bool {
                self.0.try_lock()
            }

            #[inline]
            unsafe fn unlock(&self) {
                // SAFETY: Raw - the trait requires that the caller holds the lock.
                unsafe { self.0.unlock() };
            }
        }

        // SAFETY: lock.K4 - every release hands the lock to the thread that has waited longest.
        unsafe impl RawMutexFair for $Name {
            #[inline]
            unsafe fn unlock_fair(&self) {
                // SAFETY: Raw - the trait requires that the caller holds the lock.
                unsafe { self.0.unlock() };
            }
        }

        impl fmt::Debug for $Name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($Name)).finish_non_exhaustive()
            }
        }
    };
}

raw_mutex! {
    /// A [`TicketLock`](super::TicketLock) without a value, for
    /// [`lock_api::Mutex`](::lock_api::Mutex) and code that is generic over raw locks.
    ///
    /// ```
    /// use manycore::lock::RawTicketLock;
    ///
    /// static TOTAL: lock_api::Mutex<RawTicketLock, u32> = lock_api::Mutex::new(0);
    /// *TOTAL.lock() += 1;
    /// assert_eq!(*TOTAL.lock(), 1);
    /// ```
    RawTicketLock, Ticket;
}

raw_mutex! {
    /// An [`McsLock`](super::McsLock) without a value, for [`lock_api::Mutex`](::lock_api::Mutex)
    /// and code that is generic over raw locks.
    ///
    /// ```
    /// use manycore::lock::RawMcsLock;
    ///
    /// type Mutex<T> = lock_api::Mutex<RawMcsLock, T>;
    /// let names = Mutex::new(vec!["one"]);
    /// names.lock().push("two");
    /// assert_eq!(names.into_inner(), ["one", "two"]);
    /// ```
    RawMcsLock, Mcs;
}

/// A [`BrLock`] without a value, for [`lock_api::RwLock`](::lock_api::RwLock) and code that is
/// generic over raw locks. A thread may read while it reads (`read_recursive` is `read`).
///
/// ```
/// use manycore::lock::RawBrLock;
///
/// static ROUTES: lock_api::RwLock<RawBrLock, Vec<&str>> = lock_api::RwLock::new(Vec::new());
/// ROUTES.write().push("localhost");
/// assert_eq!(ROUTES.read().len(), 1);
/// ```
///
/// # Panics
/// If a thread writes while it reads or writes, or reads while it writes.
pub struct RawBrLock(BrLock<()>);

// SAFETY: lock.K6 - a writer has closed the gate and seen no reader, and readers are counted until
// they release.
unsafe impl RawRwLock for RawBrLock {
    #[allow(clippy::declare_interior_mutable_const)] // the trait's way to make a lock
    const INIT: Self = Self(BrLock::new(()));
    type GuardMarker = GuardNoSend;

    #[inline]
    #[track_caller]
    fn lock_shared(&self) {
        forget(self.0.read());
    }

    #[inline]
    fn try_lock_shared(&self) -> bool {
        self.0.try_read().map(forget).is_some()
    }

    #[inline]
    unsafe fn unlock_shared(&self) {
        // SAFETY: br.R4 - the trait requires that the caller reads, and guards stay on their
        // thread.
        unsafe { self.0.end_read() };
    }

    #[track_caller]
    fn lock_exclusive(&self) {
        forget(self.0.write());
    }

    fn try_lock_exclusive(&self) -> bool {
        self.0.try_write().map(forget).is_some()
    }

    unsafe fn unlock_exclusive(&self) {
        // SAFETY: lock.K6 - the trait requires that the caller writes.
        unsafe { self.0.end_write() };
    }
}

// SAFETY: br.R4 - a thread that reads enters again without looking at the word.
unsafe impl RawRwLockRecursive for RawBrLock {
    #[inline]
    #[track_caller]
    fn lock_shared_recursive(&self) {
        self.lock_shared();
    }

    #[inline]
    fn try_lock_shared_recursive(&self) -> bool {
        self.try_lock_shared()
    }
}

impl fmt::Debug for RawBrLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RawBrLock").finish_non_exhaustive()
    }
}
