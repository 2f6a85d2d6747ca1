//! What a branch has changed, and the result of a commit.

use crate::{Error, Ino, Kind};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// A difference between a branch and its parent as it was at the fork. See
/// [`Branch::diff`](crate::Branch::diff) for an example.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Change {
    /// A new name.
    Added(PathBuf, Kind),
    /// A name that has gone.
    Removed(PathBuf, Kind),
    /// Other bytes, or another file of this name.
    Modified(PathBuf, Kind),
    /// Other attributes only.
    Attributes(PathBuf, Kind),
}

impl Change {
    /// Returns the path, from the root on.
    pub fn path(&self) -> &Path {
        match self {
            Change::Added(path, _)
            | Change::Removed(path, _)
            | Change::Modified(path, _)
            | Change::Attributes(path, _) => path,
        }
    }
}

/// A commit that succeeded. See [`Branch::commit`](crate::Branch::commit).
#[derive(Clone, Default, Debug)]
pub struct Committed {
    /// What the parent has now and had not before, by path.
    pub changes: Vec<Change>,
    /// Files of the parent whose attributes or bytes are others now.
    pub files: Vec<Ino>,
    /// Names (in a directory of the parent) that are others now.
    pub names: Vec<(Ino, OsString)>,
}

/// A path that the parent has changed since the fork, and the branch otherwise. See
/// [`Branch::commit`](crate::Branch::commit).
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub struct Conflict {
    pub path: PathBuf,
    /// In plain words, such as "both wrote this file".
    pub reason: &'static str,
}

/// Why a commit was refused. Nothing has changed, and the branch goes on. See
/// [`Branch::commit`](crate::Branch::commit).
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NotCommitted {
    /// The parent has changed the same things.
    Conflicts(Vec<Conflict>),
    /// The branch can't be committed at all.
    Error(Error),
}
