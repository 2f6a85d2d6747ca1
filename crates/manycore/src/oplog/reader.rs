//! The reader's side of a hot state: collecting, merging, and the policies that a read consults.
//!
//! Everything here runs with the hot state's lock held. The laws (oplog.C1 to oplog.C6) are in the
//! header of `hot_state`.

use super::builder::Publish;
use super::hot_state::{EVICTED, HotState, OPEN};
use super::log::Log;
use super::log_set::Inner;
use super::per_cpu_logs::Turn;
use super::promotion;
use super::slot_log::{Local, SlotLog};
use super::table::{Denied, Eviction};
use crate::clock::Stamp;
use crate::config;
use crate::lock::held;
use crate::percpu::dirty::DirtyWord;
use crate::percpu::{self, barrier};
use crate::sync::{AtomicBool, AtomicU64, Ordering, seeded_bug};
use std::panic::resume_unwind;
use std::ptr;

impl<T: Send + 'static, L: Log<T>> HotState<T, L> {
    /// Collects the updates that a read must see (oplog.D2), and applies them.
    ///
    /// # Safety
    /// The caller holds the hot state's lock.
    ///
    /// # Panics
    /// If applying does; updates not yet applied stay queued, and the hot state is poisoned
    /// (oplog.D7).
    pub(super) unsafe fn merge(&self) {
        // SAFETY: the caller promises that it holds the hot state's lock (# Safety); `_merging` is
        // dropped on return.
        let _merging = unsafe { self.begin_merging() };
        self.logs().inner.with_mut(|inner| {
            // SAFETY: the caller promises that it holds the hot state's lock (# Safety), which
            // guards `inner`; user code that runs in here does not access it (`begin_merging`).
            let inner = unsafe { &mut *inner };
            if L::ORDERED {
                // This thread's earlier stores are visible before the cut; else an updater that has
                // not seen them could have a stamp above the cut (oplog.D1). The full fence that
                // this needs is the announcement's in `lock_hot_state`.
                barrier::stores_are_visible();
            }
            // The cut is taken before the dirty bits are read: oplog.D2. (Harmless where it is not
            // used.)
            let cut =
                if L::ORDERED && !seeded_bug!("no-cut") { self.clock().cut() } else { Stamp::MAX };
            inner.window = 0;
            let dirty = self.count_dirty();
            // BUG: a read that finds no slot dirty ignores late updates (oplog.L2).
            if dirty == 0 && (self.late.is_empty() || seeded_bug!("forgotten-late")) {
                // Updates that waited for the poison flag to be cleared.
                // SAFETY: the caller promises that it holds the hot state's lock (# Safety).
                unsafe { self.apply(inner) };
                return;
            }
            if self.wants_tree(dirty, inner) {
                if let Some(panic) = self.collect_tree(inner) {
                    let _poison = Poison(&self.poisoned);
                    resume_unwind(panic); // oplog.D7
                }
            } else if L::ORDERED || seeded_bug!("no-cut") {
                self.collect_each(inner, cut);
            } else {
                self.collect_frozen(inner);
            }
            self.collect_late(inner);
            // SAFETY: the caller promises that it holds the hot state's lock (# Safety).
            unsafe { self.apply(inner) };
        });
    }

    /// Moves the late updates that were counted into a log in the collected logs.
    fn collect_late(&self, inner: &mut Inner<L>) {
        if inner.late == 0 {
            return;
        }
        let log = inner.spares.pop().unwrap_or_default();
        inner.collected_logs.push(log);
        inner.untidy = true;
        while inner.late != 0 {
            let (Some(log), Some((stamp, op))) = (inner.collected_logs.last_mut(), self.late.pop())
            else {
                inner.late = 0;
                return;
            };
            inner.late -= 1;
            inner.window += 1;
            // SAFETY: the lock guards the counts, and the caller holds it: it has `inner`, which
            // only the lock's holder reaches.
            unsafe { self.count(|counts| counts.appended_before += 1) };
            log.push(op, stamp);
        }
    }

    /// The number of slots that may have updates for a read that begins now. A read that finds none
    /// closes no gate and passes no barrier.
    ///
    /// oplog.C2: a slot with entries has its bit set, by an RMW and a full fence before its first
    /// entry. So if a word is zero, an updater that sets a bit later has not returned yet, and will
    /// then see all earlier stores of the calling thread: the two sides of oplog.D1. The words are
    /// loaded one after the other, but nothing is collected, and the empty set is a consistent cut.
    fn count_dirty(&self) -> usize {
        barrier::fence_full();
        // ORDER: Acquire; pairs with `mark_dirty`. The fences on both sides decide the race.
        let bits = |(_, word): (usize, &DirtyWord)| word.0.load(Ordering::Acquire).count_ones();
        self.logs().dirty.0.iter().map(bits).sum::<u32>() as usize
    }

    /// Whether a slot may have updates, for a caller with exclusive access to the hot state.
    pub(super) fn has_dirty(&self) -> bool {
        self.count_dirty() != 0
    }

    pub(super) fn is_biased(&self) -> bool {
        // ORDER: Relaxed; written under the hot state's lock, which the caller holds.
        self.biased.load(Ordering::Relaxed)
    }

    /// Logs without stamps: the updaters of all dirty slots are stopped at one moment (oplog.C3).
    fn collect_frozen(&self, inner: &mut Inner<L>) {
        let closed = inner.numbers.next_closed();
        // ORDER: Release is enough: the fence orders the store before the loads of the records that
        // follow.
        self.gate.store(closed, Ordering::Release);
        let _open = Reopen { gate: &self.gate, to: self.open };
        barrier::fence_full();
        self.list_dirty(&mut inner.slots);
        let answered = self.settle(&inner.slots, &mut inner.unanswered, closed);
        let _turns = self.wait_for_updaters(&inner.slots, answered);
        inner.late = self.late.count(Stamp::MAX); // all updaters are stopped (oplog.L4)
        for place in 0..inner.slots.len() {
            let index = inner.slots[place];
            // SAFETY: oplog.C1 - gate closed, barrier passed, no updater inside.
            unsafe { self.collect_slot(index, Stamp::MAX, answered, inner) };
        }
    }

    /// Logs with stamps: one after the other, up to the cut (oplog.C4).
    fn collect_each(&self, inner: &mut Inner<L>, cut: Stamp) {
        inner.late = self.late.count(cut); // oplog.L3
        // Before the logs, because a late update precedes a logged one with the same stamp.
        self.collect_late(inner);
        let closed = inner.numbers.next_closed();
        let _collecting = Collecting::begin(&self.collecting, closed);
        self.list_dirty(&mut inner.slots);
        let rest = ReopenAll { hot: self, closed };
        for index in &inner.slots {
            if let Some(slot) = self.slot_log(*index) {
                // ORDER: Release; see `collect_frozen`.
                slot.gate.store(closed, Ordering::Release);
            }
        }
        barrier::fence_full();
        let answered = self.settle(&inner.slots, &mut inner.unanswered, closed);
        // BUG: a reader takes its cut after it has read which logs have entries (oplog.D2).
        let cut = if seeded_bug!("late-cut") { self.clock().cut() } else { cut };
        for place in 0..inner.slots.len() {
            let index = inner.slots[place];
            let Some(slot) = self.slot_log(index) else { continue };
            let _open = Reopen { gate: &slot.gate, to: OPEN };
            let _turns = self.wait_for_updaters(&[index], answered);
            // SAFETY: oplog.C1 - gate closed, barrier passed, no updater inside.
            unsafe { self.collect_slot(index, cut, answered, inner) };
        }
        std::mem::forget(rest);
    }

    /// Called after closing the gates, a fence and `list_dirty`: ensures that the biased stores of
    /// the slots' updaters are visible. Returns whether all updaters have answered, so that none is
    /// inside. Where logs belong to CPUs, turns exclude the updaters instead of announcements
    /// (oplog.V3).
    pub(super) fn settle(&self, slots: &[usize], unanswered: &mut bool, closed: u64) -> bool {
        *unanswered = false;
        if self.is_per_cpu() || !self.is_biased() {
            return false;
        }
        let answered = self.is_answered(slots, closed);
        if !answered {
            *unanswered = true;
            barrier::heavy();
        }
        answered
    }

    /// Waits until no updater has one of these slots' logs in hand. No updater takes one while the
    /// gate is closed and, where logs belong to CPUs, the turns are held.
    pub(super) fn wait_for_updaters(&self, slots: &[usize], answered: bool) -> Vec<Turn<'_>> {
        if self.is_per_cpu() {
            return self.take_turns(slots);
        }
        if answered {
            return Vec::new();
        }
        for index in slots {
            percpu::records().wait_for(*index, |announced| promotion::updates(announced, self));
        }
        Vec::new()
    }

    /// Lists the dirty slots.
    pub(super) fn list_dirty(&self, slots: &mut Vec<usize>) {
        slots.clear();
        for (number, word) in self.logs().dirty.0.iter() {
            // ORDER: Acquire; pairs with `mark_dirty`. The caller has passed a full fence:
            // oplog.C3.
            let mut bits = word.0.load(Ordering::Acquire);
            while bits != 0 {
                slots.push(number * 64 + bits.trailing_zeros() as usize);
                bits &= bits - 1;
            }
        }
    }

    /// Moves a slot's entries up to `cut` to the collected logs.
    ///
    /// The slot of an updater that answered (`busy`) is about to be updated again, and stays dirty:
    /// that saves each side a locked instruction on a line that the other core has cached. Lines
    /// that the updater reads next are written here only if necessary, because it would miss on
    /// them.
    ///
    /// # Safety
    /// oplog.C1 holds for the caller as reader.
    pub(super) unsafe fn collect_slot(
        &self,
        index: usize,
        cut: Stamp,
        busy: bool,
        inner: &mut Inner<L>,
    ) {
        let Some(slot) = self.slot_log(index) else { return };
        slot.local.with_mut(|local| {
            // SAFETY: oplog.C1 - the caller promises exclusive access to the slot's log as a reader
            // (# Safety): gate closed, barrier passed, no updater inside.
            let local = unsafe { &mut *local };
            held::assert_no_leaf();
            if !local.log.is_empty() {
                // Pushed to the collected logs first, so that entries moved before a panic stay
                // there.
                let was_untidy = std::mem::replace(&mut inner.untidy, true);
                let into = inner.spares.pop().unwrap_or_default();
                inner.collected_logs.push(into);
                let Some(into) = inner.collected_logs.last_mut() else { return };
                local.log.collect(cut, into);
                if into.is_empty() {
                    inner.spares.extend(inner.collected_logs.pop());
                }
                inner.untidy = was_untidy;
            }
            inner.window += self.note_collected(slot, local, index, busy);
        });
    }

    /// Decides whether a slot whose log was collected stays dirty. Returns the number of updates
    /// since the previous collection.
    pub(super) fn note_collected(
        &self,
        slot: &SlotLog<L>,
        local: &mut Local<L>,
        index: usize,
        busy: bool,
    ) -> u64 {
        // ORDER: Relaxed; a statistic, stable under oplog.C1.
        let new = local.new_since(slot.appended.load(Ordering::Relaxed));
        // Entries above the cut wait for the next read; oplog.C2 requires that the bit stays set.
        if local.log.is_empty() && !(busy && new != 0 && !self.is_timed()) {
            local.dirty = false;
            let word = self.logs().dirty.0.get_or_init(index / 64);
            // ORDER: Relaxed; passed on with the log (oplog.C1).
            word.0.fetch_and(!(1 << (index % 64)), Ordering::Relaxed);
        }
        new
    }

    /// Applies the collected logs, unless the object is poisoned.
    ///
    /// # Safety
    /// The caller holds the hot state's lock.
    pub(super) unsafe fn apply(&self, inner: &mut Inner<L>) {
        // SAFETY: the caller promises that it holds the hot state's lock (# Safety).
        unsafe { self.count(|counts| counts.merges += 1) };
        // ORDER: Relaxed; written under the hot state's lock, which the caller holds.
        if inner.collected_logs.is_empty() || self.poisoned.load(Ordering::Relaxed) {
            return;
        }
        held::assert_no_leaf();
        if inner.untidy {
            inner.collected_logs.retain(|log| !log.is_empty());
            inner.untidy = false;
        }
        self.value.with_mut(|value| {
            let poison = Poison(&self.poisoned);
            // SAFETY: the value is in the hot state while the hot state is in use (oplog.W2), and
            // the caller holds the lock.
            let value = unsafe { (*value).assume_init_mut() };
            inner.untidy = true;
            let applied = L::merge(&mut inner.collected_logs, value) as u64;
            // SAFETY: the caller promises that it holds the hot state's lock (# Safety).
            unsafe { self.count(|counts| counts.applied = counts.applied.wrapping_add(applied)) };
            std::mem::forget(poison);
        });
        // In reverse, so that each slot gets its own buffers back as long as the same slots are
        // dirty. Updates that a merge leaves behind stay queued.
        while inner.collected_logs.last().is_some_and(|log| log.is_empty()) {
            inner.spares.extend(inner.collected_logs.pop());
        }
        inner.untidy = !inner.collected_logs.is_empty();
    }

    /// After a read: whether to switch publication, and to which mode.
    ///
    /// # Safety
    /// The caller holds the hot state's lock.
    pub(super) unsafe fn wants_bias(&self) -> Option<bool> {
        let biased = self.is_biased();
        if self.is_per_cpu() {
            return None;
        }
        let wanted = match self.config.publish {
            Publish::Locked => false,
            Publish::Biased => barrier::is_asymmetric(),
            // SAFETY: the caller promises that it holds the hot state's lock (# Safety), which
            // guards `inner` and the counts. No merge is in progress, and no user code runs in
            // here.
            Publish::Auto => self.logs().inner.with_mut(|inner| unsafe {
                let inner = &mut *inner;
                if inner.window == 0 {
                    return biased; // it has cost no barrier
                }
                let speaks = if biased {
                    inner.speaks_against_bias(self.config.ratio_for_bias)
                } else {
                    let merges = self.counts().merges;
                    inner.speaks_for_bias(self.config.ratio_for_bias, merges)
                        && barrier::is_asymmetric()
                };
                inner.for_switch = if speaks { inner.for_switch + 1 } else { 0 };
                if inner.for_switch >= 2 { !biased } else { biased }
            }),
        };
        (wanted != biased).then_some(wanted)
    }

    /// Records a switch of publication; the object's word has been changed already.
    ///
    /// # Safety
    /// The caller holds the hot state's lock.
    pub(super) unsafe fn set_biased(&self, biased: bool) {
        if !biased {
            // An updater that announced under the bias may still have its announcement in a store
            // buffer; from here on readers pay no barrier that flushes it.
            barrier::heavy();
        }
        // ORDER: Relaxed; guarded by the lock.
        self.biased.store(biased, Ordering::Relaxed);
        // SAFETY: the caller promises that it holds the hot state's lock (# Safety), which guards
        // `inner` and the counts. No user code runs in here.
        self.logs().inner.with_mut(|inner| unsafe {
            let inner = &mut *inner;
            inner.for_switch = 0;
            if !biased && inner.unanswered {
                inner.failed_probes = (inner.failed_probes + 1).min(config::FAILED_PROBES_MAX);
                inner.next_probe_at =
                    self.counts().merges + (config::READS_BEFORE_PROBE << inner.failed_probes);
            }
        });
    }

    /// After a read: whether the logs no longer pay.
    ///
    /// # Safety
    /// The caller holds the hot state's lock.
    pub(super) unsafe fn wants_demotion(&self) -> bool {
        // SAFETY: the caller promises that it holds the hot state's lock (# Safety), which guards
        // `inner`. No user code runs in here.
        self.logs().inner.with_mut(|inner| unsafe {
            let inner = &mut *inner;
            let idle = inner.window < u64::from(logs_pay_from(inner.slots.len()) / 2);
            inner.for_demotion = if idle { inner.for_demotion + 1 } else { 0 };
            inner.for_demotion >= self.config.idle_reads
        })
    }

    pub(super) fn is_evicted(&self) -> bool {
        // ORDER: Relaxed; written under the hot state's lock, which the caller holds.
        self.gate.load(Ordering::Relaxed) == EVICTED
    }

    /// Whether the hot state has logs but no place in the table, and finds none (oplog.T1). A
    /// poisoned hot state needs no place: its updates must stay in logs.
    ///
    /// # Safety
    /// The caller holds the hot state's lock.
    pub(super) unsafe fn is_without_place(&self) -> bool {
        // ORDER: Relaxed; written under the hot state's lock, which the caller holds.
        let poisoned = self.poisoned.load(Ordering::Relaxed);
        let needs_none = poisoned || self.membership.is_placed();
        !needs_none && !self.membership.enter_if_free(self.table(), ptr::from_ref(self))
    }

    /// Waits until no updater is inside and takes everything from every log.
    ///
    /// # Safety
    /// The caller holds the hot state's lock and has made sure that updaters which announce the hot
    /// state from now on leave without touching a log.
    pub(super) unsafe fn drain_all(&self) {
        // SAFETY: the caller promises that it holds the hot state's lock (# Safety); `_merging` is
        // dropped on return.
        let _merging = unsafe { self.begin_merging() };
        // SAFETY: the caller promises that it holds the hot state's lock, and that updaters which
        // announce the hot state from now on touch no log (# Safety).
        unsafe { self.collect_all() };
        // SAFETY: the caller promises that it holds the hot state's lock (# Safety).
        self.logs().inner.with_mut(|inner| unsafe { self.apply(&mut *inner) });
    }

    /// The same without applying the updates. A panic leaves what was not collected in its log.
    ///
    /// # Safety
    /// As [`drain_all`](Self::drain_all).
    pub(super) unsafe fn collect_all(&self) {
        promotion::wait_for_updaters(self, self.is_biased());
        self.logs().inner.with_mut(|inner| {
            // SAFETY: the caller promises that it holds the hot state's lock (# Safety), which
            // guards `inner`; both callers have called `begin_merging`.
            let inner = unsafe { &mut *inner };
            self.list_dirty(&mut inner.slots);
            inner.late = self.late.count(Stamp::MAX);
            self.collect_late(inner);
            for place in 0..inner.slots.len() {
                let index = inner.slots[place];
                // SAFETY: oplog.C1 - no updater is inside and none will be.
                unsafe { self.collect_slot(index, Stamp::MAX, false, inner) };
            }
        });
    }

    /// Enters the hot state in its table, before it is published. The caller holds the object's
    /// lock.
    pub(super) fn enter_table(&self, insist: bool) -> Result<Eviction, Denied> {
        self.membership.enter(self.table(), ptr::from_ref(self), insist, 1)
    }

    /// Leaves the table (promotion.H5). A thread that frees a hot state calls this first.
    pub(super) fn leave_table(&self) {
        self.membership.leave(self.table(), ptr::from_ref(self));
    }

    /// Whether collected updates wait for poison to be cleared.
    ///
    /// # Safety
    /// The caller holds the hot state's lock.
    pub(super) unsafe fn has_collected_logs(&self) -> bool {
        // SAFETY: the caller promises that it holds the hot state's lock (# Safety), which guards
        // `inner`. No user code runs in here.
        self.logs().inner.with_mut(|inner| unsafe { !(*inner).collected_logs.is_empty() })
    }
}

