//! System calls by number.
//!
//! They come from libc's `syscall`, from an instruction of the program, or from a libc function
//! that only makes the call.

use std::ffi::{c_int, c_long};

use super::{clock, cores, descriptors, files, futex, getrandom, maps};
use crate::host::{self, as_libc};
use crate::simulation;

const ESRCH: c_int = 3;

/// Makes a system call by number.
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
    // SAFETY: the caller promises what the system call of this number requires of its arguments (#
    // Safety).
    if let Some(answer) = unsafe { virtual_call(number, arguments) } {
        return as_libc(answer) as c_long;
    }
    // SAFETY: the caller promises what the system call of this number requires of its arguments (#
    // Safety).
    as_libc(unsafe { host::call(number, arguments) }) as c_long
}

/// Returns the result of a call that the simulation handles itself, in the kernel's form.
///
/// # Safety
/// As for the system call.
pub(crate) unsafe fn virtual_call(number: usize, arguments: [usize; 6]) -> Option<isize> {
    if !simulation::active() {
        return None;
    }
    let [a, b, c, d, _, f] = arguments;
    match number {
        // SAFETY: the caller promises what the futex call requires: an aligned and mapped word, and
        // for a wait a timespec or null.
        host::SYS_FUTEX => Some(unsafe { futex::futex(a, b, c as u32, d, f as u32) }),
        host::SYS_MEMBARRIER => Some(futex::membarrier(a)),
        host::SYS_GETTID => Some(simulation::with(|sim| sim.thread_id()) as isize),
        host::SYS_SCHED_YIELD => {
            simulation::give_way();
            Some(0)
        }
        host::SYS_GETCPU => {
            let (core, socket) = simulation::with(|sim| sim.where_now());
            for (out, value) in [(a, core), (b, socket)] {
                if out != 0 {
                    // SAFETY: not null, so valid for a word, by the caller's promise, as `getcpu`
                    // requires.
                    unsafe { *(out as *mut u32) = value };
                }
            }
            Some(0)
        }
        // SAFETY: the caller promises a buffer of `b` bytes, as `getrandom` requires.
        host::SYS_GETRANDOM => Some(unsafe { getrandom::random_call(a as *mut u8, b) }),
        // SAFETY: the caller promises that `b` is valid for a timespec, as `clock_gettime`
        // requires.
        host::SYS_CLOCK_GETTIME => unsafe { clock::time_call(a, b as *mut [u64; 2]) },
        // SAFETY: the caller promises that `a` is a timespec, as `nanosleep` requires.
        host::SYS_NANOSLEEP => unsafe { clock::sleep_call(false, 1, a as *const [u64; 2]) },
        // SAFETY: the caller promises that `c` is a timespec, as `clock_nanosleep` requires.
        host::SYS_CLOCK_NANOSLEEP => unsafe {
            clock::sleep_call(b & 1 == 1, a, c as *const [u64; 2])
        },
        host::SYS_GETAFFINITY | host::SYS_SETAFFINITY if !cores::is_caller(a as c_int) => {
            Some(-(ESRCH as isize))
        }
        // SAFETY: the caller promises `b` bytes of room at `c`, as `sched_getaffinity` requires.
        host::SYS_GETAFFINITY => Some(unsafe { cores::mask_call(b, c as *mut u8) }),
        // SAFETY: the caller promises `b` bytes at `c`, as `sched_setaffinity` requires.
        host::SYS_SETAFFINITY => Some(unsafe { cores::set_mask_call(b, c as *const u8) }),
        // SAFETY: the caller promises what `open` requires, and its first argument is the path.
        host::SYS_OPEN => Some(unsafe { files::open_call(number, arguments, 0) }),
        // SAFETY: the caller promises what `mmap` requires of its arguments (# Safety).
        host::SYS_MMAP => Some(unsafe { maps::map_call(arguments) }),
        // SAFETY: the caller promises what `munmap` requires of its arguments (# Safety).
        host::SYS_MUNMAP => Some(unsafe { maps::unmap_call(arguments) }),
        // SAFETY: the caller promises what `mremap` requires of its arguments (# Safety).
        host::SYS_MREMAP => Some(unsafe { maps::remap_call(arguments) }),
        host::SYS_OPENAT | host::SYS_OPENAT2 => {
            // SAFETY: the caller promises what `openat` requires; its second argument is the path.
            Some(unsafe { files::open_call(number, arguments, 1) })
        }
        // SAFETY: the caller promises what the call of this number requires of its arguments (#
        // Safety).
        _ => unsafe { descriptors::call(number, arguments) },
    }
}
