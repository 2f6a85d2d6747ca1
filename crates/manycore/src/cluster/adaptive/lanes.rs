//! The gate of a shared object: readers write a line of their own, and who would change the object
//! closes the gate and looks at all lines.
//!
//! Owns: the gate's word, and a lane for each slot. Does not own: what a reader does that is
//! refused (it takes the object's lock), nor who may close the gate (the lock's holder).
//!
//! Laws:
//! - adaptive.A1 A reader counts itself in its lane as the gate's word asks (one full fence, or
//!   under `BIASED` none), then looks at the word again. It is in if the word is the same and open;
//!   else it takes itself out.
//! - adaptive.A2 Who holds the object's lock may close the gate: it takes `OPEN` away, passes the
//!   barrier that the word asked of it (`membarrier` under `BIASED`), and waits until no lane
//!   counts anybody. Then the value is its own until it opens the gate. A wait that would never
//!   end, as `lock::held` finds out, opens the gate again.
//! - adaptive.A3 `BIASED` is taken away from a closed gate alone: a reader that announced itself by
//!   a plain store is seen by a `membarrier`, not by a fence. It may be set at any time under the
//!   lock.
//! - adaptive.A4 A lane belongs to the thread whose token it carries; the slot's next owner takes
//!   it over when nobody is counted in it. The number of lanes to look at grows before a lane is
//!   used.
//! - adaptive.A5 `LATE` says that updates wait which a thread made while it was reading. It refuses
//!   readers, and is taken away by the lock's holder when none waits.
//!
//! Source: D. Dice, A. Kogan, *BRAVO: Biased Locking for Reader-Writer Locks*, USENIX ATC 2019:
//! readers that go around a lock, and who revokes that; the announcements are those of `lock::br`.

use crate::config;
use crate::lock::Refused;
use crate::lock::held::{self, Awaited};
use crate::percpu::segmented::Segmented;
use crate::percpu::{self, barrier};
use crate::sync::{AtomicUsize, Backoff, Ordering, seeded_bug};

/// Readers may enter.
pub(super) const OPEN: usize = 1;
/// They do so by plain stores.
pub(super) const BIASED: usize = 2;
/// Updates wait (adaptive.A5).
pub(super) const LATE: usize = 4;
/// The object is in `Mode::Shared`, be the gate open or not.
pub(super) const SHARED: usize = 8;

/// Where the readers of one slot count themselves.
#[repr(align(128))]
pub(super) struct Lane {
    /// The thread whose lane it is (adaptive.A4).
    token: AtomicUsize,
    /// Whether it reads. Written by that thread alone.
    readers: AtomicUsize,
    /// Reads so far, for the policy.
    reads: AtomicUsize,
}

impl From<usize> for Lane {
    fn from(_: usize) -> Self {
        let zero = || AtomicUsize::new(0);
        Self { token: zero(), readers: zero(), reads: zero() }
    }
}

impl Lane {
    /// Counts the owner in, if the gate's word is still `state` (adaptive.A1).
    #[inline(always)]
    fn enter(&self, gate: &AtomicUsize, state: usize) -> bool {
        // ORDER: Relaxed (both counts); the owner alone writes them.
        if self.readers.load(Ordering::Relaxed) != 0 {
            return false; // reads already; the slow path says so
        }
        // BUG: announcements are plain stores whose reader pays no barrier for them (oplog.D1,
        // section.S6).
        if seeded_bug!("plain-publish") {
            self.readers.store(1, Ordering::Release);
        } else if state & BIASED != 0 {
            // ORDER: the store before the load below, by law percpu.B1; pairs with `heavy` in
            // `close`. Release; pairs with Acquire in `is_empty`: whose lane it is (`is_held_by`).
            self.readers.store(1, Ordering::Release);
            barrier::light();
        } else {
            // ORDER: a full fence after the store; pairs with the one in `close`.
            barrier::swap_full(&self.readers, 1);
        }
        // ORDER: Acquire; pairs with Release in `open`: the value that the last holder left.
        if gate.load(Ordering::Acquire) == state {
            return true;
        }
        // ORDER: Release; as in `leave`.
        self.readers.store(0, Ordering::Release);
        false
    }

