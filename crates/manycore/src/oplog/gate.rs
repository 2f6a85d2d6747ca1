//! Gates: how a reader excludes updaters, and how it learns that they have left.
//!
//! ```text
//! reader    close(number) --> fence --> all dirty slots answered `number`?
//!             yes: no updater is inside     no: membarrier, then wait for their records
//!           collect --> open
//! updater   gate open? --> push           gate closed? --> answer `number`, wait until open
//! ```
//!
//! Owns: a gate's values and transitions, the numbers of collections, and the laws of *answers*,
//! which `collect` reads and `push` gives. Source of the answers: Liu, Zhang, Chen, *Scalable
//! Read-mostly Synchronization Using Passive Reader-Writer Locks*, USENIX ATC 2014, section 3
//! (there a reader reports the version of the lock that it has seen).
//!
//! A reader of a biased object must know that no updater's entry is still in a store buffer. The
//! kernel can ensure that for all threads at once (`membarrier`), but that takes microseconds and
//! interrupts the other threads. A busy updater, however, finds the closed gate by itself within
//! nanoseconds. So it stores an *answer* in its slot's record, and a reader that finds the answers
//! of all dirty slots needs no `membarrier`.
//!
//! Laws:
//! - oplog_gate.G1 Every collection of the process has its own number, and closes gates with it. So
//!   an answer to an earlier collection is not taken for an answer to this one.
//! - oplog_gate.G2 An updater that answers has read the number from a gate (or from `collecting`).
//!   It has none of the hot state's logs in hand under that record, and touches none until the
//!   collection is over. (It may help, and collect the logs of other updaters that have answered:
//!   `combining_tree`.) After a thread saw a gate closed, it does not see the earlier open value
//!   again (coherence), so this takes no fence.
//! - oplog_gate.G3 An answer is stored with Release after all accesses of its thread under the
//!   record, and read with Acquire. So the reader sees the log as its updater left it, with every
//!   entry.
//! - oplog_gate.G4 A slot that is not dirty needs no answer. Its next entry first sets the dirty
//!   bit, with a full fence before the updater loads the gate (hot_state.C3).

use crate::sync::{self, AtomicU64, Ordering};
use std::fmt;

/// A hot state takes this many numbers at a time, so that collections do not contend for one
/// counter.
const BLOCK: u64 = 1 << 16;

/// A collection is in progress; its number is in the bits above.
const FROZEN: u64 = 1;
const EVICTED: u64 = 2;
/// With `FROZEN`: waiting updaters may help the collection (`combining_tree`).
const TREE: u64 = 4;
const NUMBER_SHIFT: u32 = 3;

/// The value of a gate.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Gate(u64);

impl Gate {
    pub(super) const OPEN: Self = Self(0);
    /// The gate is closed for good (hot_state.C7).
    pub(super) const EVICTED: Self = Self(EVICTED);
    /// The gate is closed by a thread that looks for no answers, and so needs no number.
    pub(super) const UNANSWERED: Self = Self(FROZEN);

    #[inline(always)]
    pub(super) fn is_open(self) -> bool {
        self == Self::OPEN
    }

    /// Returns true if a collection is in progress.
    #[inline(always)]
    pub(super) fn is_frozen(self) -> bool {
        self.0 & FROZEN != 0
    }

    /// Returns the value of the same collection, with waiting updaters allowed to help.
    pub(super) fn with_help(self) -> Self {
        debug_assert!(self.is_frozen(), "oplog_gate.G1: {self:?} is no collection to help");
        Self(self.0 | TREE)
    }

    pub(super) fn is_helped(self) -> bool {
        self.0 & TREE != 0
    }

    /// Returns the number of the collection that closed the gate (oplog_gate.G1).
    pub(super) fn number(self) -> u64 {
        debug_assert!(self.is_frozen(), "oplog_gate.G1: {self:?} has no number");
        self.0 >> NUMBER_SHIFT
    }

    /// Returns the value that an updater answers to a collection, and that the reader looks for
    /// (oplog_gate.G2).
    pub(super) fn answer(self) -> u64 {
        debug_assert!(self.is_frozen(), "oplog_gate.G2: {self:?} is answered");
        self.0
    }
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "gate {:#x}", self.0)
    }
}

