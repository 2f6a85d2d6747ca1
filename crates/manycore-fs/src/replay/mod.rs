//! Opens the log of a folder, and restores the state that it describes. The log may have any bytes:
//! time and memory grow only with its length and the size of the base.
//!
//! ```text
//! whole records | torn tail                  cut off, and reported
//! whole records | damage | records           refused, if the damaged place was on disk once;
//!                                            else cut off and put aside
//! ```

pub(crate) mod fit;

use crate::attributes::time;
use crate::journal::disk::LogFile;
use crate::journal::record::{self, Behind, Reader, Record, Step};
use crate::journal::{Folder, Opened, Recovered};
use crate::system::Core;
use crate::{Branch, BranchId, FileSystem, Ino, Kind, NotCommitted};
use fit::{Batch, Fits, Misfit, Used};
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::sync::Arc;

/// The greatest number of a record that is read, so that there are numbers left.
const LAST_NUMBER: u64 = 1 << 62;

/// Reads the log of a folder into an empty file system. `None`: the folder has none.
///
/// # Errors
/// If the log is damaged in the middle, or does not fit to the base or to the limit of memory.
/// Nothing in the folder has changed then.
pub(crate) fn replay(
    core: &Arc<Core>,
    folder: &Folder,
) -> io::Result<Option<(Opened, Option<Recovered>)>> {
    let path = folder.log();
    let file = match LogFile::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            return Err(io::Error::new(error.kind(), format!("{}: {error}", path.display())));
        }
    };
    let error = |at: u64, words: &str| {
        let words = format!("{} at offset {at}: {words}; nothing was changed", path.display());
        io::Error::new(io::ErrorKind::InvalidData, words)
    };
    let length = file.file.metadata()?.len();
    let reader = Reader::new(BufReader::with_capacity(1 << 20, &file.file), length)?;
    let mut reader = reader.map_err(|words| error(0, words))?;
    let mut state = Replay::new(core);
    let is_broken = loop {
        let at = reader.at;
        match reader.step()? {
            Step::End => break false,
            Step::Broken => break true,
            Step::Record { number } => {
                let record = record::decode(&reader.payload);
                let record = record
                    .ok_or_else(|| error(at, "the record is damaged, or of a newer version"))?;
                let done = state.apply(record, number, reader.at);
                done.map_err(|Misfit(words)| error(at, &words))?;
            }
        }
    };
    let (end, salt) = (reader.at, reader.salt);
    let (Some(compact), Some(number)) = (state.compact, state.number) else {
        return Err(error(end, "the log is damaged"));
    };
    let mut recovered = None;
    if is_broken {
        let tail = read_tail(&file.file, end)?;
        let behind = record::behind(&tail, salt, number);
        match behind {
            Behind::Synced => {
                return Err(error(end, "the log is damaged, and whole records follow"));
            }
            Behind::Forged => {
                return Err(error(end, "the log is damaged, and what follows is no log"));
            }
            Behind::Nothing | Behind::Unsynced => {}
        }
        let mut aside = None;
        if behind == Behind::Unsynced {
            let place = folder.path.join(format!("cut-{end}"));
            LogFile::create(&place)?.write_all(&tail)?;
            aside = Some(place);
        }
        file.set_length(end)?;
        file.sync()?;
        recovered =
            Some(Recovered { log: path.clone(), offset: end, bytes: tail.len() as u64, aside });
    } else {
        // What a kill has left in the kernel's cache alone.
        file.sync()?;
    }
    // So the log's name, too.
    folder.sync()?;
    Ok(Some((Opened { file, salt, number, end, compact }, recovered)))
}

fn read_tail(mut file: &File, from: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(from))?;
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// What is known of the log while it is read.
struct Replay<'c> {
    core: &'c Arc<Core>,
    /// Of the last record.
    number: Option<u64>,
    /// Where what was written at once ends.
    compact: Option<u64>,
    used: Used,
    batch: Batch,
    /// The branch that the batch is of.
    changed: Option<BranchId>,
    /// The last branch that was forked from each.
    forks: HashMap<BranchId, BranchId>,
}

fn refuse<T>(words: impl Into<String>) -> Fits<T> {
    Err(Misfit(words.into()))
}

impl<'c> Replay<'c> {
    fn new(core: &'c Arc<Core>) -> Self {
        let (used, batch, forks) = (Used::default(), Batch::default(), HashMap::new());
        Self { core, number: None, compact: None, used, batch, changed: None, forks }
    }

    /// What was written at once has one number for all; then each has the next.
    fn is_next(&mut self, number: u64) -> bool {
        let before = self.number.replace(number);
        let next = before.map(|before| before + u64::from(self.compact.is_some()));
        number <= LAST_NUMBER && next.is_none_or(|next| number == next)
    }

