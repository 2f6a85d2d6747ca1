//! [`ReadGuard`]: access to an object that is up to date and locked.

use super::hot_state::HotState;
use super::log::Log;
use super::object::Deferred;
use super::release::ColdGuard;
use crate::sync::{MutPtr, deref_ref, panicking};
use std::fmt;
use std::marker::PhantomData;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ops::{Deref, DerefMut};
use std::ptr;

/// A guard of an object that is up to date and held by one reader. Dropping it releases the object.
///
/// While it exists, updates are still logged; this guard does not see them. The value may be
/// changed through the guard: it is an ordinary critical section. A panic after that, while the
/// guard is held, poisons the object; a panic of a reader that only looks does not.
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
    pub(super) hold: Hold<T, L>,
    /// Taken before the lock is released, and while the object is demoted: then no other code has
    /// the guard, to which `lifecycle::Undone` gives it back.
    pub(super) value: Option<MutPtr<MaybeUninit<T>>>,
    /// The value may have been changed, and the thread was not panicking then.
    changed: bool,
    /// The lock knows its owner, so the guard stays on its thread.
    not_send: PhantomData<*mut ()>,
}

/// How a thread holds an object; only a guard made [`of`](ReadGuard::of) it releases the object.
/// One word, so that the slow paths return it in a register, and the guard of the short path needs
/// no memory.
#[must_use = "the object stays locked"]
pub(super) struct Hold<T: Send + 'static, L: Log<T>>(*const HotState<T, L>);

impl<T: Send + 'static, L: Log<T>> Clone for Hold<T, L> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: Send + 'static, L: Log<T>> Copy for Hold<T, L> {}

impl<T: Send + 'static, L: Log<T>> Hold<T, L> {
    /// The object was cold when it was locked, by its word.
    pub(super) const LOCKED: Self = Self(ptr::null());
    /// It was cold, and is reserved for the thread.
    pub(super) const RESERVED: Self = Self(ptr::without_provenance(1));

    /// The thread has the lock of this hot state.
    #[inline(always)]
    pub(super) fn hot(hot: *const HotState<T, L>) -> Self {
        Self(hot)
    }

    /// A hold of the cold object.
    #[inline(always)]
    pub(super) fn cold(reserved: bool) -> Self {
        if reserved { Self::RESERVED } else { Self::LOCKED }
    }

    #[inline(always)]
    pub(super) fn is_locked(self) -> bool {
        self.0.is_null()
    }

    #[inline(always)]
    pub(super) fn is_reserved(self) -> bool {
        self.0.addr() == 1
    }

    /// The hot state whose lock is held; null if the object was cold.
    #[inline(always)]
    pub(super) fn state(self) -> *const HotState<T, L> {
        if self.is_reserved() { ptr::null() } else { self.0 }
    }
}

// SAFETY: a shared guard gives shared access to `T` alone.
unsafe impl<T: Send + Sync + 'static, L: Log<T>> Sync for ReadGuard<'_, T, L> {}

