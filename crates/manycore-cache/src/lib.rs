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
//! *For* values that are expensive to compute or to fetch, looked up by many threads, bounded, with
//! eviction. *Not for* what must not be evicted (use
//! [`HashMap`](manycore::collections::HashMap)), and not for a single thread.
//!
//! # Which settings?
//!
//! [`Cache::builder`] has them; the page of [`Builder`] shows each in use.
//!
//! | You want | Say |
//! |---|---|
//! | entries that expire | [time_to_live](Builder::time_to_live), [time_to_idle](Builder::time_to_idle), or [expire_after](Builder::expire_after) for each its own |
//! | a bound in bytes | [byte_weigher](Builder::byte_weigher) |
//! | a failing source left alone for a while | [error_time_to_live](Builder::error_time_to_live), [missing_time_to_live](Builder::missing_time_to_live) |
//! | a value made anew before it expires | [refresh_ahead](Builder::refresh_ahead) |
//! | to hear of what leaves | [listener](Builder::listener) |
//! | hits and misses counted | [count_reads](Builder::count_reads) |
//!
//! Eviction: [`Eviction::ScanResistant`], the default, unless you measure that [`Eviction::Clock`]
//! suits you as well. `manycore bench kv` shows both, with their hit ratios, beside other caches.
//!
//! # What is guaranteed
//!
//! - *Consistency*: linearizable for each key, where an eviction or expiration is a removal at some
//!   moment. `len`, `weight`, `iter` and `stats` are not snapshots.
//! - *The bound*: an insertion makes room before it links. The entries never exceed the
//!   capacity, except for one entry of each thread that is in an insertion at that moment and found
//!   all the capacity reserved by others. What has left the cache is garbage until its grace period
//!   is over: see [memory](#memory).
//! - *Expired values* are never returned. They expire lazily: a read that finds one drops it,
//!   and so do each update, which sweeps one more bucket of its segment, [`Cache::purge`], and
//!   eviction. So after as many updates of a segment as it has buckets (a fifth to a sixth of its
//!   entries) nothing expired is left. There are no helper threads: without
//!   calls, nothing happens. Call [`Cache::purge`] from a timer of yours if that matters.
//! - *Progress*: reads are lock-free. An update locks one bucket at a time, for some tens of
//!   nanoseconds; of your code only the closures that say so run under that lock, and `Hash` while
//!   a table grows.
//! - *Cost*: a read is the hash, the bucket's line and the entry's; it writes nothing except the
//!   reference byte (the access *frequency*) of an entry that is not hot yet. An update makes its
//!   node in the memory of one that its thread retired before, or takes it from the thread's own
//!   slab.
//! - *Memory*: an entry takes its key, its value and 8 bytes, 24 more if the cache weighs or
//!   expires, and some 16 bytes of table, 22 in one that has just grown (72 bytes for keys of 16
//!   and values of 32, a million of them). [`Cache::footprint`] reports it. Keys and values
//!   with their headers have at most 64 KiB: box what is larger.
//! - *Panics* in your code (keys, values, closures, wakers) are the caller's. Before the entry is
//!   linked they leave the key as it was; later the update has happened, and the entries that it
//!   removed are counted, reported and freed nevertheless. No lock stays held. A cache can be used
//!   after [`catch_unwind`](std::panic::catch_unwind).
//! - *Inconsistent callbacks*: keys whose `Hash`, `Eq` or `Borrow` are inconsistent, and weighers
//!   and clocks that contradict themselves, get wrong answers, and nothing worse: an entry weighs
//!   what it weighed when it was inserted. (In a cache [without
//!   metadata](Builder::without_metadata) nothing of that is kept: there a weigher that contradicts
//!   itself makes the weight, and with it the bound, wrong for good.)
//!
//! # Memory
//!
//! All together: *entries x (key + value + 8 or 32 bytes, and what they own) + 22 bytes x entries
//! of table + garbage + 4 KiB + some 64 KiB for each thread that updates*. Memory of nodes, once
//! allocated at the peak of garbage, is kept for reuse ([`Footprint::free`]); what they own is
//! freed.
//!
//! A small cache (built for at most 1,024 entries, and without a weigher) has no 64 KiB for each
//! thread, because small caches share the memory of their nodes: blocks of whole 16 bytes, from 128
//! bytes on in steps of a quarter at most. So a cache for 100 entries, with keys and values of 8
//! bytes, takes 4.1 KiB with an entry in it and 10 KiB with a hundred, as long as one thread uses
//! it; each further thread adds some 600 bytes.
//!
//! Garbage is what was evicted, removed or replaced and is not freed yet. All threads together have
//! a budget for it: an eighth of the capacity that the cache is built with, in bytes, but at least
//! half a megabyte and at most 32 MiB. They keep to twice the budget, and each updating thread has
//! some entries beside it; [`Domain`] has the formula. A stalled section (a [`Guard`] that is held,
//! or a thread that was preempted within a call) can make garbage exceed that. Then backpressure
//! applies: updates wait at their end, for 200 us at most each, which lets a preempted thread go
//! on; under a guard that is held for long, garbage grows at the pace that this leaves.
//!
//! Bytes are known for keys and values without destructors, which own nothing, and from a
//! [weigher](Builder::byte_weigher), if it counts bytes. Other entries count as their own size and
//! 256 bytes of heap, and so does the capacity: garbage is then an eighth of the capacity in
//! entries, or what 1,700 entries or more count as, whatever they own; and their thread reclaims
//! every 100 us.
//!
//! Measured: 10,000 entries of 1 KiB take 9.8 MiB. While 1, 8 and 64 threads on two cores insert
//! new ones, at most 10, 12 to 14 and 16 to 21 MiB of values are alive; with a capacity of 10 MiB
//! in bytes it is 10, 13 and 13. What the process has from the system is more, and the allocator's
//! to say: glibc has a heap for each thread and keeps each one's peak, 20 to 30 MiB with eight.
//!
//! An entry with a destructor that leaves the cache is dropped at the end of the call that removed
//! it, if no older guard is held and few such entries left in the last milliseconds; else some 100
//! us later, if the thread goes on to use the cache. After a burst of removals, call
//! [`collect`](Cache::collect).
//!
//! # Re-entrancy
//!
//! Callbacks may use the cache, and others:
//!
//! - A callback that runs *under a lock* (the closures of [`Cache::get_locked_if`],
//!   [`Cache::expire_if`] and [`Cache::retain`]; the second call of those of
//!   [`Cache::insert_locked_if`] and [`Cache::remove_locked_if`]; the clock, and the expiration of
//!   an entry without metadata, where these and a removal of many ask for them; `Hash` while a
//!   table is replaced, which grows or shrinks with [`Cache::set_capacity`]) may read its
//!   own cache, and may update others. If it updates its own, that panics. Two threads whose
//!   callbacks under a lock update each other's cache wait for each other: after five seconds one
//!   of them panics.
//! - A load may do everything except load its own key, which panics: see
//!   [`Cache::get_or_insert_with`].
//! - All other callbacks run with no lock held, and may do everything. A listener that inserts for
//!   every entry that it is called for, into a full cache, recurses without end.
//!
//! The table of all callbacks and operations is in the repository's
//! [docs/cache.md](https://github.com/manycore-rs/manycore/blob/main/docs/cache.md); a test walks
//! it.
//!
//! Source: Q. Wang, T. Stamler, G. Parmer, *Parallel sections: scaling system-level
//! data-structures*, EuroSys 2016, section 5.2.

