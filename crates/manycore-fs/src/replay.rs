//! Opens the log of a folder, and makes the state that it says.
//!
//! ```text
//! whole records | torn tail                  cut off, and said
//! whole records | damage | records           refused, if the damaged place was on disk once;
//!                                            else cut off and put aside
//! ```

use crate::attributes::time;
use crate::journal::record::{self, Behind, Reader, Record, Step};
use crate::journal::{Folder, Opened, Recovered};
use crate::system::Core;
use crate::{Branch, BranchId, FileSystem, Ino};
use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::sync::Arc;

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
    let file = match OpenOptions::new().read(true).write(true).open(&path) {
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
    let length = file.metadata()?.len();
    let reader = Reader::new(BufReader::with_capacity(1 << 20, &file), length)?;
    let mut reader = reader.ok_or_else(|| error(0, "this is no log of this version"))?;
    let mut state = Replay { core, number: None, compact: None };
    let is_broken = loop {
        let at = reader.at;
        match reader.step()? {
            Step::End => break false,
            Step::Broken => break true,
            Step::Record { number } => {
                if !state.is_next(number) {
                    return Err(error(at, &format!("record {number} is not the next one")));
                }
                let record = record::decode(&reader.payload);
                let record = record.ok_or_else(|| error(at, "a record of an unknown kind"))?;
                let done = state.apply(record, reader.at).map_err(|words| error(at, &words));
                done?;
            }
        }
    };
    let (end, salt) = (reader.at, reader.salt);
    let (Some(compact), Some(number)) = (state.compact, state.number) else {
        return Err(error(end, "the log is damaged"));
    };
    let mut recovered = None;
    if is_broken {
        let tail = read_tail(&file, end)?;
        let behind = record::behind(&tail, salt, number);
        if behind == Behind::Synced {
            return Err(error(end, "the log is damaged, and whole records follow"));
        }
        let mut aside = None;
        if behind == Behind::Unsynced {
            let place = folder.path.join(format!("cut-{end}"));
            folder.create_as(&place)?.write_all(&tail)?;
            aside = Some(place);
        }
        file.set_len(end)?;
        file.sync_all()?;
        recovered =
            Some(Recovered { log: path.clone(), offset: end, bytes: tail.len() as u64, aside });
    } else {
        // What a kill has left in the kernel's cache alone.
        file.sync_all()?;
    }
    Ok(Some((Opened { file, salt, number, end, compact }, recovered)))
}

fn read_tail(mut file: &File, from: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(from))?;
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

struct Replay<'c> {
    core: &'c Arc<Core>,
    number: Option<u64>,
    /// Where what was written at once ends.
    compact: Option<u64>,
}

impl Replay<'_> {
    /// What was written at once has one number for all; then each has the next.
    fn is_next(&mut self, number: u64) -> bool {
        let before = self.number.replace(number);
        before.is_none_or(|before| number == before + u64::from(self.compact.is_some()))
    }

    fn branch(&self, id: BranchId) -> Result<Branch, String> {
        let files = FileSystem { core: Arc::clone(self.core) };
        files.branch_by_id(id).ok_or_else(|| format!("there is no branch {}", id.0))
    }

    fn apply(&mut self, record: Record<'_>, end: u64) -> Result<(), String> {
        let core = self.core;
        match record {
            Record::Base(kept) => {
                let now = core.base.as_ref().map(|base| (base.path_bytes(), base.host_number()));
                if kept == now {
                    return Ok(());
                }
                let shown = |base: Option<(&[u8], u64)>| match base {
                    Some((path, number)) => {
                        format!("{} (number {number})", String::from_utf8_lossy(path))
                    }
                    None => "none".to_owned(),
                };
                Err(format!("it is of the base {}, not of {}", shown(kept), shown(now)))
            }
            Record::Directory(ino, files) => {
                let base = core.base.as_ref().ok_or("there is no base")?;
                let section = core.domain.enter();
                files.iter().for_each(|(number, _)| core.chunks.pass(*number));
                let account = core.account();
                base.load_as(ino, &files, &core.hash, account, &section).map_err(|error| {
                    format!("directory {} of the base has changed: {error}", ino.0)
                })
            }
            Record::Change(id, items) => {
                for item in &items {
                    if let record::Item::Inode(words) = item {
                        core.chunks.pass(words.ino);
                    }
                }
                let branch = self.branch(id)?;
                branch.replay(&items).map_err(|error| format!("the change does not fit: {error}"))
            }
            Record::Fork { parent, id, created, name } => {
                let parent = self.branch(parent)?;
                core.pass_id(id);
                let forked = parent.fork_as(name, Some((id, time(created))));
                forked.map(drop).map_err(|error| format!("the fork does not fit: {error}"))
            }
            Record::Commit(id) => match self.branch(id)?.commit() {
                Ok(_) => Ok(()),
                Err(reason) => Err(format!("the commit does not fit: {reason:?}")),
            },
            Record::Abort(id) => {
                let aborted = self.branch(id)?.abort();
                aborted.map_err(|error| format!("the abort does not fit: {error}"))
            }
            Record::Ready { chunk, branch } => {
                core.chunks.pass(Ino(chunk.saturating_sub(1) << 6));
                if let Some(last) = branch.checked_sub(1) {
                    core.pass_id(BranchId(last));
                }
                self.compact = Some(end);
                Ok(())
            }
        }
    }
}
