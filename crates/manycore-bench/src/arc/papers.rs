//! Two ways to count references that papers describe and no maintained crate has.
//!
//! Both are written from the papers' descriptions, for this workload alone: one object, whose
//! threads come with a handle.

mod refcache;
mod snzi;

pub(super) use refcache::Refcache;
pub(super) use snzi::Snzi;
