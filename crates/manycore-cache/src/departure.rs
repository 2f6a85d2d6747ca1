//! The departure of entries. Each entry that leaves is counted, its capacity is given back, it is
//! retired, and the listener is called, even if user code panics on the way.
//!
//! ```text
//! weigh --> lock the bucket, unlink --> give capacity back, count --> retire --> listener
//!   departure.D1                          departure.D2: once, whatever panics
//! ```
//!
//! Laws:
//! - departure.D1 An entry is weighed before it is unlinked, so that a weigher that panics loses
//!   nothing. Exactly this weight is given back.
//! - departure.D2 An unlinked entry is retired once, and reported once. This holds even if user
//!   code panics (a listener, or the destructor of another entry). The first panic resumes when all
//!   is done.
//! - departure.D3 An expired entry leaves as expired, by every way out: a read, an update of its
//!   key, an update that makes room, a sweep, or a removal of many entries.

use crate::Cache;
use crate::builder::Listener;
use crate::cause::{Cause, Departed};
use crate::key_hash::KeyHash;
use crate::node::{Found, Fresh, Node};
use crate::segment::{HEAVY, Segment};
use crate::single_flight::Panics;
use crate::stats::Event;
use crate::table::Slot;
use manycore::section::Section;
use std::hash::{BuildHasher, Hash};
use std::sync::atomic::Ordering;

/// Entries of one segment that were unlinked together. Dropping this settles their departure.
struct Gone<'a, K, V, S>
where
    K: Hash + Eq + Send + Sync,
    V: Send + Sync,
    S: BuildHasher,
{
    cache: &'a Cache<K, V, S>,
    segment: &'a Segment<K, V>,
    section: &'a Section<'a>,
    all: Vec<Departed<K, V>>,
}

impl<K, V, S> Drop for Gone<'_, K, V, S>
where
    K: Hash + Eq + Send + Sync,
    V: Send + Sync,
    S: BuildHasher,
{
    fn drop(&mut self) {
        debug_assert!(
            self.all.iter().all(|departed| departed.weight >= 0),
            "departure.D1: an entry leaves with a negative weight"
        );
        self.segment.count_less(self.all.len());
        self.cache.give_back(self.all.iter().map(|departed| departed.weight).sum());
        let mut panics = Panics::default();
        for departed in &self.all {
            panics.catch(|| self.cache.settle_departure(departed, self.section));
        }
        panics.resume();
    }
}

