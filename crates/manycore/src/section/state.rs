//! The state of a domain that its threads share.
//!
//! Owns: the layout. What threads do with it is in `enter`, `leave`, `retire` and `reclaim`, and
//! what a leader does in `grace_period`.

use super::gate::Gate;
use super::limbo::Legacy;
use super::local::Local;
use super::report::Sightings;
use super::settings::{Mode, Report, Settings};
use crate::clock::{self, Clock};
use crate::percpu::{self, barrier, segmented::Segmented};
use crate::sync::{AtomicBool, AtomicU64, AtomicUsize, Mutex, Ordering, global};
#[cfg(not(any(manycore_loom, manycore_shuttle)))]
use std::sync::PoisonError;
use std::sync::{TryLockError, TryLockResult};
use std::time::Duration;

/// Alone on its cache lines.
#[repr(align(128))]
pub(super) struct Line<T>(pub(super) T);

global! {
    /// The number of the next domain.
    static NEXT_NUMBER: AtomicU64 = AtomicU64::new(1);
}

/// A leader's and the heirs' locks, held over a fork.
#[cfg(not(any(manycore_loom, manycore_shuttle)))]
pub(super) struct HeldLocks<'a> {
    _leader: crate::sync::MutexGuard<'a, Sightings>,
    _legacy: crate::sync::MutexGuard<'a, Legacy>,
}

/// What rounds found out.
pub(super) struct Found {
    /// What is stamped `margin` below this is ripe. Rises.
    pub(super) safe: AtomicU64,
    /// The limit of the last round that is over: it looked at all threads after a barrier that came
    /// after every seal with a lower stamp.
    pub(super) looked: AtomicU64,
    /// What waits in the domain and what open batches may grow to, in bytes (section.S10).
    pub(super) charged: AtomicUsize,
    /// Threads that have retired, and have neither ended nor been idle since (section.S10).
    pub(super) writers: AtomicUsize,
    /// Whether it was reported that the domain is over its budget.
    pub(super) reported: AtomicBool,
    /// Whether the last round over the budget met a section that counts as stalled.
    pub(super) stalled: AtomicBool,
}

/// A domain's shared part.
pub(super) struct State {
    /// No other domain of the process has it, nor will have. Not zero.
    pub(super) number: u64,
    pub(super) mode: Mode,
    /// Whether births are looked at (section.E4).
    pub(super) bounded: bool,
    /// Whether readers pay no fence: the mode has eras, and there is a membarrier.
    pub(super) light: bool,
    /// How far below `safe` a stamp is ripe (section.E2).
    pub(super) margin: u64,
    /// What of that is for the way of messages between cores.
    pub(super) transfer: u64,
    pub(super) clock: Option<Clock>,
    pub(super) batch_nodes: usize,
    pub(super) batch_bytes: usize,
    /// Waiting nodes from which a thread is made to reclaim (section.S5).
    pub(super) bound: usize,
    /// Bytes that may wait in the domain (section.S10), and what is done beyond.
    pub(super) budget: usize,
    /// How long a thread waits beyond the budget, if the builder was told.
    pub(super) wait: Option<Duration>,
    pub(super) report: Option<Box<Report>>,
    pub(super) gate: Option<Box<dyn Gate>>,
    pub(super) locals: Segmented<Local>,
    pub(super) era: Line<AtomicU64>,
    pub(super) found: Line<Found>,
    /// Held by the leader. No user code runs under it.
    pub(super) leader: Line<Mutex<Sightings>>,
    /// What threads left behind (section.S9).
    pub(super) legacy: Line<Mutex<Legacy>>,
}

