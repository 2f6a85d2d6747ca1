//! Workloads of `manycore` and of its rivals, measured side by side in one run.
//!
//! Owns: the one place that runs threads against an implementation ([`runner`]), the workloads
//! ([`catalogue::WORKLOADS`]), the adapters to every rival, the output (rows, tables, the page with
//! plots), and the command ([`command`]).
//!
//! Laws of every figure:
//!
//! 1. *One run.* All implementations of one table run in the same process, interleaved: repeat 1 of
//!    each, then repeat 2 of each. What disturbs the machine disturbs all of them.
//! 2. *Same work.* Every implementation runs the same loop, generic over a small trait, so that the
//!    compiler can inline all of them alike. Where rivals need a sequential type inside, all use
//!    the same one.
//! 3. *Spread.* A row is a median with minimum and maximum, never a single sample.
//! 4. *Baseline.* Every table has the plain structure on one thread, unshared.
//! 5. *Checked.* Every adapter must pass the conformance test of its workload: an implementation
//!    that loses updates is not a valid rival.
//!
//! A new workload is a trait, its adapters, a loop that implements [`runner::Subject`], and one
//! line in [`catalogue::WORKLOADS`].

pub mod arc;
pub mod catalogue;
pub mod chain;
pub mod coherence;
pub mod command;
pub mod compare;
mod conform;
pub mod counter;
pub mod dispatch;
pub mod everyday;
mod faults;
pub mod figures;
pub mod ids;
pub mod kv;
pub mod latency;
pub mod limits;
pub mod list;
pub mod lock;
pub mod lru;
pub mod machine;
pub mod map;
#[cfg(target_os = "linux")]
pub mod metis;
pub mod notify;
pub mod output;
pub mod page;
mod pages;
pub mod pairs;
pub mod path_lookup;
pub mod programs;
pub mod ranges;
pub mod registry;
mod resident;
pub mod rmap;
pub mod row;
pub mod runner;
pub mod scorecard;
#[cfg(target_os = "linux")]
pub mod server;
pub mod slabs;
pub mod smr;
pub mod swap;
pub mod sweep;
#[cfg(target_os = "linux")]
pub mod syscalls;
pub mod ticks;
pub mod timers;
pub mod tour;
pub mod trace;
pub mod workload;
