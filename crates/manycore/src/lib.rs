//! Shared data structures that keep scaling when every thread updates them.
//!
//! On a machine with many cores, each write to a contended cache line costs hundreds to thousands
//! of cycles. This library keeps the writes of a thread on lines of its own (no contention, no
//! false sharing), and merges them at the next read.
//!
//! # Which type do I need?
//!
//! Ready-made, in [`collections`]:
//!
//! - [`Counter`](collections::Counter), [`CounterArray`](collections::CounterArray): statistics,
//!   byte and request counts, histograms.
//! - [`Registry`](collections::Registry): what is open now; rarely iterated.
//! - [`IntervalRegistry`](collections::IntervalRegistry): intervals that are inserted and removed,
//!   and overlap queries.
//! - [`ActiveSet`](collections::ActiveSet): active transactions or snapshots, and the oldest of
//!   them.
//! - [`TimerQueue`](collections::TimerQueue): timers that nearly always are cancelled.
//! - [`EventQueue`](collections::EventQueue): events from many threads, in the order they happened.
//! - [`Lru`](collections::Lru): an LRU list, updated at every access, read at eviction.
//! - [`HashMap`](collections::HashMap): values by key; reads take no lock and write nothing.
//! - [`ReplicatedMap`](collections::ReplicatedMap): the same, replicated near each reader.
//! - [`DHash`](collections::DHash): elements with a part that all share and one for each thread.
//! - [`PageCache`](collections::PageCache): pages of a slow store, pinned while they are used.
//! - [`PrivatePages`](collections::PrivatePages): private, writable views of them, forked at once.
//! - [`BudgetTree`](collections::BudgetTree): hierarchical limits, charged without a shared write.
//! - [`ObjectPool`](collections::ObjectPool): objects to borrow, from a thread-local shelf.
//! - [`ScalableArc`](collections::ScalableArc): a reference count that all threads change
//!   all the time.
//!
//! For a type of your own, [`oplog::Deferred`] with the kind of log that fits its updates:
//!
//! - order matters: [`oplog::Ordered`];
//! - any two updates commute: [`oplog::Commuting`];
//! - updates of one key can be combined: [`oplog::Combining`];
//! - a removal cancels an insertion: [`oplog::Cancelling`] if one thread usually does both,
//!   [`oplog::Absorbing`] if not;
//! - none of these: your own [`oplog::Log`].
//!
//! For a set whose members are inserted and removed, often on different threads:
//! [`ldu::DeferredSet`]. A member carries marks, in which its insertion and removal cancel. If it
//! has other updates besides, whose order matters: [`ldu::Combined`]. Many small, short-lived sets:
//! [`ldu::SetDomain`].
//!
//! For structures that are read without a lock while nodes are removed and freed (safe memory
//! reclamation): [`section`], with [`section::Domain`] and typed pointers, and a lock for each
//! node.
//!
//! For objects with one interface and several representatives inside, or whose implementation is
//! replaced while it is in use (hot swap): [`cluster`], with [`cluster::Clustered`] and
//! [`cluster::Swappable`]. For a type of your own whose load you do not know:
//! [`cluster::Adaptive`].
//!
//! If you need a lock: [`lock`], with fair locks (ticket, MCS) and a big-reader lock for
//! read-mostly values.
//!
//! For nodes that many threads allocate and free all the time: [`slab`].
//!
//! For nodes that are known outside by an id (connections, files, entities):
//! [`namespace::IdSpace`].
//!
//! Which objects do your threads wait for? [`profile`] lists them, the most contended first.
//!
//! Below them, to build such types yourself: [`clock`], one ordered time for all cores, and
//! [`percpu`], per-thread slots, CPU topology and affinity.
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

pub mod clock;
pub mod cluster;
pub mod collections;
pub mod config;
pub mod ldu;
pub mod lock;
pub mod namespace;
pub mod oplog;
pub mod percpu;
pub(crate) mod policy;
pub mod profile;
pub mod section;
pub mod slab;
pub(crate) mod sync;

/// Compiles and runs the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
