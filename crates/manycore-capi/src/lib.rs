//! manycore for C and C++: the Rust side of `manycore/manycore.h` and of the headers beside it.
//!
//! Owns: the exported functions, the structs that the headers declare, the thread-local record that
//! their inline functions use, and what waits for [`mc_barrier`]. Does not own: reclamation, which
//! is [`manycore::section`]; the collections, the cache, the recorder and the pages, which this
//! wraps; `manycore/rcu.hpp` and `manycore/urcu.h`, which are built on the header.
//!
//! The contract of each function is in its header, with what the caller promises. Rust programs use
//! the crate `manycore`; this one is for linking.
//!
//! The headers are written by hand: half of them is inline functions and contracts, which no
//! generator makes, and cbindgen leaves out the types of functions that may unwind (capi.A1). What
//! it would keep equal is tested: each function is declared, listed in `manycore.map`, exported and
//! in an example, and each field of each struct has the same offset and size for a C compiler as
//! here (`tests/header.rs`); and each function's prototype, derived from its signature here, is for
//! a C compiler the header's (`tests/prototypes.rs`).
//!
//! Laws:
//! - capi.A1 No unwinding crosses the boundary: a panic, or an exception that a call-back throws,
//!   ends the process with a message (`extern "C"`, and `extern "C-unwind"` for call-backs).
//! - capi.A2 A thread's record names a domain only while the thread owns its slot there, and the
//!   domain lives: it is reset before the thread gives the slot up and before the domain is freed,
//!   and written so that a signal handler sees no domain with another one's word.
//! - capi.A3 A thread that ends inside of a section, by returning, `pthread_exit` or cancellation,
//!   has it closed: a thread that is gone holds nothing back.
//! - capi.A4 Every scheduled call-back is counted before it can be called, and counted again after
//!   it has returned, under the same generation. Before it can be called is before it is retired,
//!   or later in the section in which it was.
//! - capi.A5 A function that waits for readers or for call-backs refuses to where it would wait for
//!   itself, and is no cancellation point.
//! - capi.A6 What is pushed to the helper of `mc_call` is taken by it, without another push: no
//!   wake-up is lost.
//! - capi.A7 In a bounded domain an object's birth is what `mc_born_` read in the section in which
//!   the same thread then links it, or before that section; the birth of every other object is
//!   unknown, which is zero.
//! - capi.A8 A child of `fork` waits for nothing that threads were to do which it does not have:
//!   their sections are closed there, its counts are of what waits there, and no lock of this crate
//!   is held by them. Nothing leads to their stacks.

#[cfg_attr(manycore_loom, allow(dead_code))] // the models call what they check alone
mod call_list;
#[cfg(all(test, manycore_loom))]
mod loom_tests;
#[cfg_attr(manycore_loom, allow(dead_code))]
mod pending;
#[cfg_attr(manycore_loom, allow(dead_code))]
mod sync;

#[cfg(not(manycore_loom))]
mod barrier;
#[cfg(not(manycore_loom))]
mod cache;
#[cfg(not(manycore_loom))]
mod cache_key;
#[cfg(not(manycore_loom))]
mod call;
#[cfg(not(manycore_loom))]
mod cancel;
#[cfg(not(manycore_loom))]
mod counter;
#[cfg(not(manycore_loom))]
mod deferred;
#[cfg(not(manycore_loom))]
mod domain;
#[cfg(not(manycore_loom))]
mod fork;
#[cfg(not(manycore_loom))]
mod handle;
#[cfg(not(manycore_loom))]
mod histogram;
#[cfg(not(manycore_loom))]
mod ids;
#[cfg(not(manycore_loom))]
mod late;
#[cfg(not(manycore_loom))]
mod list;
#[cfg(not(manycore_loom))]
mod map;
#[cfg(not(manycore_loom))]
mod map_entry;
#[cfg(all(target_os = "linux", not(manycore_loom)))]
mod mappings;
#[cfg(not(manycore_loom))]
mod mixing;
#[cfg(not(manycore_loom))]
mod options;
#[cfg(all(target_os = "linux", not(manycore_loom)))]
mod pages;
#[cfg(not(manycore_loom))]
mod queue;
#[cfg(not(manycore_loom))]
mod record;
#[cfg(not(manycore_loom))]
mod report;
#[cfg(not(manycore_loom))]
mod retire;
#[cfg(not(manycore_loom))]
mod running;
#[cfg(not(manycore_loom))]
mod section;
#[cfg(not(manycore_loom))]
mod thread;
#[cfg(not(manycore_loom))]
mod trace;
#[cfg(not(manycore_loom))]
mod tracked;
#[cfg(not(manycore_loom))]
mod versioned;

#[cfg(not(manycore_loom))]
pub use barrier::*;
#[cfg(not(manycore_loom))]
pub use cache::*;
#[cfg(not(manycore_loom))]
pub use call::*;
#[cfg(not(manycore_loom))]
pub use counter::*;
#[cfg(not(manycore_loom))]
pub use deferred::*;
#[cfg(not(manycore_loom))]
pub use domain::*;
#[cfg(not(manycore_loom))]
pub use handle::Domain;
#[cfg(not(manycore_loom))]
pub use histogram::*;
#[cfg(not(manycore_loom))]
pub use ids::*;
#[cfg(not(manycore_loom))]
pub use map::*;
#[cfg(all(target_os = "linux", not(manycore_loom)))]
pub use mappings::*;
#[cfg(not(manycore_loom))]
pub use options::*;
#[cfg(all(target_os = "linux", not(manycore_loom)))]
pub use pages::*;
#[cfg(not(manycore_loom))]
pub use queue::*;
#[cfg(not(manycore_loom))]
pub use record::Record;
#[cfg(not(manycore_loom))]
pub use report::*;
#[cfg(not(manycore_loom))]
pub use retire::*;
#[cfg(not(manycore_loom))]
pub use running::mc_running;
#[cfg(not(manycore_loom))]
pub use section::*;
#[cfg(not(manycore_loom))]
pub use trace::*;
