//! The state of a domain that its threads share.
//!
//! Owns: the layout. `enter`, `leave`, `retire` and `reclaim` have what threads do with it, and
//! `grace_period` has what a leader does.

use super::gate::Gate;
use super::limbo::Orphans;
use super::local::Local;
use super::parts::{FirstPart, LocalTable};
use super::report::Sightings;
use super::settings::{Mode, Report, Settings};
use crate::percpu::{self, Slot, barrier};
use crate::sync::{
    AtomicBool, AtomicU64, AtomicUsize, Mutex, Ordering, global, model_failed, run_each,
};
use std::ptr::{self, NonNull};
#[cfg(not(any(manycore_loom, manycore_shuttle)))]
use std::sync::PoisonError;
use std::sync::{TryLockError, TryLockResult};
use std::time::Duration;

/// A stamp is expired if it lies this far below `safe` (section.E2).
pub(super) const MARGIN: u64 = 2;

/// A value alone on its cache lines.
#[repr(align(128))]
pub(super) struct Line<T>(pub(super) T);

/// A lock that is taken only once a round or a batch, so two of them share their cache lines.
pub(super) struct Rare<T>(pub(super) Mutex<T>);

global! {
    /// The number of the next domain.
    static NEXT_NUMBER: AtomicU64 = AtomicU64::new(1);
}

/// The locks of a domain's leader and of its orphans, held over a fork.
#[cfg(not(any(manycore_loom, manycore_shuttle)))]
pub(super) struct HeldLocks<'a> {
    _leader: crate::sync::MutexGuard<'a, Sightings>,
    _orphans: crate::sync::MutexGuard<'a, Orphans>,
}

/// What rounds have found out.
pub(super) struct Found {
    /// Stamps [`MARGIN`] below this are expired. Only rises.
    pub(super) safe: AtomicU64,
    /// The stamp of the last finished round: it looked at all threads after a barrier that came
    /// after every seal with a lower stamp.
    pub(super) looked: AtomicU64,
    /// What waits in the domain plus what open batches may grow to, in bytes (section.S10).
    pub(super) charged: AtomicUsize,
    /// Number of threads that have retired, and have since neither ended nor been idle
    /// (section.S10).
    pub(super) writers: AtomicUsize,
    /// True once it was reported that the domain is over its budget.
    pub(super) reported: AtomicBool,
    /// True if the last round over the budget met a section that counts as stalled.
    pub(super) stalled: AtomicBool,
}

/// A domain's shared part.
///
/// The order of the fields is their order in memory. The first fields are written once a round, the
/// last are only read, and the first thread's part lies between them.
#[repr(C)]
pub(super) struct State {
    pub(super) era: Line<AtomicU64>,
    pub(super) found: Line<Found>,
    /// Held by the leader. No user code runs while it is held.
    pub(super) leader: Rare<Sightings>,
    /// What threads left behind (section.S9).
    pub(super) orphans: Rare<Orphans>,
    pub(super) first: FirstPart,
    pub(super) locals: LocalTable,
    /// Unique among all domains that the process ever has. Not zero.
    pub(super) number: u64,
    /// Index in the list of domains; guarded by the list's lock.
    pub(super) place: AtomicUsize,
    pub(super) batch_nodes: usize,
    pub(super) batch_bytes: usize,
    /// From this many waiting nodes on, a thread is made to reclaim (section.S5).
    pub(super) bound: usize,
    /// Bytes that may wait in the domain (section.S10).
    pub(super) budget: usize,
    /// How long a thread waits beyond the budget, if the builder set a time.
    pub(super) wait: Option<Duration>,
    pub(super) report: Option<Box<Report>>,
    pub(super) gate: Option<Box<dyn Gate>>,
    pub(super) mode: Mode,
    /// True if births are looked at (section.E4).
    pub(super) bounded: bool,
    /// True if readers pay no fence, because there is a membarrier.
    pub(super) light: bool,
    /// True once the room for the first thread's part is taken.
    pub(super) is_first_taken: AtomicBool,
}

