//! The base: a directory of the host that all branches read. This file owns the inodes that are
//! made from it, and the host's open files.
//!
//! ```text
//! look-up of a number    branch's table -- nothing there --> base's table
//! bytes of a file        branch's page  -- nothing there --> pread of the host's file
//! ```
//!
//! - base.B1 The base's inodes are frozen: no branch has their token. The entries of a directory
//!   are read once, when somebody asks for them, and put in with one store. A directory that was
//!   not read has a dead link.
//! - base.B2 The base's table only grows, and lives as long as the file system.

use crate::backing::Backing;
use crate::bucket::{Bucket, Named};
use crate::directory::{self, NameHash};
use crate::inode::{Body, Fresh, Inode};
use crate::journal::{Journal, record};
use crate::memory::{AccountRef, Counted};
use crate::numbers::Numbers;
use crate::tree::radix::{self, Found, Writer};
use crate::tree::{Held, Link};
use crate::xattrs::{LONGEST_VALUE, Pair};
use crate::{Error, Ino, Kind, Result};
use manycore::section::Section;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;
use std::collections::{HashMap, VecDeque};
use std::ffi::{CStr, OsStr};
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{io, sync::atomic::Ordering};

/// The token of the base's inodes.
const FROZEN: u64 = 0;
/// Parts of the table of open files.
const SHARDS: usize = 16;
/// Host's files that a part keeps open.
const OPEN: usize = 16;

/// The base directory.
pub(crate) struct Base {
    pub(crate) path: PathBuf,
    root: OwnedFd,
    /// The host's number of the root.
    number: u64,
    table: Link<Inode>,
    /// Files with several names, by the host's device and number.
    linked: Mutex<HashMap<(u64, u64), Ino>>,
    open: [Mutex<Open>; SHARDS],
}

/// Where the names and numbers of a directory come from.
enum Source<'a> {
    Host(&'a Numbers, Option<&'a Journal>),
    Log(&'a [(Ino, &'a [u8])]),
}

/// Open files, in the order of their opening.
#[derive(Default)]
struct Open {
    files: HashMap<usize, Arc<File>>,
    order: VecDeque<usize>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn host(errno: Errno) -> Error {
    Error::Host(errno.raw_os_error())
}

/// Reads the names of a directory.
fn names(directory: &mut Dir) -> Result<Vec<Vec<u8>>> {
    let mut names = Vec::new();
    for entry in directory {
        let entry = entry.map_err(host)?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            names.push(name.to_vec());
        }
    }
    Ok(names)
}

impl Base {
    /// Opens a base, and makes the inode of its root.
    pub(crate) fn open(
        path: &Path,
        account: AccountRef,
        section: &Section<'_>,
    ) -> io::Result<Self> {
        let path = path.canonicalize()?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(&path, flags, Mode::empty())?;
        let stat = rustix::fs::fstat(&root)?;
        let base = Self {
            path,
            root,
            number: stat.st_ino as u64,
            table: Link::empty(),
            linked: Mutex::default(),
            open: Default::default(),
        };
        let inode = base.inode(OsStr::new(""), &stat, (Ino::ROOT, 0), account)?;
        base.insert(Ino::ROOT, inode, account, section);
        Ok(base)
    }

    /// Which directory it is, for a log: its path, and the host's number of it.
    pub(crate) fn path_bytes(&self) -> &[u8] {
        self.path.as_os_str().as_bytes()
    }

    pub(crate) fn host_number(&self) -> u64 {
        self.number
    }

