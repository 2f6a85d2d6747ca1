//! Segments: the shards of the cache, and their eviction.
//!
//! Owns: the table of a segment, its hand, its part of the capacity. A segment holds the keys of
//! some hashes, and evicts among them alone, so that no thread waits for a global list: local
//! decisions instead of a global policy.
//!
//! Laws:
//! - cache.G1 Capacity is in one place: in the common pool, spare in a segment, reserved by a
//!   thread that is about to link, or used by linked entries. A link is made after a
//!   reservation, except when nothing is left to evict: then the pool goes below zero, and later
//!   updates pay it back. An entry that takes the place of another takes its capacity with it.
//! - cache.G2 No thread holds two buckets' locks, except one that replaces a table: it holds all
//!   locks of that table, and its queue's turn (cache.W3).
//! - cache.G3 The hands are hints: two evictors at one hand may visit a bucket twice.
//! - cache.G4 An eviction visits so many buckets at most, and then takes any entry.
//! - cache.G5 The reference byte is the whole state of an entry: zero is probation, and each use
//!   adds one. Room is made by an entry on probation, if one is found where it is looked for, and
//!   then by the hand. In a cache that doesn't weigh that is the bucket of the key that comes: so
//!   about one entry of a bucket is on probation, and the next that comes finds it. If it finds
//!   none, the entry of the bucket that was used least goes, and the others cool by the uses that
//!   it had left; but the hand makes room, and so the bucket grows at the cost of another one, if
//!   the key was evicted not long ago, or the bucket has fewer entries than others. (Without that,
//!   keys of a bucket would evict each other for ever where all would fit.) In a cache that weighs,
//!   where an eviction may be too little or too much, it is the bucket that the oldest record of a
//!   queue names, if more than a twentieth of the entries are on probation.
//! - cache.G6 In a cache that doesn't weigh, no entry that is used no more stays for ever,
//!   whichever keys come: of several that were used least a random one goes, and one in 128 of the
//!   entries that replace one on probation takes a use from each other entry of its bucket. (New
//!   keys that come in turns would else evict each other from the one place where the last is on
//!   probation, before any is used again. Any regular choice could meet the same keys each time.)
//!
//! Source: CLOCK in shards as in Wang, Stamler, Parmer, "Parallel Sections" (EuroSys 2016),
//! section 5.2; the scan-resistant policy after Yang et al., "FIFO queues are all you need for
//! cache eviction" (SOSP 2023), with a hand over the table in place of the main queue, and each
//! bucket in place of the small one, where entries do not weigh.

use crate::cause::Departed;
use crate::key_hash::KeyHash;
use crate::node::{Fresh, Kind, Node};
use crate::reentrancy;
use crate::single_flight::Panics;
use crate::table::{FREQUENCY_MAX, Locked, PROVED, Probation, Slot, Table, UNPROVED};
use manycore::section::{Section, Weight};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicPtr, AtomicUsize, Ordering};

/// Which entry goes when room is wanted.
///
/// ```
/// use manycore_cache::{Cache, Eviction};
///
/// // A report reads each of 10,000 keys once, while ten keys are in use all the time.
/// let survivors = |eviction| {
///     let cache = Cache::builder(500).eviction(eviction).build().unwrap();
///     let use_hot = || (0..10).for_each(|key| drop(cache.get_or_insert_with(key, || key)));
///     (0..10).for_each(|_| use_hot());
///     (1_000..11_000).for_each(|key| drop(cache.insert(key, key)));
///     (0..10).filter(|key| cache.get(key).is_some()).count()
/// };
/// assert!(survivors(Eviction::Clock) < 10); // swept out by the report
/// assert_eq!(survivors(Eviction::ScanResistant), 10);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
#[doc(alias = "LRU")]
#[doc(alias = "CLOCK")]
#[doc(alias = "admission")]
pub enum Eviction {
    /// A CLOCK in shards: an entry that was used since the hand came by stays for another round.
    /// The cheapest; a scan over many keys that are used once empties it.
    Clock,
    /// New entries are on probation until they are used, and are the first to go: each when the
    /// next one comes into its bucket, or, if the cache weighs, once a twentieth of the entries are
    /// on probation. An entry that was used is evicted by the CLOCK. A scan passes through
    /// probation and leaves the rest alone, up to some hundred times the capacity. Keys that were
    /// evicted from probation recently are remembered, and skip it. After S3-FIFO.
    #[default]
    ScanResistant,
}

