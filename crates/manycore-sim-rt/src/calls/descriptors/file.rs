//! Finds out what a descriptor is, and makes calls on it that do not block.

use std::ffi::c_int;

use crate::calls::signals;
use crate::host;
use crate::simulation::{self, Poll, WaitsFor};

/// A call's result in the kernel's form; `None` if the call is left to the kernel.
pub(super) type Answer = Option<isize>;

pub(super) const EAGAIN: isize = -(libc::EAGAIN as isize);
/// Standard output and error: whoever started the run is at the other end.
const OUTPUT: [c_int; 2] = [1, 2];

/// The kind of a descriptor that can block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Pipe,
    Socket,
    /// An eventfd, a signalfd and the like, or standard input from a terminal.
    Other,
}

/// Returns what a descriptor is, if a call on it can wait. The kernel gets all other calls at once
/// (calls_descriptors.P1). For those this function must not touch the simulation: the runtime
/// itself reads files.
pub(super) fn kind(descriptor: c_int) -> Option<Kind> {
    if OUTPUT.contains(&descriptor) {
        return None;
    }
    // SAFETY: the fields are numbers, for which zero is a value.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    let arguments = [descriptor as usize, (&raw mut stat) as usize, 0, 0, 0, 0];
    // SAFETY: the kernel writes a `stat`, to a local variable.
    if unsafe { host::call(libc::SYS_fstat as usize, arguments) } != 0 {
        return None;
    }
    match stat.st_mode & libc::S_IFMT {
        libc::S_IFIFO => Some(Kind::Pipe),
        libc::S_IFSOCK => Some(Kind::Socket),
        libc::S_IFREG | libc::S_IFDIR | libc::S_IFBLK | libc::S_IFLNK => None,
        libc::S_IFCHR if descriptor != 0 => None,
        _ => Some(Kind::Other),
    }
}

fn control(descriptor: c_int, command: c_int, argument: usize) -> isize {
    let arguments = [descriptor as usize, command as usize, argument, 0, 0, 0];
    // SAFETY: the call reads or sets flags.
    unsafe { host::call(libc::SYS_fcntl as usize, arguments) }
}

/// Tells whether the program left the file blocking.
pub(super) fn blocks(descriptor: c_int) -> bool {
    let flags = control(descriptor, libc::F_GETFL, 0);
    flags >= 0 && flags as c_int & libc::O_NONBLOCK == 0
}

/// Makes a call with the file set to non-blocking.
///
/// # Safety
/// As for the system call of that number.
pub(super) unsafe fn at_once(file: c_int, number: usize, arguments: [usize; 6]) -> isize {
    let flags = control(file, libc::F_GETFL, 0);
    let non_blocking = flags | libc::O_NONBLOCK as isize;
    let changes = flags >= 0 && flags != non_blocking;
    if changes {
        control(file, libc::F_SETFL, non_blocking as usize);
    }
    // SAFETY: the caller promises what the call requires of its arguments (# Safety).
    let answer = unsafe { host::call(number, arguments) };
    if changes {
        control(file, libc::F_SETFL, flags as usize);
    }
    answer
}

/// Returns the virtual time at which a socket's own time-out for `event` ends, if it has one.
pub(super) fn time_out(socket: c_int, event: i16) -> Option<u64> {
    let option = if event == libc::POLLIN { libc::SO_RCVTIMEO } else { libc::SO_SNDTIMEO };
    let (mut time, mut length) = ([0_u64; 2], 16_u32);
    let (time_at, length_at) = ((&raw mut time) as usize, (&raw mut length) as usize);
    let arguments =
        [socket as usize, libc::SOL_SOCKET as usize, option as usize, time_at, length_at, 0];
    // SAFETY: the kernel writes a `timeval`, which has 16 bytes, and its length.
    let answer = unsafe { host::call(libc::SYS_getsockopt as usize, arguments) };
    let nanoseconds = time[0].saturating_mul(1_000_000_000).saturating_add(time[1] * 1000);
    let now = || simulation::with(|sim| sim.nanoseconds());
    (answer == 0 && nanoseconds > 0).then(|| now().saturating_add(nanoseconds))
}

/// Calls `attempt` until it has an answer. In between it waits for `event`, or for any change if
/// there is none. Returns `EAGAIN` at the time `until`.
pub(super) fn until_done(
    call: &'static str,
    file: c_int,
    event: Option<i16>,
    until: Option<u64>,
    mut attempt: impl FnMut() -> isize,
) -> isize {
    loop {
        simulation::with(simulation::Simulation::expire_timers);
        let answer = attempt();
        if answer != EAGAIN {
            simulation::files_changed();
            return answer;
        }
        if until.is_some_and(|until| simulation::with(|sim| sim.nanoseconds()) >= until) {
            return EAGAIN;
        }
        let what = match event {
            Some(events) => WaitsFor::Files(vec![Poll { file, events, found: 0 }]),
            None => WaitsFor::Change,
        };
        simulation::wait_outside(call, what, event.is_some(), until);
        signals::deliver();
    }
}
