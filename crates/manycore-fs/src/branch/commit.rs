//! Comparing a branch with its parent, and moving its changes there.
//!
//! - commit.C1 A commit holds the gates of the branch and of its parent, in this order: from a
//!   branch to its parent, never the other way. So two commits do not wait for each other.
//! - commit.C2 The merged table takes the place of the parent's by one store. So a reader of the
//!   parent sees all of the branch's changes, or none.

use super::Branch;
use crate::diff::{Diff, diff};
use crate::files::Files;
use crate::inode::Inode;
use crate::journal::record;
use crate::merge::Merge;
use crate::tree::{Link, Word};
use crate::version::Version;
use crate::{Change, Committed, Error, NotCommitted, Result};
use manycore::section::Section;
use std::sync::Arc;

impl Branch {
    fn version<'s>(&'s self, root: Word<'s, Inode>, section: &'s Section<'s>) -> Version<'s> {
        Version { files: self.files(section), root }
    }

    /// Returns what the branch has changed since the fork, by path.
    ///
    /// A file or directory that was moved is [`Removed`](Change::Removed) at its old path and
    /// [`Added`](Change::Added) at its new one; what is below a moved directory is not listed. A
    /// file of several names is listed by one of them. Bytes are compared where pages differ, so a
    /// file that was written with the same bytes is not [`Modified`](Change::Modified).
    ///
    /// Writers of this branch wait for some microseconds at the beginning, as for a fork. Cost:
    /// that of the changes, not of the tree.
    ///
    /// ```
    /// use manycore_fs::{Change, FileSystem, Kind};
    ///
    /// let files = FileSystem::new();
    /// files.main().write_file("/a", b"one").unwrap();
    /// let branch = files.main().fork("try").unwrap();
    /// branch.write_file("/a", b"two").unwrap();
    /// branch.write_file("/b", b"new").unwrap();
    /// let expected =
    ///     [Change::Modified("/a".into(), Kind::File), Change::Added("/b".into(), Kind::File)];
    /// assert_eq!(branch.diff().unwrap(), expected);
    /// ```
    ///
    /// The main branch is compared with the file system as it was at the start.
    ///
    /// # Errors
    /// [`Ended`](Error::Ended), [`Host`](Error::Host).
    pub fn diff(&self) -> Result<Vec<Change>> {
        // As a fork: what this thread compares is frozen (version.V1).
        let (old, new) = {
            let mut gate = self.inner.gate.write();
            if gate.has_ended {
                return Err(Error::Ended);
            }
            gate.token = self.core.token();
            let section = self.core.domain.enter();
            let hold = |link: &Link<Inode>| link.load(&section).hold();
            (hold(&self.inner.snapshot), hold(&self.inner.table))
        };
        let section = self.core.domain.enter();
        let version = |root| self.version(root, &section);
        Ok(diff(version(old.word()), version(new.word()))?.changes)
    }

    /// Moves the branch's changes into its parent, all or nothing, and ends the branch.
    ///
    /// Two changes conflict if parent and branch have changed the same file, or the same name of a
    /// directory, in different ways since the fork. In detail: bytes; owner and permissions;
    /// extended attributes; each name. A file that one has removed and the other changed is a
    /// conflict, and so is a directory that one has removed and the other added to, or that would
    /// contain itself. If there is any conflict, nothing changes, and the branch goes on.
    ///
    /// Writers of the parent wait meanwhile; readers do not, and see all changes at once. Cost:
    /// that of the changes.
    ///
    /// ```
    /// use manycore_fs::{FileSystem, NotCommitted};
    ///
    /// let files = FileSystem::new();
    /// let main = files.main();
    /// main.write_file("/a", b"one").unwrap();
    /// let (x, y) = (main.fork("x").unwrap(), main.fork("y").unwrap());
    /// x.write_file("/a", b"two").unwrap();
    /// y.write_file("/a", b"three").unwrap();
    /// assert_eq!(x.commit().unwrap().changes.len(), 1);
    /// assert_eq!(main.read_file("/a").unwrap(), b"two");
    /// let Err(NotCommitted::Conflicts(conflicts)) = y.commit() else { panic!() };
    /// assert_eq!(conflicts[0].reason, "both wrote this file");
    /// ```
    ///
    /// # Errors
    /// [`NotCommitted::Conflicts`], or [`Busy`](Error::Busy) for the main branch and a branch with
    /// branches of its own, [`Ended`](Error::Ended), [`Host`](Error::Host).
    pub fn commit(&self) -> std::result::Result<Committed, NotCommitted> {
        self.commit_and_tell(true)
    }

    /// Commits. Unless it `tells`, nobody reads what has changed or what conflicts, which may be
    /// more than the changes: a path is as long as its directory is deep.
    pub(crate) fn commit_and_tell(
        &self,
        tells: bool,
    ) -> std::result::Result<Committed, NotCommitted> {
        let journal = self.core.journal().map_err(NotCommitted::Error)?;
        let mut gate = self.gate_to_end().map_err(NotCommitted::Error)?;
        // The parent can't end before its branch does.
        let parent = self.inner.parent.and_then(|id| self.core.ids.read(&id.0, Arc::clone));
        let parent = parent.ok_or(NotCommitted::Error(Error::Ended))?;
        let mut parent_gate = parent.gate.write(); // commit.C1
        let token = self.core.token();
        let merged: Link<Inode> = Link::empty();
        let committed = {
            let section = self.core.domain.enter();
            let load = |link: &Link<Inode>| link.load(&section).hold();
            let (old, here, new) =
                (load(&self.inner.snapshot), load(&parent.table), load(&self.inner.table));
            let version = |root| self.version(root, &section);
            let versions = (version(old.word()), version(here.word()), version(new.word()));
            merged.set(load(&parent.table), &section);
            let files = Files { core: &self.core, table: &merged, section: &section, token };
            let mut merge = Merge::new(versions, files, parent.kept(), tells);
            merge.run().map_err(NotCommitted::Error)?;
            if !merge.conflicts.is_empty() {
                return Err(NotCommitted::Conflicts(merge.conflicts));
            }
            let after = merged.load(&section).hold();
            let found = match tells {
                true => diff(version(here.word()), version(after.word())),
                false => Ok(Diff::default()),
            };
            let found = found.map_err(NotCommitted::Error)?;
            Committed { changes: found.changes, files: found.files, names: found.names }
        };
        if let Some(journal) = journal {
            journal.append(&[&record::commit(self.inner.id)]);
        }
        {
            let section = self.core.domain.enter();
            parent.table.set(merged.take_quietly(), &section); // commit.C2
        }
        parent_gate.token = token;
        self.end(&mut gate);
        drop(parent_gate);
        drop(gate);
        self.free_ended();
        Ok(committed)
    }
}
