//! Names: looking up, creating, linking and removing.
//!
//! - names.N1 A new inode is in the table before its name is in the directory, and leaves the table
//!   after its name has left. So a reader that finds a name without an inode looks again: by then,
//!   the name has changed.
//! - names.N2 If a name leads to a removed number at the second look, too, it belongs to a file of
//!   the base. The host has added this name since the file was read: the number died when all names
//!   that were counted then were removed. Such a name counts as missing.

use super::{Branch, Entry, Locked, check_name};
use crate::directory;
use crate::inode::{Body, Fresh, Inode, now};
use crate::memory::Counted;
use crate::tree::{Held, Link};
use crate::{Attributes, Content, Error, Ino, Kind, New, Result};
use std::ffi::OsStr;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::Ordering;

/// The longest target of a symbolic link.
pub(super) const LONGEST_TARGET: usize = 4095;

#[cfg(test)]
thread_local! {
    /// Runs once when this thread has made a name, before it is written down.
    static NAMED: std::cell::Cell<Option<Box<dyn FnOnce()>>> = const { std::cell::Cell::new(None) };
}

impl Branch {
    /// Looks a name up in a directory.
    ///
    /// # Errors
    /// [`NotFound`](Error::NotFound), [`NotDirectory`](Error::NotDirectory).
    pub fn lookup(&self, directory: Ino, name: &OsStr) -> Result<Attributes> {
        let mut gone = None;
        loop {
            let section = self.core.domain.enter();
            let files = self.files(&section);
            let entry = match name.as_bytes() {
                name if name.len() > 255 => return Err(Error::NameTooLong),
                name => files.find(directory, name)?,
            };
            match files.get(entry.ino) {
                Ok(inode) => return Ok(inode.attributes(entry.ino)),
                // names.N1, names.N2
                Err(Error::NotFound) if gone != Some(entry.ino) => gone = Some(entry.ino),
                Err(error) => return Err(error),
            }
        }
    }

    /// Returns the directory above a directory; the root's is the root.
    ///
    /// # Errors
    /// [`NotDirectory`](Error::NotDirectory).
    pub fn parent(&self, directory: Ino) -> Result<Ino> {
        let section = self.core.domain.enter();
        let inode = self.files(&section).get(directory)?;
        if inode.kind == Kind::Directory { Ok(inode.home().0) } else { Err(Error::NotDirectory) }
    }

    /// Makes a file, directory, symbolic link or special file.
    ///
    /// In a directory with the set-group-ID bit, it belongs to the directory's group; a directory
    /// inherits the bit.
    ///
    /// # Errors
    /// [`Exists`](Error::Exists), [`NotDirectory`](Error::NotDirectory),
    /// [`NameTooLong`](Error::NameTooLong), [`Invalid`](Error::Invalid) for names such as `.`.
    pub fn create(&self, directory: Ino, name: &OsStr, new: &New<'_>) -> Result<Attributes> {
        let name = match check_name(name) {
            Err(Error::Invalid) if matches!(name.as_bytes(), b"." | b"..") => {
                return Err(Error::Exists);
            }
            checked => checked?,
        };
        let body = match new.content {
            Content::File => Body::File(Link::empty()),
            Content::Directory => Body::Directory(Link::empty()),
            Content::Symlink(target) if target.is_empty() => return Err(Error::NotFound),
            Content::Symlink(target) if target.len() > LONGEST_TARGET => {
                return Err(Error::NameTooLong);
            }
            Content::Symlink(target) => Body::Symlink(target.as_bytes().into()),
            _ => Body::Special,
        };
        let kind = new.content.kind();
        let hash = self.core.hash.of(name);
        let journal = self.core.journal()?;
        let gate = self.inner.enter()?;
        let section = self.core.domain.enter();
        let files = self.files_of(&gate, &section);
        let locked = Locked::new(files, &[directory])?;
        let (parent, entries) = locked.directory(directory)?;
        if directory::find(entries, hash, name, &section).is_some() {
            return Err(Error::Exists);
        }
        let is_directory = kind == Kind::Directory;
        if is_directory && parent.links() == u32::MAX {
            return Err(Error::LinkLimit);
        }
        let ino = self.inner.numbers(&self.core).next()?;
        let inherits = parent.mode.load(Ordering::Relaxed) & 0o2000 != 0;
        let gid = if inherits { parent.gid.load(Ordering::Relaxed) } else { new.gid };
        let bit = if inherits && is_directory { 0o2000 } else { 0 };
        let now = now();
        let fresh = Fresh {
            kind,
            mode: new.mode & 0o7777 | bit,
            links: if is_directory { 2 } else { 1 },
            uid: new.uid,
            gid,
            size: if let Content::Symlink(target) = new.content { target.len() as u64 } else { 0 },
            extra: match new.content {
                Content::CharDevice(number) | Content::BlockDevice(number) => number,
                _ => 0,
            },
            times: [now; 4],
            home: (directory, 0),
            body,
        };
        files.insert(ino, Counted::new(Inode::new(files.token, self.core.account(), fresh)));
        let made = files.get(ino)?;
        // Whoever finds the name changes the file after this is written down (journal.J1). Nobody
        // else has the lock, so nobody is waited for, whatever the numbers are (branch.B1).
        let _first = journal.map(|_| made.lock());
        let cookie = match directory::insert(entries, hash, name, (ino, kind), files.writer()) {
            Ok(cookie) => cookie,
            Err(error) => {
                files.kill(ino);
                return Err(error);
            }
        };
        #[cfg(test)]
        NAMED.take().into_iter().for_each(|hook| hook());
        made.cookie.store(cookie, Ordering::Relaxed);
        let change = parent.begin();
        change.add_size(1);
        change.modified(now);
        if is_directory {
            change.add_links(1);
        }
        drop(change);
        self.note(&[(ino, made), (directory, parent)], |change| {
            change.entry(directory, name, Some((ino, kind)), true);
        });
        Ok(made.attributes(ino))
    }

