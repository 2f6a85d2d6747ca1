//! The hot state of an object: value, lock, and one log per slot.
//!
//! Owns: the layout of a core and the updater's side. The reader's side is in `reader`; which
//! object has a core, and when, in `lifecycle`.
//!
//! There are two roles. An *updater* announces the core in its slot's record, checks that the gates
//! are open, and then has exclusive access to its slot's log until it withdraws the announcement. A
//! *reader* holds the core's lock, closes a gate, passes a barrier, and waits until no dirty slot's
//! record announces the core: then it has exclusive access to those logs until it opens the gate.
//! An updater's answer (`gate`) replaces both the barrier and the load of its record.
//!
//! Laws (the D laws are in the header of the parent module):
//! - oplog.C1 An updater touches a log only between announcement and withdrawal, having checked
//!   *after* the announcement that the object still has this core and that both gates are open. A
//!   reader touches it only after closing a gate, the barrier, and seeing the record without this
//!   core, or after closing a gate and reading the updater's answer (oplog.G2, oplog.G3). Announce
//!   then check, against close then look, is the store-buffering race that `percpu::barrier`
//!   resolves.
//! - oplog.C2 A slot with entries has its dirty bit set, and its updater's copy `local.dirty`. Both
//!   change only under oplog.C1. The slot of an updater that is busy stays dirty when it is
//!   emptied.
//! - oplog.C3 A log without stamps is collected under the core's gate: the updaters of all dirty
//!   slots are stopped at one moment, so what is collected is a consistent cut. The updater of a
//!   slot that becomes dirty during the collection checks the gate again after setting its bit.
//! - oplog.C4 A log with stamps is collected under its own gate, up to a cut taken before the dirty
//!   bits are read (oplog.D2).
//! - oplog.C5 Updates that were collected and not applied are in `carry`, in the order in which
//!   they must be applied.
//! - oplog.C6 With `SHARED` in an open gate, logs belong to CPUs, and the slot log's turn instead
//!   of the announcement decides which thread has exclusive access under oplog.C1 (see `shared`).
//! - oplog.C7 While the core's gate says `EVICTED`, no updater is inside and no slot has a log.
//! - oplog.C8 A reader waits for the updaters that were inside when it closed the gate, and for no
//!   other: an updater that finds a gate closed waits, announced as a waiter (promotion.H3), until
//!   the collection is over. (If it retried at once, it might be inside each time the reader
//!   looks.)
//! - oplog.C9 While it waits it may help: it collects on the reader's behalf under the laws of
//!   `tree`.

use super::builder::{Config, Slots};
use super::gate::is_frozen;
use super::late::Late;
use super::log::Log;
use super::log_set::LogSet;
use super::promotion::Membership;
use super::slot_log::{FIRST, Local, Padded, SlotLog, SlotPtr};
use super::stats::Counts;
use super::table::{self, LogTable};
use crate::clock::{Clock, Hardware, Stamp};
use crate::lock::{self, held};
use crate::percpu::{self, barrier};
use crate::sync::{
    self, AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering, UnsafeCell, seeded_bug,
};
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::Arc;

/// The growth that waives a log's bounds.
pub(super) const ANY_GROWTH: usize = usize::MAX;

pub(super) const OPEN: u64 = 0;
/// A collection is in progress; its number is in the bits above (`gate`).
pub(super) const FROZEN: u64 = 1;
pub(super) const EVICTED: u64 = 2;
/// With `OPEN`: logs belong to CPUs, not threads. Not zero, so that updates to threads' logs pay
/// nothing for it.
pub(super) const SHARED: u64 = 4;
/// With `FROZEN`: waiting updaters may help the collection (`tree`).
pub(super) const TREE: u64 = 8;

