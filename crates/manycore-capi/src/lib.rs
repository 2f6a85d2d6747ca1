//! manycore for C and C++: the Rust side of `manycore/manycore.h` and of the headers beside it.
//!
//! This crate owns the exported functions, the structs that the headers declare, the thread-local
//! record that their inline functions use, and what waits for [`mc_barrier`]. It does not own
//! reclamation, which is [`manycore::section`]. It wraps the collections, the cache, the recorder
//! and the pages. `manycore/rcu.hpp` and `manycore/urcu.h` are built on the header.
//!
//! The contract of each function is in its header, with what the caller promises. Rust programs use
//! the crate `manycore`; this crate is for linking.
//!
//! The headers are written by hand. Half of them is inline functions and contracts, which no
//! generator makes, and cbindgen leaves out functions that may unwind (capi.A1). Tests check what a
//! generator would keep equal. Each function is declared, listed in `manycore.map`, exported and
//! used in an example. Each field of each struct has the same offset and size for a C compiler as
//! here (`tests/header.rs`). Each function's prototype, derived from its signature here, equals
//! that of the header for a C compiler (`tests/prototypes.rs`).
//!
//! Laws:
//! - capi.A1 No unwinding crosses the boundary: a panic, or an exception that a call-back throws,
//!   ends the process with a message (`extern "C"`, and `extern "C-unwind"` for call-backs).
//! - capi.A2 A thread's record names a domain only while the thread owns its slot there and the
//!   domain lives. It is reset before the thread gives the slot up, and before the domain is freed.
//!   It is written so that a signal handler never sees a domain with the word of another.
//! - capi.A3 If a thread ends inside a section (by returning, `pthread_exit` or cancellation),
//!   the section is closed: a thread that has ended holds nothing back.
//! - capi.A4 Every scheduled call-back is counted before it can be called, and counted again after
//!   it has returned, in the same generation. "Before it can be called" means before it is retired,
//!   or later in the section in which it was retired.
//! - capi.A5 A function that waits for readers or for call-backs refuses if it would wait for
//!   itself. It is no cancellation point.
//! - capi.A6 The helper of `mc_call` takes every element that is pushed, without another push: no
//!   wake-up is lost.
//! - capi.A7 In a bounded domain an object's birth is the value that `mc_born_` read. It was read
//!   in the section in which the same thread then links the object, or before that section. The
//!   birth of every other object is unknown, which is zero.
//! - capi.A8 A child of `fork` waits for no work of threads that it does not have. Their sections
//!   are closed there, its counts are of what waits there, and they hold no lock of this crate.
//!   Nothing leads to their stacks.

#[cfg_attr(manycore_loom, allow(dead_code))] // the models call only what they check
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
