//! Objects that a collection retires, and for which it then calls a call-back of the program
//! (capi.A4): the nodes of an id space, the entries of a map.
//!
//! The collection retires such an object itself, and only then it is known which object. So the
//! object is counted after it was retired, in the section in which it was unlinked. It is not freed
//! before that section is closed.

use crate::handle::Domain;
use crate::{running, thread};
use std::sync::atomic::{AtomicPtr, Ordering};

/// A bit of the address that says whether the object is counted. The lowest bit is the generation.
const COUNTED: usize = 2;

/// The part of an object that does the counting.
#[derive(Debug)]
pub(crate) struct Tracked {
    domain: AtomicPtr<Domain>,
}

impl Tracked {
    pub(crate) fn new(domain: *const Domain) -> Self {
        const { assert!(align_of::<Domain>() > COUNTED) };
        Self { domain: AtomicPtr::new(domain.cast_mut()) }
    }

    /// Counts the object as waiting to be freed. Called once, in a section, by the thread that
    /// unlinked it.
    pub(crate) fn count(&self, domain: &Domain) {
        let generation = domain.pending.schedule(thread::slot());
        let tagged = std::ptr::from_ref(domain).wrapping_byte_add(COUNTED | generation);
        // ORDER: Relaxed; the thread that frees it reads it, after the section.
        self.domain.store(tagged.cast_mut(), Ordering::Relaxed);
    }

    /// Runs `free` at the object's end.
    pub(crate) fn finish(&mut self, free: impl FnOnce()) {
        running::during(free);
        let tagged = *self.domain.get_mut();
        let tag = tagged.addr() & (COUNTED | 1);
        if tag & COUNTED != 0 {
            // SAFETY: a domain is freed only after everything counted in it is done
            // (`mc_domain_free`).
            let domain = unsafe { &*tagged.wrapping_byte_sub(tag) };
            domain.pending.done(thread::slot(), tag & 1);
        }
    }
}
