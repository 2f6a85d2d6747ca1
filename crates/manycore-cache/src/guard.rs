//! Access to entries: [`Entry`], [`Guard`], and the iterator.

use crate::Cache;
use crate::node::{Kind, Node};
use crate::table::Slot;
use manycore::section::Section;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::ptr::NonNull;

/// An entry as a predicate is shown it: key, value and version.
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
    /// A section that outlives `'a` keeps the node, which is of this kind.
    #[inline(always)]
    pub(crate) unsafe fn new(node: NonNull<Node<K, V>>, kind: Kind) -> Self {
        Self { node, kind, life: PhantomData }
    }

    fn node(self) -> &'a Node<K, V> {
        // SAFETY: the caller of `new` promised that it is kept (node.N1).
        unsafe { self.node.as_ref() }
    }

    /// The key, as the cache has it.
    pub fn key(self) -> &'a K {
        &self.node().key
    }

    /// The value.
    pub fn value(self) -> &'a V {
        &self.node().value
    }

    /// The version: a number that no other entry of this process has, this key's next one
    /// included. For [`Cache::compare_and_swap`]. Zero in a cache without metadata
    /// (`Builder::without_metadata`).
    pub fn version(self) -> u64 {
        // SAFETY: node.N1, node.N2 - the maker of this promised a section that outlives `'a` and
        // keeps the node, and that the node is of this kind (`Entry::new`).
        unsafe { Node::version(self.node, self.kind) }
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
/// It keeps a [`Section`] open, so it stays with its thread, and memory of entries that leave the
/// cache is not freed before it is dropped. Clone what you need for longer, and do not wait for
/// anything with a guard in hand.
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
    kind: Kind,
    is_fresh: bool,
    _section: Section<'c>,
}

impl<'c, K, V> Guard<'c, K, V> {
    /// # Safety
    /// The node was found, or published, in this section, and is of this kind.
    #[inline(always)]
    pub(crate) unsafe fn new(node: NonNull<Node<K, V>>, kind: Kind, section: Section<'c>) -> Self {
        Self { node, kind, is_fresh: false, _section: section }
    }

    /// The same entry, loaded by the call that returns it.
    pub(crate) fn fresh(self) -> Self {
        Self { is_fresh: true, ..self }
    }

    /// Where the entry is, as long as this lives.
    pub(crate) fn address(&self) -> NonNull<Node<K, V>> {
        self.node
    }

    fn node(&self) -> &Node<K, V> {
        // SAFETY: the section keeps it (node.N1).
        unsafe { self.node.as_ref() }
    }

    /// Whether the call that returned this guard has loaded the value: by
    /// [`Cache::get_or_insert_with`] and its kin, whose closure ran to the end. Not if the key was
    /// updated since that began, and this is the newer entry; nor if the call waited for another's
    /// load.
    ///
    /// ```
    /// let cache = manycore_cache::Cache::new(10);
    /// assert!(cache.get_or_insert_with("a", || 1).is_fresh());
    /// assert!(!cache.get_or_insert_with("a", || 2).is_fresh());
    /// ```
    pub fn is_fresh(&self) -> bool {
        self.is_fresh
    }

    /// The key, as the cache has it.
    pub fn key(&self) -> &K {
        &self.node().key
    }

    /// The value.
    pub fn value(&self) -> &V {
        &self.node().value
    }

    /// As [`Entry::version`].
    pub fn version(&self) -> u64 {
        // SAFETY: the section keeps it (node.N1).
        unsafe { Node::version(self.node, self.kind) }
    }
}

// A panic leaves a section as it was, open until its guard is dropped; so a guard is as safe across
// `catch_unwind` as a shared reference to its entry.
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

/// The entries of a cache: see [`Cache::iter`].
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
                    continue; // since it was found
                }
                // SAFETY: found in this iterator's section, in which the new one is nested.
                return Some(unsafe { self.cache.guard(node, self.cache.domain.enter()) });
            }
            let segment = self.cache.segments.get(self.segment)?;
            // All from one table, which stays as it is if it is replaced in between
            // (cache_table.T4).
            let buckets = segment.table(&self.section).buckets().iter();
            self.found.extend(buckets.flat_map(|b| b.slots()).filter_map(Slot::node));
            self.segment += 1;
        }
    }
}

// As a guard; what it has found is added to its buffer a segment at a time, by code of its own.
impl<K: RefUnwindSafe, V: RefUnwindSafe, S: RefUnwindSafe> UnwindSafe for Iter<'_, K, V, S> {}
impl<K: RefUnwindSafe, V: RefUnwindSafe, S: RefUnwindSafe> RefUnwindSafe for Iter<'_, K, V, S> {}

impl<K, V, S> fmt::Debug for Iter<'_, K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Iter").field("segment", &self.segment).finish_non_exhaustive()
    }
}
