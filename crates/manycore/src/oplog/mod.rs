//! Deferred updates: the updater logs an update, and the next read applies it.
//!
//! An update of a contended structure usually returns nothing, so it need not be applied at once.
//! [`Deferred`] appends it to a log of the calling thread, which takes no lock and writes no shared
//! cache line. A read takes the object's lock, collects the logs, and applies the updates in them.
//! Then it returns the value, which stays plain sequential code:
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
//! | commute with each other | [Commuting] |
//! | with the same key can be combined into one update: sums, maxima, last writes | [Combining] |
//! | insert and remove | [Cancelling]: such a pair is never applied, even from two threads |
//! | insert and remove members that can hold a mark | a set of [ldu](crate::ldu) |
//! | have a shorter form, such as a counter or a bitmap | a [Log] of yours |
//!
//! [`Deferred::builder`] sets the bounds of the logs and when an object has logs at all ([`Logs`]):
//! an object without contention is a plain locked object. Do not use it for updates that return
//! something, or where reads are about as frequent as updates: a lock is better there.
//! [`collections`](crate::collections) has ready-made types.
//!
//! # Consistency
//!
//! Linearizable: for every read, an update takes effect at one moment between its call and its
//! return.
//!
//! # Evictions
//!
//! At most 4,096 objects of a process have logs at a time. An object that wants logs takes the
//! place that its address hashes to. The object that had the place is synchronized and goes on
//! without logs. So the memory of logs is bounded, however many objects there are. Each promotion
//! also inspects one place, and evicts an object that was not updated since the inspection before
//! the last. (An object that was updated while it was poisoned, or by a thread that must not wait,
//! has logs without a place until its next read.)
//!
//! Synchronizing an object means applying its updates, in the thread that needs the place. So an
//! `append` to one object, or [`Counter::add`](crate::collections::Counter::add), may run another
//! object's updates, except while the thread holds an object or runs a log's code. So do not append
//! or count under a lock of yours that updates of other objects take. A panic of these updates is
//! caught; it poisons the evicted object.
//!
//! # Threads, forks, panics, recursion
//!
//! - The logs of a thread that ends stay. The next read collects them, and the next thread that
//!   takes the slot continues them. Any number of threads may start and end.
//! - After `fork`, the child's copy of an object holds what the parent had logged. This holds if no
//!   other thread was inside `append` or a read of that object at that moment. (As with every lock,
//!   a lock held by a thread that does not exist in the child is never released.) The
//!   [crate](crate#fork) has the table.
//! - Recursion: see the table below.
//!
//! # Which thread may wait for which
//!
//! These rules hold for all user code that runs under a lock here and in
//! [`cluster::adaptive`](crate::cluster::adaptive); `lock::held` counts the locks and checks the
//! rules. A thread is *inside* in two cases. Either it holds an object, by a guard or because a
//! user's function runs under the object's lock: `apply`, `merge`, `collect`, `len`, a destructor.
//! Or it has a log in hand (`push`, `absorb`).
//!
//! | the thread is inside and | on its own object | on another object |
//! |---|---|---|
//! | updates | queued for the next read | applied if it is cold and free, else logged or queued |
//! | reads, changes, repairs | panics | waits; panics if the wait would never end |
//! | `try_read` | `Busy` | does not wait |
//! | demotes | panics | as a read |
//! | promotes | does nothing | as an update; no other object is evicted |
//!
//! While a thread has a log in hand, its update of another object is never applied, only logged.
//! Each read, demotion or repair panics: the reader of the log waits for this very thread. If
//! updates append to their own object during its demotion or eviction, the demotion or eviction is
//! abandoned, or also applies these updates.
//!
//! So an update never waits for another thread's user code if that code could wait for the update,
//! and objects may update each other in cycles. Reads may not: if threads read each other's objects
//! in a cycle, the last one panics with a message. The user's own locks are not part of this check.
//!
//! # Laws
//!
//! Owns: [`Deferred`], the kinds of log, and the table that decides which objects may have logs.
//!
//! ```text
//! append --> slot's log (dirty bit set)                      one log per thread and object
//! read   --> lock, close gates, barrier, wait for updaters --> collect logs --> apply --> open
//! ```
//!
//! - **oplog.D1** Only its slot writes a slot's log. Publishing an entry is ordered before the
//!   updater's later loads: by one locked instruction, or, with plain stores, because the reader
//!   waits. It waits for the updater's own answer if the updater is busy, else for a `membarrier`
//!   ([`Publish`]).
//! - **oplog.D2** A read sees every update that returned before the read began, and a consistent
//!   cut of the concurrent ones. Logs with stamps are collected up to a cut in time. For logs
//!   without stamps, and if the merge is a tree ([`MergeStrategy`]), all updaters are stopped at
//!   one moment. If a read finds updates in no log but its own thread's, it applies them where they
//!   are, and stops no other thread.
//! - **oplog.D3** If an update is logged long after it took its stamp, it is concurrent with every
//!   update that it could be out of order with. Batches are applied in the order of reads.
//! - **oplog.D4** A read removes what it collects from the log, so no update is applied twice.
//! - **oplog.D5** Absorption needs identities: see [`Cancel`]. A queue never absorbs.
//! - **oplog.D6** Logs are bounded in entries, bytes and time; see
//!   [`Builder::growth`]. No update is ever dropped silently.
//! - **oplog.D7** If updates panic while they are applied, the panic reaches the reader that
//!   applied them. So does a panic while another thread absorbs updates on the reader's behalf
//!   ([`Log::absorb`]). The object is poisoned until [`Deferred::clear_poison`]. Updates not yet
//!   applied stay queued, and new ones are still logged. The update that panicked is lost. A panic
//!   in any other function of a log reaches the thread that called it. If that thread runs an
//!   eviction for another object, the panic poisons the evicted object instead. The updates in the
//!   logs stay there. A panic in the destructor of an emptied log is caught where the log is freed.
//! - **oplog.D8** A cold object costs its value plus 16 bytes and applies updates at once.
//!   Contention promotes it to logs. Reads that find too few updates demote it. A busier object
//!   that needs its place in the table of 4,096 evicts it. It is also evicted if it is idle while
//!   others are promoted. Then 256 bytes stay allocated, besides the value's own place, until the
//!   object is next used.
//! - **oplog.D10** No thread waits for itself: see the sections above.
//! - **oplog.D11** Poison keeps everything: [`Deferred::get_mut`], [`Deferred::try_into_inner`] and
//!   an eviction leave a poisoned object's queue as it is. Only dropping the object drops the
//!   queue.
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

// First, because the page of `Deferred` shows methods in the order of their modules.
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
pub(crate) use configurations::ConfigId;
pub use guard::ReadGuard;
pub use kinds::{Cancel, Cancelling, Combine, Combining, Commuting, Ordered};
pub use log::{Log, Op};
pub use object::Deferred;
pub use settings::{BuildError, Logs, MergeStrategy, Publish};
pub use stats::Stats;
#[doc(hidden)]
pub use table::LogTable;
