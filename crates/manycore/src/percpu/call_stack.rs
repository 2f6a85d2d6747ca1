//! The stack of one slot's announced calls: law calls.L1 of `calls`.

use super::announcement::announced;
use crate::config::CALLS_DEEP;
use crate::sync::AtomicUsize;

/// The objects that a slot's owner is inside of, from the outside in.
#[repr(align(128))]
pub(super) struct CallStack([AtomicUsize; CALLS_DEEP]);

impl CallStack {
    pub(super) fn new() -> Self {
        Self(std::array::from_fn(|_| AtomicUsize::new(0)))
    }

    /// Returns the entry of the call at this depth; `None` beyond the stack (calls.L3).
    #[inline(always)]
    pub(super) fn entry(&self, depth: usize) -> Option<&AtomicUsize> {
        self.0.get(depth)
    }

    /// Returns true if a call of `object` is announced.
    pub(super) fn contains(&self, object: usize) -> bool {
        self.0.iter().any(|entry| announced(entry) == object)
    }
}
