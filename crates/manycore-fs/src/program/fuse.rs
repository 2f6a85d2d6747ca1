//! The FUSE file system that answers the kernel. It has the files of all branches.
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
//! The kernel may keep entries and attributes for a year, because all changes come through the
//! kernel, with one exception: a commit changes the parent branch. After a commit, the kernel is
//! told what has changed.

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
