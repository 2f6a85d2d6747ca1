//! Doing again what a log says. One thread does, before anybody has the branch.

use super::Branch;
use super::bytes::LARGEST;
use crate::files::Files;
use crate::inode::{Body, Fresh, Time};
use crate::journal::record::{Item, Words};
use crate::memory::Counted;
use crate::page::PAGE;
use crate::tree::{Held, Link};
use crate::xattrs::Xattrs;
use crate::{Error, Ino, Kind, Result};
use crate::{directory, inode::Inode};
use std::sync::atomic::Ordering;

impl Branch {
    /// Does a change again.
    ///
    /// # Errors
    /// What does not fit to the state, or `NoSpace`.
    pub(crate) fn replay(&self, items: &[Item<'_>]) -> Result<()> {
        let gate = self.inner.enter()?;
        let section = self.core.domain.enter();
        let files = self.files_of(&gate, &section);
        items.iter().try_for_each(|item| self.replay_item(files, item))
    }

    fn replay_item(&self, files: Files<'_>, item: &Item<'_>) -> Result<()> {
        match item {
            Item::Inode(words) => self.replay_inode(files, words),
            Item::Entry { directory, name, file, is_home } => {
                let parent = files.writable(*directory)?;
                let entries = parent.entries().ok_or(Error::NotDirectory)?;
                let hash = self.core.hash.of(name);
                let is_there = directory::find(entries, hash, name, files.section).is_some();
                let writer = files.writer();
                let cookie = match file {
                    None if parent.size.load(Ordering::Relaxed) == 0 => {
                        // All that it had, for whichever of the names comes first.
                        entries.set(Held::empty(), files.section);
                        return Ok(());
                    }
                    None => return directory::remove(entries, hash, name, writer).map(drop),
                    Some(file) if is_there => {
                        directory::change(entries, hash, name, *file, writer)?
                    }
                    Some(file) => directory::insert(entries, hash, name, *file, writer)?,
                };
                if let Some((ino, _)) = file.filter(|_| *is_home) {
                    files.writable(ino)?.begin().set_home(*directory, cookie);
                }
                Ok(())
            }
            Item::Bytes { file, offset, bytes } => {
                let end = offset.checked_add(bytes.len() as u64);
                end.filter(|end| *end <= LARGEST).ok_or(Error::TooLarge)?;
                let inode = files.writable(*file)?;
                self.put_bytes(files, inode, *offset, bytes).1
            }
            Item::Shrink { file, size } => {
                if *size > LARGEST {
                    return Err(Error::TooLarge);
                }
                self.shrink(files, files.writable(*file)?, *size)
            }
            Item::Cut { file, from, to } if from <= to && *to <= LARGEST => {
                self.cut(files, files.writable(*file)?, *from, *to)
            }
            Item::Xattrs { file, pairs } => {
                let inode = files.writable(*file)?;
                let new = match pairs.is_empty() {
                    true => Held::empty(),
                    false => Held::value(Xattrs::new(self.core.account(), pairs.clone())?),
                };
                inode.xattrs.set(new, files.section);
                Ok(())
            }
            Item::Hole { file, page } if *page < LARGEST / PAGE as u64 => {
                let inode = files.writable(*file)?;
                self.put_page(files, inode, *page, self.core.hole.clone()).map(drop)
            }
            Item::Clear { file, from, to } if from <= to => {
                self.clear_pages(files, files.writable(*file)?, *from, *to)
            }
            Item::Cut { .. } | Item::Hole { .. } | Item::Clear { .. } => Err(Error::Invalid),
        }
    }

    fn replay_inode(&self, files: Files<'_>, words: &Words<'_>) -> Result<()> {
        if words.links == 0 {
            files.kill(words.ino);
            return Ok(());
        }
        if words.size > LARGEST {
            return Err(Error::TooLarge);
        }
        match files.get(words.ino) {
            Err(Error::NotFound) => {
                let fresh = Fresh {
                    kind: words.kind,
                    mode: words.mode,
                    links: words.links,
                    uid: words.uid,
                    gid: words.gid,
                    size: words.size,
                    extra: if words.kind.is_device() { words.device } else { 0 },
                    times: words.times,
                    home: (Ino::ROOT, 0),
                    body: match words.kind {
                        Kind::File => Body::File(Link::empty()),
                        Kind::Directory => Body::Directory(Link::empty()),
                        Kind::Symlink => Body::Symlink(words.target.into()),
                        _ => Body::Special,
                    },
                };
                let inode = Inode::new(files.token, self.core.account(), fresh);
                files.insert(words.ino, Counted::new(inode));
                return files.get(words.ino).map(drop);
            }
            found if found?.kind != words.kind => return Err(Error::Invalid),
            _ => {}
        }
        let inode = files.writable(words.ino)?;
        let change = inode.begin();
        for (word, value) in [
            (&inode.mode, words.mode),
            (&inode.links, words.links),
            (&inode.uid, words.uid),
            (&inode.gid, words.gid),
        ] {
            word.store(value, Ordering::Relaxed);
        }
        change.set_size(words.size);
        inode.backed.store(words.backed, Ordering::Relaxed);
        let times = [Time::Accessed, Time::Modified, Time::Changed, Time::Created];
        for (which, time) in times.into_iter().zip(words.times) {
            change.set_time(which, time);
        }
        Ok(())
    }
}
