//! Changes of the slots that a claim holds, and the retirement of the entries that leave the map
//! (range_map.R3, range_map.R5 and range_map.R6).

use super::claim::Claim;
use super::error::RangeError;
use super::parts::{Part, Parts, clip, retire_list};
use super::trie::{
    Branch, Entry, OwnEntry, Slot, Slots, bits, brief_level, decode, free_branch, free_entry,
    parts_of, slot_of, word_of,
};
use crate::section::{Section, Weight};
use crate::sync::{Ordering, seeded_bug};
use std::ops::{ControlFlow, RangeInclusive};
use std::ptr::{self, NonNull};

/// Adjacent keys from which one entry was unlinked.
pub(super) struct Piece<'s, V> {
    pub(super) first: u64,
    pub(super) last: u64,
    pub(super) entry: &'s Entry<V>,
}

/// All unlinked pieces, in the order of the keys.
pub(super) struct Pieces<'s, V> {
    /// The last piece. Most removals have only this one.
    near: Option<Piece<'s, V>>,
    far: Vec<Piece<'s, V>>,
}

impl<'s, V> Pieces<'s, V> {
    pub(super) fn new() -> Self {
        Self { near: None, far: Vec::new() }
    }

    /// Adds the entry of a slot. Slots come in the order of their keys.
    #[inline]
    fn push(&mut self, (first, last): (u64, u64), entry: &'s Entry<V>) {
        match &mut self.near {
            Some(near) if ptr::eq(near.entry, entry) && near.last.wrapping_add(1) == first => {
                near.last = last;
            }
            near => {
                let before = near.replace(Piece { first, last, entry });
                self.far.extend(before);
            }
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Piece<'s, V>> {
        self.far.iter().chain(&self.near)
    }

    /// Returns all pieces but the last, and the last.
    pub(super) fn into_parts(self) -> (std::vec::IntoIter<Piece<'s, V>>, Option<Piece<'s, V>>) {
        (self.far.into_iter(), self.near)
    }
}

impl<'s, V> Claim<'s, V> {
    fn decoded(&self, word: *mut ()) -> Slot<'s, V> {
        // SAFETY: range_map.R6 - claims find words in linked branches while their section is open.
        unsafe { decode(word, self.section) }
    }

    /// Sets each key of the range to this word, which is null or an entry's. The replaced entries
    /// go to `out`.
    pub(super) fn put(&mut self, range: (u64, u64), word: *mut (), out: &mut Pieces<'s, V>) {
        debug_assert!(
            self.first <= range.0 && range.1 <= self.last,
            "range_map.R2: a claim changes a key outside of it"
        );
        self.brief_level = brief_level(range.0, range.1);
        self.put_in(self.top, range, word, out);
    }

    fn put_in(
        &mut self,
        branch: &'s Branch<V>,
        (first, last): (u64, u64),
        word: *mut (),
        out: &mut Pieces<'s, V>,
    ) {
        let (mut from, end) = (slot_of(first, branch.level), slot_of(last, branch.level));
        let all = bits(from, end);
        let is_free = !word.is_null() && branch.used_locked() & all == 0;
        if is_free && branch.level <= self.brief_level {
            // In whole or in part: the entry was inserted for no other keys of these slots.
            return self.put_run(branch, all, word, out);
        }
        let part = |at: usize| clip(branch.span(at), first, last);
        let is_whole = |at: usize| part(at) == branch.span(at);
        if !is_whole(from) {
            self.put_part(branch, from, part(from), word, out);
            from += 1;
        }
        let has_tail = from <= end && !is_whole(end);
        let whole = end + 1 - usize::from(has_tail);
        if from < whole {
            self.put_run(branch, bits(from, whole - 1), word, out);
        }
        if has_tail {
            self.put_part(branch, end, part(end), word, out);
        }
    }

    /// Sets a part of a slot to this word.
    fn put_part(
        &mut self,
        branch: &'s Branch<V>,
        at: usize,
        part: (u64, u64),
        word: *mut (),
        out: &mut Pieces<'s, V>,
    ) {
        let may_list = branch.level <= self.brief_level;
        if !change_slot(branch, at, part, word, self.section, may_list, out) {
            let below = self.branch_below(branch, at, part);
            self.put_in(below, part, word, out);
        }
    }

