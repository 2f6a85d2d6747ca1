//! Hides the file that limits how much of the real machine a process may use.
//!
//! Rust's standard library reads a quota through this file, and bounds the number of cores by it.
//! That quota belongs to the real machine, not to the virtual cores.

use std::ffi::{CStr, c_char, c_int, c_uint};

use crate::host::as_libc;
use crate::interpose::Next;
use crate::simulation;

const QUOTA: &CStr = c"/proc/self/cgroup";
const ENOENT: isize = 2;

static OPEN64: Next = Next::new(c"open64");

/// Opens a file; for a simulated program the quota file does not exist.
///
/// # Safety
/// As for libc's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn open64(path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
    type Open = unsafe extern "C" fn(*const c_char, c_int, ...) -> c_int;
    // SAFETY: the caller promises that the path ends in a zero byte, as libc's `open64` requires.
    if simulation::active() && unsafe { CStr::from_ptr(path) } == QUOTA {
        return as_libc(-ENOENT) as c_int;
    }
    // SAFETY: this is the type of libc's function; without O_CREAT it does not read the mode.
    unsafe {
        let real: Open = std::mem::transmute(OPEN64.get());
        real(path, flags, mode)
    }
}
