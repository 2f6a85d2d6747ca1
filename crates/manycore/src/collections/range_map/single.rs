//! Fast path for updates of ranges that lie in one slot without a branch, as most ranges do. It is
//! a brief claim of one lock bit (range_map.R4), without the bookkeeping for several branches.
//! Where it cannot succeed at once, the caller uses a [`Claim`](super::claim::Claim).

use super::RangeMap;
use super::claim::unlock_slots;
use super::error::RangeError;
use super::parts::{MAX_PARTS, Part, clip};
use super::trie::{
    Branch, Entry, OwnEntry, ROOT_LEVEL, Slot, bits, brief_level, decode, parts_of, slot_of,
};
use super::write::{Pieces, change_slot, overlap, settle};
use crate::section::Section;
use crate::sync::{LoadToChange, Ordering, prefetch};
use std::ops::RangeInclusive;

/// A locked slot that has all keys of a range. Dropping this unlocks the slot.
struct Single<'s, V> {
    map: &'s RangeMap<V>,
    section: &'s Section<'s>,
    branch: &'s Branch<V>,
    at: usize,
    keys: (u64, u64),
    /// True if the update removes keys, so that the branch may be empty afterwards.
    removes: bool,
}

impl<'s, V> Single<'s, V> {
    /// Locks the slot, if all keys are in one slot that is free and needs no branch.
    #[inline(always)]
    fn lock(
        map: &'s RangeMap<V>,
        section: &'s Section<'s>,
        keys: (u64, u64),
        removes: bool,
    ) -> Option<Single<'s, V>> {
        let (mut branch, highest) = (&map.root, brief_level(keys.0, keys.1));
        let at = loop {
            let at = slot_of(keys.0, branch.level);
            if at != slot_of(keys.1, branch.level) {
                return None;
            }
            let word = branch.word(at, section);
            // SAFETY: range_map.R6 - from the root or a branch that the section could reach.
            match unsafe { decode::<V>(word, section) } {
                Slot::Branch(below) if below.holds(keys.0, keys.1) => branch = below,
                Slot::Branch(_) => return None,
                _ if branch.level <= highest => {
                    // Overlaps with the locked instruction, which later loads wait for.
                    prefetch(word);
                    break at;
                }
                _ => return None,
            }
        };
        let (bit, is_whole) = (bits(at, at), keys == branch.span(at));
        if is_whole {
            // The range is the whole slot, so a branch below it would separate no threads. So
            // contention for the word is no reason to give way. A bit that is set already stays
            // set.
            // ORDER: Acquire; pairs with Release in `unlock_slots` (range_map.R2).
            if branch.locks.fetch_or(bit, Ordering::Acquire) & bit != 0 {
                return None;
            }
        } else {
            // ORDER: Relaxed; the compare-exchange decides.
            let seen = branch.locks.load_to_change(Ordering::Relaxed);
            if seen & bit != 0 {
                return None;
            }
            // ORDER: Acquire, as above. Relaxed on failure.
            let next = seen | bit;
            let taken =
                branch.locks.compare_exchange(seen, next, Ordering::Acquire, Ordering::Relaxed);
            taken.ok()?;
        }
        let locked = Single { map, section, branch, at, keys, removes };
        // ORDER: Relaxed; as in `Claim::lock_slots`.
        let is_dead = branch.is_dead.load(Ordering::Relaxed);
        (!is_dead && !matches!(locked.slot(), Slot::Branch(_))).then_some(locked)
    }

    #[inline(always)]
    fn slot(&self) -> Slot<'s, V> {
        // SAFETY: range_map.R6 - the section could reach the branch.
        unsafe { decode(self.branch.word_to_change(self.at), self.section) }
    }

    /// Returns the parts of the slot. `whole` is the caller's buffer for a single part.
    #[inline(always)]
    fn parts<'a>(&'a self, whole: &'a mut Part) -> &'a [Part] {
        let (word, span) = (self.branch.word_to_change(self.at), self.branch.span(self.at));
        parts_of(word, self.slot(), span, whole)
    }

    /// Returns the first keys of the range that have an entry, if any.
    #[inline(always)]
    fn first_taken(&self, parts: &[Part]) -> Option<RangeInclusive<u64>> {
        let mut met = parts.iter().map(Part::keys).filter(|keys| overlap(*keys, self.keys));
        let (first, mut last) = met.next()?;
        for next in met {
            if last.wrapping_add(1) != next.0 {
                break;
            }
            last = next.1;
        }
        let taken = clip((first, last), self.keys.0, self.keys.1);
        Some(taken.0..=taken.1)
    }
}

impl<V> Drop for Single<'_, V> {
    #[inline(always)]
    fn drop(&mut self) {
        let (branch, map) = (self.branch, self.map);
        let is_empty = self.removes && branch.used_locked() == 0 && branch.level < ROOT_LEVEL;
        let prunes = is_empty && map.list_empty(branch, self.section);
        unlock_slots(branch, bits(self.at, self.at));
        if prunes {
            map.prune_listed(self.section);
        }
    }
}

/// Inserts a value if none of the keys has one. Returns the value as `Err` if a claim is needed.
#[inline]
pub(super) fn insert<'s, V: Send + Sync>(
    map: &'s RangeMap<V>,
    section: &'s Section<'s>,
    keys: (u64, u64),
    value: V,
) -> Result<Result<&'s V, RangeError>, V> {
    let Some(single) = Single::lock(map, section, keys, false) else {
        return Err(value);
    };
    let mut whole = Part::NONE;
    let parts = single.parts(&mut whole);
    if let Some(taken) = single.first_taken(parts) {
        drop(single); // so that the value is dropped without the lock
        return Ok(Err(RangeError::Overlap { range: keys.0..=keys.1, taken }));
    }
    if parts.len() == MAX_PARTS {
        drop(single);
        return Err(value);
    }
    let word = OwnEntry::new(keys.0, keys.1, value).into_word();
    let changed =
        change_slot(single.branch, single.at, keys, word, section, true, &mut Pieces::new());
    debug_assert!(changed, "range_map.R9: the slot has room for a part, and no branch");
    // SAFETY: linked under the slot's lock bit just now, and retired only after it was unlinked.
    // The section keeps it (range_map.R6).
    Ok(Ok(unsafe { &(*word.cast::<Entry<V>>()).value }))
}

/// Removes the values of the keys. Returns `None` if a claim is needed.
#[inline]
pub(super) fn remove<'s, V: Send + Sync>(
    map: &'s RangeMap<V>,
    section: &'s Section<'s>,
    keys: (u64, u64),
) -> Option<Pieces<'s, V>> {
    let single = Single::lock(map, section, keys, true)?;
    let mut pieces = Pieces::new();
    change_slot(single.branch, single.at, keys, std::ptr::null_mut(), section, true, &mut pieces)
        .then(|| {
            settle(&pieces, section);
            pieces
        })
}
