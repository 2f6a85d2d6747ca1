//! The log of a file system that is kept in a folder: a record for each change, in the order in
//! which changes were made. This file owns the buffer, the thread that writes in the background,
//! and the file.
//!
//! ```text
//! change --> buffer --> file (survives a kill)    by the thread, within some 20 ms
//!                         \--> disk               by `sync`; by the thread, within about a second
//! ```
//!
//! - journal.J1 A change appends its record while it still has the locks by which it excludes other
//!   changes of the same files. So records that depend on one another are in the order of their
//!   changes, and each prefix of the log is a state that the file system could have had.
//! - journal.J2 Records go to the file in the order of their numbers, by one thread at a time.
//!   Records that could not be written stay in the buffer, and are written again at the same place.
//! - journal.J3 If the buffer is full, a change waits before it begins, and is refused if the log
//!   cannot be written. So appending does not fail, and does not wait for the disk under the locks
//!   of a change.
//! - journal.J4 After a failed `fdatasync` nobody knows what is on disk. After a failed `fsync` of
//!   the folder nobody knows which log it names there. So nothing is written any more, and all
//!   changes are refused.

pub(crate) mod disk;
#[cfg(test)]
mod power_loss;
pub(crate) mod record;

use crate::{Error, Result};
use disk::{LogFile, MODE};
use record::HEADER;
use rustix::fs::{FlockOperation, flock};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Bytes in the buffer that the thread does not wait with.
const ENOUGH: usize = 256 << 10;
/// Bytes in the buffer above which changes wait.
const MOST: usize = 8 << 20;
/// How long the thread waits for more.
const GATHER: Duration = Duration::from_millis(20);
/// How long what is in the file may not be on disk. (Not on a disk that is slow.)
const LATEST: Duration = Duration::from_secs(1);
/// A log that is shorter is not written anew.
const SMALL: u64 = 4 << 20;

/// The folder, locked as long as this lives.
pub(crate) struct Folder {
    pub(crate) path: PathBuf,
    _lock: File,
}

impl Folder {
    /// Makes the folder, unless it is there, and locks it.
    pub(crate) fn open(path: &Path) -> io::Result<Folder> {
        let of = |path: &Path, error: io::Error| {
            let words = match error.kind() {
                io::ErrorKind::AlreadyExists => "is not a directory".to_owned(),
                _ => error.to_string(),
            };
            io::Error::new(error.kind(), format!("{}: {words}", path.display()))
        };
        let is_missing = |path: &&Path| !path.as_os_str().is_empty() && !path.exists();
        let made: Vec<&Path> = path.ancestors().take_while(is_missing).collect();
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(path)
            .map_err(|error| of(path, error))?;
        // What is synchronized in a folder is not there without the folder's own name.
        for made in made {
            let above = made.parent().filter(|above| !above.as_os_str().is_empty());
            let above = above.unwrap_or(Path::new("."));
            disk::sync_folder(above).map_err(|error| of(above, error))?;
        }
        let path = path.canonicalize().map_err(|error| of(path, error))?;
        if !is_for_logs(&path).map_err(|error| of(&path, error))? {
            let words = format!("{}: has other files: name a folder for this", path.display());
            return Err(io::Error::new(io::ErrorKind::DirectoryNotEmpty, words));
        }
        let mut options = OpenOptions::new();
        let lock = options.read(true).write(true).create(true).truncate(false).mode(MODE);
        let place = path.join("lock");
        let lock = lock.open(&place).map_err(|error| of(&place, error))?;
        if let Err(errno) = flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            let in_use = errno == rustix::io::Errno::WOULDBLOCK;
            let words = if in_use { "another file system is kept here" } else { "can't be locked" };
            return Err(io::Error::new(errno.kind(), format!("{}: {words}", path.display())));
        }
        Ok(Folder { path, _lock: lock })
    }

    pub(crate) fn log(&self) -> PathBuf {
        self.path.join("log")
    }

    /// The name of a log that is being written.
    fn new_log(&self) -> PathBuf {
        self.path.join("log.new")
    }

    /// Makes a log under another name.
    pub(crate) fn create(&self) -> io::Result<LogFile> {
        LogFile::create(&self.new_log())
    }

    /// Puts a log that was written to the end in its place. [`sync`](Self::sync) has to follow.
    pub(crate) fn install(&self, log: &LogFile) -> io::Result<()> {
        log.sync()?;
        disk::rename(&self.new_log(), &self.log())
    }

    /// Waits until the names of the files are on disk.
    pub(crate) fn sync(&self) -> io::Result<()> {
        disk::sync_folder(&self.path)
    }
}

