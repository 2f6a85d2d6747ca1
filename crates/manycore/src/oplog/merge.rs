//! A read's work on a hot state: it collects, applies, and then asks the controller.
//!
//! Owns: the choice of the way to collect, applying, and what the controller is told (`policy`).
//! Everything here runs with the hot state's lock held.

use super::hot_state::HotState;
use super::log::Log;
use super::log_set::Inner;
use super::policy::Evidence;
use crate::clock::Stamp;
use crate::lock::held;
use crate::percpu::barrier;
use crate::sync::seeded_bug;
use std::panic::resume_unwind;

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
                    let _poison = Poison(self);
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

    /// Applies the collected logs, unless the object is poisoned.
    ///
    /// # Safety
    /// The caller holds the hot state's lock.
    pub(super) unsafe fn apply(&self, inner: &mut Inner<L>) {
        debug_assert!(inner.late == 0, "oplog.L4: {} late updates were left", inner.late);
        // SAFETY: the caller promises that it holds the hot state's lock (# Safety).
        unsafe { self.count(|counts| counts.merges += 1) };
        if inner.collected_logs.is_empty() || self.is_poisoned() {
            return;
        }
        held::assert_no_leaf();
        debug_assert!(self.has_value(), "oplog.W2: updates are applied to no value");
        inner.collected_logs.tidy();
        self.value.with_mut(|value| {
            let poison = Poison(self);
            // SAFETY: the value is in the hot state while the hot state is in use (oplog.W2), and
            // the caller holds the lock.
            let value = unsafe { (*value).assume_init_mut() };
            let applied = inner.collected_logs.merge(value) as u64;
            // SAFETY: the caller promises that it holds the hot state's lock (# Safety).
            unsafe { self.count(|counts| counts.applied = counts.applied.wrapping_add(applied)) };
            std::mem::forget(poison);
        });
        inner.collected_logs.keep_buffers();
    }

    /// What the last read found.
    fn found(inner: &Inner<L>) -> Evidence {
        Evidence { updates: inner.window, unanswered: inner.unanswered }
    }

    /// After a read: whether to switch publication, and to which mode.
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

    /// After a read: whether the logs no longer pay.
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

/// Poisons the hot state if dropped, that is, if applying panics.
struct Poison<'a, T: Send + 'static, L: Log<T>>(&'a HotState<T, L>);

impl<T: Send + 'static, L: Log<T>> Drop for Poison<'_, T, L> {
    fn drop(&mut self) {
        self.0.poison();
    }
}