/// A domain of one thread takes little more than a kilobyte; a third of that is the thread's part.
#[cfg(all(target_pointer_width = "64", target_os = "linux"))]
const _: () = assert!(cfg!(any(manycore_loom, manycore_shuttle)) || size_of::<State>() <= 1280);

impl State {
    /// Returns the number, or zero if it needs more bits.
    #[cfg(not(any(manycore_loom, manycore_shuttle)))]
    pub(super) fn short_number(&self) -> u32 {
        u32::try_from(self.number).unwrap_or(0)
    }

    pub(super) fn new(settings: Settings) -> Self {
        let mode = settings.mode;
        Self {
            era: Line(AtomicU64::new(1)),
            found: Line(Found {
                safe: AtomicU64::new(0),
                looked: AtomicU64::new(0),
                charged: AtomicUsize::new(0),
                writers: AtomicUsize::new(0),
                reported: AtomicBool::new(false),
                stalled: AtomicBool::new(false),
            }),
            leader: Rare(Mutex::new(Sightings::default())),
            orphans: Rare(Mutex::new(Orphans::default())),
            first: FirstPart::new(),
            locals: LocalTable::new(),
            // ORDER: Relaxed; only uniqueness matters.
            number: NEXT_NUMBER.fetch_add(1, Ordering::Relaxed),
            place: AtomicUsize::new(usize::MAX),
            batch_nodes: settings.batch_nodes,
            batch_bytes: settings.batch_bytes,
            bound: settings.bound,
            budget: settings.budget,
            wait: settings.wait,
            report: settings.report,
            gate: settings.gate,
            mode,
            bounded: mode == Mode::Bounded,
            light: settings.asymmetric && barrier::is_asymmetric() && !barrier::is_denied(),
            is_first_taken: AtomicBool::new(false),
        }
    }

    /// Moves a state to an address where it stays until [`free`](Self::free).
    pub(super) fn keep(self) -> NonNull<Self> {
        memory::keep(self)
    }

    /// Drops a state: runs the destructors of what waits in it.
    ///
    /// # Safety
    /// It came from [`keep`](Self::keep), and no thread uses it any more.
    pub(super) unsafe fn free(state: NonNull<Self>) {
        // SAFETY: the caller promises a state from `keep` that no thread uses (# Safety).
        unsafe { memory::free(state) }
    }

    /// Gives back the memory that the slot's ending thread kept for further domains.
    pub(super) fn trim_before_exit(slot: Slot) {
        memory::trim_before_exit(slot);
    }

    #[inline(always)]
    pub(super) fn local(&self, slot: usize) -> Option<&Local> {
        let part = self.locals.get(slot)?;
        // ORDER: Acquire; pairs with Release in `make_local`: the part before its address.
        // SAFETY: null, or published by `make_local`; freed only with the domain.
        unsafe { part.0.load(Ordering::Acquire).as_ref() }
    }

    /// Returns the part of a slot, for its owner. Calls `list` with a new part before other threads
    /// find it.
    pub(super) fn make_local(&self, slot: usize, list: impl FnOnce(&Local)) -> &Local {
        if let Some(local) = self.local(slot) {
            return local;
        }
        // ORDER: Relaxed; only that one thread takes it matters.
        let made = if self.is_first_taken.swap(true, Ordering::Relaxed) {
            Box::into_raw(Box::new(Local::from(slot)))
        } else {
            let first = self.first.address();
            // SAFETY: room for a part, in a state that stays where it is (`keep`). The swap gave
            // the room to this thread alone.
            unsafe { first.write(Local::from(slot)) };
            first
        };
        // SAFETY: made above, and freed only with the domain.
        let local = unsafe { &*made };
        list(local);
        // ORDER: Release; pairs with Acquire in `local`.
        self.locals.get_or_init(slot).0.store(made, Ordering::Release);
        local
    }

