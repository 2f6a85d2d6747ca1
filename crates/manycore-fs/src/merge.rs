//! Three-way merge: what a branch has changed since the fork, put into a new version of its parent.
//!
//! ```text
//! snapshot (at the fork) --+--> branch      what the branch has changed
//!                          +--> parent      what the parent has changed meanwhile
//! merged = parent + changes of the branch, or conflicts
//! ```
//!
//! - merge.M1 No branch has the merged table until the commit puts it in place. So a merge with
//!   conflicts leaves no trace.
//! - merge.M2 A file that the parent has not touched since the fork (the same inode) takes the
//!   branch's inode. Any other file is merged by names, bytes, owner and mode, and extended
//!   attributes. It merges only if each of these was changed by one side alone, or by both sides in
//!   the same way.

use crate::bucket::Named;
use crate::directory::{self, NameChange};
use crate::files::{Files, leads_to_root};
use crate::inode::{Body, Inode, Time};
use crate::kept::Kept;
use crate::version::{Changed, Version, unknown_path};
use crate::{Conflict, Error, Ino, Kind, Result};
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// A merge that goes on.
pub(crate) struct Merge<'s> {
    pub(crate) snapshot: Version<'s>,
    pub(crate) parent: Version<'s>,
    pub(crate) branch: Version<'s>,
    /// The merged table, with a token of its own.
    pub(crate) merged: Files<'s>,
    /// What the parent's users keep.
    pub(crate) kept: &'s Kept,
    pub(crate) conflicts: Vec<Conflict>,
    /// Conflicts are for somebody to read. A path costs as much as it is long.
    has_paths: bool,
    /// Names that files of the snapshot have got or lost.
    links: BTreeMap<Ino, i32>,
    /// Directories that the root leads to in the merged table, and others.
    rooted: HashMap<Ino, bool>,
}

fn load(word: &AtomicU32) -> u32 {
    word.load(Ordering::Relaxed)
}

fn copy(to: &AtomicU64, from: &AtomicU64) {
    to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
}

