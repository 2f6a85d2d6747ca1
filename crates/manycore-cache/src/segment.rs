//! Segments: the shards of the cache, and their eviction. A segment holds the keys of some hashes,
//! and evicts among them alone, so that no thread waits for a global list.
//!
//! Owns: the table of a segment, its hands, and its part of the capacity.
//!
//! ```text
//!       new ---> probation ---(oldest, if the queue is long)---> out
//!        |           | used                                       | remembered by the ghosts,
//!        |           v                                            | comes back: proved
//!        +-----> proved <----------------------------------------+
//!      first,        ^  | hand: cools
//!      1 of 128      +--+--(no uses left)---> out
//! ```
//!
//! Laws:
//! - segment.G1 Capacity is in one place: in the common pool, spare in a segment, reserved by a
//!   thread that is about to link, or used by linked entries. A thread reserves capacity before it
//!   links. There is one exception: if nothing is left to evict, the pool goes below zero, and
//!   later updates pay it back. An entry that takes the place of another takes over its capacity.
//! - segment.G2 No thread holds the locks of two buckets, except a thread that replaces a table: it
//!   holds all locks of that table, and the turn of its queue (bucket_lock.W3).
//! - segment.G3 The hands are hints: two evictors at one hand may visit a bucket twice.
//! - segment.G4 An eviction visits a bounded number of buckets. After that it takes any entry that
//!   is not pinned.
//! - segment.G5 The reference byte is the whole state of an entry: zero means probation, and each
//!   use adds one. A new entry is on probation, and has a record in the queue of its segment. A new
//!   entry counts as proved at once in four cases: nothing was evicted yet, the ghosts know its key
//!   from probation, the queue has no room, or chance says so (segment.G6). The entry of the oldest
//!   record makes room if the queue is longer than its target (probation.Q3); otherwise the hand
//!   finds an entry. But if the chain of the new key has no free place, that chain makes the room.
//!   It gives an entry on probation if the queue is too long, an entry with no uses left if it is
//!   the hand's turn, and any entry if the table has no spare lines.
//! - segment.G6 An entry that is not used any more is evicted sooner or later, whichever keys come.
//!   Of several entries that were used least, a random one goes. One in 128 new entries counts as
//!   proved at once, so that the hand moves on. (Otherwise, new keys that come in turns would evict
//!   each other from probation before any of them is used again. Any regular choice could meet the
//!   same keys each time.)
//! - segment.G7 Unused heavy entries make room for lighter ones. An entry is heavy if it weighs
//!   more than four times as much as the new entry. A second hand looks for heavy entries that have
//!   proved themselves: by one bucket for every second insertion that has to evict, on average and
//!   at random. A heavy entry that it finds loses a use; if it has no uses left, it goes.
//!   (Probation gives a new entry the room of another new entry, and the main hand rests meanwhile.
//!   So without this law, a few large entries that nobody uses would keep the room of thousands.)
//!   In a segment whose entries have never differed that much in weight, the second hand rests.
//!
//! Source: CLOCK in shards as in Wang, Stamler, Parmer, "Parallel Sections" (EuroSys 2016), section
//! 5.2. The scan-resistant policy follows Yang et al., "FIFO queues are all you need for cache
//! eviction" (SOSP 2023), with a hand over the table in place of the main queue. The share of
//! probation adapts to the keys that come back, as in Megiddo and Modha, "ARC" (FAST 2003). The
//! chance of a new entry follows BIP in Qureshi et al., "Adaptive insertion policies" (ISCA 2007).

use crate::cause::Departed;
use crate::key_hash::KeyHash;
use crate::node::{Fresh, Kind, Node};
use crate::reentrancy;
use crate::single_flight::Panics;
use crate::table::{Bucket, FREQUENCY_MAX, Locked, ON_PROBATION, PROTECTED, Slot, Table};
use manycore::section::{Section, Weight};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicPtr, AtomicUsize, Ordering};

