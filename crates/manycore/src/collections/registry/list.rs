//! The list of a registry with marks.
//!
//! Owns: [`List`]. The nodes and their memory are
//! [`MemberPool`](crate::collections::member_pool::MemberPool)'s.

use crate::collections::member_pool::{Member, MemberStore};
use crate::sync::{Ordering, run_each};
use std::ptr::NonNull;

/// The nodes that are registered.
pub(super) struct List<T>(Vec<NonNull<Member<T>>>);

// SAFETY: nodes are reached by shared reference from any thread (`T: Sync`) and freed on any
// (`T: Send`).
unsafe impl<T: Send + Sync> Send for List<T> {}
// SAFETY: a shared list gives out `&T` alone (`T: Sync`); it is changed through `&mut self`.
unsafe impl<T: Send + Sync> Sync for List<T> {}

impl<T: Send + Sync + 'static> MemberStore<T> for List<T> {
    unsafe fn insert(&mut self, node: NonNull<Member<T>>) {
        // SAFETY: member_pool.N1 - the caller promises that the node is alive until it is removed
        // (`MemberStore::insert`).
        unsafe { Self::put(node, self.0.len()) };
        self.0.push(node);
    }

    unsafe fn remove(&mut self, node: NonNull<Member<T>>) {
        // ORDER: Relaxed; as in `put`.
        // SAFETY: member_pool.N1 - the caller promises that the node is alive until this returns
        // (`MemberStore::remove`).
        let place = unsafe { (*node.as_ptr()).place.load(Ordering::Relaxed) };
        self.0.swap_remove(place);
        if let Some(moved) = self.0.get(place) {
            // SAFETY: a node lives as long as it is in the list (ldu.U3).
            unsafe { Self::put(*moved, place) };
        }
    }
}

impl<T> Drop for List<T> {
    /// Drops what leaked entries have left.
    fn drop(&mut self) {
        // SAFETY: the list had them, and goes with its set.
        run_each(self.0.drain(..), |node| unsafe { Member::free_left(node) });
    }
}

impl<T> List<T> {
    /// Stores in a node where it is.
    ///
    /// # Safety
    /// The node is alive.
    unsafe fn put(node: NonNull<Member<T>>, place: usize) {
        // ORDER: Relaxed; guarded by the set's lock.
        // SAFETY: the caller promises that the node is alive; the place is atomic.
        unsafe { (*node.as_ptr()).place.store(place, Ordering::Relaxed) };
    }

    pub(super) const fn new() -> Self {
        Self(Vec::new())
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &T> {
        // SAFETY: the list has them.
        self.0.iter().map(|node| unsafe { Member::value(*node) })
    }
}
