//! Tells of a deadline that is earlier than the one a timekeeper sleeps for. Owns: the hook of
//! `TimerQueue::on_earlier`, and the bound below which it is called.
//!
//! ```text
//! insertion   set the timer | fence | if it is not above the bound: lower that, call the hook
//! look        lock, raise the bound | fence | find the earliest deadline | lower the bound, unlock
//! ```
//!
//! - **watch.E1** A look for the next deadline returns D. A timer that it did not find, and that is
//!   due before D, has its hook called, or that of an earlier timer is called after the look began.
//!   For of the two fences one is first. If the insertion's is, the look finds the timer. If the
//!   look's is, the insertion reads the raised bound, or a later one.
//! - **watch.E2** The hook is called after the bound was lowered. So a thread that lowers the bound
//!   of a later look wakes that look's caller, too. It is called under no lock.
//! - **watch.E3** Looks raise and lower the bound under the queue's lock. So the bound is that of
//!   the latest look, whichever thread's.

use crate::sync::{AtomicU64, Ordering, fence, seeded_bug};

/// Calls for every insertion.
const ALL: u64 = u64::MAX;

/// A hook, and when it is called.
pub(super) struct Watch {
    /// The latest deadline for which it is called.
    bound: AtomicU64,
    hook: Box<dyn Fn(u64) + Send + Sync>,
}

impl Watch {
    pub(super) fn new(hook: Box<dyn Fn(u64) + Send + Sync>) -> Self {
        Self { bound: AtomicU64::new(ALL), hook }
    }

    /// Calls the hook, if nobody knows of this deadline or an earlier one. The timer is set.
    pub(super) fn inserted(&self, deadline: u64) {
        // ORDER: SeqCst; pairs with the fence of `raise` (watch.E1).
        fence(Ordering::SeqCst);
        // ORDER: Relaxed (all of the bound); the fences order it, and it publishes nothing.
        if deadline > self.bound.load(Ordering::Relaxed) {
            return;
        }
        self.bound.fetch_min(deadline.saturating_sub(1), Ordering::Relaxed);
        (self.hook)(deadline); // watch.E2
    }

    /// Has every insertion call the hook: a look begins (watch.E3).
    pub(super) fn raise(&self) {
        // BUG: the bound is not raised before the look, so a timer that comes meanwhile is
        // compared with the deadline before (watch.E1).
        if !seeded_bug!("timer-look-before-watch") {
            self.bound.store(ALL, Ordering::Relaxed);
        }
        // ORDER: SeqCst; pairs with the fence of `inserted` (watch.E1).
        fence(Ordering::SeqCst);
    }

    /// Has earlier deadlines call the hook than the one that the look has `found`, which it
    /// returns (watch.E3).
    pub(super) fn lower(&self, found: Option<u64>) -> Option<u64> {
        // Zero has none before it: it is told of twice.
        self.bound.store(found.map_or(ALL, |next| next.saturating_sub(1)), Ordering::Relaxed);
        found
    }
}
