//! The time of day, and sleep.
//!
//! Law calls_clock.T1: all clocks of a process show virtual time; only their starting values
//! differ. A sleeping thread gives up its core, and continues when virtual time reaches the end of
//! the sleep.

use std::ffi::{c_int, c_long};
use std::sync::atomic::{AtomicU64, Ordering};

use super::signals;
use crate::host::{self, as_libc};
use crate::simulation;

/// The value of a monotonic clock when the simulation starts.
const EPOCH_NS: u64 = 1_000_000_000;
const SECOND_NS: u64 = 1_000_000_000;
/// The kernel's clocks that show the time of day.
const REALTIME: [usize; 2] = [0, 5];
/// The number of kernel clocks that the simulation replaces.
const CLOCKS: usize = 12;
/// Seconds of a day.
const DAY: u64 = 86_400;

/// The time of day when the simulation starts, in nanoseconds.
static BEGIN_NS: AtomicU64 = AtomicU64::new(0);

/// Sets the day at whose beginning the simulation starts, in days since 1970.
pub(crate) fn set_day(day: u64) {
    // ORDER: Relaxed; stored once, before `main`, by the thread that all virtual threads run on.
    BEGIN_NS.store(day * DAY * SECOND_NS, Ordering::Relaxed);
}

/// Returns a clock's value at virtual time zero; all clocks advance together from there
/// (calls_clock.T1).
fn start(realtime: bool) -> u64 {
    // ORDER: Relaxed; as in `set_day`.
    if realtime { BEGIN_NS.load(Ordering::Relaxed) } else { EPOCH_NS }
}

/// Returns the time of day at which the monotonic clock was zero, in seconds.
pub(super) fn booted() -> u64 {
    start(true).saturating_sub(EPOCH_NS) / SECOND_NS
}

fn nanoseconds([seconds, rest]: [u64; 2]) -> u64 {
    seconds.saturating_mul(SECOND_NS).saturating_add(rest)
}

/// Returns the virtual time `time` after now, in nanoseconds from the start; `None` for null.
///
/// # Safety
/// `time` is null or a timespec.
pub(super) unsafe fn after(time: *const [u64; 2]) -> Option<u64> {
    // SAFETY: the caller promises that `time` is null or a timespec (# Safety).
    let time = nanoseconds(unsafe { *time.as_ref()? });
    Some(simulation::with(|sim| sim.nanoseconds()).saturating_add(time))
}

/// Returns the virtual time of the moment `time`, in nanoseconds from the start; `None` for null.
///
/// # Safety
/// `time` is null or a timespec.
pub(super) unsafe fn moment(time: *const [u64; 2], realtime: bool) -> Option<u64> {
    // SAFETY: the caller promises that `time` is null or a timespec (# Safety).
    let time = nanoseconds(unsafe { *time.as_ref()? });
    Some(time.saturating_sub(start(realtime)))
}

/// `clock_gettime` of a simulated program; returns `None` for a clock that the simulation does not
/// replace.
///
/// # Safety
/// `time` is valid for a timespec.
pub(crate) unsafe fn time_call(clock: usize, time: *mut [u64; 2]) -> Option<isize> {
    if clock >= CLOCKS {
        return None;
    }
    let now = simulation::read_time().saturating_add(start(REALTIME.contains(&clock)));
    // SAFETY: the caller promises that `time` is valid for a timespec (# Safety).
    unsafe { *time = [now / SECOND_NS, now % SECOND_NS] };
    Some(0)
}

/// `clock_nanosleep` of a simulated program.
///
/// # Safety
/// `time` is null or a timespec.
pub(crate) unsafe fn sleep_call(
    absolute: bool,
    clock: usize,
    time: *const [u64; 2],
) -> Option<isize> {
    let realtime = REALTIME.contains(&clock);
    // SAFETY: the caller promises that `time` is null or a timespec (# Safety). Neither function
    // requires more.
    let until = unsafe { if absolute { moment(time, realtime) } else { after(time) } };
    let until = until?;
    while simulation::sleep_until(until) {
        signals::deliver();
    }
    Some(0)
}