/// The policy that chooses the entry to evict.
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
    /// A CLOCK in shards: an entry that was used since the hand last passed stays for another
    /// round. This is the cheapest policy. A scan over many keys that are used once empties the
    /// cache.
    Clock,
    /// A CLOCK with probation, after S3-FIFO and ARC. New entries are on probation until they are
    /// used. They are the first to go while they are more than a share of the cache. This share is
    /// between a hundredth and a quarter, and adapts to the keys that are looked up again. The
    /// CLOCK evicts entries that were used. A scan passes through probation and leaves the other
    /// entries alone, up to some hundred times the capacity. Keys that were evicted from probation
    /// recently are remembered, and skip it.
    #[default]
    ScanResistant,
}

/// An entry is heavy for a new entry if it weighs more than this many times as much (segment.G7).
pub(crate) const HEAVY: i64 = 4;

/// Buckets that the main hand passes before it takes any entry. This bounds the time of an update.
const PATIENCE: usize = 64;

impl Eviction {
    #[inline(always)]
    pub(crate) fn frequency_max(self) -> u8 {
        if self == Eviction::Clock { PROTECTED + 1 } else { FREQUENCY_MAX }
    }
}

/// The bucket at which a hand stands.
#[derive(Default)]
struct Hand(AtomicUsize);

impl Hand {
    #[inline(always)]
    fn bucket(&self, buckets: usize) -> usize {
        // ORDER: Relaxed; a hint (segment.G3). The table may have been replaced since it was set.
        let at = self.0.load(Ordering::Relaxed);
        if at < buckets { at } else { 0 }
    }

    #[inline(always)]
    fn set(&self, bucket: usize) {
        // ORDER: Relaxed; a hint (segment.G3).
        self.0.store(bucket, Ordering::Relaxed);
    }
}

#[repr(align(128))]
pub(crate) struct Segment<K, V> {
    /// Read by all threads, and written when the table is replaced.
    table: AtomicPtr<Table<K, V>>,
    /// The kind of the nodes.
    kind: Kind,
    changing: Changing,
}

