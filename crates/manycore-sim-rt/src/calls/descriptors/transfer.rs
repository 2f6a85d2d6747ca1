//! Reads, writes, sends and receives; accepts and makes connections; locks files.

use std::ffi::c_int;

use super::file::{Answer, EAGAIN, Kind, at_once, blocks, kind, time_out, until_done};
use crate::host;
use crate::simulation::{self, Kind as Access};

/// Returns the name of a call, for messages.
fn name(number: usize) -> &'static str {
    match number as i64 {
        libc::SYS_read => "read",
        libc::SYS_readv => "readv",
        libc::SYS_recvfrom => "recv",
        libc::SYS_recvmsg => "recvmsg",
        libc::SYS_recvmmsg => "recvmmsg",
        libc::SYS_accept | libc::SYS_accept4 => "accept",
        libc::SYS_write => "write",
        libc::SYS_writev => "writev",
        libc::SYS_sendto => "send",
        libc::SYS_sendmsg => "sendmsg",
        libc::SYS_sendmmsg => "sendmmsg",
        libc::SYS_sendfile => "sendfile",
        libc::SYS_splice => "splice",
        libc::SYS_tee => "tee",
        libc::SYS_flock => "flock",
        _ => "fcntl",
    }
}

/// Returns the parts of memory that a call names.
///
/// # Safety
/// As for the system call of that number.
unsafe fn parts(number: usize, arguments: [usize; 6]) -> Vec<libc::iovec> {
    let [_, a, b, ..] = arguments;
    let list = |start: *const libc::iovec, count: usize| {
        if count == 0 || start.is_null() {
            return Vec::new();
        }
        // SAFETY: the caller promises that many parts there, as the call requires (# Safety).
        unsafe { std::slice::from_raw_parts(start, count) }.to_vec()
    };
    match number as i64 {
        libc::SYS_read | libc::SYS_write | libc::SYS_recvfrom | libc::SYS_sendto => {
            vec![libc::iovec { iov_base: a as *mut _, iov_len: b }]
        }
        libc::SYS_readv | libc::SYS_writev => list(a as *const _, b),
        libc::SYS_recvmsg | libc::SYS_sendmsg if a != 0 => {
            // SAFETY: not null, so a message, by the caller's promise, as the call requires (#
            // Safety).
            let message = unsafe { &*(a as *const libc::msghdr) };
            list(message.msg_iov, message.msg_iovlen)
        }
        _ => Vec::new(),
    }
}

/// Charges the copy of the first `bytes` bytes of those parts.
fn charge(parts: &[libc::iovec], mut bytes: usize, access: Access) {
    for part in parts {
        let here = part.iov_len.min(bytes);
        if here > 0 {
            simulation::copied(part.iov_base as usize, here, access);
        }
        bytes -= here;
    }
}

/// Makes a call that takes something from a file.
///
/// # Safety
/// As for the system call of that number.
pub(super) unsafe fn receive(number: usize, arguments: [usize; 6], flags: c_int) -> Answer {
    let file = arguments[0] as c_int;
    kind(file)?;
    simulation::system_call();
    let waits = blocks(file) && flags & libc::MSG_DONTWAIT == 0;
    let until = if waits { time_out(file, libc::POLLIN) } else { Some(0) };
    // SAFETY: the caller promises what the call requires of its arguments (# Safety).
    let parts = unsafe { parts(number, arguments) };
    let all = number as i64 == libc::SYS_recvfrom && flags & libc::MSG_WAITALL != 0;
    let wanted = if all { arguments[2] } else { 0 };
    let mut received = 0;
    loop {
        let mut rest = arguments;
        if all {
            rest[1] += received;
            rest[2] -= received;
        }
        let answer = until_done(name(number), file, Some(libc::POLLIN), until, || {
            // SAFETY: the caller promises what the call requires of its arguments (# Safety);
            // `rest` names a part of the same memory.
            unsafe { at_once(file, number, rest) }
        });
        if answer > 0 {
            received += answer as usize;
        }
        if answer <= 0 || received >= wanted || !waits {
            let answer = if received > 0 { received as isize } else { answer };
            charge(&parts, received, Access::Write);
            return Some(answer);
        }
    }
}

