//! Keys and values whose traits lie or panic, in every collection that calls them.
//!
//! A `Hash` that changes from call to call, an `Eq` that is not reflexive, not symmetric or random,
//! a `Clone` that makes another key, a `Borrow` that disagrees with the key that it is borrowed
//! from, an `Ord` that is no order, and a panic at the n-th call, for every n. Answers may be wrong
//! then. What must hold: nothing is used after it was dropped, nothing is dropped twice, nothing is
//! left when the collection is gone, bounds hold, every call returns, each panic is the user's own.
//!
//! `MANYCORE_SOAK=60` runs each lie for 60 seconds, `MANYCORE_SEED=0x12ab` generates the same
//! programs again. Under AddressSanitizer a use after free is also found where the freed memory has
//! not been used again.

mod intervals;
mod liar;
mod logs;
mod maps;
mod others;
mod pages;
mod unwind;
