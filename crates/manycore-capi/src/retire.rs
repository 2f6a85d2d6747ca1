//! Retiring with an intrusive head (capi.A4, capi.A7).

use crate::handle::Domain;
use crate::record::{Record, entered, opened, within};
use crate::{running, thread};
use libc::c_int;
use manycore::section::{Section, Weight};
use std::mem::{ManuallyDrop, offset_of};
use std::ptr::{self, NonNull};

/// `mc_callback`: called with the head. An exception that it throws ends the process (capi.A1).
pub type Callback = unsafe extern "C-unwind" fn(*mut Head);

/// `struct mc_head`: room in an object for what is to be known when it is freed.
#[repr(C)]
#[derive(Debug)]
pub struct Head {
    function: Option<Callback>,
    /// The domain, whose address is even, and its generation in the lowest bit; before the object
    /// is retired, its birth, if there is no function (capi.A7).
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

    /// The head of an object that is about to be linked in a bounded domain.
    fn born(birth: u64) -> Self {
        let birth = usize::try_from(birth).unwrap_or(0); // unknown where it has no room
        Self { function: None, domain: ptr::without_provenance(birth) }
    }

    /// The birth of an object that was not retired yet; zero if it is unknown.
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
    // SAFETY: in a bounded domain the caller promises a head that was zeroed or born.
    let birth = if of.is_bounded { unsafe { node.as_ref().birth() } } else { 0 };
    let generation = of.pending.schedule(thread::slot());
    let tagged = domain.wrapping_byte_add(generation);
    // SAFETY: the object is the caller's own, unlinked, and not retired before.
    unsafe { node.write(Head { function, domain: tagged }) };
    let weight = if bytes == 0 { Weight::at_least(0) } else { Weight::exact(bytes) };
    // SAFETY: the object is unlinked and not retired before, and `run` takes it back; that any
    // thread may call the function, the caller promises, and that the birth is from `mc_born_`.
    // (In one place, so that all of it is compiled into this function.)
    unsafe { section.retire_born(node.cast(), weight, birth, run) };
    if !is_open {
        drop(ManuallyDrop::into_inner(section));
    }
    0
}

/// The section that the thread has open, where the record does not have it, or a new one; and
/// whether it was open.
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

/// The end of a retired object.
///
/// # Safety
/// The address is of a head that `mc_retire_` has filled in, and comes back once.
unsafe fn run(address: NonNull<()>) {
    let head = address.cast::<Head>();
    // SAFETY: filled in by `mc_retire_`, and the object's from then on.
    let Head { function, domain: tagged } = unsafe { head.read() };
    let generation = tagged.addr() & 1;
    let is_counted = function.is_none_or(|function| {
        // SAFETY: the grace period is over, and the caller of `mc_retire_` promised that any thread
        // may call it then.
        running::during(|| unsafe { function(head.as_ptr()) })
    });
    if is_counted {
        // SAFETY: a domain is freed after all that was scheduled in it is done (`mc_domain_free`).
        unsafe { &*tagged.wrapping_byte_sub(generation) }.pending.done(thread::slot(), generation);
    }
}

/// In the child of a fork: ends the threads that it does not have, and counts what waits without
/// them.
pub(crate) fn in_child(domain: &Domain) {
    let mut waiting = [0; 2];
    let count = |address: NonNull<()>, free: unsafe fn(NonNull<()>)| {
        if ptr::fn_addr_eq(free, run as unsafe fn(NonNull<()>)) {
            // SAFETY: filled in by `mc_retire_`, and not called yet.
            let generation = unsafe { address.cast::<Head>().as_ref() }.domain.addr() & 1;
            waiting[generation] += 1;
        }
    };
    // SAFETY: the child has one thread, which forked in its own code or in a call-back; and the
    // header says that what only other threads' sections protected is not used.
    unsafe { domain.sections.abandon_other_threads(count) };
    domain.pending.reset(waiting);
}
