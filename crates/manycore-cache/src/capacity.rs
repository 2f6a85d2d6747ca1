//! Changes of a cache's capacity while the cache is in use.

use crate::Cache;
use crate::builder::buckets_for;
use std::hash::{BuildHasher, Hash};
use std::sync::atomic::Ordering;

impl<K, V, S> Cache<K, V, S>
where
    K: Hash + Eq + Send + Sync,
    V: Send + Sync,
    S: BuildHasher,
{
    /// Changes the capacity at once, and evicts the entries that exceed it.
    ///
    /// If the capacity falls below half of the old one, tables that are then at least twice as
    /// large as they need be are replaced by smaller ones, and garbage that can be freed now is
    /// freed. Memory of entries is kept for reuse, as always.
    ///
    /// The budget of [garbage](crate#memory) stays that of the first capacity. A lower capacity
    /// costs an eviction for each entry above it. Each replaced table costs as much as its growth
    /// did: updates of its segment wait for it, and the keys are hashed under its locks.
    ///
    /// # Panics
    /// If the capacity is zero or above 2^62.
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
        assert!((1..=1 << 62).contains(&capacity), "manycore: capacity {capacity} is out of range");
        self.begin_update();
        // ORDER: Relaxed; counts of capacity order nothing.
        let old = self.capacity.swap(capacity as i64, Ordering::Relaxed);
        if let Some(budgeted) = &self.budgeted {
            Self::set_capacity_within(budgeted, capacity);
        } else {
            self.change_pool(capacity as i64 - old);
        }
        // Not at each small change: a cache that adapts its capacity would hash all its keys each
        // time.
        if (capacity as i64) < old / 2 {
            self.shrink_tables(capacity);
            self.collect();
        }
    }

    /// Adds `more` to the pool, and evicts entries while the pool is below zero.
    fn change_pool(&self, more: i64) {
        // ORDER: Relaxed; as above.
        self.pool.0.fetch_add(more, Ordering::Relaxed);
        for segment in &self.segments {
            // ORDER: Relaxed; as above.
            self.pool.0.fetch_add(segment.take_spare(i64::MAX), Ordering::Relaxed);
        }
        // Takes one entry of each segment in turn, so that all segments lose alike.
        while self.pool.0.load(Ordering::Relaxed) < 0 {
            let section = self.domain.enter();
            let evicted =
                |segment| self.evict(segment, None, None, &section).map(|w| self.give_back(w));
            if self.segments.iter().filter_map(evicted).count() == 0 {
                return;
            }
        }
    }

    /// Replaces tables that are at least twice as large as they need be. A table needs room for its
    /// entries and, if the capacity is in entries, for those that may come.
    fn shrink_tables(&self, capacity: u64) {
        let is_weighed = self.weigher.is_some();
        let most = usize::try_from(capacity).unwrap_or(usize::MAX).div_ceil(self.segments.len());
        let room = if is_weighed { 0 } else { most };
        for segment in &self.segments {
            let section = self.domain.enter();
            let fewer = |now: usize| {
                let buckets = buckets_for(room.max(segment.entries()));
                (buckets <= now / 2).then_some(buckets)
            };
            segment.resize(fewer, &section, |node| self.hash_under_lock(node));
        }
    }
}