/// The number of updates per read from which logs pay, if a read visits `slots` slots.
pub(super) fn logs_pay_from(slots: usize) -> u32 {
    let slots = u32::try_from(slots).unwrap_or(u32::MAX);
    slots
        .saturating_mul(config::RATIO_FOR_LOGS_PER_SLOT)
        .clamp(config::RATIO_FOR_LOGS_MIN, config::RATIO_FOR_LOGS_MAX)
}

impl<L> Inner<L> {
    /// Whether the last read is evidence for plain stores; where busy updaters answer, a few
    /// updates per read are enough.
    fn speaks_for_bias(&self, ratio: u64, merges: u64) -> bool {
        let probes = merges >= self.next_probe_at;
        self.window > if probes { config::RATIO_FOR_ANSWERS } else { ratio }
    }

    /// Whether the last read is evidence for locked instructions.
    fn speaks_against_bias(&mut self, ratio: u64) -> bool {
        if self.unanswered {
            return self.window <= (ratio / 2).max(1);
        }
        self.failed_probes = 0;
        self.window < config::RATIO_AGAINST_ANSWERS
    }
}

/// Marks a collection as in progress (oplog.C8) until it is dropped, also by a panic.
pub(super) struct Collecting<'a>(&'a AtomicU64);

impl<'a> Collecting<'a> {
    pub(super) fn begin(flag: &'a AtomicU64, closed: u64) -> Self {
        // ORDER: Relaxed; an updater that finds a gate closed (Acquire, pairs with its Release)
        // sees this, too.
        flag.store(closed, Ordering::Relaxed);
        Self(flag)
    }
}

