//! The combining tree: updaters that a collection has excluded collect the logs of the threads near
//! them, and the reader visits *branches* instead of logs.
//!
//! Owns: the branches, and which thread collects which logs. Source: OpLog, section 8 (future work
//! there).
//!
//! A reader that fetches every log by itself waits for about five cache misses per log, one after
//! the other. An updater that has found the gate closed is idle, and the logs of the threads on its
//! last-level cache are near. So the first updater at a branch (the *helper*) collects the logs of
//! that branch's *members*, absorbing one into the other where that is little work
//! ([`Log::absorb`]). The branches work in parallel.
//!
//! Laws:
//! - oplog.B1 The thread that has *claimed* a branch has exclusive access to its load until it
//!   marks it as done; then the reader has. A branch is claimed at most once per collection, by a
//!   helper or by the reader: its word holds the number of the collection (a core's numbers
//!   increase, [`gate`](super::gate)), and is only exchanged for that of a later one.
//! - oplog.B2 A reader stores its number in every branch, and waits for every helper that claimed
//!   one before, before it accesses a slot's log or opens the gate. So a helper claims a branch for
//!   a collection only while its gate is closed, and the gate stays closed until the helper is
//!   done.
//! - oplog.B3 A helper accesses the log of a member that has answered the collection (oplog.G2), as
//!   a reader may, and its own. A slot is a member of at most one branch: only the reader changes
//!   members, and it makes a slot a member only of a branch to which the slot's updater came in
//!   this collection. The reader collects only the logs that no helper has collected.
//! - oplog.B4 So the collection is what the reader alone would have found: the updater of each slot
//!   is stopped from before its log is collected until the gate opens, and all are stopped at the
//!   moment when the last one has stopped (oplog.C3). That holds for logs with stamps, too: under
//!   the core's gate they need no cut, and updates stamped later are applied later.
//! - oplog.B5 If absorbing panics, the absorbed updates are in the branch and the rest in its log,
//!   which counts as not collected. The reader collects all of them, and then resumes the panic
//!   (oplog.D7).
//! - oplog.B6 The choice of members, and how long a helper or the reader waits for them, are
//!   heuristics from previous collections. Only performance depends on them.

use super::builder::MergeStrategy;
use super::core::{Core, TREE};
use super::gate::NUMBER_SHIFT;
use super::log::Log;
use super::log_set::Inner;
use super::reader::{Collecting, Reopen};
use super::slot_log::{Padded, SlotLog};
use crate::clock::Stamp;
use crate::config;
use crate::lock::held;
use crate::percpu::{self, barrier, cpu_group};
use crate::sync::{
    self, AtomicU64, AtomicUsize, Backoff, Ordering, Panic, UnsafeCell, hint, seeded_bug,
};
use std::mem;

/// The number of slots that may be members; the reader collects the others itself. This many bits
/// and a word fit into 64 bytes.
const SLOTS_MAX: usize = 64 * WORDS;
const WORDS: usize = 3;

/// Next to the collection's number in a branch's word: a helper has claimed it.
const TAKEN: u64 = 1;
/// The helper is done.
const DONE: u64 = 2;

fn number_of(word: u64) -> u64 {
    word >> NUMBER_SHIFT
}

fn word_of(number: u64, state: u64) -> u64 {
    number << NUMBER_SHIFT | state
}

/// A set of slots below `SLOTS_MAX`.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct SlotSet([u64; WORDS]);

impl SlotSet {
    fn add(&mut self, index: usize) {
        if let Some(word) = self.0.get_mut(index / 64) {
            *word |= 1 << (index % 64);
        }
    }

    fn has(&self, index: usize) -> bool {
        self.0.get(index / 64).is_some_and(|word| word >> (index % 64) & 1 == 1)
    }

    fn map(self, other: Self, f: impl Fn(u64, u64) -> u64) -> Self {
        Self(std::array::from_fn(|word| f(self.0[word], other.0[word])))
    }

    fn or(self, other: Self) -> Self {
        self.map(other, |a, b| a | b)
    }

    fn and(self, other: Self) -> Self {
        self.map(other, |a, b| a & b)
    }

    fn without(self, other: Self) -> Self {
        self.map(other, |a, b| a & !b)
    }

