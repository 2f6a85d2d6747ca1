//! Barriers: waiting for call-backs.

use crate::handle::Domain;
use crate::{cancel, running};
use libc::c_int;

/// Waits until every call-back that was scheduled before this call has returned.
///
/// # Safety
/// The domain is not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mc_barrier(domain: *const Domain) -> c_int {
    // SAFETY: the caller promises that a domain that is not null has not been freed.
    let Some(domain) = (unsafe { domain.as_ref() }) else { return -libc::EINVAL };
    if running::is_running() || domain.sections.is_inside() {
        return -libc::EDEADLK;
    }
    let _no_cancel = cancel::disable();
    domain.pending.wait(|| domain.sections.collect());
    0
}
