//! Retiring objects that have an intrusive head (capi.A4, capi.A7).

use crate::handle::Domain;
use crate::record::{Record, entered, opened, within};
use crate::{running, thread};
use libc::c_int;
use manycore::section::{Section, Weight};
use std::mem::{ManuallyDrop, offset_of};
use std::ptr::{self, NonNull};

/// `mc_callback`: called with the head. If it throws an exception, the process ends (capi.A1).
pub type Callback = unsafe extern "C-unwind" fn(*mut Head);

/// `struct mc_head`: room in an object for what is needed when it is freed.
#[repr(C)]
#[derive(Debug)]
pub struct Head {
    function: Option<Callback>,
    /// The domain's address, which is even, and the generation in the lowest bit. Before the object
    /// is retired (no function), its birth (capi.A7).
    domain: *const Domain,
}

impl Head {
    /// The names and offsets of the fields, as in the header.
    pub const OFFSETS: [(&str, usize); 2] =
        [("function_", offset_of!(Self, function)), ("domain_", offset_of!(Self, domain))];

    /// Makes a head for the list of `mc_call`. There the second word leads to the next head.
    pub(crate) fn queued(function: Option<Callback>) -> Self {
        Self { function, domain: std::ptr::null() }
    }

    /// Makes the head of an object that is about to be linked in a bounded domain.
    fn born(birth: u64) -> Self {
        let birth = usize::try_from(birth).unwrap_or(0); // unknown if it does not fit
        Self { function: None, domain: ptr::without_provenance(birth) }
    }

    /// Returns the birth of an object that is not retired yet, or zero if it is unknown.
    fn birth(&self) -> u64 {
        if self.function.is_none() { self.domain.addr() as u64 } else { 0 }
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
    // SAFETY: the caller promises that it is null or the calling thread's.
    let (section, is_open) = unsafe {
        entered(of, record).map_or_else(|| opened_or_new(of, record), |section| (section, true))
    };
    // SAFETY: in a bounded domain, the caller promises a head that was zeroed or born.
    let birth = if of.is_bounded { unsafe { node.as_ref().birth() } } else { 0 };
    let generation = of.pending.schedule(thread::slot());
    let tagged = domain.wrapping_byte_add(generation);
    // SAFETY: the object belongs to the caller, is unlinked, and was not retired before.
    unsafe { node.write(Head { function, domain: tagged }) };
    let weight = if bytes == 0 { Weight::at_least(0) } else { Weight::exact(bytes) };
    // SAFETY: the object is unlinked and was not retired before, and `run` takes it back. The
    // caller promises that any thread may call the function, and that the birth is from `mc_born_`.
    // (In one place, so that all of it is compiled into this function.)
    unsafe { section.retire_born(node.cast(), weight, birth, run) };
    if !is_open {
        drop(ManuallyDrop::into_inner(section));
    }
    0
}

/// Finds the thread's open section if the record does not have it, or opens a new one. Returns the
/// section, and true if it was open.
///
/// # Safety
/// `record` is null or the calling thread's.
#[inline(never)]
unsafe fn opened_or_new(of: &Domain, record: *const Record) -> (ManuallyDrop<Section<'_>>, bool) {
    // SAFETY: what the caller promises.
    let opened = unsafe { opened(of, record) };
    let is_open = opened.is_some();
    (opened.unwrap_or_else(|| ManuallyDrop::new(of.sections.enter())), is_open)
}

/// Notes the birth of an object that the calling thread is about to link.
///
/// # Safety
/// The domain is not freed, `record` is null or the calling thread's, and `head` is null, or in an
/// object that no other thread can reach.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mc_born_(
    domain: *const Domain,
    record: *const Record,
    head: *mut Head,
) -> c_int {
    // SAFETY: the caller promises that a domain that is not null has not been freed.
    let Some(of) = (unsafe { domain.as_ref() }).filter(|_| !head.is_null()) else {
        return -libc::EINVAL;
    };
    if of.is_bounded {
        // SAFETY: the caller promises that it is null or the calling thread's.
        let birth = unsafe { within(of, record, |section| section.birth()) };
        // SAFETY: not null, and the caller promises that the object is its own.
        unsafe { head.write(Head::born(birth)) };
    }
    0
}

/// Ends a retired object.
///
/// # Safety
/// The address is that of a head that `mc_retire_` has filled in, and comes back once.
unsafe fn run(address: NonNull<()>) {
    let head = address.cast::<Head>();
    // SAFETY: `mc_retire_` filled it in, and it belongs to the object since then.
    let Head { function, domain: tagged } = unsafe { head.read() };
    let generation = tagged.addr() & 1;
    let is_counted = function.is_none_or(|function| {
        // SAFETY: the grace period is over, and the caller of `mc_retire_` promised that any thread
        // may then call it.
        running::during(|| unsafe { function(head.as_ptr()) })
    });
    if is_counted {
        // SAFETY: a domain is freed only after everything scheduled in it is done
        // (`mc_domain_free`).
        unsafe { &*tagged.wrapping_byte_sub(generation) }.pending.done(thread::slot(), generation);
    }
}

/// Runs in the child of a fork: ends the threads that the child does not have, and counts what
/// waits without them.
pub(crate) fn in_child(domain: &Domain) {
    let mut waiting = [0; 2];
    let count = |address: NonNull<()>, free: unsafe fn(NonNull<()>)| {
        if ptr::fn_addr_eq(free, run as unsafe fn(NonNull<()>)) {
            // SAFETY: `mc_retire_` filled it in, and it was not called yet.
            let generation = unsafe { address.cast::<Head>().as_ref() }.domain.addr() & 1;
            waiting[generation] += 1;
        }
    };
    // SAFETY: the child has one thread, which forked in its own code or in a call-back. The header
    // says that what only other threads' sections protected must not be used.
    unsafe { domain.sections.abandon_other_threads(count) };
    domain.pending.reset(waiting);
}
