//! Lists of parts, for slots whose keys have a few entries: too few for a branch (range_map.R9).

use crate::section::{Section, Weight};
use crate::slab::classes::{self, ALIGN};
use std::alloc::Layout;
use std::ptr::{self, NonNull};

/// Maximum number of parts in a list. A slot with more parts gets a branch.
pub(super) const MAX_PARTS: usize = if cfg!(any(manycore_loom, manycore_shuttle)) { 1 } else { 7 };
/// Room for the parts of a new list: an update may cut a part in two and add a part before the list
/// turns out to be too long.
const CAPACITY: usize = MAX_PARTS + 2;

/// Bits of a word that contain the length of its list. Zero if the word leads to an entry.
pub(super) const LEN: usize = 0b1110;
const LEN_SHIFT: u32 = 1;

/// Keys within one slot, and the entry that they have.
#[derive(Clone, Copy)]
pub(super) struct Part {
    pub(super) first: u64,
    pub(super) last: u64,
    /// The word of a slot that leads to the entry.
    pub(super) entry: *mut (),
}

impl Part {
    pub(super) const NONE: Self = Self { first: 1, last: 0, entry: ptr::null_mut() };

    pub(super) fn keys(&self) -> (u64, u64) {
        (self.first, self.last)
    }

    #[inline(always)]
    pub(super) fn has(&self, key: u64) -> bool {
        key.wrapping_sub(self.first) <= self.last - self.first
    }
}

fn layout(len: usize) -> Layout {
    match Layout::array::<Part>(len).and_then(|layout| layout.align_to(ALIGN)) {
        Ok(layout) => layout,
        Err(_) => unreachable!("a list of a few parts"),
    }
}

fn len_of(word: *mut ()) -> usize {
    (word.addr() & LEN) >> LEN_SHIFT
}

/// Returns the list that a word with a length leads to.
///
/// # Safety
/// The word comes from [`Parts::to_list`], and the list is freed after `'s`.
#[inline(always)]
pub(super) unsafe fn list<'s>(word: *mut ()) -> &'s [Part] {
    let parts = word.map_addr(|bits| bits & !LEN).cast::<Part>();
    // SAFETY: range_map.R9 - `to_list` wrote as many parts there, which never change. The caller
    // keeps the list (# Safety).
    unsafe { std::slice::from_raw_parts(parts, len_of(word)) }
}

/// Frees a list, but none of the entries.
///
/// # Safety
/// The word comes from [`Parts::to_list`], and no other thread has the list.
pub(super) unsafe fn free_list(word: NonNull<()>) {
    let word = word.as_ptr();
    let layout = layout(len_of(word));
    let Some(list) = NonNull::new(word.map_addr(|bits| bits & !LEN).cast()) else {
        unreachable!("a list has an address")
    };
    // SAFETY: `to_list` allocated it with the layout for this length. No other thread has it
    // (# Safety).
    unsafe { classes::free(list, layout) };
}

/// Retires a list: it is freed after the grace period.
///
/// # Safety
/// The word comes from [`Parts::to_list`]. The caller has unlinked it under its slot's lock bit,
/// and retires it once.
pub(super) unsafe fn retire_list(word: *mut (), section: &Section<'_>) {
    let weight = Weight::exact(layout(len_of(word)).size());
    // The whole word, because `free_list` takes the length from it.
    let Some(address) = NonNull::new(word) else { unreachable!("a list has an address") };
    // SAFETY: range_map.R9 - unlinked, and by one thread (# Safety).
    unsafe { section.retire_raw_quietly(address, weight, free_list) };
}

/// The parts of a slot during an update, in order.
pub(super) struct Parts {
    parts: [Part; CAPACITY],
    len: usize,
}

impl Parts {
    pub(super) fn new() -> Self {
        Self { parts: [Part::NONE; CAPACITY], len: 0 }
    }

    #[inline]
    fn push(&mut self, part: Part) {
        self.parts[self.len] = part;
        self.len += 1;
    }

    /// Returns the parts of a slot after an update: removes the keys from `old` and, unless `entry`
    /// is null, adds them with that entry.
    pub(super) fn replaced(old: &[Part], keys: (u64, u64), entry: *mut ()) -> Self {
        let mut new = Self::new();
        let mut added = entry.is_null();
        for part in old {
            if part.first < keys.0 {
                new.push(Part { last: part.last.min(keys.0 - 1), ..*part });
            }
            if part.last >= keys.0 && !added {
                new.push(Part { first: keys.0, last: keys.1, entry });
                added = true;
            }
            if part.last > keys.1 {
                new.push(Part { first: part.first.max(keys.1 + 1), ..*part });
            }
        }
        if !added {
            new.push(Part { first: keys.0, last: keys.1, entry });
        }
        new
    }

    /// Returns true if the parts fit in a list.
    pub(super) fn fit_in_list(&self) -> bool {
        self.len <= MAX_PARTS
    }

    pub(super) fn as_slice(&self) -> &[Part] {
        &self.parts[..self.len]
    }

    /// Allocates a list of these parts, and returns the word that leads to it.
    pub(super) fn to_list(&self) -> *mut () {
        debug_assert!(self.fit_in_list(), "range_map.R9: a list is too long");
        let layout = layout(self.len);
        assert!(self.len > 0, "a slot without parts is empty");
        let list = classes::allocate(layout).as_ptr();
        // SAFETY: just allocated, with room for as many parts.
        unsafe { ptr::copy_nonoverlapping(self.parts.as_ptr(), list.cast::<Part>(), self.len) };
        list.cast::<()>().map_addr(|bits| bits | self.len << LEN_SHIFT)
    }
}

/// Returns the parts that are in a span, clipped to it.
pub(super) fn parts_in(parts: &[Part], span: (u64, u64)) -> Parts {
    let mut inside = Parts::new();
    for part in parts {
        let (first, last) = clip(part.keys(), span.0, span.1);
        if first <= last {
            inside.push(Part { first, last, ..*part });
        }
    }
    inside
}

/// Returns the part of a span that is in a range.
#[inline(always)]
pub(super) fn clip(span: (u64, u64), first: u64, last: u64) -> (u64, u64) {
    (span.0.max(first), span.1.min(last))
}
