//! Clustered objects and hot swapping: one interface with several representatives inside, and
//! implementations that are exchanged while in use.
//!
//! | You have | Take |
//! |---|---|
//! | an object whose common calls can be answered from data near the caller | [Clustered] |
//! | a map of that kind, ready-made | [ReplicatedMap](crate::collections::ReplicatedMap) |
//! | an implementation that is replaced while threads call it | [Swappable] |
//! | a value whose ratio of updates to reads is unknown, or changes | [Adaptive] |
//!
//! ```
//! use manycore::cluster::{Clustered, Placement, Rep};
//! use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
//!
//! /// The requests of a listener, counted near the threads that serve them.
//! struct Served(AtomicU64);
//! impl Rep for Served {
//!     type Root = u16; // the port: what all representatives share
//!     fn create(_port: &u16, _place: usize) -> Self {
//!         Served(AtomicU64::new(0))
//!     }
//! }
//!
//! let listener = Clustered::<Served>::new(Placement::PerLlc, 443);
//! std::thread::scope(|s| {
//!     for _ in 0..4 {
//!         s.spawn(|| listener.with(|served| served.0.fetch_add(1, Relaxed)));
//!     }
//! });
//! assert_eq!(listener.gather(0, |sum, served| sum + served.0.load(Relaxed)), 4);
//! ```
//!
//! # How it works
//!
//! An object that every core uses should answer from data near the caller. An object that one
//! thread uses should be a plain one. K42 builds each kernel object so that both forms are
//! available behind one handle, and changes from one form to the other while the object is in use.
//! This module is that idea in user space. In a kernel, page tables provide the local table (at the
//! same address on every processor), and short-lived kernel threads provide thread generations.
//! Here, slots and announced calls replace both.
//!
//! # Laws
//!
//! Owns: [`Clustered`] (a root, and a representative for each place of its callers), [`Swappable`]
//! (an implementation behind a gate) and [`Adaptive`] (an object that chooses its mode by its
//! load). Does not own: what the objects do.
//!
//! - cluster.H1 A call costs a slot read and a predictable branch over a direct one, and writes no
//!   shared line.
//! - cluster.H2 A swap has five steps: claim, close, drain, transfer, open. No call is
//!   lost, done twice, or run on a half-made object. The laws that ensure it are in `swap`.
//! - cluster.H5 A lock in a representative is a real lock, because removals reach it from other
//!   cores. Locks are taken from the root to the representatives. What was found in the root is
//!   cached under the root's lock, or looked at again after caching.
//!
//! Source: [K42](crate#sources), sections 3.3, 3.4 and 4.

mod clustered;
mod family_macro;
#[cfg(all(test, manycore_loom))]
mod loom_tests;
mod swap;

#[doc(inline)]
pub use crate::oplog::adaptive::{self, Adaptive};
pub use clustered::{Clustered, Placement, Rep};
pub use swap::{Family, SwapFailure, Swappable, Swapped};
