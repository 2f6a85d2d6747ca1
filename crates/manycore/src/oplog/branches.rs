//! The branches of the combining tree: where helpers leave the logs that they have collected.
//!
//! Owns: a branch's word and load, and the sets of slots. Laws combining_tree.B1 to
//! combining_tree.B6 are in the header of `combining_tree`.

use super::collected_logs::CollectedLogs;
use super::log::Log;
use super::slot_log::Padded;
use crate::clock::Stamp;
use crate::config;
use crate::lock::held;
use crate::percpu::cpu_group;
use crate::sync::{
    self, AtomicU64, AtomicUsize, Backoff, Ordering, Panic, UnsafeCell, hint, seeded_bug,
};
use std::mem;

/// The number of slots that may be members; the reader collects the others itself. This many bits
/// and a word fit into 64 bytes.
pub(super) const SLOTS_MAX: usize = 64 * WORDS;
const WORDS: usize = 3;

/// A branch's word: the last collection that has visited the branch or is visiting it, and whether
/// a helper has claimed the branch for it.
#[derive(Clone, Copy, PartialEq, Eq)]
struct BranchWord(u64);

impl BranchWord {
    /// A helper has claimed the branch.
    const CLAIMED: u64 = 1;
    /// The helper is done.
    const DONE: u64 = 2;
    const NUMBER_SHIFT: u32 = 2;

    fn shut(number: u64) -> Self {
        Self(number << Self::NUMBER_SHIFT)
    }

    fn claimed(number: u64) -> Self {
        Self(number << Self::NUMBER_SHIFT | Self::CLAIMED)
    }

    fn done(number: u64) -> Self {
        Self(number << Self::NUMBER_SHIFT | Self::DONE)
    }

    fn number(self) -> u64 {
        self.0 >> Self::NUMBER_SHIFT
    }

    fn is_claimed(self) -> bool {
        self.0 & Self::CLAIMED != 0
    }
}

/// A set of slots with numbers below `SLOTS_MAX`.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct SlotSet([u64; WORDS]);

impl SlotSet {
    pub(super) fn add(&mut self, index: usize) {
        if let Some(word) = self.0.get_mut(index / 64) {
            *word |= 1 << (index % 64);
        }
    }

    pub(super) fn has(&self, index: usize) -> bool {
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

    pub(super) fn iter(self) -> impl Iterator<Item = usize> {
        (0..SLOTS_MAX).filter(move |index| self.has(*index))
    }
}

/// A set of slots that several threads access.
#[derive(Default)]
pub(super) struct SharedSet([AtomicU64; WORDS]);

// ORDER: Relaxed (all): the gate publishes members (combining_tree.B3), the others are hints.
impl SharedSet {
    pub(super) fn get(&self) -> SlotSet {
        SlotSet(std::array::from_fn(|word| self.0[word].load(Ordering::Relaxed)))
    }

    pub(super) fn has(&self, index: usize) -> bool {
        self.0[index / 64].load(Ordering::Relaxed) >> (index % 64) & 1 == 1
    }

