//! The list of a registry with marks.
//!
//! Owns: [`List`]. The nodes and their memory are [`Marked`](crate::collections::marked::Marked)'s.

use crate::collections::marked::Node;
use crate::ldu::Structure;
use crate::sync::Ordering;
use std::ptr::NonNull;

/// The nodes that are registered.
pub(super) struct List<T>(Vec<NonNull<Node<T>>>);

// SAFETY: nodes are reached by shared reference from any thread (`T: Sync`) and freed on any
// (`T: Send`).
unsafe impl<T: Send + Sync> Send for List<T> {}
// SAFETY: as above; a shared list gives shared access to its values.
unsafe impl<T: Send + Sync> Sync for List<T> {}

impl<T: Send + Sync + 'static> Structure<Node<T>> for List<T> {
    fn insert(&mut self, node: &Node<T>) {
        // ORDER: Relaxed (all of `place`); guarded by the set's lock.
        node.place.store(self.0.len(), Ordering::Relaxed);
        self.0.push(NonNull::from(node));
    }

    fn remove(&mut self, node: &Node<T>) {
        let place = node.place.load(Ordering::Relaxed);
        self.0.swap_remove(place);
        if let Some(moved) = self.0.get(place) {
            // SAFETY: a node lives as long as it is in the list (U3 of `ldu`).
            unsafe { moved.as_ref() }.place.store(place, Ordering::Relaxed);
        }
    }
}

impl<T> Drop for List<T> {
    /// Drops what leaked entries have left.
    fn drop(&mut self) {
        for node in self.0.drain(..) {
            // SAFETY: the list had it, and goes with its set.
            unsafe { Node::free_left(node) };
        }
    }
}

impl<T> List<T> {
    pub(super) const fn new() -> Self {
        Self(Vec::new())
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &T> {
        // SAFETY: the list has them.
        self.0.iter().map(|node| unsafe { Node::value(*node) })
    }
}
