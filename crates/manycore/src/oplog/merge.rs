//! A read's work on a hot state: it collects, applies, and then asks the controller.
//!
//! Owns: the choice of the way to collect, applying, and what the controller is told (`policy`).
//! Everything here runs with the hot state's lock held.

use super::gate::Gate;
use super::hot_state::HotState;
use super::log::Log;
use super::log_set::Inner;
use super::policy::Evidence;
use super::slot_log::SlotLog;
use crate::clock::Stamp;
use crate::lock::held;
use crate::percpu::{self, barrier};
use crate::sync::{Ordering, seeded_bug};
use std::panic::resume_unwind;
use std::slice;

impl<T: Send + 'static, L: Log<T>> HotState<T, L> {
    /// Applies the updates that a read must see, if they are all in the reader's own log: no other
    /// log is dirty, and no update waits elsewhere. Otherwise does nothing and returns false.
    ///
    /// hot_state.C2: a slot with entries has its bit set, by an RMW and a full fence before its
    /// first entry. So if a bit is clear here, an updater that sets it later has not returned yet.
    /// That updater will see all earlier stores of the calling thread. These are the two sides of
    /// oplog.D1. One load looks at all slots, and the calling thread's own appends came before that
    /// load. So what is in its own log and in no other is a consistent cut (oplog.D2). No other
    /// thread has its own log in hand (hot_state.C1). The log's gate is closed to what user code
    /// appends.
    ///
    /// # Safety
    /// The caller has taken the hot state's lock, and has then passed a full fence. Its thread has
    /// no log in hand.
    ///
    /// # Panics
    /// As for [`merge`](Self::merge).
    #[inline(always)]
    pub(super) unsafe fn merge_own(&self) -> bool {
        // BUG: a read that finds no slot dirty ignores late updates (late.L2).
        let late = !self.late.is_empty() && !seeded_bug!("forgotten-late");
        if !self.is_ordinary() || late {
            return false;
        }
        let Some(logs) = self.logs_if_any() else { return false };
        let Some(word) = logs.dirty.0.only_word() else { return false };
        // ORDER: Acquire; pairs with `mark_dirty`. The fences on both sides decide the race.
        let bits = word.0.load(Ordering::Acquire);
        // Not `with_mut`: its closure is not always inlined.
        let inner = logs.inner.get_mut();
        // SAFETY: the caller promises that it holds the hot state's lock (# Safety), which guards
        // `inner`; user code that runs in here is refused the lock.
        let inner = unsafe { inner.deref() };
        if !inner.collected_logs.is_empty() {
            return false;
        }
        inner.window = 0;
        if bits != 0 {
            let index = bits.trailing_zeros() as usize;
            // BUG: a reader takes another thread's log for its own (hot_state.C1).
            let is_own = percpu::known_slot() == Some(index) || seeded_bug!("ungated-log");
            if bits & (bits - 1) != 0 || !is_own {
                return false;
            }
            let Some(slot) = self.slot_log(index) else { return false };
            // SAFETY: hot_state.C1 - the log is the calling thread's, and the thread has no log in
            // hand.
            inner.window = unsafe { self.apply_own(slot, index) };
        }
        let window = inner.window;
        // SAFETY: the caller promises that it holds the hot state's lock (# Safety).
        unsafe {
            self.count(|counts| {
                counts.merges += 1;
                counts.merged += window;
            });
        }
        true
    }

    /// Applies the updates in a log, and returns their number.
    ///
    /// # Safety
    /// The caller holds the hot state's lock, and has exclusive access to the log.
    #[inline(always)]
    unsafe fn apply_own(&self, slot: &SlotLog<L>, index: usize) -> u64 {
        held::assert_no_leaf();
        debug_assert!(self.has_value(), "object.W2: updates are applied to no value");
        slot.gate.close(Gate::UNANSWERED);
        let _open = slot.gate.open_later();
        slot.local.with_mut(|local| {
            // SAFETY: the caller promises exclusive access to the log (# Safety).
            let local = unsafe { &mut *local };
            // The slot stays dirty when its log has been emptied, but no merge gets an empty log.
            if local.log.is_empty() {
                return self.note_collected(slot, local, index, true);
            }
            let applied = self.value.with_mut(|value| {
                let poison = Poison(self);
                // SAFETY: the value is in the hot state while the hot state is in use (object.W2),
                // and the caller holds the lock.
                let value = unsafe { (*value).assume_init_mut() };
                let applied = L::merge(slice::from_mut(&mut local.log), value) as u64;
                std::mem::forget(poison);
                applied
            });
            // SAFETY: the caller promises that it holds the hot state's lock (# Safety).
            unsafe { self.count(|counts| counts.applied = counts.applied.wrapping_add(applied)) };
            self.note_collected(slot, local, index, true)
        })
    }

    /// Collects the updates that a read must see (oplog.D2), and applies them.
    ///
    /// # Safety
    /// The caller has taken the hot state's lock, and has then passed a full fence.
    ///
    /// # Panics
    /// If applying does. Updates not yet applied stay queued, and the hot state is poisoned
    /// (oplog.D7).
    pub(super) unsafe fn merge(&self) {
        self.logs().inner.with_mut(|inner| {
            // SAFETY: the caller promises that it holds the hot state's lock (# Safety), which
            // guards `inner`; user code that runs in here is refused the lock.
            let inner = unsafe { &mut *inner };
            inner.window = 0;
            let trial = self.collect(inner);
            // SAFETY: the caller promises that it holds the hot state's lock (# Safety).
            unsafe { self.apply(inner) };
            // With a tree, applying takes less time, too.
            if let Some(InTrial { began, has_tree, slots }) = trial {
                let ticks = self.clock().ticks_now().saturating_sub(began);
                inner.policy.note_collection(has_tree, slots, ticks);
            }
        });
    }

    /// Collects every dirty slot and the late updates. Returns a collection that is to be timed.
    fn collect(&self, inner: &mut Inner<L>) -> Option<InTrial> {
        if L::ORDERED {
            // This thread's earlier stores must be visible before the cut. Otherwise an updater
            // that has not seen them could have a stamp above the cut (oplog.D1). The full fence
            // for this is the one of `lock_hot_state`.
            barrier::stores_are_visible();
        }
        // The cut is taken before the dirty bits are read: oplog.D2. (Harmless if it is not used.)
        let cut =
            if L::ORDERED && !seeded_bug!("no-cut") { self.clock().cut() } else { Stamp::MAX };
        self.list_dirty(&mut inner.slots);
        // BUG: a read that finds no slot dirty ignores late updates (late.L2).
        let late = !self.late.is_empty() && !seeded_bug!("forgotten-late");
        if inner.slots.is_empty() && !late {
            return None;
        }
        let (slots, has_tree) = (inner.slots.len(), self.wants_tree(inner));
        let trial = self.tries_tree(inner).then(|| {
            let began = self.clock().ticks_now();
            InTrial { began, has_tree, slots }
        });
        if has_tree {
            if let Some(panic) = self.collect_tree(inner) {
                let _poison = Poison(self);
                resume_unwind(panic); // oplog.D7
            }
        } else if L::ORDERED || seeded_bug!("no-cut") {
            self.collect_each(inner, cut);
        } else {
            self.collect_frozen(inner);
        }
        self.collect_late(inner);
        trial
    }

    /// Applies the collected logs, unless the object is poisoned.
    ///
    /// # Safety
    /// The caller holds the hot state's lock.
    pub(super) unsafe fn apply(&self, inner: &mut Inner<L>) {
        debug_assert!(inner.late == 0, "late.L4: {} late updates were left", inner.late);
        // SAFETY: the caller promises that it holds the hot state's lock (# Safety).
        unsafe { self.count(|counts| counts.merges += 1) };
        if self.is_poisoned() {
            return;
        }
        if !inner.collected_logs.is_empty() {
            held::assert_no_leaf();
            debug_assert!(self.has_value(), "object.W2: updates are applied to no value");
            self.value.with_mut(|value| {
                let poison = Poison(self);
                // SAFETY: the value is in the hot state while the hot state is in use (object.W2),
                // and the caller holds the lock.
                let value = unsafe { (*value).assume_init_mut() };
                let applied = inner.collected_logs.merge(value) as u64;
                // SAFETY: the caller promises that it holds the hot state's lock (# Safety).
                unsafe {
                    self.count(|counts| counts.applied = counts.applied.wrapping_add(applied));
                }
                std::mem::forget(poison);
            });
        }
        let collected = std::mem::take(&mut inner.collected);
        // SAFETY: the caller promises that it holds the hot state's lock (# Safety).
        unsafe { self.count(|counts| counts.merged += collected) };
    }

    /// Returns what the last read found.
    fn found(inner: &Inner<L>) -> Evidence {
        Evidence { updates: inner.window, unanswered: inner.unanswered }
    }

    /// Returns the way to publish to switch to, if any: true for biased. Called after a
    /// [`merge`](Self::merge).
    ///
    /// # Safety
    /// The caller holds the hot state's lock.
    pub(super) unsafe fn wants_bias(&self) -> Option<bool> {
        let (biased, config) = (self.is_biased(), &self.config);
        // SAFETY: the caller promises that it holds the hot state's lock (# Safety), which guards
        // `inner`. No merge is in progress, and no user code runs in here.
        let wanted = self.logs().inner.with_mut(|inner| unsafe {
            let inner = &mut *inner;
            let (found, asymmetric) = (Self::found(inner), barrier::is_asymmetric());
            let ratio = config.ratio_for_bias;
            let now = || self.clock().ticks_now();
            inner.policy.publication(found, config.publish, biased, asymmetric, ratio, now)
        });
        (wanted != biased).then_some(wanted)
    }

    /// Returns true if the logs no longer pay. Called after a read.
    ///
    /// # Safety
    /// The caller holds the hot state's lock.
    pub(super) unsafe fn wants_demotion(&self) -> bool {
        // SAFETY: the caller promises that it holds the hot state's lock (# Safety), which guards
        // `inner`. No user code runs in here.
        self.logs().inner.with_mut(|inner| unsafe {
            let inner = &mut *inner;
            let found = Self::found(inner);
            inner.policy.wants_demotion(found, self.config.idle_reads)
        })
    }

    /// Waits until no updater is inside and takes everything from every log.
    ///
    /// # Safety
    /// The caller holds the hot state's lock. It has made sure that updaters which announce the hot
    /// state from now on leave without touching a log.
    pub(super) unsafe fn drain_all(&self) {
        // SAFETY: the caller promises that it holds the hot state's lock, and that updaters which
        // announce the hot state from now on touch no log (# Safety).
        unsafe { self.collect_all() };
        // SAFETY: the caller promises that it holds the hot state's lock (# Safety).
        self.logs().inner.with_mut(|inner| unsafe { self.apply(&mut *inner) });
    }

    /// Returns true if collected updates wait for poison to be cleared.
    ///
    /// # Safety
    /// The caller holds the hot state's lock.
    pub(super) unsafe fn has_collected_logs(&self) -> bool {
        // SAFETY: the caller promises that it holds the hot state's lock (# Safety), which guards
        // `inner`. No user code runs in here.
        self.logs().inner.with_mut(|inner| unsafe { !(*inner).collected_logs.is_empty() })
    }
}

/// A collection whose time decides between forms ([`Policy`](super::policy::Policy)).
struct InTrial {
    /// When it began.
    began: u64,
    has_tree: bool,
    /// The number of dirty slots.
    slots: usize,
}

/// Poisons the hot state if it is dropped, that is, if applying panics.
struct Poison<'a, T: Send + 'static, L: Log<T>>(&'a HotState<T, L>);

impl<T: Send + 'static, L: Log<T>> Drop for Poison<'_, T, L> {
    fn drop(&mut self) {
        self.0.poison();
    }
}