    /// The same, if the calling thread is the owner.
    #[inline(always)]
    fn enter_mine(&self, gate: &AtomicUsize, state: usize) -> Option<&Self> {
        // ORDER: Relaxed; the token is this thread's own store, or none of its (adaptive.A4).
        let is_mine = self.token.load(Ordering::Relaxed) == percpu::thread_token();
        (is_mine && self.enter(gate, state)).then_some(self)
    }

    /// Counts the owner out. Says whether it has read so often that somebody might look.
    #[inline(always)]
    pub(super) fn leave(&self) -> bool {
        // ORDER: Relaxed (both); a statistic that the owner alone writes.
        let reads = self.reads.load(Ordering::Relaxed).wrapping_add(1);
        self.reads.store(reads, Ordering::Relaxed);
        // ORDER: Release; pairs with Acquire in `wait_until_empty`: the reads before the holder's
        // writes.
        self.readers.store(0, Ordering::Release);
        reads & (config::SHARED_READS_PER_LOOK - 1) == 0
    }

    fn is_empty(&self) -> bool {
        // ORDER: Acquire; pairs with Release in `leave`, and in `enter`.
        self.readers.load(Ordering::Acquire) == 0
    }
}

impl Awaited for Lane {
    fn is_held_by(&self, token: usize, _: &[usize]) -> bool {
        // ORDER: Relaxed; after the count, whose thread has set it.
        !self.is_empty() && self.token.load(Ordering::Relaxed) == token
    }
}

/// The gate was not closed: a reader inside waits for the thread that closes it.
#[derive(Debug)]
pub(super) struct Circle;

impl From<Circle> for Refused {
    fn from(_: Circle) -> Self {
        Self::Circle
    }
}

/// See the module header.
#[repr(align(128))]
pub(super) struct Gate {
    state: AtomicUsize,
    /// One more than the highest lane in use.
    high: AtomicUsize,
    lanes: Segmented<Lane>,
}

impl Gate {
    pub(super) fn new() -> Self {
        Self { state: AtomicUsize::new(0), high: AtomicUsize::new(0), lanes: Segmented::new() }
    }

    /// The word as it is now. Whoever has the object's lock knows all of it but `LATE`.
    #[inline(always)]
    pub(super) fn state(&self) -> usize {
        // ORDER: Relaxed; who acts on it has the lock, or checks again.
        self.state.load(Ordering::Relaxed)
    }

    /// Enters by the calling thread's lane, if it has one and the gate is open.
    #[inline(always)]
    pub(super) fn enter(&self) -> Option<&Lane> {
        let state = self.state();
        if state & (OPEN | LATE) != OPEN {
            return None;
        }
        match percpu::known_slot().and_then(|slot| self.lanes.get_near(slot)) {
            Some(lane) => lane.enter_mine(&self.state, state),
            None => self.enter_far(state),
        }
    }

    /// As above, where the lane is not found at once.
    #[inline(never)]
    fn enter_far(&self, state: usize) -> Option<&Lane> {
        self.lanes.get(percpu::own_slot()?.index())?.enter_mine(&self.state, state)
    }

    /// Gives the calling thread a lane, if the gate is open and there is one for it (adaptive.A4).
    /// Says whether it was worth it.
    pub(super) fn claim(&self) -> bool {
        if self.state() & OPEN == 0 {
            return false;
        }
        let Some(slot) = percpu::own_slot() else { return false };
        let lane = self.lanes.get_or_init(slot.index());
        let me = percpu::thread_token();
        // ORDER: Relaxed; slots pass from thread to thread by Release and Acquire (percpu.P2).
        if lane.token.load(Ordering::Relaxed) == me {
            return true;
        }
        if !lane.is_empty() {
            return false; // a guard that was forgotten
        }
        lane.token.store(me, Ordering::Relaxed);
        // ORDER: AcqRel and, on the way in, the fence or barrier of adaptive.A1: who closes the
        // gate later and does not see this reader's lane in the number is seen by the reader.
        self.high.fetch_max(slot.index() + 1, Ordering::AcqRel);
        true
    }

