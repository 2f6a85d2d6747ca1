//! The libc functions whose system calls may wait for a file or a child process, and `gettid`.

use std::ffi::{c_int, c_long, c_void};

use super::virtual_call;
use crate::host::{self, as_libc};
use crate::interpose::Next;
use crate::simulation;

/// Returns what libc's function for this system call returns.
///
/// # Safety
/// As for the system call of that number.
unsafe fn answer(number: c_long, arguments: [usize; 6]) -> isize {
    let number = number as usize;
    // SAFETY: the caller promises what the system call of this number requires of its arguments (#
    // Safety).
    as_libc(unsafe {
        virtual_call(number, arguments).unwrap_or_else(|| host::call(number, arguments))
    })
}

/// Defines functions that make one system call with their own arguments, or with constants added.
macro_rules! stand_ins {
    ($(
        $name:ident($($argument:ident: $type:ty),*) -> $answer:ty = $number:ident $fixed:tt;
    )*) => {$(
        /// Stands for the libc function of this name; a virtual thread waits in virtual time.
        ///
        /// # Safety
        /// As for libc's function.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> $answer {
            let given: &[usize] = &[$($argument as usize),*];
            let fixed: &[usize] = &$fixed;
            let mut arguments = [0; 6];
            arguments[..given.len()].copy_from_slice(given);
            arguments[given.len()..given.len() + fixed.len()].copy_from_slice(fixed);
            // SAFETY: this is the function's own system call, for which the caller promises what
            // libc's function requires.
            unsafe { answer(libc::$number, arguments) as $answer }
        }
    )*};
}

type In = *const c_void;
type Out = *mut c_void;

stand_ins! {
    read(file: c_int, to: Out, bytes: usize) -> isize = SYS_read [];
    readv(file: c_int, parts: In, count: c_int) -> isize = SYS_readv [];
    write(file: c_int, from: In, bytes: usize) -> isize = SYS_write [];
    writev(file: c_int, parts: In, count: c_int) -> isize = SYS_writev [];
    recv(file: c_int, to: Out, bytes: usize, flags: c_int) -> isize = SYS_recvfrom [0, 0];
    recvfrom(file: c_int, to: Out, bytes: usize, flags: c_int, name: Out, length: Out) -> isize
        = SYS_recvfrom [];
    recvmsg(file: c_int, message: Out, flags: c_int) -> isize = SYS_recvmsg [];
    recvmmsg(file: c_int, messages: Out, count: u32, flags: c_int, time: Out) -> c_int
        = SYS_recvmmsg [];
    send(file: c_int, from: In, bytes: usize, flags: c_int) -> isize = SYS_sendto [0, 0];
    sendto(file: c_int, from: In, bytes: usize, flags: c_int, name: In, length: u32) -> isize
        = SYS_sendto [];
    sendmsg(file: c_int, message: In, flags: c_int) -> isize = SYS_sendmsg [];
    sendmmsg(file: c_int, messages: Out, count: u32, flags: c_int) -> c_int = SYS_sendmmsg [];
    sendfile(to: c_int, from: c_int, offset: Out, bytes: usize) -> isize = SYS_sendfile [];
    sendfile64(to: c_int, from: c_int, offset: Out, bytes: usize) -> isize = SYS_sendfile [];
    splice(from: c_int, at: Out, to: c_int, there: Out, bytes: usize, flags: u32) -> isize
        = SYS_splice [];
    tee(from: c_int, to: c_int, bytes: usize, flags: u32) -> isize = SYS_tee [];
    accept(file: c_int, name: Out, length: Out) -> c_int = SYS_accept [];
    accept4(file: c_int, name: Out, length: Out, flags: c_int) -> c_int = SYS_accept4 [];
    connect(file: c_int, name: In, length: u32) -> c_int = SYS_connect [];
    shutdown(file: c_int, how: c_int) -> c_int = SYS_shutdown [];
    close(file: c_int) -> c_int = SYS_close [];
    dup2(file: c_int, to: c_int) -> c_int = SYS_dup2 [];
    dup3(file: c_int, to: c_int, flags: c_int) -> c_int = SYS_dup3 [];
    flock(file: c_int, how: c_int) -> c_int = SYS_flock [];
    fcntl(file: c_int, command: c_int, with: usize) -> c_int = SYS_fcntl [];
    fcntl64(file: c_int, command: c_int, with: usize) -> c_int = SYS_fcntl [];
    poll(polls: Out, count: usize, time: c_int) -> c_int = SYS_poll [];
    ppoll(polls: Out, count: usize, time: In, signals: In) -> c_int = SYS_ppoll [8];
    select(count: c_int, read: Out, write: Out, special: Out, time: Out) -> c_int = SYS_select [];
    epoll_ctl(file: c_int, how: c_int, other: c_int, event: Out) -> c_int = SYS_epoll_ctl [];
    epoll_wait(file: c_int, events: Out, count: c_int, time: c_int) -> c_int = SYS_epoll_wait [];
    epoll_pwait(file: c_int, events: Out, count: c_int, time: c_int, signals: In) -> c_int
        = SYS_epoll_pwait [8];
    epoll_pwait2(file: c_int, events: Out, count: c_int, time: In, signals: In) -> c_int
        = SYS_epoll_pwait2 [8];
    timerfd_create(clock: c_int, flags: c_int) -> c_int = SYS_timerfd_create [];
    timerfd_settime(file: c_int, flags: c_int, new: In, old: Out) -> c_int
        = SYS_timerfd_settime [];
    timerfd_gettime(file: c_int, setting: Out) -> c_int = SYS_timerfd_gettime [];
    waitpid(child: c_int, status: Out, options: c_int) -> c_int = SYS_wait4 [0];
    wait4(child: c_int, status: Out, options: c_int, usage: Out) -> c_int = SYS_wait4 [];
    waitid(kind: c_int, child: u32, found: Out, options: c_int) -> c_int = SYS_waitid [0];
    kill(process: c_int, signal: c_int) -> c_int = SYS_kill [];
    setitimer(which: c_int, new: In, old: Out) -> c_int = SYS_setitimer [];
    getitimer(which: c_int, setting: Out) -> c_int = SYS_getitimer [];
    alarm(seconds: u32) -> u32 = SYS_alarm [];
    gettid() -> c_int = SYS_gettid [];
}

