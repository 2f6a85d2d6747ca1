//! What one thread has in one domain: the words that the others look at, and its limbo.

use super::limbo::Limbo;
use crate::sync::{AtomicU64, AtomicUsize, Ordering, UnsafeCell};
use std::cell::Cell;

/// Bits of `extra` beside the count: a batch is full and wants to be sealed when the outermost
/// section closes...
pub(super) const FULL: u32 = 1 << 30;
/// ...or the slot is to be given back then: it was taken for this section alone, or its thread has
/// ended in it. Holds the slot until that is done.
pub(super) const SPARE: u32 = 1 << 31;
/// The count.
pub(super) const COUNT: u32 = FULL - 1;

/// One slot's part of one domain. The slot's owner alone writes it, and the next owner goes on from
/// there (law P2 of `percpu`).
#[repr(C, align(128))]
pub(super) struct Local {
    /// Zero outside; inside, the stamp at which the outermost section was entered (S4).
    pub(super) lower: OwnWord,
    /// The latest era that a section had to catch up with when it loaded a pointer (E4). An older
    /// section's is less than `lower`, so it need not be written when a section is opened.
    pub(super) raised: OwnWord,
    pub(super) slot: usize,
    /// Sections open beyond the first, and the flags above: zero nearly always. Touched by the
    /// owner alone.
    pub(super) extra: Cell<u32>,
    /// Whether the owner is freeing a node: what is retired meanwhile only waits, so that a chain
    /// of nodes that retire one another in their destructors needs no deep stack.
    pub(super) freeing: Cell<bool>,
    /// Nodes that wait here, for reports.
    pub(super) waiting: AtomicUsize,
    /// Touched by the owner alone.
    limbo: UnsafeCell<Limbo>,
}

/// A word that the slot's owner writes and others read. loom remembers an object's last access
/// alone, so that the owner's own look would hide another's from it: there the owner has a copy.
pub(super) struct OwnWord {
    word: AtomicU64,
    #[cfg(manycore_loom)]
    copy: Cell<u64>,
}

impl OwnWord {
    fn new() -> Self {
        Self {
            word: AtomicU64::new(0),
            #[cfg(manycore_loom)]
            copy: Cell::new(0),
        }
    }

    /// For the owner.
    #[inline(always)]
    pub(super) fn own(&self) -> u64 {
        #[cfg(manycore_loom)]
        return self.copy.get();
        // ORDER: Relaxed; the owner's own word.
        #[cfg(not(manycore_loom))]
        self.word.load(Ordering::Relaxed)
    }

    /// For the others.
    #[inline(always)]
    pub(super) fn load(&self, order: Ordering) -> u64 {
        self.word.load(order)
    }

    #[inline(always)]
    pub(super) fn store(&self, value: u64, order: Ordering) {
        #[cfg(manycore_loom)]
        self.copy.set(value);
        self.word.store(value, order);
    }

    /// A store that is a locked instruction.
    #[inline(always)]
    pub(super) fn swap(&self, value: u64, order: Ordering) {
        #[cfg(manycore_loom)]
        self.copy.set(value);
        self.word.swap(value, order);
    }
}

// SAFETY: `extra`, `freeing`, the copies and `limbo` are touched only by the slot's owner (P2 of
// `percpu`: one owner at a time, handed over by Release and Acquire), or by whoever owns the
// domain; nodes are Send, which `Section::retire` demands.
unsafe impl Sync for Local {}
// SAFETY: as above.
unsafe impl Send for Local {}

impl From<usize> for Local {
    fn from(slot: usize) -> Self {
        Self {
            lower: OwnWord::new(),
            raised: OwnWord::new(),
            slot,
            extra: Cell::new(0),
            freeing: Cell::new(false),
            waiting: AtomicUsize::new(0),
            limbo: UnsafeCell::new(Limbo::new()),
        }
    }
}

impl Local {
    /// The owner's limbo, for as long as `f` runs: no user code may run in there.
    #[inline(always)]
    pub(super) fn with_limbo<R>(&self, f: impl FnOnce(&mut Limbo) -> R) -> R {
        self.limbo.with_mut(|limbo| {
            // SAFETY: only the slot's owner has a way here (it holds a section, or is giving the
            // slot back), and no user code runs inside, so there is no second reference.
            let limbo = unsafe { &mut *limbo };
            let result = f(limbo);
            // ORDER: Relaxed; a report.
            self.waiting.store(limbo.waiting(), Ordering::Relaxed);
            result
        })
    }

    /// Whether the owner has a section open.
    #[inline(always)]
    pub(super) fn is_inside(&self) -> bool {
        self.lower.own() != 0
    }

    /// Whether a section holds the slot beyond the owner's end; for the owner.
    pub(super) fn is_spare(&self) -> bool {
        self.extra.get() & SPARE != 0
    }

    /// The latest era whose nodes the open section may hold (E4); for the owner.
    #[inline(always)]
    pub(super) fn upper(&self) -> u64 {
        self.lower.own().max(self.raised.own())
    }

    /// Counts one more section of an owner that is inside.
    #[cold]
    pub(super) fn nest(&self) {
        let extra = self.extra.get();
        assert!(extra & COUNT != COUNT, "manycore: sections nested a billion deep");
        self.extra.set(extra + 1);
    }

    /// Closes the outermost section.
    #[inline(always)]
    pub(super) fn leave(&self) {
        // ORDER: Release; pairs with Acquire in `Core::look` and `Core::youngest_held`: what the
        // section did with its nodes before they are freed.
        self.lower.store(0, Ordering::Release);
    }
}
