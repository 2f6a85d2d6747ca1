//! `mc_domain`: a domain, with the fields for the header's inline functions in front.

use crate::pending::Pending;
use manycore::section::Domain as Sections;
use std::mem::offset_of;
use std::sync::Arc;

/// `struct mc_domain`. The header relies on its first field.
#[repr(C)]
#[derive(Debug)]
pub struct Domain {
    era: *const u64,
    /// Objects with nodes in the domain share it, and keep the domain from being freed.
    pub(crate) sections: Arc<Sections>,
    pub(crate) pending: Pending,
    /// True if heads have births (capi.A7).
    pub(crate) is_bounded: bool,
}

// SAFETY: the pointer leads to the era of `sections`, an atomic word that lives as long as the
// sections. The other parts are Sync.
unsafe impl Sync for Domain {}
// SAFETY: no part is tied to a thread; the pointer leads to a word of `sections`, which is Send.
unsafe impl Send for Domain {}

impl Domain {
    /// The names and offsets of the fields that the header knows.
    pub const FRONT: [(&str, usize); 1] = [("era", offset_of!(Self, era))];

    /// Makes a domain with these sections. Does not list it.
    pub(crate) fn new(sections: Sections, is_bounded: bool) -> Box<Self> {
        let open = sections.enter().leave_open();
        let (era, announced) = (open.era(), open.announced());
        // SAFETY: this thread opened it above and closes it once.
        drop(unsafe { sections.resume(announced) });
        Box::new(Self { era, sections: Arc::new(sections), pending: Pending::new(), is_bounded })
    }

    /// Closes the section that the calling thread opened last, if there is one. Finds it by the
    /// thread's slot.
    pub(crate) fn close_innermost(&self) {
        if self.sections.is_inside() {
            // Opens one more section to get the thread's word, then closes both.
            let announced = self.sections.enter().leave_open().announced();
            // SAFETY: two sections are open, the found one and the one above, and no other guard of
            // them is in use.
            drop(unsafe { self.sections.resume(announced) });
            // SAFETY: the found section is still open, and has no other guard.
            drop(unsafe { self.sections.resume(announced) });
        }
    }
}
