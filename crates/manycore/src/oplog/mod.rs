//! Deferred updates: log now, merge when somebody reads.
//!
//! Owns: [`Deferred`], the kinds of log, and the table that says who may have logs. Source: OpLog,
//! sections 4 to 6.
//!
//! An update of a contended structure usually returns nothing, so it need not happen at once.
//! [`Deferred`] writes it to a log of the calling thread's own, which takes no lock and moves no
//! cache line. A read takes the object's lock, collects the logs, applies what is in them, and then
//! looks.
//!
//! # The laws
//!
//! - **oplog.D1** A slot's log is written by its slot alone, and publishing an entry is ordered
//!   before the updater's later loads: by one locked instruction, or by plain stores for which the
//!   reader waits: for the updater's own answer if it is busy, else for a `membarrier`
//!   ([`Publish`]).
//! - **oplog.D2** A read sees every update that returned before the read began, and a consistent
//!   cut of the rest. Logs with stamps are collected up to a cut in time; logs without stamps all
//!   stand still at one moment. Where the merge is a tree ([`MergeStrategy`]), all do.
//! - **oplog.D3** An update that took its stamp early and reached its log late is concurrent with
//!   every update it could be out of order with. Batches are applied in the order of reads.
//! - **oplog.D4** What a read takes from a log leaves the log: nothing counts twice.
//! - **oplog.D5** Absorption needs identities: see [`Cancel`]. A queue never absorbs.
//! - **oplog.D6** Logs are bounded in entries, bytes and time; what happens at the bound is the
//!   builder's choice ([`WhenFull`]). Nothing is ever dropped silently.
//! - **oplog.D7** A panic while updates are applied reaches the reader that applied them, and so
//!   does one while another thread absorbs updates on its behalf ([`Log::absorb`]). The object is
//!   poisoned until [`Deferred::clear_poison`]; updates not yet applied stay queued, and updates go
//!   on being logged. The update that panicked is gone, as with any panic. A panic in any other
//!   function of a log reaches the thread that called it, or poisons the object if that thread came
//!   for another object (an eviction); what is in the logs stays there. One in the destructor of an
//!   emptied log that is freed ends there.
//! - **oplog.D8** A cold object costs its value plus 16 bytes and applies updates at once.
//!   Contention promotes it to logs. Reads that find too little take them away; so does a busier
//!   object in its place of the [`LogTable`], or idleness while others are promoted, and then 256
//!   bytes beside the value's own place stay until the object is next used.
//! - **oplog.D10** No thread waits for itself, as the next sections say.
//! - **oplog.D11** Poison keeps everything: [`Deferred::get_mut`], [`Deferred::try_into_inner`] and
//!   an eviction leave a poisoned object's queue as it is. Only its drop drops it.
//!
//! # Who may wait for whom
//!
//! This is the rule of everything that runs user code under a lock here and in
//! [`cluster::adaptive`](crate::cluster::adaptive); `lock::held` counts and checks it. A thread is
//! *inside* while it holds an object (a guard, or a function of the user's that runs under the
//! object's lock: `apply`, `merge`, `collect`, `len`, a destructor), or has a log in hand (`push`,
//! `absorb`).
//!
//! | the thread is inside and | on its own object | on another object |
//! |---|---|---|
//! | updates | queued for the next read | applied if it is cold and free, else logged or queued |
//! | reads, changes, repairs | panics | waits; panics where the wait would never end |
//! | `try_read` | `Busy` | does not wait |
//! | demotes | panics | as a read |
//! | promotes | does nothing | as an update; no other object is evicted |
//!
//! With a log in hand, an update of another object is never applied, only logged, and each read,
//! demotion or repair panics: the log's reader waits for this very thread. A demotion or eviction
//! in which updates append to their own object gives up, or goes on with what came.
//!
//! So updates never wait for another thread's user code where that could wait for them, and objects
//! may update each other in any circle. Reads can't: of threads that read each other's objects in a
//! circle, the last one panics and says so. What is not seen are the user's own locks.
//!
//! # Consistency
//!
//! Linearizable: an update takes effect, as far as any read can tell, at one moment between its
//! call and its return.
//!
//! # Threads, forks, panics, recursion
//!
//! - A thread that ends leaves its logs where they are; the next read collects them, and the next
//!   thread that takes the slot goes on with them. Any number of threads may come and go.
//! - After `fork`, the child's copy of an object holds what the parent had logged, provided that no
//!   other thread was inside `append` or a read of that object at that moment. (A lock held by a
//!   thread that does not exist in the child is never given back, as with every lock.)
//! - Recursion: see above.

mod append;
mod builder;
mod configurations;
mod core;
mod deferred;
mod evict;
mod gate;
mod guard;
mod hold;
mod kinds;
mod late;
mod lifecycle;
mod log;
mod log_set;
#[cfg(all(test, manycore_loom))]
mod loom_tests;
mod managed;
pub(crate) mod promotion;
mod reader;
mod shared;
#[cfg(all(test, manycore_shuttle))]
mod shuttle_tests;
pub(crate) mod slot_log;
mod stats;
pub(crate) mod table;
mod tree;

pub use crate::lock::error::TryReadError;
pub use builder::{BuildError, Builder, Logs, MergeStrategy, Publish, Slots, WhenFull};
pub use deferred::Deferred;
pub use guard::ReadGuard;
pub(crate) use hold::ColdHold;
pub use kinds::{Absorbing, Cancel, Cancelling, Combine, Combining, Commuting, Ordered};
pub use log::{Log, Op};
pub(crate) use managed::{Kind, Meter};
pub use stats::Stats;
pub use table::LogTable;
