//! The reader's side of a hot state: collecting the slots' logs.
//!
//! Owns: the two ways to collect without the updaters' help: flat under one gate, or log by log up
//! to a cut. Also owns what they share with the combining tree: closing, waiting, emptying a slot.
//! Everything here runs with the hot state's lock held. Laws hot_state.C1 to hot_state.C5 are in
//! the header of `hot_state`, those of answers in `gate`.

use super::gate::Gate;
use super::hot_state::HotState;
use super::log::Log;
use super::log_set::Inner;
use super::promotion;
use super::slot_log::{Local, SlotLog};
use crate::clock::Stamp;
use crate::config;
use crate::percpu::{self, barrier};
use crate::sync::{Ordering, hint, seeded_bug};

impl<T: Send + 'static, L: Log<T>> HotState<T, L> {
    /// Returns true if a slot may have updates. The caller has exclusive access to the hot state.
    pub(super) fn has_dirty(&self) -> bool {
        // ORDER: Acquire; pairs with `mark_dirty`.
        self.logs().dirty.0.iter().any(|(_, word)| word.0.load(Ordering::Acquire) != 0)
    }

    /// Collects logs without stamps: the updaters of all dirty slots are stopped at one moment
    /// (hot_state.C3).
    pub(super) fn collect_frozen(&self, inner: &mut Inner<L>) {
        let closed = inner.numbers.next_closed();
        self.gate.close(closed);
        let _open = self.gate.open_later();
        barrier::fence_full();
        self.list_dirty(&mut inner.slots);
        let answered = self.settle(&inner.slots, &mut inner.unanswered, closed);
        self.wait_for_updaters(&inner.slots, answered);
        inner.late = self.late.count(Stamp::MAX); // all updaters are stopped (late.L4)
        // SAFETY: hot_state.C1 - gate closed, barrier passed, no updater inside.
        unsafe { self.collect_listed(answered, inner) };
    }

    /// Collects logs with stamps: one after the other, up to the cut (hot_state.C4).
    pub(super) fn collect_each(&self, inner: &mut Inner<L>, cut: Stamp) {
        inner.late = self.late.count(cut); // late.L3
        // Before the logs, because a late update precedes a logged one with the same stamp.
        self.collect_late(inner);
        let closed = inner.numbers.next_closed();
        self.collecting.close(closed);
        let _collecting = self.collecting.open_later();
        let rest = ReopenAll { hot: self, closed };
        for index in &inner.slots {
            if let Some(slot) = self.slot_log(*index) {
                slot.gate.close(closed);
            }
        }
        barrier::fence_full();
        let answered = self.settle(&inner.slots, &mut inner.unanswered, closed);
        // BUG: a reader takes its cut after it has read which logs have entries (oplog.D2).
        let cut = if seeded_bug!("late-cut") { self.clock().cut() } else { cut };
        for place in 0..inner.slots.len() {
            let index = inner.slots[place];
            let Some(slot) = self.slot_log(index) else { continue };
            let _open = slot.gate.open_later();
            self.wait_for_updaters(&[index], answered);
            // SAFETY: hot_state.C1 - gate closed, barrier passed, no updater inside.
            unsafe { self.collect_slot(slot, index, cut, answered, inner) };
        }
        std::mem::forget(rest);
    }

    /// Ensures that the biased stores of the slots' updaters are visible. Called after closing the
    /// gates, a fence and `list_dirty`. Returns true if all updaters have answered, so that none is
    /// inside.
    pub(super) fn settle(&self, slots: &[usize], unanswered: &mut bool, closed: Gate) -> bool {
        *unanswered = false;
        if !self.is_biased() {
            return false;
        }
        let answered = self.is_answered(slots, closed);
        if !answered {
            *unanswered = true;
            barrier::heavy();
        }
        answered
    }

    /// Waits until no updater has one of these slots' logs in hand. No updater takes a log while
    /// the gate is closed.
    pub(super) fn wait_for_updaters(&self, slots: &[usize], answered: bool) {
        if answered {
            return;
        }
        for index in slots {
            percpu::records().wait_for(*index, |announced| promotion::updates(announced, self));
        }
    }

    /// Lists the dirty slots.
    pub(super) fn list_dirty(&self, slots: &mut Vec<usize>) {
        slots.clear();
        for (number, word) in self.logs().dirty.0.iter() {
            // ORDER: Acquire; pairs with `mark_dirty`. The caller has passed a full fence:
            // hot_state.C3.
            let mut bits = word.0.load(Ordering::Acquire);
            while bits != 0 {
                slots.push(number * 64 + bits.trailing_zeros() as usize);
                bits &= bits - 1;
            }
        }
    }

    /// Moves all entries of the listed slots to the collected logs.
    ///
    /// # Safety
    /// As for [`collect_slot`](Self::collect_slot), for each of the slots.
    pub(super) unsafe fn collect_listed(&self, busy: bool, inner: &mut Inner<L>) {
        for place in 0..inner.slots.len() {
            let index = inner.slots[place];
            if let Some(slot) = self.slot_log(index) {
                // SAFETY: the caller's promise is the same (# Safety).
                unsafe { self.collect_slot(slot, index, Stamp::MAX, busy, inner) };
            }
        }
    }

    /// Moves a slot's entries up to `cut` to the collected logs.
    ///
    /// The slot of the reader, or of an updater that answered (`busy`), is about to be updated
    /// again, and stays dirty. That saves each side a locked instruction on a line that the other
    /// core has cached. Lines that the updater reads next are written here only if necessary,
    /// because the updater would miss on them.
    ///
    /// # Safety
    /// hot_state.C1 holds for the caller as the reader.
    pub(super) unsafe fn collect_slot(
        &self,
        slot: &SlotLog<L>,
        index: usize,
        cut: Stamp,
        busy: bool,
        inner: &mut Inner<L>,
    ) {
        slot.local.with_mut(|local| {
            // SAFETY: hot_state.C1 - the caller promises exclusive access to the slot's log as a
            // reader (# Safety): gate closed, barrier passed, no updater inside.
            let local = unsafe { &mut *local };
            debug_assert!(local.dirty, "hot_state.C2: slot {index} was listed and is not dirty");
            if !local.log.is_empty() {
                inner.collected_logs.collect(&mut local.log, cut);
            }
            let new = self.note_collected(slot, local, index, busy);
            inner.window += new;
            inner.collected += new;
        });
    }

    /// Decides whether a slot stays dirty after its log was collected. Returns the number of
    /// updates since the previous collection.
    #[inline(always)]
    pub(super) fn note_collected(
        &self,
        slot: &SlotLog<L>,
        local: &mut Local<L>,
        index: usize,
        busy: bool,
    ) -> u64 {
        let is_empty = local.log.is_empty(); // may panic: before the updates count as collected
        // ORDER: Relaxed; a statistic, stable under hot_state.C1.
        let new = local.new_since(slot.appended.load(Ordering::Relaxed));
        // Entries above the cut wait for the next read; hot_state.C2 requires that the bit stays
        // set.
        if is_empty && !(busy && new != 0 && !self.is_timed()) {
            self.mark_clean(local, index);
        }
        new
    }

    #[cold]
    fn mark_clean(&self, local: &mut Local<L>, index: usize) {
        local.dirty = false;
        let word = self.logs().dirty.0.get_or_init(index / 64);
        let bit = 1 << (index % 64);
        // ORDER: Relaxed; passed on with the log (hot_state.C1).
        let before = word.0.fetch_and(!bit, Ordering::Relaxed);
        debug_assert!(before & bit != 0, "hot_state.C2: slot {index} was dirty without its bit");
    }

    /// Returns true if the updaters of these slots answer the collection that closed the gates with
    /// `closed`, now or within a moment (oplog_gate.G2, oplog_gate.G3).
    fn is_answered(&self, slots: &[usize], closed: Gate) -> bool {
        let own = percpu::known_slot();
        let mut looks = 0;
        slots.iter().all(|index| {
            // The reader sees its own entries, and it is not inside (`lock_hot_state` checks that).
            if own == Some(*index) {
                return true;
            }
            while percpu::records().get(*index).answered() != closed.answer() {
                // BUG: a reader takes any answer for an answer to its own collection (oplog_gate.G1
                // of the gates).
                if seeded_bug!("unasked-answer") {
                    return true;
                }
                if looks == config::LOOKS_FOR_ANSWER {
                    return false;
                }
                looks += 1;
                hint::spin_loop();
            }
            true
        })
    }

    /// Moves the late updates that were counted into a log among the collected logs.
    pub(super) fn collect_late(&self, inner: &mut Inner<L>) {
        if inner.late == 0 {
            return;
        }
        let Inner { collected_logs, late, window, collected, .. } = inner;
        let log = collected_logs.begin();
        while *late != 0 {
            let Some((stamp, op)) = self.late.pop() else {
                debug_assert!(false, "late.L4: {late} of the counted late updates are gone");
                *late = 0;
                return;
            };
            *late -= 1;
            *window += 1;
            *collected += 1;
            // SAFETY: the lock guards the counts, and the caller holds it: it has `inner`, which
            // only the lock's holder reaches.
            unsafe { self.count(|counts| counts.appended_before += 1) };
            log.push(op, stamp);
        }
    }

    /// Waits until no updater is inside, and collects all logs. If that panics, what was not
    /// collected stays in its log.
    ///
    /// # Safety
    /// The caller holds the hot state's lock. It has made sure that updaters which announce the hot
    /// state from now on leave without touching a log.
    pub(super) unsafe fn collect_all(&self) {
        promotion::wait_for_updaters(self, self.is_biased());
        self.logs().inner.with_mut(|inner| {
            // SAFETY: the caller promises that it holds the hot state's lock (# Safety), which
            // guards `inner`; user code that runs in here is refused the lock.
            let inner = unsafe { &mut *inner };
            self.list_dirty(&mut inner.slots);
            inner.late = self.late.count(Stamp::MAX);
            self.collect_late(inner);
            // SAFETY: hot_state.C1 - no updater is inside and none will be.
            unsafe { self.collect_listed(false, inner) };
        });
    }
}

/// Opens, when dropped, all slots' gates that a collection has closed, if collecting one of the
/// slots panics.
struct ReopenAll<'a, T: Send + 'static, L: Log<T>> {
    hot: &'a HotState<T, L>,
    closed: Gate,
}

impl<T: Send + 'static, L: Log<T>> Drop for ReopenAll<'_, T, L> {
    fn drop(&mut self) {
        for slot in self.hot.slot_logs() {
            if slot.gate.of_holder() == self.closed {
                slot.gate.open();
            }
        }
    }
}
