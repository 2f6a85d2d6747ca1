//! The combining tree: while a collection keeps updaters out, they collect the logs of the threads
//! near them, and the reader visits *branches* instead of logs.
//!
//! ```text
//! slot logs    [0] [1] [2] [3]     [4] [5] [6] [7]        one last-level cache per group
//!                \   \ /   /         \   \ /   /          helper: first updater that waits
//! branches        branch A             branch B
//!                      \                 /
//!                       \--- reader ----/                  also collects what no helper did
//! ```
//!
//! Owns: which thread collects which logs; the branches are in `branches`. Source: OpLog, section 8
//! (future work there).
//!
//! A reader that fetches every log by itself waits for about five cache misses per log, one after
//! the other. An updater that has found the gate closed is idle, and the logs of the threads on its
//! last-level cache are near. So the first updater at a branch (the *helper*) collects the logs of
//! that branch's *members*. If that is little work, it absorbs one log into the other
//! ([`Log::absorb`]). The branches work in parallel.
//!
//! Laws:
//! - combining_tree.B1 A thread that has *claimed* a branch has exclusive access to its load until
//!   it marks the branch as done; from then on the reader has. A branch is claimed at most once per
//!   collection, by a helper or by the reader. Its word holds the number of the collection (a hot
//!   state's numbers increase, [`gate`](super::gate)), and is exchanged only for the number of a
//!   later collection.
//! - combining_tree.B2 A reader stores its number in every branch, and waits for every helper that
//!   claimed a branch before that. Only then does it access a slot's log or open the gate. So a
//!   helper claims a branch for a collection only while the collection's gate is closed, and the
//!   gate stays closed until the helper is done.
//! - combining_tree.B3 A helper accesses its own log, and the log of a member that has answered the
//!   collection (oplog_gate.G2), as a reader may. A slot is a member of at most one branch. Only
//!   the reader changes members, and it makes a slot a member only of a branch to which the slot's
//!   updater came in this collection. The reader collects only the logs that no helper has
//!   collected.
//! - combining_tree.B4 So the collection is what the reader alone would have found. The updater of
//!   each slot is stopped from before its log is collected until the gate opens. All are stopped at
//!   the moment when the last of them has stopped (hot_state.C3). This also holds for logs with
//!   stamps: under the hot state's gate they need no cut, and updates stamped later are applied
//!   later.
//! - combining_tree.B5 If absorbing panics, the absorbed updates are in the branch, and the rest is
//!   in its log, which counts as not collected. The reader collects all of them, and then resumes
//!   the panic (oplog.D7).
//! - combining_tree.B6 The choice of members, and how long a helper or the reader waits for them,
//!   are heuristics from previous collections. Only performance depends on them.

use super::branches::{Load, SLOTS_MAX, Tree};
use super::gate::Gate;
use super::hot_state::HotState;
use super::log::Log;
use super::log_set::Inner;
use super::settings::MergeStrategy;
use super::slot_log::SlotLog;
use crate::clock::Stamp;
use crate::config;
use crate::percpu::{self, barrier, cpu_group};
use crate::sync::{self, Panic, hint, seeded_bug};

