//! Updates: make room, then change one bucket's chain under its lock, then call listeners and
//! reclaim.

use crate::cause::{Cause, Departed};
use crate::chance::Chance;
use crate::compared::Compared;
use crate::departure::Back;
use crate::guard::{Entry, Guard};
use crate::key_hash::KeyHash;
use crate::node::{Extra, Found, Fresh, NEVER, Node, Seed};
use crate::prefetch::prefetch;
use crate::segment::{Segment, take};
use crate::stats::Event;
use crate::table::{Locked, Slot, Table};
use crate::{Cache, builder};
use manycore::section::Section;
use std::borrow::Borrow;
use std::cell::RefCell;
use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Why [`Cache::compare_and_swap`] did not store the value.
///
/// ```
/// use manycore_cache::{Cache, CasError};
///
/// let cache = Cache::new(10);
/// assert_eq!(cache.compare_and_swap("a", 1, 'x'), Err(CasError::Missing('x')));
/// let old = cache.insert("a", 'x');
/// let new = cache.insert("a", 'y');
/// assert_eq!(cache.compare_and_swap("a", old, 'z'), Err(CasError::Changed('z', new)));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum CasError<V> {
    /// The key is not there. Contains the value that was to be stored.
    Missing(V),
    /// The entry has another version, the second field. Contains the value that was to be stored.
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

/// Upper bound on the capacity that a segment takes from the pool ahead, as a multiple of the
/// request.
const AHEAD: i64 = 32;
/// Another upper bound on it: the segment's part of the pool, divided by this number. So on average
/// a segment uses up its advance this many times before the pool is empty. Then, almost certainly,
/// nothing is left idle.
const POOL_SHARE: i64 = 32;

/// One of this number of insertions that have to evict looks for heavy entries (segment.G7).
const ONE_HEAVY_OF: u32 = 2;

/// When `put` asks whether the node may be put in.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asked {
    /// Before it takes the bucket's lock.
    Before,
    /// Once more under that lock.
    Locked,
    /// As `Locked`, for a load, which does not make itself stale.
    OfLoad,
}

/// Where a node is to be linked.
enum Target<'t, K, V> {
    /// In this place, which has this node of the same key.
    Over(Slot<'t, K, V>, Found<K, V>),
    New,
}

