//! Sections: the slow paths of the header's inline functions.

use crate::handle::Domain;
use crate::record::{Record, within};
use crate::{late, thread};
use libc::c_int;
use std::ffi::{CStr, c_char};

/// Opens a section.
///
/// # Safety
/// The domain is not freed; `record` is null or the calling thread's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mc_enter_(domain: *const Domain, record: *const Record) {
    // SAFETY: the caller promises a domain that has not been freed.
    let domain = unsafe { &*domain };
    let open = domain.sections.enter().leave_open();
    // SAFETY: the section is of this domain; the caller promises the record.
    if !unsafe { thread::remember(domain, record, &open) } {
        late::push(domain, &open);
    }
}

/// Closes a section. Does nothing if the thread has none open, because its end has closed it.
///
/// # Safety
/// The domain is not freed; `record` is null or the calling thread's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mc_leave_(domain: *const Domain, record: *const Record) {
    // SAFETY: the caller promises a domain that has not been freed.
    let domain = unsafe { &*domain };
    // SAFETY: the caller promises that it is null or the calling thread's.
    let known = unsafe { record.as_ref() }.and_then(|record| record.announced_in(domain));
    match known {
        // SAFETY: the record has the word as long as the thread has its slot (capi.A2).
        Some(announced) if unsafe { *announced } != 0 => {
            // SAFETY: the word is not zero, so a section is open. Guards of it exist only during a
            // call.
            drop(unsafe { domain.sections.resume(announced) });
        }
        Some(_) => {}
        None => match thread::slot().map_or_else(|| late::pop(domain), |_| None) {
            // SAFETY: this thread opened it after its destructors, and it is still open.
            Some(announced) => drop(unsafe { domain.sections.resume(announced) }),
            None => domain.close_innermost(),
        },
    }
}

/// Returns 1 if the calling thread has a section of the domain open, else 0.
///
/// # Safety
/// The domain is not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mc_is_inside(domain: *const Domain) -> c_int {
    // SAFETY: the caller promises a domain that has not been freed.
    unsafe { &*domain }.sections.is_inside().into()
}

/// Returns 1 if the calling thread's section protects what it has loaded until now, else 0. If not,
/// the section protects what is loaded from then on.
///
/// # Safety
/// The domain is not freed; `record` is null or the calling thread's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mc_protects_loaded_(
    domain: *const Domain,
    record: *const Record,
) -> c_int {
    // SAFETY: the caller promises a domain that has not been freed.
    let domain = unsafe { &*domain };
    // SAFETY: the caller promises that it is null or the calling thread's.
    unsafe { within(domain, record, |section| section.protects_loaded()) }.into()
}

/// Prepares the calling thread for sections of the domain.
///
/// # Safety
/// The domain is not freed; `record` is null or the calling thread's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mc_thread_register_(
    domain: *const Domain,
    record: *const Record,
) -> c_int {
    if domain.is_null() {
        return -libc::EINVAL;
    }
    // SAFETY: not null, and the caller promises the rest; the section is closed at once.
    unsafe {
        mc_enter_(domain, record);
        mc_leave_(domain, record);
    }
    0
}

/// Hands over what the calling thread has retired in the domain.
///
/// # Safety
/// The domain is not freed; `record` is null or the calling thread's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mc_thread_unregister_(
    domain: *const Domain,
    record: *const Record,
) -> c_int {
    // SAFETY: the caller promises that a domain that is not null has not been freed.
    let Some(domain) = (unsafe { domain.as_ref() }) else { return -libc::EINVAL };
    if domain.sections.is_inside() {
        return -libc::EBUSY;
    }
    domain.sections.collect();
    // SAFETY: the caller promises that it is null or the calling thread's.
    let record = unsafe { record.as_ref() };
    if let Some(record) = record.filter(|own| own.announced_in(domain).is_some()) {
        record.set(std::ptr::null(), std::ptr::null_mut());
    }
    0
}

/// Ends the process with a message.
///
/// # Safety
/// `what` is a string that ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mc_misuse_(what: *const c_char) -> ! {
    // SAFETY: the caller promises a string that ends with a zero.
    let what = unsafe { CStr::from_ptr(what) }.to_string_lossy();
    eprintln!("manycore: {what}");
    std::process::abort()
}
