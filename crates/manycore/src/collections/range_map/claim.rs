//! Claims: the lock bits of all slots that a range covers, taken in the order of their keys
//! (range_map.R2 and range_map.R4).

use super::RangeMap;
use super::error::RangeError;
use super::parts::{Part, clip, retire_list};
use super::records::{ALL_HELD, Record};
use super::trie::{
    ABOVE, ALL, Branch, Entry, ROOT_LEVEL, Slot, Slots, bits, brief_level, decode, level_for,
    parts_of, slot_of,
};
use crate::lock::{self, Hold, Refused};
use crate::profile::Of;
use crate::section::Section;
use crate::sync::{Backoff, LoadToChange, Ordering, seeded_bug};
use std::ptr;

/// Says whether a claim divides slots to fit its keys exactly, or takes a larger empty slot as it
/// is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Fit {
    /// Keys outside are not locked, and the claimed slots can be filled.
    Exact,
    /// Empty slots need not be divided, because nothing will be inserted.
    Loose,
}

/// Failed compare-exchanges on a branch's lock bits after which a brief claim gives way and takes a
/// branch of its own.
const MAX_CONFLICTS: u32 = 2;

/// The reason why locking stopped.
enum Stop {
    /// A branch on the way is dead. Descend again.
    Gone,
    /// A brief claim would have to wait.
    Busy,
    Refused(RangeError),
}

/// Lock bits that a claim holds in one branch.
type Held<'s, V> = (&'s Branch<V>, u64);

/// The locked slots of a range. Dropping this unlocks them.
pub(super) struct Claim<'s, V> {
    pub(super) map: &'s RangeMap<V>,
    pub(super) section: &'s Section<'s>,
    pub(super) first: u64,
    pub(super) last: u64,
    /// The lowest branch that is known to have the whole range. A lock bit in it or below keeps it
    /// alive.
    pub(super) top: &'s Branch<V>,
    fit: Fit,
    /// True if the claim is held for a moment and never waits. It locks a slot as a whole even if
    /// the range has only a part of it (range_map.R4).
    is_brief: bool,
    /// The highest level at which parts of slots are changed without making a branch for them.
    pub(super) brief_level: u32,
    /// First key of the first locked slot.
    low: u64,
    /// First key that is not locked yet, while lock bits are being taken.
    next: u64,
    /// The branch locked last, and the branches before it.
    near: Option<Held<'s, V>>,
    far: Vec<Held<'s, V>>,
    /// The thread's record, with its lock, once other threads may have to park for this claim.
    record: Option<(&'s Record, Hold<'s>)>,
}

impl<'s, V> Claim<'s, V> {
    /// Locks the range.
    ///
    /// # Errors
    /// `Nested` and `Deadlock`. Nothing is then locked.
    #[inline]
    pub(super) fn new(
        map: &'s RangeMap<V>,
        section: &'s Section<'s>,
        keys: (u64, u64),
        fit: Fit,
    ) -> Result<Self, RangeError> {
        let mut claim = Self::unlocked(map, section, keys, fit)?;
        claim.acquire()?;
        Ok(claim)
    }

    /// Locks the range for one update, together with the other keys of the slots at its ends. If
    /// other threads hold some of these, locks exactly the range, with branches for its ends.
    ///
    /// # Errors
    /// `Nested` and `Deadlock`. Nothing is then locked.
    #[inline]
    pub(super) fn brief(
        map: &'s RangeMap<V>,
        section: &'s Section<'s>,
        keys: (u64, u64),
        fit: Fit,
    ) -> Result<Self, RangeError> {
        let mut claim = Self::unlocked(map, section, keys, fit)?;
        claim.is_brief = true;
        claim.brief_level = brief_level(keys.0, keys.1);
        if let Err(stop) = claim.lock_all() {
            claim.give_way(stop)?;
        }
        Ok(claim)
    }

