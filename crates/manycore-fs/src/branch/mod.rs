//! A tree of files: the handle, and what its operations have in common.
//!
//! ```text
//! read    section -------------------------> look up, copy out
//! write   gate (shared) -- section -- locks of inodes -- change
//! fork    gate (exclusive) -- share the root, new tokens
//! ```
//!
//! - branch.B1 A writer enters the gate before it opens a section, and takes locks of inodes in the
//!   order of their numbers, after the lock for moves. It lets go in the opposite order. So no two
//!   writers wait for each other, and no section waits for a gate.
//! - branch.B2 While the gate is held shared, the token stays, so inodes that may be written in
//!   place do not become frozen.

mod attributes;
mod bytes;
mod commit;
mod fork;
mod names;
mod paths;
mod rename;
mod replay;
mod xattrs;

use crate::bucket::Bucket;
use crate::directory;
use crate::files::Files;
use crate::inode::Inode;
use crate::journal::record::Change;
use crate::system::{Core, Gate, Inner};
use crate::tree::Link;
use crate::{BranchId, Error, FileSystem, Ino, Kind, Result};
use manycore::lock::BrReadGuard;
use manycore::section::Section;
use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::sync::{Arc, MutexGuard};

/// One tree of files. A handle: clones are of the same tree. All functions may be called from any
/// number of threads at once; none checks permissions, which a mount leaves to the kernel.
///
/// Consistency: each operation takes effect at one moment, with three exceptions. A rename of a
/// file is seen with both names for a moment, never with none. A read may see parts of a write that
/// goes on. Reading a directory sees each entry as of some moment of the call.
///
/// Progress and cost: look-ups, attributes, reads and reading a directory take no lock and write no
/// shared line (reading a file of the base takes a lock for its descriptor). A change locks the
/// inodes that it changes, and no other. All functions return [`Error::NotFound`] for a file that
/// is not there, and [`Error::Ended`] after [`commit`](Branch::commit) or [`abort`](Branch::abort).
///
/// ```
/// use manycore_fs::{Content, FileSystem, Ino, New};
///
/// let main = FileSystem::new().main();
/// let new = New { content: Content::File, mode: 0o644, uid: 0, gid: 0 };
/// let file = main.create(Ino::ROOT, "notes".as_ref(), &new).unwrap().ino;
/// assert_eq!(main.write(file, 0, b"buy milk").unwrap(), 8);
/// let mut bytes = [0; 4];
/// assert_eq!(main.read(file, 4, &mut bytes).unwrap(), 4);
/// assert_eq!(&bytes, b"milk");
/// ```
#[derive(Clone)]
pub struct Branch {
    pub(crate) inner: Arc<Inner>,
    pub(crate) core: Arc<Core>,
}

/// An entry of a directory. See [`Branch::read_directory`].
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct Entry<'a> {
    pub name: &'a OsStr,
    pub ino: Ino,
    pub kind: Kind,
    /// Where reading goes on after this entry; greater than 2, and positive as a signed number.
    pub next: u64,
}

/// How [`Branch::rename`] treats what has the new name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum Rename {
    Replace,
    NoReplace,
    Exchange,
}

/// How [`Branch::set_xattr`] treats an attribute of that name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum SetXattr {
    Either,
    Create,
    Replace,
}

/// What [`Branch::allocate`] does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum Fallocate {
    Extend,
    KeepSize,
    PunchHole,
    /// The flag: whether the size stays.
    ZeroRange(bool),
}

/// What [`Branch::seek`] looks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum Whence {
    Data,
    Hole,
}

/// Memory and files, of all branches together. See [`Branch::usage`].
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct Usage {
    /// Bytes of content: pages and extended attributes.
    pub used: u64,
    pub limit: Option<u64>,
    /// Inodes in memory. A file that branches share counts once, and once for each branch that
    /// changed it.
    pub files: u64,
}

impl Branch {
    /// Returns the number of the branch.
    pub fn id(&self) -> BranchId {
        self.inner.id
    }

    /// Returns the name of the branch.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// Returns the file system that the branch is of.
    pub fn file_system(&self) -> FileSystem {
        FileSystem { core: Arc::clone(&self.core) }
    }