/// Reads a clock.
///
/// # Safety
/// As for libc's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn clock_gettime(clock: c_int, time: *mut [u64; 2]) -> c_int {
    if simulation::active() {
        // SAFETY: the caller promises that `time` is valid for a timespec, as libc's
        // `clock_gettime` requires.
        if let Some(answer) = unsafe { time_call(clock as usize, time) } {
            return answer as c_int;
        }
    }
    let arguments = [clock as usize, time as usize, 0, 0, 0, 0];
    // SAFETY: the arguments are those of the system call of this name, which writes a timespec to
    // `time`. The caller promises room for one.
    as_libc(unsafe { host::call(host::SYS_CLOCK_GETTIME, arguments) }) as c_int
}

/// Returns the time of day in microseconds.
///
/// # Safety
/// As for libc's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn gettimeofday(time: *mut [u64; 2], _zone: *mut u8) -> c_int {
    let mut now = [0; 2];
    // SAFETY: clock 0 is CLOCK_REALTIME, and `now` is a local timespec.
    let answer = unsafe { clock_gettime(0, &raw mut now) };
    if !time.is_null() {
        // SAFETY: not null, so valid for a timeval, by the caller's promise, as libc's
        // `gettimeofday` requires.
        unsafe { *time = [now[0], now[1] / 1000] };
    }
    answer
}

/// Returns the time of day in seconds.
///
/// # Safety
/// As for libc's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn time(out: *mut c_long) -> c_long {
    let mut now = [0; 2];
    // SAFETY: clock 0 is CLOCK_REALTIME, and `now` is a local timespec.
    unsafe { clock_gettime(0, &raw mut now) };
    if !out.is_null() {
        // SAFETY: not null, so valid for a `time_t`, by the caller's promise, as libc's `time`
        // requires.
        unsafe { *out = now[0] as c_long };
    }
    now[0] as c_long
}

/// Sleeps.
///
/// # Safety
/// As for libc's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn nanosleep(time: *const [u64; 2], left: *mut [u64; 2]) -> c_int {
    if simulation::active() {
        // SAFETY: the caller promises that `time` is a timespec, as libc's `nanosleep` requires.
        if let Some(answer) = unsafe { sleep_call(false, 1, time) } {
            return answer as c_int;
        }
    }
    let arguments = [time as usize, left as usize, 0, 0, 0, 0];
    // SAFETY: the arguments are those of the system call of this name. The caller promises a
    // timespec to read and, if `left` is not null, room for one.
    as_libc(unsafe { host::call(host::SYS_NANOSLEEP, arguments) }) as c_int
}

/// Sleeps by a clock that the caller chooses; returns the error instead of setting `errno`.
///
/// # Safety
/// As for libc's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn clock_nanosleep(
    clock: c_int,
    flags: c_int,
    time: *const [u64; 2],
    left: *mut [u64; 2],
) -> c_int {
    if simulation::active() {
        // SAFETY: the caller promises that `time` is a timespec, as libc's `clock_nanosleep`
        // requires.
        if let Some(answer) = unsafe { sleep_call(flags & 1 == 1, clock as usize, time) } {
            return answer as c_int;
        }
    }
    let arguments = [clock as usize, flags as usize, time as usize, left as usize, 0, 0];
    // SAFETY: the arguments are those of the system call of this name. The caller promises a
    // timespec to read and, if `left` is not null, room for one.
    -unsafe { host::call(host::SYS_CLOCK_NANOSLEEP, arguments) } as c_int
}

/// Sleeps for whole seconds; returns how many are left.
///
/// # Safety
/// None; unsafe only because its callers declare it so.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sleep(seconds: u32) -> u32 {
    let mut left = [0; 2];
    let time = [u64::from(seconds), 0];
    // SAFETY: both timespecs are local variables.
    let answer = unsafe { nanosleep(&raw const time, &raw mut left) };
    if answer == 0 { 0 } else { left[0] as u32 }
}

/// Sleeps for microseconds.
///
/// # Safety
/// None; unsafe only because its callers declare it so.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn usleep(microseconds: u32) -> c_int {
    let microseconds = u64::from(microseconds);
    let time = [microseconds / 1_000_000, microseconds % 1_000_000 * 1000];
    // SAFETY: the timespec is a local variable.
    unsafe { nanosleep(&raw const time, std::ptr::null_mut()) }
}
