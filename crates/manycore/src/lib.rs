//! Shared data structures that keep scaling when every thread updates them.
//!
//! On a machine with many cores, one contended cache line costs hundreds to thousands of cycles
//! for each write. This library keeps the writes of a thread on lines of its own, and brings them
//! together when somebody reads.
//!
//! # Which type do I need?
//!
//! Ready-made, in [`collections`]:
//!
//! - [`Counter`](collections::Counter), [`CounterArray`](collections::CounterArray): statistics,
//!   byte and request counts, histograms.
//! - [`Registry`](collections::Registry): what is open now; rarely walked.
//! - [`IntervalRegistry`](collections::IntervalRegistry): ranges that come and go, and who of them
//!   overlaps one.
//! - [`ActiveSet`](collections::ActiveSet): who is active now, and who is the oldest.
//! - [`TimerQueue`](collections::TimerQueue): timers that nearly always are cancelled.
//! - [`EventQueue`](collections::EventQueue): events from many threads, in the order they happened.
//! - [`Lru`](collections::Lru): a recency list, touched at every access, asked at eviction.
//! - [`HashMap`](collections::HashMap): values by key; reads take no lock and write nothing.
//! - [`ReplicatedMap`](collections::ReplicatedMap): the same, with a copy near each reader.
//! - [`DHash`](collections::DHash): elements with a part that all share and one for each thread.
//! - [`PageCache`](collections::PageCache): pages of a slow store, pinned while they are used.
//! - [`PrivatePages`](collections::PrivatePages): private, writable views of them, forked at once.
//! - [`BudgetTree`](collections::BudgetTree): limits that hold, charged without a shared write.
//! - [`ObjectPool`](collections::ObjectPool): things to borrow, from a shelf near each thread.
//! - [`ScalableArc`](collections::ScalableArc): a value of which all threads take and drop
//!   references all the time.
//!
//! For a type of your own, [`oplog::Deferred`] with the kind of log that fits its updates:
//!
//! - order shows: [`oplog::Ordered`];
//! - any two updates commute: [`oplog::Commuting`];
//! - updates of one key add up: [`oplog::Combining`];
//! - a remove undoes an insert: [`oplog::Cancelling`] if one thread usually does both,
//!   [`oplog::Absorbing`] if not;
//! - none of these: your own [`oplog::Log`].
//!
//! For a set whose members come and go, often on different threads: [`ldu::DeferredSet`]. A member
//! carries marks, in which its coming and its going cancel. If it has other updates besides, whose
//! order shows: [`ldu::Combined`]. Many small such sets that live shortly: [`ldu::SetDomain`].
//!
//! For structures that are read without a lock while nodes are removed and freed: [`section`],
//! with [`section::Domain`] and typed pointers, and a lock for each node.
//!
//! For objects that are one to their callers and many inside, or whose implementation changes while
//! it is in use: [`cluster`], with [`cluster::Clustered`] and [`cluster::Swappable`]. For a type of
//! your own whose load you do not know: [`cluster::Adaptive`].
//!
//! Where a lock it must be: [`lock`], with locks that serve in order, and one for values that are
//! hardly ever written.
//!
//! For nodes that many threads make and free all the time, [`slab`]: memory of each thread's own.
//!
//! Nodes that the outside world knows by a number (connections, files, entities):
//! [`namespace::IdSpace`].
//!
//! Which objects do your threads wait for? [`profile`] lists them, the hottest first.
//!
//! Below them, for those who build such types themselves: [`clock`], one ordered time for all
//! cores, and [`percpu`], who am I and where.
//!
//! # What it promises
//!
//! - Reads are linearizable, except where a type says otherwise ([`collections::Counter`] does).
//! - The hot path of a contended object writes no shared cache line and takes no lock. An object
//!   that is not contended is a plain locked object and costs 16 bytes more than its value.
//! - Nothing is ever dropped silently: every bound has a policy.
//! - A panic in your code poisons that object alone, and loses no other thread's update.
//! - No helper threads, and no work at start-up but finding the clock.
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
pub mod profile;
pub mod section;
pub mod slab;
pub(crate) mod sync;

/// Compiles and runs the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
