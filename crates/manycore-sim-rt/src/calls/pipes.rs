//! Reading and writing where another thread may be at the other end: pipes and sockets.
//!
//! The system would block all virtual threads when it blocks one. So a virtual thread polls whether
//! it could go on, and sleeps in virtual time until it can. A pipe takes a large write in parts, as
//! the system may answer it. Files, terminals and the three descriptors that a program is started
//! with go to the system at once: how soon another process reads them must not show in virtual
//! time.
//!
//! Owns: `read` and `write` alone. Other calls that wait for a descriptor stop the simulation, and
//! last if it is one of the program's own threads that would end the wait.

use std::ffi::{c_int, c_void};

use super::locks::look_until;
use crate::host::{self, as_libc};
use crate::simulation;

const SYS_READ: usize = 0;
const SYS_WRITE: usize = 1;
const SYS_FSTAT: usize = 5;
const SYS_POLL: usize = 7;

const POLLIN: i16 = 1;
const POLLOUT: i16 = 4;
/// Standard input, output and error.
const STANDARD: c_int = 2;
/// As much as a pipe that can be written to takes without waiting.
const PIPE_BUF: usize = 4096;

/// What a descriptor is, if it is one to wait for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wait {
    Pipe,
    Socket,
}

fn kind(descriptor: c_int) -> Option<Wait> {
    /// `struct stat`, in words, and where the mode is in it.
    const WORDS: usize = 18;
    const MODE: usize = 3;
    let mut stat = [0_u64; WORDS];
    let arguments = [descriptor as usize, stat.as_mut_ptr() as usize, 0, 0, 0, 0];
    // SAFETY: the kernel writes the 144 bytes that there are.
    let answer = unsafe { host::call(SYS_FSTAT, arguments) };
    match (answer, stat[MODE] & 0o170_000) {
        (0, 0o010_000) => Some(Wait::Pipe),
        (0, 0o140_000) => Some(Wait::Socket),
        _ => None,
    }
}

/// Whether the descriptor would not block; an error is no reason to.
fn is_ready(descriptor: c_int, event: i16) -> bool {
    #[repr(C)]
    struct Poll(c_int, i16, i16);
    let mut poll = Poll(descriptor, event, 0);
    // SAFETY: one entry, no time to wait.
    unsafe { host::call(SYS_POLL, [(&raw mut poll) as usize, 1, 0, 0, 0, 0]) != 0 }
}

fn wait(descriptor: c_int, event: i16, what: &str) -> Option<Wait> {
    let kind = if descriptor > STANDARD { kind(descriptor)? } else { return None };
    simulation::system_call();
    look_until(what, None, || is_ready(descriptor, event).then_some(()));
    Some(kind)
}

/// Reads.
///
/// # Safety
/// As for the function of libc.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn read(descriptor: c_int, buffer: *mut c_void, bytes: usize) -> isize {
    if simulation::active() {
        wait(descriptor, POLLIN, "to read from a pipe or socket");
    }
    // SAFETY: the caller promises a buffer of `bytes` bytes, as libc's `read` asks; the kernel
    // writes no more.
    as_libc(unsafe { host::call(SYS_READ, [descriptor as usize, buffer as usize, bytes, 0, 0, 0]) })
}

/// Writes.
///
/// # Safety
/// As for the function of libc.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn write(descriptor: c_int, buffer: *const c_void, bytes: usize) -> isize {
    let mut bytes = bytes;
    if simulation::active() {
        let kind = wait(descriptor, POLLOUT, "to write to a pipe or socket");
        if kind == Some(Wait::Pipe) {
            bytes = bytes.min(PIPE_BUF);
        }
    }
    // SAFETY: the caller promises a buffer of as many bytes as it named, as libc's `write` asks;
    // `bytes` is not more, and the kernel reads no more.
    as_libc(unsafe {
        host::call(SYS_WRITE, [descriptor as usize, buffer as usize, bytes, 0, 0, 0])
    })
}
