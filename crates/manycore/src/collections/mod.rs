//! Ready-made types, found by the name of what they are.
//!
//! ```
//! use manycore::collections::{EventQueue, Registry};
//!
//! let open = Registry::new(); // what is open now
//! let log = EventQueue::unbounded(); // what happened, in that order
//! std::thread::scope(|s| {
//!     for id in 0..4 {
//!         let (open, log) = (&open, &log);
//!         s.spawn(move || {
//!             let connection = open.register(id);
//!             log.send(format!("{} connected", *connection)).unwrap();
//!         }); // closed: it leaves the registry
//!     }
//! });
//! assert_eq!((open.len(), log.drain().len()), (0, 4));
//! ```
//!
//! | You have | Take |
//! |---|---|
//! | a count that many threads change: statistics, bytes, requests | [Counter] |
//! | a number that goes up and down or is set: connections open | [Gauge] |
//! | many counts at once: counts per status | [CounterArray] |
//! | the distribution of values, with quantiles: latencies, sizes | [Histogram] |
//! | a list of what is open now, rarely iterated: connections, sessions | [Registry] |
//! | intervals that are inserted and removed, and overlap queries: mappings | [IntervalRegistry] |
//! | active transactions or snapshots, and the oldest of them (low-water mark) | [ActiveSet] |
//! | timers that are set by many threads and nearly always cancelled: timeouts | [TimerQueue] |
//! | events from many threads, wanted in the order they happened | [EventQueue] |
//! | an LRU list, updated at every access and read at eviction | [Lru] |
//! | values by key, looked up all the time and changed now and then | [HashMap] |
//! | ... if both are small and plain: numbers, ids, flags | [FlatHashMap] |
//! | members looked up all the time: names in use, seen messages | [HashSet] |
//! | a map replicated near each reader: routes, configuration | [ReplicatedMap] |
//! | a map with a part of each value for each thread: descriptors, dirty bits | [DHash] |
//! | values by key, in the keys' order: ranges, neighbours, the first and last | [OrderedMap] |
//! | values under ranges of 64-bit keys: mappings, leases of blocks | [RangeMap] |
//! | pages of a slow store, pinned while in use and changed in place | [PageCache] |
//! | private, copy-on-write views of such pages: snapshots, undo, scratch copies | [PrivatePages] |
//! | objects that are expensive to create and are reused | [ObjectPool] |
//! | a hierarchical limit on what many threads acquire and release | [BudgetTree] |
//! | a value whose reference count all threads change all the time | [ScalableArc] |
//!
//! All but the last eleven are for state that is updated often and read rarely.
//!
//! Each page says what the type is for and when not to take it, its consistency, progress, cost and
//! memory.
//!
//! # Re-entrancy: user code that calls the object from inside
//!
//! | object | called from | outcome |
//! |---|---|---|
//! | [EventQueue] | a waker's clone, wake or drop; an event's drop | works |
//! | [ObjectPool] | the constructor; the recycle hook; an object's drop; a waker | works |
//! | [ScalableArc] | the value's drop | works; a weak handle of the value is dead |
//! | [FlatHashMap] | a key's hash; a closure | works |
//! | [OrderedMap] | a key's comparison or clone; a value's clone or drop; a closure | works |
//! | [RangeMap] | a value's clone or drop | works |
//! | | under a guard | a lookup and the guard work; an update by the view is an error |
//! | [Counter], [BudgetTree] | the drop of a thread-local | works |
//! | [BudgetTree] | a reclaim callback | works; a charge asks other users and does not wait |
//! | [IdSpace](crate::namespace::IdSpace) | a node's constructor or drop; the closure of `retain` | works |
//! | [Slab](crate::slab::Slab) | an object's drop | works |
//! | [Clustered](crate::cluster::Clustered) | a constructor | a lookup works; a call or scatter panics |
//! | [Swappable](crate::cluster::Swappable) | a call | works; a swap is an error |
//! | | a transfer or update | a call panics; a swap is an error |
//!
//! A panic of that code reaches the caller, or is contained where the type says so.
//!
//! # Inside
//!
//! Owns: the types below. Most are built on [`oplog`](crate::oplog), [`ldu`](crate::ldu),
//! [`cluster`](crate::cluster) or [`section`](crate::section), which suffice for types of your own.
//! They are not confined to its public interface: [`Counter`] and its kin and [`ScalableArc`]
//! have protocols of their own on private parts of [`percpu`](crate::percpu) and `oplog`, and
//! several use the library's private locks, deadlock detection and profiling.