    /// Sets these slots to this word.
    fn put_run(&self, branch: &'s Branch<V>, slots: u64, word: *mut (), out: &mut Pieces<'s, V>) {
        let used = branch.used_locked() & slots;
        if word.is_null() {
            for at in Slots(used) {
                self.put_slot(branch, at, word, out);
            }
            branch.note_unused(used);
            return;
        }
        for at in Slots(slots) {
            if used >> at & 1 == 0 {
                branch.set(at, word);
            } else {
                self.put_slot(branch, at, word, out);
            }
        }
        branch.note_used(slots);
    }

    /// Adds the entries of an unlinked word of a slot with this span to `out`.
    fn take_out(&self, word: *mut (), span: (u64, u64), out: &mut Pieces<'s, V>) {
        match self.decoded(word) {
            Slot::Empty => {}
            Slot::Entry(entry) => out.push(entry.part_in(span), entry),
            Slot::Parts(parts) => {
                for part in parts {
                    // SAFETY: range_map.R6 - it was in the list, and the section keeps it.
                    out.push(part.keys(), unsafe { &*part.entry.cast::<Entry<V>>() });
                }
                // SAFETY: range_map.R9 - the caller has unlinked it under its lock bit.
                unsafe { retire_list(word, self.section) };
            }
            Slot::Branch(below) => self.retire_all(below, out),
        }
    }

    fn put_slot(&self, branch: &'s Branch<V>, at: usize, word: *mut (), out: &mut Pieces<'s, V>) {
        let old = branch.word_to_change(at);
        branch.set(at, word);
        self.take_out(old, branch.span(at), out);
    }

    /// Adds all entries below a branch to `out`, and retires the branch. It was unlinked under the
    /// lock bits of all its slots.
    fn retire_all(&self, branch: &'s Branch<V>, out: &mut Pieces<'s, V>) {
        for at in Slots(branch.used()) {
            self.take_out(branch.word_to_change(at), branch.span(at), out);
        }
        retire_branch(branch, self.section);
    }

    /// Returns the first claimed keys of the range that have an entry, if any.
    pub(super) fn first_taken(&self, range: (u64, u64)) -> Option<RangeInclusive<u64>> {
        let mut taken: Option<(u64, u64)> = None;
        let _ = visit(self.top, range, self.section, &mut |part, _| match &mut taken {
            Some(run) if run.1.wrapping_add(1) != part.0 => ControlFlow::Break(()),
            Some(run) => {
                run.1 = part.1;
                ControlFlow::Continue(())
            }
            none => {
                *none = Some(part);
                ControlFlow::Continue(())
            }
        });
        taken.map(|(first, last)| first..=last)
    }
}

#[inline(always)]
pub(super) fn overlap(keys: (u64, u64), range: (u64, u64)) -> bool {
    range.0 <= keys.1 && keys.0 <= range.1
}

fn is_within(keys: (u64, u64), range: (u64, u64)) -> bool {
    range.0 <= keys.0 && keys.1 <= range.1
}

/// Sets the keys of a range that lie in this locked slot to a word: null, or that of an entry that
/// was inserted for exactly these keys of the slot. Returns false and changes nothing if that needs
/// a branch or, unless `may_list`, a list of parts.
#[inline(always)]
pub(super) fn change_slot<'s, V>(
    branch: &'s Branch<V>,
    at: usize,
    range: (u64, u64),
    word: *mut (),
    section: &'s Section<'_>,
    may_list: bool,
    out: &mut Pieces<'s, V>,
) -> bool {
    let (old, span) = (branch.word_to_change(at), branch.span(at));
    // SAFETY: range_map.R6 - from a linked branch, and the section is open.
    let slot = unsafe { decode(old, section) };
    match slot {
        Slot::Branch(_) => false,
        Slot::Empty if word.is_null() => true,
        Slot::Empty if may_list => {
            branch.set(at, word);
            branch.set_used(bits(at, at));
            true
        }
        Slot::Entry(entry) if word.is_null() && is_within(entry.part_in(span), range) => {
            branch.set(at, word);
            branch.set_unused(bits(at, at));
            out.push(entry.part_in(span), entry);
            true
        }
        _ => may_list && change_parts(branch, at, range, (word, slot), section, out),
    }
}

