//! Updates: room first, then one bucket's lock, then what has to be told and freed.

use crate::guard::{Entry, Guard};
use crate::lines::prefetch;
use crate::node::{Extra, Fresh, NEVER, Node};
use crate::segment::{Segment, take};
use crate::table::{Locked, MAIN, Place, Slot};
use crate::{Cache, builder};
use manycore::section::Section;
use std::borrow::Borrow;
use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::ptr::NonNull;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Why an entry left the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Cause {
    /// Another value took its place.
    Replaced,
    /// It was removed.
    Removed,
    /// Room was wanted, or it was too heavy to be let in.
    Evicted,
    /// Its time was over.
    Expired,
}

/// Why [`Cache::compare_and_swap`] did not.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum CasError<V> {
    /// The key is not there. Here is the value back.
    Missing(V),
    /// The entry has another version (the second). Here is the value back.
    Changed(V, u64),
}

impl<V> fmt::Display for CasError<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(_) => f.write_str("the key is not in the cache"),
            Self::Changed(_, version) => write!(f, "the entry has version {version} by now"),
        }
    }
}

impl<V: fmt::Debug> std::error::Error for CasError<V> {}

/// How many times what is wanted a segment takes from the pool ahead, at most.
const AHEAD: i64 = 32;
/// And at most its part of the pool divided by so much. So it will want, on average, so many times
/// what it has ahead before the pool is dry: then, all but certainly, nothing is left idle.
const POOL_SHARE: i64 = 32;

/// A node as it was found.
pub(crate) type Found<K, V> = NonNull<Node<K, V>>;

