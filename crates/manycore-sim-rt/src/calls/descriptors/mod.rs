//! Calls that may wait for a file or a child process: pipes, sockets, polling, timers, `wait`.
//!
//! The kernel answers these calls and never blocks: a blocking file is made non-blocking for the
//! moment of the call. If the call would block, the virtual thread waits in virtual time and tries
//! again ([`simulation::wait_outside`]). Time-outs are virtual. A call comes to [`call()`] through
//! a function of libc, or by number.
//!
//! Law calls_descriptors.P1: each such call costs the machine's `syscall`, and the lines of the
//! program's memory that the kernel copies from or to. What the kernel does inside is not modelled.
//! Calls on files of the file system, and on standard output and error, go to the kernel at once
//! and cost nothing. Virtual time must not show how soon another process reads them.

mod children;
mod file;
mod readiness;
mod timers;
mod transfer;

use std::ffi::c_int;

use super::{alarms, refuse};
use file::Answer;

/// Returns the result of a call, in the kernel's form. `None` means that the kernel is to make the
/// call, and that it blocks no longer than a file system does.
///
/// # Safety
/// As for the system call of that number.
pub(super) unsafe fn call(number: usize, arguments: [usize; 6]) -> Answer {
    let [a, b, c, d, e, _] = arguments;
    let file = a as c_int;
    // SAFETY: the caller promises what the call of this number requires of its arguments (#
    // Safety). Each function below gets those of its own call.
    unsafe {
        match number as i64 {
            libc::SYS_read | libc::SYS_readv => transfer::receive(number, arguments, 0),
            libc::SYS_recvfrom => transfer::receive(number, arguments, d as c_int),
            libc::SYS_recvmsg => transfer::receive(number, arguments, c as c_int),
            libc::SYS_recvmmsg => transfer::receive(number, arguments, d as c_int),
            libc::SYS_write | libc::SYS_writev => transfer::send(number, arguments, 0),
            libc::SYS_sendto => transfer::send(number, arguments, d as c_int),
            libc::SYS_sendmsg => transfer::send(number, arguments, c as c_int),
            libc::SYS_sendmmsg => transfer::send(number, arguments, d as c_int),
            libc::SYS_sendfile => transfer::pass_on(number, arguments, file, b as c_int),
            libc::SYS_splice => transfer::pass_on(number, arguments, c as c_int, file),
            libc::SYS_tee => transfer::pass_on(number, arguments, b as c_int, file),
            libc::SYS_accept | libc::SYS_accept4 => transfer::receive(number, arguments, 0),
            libc::SYS_connect => transfer::connect(arguments),
            libc::SYS_flock | libc::SYS_fcntl => transfer::lock(number, arguments),
            libc::SYS_poll => readiness::poll(a, b, readiness::after_milliseconds(c)),
            libc::SYS_ppoll => readiness::poll(a, b, readiness::after_time(c)),
            libc::SYS_select => readiness::select([a, b, c, d], readiness::after_timeval(e)),
            libc::SYS_pselect6 => readiness::select([a, b, c, d], readiness::after_time(e)),
            libc::SYS_epoll_wait | libc::SYS_epoll_pwait => {
                readiness::epoll([a, b, c], readiness::after_milliseconds(d))
            }
            libc::SYS_epoll_pwait2 => readiness::epoll([a, b, c], readiness::after_time(d)),
            libc::SYS_wait4 => children::wait4(arguments),
            libc::SYS_waitid => children::waitid(arguments),
            libc::SYS_timerfd_create => timers::create(a, b),
            libc::SYS_timerfd_settime => timers::set(file, b, c as *const _, d as *mut _),
            libc::SYS_timerfd_gettime => timers::get(file, b as *mut _),
            libc::SYS_close => {
                timers::forget(file);
                transfer::change(number, arguments)
            }
            libc::SYS_shutdown | libc::SYS_epoll_ctl | libc::SYS_dup2 | libc::SYS_dup3 => {
                transfer::change(number, arguments)
            }
            libc::SYS_kill | libc::SYS_tgkill => transfer::signal(number, arguments),
            libc::SYS_alarm => alarms::after_seconds(a),
            libc::SYS_setitimer => alarms::set_interval(a as c_int, b as *const _, c as *mut _),
            libc::SYS_getitimer => alarms::get_interval(a as c_int, b as *mut _),
            libc::SYS_timer_create => alarms::create(a, b as *const _, c as *mut _),
            libc::SYS_timer_settime => alarms::set_time(a, b, c as *const _, d as *mut _),
            libc::SYS_timer_gettime => alarms::get_time(a, b as *mut _),
            libc::SYS_timer_getoverrun => alarms::overrun(a),
            libc::SYS_timer_delete => alarms::delete(a),
            libc::SYS_io_uring_setup => {
                refuse("io_uring_setup", "rings shared with the kernel are")
            }
            _ => None,
        }
    }
}
