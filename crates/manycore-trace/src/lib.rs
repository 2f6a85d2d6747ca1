//! Tracing that can stay on: each thread records into its own ring, and a reader merges the rings.
//!
//! ```
//! use manycore_trace::{Class, Recorder, Trace, event, span};
//!
//! const REQUESTS: Class = Class::new(1, "requests");
//!
//! let recording = Recorder::new().start()?; // rings in memory: the last events of each thread
//! {
//!     let _span = span!(REQUESTS, Request { id: u32 = 17 });
//!     event!(REQUESTS, CacheMiss { key: &str = "user:7", bytes: u32 = 300 });
//! }
//! let mut trace = Trace::from_bytes(recording.finish()?)?;
//! let mut merge = trace.merge();
//! while let Some(record) = merge.next() {
//!     println!("{record}"); // requests CacheMiss key="user:7" bytes=300
//! }
//! let account = merge.into_account();
//! assert_eq!((account.produced, account.merged), (3, 3));
//! assert!(account.is_closed()); // nothing is lost silently
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! *For* what happened: in which order, on which thread, at which time. It can run all the time, in
//! production too. *Not for* messages that people read as they come (use a logger), nor for counts
//! (use `manycore-metrics`).
//!
//! ```text
//! thread 1 --event!--> ring 1 --+                          +--> Trace::merge, one record after
//! thread 2 --event!--> ring 2 --+--> snapshot, file,  -----+    the other, in order of time
//! thread 3 --event!--> ring 3 --+    or copied stream      +--> convert: other tools' formats
//! ```
//!
//! # Which way
//!
//! | You want | Take |
//! |---|---|
//! | the last events before a crash or a kill | `Recorder::file`, and `manycore trace show` |
//! | the last events when something looks wrong | a recording in memory, and [`Recording::snapshot`] |
//! | all events of a run | [`Recorder::stream`] with [`Policy::Block`] |
//! | all that fit, and a count of the others | [`Recorder::stream`] with [`Policy::Drop`] |
//! | a recording of what was simulated, or of another log | [`TraceWriter`] |
//! | less | classes: [`Recording::set_classes`], while it runs |
//!
//! # What is guaranteed
//!
//! - *Order*: records are merged by (time, slot, sequence), the same each time. Within a thread
//!   they are in program order. Times of different threads are as exact as the clock
//!   ([`manycore::clock`]). It is read without a fence, so two events of two threads within some
//!   nanoseconds may come in either order.
//! - *Closed world*: every event that was produced is merged or counted as lost. The [`Account`]
//!   reports any other event as missing.
//! - *Crash*: if the rings lie in a file, every event whose macro has returned can be read after
//!   `kill -9`, an abort or a panic. It may be gone if the machine loses power.
//! - *Progress*: wait-free, unless [`Policy::Block`] waits. The first event of a thread, and of a
//!   call site, takes a lock.
//! - *Cost*: a read of the clock and some stores to the thread's own lines. No allocation, no lock,
//!   no formatting, no system call. A class that is off costs one load and a branch.
//!
//! # Features
//!
//! - `tracing`: `TracingLayer`, for programs that use the crate tracing.
//! - `lz4`: `Recorder::compressed`, and the reader of compressed files.
//! - `log`: `LogBridge`, for programs that use the crate log.
//!
//! # Signals
//!
//! An event in a signal handler is recorded, unless the handler interrupted another event of its
//! thread. Then the handler's event is counted as lost. The thread and the call site must have
//! recorded before in this recording: a first event takes a lock and allocates, which a handler
//! must not do.
//!
//! # Fork
//!
//! In a child of `fork` no recording runs, and nothing that the child does reaches its parent's
//! rings. The child may start a recording of its own. Do not fork in a signal handler (POSIX
//! forbids that as well), nor by a system call that bypasses the C library. A child of `vfork` must
//! record nothing and must call `exec`.
//!
//! # Sources
//!
//! J. Appavoo and others, *Enabling scalable performance for general purpose workloads on shared
//! memory multiprocessors*, an IBM research report: sections 3.5 and 4.4, on K42's tracing.

#[cfg_attr(manycore_loom, allow(dead_code))] // the models use a ring alone
mod format;
mod memory;
#[cfg_attr(manycore_loom, allow(dead_code))]
mod ring;
#[cfg(not(manycore_loom))]
mod sampling;
mod sync;

#[cfg(all(test, manycore_loom))]
mod loom_tests;

#[cfg(not(manycore_loom))]
pub mod convert;

#[cfg(all(any(feature = "log", feature = "tracing"), not(manycore_loom)))]
mod bridge;
#[cfg(not(manycore_loom))]
mod busy;
#[cfg(not(manycore_loom))]
mod class;
#[cfg(not(manycore_loom))]
mod compose;
#[cfg(not(manycore_loom))]
mod event;
#[cfg(not(manycore_loom))]
mod library;
#[cfg(not(manycore_loom))]
mod local;
#[cfg(all(feature = "lz4", not(manycore_loom)))]
mod pack;
#[cfg(not(manycore_loom))]
mod reader;
#[cfg(not(manycore_loom))]
mod recorder;
#[cfg(not(manycore_loom))]
mod schema;
#[cfg(not(manycore_loom))]
mod session;
#[cfg(not(manycore_loom))]
mod site;
#[cfg(not(manycore_loom))]
mod stream;

#[cfg(all(feature = "log", not(manycore_loom)))]
pub use crate::bridge::LogBridge;
#[cfg(all(feature = "tracing", not(manycore_loom)))]
pub use crate::bridge::TracingLayer;
#[cfg(not(manycore_loom))]
pub use crate::{
    class::{Class, Classes},
    compose::{Lane, TraceWriter},
    event::{Field, Span, TextBytes, kept, new_flow},
    library::observe_library,
    reader::{Account, Damage, Fields, Merge, Record, Trace, Value},
    recorder::{Recorder, Recording},
    ring::Policy,
    schema::EventInfo,
    site::{Event, FieldType, Kind},
};