/// Returns true if a folder has a log, or nothing but what we and the host put into one.
fn is_for_logs(folder: &Path) -> io::Result<bool> {
    let mut is_empty = true;
    for entry in fs::read_dir(folder)? {
        match entry?.file_name().to_str() {
            Some("log") => return Ok(true),
            Some("lock" | "log.new" | "lost+found") => {}
            _ => is_empty = false,
        }
    }
    Ok(is_empty)
}

/// A log as it was opened or written: where it goes on.
pub(crate) struct Opened {
    pub(crate) file: LogFile,
    pub(crate) salt: u64,
    /// The number of the last record.
    pub(crate) number: u64,
    /// Where the next record goes.
    pub(crate) end: u64,
    /// Bytes of what was written at once.
    pub(crate) compact: u64,
}

/// What was cut off a log. See [`recovered`](crate::FileSystem::recovered).
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Recovered {
    /// The log.
    pub log: PathBuf,
    /// Where the last whole record ends.
    pub offset: u64,
    /// Bytes that were cut off there.
    pub bytes: u64,
    /// A file with these bytes, if there were whole records in them.
    pub aside: Option<PathBuf>,
}

struct State {
    file: Arc<LogFile>,
    buffer: Vec<u8>,
    /// The number of the last record.
    number: u64,
    /// Numbers of the last records in the file and on disk.
    written: u64,
    synced: u64,
    /// Where the next batch goes.
    offset: u64,
    /// Where the next record goes.
    end: u64,
    /// Bytes of what was written at once.
    compact: u64,
    /// A thread writes to the file.
    is_writing: bool,
    is_closing: bool,
    /// Why the last write failed.
    failed: Option<i32>,
    /// journal.J4
    is_lost: bool,
    unsynced_since: Option<Instant>,
}

struct Shared {
    folder: Folder,
    salt: u64,
    state: Mutex<State>,
    /// Wakes the thread.
    work: Condvar,
    /// Wakes who waits for the thread that writes.
    done: Condvar,
    /// Changes must not begin without a look at the state.
    is_pressed: AtomicBool,
}

/// The log.
pub(crate) struct Journal {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// A moment in the life of a log.
#[derive(Clone, Copy)]
pub(crate) struct Cut {
    /// The number of the last record before it.
    pub(crate) number: u64,
    pub(crate) salt: u64,
    end: u64,
}

impl Cut {
    /// The moment before the first record.
    pub(crate) fn first(salt: u64) -> Cut {
        Cut { number: 0, salt, end: 0 }
    }
}

fn errno(error: &io::Error) -> i32 {
    const IO: i32 = 5;
    error.raw_os_error().unwrap_or(IO)
}

impl Journal {
    /// Goes on with a log.
    pub(crate) fn start(folder: Folder, log: Opened) -> io::Result<Journal> {
        let Opened { file, salt, number, end, compact } = log;
        let state = State {
            file: Arc::new(file),
            buffer: Vec::new(),
            number,
            written: number,
            synced: number,
            offset: end,
            end,
            compact,
            is_writing: false,
            is_closing: false,
            failed: None,
            is_lost: false,
            unsynced_since: None,
        };
        let shared = Arc::new(Shared {
            folder,
            salt,
            state: Mutex::new(state),
            work: Condvar::new(),
            done: Condvar::new(),
            is_pressed: AtomicBool::new(false),
        });
        let of_thread = Arc::clone(&shared);
        let thread = thread::Builder::new().name("log".into());
        let thread = thread.spawn(move || of_thread.write_behind())?;
        Ok(Journal { shared, thread: Some(thread) })
    }