/// Does the work of [`change_slot`] with a new list.
fn change_parts<'s, V>(
    branch: &'s Branch<V>,
    at: usize,
    range: (u64, u64),
    (entry, slot): (*mut (), Slot<'s, V>),
    section: &'s Section<'_>,
    out: &mut Pieces<'s, V>,
) -> bool {
    let (before, span, mut whole) = (branch.word_to_change(at), branch.span(at), Part::NONE);
    let old = parts_of(before, slot, span, &mut whole);
    let taken = || old.iter().filter(|part| overlap(part.keys(), range));
    if entry.is_null() && taken().next().is_none() {
        return true;
    }
    let new = Parts::replaced(old, range, entry);
    if !new.fit_in_list() {
        return false;
    }
    // SAFETY: the parts are in the slot or about to be, so their entries are linked.
    let word = unsafe { word_of::<V>(&new, span) };
    branch.set(at, word);
    if word.is_null() {
        branch.set_unused(bits(at, at));
    } else if before.is_null() {
        branch.set_used(bits(at, at));
    }
    for part in taken() {
        // SAFETY: range_map.R6 - it was in the slot, and the section keeps it.
        let entry = unsafe { &*part.entry.cast::<Entry<V>>() };
        out.push(clip(part.keys(), range.0, range.1), entry);
    }
    if let Slot::Parts(_) = slot {
        // SAFETY: range_map.R9 - unlinked just now, under the lock bit.
        unsafe { retire_list(before, section) };
    }
    true
}

/// Calls `f` with the keys of the range that have an entry, slot by slot, in order. Needs no lock;
/// without a lock it sees each slot as it is when it gets there.
pub(super) fn visit<'s, V, B>(
    branch: &'s Branch<V>,
    (first, last): (u64, u64),
    section: &'s Section<'_>,
    f: &mut impl FnMut((u64, u64), &'s Entry<V>) -> ControlFlow<B>,
) -> ControlFlow<B> {
    let (first, last) = (first.max(branch.first), last.min(branch.last()));
    if first > last {
        return ControlFlow::Continue(()); // the branch has other keys of its slot
    }
    let wanted = bits(slot_of(first, branch.level), slot_of(last, branch.level));
    for at in Slots(branch.used() & wanted) {
        // SAFETY: range_map.R6 - from a branch that the section could reach.
        match unsafe { decode(branch.word(at, section), section) } {
            Slot::Empty => {}
            Slot::Entry(entry) => {
                let part = clip(entry.part_in(branch.span(at)), first, last);
                if part.0 <= part.1 {
                    f(part, entry)?;
                }
            }
            Slot::Parts(parts) => {
                for part in parts {
                    let keys = clip(part.keys(), first, last);
                    if keys.0 <= keys.1 {
                        // SAFETY: range_map.R6 - in a list that the section keeps.
                        f(keys, unsafe { &*part.entry.cast::<Entry<V>>() })?;
                    }
                }
            }
            Slot::Branch(below) => visit(below, (first, last), section, f)?,
        }
    }
    ControlFlow::Continue(())
}

/// As [`visit`], from the last key to the first.
pub(super) fn visit_back<'s, V, B>(
    branch: &'s Branch<V>,
    (first, last): (u64, u64),
    section: &'s Section<'_>,
    f: &mut impl FnMut((u64, u64), &'s Entry<V>) -> ControlFlow<B>,
) -> ControlFlow<B> {
    let (first, last) = (first.max(branch.first), last.min(branch.last()));
    if first > last {
        return ControlFlow::Continue(());
    }
    let mut left = branch.used() & bits(slot_of(first, branch.level), slot_of(last, branch.level));
    while left != 0 {
        let at = left.ilog2() as usize;
        left &= !bits(at, at);
        // SAFETY: range_map.R6 - from a branch that the section could reach.
        match unsafe { decode(branch.word(at, section), section) } {
            Slot::Empty => {}
            Slot::Entry(entry) => {
                let part = clip(entry.part_in(branch.span(at)), first, last);
                if part.0 <= part.1 {
                    f(part, entry)?;
                }
            }
            Slot::Parts(parts) => {
                for part in parts.iter().rev() {
                    let keys = clip(part.keys(), first, last);
                    if keys.0 <= keys.1 {
                        // SAFETY: range_map.R6 - in a list that the section keeps.
                        f(keys, unsafe { &*part.entry.cast::<Entry<V>>() })?;
                    }
                }
            }
            Slot::Branch(below) => visit_back(below, (first, last), section, f)?,
        }
    }
    ControlFlow::Continue(())
}

