//! Functions for a domain as a whole.

use crate::handle::Domain;
use crate::options::Options;
use crate::{cancel, running};
use crate::{fork, list};
use libc::c_int;
use manycore::section::{Domain as Sections, Moment};
use std::ffi::c_char;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::thread;
use std::time::Duration;

/// Returns the domain that the whole program shares. It is never freed.
#[unsafe(no_mangle)]
pub extern "C" fn mc_domain_default() -> *const Domain {
    // Not a `OnceLock`: if a fork comes while a thread makes it, the child would wait forever.
    static DEFAULT: AtomicPtr<Domain> = AtomicPtr::new(ptr::null_mut());
    #[cold]
    fn make() -> *const Domain {
        let made = Box::into_raw(Domain::new(Sections::new(), false));
        fork::prepare();
        list::add(made);
        // ORDER: AcqRel; publishes the domain before its address, for this exchange and for the
        // load below.
        let (set, read) = (Ordering::AcqRel, Ordering::Acquire);
        match DEFAULT.compare_exchange(ptr::null_mut(), made, set, read) {
            Ok(_) => made,
            Err(found) => {
                list::remove(made);
                list::forget(made);
                // SAFETY: made above, out of the list, and known to no other thread.
                drop(unsafe { Box::from_raw(made) });
                found
            }
        }
    }
    // ORDER: Acquire; pairs with the exchange in `make`.
    let found = DEFAULT.load(Ordering::Acquire);
    if found.is_null() { make() } else { found }
}

/// Makes a new domain.
///
/// # Safety
/// `out` may be written. `options` is null, or has as many bytes as its first field says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mc_domain_new(out: *mut *const Domain, options: *const Options) -> c_int {
    if out.is_null() {
        return -libc::EINVAL;
    }
    // SAFETY: the caller promises that it is null, or as long as it says.
    let Some(options) = (unsafe { Options::read(options) }) else { return -libc::EINVAL };
    let built = options.builder().build().ok();
    let Some(sections) = built else { return -libc::EINVAL };
    let domain = Box::into_raw(Domain::new(sections, options.is_bounded()));
    fork::prepare();
    list::add(domain);
    // SAFETY: not null, and the caller promises that it may be written.
    unsafe { out.write(domain) };
    0
}

/// Runs the waiting call-backs of the domain and frees it.
///
/// # Safety
/// No thread uses the domain any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mc_domain_free(domain: *const Domain) -> c_int {
    if running::is_running() {
        return -libc::EDEADLK;
    }
    if domain == mc_domain_default() || !list::remove(domain) {
        return -libc::EINVAL;
    }
    // SAFETY: it was in the list, so `mc_domain_new` made it and it is not freed; only this call
    // took it out.
    let freed = unsafe { &*domain };
    let is_used = Arc::strong_count(&freed.sections) > 1;
    if is_used
        || freed.sections.is_inside()
        || !freed.sections.backlog(Duration::ZERO).stalled.is_empty()
    {
        list::put_back(domain);
        return -libc::EBUSY;
    }
    let _no_cancel = cancel::disable();
    // Call-backs may retire more here, and they find the domain unchanged.
    while !freed.pending.is_none() {
        freed.sections.collect();
        thread::yield_now();
    }
    list::forget(domain);
    // SAFETY: from the box of `mc_domain_new`; no section is open, nothing waits, and the caller
    // promises that no thread uses it.
    drop(unsafe { Box::from_raw(domain.cast_mut()) });
    0
}

/// Waits until every section that is open now has been closed.
///
/// # Safety
/// The domain is not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mc_synchronize(domain: *const Domain) -> c_int {
    // SAFETY: the caller promises that a domain that is not null has not been freed.
    let Some(domain) = (unsafe { domain.as_ref() }) else { return -libc::EINVAL };
    if running::is_running() || domain.sections.is_inside() {
        return -libc::EDEADLK;
    }
    let _no_cancel = cancel::disable();
    domain.sections.synchronize();
    0
}

/// Frees what can be freed now, for all threads.
///
/// # Safety
/// The domain is not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mc_collect(domain: *const Domain) -> c_int {
    // SAFETY: the caller promises that a domain that is not null has not been freed.
    let Some(domain) = (unsafe { domain.as_ref() }) else { return -libc::EINVAL };
    let _no_cancel = cancel::disable();
    domain.sections.collect();
    0
}

/// Returns the present moment, for `mc_quiesced`.
///
/// # Safety
/// The domain is not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mc_now(domain: *const Domain) -> u64 {
    // SAFETY: the caller promises a domain that has not been freed.
    unsafe { &*domain }.sections.now().to_bits()
}

/// Returns 1 if every section that was open at the moment has been closed, else 0.
///
/// # Safety
/// The domain is not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mc_quiesced(domain: *const Domain, moment: u64) -> c_int {
    // SAFETY: the caller promises a domain that has not been freed.
    unsafe { &*domain }.sections.quiesced(Moment::from_bits(moment)).into()
}

/// Returns the library's version.
#[unsafe(no_mangle)]
pub extern "C" fn mc_version() -> *const c_char {
    const { concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast() }
}
