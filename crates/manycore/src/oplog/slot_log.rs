//! One slot's log of one object.
//!
//! Owns: their layout. The header of `hot_state` says which thread may access them, and when.

use super::gate::AtomicGate;
use crate::clock::Stamp;
use crate::config;
use crate::sync::{AtomicU64, Ordering, UnsafeCell, seeded_bug};

/// The number of slots with a part that a hot state refers to directly, limited so that the
/// pointers take at most two cache lines.
pub(super) const FIRST: usize = config::FIRST_SLOTS;

/// Keeps fields that several cores write off the lines of fields that they read.
#[repr(align(128))]
pub(super) struct Padded<T>(pub(super) T);

/// One slot's log of one object. The order of the fields puts what an update or a collection
/// accesses into the first 64 bytes, if the log has at most 32.
#[repr(C, align(128))]
pub(super) struct SlotLog<L> {
    /// Closed by a reader that collects a log with stamps (hot_state.C4).
    pub(super) gate: AtomicGate,
    /// The number of updates pushed; only the updater writes it.
    pub(super) appended: AtomicU64,
    pub(super) local: UnsafeCell<Local<L>>,
}

/// The part of a slot's log that hot_state.C1 guards.
#[repr(C)]
pub(super) struct Local<L> {
    /// `appended` at the last collection; for the reader's policy only.
    counted: u64,
    pub(super) log: L,
    pub(super) dirty: bool,
    /// The last stamp given out, so that a slot's stamps only increase (oplog.D2).
    last: Stamp,
    /// When the log became dirty, in raw ticks; maintained only if there is a time bound.
    pub(super) since: u64,
}

impl<L: Default> SlotLog<L> {
    pub(super) fn new() -> Self {
        Self {
            gate: AtomicGate::new(),
            appended: AtomicU64::new(0),
            local: UnsafeCell::new(Local {
                log: L::default(),
                dirty: false,
                last: Stamp::ZERO,
                since: 0,
                counted: 0,
            }),
        }
    }
}

impl<L> SlotLog<L> {
    /// Counts an update. The caller has the log in hand.
    #[inline(always)]
    pub(super) fn count(&self) {
        // ORDER: Relaxed (both); a single-writer statistic.
        let appended = self.appended.load(Ordering::Relaxed);
        self.appended.store(appended + 1, Ordering::Relaxed);
    }
}

impl<L> Local<L> {
    /// Returns the number of the slot's updates since the last collection; `appended` is their
    /// total.
    pub(super) fn new_since(&mut self, appended: u64) -> u64 {
        debug_assert!(appended >= self.counted, "oplog.D4: updates were taken back");
        appended - std::mem::replace(&mut self.counted, appended)
    }

    /// Returns the stamp of the slot's next update (oplog.D2).
    #[inline(always)]
    pub(super) fn next_stamp(&mut self, clock: impl FnOnce() -> Stamp) -> Stamp {
        // BUG: an update's stamp may be as old as its slot's last update, as if the clock were read
        // before the loads that come before the update (clock.C1).
        let stale = seeded_bug!("unfenced-stamp") && self.last != Stamp::ZERO;
        let mut now = if stale { self.last } else { clock() };
        // BUG: an update's stamp is that of a moment after the update has returned (clock.C1 of the
        // clock).
        if seeded_bug!("late-stamp") {
            now = Stamp::from_ticks(now.ticks() + 2);
        }
        let before = self.last;
        // BUG: a slot's stamps are the clock's readings, also where these decrease (oplog.D2).
        self.last = if seeded_bug!("unsteady-stamp") { now } else { now.max(self.last.next()) };
        debug_assert!(self.last > before, "oplog.D2: a slot's stamps decrease");
        self.last
    }
}
