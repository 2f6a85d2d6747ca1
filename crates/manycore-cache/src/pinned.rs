//! Pinned entries, which eviction leaves alone. A bit in the link marks an entry as pinned, and the
//! total weight of pinned entries is bounded.
//!
//! Laws:
//! - cache_pinned.P1 A bit of the link says that its entry is pinned. The bit changes under the
//!   lock of the bucket, and goes with the link: an entry that is replaced, removed or expired is
//!   not pinned any more. The bit stays if the table is replaced or the entry is moved.
//! - cache_pinned.P2 When an entry is pinned, all pinned entries together weigh at most half of the
//!   capacity. Its weight is charged before the bit is set, and given back after the bit has gone.
//!   So there is something to evict. An entry that weighs more than the pinned entries leave is
//!   turned away.

use crate::Cache;
use crate::guard::Guard;
use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash};
use std::sync::atomic::Ordering;

impl<K, V, S> Cache<K, V, S>
where
    K: Hash + Eq + Send + Sync,
    V: Send + Sync,
    S: BuildHasher,
{
    /// Keeps the key's entry from being evicted until it is [unpinned](Self::unpin), and returns
    /// it. Returns `None` if the key is not there, or if no more may be pinned.
    ///
    /// The entry counts as before in [`len`](Self::len) and [`weight`](Self::weight), and it
    /// expires as before. The entry is pinned, not the key: an entry that replaces it is not
    /// pinned, also if it was loaded ahead of the end. Pinning twice is the same as pinning once.
    ///
    /// *The bound*: pinned entries together weigh at most half of the capacity. As long as they are
    /// pinned, an entry that weighs more than they leave is not kept, like an entry that weighs
    /// more than the capacity. If [`set_capacity`](Self::set_capacity) goes below the weight of the
    /// pinned entries, that weight is the bound until they are unpinned, and nothing that is
    /// inserted is kept. In a cache [within a budget](crate::Builder::build_within), pinned entries
    /// are not given back to others.
    ///
    /// *Not for* entries that must never leave (use [`HashMap`](manycore::collections::HashMap)): a
    /// removal removes a pinned entry. Cost: a look-up and the bucket's lock. If many entries of a
    /// segment are pinned, evictions look at more buckets, in the worst case at all of them.
    ///
    /// ```
    /// let cache = manycore_cache::Cache::new(100);
    /// cache.insert(0, "root");
    /// assert!(cache.pin(&0).is_some());
    /// (1..10_000).for_each(|key| _ = cache.insert(key, "page"));
    /// assert!(cache.contains_key(&0) && cache.len() == 100);
    /// assert!(cache.unpin(&0));
    /// ```
    pub fn pin<Q>(&self, key: &Q) -> Option<Guard<'_, K, V>>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.begin_update();
        let section = self.domain.enter();
        let hash = self.hash(key);
        loop {
            let node = self.find(hash, key, &section).filter(|node| !self.is_expired(*node))?;
            let charged = Charged::new(self, self.weight_of(node));
            let locked = self.lock(hash, &section);
            let Some(slot) = locked.slot_of(node) else { continue };
            if !slot.is_pinned() {
                let charged = charged?;
                locked.set_pinned(slot, true);
                std::mem::forget(charged);
            }
            drop(locked);
            // SAFETY: found in this section.
            return Some(unsafe { self.guard(node, section) });
        }
    }

    /// Lets the key's entry be evicted again. Returns true if it was pinned.
    pub fn unpin<Q>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.begin_update();
        let section = self.domain.enter();
        let hash = self.hash(key);
        while let Some(node) = self.find(hash, key, &section) {
            let weight = self.weight_of(node);
            let locked = self.lock(hash, &section);
            let Some(slot) = locked.slot_of(node) else { continue };
            let was_pinned = slot.is_pinned();
            if was_pinned {
                locked.set_pinned(slot, false);
            }
            drop(locked);
            self.note_unpinned(was_pinned, weight);
            return was_pinned;
        }
        false
    }
}

impl<K, V, S> Cache<K, V, S> {
    /// Returns the total weight of the pinned entries: see [`pin`](Self::pin).
    #[must_use]
    pub fn pinned(&self) -> u64 {
        // ORDER: Relaxed; a count.
        u64::try_from(self.pinned.load(Ordering::Relaxed)).unwrap_or(0)
    }

    /// Releases the weight of an entry that was unlinked or unpinned, if it was pinned before.
    #[inline(always)]
    pub(crate) fn note_unpinned(&self, was_pinned: bool, weight: i64) {
        if was_pinned {
            self.release_pinned(weight);
        }
    }

    #[cold]
    fn release_pinned(&self, weight: i64) {
        // ORDER: Relaxed; a count.
        let before = self.pinned.fetch_sub(weight, Ordering::Relaxed);
        debug_assert!(
            before >= weight || self.ends.is_some(),
            "cache_pinned.P2: {weight} is unpinned, {before} was pinned"
        );
    }

    /// Returns the most that an entry may weigh to be let in.
    #[inline(always)]
    pub(crate) fn room(&self) -> i64 {
        // ORDER: Relaxed; counts.
        self.capacity.load(Ordering::Relaxed) - self.pinned.load(Ordering::Relaxed)
    }
}

/// The weight of an entry that is about to be pinned, charged as cache_pinned.P2 says. Dropping
/// this gives it back.
struct Charged<'c, K, V, S>(&'c Cache<K, V, S>, i64);

impl<'c, K, V, S> Charged<'c, K, V, S> {
    fn new(cache: &'c Cache<K, V, S>, weight: i64) -> Option<Self> {
        // ORDER: Relaxed; counts, which order nothing.
        let most = cache.capacity.load(Ordering::Relaxed) / 2;
        let more = |pinned: i64| pinned.checked_add(weight).filter(|all| *all <= most);
        let charge = cache.pinned.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        charge.ok().map(|_| Self(cache, weight))
    }
}

impl<K, V, S> Drop for Charged<'_, K, V, S> {
    fn drop(&mut self) {
        self.0.release_pinned(self.1);
    }
}
