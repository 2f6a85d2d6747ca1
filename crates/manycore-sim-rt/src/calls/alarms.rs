//! Timers that send signals: `alarm`, `setitimer`, and those of `timer_create`.
//!
//! A timer's signal is sent when the timer's clock reaches the set time. A running thread takes it
//! at its next block. If the timer names a thread, only that thread takes it. A timer that counts
//! virtual time also reaches a thread that sleeps or waits ([`crate::simulation::Alarm`]).
//! `ITIMER_VIRTUAL` and `ITIMER_PROF` count what all cores have computed, system calls included.
//!
//! Some timers end the run with a message that names their place: those that count one thread's
//! time, those of a clock that the simulation does not have, and those that start a thread.

use std::ffi::{c_int, c_void};

use super::{clock, refuse};
use crate::host::as_libc;
use crate::interpose::Next;
use crate::simulation::{self, Alarm, Clock, OF_PROCESS, Signal, Simulation};

/// An `itimerval` or `itimerspec`: the interval, and the time to the first signal. Each is given in
/// seconds and microseconds or nanoseconds.
type Setting = [[u64; 2]; 2];

/// A call's result, in the kernel's form; `None` if the kernel is to make the call.
type Answer = Option<isize>;

const EFAULT: isize = 14;
const EINVAL: isize = 22;
const SECOND_NS: u64 = 1_000_000_000;
/// One microsecond, the unit of an `itimerval`, in nanoseconds.
const MICROSECOND: u64 = 1000;
/// The form of `timer_create` that names a thread by its kernel number.
const SIGEV_THREAD_ID: c_int = 4;
/// The valid signal numbers.
const SIGNALS: std::ops::RangeInclusive<c_int> = 1..=64;

/// The kernel's `struct sigevent`, up to the last field that the kernel reads.
#[repr(C)]
pub(super) struct Event {
    value: usize,
    signal: c_int,
    how: c_int,
    thread: c_int,
}

/// Converts seconds and a smaller unit to nanoseconds.
fn nanoseconds([seconds, rest]: [u64; 2], unit: u64) -> u64 {
    seconds.saturating_mul(SECOND_NS).saturating_add(rest.saturating_mul(unit))
}

fn time(nanoseconds: u64, unit: u64) -> [u64; 2] {
    [nanoseconds / SECOND_NS, nanoseconds % SECOND_NS / unit]
}

/// Applies `act` to the timer of this number, if there is one.
fn act<R>(number: usize, act: impl FnOnce(&mut Alarm) -> R) -> Option<R> {
    simulation::with(|sim| sim.alarms.get(number).map(act))
}

/// Returns the interval, and the time left to the next signal.
fn left(alarm: Alarm, unit: u64) -> Setting {
    let now = simulation::with(|sim| sim.shows(alarm.clock));
    // A timer that is set always has some time left.
    let left = alarm.next.map_or(0, |next| next.saturating_sub(now).max(unit));
    [time(alarm.interval, unit), time(left, unit)]
}

/// Sets a timer: the clock value at which it expires next, and its interval.
fn set(number: usize, next: Option<u64>, interval: u64) {
    act(number, |alarm| alarm.set(next, interval));
    simulation::with(|sim| {
        sim.alarms_changed();
        // Waiting threads have computed their end from the timer's old time.
        sim.wake_all();
    });
}

/// Sets a timer of `setitimer`, with a time relative to now by the timer's clock.
fn set_after(which: usize, [interval, first]: Setting) {
    let [interval, first] = [interval, first].map(|time| nanoseconds(time, MICROSECOND));
    let now = act(which, |alarm| alarm.clock).map(|clock| simulation::with(|sim| sim.shows(clock)));
    let next = now.filter(|_| first > 0).map(|now| now.saturating_add(first));
    set(which, next, interval);
}

/// Returns the timer that `setitimer` names.
fn of_process(which: c_int) -> Option<Alarm> {
    let which = usize::try_from(which).ok().filter(|which| *which < OF_PROCESS)?;
    act(which, |alarm| *alarm)
}

