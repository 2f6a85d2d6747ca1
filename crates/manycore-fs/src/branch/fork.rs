//! Forking and giving up branches.
//!
//! ```text
//! before   parent (token 7) --> root
//! after    parent (token 8) --> root <-- child (token 9)
//!                                 ^----- child's snapshot
//! ```
//!
//! - fork.F1 A fork holds the parent's gate exclusively, and gives both sides new tokens. So nobody
//!   writes what they share, and the child is the parent as of one moment.
//! - fork.F2 A branch ends under its own gate, when it has no branches of its own. Then its root is
//!   dead, which readers see, and `has_ended` is set, which writers see.
//! - fork.F3 The lock of names is taken before gates. A fork holds both, so that its name is taken
//!   when its record is in the log.

use super::Branch;
use crate::attributes::nanoseconds;
use crate::file_system::check_name;
use crate::journal::record;
use crate::system::{Gate, Inner, lock};
use crate::tree::Held;
use crate::{BranchId, Error, Result};
use manycore::lock::BrWriteGuard;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::SystemTime;

impl Branch {
    /// Makes a branch with the same files. Both share everything until one of them writes.
    ///
    /// Writers of this branch wait meanwhile. Cost: some microseconds, whatever the size of the
    /// tree. Afterwards, the first change of a file copies its inode and up to five nodes of 530
    /// bytes.
    ///
    /// ```
    /// use manycore_fs::FileSystem;
    ///
    /// let files = FileSystem::new();
    /// files.main().write_file("/a", b"one").unwrap();
    /// let branch = files.main().fork("try").unwrap();
    /// branch.write_file("/a", b"two").unwrap();
    /// assert_eq!(files.main().read_file("/a").unwrap(), b"one");
    /// ```
    ///
    /// # Errors
    /// [`Invalid`](Error::Invalid) if the name is not 1 to 255 letters, digits, `.`, `_` and `-`,
    /// or begins with `.` or `-`; [`Exists`](Error::Exists) if a branch has the name;
    /// [`NoSpace`](Error::NoSpace) after 2^24 branches.
    pub fn fork(&self, name: &str) -> Result<Branch> {
        self.fork_as(name, None)
    }

    /// Forks. `given`: what the log says of the number and the time.
    pub(crate) fn fork_as(
        &self,
        name: &str,
        given: Option<(BranchId, SystemTime)>,
    ) -> Result<Branch> {
        check_name(name)?;
        let journal = self.core.journal()?;
        let mut names = lock(&self.core.names); // fork.F3
        if names.contains_key(name) {
            return Err(Error::Exists);
        }
        let (id, created) = match given {
            Some(given) => given,
            None => (self.core.next_id()?, SystemTime::now()),
        };
        let inner = {
            let mut gate = self.inner.gate.write();
            if gate.has_ended {
                return Err(Error::Ended);
            }
            // fork.F1
            gate.token = self.core.token();
            let section = self.core.domain.enter();
            let root = self.inner.table.load(&section);
            let (table, snapshot) = (root.hold(), root.hold());
            let token = self.core.token();
            self.inner.children.fetch_add(1, Ordering::Relaxed);
            if let Some(journal) = journal {
                let own = self.inner.id;
                journal.append(&[&record::fork(own, id, nanoseconds(created), name)]);
            }
            let parent = Some(self.inner.id);
            Arc::new(Inner::new((id, name), created, parent, token, table, snapshot))
        };
        self.core.ids.insert(id.0, Arc::clone(&inner));
        names.insert(name.to_owned(), Arc::clone(&inner));
        Ok(Branch { inner, core: Arc::clone(&self.core) })
    }

    /// Forgets the branch and frees what only it had. Afterwards its name is free, and all handles
    /// return [`Ended`](Error::Ended).
    ///
    /// # Errors
    /// [`Busy`](Error::Busy) if it has branches of its own or is the main branch.
    pub fn abort(&self) -> Result<()> {
        let journal = self.core.journal()?;
        let mut gate = self.gate_to_end()?;
        if let Some(journal) = journal {
            journal.append(&[&record::abort(self.inner.id)]);
        }
        self.end(&mut gate);
        drop(gate);
        self.free_ended();
        Ok(())
    }

    /// Returns the branch's gate, exclusively, if the branch may end.
    pub(super) fn gate_to_end(&self) -> Result<BrWriteGuard<'_, Gate>> {
        if self.inner.id == BranchId::MAIN {
            return Err(Error::Busy);
        }
        let gate = self.inner.gate.write();
        if gate.has_ended {
            Err(Error::Ended)
        } else if self.inner.children.load(Ordering::Relaxed) > 0 {
            Err(Error::Busy)
        } else {
            Ok(gate)
        }
    }

    /// Ends the branch (fork.F2).
    pub(super) fn end(&self, gate: &mut BrWriteGuard<'_, Gate>) {
        gate.has_ended = true;
        let section = self.core.domain.enter();
        self.inner.table.set(Held::dead(), &section);
        self.inner.snapshot.set(Held::empty(), &section);
        let parent = self.inner.parent.and_then(|id| self.core.ids.read(&id.0, Arc::clone));
        if let Some(parent) = parent {
            parent.children.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Takes an ended branch out of the lists, and frees its memory if no reader has it.
    pub(super) fn free_ended(&self) {
        self.core.ids.remove(&self.inner.id.0);
        lock(&self.core.names).remove(&self.inner.name);
        self.core.collect();
    }
}
