//! The read guard.

use super::Adaptive;
use crate::lock::held;
use crate::oplog::guard::Hold;
use crate::oplog::log::Log;
use crate::oplog::readers::{self, Lane};
use crate::sync::ConstPtr;
use std::fmt;
use std::marker::PhantomData;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ops::Deref;
use std::ptr;

/// A guard of an [`Adaptive`] object that is up to date and held for reading. Dropping the guard
/// releases the object.
///
/// A panic while it is held does not poison the object. It stays on its thread.
///
/// ```
/// use manycore::cluster::Adaptive;
/// use manycore::oplog::{Commuting, Op};
///
/// # struct Push(u32);
/// # impl Op<Vec<u32>> for Push {
/// #     fn apply(self, list: &mut Vec<u32>) {
/// #         list.push(self.0);
/// #     }
/// # }
/// let list = Adaptive::<Vec<u32>, Commuting<Push>>::new(vec![]);
/// list.update(Push(7));
/// let seen = list.read();
/// assert_eq!(seen.first(), Some(&7));
/// ```
#[must_use = "the object is given up at once"]
pub struct ReadGuard<'a, T: Send + Sync + 'static, L: Log<T>> {
    object: &'a Adaptive<T, L>,
    value: ManuallyDrop<ConstPtr<MaybeUninit<T>>>,
    entry: Entry<'a, T, L>,
    /// Locks and lanes have an owner thread.
    not_send: PhantomData<*mut ()>,
}

// SAFETY: a shared guard gives only shared access to `T`.
unsafe impl<T: Send + Sync + 'static, L: Log<T>> Sync for ReadGuard<'_, T, L> {}

/// Keeps other threads from changing the value. It is two words, so the slow paths return it in
/// registers, and the guard of the fast path needs no memory.
pub(super) enum Entry<'a, T: Send + 'static, L: Log<T>> {
    /// The thread is counted in its lane (readers.A1).
    Lane(&'a Lane),
    /// The thread holds the object.
    Hold(Hold<T, L>),
}

impl<T: Send + 'static, L: Log<T>> Clone for Entry<'_, T, L> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: Send + 'static, L: Log<T>> Copy for Entry<'_, T, L> {}

impl<'a, T: Send + Sync + 'static, L: Log<T>> ReadGuard<'a, T, L> {
    /// Makes the guard of an object that this thread has entered.
    #[inline(always)]
    pub(super) fn new(object: &'a Adaptive<T, L>, entry: Entry<'a, T, L>) -> Self {
        let hot = match entry {
            Entry::Hold(hold) => hold.state(),
            Entry::Lane(_) => ptr::null(),
        };
        // SAFETY: object.W1 - this thread has the lock of the hot state, so it is alive.
        let place = unsafe { hot.as_ref() }.map_or(&*object.object.value, |hot| &hot.value);
        let value = ManuallyDrop::new(place.get());
        Self { object, value, entry, not_send: PhantomData }
    }

    /// As [`new`](Self::new), for an object that was cold when the thread entered.
    #[inline(always)]
    pub(super) fn of_cold(object: &'a Adaptive<T, L>, entry: Entry<'a, T, L>) -> Self {
        let value = ManuallyDrop::new(object.object.value.get());
        Self { object, value, entry, not_send: PhantomData }
    }

    /// Passes the guard's duty to the caller.
    pub(super) fn into_entry(self) -> Entry<'a, T, L> {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: not used again.
        unsafe { ManuallyDrop::drop(&mut this.value) };
        this.entry
    }

    pub(super) fn is_poisoned(&self) -> bool {
        match self.entry {
            Entry::Lane(_) => false, // readers.A4
            Entry::Hold(hold) => self.object.object.is_poisoned_held(hold.state()),
        }
    }
}

impl<T: Send + Sync + 'static, L: Log<T>> Deref for ReadGuard<'_, T, L> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: readers.A1 or object.W1 - the entry keeps all other threads from changing the
        // value and from moving it, until the guard is dropped.
        unsafe { (*self.value).deref().assume_init_ref() }
    }
}

impl<T: Send + Sync + fmt::Debug + 'static, L: Log<T>> fmt::Debug for ReadGuard<'_, T, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: Send + Sync + 'static, L: Log<T>> Drop for ReadGuard<'_, T, L> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: not used again.
        unsafe { ManuallyDrop::drop(&mut self.value) };
        match self.entry {
            Entry::Lane(lane) => {
                held::leave();
                if readers::leave(lane) {
                    self.object.look_after_reads();
                }
            }
            Entry::Hold(hold) => {
                // SAFETY: object.W1 - the guard has the hold, and the reference to the value is
                // gone.
                let released = unsafe { self.object.object.try_release(hold) };
                if !released {
                    // SAFETY: object.W1 - as above.
                    unsafe { self.object.object.release_slow(hold, false) };
                }
            }
        }
    }
}
