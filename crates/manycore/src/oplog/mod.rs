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
//! - **D1** A slot's log is written by its slot alone, and publishing an entry is ordered before
//!   the updater's later loads: by one locked instruction, or by plain stores for which the reader
//!   waits: for the updater's own answer if it is busy, else for a `membarrier` ([`Publish`]).
//! - **D2** A read sees every update that returned before the read began, and a consistent cut of
//!   the rest. Logs with stamps are collected up to a cut in time; logs without stamps all stand
//!   still at one moment. Where the merge is a tree ([`MergeStrategy`]), all do.
//! - **D3** An update that took its stamp early and reached its log late is concurrent with every
//!   update it could be out of order with. Batches are applied in the order of reads.
//! - **D4** What a read takes from a log leaves the log: nothing counts twice.
//! - **D5** Absorption needs identities: see [`Cancel`]. A queue never absorbs.
//! - **D6** Logs are bounded in entries, bytes and time; what happens at the bound is the builder's
//!   choice ([`WhenFull`]). Nothing is ever dropped silently.
//! - **D7** A panic while updates are applied reaches the reader that applied them, and so does one
//!   while another thread absorbs updates on its behalf ([`Log::absorb`]). The object is
//!   poisoned until [`Deferred::clear_poison`]; updates not yet applied stay queued, and updates go
//!   on being logged. The update that panicked is gone, as with any panic.
//! - **D8** A cold object costs its value plus 16 bytes and applies updates at once. Contention
//!   promotes it to logs; reads that find too little, or a busier object in its place of the
//!   [`LogTable`], take them away.
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
//! - `append` from within `apply`, or while the same thread holds a read guard of the object, is
//!   detected: the update is logged and the *next* read applies it. A read there would wait for
//!   itself; it panics instead.
//! - User code in [`Log::push`] (an update's destructor, too, if it is cancelled there) runs with
//!   the slot's log in hand. It may update other objects, as long as objects do not update each
//!   other from there in a circle; it may neither read nor update this one. The same goes for
//!   [`Log::absorb`], which the updater runs as well: an update of this object there panics.

mod builder;
mod core;
mod deferred;

mod gate;
mod guard;
mod hold;
mod kinds;
mod lifecycle;
mod log;
#[cfg(all(test, manycore_loom))]
mod loom_tests;
mod managed;
mod reader;
mod shared;
#[cfg(all(test, manycore_shuttle))]
mod shuttle_tests;
mod slot_log;
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
