//! A concurrent cache: reads take no lock, updates lock one bucket, and the capacity is a hard
//! bound.
//!
//! ```
//! use manycore_cache::Cache;
//!
//! let cache: Cache<String, Vec<u8>> = Cache::new(10_000); // entries
//! cache.insert("a".into(), vec![1, 2, 3]);
//! assert_eq!(cache.get("a").as_deref(), Some(&vec![1, 2, 3]));
//!
//! // One thread loads; others that want the key wait for it (single flight).
//! let page = cache.get_or_insert_with("b".into(), || vec![4, 5]);
//! assert_eq!(page.len(), 2);
//! ```
//!
//! Use it for values that are expensive to compute or to fetch and that many threads look up. The
//! cache is bounded, and evicts. Do not use it for entries that must never be evicted (use
//! [`HashMap`](manycore::collections::HashMap)), or for a single thread.
//!
//! # Which settings?
//!
//! [`Cache::builder`] sets them. The page of [`Builder`] shows each setting in use.
//!
//! | You want | Use |
//! |---|---|
//! | entries that expire | [time_to_live](Builder::time_to_live), [time_to_idle](Builder::time_to_idle), or [expire_after](Builder::expire_after) for a time of each entry's own |
//! | a bound in bytes | [byte_weigher](Builder::byte_weigher) |
//! | failed and empty loads remembered for a while | [error_time_to_live](Builder::error_time_to_live), [missing_time_to_live](Builder::missing_time_to_live) |
//! | values loaded again before they expire | [refresh_ahead](Builder::refresh_ahead) |
//! | a callback for entries that leave | [listener](Builder::listener) |
//! | counts of hits and misses | [count_reads](Builder::count_reads) |
//!
//! Keep the default eviction, [`Eviction::ScanResistant`], unless you have measured that
//! [`Eviction::Clock`] suits you as well. `manycore-bench bench kv` shows the hit ratios of both
//! beside those of other caches.
//!
//! # What is guaranteed
//!
//! - *Consistency*: operations on one key are linearizable. An eviction or an expiration counts as
//!   a removal at some moment. `len`, `weight`, `iter` and `stats` are not snapshots.
//! - *The bound*: an insertion makes room before it links its entry. The entries never exceed the
//!   capacity, with one exception: a thread that is inserting, and found all capacity reserved by
//!   others, may exceed it by its one entry. Entries that have left the cache are garbage until
//!   their grace period is over: see [memory](#memory).
//! - *Expired values* are never returned. They are dropped lazily: by a read that finds one, by
//!   each update, which sweeps one more bucket of its segment, by [`Cache::purge`], and by
//!   eviction. So after as many updates of a segment as it has buckets (a fifth to a sixth of its
//!   entries), nothing expired is left there. There are no helper threads: without calls, nothing
//!   happens. If that matters, call [`Cache::purge`] from a timer of your own.
//! - *Progress*: reads are lock-free. An update locks one bucket at a time, for some tens of
//!   nanoseconds. Your code runs under that lock only in the closures that say so, and in `Hash`
//!   while a table grows.
//! - *Cost*: a read hashes the key, and reads the lines of the bucket and of the entry. It writes
//!   only the reference byte (the access *frequency*) of an entry that is not hot yet, and, with a
//!   time to idle, the time of the use. An update builds its node in the memory of a node that its
//!   thread retired before, or in memory from the thread's own slab.
//! - *Memory*: an entry takes its key, its value and 8 bytes, or 32 bytes if the cache weighs or
//!   expires. The table takes some 16 bytes for each entry, and 22 if it has just grown. A million
//!   entries with keys of 16 bytes and values of 32 take 72 bytes each. [`Cache::footprint`]
//!   reports it. A key and a value, headers included, take at most 64 KiB: box larger ones.
//! - *Panics* in your code (keys, values, closures, wakers) reach the caller. A panic before the
//!   entry is linked leaves the key as it was. After a later panic the update has happened, and the
//!   entries that it removed are still counted, reported and freed. No lock stays held. A cache can
//!   be used after [`catch_unwind`](std::panic::catch_unwind).
//! - *Inconsistent callbacks*: keys with inconsistent `Hash`, `Eq` or `Borrow`, and weighers and
//!   clocks that contradict themselves, get wrong answers, and nothing worse. An entry keeps the
//!   weight that it had when it was inserted. But a cache [without
//!   metadata](Builder::without_metadata) keeps no weights: there, a weigher that contradicts
//!   itself makes the total weight, and with it the bound, wrong for good.
//!
//! # Memory
//!
//! In total: *entries x (key + value + 8 or 32 bytes, and what they own) + 22 bytes x entries of
//! table + garbage + 4 KiB + some 64 KiB for each thread that updates*. Node memory that was
//! allocated at the peak of garbage is kept for reuse ([`Footprint::free`]); what the nodes own is
//! freed.
//!
//! A small cache (built for at most 1,024 entries, without a weigher) does not take 64 KiB for each
//! thread, because small caches share the memory of their nodes. Blocks there are multiples of 16
//! bytes; from 128 bytes on, their sizes grow in steps of at most a quarter. So a cache for 100
//! entries, with keys and values of 8 bytes, takes 4.1 KiB with one entry and 10 KiB with a
//! hundred. That holds for one thread; each further thread adds some 600 bytes.
//!
//! Garbage is every entry that was evicted, removed or replaced and is not freed yet. All threads
//! together have a budget for it: an eighth of the capacity (in bytes) that the cache was built
//! with, but at least half a megabyte and at most 32 MiB. Garbage stays within twice the budget,
//! plus some entries for each updating thread; [`Domain`] has the formula. A stalled section can
//! make garbage exceed that: a [`Guard`] that is held, or a thread that was preempted within a
//! call. Then backpressure applies: each update waits at its end for at most 200 us, which lets a
//! preempted thread run. While a guard is held for long, garbage goes on growing, at this slower
//! pace.
//!
//! The bytes of an entry are known in two cases: if its key and value have no destructors, because
//! then they own nothing, and if a [weigher](Builder::byte_weigher) counts bytes. Any other entry
//! counts as its own size and 256 bytes of heap, and the capacity is counted in the same way.
//! Garbage is then an eighth of the capacity in entries, or at least some 1,700 entries, whatever
//! they own. The thread that retired such entries reclaims every 100 us.
//!
//! Measured: 10,000 entries of 1 KiB take 9.8 MiB. While 1, 8 and 64 threads on two cores insert
//! new entries, at most 10, 12 to 14 and 16 to 21 MiB of values are alive. With a capacity of 10
//! MiB in bytes, it is 10, 13 and 13 MiB. How much more memory the process takes from the system
//! depends on its allocator: glibc has a heap for each thread and keeps each heap's peak, 20 to 30
//! MiB with eight threads.
//!
//! An entry with a destructor is dropped at the end of the call that removed it, if no older guard
//! is held and few such entries left in the last milliseconds. Otherwise it is dropped some 100 us
//! later, if the thread goes on using the cache. After a burst of removals, call
//! [`collect`](Cache::collect).
//!
//! # Re-entrancy
//!
//! Callbacks may use their own cache and others:
//!
//! - A callback that runs *under a lock* may read its own cache, and may update other caches. If it
//!   updates its own cache, the update panics. These callbacks run under a lock.
//!   - The closures of [`Cache::get_locked_if`], [`Cache::expire_if`] and [`Cache::retain`], and
//!     `settle` of [`Cache::relocate`].
//!   - The second call of the closures of [`Cache::insert_locked_if`] and
//!     [`Cache::remove_locked_if`].
//!   - The clock, and the expiration of an entry without metadata, when these methods or a removal
//!     of many entries ask for them.
//!   - `Hash` while a table is replaced, because it grows, or shrinks after
//!     [`Cache::set_capacity`].
//! - If callbacks under a lock in two threads update each other's cache, they wait for each other.
//!   After five seconds one of them panics.
//! - A load may do everything except load its own key, which panics: see
//!   [`Cache::get_or_insert_with`].
//! - All other callbacks run with no lock held, and may do everything. But if a listener inserts an
//!   entry at each call, it recurses without end in a full cache.
//!
//! The repository's
//! [docs/cache.md](https://github.com/manycore-rs/manycore/blob/main/docs/cache.md) has the table
//! of all callbacks and operations, which a test checks.
//!
//! Source: Q. Wang, T. Stamler, G. Parmer, *Parallel sections: scaling system-level
//! data-structures*, EuroSys 2016, section 5.2.