    /// Returns every slot's part.
    pub(super) fn locals(&self) -> impl Iterator<Item = (usize, &Local)> {
        // SAFETY: published by `make_local`; freed only with the domain.
        self.addresses().map(|(slot, part)| (slot, unsafe { &*part }))
    }

    fn addresses(&self) -> impl Iterator<Item = (usize, *mut Local)> {
        let high = percpu::slot_count();
        let parts = self.locals.iter().take_while(move |(slot, _)| *slot < high);
        // ORDER: Acquire; as in `local`.
        let parts = parts.map(|(slot, part)| (slot, part.0.load(Ordering::Acquire)));
        parts.filter(|(_, part)| !part.is_null())
    }

    /// Returns the present era.
    #[inline(always)]
    pub(super) fn era(&self) -> u64 {
        // ORDER: Acquire; pairs with Release in `start` (section.E2, section.E3). When it is the
        // second load of a protected pointer load, it stays behind the first load, which is Acquire
        // (section.E4).
        self.era.0.load(Ordering::Acquire)
    }

    /// Locks out leaders and threads that leave garbage to others; waits for those that are at it.
    #[cfg(not(any(manycore_loom, manycore_shuttle)))]
    pub(super) fn hold(&self) -> HeldLocks<'_> {
        let _leader = self.leader.0.lock().unwrap_or_else(PoisonError::into_inner);
        let _orphans = self.orphans.0.lock().unwrap_or_else(PoisonError::into_inner);
        HeldLocks { _leader, _orphans }
    }
}

impl Drop for State {
    fn drop(&mut self) {
        if model_failed() {
            return;
        }
        // Through this pointer, not the one in the table: `self` is borrowed mutably now.
        let first = self.first.address();
        run_each(self.addresses(), |(_, part)| {
            // SAFETY: written or boxed by `make_local`, each for one slot. No section is open, so
            // no thread uses it, and its table is not looked at again.
            unsafe {
                if part == first { ptr::drop_in_place(first) } else { drop(Box::from_raw(part)) }
            }
        });
    }
}

/// Returns the guard if the lock is free. A panic leaves nothing half-done under these locks.
pub(super) fn unpoisoned<T>(locked: TryLockResult<T>) -> Option<T> {
    match locked {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// Memory of the states. They lie in slabs, so the memory of many domains goes back when they are
/// dropped, whatever was allocated between them. Under model checkers, Miri and sanitizers, states
/// come from the global allocator, so that the checkers see the end of a state.
#[cfg(not(any(manycore_loom, manycore_shuttle, miri, manycore_sanitized)))]
mod memory {
    use super::State;
    use crate::percpu::Slot;
    use crate::slab::{Slab, SlabBox};
    use std::ptr::NonNull;

    static STATES: Slab<State> = Slab::new();

    pub(super) fn keep(state: State) -> NonNull<State> {
        SlabBox::into_raw(STATES.alloc(state))
    }

    /// # Safety
    /// It came from `keep`, and no thread uses it any more.
    pub(super) unsafe fn free(state: NonNull<State>) {
        // SAFETY: the caller promises a state from `keep` that no thread uses (# Safety).
        drop(unsafe { SlabBox::from_raw(&STATES, state) });
    }

    pub(super) fn trim_before_exit(slot: Slot) {
        STATES.trim_before_exit(slot);
    }
}

#[cfg(any(manycore_loom, manycore_shuttle, miri, manycore_sanitized))]
mod memory {
    use super::State;
    use crate::percpu::Slot;
    use std::ptr::NonNull;

    pub(super) fn keep(state: State) -> NonNull<State> {
        NonNull::from(Box::leak(Box::new(state)))
    }

    /// # Safety
    /// It came from `keep`, and no thread uses it any more.
    pub(super) unsafe fn free(state: NonNull<State>) {
        // SAFETY: the caller promises a state from `keep` that no thread uses (# Safety).
        drop(unsafe { Box::from_raw(state.as_ptr()) });
    }

    pub(super) fn trim_before_exit(_: Slot) {}
}
