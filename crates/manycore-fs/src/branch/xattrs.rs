//! Extended attributes.

use super::{Branch, Locked, SetXattr};
use crate::inode::now;
use crate::tree::{Held, View};
use crate::xattrs::{LONGEST_NAME, LONGEST_VALUE, Pair, Xattrs};
use crate::{Error, Ino, Result};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

fn check(name: &OsStr) -> Result<&[u8]> {
    let name = name.as_bytes();
    if name.is_empty() || name.contains(&0) {
        Err(Error::Invalid)
    } else if name.len() > LONGEST_NAME {
        Err(Error::NameTooLong)
    } else {
        Ok(name)
    }
}

impl Branch {
    /// Returns the value of an extended attribute.
    ///
    /// # Errors
    /// [`NoAttribute`](Error::NoAttribute), [`Host`](Error::Host).
    pub fn xattr(&self, file: Ino, name: &OsStr) -> Result<Vec<u8>> {
        let section = self.core.domain.enter();
        let files = self.files(&section);
        let inode = files.get(file)?;
        if let View::Value(xattrs) = inode.xattrs.load(&section).view() {
            let value = xattrs.get(name.as_bytes()).ok_or(Error::NoAttribute)?;
            return Ok(value.to_vec());
        }
        let found = files.xattrs(inode)?.into_iter().find(|(key, _)| **key == *name.as_bytes());
        found.map(|(_, value)| value.into_vec()).ok_or(Error::NoAttribute)
    }

    /// Returns the names of all extended attributes, sorted.
    ///
    /// # Errors
    /// [`NotFound`](Error::NotFound), [`Host`](Error::Host).
    pub fn xattrs(&self, file: Ino) -> Result<Vec<OsString>> {
        let section = self.core.domain.enter();
        let files = self.files(&section);
        let list = files.xattrs(files.get(file)?)?;
        Ok(list.into_iter().map(|(name, _)| OsString::from_vec(name.into_vec())).collect())
    }

    /// Sets an extended attribute, of a name of up to 255 bytes and a value of up to 64 KiB.
    ///
    /// # Errors
    /// [`Exists`](Error::Exists) and [`NoAttribute`](Error::NoAttribute) as `how` says,
    /// [`NameTooLong`](Error::NameTooLong), [`ValueTooLarge`](Error::ValueTooLarge),
    /// [`Invalid`](Error::Invalid) for an empty name, [`NoSpace`](Error::NoSpace).
    pub fn set_xattr(&self, file: Ino, name: &OsStr, value: &[u8], how: SetXattr) -> Result<()> {
        let name = check(name)?;
        if value.len() > LONGEST_VALUE {
            return Err(Error::ValueTooLarge);
        }
        self.change_xattrs(file, &|pairs| {
            match (pairs.binary_search_by(|(key, _)| (**key).cmp(name)), how) {
                (Ok(_), SetXattr::Create) => return Err(Error::Exists),
                (Err(_), SetXattr::Replace) => return Err(Error::NoAttribute),
                (Ok(at), _) => pairs[at].1 = value.into(),
                (Err(at), _) => pairs.insert(at, (name.into(), value.into())),
            }
            Ok(())
        })
    }

    /// Removes an extended attribute.
    ///
    /// # Errors
    /// [`NoAttribute`](Error::NoAttribute).
    pub fn remove_xattr(&self, file: Ino, name: &OsStr) -> Result<()> {
        let name = check(name)?;
        self.change_xattrs(file, &|pairs| {
            let at = pairs.binary_search_by(|(key, _)| (**key).cmp(name));
            pairs.remove(at.map_err(|_| Error::NoAttribute)?);
            Ok(())
        })
    }

    fn change_xattrs(
        &self,
        file: Ino,
        change: &dyn Fn(&mut Vec<Pair>) -> Result<()>,
    ) -> Result<()> {
        self.core.with_room(|| self.try_change_xattrs(file, change))
    }

    fn try_change_xattrs(
        &self,
        file: Ino,
        change: &dyn Fn(&mut Vec<Pair>) -> Result<()>,
    ) -> Result<()> {
        self.core.journal()?;
        let gate = self.inner.enter()?;
        let section = self.core.domain.enter();
        let files = self.files_of(&gate, &section);
        let locked = Locked::new(files, &[file])?;
        let inode = locked.get(file);
        let mut pairs = files.xattrs(inode)?;
        change(&mut pairs)?;
        let new = match pairs.is_empty() {
            true => Held::empty(),
            false => Held::value(Xattrs::new(self.core.account(), pairs)?),
        };
        inode.xattrs.set(new, &section);
        inode.begin().changed(now());
        if inode.links() > 0 {
            let word = inode.xattrs.load(&section);
            let pairs = if let View::Value(xattrs) = word.view() { &*xattrs.list } else { &[] };
            self.note(&[(file, inode)], |change| change.xattrs(file, pairs));
        }
        Ok(())
    }
}
