//! The hot state of an object: value, lock, and one log per slot.
//!
//! ```text
//! object.word --> hot state: gate | first slots' logs | lock | late | counts | value
//!                     |
//!                     +--> log set: slots' logs | tree | dirty bits | inner (collected logs)
//! ```
//!
//! Owns: the layout of a hot state, its flags and counts, and its memory. The updater's side is in
//! `push`, the reader's side in `collect` and `merge`. `lifecycle` says which object has a hot
//! state, and when.
//!
//! There are two roles. An *updater* announces the hot state in its slot's record, and checks that
//! the gates are open. Then it has exclusive access to its slot's log until it withdraws the
//! announcement. A *reader* holds the hot state's lock, closes a gate, passes a barrier, and waits
//! until no dirty slot's record announces the hot state. Then it has exclusive access to those logs
//! until it opens the gate. An updater's answer (`gate`) replaces both the barrier and the load of
//! its record.
//!
//! Laws (the D laws are in the header of the parent module):
//! - hot_state.C1 An updater touches a log only between announcement and withdrawal. *After* the
//!   announcement, it has checked that the object still has this hot state and that both gates are
//!   open. A reader touches a log only after it has closed a gate, passed the barrier, and seen the
//!   record without this hot state. Or it has closed a gate and read the updater's answer
//!   (oplog_gate.G2, oplog_gate.G3). The updater announces and then checks; the reader closes and
//!   then looks: this is the store-buffering race that `percpu::barrier` resolves. The log of the
//!   reader's own slot has no updater but the reader, so the reader needs none of this. It closes
//!   that log's gate to the updates of user code that it runs.
//! - hot_state.C2 A slot with entries has its dirty bit set, and its updater's copy `local.dirty`.
//!   Both change only under hot_state.C1. The slot of a busy updater, or of the reader, stays dirty
//!   when it is emptied.
//! - hot_state.C3 A log without stamps is collected under the hot state's gate. The updaters of all
//!   dirty slots are stopped at one moment, so what is collected is a consistent cut. If a slot
//!   becomes dirty during the collection, its updater checks the gate again after setting its bit.
//! - hot_state.C4 A log with stamps is collected under its own gate, up to a cut taken before the
//!   dirty bits are read (oplog.D2).
//! - hot_state.C5 Updates that were collected and not applied are in `collected_logs`, in the order
//!   in which they must be applied.
//! - hot_state.C7 While the hot state's gate says `EVICTED`, no updater is inside and no slot has a
//!   log.
//! - hot_state.C8 A reader waits only for the updaters that were inside when it closed the gate. An
//!   updater that finds a gate closed waits, announced as a waiter (promotion.H3), until the
//!   collection is over. (If it retried at once, it might be inside each time the reader looks.)
//! - hot_state.C9 While an updater waits it may help: it collects on the reader's behalf under the
//!   laws of `combining_tree`.

use super::gate::{AtomicGate, Gate};
use super::late::Late;
use super::log::Log;
use super::log_set::LogSet;
use super::promotion::{self, Membership};
use super::readers::Readers;
use super::settings::Config;
use super::slot_log::{FIRST, Padded, SlotLog};
use super::table::{self, Denied, Eviction, LogTable};
use crate::clock::{Clock, Hardware};
use crate::lock;
use crate::percpu::{self, slot_table::SlotPtr};
use crate::sync::{self, AtomicPtr, AtomicU32, AtomicUsize, Ordering, UnsafeCell, panicking};
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::Arc;

/// A hot state; the module header explains it. An evicted object keeps all of this: 256 bytes if
/// its value has at most 8 bytes. Fields that only an object with logs needs are in the log set.
#[repr(C, align(128))]
pub(super) struct HotState<T, L: Log<T>> {
    // Read by every update; written by collections without stamps, and at eviction.
    pub(super) gate: AtomicGate,
    /// Below this number of entries, an update checks no bound. Zero if there is a time bound.
    pub(super) unchecked_entries: usize,
    pub(super) max_bytes: usize,
    /// The hardware counter, if reading it is all that a stamp takes.
    pub(super) hardware: Option<Hardware>,
    /// The logs of the first slots, one load nearer than those in the log set.
    pub(super) first: [SlotPtr<SlotLog<L>>; FIRST],
    /// Null once an eviction has freed it (log_set.C10).
    pub(super) logs: AtomicPtr<LogSet<L>>,
    /// The time bound in ticks; `u64::MAX` if there is none.
    pub(super) max_delay: u64,
    pub(super) config: Arc<Config>,
    /// Readers that may be inside the value, which is still in the object (readers.A5); or null.
    readers: AtomicPtr<Readers>,
    // Written by readers, from here on.
    next_line: Padded<()>,
    pub(super) lock: AtomicUsize,
    /// Updates of threads that must not wait for a log. On this line because each read checks it.
    pub(super) late: Late<L::Op>,
    // The second half of the pair of lines: the lock's holder writes it, away from the lock's
    // waiters.
    counts: UnsafeCell<Counts>,
    /// Closed during a collection. If each slot has its own gate, updaters that find theirs closed
    /// wait until this one is open (hot_state.C8).
    pub(super) collecting: AtomicGate,
    flags: AtomicU32,
    pub(super) membership: Membership,
    pub(super) value: UnsafeCell<MaybeUninit<T>>,
}

