//! The system's random bytes: the same in every run of a simulation.

use crate::host::{self, as_libc};
use crate::simulation;

/// The kernel's `getrandom` for a virtual thread; returns the number of bytes written.
///
/// # Safety
/// `buffer` is valid for `bytes` bytes. It may be null if `bytes` is zero.
pub(super) unsafe fn random_call(buffer: *mut u8, bytes: usize) -> isize {
    if bytes != 0 {
        // SAFETY: the caller promises a buffer of `bytes` bytes, so it is not null here.
        let buffer = unsafe { std::slice::from_raw_parts_mut(buffer, bytes) };
        simulation::with(|sim| sim.random.fill(buffer));
    }
    bytes as isize
}

/// Fills a buffer with random bytes.
///
/// # Safety
/// As for libc's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn getrandom(buffer: *mut u8, bytes: usize, flags: u32) -> isize {
    if simulation::active() {
        // SAFETY: the caller promises a buffer of `bytes` bytes, as libc's `getrandom` requires.
        return unsafe { random_call(buffer, bytes) };
    }
    let arguments = [buffer as usize, bytes, flags as usize, 0, 0, 0];
    // SAFETY: the caller promises a buffer of `bytes` bytes, as libc's `getrandom` requires; the
    // kernel writes no more.
    as_libc(unsafe { host::call(host::SYS_GETRANDOM, arguments) })
}
