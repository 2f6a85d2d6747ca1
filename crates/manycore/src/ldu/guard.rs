//! Guards of readers, exclusive and shared.

use super::links::Linked;
use super::retired::Retired;
use super::state::{Held, State};
use super::structure::Structure;
use crate::sync::{ConstPtr, MutPtr, deref_ref, drop_each, panicking};
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

/// A guard of an up-to-date structure that one reader holds. Dropping it releases the set.
///
/// Changes go on concurrently; this guard does not see them. The structure may be changed through
/// the guard, except for its members: only the set tells the structure about members.
///
/// See [`DeferredSet`](super::DeferredSet) for an example.
pub struct ReadGuard<'a, T: Structure<E>, E: Linked> {
    held: Option<Held<'a, T, E>>,
    /// `None` just before the lock is released.
    value: Option<MutPtr<T>>,
    panicking: bool,
    /// The lock knows its owner, so the guard stays on its thread.
    not_send: PhantomData<*mut ()>,
}

// SAFETY: a shared guard gives only shared access to `T`.
unsafe impl<T: Structure<E> + Sync, E: Linked> Sync for ReadGuard<'_, T, E> {}

impl<'a, T: Structure<E>, E: Linked> ReadGuard<'a, T, E> {
    pub(super) fn new(held: Held<'a, T, E>) -> Self {
        let value = Some(held.state.value.get_mut());
        Self { held: Some(held), value, panicking: panicking(), not_send: PhantomData }
    }

    /// Returns true if the structure panicked, so that changes are queued that this guard does not
    /// see.
    #[must_use]
    pub fn is_poisoned(&self) -> bool {
        self.held.as_ref().is_some_and(|held| held.state.is_poisoned())
    }
}

const LIVE: &str = "the guard is live";

impl<T: Structure<E>, E: Linked> Deref for ReadGuard<'_, T, E> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard holds the set's lock, which guards the structure.
        unsafe { deref_ref(self.value.as_ref().expect(LIVE)) }
    }
}

impl<T: Structure<E>, E: Linked> DerefMut for ReadGuard<'_, T, E> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard holds the set's lock, which guards the structure (rounds.V1). `&mut
        // self` makes this the guard's only access to it.
        unsafe { self.value.as_ref().expect(LIVE).deref() }
    }
}

impl<T: Structure<E> + fmt::Debug, E: Linked> fmt::Debug for ReadGuard<'_, T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: Structure<E>, E: Linked> Drop for ReadGuard<'_, T, E> {
    fn drop(&mut self) {
        self.value = None;
        if let Some(mut held) = self.held.take() {
            held.poison = !self.panicking && panicking();
            let garbage = held.garbage();
            drop(held);
            drop_each(garbage); // runs destructors of members: after the lock is released
        }
    }
}

/// A guard of an up-to-date structure that parallel readers share: see
/// [`DeferredSet::read_shared`](super::DeferredSet::read_shared). Dropping it ends the read.
///
/// Changes go on concurrently; this guard does not see them. A reader that has to bring the
/// structure up to date again waits for it.
///
/// ```
/// use manycore::ldu::{DeferredSet, Element, Structure};
///
/// # #[derive(Default)]
/// # struct Sum(u64);
/// # impl Structure<Element<u64>> for Sum {
/// #     fn insert(&mut self, number: &Element<u64>) {
/// #         self.0 += **number;
/// #     }
/// #     fn remove(&mut self, number: &Element<u64>) {
/// #         self.0 -= **number;
/// #     }
/// # }
/// let set = DeferredSet::new(Sum(0));
/// let member = set.add(7);
/// let here = set.read_shared();
/// std::thread::scope(|s| {
///     s.spawn(|| assert_eq!(set.read_shared().0, 7)); // does not wait for this thread
/// });
/// assert_eq!(here.0, 7);
/// # drop(here);
/// # drop(member);
/// ```
pub struct SharedGuard<'a, T: Structure<E>, E: Linked> {
    state: &'a State<T, E>,
    /// `None` just before the reader leaves.
    value: Option<ConstPtr<T>>,
    /// The lock, if the structure cannot be shared now.
    alone: Option<Held<'a, T, E>>,
    /// Members that were given up, to be freed after that: their destructors are user code.
    garbage: Vec<Retired<E>>,
    /// The thread is listed as one that shares the set, so the guard stays on it.
    not_send: PhantomData<*mut ()>,
}

// SAFETY: a shared guard gives only shared access to `T`.
unsafe impl<T: Structure<E> + Sync, E: Linked> Sync for SharedGuard<'_, T, E> {}

impl<'a, T: Structure<E>, E: Linked> SharedGuard<'a, T, E> {
    /// Makes the guard of a reader that was admitted.
    pub(super) fn new(state: &'a State<T, E>) -> Self {
        Self::of(state, None, Vec::new())
    }

    /// Makes the guard of a reader that has brought the structure up to date.
    pub(super) fn after(mut held: Held<'a, T, E>) -> Self {
        let (state, garbage) = (held.state, held.garbage());
        let alone = held.share();
        Self::of(state, alone, garbage)
    }

    fn of(state: &'a State<T, E>, alone: Option<Held<'a, T, E>>, garbage: Vec<Retired<E>>) -> Self {
        Self { state, value: Some(state.value.get()), alone, garbage, not_send: PhantomData }
    }
}

impl<T: Structure<E>, E: Linked> Deref for SharedGuard<'_, T, E> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the structure does not change while a reader shares it (rounds.V1).
        unsafe { self.value.as_ref().expect(LIVE).deref() }
    }
}

impl<T: Structure<E> + fmt::Debug, E: Linked> fmt::Debug for SharedGuard<'_, T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: Structure<E>, E: Linked> Drop for SharedGuard<'_, T, E> {
    fn drop(&mut self) {
        self.value = None;
        match self.alone.take() {
            Some(held) => drop(held),
            None => self.state.read_side.rounds.leave(),
        }
        drop_each(self.garbage.drain(..));
    }
}
