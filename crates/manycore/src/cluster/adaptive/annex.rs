//! What an object needs beside its value once it has been more than a value behind a lock.
//!
//! Owns: the gate, the updates that wait, and the policy's state. Made at the first use, freed with
//! the object.

use super::lanes::Gate;
use super::policy::{Control, Policy};
use crate::lock::held;
use crate::oplog::{ColdHold, Log};
use crate::sync::{self, Mutex, UnsafeCell, seeded_bug};
use std::collections::VecDeque;
use std::sync::PoisonError;

pub(super) struct Annex<Op> {
    pub(super) gate: Gate,
    /// Updates that wait because their thread was reading, or inside of something else, or because
    /// the object is poisoned.
    late: Mutex<VecDeque<Op>>,
    /// Guarded by the object's lock, be it the word's or the core's.
    control: UnsafeCell<Control>,
}

// SAFETY: the control is reached under the object's lock alone, and has no ties to a thread; the
// rest is shared as it is.
unsafe impl<Op: Send> Sync for Annex<Op> {}
// SAFETY: an `Annex` that moves takes along waiting updates (`Op: Send`) and a control, which has
// no ties to a thread.
unsafe impl<Op: Send> Send for Annex<Op> {}

impl<Op> Annex<Op> {
    pub(super) fn new(policy: Policy) -> Self {
        Self {
            gate: Gate::new(),
            late: Mutex::new(VecDeque::new()),
            control: UnsafeCell::new(Control::new(policy)),
        }
    }

    /// The policy's state.
    ///
    /// # Safety
    /// The caller holds the object's lock, and `f` does not come back here.
    pub(super) unsafe fn control<R>(&self, f: impl FnOnce(&mut Control) -> R) -> R {
        // SAFETY: the caller promises that it holds the object's lock, which guards the control,
        // and that `f` does not come back here (# Safety).
        self.control.with_mut(|control| f(unsafe { &mut *control }))
    }

    fn late<R>(&self, f: impl FnOnce(&mut VecDeque<Op>) -> R) -> R {
        let _leaf = held::leaf();
        f(&mut self.late.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Puts an update off until a thread has the object to itself (adaptive.A5). The caller holds
    /// the object's lock.
    pub(super) fn put_off(&self, op: Op) {
        let put_off = self.put_off_unless(op, || false);
        debug_assert!(put_off.is_ok(), "nothing refused it");
    }

    /// The same for a thread that does not, unless the object has logs: then the update comes back
    /// (adaptive.A12).
    pub(super) fn put_off_unless(&self, op: Op, has_logs: impl FnOnce() -> bool) -> Result<(), Op> {
        self.late(|late| {
            if has_logs() {
                return Err(op);
            }
            late.push_back(op);
            self.gate.set_late();
            Ok(())
        })
    }

    /// Runs `f` if nothing waits, so that nothing is put off before it has ended (adaptive.A12).
    /// `f` runs no user code.
    pub(super) fn while_none_waits<R>(&self, f: impl FnOnce() -> R) -> Option<R> {
        // BUG: an adaptive object gets logs after a look whether updates wait, not under their
        // mutex (adaptive.A12).
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

    /// Applies what was put off before this call. The caller has the object to itself.
    pub(super) fn apply_late<T: Send + 'static, L: Log<T, Op = Op>>(
        &self,
        hold: &mut ColdHold<'_, T, L>,
    ) {
        for _ in 0..self.late_count() {
            // Taken here: user code runs without the queue's lock, and may put more off.
            let Some(op) = self.next_late() else { break };
            hold.apply(op);
        }
        self.late(|late| {
            if late.is_empty() {
                self.gate.clear_late();
            }
        });
    }
}

impl<Op> Drop for Annex<Op> {
    /// Drops what waits. A panic of a destructor ends here, one by one.
    fn drop(&mut self) {
        if sync::model_failed() {
            return;
        }
        while let Some(op) = self.next_late() {
            sync::contain(|| drop(op));
        }
    }
}