// The page of `Cache` shows methods in the order of the modules that have them: first what every
// user needs.
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
use table::Hit;

/// Keys whose lines are fetched together.
const BATCH: usize = 16;

/// Something with lines of its own.
#[repr(align(128))]
struct Line<T>(T);

/// A concurrent cache; the [crate's page](crate) says what it is for and what it guarantees.
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
/// A handle to clone, as for threads or tasks that outlive the scope, is an `Arc` around it. (So a
/// cache in a `static`, or in a structure that is shared anyway, is reached without the pointer,
/// and without a count, that a handle of its own would have.)
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
    /// Unreserved capacity; below zero if a thread found none (law segment.G1).
    pool: Line<AtomicI64>,
    capacity: AtomicI64,
    /// What pinned entries weigh (cache_pinned.P2).
    pinned: AtomicI64,
    hasher: S,
    eviction: Eviction,
    frequency_max: u8,
    /// Whether entries have nothing but a version: no weigher, no budget, no times; and there is no
    /// listener. Insertions look at this alone, and take the straight paths.
    is_straight: bool,
    /// Whether a read does more than to look: it counts, or looks at the time.
    is_watched: bool,
    weigher: Option<Weigher<K, V>>,
    /// In nanoseconds, as all times here.
    live: Option<u64>,
    idle: Option<u64>,
    expiry: Option<Expiry<K, V>>,
    /// How long before its end an entry is loaded anew.
    ahead: Option<u64>,
    /// The time to idle of each entry, asked when it is inserted.
    idle_each: Option<Expiry<K, V>>,
    /// Of a cache without metadata: the moment at which an entry ends, asked at each look.
    ends: Option<Expiry<K, V>>,
    listener: Option<Listener<K, V>>,
    /// A bit for each cause of which the listener is told.
    told: u8,
    time: Time,
    is_timed: bool,
    /// Whether an entry was ever given a TTL: if not, there is no search for expired ones.
    may_end: AtomicBool,
    counts: Counts,
    flights: Flights<K, V>,
    /// Behind the segments, before the home (an `Arc`, because nodes point to it and a box would
    /// claim to be the only way there): it frees retired nodes and tables when it is dropped.
    domain: Domain,
    home: Arc<Home<K, V>>,
    kind: Kind,
    /// Behind the entries: what they weighed is released when they are gone.
    budgeted: Option<Box<Budgeted>>,
}

