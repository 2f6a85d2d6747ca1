//! The state behind all operations, and how branches, attributes and errors get from the library to
//! the kernel.

use super::node::Node;
use crate::program::control::Session;
use fuser::{Errno, FileAttr, FileType, Notifier};
use manycore_fs::{Attributes, Branch, BranchId, Error, FileSystem, Ino, Kind};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, SystemTime};

/// How long the kernel may keep entries and attributes. It is told if they change other than
/// through it.
pub const FOREVER: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// What a mount is like, besides its files.
pub struct Options {
    /// Who has mounted: the owner of the hidden directory.
    pub uid: u32,
    pub gid: u32,
    /// The most bytes of content.
    pub memory: u64,
    /// Whether files have extended attributes.
    pub xattrs: bool,
    /// The folder that all branches are kept in.
    pub keep: Option<PathBuf>,
}

/// What all threads share.
pub struct Shared {
    pub files: FileSystem,
    pub options: Options,
    /// Openings of the control file, by their file handles.
    pub sessions: Mutex<HashMap<u64, Arc<Mutex<Session>>>>,
    /// The number of the next session.
    pub next_session: AtomicU64,
    /// Set before the first request comes.
    pub notifier: OnceLock<Notifier>,
    pub started: SystemTime,
}

impl Shared {
    pub fn new(files: FileSystem, options: Options) -> Shared {
        Shared {
            files,
            options,
            sessions: Mutex::default(),
            next_session: AtomicU64::new(1),
            notifier: OnceLock::new(),
            started: SystemTime::now(),
        }
    }

    /// The branch, unless it has ended.
    pub fn branch(&self, id: BranchId) -> Result<Branch, Errno> {
        self.files.branch_by_id(id).ok_or(Errno::ESTALE)
    }

    /// Refuses requests about extended attributes, if there are none: the kernel then sends no
    /// further ones.
    pub fn has_xattrs(&self) -> Result<(), Errno> {
        if self.options.xattrs { Ok(()) } else { Err(Errno::ENOSYS) }
    }

    /// The branch and the file of a node; what is hidden is no file.
    pub fn file(&self, node: Node) -> Result<(Branch, Ino), Errno> {
        match node {
            Node::File(branch, ino) => Ok((self.branch(branch)?, ino)),
            _ => Err(Errno::EPERM),
        }
    }
}

/// The kernel's number of an error.
pub fn errno(error: Error) -> Errno {
    Errno::from_i32(error.errno())
}

pub fn file_type(kind: Kind) -> FileType {
    match kind {
        Kind::File => FileType::RegularFile,
        Kind::Directory => FileType::Directory,
        Kind::Symlink => FileType::Symlink,
        Kind::CharDevice => FileType::CharDevice,
        Kind::BlockDevice => FileType::BlockDevice,
        Kind::Fifo => FileType::NamedPipe,
        Kind::Socket => FileType::Socket,
    }
}

/// Attributes as the kernel wants them.
pub fn attributes(branch: BranchId, of: &Attributes) -> FileAttr {
    FileAttr {
        ino: Node::File(branch, of.ino).number(),
        size: of.size,
        blocks: of.blocks,
        atime: of.accessed,
        mtime: of.modified,
        ctime: of.changed,
        crtime: of.created,
        kind: file_type(of.kind),
        perm: (of.mode & 0o7777) as u16,
        nlink: of.links,
        uid: of.uid,
        gid: of.gid,
        // The kernel's 32 bits are the low ones of the C library's number.
        rdev: of.device as u32,
        blksize: 4096,
        flags: 0,
    }
}
