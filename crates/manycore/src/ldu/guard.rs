//! What a reader holds.

use super::core::Held;
use super::links::Linked;
use super::set::Structure;
use crate::sync::{MutPtr, deref_ref, panicking};
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

/// An up-to-date structure, held by one reader. Dropping it gives the set up.
///
/// Changes go on meanwhile; this guard does not see them. The structure may be changed through the
/// guard, but for its members: those are the set's to tell.
pub struct ReadGuard<'a, T: Structure<E>, E: Linked> {
    held: Option<Held<'a, T, E>>,
    /// Taken before the lock is given up.
    value: Option<MutPtr<T>>,
    panicking: bool,
    /// The lock knows its owner, so the guard stays on its thread.
    not_send: PhantomData<*mut ()>,
}

// SAFETY: a shared guard gives shared access to `T` alone.
unsafe impl<T: Structure<E> + Sync, E: Linked> Sync for ReadGuard<'_, T, E> {}

impl<'a, T: Structure<E>, E: Linked> ReadGuard<'a, T, E> {
    pub(super) fn new(held: Held<'a, T, E>) -> Self {
        let value = Some(held.core.value.get_mut());
        Self { held: Some(held), value, panicking: panicking(), not_send: PhantomData }
    }

    /// Whether the structure panicked, so that changes are queued that this guard does not see.
    #[must_use]
    pub fn is_poisoned(&self) -> bool {
        self.held.as_ref().is_some_and(|held| held.core.is_poisoned())
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
        // SAFETY: as in `deref`; `&mut self` makes the access exclusive.
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
            drop(garbage); // runs destructors of members: after the lock
        }
    }
}
