//! Where the calling thread has its sections.

use super::local::Local;
use crate::sync;
use std::cell::Cell;
use std::ptr;

/// Where the thread has its sections.
pub(super) struct Home {
    /// The number of the domain in which it last opened one, if its sections need no fence, and the
    /// thread's part of it: the way in that takes the fewest instructions.
    pub(super) last: Cell<u64>,
    pub(super) local: Cell<*const Local>,
    /// The slot.
    pub(super) slot: Cell<usize>,
}

/// No slot: before the thread's first section, and after its destructors.
pub(super) const NOWHERE: usize = usize::MAX;

sync::thread_local! {
    pub(super) static HOME: Home = const {
        Home { last: Cell::new(0), local: Cell::new(ptr::null()), slot: Cell::new(NOWHERE) }
    };
}
