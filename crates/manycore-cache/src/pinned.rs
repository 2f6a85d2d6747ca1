//! Pinned entries: what eviction leaves alone.
//!
//! Laws:
//! - cache_pinned.P1 A bit of the link says that its entry is pinned. It changes under the lock of
//!   the bucket, and goes with the link: an entry that is replaced, removed or expired is not
//!   pinned any more. A table that is replaced and an entry that is moved keep it.
//! - cache_pinned.P2 Pinned entries weigh half of the capacity together at most, when they are
//!   pinned: that is charged before the bit is set, and given back after it has gone. So there is
//!   something to evict, and an entry that weighs more than what they leave is turned away.

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
    /// Keeps the key's entry from being evicted until it is [unpinned](Self::unpin); returns it.
    /// `None` if it is not there, or if no more may be pinned.
    ///
    /// It counts as before, in [`len`](Self::len) and [`weight`](Self::weight), and it expires as
    /// before. What is pinned is the entry, not the key: one that replaces it is not pinned, also
    /// if it was loaded ahead of its end. Pinning twice is as pinning once.
    ///
    /// *The bound*: pinned entries weigh at most half of the capacity together. As long as they are
    /// pinned, an entry that weighs more than they leave is not kept, like one that weighs more
    /// than the capacity. If [`set_capacity`](Self::set_capacity) goes below what is pinned, that
    /// is the bound until it is unpinned, and what is inserted is not kept. In a cache
    /// [within a budget](crate::Builder::build_within), what is pinned is not given back to others.
    ///
    /// *Not for* what must never leave (use [`HashMap`](manycore::collections::HashMap)): a
    /// removal removes it. Cost: a look-up and the bucket's lock. Where many entries of a
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

    /// Lets the key's entry be evicted again. Whether it was pinned.
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
    /// What the pinned entries weigh together: see [`pin`](Self::pin).
    #[must_use]
    pub fn pinned(&self) -> u64 {
        // ORDER: Relaxed; a count.
        u64::try_from(self.pinned.load(Ordering::Relaxed)).unwrap_or(0)
    }

    /// An entry of this weight is unlinked, or unpinned; if it was pinned, it is not any more.
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
            "cache_pinned.P2: {weight} of {before} pinned"
        );
    }

    /// The most that an entry may weigh to be let in.
    #[inline(always)]
    pub(crate) fn room(&self) -> i64 {
        // ORDER: Relaxed; counts.
        self.capacity.load(Ordering::Relaxed) - self.pinned.load(Ordering::Relaxed)
    }
}

/// Weight of an entry that is about to be pinned (cache_pinned.P2); given back when this is
/// dropped.
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
