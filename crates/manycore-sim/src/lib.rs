//! Virtual many-core machines: what a stated cost of cache coherence does to a program.
//!
//! The [`Engine`] is told of every memory access of every thread of a program, and answers which
//! thread goes on. It keeps one clock for each thread, one state for each cache line, and moves
//! lines between cores at the costs of a [`Machine`]. Nothing here runs a program: the caller does,
//! by switching stacks or, in a test, by calling closures. So the engine is a plain library.
//!
//! # What it claims
//!
//! It simulates a stated cost model of coherence on real code. Use it to rank, to see the shape of
//! a curve, and to find contended lines. Absolute figures can be off by a factor of two or more. It
//! does not predict the throughput of any machine.
//!
//! # Laws
//!
//! - The same machine, cores, seed and calls give the same answers, bit for bit, everywhere.
//! - The engine takes no lock, keeps nothing in thread-locals, reads no clock and no random number
//!   of the system, and starts no thread. It can run inside a program whose threads it schedules.
//! - A thread acts only when no other thread is behind it by more than the machine's quantum; with
//!   quantum 0 all accesses happen in the order of virtual time.
//! - A line has either one exclusive holder or any number of readers, never both.
//!
//! # Examples
//!
//! ```
//! use manycore_sim::{Access, Engine, Machine, Outcome};
//!
//! let machine = Machine::named("opteron-8x6").unwrap();
//! let mut engine = Engine::new(machine, 2, 1).unwrap();
//! // The first access fetches the line from memory, the second finds it in the cache.
//! assert_eq!(engine.access(0x1000, 8, Access::Write, 1), Outcome::Continue);
//! let after_fetch = engine.now();
//! assert_eq!(engine.access(0x1000, 8, Access::Write, 1), Outcome::Continue);
//! assert_eq!(engine.now() - after_fetch, 2);
//! ```

pub mod calibration;
mod conflict_free;
pub mod drive;
mod engine;
mod machine;
mod program;
#[cfg(feature = "report")]
pub mod report;
#[cfg(feature = "symbols")]
pub mod symbols;

pub use conflict_free::{ConflictCheck, ConflictLine, ConflictReport, NotSimulated, Toucher};
pub use engine::{
    Access, Blocked, Deadlock, Engine, Outcome, ThreadId, Totals, WaitFor, Wakened,
    record::Touch,
    stats::{LineCost, Site, SiteCost},
    timeline::Wait,
};
pub use machine::{Arbitration, MAX_CORES, Machine, ModelError, PARAMETERS, Parameter, Topology};
#[cfg(feature = "report")]
pub use machine::{FileError, calibrate};
pub use program::{is_simulated, measured, operations};
