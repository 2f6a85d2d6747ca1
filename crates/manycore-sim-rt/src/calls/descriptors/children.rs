//! Waits for child processes, which run outside the simulation.

use std::ffi::c_int;

use super::file::Answer;
use crate::calls::signals;
use crate::host;
use crate::simulation::{self, WaitsFor};

/// Calls `look` until it has an answer, and waits for the child in between.
fn until_found(call: &'static str, which: [usize; 3], mut look: impl FnMut() -> isize) -> isize {
    simulation::system_call();
    loop {
        let answer = look();
        if answer != 0 {
            simulation::files_changed();
            return answer;
        }
        simulation::wait_outside(call, WaitsFor::Child(which), false, None);
        signals::deliver();
    }
}

/// `wait4`.
///
/// # Safety
/// As for the system call.
pub(super) unsafe fn wait4(mut arguments: [usize; 6]) -> Answer {
    let (child, options) = (arguments[0] as c_int, arguments[2] as c_int);
    if options & libc::WNOHANG != 0 {
        return None;
    }
    let (kind, number) = match child {
        -1 => (libc::P_ALL, 0),
        0 => (libc::P_PGID, 0),
        1.. => (libc::P_PID, child),
        _ => (libc::P_PGID, -child),
    };
    let events = libc::WEXITED | options & (libc::WUNTRACED | libc::WCONTINUED | libc::__WALL);
    arguments[2] |= libc::WNOHANG as usize;
    Some(until_found("wait", [kind as usize, number as usize, events as usize], || {
        // SAFETY: the caller promises what the call requires of its arguments (# Safety).
        unsafe { host::call(libc::SYS_wait4 as usize, arguments) }
    }))
}

/// `waitid`.
///
/// # Safety
/// As for the system call.
pub(super) unsafe fn waitid(mut arguments: [usize; 6]) -> Answer {
    let [kind, number, out, options, ..] = arguments;
    if options as c_int & libc::WNOHANG != 0 {
        return None;
    }
    // SAFETY: the fields are numbers, for which zero is a value.
    let mut found: libc::siginfo_t = unsafe { std::mem::zeroed() };
    arguments[2] = (&raw mut found) as usize;
    arguments[3] |= libc::WNOHANG as usize;
    let answer = until_found("waitid", [kind, number, options], || {
        // SAFETY: the caller promises what the call requires of its arguments (# Safety); the
        // answer goes to a local `siginfo_t`.
        let answer = unsafe { host::call(libc::SYS_waitid as usize, arguments) };
        // A zero answer has two meanings: a child was found, and `si_signo` is set, or none was
        // found.
        if answer == 0 && found.si_signo != 0 { 1 } else { answer }
    });
    if answer == 1 && out != 0 {
        // SAFETY: not null, so valid for a `siginfo_t`, by the caller's promise.
        unsafe { *(out as *mut libc::siginfo_t) = found };
    }
    Some(answer.min(0))
}