mod active_set;
mod budget;
mod counter;
mod deferred_drops;
mod dhash;
mod event_queue;
mod flat_hash_map;
mod growth;
mod hash_map;
mod hash_set;
mod integer;
mod interval_registry;
mod lru;
mod member_pool;
mod object_pool;
mod ordered_map;
mod owned;
mod page_cache;
mod private_pages;
mod promoted;
mod range_map;
#[cfg(feature = "rayon")]
mod rayon_impls;
mod reentrancy_lock;
mod registry;
mod replica_mask;
mod replicated_map;
mod scalable_arc;
#[cfg(feature = "serde")]
mod serde_impls;
mod timer_queue;
mod unwind;

pub use active_set::{Active, ActiveSet, OwnedActive};
pub use budget::{BudgetTree, Charge, Exceeded, Reclaimer};
pub use counter::{Counter, CounterArray, Gauge, Histogram, HistogramBuckets, HistogramSnapshot};
pub use dhash::{Contention, DHash, DHashBuilder, DHashStats, Distribution, DistributionReason};
pub use event_queue::{
    EventQueue, EventQueueBuilder, EventQueueIntoIter, EventQueueIter, EventQueueTryIter, Receiver,
    RecvError, RecvFuture, SendError, SendFuture, Sender,
};
pub use flat_hash_map::{
    FlatHashMap, FlatHashMapIntoIter, FlatHashMapIter, FlatHashMapKeys, FlatHashMapValues, Plain,
};
pub use hash_map::{
    HashMap, HashMapBuilder, HashMapIntoIter, HashMapIter, HashMapKeys, HashMapOwnedView,
    HashMapValues, HashMapView,
};
pub use hash_set::{HashSet, HashSetIntoIter, HashSetIter, HashSetView};
pub use interval_registry::{Interval, IntervalRegistry, IntervalRegistryBuilder, OwnedInterval};
pub use lru::{Lru, LruBuilder};
pub use object_pool::{ObjectPool, ObjectPoolBuilder, OwnedPooled, PoolFuture, Pooled};
pub use ordered_map::{
    OrderedMap, OrderedMapIntoIter, OrderedMapIter, OrderedMapKeys, OrderedMapValues,
    OrderedMapView,
};
pub use owned::Owner;
pub use page_cache::{OwnedPinned, PageCache, PageStore, PinError, Pinned};
pub use private_pages::{PrivatePage, PrivatePages};
pub use range_map::{Gaps, RangeError, RangeGuard, RangeMap, RangeMapIter, RangeMapView, Removed};
pub use registry::{Entry, OwnedEntry, Registry, RegistryBuilder};
pub use replicated_map::ReplicatedMap;
pub use scalable_arc::{ScalableArc, ScalableWeak};
pub use timer_queue::{OwnedTimer, Timer, TimerQueue};

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// Keeps what is written apart from what is read.
#[derive(Debug)]
#[repr(align(128))]
struct Line<T>(T);

/// Runs `f` on what `guard` holds. A panic of `f` goes on when the guard is given up and `after` is
/// done: if it crossed the guard, it would poison what that guards.
fn guarded<G, R>(
    guard: impl FnOnce() -> G,
    f: impl FnOnce(&mut G) -> R,
    after: impl FnOnce(),
) -> R {
    let mut guard = guard();
    let result = catch_unwind(AssertUnwindSafe(|| f(&mut guard)));
    drop(guard); // may run user code, and panic: the result is dropped then
    after();
    result.unwrap_or_else(|panic| resume_unwind(panic))
}