/// Of how many entries one may be on probation, where there is a queue of them.
const PROBATION_SHARE: usize = 20;
/// Buckets that the main hand passes before it takes any entry: that bounds an update's time.
const PATIENCE: usize = 64;

impl Eviction {
    #[inline(always)]
    pub(crate) fn frequency_max(self) -> u8 {
        if self == Eviction::Clock { PROVED + 1 } else { FREQUENCY_MAX }
    }
}

/// The bucket at which a hand stands.
#[derive(Default)]
struct Hand(AtomicUsize);

impl Hand {
    #[inline(always)]
    fn bucket(&self, buckets: usize) -> usize {
        // ORDER: Relaxed; a hint (cache.G3). The table may be another than when it was set.
        let at = self.0.load(Ordering::Relaxed);
        if at < buckets { at } else { 0 }
    }

    #[inline(always)]
    fn set(&self, bucket: usize) {
        // ORDER: Relaxed; a hint (cache.G3).
        self.0.store(bucket, Ordering::Relaxed);
    }
}

#[repr(align(128))]
pub(crate) struct Segment<K, V> {
    /// Read by all threads, written when the table is replaced.
    table: AtomicPtr<Table<K, V>>,
    /// Of the nodes in it.
    kind: Kind,
    changing: Changing,
}

/// What updates write.
#[repr(align(128))]
struct Changing {
    entries: AtomicUsize,
    /// Capacity that was made free here and is not used yet.
    spare: AtomicI64,
    main: Hand,
    broom: Hand,
    resizing: AtomicBool,
}

impl<K, V> Segment<K, V> {
    pub(crate) fn new(table: Table<K, V>, kind: Kind) -> Self {
        Self {
            table: AtomicPtr::new(Box::into_raw(Box::new(table))),
            kind,
            changing: Changing {
                entries: AtomicUsize::new(0),
                spare: AtomicI64::new(0),
                main: Hand::default(),
                broom: Hand::default(),
                resizing: AtomicBool::new(false),
            },
        }
    }

