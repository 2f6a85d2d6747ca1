//! `timerfd` in virtual time, with an eventfd in the timer's place.
//!
//! A program reads the number of expiries from a timer, as eight bytes. An eventfd returns its
//! number in the same form. The number is written when a thread looks and virtual time has reached
//! an expiry ([`simulation::Simulation::expire_timers`]).

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
    // SAFETY: a number, and flags that have the same values for both calls.
    let file = unsafe { host::call(libc::SYS_eventfd2 as usize, [0, flags, 0, 0, 0, 0]) };
    if file >= 0 {
        let file = file as c_int;
        let is_day = clock as c_int == libc::CLOCK_REALTIME;
        let timer = Timer { file, is_day, next: None, interval: 0 };
        simulation::with(|sim| sim.files.timers.push(timer));
    }
    Some(file)
}

/// Forgets the timer of a descriptor that is being closed.
pub(super) fn forget(file: c_int) {
    if let Some(place) = known(file) {
        simulation::with(|sim| sim.files.timers.remove(place));
    }
}

/// Returns the timer's place in the list. Does not touch the simulation if the file is no timer.
fn known(file: c_int) -> Option<usize> {
    super::file::kind(file)?;
    simulation::with(|sim| sim.files.timers.iter().position(|timer| timer.file == file))
}

/// `timerfd_settime`.
///
/// # Safety
/// `new` is a setting. `old` is null or valid for a setting.
pub(super) unsafe fn set(
    file: c_int,
    flags: usize,
    new: *const Setting,
    old: *mut Setting,
) -> Answer {
    let place = known(file)?;
    simulation::system_call();
    if !old.is_null() {
        // SAFETY: not null, so valid for a setting, by the caller's promise (# Safety).
        unsafe { *old = left(place) };
    }
    // SAFETY: the caller promises a setting (# Safety).
    let [interval, first] = unsafe { *new };
    let is_absolute = flags as c_int & libc::TFD_TIMER_ABSTIME != 0;
    let is_day = simulation::with(|sim| sim.files.timers[place].is_day);
    let time = &raw const first;
    // SAFETY: `time` is a local timespec.
    let next =
        unsafe { if is_absolute { clock::moment(time, is_day) } else { clock::after(time) } };
    // Expiries that were not read are dropped.
    let mut count = 0_u64;
    // SAFETY: this is the timer's own eventfd, and the kernel writes 8 bytes.
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
        // Waiting threads have computed their end from the timer's old time.
        sim.wake_all();
    });
    Some(0)
}

/// `timerfd_gettime`.
///
/// # Safety
/// `setting` is valid for a setting.
pub(super) unsafe fn get(file: c_int, setting: *mut Setting) -> Answer {
    let place = known(file)?;
    simulation::system_call();
    // SAFETY: the caller promises a pointer that is valid for a setting (# Safety).
    unsafe { *setting = left(place) };
    Some(0)
}

/// Returns the interval, and the time left to the next expiry.
fn left(place: usize) -> Setting {
    simulation::with(|sim| {
        sim.expire_timers();
        let Timer { next, interval, .. } = sim.files.timers[place];
        let left = next.map_or(0, |next| next.saturating_sub(sim.nanoseconds()));
        [timespec(interval), timespec(left)]
    })
}
