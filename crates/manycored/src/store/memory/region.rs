//! A region: a header with a bitmap of free units, and the units. Laws memory.R1 and memory.R2.

use super::{GRANULE, NODE, REGION};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};

/// The kind of a region's units.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    Nodes,
    Tails,
}

impl Kind {
    pub(super) const ALL: [Self; 2] = [Self::Nodes, Self::Tails];

    /// Bytes of a unit.
    pub(super) const fn unit(self) -> usize {
        match self {
            Self::Nodes => NODE,
            Self::Tails => GRANULE,
        }
    }

    /// Words of the bitmap.
    const fn words(self) -> usize {
        REGION / self.unit() / 64
    }

    /// Units that the header takes.
    const fn taken(self) -> usize {
        (HEADER + self.words() * size_of::<u64>()).div_ceil(self.unit())
    }

    /// Units that can be allocated.
    pub(super) const fn units(self) -> usize {
        REGION / self.unit() - self.taken()
    }
}

/// Bytes before the bitmap.
const HEADER: usize = 64;

/// The header of a region.
#[repr(C, align(64))]
pub(super) struct Region {
    /// The first word, which the cache uses.
    note: *const (),
    kind: AtomicU8,
    /// Changed under the lock of the list of regions.
    pub(super) is_leased: AtomicBool,
    is_vacated: AtomicBool,
    /// In a region of tails: about how many granules are free, updated after the bits. (A region of
    /// nodes has so few words that its free nodes are counted when needed.)
    count: AtomicU32,
    /// A bit for each free unit. A region of nodes has only the first [`Kind::words`].
    free: [AtomicU64; Kind::Tails.words()],
}

const _: () = assert!(std::mem::offset_of!(Region, free) <= HEADER);
const _: () = assert!(size_of::<Region>() <= Kind::Tails.taken() * GRANULE);

impl Region {
    /// The number of the last granule, plus one.
    pub(super) const GRANULES_END: usize = REGION / GRANULE;

    /// Initializes a region in memory that no other thread has.
    ///
    /// # Safety
    /// `memory` is aligned to [`REGION`], as long, and the caller's.
    pub(super) unsafe fn make(memory: NonNull<u8>, note: *const (), kind: Kind) -> NonNull<Self> {
        let region = memory.cast::<Self>();
        // SAFETY: the caller promises memory that is aligned to `REGION`, as long, and the caller's
        // alone. References to the fields below cover no more than the header and as much of the
        // bitmap as the kind has, and units begin behind that.
        unsafe {
            (&raw mut (*region.as_ptr()).note).write(note);
            (&raw mut (*region.as_ptr()).kind).write(AtomicU8::new(kind as u8));
            (&raw mut (*region.as_ptr()).is_leased).write(AtomicBool::new(false));
            (&raw mut (*region.as_ptr()).is_vacated).write(AtomicBool::new(false));
            (&raw mut (*region.as_ptr()).count).write(AtomicU32::new(0));
        }
        let region_of = Handle(region);
        region_of.lay_out(kind);
        region
    }

    /// Returns the region that contains an address.
    #[inline(always)]
    pub(super) fn of(address: *mut u8) -> Handle {
        let region = address.map_addr(|address| address & !(REGION - 1)).cast();
        // SAFETY: an address in a region is above its size.
        Handle(unsafe { NonNull::new_unchecked(region) })
    }
}

/// A region, by its address. It is not a reference, because a reference to the whole header would
/// cover the first nodes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Handle(pub(super) NonNull<Region>);

impl Handle {
    fn pointer(self) -> *mut Region {
        self.0.as_ptr()
    }

    pub(super) fn kind(self) -> Kind {
        // SAFETY: memory.R5 - the region lives; the field is atomic.
        // ORDER: Relaxed; it changes under the lock of the list, which orders it (memory.R1).
        match unsafe { &(*self.pointer()).kind }.load(Ordering::Relaxed) {
            0 => Kind::Nodes,
            _ => Kind::Tails,
        }
    }

