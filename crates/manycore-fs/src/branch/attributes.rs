//! Attributes, targets of symbolic links, and keeping files.

use super::{Branch, Locked};
use crate::attributes::nanoseconds;
use crate::inode::{Body, Time, now};
use crate::{Attributes, Error, Ino, Result, SetAttributes, SetTime};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::sync::atomic::Ordering;

impl Branch {
    /// Returns the attributes of a file.
    ///
    /// # Errors
    /// [`NotFound`](Error::NotFound).
    pub fn attributes(&self, file: Ino) -> Result<Attributes> {
        let section = self.core.domain.enter();
        Ok(self.files(&section).get(file)?.attributes(file))
    }

    /// Changes attributes, all at once, and returns them.
    ///
    /// # Errors
    /// For a size: [`IsDirectory`](Error::IsDirectory), [`Invalid`](Error::Invalid) for other files
    /// without bytes, [`TooLarge`](Error::TooLarge), [`NoSpace`](Error::NoSpace) if the last page
    /// must be copied and the limit of memory is reached.
    pub fn set_attributes(&self, file: Ino, set: &SetAttributes) -> Result<Attributes> {
        self.core.with_room(|| self.try_set_attributes(file, set))
    }

    fn try_set_attributes(&self, file: Ino, set: &SetAttributes) -> Result<Attributes> {
        self.core.journal()?;
        let gate = self.inner.enter()?;
        let section = self.core.domain.enter();
        let files = self.files_of(&gate, &section);
        let locked = Locked::new(files, &[file])?;
        let inode = locked.get(file);
        let now = now();
        let before = inode.size.load(Ordering::Relaxed);
        if let Some(size) = set.size {
            self.set_size(files, inode, size, now)?;
        }
        let SetAttributes { mode, uid, gid, accessed, modified, size } = *set;
        let any = mode.or(uid).or(gid).is_some() || accessed.or(modified).is_some();
        if any || size.is_some() {
            let change = inode.begin();
            if let Some(mode) = mode {
                inode.mode.store(mode & 0o7777, Ordering::Relaxed);
            }
            if let Some(uid) = uid {
                inode.uid.store(uid, Ordering::Relaxed);
            }
            if let Some(gid) = gid {
                inode.gid.store(gid, Ordering::Relaxed);
            }
            for (which, time) in [(Time::Accessed, accessed), (Time::Modified, modified)] {
                match time {
                    Some(SetTime::Now) => change.set_time(which, now),
                    Some(SetTime::At(time)) => change.set_time(which, nanoseconds(time)),
                    None => {}
                }
            }
            change.changed(now);
            drop(change);
            if inode.links() > 0 {
                self.note(&[(file, inode)], |change| {
                    if let Some(size) = size.filter(|size| *size < before) {
                        change.shrink(file, size);
                    }
                });
            }
        }
        Ok(inode.attributes(file))
    }

    /// Returns the target of a symbolic link.
    ///
    /// # Errors
    /// [`Invalid`](Error::Invalid) for other files.
    pub fn read_link(&self, file: Ino) -> Result<OsString> {
        let section = self.core.domain.enter();
        match &self.files(&section).get(file)?.body {
            Body::Symlink(target) => Ok(OsString::from_vec(target.to_vec())),
            _ => Err(Error::Invalid),
        }
    }

    /// Keeps a file when its last name is removed, until as many calls of
    /// [`forget`](Branch::forget) have given up this one: an open file, a directory somebody stands
    /// in, an inode the kernel remembers. A fork does not inherit this.
    ///
    /// Cost: a lock, which few files share. A mount calls it once for many look-ups.
    ///
    /// ```
    /// use manycore_fs::{Error, FileSystem, Ino};
    ///
    /// let main = FileSystem::new().main();
    /// main.write_file("/open", b"bytes").unwrap();
    /// let file = main.resolve("/open").unwrap().ino;
    /// main.keep(file).unwrap();
    /// main.unlink(Ino::ROOT, "open".as_ref()).unwrap();
    /// assert_eq!(main.attributes(file).unwrap().links, 0);
    /// main.forget(file, 1);
    /// assert_eq!(main.attributes(file), Err(Error::NotFound));
    /// ```
    ///
    /// # Errors
    /// [`NotFound`](Error::NotFound) if the file has gone.
    pub fn keep(&self, file: Ino) -> Result<()> {
        let _gate = self.inner.enter()?;
        let section = self.core.domain.enter();
        let mut shard = self.inner.kept().lock(file);
        let inode = self.files(&section).get(file)?;
        // Without a link and not kept: it is being removed (kept.K1).
        if inode.links() == 0 && !shard.is_kept(file) {
            return Err(Error::NotFound);
        }
        shard.keep(file);
        Ok(())
    }

    /// Gives up `count` calls of [`keep`](Branch::keep). A file without a name goes with the last.
    /// Does nothing if the branch has ended.
    pub fn forget(&self, file: Ino, count: u64) {
        let Ok(gate) = self.inner.enter() else { return };
        let section = self.core.domain.enter();
        let files = self.files_of(&gate, &section);
        let mut shard = self.inner.kept().lock(file);
        if shard.forget(file, count) {
            // inode.I3: no links now means none later.
            let has_gone = |inode: &crate::inode::Inode| inode.links() == 0;
            if files.get(file).is_ok_and(has_gone) {
                files.kill(file);
            }
        }
    }
}
