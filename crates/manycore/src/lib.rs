//! Shared data structures that keep scaling when every thread updates them.
//!
//! On a machine with many cores, each write to a contended cache line costs hundreds to thousands
//! of cycles. This library keeps the writes of a thread on lines of its own (no contention, no
//! false sharing), and merges them at the next read.
//!
//! # Which type do I need?
//!
//! ## Ready-made: [`collections`]
//!
//! | What it is | Take |
//! |---|---|
//! | a counter: statistics, bytes, requests | [`Counter`], [`CounterArray`] |
//! | a number that goes up and down; a distribution with quantiles | [`Gauge`], [`Histogram`] |
//! | a map: values by key; reads take no lock and write nothing | [`HashMap`] |
//! | a set: members looked up, as in that map | [`HashSet`] |
//! | a map replicated near each reader | [`ReplicatedMap`] |
//! | ... with a part of each value for each thread | [`DHash`] |
//! | ... from ranges of 64-bit keys to values | [`RangeMap`] |
//! | a queue: events from many threads, in the order they happened | [`EventQueue`] |
//! | ... of timers that nearly always are cancelled | [`TimerQueue`] |
//! | a registry of what is open now, rarely iterated | [`Registry`] |
//! | ... of intervals, with overlap queries | [`IntervalRegistry`] |
//! | ... of active transactions or snapshots, and the oldest of them | [`ActiveSet`] |
//! | a cache's LRU list, updated at every access, read at eviction | [`Lru`] |
//! | a page cache: pages of a slow store, pinned while in use | [`PageCache`] |
//! | ... and private, writable views of them, forked at once | [`PrivatePages`] |
//! | a pool of objects to borrow | [`ObjectPool`] |
//! | a hierarchical limit, charged without a shared write | [`BudgetTree`] |
//! | a reference count that all threads change all the time | [`ScalableArc`] |
//!
//! A whole cache with expiry and single flight is the crate `manycore-cache`; metrics by name and
//! labels, for a scraper, are `manycore-metrics`; page-sized memory that is handed out, lent on and
//! revoked is `manycore-vm`.
//!
//! ## Safe memory reclamation: [`section`]
//!
//! For structures that are read without a lock while nodes are removed and freed:
//! [`section::Domain`] with typed pointers, and a lock for each node. In place of epoch-based
//! reclamation, RCU or hazard pointers.
//!
//! ## To build your own
//!
//! - [`oplog`]: a type whose updates are deferred, [`oplog::Deferred`], with the kind of log that
//!   fits them: [`oplog::Ordered`] if their order matters; [`oplog::Commuting`] if any two commute;
//!   [`oplog::Combining`] if those of one key can be combined; if a removal cancels an insertion,
//!   [`oplog::Cancelling`] where one thread usually does both, [`oplog::Absorbing`] where not; or
//!   your own [`oplog::Log`].
//! - [`ldu`]: a set whose members are inserted and removed, often on different threads:
//!   [`ldu::DeferredSet`]. A member carries marks, in which its insertion and removal cancel. If it
//!   has other updates besides, whose order matters: [`ldu::Combined`]. Many small, short-lived
//!   sets: [`ldu::SetDomain`].
//! - [`cluster`]: one interface and several representatives inside, [`cluster::Clustered`]; an
//!   implementation that is replaced while it is in use (hot swap), [`cluster::Swappable`]; an
//!   object of your own whose load you do not know, [`cluster::Adaptive`].
//! - [`lock`]: fair locks (ticket, MCS), and a big-reader lock for read-mostly values.
//! - [`slab`]: nodes that many threads allocate and free all the time.
//! - [`namespace`]: nodes that are known outside by an id (connections, files, entities).
//!
//! ## Below them
//!
//! [`clock`], one ordered time for all cores; [`percpu`], per-thread slots, CPU topology and
//! affinity; [`config`], the constants; and [`profile`], which lists the objects that threads wait
//! for, the most contended first.
//!
//! # Cargo features
//!
//! One for each of `section`, `slab`, `namespace`, `oplog`, `ldu`, `cluster` and `collections`,
//! which bring the modules that they are built on; the default is all. For reclamation alone:
//!
//! ```toml
//! manycore = { version = "0.1", default-features = false, features = ["section"] }
//! ```
//!
//! Off by default, each with the crate of its name: `serde` writes and reads
//! [`HashMap`] and [`HashSet`]; `rayon` makes, extends and walks them in parallel.
//!
//! # What it promises
//!
//! - Reads are linearizable, except where a type says otherwise ([`collections::Counter`] does).
//! - The hot path of a contended object writes no shared cache line and takes no lock. An object
//!   that is not contended is a plain locked object and costs 16 bytes more than its value.
//! - Nothing is ever dropped silently: every bound has a policy.
//! - A panic in your code poisons that object alone, and loses no other thread's update.
//! - No helper threads, and no work at start-up except detecting the clock.
//!
//! # When not to use it
//!
//! When updates must return something, when reads are about as frequent as updates, or when the
//! structure is not contended: a lock is simpler and as fast.
//!
//! [`Counter`]: collections::Counter
//! [`CounterArray`]: collections::CounterArray
//! [`Gauge`]: collections::Gauge
//! [`Histogram`]: collections::Histogram
//! [`HashMap`]: collections::HashMap
//! [`HashSet`]: collections::HashSet
//! [`RangeMap`]: collections::RangeMap
//! [`ReplicatedMap`]: collections::ReplicatedMap
//! [`DHash`]: collections::DHash
//! [`EventQueue`]: collections::EventQueue
//! [`TimerQueue`]: collections::TimerQueue
//! [`Registry`]: collections::Registry
//! [`IntervalRegistry`]: collections::IntervalRegistry
//! [`ActiveSet`]: collections::ActiveSet
//! [`Lru`]: collections::Lru
//! [`PageCache`]: collections::PageCache
//! [`PrivatePages`]: collections::PrivatePages
//! [`ObjectPool`]: collections::ObjectPool
//! [`BudgetTree`]: collections::BudgetTree
//! [`ScalableArc`]: collections::ScalableArc

// What the modules that are left out would use.
#![cfg_attr(not(feature = "collections"), allow(dead_code, unused_imports))]

pub mod clock;
#[cfg(feature = "cluster")]
pub mod cluster;
#[cfg(feature = "collections")]
pub mod collections;
pub mod config;
#[cfg(feature = "ldu")]
pub mod ldu;
pub mod lock;
#[cfg(feature = "namespace")]
pub mod namespace;
#[cfg(feature = "oplog")]
pub mod oplog;
pub mod percpu;
pub(crate) mod policy;
pub mod profile;
#[cfg(feature = "section")]
pub mod section;
#[cfg(feature = "slab")]
pub mod slab;
pub(crate) mod sync;

/// Compiles and runs the examples of the README.
#[cfg(all(doctest, feature = "collections"))]
#[doc = include_str!("../README.md")]
struct Readme;