/// `setitimer`.
///
/// # Safety
/// `new` is a setting or null. `old` is null or valid for a setting.
pub(super) unsafe fn set_interval(which: c_int, new: *const Setting, old: *mut Setting) -> Answer {
    simulation::system_call();
    let Some(alarm) = of_process(which) else { return Some(-EINVAL) };
    // SAFETY: the caller promises null or a setting (# Safety).
    let Some(new) = (unsafe { new.as_ref() }) else { return Some(-EFAULT) };
    let before = left(alarm, MICROSECOND);
    set_after(which as usize, *new);
    if !old.is_null() {
        // SAFETY: not null, so valid for a setting, by the caller's promise (# Safety).
        unsafe { *old = before };
    }
    Some(0)
}

/// `getitimer`.
///
/// # Safety
/// `setting` is valid for a setting.
pub(super) unsafe fn get_interval(which: c_int, setting: *mut Setting) -> Answer {
    simulation::system_call();
    let Some(alarm) = of_process(which) else { return Some(-EINVAL) };
    // SAFETY: the caller promises a pointer that is valid for a setting (# Safety).
    unsafe { *setting = left(alarm, MICROSECOND) };
    Some(0)
}

/// `alarm`.
pub(super) fn after_seconds(seconds: usize) -> Answer {
    const REAL: usize = libc::ITIMER_REAL as usize;
    simulation::system_call();
    let before = act(REAL, |alarm| *alarm)?;
    let [seconds_left, rest] = left(before, MICROSECOND)[1];
    set_after(REAL, [[0, 0], [seconds as u64, 0]]);
    Some((seconds_left + u64::from(rest > 0)) as isize)
}

/// Tells whether a clock shows the time of day; ends the run if the clock is not simulated.
fn is_day(clock: usize) -> bool {
    match clock as c_int {
        libc::CLOCK_REALTIME => true,
        libc::CLOCK_MONOTONIC | libc::CLOCK_BOOTTIME => false,
        _ => refuse("timer_create", "a timer's signals by this clock are"),
    }
}

/// Returns the signal that a new timer sends.
fn signal_of(event: &Event) -> Result<Option<Signal>, isize> {
    let thread = match event.how {
        libc::SIGEV_NONE => return Ok(None),
        libc::SIGEV_SIGNAL => None,
        SIGEV_THREAD_ID => {
            let thread = simulation::with(|sim| sim.thread_of_id(event.thread as usize));
            Some(thread.ok_or(-EINVAL)?)
        }
        _ => refuse("timer_create", "threads that a timer starts are"),
    };
    let (number, value) = (event.signal, event.value);
    let signal = Signal { number, code: libc::SI_TIMER, value, thread };
    if SIGNALS.contains(&number) { Ok(Some(signal)) } else { Err(-EINVAL) }
}

/// `timer_create`.
///
/// # Safety
/// `event` is null or an event. `id` is valid for a number.
pub(super) unsafe fn create(clock: usize, event: *const Event, id: *mut c_int) -> Answer {
    simulation::system_call();
    let is_day = is_day(clock);
    // SAFETY: the caller promises null or an event (# Safety).
    let signal = match unsafe { event.as_ref() }.map(signal_of) {
        Some(Err(error)) => return Some(error),
        Some(Ok(signal)) => signal,
        None => {
            let (number, code) = (libc::SIGALRM, libc::SI_TIMER);
            Some(Signal { number, code, value: 0, thread: None })
        }
    };
    let number = simulation::with(|sim| {
        let number = sim.alarms.add(Alarm::new(Clock::Time, is_day, signal));
        if let Some(Alarm { signal: Some(signal), .. }) = sim.alarms.get(number)
            && event.is_null()
        {
            signal.value = number;
        }
        number
    });
    // SAFETY: the caller promises a pointer that is valid for a number (# Safety).
    unsafe { *id = number as c_int };
    Some(0)
}

/// Returns the timer that `timer_create` made with this number. The kernel uses four bytes of the
/// number.
fn made(number: usize) -> Option<(usize, Alarm)> {
    let number = number as u32 as usize;
    act(number, |alarm| (number, *alarm)).filter(|_| number >= OF_PROCESS)
}

