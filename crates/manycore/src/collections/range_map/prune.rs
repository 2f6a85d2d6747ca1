//! Pruning: unlinks and frees branches that have become empty (range_map.R8).

use super::RangeMap;
use super::claim::unlock_slots;
use super::trie::{ALL, Branch, ROOT_LEVEL, Slot, Slots, bits, decode, slot_of};
use super::write::retire_branch;
use crate::config::RANGE_BRANCHES_KEPT;
use crate::section::Section;
use crate::sync::{Ordering, seeded_bug};
use std::ptr;

/// The result of pruning a branch.
enum Pruned {
    /// It is unlinked, and the branch above, at this key and level, is now empty.
    Above(u64, u32),
    Done,
    /// Another thread holds a lock bit.
    Busy,
}

impl<V> RangeMap<V> {
    /// Adds a branch that the calling thread has found empty to its list, unless a thread has
    /// listed it already. Returns true if the list is longer than it may be.
    pub(super) fn list_empty(&self, branch: &Branch<V>, section: &Section<'_>) -> bool {
        // ORDER: Relaxed (both); a branch that is overlooked is listed when it is next used.
        if branch.is_listed.load(Ordering::Relaxed)
            || branch.is_listed.swap(true, Ordering::Relaxed)
        {
            return false;
        }
        let record = self.records.own(section.slot());
        record.with_listed(|listed| {
            listed.push_back((branch.first, branch.level));
            listed.len() > RANGE_BRANCHES_KEPT
        })
    }

    /// Prunes branches from the calling thread's list while it is longer than it may be.
    #[cold]
    pub(super) fn prune_listed(&self, section: &Section<'_>) {
        let record = self.records.own(section.slot());
        // Up to two, because a busy branch returns to the list.
        for _ in 0..2 {
            let oldest = record.with_listed(|listed| {
                if listed.len() > RANGE_BRANCHES_KEPT { listed.pop_front() } else { None }
            });
            let Some((first, level)) = oldest else { return };
            if !self.prune(first, level, section) {
                record.with_listed(|listed| listed.push_back((first, level)));
            }
        }
    }

    /// Prunes the branch at this key and level if it is empty, and then each branch above that has
    /// become empty. Returns false if a lock bit is taken.
    fn prune(&self, mut first: u64, mut level: u32, section: &Section<'_>) -> bool {
        loop {
            match self.prune_one(first, level, section) {
                Pruned::Above(above, higher) => (first, level) = (above, higher),
                Pruned::Done => return true,
                Pruned::Busy => return false,
            }
        }
    }

    fn prune_one(&self, first: u64, level: u32, section: &Section<'_>) -> Pruned {
        let mut above = &self.root;
        let (at, branch) = loop {
            let at = slot_of(first, above.level);
            // SAFETY: range_map.R6 - from the root or a branch that the section could reach.
            match unsafe { decode::<V>(above.word(at, section), section) } {
                Slot::Branch(below) if below.level > level => above = below,
                Slot::Branch(below) if below.level == level && below.first == first => {
                    break (at, below);
                }
                _ => return Pruned::Done, // unlinked already
            }
        };
        if branch.used() != 0 {
            // ORDER: Relaxed; as in `list_empty`.
            branch.is_listed.store(false, Ordering::Relaxed);
            return Pruned::Done;
        }
        let slot = bits(at, at);
        if !try_lock(above, slot) {
            return Pruned::Busy;
        }
        let mut pruned = Pruned::Busy;
        let is_linked = !above.is_dead.load(Ordering::Relaxed)
            // SAFETY: range_map.R6 - `above` is not dead. The section keeps the node that its slot
            // leads to.
            && matches!(unsafe { decode::<V>(above.word_to_change(at), section) },
                Slot::Branch(below) if ptr::eq(below, branch));
        if is_linked && try_lock(branch, ALL) {
            // BUG: a branch is unlinked because it was empty before its lock bits were taken
            // (range_map.R8).
            if branch.used() == 0 || seeded_bug!("pruned-though-used") {
                above.set(at, ptr::null_mut());
                above.note_unused(slot);
                retire_branch(branch, section);
                let is_empty = above.level < ROOT_LEVEL && above.used() == 0;
                pruned =
                    if is_empty { Pruned::Above(above.first, above.level) } else { Pruned::Done };
            }
            unlock_slots(branch, ALL);
        }
        unlock_slots(above, slot);
        pruned
    }

    /// Prunes every branch that is empty and whose lock bits are free.
    pub(super) fn prune_all(&self, section: &Section<'_>) {
        let mut empty = Vec::new();
        collect_empty(&self.root, section, &mut empty);
        for (first, level) in empty {
            self.prune(first, level, section);
        }
    }
}

fn collect_empty<V>(branch: &Branch<V>, section: &Section<'_>, empty: &mut Vec<(u64, u32)>) {
    for at in Slots(branch.used()) {
        // SAFETY: range_map.R6 - from the root or a branch that the section could reach.
        if let Slot::Branch(below) = unsafe { decode::<V>(branch.word(at, section), section) } {
            collect_empty(below, section, empty);
            if below.used() == 0 {
                empty.push((below.first, below.level));
            }
        }
    }
}

/// Takes these lock bits if all are free.
fn try_lock<V>(branch: &Branch<V>, slots: u64) -> bool {
    // ORDER: Acquire; pairs with Release in `unlock_slots` (range_map.R2).
    let lock = |seen: u64| (seen & slots == 0).then_some(seen | slots);
    branch.locks.fetch_update(Ordering::Acquire, Ordering::Relaxed, lock).is_ok()
}