// The page of `Cache` lists methods in the order of these modules: the methods that every user
// needs come first.
mod builder;

mod read;

mod insert;

mod update;

mod compute;

mod load;

mod batch;
mod bucket_lock;
mod budgeted;
mod capacity;
mod cause;
mod chance;
mod compared;
mod deadlock;
mod departure;
mod expiry;
mod ghosts;
mod guard;
mod huge_pages;
mod key_hash;
mod locked;
mod negative;
mod node;
mod node_memory;
mod pinned;
mod prefetch;
mod probation;
mod reentrancy;
mod relocate;
mod scan;
mod segment;
mod single_flight;
mod stats;
mod sync;
mod table;

pub use batch::BatchKey;
pub use builder::{BuildError, Builder};
pub use cause::Cause;
pub use compute::{Change, Computed};
pub use guard::{Entry, Guard, Iter};
pub use node_memory::{NODE_AREA, NodeMemory};
pub use scan::Cursor;
pub use segment::Eviction;
pub use stats::{Footprint, Stats};
pub use update::CasError;

use budgeted::Budgeted;
use builder::{Expiry, Listener, Time, Weigher};
use key_hash::KeyHash;
use manycore::section::{Domain, Section};
use node::{Extra, Home, Kind, NEVER, Node};
use segment::Segment;
use single_flight::Flights;
use stats::Counts;
use std::fmt;
use std::hash::RandomState;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use table::Slot;

