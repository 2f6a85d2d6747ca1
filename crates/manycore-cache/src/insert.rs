//! Insertions, whatever is there.

use crate::Cache;
use crate::cause::{Cause, Departed};
use crate::departure::Back;
use crate::key_hash::KeyHash;
use crate::node::Fresh;
use crate::prefetch::prefetch_for_write;
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
    /// Puts a value in, in place of the old one if there is one. Returns its version.
    ///
    /// Makes room first, if need be, by evicting. An entry that weighs more than the whole capacity
    /// is not kept: the listener hears of it, and of the old value.
    #[doc(alias = "put")]
    #[doc(alias = "set")]
    pub fn insert(&self, key: K, value: V) -> u64 {
        self.insert_node(key, value, None)
    }

    /// As [`insert`](Self::insert), and the entry lives so long, unless the cache's own times are
    /// shorter.
    ///
    /// # Panics
    /// If the cache has no times: its builder was given none of `time_to_live`, `time_to_idle` and
    /// `expire_after`.
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

    /// As [`insert`](Self::insert), of a key that is known to belong here.
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
        let table = self.segment(hash).table(section);
        let bucket = table.bucket(hash);
        prefetch_for_write(bucket); // while the node is made
        let fresh = self.make(key, value, time, section);
        let version = fresh.version();
        // Links the node, whatever is there. A table that was replaced since refuses its lock.
        let refused = match bucket.find(hash, |own| *own == fresh.get().key) {
            Some(hit) => self.put_over(hash, (table, bucket), hit, fresh, section),
            None => self.put_new(hash, (table, bucket), fresh, section),
        };
        if let Err(fresh) = refused {
            self.put_whatever(hash, fresh, section);
        }
        version
    }

    #[cold]
    fn put_whatever(&self, hash: KeyHash, fresh: Fresh<K, V>, section: &Section<'_>) {
        self.put(hash, &mut Some(fresh), section, Asked::Before, |_| true);
    }

    /// The short way for a key that is not there. Gives the node back if by now there may be an
    /// entry of it, which only one of its tag can be.
    #[inline(never)]
    fn put_new(
        &self,
        hash: KeyHash,
        (table, bucket): (&Table<K, V>, &Bucket<K, V>),
        fresh: Fresh<K, V>,
        section: &Section<'_>,
    ) -> Result<(), Fresh<K, V>> {
        let weight = self.weight_of(fresh.address());
        if weight > self.capacity() as i64 {
            return Err(fresh);
        }
        if self.is_full_for(hash) {
            return self.put_for_another(hash, (table, bucket), fresh, section);
        }
        self.reserve(self.segment(hash), Some(hash), weight, None, section);
        let held = Back { cache: self, capacity: weight };
        let Some(locked) = table.lock(bucket) else { return Err(fresh) };
        if bucket.has_tag(hash) {
            return Err(fresh);
        }
        self.link_new(&locked, table, hash, &fresh);
        self.flights.note_change(hash, 0);
        drop(locked);
        std::mem::forget(held);
        fresh.publish();
        self.after_put(hash, None, section);
        Ok(())
    }

    /// The same in a full cache that doesn't weigh: another entry goes, and leaves its capacity and
    /// its count to the new one (cache.G1).
    #[inline(always)]
    fn put_for_another(
        &self,
        hash: KeyHash,
        (table, bucket): (&Table<K, V>, &Bucket<K, V>),
        fresh: Fresh<K, V>,
        section: &Section<'_>,
    ) -> Result<(), Fresh<K, V>> {
        let segment = self.segment(hash);
        let depart = |node| self.depart(node);
        let Some(departed) = segment.evict(Some(hash), None, section, depart) else {
            return Err(fresh);
        };
        let Some(locked) = table.lock(bucket).filter(|_| !bucket.has_tag(hash)) else {
            segment.count_less(1);
            self.give_back(departed.weight);
            self.part_with(&departed, section);
            return Err(fresh);
        };
        locked.add(table, hash, fresh.address(), table.first_frequency(hash));
        self.flights.note_change(hash, 0);
        drop(locked);
        fresh.publish();
        self.end_supplanting(hash, &departed, section);
        Ok(())
    }

    /// What follows when an entry was linked that has the room of another one.
    #[inline(always)]
    fn end_supplanting(&self, hash: KeyHash, old: &Departed<K, V>, section: &Section<'_>) {
        if old.cause == Cause::Evicted {
            self.counts.note(Event::Supplanting, section);
            self.retire_and_tell(old, section);
        } else {
            self.counts.note(Event::Insertion, section);
            self.part_with(old, section);
        }
        self.end_put(hash, section);
    }

    /// Whether an entry of this hash needs the room of another one, of which any is enough: then
    /// capacity passes from the one to the other (cache.G1).
    #[inline(always)]
    fn is_full_for(&self, hash: KeyHash) -> bool {
        // ORDER: Relaxed; a count of capacity, which orders nothing.
        self.weigher.is_none()
            && self.budgeted.is_none()
            && self.segment(hash).spare() <= 0
            && self.pool.0.load(Ordering::Relaxed) <= 0
    }

    /// The short way for a key that is there, if its entry weighs as much. Gives the node back if
    /// it is not so.
    #[inline(always)]
    fn put_over(
        &self,
        hash: KeyHash,
        (table, bucket): (&Table<K, V>, &Bucket<K, V>),
        hit: Hit<'_, K, V>,
        fresh: Fresh<K, V>,
        section: &Section<'_>,
    ) -> Result<(), Fresh<K, V>> {
        let weight = match &self.weigher {
            None => 1, // as the capacity is at least
            Some(_) => self.weight_of(fresh.address()),
        };
        let is_other = || weight > self.capacity() as i64 || self.weight_of(hit.node) != weight;
        if self.weigher.is_some() && is_other() {
            return Err(fresh);
        }
        let is_over = self.is_timed && self.is_expired_cold(hit.node);
        let Some(locked) = table.lock(bucket) else { return Err(fresh) };
        if !locked.replace(hit.slot, hit.node, fresh.address()) {
            return Err(fresh);
        }
        self.touch(&hit);
        self.flights.note_change(hash, 0);
        drop(locked);
        fresh.publish();
        let cause = Cause::of_replaced(is_over);
        let old = Departed { node: hit.node, weight, cause };
        self.counts.note(Event::Insertion, section);
        self.part_with(&old, section);
        self.end_put(hash, section);
        Ok(())
    }
}
