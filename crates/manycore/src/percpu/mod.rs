//! Per-thread slots with an announcement record behind each, CPU topology and affinity.
//!
//! ```
//! use manycore::percpu::{current_slot, topology::Topology};
//!
//! // A small number that is this thread's alone, for a table with a cell for each thread.
//! let mine = current_slot();
//! assert_ne!(std::thread::spawn(current_slot).join().unwrap(), mine);
//!
//! let machine = Topology::detect();
//! println!("{} CPUs on {} NUMA nodes", machine.cpus().len(), machine.nodes().len());
//! ```
//!
//! | You want to know | Ask |
//! |---|---|
//! | which thread this is, as a small number | [current_slot] |
//! | ... as a number that no live thread shares | [thread_token] |
//! | which CPU it runs on, and which it may | [pin] |
//! | which CPUs share a core, a cache, a node | [topology] |
//! | whether fences can be left to the rare side | [barrier] |
//! | that a lock of the process is free after `fork` | [AtFork] |
//!
//! # Laws
//!
//! Owns: the numbering of threads, one `Record` per slot, and the protocol by which threads
//! announce themselves to a closer (`announcement`, `gate`). Does not own: what objects keep per
//! slot.
//!
//! - percpu.P1 Slots are dense and recycled: the lowest free number is handed out, so per-slot
//!   tables stay as small as the largest number of threads alive at once. The only limit is memory.
//! - percpu.P2 A slot has one owner. It passes by Release (exit) and Acquire (take over), so the
//!   new owner inherits what the old owner kept under its slot number.
//! - percpu.P3 A record announces one object at a time. A thread whose record is busy (an update
//!   from within an update) works on a second slot for as long as that lasts.
//! - percpu.P4 After `fork` the child has one thread, which keeps its slot. The slots of the
//!   parent's other threads stay taken: that costs numbers, never correctness.
//! - percpu.P5 Calls of exchangeable objects are announced apart from records, on a short stack for
//!   each slot, because calls nest and may last long (`calls`).
//!
//! Source: [OpLog](crate#sources), section 6 (per-core tables), with threads in place of cores.

mod announcement;
pub mod barrier;
mod call_stack;
pub(crate) mod calls;
pub(crate) mod cpu_group;
pub(crate) mod dirty;
#[cfg(not(any(manycore_loom, manycore_shuttle)))]
mod fork;
pub(crate) mod gate;
#[cfg(all(test, manycore_loom))]
pub(crate) mod loom_tests;
pub mod pin;
mod rseq;
pub(crate) mod segmented;
pub(crate) mod slot_table;
mod slots;
#[cfg(manycore_loom)]
pub(crate) mod token;
pub mod topology;

#[cfg(not(any(manycore_loom, manycore_shuttle)))]
pub use fork::AtFork;
pub(crate) use slots::Announced;
pub(crate) use slots::{
    BiasedSlot, Slot, WithLog, biased_slot, give_back, has_log, home_slot, idle_slot, known_slot,
    note_biased, own_slot, records, spare_slot, with_free_slot, with_own_slot, with_slot,
};
pub use slots::{current_slot, end_thread, slot_count, thread_token};
