//! Keys and values whose traits lie or panic, in every collection that calls them.
//!
//! The lies:
//! - a `Hash` that changes from call to call;
//! - an `Eq` that is not reflexive, not symmetric, or random;
//! - a `Clone` that makes another key;
//! - a `Borrow` that disagrees with its key;
//! - an `Ord` that is no order;
//! - a panic at the n-th call, for every n.
//!
//! Answers may then be wrong. But nothing may be used after it was dropped, or dropped twice. When
//! the collection is gone, nothing is left. Bounds hold, every call returns, and each panic is the
//! user's own.
//!
//! `MANYCORE_SOAK=60` runs each lie for 60 seconds. `MANYCORE_SEED=0x12ab` generates the same
//! programs again. AddressSanitizer also finds a use after free if the freed memory has not been
//! used again.

mod intervals;
mod liar;
mod logs;
mod maps;
mod others;
mod pages;
mod unwind;
