//! The files of one tree, inside a section: the table of a branch with the base behind it. This
//! file owns the way from a number to an inode that may be read or written.
//!
//! ```text
//! get        table -- nothing --> base
//! writable   token current? take it. Otherwise copy it, put the copy into the table
//! ```
//!
//! - files.F1 A table's entry wins over the base; a dead entry hides it.
//! - files.F2 An inode that has the branch's token stays in the table until it is removed. So a
//!   writer locks the inode and needs no second look at the table.

use crate::bucket::{Bucket, Named};
use crate::directory;
use crate::inode::Inode;
use crate::memory::Counted;
use crate::system::Core;
use crate::tree::radix::{self, Found, Writer};
use crate::tree::{Held, Link, View, Word};
use crate::xattrs::Pair;
use crate::{Error, Ino, Result};
use manycore::section::Section;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::Ordering;

/// The files of a tree, for one operation.
#[derive(Clone, Copy)]
pub(crate) struct Files<'s> {
    pub(crate) core: &'s Core,
    pub(crate) table: &'s Link<Inode>,
    pub(crate) section: &'s Section<'s>,
    /// What may be written in place; zero for readers.
    pub(crate) token: u64,
}

impl<'s> Files<'s> {
    pub(crate) fn writer(self) -> Writer<'s, 's> {
        Writer { token: self.token, account: self.core.account(), section: self.section }
    }

