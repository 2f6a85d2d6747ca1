//! Applies the changes of a log again. One thread does this, before anybody else has the branch.

use super::Branch;
use super::bytes::LARGEST;
use super::names::LONGEST_TARGET;
use crate::files::Files;
use crate::inode::{Body, Fresh, Time};
use crate::journal::record::{Item, Words};
use crate::memory::Counted;
use crate::page::PAGE;
use crate::replay::fit::{Batch, Fits, Misfit, Used};
use crate::tree::{Held, Link};
use crate::xattrs::{LONGEST_NAME, LONGEST_VALUE, Pair, Xattrs};
use crate::{Error, Ino, Kind};
use crate::{directory, inode::Inode};
use std::sync::atomic::Ordering;

fn wrong<T>(ino: Ino, words: &str) -> Fits<T> {
    Err(Misfit(format!("file {} {words}", ino.0)))
}

/// Returns an inode that may be written. A directory of the base was read before it was changed.
fn writable<'s>(files: Files<'s>, ino: Ino) -> Fits<&'s Inode> {
    let entries = files.get(ino)?.entries();
    if entries.is_some_and(|entries| entries.load(files.section).is_dead()) {
        return wrong(ino, "is a directory of the base that was not read");
    }
    Ok(files.writable(ino)?)
}

impl Branch {
    /// Does a change again, and notes in `batch` what it touches.
    ///
    /// # Errors
    /// What does not fit to the state, or that memory is short.
    pub(crate) fn replay(&self, items: &[Item<'_>], batch: &mut Batch, used: &mut Used) -> Fits {
        let gate = self.inner.enter()?;
        let section = self.core.domain.enter();
        let files = self.files_of(&gate, &section);
        items.iter().try_for_each(|item| match item {
            Item::Inode(words) => self.replay_inode(files, words, batch, used),
            item => self.replay_item(files, item, batch),
        })
    }

    /// Checks what was done again since the last check.
    pub(crate) fn check_batch(&self, batch: &mut Batch) -> Fits {
        let section = self.core.domain.enter();
        batch.check(self.files(&section))
    }

    fn replay_item(&self, files: Files<'_>, item: &Item<'_>, batch: &mut Batch) -> Fits {
        let (Item::Entry { directory: file, .. }
        | Item::Bytes { file, .. }
        | Item::Shrink { file, .. }
        | Item::Cut { file, .. }
        | Item::Xattrs { file, .. }
        | Item::Hole { file, .. }
        | Item::Clear { file, .. }) = item
        else {
            return Err(Error::Invalid.into());
        };
        batch.touch(files, *file);
        let inode = writable(files, *file)?;
        match item {
            Item::Entry { directory, name, file, is_home } => {
                let entries = inode.entries().ok_or(Error::NotDirectory)?;
                let hash = self.core.hash.of(name);
                let old = directory::find(entries, hash, name, files.section);
                batch.entry(files, *directory, old.map(|old| (old.ino, old.kind)), *file);
                let writer = files.writer();
                let cookie = match file {
                    None => {
                        directory::remove(entries, hash, name, writer)?;
                        return Ok(());
                    }
                    Some(file) if old.is_some() => {
                        directory::change(entries, hash, name, *file, writer)?
                    }
                    Some(file) => directory::insert(entries, hash, name, *file, writer)?,
                };
                if let Some((ino, _)) = file.filter(|_| *is_home) {
                    batch.touch(files, ino);
                    writable(files, ino)?.begin().set_home(*directory, cookie);
                }
            }
            Item::Bytes { offset, bytes, .. } => {
                let end = offset.checked_add(bytes.len() as u64);
                end.filter(|end| *end <= LARGEST).ok_or(Error::TooLarge)?;
                self.put_bytes(files, inode, *offset, bytes).1?;
            }
            Item::Shrink { size, .. } if *size > LARGEST => return Err(Error::TooLarge.into()),
            Item::Shrink { size, .. } => self.shrink(files, inode, *size)?,
            Item::Cut { from, to, .. } if from <= to && *to <= LARGEST => {
                self.cut(files, inode, *from, *to)?;
            }
            Item::Xattrs { file, pairs } => {
                check_xattrs(*file, pairs)?;
                let new = match pairs.is_empty() {
                    true => Held::empty(),
                    false => Held::value(Xattrs::new(self.core.account(), pairs.clone())?),
                };
                inode.xattrs.set(new, files.section);
            }
            Item::Hole { page, .. } if *page < LARGEST / PAGE as u64 && inode.backing.is_some() => {
                self.put_page(files, inode, *page, self.core.hole.clone())?;
            }
            Item::Clear { from, to, .. } if from <= to => {
                self.clear_pages(files, inode, *from, *to)?;
            }
            _ => return Err(Error::Invalid.into()),
        }
        Ok(())
    }

    fn replay_inode(
        &self,
        files: Files<'_>,
        words: &Words<'_>,
        batch: &mut Batch,
        used: &mut Used,
    ) -> Fits {
        let ino = words.ino;
        let found = match files.get(ino) {
            Err(Error::NotFound) => None,
            found => Some(found?),
        };
        batch.touch(files, ino);
        match found {
            None if words.links == 0 && used.has(ino) => return Ok(()), // gone before
            None if words.links == 0 => return wrong(ino, "is gone, and was never there"),
            Some(_) if words.links == 0 && ino == Ino::ROOT => return wrong(ino, "is the root"),
            Some(inode) if words.links == 0 => {
                batch.gone(files, ino, inode);
                files.kill(ino);
                return Ok(());
            }
            _ => {}
        }
        if words.size > LARGEST {
            return Err(Error::TooLarge.into());
        }
        let is_symlink = words.kind == Kind::Symlink;
        if words.mode > 0o7777 || words.target.is_empty() == is_symlink {
            return wrong(ino, "has attributes that no file has");
        }
        match found {
            None if !used.insert(ino) || ino.0 == 0 => {
                return wrong(ino, "has a number that was used before");
            }
            None => return self.replay_new(files, words),
            Some(inode) if inode.kind != words.kind => {
                return wrong(ino, "is of another kind than before");
            }
            Some(_) => {}
        }
        let inode = writable(files, ino)?;
        let limit = inode.backing.as_ref().map_or(0, |backing| backing.size).min(words.size);
        if words.backed > limit {
            return wrong(ino, "has more bytes of the base than the base");
        }
        if is_symlink && words.size != inode.size.load(Ordering::Relaxed) {
            return wrong(ino, "is a symbolic link of another length than before");
        }
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

    fn replay_new(&self, files: Files<'_>, words: &Words<'_>) -> Fits {
        let target = words.target.len();
        if target > LONGEST_TARGET || target > 0 && target as u64 != words.size {
            return wrong(words.ino, "is a symbolic link of a wrong length");
        }
        if words.backed > 0 {
            return wrong(words.ino, "has bytes of the base, and is not of the base");
        }
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
        Ok(files.get(words.ino).map(drop)?)
    }
}

fn check_xattrs(ino: Ino, pairs: &[Pair]) -> Fits {
    let fits = |(name, value): &Pair| {
        (1..=LONGEST_NAME).contains(&name.len()) && value.len() <= LONGEST_VALUE
    };
    if !pairs.iter().all(fits) || !pairs.is_sorted_by(|a, b| a.0 < b.0) {
        return wrong(ino, "has extended attributes that are too long or not in order");
    }
    Ok(())
}
