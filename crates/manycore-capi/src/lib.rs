//! manycore for C and C++: the Rust side of `manycore/manycore.h`.
//!
//! Owns: the exported functions, the structs that the header declares, the thread-local record that
//! its inline functions use, and what waits for [`mc_barrier`]. Does not own: reclamation, which is
//! [`manycore::section`]; `manycore/rcu.hpp` and `manycore/urcu.h`, which are built on the header.
//!
//! The contract of each function is in the header, with what the caller promises. Rust programs use
//! the crate `manycore`; this one is for linking.
//!
//! The header is written by hand: half of it is inline functions and contracts, which no generator
//! makes. `tests/header.rs` holds it against this crate: each function is declared, listed in
//! `manycore.map` and exported, and each field of each struct has the same offset and size for a C
//! compiler as here.
//!
//! Laws:
//! - capi.A1 No unwinding crosses the boundary: a panic, or an exception that a call-back throws,
//!   ends the process with a message (`extern "C"`, and `extern "C-unwind"` for call-backs).
//! - capi.A2 A thread's record names a domain only while the thread owns its slot there: it is
//!   reset before the thread gives the slot up, and written so that a signal handler sees no number
//!   with another domain's address.
//! - capi.A3 A thread that ends inside of a section, by returning, `pthread_exit` or cancellation,
//!   has it closed: a thread that is gone holds nothing back.
//! - capi.A4 Every scheduled call-back is counted before it is retired, and counted again after it
//!   has returned, under the same generation.
//! - capi.A5 A function that waits for readers or for call-backs refuses to where it would wait for
//!   itself, and is no cancellation point.

mod barrier;
mod call;
mod cancel;
mod domain;
mod handle;
mod late;
mod options;
mod pending;
mod record;
mod report;
mod retire;
mod running;
mod section;
mod thread;

pub use barrier::mc_barrier;
pub use call::{mc_call, mc_call_barrier};
pub use domain::{
    mc_collect, mc_domain_free, mc_domain_new, mc_now, mc_quiesced, mc_synchronize, mc_version,
};
pub use handle::{Domain, mc_domain_default};
pub use options::{BudgetCallback, Options};
pub use record::Record;
pub use report::{Backlog, STALLED_NAME, Stalled, mc_backlog};
pub use retire::{Callback, Head, mc_retire_};
pub use running::mc_running;
pub use section::{
    mc_enter_, mc_is_inside, mc_leave_, mc_misuse_, mc_thread_register_, mc_thread_unregister_,
};
