//! Batches of keys: the cache lines of all keys are fetched before the first key is looked up.

use crate::guard::{Entry, Guard};
use crate::key_hash::KeyHash;
use crate::prefetch::prefetch;
use crate::table::{Bucket, Hit};
use crate::{BATCH, Cache};
use manycore::section::Section;
use std::borrow::Borrow;
use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::panic::{RefUnwindSafe, UnwindSafe};

/// A key of a batch, hashed and with its cache lines fetched: see [`Cache::visit_many`].
///
/// It is `Copy`: each use looks the key up again.
///
/// See [`Cache::visit_many`] for an example.
pub struct BatchKey<'a, Q: ?Sized, K, V, S> {
    cache: &'a Cache<K, V, S>,
    section: &'a Section<'a>,
    hash: KeyHash,
    key: &'a Q,
}

impl<Q: ?Sized, K, V, S> Clone for BatchKey<'_, Q, K, V, S> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}

impl<Q: ?Sized, K, V, S> Copy for BatchKey<'_, Q, K, V, S> {}

impl<'a, Q: ?Sized, K, V, S> BatchKey<'a, Q, K, V, S>
where
    K: Hash + Eq + Send + Sync + Borrow<Q>,
    V: Send + Sync,
    S: BuildHasher,
    Q: Hash + Eq,
{
    /// Returns the key.
    pub fn key(&self) -> &'a Q {
        self.key
    }

    /// Looks the key up, as [`Cache::get`] does.
    #[inline]
    pub fn get(self) -> Option<Entry<'a, K, V>> {
        let node = self.cache.read(self.hash, self.key, self.section)?;
        // SAFETY: found in this section, which is open as long as the batch key lives.
        Some(unsafe { self.cache.entry(node) })
    }

    /// Looks the key up, and returns the entry in a guard, which may be kept beyond the visit.
    ///
    /// # Panics
    /// If `cache` is not the cache of the batch.
    ///
    /// ```
    /// let cache = manycore_cache::Cache::new(100);
    /// cache.insert(1, 'a');
    /// let mut kept = Vec::new();
    /// cache.visit_many([1, 2].iter(), |_, key| kept.extend(key.guard(&cache)));
    /// assert!(cache.remove(&1).is_some());
    /// assert_eq!((kept.len(), *kept[0]), (1, 'a'));
    /// ```
    #[inline]
    pub fn guard<'c>(self, cache: &'c Cache<K, V, S>) -> Option<Guard<'c, K, V>> {
        assert!(std::ptr::eq(self.cache, cache), "manycore: the batch belongs to another cache");
        let section = cache.domain.enter();
        let node = cache.read(self.hash, self.key, &section)?;
        // SAFETY: found in this section, in this cache.
        Some(unsafe { cache.guard(node, section) })
    }

    /// Inserts the batch's key, as [`Cache::insert`] does.
    ///
    /// # Panics
    /// If `key` is not the key of the batch.
    #[inline]
    pub fn insert(self, key: K, value: V) -> u64 {
        assert!(key.borrow() == self.key, "manycore: the batch has another key");
        self.cache.insert_at(self.hash, key, value, self.section)
    }
}

// These are shared references, one of them to a section: a panic leaves them as they were.
impl<Q, K, V, S> UnwindSafe for BatchKey<'_, Q, K, V, S>
where
    Q: RefUnwindSafe + ?Sized,
    K: RefUnwindSafe,
    V: RefUnwindSafe,
    S: RefUnwindSafe,
{
}
impl<Q, K, V, S> RefUnwindSafe for BatchKey<'_, Q, K, V, S>
where
    Q: RefUnwindSafe + ?Sized,
    K: RefUnwindSafe,
    V: RefUnwindSafe,
    S: RefUnwindSafe,
{
}

impl<Q: ?Sized, K, V, S> fmt::Debug for BatchKey<'_, Q, K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BatchKey").field("hash", &self.hash.whole()).finish_non_exhaustive()
    }
}

/// A key of `get_many`.
struct Sought<'a, Q: ?Sized, K, V> {
    key: &'a Q,
    hash: KeyHash,
    bucket: &'a Bucket<K, V>,
    /// The first entry in the bucket that has the key's tag.
    likely: Option<Hit<'a, K, V>>,
}

