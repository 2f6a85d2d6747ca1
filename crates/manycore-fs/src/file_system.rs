//! The branches of a file system.

use crate::base::Base;
use crate::inode::{Body, Fresh, Inode, now};
use crate::journal::{Cut, Folder, Journal, Opened, Recovered};
use crate::memory::{Account, Counted};
use crate::replay::replay;
use crate::snapshot::Snapshot;
use crate::system::{Core, Inner, lock};
use crate::tree::{Held, Link, radix};
use crate::{Branch, Error, Ino, Kind, Result};
use manycore::section::Domain;
use std::hash::{BuildHasher, RandomState};
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
    keep: Option<PathBuf>,
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

    /// Keeps all branches in a folder of the host, as a log of changes. If the folder has a log,
    /// the file system begins with what the log says, also of the root's owner and permissions.
    ///
    /// When [`sync`](FileSystem::sync) has returned, all that was done before is on disk. Without
    /// it, the end of the process loses what was done in the last milliseconds, and the end of the
    /// machine what was done in the last second or so. What is left is in both cases all that was
    /// done up to some moment. All content is in memory as well, and under the limit of memory.
    ///
    /// ```
    /// # if cfg!(miri) { return; }
    /// use manycore_fs::FileSystem;
    ///
    /// let folder = tempfile::tempdir().unwrap();
    /// let open = || FileSystem::builder().keep(folder.path()).build().unwrap();
    /// let files = open();
    /// files.main().write_file("/notes", b"buy milk").unwrap();
    /// files.main().fork("attempt").unwrap().write_file("/notes", b"buy oats").unwrap();
    /// files.sync().unwrap();
    /// drop(files);
    ///
    /// let files = open();
    /// assert_eq!(files.main().read_file("/notes").unwrap(), b"buy milk");
    /// assert_eq!(files.branch("attempt").unwrap().read_file("/notes").unwrap(), b"buy oats");
    /// ```
    #[must_use]
    pub fn keep(self, folder: impl AsRef<Path>) -> Builder {
        Builder { keep: Some(folder.as_ref().to_path_buf()), ..self }
    }

    /// Makes the file system.
    ///
    /// # Errors
    /// If the base can't be opened or is no directory. If the [folder](Builder::keep) is in use, or
    /// can't be written, or has files and no log. If its log is damaged in the middle, of another
    /// base or of another version, or has more than the limit of memory; the log stays as it is.
    pub fn build(self) -> io::Result<FileSystem> {
        let folder = self.keep.as_deref().map(Folder::open).transpose()?;
        let account = Account::open(self.limit);
        let domain = Domain::new();
        let shared = account.shared();
        let base = match &self.base {
            Some(path) => Some(Base::open(path, shared, &domain.enter())?),
            None => None,
        };
        let core = Core::new(account, domain, base);
        let token = core.token();
        let core = Arc::new(core);
        let named = (BranchId::MAIN, "main");
        let main = Inner::new(named, SystemTime::now(), None, token, Held::empty(), Held::empty());
        let main = Arc::new(main);
        core.ids.insert(0, Arc::clone(&main));
        lock(&core.names).insert("main".to_owned(), Arc::clone(&main));
        let found = folder.as_ref().map(|folder| replay(&core, folder)).transpose()?.flatten();
        let is_new = found.is_none();
        if is_new && core.base.is_none() {
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
            if let Some(slot) = radix::slot(&main.table, Ino::ROOT.0, false, writer) {
                slot.set(root, &section);
            }
        }
        let files = FileSystem { core };
        if let Some(folder) = folder {
            let (log, recovered) = match found {
                Some(found) => found,
                None => (files.first_log(&folder)?, None),
            };
            let journal = Journal::start(folder, log)?;
            // Nothing is there to be set yet.
            let _ = files.core.journal.set(journal);
            let _ = files.core.recovered.set(recovered);
        }
        Ok(files)
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

    /// Writes the log of a folder that has none, with the present state.
    fn first_log(&self, folder: &Folder) -> io::Result<Opened> {
        let salt = RandomState::new().hash_one(SystemTime::now());
        let (snapshot, cut) = Snapshot::take(&self.core, || Cut::first(salt));
        let (file, end) = snapshot.write(&self.core, folder, cut)?;
        folder.install(&file)?;
        folder.sync()?;
        Ok(Opened { file, salt, number: 0, end, compact: end })
    }

    /// Returns when all changes that were done before are on disk, if the file system is
    /// [kept](Builder::keep); else at once.
    ///
    /// Cost: a write and an `fdatasync`, which all callers at a time share.
    ///
    /// # Errors
    /// [`Log`](Error::Log).
    pub fn sync(&self) -> Result<()> {
        self.core.journal.get().map_or(Ok(()), Journal::sync)
    }

    /// Writes the log anew, as short as can be, if the file system is [kept](Builder::keep).
    /// Changes go on meanwhile, and none is lost if the process ends.
    ///
    /// Cost: that of the whole state, but for the base. Writers wait for some microseconds at the
    /// beginning, and for a copy of what they have written meanwhile at the end. A program calls it
    /// when it begins or ends, or now and then in a thread, if the log [has
    /// grown](FileSystem::log_has_grown).
    ///
    /// # Errors
    /// [`Log`](Error::Log). The log is as before then.
    pub fn compact(&self) -> Result<()> {
        let Some(journal) = self.core.journal.get() else { return Ok(()) };
        let _one = lock(&self.core.compacting);
        let (snapshot, cut) = Snapshot::take(&self.core, || journal.cut());
        let written = snapshot.write(&self.core, journal.folder(), cut);
        let (file, length) = written.map_err(|error| journal.give_up_new(&error))?;
        journal.replace(file, length, cut)
    }

    /// Returns true if the log has some megabytes, and three times of what it had when it was last
    /// written anew.
    pub fn log_has_grown(&self) -> bool {
        self.core.journal.get().is_some_and(Journal::has_grown)
    }

    /// Returns what was cut off the log when it was opened: changes that were not on disk when the
    /// machine or the process ended.
    pub fn recovered(&self) -> Option<&Recovered> {
        self.core.recovered.get()?.as_ref()
    }

    /// Returns true if the file system is [kept](Builder::keep).
    pub fn is_kept(&self) -> bool {
        self.core.journal.get().is_some()
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