    /// Waits until there is room for a change (journal.J3). Outside of sections and locks.
    ///
    /// # Errors
    /// `Log` if the log can't be written.
    pub(crate) fn admit(&self) -> Result<()> {
        // ORDER: Relaxed; a hint, which the state confirms.
        if self.shared.is_pressed.load(Ordering::Relaxed) { self.shared.admit() } else { Ok(()) }
    }

    /// Adds a record, whose payload is in parts (journal.J1).
    pub(crate) fn append(&self, parts: &[&[u8]]) {
        let length = parts.iter().map(|part| part.len()).sum::<usize>();
        let length = u32::try_from(length).expect("journal.J1: a record has less than 4 GiB");
        let sum = record::checksum(parts);
        let shared = &*self.shared;
        let mut state = shared.lock();
        let State { buffer, number, synced, end, .. } = &mut *state;
        *number += 1;
        let is_first = buffer.is_empty();
        buffer.extend(record::header(shared.salt, length, sum, *number, *synced));
        parts.iter().for_each(|part| buffer.extend_from_slice(part));
        *end += HEADER as u64 + u64::from(length);
        if buffer.len() >= MOST {
            shared.is_pressed.store(true, Ordering::Relaxed);
        }
        let wakes = is_first || buffer.len() >= ENOUGH;
        drop(state);
        if wakes {
            shared.work.notify_one();
        }
    }

    /// Returns when all that was appended before is on disk. Several callers share one write and
    /// one `fdatasync`.
    ///
    /// # Errors
    /// `Log`.
    pub(crate) fn sync(&self) -> Result<()> {
        self.shared.sync(|state| state.number)
    }

    /// The present moment. What is appended until the caller says is behind it.
    pub(crate) fn cut(&self) -> Cut {
        let state = self.shared.lock();
        Cut { number: state.number, salt: self.shared.salt, end: state.end }
    }

    /// Returns true if writing the log anew may be worth it.
    pub(crate) fn has_grown(&self) -> bool {
        let state = self.shared.lock();
        state.end > SMALL && state.end / 3 > state.compact
    }

    pub(crate) fn folder(&self) -> &Folder {
        &self.shared.folder
    }

    /// Removes a log that could not be written anew.
    pub(crate) fn give_up_new(&self, error: &io::Error) -> Error {
        let _ = fs::remove_file(self.shared.folder.new_log());
        Error::Log(errno(error))
    }

