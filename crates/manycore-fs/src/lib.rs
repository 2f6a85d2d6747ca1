//! A file system in memory whose whole tree forks at once.
//!
//! A [`FileSystem`] has branches. Each [`Branch`] is a tree of directories, files, symbolic links
//! and special files. [`Branch::fork`] makes another branch with the same content in a few
//! microseconds, whatever the size of the tree: both share everything until one of them writes. A
//! branch ends by [`commit`](Branch::commit), which moves its changes to its parent, or by
//! [`abort`](Branch::abort), which forgets them.

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
mod kept;
mod memory;
mod merge;
mod numbers;
mod page;
mod system;
mod tree;
mod version;
mod xattrs;

pub use attributes::{Attributes, Content, Ino, Kind, New, SetAttributes, SetTime};
pub use branch::{Branch, Entry, Fallocate, Rename, SetXattr, Usage, Whence};
pub use change::{Change, Committed, Conflict, NotCommitted};
pub use error::{Error, Result};
pub use file_system::{BranchId, BranchInfo, Builder, FileSystem};
