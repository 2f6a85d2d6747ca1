//! Tells of a deadline that is earlier than the one a timekeeper sleeps for. Owns: the hook of
//! `TimerQueue::on_earlier`, and the bound below which it is called.
//!
//! ```text
//! insertion   set the timer | fence | if it is not above the bound: lower that, call the hook
//! look        raise the bound | fence | find the earliest deadline | set the bound below it
//! ```
//!
//! - **watch.E1** A timer that a look for the next deadline does not find, and that is due before
//!   what the look returns, has its hook called, or another's that is due before it is called after
//!   the look began. (Of the two fences one is first. If the insertion's is, the look finds the
//!   timer. If the look's is, the insertion reads the raised bound, or what was stored after it.)
//! - **watch.E2** The hook is called after the bound was lowered, so that a thread which lowers the
//!   bound of a later look wakes that look's caller, too. It is called under no lock.

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
        // ORDER: SeqCst; pairs with the fence of `looked` (watch.E1).
        fence(Ordering::SeqCst);
        // ORDER: Relaxed (all of the bound); the fences order it, and it publishes nothing.
        if deadline > self.bound.load(Ordering::Relaxed) {
            return;
        }
        self.bound.fetch_min(deadline.saturating_sub(1), Ordering::Relaxed);
        (self.hook)(deadline); // watch.E2
    }

    /// Looks for the next deadline.
    pub(super) fn looked(&self, look: impl FnOnce() -> Option<u64>) -> Option<u64> {
        // BUG: the bound is not raised before the look, so a timer that comes meanwhile is
        // compared with the deadline before (watch.E1).
        if !seeded_bug!("timer-look-before-watch") {
            self.bound.store(ALL, Ordering::Relaxed);
        }
        // ORDER: SeqCst; pairs with the fence of `inserted` (watch.E1).
        fence(Ordering::SeqCst);
        let found = look();
        // Zero has none before it: it is told of twice.
        self.bound.store(found.map_or(ALL, |next| next.saturating_sub(1)), Ordering::Relaxed);
        found
    }
}