    /// The table. A replaced one is kept by the section.
    #[inline(always)]
    pub(crate) fn table<'s>(&'s self, _section: &'s Section<'_>) -> &'s Table<K, V> {
        // ORDER: Acquire; pairs with Release in `resize`: the table before its link.
        // SAFETY: never null; replaced tables are retired through the section's domain.
        unsafe { &*self.table.load(Ordering::Acquire) }
    }

    pub(crate) fn entries(&self) -> usize {
        // ORDER: Relaxed; a count.
        self.changing.entries.load(Ordering::Relaxed)
    }

    pub(crate) fn spare(&self) -> i64 {
        // ORDER: Relaxed; a count.
        self.changing.spare.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn count_more(&self) {
        // ORDER: Relaxed; a count.
        self.changing.entries.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_less(&self, entries: usize) {
        // ORDER: Relaxed; a count.
        let before = self.changing.entries.fetch_sub(entries, Ordering::Relaxed);
        debug_assert!(entries <= before, "cache.N1: {entries} entries leave a segment of {before}");
    }

    /// Takes up to so much of the spare capacity.
    pub(crate) fn take_spare(&self, wanted: i64) -> i64 {
        take(&self.changing.spare, wanted)
    }

    pub(crate) fn add_spare(&self, capacity: i64) {
        debug_assert!(capacity >= 0, "cache.G1: {capacity} of capacity become spare");
        // ORDER: Relaxed; a count.
        self.changing.spare.fetch_add(capacity, Ordering::Relaxed);
    }

    /// Unlinks the entry that is worth the least (cache.G5); the caller counts it and retires it.
    /// `None` if nothing was found. The room is for a key of the hash `near`, if there is one.
    /// `kept` stays: the update that makes room is about it.
    /// `depart` says with which weight and cause. It runs user code, with no lock held, before the
    /// entry is unlinked, so that nothing is lost if it panics.
    pub(crate) fn evict(
        &self,
        near: Option<KeyHash>,
        kept: Option<NonNull<Node<K, V>>>,
        section: &Section<'_>,
        depart: impl Fn(NonNull<Node<K, V>>) -> Departed<K, V>,
    ) -> Option<Departed<K, V>> {
        let queue = || self.table(section).probation();
        if queue().has_room() {
            while queue().len() > (self.entries() / PROBATION_SHARE).max(1) {
                let Some(record) = queue().pop() else { break };
                if let Some(departed) = self.evict_unproved(record, kept, section, &depart) {
                    return Some(departed);
                }
            }
        } else if let Some(departed) =
            near.and_then(|near| self.evict_unproved(near.upper(), kept, section, &depart))
        {
            return Some(departed);
        }
        self.sweep(kept, section, &depart)
    }

    /// Unlinks an entry on probation, if there is one, from the bucket that the upper half of a
    /// hash chooses.
    fn evict_unproved(
        &self,
        upper: u32,
        kept: Option<NonNull<Node<K, V>>>,
        section: &Section<'_>,
        depart: &impl Fn(NonNull<Node<K, V>>) -> Departed<K, V>,
    ) -> Option<Departed<K, V>> {
        let table = self.table(section);
        let index = table.index_of(upper);
        let bucket = &table.buckets()[index];
        let least =
            bucket.least_used(UNPROVED, kept).filter(|least| least.frequency == UNPROVED)?;
        let (slot, node) = (least.slot, least.node);
        let departed = depart(node);
        let locked = table.lock(bucket)?;
        if slot.node() != Some(node) || slot.frequency_now() != UNPROVED {
            return None; // it has gone, or was used
        }
        table.remember(index, slot);
        locked.clear(slot);
        if !table.probation().has_room() {
            locked.age_at_times(least.chance); // else the hand would pass by what no record names
        }
        Some(departed)
    }

    /// Turns the hand until an entry goes: of each bucket that it passes the one that was used
    /// least, if that has no uses left; if it has, all of the bucket cool by one, which needs no
    /// lock (cache.T3). Where there is probation it moves on from the bucket even so: those that
    /// are left there have been used since others were not.
    fn sweep(
        &self,
        kept: Option<NonNull<Node<K, V>>>,
        section: &Section<'_>,
        depart: &impl Fn(NonNull<Node<K, V>>) -> Departed<K, V>,
    ) -> Option<Departed<K, V>> {
        let table = self.table(section);
        let buckets = table.buckets();
        let mut index = self.changing.main.bucket(buckets.len());
        // Those on probation are the queue's, if there is one.
        let has_queue = table.probation().has_room();
        let has_probation = table.kind_of_probation() != Probation::None;
        // cache.G4: after PATIENCE buckets any entry goes, so a full turn finds one if there is
        // one.
        for step in 0..=PATIENCE + buckets.len() {
            let (at, bucket) = (index, &buckets[index]);
            index = if index + 1 == buckets.len() { 0 } else { index + 1 };
            crate::prefetch::prefetch(&buckets[index]);
            let least = if has_queue && step < PATIENCE { PROVED } else { UNPROVED };
            let Some(found) = bucket.least_used(least, kept) else { continue };
            let (slot, node) = (found.slot, found.node);
            if step < PATIENCE && found.frequency > PROVED {
                bucket.cool(1);
                continue;
            }
            let departed = depart(node);
            let Some(locked) = table.lock(bucket) else {
                return self.sweep(kept, section, depart);
            };
            if slot.node() != Some(node) {
                continue; // it has gone by itself
            }
            table.remember(at, slot);
            locked.clear(slot);
            self.changing.main.set(if has_probation { index } else { at });
            return Some(departed);
        }
        self.changing.main.set(index);
        None
    }

    /// Calls `look` with the bucket after the one of last time.
    pub(crate) fn next_bucket(&self, buckets: usize) -> usize {
        let index = self.changing.broom.bucket(buckets);
        self.changing.broom.set(index + 1);
        index
    }

    /// Replaces the table by one of as many buckets as `wanted` says of the present number, unless
    /// another thread replaces it (cache.T4, cache.G2), or this one holds a lock already (law
    /// cache.U2).
    pub(crate) fn resize(
        &self,
        wanted: impl FnOnce(usize) -> Option<usize>,
        section: &Section<'_>,
        hash_of: impl Fn(&Node<K, V>) -> KeyHash,
    ) where
        K: Send + Sync,
        V: Send + Sync,
    {
        unsafe fn free<K, V>(table: NonNull<()>) {
            // SAFETY: made by `Box::into_raw`, retired once.
            drop(unsafe { Box::from_raw(table.cast::<Table<K, V>>().as_ptr()) });
        }
        if reentrancy::is_under_lock() {
            return;
        }
        // ORDER: Acquire and Release; the next one to resize sees the table of the last.
        if self.changing.resizing.swap(true, Ordering::Acquire) {
            return;
        }
        let _resized = Resized(&self.changing.resizing);
        let old = self.table(section);
        let Some(buckets) = wanted(old.buckets().len()) else { return };
        let next = Box::new(Table::new(buckets, old.kind_of_probation()));
        let turn = old.turn();
        let locks = old.lock_all(&turn).expect("only the thread that resizes replaces the table");
        debug_assert!(
            std::ptr::eq(old, self.table(section)) && locks.len() == old.buckets().len(),
            "cache.T4: a table is replaced without all its locks"
        );
        next.take_over(&locks, hash_of);
        next.probation().take_over(old.probation());
        // ORDER: Release; pairs with Acquire in `table`.
        self.table.store(Box::into_raw(next), Ordering::Release);
        locks.into_iter().for_each(Locked::retire);
        drop(turn); // destructors may run below
        // Tables are large and rare, so each goes as soon as it may.
        let bytes = Weight::exact(old.bytes()).urgent();
        // SAFETY: unlinked just now by the only thread that may; what it leads to stays linked.
        unsafe { section.retire_raw(NonNull::from(old).cast(), bytes, free::<K, V>) };
    }
}

/// The resize is over, also if a hash panicked.
struct Resized<'a>(&'a AtomicBool);

