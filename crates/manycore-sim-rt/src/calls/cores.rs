//! Tells a program which cores exist, which one a thread is on, and which ones it may use.

use std::ffi::{c_int, c_long};

use super::replace::replace;
use crate::host::{self, as_libc};
use crate::interpose::Next;
use crate::{simulation, switch};

const ESRCH: c_int = 3;
const EINVAL: c_int = 22;

static SYSCONF: Next = Next::new(c"sysconf");

/// The kernel's `sched_getaffinity` for a virtual thread; returns the bytes written, or the error.
///
/// # Safety
/// `mask` is valid for `bytes` bytes. It may be null if `bytes` is zero.
pub(crate) unsafe fn mask_call(bytes: usize, mask: *mut u8) -> isize {
    let (allowed, cores) = simulation::with(|sim| (sim.allowed(), sim.engine.cores()));
    if bytes * 8 < cores as usize {
        return -(EINVAL as isize);
    }
    // SAFETY: the caller promises that `mask` is valid for `bytes` bytes (# Safety). There is a
    // core, so `bytes` is not zero, and `mask` is not null.
    let mask = unsafe { std::slice::from_raw_parts_mut(mask, bytes) };
    mask.fill(0);
    for core in allowed {
        mask[core as usize / 8] |= 1 << (core % 8);
    }
    bytes as isize
}

/// The kernel's `sched_setaffinity` for a virtual thread.
///
/// # Safety
/// `mask` is valid for `bytes` bytes. It may be null if `bytes` is zero.
pub(crate) unsafe fn set_mask_call(bytes: usize, mask: *const u8) -> isize {
    if bytes == 0 {
        return -(EINVAL as isize);
    }
    // SAFETY: the caller promises that `mask` is valid for `bytes` bytes (# Safety), so it is not
    // null here.
    let mask = unsafe { std::slice::from_raw_parts(mask, bytes) };
    let cores = simulation::with(|sim| sim.engine.cores());
    let wanted: Vec<u32> = (0..cores)
        .filter(|&core| mask.get(core as usize / 8).is_some_and(|byte| byte >> (core % 8) & 1 == 1))
        .collect();
    if wanted.is_empty() {
        return -(EINVAL as isize);
    }
    simulation::restrict(wanted);
    0
}

/// Returns the core that the caller runs on.
///
/// # Safety
/// None; unsafe only because its callers declare it so.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sched_getcpu() -> c_int {
    if simulation::active() {
        return simulation::with(|sim| sim.where_now()).0 as c_int;
    }
    let mut core = 0_u32;
    // SAFETY: the kernel writes one word, to a local variable.
    let answer = unsafe { host::call(host::SYS_GETCPU, [&raw mut core as usize, 0, 0, 0, 0, 0]) };
    if as_libc(answer) < 0 { -1 } else { core as c_int }
}

/// Lets other threads run first.
///
/// # Safety
/// None; unsafe only because its callers declare it so.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sched_yield() -> c_int {
    if simulation::active() {
        simulation::give_way();
        return 0;
    }
    // SAFETY: the call takes no arguments.
    as_libc(unsafe { host::call(host::SYS_SCHED_YIELD, [0; 6]) }) as c_int
}

/// Tells whether a thread's kernel number is the caller's own. In a simulated program, a thread may
/// ask only about its own cores.
pub(crate) fn is_caller(thread: c_int) -> bool {
    let own = simulation::with(|sim| (sim.thread_id(), sim.current == 0));
    let main = own.1 && thread as u32 == std::process::id();
    thread == 0 || thread as usize == own.0 || main
}