// SAFETY: the value and the logs are reached only under the hot state's lock or under hot_state.C1,
// by one thread at a time. Both may move between threads (`T: Send`, and `L: Send` as every log
// is).
unsafe impl<T: Send, L: Log<T>> Send for HotState<T, L> {}
// SAFETY: a shared hot state gives the value and `inner` to the lock's holder, and a log to its
// updater, the reader or a helper (hot_state.C1, combining_tree.B3), one thread at a time. Late
// updates are `Send` and move through `Late`. Only a `ReadGuard` shares the value, and it is `Sync`
// only if `T: Sync`.
unsafe impl<T: Send, L: Log<T>> Sync for HotState<T, L> {}

// The flags. The lock's holder changes them, except `POISONED`, which any thread may clear. Without
// the lock they are hints. (So ORDER: Relaxed for all; the lock orders them.)
/// The value is in the hot state.
const HAS_VALUE: u32 = 1;
const POISONED: u32 = 2;
/// Updates publish with plain stores.
const BIASED: u32 = 4;
/// The object was dropped within its own eviction (object.W4).
const ORPHANED: u32 = 8;

/// Counts that the holder of a hot state's lock keeps. They are apart from `Inner`, which is
/// borrowed while user code runs: no reference to these counts outlives a call.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Counts {
    /// Updates appended to logs that an eviction has freed.
    pub(super) appended_before: u64,
    /// Updates that have been collected and applied, or absorbed before that.
    pub(super) merged: u64,
    pub(super) applied: u64,
    pub(super) merges: u64,
    pub(super) evictions: u64,
}

#[inline]
fn clock_of(config: &Config) -> &Clock {
    match &config.clock {
        Some(clock) => &clock.0,
        None => Clock::system(),
    }
}

