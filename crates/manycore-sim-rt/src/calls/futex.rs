//! Futexes and `membarrier`.

use std::ffi::c_int;

use super::clock;
use crate::simulation;

const WAIT: usize = 0;
const WAKE: usize = 1;
const REQUEUE: usize = 3;
const CMP_REQUEUE: usize = 4;
const WAIT_BITSET: usize = 9;
const WAKE_BITSET: usize = 10;
/// The mask that leaves the operation's number without its flags.
const OPERATION: usize = 0x7f;
const CLOCK_REALTIME: usize = 0x100;

const EAGAIN: c_int = 11;
const EINVAL: c_int = 22;
const ENOSYS: c_int = 38;
const ETIMEDOUT: c_int = 110;

/// Handles the futex call.
///
/// # Safety
/// As for the futex call: `word` is aligned and mapped, and `time` is null or a timespec.
pub(super) unsafe fn futex(word: usize, flags: usize, value: u32, time: usize, bits: u32) -> isize {
    let time = time as *const [u64; 2];
    let answer = match flags & OPERATION {
        // SAFETY: the caller promises that `word` is aligned and mapped, and that `time` is null or
        // a timespec.
        WAIT => unsafe { wait(word, value, clock::after(time), u32::MAX) },
        WAIT_BITSET => {
            // SAFETY: the caller promises that `time` is null or a timespec (# Safety).
            let until = unsafe { clock::moment(time, flags & CLOCK_REALTIME != 0) };
            // SAFETY: the caller promises that `word` is aligned and mapped (# Safety).
            unsafe { wait(word, value, until, bits) }
        }
        WAKE => Ok(simulation::wake(word, value, u32::MAX)),
        WAKE_BITSET => Ok(simulation::wake(word, value, bits)),
        // A thread that is to move to another queue may wake up instead: waiters expect that.
        REQUEUE | CMP_REQUEUE => Ok(simulation::wake(word, u32::MAX, u32::MAX)),
        _ => Err(ENOSYS),
    };
    match answer {
        Ok(answer) => answer as isize,
        Err(error) => -(error as isize),
    }
}

/// Sleeps on `word` while it holds `value`, until a wake-up or the virtual time `until`.
///
/// # Safety
/// `word` is aligned and mapped.
pub(super) unsafe fn wait(
    word: usize,
    value: u32,
    until: Option<u64>,
    bits: u32,
) -> Result<usize, c_int> {
    simulation::enter_kernel(word);
    // SAFETY: the caller promises that `word` is aligned and mapped (# Safety). The kernel, too,
    // reads the word only after the call has begun.
    let now = unsafe { (*(word as *const std::sync::atomic::AtomicU32)).load(super::SEQ_CST) };
    if now != value {
        return Err(EAGAIN);
    }
    if simulation::wait(word, until, bits) { Ok(0) } else { Err(ETIMEDOUT) }
}

/// `membarrier`: the private expedited command is supported and registered, and costs an interrupt.
pub(super) fn membarrier(command: usize) -> isize {
    /// The private expedited command and its registration: all that a process needs for itself.
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
