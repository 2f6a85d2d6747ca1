//! What libc's locks cost, and how a thread waits for one.
//!
//! libc is not instrumented. So each function that stands for one of libc's charges what libc's
//! does: its instructions, and its accesses to the object's memory. Other threads may run before an
//! access; nothing runs between the access and the operation that follows it. A thread that has to
//! wait sleeps in the queue of the object's first word, as in the kernel's queue of a futex.

use std::ffi::{c_int, c_void};

use crate::simulation::{self, Kind};

pub(super) const EBUSY: c_int = 16;
pub(super) const ETIMEDOUT: c_int = 110;
/// Any waiter, whatever it waits for.
pub(super) const ALL: u32 = u32::MAX;

/// Charges `instructions` of libc's, and then the locked operation on a word.
pub(super) fn exchange(word: *mut c_void, instructions: u32) {
    simulation::inside_libc(word as usize, Kind::Rmw, instructions);
}

/// Charges `instructions` of libc's, and then a read of a word.
pub(super) fn read(word: *mut c_void, instructions: u32) {
    simulation::inside_libc(word as usize, Kind::Read, instructions);
}

/// Charges a write to the word `at` bytes into an object.
pub(super) fn write(object: *mut c_void, at: usize) {
    simulation::inside_libc(object as usize + at, Kind::Write, 0);
}

/// Enters the kernel to sleep on a word. Sleeps if `still` says so then, until one of `wake`'s
/// calls that has a bit in common, or until a virtual time. Returns false if that time has come.
pub(super) fn sleep(
    word: *mut c_void,
    until: Option<u64>,
    bits: u32,
    still: impl FnOnce() -> bool,
) -> bool {
    simulation::enter_kernel(word as usize);
    !still() || simulation::wait(word as usize, until, bits)
}

/// Wakes up to `count` threads that sleep on a word with one of these bits. Without such a thread
/// it costs nothing: libc, too, notes in the object whether any waits.
pub(super) fn wake(word: *mut c_void, count: u32, bits: u32) {
    if simulation::any_waits(word as usize, bits) {
        simulation::wake(word as usize, count, bits);
    }
}
