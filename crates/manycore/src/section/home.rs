//! Where the calling thread has its sections: its slot, and the domain that it entered last.

use super::local::Local;
use crate::sync;
use std::cell::Cell;
use std::ptr;

/// The calling thread's slot, and the domain that it entered last.
pub(super) struct Home {
    /// The number of the domain that the thread entered last among those whose sections need no
    /// fence, or `NO_DOMAIN`; `local` is the thread's part of it. This pair makes entering short.
    pub(super) last: Cell<u64>,
    pub(super) local: Cell<*const Local>,
    /// The thread's slot, or [`NOWHERE`].
    pub(super) slot: Cell<usize>,
}

impl Home {
    /// Remembers the domain that is entered, and the thread's part of it.
    pub(super) fn remember(&self, number: u64, local: &Local) {
        // A signal handler that opens a section between these stores finds no number with another
        // domain's address (section.S12).
        let order = || {
            #[cfg(not(any(manycore_loom, manycore_shuttle)))]
            sync::compiler_fence();
        };
        self.last.set(NO_DOMAIN);
        order();
        self.local.set(local);
        order();
        self.last.set(number);
    }
}

/// The number of no domain, not even of one that was not used yet.
pub(super) const NO_DOMAIN: u64 = u64::MAX;

/// No slot: before the thread's first section, and after its destructors.
pub(super) const NOWHERE: usize = usize::MAX;

sync::thread_local! {
    pub(super) static HOME: Home = const {
        Home { last: Cell::new(NO_DOMAIN), local: Cell::new(ptr::null()), slot: Cell::new(NOWHERE) }
    };
}
