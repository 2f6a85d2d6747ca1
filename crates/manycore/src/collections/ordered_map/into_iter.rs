//! Conversion of a map into its entries by value. The caller has the only reference to the map, so
//! no view is open, and all linked nodes belong to the map alone.

use super::OrderedMap;
use super::node::Node;
use super::value::{Fresh, Word};
use crate::sync::{Ordering, caught, drop_each, model_failed, resume_first};
use std::collections::VecDeque;
use std::fmt;
use std::iter::FusedIterator;
use std::ptr;
use std::vec;

/// The entries of a leaf.
type Entries<K> = vec::IntoIter<(K, Word)>;

/// The parts of a tree: its entries, and the nodes and keys that are to be dropped with them.
struct Parts<K, V> {
    front: Entries<K>,
    leaves: VecDeque<Box<Node<K, V>>>,
    back: Entries<K>,
    inner: Vec<Box<Node<K, V>>>,
    separators: Vec<K>,
}

impl<K, V> Parts<K, V> {
    fn of(map: &mut OrderedMap<K, V>) -> Self {
        let (mut inner, mut separators) = (Vec::new(), Vec::new());
        // ORDER: Relaxed; `&mut`: no other thread has the map.
        let root = map.root.swap(ptr::null_mut(), Ordering::Relaxed);
        let mut level = Vec::new();
        if !root.is_null() {
            // SAFETY: it comes from `Box::into_raw`. No view is open, and it is not retired.
            level.push(unsafe { Box::from_raw(root) });
        }
        while level.first().is_some_and(|node| !node.is_leaf()) {
            let mut below = Vec::new();
            for node in &mut level {
                for (key, child) in node.take_all() {
                    separators.push(key);
                    // SAFETY: ordered_map.T2, ordered_map.T3 - a node from `Box::into_raw`, which
                    // is linked only here and is not retired.
                    below.push(unsafe { Box::from_raw(child.assume_init().cast()) });
                }
            }
            inner.append(&mut level);
            level = below;
        }
        let [front, back] = [(); 2].map(|()| Vec::new().into_iter());
        Self { front, leaves: level.into(), back, inner, separators }
    }

    fn next(&mut self) -> Option<(K, Word)> {
        loop {
            if let Some(entry) = self.front.next() {
                return Some(entry);
            }
            let Some(mut leaf) = self.leaves.pop_front() else { return self.back.next() };
            self.front = leaf.take_all().into_iter();
        }
    }

    fn next_back(&mut self) -> Option<(K, Word)> {
        loop {
            if let Some(entry) = self.back.next_back() {
                return Some(entry);
            }
            let Some(mut leaf) = self.leaves.pop_back() else { return self.front.next_back() };
            self.back = leaf.take_all().into_iter();
        }
    }
}

impl<K, V> Drop for Parts<K, V> {
    fn drop(&mut self) {
        let mut is_over = false;
        let ends = std::iter::from_fn(|| {
            (!is_over).then(|| {
                caught(|| match self.next() {
                    // SAFETY: as in `OrderedMapIntoIter::entry`.
                    Some((key, word)) => drop((key, unsafe { Fresh::<V>::from_word(word) })),
                    None => is_over = true,
                })
            })
        });
        let entries: Vec<_> = ends.filter(Result::is_err).collect();
        let rest = [
            caught(|| drop_each(self.separators.drain(..))),
            caught(|| drop_each(self.inner.drain(..))),
        ];
        resume_first(entries.into_iter().chain(rest));
    }
}

/// Iterator over the entries of a map, by value: see
/// [`OrderedMap::into_iter`](IntoIterator::into_iter).
///
/// The iterator is ordered and double-ended. Dropping it drops the rest of the entries.
///
/// ```
/// let map = manycore::collections::OrderedMap::from([(2, "two"), (1, "one"), (3, "three")]);
/// let mut entries = map.into_iter();
/// assert_eq!((entries.next(), entries.next_back()), (Some((1, "one")), Some((3, "three"))));
/// assert_eq!(entries.len(), 1);
/// ```
pub struct OrderedMapIntoIter<K, V> {
    parts: Parts<K, V>,
    left: usize,
    /// Last field: dropping it drops the values that were removed earlier and still wait in its
    /// domain.
    _map: OrderedMap<K, V>,
}

impl<K, V> OrderedMapIntoIter<K, V> {
    pub(super) fn new(mut map: OrderedMap<K, V>) -> Self {
        let left = map.len();
        Self { parts: Parts::of(&mut map), left, _map: map }
    }

    fn entry(&mut self, (key, word): (K, Word)) -> (K, V) {
        self.left -= 1;
        // SAFETY: ordered_map.T2 - the word of a leaf's slot has a value. It was taken out of its
        // leaf, of which no thread has a view, and it is not retired.
        (key, unsafe { Fresh::from_word(word) }.into_inner())
    }
}

impl<K, V> Iterator for OrderedMapIntoIter<K, V> {
    type Item = (K, V);

    fn next(&mut self) -> Option<(K, V)> {
        let next = self.parts.next()?;
        Some(self.entry(next))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl<K, V> DoubleEndedIterator for OrderedMapIntoIter<K, V> {
    fn next_back(&mut self) -> Option<(K, V)> {
        let next = self.parts.next_back()?;
        Some(self.entry(next))
    }
}

impl<K, V> ExactSizeIterator for OrderedMapIntoIter<K, V> {}
impl<K, V> FusedIterator for OrderedMapIntoIter<K, V> {}

impl<K, V> fmt::Debug for OrderedMapIntoIter<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OrderedMapIntoIter").field("left", &self.left).finish()
    }
}

impl<K, V> Drop for OrderedMap<K, V> {
    fn drop(&mut self) {
        if !model_failed() {
            drop(Parts::of(self));
        }
    }
}

// SAFETY: the parts own their keys and values, as a map does.
unsafe impl<K: Send, V: Send> Send for Parts<K, V> {}
// SAFETY: shared parts give access to nothing.
unsafe impl<K: Sync, V: Sync> Sync for Parts<K, V> {}