/// The part of a segment that updates write.
#[repr(align(128))]
struct Changing {
    entries: AtomicUsize,
    /// Capacity that was freed here and is not used yet.
    spare: AtomicI64,
    main: Hand,
    heavy_hand: Hand,
    /// The weight of the heaviest entry that capacity was reserved for (segment.G7).
    heaviest: AtomicI64,
    expiry_hand: Hand,
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
                heavy_hand: Hand::default(),
                heaviest: AtomicI64::new(0),
                expiry_hand: Hand::default(),
                resizing: AtomicBool::new(false),
            },
        }
    }

    /// Returns the table. The section keeps the table, also if it is replaced.
    #[inline(always)]
    pub(crate) fn table<'s>(&'s self, _section: &'s Section<'_>) -> &'s Table<K, V> {
        // ORDER: Acquire; pairs with Release in `resize`: the table is written before its link.
        // SAFETY: the pointer is never null, and replaced tables are retired through the section's
        // domain.
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
        debug_assert!(entries <= before, "node.N1: {entries} entries leave a segment of {before}");
    }

    /// Takes up to `wanted` of the spare capacity.
    pub(crate) fn take_spare(&self, wanted: i64) -> i64 {
        take(&self.changing.spare, wanted)
    }

    pub(crate) fn add_spare(&self, capacity: i64) {
        debug_assert!(capacity >= 0, "segment.G1: a spare capacity of {capacity}");
        // ORDER: Relaxed; a count.
        self.changing.spare.fetch_add(capacity, Ordering::Relaxed);
    }

    /// Unlinks the entry that is worth the least (segment.G5). The caller counts it and retires it.
    /// Returns `None` if no entry was found. The room is for a key of the bucket `near`, if there
    /// is one. `kept` stays, because the update that needs room is about it. The table is this
    /// segment's, or was a moment ago.
    ///
    /// `depart` returns what is to be known of the entry, such as its weight. It runs user code,
    /// with no lock held, before the entry is unlinked, so that nothing is lost if it panics.
    #[inline(never)]
    pub(crate) fn evict<D>(
        &self,
        table: &Table<K, V>,
        near: Option<&Bucket<K, V>>,
        kept: Option<NonNull<Node<K, V>>>,
        section: &Section<'_>,
        depart: impl Fn(NonNull<Node<K, V>>) -> D,
    ) -> Option<D> {
        let queue = table.probation();
        if !queue.has_room() {
            return self.sweep(kept, section, &depart);
        }
        if let Some(own) = near.filter(|own| !own.has_free()) {
            let departed = self.evict_from_full(table, own, kept, &depart);
            if departed.is_some() {
                return departed;
            }
        }
        let Some(record) = queue.pop_if_long() else { return self.sweep(kept, section, &depart) };
        let bucket = table.bucket_of(record);
        let departed = self.evict_used_less(table, bucket, ON_PROBATION, kept, &depart);
        if departed.is_some() {
            departed
        } else {
            self.evict_by_next(table, kept, section, &depart)
        }
    }

    /// As `evict`, after the entry of a record was gone.
    #[cold]
    fn evict_by_next<D>(
        &self,
        table: &Table<K, V>,
        kept: Option<NonNull<Node<K, V>>>,
        section: &Section<'_>,
        depart: &impl Fn(NonNull<Node<K, V>>) -> D,
    ) -> Option<D> {
        while let Some(record) = table.probation().pop_if_long() {
            let bucket = table.bucket_of(record);
            let departed = self.evict_used_less(table, bucket, ON_PROBATION, kept, depart);
            if departed.is_some() {
                return departed;
            }
        }
        self.sweep(kept, section, depart)
    }

    /// Unlinks an entry of a full chain, for a key that is to be linked there (segment.G5).
    #[cold]
    fn evict_from_full<D>(
        &self,
        table: &Table<K, V>,
        own: &Bucket<K, V>,
        kept: Option<NonNull<Node<K, V>>>,
        depart: &impl Fn(NonNull<Node<K, V>>) -> D,
    ) -> Option<D> {
        let most = match table.probation().is_long() {
            _ if !table.lines().has_spare() => FREQUENCY_MAX,
            true => ON_PROBATION,
            false => PROTECTED,
        };
        self.evict_used_less(table, own, most, kept, depart)
    }

    /// Unlinks the least used entry of a bucket, unless its reference byte is above `most`.
    #[inline(always)]
    fn evict_used_less<D>(
        &self,
        table: &Table<K, V>,
        bucket: &Bucket<K, V>,
        most: u8,
        kept: Option<NonNull<Node<K, V>>>,
        depart: &impl Fn(NonNull<Node<K, V>>) -> D,
    ) -> Option<D> {
        let least = bucket.least_used(ON_PROBATION..=most, kept)?;
        let departed = depart(least.node());
        let goes = match Table::try_lock(bucket) {
            Some(locked) => table.evict(&locked, least.slot, least.link, most),
            None => Self::evict_in_line(table, bucket, (least.slot, least.link), most),
        };
        goes.then_some(departed)
    }

    /// Records that an entry of this weight comes. Returns true if a heavy entry may be here
    /// (segment.G7).
    #[inline]
    pub(crate) fn may_have_heavy(&self, weight: i64) -> bool {
        // ORDER: Relaxed; a hint. Of two threads that record a weight at once, one may lose it.
        let heaviest = self.changing.heaviest.load(Ordering::Relaxed);
        if weight > heaviest {
            self.changing.heaviest.store(weight, Ordering::Relaxed);
        }
        heaviest / HEAVY > weight
    }

    /// Turns the heavy hand by one bucket, and looks there for heavy entries that have proved
    /// themselves (segment.G7). If such an entry has uses left, it loses one; otherwise it is
    /// unlinked. `depart` is as for `evict`; `is_heavy` runs with no lock held, too.
    ///
    /// An entry that is being replaced is never heavy for the new one: replacing it needs room only
    /// if the new entry is heavier.
    pub(crate) fn evict_heavy(
        &self,
        section: &Section<'_>,
        is_heavy: impl Fn(NonNull<Node<K, V>>) -> bool,
        depart: impl Fn(NonNull<Node<K, V>>) -> Departed<K, V>,
    ) -> Option<Departed<K, V>> {
        let table = self.table(section);
        if !table.probation().has_room() {
            return None; // the main hand chooses already, whatever entries weigh
        }
        let at = self.changing.heavy_hand.bucket(table.buckets().len());
        self.changing.heavy_hand.set(at + 1);
        let bucket = &table.buckets()[at];
        for slot in bucket.slots() {
            let Some(entry) = slot.to_evict() else { continue };
            if entry.frequency < PROTECTED || !is_heavy(entry.node()) {
                continue;
            }
            if entry.frequency > PROTECTED {
                slot.set_frequency(entry.frequency - 1); // cache_table.T3
                continue;
            }
            let departed = depart(entry.node());
            if Self::evict_in_line(table, bucket, (slot, entry.link), PROTECTED) {
                return Some(departed);
            }
        }
        None
    }

    /// As `Table::evict`, but waits for the lock.
    #[cold]
    fn evict_in_line(
        table: &Table<K, V>,
        bucket: &Bucket<K, V>,
        (slot, link): (Slot<'_, K, V>, *mut Node<K, V>),
        most: u8,
    ) -> bool {
        table.lock(bucket).is_some_and(|locked| table.evict(&locked, slot, link, most))
    }

    /// Turns the hand until an entry goes. From each bucket that it passes, the hand takes the
    /// least used entry, if that has no uses left. If it has, all entries of the bucket cool by
    /// one, which needs no lock (cache_table.T3). In a table with probation, the hand moves on even
    /// after it has taken an entry: the entries that are left in the bucket have been used since
    /// others were not.
    #[inline(never)]
    fn sweep<D>(
        &self,
        kept: Option<NonNull<Node<K, V>>>,
        section: &Section<'_>,
        depart: &impl Fn(NonNull<Node<K, V>>) -> D,
    ) -> Option<D> {
        let table = self.table(section);
        let buckets = table.buckets();
        let mut index = self.changing.main.bucket(buckets.len());
        // Entries on probation are left to the queue.
        let has_probation = table.probation().has_room();
        // segment.G4: after PATIENCE buckets any entry goes, so a full turn finds an entry if there
        // is one.
        for step in 0..=PATIENCE + buckets.len() {
            let (at, bucket) = (index, &buckets[index]);
            index = if index + 1 == buckets.len() { 0 } else { index + 1 };
            crate::prefetch::prefetch(&buckets[index]);
            let least = if has_probation && step < PATIENCE { PROTECTED } else { ON_PROBATION };
            let Some(found) = bucket.least_used(least..=FREQUENCY_MAX, kept) else { continue };
            if step < PATIENCE && found.frequency > PROTECTED {
                bucket.cool();
                continue;
            }
            let departed = depart(found.node());
            let Some(locked) = table.lock(bucket) else {
                return self.sweep(kept, section, depart);
            };
            if !table.evict(&locked, found.slot, found.link, FREQUENCY_MAX) {
                continue; // it has left meanwhile, or is pinned
            }
            self.changing.main.set(if has_probation { index } else { at });
            return Some(departed);
        }
        self.changing.main.set(index);
        None
    }

    /// Returns the bucket after that of the last call.
    pub(crate) fn next_bucket(&self, buckets: usize) -> usize {
        let index = self.changing.expiry_hand.bucket(buckets);
        self.changing.expiry_hand.set(index + 1);
        index
    }

    /// Replaces the table by a table of `wanted(n)` buckets, if the present table has `n`. Does
    /// nothing if `wanted` returns `None`, if another thread replaces the table (cache_table.T4,
    /// segment.G2), or if this thread holds a lock already (law reentrancy.U2).
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
            // SAFETY: `Box::into_raw` made the table, and it is retired once.
            drop(unsafe { Box::from_raw(table.cast::<Table<K, V>>().as_ptr()) });
        }
        if reentrancy::is_under_lock() {
            return;
        }
        // ORDER: Acquire here and Release at the end: the next thread to resize sees the last
        // table.
        if self.changing.resizing.swap(true, Ordering::Acquire) {
            return;
        }
        let _resized = Resized(&self.changing.resizing);
        let old = self.table(section);
        let Some(buckets) = wanted(old.buckets().len()) else { return };
        let next = Box::new(Table::new(buckets, old.probation().has_room()));
        let turn = old.turn();
        let locks = old.lock_all(&turn).expect("only the thread that resizes replaces the table");
        debug_assert!(
            std::ptr::eq(old, self.table(section)) && locks.len() == old.buckets().len(),
            "cache_table.T4: a table is replaced without all its locks"
        );
        next.take_over(&locks, hash_of);
        next.probation().take_over(old.probation());
        // ORDER: Release; pairs with Acquire in `table`.
        self.table.store(Box::into_raw(next), Ordering::Release);
        locks.into_iter().for_each(Locked::retire);
        drop(turn); // destructors may run below
        // Tables are large and rare, so each is freed as soon as possible.
        let bytes = Weight::exact(old.bytes()).urgent();
        // SAFETY: this thread has just unlinked the table, which no other thread may do. The nodes
        // of the table stay linked.
        unsafe { section.retire_raw(NonNull::from(old).cast(), bytes, free::<K, V>) };
    }
}

