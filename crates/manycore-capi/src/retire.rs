//! Retiring with an intrusive head (capi.A4).

use crate::handle::Domain;
use crate::record::{Record, opened};
use crate::{running, thread};
use libc::c_int;
use manycore::section::Weight;
use std::mem::{ManuallyDrop, offset_of};
use std::ptr::NonNull;

/// `mc_callback`: called with the head. An exception that it throws ends the process (capi.A1).
pub type Callback = unsafe extern "C-unwind" fn(*mut Head);

/// `struct mc_head`: room in an object for what is to be known when it is freed.
#[repr(C)]
#[derive(Debug)]
pub struct Head {
    function: Option<Callback>,
    /// The domain, whose address is even, and its generation in the lowest bit.
    domain: *const Domain,
}

impl Head {
    /// The fields as the header names them, and where they are.
    pub const OFFSETS: [(&str, usize); 2] =
        [("function_", offset_of!(Self, function)), ("domain_", offset_of!(Self, domain))];

    /// A head that waits in the list of `mc_call`: there the second word leads to the next one.
    pub(crate) fn queued(function: Option<Callback>) -> Self {
        Self { function, domain: std::ptr::null() }
    }

    pub(crate) fn function(&self) -> Option<Callback> {
        self.function
    }

    pub(crate) fn next(&self) -> *mut Self {
        self.domain.cast::<Self>().cast_mut()
    }

    pub(crate) fn set_next(&mut self, next: *mut Self) {
        self.domain = next.cast_const().cast();
    }
}

/// Calls `function(head)` once every section that is open now has been closed.
///
/// # Safety
/// The domain is not freed, `record` is null or the calling thread's, and `head` is in an object
/// that is unlinked and retired once; the function may be called with it by any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mc_retire_(
    domain: *const Domain,
    record: *const Record,
    head: *mut Head,
    bytes: usize,
    function: Option<Callback>,
) -> c_int {
    // SAFETY: the caller promises that a domain that is not null has not been freed.
    let (Some(of), Some(node)) = (unsafe { domain.as_ref() }, NonNull::new(head)) else {
        return -libc::EINVAL;
    };
    if function.is_none() {
        return -libc::EINVAL;
    }
    let generation = of.pending.schedule(thread::slot());
    let tagged = domain.wrapping_byte_add(generation);
    // SAFETY: the object is the caller's own, unlinked, and not retired before.
    unsafe { head.write(Head { function, domain: tagged }) };
    let weight = if bytes == 0 { Weight::at_least(0) } else { Weight::exact(bytes) };
    // SAFETY: the caller promises that it is null or the calling thread's.
    let opened = unsafe { opened(of, record) };
    let is_open = opened.is_some();
    let section = opened.unwrap_or_else(|| ManuallyDrop::new(of.sections.enter()));
    // SAFETY: the object is unlinked and not retired before, and `run` takes it back; that any
    // thread may call the function, the caller promises. (In one place, so that it is compiled
    // into this function.)
    unsafe { section.retire_raw(node.cast(), weight, run) };
    if !is_open {
        drop(ManuallyDrop::into_inner(section));
    }
    0
}

/// The end of a retired object.
///
/// # Safety
/// The address is of a head that `mc_retire_` has filled in, and comes back once.
unsafe fn run(address: NonNull<()>) {
    let head = address.cast::<Head>();
    // SAFETY: filled in by `mc_retire_`, and the object's from then on.
    let Head { function, domain: tagged } = unsafe { head.read() };
    let generation = tagged.addr() & 1;
    if let Some(function) = function {
        // SAFETY: the grace period is over, and the caller of `mc_retire_` promised that any thread
        // may call it then.
        running::during(|| unsafe { function(head.as_ptr()) });
    }
    // SAFETY: a domain is freed after all that was scheduled in it is done (`mc_domain_free`).
    unsafe { &*tagged.wrapping_byte_sub(generation) }.pending.done(thread::slot(), generation);
}
