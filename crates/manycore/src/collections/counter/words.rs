//! The words that a group's counters have beside its cells: all made at once, or each when a thread
//! first counts in it.
//!
//! Laws:
//! - words.N6 A word that is not there is zero. A part of [`LazyWords`] is made once, at its
//!   place, and freed with the whole. So a word never moves.

use crate::sync::{AtomicPtr, AtomicU64, Ordering};
use std::ptr;

/// The words of a group, by the counter's index.
pub(super) trait Words {
    fn len(&self) -> usize;

    /// Returns the word, if it is there (words.N6).
    fn get(&self, index: usize) -> Option<&AtomicU64>;

    fn get_or_make(&self, index: usize) -> &AtomicU64;

    /// Returns an address that stands for the counter in what a thread remembers; only to compare.
    fn key(&self, index: usize) -> usize;
}

impl Words for [AtomicU64] {
    #[inline(always)]
    fn len(&self) -> usize {
        <[AtomicU64]>::len(self)
    }

    #[inline(always)]
    fn get(&self, index: usize) -> Option<&AtomicU64> {
        Some(&self[index])
    }

    #[inline(always)]
    fn get_or_make(&self, index: usize) -> &AtomicU64 {
        &self[index]
    }

    #[inline(always)]
    fn key(&self, index: usize) -> usize {
        ptr::from_ref(&self[index]).addr()
    }
}

/// Number of words that are made together.
pub(super) const LEAF: usize = 8;
/// Leaves of a node. With 16, a histogram's node is for four doublings.
const NODE: usize = 16;

pub(super) type Leaf = [AtomicU64; LEAF];
type Node = [AtomicPtr<Leaf>; NODE];

/// `NODES * 128` words, made eight at a time when a thread first counts in one of them.
pub(super) struct LazyWords<const NODES: usize> {
    nodes: [AtomicPtr<Node>; NODES],
}

impl<const NODES: usize> LazyWords<NODES> {
    /// Number of words below a node.
    pub(super) const NODE_WORDS: usize = NODE * LEAF;

    #[cfg(not(manycore_loom))]
    pub(super) const fn new() -> Self {
        Self { nodes: [const { AtomicPtr::new(ptr::null_mut()) }; NODES] }
    }

    #[cfg(manycore_loom)]
    pub(super) fn new() -> Self {
        Self { nodes: std::array::from_fn(|_| AtomicPtr::new(ptr::null_mut())) }
    }

    /// Iterates over the existing leaves, each with its number: the first index divided by
    /// [`LEAF`].
    pub(super) fn leaves(&self) -> impl Iterator<Item = (usize, &Leaf)> {
        let nodes = self.nodes.iter().enumerate();
        nodes.filter_map(|(at, place)| Some((at, look(place)?))).flat_map(|(at, node)| {
            let leaves = node.iter().enumerate();
            leaves.filter_map(move |(place, leaf)| Some((at * NODE + place, look(leaf)?)))
        })
    }

    #[cold]
    fn make(&self, index: usize) -> &AtomicU64 {
        let node = look_or_make(&self.nodes[index / LEAF / NODE], || {
            std::array::from_fn(|_| AtomicPtr::new(ptr::null_mut()))
        });
        let leaf =
            look_or_make(&node[index / LEAF % NODE], || std::array::from_fn(|_| AtomicU64::new(0)));
        &leaf[index % LEAF]
    }
}

impl<const NODES: usize> Words for LazyWords<NODES> {
    fn len(&self) -> usize {
        NODES * Self::NODE_WORDS
    }

    #[inline(always)]
    fn get(&self, index: usize) -> Option<&AtomicU64> {
        let node = look(&self.nodes[index / LEAF / NODE])?;
        Some(&look(&node[index / LEAF % NODE])?[index % LEAF])
    }

    #[inline(always)]
    fn get_or_make(&self, index: usize) -> &AtomicU64 {
        self.get(index).unwrap_or_else(|| self.make(index))
    }

    /// Returns one key for all: the counters of a histogram are read together.
    #[inline(always)]
    fn key(&self, _: usize) -> usize {
        ptr::from_ref(self).addr()
    }
}

impl<const NODES: usize> Drop for LazyWords<NODES> {
    fn drop(&mut self) {
        for node in &mut self.nodes {
            // ORDER: Relaxed; `&mut self` proves that no other thread is left.
            let node = node.load(Ordering::Relaxed);
            if node.is_null() {
                continue;
            }
            // SAFETY: from `Box::into_raw` in `look_or_make`, whose place kept it (words.N6).
            let node = unsafe { Box::from_raw(node) };
            let leaves = node.iter().map(|leaf| leaf.load(Ordering::Relaxed));
            for leaf in leaves.filter(|leaf| !leaf.is_null()) {
                // SAFETY: from `Box::into_raw` in `look_or_make`, whose place kept it (words.N6).
                drop(unsafe { Box::from_raw(leaf) });
            }
        }
    }
}

/// Returns what is at this place.
#[inline(always)]
fn look<T>(place: &AtomicPtr<T>) -> Option<&T> {
    // ORDER: Acquire; pairs with the exchange in `look_or_make`: contents before address.
    // SAFETY: words.N6 - what is found at a place stays as long as the place is borrowed.
    unsafe { place.load(Ordering::Acquire).as_ref() }
}

/// Returns what is at this place; makes it if there is nothing.
fn look_or_make<T>(place: &AtomicPtr<T>, make: impl FnOnce() -> T) -> &T {
    if let Some(found) = look(place) {
        return found;
    }
    let made = Box::into_raw(Box::new(make()));
    // ORDER: Release pairs with Acquire in `look`; Acquire on failure with the winner's Release.
    let raced = place.compare_exchange(ptr::null_mut(), made, Ordering::Release, Ordering::Acquire);
    let there = raced.err().unwrap_or(made);
    if there != made {
        // SAFETY: made above and shared with no other thread.
        drop(unsafe { Box::from_raw(made) });
    }
    // SAFETY: words.N6 - what is found at a place stays as long as the place is borrowed.
    unsafe { &*there }
}
