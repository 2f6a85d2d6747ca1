//! [`ReadGuard`]: access to an object that is up to date and locked.

use super::hot_state::HotState;
use super::log::Log;
use super::object::Deferred;
use crate::sync::{MutPtr, deref_ref, panicking};
use std::fmt;
use std::marker::PhantomData;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ops::{Deref, DerefMut};

/// A guard of an object that is up to date and held by one reader. Dropping it releases the object.
///
/// While it exists, updates are still logged; this guard does not see them. The value may be
/// changed through the guard: it is an ordinary critical section.
///
/// ```
/// use manycore::oplog::{Commuting, Deferred, Op};
///
/// # struct Add(u64);
/// # impl Op<u64> for Add {
/// #     fn apply(self, sum: &mut u64) {
/// #         *sum += self.0;
/// #     }
/// # }
/// let sum = Deferred::<u64, Commuting<Add>>::new(0);
/// sum.append(Add(2));
/// let mut guard = sum.read();
/// *guard += 40; // no other reader is here
/// drop(guard);
/// assert_eq!(*sum.read(), 42);
/// ```
pub struct ReadGuard<'a, T: Send + 'static, L: Log<T>> {
    pub(super) object: &'a Deferred<T, L>,
    /// The hot state whose lock is held; null if the object was cold when the guard was made.
    pub(super) hot: *const HotState<T, L>,
    /// Taken before the lock is released.
    pub(super) value: Option<MutPtr<MaybeUninit<T>>>,
    pub(super) panicking: bool,
    /// The lock is the word's, and this thread has it by a reservation.
    reserved: bool,
    /// The lock knows its owner, so the guard stays on its thread.
    not_send: PhantomData<*mut ()>,
}

/// The lock that a thread has of an object, which only a guard made [`of`](ReadGuard::of) it
/// releases. Two words, so that the slow paths return it in registers, and the guard of the short
/// path needs no memory.
#[must_use = "the object stays locked"]
pub(super) struct Hold<T: Send + 'static, L: Log<T>> {
    /// As in the guard.
    pub(super) hot: *const HotState<T, L>,
    pub(super) reserved: bool,
}

// SAFETY: a shared guard gives shared access to `T` alone.
unsafe impl<T: Send + Sync + 'static, L: Log<T>> Sync for ReadGuard<'_, T, L> {}

impl<'a, T: Send + 'static, L: Log<T>> ReadGuard<'a, T, L> {
    /// The guard of a lock that the calling thread has.
    #[inline(always)]
    pub(super) fn of(object: &'a Deferred<T, L>, Hold { hot, reserved }: Hold<T, L>) -> Self {
        debug_assert!(object.is_held_through(hot), "oplog.W1: a guard of a lock that is not held");
        let value = if hot.is_null() {
            object.value.get_mut()
        } else {
            // SAFETY: the hot state's lock is held, so it is alive.
            unsafe { (*hot).value.get_mut() }
        };
        let (value, panicking) = (Some(value), panicking());
        Self { object, hot, value, panicking, reserved, not_send: PhantomData }
    }

    /// Passes the guard's duty to the caller, which makes another guard [`of`](Self::of) the lock.
    pub(super) fn into_hold(mut self) -> Hold<T, L> {
        self.value = None;
        let this = ManuallyDrop::new(self);
        Hold { hot: this.hot, reserved: this.reserved }
    }

    /// Whether an update panicked, so that this guard does not see updates that are queued.
    #[must_use]
    pub fn is_poisoned(&self) -> bool {
        self.object.is_poisoned_held(self.hot)
    }
}

impl<T: Send + 'static, L: Log<T>> ReadGuard<'_, T, L> {
    /// Whether the object has logs.
    #[inline(always)]
    pub(crate) fn is_hot(&self) -> bool {
        !self.hot.is_null()
    }

    /// Takes the object's logs. For the next `reads` reads it asks for none, unless it has too many
    /// updates before one of them to count; 0 ends that. Not for an object that is poisoned; one
    /// that always has logs keeps them.
    ///
    /// # Panics
    /// If an update panics that is applied here.
    #[cold]
    pub(crate) fn rest(&mut self, reads: u32) {
        let object = self.object;
        if object.config.always_logs() || self.reserved {
            return;
        }
        if reads > 0 {
            object.demote_guard(self);
        }
        if self.hot.is_null() {
            object.contention.store(object.contention.load().resting_for(reads));
        }
    }
}

const LIVE: &str = "the guard is live";

impl<T: Send + 'static, L: Log<T>> Deref for ReadGuard<'_, T, L> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard holds the object's lock, and the value stays in place until the drop.
        unsafe { deref_ref(self.value.as_ref().expect(LIVE)).assume_init_ref() }
    }
}

impl<T: Send + 'static, L: Log<T>> DerefMut for ReadGuard<'_, T, L> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: oplog.W1 - the guard holds the object's lock, and the value stays in place until
        // the drop; `&mut self` makes this the guard's only access to it.
        unsafe { self.value.as_ref().expect(LIVE).deref().assume_init_mut() }
    }
}

impl<T: Send + 'static + fmt::Debug, L: Log<T>> fmt::Debug for ReadGuard<'_, T, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: Send + 'static, L: Log<T>> Drop for ReadGuard<'_, T, L> {
    // Inlined also where a panic unwinds, or the guard would have to be in memory.
    #[inline(always)]
    fn drop(&mut self) {
        self.value = None;
        let poison = !self.panicking && panicking();
        // SAFETY: the guard holds the lock of `hot`, or the object's own if it is null.
        unsafe { self.object.release(self.hot, self.reserved, poison) };
    }
}
