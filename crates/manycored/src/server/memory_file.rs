//! The file of `-e`: its names, its locks and its life cycle. [`crate::restart`] defines its
//! content.
//!
//! ```text
//! server runs          FILE.part open and locked, FILE does not exist
//!   | graceful end     items written to FILE.part, then renamed
//! server is away       FILE complete
//!   | next start       FILE removed, then read
//! server runs          ...
//! ```
//!
//! Laws:
//! - memory_file.M1 FILE exists only between a server's orderly end and the next start. It is
//!   complete when it gets its name, and loses its name before its first item is read. So a killed
//!   server never leaves a FILE with old content.
//! - memory_file.M2 FILE.part is open and locked from the start to the end of a server. The server
//!   writes its items there. The lock keeps a second server away from FILE; otherwise the second
//!   server could read items that the first server has changed since. The next start truncates a
//!   FILE.part that a killed server has left.
//! - memory_file.M3 The server destroys no file of another program. It renames such a FILE, and
//!   does not start if memcached has left its FILE.meta.

use super::Failure;
use crate::restart::{HEADER, Header, Loaded, Refusal, load, save};
use crate::store::{Beginning, Limits, Store};
use rustix::fs::{
    CWD, FallocateFlags, FlockOperation, Mode, OFlags, fallocate, flock, fstatvfs, openat,
};
use rustix::io::Errno;
use rustix::process::geteuid;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime};

/// After reading this many bytes, the server returns their pages to the system.
const CUT: u64 = 4 << 20;

/// The file of `-e`.
pub(super) struct MemoryFile {
    path: PathBuf,
    part_path: PathBuf,
    part: File,
}

/// Returns the path with a suffix.
fn with(path: &Path, more: &str) -> PathBuf {
    let mut longer = OsString::from(path);
    longer.push(more);
    longer.into()
}

/// Opens a regular file that this user owns, and follows no symbolic link.
fn open(path: &Path, more: OFlags) -> io::Result<File> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK | more;
    let file = File::from(openat(CWD, path, flags, Mode::RUSR | Mode::WUSR)?);
    let found = file.metadata()?;
    if !found.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    // In a directory that all users may write to, another user could plant values for this server.
    if found.uid() != geteuid().as_raw() {
        return Err(io::Error::other("it belongs to another user"));
    }
    Ok(file)
}

/// Returns true if the path names this file.
fn is_named(file: &File, path: &Path) -> bool {
    let id = |found: fs::Metadata| (found.dev(), found.ino());
    let named = fs::symlink_metadata(path).map(id);
    file.metadata().map(id).is_ok_and(|own| named.is_ok_and(|named| named == own))
}

impl MemoryFile {
    /// Claims the file for this server until it ends.
    pub(super) fn claim(path: &Path, memory: u64) -> Result<Self, Failure> {
        let shown = path.display();
        if fs::metadata(path).is_ok_and(|found| found.is_dir()) {
            return Err(Failure::Usage(format!("-e {shown}: this is a folder, not a file in it")));
        }
        if fs::symlink_metadata(with(path, ".meta")).is_ok() {
            return Err(Failure::Usage(format!(
                "-e {shown}: there is {shown}.meta: memcached has left its items here, in a form \
                 that only memcached can read; remove both, or name another file"
            )));
        }
        let part_path = with(path, ".part");
        let part = Self::lock(path, &part_path)?;
        let own = Self { path: path.into(), part_path, part };
        let size = fstatvfs(&own.part).map(|all| all.f_blocks.saturating_mul(all.f_frsize));
        if size.is_ok_and(|size| size < memory) {
            own.log("its file system is smaller than -m: a full cache will not be saved");
        }
        Ok(own)
    }