impl<K, V, S> Cache<K, V, S>
where
    K: Hash + Eq + Send + Sync,
    V: Send + Sync,
    S: BuildHasher,
{
    /// Counts and retires an entry, and calls the listener (departure.D2). Its capacity is the
    /// caller's.
    #[inline(always)]
    pub(crate) fn settle_departure(&self, departed: &Departed<K, V>, section: &Section<'_>) {
        self.settle_departure_on::<false>(departed, section);
    }

    /// As `settle_departure`. With `SIMPLE`, the compiler knows that the cache is simple.
    #[inline(always)]
    pub(crate) fn settle_departure_on<const SIMPLE: bool>(
        &self,
        departed: &Departed<K, V>,
        section: &Section<'_>,
    ) {
        match departed.cause {
            Cause::Evicted => self.counts.note(Event::Eviction, section),
            Cause::Expired => self.counts.note(Event::Expiration, section),
            _ => {}
        }
        self.retire_departed::<SIMPLE>(departed, section);
    }

    /// As `settle_departure_on`, without counting the departure.
    #[inline(always)]
    pub(crate) fn retire_departed<const SIMPLE: bool>(
        &self,
        departed: &Departed<K, V>,
        section: &Section<'_>,
    ) {
        let Departed { node, weight, cause } = departed;
        match &self.listener {
            Some(listener) if !SIMPLE && self.told & cause.bit() != 0 => {
                self.retire_and_notify(departed, listener, section);
            }
            // SAFETY: node.N1 - the caller unlinked the node under its bucket's lock.
            _ => unsafe {
                Node::retire(*node, &self.home, self.kind_of::<SIMPLE>(), section, *weight);
            },
        }
    }

    #[inline(never)]
    fn retire_and_notify(
        &self,
        departed: &Departed<K, V>,
        listener: &Listener<K, V>,
        section: &Section<'_>,
    ) {
        let mut panics = Panics::default();
        // SAFETY: node.N1 - the caller of `settle_departure` unlinked it under its bucket's lock.
        panics.catch(|| unsafe {
            Node::retire(departed.node, &self.home, self.kind(), section, departed.weight);
        });
        panics.catch(|| {
            // SAFETY: node.N1 - the node was retired just above, in the section of the caller,
            // which keeps it and is open until after this call.
            let node = unsafe { departed.node.as_ref() };
            listener(&node.key, &node.value, departed.cause);
        });
        panics.resume();
    }

    /// Returns the cause of an entry that makes room (departure.D3). The section keeps the entry.
    #[inline(always)]
    pub(crate) fn cause_of_eviction(&self, node: Found<K, V>) -> Cause {
        let is_over = self.is_timed && self.is_expired_cold(node);
        if is_over { Cause::Expired } else { Cause::Evicted }
    }

    /// Weighs an entry that is about to be unlinked to make room (departure.D1).
    #[inline(always)]
    pub(crate) fn depart(&self, node: Found<K, V>) -> Departed<K, V> {
        Departed { node, weight: self.weight_of(node), cause: self.cause_of_eviction(node) }
    }

    /// Evicts an entry of this segment, and returns its weight, which then belongs to the caller.
    /// The room is for a key of the hash `near`, if there is one; `kept` is not evicted.
    pub(crate) fn evict(
        &self,
        segment: &Segment<K, V>,
        near: Option<KeyHash>,
        kept: Option<Found<K, V>>,
        section: &Section<'_>,
    ) -> Option<i64> {
        let table = segment.table(section);
        let near = near.map(|near| table.bucket(near));
        let depart = |node| self.depart(node);
        let departed = segment.evict(table, near, kept, section, depart)?;
        Some(self.settle_eviction(segment, &departed, section))
    }

    /// As `evict`, for an entry that has no uses left and weighs far more than `weight`, the weight
    /// of the new entry (segment.G7). Returns zero if there is none where it looks.
    pub(crate) fn evict_heavy(
        &self,
        segment: &Segment<K, V>,
        weight: i64,
        section: &Section<'_>,
    ) -> i64 {
        let is_heavy = |node| self.weight_of(node) / HEAVY > weight;
        let departed = segment.evict_heavy(section, is_heavy, |node| self.depart(node));
        departed.map_or(0, |departed| self.settle_eviction(segment, &departed, section))
    }

    /// Settles the departure of an entry that was evicted. Returns its weight, which then belongs
    /// to the caller.
    fn settle_eviction(
        &self,
        segment: &Segment<K, V>,
        departed: &Departed<K, V>,
        section: &Section<'_>,
    ) -> i64 {
        segment.count_less(1);
        // The capacity is not lost if the listener panics.
        let back = Back { cache: self, capacity: departed.weight };
        self.settle_departure(departed, section);
        std::mem::forget(back);
        departed.weight
    }

    /// Keeps an entry out that is too heavy. Removes the entry that it would have replaced, for the
    /// cause in `seen`.
    #[cold]
    pub(crate) fn reject(
        &self,
        hash: KeyHash,
        fresh: &mut Option<Fresh<K, V>>,
        weight: i64,
        seen: Option<(Found<K, V>, Cause)>,
        section: &Section<'_>,
    ) -> Found<K, V> {
        if let Some((seen, cause)) = seen {
            self.unlink_entry(hash, seen, cause, section);
        }
        let node = fresh.take().expect("a node to turn away").publish();
        self.settle_departure(&Departed { node, weight, cause: Cause::Evicted }, section);
        node
    }

    /// Removes this node if it is still linked.
    pub(crate) fn unlink_entry(
        &self,
        hash: KeyHash,
        node: Found<K, V>,
        cause: Cause,
        section: &Section<'_>,
    ) {
        self.unlink_entry_if(hash, node, cause, section, None::<fn() -> bool>);
    }

    /// As `unlink_entry`, if `accept` returns true under the bucket's lock. Returns whether the
    /// node was removed, or `None` if it was not linked any more.
    pub(crate) fn unlink_entry_if(
        &self,
        hash: KeyHash,
        node: Found<K, V>,
        cause: Cause,
        section: &Section<'_>,
        accept: Option<impl FnOnce() -> bool>,
    ) -> Option<bool> {
        let segment = self.segment(hash);
        let weight = self.weight_of(node); // departure.D1
        let locked = self.lock(hash, section);
        let slot = locked.slot_of(node)?;
        if accept.is_some_and(|accept| !self.under_lock(accept)) {
            return Some(false);
        }
        debug_assert_eq!(slot.node(), Some(node), "node.N1: another node is unlinked");
        let was_pinned = slot.is_pinned();
        locked.clear(slot);
        if cause != Cause::Expired {
            self.flights.note_change(hash, 0);
        }
        drop(locked);
        self.note_unpinned(was_pinned, weight);
        segment.count_less(1);
        self.give_back(weight);
        self.settle_departure(&Departed { node, weight, cause }, section);
        Some(true)
    }

    /// Drops an expired entry that a reader found.
    #[cold]
    pub(crate) fn drop_expired(&self, hash: KeyHash, node: Found<K, V>, section: &Section<'_>) {
        self.unlink_entry(hash, node, Cause::Expired, section);
    }

    /// Drops the expired entries of a bucket.
    pub(crate) fn sweep(&self, segment: &Segment<K, V>, index: usize, section: &Section<'_>) {
        let now = self.now();
        let expired =
            |slot: Slot<'_, K, V>| slot.node().filter(|node| self.is_expired_at(*node, now));
        if let Some(bucket) = segment.table(section).buckets().get(index) {
            if bucket.slots().any(|slot| expired(slot).is_some()) {
                self.clear_bucket(segment, index, section, |node| {
                    self.is_expired_at(node, now).then_some(Cause::Expired)
                });
            }
        }
    }

    /// Removes the entries of a bucket for which `test` returns a cause. Returns false if the table
    /// was replaced. `test` runs under the bucket's lock.
    fn clear_bucket(
        &self,
        segment: &Segment<K, V>,
        index: usize,
        section: &Section<'_>,
        test: impl Fn(Found<K, V>) -> Option<Cause>,
    ) -> bool {
        let table = segment.table(section);
        let bucket = table.buckets().get(index);
        // Dropped after the lock is released, also if the test or a weigher panics.
        let mut gone = Gone { cache: self, segment, section, all: Vec::new() };
        let Some(locked) = bucket.and_then(|bucket| table.lock(bucket)) else { return false };
        for slot in locked.slots() {
            let Some(node) = slot.node() else { continue };
            let depart = |cause| Departed { node, weight: self.weight_of(node), cause };
            if let Some(departed) = self.under_lock(|| test(node).map(depart)) {
                let (was_pinned, weight) = (slot.is_pinned(), departed.weight);
                gone.all.push(departed);
                locked.clear(slot);
                self.note_unpinned(was_pinned, weight);
            }
        }
        drop(locked);
        true
    }

    /// Removes every expired entry (departure.D3), and every entry for which `test` returns true.
    /// `test` runs under the lock of the entry's bucket. Loads that are under way are not put in.
    pub(crate) fn remove_all(&self, test: impl Fn(Found<K, V>) -> bool) {
        self.begin_update();
        self.flights.mark_all();
        self.clear_all(|node| match self.is_expired(node) {
            true => Some(Cause::Expired),
            false => test(node).then_some(Cause::Removed),
        });
        self.collect();
    }

    fn clear_all(&self, test: impl Fn(Found<K, V>) -> Option<Cause>) {
        for segment in &self.segments {
            let mut index = 0;
            // One section for each bucket: a long section would hold reclamation back.
            loop {
                let section = self.domain.enter();
                let buckets = segment.table(&section).buckets().len();
                if index >= buckets {
                    break;
                }
                let same = self.clear_bucket(segment, index, &section, &test);
                // A table that was replaced is walked again from its beginning.
                index = if same && segment.table(&section).buckets().len() == buckets {
                    index + 1
                } else {
                    0
                };
            }
        }
    }

    /// Removes every entry that is there when its bucket's turn comes. That includes all entries
    /// that were inserted before the call. Loads that are under way are not put in. Cost: the
    /// tables, and a lock for each bucket in turn.
    pub fn invalidate_all(&self) {
        self.remove_all(|_| true);
    }

    /// Drops every expired entry, and frees what can be freed. Call it from a timer of your own.
    pub fn purge(&self) {
        if self.is_timed {
            self.begin_update();
            self.clear_all(|node| self.is_expired(node).then_some(Cause::Expired));
        }
        self.collect();
    }
}

/// Capacity that goes back to the pool when this is dropped, whatever panics.
pub(crate) struct Back<'a, K, V, S> {
    pub(crate) cache: &'a Cache<K, V, S>,
    pub(crate) capacity: i64,
}

impl<K, V, S> Drop for Back<'_, K, V, S> {
    fn drop(&mut self) {
        if self.capacity > 0 {
            // ORDER: Relaxed; counts of capacity order nothing.
            self.cache.pool.0.fetch_add(self.capacity, Ordering::Relaxed);
        }
    }
}