impl<T: Send + 'static, L: Log<T>> HotState<T, L> {
    /// Returns true if the time that collecting the listed slots takes decides whether branches are
    /// used.
    pub(super) fn tries_tree(&self, inner: &Inner<L>) -> bool {
        // With stamps nothing is absorbed, so a tree gains little.
        !L::ORDERED
            && inner.slots.len() >= config::TREE_SLOTS_MIN
            && matches!(self.config.merge, MergeStrategy::Auto)
            && cpu_group::branches() >= config::TREE_BRANCHES_MIN
    }

    /// Returns true if a collection of the listed slots uses branches.
    pub(super) fn wants_tree(&self, inner: &Inner<L>) -> bool {
        if seeded_bug!("no-cut") {
            return false;
        }
        match self.config.merge {
            MergeStrategy::Flat => false,
            MergeStrategy::Tree => true,
            MergeStrategy::Auto => self.tries_tree(inner) && inner.policy.wants_tree(),
        }
    }

    /// Makes a branch for each list of members, as if they had come to an earlier collection. The
    /// caller has exclusive access to the object.
    #[cfg(all(test, manycore_loom))]
    pub(super) fn presume_members(&self, members: &[&[usize]]) {
        let (tree, _) = self.logs().tree.set(Tree::new(members.len()));
        for (branch, slots) in tree.branches.iter().zip(members) {
            slots.iter().for_each(|index| branch.members.add(*index));
        }
    }

    /// Collects everything dirty under the hot state's gate (hot_state.C3, combining_tree.B4), with
    /// the updaters' help. Returns the panic of absorbing, if any.
    ///
    /// The caller holds the lock, and logs belong to threads.
    pub(super) fn collect_tree(&self, inner: &mut Inner<L>) -> Option<Panic> {
        let tree = self.logs().tree.get_or_make(|| Tree::new(cpu_group::branches()));
        let own = percpu::known_slot().unwrap_or(usize::MAX);
        tree.set_reader(own);
        let closed = inner.numbers.next_closed().with_help();
        // A waiter sees by this that the collection has ended (`wait_for_collection`).
        let _collecting = L::ORDERED.then(|| {
            self.collecting.close(closed);
            self.collecting.open_later()
        });
        // Closing also publishes the tree's hints and members to helpers.
        self.gate.close(closed);
        let _open = self.gate.open_later();
        barrier::fence_full();
        // Slots that are not dirty need no answer (oplog_gate.G4).
        self.list_dirty(&mut inner.slots);
        let harvest = tree.harvest(closed.number(), own, &mut inner.collected_logs);
        inner.window += harvest.updates;
        inner.collected += harvest.updates;
        inner.slots.retain(|index| !harvest.slots.has(*index));
        let answered = self.settle(&inner.slots, &mut inner.unanswered, closed);
        self.wait_for_updaters(&inner.slots, answered);
        inner.late = self.late.count(Stamp::MAX);
        // SAFETY: hot_state.C1 - gate closed, barrier passed, no updater inside, no helper
        // (combining_tree.B2).
        unsafe { self.collect_listed(answered, inner) };
        harvest.panic
    }

    /// Helps the collection that closed the gate with `closed` and that the slot `index` of the
    /// calling updater has answered.
    ///
    /// # Safety
    /// The record of slot `index` announces the hot state as an updater, and the gate said `closed`
    /// after that.
    #[cold]
    pub(super) unsafe fn help(&self, closed: Gate, index: usize) {
        // SAFETY: log_set.C10 - a gate that a collection closed is not `EVICTED`, so the log set
        // exists.
        let Some(tree) = (unsafe { self.open_logs() }).tree.get() else { return };
        if index >= SLOTS_MAX {
            return;
        }
        debug_assert!(
            cfg!(manycore_loom) || self.is_updated_by(index),
            "log_set.C10: a helper that is no updater"
        );
        debug_assert!(
            cfg!(manycore_loom) || percpu::records().get(index).answered() == closed.answer(),
            "combining_tree.B3: a helper that has not answered"
        );
        debug_assert!(
            closed.is_helped(),
            "combining_tree.B2: {closed:?} is no collection with a tree"
        );
        let branch = tree.branch_of(index);
        if !branch.members.has(index) {
            branch.joiners.add(index);
            return;
        }
        let Some(claim) = branch.claim(closed.number()) else { return };
        let reader = tree.reader();
        claim.with_load(|load| {
            // SAFETY: combining_tree.B3 - the caller's own slot, which has answered; its log is not
            // in use.
            unsafe { self.put(index, load) };
            let mut looks = 0;
            for member in branch.members.get().iter() {
                let other = member != index && member != reader;
                if other && answers(member, closed, &mut looks) {
                    // SAFETY: combining_tree.B3 - the member has answered, so its updater does not
                    // use its log (oplog_gate.G2).
                    unsafe { self.put(member, load) };
                }
            }
        });
    }

    /// Moves the entries of a slot's log to a load.
    ///
    /// # Safety
    /// The caller has exclusive access to the slot's log, and a thread holds the hot state's lock.
    unsafe fn put(&self, index: usize, load: &mut Load<L>) {
        debug_assert!(!load.slots.has(index), "combining_tree.B3: slot {index} is collected twice");
        let Some(slot): Option<&SlotLog<L>> = self.slot_log(index) else { return };
        slot.local.with_mut(|local| {
            // SAFETY: combining_tree.B3 - the caller promises exclusive access to the slot's log (#
            // Safety).
            let local = unsafe { &mut *local };
            if local.dirty {
                // A panic of another thread's log does not affect the helper's own update
                // (combining_tree.B5).
                let taken = sync::caught(|| {
                    load.take::<T>(&mut local.log);
                    self.note_collected(slot, local, index, true)
                });
                match taken {
                    Ok(new) => load.updates += new,
                    Err(panic) if load.panic.is_none() => return load.panic = Some(panic),
                    Err(panic) => return sync::contain(|| drop(panic)),
                }
            }
            load.slots.add(index);
        });
    }
}

/// Returns true if a slot answers the collection, now or within a moment.
fn answers(index: usize, closed: Gate, looks: &mut u32) -> bool {
    let record = percpu::records().get(index);
    while record.answered() != closed.answer() {
        if *looks == config::LOOKS_AT_MEMBERS {
            return false;
        }
        *looks += 1;
        hint::spin_loop();
    }
    true
}
