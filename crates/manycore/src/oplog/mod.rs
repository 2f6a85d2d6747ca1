//! Deferred updates: logged by the updater, merged by the next read.
//!
//! An update of a contended structure usually returns nothing, so it need not be applied at once.
//! [`Deferred`] appends it to a log of the calling thread's own, which takes no lock and writes no
//! shared cache line. A read takes the object's lock, collects the logs, applies the updates in
//! them, and then returns the value, which stays plain sequential code:
//!
//! ```
//! use manycore::oplog::{Commuting, Deferred, Op};
//! use std::collections::BTreeMap;
//!
//! struct Seen(String); // an update: it owns its data, and returns nothing
//! impl Op<BTreeMap<String, u64>> for Seen {
//!     fn apply(self, pages: &mut BTreeMap<String, u64>) {
//!         *pages.entry(self.0).or_default() += 1;
//!     }
//! }
//!
//! let pages = Deferred::<BTreeMap<String, u64>, Commuting<Seen>>::new(BTreeMap::new());
//! std::thread::scope(|s| {
//!     for _ in 0..4 {
//!         s.spawn(|| pages.append(Seen("/".into())));
//!     }
//! });
//! assert_eq!(pages.read()["/"], 4); // sees every append that returned before it
//! ```
//!
//! | The updates | The log |
//! |---|---|
//! | must be applied in the order in which they happened | [Ordered]: each has a time stamp |
//! | commute, any two of them | [Commuting] |
//! | of one key can be made one: sums, maxima, last writes | [Combining] |
//! | insert and remove, mostly on one thread | [Cancelling]: such a pair is never applied |
//! | insert and remove, on any threads | [Absorbing], or a set of [ldu](crate::ldu) |
//! | are something that a counter or a bitmap holds | a [Log] of yours |
//!
//! [`Deferred::builder`] has the bounds of the logs ([`WhenFull`]) and when there are logs at all
//! ([`Logs`]): an object that no threads contend for is a plain locked object. Not for updates that
//! return something, and not where reads are about as frequent as updates: a lock is better there.
//! [`collections`](crate::collections) has ready-made types.
//!
//! # Consistency
//!
//! Linearizable: an update takes effect, as far as any read can tell, at one moment between its
//! call and its return.
//!
//! # Evictions
//!
//! At most 4,096 objects of a process have logs at a time: an object that wants logs takes the
//! place its address hashes to, and the object that had it is synchronized and continues without
//! logs. So the memory of logs is bounded, however many objects there are. Each promotion also
//! inspects one place, and evicts an object that was not updated since the inspection before the
//! last. (An object that was updated while it was poisoned, or by a thread that must not wait, has
//! logs without a place until its next read.)
//!
//! To synchronize an object is to apply its updates, in the thread that needs the place: an
//! `append` to one object, or [`Counter::add`](crate::collections::Counter::add), may run another
//! object's updates; but not while that thread holds an object or runs a log's code. So do not
//! append or count under a lock of your own that updates of other objects take. A panic of these
//! updates is caught; it poisons the object that was evicted.
//!
//! # Threads, forks, panics, recursion
//!
//! - The logs of a thread that ends stay; the next read collects them, and the next thread that
//!   takes the slot continues them. Any number of threads may start and end.
//! - After `fork`, the child's copy of an object holds what the parent had logged, provided that no
//!   other thread was inside `append` or a read of that object at that moment. (A lock held by a
//!   thread that does not exist in the child is never released, as with every lock.) The
//!   [crate](crate#fork) has the table.
//! - Recursion: see the table above.
//!
//! # Which thread may wait for which
//!
//! These rules hold for all user code that runs under a lock here and in
//! [`cluster::adaptive`](crate::cluster::adaptive); `lock::held` counts and checks it. A thread is
//! *inside* while it holds an object (by a guard, or by a user's function that runs under the
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
//! While a thread has a log in hand, its update of another object is never applied, only logged,
//! and each read, demotion or repair panics: the log's reader waits for this very thread. A
//! demotion or eviction during which updates append to their own object is abandoned, or also
//! applies these.
//!
//! So updates never wait for another thread's user code where that could wait for them, and objects
//! may update each other in cycles. Reads may not: of threads that read each other's objects in a
//! cycle, the last one panics with a message. The user's own locks are not part of this check.
//!
//! # Laws
//!
//! Owns: [`Deferred`], the kinds of log, and the table that decides which objects may have logs.
//!
//! - **oplog.D1** Only its slot writes a slot's log, and publishing an entry is ordered before the
//!   updater's later loads: by one locked instruction; or, with plain stores, because the reader
//!   waits for the updater's own answer if it is busy, else for a `membarrier` ([`Publish`]).
//! - **oplog.D2** A read sees every update that returned before the read began, and a consistent
//!   cut of the concurrent ones. Logs with stamps are collected up to a cut in time; for logs
//!   without stamps, and where the merge is a tree ([`MergeStrategy`]), all updaters are stopped at
//!   one moment. A read that finds updates in no other log than its own thread's applies these
//!   where they are, and stops no other thread.
//! - **oplog.D3** An update that is logged long after it took its stamp is concurrent with every
//!   update that it could be out of order with. Batches are applied in the order of reads.
//! - **oplog.D4** What a read collects is removed from the log: no update is applied twice.
//! - **oplog.D5** Absorption needs identities: see [`Cancel`]. A queue never absorbs.
//! - **oplog.D6** Logs are bounded in entries, bytes and time; what happens at the bound is the
//!   builder's choice ([`WhenFull`]). No update is ever dropped silently.
//! - **oplog.D7** A panic while updates are applied reaches the reader that applied them, and so
//!   does one while another thread absorbs updates on its behalf ([`Log::absorb`]). The object is
//!   poisoned until [`Deferred::clear_poison`]; updates not yet applied stay queued, and new ones
//!   are still logged. The update that panicked is lost. A panic in any other function of a log
//!   reaches the thread that called it, or poisons the object if that thread runs an eviction for
//!   another object; the updates in the logs stay there. A panic in the destructor of an emptied
//!   log is caught where the log is freed.
//! - **oplog.D8** A cold object costs its value plus 16 bytes and applies updates at once.
//!   Contention promotes it to logs. Reads that find too few updates demote it. It is evicted by a
//!   busier object that needs its place in the table of 4,096, or if it is idle while others are
//!   promoted; then 256 bytes besides the value's own place stay allocated until the object is next
//!   used.
//! - **oplog.D10** No thread waits for itself: see the next sections.
//! - **oplog.D11** Poison keeps everything: [`Deferred::get_mut`], [`Deferred::try_into_inner`] and
//!   an eviction leave a poisoned object's queue as it is. Only dropping the object drops it.
//!
//! Source: [OpLog](crate#sources), sections 4 to 6.