impl State {
    pub(super) fn new(settings: Settings) -> Self {
        let mode = settings.mode;
        let has_eras = mode != Mode::Clock;
        let clock = settings.clock;
        let transfer = if has_eras { 0 } else { transfer(clock.as_ref()) };
        let apart = skew(clock.as_ref()).saturating_add(transfer);
        Self {
            // ORDER: Relaxed; only uniqueness matters.
            number: NEXT_NUMBER.fetch_add(1, Ordering::Relaxed),
            mode,
            bounded: mode == Mode::Bounded,
            light: has_eras
                && settings.asymmetric
                && barrier::is_asymmetric()
                && !barrier::is_denied(),
            margin: if has_eras { 2 } else { apart.saturating_add(1) },
            transfer,
            clock,
            batch_nodes: settings.batch_nodes,
            batch_bytes: settings.batch_bytes,
            bound: settings.bound,
            budget: settings.budget,
            wait: settings.wait,
            report: settings.report,
            gate: settings.gate,
            locals: Segmented::new(),
            era: Line(AtomicU64::new(1)),
            found: Line(Found {
                safe: AtomicU64::new(0),
                looked: AtomicU64::new(0),
                charged: AtomicUsize::new(0),
                writers: AtomicUsize::new(0),
                reported: AtomicBool::new(false),
                stalled: AtomicBool::new(false),
            }),
            leader: Line(Mutex::new(Sightings::default())),
            legacy: Line(Mutex::new(Legacy::default())),
        }
    }

    #[inline(always)]
    pub(super) fn local(&self, slot: usize) -> Option<&Local> {
        self.locals.get(slot)
    }

    pub(super) fn make_local(&self, slot: usize) -> &Local {
        self.locals.get_or_init(slot)
    }

    /// Every thread's part.
    pub(super) fn locals(&self) -> impl Iterator<Item = (usize, &Local)> {
        let high = percpu::slot_count();
        self.locals.iter().take_while(move |(slot, _)| *slot < high)
    }

    pub(super) fn clock(&self) -> &Clock {
        self.clock.as_ref().unwrap_or_else(|| Clock::system())
    }

    /// The present era.
    #[inline(always)]
    pub(super) fn era(&self) -> u64 {
        // ORDER: Acquire; pairs with Release in `start` (section.E2, section.E3). As the second
        // load of a protected pointer load it stays behind the first, which is Acquire
        // (section.E4).
        self.era.0.load(Ordering::Acquire)
    }

    /// Waits for the leader, and for a thread that leaves garbage to others, and keeps them out.
    #[cfg(not(any(manycore_loom, manycore_shuttle)))]
    pub(super) fn hold(&self) -> HeldLocks<'_> {
        let _leader = self.leader.0.lock().unwrap_or_else(PoisonError::into_inner);
        let _legacy = self.legacy.0.lock().unwrap_or_else(PoisonError::into_inner);
        HeldLocks { _leader, _legacy }
    }
}

/// How far two cores' stamps may differ (clock.C2).
fn skew(clock: Option<&Clock>) -> u64 {
    match clock.unwrap_or_else(|| Clock::system()).mode() {
        clock::Mode::Bounded { skew_ticks } | clock::Mode::Fake { skew_ticks } => skew_ticks,
        clock::Mode::Synchronized | clock::Mode::Counter => 0,
    }
}

/// The ticks by which a stamp must be older than a section beside what the clock promises. It
/// promises that no message is seen before it was sent (clock.C2); but that a reader found a link
/// as it was *before* another thread changed it is no message that was received, and so the two
/// stamps may be inverted by as much as messages take. This is 3 us or more by a counter of 5 GHz
/// or less, some ten times what a line takes between sockets; batches are ripe that much later. A
/// counter in memory needs nothing: its stamps are in one order, and fences put the loads and
/// stores in it.
fn transfer(clock: Option<&Clock>) -> u64 {
    match clock.unwrap_or_else(|| Clock::system()).mode() {
        clock::Mode::Bounded { .. } | clock::Mode::Synchronized => 1 << 14,
        clock::Mode::Fake { .. } | clock::Mode::Counter => 0,
    }
}

/// The lock, if it is free. No panic leaves anything half-done under these locks.
pub(super) fn unpoisoned<T>(locked: TryLockResult<T>) -> Option<T> {
    match locked {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}