/// Number of keys in a batch: their cache lines are fetched together.
const BATCH: usize = 16;

/// Aligns a value so that it has cache lines of its own.
#[repr(align(128))]
struct Line<T>(T);

/// A concurrent cache. The [crate's page](crate) says what it is for and what it guarantees.
///
/// ```
/// use manycore_cache::Cache;
/// use std::time::Duration;
///
/// let sessions: Cache<u64, String> =
///     Cache::builder(100_000).time_to_idle(Duration::from_secs(1800)).build()?;
/// sessions.insert(7, "ann".into());
/// std::thread::scope(|s| {
///     s.spawn(|| assert_eq!(&**sessions.get(&7).unwrap(), "ann"));
///     s.spawn(|| assert!(sessions.get(&8).is_none()));
/// });
/// # Ok::<(), manycore_cache::BuildError>(())
/// ```
///
/// Threads or tasks that outlive the scope share a cache through an `Arc`. A cache in a `static`,
/// or in a structure that is shared anyway, needs no `Arc`, and so no further pointer and count.
///
/// ```
/// use manycore_cache::Cache;
/// use std::sync::Arc;
///
/// let cache: Arc<Cache<u64, u64>> = Arc::new(Cache::new(100));
/// let handle = Arc::clone(&cache);
/// std::thread::spawn(move || handle.insert(1, 2)).join().unwrap();
/// assert_eq!(cache.get(&1).as_deref(), Some(&2));
/// ```
#[doc(alias = "LRU")]
#[doc(alias = "memoize")]
#[doc(alias = "bounded map")]
pub struct Cache<K, V, S = RandomState> {
    segments: Box<[Segment<K, V>]>,
    /// One less than the number of segments, which is a power of two.
    segment_mask: usize,
    /// Unreserved capacity. It is below zero if a thread found none (law segment.G1).
    pool: Line<AtomicI64>,
    capacity: AtomicI64,
    /// Total weight of the pinned entries (cache_pinned.P2).
    pinned: AtomicI64,
    hasher: S,
    eviction: Eviction,
    frequency_max: u8,
    /// True if nodes hold only a version besides key and value (no weigher, no budget, no times)
    /// and there is no listener. Insertions check this alone, and then take the short paths.
    is_simple: bool,
    /// A read of an entry with this frequency or a higher one leaves no trace. No frequency is that
    /// high if `is_watched`.
    traceless_from: u8,
    /// True if a read must also be counted, or look at the time.
    is_watched: bool,
    weigher: Option<Weigher<K, V>>,
    /// In nanoseconds, like all times here.
    live: Option<u64>,
    idle: Option<u64>,
    expiry: Option<Expiry<K, V>>,
    /// How long before its end an entry is loaded again.
    ahead: Option<u64>,
    /// Returns the time to idle of an entry; called when the entry is inserted.
    idle_each: Option<Expiry<K, V>>,
    /// In a cache without metadata, returns the moment at which an entry ends; called at each
    /// access.
    ends: Option<Expiry<K, V>>,
    listener: Option<Listener<K, V>>,
    /// A bit for each cause that the listener is called for.
    told: u8,
    time: Time,
    is_timed: bool,
    /// True once some entry may end. Until then updates do not search for expired entries.
    may_end: AtomicBool,
    counts: Counts,
    flights: Flights<K, V>,
    /// Declared after the segments and before the home, because dropping it frees retired nodes and
    /// tables. The home is an `Arc` because nodes point to it, and a `Box` would claim unique
    /// access.
    domain: Domain,
    home: Arc<Home<K, V>>,
    kind: Kind,
    /// Declared after the entries: their weight is released when they are gone.
    budgeted: Option<Box<Budgeted>>,
}