// The files, from the bottom up:
//
// | files | what |
// |---|---|
// | `settings`, `configurations`, `log`, `kinds` | what users choose |
// | `word`, `gate`, `contention` | states with their transitions |
// | `policy` | decisions |
// | `table`, `promotion` | what objects share, `Counter` and `ScalableArc` too |
// | `slot_log`, `late`, `collected_logs`, `branches`, `log_set` | waiting updates |
// | `hot_state`, `log_access` | the layout of a hot object |
// | `push`, `collect`, `combining_tree`, `merge`, `stats` | work on a hot state |
// | `object`, `guard`, `lifecycle`, `acquire`, `append` | work on an object |
// | `readers` | readers without the lock |
// | `deferred`, `adaptive`, `builder` | the interface |

// First: the page of `Deferred` shows methods in the order of the modules that have them.
mod deferred;

mod acquire;
// Public as `cluster::adaptive`.
#[doc(hidden)]
pub mod adaptive;
mod append;
mod branches;
mod builder;
mod collect;
mod collected_logs;
mod combining_tree;
mod configurations;
mod contention;
mod gate;
mod guard;
mod hot_state;
mod in_place;
mod kinds;
mod late;
mod lifecycle;
mod log;
mod log_access;
mod log_set;
#[cfg(all(test, manycore_loom))]
mod loom_tests;
mod merge;
mod object;
mod policy;
pub(crate) mod promotion;
mod push;
mod readers;
mod settings;
#[cfg(all(test, manycore_shuttle))]
mod shuttle_tests;
pub(crate) mod slot_log;
mod stats;
pub(crate) mod table;
mod word;

pub use crate::lock::error::TryReadError;
pub use builder::Builder;
pub(crate) use builder::Checked;
pub use guard::ReadGuard;
pub use kinds::{Absorbing, Cancel, Cancelling, Combine, Combining, Commuting, Ordered};
pub use log::{Log, Op};
pub use object::Deferred;
pub use settings::{BuildError, Logs, MergeStrategy, Publish, WhenFull};
pub use stats::Stats;
#[doc(hidden)]
pub use table::LogTable;
