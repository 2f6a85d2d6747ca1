//! Two ways to count references that papers describe and that no maintained crate offers.
//!
//! Both are written from the papers' descriptions, for this workload alone. They count references
//! to one object, and each thread comes with a handle.

mod refcache;
mod snzi;

pub(super) use refcache::Refcache;
pub(super) use snzi::Snzi;
