//! The domain's budget: how much garbage waits, and how large each thread's batches may be
//! (section.S10).
//!
//! The domain has one count, the *charge*:
//!
//! ```text
//! charge = sum over all limbos of (bytes behind the open batch + the open batch's limit)
//! ```
//!
//! The limit counts in full, even if the open batch holds less. A limit is granted only if the
//! charge stays within the budget. So only sealed batches lift the charge above the budget, and a
//! thread that has sealed one then waits at the end of its section.

use super::limbo::{Limbo, Orphans};
use super::local::Local;
use super::state::{State, unpoisoned};
use crate::sync::{MutexGuard, Ordering};
use std::sync::PoisonError;
use std::time::Instant;

/// Batches that a thread normally has: one open, up to three that wait for rounds, and two that are
/// being freed.
pub(super) const BATCHES: usize = 6;

impl State {
    /// The first batch of a thread is full from this many bytes on. Outside of models this is zero,
    /// so that the first node makes the thread a writer.
    pub(super) fn first_limit(&self) -> usize {
        if cfg!(manycore_loom) { self.share() } else { 0 }
    }

    /// A batch is full from this many bytes on. If no section stalls, all threads then stay within
    /// the budget (section.S10).
    pub(super) fn share(&self) -> usize {
        if cfg!(manycore_loom) {
            return self.batch_bytes.min(self.budget);
        }
        // ORDER: Relaxed; an estimate.
        let writers = self.found.0.writers.load(Ordering::Relaxed).max(1);
        (self.budget / BATCHES.saturating_mul(writers)).min(self.batch_bytes)
    }

    /// Counts the owner among the writers, if anything waits in its limbo.
    pub(super) fn count(&self, limbo: &mut Limbo) {
        if cfg!(manycore_loom) || limbo.waiting() == 0 || limbo.set_counted(true) {
            return;
        }
        // ORDER: Relaxed; an estimate.
        self.found.0.writers.fetch_add(1, Ordering::Relaxed);
    }

    /// Gives the owner's open batch a limit: its share, or zero if that would exceed the budget.
    pub(super) fn grant(&self, local: &Local, limbo: &mut Limbo) {
        limbo.set_limit(self.share());
        if self.charge(local, limbo) {
            limbo.set_limit(0);
            self.charge(local, limbo);
        } else {
            limbo.set_taken(false);
        }
    }

    /// Charges what waits in the owner's limbo, in place of what was charged for it before. Returns
    /// true if the domain is then over its budget.
    pub(super) fn charge(&self, local: &Local, limbo: &Limbo) -> bool {
        if cfg!(manycore_loom) {
            return false;
        }
        let due = limbo.charge();
        // ORDER: Relaxed (both); the limbo's claim hands the word on.
        let more = due.wrapping_sub(local.charged.load(Ordering::Relaxed));
        local.charged.store(due, Ordering::Relaxed);
        self.add_charge(more) > self.budget
    }

    /// As [`charge`](Self::charge), but only if much less waits than was charged: for a thread that
    /// frees a lot in one go.
    pub(super) fn charge_if_less(&self, local: &Local, limbo: &Limbo) {
        const MUCH: usize = 1 << 16;
        if cfg!(manycore_loom) {
            return;
        }
        // ORDER: Relaxed; as in `charge`.
        if local.charged.load(Ordering::Relaxed).saturating_sub(limbo.charge()) >= MUCH {
            self.charge(local, limbo);
        }
    }

    /// Lowers the charge after nodes were freed. Within a section, it does so only if they are
    /// many: a retire that frees several nodes need not write the domain's line.
    pub(super) fn charge_freed(&self, local: &Local, limbo: &mut Limbo) {
        limbo.landed();
        if local.is_inside() {
            self.charge_if_less(local, limbo);
        } else {
            self.charge(local, limbo);
        }
    }

    /// Adds `more` to the charge and returns the sum. Sums of weights wrap.
    fn add_charge(&self, more: usize) -> usize {
        if more == 0 {
            // ORDER: Relaxed; as below.
            return self.found.0.charged.load(Ordering::Relaxed);
        }
        // ORDER: Relaxed; the law is about the order of the changes of this word alone.
        self.found.0.charged.fetch_add(more, Ordering::Relaxed).wrapping_add(more)
    }

    /// Takes everything out of the limbo of a thread that has ended or is idle; the limbo is then
    /// as good as new. `stamp` is as for a seal.
    pub(super) fn clear_out(&self, local: &Local, limbo: &mut Limbo, stamp: u64) -> Orphans {
        limbo.seal(stamp, Instant::now());
        limbo.set_limit(self.first_limit());
        limbo.set_taken(true);
        if limbo.set_counted(false) {
            // ORDER: Relaxed; an estimate.
            let before = self.found.0.writers.fetch_sub(1, Ordering::Relaxed);
            debug_assert!(before > 0, "section.S10: fewer than no threads are writers");
        }
        let orphans = limbo.take_all();
        if cfg!(not(manycore_loom)) {
            self.add_charge(orphans.bytes());
        }
        self.charge(local, limbo);
        orphans
    }

    /// Takes over what ended or idle threads have left behind; returns true if there was any.
    /// Unless it `waits`, it takes nothing while another thread holds the lock.
    pub(super) fn adopt(&self, local: &Local, waits: bool) -> bool {
        let left = if waits { Some(self.left()) } else { unpoisoned(self.orphans.0.try_lock()) };
        let Some(mut left) = left else { return false };
        let orphans = std::mem::take(&mut *left);
        if orphans.len() == 0 {
            return false;
        }
        let bytes = orphans.bytes();
        local.with_limbo(|limbo| {
            limbo.adopt(orphans);
            self.count(limbo);
            self.charge(local, limbo);
        });
        if cfg!(not(manycore_loom)) {
            self.add_charge(0_usize.wrapping_sub(bytes));
        }
        true
    }

    /// Leaves to other threads what `take` takes by [`clear_out`](Self::clear_out). Returns true if
    /// all that is left amounts to a batch or more. The lock is held from the beginning, so a
    /// thread that collects finds the nodes in one place or the other, never on their way.
    pub(super) fn leave_behind(&self, take: impl FnOnce() -> Orphans) -> bool {
        let mut left = self.left();
        left.append(take());
        self.is_batch(&left)
    }

    /// Locks what threads have left behind. While the lock is held, no user code runs, and nothing
    /// waits for a thread that is inside.
    pub(super) fn left(&self) -> MutexGuard<'_, Orphans> {
        self.orphans.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns true if the domain's charge exceeds its budget.
    pub(super) fn is_over_budget(&self) -> bool {
        // ORDER: Relaxed; the owner's own changes come before it, by coherence.
        !cfg!(manycore_loom) && self.found.0.charged.load(Ordering::Relaxed) > self.budget
    }
}
