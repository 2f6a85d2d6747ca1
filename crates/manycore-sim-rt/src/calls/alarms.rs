//! `alarm`, and `setitimer` for the real time, in virtual time.
//!
//! The signal comes when virtual time has come so far: at the next block of whichever thread runs,
//! or in the sleep or the wait of one that does not. Timers that count a process's own time, and
//! those of `timer_create`, end the run with their place.

use std::ffi::c_int;

use super::{clock, refuse};
use crate::simulation;

/// An `itimerval`: the interval, and the time to the first signal, in seconds and microseconds.
type Setting = [[u64; 2]; 2];

/// What a call answers, in the kernel's form; `None` if the kernel shall.
type Answer = Option<isize>;

const EFAULT: isize = 14;
const SECOND_NS: u64 = 1_000_000_000;

fn nanoseconds([seconds, microseconds]: [u64; 2]) -> u64 {
    seconds.saturating_mul(SECOND_NS).saturating_add(microseconds.saturating_mul(1000))
}

fn timeval(nanoseconds: u64) -> [u64; 2] {
    [nanoseconds / SECOND_NS, nanoseconds % SECOND_NS / 1000]
}

/// The interval, and how long it takes to the next signal.
fn left() -> Setting {
    simulation::with(|sim| {
        let next = sim.files.alarm.next;
        // A timer that is set has some time left.
        let left = next.map_or(0, |next| next.saturating_sub(sim.nanoseconds()).max(1000));
        [timeval(sim.files.alarm.interval), timeval(left)]
    })
}

fn set(setting: Setting) {
    let [interval, first] = setting.map(nanoseconds);
    let first = [first / SECOND_NS, first % SECOND_NS];
    // SAFETY: a timespec of our own.
    let next = unsafe { clock::after(&raw const first) }.filter(|_| first != [0, 0]);
    simulation::with(|sim| {
        sim.set_alarm(next, interval);
        // Those that wait count on the time that it had.
        sim.wake_all();
    });
}

/// `setitimer`.
///
/// # Safety
/// `new` is a setting or null, `old` null or good for one.
pub(super) unsafe fn set_interval(which: c_int, new: *const Setting, old: *mut Setting) -> Answer {
    // SAFETY: the caller promises null or a setting (# Safety).
    let Some(new) = (unsafe { new.as_ref() }) else { return Some(-EFAULT) };
    if which != libc::ITIMER_REAL as c_int {
        if new[1] != [0, 0] {
            refuse("setitimer", "signals after a time of one's own are");
        }
        return None;
    }
    simulation::system_call();
    let before = left();
    set(*new);
    if !old.is_null() {
        // SAFETY: not null, and the caller promises that it is good for a setting then (# Safety).
        unsafe { *old = before };
    }
    Some(0)
}

/// `getitimer`.
///
/// # Safety
/// `setting` is good for one.
pub(super) unsafe fn get_interval(which: c_int, setting: *mut Setting) -> Answer {
    if which != libc::ITIMER_REAL as c_int {
        return None;
    }
    simulation::system_call();
    // SAFETY: the caller promises that it is good for a setting (# Safety).
    unsafe { *setting = left() };
    Some(0)
}

/// `alarm`.
pub(super) fn after_seconds(seconds: usize) -> Answer {
    simulation::system_call();
    let [seconds_left, rest] = left()[1];
    set([[0, 0], [seconds as u64, 0]]);
    Some((seconds_left + u64::from(rest > 0)) as isize)
}
