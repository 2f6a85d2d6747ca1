//! Objects that a collection retires, and for which a call-back of the program is called then
//! (capi.A4): the nodes of an id space, the entries of a map.
//!
//! The collection retires such an object by itself, and only then it is known which one. So it is
//! counted after it was retired, in the section in which it was unlinked: until that is closed it
//! is not freed.

use crate::handle::Domain;
use crate::{running, thread};
use std::sync::atomic::{AtomicPtr, Ordering};

/// In the lowest bits of the address: whether the object is counted, and in which generation.
const COUNTED: usize = 2;

/// The part of an object that is counted.
#[derive(Debug)]
pub(crate) struct Tracked {
    domain: AtomicPtr<Domain>,
}

impl Tracked {
    pub(crate) fn new(domain: *const Domain) -> Self {
        const { assert!(align_of::<Domain>() > COUNTED) };
        Self { domain: AtomicPtr::new(domain.cast_mut()) }
    }

    /// Counts the object as one that waits to be freed. Called once, by the thread that unlinked
    /// it, in a section.
    pub(crate) fn count(&self, domain: &Domain) {
        let generation = domain.pending.schedule(thread::slot());
        let tagged = std::ptr::from_ref(domain).wrapping_byte_add(COUNTED | generation);
        // ORDER: Relaxed; read by the thread that frees it, after the section.
        self.domain.store(tagged.cast_mut(), Ordering::Relaxed);
    }

    /// Runs `free`, the object's end.
    pub(crate) fn finish(&mut self, free: impl FnOnce()) {
        running::during(free);
        let tagged = *self.domain.get_mut();
        let tag = tagged.addr() & (COUNTED | 1);
        if tag & COUNTED != 0 {
            // SAFETY: a domain is freed after all that is counted in it is done
            // (`mc_domain_free`).
            let domain = unsafe { &*tagged.wrapping_byte_sub(tag) };
            domain.pending.done(thread::slot(), tag & 1);
        }
    }
}
