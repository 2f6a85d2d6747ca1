//! The merge in a tree: updaters that a collection has shut out put the logs of their neighbours
//! together, and the reader goes from *branch* to branch instead of from log to log.
//!
//! Owns: the branches, and who collects what for whom. Source: OpLog, section 8 (future work
//! there).
//!
//! A reader that fetches every log by itself waits for some five cache misses for each, one after
//! the other. An updater that has run into the closed gate has nothing to do, and the logs of the
//! threads on its last-level cache are near. So the first one that comes to a branch collects the
//! logs of that branch's *members*, absorbing one into the other where that is little work
//! ([`Log::absorb`]). All branches do so at once.
//!
//! Laws:
//! - oplog.B1 Who has *claimed* a branch has its load until it says that it is done; then the
//!   reader has it. A branch is claimed at most once for each collection, by a helper or by the
//!   reader: its word grows with the number of the collection ([`Numbers`](super::gate) are given
//!   out in rising order), and is only ever exchanged for that of a later one.
//! - oplog.B2 A reader leaves its number in every branch, and waits for every helper that was
//!   before it, before it looks at a slot's log or opens the gate. So whoever claims a branch for a
//!   collection does so while its gate is closed, and the gate stays closed until it is done.
//! - oplog.B3 A helper touches the log of a member that has answered the collection (oplog.G2), as
//!   a reader may, and its own. A slot is a member of one branch at most: the reader alone changes
//!   members, and makes a slot a member only of a branch that it has been at in this collection.
//!   What a helper has collected the reader leaves alone, and collects the rest.
//! - oplog.B4 So what is collected is what the reader alone would have found: from before its log
//!   is collected until the gate opens, each slot stands still, and all do at the moment when the
//!   last one has come to stand (oplog.C3). That goes for logs with stamps, too: under the core's
//!   gate they need no cut, and what is stamped later is applied later.
//! - oplog.B5 If absorbing panics, what was absorbed is in the branch and the rest in its log,
//!   which counts as not collected. The reader collects all there is, and then the panic is its own
//!   (oplog.D7).
//! - oplog.B6 Who are members, and how long one waits for them, is a guess from the collections
//!   before. Nothing but time depends on it.

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
use crate::percpu::{self, barrier, place};
use crate::sync::{
    self, AtomicU64, AtomicUsize, Backoff, Ordering, Panic, UnsafeCell, hint, seeded_bug,
};
use std::mem;

/// Slots that may be members; the reader sees to the others itself. So many bits and a word fit
/// into 64 bytes.
const SLOTS_MAX: usize = 64 * WORDS;
const WORDS: usize = 3;

/// Beside the collection's number in a branch's word: a helper is at it.
const TAKEN: u64 = 1;
/// The helper is done.
const DONE: u64 = 2;

fn number_of(word: u64) -> u64 {
    word >> NUMBER_SHIFT
}

fn word_of(number: u64, state: u64) -> u64 {
    number << NUMBER_SHIFT | state
}

/// A set of slots, up to so many.
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

/// One that several threads look at.
#[derive(Default)]
struct SharedSet([AtomicU64; WORDS]);

// ORDER: Relaxed (all): members pass with the gate (oplog.B3), the others are hints.
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

/// What is collected together: see the module's header.
#[repr(C, align(128))]
struct Branch<L> {
    word: AtomicU64,
    members: SharedSet,
    /// Who came and is no member.
    joiners: SharedSet,
    load: Padded<UnsafeCell<Load<L>>>,
}

/// What oplog.B1 guards. What is nearly always touched comes first, in 64 bytes.
#[repr(C)]
struct Load<L> {
    /// What was absorbed, and what it was absorbed into.
    first: Option<L>,
    /// Updates that came since the collection before.
    updates: u64,
    slots: SlotSet,
    /// What was not absorbed.
    more: Vec<L>,
    /// Emptied logs, for their buffers.
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
        // ORDER: Acquire; pairs with Release where a reader shut it before: the load.
        self.word
            .compare_exchange(seen, word_of(number, TAKEN), Ordering::Acquire, Ordering::Relaxed)
            .ok()?;
        Some(Claim { branch: self, number })
    }

    /// Leaves the reader's number here (oplog.B2), after it has waited for a helper that is at it,
    /// or for a while for one to come. Whether there was a helper, so that there is a load.
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
            // BUG: a reader leaves a branch as it is that no helper has claimed (oplog.B2's
            // tree).
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

/// A branch in a helper's hands. Dropping it says that the helper is done.
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
    /// The reader's slot, which no helper need wait for: a hint.
    reader: AtomicUsize,
}

/// What a reader found in the branches.
#[derive(Default)]
struct Harvest {
    slots: SlotSet,
    panic: Option<Panic>,
}