    /// Gives a file another name.
    ///
    /// # Errors
    /// [`NotPermitted`](Error::NotPermitted) for a directory, [`Exists`](Error::Exists),
    /// [`NotFound`](Error::NotFound) for a file without a name, [`LinkLimit`](Error::LinkLimit).
    pub fn link(&self, file: Ino, directory: Ino, name: &OsStr) -> Result<Attributes> {
        let name = match check_name(name) {
            Err(Error::Invalid) if matches!(name.as_bytes(), b"." | b"..") => {
                return Err(Error::Exists);
            }
            checked => checked?,
        };
        let hash = self.core.hash.of(name);
        self.core.journal()?;
        let gate = self.inner.enter()?;
        let section = self.core.domain.enter();
        let files = self.files_of(&gate, &section);
        if files.get(file)?.kind == Kind::Directory {
            return Err(Error::NotPermitted);
        }
        let locked = Locked::new(files, &[file, directory])?;
        let (parent, entries) = locked.directory(directory)?;
        let inode = locked.get(file);
        if directory::find(entries, hash, name, &section).is_some() {
            return Err(Error::Exists);
        }
        match inode.links() {
            0 => return Err(Error::NotFound), // inode.I3
            u32::MAX => return Err(Error::LinkLimit),
            _ => {}
        }
        directory::insert(entries, hash, name, (file, inode.kind), files.writer())?;
        let now = now();
        let change = inode.begin();
        change.add_links(1);
        change.changed(now);
        drop(change);
        let change = parent.begin();
        change.add_size(1);
        change.modified(now);
        drop(change);
        self.note(&[(file, inode), (directory, parent)], |change| {
            change.entry(directory, name, Some((file, inode.kind)), false);
        });
        Ok(inode.attributes(file))
    }