    fn unlocked(
        map: &'s RangeMap<V>,
        section: &'s Section<'s>,
        (first, last): (u64, u64),
        fit: Fit,
    ) -> Result<Self, RangeError> {
        map.records.forbid_nesting(section.slot(), (first, last))?;
        Ok(Self {
            map,
            section,
            first,
            last,
            top: &map.root,
            fit,
            is_brief: false,
            brief_level: 0,
            low: first,
            next: first,
            near: None,
            far: Vec::new(),
            record: None,
        })
    }

    /// Releases a brief claim's lock bits, and then locks exactly the range.
    #[cold]
    fn give_way(&mut self, stop: Stop) -> Result<(), RangeError> {
        if let Stop::Refused(error) = stop {
            return Err(error);
        }
        self.release();
        (self.is_brief, self.brief_level) = (false, 0);
        (self.top, self.low, self.next) = (&self.map.root, self.first, self.first);
        self.acquire()
    }

    fn slot(&self, word: *mut ()) -> Slot<'s, V> {
        // SAFETY: range_map.R6 - claims find words in linked branches while their section is open.
        unsafe { decode(word, self.section) }
    }

    fn acquire(&mut self) -> Result<(), RangeError> {
        self.lock_all().map_err(|stop| match stop {
            Stop::Refused(error) => error,
            Stop::Gone | Stop::Busy => unreachable!("only a brief claim gives way"),
        })
    }

    fn lock_all(&mut self) -> Result<(), Stop> {
        loop {
            if self.near.is_none() {
                self.top = self.descend(&self.map.root);
            }
            match self.lock_in(self.top, self.next, self.last) {
                Ok(()) => break,
                Err(Stop::Gone) => {}
                Err(stop) => return Err(stop),
            }
        }
        self.top = self.descend(self.top);
        Ok(())
    }

    /// Returns the lowest branch, from `top` down, that has the whole range and other keys.
    #[inline]
    fn descend(&self, mut top: &'s Branch<V>) -> &'s Branch<V> {
        loop {
            let slot = slot_of(self.first, top.level);
            if slot != slot_of(self.last, top.level) {
                return top;
            }
            match self.slot(top.word(slot, self.section)) {
                Slot::Branch(branch) if branch.holds_part(self.first, self.last) => top = branch,
                _ => return top,
            }
        }
    }

    /// Locks the slots from `first` to `last`, which are keys of `branch`.
    fn lock_in(&mut self, branch: &'s Branch<V>, first: u64, last: u64) -> Result<(), Stop> {
        let end = slot_of(last, branch.level);
        let mut at = slot_of(first, branch.level);
        while at <= end {
            let part = clip(branch.span(at), first, last);
            let is_whole = part == branch.span(at);
            let word = branch.word(at, self.section);
            match self.slot(word) {
                Slot::Branch(below) if is_whole => {
                    self.lock_slots(branch, bits(at, at))?;
                    if branch.word_to_change(at) == word {
                        self.lock_in(below, below.first, below.last())?;
                    } else if let Slot::Branch(_) = self.slot(branch.word_to_change(at)) {
                        self.unlock(branch, bits(at, at));
                        continue;
                    }
                }
                Slot::Branch(below) if below.holds_part(part.0, part.1) => {
                    self.lock_in(below, part.0, part.1)?;
                }
                slot if !is_whole && !self.takes_part(branch, slot) => {
                    self.divide(branch, at, part)?;
                    continue;
                }
                _ => {
                    at = self.lock_run(branch, at, end, (first, last))?;
                    continue;
                }
            }
            self.next = part.1.wrapping_add(1);
            at += 1;
        }
        Ok(())
    }

    /// Returns true if this slot is locked as it is, although the range has only a part of it.
    fn takes_part(&self, branch: &Branch<V>, slot: Slot<'s, V>) -> bool {
        match slot {
            Slot::Branch(_) => false,
            Slot::Empty if self.fit == Fit::Loose => true,
            _ => self.is_brief && branch.level <= self.brief_level,
        }
    }

    /// Returns true if the slot can be locked as it is, without descending below it.
    fn is_plain(&self, branch: &'s Branch<V>, at: usize, (first, last): (u64, u64)) -> bool {
        let (span, slot) = (branch.span(at), self.slot(branch.word_to_change(at)));
        let is_whole = clip(span, first, last) == span && !matches!(slot, Slot::Branch(_));
        is_whole || self.takes_part(branch, slot)
    }

    /// Locks the slots from `at` on up to the first that leads to a branch, by one instruction if
    /// all are free. Returns the slot after them. The range has the whole slot `at`, or may take it
    /// as it is.
    fn lock_run(
        &mut self,
        branch: &'s Branch<V>,
        at: usize,
        end: usize,
        range: (u64, u64),
    ) -> Result<usize, Stop> {
        let span = branch.span(end);
        let has_end = at == end
            || clip(span, range.0, range.1) == span
            || self.is_brief && branch.level <= self.brief_level;
        let to = if has_end { end } else { end - 1 };
        // As many as are free: what has been locked is looked at before this waits for more. A slot
        // that leads to a branch is not held, although its bit is (range_map.R7).
        let to = self.lock_slots(branch, bits(at, to))?.ilog2() as usize;
        // Some may lead to a branch. The slots after such a slot are locked in their turn
        // (range_map.R4).
        let used = branch.used() & bits(at, to);
        // BUG: a claim considers a slot locked although another thread has linked a branch in it
        // just before the lock bit was taken (range_map.R2).
        let is_plain = |at| seeded_bug!("branch-overlooked") || self.is_plain(branch, at, range);
        let other = Slots(used).find(|at| !is_plain(*at));
        let after = other.unwrap_or(to + 1);
        if other.is_some() {
            self.unlock(branch, bits(after, to));
        }
        if after > at {
            self.low = self.low.min(branch.span(at).0);
            self.next = branch.span(after - 1).1.min(range.1).wrapping_add(1);
        }
        Ok(after)
    }

    /// Links a branch in a slot, so that a part of the slot can be locked (range_map.R3).
    fn divide(&mut self, branch: &'s Branch<V>, at: usize, part: (u64, u64)) -> Result<(), Stop> {
        self.lock_slots(branch, bits(at, at))?;
        let word = branch.word_to_change(at);
        if let Some(between) = self.branch_for(branch, at, word, part) {
            self.link(branch, at, between);
        }
        self.unlock(branch, bits(at, at));
        Ok(())
    }

    /// Makes the branch that divides the locked slot for this part of it. Returns `None` if none is
    /// needed.
    fn branch_for(
        &self,
        branch: &'s Branch<V>,
        at: usize,
        word: *mut (),
        part: (u64, u64),
    ) -> Option<Box<Branch<V>>> {
        let span = branch.span(at);
        if part == span {
            return None;
        }
        let (slot, mut whole) = (self.slot(word), Part::NONE);
        let block = match slot {
            Slot::Branch(below) if below.holds_part(part.0, part.1) => return None,
            Slot::Branch(below) => (below.first, below.last()),
            _ => part,
        };
        let old = parts_of(word, slot, span, &mut whole);
        let block = old.iter().fold(block, |block, part| {
            // SAFETY: range_map.R6 - in the slot, so it is a linked entry.
            let keys = unsafe { &*part.entry.cast::<Entry<V>>() }.part_in(span);
            (block.0.min(keys.0), block.1.max(keys.1))
        });
        // The block has all keys of the slot for which its entries were inserted (range_map.R1).
        let (first, last) = (block.0.min(part.0), block.1.max(part.1));
        // As low as possible, because ranges come in clusters and each level costs every look-up a
        // load. But not lower than the levels at which ranges of this size share lists.
        let lists = self.brief_level.saturating_sub(ABOVE - 1);
        let least = if branch.level > self.brief_level { lists } else { 0 };
        let level = level_for(first, last).max(least).min(branch.level - 1);
        let between = Branch::new(level, first);
        if let Slot::Branch(below) = slot {
            between.adopt(below.first, word);
        } else {
            // SAFETY: the parts are in the slot, so their entries are linked.
            unsafe { between.adopt_parts(old) };
        }
        Some(between)
    }

    /// Links the branch in place of the nodes that it has adopted.
    fn link(&self, branch: &Branch<V>, at: usize, below: Box<Branch<V>>) {
        debug_assert!(below.level < branch.level, "range_map.R1: a branch above its slot");
        let old = branch.word_to_change(at);
        branch.note_used(bits(at, at));
        branch.set(at, below.into_word());
        if let Slot::Parts(_) = self.slot(old) {
            // SAFETY: range_map.R9 - unlinked just now, under the lock bit.
            unsafe { retire_list(old, self.section) };
        }
    }

    /// Returns the branch below a locked slot that has this part of the slot. All its slots are
    /// locked (range_map.R2). Divides the slot if there is no such branch.
    pub(super) fn branch_below(
        &mut self,
        branch: &'s Branch<V>,
        at: usize,
        part: (u64, u64),
    ) -> &'s Branch<V> {
        loop {
            let word = branch.word_to_change(at);
            if let Some(below) = self.branch_for(branch, at, word, part) {
                // ORDER: Relaxed; published by `link`.
                below.locks.store(ALL, Ordering::Relaxed);
                self.link(branch, at, below);
                let Slot::Branch(below) = self.slot(branch.word_to_change(at)) else {
                    unreachable!("linked just now, under the lock");
                };
                self.keep(below, ALL);
            } else if let Slot::Branch(below) = self.slot(word) {
                return below;
            }
        }
    }

    /// Takes the lock bits, the lowest first (range_map.R4). Waits for the first of them if it has
    /// to, but not for another. Returns those that it has taken.
    fn lock_slots(&mut self, branch: &'s Branch<V>, slots: u64) -> Result<u64, Stop> {
        let (mut backoff, mut conflicts) = (Backoff::new(), 0);
        // ORDER: Relaxed; the compare-exchange decides.
        let mut seen = branch.locks.load_to_change(Ordering::Relaxed);
        loop {
            // BUG: lock bits are taken although another thread holds them (range_map.R2).
            let taken = if seeded_bug!("locked-by-two") { 0 } else { seen & slots };
            let free = slots & (taken & taken.wrapping_neg()).wrapping_sub(1);
            if free == 0 {
                self.wait_for(branch, taken.trailing_zeros() as usize, &mut backoff)?;
                seen = branch.locks.load_to_change(Ordering::Relaxed);
                continue;
            }
            // ORDER: Acquire; pairs with Release in `unlock_slots` (range_map.R2). Relaxed on
            // failure.
            let next = seen | free;
            match branch.locks.compare_exchange_weak(
                seen,
                next,
                Ordering::Acquire,
                Ordering::Relaxed,
            ) {
                Ok(_) => {
                    // ORDER: Relaxed; it was set by a thread that held all lock bits, hence before
                    // that thread released this bit.
                    // BUG: a thread takes a lock bit of a dead branch as if the branch were linked
                    // (range_map.R8).
                    if branch.is_dead.load(Ordering::Relaxed) && !seeded_bug!("lock-of-the-dead") {
                        unlock_slots(branch, free);
                        return Err(Stop::Gone);
                    }
                    self.keep(branch, free);
                    return Ok(free);
                }
                Err(now) => {
                    seen = now;
                    conflicts += 1;
                    if self.is_brief && conflicts > MAX_CONFLICTS {
                        return Err(Stop::Busy);
                    }
                }
            }
        }
    }

    /// Records that the claim holds these lock bits.
    fn keep(&mut self, branch: &'s Branch<V>, slots: u64) {
        match &mut self.near {
            Some((near, held)) if ptr::eq(*near, branch) => *held |= slots,
            near => self.far.extend(near.replace((branch, slots))),
        }
    }

    /// Releases lock bits that were taken last.
    fn unlock(&mut self, branch: &'s Branch<V>, slots: u64) {
        debug_assert!(
            self.near.is_some_and(|(near, held)| ptr::eq(near, branch) && held & slots == slots),
            "range_map.R2: these lock bits were not taken last"
        );
        unlock_slots(branch, slots);
        if let Some((_, held)) = &mut self.near {
            *held &= !slots;
            if *held == 0 {
                self.near = self.far.pop();
            }
        }
    }

    /// Waits for a lock bit that another thread holds.
    #[cold]
    fn wait_for(
        &mut self,
        branch: &'s Branch<V>,
        at: usize,
        backoff: &mut Backoff,
    ) -> Result<(), Stop> {
        // ORDER: Acquire; pairs with Release in `retire_branch`: the link to the dead branch's
        // successor.
        if branch.is_dead.load(Ordering::Acquire) {
            return Err(Stop::Gone);
        }
        let in_model = cfg!(any(manycore_loom, manycore_shuttle));
        if self.is_brief && (in_model || backoff.is_long()) {
            return Err(Stop::Busy);
        }
        let span = branch.span(at);
        let holder = if !self.is_brief && (in_model || backoff.is_long()) {
            self.map.records.holder(span, self.section.slot())
        } else {
            None
        };
        let Some(holder) = holder else {
            backoff.pause(); // the holder is in a call that runs no user code
            return Ok(());
        };
        if self.near.is_some() {
            self.announce(span);
        }
        match holder.wait(span, Of::new("RangeMap", self.map)) {
            Ok(()) => Ok(()),
            Err(Refused::HeldBySelf) => {
                let range = self.first..=self.last;
                Err(Stop::Refused(RangeError::Nested { range, held: holder.range() }))
            }
            Err(_) if holder.has(span) => {
                Err(Stop::Refused(RangeError::Deadlock { range: self.first..=self.last }))
            }
            Err(_) => Ok(()),
        }
    }

    /// Lets other threads park for this thread, which holds all keys of the range before the slot
    /// `want`.
    fn announce(&mut self, want: (u64, u64)) {
        let range = (self.low, self.last);
        if let Some((record, _)) = &self.record {
            return record.set(range, want);
        }
        let record = self.map.records.own(self.section.slot());
        record.set(range, want);
        self.record = Some((record, record.lock(Of::new("RangeMap", self.map))));
    }

    /// Prepares the claim for user code that runs under it: threads that need its keys park, and
    /// cycles are found.
    pub(super) fn open_to_user(&mut self) {
        self.announce(ALL_HELD);
        lock::held::enter();
    }

    /// Releases the lock bits and the record.
    fn release(&mut self) {
        let mut prunes = false;
        while let Some((branch, slots)) = self.near.take() {
            if branch.used() == 0 && branch.level < ROOT_LEVEL {
                prunes |= self.map.list_empty(branch, self.section);
            }
            unlock_slots(branch, slots);
            self.near = self.far.pop();
        }
        if let Some((record, hold)) = self.record.take() {
            record.clear();
            drop(hold);
        }
        if prunes {
            self.map.prune_listed(self.section);
        }
    }
}

impl<V> Drop for Claim<'_, V> {
    #[inline]
    fn drop(&mut self) {
        self.release();
    }
}

/// Releases these lock bits.
#[inline]
pub(super) fn unlock_slots<V>(branch: &Branch<V>, slots: u64) {
    // ORDER: Release; pairs with Acquire in `lock_slots` (range_map.R2). Other threads change the
    // word by read-modify-writes, so they continue its release sequence.
    let old = branch.locks.fetch_and(!slots, Ordering::Release);
    debug_assert!(old & slots == slots, "range_map.R2: unlocks a slot that is not locked");
}
