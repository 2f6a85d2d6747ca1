//! Where the threads' parts of a domain lie, by slot.
//!
//! Owns: the room for the first thread's part, which lies in the domain's own memory, so that a
//! domain of one thread is small; and the table that leads to all. Each further thread's part is
//! allocated when it first comes. A part stays for the slot's next owners until the domain is
//! dropped.

use super::local::Local;
use crate::percpu::slot_table::{self, SlotTable};
use crate::sync::UnsafeCell;
use std::mem::MaybeUninit;

/// Slots whose parts are one load away. (All, in a model: each further load would be a step.)
const NEAR: usize = if cfg!(manycore_loom) { 8 } else { slot_table::NEAR };

pub(super) type LocalTable = SlotTable<Local, NEAR>;

/// Room for the first thread's part.
pub(super) struct FirstPart(UnsafeCell<MaybeUninit<Local>>);

// SAFETY: written once, by the thread that takes it, before its address is published; then it is a
// `Local`, which is Sync.
unsafe impl Sync for FirstPart {}

impl FirstPart {
    pub(super) fn new() -> Self {
        Self(UnsafeCell::new(MaybeUninit::uninit()))
    }

    pub(super) fn address(&self) -> *mut Local {
        self.0.with_mut(|part| part.cast())
    }
}
