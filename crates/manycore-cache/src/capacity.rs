//! The capacity of a cache, changed while it is used.

use crate::Cache;
use std::hash::{BuildHasher, Hash};
use std::sync::atomic::Ordering;

impl<K, V, S> Cache<K, V, S>
where
    K: Hash + Eq + Send + Sync,
    V: Send + Sync,
    S: BuildHasher,
{
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
        self.begin_update();
        // ORDER: Relaxed; counts of capacity order nothing.
        let old = self.capacity.swap(capacity as i64, Ordering::Relaxed);
        if let Some(budgeted) = &self.budgeted {
            return Self::set_capacity_within(budgeted, capacity);
        }
        // ORDER: Relaxed; as above.
        self.pool.0.fetch_add(capacity as i64 - old, Ordering::Relaxed);
        for segment in &self.segments {
            // ORDER: Relaxed; as above.
            self.pool.0.fetch_add(segment.take_spare(i64::MAX), Ordering::Relaxed);
        }
        // One entry of each segment in turn, so that all lose alike.
        while self.pool.0.load(Ordering::Relaxed) < 0 {
            let section = self.domain.enter();
            let evicted =
                |segment| self.evict(segment, None, None, &section).map(|w| self.give_back(w));
            if self.segments.iter().filter_map(evicted).count() == 0 {
                return;
            }
        }
    }
}
