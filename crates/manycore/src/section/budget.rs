//! The domain's budget: how much garbage waits, and how large each thread's batches may be
//! (section.S10).

use super::limbo::Limbo;
use super::state::{State, unpoisoned};
use crate::config::MIN_BATCH_BYTES;
use crate::sync::Ordering;

/// Batches that a thread may have: one that is open, up to three that wait for rounds, and two that
/// are being freed.
pub(super) const BATCHES: usize = 6;

impl State {
    /// Publishes what waits, in limbos and of threads that ended.
    pub(super) fn weigh(&self, total: usize) {
        let left = unpoisoned(self.legacy.0.try_lock()).map_or(0, |legacy| legacy.bytes());
        let total = total.saturating_add(left);
        let found = &self.found.0;
        // ORDER: Relaxed; estimates.
        found.total.store(total, Ordering::Relaxed);
        if total <= self.budget && found.reported.load(Ordering::Relaxed) {
            found.reported.store(false, Ordering::Relaxed);
        }
    }

    /// Bytes from which the first batch of a thread is full, and every batch beyond the budget.
    pub(super) fn least_share(&self) -> usize {
        MIN_BATCH_BYTES.min(self.batch_bytes)
    }

    /// Bytes from which a batch is full, so that all threads stay within the budget (section.S10).
    pub(super) fn share(&self) -> usize {
        if cfg!(manycore_loom) {
            return self.batch_bytes.min(self.budget);
        }
        // ORDER: Relaxed; an estimate.
        let writers = self.found.0.writers.load(Ordering::Relaxed).max(1);
        let share = if self.is_over_budget() { 0 } else { self.budget / (BATCHES * writers) };
        share.clamp(self.least_share(), self.batch_bytes)
    }

    /// Counts the owner of a limbo in which something waits among the writers; says whether it is
    /// new there.
    pub(super) fn count(&self, limbo: &mut Limbo) -> bool {
        if cfg!(manycore_loom) || limbo.waiting() == 0 || limbo.set_counted(true) {
            return false;
        }
        // ORDER: Relaxed; an estimate.
        self.found.0.writers.fetch_add(1, Ordering::Relaxed);
        true
    }

    /// The owner of the limbo has ended or is idle: as if it were new.
    pub(super) fn discount(&self, limbo: &mut Limbo) {
        limbo.set_limit(self.least_share());
        if limbo.set_counted(false) {
            // ORDER: Relaxed; an estimate.
            let before = self.found.0.writers.fetch_sub(1, Ordering::Relaxed);
            debug_assert!(before > 0, "section.S10: fewer than no threads are writers");
        }
    }

    /// Whether more waited at the last round than the budget allows.
    pub(super) fn is_over_budget(&self) -> bool {
        // ORDER: Relaxed; an estimate.
        !cfg!(manycore_loom) && self.found.0.total.load(Ordering::Relaxed) > self.budget
    }
}
