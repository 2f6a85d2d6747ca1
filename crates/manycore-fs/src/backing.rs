//! Where the host has the bytes of a file of the base. `base` opens and reads it.

use std::ffi::OsStr;

/// A file of the host.
pub(crate) struct Backing {
    /// From the base on; empty for the base itself.
    pub(crate) path: Box<OsStr>,
    /// What the host says it takes.
    pub(crate) blocks: u64,
    /// The host's size.
    pub(crate) size: u64,
}
