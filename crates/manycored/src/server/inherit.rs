//! Sockets that the service manager has opened for this process (systemd's socket activation).
//!
//! `LISTEN_FDS` is the number of sockets, from descriptor 3 on. `LISTEN_PID` is the process that
//! they are for. Source: the manual page sd_listen_fds(3).

use super::Failure;
use rustix::fd::{FromRawFd, OwnedFd};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::{Errno, FdFlags, fcntl_getfd, fcntl_setfd};
use rustix::net::sockopt::socket_acceptconn;
use std::sync::atomic::{AtomicBool, Ordering};

/// The first inherited descriptor.
const FIRST: i32 = 3;
/// The most sockets that the server takes.
const MOST: i32 = 64;

/// Returns the number of inherited sockets, from the values of the two variables.
fn count(pid: Option<&str>, fds: Option<&str>, own: u32) -> i32 {
    if pid.and_then(|pid| pid.parse().ok()) != Some(own) {
        return 0;
    }
    fds.and_then(|fds| fds.parse().ok()).map_or(0, |fds: i32| fds.clamp(0, MOST))
}

/// Returns the number of inherited sockets.
fn given() -> i32 {
    let variable = |name| std::env::var(name).ok();
    let (pid, fds) = (variable("LISTEN_PID"), variable("LISTEN_FDS"));
    count(pid.as_deref(), fds.as_deref(), std::process::id())
}

/// Returns true if there are inherited sockets.
pub(super) fn is_given() -> bool {
    given() > 0
}

/// Returns the sockets, each checked. Returns none if the variables name another process, or at a
/// second call.
pub(super) fn sockets() -> Result<Vec<OwnedFd>, Failure> {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    let count = given();
    // ORDER: Relaxed; only that exactly one caller takes them matters.
    if count == 0 || TAKEN.swap(true, Ordering::Relaxed) {
        return Ok(Vec::new());
    }
    let take = |number: i32| {
        // SAFETY: the service manager opened it for this process, as the variables state; `TAKEN`
        // keeps a second caller from owning it, too. Whether it is a listening socket is checked
        // below.
        let socket = unsafe { OwnedFd::from_raw_fd(number) };
        prepare(&socket).map(|()| socket).map_err(Failure::system(format!(
            "descriptor {number} of LISTEN_FDS is not a listening socket"
        )))
    };
    (FIRST..FIRST + count).map(take).collect()
}

fn prepare(socket: &OwnedFd) -> Result<(), Errno> {
    if !socket_acceptconn(socket)? {
        return Err(Errno::INVAL);
    }
    fcntl_setfd(socket, fcntl_getfd(socket)? | FdFlags::CLOEXEC)?;
    fcntl_setfl(socket, fcntl_getfl(socket)? | OFlags::NONBLOCK)
}

#[cfg(test)]
mod tests {
    use super::count;

    #[test]
    fn only_this_processs_sockets_count() {
        assert_eq!(count(Some("7"), Some("2"), 7), 2);
        for (pid, fds) in [
            (Some("8"), Some("2")),
            (None, Some("2")),
            (Some("7"), None),
            (Some("7"), Some("x")),
            (Some("7"), Some("-1")),
        ] {
            assert_eq!(count(pid, fds, 7), 0);
        }
    }
}