/// See the module header. An evicted object keeps all of this: 256 bytes if its value has at most
/// 8. Fields that only an object with logs needs are in the log set.
#[repr(C, align(128))]
pub(super) struct Core<T, L: Log<T>> {
    // Read by every update; written by collections without stamps, and at eviction.
    pub(super) gate: AtomicU64,
    /// Below this number of entries an update checks no bound; zero if there is a time bound.
    unchecked_entries: usize,
    max_bytes: usize,
    /// The hardware counter, if reading it is all that a stamp takes.
    hardware: Option<Hardware>,
    pub(super) biased: AtomicBool,
    /// The logs of the first slots, reached with one load less than those in the log set.
    pub(super) first: [SlotPtr<SlotLog<L>>; FIRST],
    /// Null once an eviction has freed it (oplog.C10).
    pub(super) logs: AtomicPtr<LogSet<L>>,
    /// The gate's value when it is open: `OPEN` or `SHARED`.
    pub(super) open: u64,
    /// The time bound in ticks; `u64::MAX` if there is none.
    max_delay: u64,
    pub(super) config: Arc<Config>,
    // Written by readers, from here on.
    next_line: Padded<()>,
    pub(super) lock: AtomicUsize,
    /// Updates of threads that must not wait for a log. On this line because each read checks it.
    pub(super) late: Late<L::Op>,
    // The second half of the pair of lines: written by the lock's holder, away from the lock's
    // waiters.
    pub(super) counts: UnsafeCell<Counts>,
    /// The value with which the gates are closed during a collection, else zero. Where each slot
    /// has a gate of its own, updaters that find theirs closed wait until this is zero (oplog.C8).
    pub(super) collecting: AtomicU64,
    /// Whether the value is in the core; guarded by the lock.
    pub(super) has_value: AtomicBool,
    /// Set, under the lock, when the object no longer uses this core.
    pub(super) closed: AtomicBool,
    pub(super) membership: Membership,
    /// Set if the object is dropped within its own eviction: the evictor frees value and core
    /// (oplog.W4).
    pub(super) orphaned: AtomicBool,
    pub(super) poisoned: AtomicBool,
    pub(super) value: UnsafeCell<MaybeUninit<T>>,
}

// SAFETY: the value and the logs are reached only under the core's lock or under oplog.C1, by one
// thread at a time; both may move between threads (`T: Send`, and `L: Send` as every log is).
unsafe impl<T: Send, L: Log<T>> Send for Core<T, L> {}
// SAFETY: shared, the core gives the value and `inner` to the lock's holder, and a log to its
// updater, the reader or a helper (oplog.C1, oplog.C6, oplog.B3), one thread at a time; late
// updates are `Send` and move through `Late`. Only a `ReadGuard` shares the value, and it is `Sync`
// only if `T: Sync`.
unsafe impl<T: Send, L: Log<T>> Sync for Core<T, L> {}

/// Why an update was not logged. It is returned together with the update.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    /// A reader is collecting; the gate opens again soon.
    Closed,
    /// The object has another core, or none.
    Stale,
    /// The log is at its bound of entries or bytes.
    Full,
    /// The log is at its time bound.
    Overdue,
    /// An eviction has freed the core's logs.
    Evicted,
    /// The object has no core, and its owner decides what to do (`managed`).
    Cold,
}

fn clock_of(config: &Config) -> &Clock {
    match &config.clock {
        Some(clock) => clock,
        None => Clock::system(),
    }
}