/// A gate. Updaters load it; only the holder of the hot state's lock changes it.
pub(super) struct AtomicGate(AtomicU64);

impl AtomicGate {
    /// Makes an open gate.
    pub(super) fn new() -> Self {
        Self(AtomicU64::new(Gate::OPEN.0))
    }

    /// Loads the value, for an updater that has announced the hot state before (hot_state.C1).
    #[inline(always)]
    pub(super) fn load(&self) -> Gate {
        // ORDER: Acquire; pairs with Release of each transition: the logs and the log set, as the
        // thread that opened the gate left them.
        Gate(self.0.load(Ordering::Acquire))
    }

    /// Loads the value, for the holder of the hot state's lock.
    #[inline]
    pub(super) fn of_holder(&self) -> Gate {
        // ORDER: Relaxed; only the lock's holder changes it.
        Gate(self.0.load(Ordering::Relaxed))
    }

    /// Returns true if `so` holds for the value that the lock's holder finds. For assertions;
    /// always true under loom, where a load is a step of the schedule.
    fn is_found(&self, so: impl Fn(Gate) -> bool) -> bool {
        cfg!(manycore_loom) || so(self.of_holder())
    }

    /// Closes the gate for a collection.
    #[inline]
    pub(super) fn close(&self, closed: Gate) {
        debug_assert!(closed.is_frozen(), "hot_state.C1: a collection closes a gate by {closed:?}");
        debug_assert!(self.is_found(Gate::is_open), "hot_state.C1: {:?} closed", self.of_holder());
        // ORDER: Release is enough: the fence of the collection orders the store before the loads
        // of the records that follow.
        self.0.store(closed.0, Ordering::Release);
    }

    /// Ends a collection, also one that did not get as far as closing this gate.
    #[inline]
    pub(super) fn open(&self) {
        debug_assert!(
            self.is_found(|gate| gate != Gate::EVICTED),
            "hot_state.C7: evicted, and opens"
        );
        // ORDER: Release; pairs with Acquire in `load`: the log as the reader left it.
        self.0.store(Gate::OPEN.0, Ordering::Release);
    }

    /// Returns a guard that [`open`](Self::open)s the gate when it is dropped, also after a panic.
    #[must_use]
    #[inline]
    pub(super) fn open_later(&self) -> Opening<'_> {
        Opening(self)
    }

    /// Closes the gate for good; only [`revive`](Self::revive) opens it.
    pub(super) fn evict(&self) {
        debug_assert!(
            self.is_found(Gate::is_open),
            "hot_state.C7: a hot state is evicted twice, or while it merges"
        );
        // ORDER: Release; the eviction passes the barrier before it looks at the updaters.
        self.0.store(EVICTED, Ordering::Release);
    }

    /// Opens the gate of an evicted hot state that has a log set again.
    pub(super) fn revive(&self) {
        debug_assert!(
            self.is_found(|gate| gate == Gate::EVICTED),
            "hot_state.C7: revived, not evicted"
        );
        // ORDER: Release; pairs with Acquire in `load`: the log set.
        self.0.store(Gate::OPEN.0, Ordering::Release);
    }
}

/// Opens a gate when it is dropped.
pub(super) struct Opening<'a>(&'a AtomicGate);

impl Drop for Opening<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.open();
    }
}

sync::global! {
    /// The first number that no hot state has taken. Zero is never given out.
    static NEXT_BLOCK: AtomicU64 = AtomicU64::new(1);
}

/// The numbers that a hot state has taken and not used yet.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    next: u64,
    end: u64,
}

impl Numbers {
    /// Returns the value that closes the gates of the next collection (oplog_gate.G1).
    pub(super) fn next_closed(&mut self) -> Gate {
        if self.next == self.end {
            // ORDER: Relaxed; it only matters that no other hot state gets these numbers.
            self.next = NEXT_BLOCK.fetch_add(BLOCK, Ordering::Relaxed);
            self.end = self.next + BLOCK;
        }
        debug_assert!(
            self.next != 0 && self.next < self.end,
            "oplog_gate.G1: a number of no collection"
        );
        self.next += 1;
        Gate((self.next - 1) << NUMBER_SHIFT | FROZEN)
    }
}
