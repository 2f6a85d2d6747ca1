//! What answers the kernel: a FUSE file system whose files are those of all branches.
//!
//! - `node`: the numbers that the kernel knows files by
//! - `shared`: the state, and how branches, attributes and errors get from the library to the
//!   kernel
//! - `operations`: the kernel's requests, each a few calls of the library
//! - `names`, `bytes`, `directory`: the longer ones: names, content, lists
//! - `hidden`: the directory `.manycore-fs`, and the sessions of its control file
//! - `sync_thread`: waits for the disk
//! - `control_thread`: does what sessions ask for, and tells the kernel what it has to forget
//!
//! The kernel may keep entries and attributes for a year: it is the only way to the files, but for
//! a commit, which changes the parent branch, and after which the kernel is told what has changed.

mod bytes;
mod control_thread;
mod directory;
mod hidden;
mod names;
mod node;
mod operations;
mod shared;
mod sync_thread;

pub use hidden::{BRANCHES, CONTROL, FOLDER};
pub use operations::Operations;
pub use shared::{Options, Shared};