impl<T: Send + 'static, L: Log<T>> HotState<T, L> {
    /// Makes a hot state without a value, locked by `token`. Allocated as a box, and not turned
    /// back into one while another thread may have a reference to it.
    pub(super) fn new_locked(config: Arc<Config>, token: usize, biased: bool) -> *mut Self {
        let clock = clock_of(&config);
        let max_delay = config.max_delay.map_or(u64::MAX, |delay| clock.duration_to_ticks(delay));
        Box::into_raw(Box::new(Self {
            gate: AtomicGate::new(),
            unchecked_entries: if max_delay == u64::MAX { config.max_entries } else { 0 },
            max_bytes: config.max_bytes,
            hardware: clock.hardware(),
            first: std::array::from_fn(SlotPtr::from),
            logs: AtomicPtr::new(LogSet::with_collected_logs(Vec::new(), 0)),
            max_delay,
            config,
            readers: AtomicPtr::new(ptr::null_mut()),
            next_line: Padded(()),
            lock: AtomicUsize::new(token | lock::LOCKED),
            late: Late::new(),
            counts: UnsafeCell::new(Counts::default()),
            collecting: AtomicGate::new(),
            flags: AtomicU32::new(if biased { BIASED } else { 0 }),
            membership: Membership::new(),
            value: UnsafeCell::new(MaybeUninit::uninit()),
        }))
    }

    /// Tells loom that the hot state is in use here, so that freeing it concurrently is a race
    /// (object.W3).
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
            Some(table) => &table.0,
            None => table::shared(),
        }
    }

    /// Returns true if there is a time bound.
    #[inline(always)]
    pub(super) fn is_timed(&self) -> bool {
        self.max_delay != u64::MAX
    }

    /// Returns true if updates take more than the short path, whatever their logs hold.
    pub(super) fn needs_slow_path(&self) -> bool {
        self.is_timed() || L::ORDERED && self.clock().is_skewed()
    }

    /// Returns true if an eviction has freed the logs. For the lock's holder; else a hint.
    pub(super) fn is_evicted(&self) -> bool {
        self.gate.of_holder() == Gate::EVICTED
    }

    /// Returns true if the record of slot `index` announces this hot state as an updater
    /// (hot_state.C1).
    pub(super) fn is_updated_by(&self, index: usize) -> bool {
        promotion::updates(percpu::records().get(index).announced(), self)
    }

    /// Returns true if no other thread holds the lock. A caller that has the only reference need
    /// not hold it. For assertions; always true under loom, where a load is a step of the schedule.
    pub(super) fn is_exclusive(&self) -> bool {
        if cfg!(manycore_loom) {
            return true;
        }
        // ORDER: Relaxed; a thread sees its own lock.
        let seen = self.lock.load(Ordering::Relaxed);
        seen & lock::LOCKED == 0 || lock::is_held_by(&self.lock, percpu::thread_token())
    }

    // ---- the flags ----

    #[inline(always)]
    fn has(&self, flag: u32) -> bool {
        self.flags.load(Ordering::Relaxed) & flag != 0
    }

    fn set(&self, flag: u32, to: bool) {
        if to {
            self.flags.fetch_or(flag, Ordering::Relaxed);
        } else {
            self.flags.fetch_and(!flag, Ordering::Relaxed);
        }
    }

    /// Returns true if the value is here, and the hot state is in the table and neither poisoned
    /// nor evicted. For the lock's holder.
    #[inline(always)]
    pub(super) fn is_ordinary(&self) -> bool {
        let flags = self.flags.load(Ordering::Relaxed) & !BIASED;
        flags == HAS_VALUE && !self.is_evicted() && self.membership.is_placed()
    }

    pub(super) fn is_biased(&self) -> bool {
        self.has(BIASED)
    }

    /// Notes the new bias. The lock's holder has changed the object's word and, if the bias ends,
    /// has passed a heavy barrier.
    pub(super) fn note_bias(&self, biased: bool) {
        debug_assert!(biased != self.is_biased(), "promotion.H2: the bias changes to what it is");
        debug_assert!(self.is_exclusive(), "object.W1: another thread holds the lock");
        self.set(BIASED, biased);
    }

    pub(super) fn is_poisoned(&self) -> bool {
        self.has(POISONED)
    }

    pub(super) fn poison(&self) {
        self.set(POISONED, true);
    }

    pub(super) fn clear_poison(&self) {
        self.set(POISONED, false);
    }

    /// Returns true if the object was dropped within its own eviction. Then the evicting thread
    /// frees the value and the hot state (object.W4).
    pub(super) fn is_orphaned(&self) -> bool {
        self.has(ORPHANED)
    }

    pub(super) fn orphan(&self) {
        debug_assert!(self.has_value(), "object.W2: its lock has been free");
        debug_assert!(
            cfg!(manycore_loom) || self.membership.is_claimed(),
            "object.W4: left to no evictor"
        );
        self.set(ORPHANED, true);
    }

    pub(super) fn has_value(&self) -> bool {
        self.has(HAS_VALUE)
    }

    /// Returns the field `readers`. The caller holds the lock, or has not published the hot state
    /// yet.
    pub(super) fn readers(&self) -> Option<&Readers> {
        // ORDER: Relaxed; the lock orders it.
        let readers = self.readers.load(Ordering::Relaxed);
        // SAFETY: readers.A5 - `Adaptive` frees them after its object, which frees this.
        unsafe { readers.as_ref() }
    }

    /// Sets the field `readers`; the caller is as for [`readers`](Self::readers).
    pub(super) fn set_readers(&self, readers: Option<&Readers>) {
        let readers = readers.map_or(ptr::null_mut(), |readers| ptr::from_ref(readers).cast_mut());
        // ORDER: Relaxed; as above.
        self.readers.store(readers, Ordering::Relaxed);
    }

    // ---- the value ----

    /// Moves the value in from the object.
    ///
    /// # Safety
    /// The caller holds the hot state's lock or has exclusive access to the object, and `from`
    /// holds the object's value.
    pub(super) unsafe fn move_in(&self, from: &UnsafeCell<MaybeUninit<T>>) {
        debug_assert!(!self.has_value(), "object.W2: a promotion is finished twice");
        debug_assert!(self.is_exclusive(), "object.W1: another thread holds the lock");
        // SAFETY: object.W1, object.W2 - the caller promises the lock or exclusive access, and that
        // the value is in `from` (# Safety). The place here is empty.
        unsafe {
            from.with(|from| self.value.with_mut(|to| ptr::copy_nonoverlapping(from, to, 1)));
        }
        self.set(HAS_VALUE, true);
        self.set_readers(None);
    }

    /// Moves the value out to the object, which does not use this hot state from now on.
    ///
    /// # Safety
    /// The caller holds the hot state's lock or has exclusive access to the object. The object's
    /// place `to` is empty.
    pub(super) unsafe fn move_out(&self, to: &UnsafeCell<MaybeUninit<T>>) {
        debug_assert!(self.has_value(), "object.W1: the value is elsewhere");
        debug_assert!(self.is_exclusive(), "object.W1: another thread holds the lock");
        // SAFETY: object.W1 - the value is here, the caller promises the lock or exclusive access,
        // and the place in the object is empty (# Safety).
        unsafe {
            self.value.with(|from| to.with_mut(|to| ptr::copy_nonoverlapping(from, to, 1)));
        }
        self.set(HAS_VALUE, false);
    }

    /// Takes the value out for good.
    ///
    /// # Safety
    /// The caller has the only reference to the hot state.
    pub(super) unsafe fn take_value(&self) -> T {
        debug_assert!(self.has_value(), "object.W2: a value is taken that is not there");
        self.set(HAS_VALUE, false);
        // SAFETY: object.W1 - the value is here, and the caller promises that no other thread uses
        // it (# Safety). It is not used here again.
        self.value.with(|value| unsafe { ptr::read(value).assume_init() })
    }

    // ---- the table ----

    /// Enters the hot state in its table, before it is published. The caller holds the object's
    /// lock.
    pub(super) fn enter_table(&self, insist: bool) -> Result<Eviction, Denied> {
        self.membership.enter(self.table(), ptr::from_ref(self), insist, 1)
    }

    /// Leaves the table (promotion.H5). A thread that frees a hot state calls this first.
    pub(super) fn leave_table(&self) {
        self.membership.leave(self.table(), ptr::from_ref(self));
    }

    /// Returns true if the hot state has logs but no place in the table, and finds none
    /// (oplog_table.T1). A poisoned hot state needs no place: its updates must stay in logs. For
    /// the lock's holder.
    pub(super) fn is_without_place(&self) -> bool {
        debug_assert!(self.is_exclusive(), "oplog_table.T1: another thread holds the lock");
        let needs_none = self.is_poisoned() || self.membership.is_placed();
        !needs_none && !self.membership.enter_if_free(self.table(), ptr::from_ref(self))
    }

    // ---- the counts ----

    /// Returns a copy of the counts.
    ///
    /// # Safety
    /// The caller holds the hot state's lock.
    pub(super) unsafe fn counts(&self) -> Counts {
        // SAFETY: the lock guards it, and no reference to it outlives a call.
        self.counts.with(|counts| unsafe { *counts })
    }

    /// Changes the counts. `change` runs no user code.
    ///
    /// # Safety
    /// The caller holds the hot state's lock.
    pub(super) unsafe fn count(&self, change: impl FnOnce(&mut Counts)) {
        debug_assert!(self.is_exclusive(), "object.W1: another thread holds the lock");
        // SAFETY: the caller promises that it holds the hot state's lock (# Safety), which guards
        // the counts; `change` runs no user code, so no other reference to them exists.
        self.counts.with_mut(|counts| unsafe { change(&mut *counts) });
    }
}