impl<K, V, S> Cache<K, V, S> {
    /// Returns the number of entries, including expired entries that were not dropped yet. Cost: a
    /// cache line for each segment.
    #[must_use]
    pub fn len(&self) -> usize {
        // A concurrent sum may see a removal and miss the insertion before it.
        let sum = self.segments.iter().fold(0_usize, |sum, s| sum.wrapping_add(s.entries()));
        if (sum as isize) < 0 { 0 } else { sum }
    }

    /// Returns true if [`len`](Self::len) is zero.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the total weight of the entries, including capacity that is reserved for entries
    /// under way. Without a weigher each entry weighs 1.
    #[must_use]
    pub fn weight(&self) -> u64 {
        // ORDER: Relaxed; a count.
        let unused = self.pool.0.load(Ordering::Relaxed);
        let spare: i64 = self.segments.iter().map(Segment::spare).sum();
        // ORDER: Relaxed; as above.
        let capacity = || self.capacity.load(Ordering::Relaxed);
        let all = self.budgeted.as_deref().map_or_else(capacity, Budgeted::granted);
        u64::try_from(all - unused - spare).unwrap_or(0)
    }

    /// Returns the capacity, from the builder or from [`set_capacity`](Self::set_capacity).
    #[must_use]
    pub fn capacity(&self) -> u64 {
        // ORDER: Relaxed; a count.
        self.capacity.load(Ordering::Relaxed) as u64
    }

    /// Returns what was counted since the cache was made.
    #[must_use]
    pub fn stats(&self) -> Stats {
        Stats { loading: self.flights.under_way(), ..self.counts.sum() }
    }

    /// Frees the garbage of the calling thread and of ended threads that can be freed now. Never
    /// waits. Call it before a thread goes idle.
    pub fn collect(&self) {
        self.domain.collect();
    }