/// Makes a call that gives something to a file: all of it, if the file blocks.
///
/// # Safety
/// As for the system call of that number.
pub(super) unsafe fn send(number: usize, arguments: [usize; 6], flags: c_int) -> Answer {
    let file = arguments[0] as c_int;
    if kind(file).is_none() {
        // SAFETY: the caller promises what the call requires of its arguments (# Safety).
        return Some(host::waiting(|| unsafe { host::call(number, arguments) }));
    }
    simulation::system_call();
    let waits = blocks(file) && flags & libc::MSG_DONTWAIT == 0;
    let until = if waits { time_out(file, libc::POLLOUT) } else { Some(0) };
    // SAFETY: the caller promises what the call requires of its arguments (# Safety).
    let all = unsafe { parts(number, arguments) };
    charge(&all, usize::MAX, Access::Read);
    let wanted: usize = all.iter().map(|part| part.iov_len).sum();
    let mut sent = 0;
    loop {
        let left = after(&all, sent);
        let answer = until_done(name(number), file, Some(libc::POLLOUT), until, || {
            // SAFETY: the caller promises what the call requires of its arguments (# Safety);
            // `left` are parts of the same memory.
            unsafe { send_rest(file, number, arguments, &left, sent > 0) }
        });
        if answer > 0 {
            sent += answer as usize;
        }
        if answer <= 0 || !waits || sent >= wanted {
            return Some(if sent > 0 { sent as isize } else { answer });
        }
    }
}

/// Returns the parts that follow the first `bytes` bytes.
fn after(parts: &[libc::iovec], mut bytes: usize) -> Vec<libc::iovec> {
    let rest = |part: &libc::iovec| {
        let gone = part.iov_len.min(bytes);
        bytes -= gone;
        libc::iovec {
            iov_base: part.iov_base.wrapping_byte_add(gone),
            iov_len: part.iov_len - gone,
        }
    };
    parts.iter().map(rest).collect()
}

/// Makes the call for the parts that are left.
///
/// # Safety
/// As for the system call of that number. `left` holds parts of what the call names.
unsafe fn send_rest(
    file: c_int,
    number: usize,
    mut arguments: [usize; 6],
    left: &[libc::iovec],
    is_continued: bool,
) -> isize {
    if !is_continued {
        // SAFETY: this is the program's own call, for which the caller promises (# Safety).
        return unsafe { at_once(file, number, arguments) };
    }
    let mut message;
    match number as i64 {
        libc::SYS_write | libc::SYS_sendto => {
            arguments[1] = left[0].iov_base as usize;
            arguments[2] = left[0].iov_len;
        }
        libc::SYS_writev => arguments[1] = left.as_ptr() as usize,
        _ => {
            // SAFETY: the call is `sendmsg`, and the caller promises a message (# Safety).
            message = unsafe { *(arguments[1] as *const libc::msghdr) };
            message.msg_iov = left.as_ptr().cast_mut();
            // The control data went with the first part.
            (message.msg_control, message.msg_controllen) = (std::ptr::null_mut(), 0);
            arguments[1] = (&raw const message) as usize;
        }
    }
    // SAFETY: the call names the parts of its memory that are left (# Safety), in local lists.
    unsafe { at_once(file, number, arguments) }
}

/// Makes a call that moves bytes from one file to another.
///
/// # Safety
/// As for the system call of that number.
pub(super) unsafe fn pass_on(
    number: usize,
    arguments: [usize; 6],
    to: c_int,
    from: c_int,
) -> Answer {
    let (to_kind, from_kind) = (kind(to), kind(from));
    to_kind.or(from_kind)?;
    simulation::system_call();
    let waits = |file, kind: Option<Kind>| kind.is_some() && blocks(file);
    let until = if waits(to, to_kind) || waits(from, from_kind) { None } else { Some(0) };
    Some(until_done(name(number), to, None, until, || {
        // SAFETY: the caller promises what the call requires of its arguments (# Safety).
        unsafe {
            if from_kind.is_none() {
                at_once(to, number, arguments)
            } else {
                with_both(to, from, number, arguments)
            }
        }
    }))
}

/// Makes a call with both files set to non-blocking; see [`at_once`].
///
/// # Safety
/// As for the system call of that number.
unsafe fn with_both(to: c_int, from: c_int, number: usize, arguments: [usize; 6]) -> isize {
    let flag = |set: bool| {
        let get = [from as usize, libc::F_GETFL as usize, 0, 0, 0, 0];
        // SAFETY: the calls read flags, and set one.
        unsafe {
            let flags = host::call(libc::SYS_fcntl as usize, get) as usize;
            let other = libc::O_NONBLOCK as usize;
            let flags = if set { flags | other } else { flags & !other };
            host::call(
                libc::SYS_fcntl as usize,
                [from as usize, libc::F_SETFL as usize, flags, 0, 0, 0],
            );
        }
    };
    let was_blocking = blocks(from);
    if was_blocking {
        flag(true);
    }
    // SAFETY: the caller promises what the call requires of its arguments (# Safety).
    let answer = unsafe { at_once(to, number, arguments) };
    if was_blocking {
        flag(false);
    }
    answer
}