    pub(super) fn leased(&self) -> &AtomicBool {
        // SAFETY: memory.R5 - the region lives.
        unsafe { &(*self.pointer()).is_leased }
    }

    #[inline(always)]
    pub(super) fn is_vacated(self) -> bool {
        // SAFETY: memory.R5 - the region lives.
        // ORDER: Relaxed; the walk that reads it began after the store, by the list's lock.
        unsafe { &(*self.pointer()).is_vacated }.load(Ordering::Relaxed)
    }

    pub(super) fn set_vacated(self, yes: bool) {
        // SAFETY: memory.R5 - the region lives.
        // ORDER: Relaxed; as above.
        unsafe { &(*self.pointer()).is_vacated }.store(yes, Ordering::Relaxed);
    }

    #[inline(always)]
    pub(super) fn word<'r>(self, at: usize) -> &'r AtomicU64 {
        debug_assert!(at < Kind::Tails.words(), "memory.R2: word {at} is behind the bitmap");
        // SAFETY: memory.R5 - the region lives; within the bitmap, which both kinds have up to the
        // words of theirs, and callers ask for no others.
        unsafe { &*(&raw mut (*self.pointer()).free).cast::<AtomicU64>().add(at) }
    }

    /// Words of the bitmap.
    pub(super) fn words(self) -> usize {
        self.kind().words()
    }

    /// Makes it an entirely free region of this kind.
    pub(super) fn lay_out(self, kind: Kind) {
        // SAFETY: memory.R5 - the region lives.
        // ORDER: Relaxed; under the lock of the list, or by the thread that makes it.
        unsafe { &(*self.pointer()).kind }.store(kind as u8, Ordering::Relaxed);
        // ORDER: Relaxed; as above.
        self.count().store(kind.units() as u32, Ordering::Relaxed);
        let first = kind.taken();
        for at in 0..kind.words() {
            let taken = first.saturating_sub(at * 64).min(64);
            let free = if taken == 64 { 0 } else { u64::MAX << taken };
            // SAFETY: within the bitmap of this kind; no unit is in use (memory.R1).
            let word = unsafe { (&raw mut (*self.pointer()).free).cast::<AtomicU64>().add(at) };
            // SAFETY: memory.R1, memory.R3 - all of the region is free, it has no lessee, and the
            // list is locked, or this thread makes it: no other thread looks at the bitmap.
            unsafe { word.write(AtomicU64::new(free)) };
        }
    }

    #[inline(always)]
    fn count<'r>(self) -> &'r AtomicU32 {
        // SAFETY: memory.R5 - the region lives.
        unsafe { &(*self.pointer()).count }
    }

    /// Returns the approximate number of free units.
    pub(super) fn free_now(self) -> usize {
        if self.kind() == Kind::Nodes {
            return self.count_free();
        }
        // ORDER: Relaxed; a hint. An update that is late makes it wrap below zero for a moment.
        (self.count().load(Ordering::Relaxed) as i32).max(0) as usize
    }

    /// Returns the number of free units.
    pub(super) fn count_free(self) -> usize {
        // ORDER: Acquire; pairs with Release in `free`: a thread that finds all of it free may lay
        // it out anew, after the last use of each unit.
        (0..self.words())
            .map(|at| self.word(at).load(Ordering::Acquire).count_ones() as usize)
            .sum()
    }

    /// Returns the address of a unit.
    #[inline(always)]
    pub(super) fn unit(self, number: usize, bytes: usize) -> *mut u8 {
        debug_assert!(
            (number + 1) * bytes <= REGION,
            "memory.R2: unit {number} of {bytes} bytes is behind its region"
        );
        self.pointer().cast::<u8>().wrapping_add(number * bytes)
    }

