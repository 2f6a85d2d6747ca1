//! One slot's log of one object, and the table of every slot's part of a hot state.
//!
//! Owns: where they lie. Who may touch what of them, and when, is in the header of `core`.

use super::core::OPEN;
use crate::clock::Stamp;
use crate::config;
use crate::percpu::segmented::Lazy;
use crate::sync::{AtomicPtr, AtomicU64, AtomicUsize, Ordering, UnsafeCell, seeded_bug};
use std::ptr;

/// Slots whose parts are found without going through a segment.
const NEAR: usize = 1 << config::SEGMENT_BITS;

/// Slots whose parts a hot state keeps in itself: so many that these take two cache lines at most.
pub(crate) const FIRST: usize = if config::SMALL { 1 } else { 8 };

/// Keeps what several cores write apart from what they read.
#[repr(align(128))]
pub(super) struct Padded<T>(pub(super) T);

/// One slot's log of one object. In this order, because what an update or a collection touches is
/// then in the first 64 bytes, if the log has no more than 32.
#[repr(C, align(128))]
pub(super) struct SlotLog<L> {
    /// Closed by a reader that collects a log with stamps (oplog.C4).
    pub(super) gate: AtomicU64,
    /// Updates pushed; written by the updater alone.
    pub(super) appended: AtomicU64,
    pub(super) local: UnsafeCell<Local<L>>,
    /// The token of the thread that has the log in hand, if logs are the CPUs'; else unused.
    pub(super) turn: AtomicUsize,
}

/// The part of a slot's log that oplog.C1 guards.
#[repr(C)]
pub(super) struct Local<L> {
    /// `appended` at the last collection; for the reader's policy.
    counted: u64,
    pub(super) log: L,
    pub(super) dirty: bool,
    /// The last stamp given out, so that stamps of a slot only grow (oplog.D2).
    last: Stamp,
    /// When the log became dirty, in raw ticks; kept up only if there is a time bound.
    pub(super) since: u64,
}

impl<L: Default> SlotLog<L> {
    pub(super) fn new() -> Self {
        Self {
            gate: AtomicU64::new(OPEN),
            turn: AtomicUsize::new(0),
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
    /// How many of the slot's updates, `appended` by now, came since the last collection.
    pub(super) fn new_since(&mut self, appended: u64) -> u64 {
        appended - std::mem::replace(&mut self.counted, appended)
    }

    /// The stamp of the slot's next update (oplog.D2).
    #[inline(always)]
    pub(super) fn next_stamp(&mut self, clock: impl FnOnce() -> Stamp) -> Stamp {
        // BUG: an update's stamp may be as old as its slot's last update, as if the clock were
        // read before the loads that come before the update (clock.C1).
        let stale = seeded_bug!("unfenced-stamp") && self.last != Stamp::ZERO;
        let mut now = if stale { self.last } else { clock() };
        // BUG: an update's stamp is that of a moment after the update has returned (clock.C1 of the
        // clock).
        if seeded_bug!("late-stamp") {
            now = Stamp::from_ticks(now.ticks() + 2);
        }
        // BUG: a slot's stamps are what the clock says, also where it goes back (oplog.D2).
        self.last = if seeded_bug!("unsteady-stamp") { now } else { now.max(self.last.next()) };
        self.last
    }
}

/// A slot's part of something, such as its log; null until the slot's first update.
pub(crate) struct SlotPtr<P>(pub(crate) AtomicPtr<P>);

impl<P> From<usize> for SlotPtr<P> {
    fn from(_: usize) -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }
}

/// Every slot's part. The first ones, which are nearly all there ever are, are one load away.
pub(crate) struct SlotTable<P> {
    pub(super) near: [SlotPtr<P>; NEAR],
    far: Lazy<SlotPtr<P>>,
}

impl<P> SlotTable<P> {
    pub(crate) fn new() -> Self {
        Self { near: std::array::from_fn(SlotPtr::from), far: Lazy::new() }
    }

    #[inline(always)]
    pub(crate) fn get(&self, index: usize) -> Option<&SlotPtr<P>> {
        self.near.get(index).or_else(|| self.far.get(index))
    }

    pub(crate) fn get_or_init(&self, index: usize) -> &SlotPtr<P> {
        self.near.get(index).unwrap_or_else(|| self.far.get_or_init(index))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, &SlotPtr<P>)> {
        self.near.iter().enumerate().chain(self.far.iter())
    }
}
