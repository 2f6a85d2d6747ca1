//! The gate of a shared object: readers write a line of their own, and a thread that would change
//! the object closes the gate and looks at all lines ([`crate::percpu::gate`]).
//!
//! Owns: the meaning of the gate's word, and how many reads each lane has seen. Does not own: what
//! a refused reader does (it takes the object's lock), and which thread may close the gate (the
//! lock holder).
//!
//! Laws:
//! - adaptive.A1 A reader enters while the word is open and no update is late, by the bias in the
//!   word (gate.E1, gate.E4). A thread that is inside does not enter again: it is refused as a
//!   holder of the object.
//! - adaptive.A2 The holder of the object's lock may close the gate: it clears `OPEN`, passes the
//!   barrier that the word's bias requires, and waits until no lane counts a reader. Then it has
//!   the value exclusively until it opens the gate. If the wait would be a deadlock, as
//!   `lock::held` finds out, it opens the gate again.
//! - adaptive.A3 `BIASED` is cleared only on a closed gate (gate.E4). It may be set at any time
//!   under the lock.
//! - adaptive.A5 `LATE` says that updates are deferred which a thread made while it was reading. It
//!   refuses readers, and is cleared by the lock holder when none is left.

use crate::config;
use crate::lock::Refused;
use crate::lock::wait_graph::{self, Awaited};
use crate::percpu::{barrier, gate, thread_token};
use crate::sync::{AtomicUsize, Ordering};

/// Readers may enter.
pub(super) const OPEN: usize = 1;
/// They announce themselves by plain stores.
pub(super) const BIASED: usize = 2;
/// Updates are deferred (adaptive.A5).
pub(super) const LATE: usize = 4;
/// The object is in `Mode::Shared`, whether the gate is open or not.
pub(super) const SHARED: usize = 8;

/// Reads so far, for the policy. Written only by the lane's owner.
#[derive(Default)]
pub(super) struct Reads(AtomicUsize);

pub(super) type Lane = gate::Lane<Reads>;

/// Counts a reader out. Returns whether a look of the policy is due after so many reads.
#[inline(always)]
pub(super) fn leave(lane: &Lane) -> bool {
    // ORDER: Relaxed (both); a statistic that only the owner writes.
    let reads = lane.data.0.load(Ordering::Relaxed).wrapping_add(1);
    lane.data.0.store(reads, Ordering::Relaxed);
    lane.leave();
    reads & (config::SHARED_READS_PER_LOOK - 1) == 0
}

impl Awaited for Lane {
    fn is_held_by(&self, token: usize, _: &[usize]) -> bool {
        self.is_held_by(token)
    }
}

/// The gate was not closed: a reader inside waits for the thread that closes it.
#[derive(Debug)]
pub(super) struct Deadlock;

impl From<Deadlock> for Refused {
    fn from(_: Deadlock) -> Self {
        Self::Deadlock
    }
}

/// See the module header.
#[repr(align(128))]
pub(super) struct Gate(gate::Gate<Reads>);

impl Gate {
    pub(super) fn new() -> Self {
        Self(gate::Gate::new(0))
    }

    /// The word as it is now. The holder of the object's lock knows all of it except `LATE`.
    #[inline(always)]
    pub(super) fn state(&self) -> usize {
        // ORDER: Relaxed; a thread that acts on it holds the lock, or checks again.
        self.0.word.load(Ordering::Relaxed)
    }

    /// Enters by the calling thread's lane, if it has one and the gate is open (adaptive.A1).
    #[inline(always)]
    pub(super) fn enter(&self) -> Option<&Lane> {
        let state = self.state();
        if state & (OPEN | LATE) != OPEN {
            return None;
        }
        self.0.enter(state, state & BIASED != 0)
    }

    /// Gives the calling thread a lane, if the gate is open and there is one for it. Returns
    /// whether it now has one.
    pub(super) fn claim(&self) -> bool {
        self.state() & OPEN != 0 && self.0.claim()
    }

    /// Whether the calling thread reads by a lane.
    pub(super) fn is_read_by_me(&self) -> bool {
        self.0.inside().is_some()
    }

    /// Keeps readers out and waits for those inside (adaptive.A2). Returns whether the gate was
    /// open.
    ///
    /// To be called by the holder of the object's lock, if it does not read by a lane itself.
    pub(super) fn close(&self) -> Result<bool, Deadlock> {
        // ORDER: AcqRel; the barrier decides.
        let was = self.0.word.fetch_and(LATE | SHARED, Ordering::AcqRel);
        if was & OPEN == 0 {
            return Ok(false);
        }
        let biased = was & BIASED != 0;
        gate::pass_barrier(biased);
        self.0
            .wait(|lane| wait_graph::enter(lane, thread_token()).map_err(|()| Deadlock))
            .inspect_err(|Deadlock| self.open(biased))?; // adaptive.A3: the bias is as it was
        Ok(true)
    }

    /// Lets readers in. To be called by the holder of the object's lock.
    pub(super) fn open(&self, biased: bool) {
        let bias = if biased && barrier::is_asymmetric() { BIASED } else { 0 };
        // ORDER: Release; pairs with Acquire in `gate::Gate::enter` (gate.E3): the value before the
        // word.
        self.0.word.fetch_or(OPEN | SHARED | bias, Ordering::Release);
    }

    /// Leaves `Mode::Shared`. To be called by the holder of the object's lock, with the gate
    /// closed.
    pub(super) fn leave_shared(&self) {
        // ORDER: Relaxed; a hint to `Adaptive::mode`.
        let before = self.0.word.fetch_and(!SHARED, Ordering::Relaxed);
        debug_assert!(before & OPEN == 0, "adaptive.A8: a mode is left with an open gate");
    }

    /// Announces that updates are deferred (adaptive.A5).
    pub(super) fn set_late(&self) {
        // ORDER: AcqRel; the queue's mutex passes the updates on. The thread that calls this reads
        // by a lane or holds the lock, so no thread is past the gate that would have to see it.
        self.0.word.fetch_or(LATE, Ordering::AcqRel);
        // The update returns now: its thread's later loads come after the flag.
        barrier::full_after_rmw();
    }

    /// Announces that none is deferred. To be called by the holder of the object's lock and the
    /// queue's.
    pub(super) fn clear_late(&self) {
        // ORDER: Release; as in `open`: the updates that were deferred have been applied.
        self.0.word.fetch_and(!LATE, Ordering::Release);
    }

    /// Reads by lanes so far.
    pub(super) fn reads(&self) -> usize {
        // ORDER: Relaxed; a statistic.
        let lanes = self.0.lanes();
        lanes.fold(0, |sum, lane| sum.wrapping_add(lane.data.0.load(Ordering::Relaxed)))
    }
}
