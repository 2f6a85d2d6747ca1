//! Watches for a simulating kernel thread that blocks in the kernel, from a second kernel thread.
//!
//! All virtual threads run on one kernel thread. A call that blocks it, and that this crate does
//! not replace, stops them all. If another virtual thread were to end the wait, they stop forever.
//! After [`PATIENCE_NS`] of real time, the run therefore ends with the call's name and its place in
//! the program.
//!
//! Law watchdog.D1: no call blocks the simulating thread unnoticed. The kernel reports what a
//! thread is blocked in. A thread that has used no processor time between two looks has not moved.
//! Intended waits ([`host::waiting`]) and running threads are left alone.
//!
//! Only the kernel knows the watching thread. libc does not know it, it has its own table of files,
//! and it takes no signals; so the program cannot tell that it exists. The thread also reminds the
//! simulating thread to look outside, where virtual threads wait for other processes
//! ([`simulation::remind`]).

use std::arch::naked_asm;

use crate::{diagnostics, host, simulation};

/// The longest time that a call may block.
const PATIENCE_NS: u64 = 1_000_000_000;
/// The interval of the reminders to look outside while virtual threads run.
const REMIND_NS: u64 = 5_000_000;
/// The number of reminders between two looks at the simulating thread.
const LOOK_EVERY: u32 = 50;
/// The size of the watching thread's stack: the program's symbols are read on it.
const STACK: usize = 4 << 20;
/// The number of bytes kept of each file in which the kernel describes a thread.
const TEXT: usize = 512;

/// The kernel's report on the simulating thread: the call that it is in, and its processor time.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Sample {
    call: [u8; TEXT],
    time: [u8; TEXT],
}

/// Begins to watch the calling kernel thread.
pub(crate) fn start() {
    const FLAGS: i32 = libc::CLONE_VM
        | libc::CLONE_FS
        | libc::CLONE_SIGHAND
        | libc::CLONE_THREAD
        | libc::CLONE_SYSVSEM;
    let stack = host::map(0, STACK);
    if stack.is_null() {
        diagnostics::fatal(format_args!("no memory for another thread"));
    }
    let (all, mut before) = (u64::MAX, 0_u64);
    let mask = |how: i32, new: &u64, old: *mut u64| {
        let arguments = [how as usize, std::ptr::from_ref(new) as usize, old as usize, 8, 0, 0];
        // SAFETY: signal sets are 8 bytes; `old` is null or a local variable.
        unsafe { host::call(libc::SYS_rt_sigprocmask as usize, arguments) }
    };
    mask(libc::SIG_SETMASK, &all, &raw mut before);
    // SAFETY: the stack is new, aligned and the thread's own; `watch` never returns.
    let answer = unsafe { clone(FLAGS as usize, stack.add(STACK), watch) };
    mask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
    if answer < 0 {
        diagnostics::fatal(format_args!("the kernel gives no other thread (error {})", -answer));
    }
}

/// Makes a kernel thread, which calls `entry` on the stack below `top`.
///
/// # Safety
/// `top` is a multiple of 16. The memory below it belongs to the new thread alone, forever.
#[unsafe(naked)]
unsafe extern "C" fn clone(flags: usize, top: *mut u8, entry: extern "C" fn() -> !) -> isize {
    naked_asm!(
        "mov [rsi - 16], rdx",
        "sub rsi, 16",
        "xor edx, edx",
        "xor r10d, r10d",
        "xor r8d, r8d",
        "mov eax, {clone}",
        "syscall",
        "test rax, rax",
        "jnz 2f",
        "xor ebp, ebp",
        "mov rax, [rsp]",
        "call rax",
        "ud2",
        "2:",
        "ret",
        clone = const libc::SYS_clone,
    )
}

extern "C" fn watch() -> ! {
    for (first, last) in [(0, 1), (3, usize::MAX >> 33)] {
        // SAFETY: the table is the thread's own; only standard error is used in it.
        unsafe { host::call(libc::SYS_close_range as usize, [first, last, 0, 0, 0, 0]) };
    }
    // The simulating thread is the process's first. The names are made here, so that nothing is
    // allocated later: an allocation then would wait.
    let files = ["stat", "syscall", "schedstat"];
    let files = files.map(|file| format!("/proc/self/task/{}/{file}\0", std::process::id()));
    let (mut last, mut since) = (sample(&files), host::nanoseconds());
    loop {
        for _ in 0..LOOK_EVERY {
            sleep(REMIND_NS);
            simulation::remind();
        }
        let (now, time) = (sample(&files), host::nanoseconds());
        if now.is_none() || now != last || host::is_waiting() || !simulation::active() {
            (last, since) = (now, time);
        } else if let Some(sample) = now.filter(|_| time - since >= PATIENCE_NS) {
            // watchdog.D1: the thread has been in the same call this long, and has used no
            // processor time.
            report(&sample);
        }
    }
}

