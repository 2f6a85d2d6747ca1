//! The read guard.

use super::{
    Adaptive,
    lanes::{self, Lane},
};
use crate::lock::held;
use crate::oplog::{self, ColdGuard, Log};
use crate::sync::ConstPtr;
use std::fmt;
use std::marker::PhantomData;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ops::Deref;
use std::ptr;

/// An [`Adaptive`] object, up to date, held for reading. Dropping the guard releases the object.
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
    hold: Hold<'a>,
    /// Locks and lanes have an owner thread.
    not_send: PhantomData<*mut ()>,
}

// SAFETY: a shared guard gives only shared access to `T`.
unsafe impl<T: Send + Sync + 'static, L: Log<T>> Sync for ReadGuard<'_, T, L> {}

/// What keeps other threads from changing the value. Two words, so that the slow paths return it in
/// registers, and the guard of the fast path needs no memory.
pub(super) enum Hold<'a> {
    /// The thread is counted in its lane (adaptive.A1).
    Lane(&'a Lane),
    /// The thread holds the lock of the core that the value is in; null stands for the object's
    /// own.
    Lock(*const ()),
    /// The thread holds the object's own lock by a reservation.
    Reserved,
}

impl<'a, T: Send + Sync + 'static, L: Log<T>> ReadGuard<'a, T, L> {
    /// The guard of a hold that this thread has.
    #[inline(always)]
    pub(super) fn new(object: &'a Adaptive<T, L>, hold: Hold<'a>) -> Self {
        let value = match hold {
            Hold::Lock(core) if !core.is_null() => object.object.value_kept(core),
            Hold::Lane(_) | Hold::Lock(_) | Hold::Reserved => object.object.value_unlocked(),
        };
        Self { object, value: ManuallyDrop::new(value), hold, not_send: PhantomData }
    }

    pub(super) fn locked(object: &'a Adaptive<T, L>, hold: ColdGuard<'a, T, L>) -> Self {
        hold.keep();
        Self::new(object, Hold::Lock(ptr::null()))
    }

    pub(super) fn logged(object: &'a Adaptive<T, L>, guard: oplog::ReadGuard<'a, T, L>) -> Self {
        Self::new(object, Hold::Lock(guard.keep()))
    }

    /// Consumes the guard and keeps its hold.
    pub(super) fn into_hold(self) -> Hold<'a> {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: not used again.
        unsafe { ManuallyDrop::drop(&mut this.value) };
        match this.hold {
            Hold::Lane(lane) => Hold::Lane(lane),
            Hold::Lock(core) => Hold::Lock(core),
            Hold::Reserved => Hold::Reserved,
        }
    }

    pub(super) fn is_poisoned(&self) -> bool {
        match self.hold {
            Hold::Lane(_) | Hold::Reserved => false,
            Hold::Lock(core) => self.object.object.is_poisoned_kept(core),
        }
    }
}

impl<T: Send + Sync + 'static, L: Log<T>> Deref for ReadGuard<'_, T, L> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: the hold keeps all other threads from changing the value (adaptive.A1, or the
        // lock) and from moving it, until the guard is dropped.
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
        match self.hold {
            Hold::Lane(lane) => {
                held::leave();
                if lanes::leave(lane) {
                    self.object.look_after_reads();
                }
            }
            // SAFETY: the guard was made of a hold that was kept, on this thread.
            Hold::Lock(core) if core.is_null() => unsafe { self.object.object.release_cold() },
            // SAFETY: the guard was made of a hold that was kept, on this thread.
            Hold::Reserved => unsafe { self.object.object.release_reserved() },
            // SAFETY: the hold was kept on this thread, `core` came with it, and the value is
            // dropped above.
            Hold::Lock(core) => unsafe { self.object.object.release_logged(core) },
        }
    }
}
