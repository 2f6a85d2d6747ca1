//! The hidden directory `.manycore-fs`: it can be entered from the root of each branch, but no list
//! shows it. In the main branch, it contains the directory of all branches. The kernel knows each
//! directory in one place only. So in any other branch it contains an empty directory instead, and
//! `run` mounts the true directory of branches there.
//!
//! The control file is never found, only created: so each opening (which must have `O_CREAT`)
//! reaches the daemon, and gets a session of its own.

use super::node::Node;
use super::shared::{Shared, attributes, errno};
use crate::program::control::Session;
use fuser::{Errno, FileAttr, FileType};
use manycore_fs::{Branch, BranchId, Ino};
use std::ffi::OsStr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

/// The name in the root of each branch.
pub const FOLDER: &str = ".manycore-fs";
/// The directory of branches in it.
pub const BRANCHES: &str = "branches";
/// The control file in it.
pub const CONTROL: &str = "control";
/// Where the symbolic link `main` leads to: from the directory of branches to the root.
pub const MAIN_TARGET: &str = "../..";

/// What has this name in a hidden directory. A branch's root is kept once, as after each look-up.
pub fn lookup(shared: &Shared, directory: Node, name: &OsStr) -> Result<FileAttr, Errno> {
    let name = name.to_str().ok_or(Errno::ENOENT)?;
    match (directory, name) {
        (Node::Folder(BranchId::MAIN), BRANCHES) => Ok(attributes_of(shared, Node::Branches)),
        // `run` mounts the directory of branches here.
        (Node::Folder(branch), BRANCHES) => Ok(attributes_of(shared, Node::Place(branch))),
        (Node::Branches, _) => {
            let branch = shared.files.branch(name).ok_or(Errno::ENOENT)?;
            if branch.id() == BranchId::MAIN {
                return Ok(attributes_of(shared, Node::MainLink));
            }
            kept_root(&branch)
        }
        _ => Err(Errno::ENOENT),
    }
}

/// Attributes of a node of a hidden list; a branch's root is kept once.
pub fn kept_attributes(shared: &Shared, node: Node) -> Result<FileAttr, Errno> {
    match node {
        Node::File(branch, _) => kept_root(&shared.branch(branch)?),
        hidden => Ok(attributes_of(shared, hidden)),
    }
}

/// Gives back what [`kept_attributes`] has kept, or the kernel has looked up.
pub fn forget(shared: &Shared, node: Node, count: u64) {
    if let Node::File(branch, ino) = node {
        // A branch that has ended has forgotten all.
        if let Ok(branch) = shared.branch(branch) {
            branch.forget(ino, count);
        }
    }
}

fn kept_root(branch: &Branch) -> Result<FileAttr, Errno> {
    branch.keep(Ino::ROOT).map_err(errno)?;
    branch.attributes(Ino::ROOT).map(|found| attributes(branch.id(), &found)).map_err(|error| {
        branch.forget(Ino::ROOT, 1);
        errno(error)
    })
}

/// Attributes of a hidden file.
pub fn attributes_of(shared: &Shared, node: Node) -> FileAttr {
    let (kind, perm, nlink, size) = match node {
        Node::MainLink => (FileType::Symlink, 0o777, 1, MAIN_TARGET.len() as u64),
        Node::Session(_) => (FileType::RegularFile, 0o600, 1, 0),
        Node::Folder(BranchId::MAIN) => (FileType::Directory, 0o700, 3, 0),
        _ => (FileType::Directory, 0o700, 2, 0),
    };
    FileAttr {
        ino: node.number(),
        size,
        blocks: 0,
        atime: shared.started,
        mtime: shared.started,
        ctime: shared.started,
        crtime: shared.started,
        kind,
        perm,
        nlink,
        uid: shared.options.uid,
        gid: shared.options.gid,
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

/// What is listed in a hidden directory.
pub fn list(shared: &Shared, directory: Node) -> Vec<(Node, FileType, String)> {
    match directory {
        Node::Folder(BranchId::MAIN) => {
            vec![(Node::Branches, FileType::Directory, BRANCHES.into())]
        }
        Node::Branches => {
            let branches = shared.files.branches().into_iter();
            let entry = |id, name| match id {
                BranchId::MAIN => (Node::MainLink, FileType::Symlink, name),
                id => (Node::root(id), FileType::Directory, name),
            };
            branches.map(|branch| entry(branch.id, branch.name)).collect()
        }
        _ => Vec::new(),
    }
}

/// Begins a session; returns its number, which is its file handle, too.
pub fn begin_session(shared: &Shared) -> u64 {
    let number = shared.next_session.fetch_add(1, Ordering::Relaxed);
    let mut sessions = shared.sessions.lock().unwrap_or_else(PoisonError::into_inner);
    sessions.insert(number, Arc::default());
    number
}

pub fn session(shared: &Shared, number: u64) -> Result<Arc<Mutex<Session>>, Errno> {
    let sessions = shared.sessions.lock().unwrap_or_else(PoisonError::into_inner);
    sessions.get(&number).cloned().ok_or(Errno::EBADF)
}

pub fn end_session(shared: &Shared, number: u64) {
    shared.sessions.lock().unwrap_or_else(PoisonError::into_inner).remove(&number);
}

/// The next bytes of a session's answers. While a request of the session is under way there are
/// none to wait for: a thread that waited here could not answer what a commit makes the kernel
/// ask.
pub fn read(session: &Mutex<Session>, size: usize) -> Result<Vec<u8>, Errno> {
    session.try_lock().map(|mut session| session.read(size)).map_err(|_| Errno::EAGAIN)
}