/// Retires a branch that was unlinked under all its lock bits.
pub(super) fn retire_branch<V>(branch: &Branch<V>, section: &Section<'_>) {
    // ORDER: Release; pairs with Acquire in `Claim::wait_for`: the link to its successor.
    branch.is_dead.store(true, Ordering::Release);
    let weight = Weight::exact(size_of::<Branch<V>>());
    let address = NonNull::from(branch).cast();
    // SAFETY: range_map.R6 - from a box (`Branch::into_word`). The caller has unlinked it under all
    // its lock bits, so once. It does not own the nodes that it leads to.
    unsafe { section.retire_raw_quietly(address, weight, free_branch::<V>) };
}

/// Subtracts the pieces' keys from their entries, and retires the entries that have no keys left
/// (range_map.R5). Called after the slots were changed.
#[inline]
pub(super) fn settle<V: Send>(pieces: &Pieces<'_, V>, section: &Section<'_>) {
    for Piece { first, last, entry } in pieces.iter() {
        let keys = (last - first).wrapping_add(1);
        // ORDER: Acquire; pairs with Release below: the other threads' changes of slots come
        // before.
        let all = entry.keys.load(Ordering::Acquire) == keys;
        // BUG: the first thread that subtracts keys from an entry retires it (range_map.R5).
        let is_last = if all || seeded_bug!("retired-by-the-first") {
            true
        } else {
            // ORDER: AcqRel; Release pairs with Acquire here and above: the thread that subtracts
            // the last keys comes after all other threads' changes of slots.
            let before = entry.keys.fetch_sub(keys, Ordering::AcqRel);
            before == keys
        };
        if is_last {
            let weight = const { Weight::of::<Entry<V>>() };
            let address = NonNull::from(*entry).cast();
            // SAFETY: range_map.R5 - from a box, and no slot leads to it any more. Only the thread
            // that subtracts its last keys comes here. `V: Send`.
            unsafe { section.retire_raw_quietly(address, weight, free_entry::<V>) };
        }
    }
}

/// Links a value if its keys have none. Otherwise returns it, so that it is dropped without a lock.
pub(super) fn insert_claimed<'s, V: Send + Sync>(
    claim: &mut Claim<'s, V>,
    keys: (u64, u64),
    value: V,
) -> Result<&'s V, (RangeError, V)> {
    if let Some(taken) = claim.first_taken(keys) {
        return Err((RangeError::Overlap { range: keys.0..=keys.1, taken }, value));
    }
    let word = OwnEntry::new(keys.0, keys.1, value).into_word();
    let mut none = Pieces::new();
    claim.put(keys, word, &mut none);
    debug_assert!(none.iter().next().is_none(), "range_map.R2: a key is filled twice");
    // SAFETY: linked under the lock bits of its slots just now, and retired only after it was
    // unlinked. The claim's section keeps it (range_map.R6).
    Ok(unsafe { &(*word.cast::<Entry<V>>()).value })
}

/// Replaces the entries of the keys by `entry`, or removes them if it is `None`.
pub(super) fn replace_claimed<'s, V: Send + Sync>(
    claim: &mut Claim<'s, V>,
    keys: (u64, u64),
    entry: Option<OwnEntry<V>>,
) -> Pieces<'s, V> {
    let mut pieces = Pieces::new();
    let word = entry.map_or(ptr::null_mut(), OwnEntry::into_word);
    claim.put(keys, word, &mut pieces);
    settle(&pieces, claim.section);
    pieces
}
