//! Timers that send signals: those of `setitimer` and of `timer_create`.
//!
//! This module owns when each timer is due, and which thread calls its handler. `calls::signals`
//! sends the signal.
//!
//! Law alarms.R1: a timer expires when its clock says so at a check. Checks are at the beginning of
//! a block of any virtual thread, and at the end of its sleep or its wait for files. A timer of
//! virtual time ends these sleeps and waits. A timer of the process's own time counts what all
//! cores have computed, so it ends none.
//!
//! Law alarms.R2: a timer has at most one signal under way. Expiries before its handler begins are
//! its overrun.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};

use super::Simulation;
use super::files::look_soon;

/// The timers of `setitimer`, which come first in the table.
pub(crate) const OF_PROCESS: usize = 3;

/// Minimal nanoseconds between two checks of a timer of the process's own time.
const LOOK_NS: u64 = 1000;

/// The clock that a timer counts on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Clock {
    /// Virtual time.
    Time,
    /// The time that all cores have computed.
    Work,
}

/// The signal that a timer sends.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Signal {
    pub(crate) number: c_int,
    /// The kernel's code for its origin.
    pub(crate) code: c_int,
    /// The value that the program attached to it.
    pub(crate) value: usize,
    /// The virtual thread that must take it, or `None` for any.
    pub(crate) thread: Option<usize>,
}

/// A timer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Alarm {
    pub(crate) clock: Clock,
    /// True if moments are given to it as the time of day.
    pub(crate) is_day: bool,
    pub(crate) signal: Option<Signal>,
    /// The reading of its clock at its next expiry, in nanoseconds.
    pub(crate) next: Option<u64>,
    /// Nanoseconds from one expiry to the next; 0 for one expiry.
    pub(crate) interval: u64,
    /// Expiries that the last signal stood for, beside its own.
    pub(crate) overrun: u64,
    /// Expiries since the last signal.
    expired: u64,
}

/// All timers of a process.
#[derive(Debug)]
pub(crate) struct Alarms {
    table: Vec<Option<Alarm>>,
    /// When the next timer may be due, in cycles. The greatest number means never.
    at: u64,
    /// True if a signal waits for its thread to take it.
    any_is_due: bool,
}

/// True if a timer has expired since the last check.
static RUNG: AtomicBool = AtomicBool::new(false);

/// Returns true once after a timer has expired.
pub(crate) fn has_rung() -> bool {
    // ORDER: Relaxed; one kernel thread is on both sides (threads.S1).
    RUNG.load(Ordering::Relaxed) && RUNG.swap(false, Ordering::Relaxed)
}

impl Alarm {
    pub(crate) const fn new(clock: Clock, is_day: bool, signal: Option<Signal>) -> Self {
        Self { clock, is_day, signal, next: None, interval: 0, overrun: 0, expired: 0 }
    }

    /// Sets new times. Forgets earlier expiries.
    pub(crate) fn set(&mut self, next: Option<u64>, interval: u64) {
        (self.next, self.interval, self.overrun, self.expired) = (next, interval, 0, 0);
    }

    /// Updates the timer when its clock shows `now`.
    fn expire(&mut self, now: u64) {
        let Some(next) = self.next.filter(|&next| next <= now) else { return };
        let missed = (now - next).checked_div(self.interval);
        let times = missed.unwrap_or(0) + 1;
        self.next = (self.interval > 0).then(|| next + times * self.interval);
        self.expired += times;
    }

    fn is_due_for(&self, thread: usize) -> bool {
        let is_for = |signal: &Signal| signal.thread.is_none_or(|only| only == thread);
        self.expired > 0 && self.signal.as_ref().is_some_and(is_for)
    }
}

impl Default for Alarms {
    fn default() -> Self {
        let of = |clock, number| {
            let signal = Signal { number, code: libc::SI_KERNEL, value: 0, thread: None };
            Some(Alarm::new(clock, false, Some(signal)))
        };
        let work = [libc::SIGVTALRM, libc::SIGPROF].map(|number| of(Clock::Work, number));
        let table = [of(Clock::Time, libc::SIGALRM)].into_iter().chain(work).collect();
        Self { table, at: u64::MAX, any_is_due: false }
    }
}

impl Alarms {
    /// Adds a timer and returns its number.
    pub(crate) fn add(&mut self, alarm: Alarm) -> usize {
        let free = self.table.iter().position(Option::is_none);
        let place = free.unwrap_or(self.table.len());
        if place == self.table.len() {
            self.table.push(None);
        }
        self.table[place] = Some(alarm);
        place
    }