impl<'a, T: Send + 'static, L: Log<T>> ReadGuard<'a, T, L> {
    /// The guard of an object that the calling thread holds.
    #[inline(always)]
    pub(super) fn of(object: &'a Deferred<T, L>, hold: Hold<T, L>) -> Self {
        let hot = hold.state();
        debug_assert!(object.is_held_through(hot), "oplog.W1: a guard of a lock that is not held");
        let value = if hot.is_null() {
            object.value.get_mut()
        } else {
            // SAFETY: the hot state's lock is held, so it is alive.
            unsafe { (*hot).value.get_mut() }
        };
        Self { object, hold, value: Some(value), changed: false, not_send: PhantomData }
    }

    /// As [`of`](Self::of), for an object that was cold when it was locked.
    #[inline(always)]
    pub(super) fn of_cold(object: &'a Deferred<T, L>, hold: Hold<T, L>) -> Self {
        debug_assert!(hold.state().is_null(), "oplog.W1: the value is in a hot state");
        let value = Some(object.value.get_mut());
        Self { object, hold, value, changed: false, not_send: PhantomData }
    }

    #[inline(always)]
    fn value(&self) -> &MutPtr<MaybeUninit<T>> {
        debug_assert!(self.value.is_some(), "oplog.W1: a guard is used that has no value");
        // SAFETY: the guard's user has a guard that is neither dropped nor being demoted, so it has
        // the value (see the field).
        unsafe { self.value.as_ref().unwrap_unchecked() }
    }

    /// Passes the guard's duty to the caller, which makes another guard [`of`](Self::of) the lock.
    pub(super) fn into_hold(mut self) -> Hold<T, L> {
        self.value = None;
        let this = ManuallyDrop::new(self);
        this.hold
    }

    /// Passes the guard's duty to a guard of the word's lock. Not for an object with logs.
    pub(super) fn into_cold(self) -> ColdGuard<'a, T, L> {
        debug_assert!(!self.is_hot(), "oplog.W1: the lock is the hot state's");
        let object = self.object;
        if self.into_hold().is_reserved() {
            return ColdGuard::of_reserved(object).settled();
        }
        ColdGuard::of_counted(object)
    }

    /// The number of updates logged between the last read and this one; `None` if the object became
    /// cold while this guard was made.
    pub(super) fn window(&self) -> Option<u64> {
        // SAFETY: the guard holds the hot state's lock, so the hot state is alive.
        let hot = unsafe { self.hold.state().as_ref()? };
        // SAFETY: the lock guards `inner`.
        Some(hot.logs().inner.with(|inner| unsafe { (*inner).window }))
    }

    /// Whether an update panicked, so that this guard does not see updates that are queued.
    #[must_use]
    pub fn is_poisoned(&self) -> bool {
        self.object.is_poisoned_held(self.hold.state())
    }
}

impl<T: Send + 'static, L: Log<T>> ReadGuard<'_, T, L> {
    /// Whether the object has logs.
    #[inline(always)]
    pub(crate) fn is_hot(&self) -> bool {
        !self.hold.state().is_null()
    }

    /// Takes the object's logs. For the next `reads` reads it asks for none, unless there are a
    /// thousand updates without one of them; 0 ends that. Not for an object that is poisoned; one
    /// that always has logs keeps them.
    ///
    /// # Panics
    /// If an update panics that is applied here.
    #[cold]
    pub(crate) fn rest(&mut self, reads: u32) {
        let object = self.object;
        if object.config.always_logs() || self.hold.is_reserved() {
            return;
        }
        if reads > 0 {
            object.demote_guard(self);
        }
        if !self.is_hot() {
            object.contention.store(object.contention.load().resting_for(reads));
        }
    }
}

impl<T: Send + 'static, L: Log<T>> Deref for ReadGuard<'_, T, L> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard holds the object's lock, and the value stays in place until the drop.
        unsafe { deref_ref(self.value()).assume_init_ref() }
    }
}

impl<T: Send + 'static, L: Log<T>> DerefMut for ReadGuard<'_, T, L> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        self.changed = self.changed || !panicking();
        // SAFETY: oplog.W1 - the guard holds the object's lock, and the value stays in place until
        // the drop; `&mut self` makes this the guard's only access to it.
        unsafe { self.value().deref().assume_init_mut() }
    }
}

impl<T: Send + 'static + fmt::Debug, L: Log<T>> fmt::Debug for ReadGuard<'_, T, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: Send + 'static, L: Log<T>> Drop for ReadGuard<'_, T, L> {
    // Short enough to be inlined also where a panic unwinds, or the guard would have to be in
    // memory.
    #[inline(always)]
    fn drop(&mut self) {
        self.value = None;
        let poison = self.changed && panicking();
        // SAFETY: oplog.W1 - the guard has the hold, and the reference to the value is gone.
        let released = !poison && unsafe { self.object.try_release(self.hold) };
        if !released {
            // SAFETY: oplog.W1 - as above.
            unsafe { self.object.release_slow(self.hold, poison) };
        }
    }
}
