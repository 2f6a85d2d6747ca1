//! A memcached-compatible cache server.

mod meta;
pub mod protocol;
pub mod report;
pub mod session;
pub mod store;