/// `timer_settime`.
///
/// # Safety
/// `new` is a setting or null. `old` is null or valid for a setting.
pub(super) unsafe fn set_time(
    number: usize,
    flags: usize,
    new: *const Setting,
    old: *mut Setting,
) -> Answer {
    simulation::system_call();
    let Some((number, alarm)) = made(number) else { return Some(-EINVAL) };
    // SAFETY: the caller promises null or a setting (# Safety).
    let Some([interval, first]) = (unsafe { new.as_ref() }) else { return Some(-EINVAL) };
    if interval[1] >= SECOND_NS || first[1] >= SECOND_NS {
        return Some(-EINVAL);
    }
    if !old.is_null() {
        // SAFETY: not null, so valid for a setting, by the caller's promise (# Safety).
        unsafe { *old = left(alarm, 1) };
    }
    let is_absolute = flags as c_int & libc::TIMER_ABSTIME != 0;
    let at = &raw const *first;
    // SAFETY: `at` is made from a reference to a timespec.
    let next =
        unsafe { if is_absolute { clock::moment(at, alarm.is_day) } else { clock::after(at) } };
    let next = next.filter(|_| *first != [0, 0]);
    set(number, next, nanoseconds(*interval, 1));
    Some(0)
}

/// `timer_gettime`.
///
/// # Safety
/// `setting` is valid for a setting.
pub(super) unsafe fn get_time(number: usize, setting: *mut Setting) -> Answer {
    simulation::system_call();
    simulation::with(Simulation::expire_timers);
    let Some((_, alarm)) = made(number) else { return Some(-EINVAL) };
    // SAFETY: the caller promises a pointer that is valid for a setting (# Safety).
    unsafe { *setting = left(alarm, 1) };
    Some(0)
}

/// `timer_getoverrun`.
pub(super) fn overrun(number: usize) -> Answer {
    simulation::system_call();
    let Some((_, alarm)) = made(number) else { return Some(-EINVAL) };
    Some(alarm.overrun.min(c_int::MAX as u64) as isize)
}

/// `timer_delete`.
pub(super) fn delete(number: usize) -> Answer {
    simulation::system_call();
    let Some((number, _)) = made(number) else { return Some(-EINVAL) };
    simulation::with(|sim| sim.remove_alarm(number));
    Some(0)
}

/// Defines libc's functions for timers. In a simulation they act as the kernel's calls. Without one
/// they call libc's functions, which keep records of their own.
macro_rules! timers {
    ($($name:ident($($argument:ident),*) = $act:expr;)+) => {$(
        /// Stands for the libc function of this name.
        ///
        /// # Safety
        /// As for libc's function.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C" fn $name($($argument: *mut c_void),*) -> c_int {
            static REAL: Next = Next::of(concat!(stringify!($name), "\0"));
            if simulation::active() {
                let answer: Answer = ($act)($($argument),*);
                return as_libc(answer.unwrap_or(-EINVAL)) as c_int;
            }
            type Real = extern "C" fn($(timers!(pointer $argument)),*) -> c_int;
            // SAFETY: each argument is a pointer or a number, in a register of its own.
            let real: Real = unsafe { std::mem::transmute(REAL.get()) };
            real($($argument),*)
        }
    )+};
    (pointer $argument:ident) => { *mut c_void };
}

type Word = *mut c_void;

timers! {
    timer_create(clock, event, id) = |clock: Word, event: Word, id: Word| {
        let mut number = 0;
        // SAFETY: the caller promises null or an event, as libc's function requires; `number` is a
        // local variable.
        let answer = unsafe { create(clock as usize, event.cast(), &raw mut number) };
        if answer == Some(0) {
            // SAFETY: the caller promises room for a `timer_t`, as libc's function requires.
            unsafe { *id.cast::<usize>() = number as usize };
        }
        answer
    };
    timer_settime(timer, flags, new, old) = |timer: Word, flags: Word, new: Word, old: Word| {
        // SAFETY: the caller promises settings or null, as libc's function requires.
        unsafe { set_time(timer as usize, flags as usize, new.cast(), old.cast()) }
    };
    timer_gettime(timer, setting) = |timer: Word, setting: Word| {
        // SAFETY: the caller promises room for a setting, as libc's function requires.
        unsafe { get_time(timer as usize, setting.cast()) }
    };
    timer_getoverrun(timer) = |timer: Word| overrun(timer as usize);
    timer_delete(timer) = |timer: Word| delete(timer as usize);
}
