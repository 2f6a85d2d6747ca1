//! Clustered objects and hot swap: objects that are one to their callers and many inside, and whose
//! implementation can be exchanged in use.
//!
//! Owns: [`Clustered`] (a root, and a representative where calls come from), [`Swappable`] (an
//! implementation behind a gate) and [`Adaptive`] (an object that is what its load asks for). Does
//! not own: what the objects do.
//!
//! An object that every core uses should answer from what is near the caller, and an object that
//! one thread uses should be plain. K42 builds each kernel object so that both can be had behind
//! one handle, and changes from one form to the other while the object is in use. This module is
//! that idea in user space. What a kernel gets from its page tables (the local table at the same
//! address on every processor) and from short-lived kernel threads (thread generations) comes here
//! from slots and from announced calls.
//!
//! Laws:
//! - cluster.H1 A call costs a slot read and a predictable branch over a direct one, and writes no
//!   shared line.
//! - cluster.H2 A swap goes: claim, close, drain, transfer, open. Nothing is lost, done twice, or
//!   run on a half-made object. The laws that make it so are in `swap`.
//! - cluster.H5 A lock in a representative is a real lock, because removals reach it from
//!   elsewhere; locks are taken from the root to the representatives; what is found in the root is
//!   cached under the root's lock, or looked at again after caching.
//!
//! Source: J. Appavoo and others, *Enabling Scalable Performance for General Purpose Workloads on
//! Shared Memory Multiprocessors* (IBM research report on K42), sections 3.3, 3.4 and 4.

pub mod adaptive;
mod clustered;
mod conform;
mod family_macro;
#[cfg(all(test, manycore_loom))]
mod loom_tests;
mod swap;

pub use adaptive::Adaptive;
pub use clustered::{Clustered, Placement, Rep};
pub use conform::conform;
pub use swap::{Family, Layer, SwapError, SwapFailure, Swappable, Swapped};
