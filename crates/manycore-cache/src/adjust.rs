//! What is changed of an entry, or of the cache, in place: times, and the capacity.

use crate::guard::{Entry, Guard};
use crate::node::{NEVER, Node};
use crate::{Cache, Cause, builder};
use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash};
use std::sync::atomic::Ordering;
use std::time::Duration;

impl<K, V, S> Cache<K, V, S>
where
    K: Hash + Eq + Send + Sync,
    V: Send + Sync,
    S: BuildHasher,
{
    /// Gives the key's entry another time to live from now on, or for ever; false if it is not
    /// there. Does not change its version.
    ///
    /// # Panics
    /// As [`insert_for`](Self::insert_for).
    pub fn expire<Q>(&self, key: &Q, time: Option<Duration>) -> bool
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.expire_if(key, time, |_| true).is_some()
    }

    /// As [`expire`](Self::expire), if `accept` says so of the key's entry, which is returned then.
    ///
    /// `accept` runs under the lock of the entry's bucket, once: nobody replaces the entry or gives
    /// it another time meanwhile. It must not use the cache, and should be short.
    ///
    /// # Panics
    /// As [`insert_for`](Self::insert_for).
    ///
    /// ```
    /// use std::time::Duration;
    /// let cache = manycore_cache::Cache::builder(10).expire_after(|_, _| None).build()?;
    /// cache.insert("a", 1);
    /// let hour = Some(Duration::from_secs(3600));
    /// assert_eq!(*cache.expire_if("a", hour, |entry| *entry.value() == 1).unwrap(), 1);
    /// assert!(cache.expire_if("a", None, |entry| *entry.value() == 2).is_none());
    /// assert!(cache.time_left("a").unwrap() <= hour.unwrap());
    /// # Ok::<(), manycore_cache::BuildError>(())
    /// ```
    pub fn expire_if<Q>(
        &self,
        key: &Q,
        time: Option<Duration>,
        accept: impl FnOnce(Entry<'_, K, V>) -> bool,
    ) -> Option<Guard<'_, K, V>>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        assert!(self.is_timed, "manycore: a cache without times; see `Builder::expire_after`");
        let section = self.domain.enter();
        let place = self.place(key);
        while let Some(node) = self.find(place, key, &section) {
            let locked = self.lock(place, &section);
            if locked.slot_of(node).is_none() {
                continue; // replaced or removed meanwhile
            }
            let now = self.now();
            // SAFETY: found in this section.
            if self.is_expired_at(node, now) || !accept(unsafe { Entry::new(node) }) {
                return None;
            }
            let expires = time.map_or(NEVER, |time| now.saturating_add(builder::nanos(time)));
            // SAFETY: N2 - a timed cache has extras; the section keeps the node.
            // ORDER: Relaxed; times order nothing.
            unsafe { Node::extra(node).as_ref() }.expires.store(expires, Ordering::Relaxed);
            drop(locked);
            // SAFETY: found in this section.
            return Some(unsafe { Guard::new(node, section) });
        }
        None
    }

    /// Removes every entry of which `keep` says no. Not a snapshot: what comes meanwhile may be
    /// asked about or not. Cost: the tables, and a lock for each bucket in turn, under which `keep`
    /// runs; it must not use the cache.
    ///
    /// ```
    /// let cache = manycore_cache::Cache::new(100);
    /// for n in 0..10 {
    ///     cache.insert(n, ());
    /// }
    /// cache.retain(|entry| entry.key() % 2 == 0);
    /// assert_eq!(cache.len(), 5);
    /// ```
    pub fn retain(&self, keep: impl Fn(Entry<'_, K, V>) -> bool) {
        // SAFETY: the walk's section keeps the node while it is asked about.
        self.clear_all(Cause::Removed, |node| !keep(unsafe { Entry::new(node) }));
        self.collect();
    }

    /// Changes the capacity, which the cache keeps to at once: what is above it is evicted.
    ///
    /// # Panics
    /// If it is zero or above 2^62.
    ///
    /// ```
    /// let cache = manycore_cache::Cache::new(100);
    /// for n in 0..100 {
    ///     cache.insert(n, ());
    /// }
    /// cache.set_capacity(10);
    /// assert!(cache.len() <= 10);
    /// ```
    pub fn set_capacity(&self, capacity: u64) {
        assert!((1..=1 << 62).contains(&capacity), "manycore: a capacity of {capacity}");
        // ORDER: Relaxed; counts of capacity order nothing.
        let old = self.capacity.swap(capacity as i64, Ordering::Relaxed);
        // ORDER: Relaxed; as above.
        self.pool.0.fetch_add(capacity as i64 - old, Ordering::Relaxed);
        for segment in &self.segments {
            // ORDER: Relaxed; as above.
            self.pool.0.fetch_add(segment.take_spare(i64::MAX), Ordering::Relaxed);
        }
        // One entry of each segment in turn, so that all lose alike.
        while self.pool.0.load(Ordering::Relaxed) < 0 {
            let section = self.domain.enter();
            let evicted = |segment| self.evict(segment, &section).map(|w| self.give_back(w));
            if self.segments.iter().filter_map(evicted).count() == 0 {
                return;
            }
        }
    }
}
