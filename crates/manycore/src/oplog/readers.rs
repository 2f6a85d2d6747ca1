//! Readers of a cold object that do not lock it: each writes its own cache line, its *lane*
//! ([`crate::percpu::gate`]).
//!
//! Owns: when such a reader may be inside, and what excludes it. Does not own: when an object is
//! *shared*, that is, lets readers in like this (`adaptive`, which alone has such objects).
//!
//! Laws:
//! - readers.A1 A reader checks that the object's word leads to no hot state, and enters while the
//!   gate is open, by the bias in the gate's word (gate.E1, gate.E4). A thread that is inside does
//!   not enter again: it is refused as a holder of the object.
//! - readers.A2 The holder of the word's lock may close the gate: it clears `OPEN`, passes the
//!   barrier that the bias requires, and waits until no lane counts a reader. Then it has the value
//!   exclusively until it opens the gate. If it may not wait, or if the wait would be a deadlock
//!   (`lock::wait_graph` finds that out), it opens the gate again.
//! - readers.A3 `BIASED` is cleared only on a closed gate (gate.E4). It may be set at any time
//!   under the lock.
//! - readers.A4 An object is shared while its `contention` says so, which changes only under the
//!   word's lock. While it is not shared, the gate is closed and no lane counts a reader. While it
//!   is shared, a thread closes the gate before it changes the value. A panic that poisons the
//!   object leaves the gate closed, until a holder of the lock finds the object repaired.
//! - readers.A5 A thread that must not wait for readers gives the object logs beside them. It
//!   publishes the hot state with [`Readers`] in it, and the value stays in the object. The next
//!   holder of the hot state's lock closes the gate, and moves the value (object.W2). No reader
//!   that would miss the update enters in between, because of readers.A1.

use crate::config;
use crate::lock::Refused;
use crate::lock::wait_graph::{self, Awaited};
use crate::percpu::{barrier, gate, thread_token};
use crate::sync::{AtomicPtr, AtomicUsize, Ordering, const_fn};
use std::ptr;

/// Readers may enter.
const OPEN: usize = 1;
/// Readers announce themselves by plain stores.
const BIASED: usize = 2;

/// Number of reads so far. Only the lane's owner writes it.
#[derive(Default)]
pub(super) struct Reads(AtomicUsize);

pub(super) type Lane = gate::Lane<Reads>;

/// Counts a reader out. Returns true if a look at the counts is due after so many reads.
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

/// The lanes and the gate of one object; the module header explains them.
#[repr(align(128))]
pub(super) struct Readers {
    gate: gate::Gate<Reads>,
    /// The lanes' reads at the last look. Guarded by the word's lock.
    seen: AtomicUsize,
}

/// The readers of an object; null until the object is shared for the first time, or might be.
pub(super) struct Lazy(AtomicPtr<Readers>);

impl Lazy {
    const_fn! {
        pub(super) const fn new() -> Self {
            Self(AtomicPtr::new(ptr::null_mut()))
        }
    }

    #[inline(always)]
    pub(super) fn get(&self) -> Option<&Readers> {
        // ORDER: Acquire; pairs with the exchange in `get_or_new`: contents before pointer.
        // SAFETY: null, or from a box that is freed only with the object.
        unsafe { self.0.load(Ordering::Acquire).as_ref() }
    }

    #[cold]
    pub(super) fn get_or_new(&self) -> &Readers {
        if let Some(readers) = self.get() {
            return readers;
        }
        let created = Box::into_raw(Box::new(Readers::new()));
        // ORDER: AcqRel; Release publishes the contents, Acquire reads another thread's.
        let (set, read) = (Ordering::AcqRel, Ordering::Acquire);
        match self.0.compare_exchange(ptr::null_mut(), created, set, read) {
            // SAFETY: just made, and freed only with the object.
            Ok(_) => unsafe { &*created },
            Err(other) => {
                // SAFETY: made above and shared with no other thread.
                drop(unsafe { Box::from_raw(created) });
                // SAFETY: another thread's, freed only with the object.
                unsafe { &*other }
            }
        }
    }
}

impl Drop for Lazy {
    fn drop(&mut self) {
        // ORDER: Relaxed; `&mut self` orders everything.
        let readers = self.0.swap(ptr::null_mut(), Ordering::Relaxed);
        if !readers.is_null() {
            // SAFETY: from a box in `get_or_new`, and `&mut self` is exclusive.
            drop(unsafe { Box::from_raw(readers) });
        }
    }
}

/// The state of a gate before it was closed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Closed {
    pub(super) was_biased: bool,
}

impl Readers {
    pub(super) fn new() -> Self {
        Self { gate: gate::Gate::new(0), seen: AtomicUsize::new(0) }
    }

    fn state(&self) -> usize {
        // ORDER: Relaxed; a thread that acts on it holds the lock, or checks again.
        self.gate.word.load(Ordering::Relaxed)
    }

    pub(super) fn is_open(&self) -> bool {
        self.state() & OPEN != 0
    }

    /// Enters through the calling thread's lane, if it has one and the gate is open. The caller has
    /// looked at the object's word (readers.A1).
    #[inline(always)]
    pub(super) fn enter(&self) -> Option<&Lane> {
        let state = self.state();
        if state & OPEN == 0 {
            return None;
        }
        self.gate.enter(state, state & BIASED != 0)
    }

    /// Gives the calling thread a lane, if the gate is open and a lane is left for it.
    pub(super) fn claim(&self) {
        if self.is_open() {
            self.gate.claim();
        }
    }

    /// Returns true if the calling thread reads through a lane.
    pub(super) fn is_read_by_me(&self) -> bool {
        self.gate.inside().is_some()
    }

    /// Keeps readers out, and waits for those inside if `wait` is set (readers.A2). The caller
    /// holds the object's lock.
    pub(super) fn close(&self, wait: bool) -> Result<Closed, Refused> {
        if self.is_read_by_me() {
            return Err(Refused::HeldBySelf);
        }
        // ORDER: AcqRel; the barrier decides.
        let was = self.gate.word.swap(0, Ordering::AcqRel);
        let closed = Closed { was_biased: was & BIASED != 0 };
        if was & OPEN == 0 {
            return Ok(closed);
        }
        gate::pass_barrier(closed.was_biased);
        let left = if wait {
            let stuck = |lane: &Lane| wait_graph::enter(lane, thread_token());
            self.gate.wait(stuck).map_err(|()| Refused::Deadlock)
        } else if self.gate.is_empty() {
            Ok(())
        } else {
            Err(Refused::Busy)
        };
        if left.is_err() {
            self.open(closed.was_biased); // readers.A3: the bias is as it was
        }
        left.map(|()| closed)
    }

    /// Lets readers in. The caller holds the word's lock.
    pub(super) fn open(&self, biased: bool) {
        let bias = if biased && barrier::is_asymmetric() { BIASED } else { 0 };
        // ORDER: Release; pairs with Acquire in `gate::Gate::enter` (gate.E3): the value before the
        // word.
        self.gate.word.fetch_or(OPEN | bias, Ordering::Release);
    }

    /// Returns the number of reads through lanes since the last call. The caller holds the word's
    /// lock.
    pub(super) fn take_reads(&self) -> u64 {
        // ORDER: Relaxed (all); statistics.
        let lanes = self.gate.lanes();
        let reads =
            lanes.fold(0, |sum: usize, lane| sum.wrapping_add(lane.data.0.load(Ordering::Relaxed)));
        let seen = self.seen.load(Ordering::Relaxed);
        self.seen.store(reads, Ordering::Relaxed);
        reads.wrapping_sub(seen) as u64
    }
}