/// Ends the resize when it is dropped, also if a hash panicked.
struct Resized<'a>(&'a AtomicBool);

impl Drop for Resized<'_> {
    fn drop(&mut self) {
        debug_assert!(self.0.load(Ordering::Relaxed), "segment.G2: two threads replace a table");
        self.0.store(false, Ordering::Release);
    }
}

/// Takes up to `wanted` from a count that may be below zero. Returns how much it took.
pub(crate) fn take(from: &AtomicI64, wanted: i64) -> i64 {
    // ORDER: Relaxed; counts of capacity, which order nothing.
    let mut there = from.load(Ordering::Relaxed);
    loop {
        let taken = wanted.min(there);
        if taken <= 0 {
            return 0;
        }
        let left = there - taken;
        debug_assert!(left >= 0 && taken <= wanted, "segment.G1: more taken than there is");
        match from.compare_exchange_weak(there, left, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => return taken,
            Err(now) => there = now,
        }
    }
}

impl<K, V> Drop for Segment<K, V> {
    fn drop(&mut self) {
        // SAFETY: `Box::into_raw` made the table, and `&mut self` proves that no other thread has
        // it.
        let table = unsafe { Box::from_raw(*self.table.get_mut()) };
        let mut panics = Panics::default();
        let mut linked = 0;
        for node in table.buckets().iter().flat_map(|bucket| bucket.slots()).filter_map(Slot::node)
        {
            linked += 1;
            // SAFETY: the node is linked, so it is not retired, and no other thread sees it any
            // more.
            panics.catch(|| drop(unsafe { Fresh::adopt(node, self.kind) }));
        }
        debug_assert!(
            linked == *self.changing.entries.get_mut() || std::thread::panicking(),
            "node.N1: the entries that were counted are not those that are linked"
        );
        drop(table);
        panics.resume();
    }
}

#[cfg(all(test, not(manycore_loom)))]
mod tests;