    /// Takes units by clearing bits that the lessee has seen set (memory.R2).
    #[inline(always)]
    pub(super) fn take(self, word: usize, bits: u64) {
        // ORDER: Acquire; pairs with Release in `free`: the last use of a unit before its next.
        let before = self.word(word).fetch_and(!bits, Ordering::Acquire);
        debug_assert_eq!(before & bits, bits, "memory.R2: a unit is allocated that is not free");
    }

    /// Frees a node's block.
    #[inline(always)]
    pub(super) fn free_node(self, node: *mut u8) {
        let number = (node.addr() & (REGION - 1)) / NODE;
        debug_assert!(
            self.kind() == Kind::Nodes && number >= Kind::Nodes.taken(),
            "memory.R1: node {number} is freed in a region of {:?}",
            self.kind()
        );
        self.free(number / 64, 1 << (number % 64));
    }

    /// Frees a piece's granules.
    #[inline]
    pub(super) fn free_granules(self, piece: *mut u8, granules: usize) {
        let mut from = (piece.addr() & (REGION - 1)) / GRANULE;
        let end = from + granules;
        debug_assert!(
            self.kind() == Kind::Tails
                && from >= Kind::Tails.taken()
                && end <= Region::GRANULES_END,
            "memory.R1: granules {from} to {end} are freed in a region of {:?}",
            self.kind()
        );
        while from < end {
            let word = from / 64;
            let until = end.min((word + 1) * 64);
            self.free(word, bits(from % 64, until - from));
            from = until;
        }
        // ORDER: Relaxed; a hint.
        self.count().fetch_add(granules as u32, Ordering::Relaxed);
    }

    #[inline(always)]
    fn free(self, word: usize, bits: u64) {
        // ORDER: Release; pairs with Acquire in `take` and `count_free`.
        let before = self.word(word).fetch_or(bits, Ordering::Release);
        debug_assert_eq!(before & bits, 0, "memory.R2: a unit is freed twice");
    }

    /// Finds the first run of free granules from `from` on. Returns its start, and its length up to
    /// `most`. Only the lessee calls this.
    #[inline]
    pub(super) fn run(self, from: usize, most: usize) -> Option<(usize, usize)> {
        let end = Region::GRANULES_END;
        let mut at = from;
        let start = loop {
            if at >= end {
                return None;
            }
            // ORDER: Relaxed; bits are taken by Acquire.
            let word = self.word(at / 64).load(Ordering::Relaxed) >> (at % 64);
            if word != 0 {
                break at + word.trailing_zeros() as usize;
            }
            at = (at / 64 + 1) * 64;
        };
        let mut length = 0;
        while length < most && start + length < end {
            let at = start + length;
            // ORDER: Relaxed; as above.
            let word = self.word(at / 64).load(Ordering::Relaxed) >> (at % 64);
            let here = (!word).trailing_zeros().min(64 - (at % 64) as u32) as usize;
            length += here;
            if here < 64 - at % 64 {
                break;
            }
        }
        Some((start, length.min(most)))
    }

    /// Takes granules that `run` has found.
    pub(super) fn take_granules(self, start: usize, granules: usize) -> *mut u8 {
        let (mut from, end) = (start, start + granules);
        while from < end {
            let until = end.min((from / 64 + 1) * 64);
            self.take(from / 64, bits(from % 64, until - from));
            from = until;
        }
        // ORDER: Relaxed; a hint.
        self.count().fetch_sub(granules as u32, Ordering::Relaxed);
        self.unit(start, GRANULE)
    }
}

/// Returns a mask of `count` bits from bit `from` on. `count` is at least one, and the mask ends at
/// the last bit at the latest.
#[inline(always)]
fn bits(from: usize, count: usize) -> u64 {
    debug_assert!(count >= 1 && from + count <= 64, "a mask of {count} bits from {from} on");
    (u64::MAX >> (64 - count)) << from
}

// SAFETY: an address; the data behind it is atomic, or is changed under memory.R1.
unsafe impl Send for Handle {}