/// Returns the cores that a thread may use; ESRCH for another thread of a simulated program.
///
/// # Safety
/// As for libc's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sched_getaffinity(thread: c_int, bytes: usize, mask: *mut u8) -> c_int {
    if simulation::active() {
        if !is_caller(thread) {
            return as_libc(-(ESRCH as isize)) as c_int;
        }
        // SAFETY: the caller promises a buffer of `bytes` bytes to write to, as libc's
        // `sched_getaffinity` requires.
        return as_libc(unsafe { mask_call(bytes, mask) }).min(0) as c_int;
    }
    let arguments = [thread as usize, bytes, mask as usize, 0, 0, 0];
    // SAFETY: the arguments are those of the system call of this name, which writes at most `bytes`
    // bytes to `mask`. The caller promises that much room.
    let written = as_libc(unsafe { host::call(host::SYS_GETAFFINITY, arguments) });
    if written >= 0 {
        // SAFETY: the rest of the caller's buffer; libc clears what the kernel did not write.
        unsafe { mask.add(written as usize).write_bytes(0, bytes - written as usize) };
    }
    written.min(0) as c_int
}

/// Limits the cores that a thread may use; ESRCH for another thread of a simulated program.
///
/// # Safety
/// As for libc's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sched_setaffinity(thread: c_int, bytes: usize, mask: *const u8) -> c_int {
    if simulation::active() {
        if !is_caller(thread) {
            return as_libc(-(ESRCH as isize)) as c_int;
        }
        // SAFETY: the caller promises a mask of `bytes` bytes, as `sched_setaffinity` requires.
        return as_libc(unsafe { set_mask_call(bytes, mask) }) as c_int;
    }
    let arguments = [thread as usize, bytes, mask as usize, 0, 0, 0];
    // SAFETY: the arguments are those of the system call of this name, which reads at most `bytes`
    // bytes of `mask`. The caller promises that they are there.
    as_libc(unsafe { host::call(host::SYS_SETAFFINITY, arguments) }) as c_int
}

/// Limits the caller's cores, as [`sched_setaffinity`] does. Returns the error: ESRCH if the handle
/// is another thread's.
///
/// # Safety
/// As for libc's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn pthread_setaffinity_np(
    thread: usize,
    bytes: usize,
    mask: *const u8,
) -> c_int {
    // In glibc, a thread's handle is its thread pointer.
    if thread != switch::thread_pointer() {
        return ESRCH;
    }
    // SAFETY: the caller promises a mask of `bytes` bytes, as `pthread_setaffinity_np` requires.
    if unsafe { sched_setaffinity(0, bytes, mask) } == 0 { 0 } else { EINVAL }
}

/// Returns the caller's cores, as [`sched_getaffinity`] does. Returns the error: ESRCH if the
/// handle is another thread's.
///
/// # Safety
/// As for libc's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn pthread_getaffinity_np(
    thread: usize,
    bytes: usize,
    mask: *mut u8,
) -> c_int {
    if thread != switch::thread_pointer() {
        return ESRCH;
    }
    // SAFETY: the caller promises a buffer of `bytes` bytes, as libc's `pthread_getaffinity_np`
    // requires.
    if unsafe { sched_getaffinity(0, bytes, mask) } == 0 { 0 } else { EINVAL }
}

/// Returns a fact about the system; the number of cores is the simulation's.
///
/// # Safety
/// As for libc's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sysconf(name: c_int) -> c_long {
    const PROCESSORS_CONFIGURED: c_int = 83;
    const PROCESSORS_ONLINE: c_int = 84;
    if simulation::active() && matches!(name, PROCESSORS_CONFIGURED | PROCESSORS_ONLINE) {
        return c_long::from(simulation::with(|sim| sim.engine.cores()));
    }
    // SAFETY: this is the type of `sysconf`.
    let real: extern "C" fn(c_int) -> c_long = unsafe { std::mem::transmute(SYSCONF.get()) };
    real(name)
}

replace! {
    /// Returns the number of cores in use: the simulation's.
    get_nprocs() { simulation::with(|sim| sim.engine.cores()) as c_int }
    /// Returns the number of cores: the simulation's.
    get_nprocs_conf() { simulation::with(|sim| sim.engine.cores()) as c_int }
}