impl<T: Send + 'static, L: Log<T>> Core<T, L> {
    /// A core without a value, locked by `token`. Allocated as a box, and not turned back into one
    /// while another thread may have a reference to it.
    pub(super) fn new_locked(config: Arc<Config>, token: usize, biased: bool) -> *mut Self {
        let clock = clock_of(&config);
        let max_delay = config.max_delay.map_or(u64::MAX, |delay| clock.duration_to_ticks(delay));
        let by_cpu = config.slots == Slots::Cpu && percpu::mm_cid::is_available();
        let open = if by_cpu { SHARED } else { OPEN };
        Box::into_raw(Box::new(Self {
            gate: AtomicU64::new(open),
            unchecked_entries: if max_delay == u64::MAX { config.max_entries } else { 0 },
            max_bytes: config.max_bytes,
            hardware: clock.hardware(),
            biased: AtomicBool::new(biased),
            first: std::array::from_fn(SlotPtr::from),
            logs: AtomicPtr::new(LogSet::with_carry(Vec::new())),
            open,
            max_delay,
            config,
            next_line: Padded(()),
            lock: AtomicUsize::new(token | lock::LOCKED),
            late: Late::new(),
            counts: UnsafeCell::new(Counts::default()),
            collecting: AtomicU64::new(0),
            has_value: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            membership: Membership::new(),
            orphaned: AtomicBool::new(false),
            poisoned: AtomicBool::new(false),
            value: UnsafeCell::new(MaybeUninit::uninit()),
        }))
    }

    /// Tells loom that the core is in use here, so that freeing it concurrently is a race
    /// (oplog.W3).
    #[inline(always)]
    pub(super) fn in_use(&self) {
        self.membership.in_use();
    }

    #[inline(always)]
    pub(super) fn clock(&self) -> &Clock {
        clock_of(&self.config)
    }

    pub(super) fn table(&self) -> &LogTable {
        match &self.config.table {
            Some(table) => table,
            None => table::shared(),
        }
    }

    // ---- the updater's side ----

    /// Whether updates take more than the short path, whatever their logs hold.
    pub(super) fn needs_slow_path(&self) -> bool {
        let plain = !self.is_shared() && !self.is_timed();
        let stamps = !L::ORDERED || self.stamps_in_hardware();
        !(plain && stamps)
    }

    /// Pushes an update to the slot's log if that needs no slow path; else returns it. Calls no
    /// function, so that its caller has no registers to save.
    ///
    /// # Safety
    /// As [`push`](Self::push).
    #[inline(always)]
    pub(super) unsafe fn push_plain(&self, index: usize, op: L::Op) -> Result<(), L::Op> {
        self.in_use();
        // ORDER: Acquire, Relaxed, Acquire; as in `push`.
        if self.gate.load(Ordering::Acquire) != OPEN {
            return Err(op);
        }
        // SAFETY: oplog.C10 - the caller has announced the core, and the gate was open after that.
        let Some(place) = (unsafe { self.near_place(index) }) else { return Err(op) };
        // SAFETY: oplog.C10 - freed only by an evictor, which waits for this announced updater.
        let Some(slot) = (unsafe { place.0.load(Ordering::Relaxed).as_ref() }) else {
            return Err(op);
        };
        let gated = L::ORDERED || seeded_bug!("no-cut");
        if gated && slot.gate.load(Ordering::Acquire) != OPEN {
            return Err(op);
        }
        let local = slot.local.get_mut();
        // SAFETY: oplog.C1 - announced, gates open after that: this thread has exclusive access to
        // this slot's log.
        let local = unsafe { local.deref() };
        if !local.dirty || !self.is_roomy(local) {
            return Err(op);
        }
        let stamp = match self.hardware {
            _ if !L::ORDERED => Stamp::ZERO,
            Some(hardware) => local.next_stamp(|| hardware.stamp()),
            None => return Err(op),
        };
        held::assert_no_leaf();
        local.log.push(op, stamp);
        slot.count();
        Ok(())
    }

    /// Pushes an update to the slot's log.
    ///
    /// # Safety
    /// The record of slot `index` announces this core as an updater, and the object had this core
    /// after that (oplog.C1).
    #[inline(always)]
    pub(super) unsafe fn push(
        &self,
        index: usize,
        op: L::Op,
        growth: usize,
    ) -> Result<Stamp, (L::Op, Refusal)> {
        self.in_use();
        // ORDER: Acquire; with the announcement before it, the updater's half of oplog.C1.
        let gate = self.gate.load(Ordering::Acquire);
        if gate != OPEN {
            return self.push_elsewhere(gate, index, op, growth);
        }
        // ORDER: Relaxed; only this slot's owner writes it while the gate is open, and one owner
        // succeeds another by Release and Acquire (percpu.P2).
        // SAFETY: oplog.C10 - the caller has announced the core, and the gate was open after that.
        let near = unsafe { self.near_place(index) }.map(|slot| slot.0.load(Ordering::Relaxed));
        let slot = match near {
            Some(slot) if !slot.is_null() => slot,
            _ => self.find_or_make_slot(index),
        };
        // SAFETY: oplog.C10 - not null, and freed only by an evictor, which waits for this
        // announced updater.
        let slot = unsafe { &*slot };
        // ORDER: Acquire; as for the gate above; this is the gate of logs with stamps (oplog.C4).
        let gated = L::ORDERED || seeded_bug!("no-cut");
        if gated {
            let gate = slot.gate.load(Ordering::Acquire);
            if gate != OPEN {
                return Err((op, self.refuse(gate, index)));
            }
        }
        // SAFETY: oplog.C1 - announced, gates open after that: this thread has exclusive access to
        // this slot's log.
        unsafe { self.push_to(slot, index, op, growth) }
    }

    /// Pushes an update to a log to which the caller has exclusive access.
    ///
    /// # Safety
    /// The caller has exclusive access to the log (oplog.C1 or oplog.C6).
    #[inline(always)]
    pub(super) unsafe fn push_to(
        &self,
        slot: &SlotLog<L>,
        index: usize,
        op: L::Op,
        growth: usize,
    ) -> Result<Stamp, (L::Op, Refusal)> {
        // Not `with_mut`: its closure is not always inlined, which costs an ordered append 2 ns.
        let local = slot.local.get_mut();
        // SAFETY: the caller promises exclusive access to the log, by oplog.C1 or by the turn
        // (oplog.C6), until this returns (# Safety).
        let local = unsafe { local.deref() };
        if !local.dirty {
            if let Err(refused) = self.mark_dirty(index, local) {
                return Err((op, refused));
            }
        } else if let Some(refused) = self.is_full(local, growth) {
            return Err((op, refused));
        }
        let stamp = self.stamp(local);
        held::assert_no_leaf();
        local.log.push(op, stamp);
        slot.count();
        Ok(stamp)
    }

    #[inline(always)]
    fn stamp(&self, local: &mut Local<L>) -> Stamp {
        if !L::ORDERED {
            return Stamp::ZERO;
        }
        local.next_stamp(|| self.clock_stamp())
    }

    #[inline(always)]
    fn clock_stamp(&self) -> Stamp {
        match self.hardware {
            Some(hardware) => hardware.stamp(),
            None => self.clock().stamp(),
        }
    }

    /// Queues an update of a thread that must not wait (`late`), or returns it if the core is about
    /// to be freed. Returns the clock whose skew the caller waits out after it has withdrawn its
    /// announcement.
    ///
    /// # Safety
    /// As [`clock_of_builder`](Self::clock_of_builder).
    pub(super) unsafe fn push_late<'a>(
        &self,
        op: L::Op,
    ) -> Result<Option<(&'a Clock, Stamp)>, L::Op> {
        let stamp = || if L::ORDERED { self.clock_stamp() } else { Stamp::ZERO };
        let stamp = self.late.push(op, stamp)?;
        let skewed = L::ORDERED && !self.stamps_in_hardware();
        // SAFETY: oplog.O1 - the caller promises to use the clock only while the object that has
        // this core is borrowed (# Safety).
        Ok(skewed.then(|| (unsafe { self.clock_of_builder() }, stamp)))
    }

    /// Whether there is a time bound.
    #[inline(always)]
    pub(super) fn is_timed(&self) -> bool {
        self.max_delay != u64::MAX
    }

    /// Whether stamps need no [`settle`](Clock::settle).
    #[inline(always)]
    pub(super) fn stamps_in_hardware(&self) -> bool {
        self.hardware.is_some()
    }

    /// Checks the log against `growth` times its bounds; `ANY_GROWTH` waives them all.
    #[inline(always)]
    fn is_full(&self, local: &Local<L>, growth: usize) -> Option<Refusal> {
        if self.is_roomy(local) { None } else { self.is_full_closer(local, growth) }
    }

    /// Whether the log is below its bounds and has no time bound.
    #[inline(always)]
    fn is_roomy(&self, local: &Local<L>) -> bool {
        local.log.len() < self.unchecked_entries && local.log.bytes() < self.max_bytes
    }

    #[cold]
    fn is_full_closer(&self, local: &Local<L>, growth: usize) -> Option<Refusal> {
        if local.log.len() >= self.config.max_entries.saturating_mul(growth)
            || local.log.bytes() >= self.max_bytes.saturating_mul(growth)
        {
            return Some(Refusal::Full);
        }
        let timed = self.is_timed() && growth == 1;
        (timed && self.is_overdue(local)).then_some(Refusal::Overdue)
    }

    fn is_overdue(&self, local: &Local<L>) -> bool {
        self.clock().ticks_now().saturating_sub(local.since) > self.max_delay
    }

    /// Called by an updater that is announced in the record of slot `index`, has no log in hand,
    /// and has found a gate closed: answers the reader that closed it (oplog.G2).
    #[cold]
    pub(super) fn refuse(&self, gate: u64, index: usize) -> Refusal {
        if is_frozen(gate) {
            percpu::records().get(index).answer(gate);
        }
        refusal(gate)
    }

    /// The clock whose skew an update has to wait out before it returns (oplog.D2). Outlives the
    /// announcement: the object keeps its configuration, and the clock in it.
    ///
    /// # Safety
    /// The result is used only while the object that has this core is borrowed.
    #[cold]
    pub(super) unsafe fn clock_of_builder<'a>(&self) -> &'a Clock {
        // SAFETY: the system's clock is static; any other is in the configuration that the object's
        // `ConfigId` keeps alive (oplog.O1), and the caller borrows the object.
        unsafe { &*ptr::from_ref(self.clock()) }
    }

    /// The first update since the last collection: sets the slot's dirty bit (oplog.C2, oplog.C3).
    #[cold]
    fn mark_dirty(&self, index: usize, local: &mut Local<L>) -> Result<(), Refusal> {
        debug_assert!(!local.dirty, "oplog.C2: a dirty slot is marked again");
        // SAFETY: oplog.C10 - `push_to` calls this for an updater with a log in hand, which it has
        // only while it is announced and has found the gate open.
        let word = unsafe { self.open_logs() }.dirty.0.get_or_init(index / 64);
        // ORDER: AcqRel and a full fence, against the gate's closing, the reader's barrier and
        // `list_dirty`: either the reader finds this bit, or the gate is seen closed below. Only
        // after that does the update return, and does its thread load what others stored
        // (oplog.D1).
        word.0.fetch_or(1 << (index % 64), Ordering::AcqRel);
        barrier::full_after_rmw();
        local.dirty = true;
        if self.is_timed() {
            local.since = self.clock().ticks_now();
        }
        // ORDER: Acquire; the second half of oplog.C3.
        let gate = self.gate.load(Ordering::Acquire);
        if gate == self.open { Ok(()) } else { Err(refusal(gate)) }
    }
}

/// The refusal that the value of a closed gate means to an updater.
pub(super) fn refusal(gate: u64) -> Refusal {
    if gate == EVICTED { Refusal::Evicted } else { Refusal::Closed }
}

impl<T, L: Log<T>> Drop for Core<T, L> {
    /// Drops logs and late updates. Each panic of a destructor is caught here, so that all memory
    /// is freed.
    fn drop(&mut self) {
        // SAFETY: no other thread is left.
        unsafe { self.take_logs(ptr::null_mut()) };
        while let Some(op) = self.late.pop() {
            sync::contain(|| drop(op));
        }
    }
}
