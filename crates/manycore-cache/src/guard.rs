//! Access to entries: [`Entry`], [`Guard`] and the iterator.

use crate::Cache;
use crate::node::{Kind, Node};
use crate::table::Slot;
use manycore::section::Section;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::ptr::NonNull;

/// An entry as a predicate sees it: key, value and version.
///
/// ```
/// let cache = manycore_cache::Cache::new(10);
/// let version = cache.insert("a", 1);
/// let removed = cache.remove_if("a", |entry| entry.version() == version && *entry.value() == 1);
/// assert!(removed.is_some());
/// ```
pub struct Entry<'a, K, V> {
    node: NonNull<Node<K, V>>,
    kind: Kind,
    life: PhantomData<&'a Node<K, V>>,
}

impl<K, V> Clone for Entry<'_, K, V> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<K, V> Copy for Entry<'_, K, V> {}

impl<'a, K, V> Entry<'a, K, V> {
    /// # Safety
    /// A section that outlives `'a` keeps the node, and the node is of this kind.
    #[inline(always)]
    pub(crate) unsafe fn new(node: NonNull<Node<K, V>>, kind: Kind) -> Self {
        Self { node, kind, life: PhantomData }
    }

    fn node(self) -> &'a Node<K, V> {
        // SAFETY: the caller of `new` promised that a section keeps the node (node.N1).
        unsafe { self.node.as_ref() }
    }

    /// Returns the key, as the cache has it.
    pub fn key(self) -> &'a K {
        &self.node().key
    }

    /// Returns the value.
    pub fn value(self) -> &'a V {
        &self.node().value
    }

    /// Returns the version: a number that no other entry of this process has, not even the next
    /// entry of this key. It is for [`Cache::compare_and_swap`]. It is zero in a cache without
    /// metadata (`Builder::without_metadata`).
    pub fn version(self) -> u64 {
        // SAFETY: node.N1, node.N2 - the caller of `Entry::new` promised that a section that
        // outlives `'a` keeps the node, and that the node is of this kind.
        unsafe { Node::version(self.node, Kind::has_version(self.kind as u8)) }
    }
}

impl<K: fmt::Debug, V: fmt::Debug> fmt::Debug for Entry<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry")
            .field("key", self.key())
            .field("value", self.value())
            .field("version", &self.version())
            .finish()
    }
}

/// An entry that stays valid even if it is replaced or evicted while the guard is held. It
/// dereferences to the value.
///
/// A guard keeps a [`Section`] open. So it stays with its thread, and the memory of entries that
/// leave the cache is not freed before the guard is dropped. Clone what you need for longer, and do
/// not wait for anything while you hold a guard.
///
/// ```
/// let cache = manycore_cache::Cache::new(10);
/// cache.insert(1, String::from("ann"));
/// let guard = cache.get(&1).unwrap();
/// cache.insert(1, String::from("bob"));
/// assert_eq!((guard.key(), guard.len(), guard.as_str()), (&1, 3, "ann"));
/// drop(guard); // "ann" can be freed from here on
/// ```
///
/// A guard does not outlive its cache:
/// ```compile_fail
/// let cache = manycore_cache::Cache::<u32, u32>::new(10);
/// cache.insert(1, 2);
/// let guard = cache.get(&1);
/// drop(cache);
/// println!("{guard:?}");
/// ```
#[must_use = "an unused guard delays reclamation for nothing"]
pub struct Guard<'c, K, V> {
    node: NonNull<Node<K, V>>,
    /// The node's kind, and `FRESH`: one byte, because each read writes it.
    traits: u8,
    _section: Section<'c>,
}

/// The call that returned the guard has loaded the entry.
const FRESH: u8 = 1 << 7;

impl<'c, K, V> Guard<'c, K, V> {
    /// # Safety
    /// The node was found, or published, in this section, and is of this kind.
    #[inline(always)]
    pub(crate) unsafe fn new(node: NonNull<Node<K, V>>, kind: Kind, section: Section<'c>) -> Self {
        Self { node, traits: kind as u8, _section: section }
    }

    /// Marks the entry as loaded by the call that returns this guard.
    pub(crate) fn fresh(self) -> Self {
        Self { traits: self.traits | FRESH, ..self }
    }

