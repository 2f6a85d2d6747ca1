//! Insertions, whether the key is there or not.

use crate::Cache;
use crate::cause::{Cause, Departed};
use crate::departure::Back;
use crate::key_hash::KeyHash;
use crate::node::Fresh;
use crate::prefetch::prefetch_for_write;
use crate::segment::Segment;
use crate::stats::Event;
use crate::table::{Bucket, Hit, Table};
use crate::update::Asked;
use manycore::section::Section;
use std::hash::{BuildHasher, Hash};
use std::sync::atomic::Ordering;
use std::time::Duration;

impl<K, V, S> Cache<K, V, S>
where
    K: Hash + Eq + Send + Sync,
    V: Send + Sync,
    S: BuildHasher,
{
    /// Inserts a value, in place of the old value if there is one. Returns the version of the new
    /// entry.
    ///
    /// Evicts entries first, if there is no room. An entry that weighs more than the whole capacity
    /// is not kept: the listener is called for it, and for the old entry.
    #[doc(alias = "put")]
    #[doc(alias = "set")]
    pub fn insert(&self, key: K, value: V) -> u64 {
        self.insert_node(key, value, None)
    }

    /// As [`insert`](Self::insert), for an entry that lives for this time, unless the cache's own
    /// times are shorter.
    ///
    /// # Panics
    /// If the cache has no times: its builder got none of `time_to_live`, `time_to_idle`,
    /// `expire_after` and `idle_after`, or made a cache without metadata.
    #[doc(alias = "TTL")]
    pub fn insert_for(&self, key: K, value: V, time: Duration) -> u64 {
        let is_kept = self.is_timed && self.ends.is_none();
        assert!(is_kept, "manycore: a cache without times; see `Builder::expire_after`");
        self.insert_node(key, value, Some(time))
    }

    #[inline]
    fn insert_node(&self, key: K, value: V, time: Option<Duration>) -> u64 {
        self.begin_update();
        let section = self.domain.enter();
        self.insert_in(self.hash(&key), key, value, time, &section)
    }

    /// As [`insert`](Self::insert), for a key with this hash.
    pub(crate) fn insert_at(&self, hash: KeyHash, key: K, value: V, section: &Section<'_>) -> u64 {
        self.begin_update();
        self.insert_in(hash, key, value, None, section)
    }

    #[inline(always)]
    fn insert_in(
        &self,
        hash: KeyHash,
        key: K,
        value: V,
        time: Option<Duration>,
        section: &Section<'_>,
    ) -> u64 {
        if self.is_simple {
            return self.insert_on::<true>(hash, key, value, None, section);
        }
        self.insert_general(hash, key, value, time, section)
    }

    #[inline(never)]
    fn insert_general(
        &self,
        hash: KeyHash,
        key: K,
        value: V,
        time: Option<Duration>,
        section: &Section<'_>,
    ) -> u64 {
        self.insert_on::<false>(hash, key, value, time, section)
    }

    #[inline(always)]
    fn insert_on<const SIMPLE: bool>(
        &self,
        hash: KeyHash,
        key: K,
        value: V,
        time: Option<Duration>,
        section: &Section<'_>,
    ) -> u64 {
        let bucket = self.segment(hash).table(section).bucket(hash);
        prefetch_for_write(bucket); // while the node is made
        let fresh = self.make::<SIMPLE>(key, value, time, section);
        let version = fresh.version();
        // The short paths need a lock that is free, and a table that was not replaced.
        match bucket.find(hash, |own| *own == fresh.get().key) {
            Some(hit) => self.replace::<SIMPLE>(hash, bucket, hit, fresh, section),
            None => self.insert_new::<SIMPLE>(hash, fresh, section),
        }
        version
    }

    #[cold]
    #[inline(never)]
    fn put_slow(&self, hash: KeyHash, fresh: Fresh<K, V>, section: &Section<'_>) {
        self.put(hash, &mut Some(fresh), section, Asked::Before, |_| true);
    }

    /// The fast path for a missing key. The entry may have room of its own. Or the cache is full
    /// and does not weigh: then another entry goes, and leaves its capacity and its count to the
    /// new entry (segment.G1). Takes the slow path if the lock is busy, or if the key may be there
    /// by now, because there is an entry with its tag.
    #[inline(always)]
    fn insert_new<const SIMPLE: bool>(
        &self,
        hash: KeyHash,
        fresh: Fresh<K, V>,
        section: &Section<'_>,
    ) {
        let segment = self.segment(hash);
        if !self.is_full_for::<SIMPLE>(segment) {
            return self.insert_with_room(hash, fresh, section);
        }
        let table = segment.table(section);
        let bucket = table.bucket(hash);
        let evicted = if SIMPLE {
            let node = segment.evict(table, Some(bucket), None, section, |node| node);
            node.map(|node| (node, 1, Cause::Evicted))
        } else {
            let departed =
                segment.evict(table, Some(bucket), None, section, |node| self.depart(node));
            departed.map(|Departed { node, weight, cause }| (node, weight, cause))
        };
        let Some((node, weight, cause)) = evicted else {
            return self.put_slow(hash, fresh, section);
        };
        let locked = Table::try_lock(bucket);
        if !locked.as_ref().is_some_and(|own| own.add_new(table, hash, fresh.address())) {
            drop(locked);
            self.let_go(Departed { node, weight, cause }, segment, section);
            return self.put_slow(hash, fresh, section);
        }
        fresh.publish();
        let departed = Departed { node, weight, cause };
        self.flights.note_change(hash, 0);
        drop(locked);
        if SIMPLE || departed.cause == Cause::Evicted {
            self.counts.note(Event::InsertionInPlace, section);
            self.retire_departed::<SIMPLE>(&departed, section);
        } else {
            self.counts.note(Event::Insertion, section);
            self.settle_departure(&departed, section);
        }
        self.finish_insert::<SIMPLE>(hash, section);
    }

    /// Settles the departure of an entry that made room for a new entry, after that was not linked.
    #[cold]
    fn let_go(&self, departed: Departed<K, V>, segment: &Segment<K, V>, section: &Section<'_>) {
        segment.count_less(1);
        self.give_back(departed.weight);
        self.settle_departure(&departed, section);
    }

    /// The fast path for a missing key that has room of its own.
    #[inline(never)]
    fn insert_with_room(&self, hash: KeyHash, fresh: Fresh<K, V>, section: &Section<'_>) {
        let segment = self.segment(hash);
        let table = segment.table(section);
        let weight = self.weight_of(fresh.address());
        if weight > self.room() {
            return self.put_slow(hash, fresh, section);
        }
        self.reserve(segment, Some(hash), (weight, weight), None, section);
        let held = Back { cache: self, capacity: weight };
        let locked = Table::try_lock(table.bucket(hash));
        if !locked.as_ref().is_some_and(|own| own.add_new(table, hash, fresh.address())) {
            drop(locked);
            drop(held);
            return self.put_slow(hash, fresh, section);
        }
        fresh.publish();
        segment.count_more();
        self.flights.note_change(hash, 0);
        drop(locked);
        std::mem::forget(held);
        self.after_put(hash, None, section);
    }

    /// Returns true if the cache is full, and the eviction of any entry makes room for an entry of
    /// this segment: capacity then passes from the old entry to the new one (segment.G1).
    #[inline(always)]
    fn is_full_for<const SIMPLE: bool>(&self, segment: &Segment<K, V>) -> bool {
        // ORDER: Relaxed; a count of capacity, which orders nothing.
        (SIMPLE || self.weigher.is_none() && self.budgeted.is_none())
            && segment.spare() <= 0
            && self.pool.0.load(Ordering::Relaxed) <= 0
    }

    /// The fast path for a key that is there. Takes the slow path if the old entry is pinned, if it
    /// does not weigh as much as the new one, or if the lock is busy.
    #[inline(always)]
    fn replace<const SIMPLE: bool>(
        &self,
        hash: KeyHash,
        bucket: &Bucket<K, V>,
        hit: Hit<'_, K, V>,
        fresh: Fresh<K, V>,
        section: &Section<'_>,
    ) {
        let is_weighed = !SIMPLE && self.weigher.is_some();
        // Without a weigher an entry weighs 1, and the capacity is at least 1.
        let weight = if is_weighed { self.weight_of(fresh.address()) } else { 1 };
        let is_other = || weight > self.room() || self.weight_of(hit.node) != weight;
        if is_weighed && is_other() {
            return self.put_slow(hash, fresh, section);
        }
        let is_over = !SIMPLE && self.is_timed && self.is_expired_cold(hit.node);
        let Some(locked) = Table::try_lock(bucket) else {
            return self.put_slow(hash, fresh, section);
        };
        if !locked.replace_unpinned(hash, &hit, fresh.address()) {
            drop(locked);
            return self.put_slow(hash, fresh, section);
        }
        fresh.publish();
        self.touch(hit.slot, hit.frequency);
        self.flights.note_change(hash, 0);
        drop(locked);
        let cause = Cause::of_replaced(is_over);
        let old = Departed { node: hit.node, weight, cause };
        self.counts.note(Event::Insertion, section);
        self.settle_departure_on::<SIMPLE>(&old, section);
        self.finish_insert::<SIMPLE>(hash, section);
    }
}
