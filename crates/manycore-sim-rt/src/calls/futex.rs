//! `syscall`: futexes and the other calls that programs make by number.

use std::ffi::{c_int, c_long};

use super::clock;
use crate::host::{self, as_libc};
use crate::simulation;

const WAIT: usize = 0;
const WAKE: usize = 1;
const REQUEUE: usize = 3;
const CMP_REQUEUE: usize = 4;
const WAIT_BITSET: usize = 9;
const WAKE_BITSET: usize = 10;
/// The operation's number without its flags.
const OPERATION: usize = 0x7f;
const CLOCK_REALTIME: usize = 0x100;

const ESRCH: c_int = 3;
const EAGAIN: c_int = 11;
const EINVAL: c_int = 22;
const ENOSYS: c_int = 38;
const ETIMEDOUT: c_int = 110;

/// A system call by number.
///
/// # Safety
/// As for the system call.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn syscall(
    number: c_long,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> c_long {
    let number = number as usize;
    let arguments = [a, b, c, d, e, f];
    // SAFETY: the caller promises what the system call of this number asks of its arguments (#
    // Safety).
    if let Some(answer) = unsafe { virtual_call(number, arguments) } {
        return as_libc(answer) as c_long;
    }
    // SAFETY: the caller promises what the system call of this number asks of its arguments (#
    // Safety).
    as_libc(unsafe { host::call(number, arguments) }) as c_long
}

/// The answer of a call that a simulation answers itself, in the kernel's form.
///
/// # Safety
/// As for the system call.
pub(crate) unsafe fn virtual_call(number: usize, arguments: [usize; 6]) -> Option<isize> {
    if !simulation::active() {
        return None;
    }
    let [a, b, c, d, _, f] = arguments;
    match number {
        // SAFETY: the caller promises what the futex call asks: an aligned and mapped word, and for
        // a wait a timespec or null.
        host::SYS_FUTEX => Some(unsafe { futex(a, b, c as u32, d, f as u32) }),
        host::SYS_MEMBARRIER => Some(membarrier(a)),
        host::SYS_GETTID => Some(simulation::with(|sim| sim.thread_id()) as isize),
        host::SYS_SCHED_YIELD => {
            simulation::give_way();
            Some(0)
        }
        host::SYS_GETCPU => {
            let (core, socket) = simulation::with(|sim| sim.where_now());
            for (out, value) in [(a, core), (b, socket)] {
                if out != 0 {
                    // SAFETY: not null, and the caller promises that it is good for a word then, as
                    // `getcpu` asks.
                    unsafe { *(out as *mut u32) = value };
                }
            }
            Some(0)
        }
        // SAFETY: the caller promises a buffer of `b` bytes, as `getrandom` asks.
        host::SYS_GETRANDOM => Some(unsafe { super::getrandom::random_call(a as *mut u8, b) }),
        // SAFETY: the caller promises that `b` is good for a timespec, as `clock_gettime` asks.
        host::SYS_CLOCK_GETTIME => unsafe { clock::time_call(a, b as *mut [u64; 2]) },
        // SAFETY: the caller promises that `a` is a timespec, as `nanosleep` asks.
        host::SYS_NANOSLEEP => unsafe { clock::sleep_call(false, 1, a as *const [u64; 2]) },
        // SAFETY: the caller promises that `c` is a timespec, as `clock_nanosleep` asks.
        host::SYS_CLOCK_NANOSLEEP => unsafe {
            clock::sleep_call(b & 1 == 1, a, c as *const [u64; 2])
        },
        host::SYS_GETAFFINITY | host::SYS_SETAFFINITY if !super::is_caller(a as c_int) => {
            Some(-(ESRCH as isize))
        }
        // SAFETY: the caller promises that `c` is good for `b` bytes, as `sched_getaffinity` asks.
        host::SYS_GETAFFINITY => Some(unsafe { super::mask_call(b, c as *mut u8) }),
        // SAFETY: the caller promises that `c` is good for `b` bytes, as `sched_setaffinity` asks.
        host::SYS_SETAFFINITY => Some(unsafe { super::set_mask_call(b, c as *const u8) }),
        _ => None,
    }
}

/// # Safety
/// As for the futex call: `word` is aligned and mapped, `time` null or a timespec.
unsafe fn futex(word: usize, flags: usize, value: u32, time: usize, bits: u32) -> isize {
    let time = time as *const [u64; 2];
    let answer = match flags & OPERATION {
        // SAFETY: the caller promises that `word` is aligned and mapped, and `time` null or a
        // timespec.
        WAIT => unsafe { wait(word, value, clock::after(time), u32::MAX) },
        WAIT_BITSET => {
            // SAFETY: the caller promises that `time` is null or a timespec (# Safety).
            let until = unsafe { clock::moment(time, flags & CLOCK_REALTIME != 0) };
            // SAFETY: the caller promises that `word` is aligned and mapped (# Safety).
            unsafe { wait(word, value, until, bits) }
        }
        WAKE => Ok(simulation::wake(word, value, u32::MAX)),
        WAKE_BITSET => Ok(simulation::wake(word, value, bits)),
        // A thread that is moved to another queue may as well wake up: waiters expect that.
        REQUEUE | CMP_REQUEUE => Ok(simulation::wake(word, u32::MAX, u32::MAX)),
        _ => Err(ENOSYS),
    };
    match answer {
        Ok(answer) => answer as isize,
        Err(error) => -(error as isize),
    }
}

/// # Safety
/// `word` is aligned and mapped.
pub(super) unsafe fn wait(
    word: usize,
    value: u32,
    until: Option<u64>,
    bits: u32,
) -> Result<usize, c_int> {
    simulation::enter_kernel(word);
    // SAFETY: the caller promises that `word` is aligned and mapped (# Safety). The kernel looks at
    // the word only after the call has begun.
    let now = unsafe { (*(word as *const std::sync::atomic::AtomicU32)).load(super::SEQ_CST) };
    if now != value {
        return Err(EAGAIN);
    }
    if simulation::wait(word, until, bits) { Ok(0) } else { Err(ETIMEDOUT) }
}

/// `membarrier`: every expedited command is there, registered, and costs an interrupt.
fn membarrier(command: usize) -> isize {
    /// Private expedited and its registration, which are all that a process needs for itself.
    const COMMANDS: usize = 1 << 3 | 1 << 4;
    match command {
        0 => COMMANDS as isize,
        0x8 => {
            simulation::interrupt_all();
            0
        }
        0x10 => 0,
        _ => -(EINVAL as isize),
    }
}