    pub(crate) fn get(&mut self, number: usize) -> Option<&mut Alarm> {
        self.table.get_mut(number)?.as_mut()
    }

    /// Returns the virtual time of the next signal that ends a sleep, in nanoseconds.
    pub(super) fn next(&self) -> Option<u64> {
        let wakes = |alarm: &&Alarm| alarm.clock == Clock::Time && alarm.signal.is_some();
        self.table.iter().flatten().filter(wakes).filter_map(|alarm| alarm.next).min()
    }

    /// Returns true if a signal waits for that thread.
    pub(super) fn is_due_for(&self, thread: usize) -> bool {
        self.any_is_due && self.table.iter().flatten().any(|alarm| alarm.is_due_for(thread))
    }
}

impl Simulation {
    /// Returns the reading of a clock in nanoseconds.
    pub(crate) fn shows(&self, clock: Clock) -> u64 {
        let now = self.engine.now();
        let cycles = match clock {
            Clock::Time => now,
            Clock::Work => {
                let all = now.saturating_mul(u64::from(self.engine.cores()));
                all.saturating_sub(self.engine.totals().idle)
            }
        };
        self.engine.machine().nanos(cycles)
    }

    /// Removes a timer.
    pub(crate) fn remove_alarm(&mut self, number: usize) {
        self.alarms.table[number] = None;
        self.alarms_changed();
    }

    /// Updates the time of the next check after timers have changed.
    pub(crate) fn alarms_changed(&mut self) {
        let (now, work) = (self.shows(Clock::Time), self.shows(Clock::Work));
        let cores = u64::from(self.engine.cores());
        let soonest = |alarm: &Alarm| match alarm.clock {
            Clock::Time => alarm.next,
            // No sooner than with all cores busy.
            Clock::Work => {
                alarm.next.map(|next| now + (next.saturating_sub(work) / cores).max(LOOK_NS))
            }
        };
        let next = self.alarms.table.iter().flatten().filter_map(soonest).min();
        self.alarms.at = next.map_or(u64::MAX, |next| self.engine.machine().cycles(next));
    }

    /// Lets due timers expire. The next check sends their signals (alarms.R1).
    #[inline(always)]
    pub(super) fn ring_in_time(&mut self) {
        if self.engine.now() >= self.alarms.at {
            self.ring();
        }
    }

    #[cold]
    fn ring(&mut self) {
        let (time, work) = (self.shows(Clock::Time), self.shows(Clock::Work));
        let (now, machine) = (self.engine.now(), self.engine.machine());
        for alarm in self.alarms.table.iter_mut().flatten() {
            // A sleep ends at a cycle, which may be a fraction of a nanosecond earlier.
            let is_here = |next: &u64| machine.cycles(*next) <= now;
            alarm.expire(match alarm.clock {
                Clock::Time => alarm.next.filter(is_here).map_or(time, |next| next.max(time)),
                Clock::Work => work,
            });
        }
        let is_due = |alarm: &Alarm| alarm.expired > 0 && alarm.signal.is_some();
        self.alarms.any_is_due = self.alarms.table.iter().flatten().any(is_due);
        self.alarms_changed();
        if self.alarms.any_is_due {
            // ORDER: Relaxed; see `has_rung`.
            RUNG.store(true, Ordering::Relaxed);
            super::interrupt();
        }
    }

    /// If a signal waits for the thread that runs now, makes its next block check.
    #[inline(always)]
    pub(super) fn look_for_its_signals(&self) {
        if self.alarms.is_due_for(self.current) {
            // ORDER: Relaxed; see `has_rung`.
            RUNG.store(true, Ordering::Relaxed);
            look_soon();
        }
    }

    /// Takes a signal that is due for the running thread and not in the bit set `held`. Returns the
    /// timer's number, the signal, and its overrun (alarms.R2).
    pub(crate) fn take_alarm(&mut self, held: u64) -> Option<(usize, Signal, u64)> {
        let current = self.current;
        let is_held = |signal: Signal| held & 1 << (signal.number - 1) != 0;
        let is_free =
            |alarm: &Alarm| alarm.is_due_for(current) && !alarm.signal.is_some_and(is_held);
        let table = &mut self.alarms.table;
        let place = table.iter().position(|it| it.as_ref().is_some_and(is_free));
        let is_due = |alarm: &Alarm| alarm.expired > 0 && alarm.signal.is_some();
        let taken = place.and_then(|place| {
            let alarm = table[place].as_mut()?;
            alarm.overrun = std::mem::take(&mut alarm.expired) - 1;
            Some((place, alarm.signal?, alarm.overrun))
        });
        self.alarms.any_is_due = table.iter().flatten().any(is_due);
        taken
    }
}