/// `connect`.
///
/// # Safety
/// As for the system call.
pub(super) unsafe fn connect(arguments: [usize; 6]) -> Answer {
    const IN_PROGRESS: isize = -(libc::EINPROGRESS as isize);
    let file = arguments[0] as c_int;
    kind(file)?;
    simulation::system_call();
    let waits = blocks(file);
    let until = if waits { time_out(file, libc::POLLOUT) } else { Some(0) };
    let number = libc::SYS_connect as usize;
    // A local socket whose listener has too many connections waiting answers EAGAIN, and can't be
    // polled.
    let answer = until_done("connect", file, None, until, || {
        // SAFETY: the caller promises what the call requires of its arguments (# Safety).
        unsafe { at_once(file, number, arguments) }
    });
    if answer != IN_PROGRESS || !waits {
        return Some(answer);
    }
    let answer = until_done("connect", file, Some(libc::POLLOUT), until, || outcome(file));
    Some(if answer == EAGAIN { IN_PROGRESS } else { answer })
}

/// Returns the outcome of a connection that was in progress.
fn outcome(socket: c_int) -> isize {
    let mut poll = libc::pollfd { fd: socket, events: libc::POLLOUT, revents: 0 };
    // SAFETY: there is one entry, and the call does not wait.
    unsafe { host::look(libc::SYS_poll as usize, [(&raw mut poll) as usize, 1, 0, 0, 0, 0]) };
    if poll.revents == 0 {
        return EAGAIN;
    }
    let (mut error, mut length) = (0 as c_int, 4_u32);
    let (error_at, length_at) = ((&raw mut error) as usize, (&raw mut length) as usize);
    let (level, option) = (libc::SOL_SOCKET as usize, libc::SO_ERROR as usize);
    // SAFETY: the kernel writes a number and its length, to local variables.
    unsafe {
        let arguments = [socket as usize, level, option, error_at, length_at, 0];
        host::call(libc::SYS_getsockopt as usize, arguments);
    }
    -(error as isize)
}

/// Takes a lock on a file for which the program is willing to wait.
///
/// # Safety
/// As for the system call of that number.
pub(super) unsafe fn lock(number: usize, mut arguments: [usize; 6]) -> Answer {
    let command = arguments[1] as c_int;
    if number as i64 == libc::SYS_flock {
        if command & libc::LOCK_NB != 0 {
            return None;
        }
        arguments[1] |= libc::LOCK_NB as usize;
    } else {
        arguments[1] = match command {
            libc::F_SETLKW => libc::F_SETLK as usize,
            libc::F_OFD_SETLKW => libc::F_OFD_SETLK as usize,
            _ => return None,
        };
    }
    simulation::system_call();
    Some(until_done(name(number), arguments[0] as c_int, None, None, || {
        // SAFETY: the caller promises what the call requires of its arguments (# Safety); the call
        // does not wait now.
        let answer = unsafe { host::call(number, arguments) };
        if answer == -(libc::EACCES as isize) { EAGAIN } else { answer }
    }))
}

/// Makes a call that never blocks, and that may make other files ready.
///
/// # Safety
/// As for the system call of that number.
pub(super) unsafe fn change(number: usize, arguments: [usize; 6]) -> Answer {
    kind(arguments[0] as c_int)?;
    simulation::system_call();
    // SAFETY: the caller promises what the call requires of its arguments (# Safety).
    let answer = unsafe { host::call(number, arguments) };
    simulation::files_changed();
    Some(answer)
}

/// Makes a call that sends a signal, which a file may report.
///
/// # Safety
/// As for the system call of that number.
pub(super) unsafe fn signal(number: usize, arguments: [usize; 6]) -> Answer {
    simulation::system_call();
    // SAFETY: the caller promises what the call requires of its arguments (# Safety).
    let answer = unsafe { host::call(number, arguments) };
    simulation::files_changed();
    Some(answer)
}
