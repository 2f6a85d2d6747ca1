//! Virtual many-core machines: shows what a stated cost of cache coherence does to a program.
//!
//! The caller reports every memory access of every thread to the [`Engine`], and the engine answers
//! which thread runs next. The engine keeps one clock for each thread and one state for each cache
//! line, and moves lines between cores at the costs of a [`Machine`]. It does not run the program.
//! The caller does that: by switching stacks or, in a test, by calling closures.
//!
//! ```text
//! threads --access(address, size, kind)--> Engine: clock of each thread, state of each line
//!    ^                                       |      costs from a Machine
//!    +------ Continue / Switch(thread) ------+
//! ```
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
//! - The engine takes no lock and has no thread-locals. It reads neither a system clock nor system
//!   random numbers, and it starts no thread. So it can run inside a program whose threads it
//!   schedules.
//! - A thread acts only if no other thread is behind it by more than the machine's quantum. With
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

mod bytes;
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

pub use bytes::{Held, byte_ranges};
pub use conflict_free::{
    ConflictCheck, ConflictLine, ConflictReport, NotSimulated, Placement, Toucher,
};
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