    /// Whether the calling thread reads by a lane.
    pub(super) fn is_read_by_me(&self) -> bool {
        let me = percpu::thread_token();
        // ORDER: Relaxed (both); a thread sees its own stores.
        self.lanes().any(|lane| {
            lane.readers.load(Ordering::Relaxed) != 0 && lane.token.load(Ordering::Relaxed) == me
        })
    }

    /// Keeps readers out and waits for those inside (adaptive.A2). Returns whether the gate was
    /// open.
    ///
    /// For the holder of the object's lock, if it does not read by a lane itself.
    pub(super) fn close(&self) -> Result<bool, Circle> {
        // ORDER: AcqRel; the barrier decides.
        let was = self.state.fetch_and(LATE | SHARED, Ordering::AcqRel);
        if was & OPEN == 0 {
            return Ok(false);
        }
        if was & BIASED != 0 {
            barrier::heavy()
        } else {
            barrier::fence_full()
        }
        // BUG: a shared object's gate is closed, and those inside are not waited for (adaptive.A2).
        if !seeded_bug!("hasty-closing") {
            // adaptive.A3: the bias is as it was.
            self.wait_until_empty().inspect_err(|Circle| self.open(was & BIASED != 0))?;
        }
        Ok(true)
    }

    fn wait_until_empty(&self) -> Result<(), Circle> {
        for lane in self.lanes() {
            let mut backoff = Backoff::new();
            let mut waiting = None;
            while !lane.is_empty() {
                // (Not in models, as in `lock::word`.)
                if backoff.is_long() && waiting.is_none() {
                    let entered = held::wait_for_any(lane, percpu::thread_token());
                    waiting = Some(entered.map_err(|()| Circle)?);
                }
                backoff.pause();
            }
        }
        Ok(())
    }

    /// Lets readers in. For the holder of the object's lock.
    pub(super) fn open(&self, biased: bool) {
        let bias = if biased && barrier::is_asymmetric() { BIASED } else { 0 };
        // ORDER: Release; pairs with Acquire in `Lane::enter`: the value before the word.
        self.state.fetch_or(OPEN | SHARED | bias, Ordering::Release);
    }

    /// Leaves `Mode::Shared`. For the holder of the object's lock, with the gate closed.
    pub(super) fn leave_shared(&self) {
        // ORDER: Relaxed; a hint to `Adaptive::mode`.
        self.state.fetch_and(!SHARED, Ordering::Relaxed);
    }

    /// Says that updates wait (adaptive.A5).
    pub(super) fn set_late(&self) {
        // ORDER: AcqRel; the queue's mutex passes the updates on. The thread that calls this reads
        // by a lane or holds the lock, so nobody is past the gate who would have to see it.
        self.state.fetch_or(LATE, Ordering::AcqRel);
        // The update returns now: its thread's later loads come after it.
        barrier::full_after_rmw();
    }

    /// Says that none waits. For the holder of the object's lock and the queue's.
    pub(super) fn clear_late(&self) {
        // ORDER: Release; as `open`: what waited has been applied.
        self.state.fetch_and(!LATE, Ordering::Release);
    }

    /// Reads by lanes so far.
    pub(super) fn reads(&self) -> usize {
        // ORDER: Relaxed; a statistic.
        self.lanes().fold(0, |sum, lane| sum.wrapping_add(lane.reads.load(Ordering::Relaxed)))
    }

    fn lanes(&self) -> impl Iterator<Item = &Lane> {
        // ORDER: Acquire; pairs with `claim` (adaptive.A4).
        let high = self.high.load(Ordering::Acquire);
        (0..high).filter_map(|index| self.lanes.get(index))
    }
}
