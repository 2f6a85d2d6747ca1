//! Finds code that makes no callbacks, and so costs nothing, by sampling where the program is.
//!
//! Owns: a timer of processor time, the handler of its signal, and a table of the addresses seen.
//!
//! The command finds out which addresses belong to instrumented functions. It gets each address
//! with the blocks before and after it. Left out is what this library does itself, and what is
//! charged as a whole, such as a call of the allocator. What remains is the program's own time,
//! which is roughly proportional to its instructions.
//!
//! The signal is one of the real-time signals that programs rarely use. It is not blocked, restarts
//! system calls, and comes to the one thread that runs (threads.S1). It comes only while that
//! thread computes: a waiting call uses no processor time, so the signal does not end it. The
//! handler touches neither locks nor thread-local memory, because it may interrupt the runtime
//! anywhere.

use std::arch::naked_asm;
use std::ffi::c_int;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use crate::host;

/// The sampling interval in nanoseconds. Most kernels sample at their next tick, some milliseconds
/// apart.
const INTERVAL: usize = 500_000;
/// The last real-time signal but one.
const SIGNAL: usize = 63;
/// The number of addresses that the table can tell apart.
const SLOTS: usize = 1 << 12;

const SYS_RT_SIGACTION: usize = 13;
const SYS_TIMER_CREATE: usize = 222;
const SYS_TIMER_SETTIME: usize = 223;

/// The table: an address, and how often it was seen.
static SEEN: [(AtomicUsize, AtomicU32); SLOTS] =
    [const { (AtomicUsize::new(0), AtomicU32::new(0)) }; SLOTS];

/// The address range of this library.
static OWN: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

/// The function that tells whether the code that runs now is to be counted.
static COUNTS: OnceLock<fn() -> bool> = OnceLock::new();

/// The kernel's record of a signal handler.
#[repr(C)]
struct Action {
    handler: usize,
    flags: usize,
    restorer: usize,
    mask: u64,
}

/// Begins to sample the calling thread. The handler calls `counts` to learn whether a sample
/// counts.
pub(crate) fn begin(counts: fn() -> bool) {
    const SA_SIGINFO: usize = 4;
    const SA_RESTORER: usize = 0x0400_0000;
    const SA_ONSTACK: usize = 0x0800_0000;
    const SA_RESTART: usize = 0x1000_0000;
    const CLOCK_THREAD_CPUTIME_ID: usize = 3;
    const SIGEV_THREAD_ID: u32 = 4;
    let Some([start, end]) = own_range() else { return };
    COUNTS.get_or_init(|| counts);
    // ORDER: Relaxed, here and below; one thread stores, and its own handler reads.
    OWN[0].store(start, Ordering::Relaxed);
    OWN[1].store(end, Ordering::Relaxed);
    let action = Action {
        handler: look as *const () as usize,
        flags: SA_SIGINFO | SA_RESTORER | SA_ONSTACK | SA_RESTART,
        restorer: restore as *const () as usize,
        mask: 0,
    };
    // SAFETY: the call asks for the calling thread's number.
    let thread = unsafe { host::call(host::SYS_GETTID, [0; 6]) } as u32;
    let mut event = [0_u32; 16];
    event[2..5].copy_from_slice(&[SIGNAL as u32, SIGEV_THREAD_ID, thread]);
    let times = [0, INTERVAL, 0, INTERVAL];
    let mut timer: c_int = 0;
    // SAFETY: the kernel reads a whole action, event and time, and writes the timer's number. The
    // handler and the code that returns from it live as long as the process.
    unsafe {
        let at = |of: *const Action| of as usize;
        if host::call(SYS_RT_SIGACTION, [SIGNAL, at(&raw const action), 0, 8, 0, 0]) != 0 {
            return;
        }
        let (event, timer_at) = (event.as_ptr() as usize, &raw mut timer as usize);
        if host::call(SYS_TIMER_CREATE, [CLOCK_THREAD_CPUTIME_ID, event, timer_at, 0, 0, 0]) != 0 {
            return;
        }
        let number = timer as usize;
        host::call(SYS_TIMER_SETTIME, [number, 0, times.as_ptr() as usize, 0, 0, 0]);
    }
}

/// Returns the range from the first to the last mapping of the file that holds this function.
fn own_range() -> Option<[usize; 2]> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let mappings = || {
        maps.lines().filter_map(|line| {
            let (start, end) = line.split_once(' ')?.0.split_once('-')?;
            let number = |text| usize::from_str_radix(text, 16).ok();
            Some((number(start)?, number(end)?, &line[line.find('/')?..]))
        })
    };
    let here = begin as *const () as usize;
    let (.., file) = mappings().find(|(start, end, _)| (*start..*end).contains(&here))?;
    let own = || mappings().filter(|(.., path)| *path == file);
    Some([own().map(|(start, ..)| start).min()?, own().map(|(_, end, _)| end).max()?])
}

/// Handles the timer's signal.
extern "C" fn look(_signal: c_int, _info: *const u8, context: *const u8) {
    /// The offset of `rip` in the context: after flags, link and stack, it is the 17th register.
    const RIP: usize = 40 + 8 * 16;
    // SAFETY: the kernel passes a whole `ucontext_t` of x86-64.
    let pc = unsafe { context.add(RIP).cast::<usize>().read_unaligned() };
    // ORDER: Relaxed; as in `begin`.
    let own = OWN[0].load(Ordering::Relaxed)..OWN[1].load(Ordering::Relaxed);
    if !own.contains(&pc) && COUNTS.get().is_some_and(|counts| counts()) {
        note(pc);
    }
}

fn note(pc: usize) {
    let first = pc.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 52;
    for step in 0..16 {
        let (address, count) = &SEEN[(first + step) % SLOTS];
        // ORDER: Relaxed; as in `begin`.
        let known = address.load(Ordering::Relaxed);
        if known == 0 {
            address.store(pc, Ordering::Relaxed);
        }
        if known == 0 || known == pc {
            count.fetch_add(1, Ordering::Relaxed);
            return;
        }
    }
}

/// Returns the addresses seen so far, and how often.
pub(crate) fn seen() -> impl Iterator<Item = (usize, u32)> {
    // ORDER: Relaxed; as in `begin`.
    let all = SEEN.iter().map(|(pc, n)| (pc.load(Ordering::Relaxed), n.load(Ordering::Relaxed)));
    all.filter(|(_, count)| *count > 0)
}

/// Returns from the handler.
#[unsafe(naked)]
extern "C" fn restore() {
    naked_asm!("mov eax, 15", "syscall")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_code_is_told_from_libc_s() {
        unsafe extern "C" {
            fn getpid() -> c_int;
        }
        let [start, end] = own_range().unwrap();
        assert!((start..end).contains(&(note as *const () as usize)));
        assert!(!(start..end).contains(&(getpid as *const () as usize)));
    }

    #[test]
    fn addresses_are_counted_apart() {
        for pc in [0x1000, 0x2000, 0x1000] {
            note(pc);
        }
        let mut seen: Vec<_> = seen().collect();
        seen.sort_unstable();
        assert_eq!(seen, [(0x1000, 2), (0x2000, 1)]);
    }
}