    fn branch(&self, id: BranchId) -> Fits<Branch> {
        let files = FileSystem { core: Arc::clone(self.core) };
        let branch = files.branch_by_id(id);
        branch.ok_or_else(|| Misfit(format!("there is no branch {}", id.0)))
    }

    /// Checks what has changed since the last check (fit.T1).
    fn end_batch(&mut self) -> Fits {
        let Some(id) = self.changed.take() else { return Ok(()) };
        self.branch(id)?.check_batch(&mut self.batch)
    }

    fn apply(&mut self, record: Record<'_>, number: u64, end: u64) -> Fits {
        let is_first = self.number.is_none();
        if !self.is_next(number) {
            return refuse(format!("record {number} is not the next one"));
        }
        if is_first != matches!(record, Record::Base(_)) {
            return refuse("the log does not begin with its base");
        }
        let is_compact = self.compact.is_some();
        match record {
            Record::Base(kept) => self.base(kept),
            Record::Change(id, items) => {
                if self.changed != Some(id) {
                    self.end_batch()?;
                    self.changed = Some(id);
                }
                for item in &items {
                    if let record::Item::Inode(words) = item {
                        self.core.chunks.pass(words.ino);
                    }
                }
                self.branch(id)?.replay(&items, &mut self.batch, &mut self.used)?;
                // What was written at once may be in pieces.
                if is_compact { self.end_batch() } else { Ok(()) }
            }
            record => {
                self.end_batch()?;
                match record {
                    Record::Directory(ino, files) => self.directory(ino, &files),
                    Record::Fork { parent, id, created, name } => {
                        self.fork(parent, id, created, name)
                    }
                    Record::Commit(id) if is_compact => {
                        self.branch(id)?.commit_and_tell(false).map(drop).map_err(|reason| {
                            Misfit(match reason {
                                NotCommitted::Error(error) => Misfit::from(error).0,
                                NotCommitted::Conflicts(_) => "the commit conflicts".to_owned(),
                            })
                        })
                    }
                    Record::Abort(id) if is_compact => Ok(self.branch(id)?.abort()?),
                    Record::Ready { chunk, branch } if !is_compact => {
                        self.ready(chunk, branch)?;
                        self.compact = Some(end);
                        Ok(())
                    }
                    _ => refuse("the record is not at its place"),
                }
            }
        }
    }

    fn base(&self, kept: Option<(&[u8], u64)>) -> Fits {
        let base = self.core.base.as_ref();
        let now = base.map(|base| (base.path_bytes(), base.host_number()));
        if kept == now {
            return Ok(());
        }
        let shown = |base: Option<(&[u8], u64)>| match base {
            Some((path, number)) => {
                format!("{} (number {number})", String::from_utf8_lossy(path))
            }
            None => "none".to_owned(),
        };
        refuse(format!("it is of the base {}, not of {}", shown(kept), shown(now)))
    }

    fn directory(&mut self, ino: Ino, files: &[(Ino, &[u8])]) -> Fits {
        let core = self.core;
        let Some(base) = core.base.as_ref() else { return refuse("there is no base") };
        let section = core.domain.enter();
        let mut names = HashSet::new();
        for (number, name) in files {
            core.chunks.pass(*number);
            // A file of several names has its number in several directories.
            let is_new = self.used.insert(*number) || base.has(*number, &section);
            if !is_new || !names.insert(*name) {
                let words = format!("file {} of directory {} is there already", number.0, ino.0);
                return refuse(words);
            }
        }
        let loaded = base.load_as(ino, files, &core.hash, core.account(), &section);
        loaded.map_err(|error| {
            Misfit(format!("directory {} of the base has changed: {error}", ino.0))
        })
    }

    /// A branch is younger than its parent, and than those that were forked before it.
    fn fork(&mut self, parent: BranchId, id: BranchId, created: i64, name: &str) -> Fits {
        let last = self.forks.insert(parent, id).unwrap_or(parent);
        let is_new = match self.compact {
            Some(_) => id.0 >= self.core.peek_id(),
            None => self.branch(id).is_err(),
        };
        if id <= last || !is_new {
            return refuse(format!("branch {} is not the next one", id.0));
        }
        let parent = self.branch(parent)?;
        self.core.pass_id(id);
        Ok(parent.fork_as(name, Some((id, time(created)))).map(drop)?)
    }

    fn ready(&self, chunk: u64, branch: u32) -> Fits {
        let main = self.branch(BranchId::MAIN)?;
        let root = main.attributes(Ino::ROOT);
        if !root.is_ok_and(|root| root.kind == Kind::Directory) {
            return refuse("there is no root directory");
        }
        if branch < self.core.peek_id() {
            return refuse("the next branch was there already");
        }
        self.core.chunks.pass(Ino(chunk.saturating_sub(1) << 6));
        self.core.pass_id(BranchId(branch.saturating_sub(1)));
        Ok(())
    }
}

#[cfg(test)]
mod tests;
