//! Events outside the simulation that may end a wait: child processes, other programs, the network.
//!
//! Law outside.O2: while some virtual thread can run, virtual time passes only by its costs. If all
//! threads wait, and something outside may end a wait, the kernel is asked for it. An event that
//! comes has taken no virtual time. Without an event, virtual time passes like real time, to the
//! end of the next wait that ends by itself. If nothing outside can end a wait, virtual time passes
//! at once. So a run without other processes is the same every time.

use std::ffi::c_int;

use super::Simulation;
use super::files::WaitsFor;
use crate::{diagnostics, host};

/// Real time after which a wait for outside events is reported.
const NOTICE_NS: u64 = 1_000_000_000;
/// Interval of checks for events that can't be polled.
const LOOK_NS: u64 = 1_000_000;
/// Maximal threads that are reported.
const REPORTED: usize = 8;
/// The last of the standard files.
const STANDARD: c_int = 2;

impl Simulation {
    /// Waits while all threads wait, some of them for files. Returns false if nothing can end these
    /// waits.
    pub(super) fn wait_idle(&mut self) -> bool {
        let until = self.engine.idle_until().map(|at| self.engine.machine().nanos(at));
        // outside.O2: time passes at once, or no timer is left.
        if !self.may_be_woken_from_outside() {
            if until.is_none() {
                self.report_waiters("nothing in the program or outside of it can end these waits");
            }
            return until.is_some();
        }
        let budget = until.map_or(u64::MAX, |until| until.saturating_sub(self.nanoseconds()));
        let polled = self.files.waiters.iter().all(|waiter| !waiter.what.files().is_empty());
        let slice = if polled { NOTICE_NS } else { LOOK_NS };
        let began = host::nanoseconds();
        let mut is_reported = false;
        loop {
            let waited = host::nanoseconds() - began;
            if waited >= budget {
                return true;
            }
            let woken = host::waiting(|| self.wake_ready(slice.min(budget - waited)));
            if woken > 0 || self.wake_for_signal() {
                return true;
            }
            if waited >= NOTICE_NS && !is_reported && until.is_none() {
                is_reported = true;
                if !self.may_be_woken_from_outside() {
                    self.report_waiters("what could have ended these waits is gone");
                    return false;
                }
                self.report_waiters("all threads wait for what comes from outside");
            }
        }
    }

    /// Reports the call and the place of each waiting thread.
    fn report_waiters(&self, what: &str) {
        diagnostics::line(format_args!("{what}:"));
        for waiter in self.files.waiters.iter().take(REPORTED) {
            let place = self.place_of(waiter.site as u64);
            diagnostics::line(format_args!(
                "  thread {}: {} at {place}",
                waiter.thread, waiter.call
            ));
        }
    }

    /// Returns true if another process may end one of the waits.
    fn may_be_woken_from_outside(&self) -> bool {
        let waiters = || self.files.waiters.iter().map(|waiter| &waiter.what);
        let files = waiters().flat_map(WaitsFor::files).map(|poll| poll.file);
        waiters().any(|what| !matches!(what, WaitsFor::Files(_)))
            || self.files.takes_signals
            || has_children()
            || any_leads_outside(files.collect())
    }
}

fn has_children() -> bool {
    let options = (libc::WEXITED | libc::WNOHANG | libc::WNOWAIT | libc::__WALL) as usize;
    let arguments = [libc::P_ALL as usize, 0, 0, options, 0, 0];
    // SAFETY: no place for an answer.
    unsafe { host::call(libc::SYS_waitid as usize, arguments) == 0 }
}

/// Returns the open files except the standard ones, by number. Does not use libc's functions, which
/// would allocate in the program's heap.
fn open_files() -> Option<Vec<c_int>> {
    const NAME: &std::ffi::CStr = c"/proc/self/fd";
    /// Offset of an entry's length; below, that of its name.
    const LENGTH: usize = 16;
    const NAME_AT: usize = 19;
    let flags = (libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC) as usize;
    let open = [libc::AT_FDCWD as usize, NAME.as_ptr() as usize, flags, 0, 0, 0];
    // SAFETY: the name ends with a zero byte.
    let folder = unsafe { host::call(libc::SYS_openat as usize, open) };
    let mut files = Vec::new();
    let mut entries = [0_u64; 512];
    loop {
        let read = [folder as usize, entries.as_mut_ptr() as usize, size_of_val(&entries), 0, 0, 0];
        // SAFETY: the kernel writes at most that many bytes; a wrong folder is an error.
        let bytes = unsafe { host::call(libc::SYS_getdents64 as usize, read) };
        if bytes <= 0 {
            // SAFETY: the folder is our own file, if it was opened.
            unsafe { host::call(libc::SYS_close as usize, [folder as usize, 0, 0, 0, 0, 0]) };
            return (bytes == 0).then_some(files);
        }
        let text: Vec<u8> = entries.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let mut entry = &text[..bytes as usize];
        while entry.len() > NAME_AT {
            let length = usize::from(u16::from_ne_bytes([entry[LENGTH], entry[LENGTH + 1]]));
            let name = entry[NAME_AT..length].split(|&byte| byte == 0).next();
            let number = name.and_then(|name| std::str::from_utf8(name).ok()?.parse().ok());
            let other = |&file: &c_int| file > STANDARD && file as isize != folder;
            files.extend(number.filter(other));
            entry = &entry[length..];
        }
    }
}