impl Drop for Collecting<'_> {
    fn drop(&mut self) {
        // ORDER: Release; pairs with Acquire in `wait_for_collection`: the open gate.
        self.0.store(0, Ordering::Release);
    }
}

/// Opens a gate again, also when collecting panics.
pub(super) struct Reopen<'a> {
    pub(super) gate: &'a AtomicU64,
    pub(super) to: u64,
}

impl Drop for Reopen<'_> {
    fn drop(&mut self) {
        // ORDER: Release; pairs with the updater's Acquire: the log as the reader left it.
        self.gate.store(self.to, Ordering::Release);
    }
}

/// Opens all slots' gates that a collection has closed, if collecting one of them panics.
struct ReopenAll<'a, T: Send + 'static, L: Log<T>> {
    hot: &'a HotState<T, L>,
    closed: u64,
}

impl<T: Send + 'static, L: Log<T>> Drop for ReopenAll<'_, T, L> {
    fn drop(&mut self) {
        for slot in self.hot.slot_logs() {
            // ORDER: Relaxed load; only the holder of the hot state's lock closes gates. Release;
            // pairs with the updater's Acquire.
            if slot.gate.load(Ordering::Relaxed) == self.closed {
                slot.gate.store(OPEN, Ordering::Release);
            }
        }
    }
}

/// Poisons the hot state if dropped, that is, if applying panics.
struct Poison<'a>(&'a AtomicBool);

impl Drop for Poison<'_> {
    fn drop(&mut self) {
        // ORDER: Relaxed; read under the hot state's lock, or as a hint.
        self.0.store(true, Ordering::Relaxed);
    }
}