/// Waits for any child process.
///
/// # Safety
/// As for libc's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn wait(status: Out) -> c_int {
    // SAFETY: the caller promises that `status` is null or valid for a number, as libc's `wait`
    // requires.
    unsafe { waitpid(-1, status, 0) }
}

/// Looks up a host name.
///
/// libc may ask a server for it in its own code; virtual time stands still meanwhile.
///
/// # Safety
/// As for libc's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn getaddrinfo(node: In, service: In, hints: In, found: Out) -> c_int {
    static REAL: Next = Next::new(c"getaddrinfo");
    // SAFETY: this is the function's type.
    let real: extern "C" fn(In, In, In, Out) -> c_int = unsafe { std::mem::transmute(REAL.get()) };
    if simulation::active() {
        simulation::system_call();
    }
    host::waiting(|| real(node, service, hints, found))
}

/// Waits for several files, with a set of signals blocked meanwhile.
///
/// # Safety
/// As for libc's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn pselect(
    count: c_int,
    read: Out,
    write: Out,
    special: Out,
    time: *const [u64; 2],
    signals: In,
) -> c_int {
    let set = [signals as usize, 8];
    // SAFETY: the caller promises a timespec or null, as libc's `pselect` requires.
    let mut left = unsafe { time.as_ref() }.copied();
    // The kernel writes the rest of the time there, and libc's function does not, so it gets a
    // copy.
    let time = left.as_mut().map_or(0, |left| left.as_mut_ptr() as usize);
    let sets = [read as usize, write as usize, special as usize];
    let arguments = [count as usize, sets[0], sets[1], sets[2], time, set.as_ptr() as usize];
    // SAFETY: this is the function's own system call, for which the caller promises what libc's
    // function requires of the sets.
    unsafe { answer(libc::SYS_pselect6, arguments) as c_int }
}