    /// Returns the address of the entry, which is valid as long as this lives.
    pub(crate) fn address(&self) -> NonNull<Node<K, V>> {
        self.node
    }

    fn node(&self) -> &Node<K, V> {
        // SAFETY: the section keeps the node (node.N1).
        unsafe { self.node.as_ref() }
    }

    /// Returns true if the call that returned this guard has loaded the value: a call of
    /// [`Cache::get_or_insert_with`] or one of its variants whose closure ran to the end. Returns
    /// false if the call waited for another call's load, or if this is a newer entry, because the
    /// key was updated after the load began.
    ///
    /// ```
    /// let cache = manycore_cache::Cache::new(10);
    /// assert!(cache.get_or_insert_with("a", || 1).is_fresh());
    /// assert!(!cache.get_or_insert_with("a", || 2).is_fresh());
    /// ```
    pub fn is_fresh(&self) -> bool {
        self.traits & FRESH != 0
    }

    /// Returns the key, as the cache has it.
    pub fn key(&self) -> &K {
        &self.node().key
    }

    /// Returns the value.
    pub fn value(&self) -> &V {
        &self.node().value
    }

    /// Returns the version: see [`Entry::version`].
    pub fn version(&self) -> u64 {
        // SAFETY: the section keeps the node (node.N1).
        unsafe { Node::version(self.node, Kind::has_version(self.traits & !FRESH)) }
    }
}

// A panic leaves a section as it was: open until its guard is dropped. So a guard is as unwind-safe
// as a shared reference to its entry.
impl<K: RefUnwindSafe, V: RefUnwindSafe> UnwindSafe for Guard<'_, K, V> {}
impl<K: RefUnwindSafe, V: RefUnwindSafe> RefUnwindSafe for Guard<'_, K, V> {}

impl<K, V> Deref for Guard<'_, K, V> {
    type Target = V;

    #[inline]
    fn deref(&self) -> &V {
        &self.node().value
    }
}

impl<K: fmt::Debug, V: fmt::Debug> fmt::Debug for Guard<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("key", self.key())
            .field("value", self.value())
            .field("version", &self.version())
            .finish()
    }
}

/// An iterator over the entries of a cache: see [`Cache::iter`].
///
/// ```
/// let cache = manycore_cache::Cache::new(10);
/// (1..=3).for_each(|n| _ = cache.insert(n, n * n));
/// assert_eq!(cache.iter().map(|entry| *entry).sum::<u32>(), 14);
/// ```
pub struct Iter<'c, K, V, S> {
    cache: &'c Cache<K, V, S>,
    section: Section<'c>,
    segment: usize,
    found: Vec<NonNull<Node<K, V>>>,
}

impl<'c, K, V, S> Iter<'c, K, V, S> {
    pub(crate) fn new(cache: &'c Cache<K, V, S>) -> Self {
        Self { cache, section: cache.domain.enter(), segment: 0, found: Vec::new() }
    }
}

impl<'c, K, V, S> Iterator for Iter<'c, K, V, S> {
    type Item = Guard<'c, K, V>;

    fn next(&mut self) -> Option<Guard<'c, K, V>> {
        loop {
            if let Some(node) = self.found.pop() {
                if self.cache.is_expired(node) {
                    continue; // it has expired since it was found
                }
                // SAFETY: found in this iterator's section, in which the new section is nested.
                return Some(unsafe { self.cache.guard(node, self.cache.domain.enter()) });
            }
            let segment = self.cache.segments.get(self.segment)?;
            // All nodes of a segment come from one table, which does not change any more if it is
            // replaced meanwhile (cache_table.T4).
            let buckets = segment.table(&self.section).buckets().iter();
            self.found.extend(buckets.flat_map(|b| b.slots()).filter_map(Slot::node));
            self.segment += 1;
        }
    }
}

// As for a guard: no user code runs while the buffer is filled with the entries of a segment.
impl<K: RefUnwindSafe, V: RefUnwindSafe, S: RefUnwindSafe> UnwindSafe for Iter<'_, K, V, S> {}
impl<K: RefUnwindSafe, V: RefUnwindSafe, S: RefUnwindSafe> RefUnwindSafe for Iter<'_, K, V, S> {}

impl<K, V, S> fmt::Debug for Iter<'_, K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Iter").field("segment", &self.segment).finish_non_exhaustive()
    }
}
