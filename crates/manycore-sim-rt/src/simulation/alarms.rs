//! Timers that send signals: those of `setitimer`, and those of `timer_create`.
//!
//! Owns: when each is due, and whose turn it is to call the handler. Sending is `calls::signals`'.
//!
//! Law sim_rt.R1: a timer's time has come when the clock that it counts on says so at the beginning
//! of a block, or at the end of a sleep or of a wait for files, of any virtual thread. A timer of
//! virtual time ends these sleeps and waits. One of the process's own time counts what all cores
//! have computed, and so ends none.
//!
//! Law sim_rt.R2: a timer has at most one signal under way; what expires until its handler begins
//! is its overrun.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};

use super::Simulation;
use super::files::look_soon;

/// The timers of `setitimer`, which come first in the table.
pub(crate) const OF_PROCESS: usize = 3;

/// In nanoseconds, how long a timer of the process's own time is left alone at least.
const LOOK_NS: u64 = 1000;

/// The clock that a timer counts on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Clock {
    /// Virtual time.
    Time,
    /// What all cores have computed.
    Work,
}

/// What a timer sends.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Signal {
    pub(crate) number: c_int,
    /// The kernel's word for its origin.
    pub(crate) code: c_int,
    /// What the program wants with it.
    pub(crate) value: usize,
    /// The virtual thread that it is for, if not any.
    pub(crate) thread: Option<usize>,
}

/// A timer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Alarm {
    pub(crate) clock: Clock,
    /// Whether moments are told to it as the time of day.
    pub(crate) is_day: bool,
    pub(crate) signal: Option<Signal>,
    /// What its clock shows at its next expiry, in nanoseconds.
    pub(crate) next: Option<u64>,
    /// Nanoseconds from one expiry to the next; 0 for one expiry.
    pub(crate) interval: u64,
    /// How many expiries the last signal stood for beside its own.
    pub(crate) overrun: u64,
    /// Expiries since the last signal.
    expired: u64,
}

/// All of a process.
#[derive(Debug)]
pub(crate) struct Alarms {
    table: Vec<Option<Alarm>>,
    /// In cycles, when the next one may be due; the greatest number for never.
    at: u64,
    /// Some signal has not been taken by its thread.
    any_is_due: bool,
}

/// Whether some timer has expired since the last look.
static RUNG: AtomicBool = AtomicBool::new(false);

/// Whether some timer has expired, which is asked once.
pub(crate) fn has_rung() -> bool {
    // ORDER: Relaxed; one kernel thread has both sides (sim_rt.S1).
    RUNG.load(Ordering::Relaxed) && RUNG.swap(false, Ordering::Relaxed)
}

impl Alarm {
    pub(crate) const fn new(clock: Clock, is_day: bool, signal: Option<Signal>) -> Self {
        Self { clock, is_day, signal, next: None, interval: 0, overrun: 0, expired: 0 }
    }

    /// Another time from now on; what has expired is forgotten.
    pub(crate) fn set(&mut self, next: Option<u64>, interval: u64) {
        (self.next, self.interval, self.overrun, self.expired) = (next, interval, 0, 0);
    }

    /// Its clock shows `now`.
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
    /// A new timer's number.
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

    /// Virtual time of the next signal that ends a sleep, in nanoseconds.
    pub(super) fn next(&self) -> Option<u64> {
        let wakes = |alarm: &&Alarm| alarm.clock == Clock::Time && alarm.signal.is_some();
        self.table.iter().flatten().filter(wakes).filter_map(|alarm| alarm.next).min()
    }

    /// Whether a signal waits for that thread.
    pub(super) fn is_due_for(&self, thread: usize) -> bool {
        self.any_is_due && self.table.iter().flatten().any(|alarm| alarm.is_due_for(thread))
    }
}

impl Simulation {
    /// What a clock shows, in nanoseconds.
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

    /// Times of timers have changed.
    pub(crate) fn alarms_changed(&mut self) {
        let (now, work) = (self.shows(Clock::Time), self.shows(Clock::Work));
        let cores = u64::from(self.engine.cores());
        let soonest = |alarm: &Alarm| match alarm.clock {
            Clock::Time => alarm.next,
            // No sooner than with all cores at work.
            Clock::Work => {
                alarm.next.map(|next| now + (next.saturating_sub(work) / cores).max(LOOK_NS))
            }
        };
        let next = self.alarms.table.iter().flatten().filter_map(soonest).min();
        self.alarms.at = next.map_or(u64::MAX, |next| self.engine.machine().cycles(next));
    }

    /// Lets timers expire whose time has come: the next look sends their signals (sim_rt.R1).
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

    /// Another thread runs now: if a signal waits for that one, its next block looks.
    #[inline(always)]
    pub(super) fn look_for_its_signals(&self) {
        if self.alarms.is_due_for(self.current) {
            // ORDER: Relaxed; see `has_rung`.
            RUNG.store(true, Ordering::Relaxed);
            look_soon();
        }
    }

    /// Takes a signal that is due for the running thread, but none of `held`, a bit for each: the
    /// timer's number, the signal, and what it stands for beside one expiry (sim_rt.R2).
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
