//! The branches of a file system.

use crate::base::Base;
use crate::inode::{Body, Fresh, Inode, now};
use crate::memory::{Account, Counted};
use crate::system::{Core, Inner, lock};
use crate::tree::{Held, Link, radix};
use crate::{Branch, Error, Ino, Kind, Result};
use manycore::section::Domain;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;
use std::{fmt, io};

/// The number of a branch; it is not used again. Less than 2^24.
///
/// ```
/// use manycore_fs::{BranchId, FileSystem};
///
/// assert_eq!(FileSystem::new().main().id(), BranchId::MAIN);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct BranchId(pub u32);

impl BranchId {
    /// The first branch, which stays as long as the file system.
    pub const MAIN: BranchId = BranchId(0);
}

/// A file system: a tree of branches, each of which is a tree of files. A handle: clones are of the
/// same.
///
/// ```
/// use manycore_fs::FileSystem;
///
/// let files = FileSystem::new();
/// files.main().write_file("/hello", b"world").unwrap();
/// let attempt = files.main().fork("attempt").unwrap();
/// attempt.write_file("/hello", b"there").unwrap();
/// assert_eq!(files.main().read_file("/hello").unwrap(), b"world");
/// assert_eq!(files.branches().len(), 2);
/// ```
#[derive(Clone)]
pub struct FileSystem {
    pub(crate) core: Arc<Core>,
}

/// How to make a [`FileSystem`].
///
/// ```
/// use manycore_fs::FileSystem;
///
/// let files = FileSystem::builder().memory_limit(64 << 20).root(0, 0, 0o755).build().unwrap();
/// assert_eq!(files.main().usage().limit, Some(64 << 20));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Builder {
    base: Option<PathBuf>,
    limit: Option<u64>,
    root: Option<(u32, u32, u32)>,
}

impl Builder {
    /// Begins with what this directory of the host has. It is only read, and when it is asked for;
    /// it must not be changed meanwhile. [`Branch::commit`] of the main branch does not write it.
    ///
    /// A directory is read at its first use, with all attributes. File content is read from the
    /// host each time, until a branch writes it; then that branch has the pages that it wrote.
    #[must_use]
    pub fn base(self, directory: impl AsRef<Path>) -> Builder {
        Builder { base: Some(directory.as_ref().to_path_buf()), ..self }
    }

    /// Sets the limit of memory: at most this many bytes of file content, all branches together;
    /// [`Error::NoSpace`] beyond. Extended attributes count, too; inodes and names do not.
    #[must_use]
    pub fn memory_limit(self, bytes: u64) -> Builder {
        Builder { limit: Some(bytes), ..self }
    }

    /// Sets owner and permissions of an empty root directory (without a base). By default, the root
    /// belongs to the process's user, and has mode 755.
    #[must_use]
    pub fn root(self, uid: u32, gid: u32, mode: u32) -> Builder {
        Builder { root: Some((uid, gid, mode)), ..self }
    }

    /// Makes the file system.
    ///
    /// # Errors
    /// If the base can't be opened or is no directory.
    pub fn build(self) -> io::Result<FileSystem> {
        let account = Account::open(self.limit);
        let domain = Domain::new();
        let shared = account.shared();
        let base = match &self.base {
            Some(path) => Some(Base::open(path, shared, &domain.enter())?),
            None => None,
        };
        let core = Core::new(account, domain, base);
        let (token, table) = (core.token(), Link::empty());
        if core.base.is_none() {
            let (uid, gid, mode) = self.root.unwrap_or_else(|| {
                let (uid, gid) = own_ids();
                (uid, gid, 0o755)
            });
            let fresh = Fresh {
                kind: Kind::Directory,
                mode: mode & 0o7777,
                links: 2,
                uid,
                gid,
                size: 0,
                extra: 0,
                times: [now(); 4],
                home: (Ino::ROOT, 0),
                body: Body::Directory(Link::empty()),
            };
            let section = core.domain.enter();
            let writer = radix::Writer { token, account: core.account(), section: &section };
            let root = Held::value(Counted::new(Inode::new(token, core.account(), fresh)));
            if let Some(slot) = radix::slot(&table, Ino::ROOT.0, false, writer) {
                slot.set(root, &section);
            }
        }
        let named = (BranchId::MAIN, "main");
        let main = Inner::new(named, None, token, table.take_quietly(), Held::empty());
        let main = Arc::new(main);
        core.ids.insert(0, Arc::clone(&main));
        lock(&core.names).insert("main".to_owned(), main);
        Ok(FileSystem { core: Arc::new(core) })
    }
}

/// The process's user and group. Miri knows none.
fn own_ids() -> (u32, u32) {
    if cfg!(miri) {
        return (0, 0);
    }
    (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw())
}

/// A row of [`FileSystem::branches`].
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct BranchInfo {
    pub id: BranchId,
    pub name: String,
    pub parent: Option<BranchId>,
    pub created: SystemTime,
}

impl FileSystem {
    /// Returns a [`Builder`].
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Makes an empty file system of unlimited size.
    pub fn new() -> FileSystem {
        Builder::default().build().expect("without a base, nothing of the host is asked")
    }

    /// Returns the branch that is there from the start; its name is `main`.
    pub fn main(&self) -> Branch {
        self.branch_by_id(BranchId::MAIN).expect("the main branch does not end")
    }

    /// Returns the branch of this name. Takes a lock.
    pub fn branch(&self, name: &str) -> Option<Branch> {
        let inner = lock(&self.core.names).get(name).cloned()?;
        Some(Branch { inner, core: Arc::clone(&self.core) })
    }

    /// Returns the branch of this number, if it has not ended. Takes no lock. The handle counts
    /// itself in a line of the branch and in one of the file system, as each clone of a handle
    /// does.
    pub fn branch_by_id(&self, id: BranchId) -> Option<Branch> {
        let inner = self.core.ids.read(&id.0, Arc::clone)?;
        Some(Branch { inner, core: Arc::clone(&self.core) })
    }

    /// Returns all branches, by number.
    pub fn branches(&self) -> Vec<BranchInfo> {
        let info = |inner: &Arc<Inner>| BranchInfo {
            id: inner.id,
            name: inner.name.clone(),
            parent: inner.parent,
            created: inner.created,
        };
        let mut rows: Vec<_> = lock(&self.core.names).values().map(info).collect();
        rows.sort_by_key(|row| row.id);
        rows
    }

    /// Returns the base directory, with symbolic links resolved.
    pub fn base(&self) -> Option<PathBuf> {
        self.core.base.as_ref().map(|base| base.path.clone())
    }
}

impl Default for FileSystem {
    fn default() -> FileSystem {
        FileSystem::new()
    }
}

impl fmt::Debug for FileSystem {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("FileSystem").field("base", &self.base()).finish_non_exhaustive()
    }
}

/// Checks the name of a branch: 1 to 255 bytes of letters, digits, `.`, `_`, `-`, not beginning
/// with `.` or `-`.
pub(crate) fn check_name(name: &str) -> Result<()> {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if name.len() > 255 {
        Err(Error::NameTooLong)
    } else if name.is_empty() || name.starts_with(['.', '-']) || !name.chars().all(is_allowed) {
        Err(Error::Invalid)
    } else {
        Ok(())
    }
}