impl<T: Send + 'static, L: Log<T>> Core<T, L> {
    /// Whether a collection of so many dirty slots is to have branches.
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
                // With stamps nothing is absorbed, so that little is left to win.
                !L::ORDERED
                    && dirty >= config::TREE_SLOTS_MIN
                    && merges >= inner.tree_from
                    && place::branches() >= config::TREE_BRANCHES_MIN
            }
        }
    }

    /// The branches, made when first asked for. The caller holds the lock.
    fn tree(&self) -> &Tree<L> {
        // ORDER: Relaxed; written under the lock.
        let mut tree = self.logs().tree.load(Ordering::Relaxed);
        if tree.is_null() {
            tree = self.make_tree(place::branches());
        }
        // SAFETY: made above at some time, and freed with the log set.
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

    /// Makes so many branches with these members, as if they had come to a collection before. The
    /// caller holds the object alone.
    #[cfg(all(test, manycore_loom))]
    pub(super) fn presume_members(&self, members: &[&[usize]]) {
        self.make_tree(members.len());
        for (branch, slots) in self.tree().branches.iter().zip(members) {
            slots.iter().for_each(|index| branch.members.add(*index));
        }
    }

    /// Collects everything dirty under the core's gate (oplog.C3, oplog.B4), with the updaters'
    /// help. Returns what absorbing panicked with.
    ///
    /// The caller holds the lock, and logs are the threads'.
    pub(super) fn collect_tree(&self, inner: &mut Inner<L>) -> Option<Panic> {
        let tree = self.tree();
        let own = percpu::known_slot().unwrap_or(usize::MAX);
        // ORDER: Relaxed (both); a hint.
        if tree.reader.load(Ordering::Relaxed) != own {
            tree.reader.store(own, Ordering::Relaxed);
        }
        let closed = inner.numbers.next_closed() | TREE;
        // Where a waiter looks for the end of a collection (`wait_for_collection`).
        let _collecting = L::ORDERED.then(|| Collecting::begin(&self.collecting, closed));
        // ORDER: Release; as in `collect_frozen`. What helpers must see of the tree, too.
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

    /// What an updater does for the collection that closed the gate with `closed`, and that slot
    /// `index`, its own, has answered.
    ///
    /// # Safety
    /// The record of that slot announces the core as an updater, and the gate said `closed` after
    /// that.
    #[cold]
    pub(super) unsafe fn help(&self, closed: u64, index: usize) {
        // ORDER: Acquire; pairs with Release in `make_tree`.
        // SAFETY: oplog.C10 - a gate that a collection closed is as good as an open one.
        let tree = unsafe { self.open_logs() }.tree.load(Ordering::Acquire);
        // SAFETY: freed with the log set, which the caller's announcement keeps.
        let Some(tree) = (unsafe { tree.as_ref() }) else { return };
        if index >= SLOTS_MAX {
            return;
        }
        let branch = &tree.branches[place::branch(index) % tree.branches.len()];
        if !branch.members.has(index) {
            branch.joiners.add(index);
            return;
        }
        let Some(claim) = branch.claim(number_of(closed)) else { return };
        // ORDER: Relaxed; a hint.
        let reader = tree.reader.load(Ordering::Relaxed);
        claim.branch.load.0.with_mut(|load| {
            // SAFETY: oplog.B1.
            let load = unsafe { &mut *load };
            // SAFETY: oplog.B3 - it has answered, and stays away.
            unsafe { self.put(index, load) };
            let mut looks = 0;
            for member in branch.members.get().iter() {
                let other = member != index && member != reader;
                if other && answers(member, closed, &mut looks) {
                    // SAFETY: oplog.B3 - it has answered.
                    unsafe { self.put(member, load) };
                }
            }
        });
    }

    /// Moves what a slot has to a load.
    ///
    /// # Safety
    /// The caller has the slot's log to itself, and the core's lock is held by somebody.
    unsafe fn put(&self, index: usize, load: &mut Load<L>) {
        let Some(slot): Option<&SlotLog<L>> = self.slot_log(index) else { return };
        slot.local.with_mut(|local| {
            // SAFETY: oplog.B3 - the caller promises that it has the slot's log to itself
            // (# Safety).
            let local = unsafe { &mut *local };
            if local.dirty {
                // The helper's own update goes on, whatever another's log does (oplog.B5).
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
    /// Takes all that `log` has: absorbs it if it is short, else takes it as it is.
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

    /// Gives the reader everything, and takes as many buffers back. No user code.
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
    /// After a collection with branches that found so much there: whether others pay soon.
    fn judge_tree(&mut self, found: usize, merges: u64) {
        self.tree_tries += 1;
        if self.tree_tries < config::TREE_TRIES {
            return; // it takes some to learn who comes where
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
    /// Every log in the branches, for whoever is alone with the core.
    pub(super) fn into_logs(self, mut take: impl FnMut(L)) {
        for branch in self.branches {
            let load = branch.load.0.into_inner();
            load.first.into_iter().chain(load.more).chain(load.spares).for_each(&mut take);
            sync::contain(|| drop(load.panic));
        }
    }

    /// Goes from branch to branch and takes what is there (oplog.B2). No user code, so no panic
    /// leaves a branch open.
    fn harvest(&self, number: u64, own: usize, inner: &mut Inner<L>) -> Harvest {
        let mut harvest = Harvest::default();
        let mut looks = 0;
        for branch in &self.branches {
            let mut came = SlotSet::default();
            came.add(own);
            if branch.shut(number, &mut looks) {
                branch.load.0.with_mut(|load| {
                    // SAFETY: oplog.B1 - the helper is done, and none claims it for this number
                    // again.
                    let load = unsafe { &mut *load };
                    came = came.or(load.slots);
                    load.hand_over(inner, &mut harvest);
                });
            }
            self.choose_members(branch, came);
            // BUG: a reader goes to the first branch alone (oplog.B2's tree).
            if seeded_bug!("forgotten-branch") {
                break;
            }
        }
        harvest
    }

    /// Makes those the members who came, and those who want to be: it takes them from other
    /// branches (oplog.B3, oplog.B6).
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