    /// Returns the entries of a directory of the base, if it was read. Waits for who reads it: what
    /// is in the log before this call is in the entries after it.
    pub(crate) fn read_entries<'s>(
        &self,
        ino: Ino,
        section: &'s Section<'_>,
    ) -> Option<Vec<Named<'s>>> {
        let inode = self.get(ino, section)?;
        let _reading = inode.lock();
        let word = inode.entries()?.load(section);
        let mut entries = Vec::new();
        directory::for_each(word, section, &mut |entry| entries.push(entry));
        (!word.is_dead()).then_some(entries)
    }

    /// Returns true if a file of the base has this number.
    pub(crate) fn has(&self, ino: Ino, section: &Section<'_>) -> bool {
        self.get(ino, section).is_some()
    }

    /// Looks up an inode of the base.
    pub(crate) fn get<'s>(&self, ino: Ino, section: &'s Section<'_>) -> Option<&'s Inode> {
        match radix::get(&self.table, ino.0, section) {
            Found::Value(inode) => Some(inode),
            Found::Nothing | Found::Dead => None,
        }
    }

    /// Returns the numbers of files of the base in a range.
    pub(crate) fn numbers<'s>(
        &'s self,
        range: std::ops::Range<u64>,
        section: &'s Section<'_>,
    ) -> impl Iterator<Item = Ino> + 's {
        let mut from = range.start;
        std::iter::from_fn(move || {
            let (ino, _) = radix::next(&self.table, from, section)?;
            from = ino + 1;
            (ino < range.end).then_some(Ino(ino))
        })
    }

    fn insert(&self, ino: Ino, inode: Inode, account: AccountRef, section: &Section<'_>) {
        let writer = Writer { token: FROZEN, account, section };
        let slot = radix::slot(&self.table, ino.0, false, writer).expect("base.B2: none is dead");
        slot.set(Held::value(Counted::new(inode)), section);
    }

    /// Makes the inode of what the host has at a path.
    #[allow(clippy::unnecessary_cast)] // on other processors, the types are others
    fn inode(
        &self,
        path: &OsStr,
        stat: &rustix::fs::Stat,
        home: (Ino, u64),
        account: AccountRef,
    ) -> Result<Inode> {
        let (kind, body) = match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => (Kind::Directory, Body::Directory(Link::new(Held::dead()))),
            FileType::Symlink => {
                let target = rustix::fs::readlinkat(&self.root, path, Vec::new()).map_err(host)?;
                (Kind::Symlink, Body::Symlink(target.as_bytes().into()))
            }
            FileType::CharacterDevice => (Kind::CharDevice, Body::Special),
            FileType::BlockDevice => (Kind::BlockDevice, Body::Special),
            FileType::Fifo => (Kind::Fifo, Body::Special),
            FileType::Socket => (Kind::Socket, Body::Special),
            _ => (Kind::File, Body::File(Link::empty())),
        };
        let size = stat.st_size as u64;
        let nanoseconds = |seconds: i64, rest: u64| {
            seconds.saturating_mul(1_000_000_000).saturating_add(rest as i64)
        };
        let accessed = nanoseconds(stat.st_atime as i64, stat.st_atime_nsec as u64);
        let modified = nanoseconds(stat.st_mtime as i64, stat.st_mtime_nsec as u64);
        let changed = nanoseconds(stat.st_ctime as i64, stat.st_ctime_nsec as u64);
        let fresh = Fresh {
            kind,
            mode: stat.st_mode & 0o7777,
            links: stat.st_nlink as u32,
            uid: stat.st_uid,
            gid: stat.st_gid,
            size: if kind == Kind::Directory { 0 } else { size },
            extra: if kind.is_device() { stat.st_rdev as u64 } else { 0 },
            times: [accessed, modified, changed, changed],
            home,
            body,
        };
        let mut inode = Inode::new(FROZEN, account, fresh);
        inode.xattrs = Link::new(Held::dead());
        let blocks = stat.st_blocks as u64;
        inode.backing = Some(Arc::new(Backing { path: path.into(), blocks, size }));
        if kind == Kind::File {
            inode.backed.store(size, Ordering::Relaxed);
        }
        Ok(inode)
    }

    /// Reads a directory of the base, unless that was done (base.B1). A journal gets the numbers
    /// before anybody sees them.
    ///
    /// # Errors
    /// What the host says. Nothing has changed then, and the next call tries again.
    pub(crate) fn load(
        &self,
        ino: Ino,
        numbers: &Numbers,
        journal: Option<&Journal>,
        hash: &NameHash,
        account: AccountRef,
        section: &Section<'_>,
    ) -> Result<()> {
        self.load_with(ino, &Source::Host(numbers, journal), hash, account, section)
    }

    /// Reads a directory of the base as it was read once, for a log that has the numbers.
    ///
    /// # Errors
    /// If a file of then is not there any more.
    pub(crate) fn load_as(
        &self,
        ino: Ino,
        files: &[(Ino, &[u8])],
        hash: &NameHash,
        account: AccountRef,
        section: &Section<'_>,
    ) -> Result<()> {
        self.load_with(ino, &Source::Log(files), hash, account, section)
    }

    fn load_with(
        &self,
        ino: Ino,
        source: &Source<'_>,
        hash: &NameHash,
        account: AccountRef,
        section: &Section<'_>,
    ) -> Result<()> {
        let inode = self.get(ino, section).ok_or(Error::NotFound)?;
        let entries = inode.entries().ok_or(Error::NotDirectory)?;
        // Nobody else locks an inode of the base: they are frozen.
        let _reading = inode.lock();
        if !entries.load(section).is_dead() {
            return Ok(());
        }
        let backing = inode.backing.as_ref().ok_or(Error::NotFound)?;
        let mut directory = self.directory(&backing.path)?;
        let names: Vec<(Option<Ino>, Vec<u8>)> = match source {
            Source::Host(..) => {
                names(&mut directory)?.into_iter().map(|name| (None, name)).collect()
            }
            Source::Log(files) => {
                files.iter().map(|(number, name)| (Some(*number), name.to_vec())).collect()
            }
        };
        let number = |given: Option<Ino>| match (given, source) {
            // A log has a number once, but for files of several names.
            (Some(number), _) if self.has(number, section) => Err(Error::Exists),
            (Some(number), _) => Ok(number),
            (None, Source::Host(numbers, _)) => numbers.next(),
            (None, Source::Log(_)) => unreachable!("a log has all numbers"),
        };
        let writer = Writer { token: FROZEN, account, section };
        let new: Link<Bucket> = Link::empty();
        let (mut made, mut count) = (Vec::new(), 0);
        for (given, name) in &names {
            let path = Path::new(&*backing.path).join(OsStr::from_bytes(name));
            let at = directory.fd().map_err(host)?;
            let stat = match rustix::fs::statat(at, &**name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => stat,
                Err(Errno::NOENT) if given.is_none() => continue,
                Err(errno) => return Err(host(errno)),
            };
            let file = self.inode(path.as_os_str(), &stat, (ino, 0), account)?;
            let hash = hash.of(name);
            let insert = |number| directory::insert(&new, hash, name, (number, file.kind), writer);
            if file.kind == Kind::Directory || stat.st_nlink <= 1 {
                let number = number(*given)?;
                file.cookie.store(insert(number)?, Ordering::Relaxed);
                count += 1;
                made.push((number, file));
                continue;
            }
            count += 1;
            // A file of several names is there before any of them, whoever reads them first.
            let mut linked = lock(&self.linked);
            let id = (stat.st_dev as u64, stat.st_ino as u64);
            if let Some(number) = linked.get(&id) {
                insert(*number)?;
            } else {
                let number = number(*given)?;
                file.cookie.store(insert(number)?, Ordering::Relaxed);
                self.insert(number, file, account, section);
                linked.insert(id, number);
            }
        }
        // Nothing fails from here on. The files are there before their names are.
        for (number, file) in made {
            self.insert(number, file, account, section);
        }
        if let Source::Host(_, Some(journal)) = source {
            let mut named = Vec::new();
            let all = new.load(section);
            directory::for_each(all, section, &mut |entry| named.push((entry.ino, entry.name)));
            journal.append(&[&record::directory(ino, named.into_iter())]);
        }
        inode.begin().set_size(count); // without those that have gone meanwhile
        entries.set(new.take_quietly(), section);
        Ok(())
    }

    /// Opens a directory.
    fn directory(&self, path: &OsStr) -> Result<Dir> {
        let path = if path.is_empty() { OsStr::new(".") } else { path };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = rustix::fs::openat(&self.root, path, flags, Mode::empty());
        opened.and_then(Dir::new).map_err(host)
    }

    /// Returns the host's file, opened for reading.
    pub(crate) fn file(&self, backing: &Arc<Backing>) -> Result<Arc<File>> {
        let key = Arc::as_ptr(backing).addr(); // base.B2: no other file gets this address
        let mut open = lock(&self.open[(key >> 4) % SHARDS]);
        if let Some(file) = open.files.get(&key) {
            return Ok(Arc::clone(file));
        }
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let found = rustix::fs::openat(self.root.as_fd(), &*backing.path, flags, Mode::empty());
        let file = Arc::new(File::from(found.map_err(host)?));
        if open.order.len() >= OPEN {
            let oldest = open.order.pop_front().expect("it is full");
            open.files.remove(&oldest);
        }
        open.order.push_back(key);
        open.files.insert(key, Arc::clone(&file));
        Ok(file)
    }

    /// Reads bytes of a host's file; what it does not have becomes zeros.
    pub(crate) fn read(&self, backing: &Arc<Backing>, offset: u64, into: &mut [u8]) -> Result<()> {
        let file = self.file(backing)?;
        let mut done = 0;
        while done < into.len() {
            match file.read_at(&mut into[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Error::Host(error.raw_os_error().unwrap_or(5))),
            }
        }
        into[done..].fill(0);
        Ok(())
    }

    /// Reads all extended attributes of a host's file, sorted by name.
    pub(crate) fn xattrs(&self, backing: &Backing) -> Result<Vec<Pair>> {
        let path = self.path.join(&*backing.path);
        let mut names = vec![0; LONGEST_VALUE];
        let count = match rustix::fs::llistxattr(&path, &mut names[..]) {
            Ok(count) => count,
            Err(Errno::NOTSUP) => 0,
            Err(errno) => return Err(host(errno)),
        };
        let mut pairs = Vec::new();
        for name in names[..count].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
            if let Some(value) = self.xattr(&path, name)? {
                pairs.push((name.into(), value.into()));
            }
        }
        pairs.sort();
        Ok(pairs)
    }

    fn xattr(&self, path: &Path, name: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut value = vec![0; LONGEST_VALUE];
        let name = [name, &[0]].concat();
        let name = CStr::from_bytes_with_nul(&name).map_err(|_| Error::Invalid)?;
        match rustix::fs::lgetxattr(path, name, &mut value[..]) {
            Ok(count) => {
                value.truncate(count);
                Ok(Some(value))
            }
            Err(Errno::NODATA | Errno::NOTSUP | Errno::ACCESS | Errno::PERM) => Ok(None),
            Err(errno) => Err(host(errno)),
        }
    }
}