    /// Looks up an inode. Takes no lock and writes nothing.
    ///
    /// # Errors
    /// `NotFound`, or `Ended`.
    pub(crate) fn get(self, ino: Ino) -> Result<&'s Inode> {
        self.get_in(self.table.load(self.section), ino)
    }

    /// As [`get`](Self::get), in a table of which the root is known.
    pub(crate) fn get_in(self, root: Word<'s, Inode>, ino: Ino) -> Result<&'s Inode> {
        match radix::get_in(root, ino.0, self.section) {
            Found::Value(inode) => Ok(inode),
            Found::Dead if root.is_dead() => Err(Error::Ended),
            Found::Dead => Err(Error::NotFound),
            Found::Nothing => self.in_base(ino).ok_or(Error::NotFound),
        }
    }

    fn in_base(self, ino: Ino) -> Option<&'s Inode> {
        self.core.base.as_ref()?.get(ino, self.section)
    }

    /// Returns an inode that may be written under its lock (files.F2).
    ///
    /// # Errors
    /// `NotFound`, or what the host says of a directory that has to be read first.
    pub(crate) fn writable(self, ino: Ino) -> Result<&'s Inode> {
        let found = self.get(ino)?;
        if found.token() == self.token {
            return Ok(found);
        }
        if found.entries().is_some() {
            self.load(ino, found)?;
        }
        let slot = radix::slot(self.table, ino.0, false, self.writer()).ok_or(Error::NotFound)?;
        loop {
            let word = slot.load(self.section);
            let old = match word.view() {
                View::Value(inode) if inode.token() == self.token => return Ok(inode),
                View::Value(inode) => inode,
                View::Empty => self.in_base(ino).ok_or(Error::NotFound)?,
                View::Dead | View::Node(_) => return Err(Error::NotFound),
            };
            let copy = Held::value(old.copy(self.token, self.section));
            drop(slot.replace(word, copy, self.section)); // inode.I1; another writer may be faster
        }
    }

    /// Puts a new inode, or another version of one, into the table.
    pub(crate) fn insert(self, ino: Ino, inode: Counted<Inode>) {
        self.put(ino, Held::value(inode));
    }

    /// Puts what another table has for a number into the table.
    pub(crate) fn insert_from(self, root: Word<'s, Inode>, ino: Ino) {
        self.put(ino, radix::word_in(root, ino.0, self.section).hold());
    }

    fn put(self, ino: Ino, inode: Held<Inode>) {
        if let Some(slot) = radix::slot(self.table, ino.0, false, self.writer()) {
            slot.set(inode, self.section);
        }
    }

    /// Removes an inode for good.
    pub(crate) fn kill(self, ino: Ino) {
        radix::kill(self.table, ino.0, self.writer());
    }

    /// Returns the entries of a directory, read from the base if need be.
    ///
    /// # Errors
    /// `NotDirectory`, or what the host says.
    pub(crate) fn entries(self, ino: Ino, inode: &'s Inode) -> Result<&'s Link<Bucket>> {
        self.load(ino, inode)?;
        inode.entries().ok_or(Error::NotDirectory)
    }

    fn load(self, ino: Ino, inode: &Inode) -> Result<()> {
        let entries = inode.entries().ok_or(Error::NotDirectory)?;
        if !entries.load(self.section).is_dead() {
            return Ok(());
        }
        let core = self.core;
        let base = core.base.as_ref().ok_or(Error::NotFound)?;
        let journal = core.journal.get();
        base.load(ino, &core.base_numbers, journal, &core.hash, core.account(), self.section)
    }

    /// Finds a name in a directory.
    ///
    /// # Errors
    /// `NotFound`, `NotDirectory`, or what the host says.
    pub(crate) fn find(self, directory: Ino, name: &[u8]) -> Result<Named<'s>> {
        let inode = self.get(directory)?;
        let entries = self.entries(directory, inode)?;
        directory::find(entries, self.core.hash.of(name), name, self.section).ok_or(Error::NotFound)
    }

    /// Returns true if `inner` is `outer` or lies below it. The caller keeps directories from
    /// moving to other parents.
    pub(crate) fn is_below(self, inner: Ino, outer: Ino) -> Result<bool> {
        let mut at = inner;
        loop {
            if at == outer {
                return Ok(true);
            }
            if at == Ino::ROOT {
                return Ok(false);
            }
            at = self.get(at)?.home().0;
        }
    }

    /// Reads what no page has: the host's bytes, or zeros.
    pub(crate) fn read_backing(self, inode: &Inode, offset: u64, into: &mut [u8]) -> Result<()> {
        let backed = inode.backed.load(Ordering::Relaxed);
        let count = backed.saturating_sub(offset).min(into.len() as u64) as usize;
        into[count..].fill(0);
        match (&inode.backing, &self.core.base) {
            (Some(backing), Some(base)) if count > 0 => {
                base.read(backing, offset, &mut into[..count])
            }
            _ => {
                into[..count].fill(0);
                Ok(())
            }
        }
    }

    /// Returns all extended attributes of a file, sorted by name.
    pub(crate) fn xattrs(self, inode: &Inode) -> Result<Vec<Pair>> {
        match inode.xattrs.load(self.section).view() {
            View::Value(xattrs) => Ok(xattrs.list.to_vec()),
            View::Dead => match (&self.core.base, &inode.backing) {
                (Some(base), Some(backing)) => base.xattrs(backing),
                _ => Ok(Vec::new()),
            },
            View::Empty | View::Node(_) => Ok(Vec::new()),
        }
    }
}

/// Returns true if the way `up` from a directory leads to the root. `known` has what earlier calls
/// found, so that all calls together take each step once.
pub(crate) fn leads_to_root(
    start: Ino,
    known: &mut HashMap<Ino, bool>,
    mut up: impl FnMut(Ino) -> Option<Ino>,
) -> bool {
    let (mut at, mut way) = (start, Vec::new());
    let is_rooted = loop {
        if at == Ino::ROOT {
            break true;
        }
        match known.entry(at) {
            Entry::Occupied(known) => break *known.get(),
            // Who comes here again meanwhile runs in circles.
            Entry::Vacant(place) => place.insert(false),
        };
        way.push(at);
        match up(at) {
            Some(home) => at = home,
            None => break false,
        }
    };
    if is_rooted {
        known.extend(way.into_iter().map(|ino| (ino, true)));
    }
    is_rooted
}