    fn is_empty(self) -> bool {
        self == Self::default()
    }

    fn len(self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    fn iter(self) -> impl Iterator<Item = usize> {
        (0..SLOTS_MAX).filter(move |index| self.has(*index))
    }
}

/// A set of slots that several threads access.
#[derive(Default)]
struct SharedSet([AtomicU64; WORDS]);

// ORDER: Relaxed (all): the gate publishes members (oplog.B3), the others are hints.
impl SharedSet {
    fn get(&self) -> SlotSet {
        SlotSet(std::array::from_fn(|word| self.0[word].load(Ordering::Relaxed)))
    }

    fn has(&self, index: usize) -> bool {
        self.0[index / 64].load(Ordering::Relaxed) >> (index % 64) & 1 == 1
    }

    fn add(&self, index: usize) {
        if !self.has(index) {
            self.0[index / 64].fetch_or(1 << (index % 64), Ordering::Relaxed);
        }
    }

    fn set(&self, now: SlotSet) {
        self.0.iter().zip(now.0).for_each(|(word, now)| word.store(now, Ordering::Relaxed));
    }

    fn take(&self) -> SlotSet {
        SlotSet(std::array::from_fn(|word| self.0[word].swap(0, Ordering::Relaxed)))
    }
}

/// A group of slots that are collected together: see the module's header.
#[repr(C, align(128))]
struct Branch<L> {
    word: AtomicU64,
    members: SharedSet,
    /// Slots that came to the branch and are no members.
    joiners: SharedSet,
    load: Padded<UnsafeCell<Load<L>>>,
}

/// The part of a branch that oplog.B1 guards. Frequently accessed fields come first, in 64 bytes.
#[repr(C)]
struct Load<L> {
    /// The log into which others were absorbed.
    first: Option<L>,
    /// The number of updates since the previous collection.
    updates: u64,
    slots: SlotSet,
    /// Logs that were not absorbed.
    more: Vec<L>,
    /// Emptied logs, kept for their buffers.
    spares: Vec<L>,
    panic: Option<Panic>,
}

impl<L> Branch<L> {
    fn new() -> Self {
        let load = Load {
            first: None,
            updates: 0,
            slots: SlotSet::default(),
            more: Vec::new(),
            spares: Vec::new(),
            panic: None,
        };
        Self {
            word: AtomicU64::new(0),
            members: SharedSet::default(),
            joiners: SharedSet::default(),
            load: Padded(UnsafeCell::new(load)),
        }
    }
}

impl<L> Branch<L> {
    /// Claims the branch for a helper of this collection (oplog.B1).
    fn claim(&self, number: u64) -> Option<Claim<'_, L>> {
        // ORDER: Relaxed; the exchange decides.
        let seen = self.word.load(Ordering::Relaxed);
        if seen & TAKEN != 0 || number_of(seen) >= number {
            return None;
        }
        // ORDER: Acquire; pairs with Release in `shut`, by the reader of an earlier collection: the
        // load.
        self.word
            .compare_exchange(seen, word_of(number, TAKEN), Ordering::Acquire, Ordering::Relaxed)
            .ok()?;
        Some(Claim { branch: self, number })
    }

    /// Stores the reader's number here (oplog.B2), after waiting for a helper that has claimed the
    /// branch, or briefly for one to come. Returns whether there was a helper, so that there is a
    /// load.
    fn shut(&self, number: u64, looks: &mut u32) -> bool {
        let mut backoff = Backoff::new();
        let mut patience = config::LOOKS_AT_GATE;
        loop {
            // ORDER: Acquire; pairs with Release in `Claim::drop`: the load, and the logs.
            let seen = self.word.load(Ordering::Acquire);
            if seen == word_of(number, DONE) {
                return true;
            }
            let helped = seen & TAKEN != 0;
            let awaited = *looks != config::LOOKS_AT_BRANCHES && !self.members.get().is_empty();
            if helped && patience == 0 {
                backoff.pause();
            } else if helped {
                patience -= 1;
                hint::spin_loop();
            } else if awaited {
                *looks += 1;
                hint::spin_loop();
            // BUG: a reader does not store its number in a branch that no helper has claimed
            // (oplog.B2's tree).
            } else if seeded_bug!("unshut-branch")
                || self
                    .word
                    // ORDER: Release; pairs with Acquire in `claim`.
                    .compare_exchange(
                        seen,
                        word_of(number, 0),
                        Ordering::Release,
                        Ordering::Relaxed,
                    )
                    .is_ok()
            {
                return false;
            }
        }
    }
}