    pub(super) fn add(&self, index: usize) {
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

/// A group of slots that are collected together: see the header of `combining_tree`.
#[repr(C, align(128))]
pub(super) struct Branch<L> {
    word: AtomicU64,
    pub(super) members: SharedSet,
    /// Slots that came to the branch but are no members.
    pub(super) joiners: SharedSet,
    load: Padded<UnsafeCell<Load<L>>>,
}

/// The part of a branch that combining_tree.B1 guards. Frequently accessed fields come first, in 64
/// bytes.
#[repr(C)]
pub(super) struct Load<L> {
    /// The log into which others were absorbed.
    first: Option<L>,
    /// The number of updates since the previous collection.
    pub(super) updates: u64,
    pub(super) slots: SlotSet,
    /// Logs that were not absorbed.
    more: Vec<L>,
    /// Emptied logs, kept for their buffers.
    spares: Vec<L>,
    pub(super) panic: Option<Panic>,
}

/// Each log is dropped on its own, because its destructor may panic.
impl<L> Drop for Load<L> {
    fn drop(&mut self) {
        let logs = self.first.take().into_iter().chain(self.more.drain(..));
        logs.chain(self.spares.drain(..)).for_each(|log| sync::contain(|| drop(log)));
        sync::contain(|| drop(self.panic.take()));
    }
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
    /// Claims the branch for a helper of this collection (combining_tree.B1).
    pub(super) fn claim(&self, number: u64) -> Option<Claim<'_, L>> {
        // ORDER: Relaxed; the exchange decides.
        let seen = self.word.load(Ordering::Relaxed);
        let word = BranchWord(seen);
        if word.is_claimed() || word.number() >= number {
            return None;
        }
        // ORDER: Acquire; pairs with Release in `shut`, by the reader of an earlier collection: the
        // load.
        self.word
            .compare_exchange(
                seen,
                BranchWord::claimed(number).0,
                Ordering::Acquire,
                Ordering::Relaxed,
            )
            .ok()?;
        Some(Claim { branch: self, number })
    }

    /// Stores the reader's number here (combining_tree.B2). If a helper has claimed the branch,
    /// waits for it; if not, waits briefly for one to come. Returns true if there was a helper, and
    /// so there is a load.
    fn shut(&self, number: u64, looks: &mut u32) -> bool {
        let mut backoff = Backoff::new();
        let mut patience = config::LOOKS_AT_GATE;
        loop {
            // ORDER: Acquire; pairs with Release in `Claim::drop`: the load, and the logs.
            let seen = self.word.load(Ordering::Acquire);
            let word = BranchWord(seen);
            if word == BranchWord::done(number) {
                return true;
            }
            let helped = word.is_claimed();
            debug_assert!(
                if helped { word.number() == number } else { word.number() < number },
                "combining_tree.B1: {:#x} is no word of an earlier collection than {number:#x}",
                word.0
            );
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
            // (combining_tree.B2's tree).
            } else if seeded_bug!("unshut-branch")
                || self
                    .word
                    // ORDER: Release; pairs with Acquire in `claim`.
                    .compare_exchange(
                        seen,
                        BranchWord::shut(number).0,
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
pub(super) struct Claim<'a, L> {
    branch: &'a Branch<L>,
    number: u64,
}

impl<L> Claim<'_, L> {
    /// Runs `f` on the branch's load.
    pub(super) fn with_load(&self, f: impl FnOnce(&mut Load<L>)) {
        self.branch.load.0.with_mut(|load| {
            // SAFETY: combining_tree.B1 - this thread has claimed the branch, so no other thread
            // has its load.
            f(unsafe { &mut *load });
        });
    }
}

impl<L> Drop for Claim<'_, L> {
    fn drop(&mut self) {
        debug_assert!(
            cfg!(manycore_loom)
                || self.branch.word.load(Ordering::Relaxed) == BranchWord::claimed(self.number).0,
            "combining_tree.B1: another thread has the branch that this one has claimed"
        );
        // ORDER: Release; pairs with Acquire in `shut` (combining_tree.B1).
        self.branch.word.store(BranchWord::done(self.number).0, Ordering::Release);
    }
}

/// Every branch of an object.
pub(super) struct Tree<L> {
    pub(super) branches: Box<[Branch<L>]>,
    /// The reader's slot, which no helper needs to wait for: a hint.
    reader: AtomicUsize,
}

/// The collected contents of the branches.
#[derive(Default)]
pub(super) struct Harvest {
    pub(super) slots: SlotSet,
    pub(super) updates: u64,
    pub(super) panic: Option<Panic>,
}

impl<L> Load<L> {
    /// Takes all entries of `log`: absorbs the log if it is short, else takes it whole.
    pub(super) fn take<T>(&mut self, log: &mut L)
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
    fn hand_over(&mut self, collected: &mut CollectedLogs<L>, harvest: &mut Harvest) {
        let panicked = self.panic.is_some();
        collected.take_over(&mut self.first, &mut self.more, &mut self.spares, panicked);
        let slots = mem::take(&mut self.slots);
        debug_assert!(
            slots.and(harvest.slots).is_empty(),
            "combining_tree.B3: a slot is in two branches"
        );
        harvest.slots = harvest.slots.or(slots);
        harvest.updates += mem::take(&mut self.updates);
        match self.panic.take() {
            Some(panic) if harvest.panic.is_some() => sync::contain(|| drop(panic)),
            panic => harvest.panic = harvest.panic.take().or(panic),
        }
    }
}

impl<L> Tree<L> {
    /// Makes a tree with this many branches.
    pub(super) fn new(branches: usize) -> Self {
        let branches = (0..branches).map(|_| Branch::new()).collect();
        Self { branches, reader: AtomicUsize::new(usize::MAX) }
    }

    /// Returns the branch of a slot.
    pub(super) fn branch_of(&self, index: usize) -> &Branch<L> {
        &self.branches[cpu_group::branch(index) % self.branches.len()]
    }

    // ORDER: Relaxed (all three); a hint.
    pub(super) fn reader(&self) -> usize {
        self.reader.load(Ordering::Relaxed)
    }

    pub(super) fn set_reader(&self, slot: usize) {
        if self.reader() != slot {
            self.reader.store(slot, Ordering::Relaxed);
        }
    }

    /// Visits all branches and takes their contents (combining_tree.B2). Runs no user code, so no
    /// panic leaves a branch open.
    pub(super) fn harvest(
        &self,
        number: u64,
        own: usize,
        collected: &mut CollectedLogs<L>,
    ) -> Harvest {
        let mut harvest = Harvest::default();
        let mut looks = 0;
        for branch in &self.branches {
            let mut came = SlotSet::default();
            came.add(own);
            if branch.shut(number, &mut looks) {
                branch.load.0.with_mut(|load| {
                    // SAFETY: combining_tree.B1 - the helper is done, and no helper claims the
                    // branch for this number again.
                    let load = unsafe { &mut *load };
                    came = came.or(load.slots);
                    load.hand_over(collected, &mut harvest);
                });
            }
            self.choose_members(branch, came);
            // BUG: a reader visits only the first branch (combining_tree.B2's tree).
            if seeded_bug!("forgotten-branch") {
                break;
            }
        }
        harvest
    }

    fn members_are_disjoint(&self) -> bool {
        let mut seen = SlotSet::default();
        self.branches.iter().map(|branch| branch.members.get()).all(|members| {
            let is_new = members.and(seen).is_empty();
            seen = seen.or(members);
            is_new
        })
    }

    /// Makes members of the slots that were collected and of those that joined, and takes the
    /// latter from other branches (combining_tree.B3, combining_tree.B6).
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
        debug_assert!(
            self.members_are_disjoint(),
            "combining_tree.B3: a slot is a member of two branches"
        );
    }
}