    /// Opens, locks and truncates the file that the server writes to.
    fn lock(path: &Path, part: &Path) -> Result<File, Failure> {
        // memory_file.M2: the lock lasts as long as the file is open.
        let failed = || Failure::system(format!("-e {}: {}", path.display(), part.display()));
        loop {
            let file = open(part, OFlags::CREATE).map_err(failed())?;
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(Errno::WOULDBLOCK) => {
                    let error = io::Error::other("another server uses it, or has not ended yet");
                    return Err(failed()(error));
                }
                Err(error) => return Err(failed()(error.into())),
            }
            // The previous server may have renamed or removed the file between the opening and the
            // lock.
            if is_named(&file, part) {
                file.set_len(0).map_err(failed())?;
                return Ok(file);
            }
        }
    }

    fn log(&self, message: &str) {
        eprintln!("manycored: -e {}: {message}", self.path.display());
    }

    /// Returns a store with the items of the file. If there are none, returns an empty store and
    /// logs the reason.
    pub(super) fn store(&self, limits: &Limits, threads: usize) -> Store {
        let read = self.take().and_then(|taken| {
            let Some((file, header)) = taken else { return Ok(None) };
            let store = Store::beginning_with(limits.clone(), threads, self.beginning(&header)?);
            self.read(file, &header, &store).map(|()| Some(store))
        });
        match read {
            Ok(Some(store)) => return store,
            Ok(None) => self.log("there is no file, so the cache starts empty"),
            Err(refusal) => self.log(&format!("{refusal}; it is not used, the cache starts empty")),
        }
        Store::new(limits.clone(), threads)
    }

    fn beginning(&self, header: &Header) -> Result<Beginning, Refusal> {
        header.beginning(SystemTime::now())
    }

    /// Returns the file and its header, if there is a file. It has lost its name (memory_file.M1),
    /// or has another name (memory_file.M3).
    fn take(&self) -> Result<Option<(File, Header)>, Refusal> {
        let mut file = match open(&self.path, OFlags::empty()) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Refusal::Unreadable(error)),
        };
        let length = file.metadata().map_err(Refusal::Unreadable)?.len();
        let mut bytes = Vec::with_capacity(HEADER);
        let read = (&mut file).take(HEADER as u64).read_to_end(&mut bytes);
        read.map_err(Refusal::Unreadable)?;
        let header = Header::decode(&bytes, length);
        if matches!(header, Err(Refusal::Foreign)) {
            let other = with(&self.path, ".foreign");
            match fs::rename(&self.path, &other) {
                Ok(()) => self.log(&format!("its {length} bytes are in {} now", other.display())),
                Err(error) => self.log(&format!("it cannot be set aside: {error}")),
            }
        } else {
            fs::remove_file(&self.path).map_err(|error| {
                Refusal::Unfit(format!("it cannot be removed, and so be read but once: {error}"))
            })?;
        }
        header.map(|header| Some((file, header)))
    }

    fn read(&self, mut file: File, header: &Header, store: &Store) -> Result<(), Refusal> {
        let (start, mut cut) = (Instant::now(), 0);
        // If the file system cannot punch holes, the pages of the file stay until the end.
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let other = file.try_clone().map_err(Refusal::Unreadable)?;
        let loaded = load(header, &mut file, store, |read| {
            debug_assert!(cut <= read, "memory_file.M1: the file is read backwards");
            if read - cut >= CUT && fallocate(&other, hole, cut, read - cut).is_ok() {
                cut = read;
            }
        })?;
        let Loaded { restored, expired, too_large, no_room } = loaded;
        self.log(&format!(
            "{restored} items are there again, after {:.1} s; {expired} have expired, {too_large} \
             are too large now, {no_room} have no room",
            start.elapsed().as_secs_f64()
        ));
        Ok(())
    }

    /// Writes all items, and renames the file to its final name when it is complete.
    pub(super) fn save(mut self, store: &Store) -> Result<(), Failure> {
        let start = Instant::now();
        let failed = || {
            let words = "the items are not saved";
            Failure::system(format!("-e {}: {words}", self.path.display()))
        };
        if !is_named(&self.part, &self.part_path) {
            self.part = Self::lock(&self.path, &self.part_path)?;
        }
        let written = save(store, &mut &self.part, SystemTime::now()).and_then(|saved| {
            self.part.sync_all()?;
            fs::rename(&self.part_path, &self.path)?;
            Ok(saved)
        });
        let saved = written.map_err(failed())?;
        // For a file system on a disk, where a power failure could otherwise lose the name.
        if let Some(folder) = self.path.parent().and_then(|folder| File::open(folder).ok()) {
            let _ = folder.sync_all();
        }
        self.log(&format!(
            "{} items are saved in {} bytes, after {:.1} s",
            saved.items,
            saved.bytes,
            start.elapsed().as_secs_f64()
        ));
        Ok(())
    }
}

impl Drop for MemoryFile {
    fn drop(&mut self) {
        // The lock is still held, so the file belongs to no other server. After a save it has its
        // final name.
        if is_named(&self.part, &self.part_path) {
            let _ = fs::remove_file(&self.part_path);
        }
    }
}