impl<T, L: Log<T>> HotState<T, L> {
    /// Frees the log set and the logs of the first slots, and puts `next` in the log set's place.
    /// Panics of the logs' destructors are caught here.
    ///
    /// # Safety
    /// No other thread reaches the log set (log_set.C10).
    pub(super) unsafe fn take_logs(&self, next: *mut LogSet<L>) {
        // ORDER: AcqRel; Release pairs with Acquire in `logs_if_any`, and Acquire with Release in
        // `make_logs`.
        let old = self.logs.swap(next, Ordering::AcqRel);
        if old.is_null() {
            return;
        }
        // SAFETY: log_set.C10 - the set came from a box, the swap has taken it out, and the caller
        // promises that no other thread reaches it (# Safety).
        let old = unsafe { Box::from_raw(old) };
        for (from, to) in self.first.iter().zip(&old.slots.near) {
            // ORDER: Acquire, Relaxed; pairs with Release in `find_or_make_slot`.
            let log = from.0.swap(ptr::null_mut(), Ordering::Acquire);
            to.0.store(log, Ordering::Relaxed);
        }
        // Dropped, which runs user code, only after the hot state no longer refers to any of it.
        drop(old);
    }
}

impl<T, L: Log<T>> Drop for HotState<T, L> {
    /// Drops logs and late updates. Each panic of a destructor is caught here, so that all memory
    /// is freed.
    fn drop(&mut self) {
        let has_value = self.flags.load(Ordering::Relaxed) & HAS_VALUE != 0;
        debug_assert!(!has_value || panicking(), "object.W1: freed with the value in it");
        // SAFETY: no other thread is left.
        unsafe { self.take_logs(ptr::null_mut()) };
        while let Some(op) = self.late.pop() {
            sync::contain(|| drop(op));
        }
    }
}
