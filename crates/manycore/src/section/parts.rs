//! The memory of the threads' parts of a domain, by slot.
//!
//! Owns: the room for the first thread's part, and the table that leads to all parts. The first
//! part lies in the domain's own memory, so that a domain of one thread is small. The part of each
//! further thread is allocated when the thread first comes. A part stays for the slot's next owners
//! until the domain is dropped.

use super::local::Local;
use crate::percpu::slot_table::{self, SlotTable};
use crate::sync::UnsafeCell;
use std::mem::MaybeUninit;

/// Number of slots with a part that is one load away. (In a model all of them: each further load
/// would be a step.)
const NEAR: usize = if cfg!(manycore_loom) { 8 } else { slot_table::NEAR };

pub(super) type LocalTable = SlotTable<Local, NEAR>;

/// Room for the first thread's part.
pub(super) struct FirstPart(UnsafeCell<MaybeUninit<Local>>);

// SAFETY: written once, by the thread that takes it, before its address is published. From then on
// it is a `Local`, which is Sync.
unsafe impl Sync for FirstPart {}

impl FirstPart {
    pub(super) fn new() -> Self {
        Self(UnsafeCell::new(MaybeUninit::uninit()))
    }

    pub(super) fn address(&self) -> *mut Local {
        self.0.with_mut(|part| part.cast())
    }
}
