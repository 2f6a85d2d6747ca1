//! A version of a tree: its table as of one moment, which nobody writes any more. This file
//! compares versions of files.
//!
//! - version.V1 The root of a version is frozen: its branch has another token since, or its gate is
//!   held exclusively.

use crate::bucket::Bucket;
use crate::directory::{self, NameChange};
use crate::files::Files;
use crate::inode::{Body, Inode, Time};
use crate::page::{PAGE, Page};
use crate::tree::compare::{Difference, differences};
use crate::tree::{Link, Word, radix};
use crate::xattrs::Pair;
use crate::{Error, Ino, Kind, Result};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

/// A version of a tree.
#[derive(Clone, Copy)]
pub(crate) struct Version<'s> {
    pub(crate) files: Files<'s>,
    pub(crate) root: Word<'s, Inode>,
}

/// A file of which two versions have different inodes.
#[derive(Clone, Copy)]
pub(crate) struct Changed<'s> {
    pub(crate) ino: Ino,
    pub(crate) old: Option<&'s Inode>,
    pub(crate) new: Option<&'s Inode>,
}

impl<'s> Version<'s> {
    /// Returns a file, if it has a name. (One that is only kept belongs to the branch's users.)
    pub(crate) fn get(self, ino: Ino) -> Option<&'s Inode> {
        self.files.get_in(self.root, ino).ok().filter(|inode| inode.links() > 0)
    }

    /// Returns the files that differ in a later version, in the order of their numbers.
    pub(crate) fn changes(self, later: Version<'s>) -> Vec<Changed<'s>> {
        let mut found = Vec::new();
        let mut add = |ino| {
            let (old, new) = (self.get(ino), later.get(ino));
            let same = match (old, new) {
                (Some(old), Some(new)) => std::ptr::eq(old, new),
                (None, None) => true,
                _ => false,
            };
            if !same {
                found.push(Changed { ino, old, new });
            }
        };
        differences(self.root, later.root, self.files.section, &mut |at: Difference<'_, Inode>| {
            if at.count == 1 {
                return add(Ino(at.first));
            }
            // Only files of the base can have been removed here without a trace of them.
            let Some(base) = &self.files.core.base else { return };
            base.numbers(at.first..at.first + at.count, self.files.section).for_each(&mut add);
        });
        found
    }

    /// Returns the entries of a directory.
    pub(crate) fn entries(self, inode: Option<&'s Inode>) -> Word<'s, Bucket> {
        let entries = inode.and_then(Inode::entries);
        let word = entries.map_or(Word::EMPTY, |entries| entries.load(self.files.section));
        if word.is_dead() { Word::EMPTY } else { word }
    }

    /// Returns the names that two versions of a directory have for different files.
    pub(crate) fn names(
        self,
        old: Option<&'s Inode>,
        new: Option<&'s Inode>,
    ) -> Vec<NameChange<'s>> {
        let mut found = Vec::new();
        let (old, new) = (self.entries(old), self.entries(new));
        directory::compare(old, new, self.files.section, &mut |change| found.push(change));
        found
    }

    /// Returns what a directory has for a name.
    pub(crate) fn find(self, directory: &'s Inode, name: &[u8]) -> Option<(Ino, Kind)> {
        let hash = self.files.core.hash.of(name);
        let found = directory::find(directory.entries()?, hash, name, self.files.section)?;
        Some((found.ino, found.kind))
    }

    /// Returns a path of a file: that of its last name, if it still has it.
    ///
    /// # Errors
    /// `NotFound` if no name leads to the file.
    pub(crate) fn path(self, ino: Ino) -> Result<PathBuf> {
        let mut parts = Vec::new();
        let mut at = ino;
        while at != Ino::ROOT {
            let (home, name) = match self.home(at) {
                Some(found) => found,
                None if at == ino => self.search(ino).ok_or(Error::NotFound)?,
                None => return Err(Error::NotFound),
            };
            parts.push(name);
            at = home;
        }
        let mut path = PathBuf::from("/");
        parts.iter().rev().for_each(|name| path.push(OsStr::from_bytes(name)));
        Ok(path)
    }

    /// Returns the directory and the name by which a file was last made or renamed.
    fn home(self, ino: Ino) -> Option<(Ino, &'s [u8])> {
        let (home, cookie) = self.get(ino)?.home();
        let entries = self.get(home)?.entries()?;
        let named = directory::at_cookie(entries, cookie, self.files.section)?;
        (named.ino == ino).then_some((home, named.name))
    }

    /// Searches the whole tree for a name of a file, of several names, that has lost the last one.
    fn search(self, ino: Ino) -> Option<(Ino, &'s [u8])> {
        let mut left = vec![Ino::ROOT];
        let mut found = None;
        while let Some(directory) = left.pop() {
            let entries = self.entries(self.get(directory));
            directory::for_each(entries, self.files.section, &mut |entry| {
                if entry.ino == ino {
                    found.get_or_insert((directory, entry.name));
                } else if entry.kind == Kind::Directory {
                    left.push(entry.ino);
                }
            });
            if found.is_some() {
                break;
            }
        }
        found
    }

    /// Returns the path of a name in a directory.
    pub(crate) fn path_of_name(self, directory: Ino, name: &[u8]) -> Result<PathBuf> {
        Ok(self.path(directory)?.join(Path::new(OsStr::from_bytes(name))))
    }

    /// Returns true if two versions of a file have the same bytes. Pages that both share are not
    /// looked at.
    pub(crate) fn same_content(self, a: &'s Inode, b: &'s Inode) -> Result<bool> {
        let (Body::File(of_a), Body::File(of_b)) = (&a.body, &b.body) else { return Ok(true) };
        let size = a.size.load(Ordering::Relaxed);
        if size != b.size.load(Ordering::Relaxed) {
            return Ok(false);
        }
        let section = self.files.section;
        let mut indices = Vec::new();
        differences(of_a.load(section), of_b.load(section), section, &mut |at| {
            indices.push(at.first);
        });
        let backed = [a, b].map(|inode| inode.backed.load(Ordering::Relaxed));
        let page = PAGE as u64;
        let (least, most) = (backed[0].min(backed[1]), backed[0].max(backed[1]));
        indices.extend(least / page..most.div_ceil(page).min(size.div_ceil(page)));
        for index in indices {
            if !self.same_page((a, of_a), (b, of_b), index)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn same_page(
        self,
        a: (&'s Inode, &'s Link<Page>),
        b: (&'s Inode, &'s Link<Page>),
        index: u64,
    ) -> Result<bool> {
        let get = |pages: &'s Link<Page>| radix::get_direct(pages, index, self.files.section);
        if let (Some(a), Some(b)) = (get(a.1), get(b.1)) {
            return Ok(a.equals(b));
        }
        let mut bytes = [[0; PAGE]; 2];
        for ((inode, pages), into) in [a, b].into_iter().zip(&mut bytes) {
            match get(pages) {
                Some(page) => page.read(0, into),
                None => self.files.read_backing(inode, index * PAGE as u64, into)?,
            }
        }
        Ok(bytes[0] == bytes[1])
    }

    /// Returns true if owner, group and permissions are the same.
    pub(crate) fn same_mode(a: &Inode, b: &Inode) -> bool {
        let of = |inode: &Inode| {
            [&inode.mode, &inode.uid, &inode.gid].map(|word| word.load(Ordering::Relaxed))
        };
        of(a) == of(b)
    }

    /// Returns true if the extended attributes are the same.
    pub(crate) fn same_xattrs(self, a: &'s Inode, b: &'s Inode) -> Result<bool> {
        let section = self.files.section;
        if a.xattrs.load(section) == b.xattrs.load(section) {
            return Ok(true);
        }
        let list = |inode: &Inode| -> Result<Vec<Pair>> { self.files.xattrs(inode) };
        Ok(list(a)? == list(b)?)
    }

    /// Returns true if all attributes that a diff reports are the same. A directory's times follow
    /// its names, so they don't count.
    pub(crate) fn same_attributes(self, a: &'s Inode, b: &'s Inode) -> Result<bool> {
        let same_time =
            a.kind == Kind::Directory || a.time(Time::Modified) == b.time(Time::Modified);
        Ok(same_time && Self::same_mode(a, b) && self.same_xattrs(a, b)?)
    }
}

/// Stands for the path of a file that has no name.
pub(crate) fn unknown_path(ino: Ino) -> PathBuf {
    PathBuf::from(format!("(file {})", ino.0))
}
