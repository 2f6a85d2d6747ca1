//! The domain's budget: how much garbage waits, and how large each thread's batches may be
//! (section.S10).
//!
//! The domain has one count, the *charge*. It is the sum over all limbos of the bytes behind the
//! open batch, and of the open batch's limit, whether the batch has reached it or not. A limit is
//! granted only if the charge stays within the budget. So the charge rises above the budget only
//! by sealed batches, and a thread that has sealed one then waits at the end of its section.

use super::limbo::{Limbo, Orphans};
use super::local::Local;
use super::state::{State, unpoisoned};
use crate::sync::{MutexGuard, Ordering};
use std::sync::PoisonError;
use std::time::Instant;

/// Batches that a thread has as long as all goes well: one that is open, up to three that wait for
/// rounds, and two that are being freed.
pub(super) const BATCHES: usize = 6;

impl State {
    /// Bytes from which the first batch of a thread is full: its first node makes it a writer.
    pub(super) fn first_limit(&self) -> usize {
        if cfg!(manycore_loom) { self.share() } else { 0 }
    }

    /// Bytes from which a batch is full, so that all threads stay within the budget as long as all
    /// goes well (section.S10).
    pub(super) fn share(&self) -> usize {
        if cfg!(manycore_loom) {
            return self.batch_bytes.min(self.budget);
        }
        // ORDER: Relaxed; an estimate.
        let writers = self.found.0.writers.load(Ordering::Relaxed).max(1);
        (self.budget / BATCHES.saturating_mul(writers)).min(self.batch_bytes)
    }

    /// Counts the owner of a limbo in which something waits among the writers.
    pub(super) fn count(&self, limbo: &mut Limbo) {
        if cfg!(manycore_loom) || limbo.waiting() == 0 || limbo.set_counted(true) {
            return;
        }
        // ORDER: Relaxed; an estimate.
        self.found.0.writers.fetch_add(1, Ordering::Relaxed);
    }

    /// Gives the owner's open batch a limit: its share, or nothing if that exceeds the budget.
    pub(super) fn grant(&self, local: &Local, limbo: &mut Limbo) {
        limbo.set_limit(self.share());
        if self.charge(local, limbo) {
            limbo.set_limit(0);
            self.charge(local, limbo);
        } else {
            limbo.set_taken(false);
        }
    }

    /// Charges what waits in the owner's limbo, in place of what was charged for it before. True
    /// if the domain is over its budget then.
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

    /// The same if much less waits than was charged: for a thread that frees a lot in one go.
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

    /// Charges less after nodes were freed. Within a section only if it is much: a retire that
    /// frees several nodes need not write the domain's line.
    pub(super) fn charge_freed(&self, local: &Local, limbo: &mut Limbo) {
        limbo.landed();
        if local.is_inside() {
            self.charge_if_less(local, limbo);
        } else {
            self.charge(local, limbo);
        }
    }

    /// The charge after `more` was added to it. Sums of weights wrap.
    fn add_charge(&self, more: usize) -> usize {
        if more == 0 {
            // ORDER: Relaxed; as below.
            return self.found.0.charged.load(Ordering::Relaxed);
        }
        // ORDER: Relaxed; the law is about the order of the changes of this word alone.
        self.found.0.charged.fetch_add(more, Ordering::Relaxed).wrapping_add(more)
    }

    /// Takes everything out of the limbo of a thread that has ended or is idle, which is as if new
    /// then. The stamp is as for a seal.
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

    /// Takes over what threads that ended or were idle have left behind; true if there was any.
    /// Unless it `waits`, nothing while another thread is at it.
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

    /// Leaves to others what `take` takes by [`clear_out`](Self::clear_out); true if all that is
    /// left is a batch or more. Under the lock from the beginning, so that it is here or there to
    /// a thread that collects, and never on its way.
    pub(super) fn leave_behind(&self, take: impl FnOnce() -> Orphans) -> bool {
        let mut left = self.left();
        left.append(take());
        self.is_batch(&left)
    }

    /// What threads have left behind. No user code runs, and nothing waits for a thread that is
    /// inside, while this is held.
    pub(super) fn left(&self) -> MutexGuard<'_, Orphans> {
        self.orphans.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the domain's charge exceeds its budget.
    pub(super) fn is_over_budget(&self) -> bool {
        // ORDER: Relaxed; the owner's own changes come before it, by coherence.
        !cfg!(manycore_loom) && self.found.0.charged.load(Ordering::Relaxed) > self.budget
    }
}
