//! What the handles of a file system share: the branches, the base, the domain and the account.
//!
//! - system.C1 The account is freed last, after the domain and all objects: the fields stand in
//!   this order, and `Drop` empties the branches first.

use crate::base::Base;
use crate::directory::NameHash;
use crate::inode::Inode;
use crate::journal::{Journal, Recovered};
use crate::kept::Kept;
use crate::memory::{AccountRef, Counted, OwnedAccount};
use crate::numbers::{Chunks, Numbers};
use crate::page::Page;
use crate::tree::{Held, Link};
use crate::{BranchId, Error, Result};
use manycore::collections::HashMap;
use manycore::lock::{BrLock, BrReadGuard};
use manycore::section::Domain;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::SystemTime;

/// A file system.
pub(crate) struct Core {
    /// Live branches by name.
    pub(crate) names: Mutex<BTreeMap<String, Arc<Inner>>>,
    /// Live branches by number, for look-ups without a lock.
    pub(crate) ids: HashMap<u32, Arc<Inner>>,
    next_id: AtomicU32,
    tokens: AtomicU64,
    pub(crate) chunks: Arc<Chunks>,
    pub(crate) hash: NameHash,
    pub(crate) base: Option<Base>,
    pub(crate) base_numbers: Numbers,
    /// Stands for a hole over bytes of the base.
    pub(crate) hole: Counted<Page>,
    /// The log, of a file system that is kept. Empty while the log is read.
    pub(crate) journal: OnceLock<Journal>,
    /// What was cut off the log.
    pub(crate) recovered: OnceLock<Option<Recovered>>,
    /// Held while the log is written anew.
    pub(crate) compacting: Mutex<()>,
    pub(crate) domain: Domain,
    pub(crate) account: OwnedAccount,
}

/// A branch.
pub(crate) struct Inner {
    pub(crate) id: BranchId,
    pub(crate) name: String,
    pub(crate) parent: Option<BranchId>,
    pub(crate) created: SystemTime,
    /// The inodes, by number. A dead root: the branch has ended.
    pub(crate) table: Link<Inode>,
    /// The parent's table as it was at the fork.
    pub(crate) snapshot: Link<Inode>,
    /// Writers hold it shared; a fork, a commit and an abort exclusively.
    pub(crate) gate: BrLock<Gate>,
    /// Held while a directory moves to another parent.
    pub(crate) moves: Mutex<()>,
    pub(crate) children: AtomicU32,
    kept: OnceLock<Kept>,
    numbers: OnceLock<Numbers>,
}

/// What the gate of a branch guards.
pub(crate) struct Gate {
    /// What the branch may write in place (tree.T1).
    pub(crate) token: u64,
    pub(crate) has_ended: bool,
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Core {
    pub(crate) fn new(account: OwnedAccount, domain: Domain, base: Option<Base>) -> Self {
        let chunks = Arc::new(Chunks::new());
        let hole = Page::hole(account.shared());
        Self {
            names: Mutex::default(),
            ids: HashMap::new(),
            next_id: AtomicU32::new(1),
            tokens: AtomicU64::new(1),
            base_numbers: Numbers::new(Arc::clone(&chunks), 1),
            chunks,
            hash: NameHash::new(),
            base,
            hole,
            journal: OnceLock::new(),
            recovered: OnceLock::new(),
            compacting: Mutex::default(),
            domain,
            account,
        }
    }

    /// The log, if there is one, with room for a change (journal.J3).
    ///
    /// # Errors
    /// `Log`.
    pub(crate) fn journal(&self) -> Result<Option<&Journal>> {
        let journal = self.journal.get();
        journal.map_or(Ok(()), Journal::admit)?;
        Ok(journal)
    }

    pub(crate) fn account(&self) -> AccountRef {
        self.account.shared()
    }

    /// Returns a token that no branch had before (tree.T1).
    pub(crate) fn token(&self) -> u64 {
        self.tokens.fetch_add(1, Ordering::Relaxed)
    }

    /// Frees what was given up and no section can have any more. (The second call frees what the
    /// first had to leave to the next round.) Outside of sections.
    pub(crate) fn collect(&self) {
        self.domain.collect();
        self.domain.collect();
    }

    /// Calls `change`, and once more if memory was short and some waits to be freed. Outside of
    /// sections.
    pub(crate) fn with_room<T>(&self, change: impl Fn() -> Result<T>) -> Result<T> {
        match change() {
            Err(Error::NoSpace) => {
                self.collect();
                change()
            }
            done => done,
        }
    }

    /// Returns the number of the next branch.
    ///
    /// # Errors
    /// `NoSpace` after 2^24 branches.
    pub(crate) fn next_id(&self) -> Result<BranchId> {
        let next = |id: u32| (id < 1 << 24).then_some(id + 1);
        let id = self.next_id.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        id.map(BranchId).map_err(|_| Error::NoSpace)
    }

    /// The number of the next branch, as it stands.
    pub(crate) fn peek_id(&self) -> u32 {
        self.next_id.load(Ordering::Relaxed)
    }

    /// Does not hand out this number of a branch, nor any before it.
    pub(crate) fn pass_id(&self, id: BranchId) {
        self.next_id.fetch_max(id.0 + 1, Ordering::Relaxed);
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        // system.C1: no handle is left, so nobody reads the branches.
        for inner in lock(&self.names).values() {
            drop((inner.table.take_quietly(), inner.snapshot.take_quietly()));
        }
    }
}

impl Inner {
    pub(crate) fn new(
        (id, name): (BranchId, &str),
        created: SystemTime,
        parent: Option<BranchId>,
        token: u64,
        table: Held<Inode>,
        snapshot: Held<Inode>,
    ) -> Self {
        Self {
            id,
            name: name.to_owned(),
            parent,
            created,
            table: Link::new(table),
            snapshot: Link::new(snapshot),
            gate: BrLock::new(Gate { token, has_ended: false }),
            moves: Mutex::new(()),
            children: AtomicU32::new(0),
            kept: OnceLock::new(),
            numbers: OnceLock::new(),
        }
    }

    /// Enters the gate to change something.
    ///
    /// # Errors
    /// `Ended`.
    pub(crate) fn enter(&self) -> Result<BrReadGuard<'_, Gate>> {
        let gate = self.gate.read();
        if gate.has_ended { Err(Error::Ended) } else { Ok(gate) }
    }

    pub(crate) fn kept(&self) -> &Kept {
        self.kept.get_or_init(Kept::new)
    }

    pub(crate) fn numbers(&self, core: &Core) -> &Numbers {
        let stripes = || std::thread::available_parallelism().map_or(1, |n| n.get().min(16));
        self.numbers.get_or_init(|| Numbers::new(Arc::clone(&core.chunks), stripes()))
    }
}
