//! A value behind a lock that detects re-entrancy: a thread that locks it while it holds it.

use crate::lock::{self, Hold, Refused};
use crate::percpu::thread_token;
use crate::profile::Of;
use crate::sync::{AtomicUsize, MutPtr, UnsafeCell};
use std::ops::{Deref, DerefMut};
use std::panic::Location;

/// A value, and the word that locks it.
pub(super) struct ReentrancyLock<T> {
    word: AtomicUsize,
    value: UnsafeCell<T>,
}

// SAFETY: the holder of the word has the value to itself (lock_word.K1), and may take parts of it
// along.
unsafe impl<T: Send> Sync for ReentrancyLock<T> {}
// SAFETY: owned data.
unsafe impl<T: Send> Send for ReentrancyLock<T> {}

impl<T> ReentrancyLock<T> {
    pub(super) fn new(value: T) -> Self {
        Self { word: AtomicUsize::new(0), value: UnsafeCell::new(value) }
    }

    /// Runs `f` on the value under the lock.
    ///
    /// # Panics
    /// If the calling thread holds the lock, or the wait for it would never end.
    #[inline]
    #[track_caller]
    pub(super) fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        let of = Of::new("collection", self);
        let _hold = lock::hold(&self.word, of).unwrap_or_else(|refused| cannot_hold(refused));
        // SAFETY: lock_word.K1 - this thread holds the lock until `_hold` is dropped.
        self.value.with_mut(|value| f(unsafe { &mut *value }))
    }

    /// Takes the lock, which the guard holds until it is dropped.
    ///
    /// # Panics
    /// If the calling thread holds the lock, or the wait for it would never end.
    #[inline]
    #[track_caller]
    pub(super) fn hold(&self) -> ReentrancyGuard<'_, T> {
        self.hold_for(Location::caller())
    }

    /// Same as [`hold`](Self::hold), on behalf of this line of the user's code.
    #[inline]
    pub(super) fn hold_for(&self, place: &'static Location<'static>) -> ReentrancyGuard<'_, T> {
        self.hold_told(place).0
    }

    /// Same as [`hold_for`](Self::hold_for); also returns whether the thread had to wait.
    #[inline]
    pub(super) fn hold_told(
        &self,
        place: &'static Location<'static>,
    ) -> (ReentrancyGuard<'_, T>, bool) {
        let of = Of::at("collection", self, place);
        let (hold, waited) =
            lock::hold_told(&self.word, of).unwrap_or_else(|refused| cannot_hold(refused));
        (ReentrancyGuard { value: self.value.get_mut(), _hold: hold }, waited)
    }

    /// Returns true if the calling thread holds the lock.
    pub(super) fn is_mine(&self) -> bool {
        lock::is_held_by(&self.word, thread_token())
    }

    pub(super) fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

/// The value, for the holder of its lock.
pub(super) struct ReentrancyGuard<'a, T> {
    /// Dropped before the lock is released.
    value: MutPtr<T>,
    _hold: Hold<'a>,
}

impl<T> Deref for ReentrancyGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // Not by way of `&mut T`, which would end the references that this gave before.
        // SAFETY: lock_word.K1 - this thread holds the lock until `_hold` is dropped, and the guard
        // is borrowed for reading, so there are other references for reading at most.
        self.value.with(|value| unsafe { &*value })
    }
}

impl<T> DerefMut for ReentrancyGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: lock_word.K1 - this thread holds the lock until `_hold` is dropped, and the guard
        // is borrowed for writing, so this is the only reference.
        unsafe { self.value.deref() }
    }
}

/// Panics with the reason why a lock is refused.
#[cold]
#[track_caller]
pub(super) fn cannot_hold(refused: Refused) -> ! {
    if refused == Refused::Deadlock {
        panic!(
            "manycore: deadlock: threads would wait for each other, in a cycle of the wait-for \
             graph: each uses, from within code that runs under the lock of a collection, a \
             collection whose lock another of them holds"
        )
    }
    panic_on_reentrancy()
}

/// Panics because user code that a collection runs uses that collection.
#[cold]
pub(super) fn panic_on_reentrancy() -> ! {
    panic!(
        "manycore: a collection is used by code that runs under its own lock: a closure, or the \
         Hash, Eq or Clone of a key or value"
    )
}
