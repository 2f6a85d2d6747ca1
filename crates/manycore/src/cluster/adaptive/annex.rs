//! What an object needs beside its value once it has been more than a value behind a lock.
//!
//! Owns: the gate, the updates that wait, and the policy's state. Made at the first use, freed with
//! the object.

use super::lanes::Gate;
use super::policy::{Control, Policy};
use crate::oplog::{ColdHold, Log};
use crate::sync::{Mutex, UnsafeCell};
use std::collections::VecDeque;
use std::sync::PoisonError;

pub(super) struct Annex<Op> {
    pub(super) gate: Gate,
    /// Updates that waited because their thread was reading, or because the object is poisoned.
    late: Mutex<VecDeque<Op>>,
    /// Guarded by the object's lock, be it the word's or the core's.
    control: UnsafeCell<Control>,
}

// SAFETY: the control is reached under the object's lock alone, and has no ties to a thread; the
// rest is shared as it is.
unsafe impl<Op: Send> Sync for Annex<Op> {}
// SAFETY: as above.
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
        // SAFETY: the caller's duty.
        self.control.with_mut(|control| f(unsafe { &mut *control }))
    }

    fn late(&self) -> impl std::ops::DerefMut<Target = VecDeque<Op>> + '_ {
        // Nothing that can panic runs under it.
        self.late.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts an update off until somebody has the object to itself (A5).
    pub(super) fn put_off(&self, op: Op) {
        let mut late = self.late();
        late.push_back(op);
        self.gate.set_late();
    }

    pub(super) fn late_count(&self) -> usize {
        self.late().len()
    }

    pub(super) fn next_late(&self) -> Option<Op> {
        self.late().pop_front()
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
        let late = self.late();
        if late.is_empty() {
            self.gate.clear_late();
        }
    }
}
