//! manycore for C and C++: the Rust side of `manycore/manycore.h` and of the headers beside it.
//!
//! Owns: the exported functions, the structs that the headers declare, the thread-local record that
//! their inline functions use, and what waits for [`mc_barrier`]. Does not own: reclamation, which
//! is [`manycore::section`]; the collections, the cache and the recorder, which this wraps;
//! `manycore/rcu.hpp` and `manycore/urcu.h`, which are built on the header.
//!
//! The contract of each function is in its header, with what the caller promises. Rust programs use
//! the crate `manycore`; this one is for linking.
//!
//! The headers are written by hand: half of them is inline functions and contracts, which no
//! generator makes. `tests/header.rs` holds them against this crate: each function is declared,
//! listed in `manycore.map`, exported and in an example, and each field of each struct has the same
//! offset and size for a C compiler as here.
//!
//! Laws:
//! - capi.A1 No unwinding crosses the boundary: a panic, or an exception that a call-back throws,
//!   ends the process with a message (`extern "C"`, and `extern "C-unwind"` for call-backs).
//! - capi.A2 A thread's record names a domain only while the thread owns its slot there: it is
//!   reset before the thread gives the slot up, and written so that a signal handler sees no number
//!   with another domain's address.
//! - capi.A3 A thread that ends inside of a section, by returning, `pthread_exit` or cancellation,
//!   has it closed: a thread that is gone holds nothing back.
//! - capi.A4 Every scheduled call-back is counted before it can be called, and counted again after
//!   it has returned, under the same generation. Before it can be called is before it is retired,
//!   or later in the section in which it was.
//! - capi.A5 A function that waits for readers or for call-backs refuses to where it would wait for
//!   itself, and is no cancellation point.

mod barrier;
mod cache;
mod call;
mod cancel;
mod counter;
mod deferred;
mod domain;
mod handle;
mod histogram;
mod ids;
mod late;
mod map;
mod options;
mod pending;
mod queue;
mod record;
mod report;
mod retire;
mod running;
mod section;
mod thread;
mod trace;
mod tracked;
mod versioned;

pub use barrier::*;
pub use cache::*;
pub use call::*;
pub use counter::*;
pub use deferred::*;
pub use domain::*;
pub use handle::{Domain, mc_domain_default};
pub use histogram::*;
pub use ids::*;
pub use map::*;
pub use options::*;
pub use queue::*;
pub use record::Record;
pub use report::*;
pub use retire::*;
pub use running::mc_running;
pub use section::*;
pub use trace::*;