/// A branch claimed by a helper. Dropping it marks the branch as done.
struct Claim<'a, L> {
    branch: &'a Branch<L>,
    number: u64,
}

impl<L> Drop for Claim<'_, L> {
    fn drop(&mut self) {
        // ORDER: Release; pairs with Acquire in `shut` (oplog.B1).
        self.branch.word.store(word_of(self.number, DONE), Ordering::Release);
    }
}

/// Every branch of an object.
pub(super) struct Tree<L> {
    branches: Box<[Branch<L>]>,
    /// The reader's slot, for which no helper needs to wait: a hint.
    reader: AtomicUsize,
}

/// The collected contents of the branches.
#[derive(Default)]
struct Harvest {
    slots: SlotSet,
    panic: Option<Panic>,
}

impl<T: Send + 'static, L: Log<T>> Core<T, L> {
    /// Whether a collection of `dirty` dirty slots uses branches.
    pub(super) fn wants_tree(&self, dirty: usize, inner: &Inner<L>) -> bool {
        if self.is_shared() || seeded_bug!("no-cut") {
            return false;
        }
        match self.config.merge {
            MergeStrategy::Flat => false,
            MergeStrategy::Tree => true,
            MergeStrategy::Auto => {
                // SAFETY: the lock guards the counts, and the caller holds it: it has `inner`,
                // which only the lock's holder reaches.
                let merges = unsafe { self.counts() }.merges;
                // With stamps nothing is absorbed, so that a tree gains little.
                !L::ORDERED
                    && dirty >= config::TREE_SLOTS_MIN
                    && merges >= inner.tree_from
                    && cpu_group::branches() >= config::TREE_BRANCHES_MIN
            }
        }
    }

    /// The branches, allocated on first use. The caller holds the lock.
    fn tree(&self) -> &Tree<L> {
        // ORDER: Relaxed; written under the lock.
        let mut tree = self.logs().tree.load(Ordering::Relaxed);
        if tree.is_null() {
            tree = self.make_tree(cpu_group::branches());
        }
        // SAFETY: oplog.C10 - made by `make_tree` and freed with the log set, which the lock's
        // holder keeps.
        unsafe { &*tree }
    }

    fn make_tree(&self, branches: usize) -> *mut Tree<L> {
        let branches = (0..branches).map(|_| Branch::new()).collect();
        let reader = AtomicUsize::new(usize::MAX);
        let tree = Box::into_raw(Box::new(Tree { branches, reader }));
        // ORDER: Release; pairs with Acquire in `help`, which finds it through the gate anyway.
        self.logs().tree.store(tree, Ordering::Release);
        tree
    }

    /// Makes a branch for each list of members, as if they had come to an earlier collection. The
    /// caller has exclusive access to the object.
    #[cfg(all(test, manycore_loom))]
    pub(super) fn presume_members(&self, members: &[&[usize]]) {
        self.make_tree(members.len());
        for (branch, slots) in self.tree().branches.iter().zip(members) {
            slots.iter().for_each(|index| branch.members.add(*index));
        }
    }

    /// Collects everything dirty under the core's gate (oplog.C3, oplog.B4), with the updaters'
    /// help. Returns the panic of absorbing, if any.
    ///
    /// The caller holds the lock, and logs belong to threads.
    pub(super) fn collect_tree(&self, inner: &mut Inner<L>) -> Option<Panic> {
        let tree = self.tree();
        let own = percpu::known_slot().unwrap_or(usize::MAX);
        // ORDER: Relaxed (both); a hint.
        if tree.reader.load(Ordering::Relaxed) != own {
            tree.reader.store(own, Ordering::Relaxed);
        }
        let closed = inner.numbers.next_closed() | TREE;
        // A waiter sees the end of the collection by this (`wait_for_collection`).
        let _collecting = L::ORDERED.then(|| Collecting::begin(&self.collecting, closed));
        // ORDER: Release; as in `collect_frozen`. It also publishes the tree's hints and members to
        // helpers.
        self.gate.store(closed, Ordering::Release);
        let _open = Reopen { gate: &self.gate, to: self.open };
        barrier::fence_full();
        // Slots that are not dirty need no answer (oplog.G4).
        self.list_dirty(&mut inner.slots);
        let harvest = tree.harvest(number_of(closed), own, inner);
        // SAFETY: the lock guards the counts, and the caller holds it: it has `inner`, which only
        // the lock's holder reaches.
        inner.judge_tree(harvest.slots.len(), unsafe { self.counts() }.merges);
        let mut rest = mem::take(&mut inner.rest);
        rest.clear();
        rest.extend(inner.slots.iter().copied().filter(|index| !harvest.slots.has(*index)));
        let answered = self.settle(&rest, &mut inner.unanswered, closed);
        let _turns = self.wait_for_updaters(&rest, answered);
        inner.late = self.late.count(Stamp::MAX);
        for index in &rest {
            // SAFETY: oplog.C1 - gate closed, barrier passed, no updater inside, no helper
            // (oplog.B2).
            unsafe { self.collect_slot(*index, Stamp::MAX, answered, inner) };
        }
        inner.rest = rest;
        harvest.panic
    }

    /// Helps the collection that closed the gate with `closed`, which the updater's slot `index`
    /// has answered.
    ///
    /// # Safety
    /// The record of that slot announces the core as an updater, and the gate said `closed` after
    /// that.
    #[cold]
    pub(super) unsafe fn help(&self, closed: u64, index: usize) {
        // ORDER: Acquire; pairs with Release in `make_tree`.
        // SAFETY: oplog.C10 - a gate that a collection closed is not `EVICTED`, so the log set
        // exists.
        let tree = unsafe { self.open_logs() }.tree.load(Ordering::Acquire);
        // SAFETY: oplog.C10 - freed with the log set, which the caller's announcement keeps.
        let Some(tree) = (unsafe { tree.as_ref() }) else { return };
        if index >= SLOTS_MAX {
            return;
        }
        let branch = &tree.branches[cpu_group::branch(index) % tree.branches.len()];
        if !branch.members.has(index) {
            branch.joiners.add(index);
            return;
        }
        let Some(claim) = branch.claim(number_of(closed)) else { return };
        // ORDER: Relaxed; a hint.
        let reader = tree.reader.load(Ordering::Relaxed);
        claim.branch.load.0.with_mut(|load| {
            // SAFETY: oplog.B1 - this thread has claimed the branch, so no other has its load.
            let load = unsafe { &mut *load };
            // SAFETY: oplog.B3 - the caller's own slot, which has answered; its log is not in use.
            unsafe { self.put(index, load) };
            let mut looks = 0;
            for member in branch.members.get().iter() {
                let other = member != index && member != reader;
                if other && answers(member, closed, &mut looks) {
                    // SAFETY: oplog.B3 - the member has answered, so its updater does not use its
                    // log (oplog.G2).
                    unsafe { self.put(member, load) };
                }
            }
        });
    }

    /// Moves the entries of a slot's log to a load.
    ///
    /// # Safety
    /// The caller has exclusive access to the slot's log, and a thread holds the core's lock.
    unsafe fn put(&self, index: usize, load: &mut Load<L>) {
        let Some(slot): Option<&SlotLog<L>> = self.slot_log(index) else { return };
        slot.local.with_mut(|local| {
            // SAFETY: oplog.B3 - the caller promises exclusive access to the slot's log (# Safety).
            let local = unsafe { &mut *local };
            if local.dirty {
                // A panic of another thread's log does not affect the helper's own update
                // (oplog.B5).
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

/// Whether a slot answers the collection, now or within a moment.
fn answers(index: usize, closed: u64, looks: &mut u32) -> bool {
    let record = percpu::records().get(index);
    while record.answered() != closed {
        if *looks == config::LOOKS_AT_MEMBERS {
            return false;
        }
        *looks += 1;
        hint::spin_loop();
    }
    true
}

impl<L> Load<L> {
    /// Takes all entries of `log`: absorbs it if it is short, else takes it whole.
    fn take<T>(&mut self, log: &mut L)
    where
        L: Log<T>,
    {
        held::assert_no_leaf();
        if log.is_empty() {
            return;
        }
        let spare = match self.first.take() {
            None => self.spares.pop().unwrap_or_default(),
            Some(first) => first,
        };
        let first = self.first.insert(spare);
        if first.is_empty() {
            return log.collect(Stamp::MAX, first);
        }
        if log.len() <= config::TREE_ABSORB_MAX {
            first.absorb(log);
            if log.is_empty() {
                return;
            }
        }
        let spare = self.spares.pop().unwrap_or_default();
        self.more.push(spare);
        if let Some(into) = self.more.last_mut() {
            log.collect(Stamp::MAX, into);
        }
    }

    /// Moves everything to the reader, and takes as many buffers back. Runs no user code.
    fn hand_over(&mut self, inner: &mut Inner<L>, harvest: &mut Harvest) {
        let logs = usize::from(self.first.is_some()) + self.more.len();
        if logs != 0 {
            let kept = inner.spares.len().saturating_sub(logs);
            self.spares.extend(inner.spares.drain(kept..));
            inner.carry.extend(self.first.take());
            inner.carry.append(&mut self.more);
        }
        inner.untidy |= self.panic.is_some();
        inner.window += mem::take(&mut self.updates);
        harvest.slots = harvest.slots.or(mem::take(&mut self.slots));
        match self.panic.take() {
            Some(panic) if harvest.panic.is_some() => sync::contain(|| drop(panic)),
            panic => harvest.panic = harvest.panic.take().or(panic),
        }
    }
}

impl<L> Inner<L> {
    /// After a collection with branches that found `found` slots' logs there: decides when the next
    /// tree is tried.
    fn judge_tree(&mut self, found: usize, merges: u64) {
        self.tree_tries += 1;
        if self.tree_tries < config::TREE_TRIES {
            return; // the first few only learn the members
        }
        if found * 2 >= self.slots.len() {
            self.tree_vain = 0;
        } else {
            self.tree_tries = 0;
            self.tree_vain = (self.tree_vain + 1).min(config::VAIN_MAX);
            self.tree_from = merges + (config::READS_WITHOUT_HOPE << self.tree_vain);
        }
    }
}

impl<L> Tree<L> {
    /// All logs in the branches, for a caller with exclusive access to the core.
    pub(super) fn into_logs(self, mut take: impl FnMut(L)) {
        for branch in self.branches {
            let load = branch.load.0.into_inner();
            load.first.into_iter().chain(load.more).chain(load.spares).for_each(&mut take);
            sync::contain(|| drop(load.panic));
        }
    }

    /// Visits all branches and takes their contents (oplog.B2). Runs no user code, so no panic
    /// leaves a branch open.
    fn harvest(&self, number: u64, own: usize, inner: &mut Inner<L>) -> Harvest {
        let mut harvest = Harvest::default();
        let mut looks = 0;
        for branch in &self.branches {
            let mut came = SlotSet::default();
            came.add(own);
            if branch.shut(number, &mut looks) {
                branch.load.0.with_mut(|load| {
                    // SAFETY: oplog.B1 - the helper is done, and no helper claims the branch for
                    // this number again.
                    let load = unsafe { &mut *load };
                    came = came.or(load.slots);
                    load.hand_over(inner, &mut harvest);
                });
            }
            self.choose_members(branch, came);
            // BUG: a reader visits only the first branch (oplog.B2's tree).
            if seeded_bug!("forgotten-branch") {
                break;
            }
        }
        harvest
    }

    /// Makes members of the slots that were collected and of those that joined, which it takes from
    /// other branches (oplog.B3, oplog.B6).
    fn choose_members(&self, branch: &Branch<L>, came: SlotSet) {
        let members = branch.members.get();
        let mut joiners = branch.joiners.get();
        if !joiners.is_empty() {
            joiners = branch.joiners.take();
            for other in &self.branches {
                let theirs = other.members.get();
                if !theirs.and(joiners).is_empty() {
                    other.members.set(theirs.without(joiners));
                }
            }
        }
        let next = members.and(came).or(joiners);
        if next != members {
            branch.members.set(next);
        }
    }
}
