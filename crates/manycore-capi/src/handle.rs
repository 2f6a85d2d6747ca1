//! `mc_domain`: a domain with what the header's inline functions need of it in front.

use crate::pending::Pending;
use manycore::section::Domain as Sections;
use std::mem::offset_of;
use std::sync::Arc;

/// `struct mc_domain`. Its first field is the header's by contract.
#[repr(C)]
#[derive(Debug)]
pub struct Domain {
    era: *const u64,
    /// Objects with nodes in the domain have it, too, and keep it from being freed.
    pub(crate) sections: Arc<Sections>,
    pub(crate) pending: Pending,
    /// Whether heads have births (capi.A7).
    pub(crate) is_bounded: bool,
}

// SAFETY: the pointer is to the era of `sections`, an atomic word that lives as long as it; the
// other parts are Sync.
unsafe impl Sync for Domain {}
// SAFETY: nothing in it has ties to a thread; the pointer is to a word of `sections`, which is
// Send.
unsafe impl Send for Domain {}

impl Domain {
    /// The fields that the header knows, as it names them, and where they are.
    pub const FRONT: [(&str, usize); 1] = [("era", offset_of!(Self, era))];

    /// A domain on these sections; not listed.
    pub(crate) fn new(sections: Sections, is_bounded: bool) -> Box<Self> {
        let open = sections.enter().leave_open();
        let (era, announced) = (open.era(), open.announced());
        // SAFETY: opened above, by this thread, and closed once.
        drop(unsafe { sections.resume(announced) });
        Box::new(Self { era, sections: Arc::new(sections), pending: Pending::new(), is_bounded })
    }

    /// Closes the section that the calling thread opened last, if there is one: found by the
    /// thread's slot.
    pub(crate) fn close_innermost(&self) {
        if self.sections.is_inside() {
            // One more, whose word is the thread's; then both are closed.
            let announced = self.sections.enter().leave_open().announced();
            // SAFETY: two sections are open, the one that was found and the one above, and of
            // neither is there another guard in use.
            drop(unsafe { self.sections.resume(announced) });
            // SAFETY: the section that was found is open still, and has no other guard.
            drop(unsafe { self.sections.resume(announced) });
        }
    }
}