fn sleep(nanoseconds: u64) {
    let time = [nanoseconds / 1_000_000_000, nanoseconds % 1_000_000_000];
    // SAFETY: the timespec is a local variable.
    unsafe { host::call(host::SYS_NANOSLEEP, [time.as_ptr() as usize, 0, 0, 0, 0, 0]) };
}

/// Returns what the simulating thread does, if it sleeps in a call that a signal could end.
fn sample([state, call, time]: &[String; 3]) -> Option<Sample> {
    let state = read(state)?;
    // The state follows the name, which is in parentheses.
    let name_end = state.iter().rposition(|&byte| byte == b')')?;
    if state.get(name_end + 2) != Some(&b'S') {
        return None;
    }
    Some(Sample { call: read(call)?, time: read(time).unwrap_or([0; TEXT]) })
}

/// Reads the beginning of a file; its name ends in a zero byte.
fn read(name: &str) -> Option<[u8; TEXT]> {
    let open = [libc::AT_FDCWD as usize, name.as_ptr() as usize, libc::O_RDONLY as usize, 0, 0, 0];
    // SAFETY: the name ends in a zero byte.
    let file = unsafe { host::call(libc::SYS_openat as usize, open) };
    if file < 0 {
        return None;
    }
    let mut text = [0; TEXT];
    // SAFETY: the kernel writes no more bytes than the text has, and the file was opened here.
    let bytes = unsafe {
        let into = [file as usize, text.as_mut_ptr() as usize, TEXT, 0, 0, 0];
        let bytes = host::call(libc::SYS_read as usize, into);
        host::call(libc::SYS_close as usize, [file as usize, 0, 0, 0, 0, 0]);
        bytes
    };
    (bytes > 0).then_some(text)
}

/// Ends the run: the thread has been in this call all the time.
fn report(sample: &Sample) -> ! {
    simulation::stop();
    let text = String::from_utf8_lossy(&sample.call);
    let mut words = text.split_whitespace();
    let number = words.next().and_then(|word| word.parse::<i64>().ok()).unwrap_or(-1);
    let first = words.next().unwrap_or("?");
    // The simulating thread is blocked in the kernel, so it is not inside `with`.
    let place = simulation::with(|sim| sim.place());
    diagnostics::fatal(format_args!(
        "the program called {} (its first argument is {first}) at {place}: that call is not \
         simulated, and has blocked all virtual threads for a second",
        name(number)
    ))
}

/// Returns the name of a system call that can block.
fn name(number: i64) -> String {
    macro_rules! names {
        ($($name:ident)*) => {
            match number {
                $(number if number == libc::$name => {
                    let name = stringify!($name);
                    return name.strip_prefix("SYS_").unwrap_or(name).to_owned();
                })*
                _ => {}
            }
        };
    }
    names! {
        SYS_accept SYS_accept4 SYS_clone SYS_clone3 SYS_clock_nanosleep SYS_connect
        SYS_copy_file_range SYS_epoll_pwait SYS_epoll_pwait2 SYS_epoll_wait SYS_fcntl SYS_flock
        SYS_fsync SYS_futex SYS_getrandom SYS_io_getevents SYS_io_uring_enter SYS_ioctl
        SYS_mq_timedreceive SYS_mq_timedsend SYS_msgrcv SYS_msgsnd SYS_nanosleep SYS_open SYS_openat
        SYS_pause SYS_poll
        SYS_ppoll SYS_preadv SYS_preadv2 SYS_pselect6 SYS_pwritev SYS_pwritev2 SYS_read SYS_readv
        SYS_recvfrom SYS_recvmmsg SYS_recvmsg SYS_rt_sigsuspend SYS_rt_sigtimedwait SYS_select
        SYS_semop SYS_semtimedop SYS_sendfile SYS_sendmmsg SYS_sendmsg SYS_sendto SYS_splice SYS_tee
        SYS_vmsplice SYS_vfork SYS_wait4 SYS_waitid SYS_write SYS_writev
    }
    format!("system call {number}")
}