impl<'s> Merge<'s> {
    pub(crate) fn new(
        (snapshot, parent, branch): (Version<'s>, Version<'s>, Version<'s>),
        merged: Files<'s>,
        kept: &'s Kept,
        has_paths: bool,
    ) -> Self {
        let (conflicts, links, rooted) = (Vec::new(), BTreeMap::new(), HashMap::new());
        Self { snapshot, parent, branch, merged, kept, conflicts, has_paths, links, rooted }
    }

    /// Merges all changes. The merged table is right if there are no conflicts afterwards.
    ///
    /// # Errors
    /// What the host says of files of the base.
    pub(crate) fn run(&mut self) -> Result<()> {
        let changes = self.snapshot.changes(self.branch);
        // New inodes first, so that every name leads to one.
        for change in &changes {
            if let (None, Some(_)) = (change.old, change.new) {
                self.merged.insert_from(self.branch.root, change.ino);
            }
        }
        for change in &changes {
            self.merge_names(*change)?;
        }
        for change in &changes {
            self.merge_inode(*change)?;
        }
        for change in &changes {
            self.check_place(*change)?;
        }
        self.conflicts.sort_by(|a, b| (&a.path, a.reason).cmp(&(&b.path, b.reason)));
        self.conflicts.dedup();
        Ok(())
    }

    /// Notes a conflict at a file, by its path in the branch or else where it is known.
    fn conflict(&mut self, ino: Ino, reason: &'static str) {
        let versions = [self.branch, self.snapshot, self.parent];
        let path = || versions.into_iter().find_map(|version| version.path(ino).ok());
        let path = if self.has_paths { path() } else { None };
        let path = path.unwrap_or_else(|| unknown_path(ino));
        self.conflicts.push(Conflict { path, reason });
    }

    fn is_unchanged(&self, change: Changed<'s>) -> bool {
        match (change.old, self.parent.get(change.ino)) {
            (Some(old), Some(now)) => std::ptr::eq(old, now),
            (None, None) => true,
            _ => false,
        }
    }

    fn add_links(&mut self, ino: Ino, more: i32) {
        *self.links.entry(ino).or_insert(0) += more;
    }

    /// Merges the names of one directory.
    fn merge_names(&mut self, change: Changed<'s>) -> Result<()> {
        let names = self.snapshot.names(change.old, change.new);
        let here = self.parent.get(change.ino);
        let is_unchanged = self.is_unchanged(change);
        for name in names {
            if !is_unchanged && !self.may_change(change.ino, here, &name) {
                continue;
            }
            for (entry, more) in [(name.old, -1), (name.new, 1)] {
                if let Some(entry) = entry.filter(|entry| entry.kind != Kind::Directory) {
                    self.add_links(entry.ino, more);
                }
            }
            if !is_unchanged && change.new.is_some() {
                self.apply(change.ino, &name)?;
            }
        }
        // What the parent has put into a directory that the branch has removed.
        if change.new.is_none() && !is_unchanged {
            let added = self.snapshot.names(change.old, here);
            if added.iter().any(|name| name.new.is_some()) {
                self.conflict(
                    change.ino,
                    "the branch removed this directory, the parent added to it",
                );
            }
        }
        Ok(())
    }

    /// Returns true if a name's change is to be applied to the parent, which has changed the
    /// directory. Notes a conflict if both have changed the name.
    fn may_change(
        &mut self,
        directory: Ino,
        here: Option<&'s Inode>,
        name: &NameChange<'s>,
    ) -> bool {
        let now = here.and_then(|here| self.parent.find(here, name.name)).map(|found| found.0);
        let (old, new) = (name.old.map(|entry| entry.ino), name.new.map(|entry| entry.ino));
        if now == new {
            return false; // both have done the same
        }
        if here.is_some() && now == old {
            return true;
        }
        let reason = match here {
            Some(_) => "both changed this name",
            None => "the parent removed the directory of this name",
        };
        let versions = [self.branch, self.snapshot];
        let path = |version: Version<'s>| version.path_of_name(directory, name.name).ok();
        let path = if self.has_paths { versions.into_iter().find_map(path) } else { None };
        let path = path.unwrap_or_else(|| unknown_path(directory));
        self.conflicts.push(Conflict { path, reason });
        false
    }

    /// Changes a name in the merged table.
    fn apply(&mut self, directory: Ino, name: &NameChange<'s>) -> Result<()> {
        let inode = self.merged.writable(directory)?;
        let entries = inode.entries().ok_or(Error::NotDirectory)?;
        let hash = self.merged.core.hash.of(name.name);
        let writer = self.merged.writer();
        match (name.old, name.new) {
            (None, Some(new)) => {
                directory::insert(entries, hash, name.name, (new.ino, new.kind), writer)?;
            }
            (Some(_), Some(new)) => {
                directory::change(entries, hash, name.name, (new.ino, new.kind), writer)?;
            }
            (Some(_), None) => {
                directory::remove(entries, hash, name.name, writer)?;
            }
            (None, None) => {}
        }
        let count = |entry: Option<Named<'_>>| {
            let is_directory = entry.is_some_and(|entry| entry.kind == Kind::Directory);
            (i64::from(entry.is_some()), i32::from(is_directory))
        };
        let (old, new) = (count(name.old), count(name.new));
        let change = inode.begin();
        change.add_size(new.0 - old.0);
        change.add_links(new.1 - old.1);
        Ok(())
    }

    /// Merges what an inode has besides names.
    fn merge_inode(&mut self, change: Changed<'s>) -> Result<()> {
        let ino = change.ino;
        let Some(old) = change.old else { return Ok(()) };
        let here = self.parent.get(ino);
        if self.is_unchanged(change) {
            match change.new {
                Some(_) => self.merged.insert_from(self.branch.root, ino),
                None => self.remove(ino)?,
            }
            return Ok(());
        }
        match (here, change.new) {
            (None, None) => {}
            (None, Some(new)) => {
                let gained = self.links.get(&ino).is_some_and(|links| *links > 0);
                let moved = old.home() != new.home();
                if gained || moved || !self.is_alike(old, new)? {
                    self.conflict(ino, "the parent removed this file, the branch changed it");
                }
            }
            (Some(here), None) => {
                if here.home() != old.home() {
                    self.conflict(ino, "the branch removed this file, the parent renamed it");
                } else if here.kind != Kind::Directory && !self.is_alike(old, here)? {
                    self.conflict(ino, "the branch removed this file, the parent changed it");
                } else if here.kind == Kind::Directory {
                    self.remove(ino)?;
                } else {
                    self.merge_links(ino)?;
                }
            }
            (Some(here), Some(new)) => self.merge_changed(ino, old, here, new)?,
        }
        Ok(())
    }