    /// Returns an iterator over the entries, as guards, in no particular order. It skips
    /// entries that have expired when they would be yielded.
    ///
    /// Consistency: not a snapshot. An entry that is present throughout is yielded exactly once;
    /// concurrent insertions and removals may be seen or not. Cost: the tables, and a buffer for
    /// one segment. The iterator keeps a section open, as a [`Guard`] does.
    pub fn iter(&self) -> Iter<'_, K, V, S> {
        Iter::new(self)
    }

    #[inline]
    fn now(&self) -> u64 {
        builder::nanos((self.time)()).min(NEVER - 1)
    }

    /// Returns true if the node has expired. The caller found the node in a section that is open.
    #[inline(always)]
    fn is_expired(&self, node: NonNull<Node<K, V>>) -> bool {
        // The clock is read only for an entry that has an end.
        let end = if self.is_timed { self.end_of(node) } else { NEVER };
        end < NEVER && end <= self.now()
    }

    /// As `is_expired`, but outlined: for paths on which times are rare.
    #[cold]
    fn is_expired_cold(&self, node: NonNull<Node<K, V>>) -> bool {
        self.is_expired(node)
    }

    fn is_expired_at(&self, node: NonNull<Node<K, V>>, now: u64) -> bool {
        now >= self.end_of(node)
    }

    /// Returns the end of a node that does not depend on its uses. The caller found the node in a
    /// section that is open.
    fn expires_of(&self, node: NonNull<Node<K, V>>) -> u64 {
        if !self.is_timed {
            return NEVER;
        }
        if self.ends.is_some() {
            return self.end_of(node);
        }
        // SAFETY: node.N2 - a timed cache has full nodes, unless it has no metadata; the caller's
        // section keeps the node.
        // ORDER: Relaxed; times order nothing.
        unsafe { Node::extra(node).as_ref() }.expires.load(Ordering::Relaxed)
    }

    /// Returns the moment at which a node expires. The caller found the node in a section that is
    /// open.
    #[inline]
    fn end_of(&self, node: NonNull<Node<K, V>>) -> u64 {
        if let Some(ends) = &self.ends {
            // SAFETY: node.N1 - callers pass a node that they found in a section that is still
            // open.
            let node = unsafe { node.as_ref() };
            return ends(&node.key, &node.value).map_or(NEVER, builder::nanos);
        }
        // SAFETY: node.N2 - a timed cache has full nodes, unless it has no metadata; the caller's
        // section keeps the node.
        let extra = unsafe { Node::extra(node).as_ref() };
        // ORDER: Relaxed; times order nothing.
        let used = extra.used.load(Ordering::Relaxed);
        let idle = self.idle_of(extra).map_or(NEVER, |idle| used.saturating_add(idle));
        extra.expires.load(Ordering::Relaxed).min(idle)
    }

    /// Counts a use in the entry's frequency. Writes nothing if the frequency is at its maximum.
    #[inline(always)]
    fn touch(&self, slot: Slot<'_, K, V>, frequency: u8) {
        if frequency < self.frequency_max {
            slot.set_frequency(frequency + 1);
        }
    }

    /// Records the time of a use, unless the last record is younger than 1/16 of the time to idle.
    fn note_use(&self, node: NonNull<Node<K, V>>, now: u64) {
        if !self.may_idle() {
            return;
        }
        // SAFETY: node.N2 - a cache with times to idle has full nodes; the caller's section keeps
        // this node.
        let extra = unsafe { Node::extra(node).as_ref() };
        if let Some(idle) = self.idle_of(extra) {
            // ORDER: Relaxed; times order nothing.
            if now.saturating_sub(extra.used.load(Ordering::Relaxed)) > idle / 16 {
                extra.used.store(now, Ordering::Relaxed);
            }
        }
    }

    /// Returns true if all or some entries have a time to idle.
    fn may_idle(&self) -> bool {
        self.idle.is_some() || self.idle_each.is_some()
    }

    /// Returns the time to idle of an entry: its own, or the cache's.
    fn idle_of(&self, extra: &Extra) -> Option<u64> {
        extra.idle().or(self.idle)
    }

    /// Records that some entry will end, so that updates sweep.
    fn note_end(&self) {
        // ORDER: Relaxed; the inserting thread sweeps, or a thread that sees the flag later.
        if !self.may_end.load(Ordering::Relaxed) {
            self.may_end.store(true, Ordering::Relaxed);
        }
    }

    /// As `note_end`, in a cache without metadata, if this entry has an end.
    fn note_own_end(&self, key: &K, value: &V) {
        if self.ends.as_ref().is_some_and(|ends| ends(key, value).is_some()) {
            self.note_end();
        }
    }

    /// Returns an address that identifies the cache as long as it is borrowed.
    #[inline(always)]
    fn identity(&self) -> *const () {
        std::ptr::from_ref(self).cast()
    }

    /// Runs user code under a lock of this cache (law reentrancy.U1).
    fn under_lock<R>(&self, callback: impl FnOnce() -> R) -> R {
        reentrancy::under_lock(self.identity(), callback)
    }

    /// Begins an update. Panics in a callback that runs under a lock of this cache.
    #[inline(always)]
    #[track_caller]
    fn begin_update(&self) {
        reentrancy::refuse_under_lock_of(self.identity());
    }

    /// Returns the kind of this cache's nodes. With `SIMPLE` it is a constant.
    #[inline(always)]
    fn kind_of<const SIMPLE: bool>(&self) -> Kind {
        debug_assert!(!SIMPLE || self.kind.is_plain(), "node.N2: simple, but not plain");
        if SIMPLE { Kind::Plain } else { self.kind }
    }

    /// Returns the kind of this cache's nodes.
    #[inline(always)]
    fn kind(&self) -> Kind {
        self.kind
    }

    /// # Safety
    /// As for [`Guard::new`]. The node belongs to this cache.
    #[inline(always)]
    unsafe fn guard<'c>(&self, node: NonNull<Node<K, V>>, section: Section<'c>) -> Guard<'c, K, V> {
        // SAFETY: the caller promises that the node was found, or published, in `section`, and
        // belongs to this cache. All nodes of a cache are of one kind (node.N2).
        unsafe { Guard::new(node, self.kind(), section) }
    }

    /// # Safety
    /// As for [`Entry::new`]. The node belongs to this cache.
    #[inline(always)]
    unsafe fn entry<'a>(&self, node: NonNull<Node<K, V>>) -> Entry<'a, K, V> {
        // SAFETY: the caller promises that a section that outlives `'a` keeps the node (node.N1),
        // and that the node belongs to this cache. All nodes of a cache are of one kind (node.N2).
        unsafe { Entry::new(node, self.kind()) }
    }

    #[inline(always)]
    fn segment(&self, hash: KeyHash) -> &Segment<K, V> {
        let at = hash.segment(self.segment_mask);
        debug_assert!(at < self.segments.len(), "segment.G1: no segment {at}");
        // SAFETY: `Builder::build` alone chooses the number of segments, a power of two, and `at`
        // is masked to be below it.
        unsafe { self.segments.get_unchecked(at) }
    }
}

// A panic of user code leaves the cache complete (see the crate's page). So a cache is as
// unwind-safe as its keys and values. Closures are trusted, as they are elsewhere: a closure that
// leaves its own state broken when it panics has to deal with that itself.
impl<K: RefUnwindSafe, V: RefUnwindSafe, S: RefUnwindSafe> RefUnwindSafe for Cache<K, V, S> {}
impl<K, V, S> UnwindSafe for Cache<K, V, S>
where
    K: UnwindSafe + RefUnwindSafe,
    V: UnwindSafe + RefUnwindSafe,
    S: UnwindSafe,
{
}

impl<'c, K, V, S> IntoIterator for &'c Cache<K, V, S> {
    type Item = Guard<'c, K, V>;
    type IntoIter = Iter<'c, K, V, S>;

    fn into_iter(self) -> Iter<'c, K, V, S> {
        self.iter()
    }
}

impl<K, V, S> fmt::Debug for Cache<K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache")
            .field("len", &self.len())
            .field("weight", &self.weight())
            .field("capacity", &self.capacity.load(Ordering::Relaxed))
            .field("eviction", &self.eviction)
            .finish_non_exhaustive()
    }
}