impl Drop for Resized<'_> {
    fn drop(&mut self) {
        debug_assert!(self.0.load(Ordering::Relaxed), "cache.G2: two threads replace a table");
        self.0.store(false, Ordering::Release);
    }
}

/// Takes up to so much from a count that may be below zero.
pub(crate) fn take(from: &AtomicI64, wanted: i64) -> i64 {
    // ORDER: Relaxed; counts of capacity, which order nothing.
    let mut there = from.load(Ordering::Relaxed);
    loop {
        let taken = wanted.min(there);
        if taken <= 0 {
            return 0;
        }
        let left = there - taken;
        debug_assert!(left >= 0 && taken <= wanted, "cache.G1: more taken than there is");
        match from.compare_exchange_weak(there, left, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => return taken,
            Err(now) => there = now,
        }
    }
}

impl<K, V> Drop for Segment<K, V> {
    fn drop(&mut self) {
        // SAFETY: made by `Box::into_raw`, and `&mut self`: no other thread has it.
        let table = unsafe { Box::from_raw(*self.table.get_mut()) };
        let mut panics = Panics::default();
        let mut linked = 0;
        for node in table.buckets().iter().flat_map(|bucket| bucket.slots()).filter_map(Slot::node)
        {
            linked += 1;
            // SAFETY: linked, so not retired, and no other thread sees it any more.
            panics.catch(|| drop(unsafe { Fresh::adopt(node, self.kind) }));
        }
        debug_assert!(
            linked == *self.changing.entries.get_mut() || std::thread::panicking(),
            "cache.N1: the entries that were counted are not those that are linked"
        );
        drop(table);
        panics.resume();
    }
}