impl<'a, Q: Eq + ?Sized, K: Borrow<Q>, V> Sought<'a, Q, K, V> {
    /// Finds the key's node. The section in which the bucket was found is open.
    #[inline(always)]
    fn hit(self) -> Option<Hit<'a, K, V>> {
        let is_key = |own: &K| own.borrow() == self.key;
        match self.likely {
            // SAFETY: the section keeps the node (node.N1).
            Some(hit) if is_key(unsafe { &(*hit.node.as_ptr()).key }) => Some(hit),
            _ => self.bucket.find(self.hash, is_key),
        }
    }
}

impl<K, V, S> Cache<K, V, S>
where
    K: Hash + Eq + Send + Sync,
    V: Send + Sync,
    S: BuildHasher,
{
    /// Looks up many keys, and calls `f` with the number of each key and its entry, in order. The
    /// cache lines of sixteen keys at a time are fetched together. So in a cache that exceeds the
    /// processor's caches, a key costs a fraction of a [`get`](Self::get).
    ///
    /// Consistency: each look-up takes effect by itself at some moment of the call, perhaps before
    /// what `f` did with the cache for an earlier key. There is no one moment for all.
    ///
    /// ```
    /// let cache = manycore_cache::Cache::new(100);
    /// cache.insert(1, 'a');
    /// cache.insert(3, 'c');
    /// let mut found = String::new();
    /// cache.get_many([1, 2, 3].iter(), |_, entry| found.push(entry.map_or('-', |e| *e.value())));
    /// assert_eq!(found, "a-c");
    /// ```
    #[inline]
    pub fn get_many<'q, Q>(
        &self,
        keys: impl IntoIterator<Item = &'q Q>,
        mut f: impl FnMut(usize, Option<Entry<'_, K, V>>),
    ) where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized + 'q,
    {
        let section = self.domain.enter();
        let mut keys = keys.into_iter();
        let mut done = 0;
        loop {
            let mut batch: [Option<Sought<'_, Q, K, V>>; BATCH] = [const { None }; BATCH];
            for (slot, key) in batch.iter_mut().zip(keys.by_ref()) {
                let hash = self.hash(key);
                let bucket = self.segment(hash).table(&section).bucket(hash);
                prefetch(bucket);
                *slot = Some(Sought { key, hash, bucket, likely: None });
            }
            for sought in batch.iter_mut().flatten() {
                sought.likely = sought.bucket.probe(sought.hash);
            }
            let is_last = batch[BATCH - 1].is_none();
            for sought in batch.into_iter().map_while(|sought| sought) {
                let node = self.use_hit(sought.hash, sought.hit(), &section);
                // SAFETY: found in this section, which is open until all keys are done.
                f(done, node.map(|node| unsafe { self.entry(node) }));
                done += 1;
            }
            if is_last {
                return;
            }
        }
    }

    /// As [`get_many`](Self::get_many), for look-ups and insertions in any mix: calls `f` with the
    /// number of each key and its [`BatchKey`], in order. What `f` does for one key is done before
    /// it is called for the next. A section is open during the whole call, as with a [`Guard`].
    ///
    /// ```
    /// let cache = manycore_cache::Cache::new(100);
    /// cache.insert(1, 'a');
    /// let mut found = String::new();
    /// cache.visit_many([1, 2, 2].iter(), |number, key| {
    ///     if number == 1 {
    ///         key.insert(2, 'b');
    ///     } else {
    ///         found.push(key.get().map_or('-', |entry| *entry.value()));
    ///     }
    /// });
    /// assert_eq!(found, "ab");
    /// ```
    #[inline]
    pub fn visit_many<'q, Q>(
        &self,
        keys: impl IntoIterator<Item = &'q Q>,
        mut f: impl FnMut(usize, BatchKey<'_, Q, K, V, S>),
    ) where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized + 'q,
    {
        let section = self.domain.enter();
        let mut keys = keys.into_iter();
        let mut done = 0;
        loop {
            let mut batch: [Option<(&Q, KeyHash)>; BATCH] = [None; BATCH];
            for (slot, key) in batch.iter_mut().zip(keys.by_ref()) {
                *slot = Some((key, self.hash(key)));
            }
            // In a loop of its own, so that the processor has many of these accesses under way,
            // each of which may wait for an address translation.
            for (_, hash) in batch.iter().flatten() {
                prefetch(self.segment(*hash).table(&section).bucket(*hash));
            }
            for (_, hash) in batch.iter().flatten() {
                self.segment(*hash).table(&section).bucket(*hash).probe(*hash);
            }
            for (key, hash) in batch.iter().flatten() {
                f(done, BatchKey { cache: self, section: &section, hash: *hash, key });
                done += 1;
            }
            if batch[BATCH - 1].is_none() {
                return;
            }
        }
    }
}