    /// Removes a name of a file. The file goes with its last name, unless it is
    /// [kept](Branch::keep).
    ///
    /// # Errors
    /// [`IsDirectory`](Error::IsDirectory).
    pub fn unlink(&self, directory: Ino, name: &OsStr) -> Result<()> {
        self.remove(directory, check_name(name)?, false)
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// [`NotEmpty`](Error::NotEmpty), [`NotDirectory`](Error::NotDirectory) for a file.
    pub fn remove_directory(&self, directory: Ino, name: &OsStr) -> Result<()> {
        match name.as_bytes() {
            b"." => Err(Error::Invalid),
            b".." => Err(Error::NotEmpty),
            _ => self.remove(directory, check_name(name)?, true),
        }
    }

    fn remove(&self, directory: Ino, name: &[u8], is_directory: bool) -> Result<()> {
        let hash = self.core.hash.of(name);
        self.core.journal()?;
        let gate = self.inner.enter()?;
        let mut gone = None;
        loop {
            let section = self.core.domain.enter();
            let files = self.files_of(&gate, &section);
            let entry = files.find(directory, name)?;
            match (entry.kind == Kind::Directory, is_directory) {
                (true, false) => return Err(Error::IsDirectory),
                (false, true) => return Err(Error::NotDirectory),
                _ => {}
            }
            let locked = match Locked::new(files, &[directory, entry.ino]) {
                // names.N1, names.N2
                Err(Error::NotFound) if gone != Some(entry.ino) => {
                    gone = Some(entry.ino);
                    continue;
                }
                locked => locked?,
            };
            let (parent, entries) = locked.directory(directory)?;
            let there = directory::find(entries, hash, name, &section);
            if there.map(|there| there.ino) != Some(entry.ino) {
                continue; // another file has the name now
            }
            let inode = locked.get(entry.ino);
            if is_directory && inode.size.load(Ordering::Relaxed) != 0 {
                return Err(Error::NotEmpty);
            }
            directory::remove(entries, hash, name, files.writer())?;
            let now = now();
            let change = parent.begin();
            change.add_size(-1);
            change.modified(now);
            if is_directory {
                change.add_links(-1);
            }
            drop(change);
            if parent.size.load(Ordering::Relaxed) == 0 {
                entries.set(Held::empty(), &section); // the nodes of a directory that was large
            }
            self.drop_link(files, entry.ino, inode, now);
            self.note(&[(directory, parent), (entry.ino, inode)], |change| {
                change.entry(directory, name, None, false);
            });
            return Ok(());
        }
    }

    /// Takes a name's link from an inode that is locked, or all links from a directory.
    pub(super) fn drop_link(
        &self,
        files: crate::files::Files<'_>,
        ino: Ino,
        inode: &Inode,
        now: i64,
    ) {
        let change = inode.begin();
        match inode.kind {
            Kind::Directory => inode.links.store(0, Ordering::Relaxed),
            _ => change.add_links(-1),
        }
        change.changed(now);
        drop(change);
        if inode.links() == 0 {
            self.dispose(files, ino);
        }
    }

    /// Calls `each` with the entries after the place `next` of an earlier entry (0: from the
    /// start), without `.` and `..`, until it breaks. An entry that is there all the time is seen
    /// exactly once, also if others come and go meanwhile.
    ///
    /// The places are of this branch; they stay as long as an entry does. `each` runs in a section:
    /// it must not change the file system, nor wait for a thread that does.
    ///
    /// ```
    /// use manycore_fs::{FileSystem, Ino};
    /// use std::ops::ControlFlow;
    ///
    /// let main = FileSystem::new().main();
    /// main.write_file("/a", b"").unwrap();
    /// let mut names = Vec::new();
    /// main.read_directory(Ino::ROOT, 0, &mut |entry| {
    ///     names.push(entry.name.to_owned());
    ///     ControlFlow::Continue(())
    /// })
    /// .unwrap();
    /// assert_eq!(names, ["a"]);
    /// ```
    ///
    /// # Errors
    /// [`NotDirectory`](Error::NotDirectory).
    pub fn read_directory(
        &self,
        directory: Ino,
        next: u64,
        each: &mut dyn FnMut(Entry<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        let mut after = next;
        loop {
            let section = self.core.domain.enter();
            let files = self.files(&section);
            let inode = files.get(directory)?;
            let entries = files.entries(directory, inode)?;
            let Some((bucket, from)) = directory::next(entries, after, &section) else {
                return Ok(());
            };
            for at in from..bucket.len() {
                let entry = bucket.get(at);
                let (ino, kind, next) = (entry.ino, entry.kind, entry.cookie);
                let name = OsStr::from_bytes(entry.name);
                if each(Entry { name, ino, kind, next }).is_break() {
                    return Ok(());
                }
                after = next;
            }
        }
    }
}

#[cfg(test)]
mod tests;
