//! Shared data structures that keep scaling when every thread updates them.
//!
//! ```
//! use manycore::collections::{Counter, HashMap};
//!
//! static REQUESTS: Counter = Counter::new(0);
//!
//! let sessions = HashMap::new();
//! std::thread::scope(|s| {
//!     for id in 0..4 {
//!         let sessions = &sessions;
//!         s.spawn(move || {
//!             sessions.insert(id, format!("session {id}"));
//!             REQUESTS.inc(); // once threads contend, it writes a line of its own
//!         });
//!     }
//! });
//! assert_eq!(REQUESTS.sum(), 4);
//! assert_eq!(sessions.read(&2, |session| session.len()), Some(9)); // takes no lock
//! ```
//!
//! On a machine with many cores, each write to a contended cache line costs hundreds to thousands
//! of cycles. This library lets each thread write to cache lines of its own (no contention, no
//! false sharing) and merges the writes at the next read.
//!
//! # Which type do I need?
//!
//! | You have | Take |
//! |---|---|
//! | a counter: statistics, bytes, requests | [Counter], [CounterArray] |
//! | a number that goes up and down; a distribution with quantiles | [Gauge], [Histogram] |
//! | a map: values by key; reads take no lock and write nothing | [HashMap] |
//! | ... of small plain keys and values (numbers, ids), copied in and out | [FlatHashMap] |
//! | ... in the order of its keys: ranges, first and last | [OrderedMap] |
//! | a set with look-ups | [HashSet] |
//! | a map replicated near each reader | [ReplicatedMap] |
//! | ... with a part of each value for each thread | [DHash] |
//! | ... from ranges of 64-bit keys to values | [RangeMap] |
//! | a queue: events from many threads, in the order they happened | [EventQueue] |
//! | ... of timers that nearly always are cancelled | [TimerQueue] |
//! | a registry of what is open now, rarely iterated | [Registry] |
//! | ... of intervals, with overlap queries | [IntervalRegistry] |
//! | ... of active transactions or snapshots, and the oldest of them | [ActiveSet] |
//! | a cache's LRU list, updated at every access, read at eviction | [Lru] |
//! | a page cache: pages of a slow store, pinned while in use | [PageCache] |
//! | ... and private, writable views of them, forked at once | [PrivatePages] |
//! | a pool of objects to borrow | [ObjectPool] |
//! | a hierarchical limit, charged without a shared write | [BudgetTree] |
//! | a reference count that all threads change all the time | [ScalableArc] |
//!
//! The other crates of the family: `manycore-cache` is a whole cache with expiry and single flight.
//! `manycore-metrics` has metrics by name and labels, for a scraper. `manycore-trace` records what
//! happened when, and on which thread. `manycore-vm` hands out page-sized memory, lends it on and
//! revokes it. The chapter [choosing a
//! type](https://github.com/manycore-rs/manycore/blob/main/docs/guide/choosing.md) starts from what
//! your program uses now.
//!
//! # When not to use it
//!
//! Take a plain lock if updates must return something, if reads are about as frequent as updates,
//! or if the structure is not contended. A lock is simpler then, and as fast.
//!
//! # What it promises
//!
//! - Reads are linearizable, unless a type says otherwise ([`collections::Counter`] does).
//! - The hot path of a contended object writes no shared cache line and takes no lock. An object
//!   that is not contended is a plain locked object and costs 16 bytes more than its value.
//! - Nothing is dropped silently: every bound has a policy.
//! - A panic in your code poisons only the object it happened in, and loses no other thread's
//!   update.
//! - There are no helper threads, and no work at start-up except detecting the clock.
//!
//! # Fork
//!
//! A child of `fork` has one thread, the one that forked, and a copy of all memory. The child can
//! go on using the library and start threads. No lock of the library itself is held by a thread
//! that the child does not have, and nothing that is created at first use is half created. The
//! state of each object is as the other threads left it:
//!
//! | At the fork | In the child |
//! |---|---|
//! | a section of the forking thread | stays open |
//! | a section of another thread | stays open until the child closes it |
//! | retired by the forking thread | freed |
//! | retired by a thread outside of sections | freed |
//! | retired by a thread inside of a section | lost: not freed, the memory stays |
//! | a destructor that another thread runs | does not go on; nothing waits for it |
//! | a destructor that the forking thread runs | goes on |
//! | a thread in any function of a domain | no effect on the others |
//! | an object that is reserved for a thread outside | works |
//! | a thread in an update of an object | its lock stays held |
//! | a guard of an object in another thread | its lock stays held |
//! | an object that no other thread was using | works |
//! | a `Counter` or `ScalableArc` that other threads were using | works |
//! | a load of a cache in another thread | does not end, nor do requests for its key |
//! | a call of a [`Swappable`](cluster::Swappable) in another thread | does not end |
//! | the counts of [`profile`] | go on |
//! | a recording (`manycore-trace`) | has ended |
//! | mappings (`manycore-vm`) | must not be used |
//!
//! While a section of another thread is open, nothing is freed and
//! [`synchronize`](section::Domain::synchronize) does not return. The library does not close such a
//! section by itself, because the forking thread may hold references that the section protects. The
//! program closes it with [`abandon_other_threads`](section::Domain::abandon_other_threads).
//!
//! A lock may stay held: of a map's bucket, a cache, a queue, a set, a value with logs. Then
//! updates and reads that need the lock wait forever, and `try_read` says that it is busy.
//! Appending to logs and looking up in maps need no lock.
//!
//! A child that goes on to `exec` need not care. A signal handler must not fork, nor a thread whose
//! thread-local destructors have run. A program can hold its own locks over a fork, as the library
//! does: [`percpu::AtFork`].
//!
//! # To build your own
//!
//! - [`section`]: safe memory reclamation, for structures that are read without a lock while nodes
//!   are removed and freed. It has [`section::Domain`] with typed pointers, and a lock for each
//!   node. Use it in place of epoch-based reclamation, RCU or hazard pointers.
//! - [`oplog`]: a type whose updates are deferred, [`oplog::Deferred`]. Choose the log by its
//!   updates: [`oplog::Ordered`] if their order matters; [`oplog::Commuting`] if any two commute;
//!   [`oplog::Combining`] if updates of one key can be combined. If a removal cancels an insertion,
//!   take [`oplog::Cancelling`]. Or write your own [`oplog::Log`].
//! - [`ldu`]: a set whose members are inserted and removed, often on different threads:
//!   [`ldu::DeferredSet`]. A member carries marks, in which its insertion and its removal cancel.
//! - [`cluster`]: one interface with several representatives inside, [`cluster::Clustered`]; an
//!   implementation that is replaced while it is in use (hot swap), [`cluster::Swappable`]; an
//!   object of your own with an unknown load, [`cluster::Adaptive`].
//! - [`lock`]: fair locks (ticket, MCS), and a big-reader lock for read-mostly values.
//! - [`slab`]: nodes that many threads allocate and free all the time.
//! - [`namespace`]: nodes that outside code knows by an id (connections, files, entities).
//! - [`profile`] lists the objects that threads wait for, the most contended first. Look there
//!   before you make anything scalable.
//!
//! Below them are [`clock`], one ordered time for all cores, and [`percpu`], per-thread slots, CPU
//! topology and affinity.
//!
//! # Cargo features
//!
//! There is one feature for each of `section`, `slab`, `namespace`, `oplog`, `ldu`, `cluster` and
//! `collections`. A feature also enables the modules that it builds on. The default is all. For
//! reclamation alone:
//!
//! ```toml
//! manycore = { version = "0.1", default-features = false, features = ["section"] }
//! ```
//!
//! These features are off by default, because each brings a crate: `futures-core` (a
//! [`collections::Receiver`] is a `Stream`), `lock_api` (the locks of [`lock`] are raw locks of
//! that crate), `serde` (writes and reads [HashMap] and [HashSet]) and `rayon` (builds, extends and
//! walks them in parallel).
//!
//! # Guide
//!
//! Chapters in the repository: [deferred
//! updates](https://github.com/manycore-rs/manycore/blob/main/docs/guide/deferred-updates.md),
//! [reclamation in
//! practice](https://github.com/manycore-rs/manycore/blob/main/docs/guide/reclamation.md),
//! [async](https://github.com/manycore-rs/manycore/blob/main/docs/guide/async.md), [the simulator
//! in CI](https://github.com/manycore-rs/manycore/blob/main/docs/guide/simulator.md), [coming from
//! other crates](https://github.com/manycore-rs/manycore/blob/main/docs/guide/coming-from.md),
//! [re-entrancy](https://github.com/manycore-rs/manycore/blob/main/docs/reentrancy.md),
//! [figures](https://github.com/manycore-rs/manycore/blob/main/docs/figures.md).
//!
//! # Sources
//!
//! Pages name them by these words:
//!
//! - *OpLog*: S. Boyd-Wickizer, M. F. Kaashoek, R. Morris, N. Zeldovich, *OpLog: a library for
//!   scaling update-heavy data structures*, MIT-CSAIL-TR-2014-019, 2014.
//! - *LDU*: J. Kyong, S.-S. Lim, *LDU: a lightweight concurrent update method with deferred
//!   processing for Linux kernel scalability*, PDCN 2016, and J. Kyong's thesis of the same
//!   subject.
//! - *ParSec*: Q. Wang, T. Stamler, G. Parmer, *Parallel sections: scaling system-level
//!   data-structures*, EuroSys 2016.
//! - *K42*: J. Appavoo and others, *Enabling scalable performance for general purpose workloads on
//!   shared memory multiprocessors*, an IBM research report.
//! - *BRAVO*: D. Dice, A. Kogan, *BRAVO: biased locking for reader-writer locks*, USENIX ATC 2019.
//!
//! [Counter]: collections::Counter
//! [CounterArray]: collections::CounterArray
//! [Gauge]: collections::Gauge
//! [Histogram]: collections::Histogram
//! [HashMap]: collections::HashMap
//! [FlatHashMap]: collections::FlatHashMap
//! [HashSet]: collections::HashSet
//! [OrderedMap]: collections::OrderedMap
//! [RangeMap]: collections::RangeMap
//! [ReplicatedMap]: collections::ReplicatedMap
//! [DHash]: collections::DHash
//! [EventQueue]: collections::EventQueue
//! [TimerQueue]: collections::TimerQueue
//! [Registry]: collections::Registry
//! [IntervalRegistry]: collections::IntervalRegistry
//! [ActiveSet]: collections::ActiveSet
//! [Lru]: collections::Lru
//! [PageCache]: collections::PageCache
//! [PrivatePages]: collections::PrivatePages
//! [ObjectPool]: collections::ObjectPool
//! [BudgetTree]: collections::BudgetTree
//! [ScalableArc]: collections::ScalableArc

// Items that only the modules left out would use.
#![cfg_attr(not(feature = "collections"), allow(dead_code, unused_imports))]

pub mod clock;
#[cfg(feature = "cluster")]
pub mod cluster;
#[cfg(feature = "collections")]
pub mod collections;
mod config;
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
