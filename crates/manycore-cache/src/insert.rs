//! Insertions, whatever is there.

use crate::Cache;
use crate::departure::{Cause, Departed};
use crate::key_hash::KeyHash;
use crate::node::Fresh;
use crate::update::Asked;
use manycore::section::Section;
use std::hash::{BuildHasher, Hash};
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
        let hash = self.hash(&key);
        self.segment(hash).table(&section).prefetch(hash); // while the node is made
        let fresh = self.make(key, value, time);
        let version = fresh.version();
        self.put_any(hash, fresh, &section);
        version
    }

    /// Links the node, whatever is there.
    #[inline(always)]
    fn put_any(&self, hash: KeyHash, fresh: Fresh<K, V>, section: &Section<'_>) {
        if let Err(fresh) = self.put_over(hash, fresh, section) {
            self.put_whatever(hash, fresh, section);
        }
    }

    #[inline(never)]
    fn put_whatever(&self, hash: KeyHash, fresh: Fresh<K, V>, section: &Section<'_>) {
        self.put(hash, &mut Some(fresh), section, Asked::Before, |_| true);
    }

    /// The short way: the key is there, and its entry weighs as much. Gives the node back if it is
    /// not so.
    #[inline]
    fn put_over(
        &self,
        hash: KeyHash,
        fresh: Fresh<K, V>,
        section: &Section<'_>,
    ) -> Result<(), Fresh<K, V>> {
        let weight = self.weight_of(fresh.address());
        if weight > self.capacity() as i64 {
            return Err(fresh);
        }
        let segment = self.segment(hash);
        let table = segment.table(section);
        let bucket = table.bucket(hash);
        let Some(hit) = bucket.find(hash, |own| *own == fresh.get().key) else {
            return Err(fresh);
        };
        if self.weight_of(hit.node) != weight {
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
        let cause = if is_over { Cause::Expired } else { Cause::Replaced };
        let old = Departed { node: hit.node, weight, cause };
        if self.is_timed {
            self.after_put(hash, Some(old), section);
        } else {
            self.counts.insertions.inc();
            self.part_with(&old, section);
            self.settle(segment, section);
        }
        Ok(())
    }

    /// As [`insert`](Self::insert), of a key that is known to belong here.
    pub(crate) fn insert_at(&self, hash: KeyHash, key: K, value: V, section: &Section<'_>) -> u64 {
        self.begin_update();
        let fresh = self.make(key, value, None);
        let version = fresh.version();
        self.put_any(hash, fresh, section);
        version
    }
}