    /// Returns how much memory and how many files there are, of all branches together.
    ///
    /// Memory of files that were removed counts until no reader can have it any more. Cost: frees
    /// what can be freed, takes a lock, and looks at a line of each thread.
    pub fn usage(&self) -> Usage {
        self.core.collect();
        let account = &self.core.account;
        let files = account.inodes.sum().try_into().unwrap_or(0);
        Usage { used: account.budget.used(), limit: account.limit, files }
    }

    /// The files, for reading.
    fn files<'s>(&'s self, section: &'s Section<'s>) -> Files<'s> {
        Files { core: &self.core, table: &self.inner.table, section, token: 0 }
    }

    /// The files, for a writer that has entered the gate (branch.B1).
    fn files_of<'s>(&'s self, gate: &BrReadGuard<'_, Gate>, section: &'s Section<'s>) -> Files<'s> {
        Files { token: gate.token, ..self.files(section) }
    }

    /// Writes down that inodes are what they are now (journal.J1). The caller has locked them; what
    /// else has changed, `more` adds. A file without a name is not of interest any more.
    fn note(&self, inodes: &[(Ino, &Inode)], more: impl FnOnce(&mut Change)) {
        if let Some(journal) = self.core.journal.get() {
            let mut change = Change::new(self.inner.id);
            inodes.iter().for_each(|(ino, inode)| change.inode(*ino, inode));
            more(&mut change);
            journal.append(&[&change.0]);
        }
    }

    /// Removes an inode that has no link left, unless it is kept (kept.K1).
    fn dispose(&self, files: Files<'_>, ino: Ino) {
        let shard = self.inner.kept().lock(ino);
        if !shard.is_kept(ino) {
            files.kill(ino);
        }
    }
}

impl fmt::Debug for Branch {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = out.debug_struct("Branch");
        text.field("id", &self.inner.id).field("name", &self.inner.name).finish_non_exhaustive()
    }
}

/// Inodes that one operation locks at most: of a rename, two directories and two files.
const MOST: usize = 4;

/// Inodes that this thread has locked, in the order of their numbers.
struct Locked<'s> {
    inodes: [Option<(Ino, &'s Inode)>; MOST],
    _guards: [Option<MutexGuard<'s, ()>>; MOST],
}

impl<'s> Locked<'s> {
    /// Locks inodes that may be written (branch.B1). There are four at most.
    fn new(files: Files<'s>, inos: &[Ino]) -> Result<Self> {
        let mut sorted = [Ino(u64::MAX); MOST];
        sorted[..inos.len()].copy_from_slice(inos);
        sorted.sort_unstable();
        let mut locked = Self { inodes: [None; MOST], _guards: [const { None }; MOST] };
        for at in 0..inos.len() {
            if at == 0 || sorted[at] != sorted[at - 1] {
                locked.inodes[at] = Some((sorted[at], files.writable(sorted[at])?));
            }
        }
        for (guard, (_, inode)) in locked._guards.iter_mut().zip(locked.inodes.iter().flatten()) {
            *guard = Some(inode.lock());
        }
        Ok(locked)
    }

    fn get(&self, ino: Ino) -> &'s Inode {
        let found = self.inodes.iter().flatten().find(|(number, _)| *number == ino);
        found.expect("branch.B1: it is locked").1
    }

    /// Returns a directory that is locked, if it has not been removed.
    fn directory(&self, ino: Ino) -> Result<(&'s Inode, &'s Link<Bucket>)> {
        let inode = self.get(ino);
        if inode.links() == 0 {
            return Err(Error::NotFound);
        }
        inode.entries().map(|entries| (inode, entries)).ok_or(Error::NotDirectory)
    }
}

/// Checks the name of a new entry.
fn check_name(name: &OsStr) -> Result<&[u8]> {
    let name = name.as_bytes();
    if name.len() > 255 {
        Err(Error::NameTooLong)
    } else if name.is_empty() {
        Err(Error::NotFound)
    } else if directory::is_name(name) {
        Ok(name)
    } else {
        Err(Error::Invalid)
    }
}