impl<K, V, S> Cache<K, V, S>
where
    K: Hash + Eq + Send + Sync,
    V: Send + Sync,
    S: BuildHasher,
{
    #[inline(always)]
    pub(crate) fn weight_of(&self, node: Found<K, V>) -> i64 {
        let Some(weigh) = &self.weigher else { return 1 };
        if self.ends.is_some() {
            // SAFETY: the caller's section keeps the node, or it is the caller's alone (N1).
            let node = unsafe { node.as_ref() };
            return i64::from(weigh(&node.key, &node.value).max(1));
        }
        // SAFETY: N2 - a cache with a weigher is full, unless it is lean; as above.
        i64::from(unsafe { Node::extra(node).as_ref() }.weight)
    }

    pub(crate) fn make(&self, key: K, value: V, time: Option<Duration>) -> Fresh<K, V> {
        self.note_own_end(&key, &value);
        self.home.make(key, value, |key, value| {
            let weight = self.weigher.as_ref().map_or(1, |weigh| weigh(key, value).max(1));
            let (mut expires, mut now) = (NEVER, 0);
            if self.is_timed {
                now = self.now();
                let own = self.expiry.as_ref().and_then(|time| time(key, value));
                let least = [time, own].into_iter().flatten().map(builder::nanos).chain(self.live);
                expires = least.min().map_or(NEVER, |least| now.saturating_add(least));
                if expires != NEVER {
                    self.note_end();
                }
            }
            Extra::new(expires, now, weight)
        })
    }

    /// Tells the listener.
    #[inline(always)]
    fn tell(&self, node: Found<K, V>, cause: Cause) {
        match cause {
            Cause::Evicted => self.counts.evictions.inc(),
            Cause::Expired => self.counts.expirations.inc(),
            _ => {}
        }
        if let Some(listener) = &self.listener {
            // SAFETY: the caller's section keeps the node (N1).
            let node = unsafe { node.as_ref() };
            listener(&node.key, &node.value, cause);
        }
    }

    /// The end of an entry that the caller has unlinked: first what must happen, then what may
    /// panic.
    #[inline]
    pub(crate) fn part_with(&self, node: Found<K, V>, cause: Cause, section: &Section<'_>) {
        // SAFETY: N1 - unlinked by the caller under its bucket's lock.
        unsafe { Node::retire(node, &self.home, section, || self.weight_of(node)) };
        self.tell(node, cause);
    }

    pub(crate) fn give_back(&self, capacity: i64) {
        if capacity > 0 {
            // ORDER: Relaxed; counts of capacity order nothing.
            self.pool.0.fetch_add(capacity, Ordering::Relaxed);
        }
    }

    /// Evicts an entry of this segment; its weight, which is the caller's now.
    pub(crate) fn evict(&self, segment: &Segment<K, V>, section: &Section<'_>) -> Option<i64> {
        let node = segment.evict(section)?;
        let weight = self.weight_of(node);
        segment.count_less(1);
        // Whatever the listener does, the capacity is not lost.
        let back = Back { cache: self, capacity: weight };
        self.part_with(node, Cause::Evicted, section);
        std::mem::forget(back);
        Some(weight)
    }

    /// Makes so much capacity the caller's (G1): from the pool, and then at the cost of others'
    /// entries. If there is neither, because everything is reserved by those who are about to link,
    /// the pool goes below zero, and whoever passes pays it back.
    fn reserve(&self, segment: &Segment<K, V>, wanted: i64, section: &Section<'_>) {
        let mut held = Back { cache: self, capacity: 0 };
        held.capacity += segment.take_spare(wanted);
        if held.capacity < wanted {
            held.capacity += self.draw(segment, wanted - held.capacity);
        }
        while held.capacity < wanted {
            match self.evict(segment, section) {
                Some(weight) => held.capacity += weight,
                None => break,
            }
        }
        if held.capacity < wanted {
            self.reserve_elsewhere(&mut held.capacity, wanted, section);
        }
        let surplus = held.capacity - wanted;
        std::mem::forget(held);
        if surplus > wanted {
            // More than the segment may have use for, while others evict.
            self.give_back(surplus);
        } else if surplus > 0 {
            segment.add_spare(surplus);
        } else if surplus < 0 {
            // ORDER: Relaxed; counts of capacity order nothing.
            self.pool.0.fetch_add(surplus, Ordering::Relaxed);
        }
    }

    /// Takes up to so much from the pool. As long as there is much, the segment gets more than is
    /// wanted, to spare, for all segments write the pool's line.
    fn draw(&self, segment: &Segment<K, V>, wanted: i64) -> i64 {
        // ORDER: Relaxed; counts of capacity order nothing.
        let there = self.pool.0.load(Ordering::Relaxed);
        let share = there / (POOL_SHARE * self.segments.len() as i64);
        let more = if share < wanted { 0 } else { share.min(wanted.saturating_mul(AHEAD)) };
        let taken = take(&self.pool.0, wanted.saturating_add(more));
        if taken > wanted {
            segment.add_spare(taken - wanted);
        }
        taken.min(wanted)
    }

    /// The segment has nothing more to give.
    #[cold]
    fn reserve_elsewhere(&self, held: &mut i64, wanted: i64, section: &Section<'_>) {
        for segment in &self.segments {
            *held += segment.take_spare(wanted - *held);
            while *held < wanted {
                match self.evict(segment, section) {
                    Some(weight) => *held += weight,
                    None => break,
                }
            }
        }
    }

    /// Pays back what somebody took beyond the capacity.
    #[inline]
    pub(crate) fn settle(&self, segment: &Segment<K, V>, section: &Section<'_>) {
        // ORDER: Relaxed; counts of capacity order nothing.
        while self.pool.0.load(Ordering::Relaxed) < 0 {
            match self.evict(segment, section) {
                Some(weight) => self.give_back(weight),
                None => return, // who comes next, elsewhere
            }
        }
    }

    /// The key's chain, locked, in the present table.
    pub(crate) fn lock<'s>(&'s self, place: Place, section: &'s Section<'_>) -> Locked<'s, K, V> {
        loop {
            let table = self.segment(place).table(section);
            if let Some(locked) = table.lock(table.bucket(place)) {
                return locked;
            }
        }
    }

    /// Puts the node in if `accept` says so of what is there; gives it back if not. Returns the
    /// node, which the section keeps. `is_held` has it asked once more under the bucket's lock.
    pub(crate) fn put(
        &self,
        place: Place,
        fresh: Fresh<K, V>,
        section: &Section<'_>,
        is_held: bool,
        mut accept: impl FnMut(Option<Found<K, V>>) -> bool,
    ) -> Result<Found<K, V>, Fresh<K, V>> {
        let segment = self.segment(place);
        let weight = self.weight_of(fresh.address());
        let mut held = Back { cache: self, capacity: 0 };
        loop {
            let seen = self.find(place, &fresh.get().key, section);
            if !accept(seen.filter(|node| !self.is_expired(*node))) {
                return Err(fresh);
            }
            if weight > self.capacity.load(Ordering::Relaxed) {
                return Ok(self.turn_away(place, fresh, seen, section));
            }
            let old_weight = seen.map_or(0, |seen| self.weight_of(seen));
            let wanted = weight - old_weight - held.capacity;
            if wanted > 0 {
                self.reserve(segment, wanted, section);
                held.capacity += wanted;
            }
            let locked = self.lock(place, section);
            if is_held && !accept(seen.filter(|node| !self.is_expired(*node))) {
                continue;
            }
            if !self.link(&locked, place, &fresh, seen, section) {
                continue;
            }
            drop(locked);
            held.capacity -= weight - old_weight;
            drop(held); // a lighter value gives capacity back
            let node = fresh.publish();
            self.after_put(place, seen, section);
            return Ok(node);
        }
    }

    /// Links the node in the place of what was seen, if that is what is there.
    fn link(
        &self,
        locked: &Locked<'_, K, V>,
        place: Place,
        fresh: &Fresh<K, V>,
        seen: Option<Found<K, V>>,
        section: &Section<'_>,
    ) -> bool {
        let segment = self.segment(place);
        match seen {
            Some(seen) => {
                let Some(slot) = locked.slot_of(seen) else { return false };
                let is_replaced = locked.replace(slot, seen, fresh.address());
                debug_assert!(is_replaced, "the lock is held");
                let heat = slot.heat_now();
                if heat < self.heat_max {
                    slot.set_heat(heat + 1);
                }
            }
            None => {
                if locked.has(place, |own| *own == fresh.get().key) {
                    return false;
                }
                let table = segment.table(section);
                let is_tried = !table.remembers(place) && table.trial.push(place);
                let state = if is_tried { 0 } else { MAIN };
                locked.add(table, place, fresh.address(), (state, 0));
                segment.count_more();
            }
        }
        true
    }

    /// What follows an entry's being linked, with no lock held.
    pub(crate) fn after_put(&self, place: Place, old: Option<Found<K, V>>, section: &Section<'_>) {
        let segment = self.segment(place);
        self.counts.insertions.inc();
        let cause = |old| if self.is_expired(old) { Cause::Expired } else { Cause::Replaced };
        if old.is_none() {
            self.grow_if_full(segment, section);
        }
        if let Some(old) = old {
            self.part_with(old, cause(old), section);
        }
        self.settle(segment, section);
        // ORDER: Relaxed; see `note_end`.
        if self.is_timed && self.may_end.load(Ordering::Relaxed) {
            let buckets = segment.table(section).buckets();
            let index = segment.next_bucket(buckets.len());
            self.sweep(segment, index, section);
            // What the next update will look at.
            if let Some(next) = buckets.get(index + 1) {
                next.slots().filter_map(Slot::node).for_each(|node| prefetch(node.as_ptr()));
            }
            if let Some(later) = buckets.get(index + 2) {
                prefetch(later);
            }
        }
    }

    fn grow_if_full(&self, segment: &Segment<K, V>, section: &Section<'_>) {
        let buckets = segment.table(section).buckets().len();
        if segment.entries() > buckets * 7 {
            segment.grow(buckets * 2, section, |node| self.place(&node.key));
            // Tables are large and rare: what others wait for, the table before this one may.
            self.domain.collect();
        }
    }

    /// What is too heavy for the whole cache stays out, and what it would have replaced goes.
    #[cold]
    fn turn_away(
        &self,
        place: Place,
        fresh: Fresh<K, V>,
        seen: Option<Found<K, V>>,
        section: &Section<'_>,
    ) -> Found<K, V> {
        if let Some(seen) = seen {
            self.take_out(place, seen, Cause::Replaced, section);
        }
        let node = fresh.publish();
        self.part_with(node, Cause::Evicted, section);
        node
    }

    /// Removes this node if it is linked still.
    pub(crate) fn take_out(
        &self,
        place: Place,
        node: Found<K, V>,
        cause: Cause,
        section: &Section<'_>,
    ) -> bool {
        self.take_out_if(place, node, cause, section, || true)
    }

    /// The same if `accept`, asked under the bucket's lock, says so.
    pub(crate) fn take_out_if(
        &self,
        place: Place,
        node: Found<K, V>,
        cause: Cause,
        section: &Section<'_>,
        accept: impl FnOnce() -> bool,
    ) -> bool {
        let segment = self.segment(place);
        let locked = self.lock(place, section);
        let Some(slot) = locked.slot_of(node).filter(|_| accept()) else { return false };
        locked.clear(slot);
        drop(locked);
        segment.count_less(1);
        self.give_back(self.weight_of(node));
        self.part_with(node, cause, section);
        true
    }

    /// A reader found an entry whose time is over.
    #[cold]
    pub(crate) fn drop_expired(&self, place: Place, node: Found<K, V>, section: &Section<'_>) {
        self.take_out(place, node, Cause::Expired, section);
    }

    /// Drops from a bucket what has expired.
    fn sweep(&self, segment: &Segment<K, V>, index: usize, section: &Section<'_>) {
        let now = self.now();
        let expired =
            |slot: Slot<'_, K, V>| slot.node().filter(|node| self.is_expired_at(*node, now));
        if let Some(bucket) = segment.table(section).buckets().get(index) {
            if bucket.slots().any(|slot| expired(slot).is_some()) {
                self.clear_bucket(segment, index, section, Cause::Expired, |node| {
                    self.is_expired_at(node, now)
                });
            }
        }
    }

    /// Removes the entries of a bucket that the test names; false if the table was replaced.
    fn clear_bucket(
        &self,
        segment: &Segment<K, V>,
        index: usize,
        section: &Section<'_>,
        cause: Cause,
        test: impl Fn(Found<K, V>) -> bool,
    ) -> bool {
        let table = segment.table(section);
        let bucket = table.buckets().get(index);
        let Some(locked) = bucket.and_then(|bucket| table.lock(bucket)) else { return false };
        let mut gone = Vec::new();
        for slot in locked.slots() {
            if let Some(node) = slot.node().filter(|node| test(*node)) {
                locked.clear(slot);
                gone.push(node);
            }
        }
        drop(locked);
        segment.count_less(gone.len());
        self.give_back(gone.iter().map(|node| self.weight_of(*node)).sum());
        // SAFETY: N1 - unlinked just now under their bucket's lock.
        gone.iter().for_each(|node| unsafe {
            Node::retire(*node, &self.home, section, || self.weight_of(*node));
        });
        gone.iter().for_each(|node| self.tell(*node, cause));
        true
    }

    pub(crate) fn clear_all(&self, cause: Cause, test: impl Fn(Found<K, V>) -> bool) {
        for segment in &self.segments {
            let mut index = 0;
            // One section for each bucket: a long one would hold everything back.
            loop {
                let section = self.domain.enter();
                let buckets = segment.table(&section).buckets().len();
                if index >= buckets {
                    break;
                }
                let same = self.clear_bucket(segment, index, &section, cause, &test);
                // A table that was replaced is begun anew.
                index = if same && segment.table(&section).buckets().len() == buckets {
                    index + 1
                } else {
                    0
                };
            }
        }
    }

    /// Puts the value in if `accept` says so of the key's entry, or of its not being there; returns
    /// the version.
    ///
    /// `accept` runs without a lock, and again if the key's entry was replaced meanwhile. What
    /// changes in an entry by itself needs [`insert_held_if`](Self::insert_held_if).
    ///
    /// # Errors
    /// Key and value, if they were not accepted.
    ///
    /// ```
    /// let cache = manycore_cache::Cache::new(10);
    /// let add = |key, value| cache.insert_if(key, value, |entry| entry.is_none());
    /// assert!(add("a", 1).is_ok());
    /// assert_eq!(add("a", 2), Err(("a", 2)));
    /// ```
    pub fn insert_if(
        &self,
        key: K,
        value: V,
        accept: impl FnMut(Option<Entry<'_, K, V>>) -> bool,
    ) -> Result<u64, (K, V)> {
        self.put_if(key, value, false, accept)
    }

    /// Replaces the key's value if its entry has this version still. Returns the new version.
    ///
    /// # Errors
    /// If the key is not there, or its entry has another version.
    ///
    /// # Panics
    /// If the cache is lean ([`Builder::lean`](crate::Builder::lean)): it has no versions.
    ///
    /// ```
    /// let cache = manycore_cache::Cache::new(10);
    /// let first = cache.insert("a", 1);
    /// let second = cache.compare_and_swap("a", first, 2).unwrap();
    /// assert!(cache.compare_and_swap("a", first, 3).is_err());
    /// assert_eq!(cache.get("a").unwrap().version(), second);
    /// ```
    pub fn compare_and_swap(&self, key: K, version: u64, value: V) -> Result<u64, CasError<V>> {
        assert!(self.ends.is_none(), "manycore: a lean cache has no versions");
        let mut seen = None;
        let same = |entry: Option<Entry<'_, K, V>>| {
            seen = entry.map(Entry::version);
            seen == Some(version)
        };
        self.insert_if(key, value, same).map_err(|(_, value)| match seen {
            None => CasError::Missing(value),
            Some(seen) => CasError::Changed(value, seen),
        })
    }

    /// Removes the key. Returns its entry.
    pub fn remove<Q>(&self, key: &Q) -> Option<Guard<'_, K, V>>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.remove_if(key, |_| true)
    }

    /// Removes the key if `accept` says so of its entry, which is returned then.
    ///
    /// `accept` runs without a lock, and again if the entry was changed meanwhile.
    pub fn remove_if<Q>(
        &self,
        key: &Q,
        accept: impl FnMut(Entry<'_, K, V>) -> bool,
    ) -> Option<Guard<'_, K, V>>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.take_if(key, false, accept)
    }

    /// Removes every entry that is there when its bucket's turn comes: all that were inserted
    /// before the call. Cost: the tables, and a lock for each bucket in turn.
    pub fn invalidate_all(&self) {
        self.clear_all(Cause::Removed, |_| true);
        self.collect();
    }

    /// Drops every entry whose time is over, and frees what can be freed. For a timer of yours.
    pub fn purge(&self) {
        if self.is_timed {
            self.clear_all(Cause::Expired, |node| self.is_expired(node));
        }
        self.collect();
    }
}

/// Capacity that goes back to the pool, whatever panics.
struct Back<'a, K, V, S> {
    cache: &'a Cache<K, V, S>,
    capacity: i64,
}

impl<K, V, S> Drop for Back<'_, K, V, S> {
    fn drop(&mut self) {
        if self.capacity > 0 {
            // ORDER: Relaxed; counts of capacity order nothing.
            self.cache.pool.0.fetch_add(self.capacity, Ordering::Relaxed);
        }
    }
}