impl<K, V, S> Cache<K, V, S> {
    /// The number of entries, expired ones that were not dropped yet included. Cost: a line for
    /// each segment.
    #[must_use]
    pub fn len(&self) -> usize {
        // While others are at work, a removal may be seen and its insertion not.
        let sum = self.segments.iter().fold(0_usize, |sum, s| sum.wrapping_add(s.entries()));
        if (sum as isize) < 0 { 0 } else { sum }
    }

    /// Whether there are none, as [`len`](Self::len) has it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What the entries weigh together, with what is reserved for those under way; without a
    /// weigher each weighs 1.
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

    /// What the builder was given, or [`set_capacity`](Self::set_capacity).
    #[must_use]
    pub fn capacity(&self) -> u64 {
        // ORDER: Relaxed; a count.
        self.capacity.load(Ordering::Relaxed) as u64
    }

    /// What happened so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        Stats { loading: self.flights.under_way(), ..self.counts.sum() }
    }

    /// Reclaims garbage of the calling thread and of ended threads, as far as it can be freed now.
    /// Call it before a thread goes idle. Never waits.
    pub fn collect(&self) {
        self.domain.collect();
    }

    /// Every entry, in no order, as guards. None that has expired by the time when it is yielded.
    ///
    /// Consistency: not a snapshot. An entry that is present throughout is yielded exactly once;
    /// concurrent insertions and removals may be seen or not. Cost: the tables, and a buffer for
    /// one segment. Keeps a section open, as a [`Guard`] does.
    pub fn iter(&self) -> Iter<'_, K, V, S> {
        Iter::new(self)
    }

    #[inline]
    fn now(&self) -> u64 {
        builder::nanos((self.time)()).min(NEVER - 1)
    }

    /// Whether the time of a node, found in an open section, is over.
    #[inline(always)]
    fn is_expired(&self, node: NonNull<Node<K, V>>) -> bool {
        // The clock is read only for an entry that has an end.
        let end = if self.is_timed { self.end_of(node) } else { NEVER };
        end < NEVER && end <= self.now()
    }

    /// The same in code of its own, for a path on which times are rare.
    #[cold]
    fn is_expired_cold(&self, node: NonNull<Node<K, V>>) -> bool {
        self.is_expired(node)
    }

    fn is_expired_at(&self, node: NonNull<Node<K, V>>, now: u64) -> bool {
        now >= self.end_of(node)
    }

    /// The end of a node, found in an open section, that does not depend on its uses.
    fn expires_of(&self, node: NonNull<Node<K, V>>) -> u64 {
        if !self.is_timed {
            return NEVER;
        }
        if self.ends.is_some() {
            return self.end_of(node);
        }
        // SAFETY: node.N2 - a timed cache is full, unless it has no metadata; the caller's section
        // keeps the node.
        // ORDER: Relaxed; times order nothing.
        unsafe { Node::extra(node).as_ref() }.expires.load(Ordering::Relaxed)
    }

    /// When the time of a node, found in an open section, is over.
    #[inline]
    fn end_of(&self, node: NonNull<Node<K, V>>) -> u64 {
        if let Some(ends) = &self.ends {
            // SAFETY: node.N1 - callers pass a node that they found in a section that is still
            // open.
            let node = unsafe { node.as_ref() };
            return ends(&node.key, &node.value).map_or(NEVER, builder::nanos);
        }
        // SAFETY: node.N2 - a timed cache is full, unless it has no metadata; the caller's section
        // keeps it.
        let extra = unsafe { Node::extra(node).as_ref() };
        // ORDER: Relaxed; times order nothing.
        let used = extra.used.load(Ordering::Relaxed);
        let idle = self.idle_of(extra).map_or(NEVER, |idle| used.saturating_add(idle));
        extra.expires.load(Ordering::Relaxed).min(idle)
    }

    /// Warms an entry. Writes nothing if it is hot.
    #[inline(always)]
    fn touch(&self, hit: &Hit<'_, K, V>) {
        if hit.frequency < self.frequency_max {
            hit.slot.set_frequency(hit.frequency + 1);
        }
    }

    /// Notes when an entry was used, unless that was noted a moment ago.
    fn note_use(&self, node: NonNull<Node<K, V>>, now: u64) {
        if !self.may_idle() {
            return;
        }
        // SAFETY: node.N2 - a cache with times to idle is full; the caller's section keeps it.
        let extra = unsafe { Node::extra(node).as_ref() };
        if let Some(idle) = self.idle_of(extra) {
            // ORDER: Relaxed; times order nothing.
            if now.saturating_sub(extra.used.load(Ordering::Relaxed)) > idle / 16 {
                extra.used.store(now, Ordering::Relaxed);
            }
        }
    }

    /// Whether entries have a time to idle, all of them or some.
    fn may_idle(&self) -> bool {
        self.idle.is_some() || self.idle_each.is_some()
    }

    /// The time to idle of an entry.
    fn idle_of(&self, extra: &Extra) -> Option<u64> {
        extra.idle().or(self.idle)
    }

    /// Some entry will end.
    fn note_end(&self) {
        // ORDER: Relaxed; the inserting thread sweeps, or a later one.
        if !self.may_end.load(Ordering::Relaxed) {
            self.may_end.store(true, Ordering::Relaxed);
        }
    }

    /// As `note_end`, if the entry of a cache without metadata says so.
    fn note_own_end(&self, key: &K, value: &V) {
        if self.ends.as_ref().is_some_and(|ends| ends(key, value).is_some()) {
            self.note_end();
        }
    }

    /// Names the cache among others, as long as it is borrowed.
    #[inline(always)]
    fn identity(&self) -> *const () {
        std::ptr::from_ref(self).cast()
    }

    /// Runs user code under a lock of this cache (law reentrancy.U1).
    fn under_lock<R>(&self, callback: impl FnOnce() -> R) -> R {
        reentrancy::under_lock(self.identity(), callback)
    }

    /// An update begins; it panics in a callback under a lock of this cache.
    #[inline(always)]
    #[track_caller]
    fn begin_update(&self) {
        reentrancy::refuse_under_lock_of(self.identity());
    }

    /// What the nodes of this cache are, to one that knows whether it is straight.
    #[inline(always)]
    fn kind_of<const STRAIGHT: bool>(&self) -> Kind {
        debug_assert!(!STRAIGHT || self.kind.is_plain(), "node.N2: a straight path is not");
        if STRAIGHT { Kind::Plain } else { self.kind }
    }

    /// What the nodes of this cache are.
    #[inline(always)]
    fn kind(&self) -> Kind {
        self.kind
    }

    /// # Safety
    /// As for [`Guard::new`]; the node is of this cache.
    #[inline(always)]
    unsafe fn guard<'c>(&self, node: NonNull<Node<K, V>>, section: Section<'c>) -> Guard<'c, K, V> {
        // SAFETY: the caller promises that the node was found, or published, in `section`, and is
        // of this cache, whose nodes are of one kind (node.N2).
        unsafe { Guard::new(node, self.kind(), section) }
    }

    /// # Safety
    /// As for [`Entry::new`]; the node is of this cache.
    #[inline(always)]
    unsafe fn entry<'a>(&self, node: NonNull<Node<K, V>>) -> Entry<'a, K, V> {
        // SAFETY: the caller promises that a section that outlives `'a` keeps the node (node.N1),
        // and that it is of this cache, whose nodes are of one kind (node.N2).
        unsafe { Entry::new(node, self.kind()) }
    }

    #[inline(always)]
    fn segment(&self, hash: KeyHash) -> &Segment<K, V> {
        let at = hash.segment(self.segments.len());
        debug_assert!(at < self.segments.len(), "segment.G1: no segment {at}");
        // SAFETY: there are as many as a power of two, which `Builder::build` alone chooses; `at`
        // has none of its bits.
        unsafe { self.segments.get_unchecked(at) }
    }
}

// What a panic of user code leaves is complete (see the crate's page), so a cache is as safe across
// `catch_unwind` as what is in it. Of closures this trusts what is true of them elsewhere: one that
// leaves its own state broken when it panics has to say so itself.
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