    /// Returns true if two versions have the same bytes and attributes.
    fn is_alike(&self, a: &'s Inode, b: &'s Inode) -> Result<bool> {
        Ok(self.snapshot.same_content(a, b)? && self.snapshot.same_attributes(a, b)?)
    }

    /// Merges a file that both have changed somehow.
    fn merge_changed(
        &mut self,
        ino: Ino,
        old: &'s Inode,
        here: &'s Inode,
        new: &'s Inode,
    ) -> Result<()> {
        let version = self.snapshot;
        let merged = self.merged.writable(ino)?;
        if !version.same_content(old, new)? && !version.same_content(here, new)? {
            if version.same_content(old, here)? {
                self.take_content(merged, new);
            } else {
                self.conflict(ino, "both wrote this file");
            }
        }
        if !Version::same_mode(old, new) && !Version::same_mode(here, new) {
            if Version::same_mode(old, here) {
                for (to, from) in
                    [(&merged.mode, &new.mode), (&merged.uid, &new.uid), (&merged.gid, &new.gid)]
                {
                    to.store(load(from), Ordering::Relaxed);
                }
            } else {
                self.conflict(ino, "both changed the owner or the permissions");
            }
        }
        if !version.same_xattrs(old, new)? && !version.same_xattrs(here, new)? {
            if version.same_xattrs(old, here)? {
                let section = self.merged.section;
                merged.xattrs.set(new.xattrs.load(section).hold(), section);
            } else {
                self.conflict(ino, "both changed the extended attributes");
            }
        }
        if old.home() != new.home() && here.home() != new.home() {
            if old.home() == here.home() {
                copy(&merged.home, &new.home);
                copy(&merged.cookie, &new.cookie);
            } else {
                self.conflict(ino, "both renamed this file");
            }
        }
        let change = merged.begin();
        for time in [Time::Accessed, Time::Modified, Time::Changed] {
            let was_set = old.time(time) == here.time(time);
            let both = if was_set { new.time(time) } else { here.time(time).max(new.time(time)) };
            change.set_time(time, both);
        }
        drop(change);
        self.merge_links(ino)
    }

    fn take_content(&self, merged: &Inode, new: &Inode) {
        let section = self.merged.section;
        if let (Body::File(to), Body::File(from)) = (&merged.body, &new.body) {
            to.set(from.load(section).hold(), section);
        }
        copy(&merged.size, &new.size);
        copy(&merged.extra, &new.extra);
        copy(&merged.backed, &new.backed);
    }

    /// Counts the names that a file, which the parent has changed, has got and lost by the branch.
    fn merge_links(&mut self, ino: Ino) -> Result<()> {
        let more = self.links.get(&ino).copied().unwrap_or(0);
        let merged = self.merged.writable(ino)?;
        if merged.kind == Kind::Directory || more == 0 {
            return Ok(());
        }
        merged.begin().add_links(more);
        if merged.links() == 0 {
            self.remove(ino)?;
        }
        Ok(())
    }

    /// Removes a file without names, unless the parent's users keep it.
    fn remove(&mut self, ino: Ino) -> Result<()> {
        if self.kept.lock(ino).is_kept(ino) {
            let inode = self.merged.writable(ino)?;
            inode.links.store(0, Ordering::Relaxed);
        } else {
            self.merged.kill(ino);
        }
        Ok(())
    }

    /// Checks that a directory which the branch has moved still is where the root leads to.
    fn check_place(&mut self, change: Changed<'s>) -> Result<()> {
        let (Some(old), Some(new)) = (change.old, change.new) else { return Ok(()) };
        if new.kind != Kind::Directory || old.home().0 == new.home().0 {
            return Ok(());
        }
        let merged = self.merged;
        let up = |ino| merged.get(ino).ok().map(|inode| inode.home().0);
        if leads_to_root(change.ino, &mut self.rooted, up) {
            return Ok(());
        }
        self.conflict(change.ino, "this directory would contain itself");
        Ok(())
    }
}