/// Returns where a key's node is to be linked, or `None` if the chain is not as it was seen. `seen`
/// must still be there, or the chain must have no further entries of the key's tag than were
/// compared. Runs no user code.
#[inline(always)]
fn target<'t, K, V>(
    locked: &Locked<'t, K, V>,
    hash: KeyHash,
    seen: Option<Found<K, V>>,
    compared: &Compared,
) -> Option<Target<'t, K, V>> {
    match seen {
        Some(seen) => locked.slot_of(seen).map(|slot| Target::Over(slot, seen)),
        None => (!locked.has_more(hash, compared)).then_some(Target::New),
    }
}

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
            // SAFETY: node.N1 - callers pass a node that their section keeps, or a node that is not
            // linked yet and theirs alone.
            let node = unsafe { node.as_ref() };
            return i64::from(weigh(&node.key, &node.value).max(1));
        }
        // SAFETY: node.N2 - a cache with a weigher has full nodes, unless it has no metadata.
        // Callers pass a node that their section keeps, or a node that is not linked yet and theirs
        // alone (node.N1).
        i64::from(unsafe { Node::extra(node).as_ref() }.weight)
    }

    #[inline(always)]
    pub(crate) fn make<const SIMPLE: bool>(
        &self,
        key: K,
        value: V,
        time: Option<Duration>,
        section: &Section<'_>,
    ) -> Fresh<K, V> {
        if !SIMPLE {
            self.note_own_end(&key, &value);
        }
        let extra = |key: &K, value: &V| self.extra(key, value, time);
        self.home.make(self.kind_of::<SIMPLE>(), key, value, section, extra)
    }

    /// As `make`, for a key that has a node already. Leaves the seed in place if user code panics.
    pub(crate) fn complete(&self, seed: &mut Option<Seed<K, V>>, value: V) -> Fresh<K, V> {
        if let Some(seed) = seed {
            self.note_own_end(seed.key(), &value);
        }
        self.home.complete(seed, value, |key, value| self.extra(key, value, None))
    }

    fn extra(&self, key: &K, value: &V, time: Option<Duration>) -> Extra {
        let weight = self.weigher.as_ref().map_or(1, |weigh| weigh(key, value).max(1));
        let (mut expires, mut now) = (NEVER, 0);
        let idle = self.idle_each.as_ref().and_then(|idle| idle(key, value));
        let idle = idle.map(|own| self.idle.map_or(own, |all| own.min(Duration::from_nanos(all))));
        if self.is_timed {
            now = self.now();
            let own = self.expiry.as_ref().and_then(|time| time(key, value));
            let least = [time, own].into_iter().flatten().map(builder::nanos).chain(self.live);
            expires = least.min().map_or(NEVER, |least| now.saturating_add(least));
            if expires != NEVER || idle.is_some() {
                self.note_end();
            }
        }
        Extra::new(expires, now, weight, idle)
    }

    pub(crate) fn give_back(&self, capacity: i64) {
        if capacity > 0 {
            // ORDER: Relaxed; counts of capacity order nothing.
            self.pool.0.fetch_add(capacity, Ordering::Relaxed);
        }
    }

    /// Reserves `wanted` for an entry of this weight (segment.G1): from the pool, and then by
    /// evicting entries other than `kept`. `near` is as for `evict`. If that finds too little,
    /// because threads that are about to link have reserved everything, the pool goes below zero,
    /// and later updates pay it back.
    #[inline]
    pub(crate) fn reserve(
        &self,
        segment: &Segment<K, V>,
        near: Option<KeyHash>,
        (weight, wanted): (i64, i64),
        kept: Option<Found<K, V>>,
        section: &Section<'_>,
    ) {
        let mut held = Back { cache: self, capacity: 0 };
        held.capacity += segment.take_spare(wanted);
        if held.capacity < wanted {
            held.capacity += self.draw(segment, wanted - held.capacity);
            if let Some(budgeted) = self.budgeted.as_ref().filter(|_| held.capacity < wanted) {
                held.capacity += self.grow_within(budgeted, wanted - held.capacity);
            }
        }
        let looks = segment.may_have_heavy(weight) && held.capacity < wanted;
        if looks && Chance::draw().one_of(ONE_HEAVY_OF) == 0 {
            held.capacity += self.evict_heavy(segment, weight, section);
        }
        while held.capacity < wanted {
            match self.evict(segment, near, kept, section) {
                Some(weight) => held.capacity += weight,
                None => break,
            }
        }
        if held.capacity < wanted {
            self.reserve_elsewhere(&mut held.capacity, wanted, kept, section);
        }
        debug_assert!(
            wanted > 0 && held.capacity >= 0,
            "segment.G1: {} was reserved of {wanted}",
            held.capacity
        );
        let surplus = held.capacity - wanted;
        std::mem::forget(held);
        if surplus > wanted {
            // The segment may not need that much, while others evict.
            self.give_back(surplus);
        } else if surplus > 0 {
            segment.add_spare(surplus);
        } else if surplus < 0 {
            // ORDER: Relaxed; counts of capacity order nothing.
            self.pool.0.fetch_add(surplus, Ordering::Relaxed);
        }
    }

    /// Takes up to `wanted` from the pool for the caller. While the pool has much, the segment also
    /// gets spare capacity, because all segments write the pool's line.
    fn draw(&self, segment: &Segment<K, V>, wanted: i64) -> i64 {
        // ORDER: Relaxed; counts of capacity order nothing.
        let there = self.pool.0.load(Ordering::Relaxed);
        let share = there / (POOL_SHARE * self.segments.len() as i64);
        let more = if share < wanted { 0 } else { share.min(wanted.saturating_mul(AHEAD)) };
        let taken = take(&self.pool.0, wanted.saturating_add(more));
        if taken > wanted {
            segment.add_spare(taken - wanted);
        }
        debug_assert!(
            (0..=wanted.saturating_add(more)).contains(&taken),
            "segment.G1: {taken} is drawn from the pool"
        );
        taken.min(wanted)
    }

    /// Reserves capacity from all segments, after the caller's segment had too little.
    #[cold]
    fn reserve_elsewhere(
        &self,
        held: &mut i64,
        wanted: i64,
        kept: Option<Found<K, V>>,
        section: &Section<'_>,
    ) {
        for segment in &self.segments {
            *held += segment.take_spare(wanted - *held);
            while *held < wanted {
                match self.evict(segment, None, kept, section) {
                    Some(weight) => *held += weight,
                    None => break,
                }
            }
        }
    }

    /// Pays back the capacity that threads took beyond the limit.
    #[cold]
    pub(crate) fn settle(&self, segment: &Segment<K, V>, section: &Section<'_>) {
        // ORDER: Relaxed; counts of capacity order nothing.
        while self.pool.0.load(Ordering::Relaxed) < 0 {
            match self.evict(segment, None, None, section) {
                Some(weight) => self.give_back(weight),
                None => return, // a later update pays, elsewhere
            }
        }
    }

    /// Locks the key's chain in the present table.
    pub(crate) fn lock<'s>(&'s self, hash: KeyHash, section: &'s Section<'_>) -> Locked<'s, K, V> {
        loop {
            let table = self.segment(hash).table(section);
            if let Some(locked) = table.lock(table.bucket(hash)) {
                return locked;
            }
        }
    }

    /// Puts the node in if `accept` returns true for the key's entry. Returns the node, which the
    /// section keeps. If `accept` returns false, leaves the node to the caller and returns `None`.
    pub(crate) fn put(
        &self,
        hash: KeyHash,
        own: &mut Option<Fresh<K, V>>,
        section: &Section<'_>,
        asked: Asked,
        mut accept: impl FnMut(Option<Found<K, V>>) -> bool,
    ) -> Option<Found<K, V>> {
        let fresh = own.as_ref().expect("a node to put in");
        let weight = self.weight_of(fresh.address());
        let mut held = Back { cache: self, capacity: 0 };
        let mut compared = Compared::default();
        loop {
            let seen = self.find_comparing(hash, &fresh.get().key, &mut compared, section);
            let is_over = seen.is_some_and(|seen| self.is_expired(seen));
            if !accept(seen.filter(|_| !is_over)) {
                return None;
            }
            if weight > self.room() {
                let seen = seen.map(|seen| (seen, Cause::of_replaced(is_over)));
                return Some(self.reject(hash, own, weight, seen, section));
            }
            let old_weight = seen.map_or(0, |seen| self.weight_of(seen));
            let wanted = weight - old_weight - held.capacity;
            if wanted > 0 {
                self.reserve(self.segment(hash), Some(hash), (weight, wanted), seen, section);
                held.capacity += wanted;
            }
            let locked = self.lock(hash, section);
            let Some(target) = target(&locked, hash, seen, &compared) else { continue };
            let mut is_over = is_over;
            let is_accepted = asked == Asked::Before
                || self.under_lock(|| {
                    is_over = seen.is_some_and(|seen| self.is_expired(seen));
                    accept(seen.filter(|_| !is_over))
                });
            if !is_accepted {
                return None;
            }
            debug_assert!(
                held.capacity >= weight - old_weight,
                "segment.G1: a weight of {weight} replaces {old_weight}, {} is reserved",
                held.capacity
            );
            let was_pinned = self.link(&locked, hash, fresh, target, section);
            self.flights.note_change(hash, usize::from(asked == Asked::OfLoad));
            drop(locked);
            let node = own.take().expect("still there").publish();
            self.note_unpinned(was_pinned, old_weight);
            held.capacity -= weight - old_weight;
            drop(held); // a lighter value gives capacity back
            let cause = Cause::of_replaced(is_over);
            let old = seen.map(|node| Departed { node, weight: old_weight, cause });
            self.after_put(hash, old, section);
            return Some(node);
        }
    }

    /// Returns the key's node. Collects in `compared` the keys that have its tag and are not equal
    /// to it.
    fn find_comparing(
        &self,
        hash: KeyHash,
        key: &K,
        compared: &mut Compared,
        section: &Section<'_>,
    ) -> Option<Found<K, V>> {
        compared.clear();
        let compared = RefCell::new(compared);
        let table = self.segment(hash).table(section);
        let is_key = |own: &K| {
            let is_key = own == key;
            if !is_key {
                compared.borrow_mut().add(own);
            }
            is_key
        };
        table.bucket(hash).find(hash, is_key).map(|hit| hit.node)
    }

    /// Links the node at `target`; the caller notes the change. Returns true if it replaced a
    /// pinned entry.
    #[inline(always)]
    fn link(
        &self,
        locked: &Locked<'_, K, V>,
        hash: KeyHash,
        fresh: &Fresh<K, V>,
        target: Target<'_, K, V>,
        section: &Section<'_>,
    ) -> bool {
        match target {
            Target::Over(slot, seen) => {
                let was_pinned = locked.replace(slot, seen, fresh.address());
                debug_assert!(was_pinned.is_some(), "cache_table.T2: a locked link changed");
                let frequency = slot.frequency_now();
                if frequency < self.frequency_max {
                    slot.set_frequency(frequency + 1);
                }
                was_pinned == Some(true)
            }
            Target::New => {
                self.link_new(locked, self.segment(hash).table(section), hash, fresh);
                false
            }
        }
    }

    /// Links the node of a missing key; the caller notes the change.
    #[inline(always)]
    pub(crate) fn link_new(
        &self,
        locked: &Locked<'_, K, V>,
        table: &Table<K, V>,
        hash: KeyHash,
        fresh: &Fresh<K, V>,
    ) {
        locked.add_absent(table, hash, fresh.address());
        self.segment(hash).count_more();
    }

    /// Notes that a key that was to be removed is missing, or has expired: loads of it that began
    /// before are not put in. Returns true if such a load has been put in meanwhile.
    pub(crate) fn note_absence<Q>(&self, hash: KeyHash, key: &Q, section: &Section<'_>) -> bool
    where
        K: Borrow<Q>,
        Q: Eq + ?Sized,
    {
        if self.flights.are_any_now() {
            let _locked = self.lock(hash, section);
            self.flights.mark(hash);
        }
        // Also if there are no loads: the last load may have ended since the caller looked.
        self.find(hash, key, section).is_some_and(|node| !self.is_expired(node))
    }

    /// Finishes an update whose entry is linked, with no lock held.
    pub(crate) fn after_put(
        &self,
        hash: KeyHash,
        old: Option<Departed<K, V>>,
        section: &Section<'_>,
    ) {
        let segment = self.segment(hash);
        self.counts.note(Event::Insertion, section);
        match old {
            None => self.grow_if_full(segment, section),
            Some(old) => self.settle_departure(&old, section),
        }
        self.finish_insert::<false>(hash, section);
    }

    /// Does what an update does for others at its end: pays back capacity, and drops expired
    /// entries.
    #[inline(always)]
    pub(crate) fn finish_insert<const SIMPLE: bool>(&self, hash: KeyHash, section: &Section<'_>) {
        // ORDER: Relaxed; counts of capacity order nothing.
        if self.pool.0.load(Ordering::Relaxed) < 0 {
            self.settle(self.segment(hash), section);
        }
        // ORDER: Relaxed; see `note_end`.
        if !SIMPLE && self.is_timed && self.may_end.load(Ordering::Relaxed) {
            self.sweep_next(self.segment(hash), section);
        }
    }

    /// Drops the expired entries of a segment's next bucket.
    #[inline(never)]
    fn sweep_next(&self, segment: &Segment<K, V>, section: &Section<'_>) {
        let buckets = segment.table(section).buckets();
        let index = segment.next_bucket(buckets.len());
        self.sweep(segment, index, section);
        // Fetches what the next update will look at.
        if let Some(next) = buckets.get(index + 1) {
            next.slots().filter_map(Slot::node).for_each(|node| prefetch(node.as_ptr()));
        }
        if let Some(later) = buckets.get(index + 2) {
            prefetch(later);
        }
    }

    /// Returns the hash of a linked node, for another table.
    pub(crate) fn hash_under_lock(&self, node: &Node<K, V>) -> KeyHash {
        self.under_lock(|| self.hash(&node.key))
    }

    fn grow_if_full(&self, segment: &Segment<K, V>, section: &Section<'_>) {
        let buckets = segment.table(section).buckets().len();
        if segment.entries() > buckets * 7 {
            let more = |now: usize| (now < buckets * 2).then_some(buckets * 2);
            segment.resize(more, section, |node| self.hash_under_lock(node));
        }
    }

    /// Removes the key, and returns its entry.
    #[doc(alias = "delete")]
    #[doc(alias = "invalidate")]
    pub fn remove<Q>(&self, key: &Q) -> Option<Guard<'_, K, V>>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.remove_if(key, |_| true)
    }

    /// Removes the key if `accept` returns true for its entry, which is then returned.
    ///
    /// `accept` runs without a lock, and again if the entry was replaced in between.
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

    /// Inserts the value if `accept` returns true for the key's entry, or for `None` if the key is
    /// missing. Returns the version of the new entry.
    ///
    /// `accept` runs without a lock, and again if the key's entry was replaced in between.
    /// Interior mutability of an entry needs [`insert_locked_if`](Self::insert_locked_if).
    ///
    /// # Errors
    /// Returns the key and the value if they were not accepted.
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

    /// Replaces the key's value if its entry still has this version. Returns the new version.
    ///
    /// # Errors
    /// If the key is not there, or its entry has another version.
    ///
    /// # Panics
    /// If the cache is without metadata
    /// ([`Builder::without_metadata`](crate::Builder::without_metadata)), because it has no
    /// versions.
    ///
    /// ```
    /// let cache = manycore_cache::Cache::new(10);
    /// let first = cache.insert("a", 1);
    /// let second = cache.compare_and_swap("a", first, 2).unwrap();
    /// assert!(cache.compare_and_swap("a", first, 3).is_err());
    /// assert_eq!(cache.get("a").unwrap().version(), second);
    /// ```
    pub fn compare_and_swap(&self, key: K, version: u64, value: V) -> Result<u64, CasError<V>> {
        assert!(self.ends.is_none(), "manycore: a cache without metadata has no versions");
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
}