/// Returns true if another process may be at the other end of one of the files.
fn any_leads_outside(files: Vec<c_int>) -> bool {
    let Some(open) = open_files() else { return true };
    let (mut seen, mut left) = (Vec::new(), files);
    while let Some(file) = left.pop() {
        if seen.contains(&file) {
            continue;
        }
        seen.push(file);
        let Some((pipe, mode)) = identity(file) else { continue };
        let leads_outside = match mode & libc::S_IFMT {
            _ if file <= STANDARD => true,
            libc::S_IFIFO => !has_both_ends(pipe, &open),
            libc::S_IFSOCK => socket_leads_outside(file, &open),
            _ => watches_the_system(file),
        };
        if leads_outside {
            return true;
        }
        left.extend(watched(file));
    }
    false
}

/// Returns true if both ends of a pipe are open here. A child process may have the same ends open
/// too.
fn has_both_ends(pipe: [u64; 2], open: &[c_int]) -> bool {
    let same = open.iter().filter(|&&file| identity(file).is_some_and(|found| found.0 == pipe));
    let mut ends = [false; 2];
    for &file in same {
        let arguments = [file as usize, libc::F_GETFL as usize, 0, 0, 0, 0];
        // SAFETY: asks for flags.
        let flags = unsafe { host::call(libc::SYS_fcntl as usize, arguments) } as c_int;
        ends[0] |= flags & libc::O_ACCMODE != libc::O_WRONLY;
        ends[1] |= flags & libc::O_ACCMODE != libc::O_RDONLY;
    }
    ends == [true; 2]
}

/// Returns the files that an epoll watches, or none for another kind of file.
fn watched(file: c_int) -> Vec<c_int> {
    let text = std::fs::read_to_string(format!("/proc/self/fdinfo/{file}")).unwrap_or_default();
    let lines = text.lines().filter_map(|line| line.strip_prefix("tfd:"));
    lines.filter_map(|line| line.split_whitespace().next()?.parse().ok()).collect()
}

/// Returns device and number of a file, and its mode.
fn identity(file: c_int) -> Option<([u64; 2], libc::mode_t)> {
    // SAFETY: the struct has only numbers, for which zero is a value.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    let arguments = [file as usize, (&raw mut stat) as usize, 0, 0, 0, 0];
    // SAFETY: the kernel writes a `stat`.
    let answer = unsafe { host::call(libc::SYS_fstat as usize, arguments) };
    (answer == 0).then_some(([stat.st_dev, stat.st_ino], stat.st_mode))
}

/// Returns true for a file that reports what other processes do.
fn watches_the_system(file: c_int) -> bool {
    let path = std::fs::read_link(format!("/proc/self/fd/{file}")).unwrap_or_default();
    let path = path.to_string_lossy();
    ["signalfd", "inotify", "fanotify", "io_uring", "pidfd"].iter().any(|kind| path.contains(kind))
}

/// Returns an address of a socket: its own or its peer's, depending on `call`.
fn name(socket: c_int, call: i64) -> Option<Vec<u8>> {
    let (mut name, mut length) = ([0_u8; 128], 128_u32);
    let arguments =
        [socket as usize, name.as_mut_ptr() as usize, (&raw mut length) as usize, 0, 0, 0];
    // SAFETY: the kernel writes at most 128 bytes and their number.
    let answer = unsafe { host::call(call as usize, arguments) };
    (answer == 0).then(|| name[..(length as usize).min(name.len())].to_vec())
}

/// Returns an option of a socket with a value that begins with a number.
fn option(socket: c_int, option: c_int) -> Option<c_int> {
    let (mut value, mut length) = ([0 as c_int; 4], 16_u32);
    let (value_at, length_at) = (value.as_mut_ptr() as usize, (&raw mut length) as usize);
    let arguments =
        [socket as usize, libc::SOL_SOCKET as usize, option as usize, value_at, length_at, 0];
    // SAFETY: the kernel writes at most 16 bytes and their number.
    let answer = unsafe { host::call(libc::SYS_getsockopt as usize, arguments) };
    (answer == 0).then_some(value[0])
}

/// Returns true if a socket's other end may belong to another process. `open` are this process's
/// files.
fn socket_leads_outside(socket: c_int, open: &[c_int]) -> bool {
    if option(socket, libc::SO_ACCEPTCONN) == Some(1) {
        return true;
    }
    let Some(peer) = name(socket, libc::SYS_getpeername) else {
        // Anybody may send a datagram. A stream without a peer has nothing to receive.
        return option(socket, libc::SO_TYPE) != Some(libc::SOCK_STREAM);
    };
    if option(socket, libc::SO_DOMAIN) == Some(libc::AF_UNIX) {
        return option(socket, libc::SO_PEERCRED) != Some(std::process::id() as c_int);
    }
    let is_peer = |&file: &c_int| name(file, libc::SYS_getsockname).as_ref() == Some(&peer);
    !open.iter().any(is_peer)
}
