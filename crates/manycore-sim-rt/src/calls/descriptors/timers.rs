//! `timerfd` in virtual time: an eventfd stands for the timer.
//!
//! What is read from it, the number of expiries as eight bytes, is what an eventfd gives. It is
//! written to when virtual time has come so far and a thread looks
//! ([`simulation::Simulation::expire_timers`]).

use std::ffi::c_int;

use super::file::{Answer, at_once};
use crate::calls::clock;
use crate::host;
use crate::simulation::{self, Timer};

/// An `itimerspec`: the interval, and the time to the first expiry.
type Setting = [[u64; 2]; 2];

fn nanoseconds([seconds, rest]: [u64; 2]) -> u64 {
    seconds.saturating_mul(1_000_000_000).saturating_add(rest)
}

fn timespec(nanoseconds: u64) -> [u64; 2] {
    [nanoseconds / 1_000_000_000, nanoseconds % 1_000_000_000]
}

/// `timerfd_create`.
pub(super) fn create(clock: usize, flags: usize) -> Answer {
    simulation::system_call();
    // SAFETY: a number and flags, which have the same values for both.
    let file = unsafe { host::call(libc::SYS_eventfd2 as usize, [0, flags, 0, 0, 0, 0]) };
    if file >= 0 {
        let file = file as c_int;
        let is_day = clock as c_int == libc::CLOCK_REALTIME;
        let timer = Timer { file, is_day, next: None, interval: 0 };
        simulation::with(|sim| sim.files.timers.push(timer));
    }
    Some(file)
}

/// The descriptor is closed.
pub(super) fn forget(file: c_int) {
    if let Some(place) = known(file) {
        simulation::with(|sim| sim.files.timers.remove(place));
    }
}

/// The timer's place in the list. Does not touch the simulation for other files than timers'.
fn known(file: c_int) -> Option<usize> {
    super::file::kind(file)?;
    simulation::with(|sim| sim.files.timers.iter().position(|timer| timer.file == file))
}

/// `timerfd_settime`.
///
/// # Safety
/// `new` is a setting, `old` null or good for one.
pub(super) unsafe fn set(
    file: c_int,
    flags: usize,
    new: *const Setting,
    old: *mut Setting,
) -> Answer {
    let place = known(file)?;
    simulation::system_call();
    if !old.is_null() {
        // SAFETY: not null, and the caller promises that it is good for a setting then (# Safety).
        unsafe { *old = left(place) };
    }
    // SAFETY: the caller promises a setting (# Safety).
    let [interval, first] = unsafe { *new };
    let is_absolute = flags as c_int & libc::TFD_TIMER_ABSTIME != 0;
    let is_day = simulation::with(|sim| sim.files.timers[place].is_day);
    let time = &raw const first;
    // SAFETY: a timespec of our own.
    let next =
        unsafe { if is_absolute { clock::moment(time, is_day) } else { clock::after(time) } };
    // Expiries that were not read are forgotten.
    let mut count = 0_u64;
    // SAFETY: the timer's own eventfd; the kernel writes 8 bytes.
    unsafe {
        at_once(
            file,
            libc::SYS_read as usize,
            [file as usize, (&raw mut count) as usize, 8, 0, 0, 0],
        )
    };
    simulation::with(|sim| {
        let timer = &mut sim.files.timers[place];
        timer.next = next.filter(|_| first != [0, 0]);
        timer.interval = nanoseconds(interval);
        // They count on the time that it had.
        sim.wake_all();
    });
    Some(0)
}

/// `timerfd_gettime`.
///
/// # Safety
/// `setting` is good for one.
pub(super) unsafe fn get(file: c_int, setting: *mut Setting) -> Answer {
    let place = known(file)?;
    simulation::system_call();
    // SAFETY: the caller promises that it is good for a setting (# Safety).
    unsafe { *setting = left(place) };
    Some(0)
}

/// The interval, and how long it takes to the next expiry.
fn left(place: usize) -> Setting {
    simulation::with(|sim| {
        sim.expire_timers();
        let Timer { next, interval, .. } = sim.files.timers[place];
        let left = next.map_or(0, |next| next.saturating_sub(sim.nanoseconds()));
        [timespec(interval), timespec(left)]
    })
}
