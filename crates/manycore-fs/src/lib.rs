//! A file system in memory whose whole tree forks at once.
//!
//! A [`FileSystem`] has branches. Each [`Branch`] is a tree of directories, files, symbolic links
//! and special files. [`Branch::fork`] makes another branch with the same content in a few
//! microseconds, whatever the size of the tree: both share everything until one of them writes. A
//! branch ends by [`commit`](Branch::commit), which moves its changes to its parent, or by
//! [`abort`](Branch::abort), which drops them.
//!
//! ```
//! use manycore_fs::{Change, FileSystem, Kind};
//!
//! let files = FileSystem::new();
//! let main = files.main();
//! main.write_file("/config", b"threads = 1").unwrap();
//!
//! let attempt = main.fork("attempt").unwrap();
//! attempt.write_file("/config", b"threads = 2").unwrap();
//! assert_eq!(main.read_file("/config").unwrap(), b"threads = 1");
//! assert_eq!(attempt.diff().unwrap(), [Change::Modified("/config".into(), Kind::File)]);
//!
//! attempt.commit().unwrap();
//! assert_eq!(main.read_file("/config").unwrap(), b"threads = 2");
//! ```
//!
//! # When to use it
//!
//! Use it for a tree that has many versions at once: agents that explore in parallel, test runs
//! that each change the same tree, builds in sandboxes. Do not use it for more content than fits
//! into memory. [`Builder::keep`] writes a log to disk, so that all branches survive the process;
//! the content is in memory all the same.
//!
//! # How it works
//!
//! ```text
//! main ----> table --+--> node --> inode (directory) --> names
//!                    |                                          shared, frozen
//! branch --> table --+--> node --> inode (file) --> page, page
//!                    \--> node --> inode (file) --> page'       the branch's own
//! ```
//!
//! One kind of tree, persistent and with 64 links in a node, has three uses: inodes by number,
//! pages by index, and names by hash (`tree`). A node carries the *token* of the branch that may
//! write it in place. A fork shares the root and gives both sides new tokens, so all present nodes
//! become frozen in one step. The first write to a frozen page copies the page, its inode and the
//! nodes above them.
//!
//! Readers take no lock. They follow links inside a section of the file system's domain
//! ([`manycore::section`]), and what was unlinked is freed after its grace period. Writers pass the
//! gate of their branch, a big-reader lock that a fork closes for a moment, and lock the inodes
//! that they change.
//!
//! Objects that branches share are counted. An aborted branch frees the objects that only it had.
//!
//! # Costs
//!
//! | What | Cost |
//! |---|---|
//! | fork | two barriers, two allocations |
//! | look-up | two walks of up to 7 nodes; no lock, no shared write |
//! | first change of a file after a fork | copies of its inode and of 4 to 7 nodes: 2 to 4 KiB |
//! | first write to a page after a fork | a copy of the page |
//! | diff, commit | the changes, and the paths to them |
//! | memory of a file | 300 bytes and its pages |
//! | memory of a branch | 400 bytes; some 10 KiB once it was written |
//!
//! # Limits
//!
//! Names have up to 255 bytes, files up to 2^50 bytes, a file system up to 2^40 files in its life
//! and 2^24 branches. A path is of any length.

mod attributes;
mod backing;
mod base;
mod branch;
mod bucket;
mod change;
mod diff;
mod directory;
mod error;
mod file_system;
mod files;
mod inode;
mod journal;
mod kept;
mod memory;
mod merge;
mod numbers;
mod page;
mod replay;
mod snapshot;
mod system;
mod tree;
mod version;
mod xattrs;

pub use attributes::{Attributes, Content, Ino, Kind, New, SetAttributes, SetTime};
pub use branch::{Branch, Entry, Fallocate, Rename, SetXattr, Usage, Whence};
pub use change::{Change, Committed, Conflict, NotCommitted};
pub use error::{Error, Result};
pub use file_system::{BranchId, BranchInfo, Builder, FileSystem};
pub use journal::Recovered;

/// Compiles and runs the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
