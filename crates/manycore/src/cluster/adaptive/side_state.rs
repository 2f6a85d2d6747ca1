//! The state that an object needs beside its value once it has been more than a value behind a
//! lock.
//!
//! Owns: the gate, the deferred updates, and the policy's state. Created at the first use, freed
//! with the object.

use super::controller::Controller;
use super::lanes::{Gate, LATE};
use super::policy::Policy;
use crate::lock::held;
use crate::oplog::{ColdGuard, Log};
use crate::sync::{self, Mutex, UnsafeCell, seeded_bug};
use std::collections::VecDeque;
use std::sync::PoisonError;

pub(super) struct SideState<Op> {
    pub(super) gate: Gate,
    /// Deferred updates: their thread was reading, or inside of another object, or the object is
    /// poisoned.
    late: Mutex<VecDeque<Op>>,
    /// Guarded by the object's lock, which is the word's or the core's.
    control: UnsafeCell<Controller>,
}

// SAFETY: the control is accessed only under the object's lock, and is not bound to a thread; the
// rest is `Sync`.
unsafe impl<Op: Send> Sync for SideState<Op> {}
// SAFETY: a `SideState` that moves takes along deferred updates (`Op: Send`) and a control, which
// is not bound to a thread.
unsafe impl<Op: Send> Send for SideState<Op> {}

impl<Op> SideState<Op> {
    pub(super) fn new(policy: Policy) -> Self {
        Self {
            gate: Gate::new(),
            late: Mutex::new(VecDeque::new()),
            control: UnsafeCell::new(Controller::new(policy)),
        }
    }

    /// The policy's state.
    ///
    /// # Safety
    /// The caller holds the object's lock, and `f` does not call this method again.
    pub(super) unsafe fn control<R>(&self, f: impl FnOnce(&mut Controller) -> R) -> R {
        // SAFETY: the caller promises that it holds the object's lock, which guards the control,
        // and that `f` does not call this method again (# Safety).
        self.control.with_mut(|control| f(unsafe { &mut *control }))
    }

    fn late<R>(&self, f: impl FnOnce(&mut VecDeque<Op>) -> R) -> R {
        let _leaf = held::leaf();
        f(&mut self.late.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Defers an update until a thread has the object exclusively (adaptive.A5). The caller holds
    /// the object's lock.
    pub(super) fn defer(&self, op: Op) {
        let defer = self.defer_unless(op, || false);
        debug_assert!(defer.is_ok(), "adaptive.A5: the lock holder's update is refused");
    }

    /// As [`defer`](Self::defer), for a thread that does not hold the lock, unless the object
    /// has logs: then the update is returned (adaptive.A12).
    pub(super) fn defer_unless(&self, op: Op, has_logs: impl FnOnce() -> bool) -> Result<(), Op> {
        self.late(|late| {
            if has_logs() {
                return Err(op);
            }
            late.push_back(op);
            self.gate.set_late();
            Ok(())
        })
    }

    /// Runs `f` if no update is deferred, so that none is deferred before `f` has ended
    /// (adaptive.A12). `f` runs no user code.
    pub(super) fn while_none_is_deferred<R>(&self, f: impl FnOnce() -> R) -> Option<R> {
        // BUG: an adaptive object gets logs after a look whether updates are deferred, not under
        // their mutex (adaptive.A12).
        if seeded_bug!("late-logs") {
            return self.late(|late| late.is_empty()).then(f);
        }
        self.late(|late| late.is_empty().then(f))
    }

    pub(super) fn late_count(&self) -> usize {
        self.late(|late| late.len())
    }

    pub(super) fn next_late(&self) -> Option<Op> {
        self.late(VecDeque::pop_front)
    }

    /// Applies what was deferred before this call. The caller has the object exclusively.
    pub(super) fn apply_late<T: Send + 'static, L: Log<T, Op = Op>>(
        &self,
        hold: &mut ColdGuard<'_, T, L>,
    ) {
        for _ in 0..self.late_count() {
            // Taken here: user code runs without the queue's lock, and may defer more.
            let Some(op) = self.next_late() else { break };
            hold.apply(op);
        }
        self.late(|late| {
            debug_assert!(
                late.is_empty() || self.gate.state() & LATE != 0,
                "adaptive.A5: updates are deferred and not announced"
            );
            if late.is_empty() {
                self.gate.clear_late();
            }
        });
    }
}

impl<Op> Drop for SideState<Op> {
    /// Drops the deferred updates. A panic of a destructor is caught, for each of them.
    fn drop(&mut self) {
        if sync::model_failed() {
            return;
        }
        while let Some(op) = self.next_late() {
            sync::contain(|| drop(op));
        }
    }
}