    /// Puts a log that has the state of a cut in the place of the present one, and adds to it what
    /// was appended since. `file` stands at its end, `compact`.
    pub(crate) fn replace(&self, file: LogFile, compact: u64, cut: Cut) -> Result<()> {
        self.shared.replace(file, compact, cut).map_err(|error| self.give_up_new(&error))
    }
}

impl Drop for Journal {
    /// Writes what is left. Who wants to know if that succeeds calls `sync` before.
    fn drop(&mut self) {
        self.shared.lock().is_closing = true;
        self.shared.work.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let _ = self.sync();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'s>(&'s self, state: MutexGuard<'s, State>) -> MutexGuard<'s, State> {
        self.done.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    fn admit(&self) -> Result<()> {
        let mut state = self.lock();
        loop {
            if state.is_lost {
                return Err(Error::Log(state.failed.unwrap_or(0)));
            }
            if state.buffer.len() < MOST && state.failed.is_none() {
                self.is_pressed.store(false, Ordering::Relaxed);
                return Ok(());
            }
            if state.is_writing {
                state = self.wait(state);
                continue;
            }
            let (next, done) = self.flush(state, false);
            done?;
            state = next;
        }
    }

    fn sync(&self, until: impl Fn(&State) -> u64) -> Result<()> {
        let mut state = self.lock();
        let until = until(&state);
        while state.synced < until {
            if state.is_lost {
                return Err(Error::Log(state.failed.unwrap_or(0)));
            }
            if state.is_writing {
                state = self.wait(state);
                continue;
            }
            let (next, done) = self.flush(state, true);
            done?;
            state = next;
        }
        Ok(())
    }

    /// Writes the buffer (journal.J2). Nobody else writes now.
    fn flush<'s>(
        &'s self,
        mut state: MutexGuard<'s, State>,
        syncs: bool,
    ) -> (MutexGuard<'s, State>, Result<()>) {
        state.is_writing = true;
        let mut batch = std::mem::take(&mut state.buffer);
        let (file, offset, number) = (Arc::clone(&state.file), state.offset, state.number);
        drop(state);
        let wrote = file.write_all_at(&batch, offset);
        let synced = if wrote.is_ok() && syncs { file.sync() } else { Ok(()) };
        let mut state = self.lock();
        state.is_writing = false;
        let failed = match (wrote, synced) {
            (Err(error), _) => {
                // Gives back what the part of it took; the next try needs it not.
                let _ = file.set_length(offset);
                batch.append(&mut state.buffer);
                state.buffer = batch;
                Some(errno(&error))
            }
            (Ok(()), synced) => {
                state.offset += batch.len() as u64;
                state.written = number;
                if syncs && synced.is_ok() {
                    state.synced = number;
                    state.unsynced_since = None;
                } else if !batch.is_empty() {
                    state.unsynced_since.get_or_insert_with(Instant::now);
                }
                state.is_lost |= synced.is_err(); // journal.J4
                if state.buffer.is_empty() && batch.capacity() <= 2 * MOST {
                    batch.clear();
                    state.buffer = batch; // its memory
                }
                synced.err().map(|error| errno(&error))
            }
        };
        state.failed = failed;
        if failed.is_some() {
            self.is_pressed.store(true, Ordering::Relaxed);
        }
        self.done.notify_all();
        (state, failed.map_or(Ok(()), |number| Err(Error::Log(number))))
    }

    /// The thread: writes what is in the buffer, and now and then waits for the disk.
    fn write_behind(&self) {
        let mut state = self.lock();
        let pause = |state, time| {
            self.work.wait_timeout(state, time).unwrap_or_else(PoisonError::into_inner).0
        };
        while !state.is_closing && !state.is_lost {
            let waited = state.unsynced_since.map(|since| since.elapsed());
            let is_late = waited.is_some_and(|waited| waited >= LATEST);
            if state.buffer.is_empty() && !is_late {
                state = match waited {
                    Some(waited) => pause(state, LATEST.saturating_sub(waited)),
                    None => self.work.wait(state).unwrap_or_else(PoisonError::into_inner),
                };
                if state.buffer.is_empty() || state.is_closing {
                    continue;
                }
            }
            if state.buffer.len() < ENOUGH && !is_late {
                state = pause(state, GATHER);
            }
            if state.is_writing {
                state = self.wait(state);
                continue;
            }
            let (next, done) = self.flush(state, is_late);
            state = next;
            if done.is_err() {
                state = pause(state, LATEST);
            }
        }
    }

    fn replace(&self, mut new: LogFile, compact: u64, cut: Cut) -> io::Result<()> {
        let mut state = self.lock();
        while state.is_writing {
            state = self.wait(state);
        }
        if !state.buffer.is_empty() {
            let (next, done) = self.flush(state, false);
            done.map_err(|error| io::Error::from_raw_os_error(error.errno()))?;
            state = next;
            while state.is_writing {
                state = self.wait(state);
            }
        }
        if state.is_lost {
            return Err(io::Error::other("the log is lost"));
        }
        state.is_writing = true;
        let (old, offset, written) = (Arc::clone(&state.file), state.offset, state.written);
        drop(state);
        let installed = (|| {
            new.copy(&old, cut.end, offset - cut.end)?;
            self.folder.install(&new)
        })();
        // From here on the old log has no name: what follows goes to the new one, even if the disk
        // fails now.
        let synced = installed.map(|()| self.folder.sync());
        let mut state = self.lock();
        state.is_writing = false;
        if let Ok(synced) = &synced {
            state.file = Arc::new(new);
            (state.compact, state.offset) = (compact, compact + (offset - cut.end));
            state.end = state.offset + state.buffer.len() as u64;
            match synced {
                Ok(()) => (state.synced, state.unsynced_since) = (written, None),
                Err(error) => {
                    (state.is_lost, state.failed) = (true, Some(errno(error))); // journal.J4
                    self.is_pressed.store(true, Ordering::Relaxed);
                }
            }
        }
        self.done.notify_all();
        synced.and_then(|done| done)
    }
}
