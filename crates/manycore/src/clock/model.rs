//! The hardware counter of a loom model: one time for all threads, without messages between them.
//!
//! Owns: that time, one for each execution, and how far ahead of it each thread's counter is.
//!
//! It keeps law clock.C2: a reading is above every reading that happens before it, because all of
//! them are read-modify-writes of one word. Beyond that it keeps only clock.C1 and clock.C3. A
//! thread's loads after a reading see what was visible before an earlier reading (Acquire). But a
//! reading makes nothing visible (no Release): what its thread stored before is visible only if a
//! fence or the like came between. `Clock::counter` and `FakeClock` synchronize their readers,
//! which would hide a missing edge of an algorithm.

use crate::sync::{AtomicU64, Ordering, global, seeded_bug, thread_local};
use std::cell::Cell;

global! {
    static TIME: AtomicU64 = AtomicU64::new(1);
}

thread_local! {
    static AHEAD: Cell<u64> = Cell::new(0);
}

/// The way to read the counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Instruction(());

impl Instruction {
    pub(crate) fn new() -> Self {
        let _ = TIME.load(Ordering::Relaxed); // made here: making it is a message, too
        Self(())
    }

    pub(crate) fn detect() -> Option<Self> {
        Some(Self::new())
    }

    pub(crate) fn stamp(self) -> u64 {
        // BUG: the loads that come after a stamp may have run before it (clock.C1).
        let early = seeded_bug!("early-loads");
        // ORDER: Acquire; pairs with full fences before earlier readings (see the header).
        let order = if early { Ordering::Relaxed } else { Ordering::Acquire };
        TIME.fetch_add(1, order) + AHEAD.with(Cell::get)
    }

    /// A cut stays before later loads: loom runs each thread's steps in order.
    pub(crate) fn cut(self) -> u64 {
        self.stamp()
    }

    pub(crate) fn ticks(self) -> u64 {
        // ORDER: Relaxed; a coarse reading, in no order.
        TIME.load(Ordering::Relaxed)
    }
}

pub(crate) fn readable() -> bool {
    true
}

pub(crate) fn nominal_hz() -> Option<u64> {
    Some(1_000_000_000)
}

/// Moves the calling thread to a core with a counter that is `ticks` ahead of the time.
#[cfg(test)]
pub(crate) fn run_ahead(ticks: u64) {
    AHEAD.with(|ahead| ahead.set(ticks));
}
