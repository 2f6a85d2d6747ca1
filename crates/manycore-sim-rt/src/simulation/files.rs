//! Threads that wait for files and child processes, and timers that are files.
//!
//! The kernel has the files. A call that would block is made without blocking. If the kernel says
//! that it would block, its virtual thread waits here for what the call needs. After each call that
//! may make something ready, the kernel is asked which waits are over.
//!
//! Law files.O1: a call of one virtual thread may make something ready for another. That is found
//! at the end of the call, and so at the same virtual time in every run. A waiter is added in the
//! same turn in which the kernel said that its call would block, so no change in between is lost.

use std::collections::VecDeque;
use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};

use super::Simulation;
use crate::host;

/// The kernel's `struct pollfd`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Poll {
    pub(crate) file: c_int,
    pub(crate) events: i16,
    pub(crate) found: i16,
}

/// The object that a thread waits for, outside virtual memory.
#[derive(Debug, Clone)]
pub(crate) enum WaitsFor {
    /// One of the files is ready.
    Files(Vec<Poll>),
    /// A child process has changed state: kind of number, number, and options of `waitid`.
    Child([usize; 3]),
    /// Any change, because the kernel can't say when the call will succeed.
    Change,
}

#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) thread: usize,
    pub(super) call: &'static str,
    pub(super) site: usize,
    pub(super) what: WaitsFor,
    /// True if it takes what it waits for, so that others need not wake up as well.
    pub(super) is_alone: bool,
}

/// A timer that is a file. An eventfd stands for it, and is written to when the timer expires.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timer {
    pub(crate) file: c_int,
    /// True if it shows the time of day.
    pub(crate) is_day: bool,
    /// Virtual time of its next expiry, in nanoseconds.
    pub(crate) next: Option<u64>,
    /// Nanoseconds from one expiry to the next; 0 for one expiry.
    pub(crate) interval: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Files {
    /// In the order of arrival.
    pub(super) waiters: VecDeque<Waiter>,
    pub(crate) timers: Vec<Timer>,
    /// True if the program has asked for signals, which other processes may send.
    pub(crate) takes_signals: bool,
}

/// True if a thread waits here.
static WAITS: AtomicBool = AtomicBool::new(false);
/// True if it is time to check what other processes have done.
static REMINDED: AtomicBool = AtomicBool::new(false);

/// True if a signal has come since all threads last waited.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Makes the simulation check for outside events, if a thread waits. Another kernel thread calls
/// this now and then.
pub(crate) fn remind() {
    // ORDER: Relaxed; both are hints, and the next reminder comes soon.
    if WAITS.load(Ordering::Relaxed) {
        REMINDED.store(true, Ordering::Relaxed);
    }
}

/// Makes the next block check, because a signal has come.
pub(crate) fn interrupt() {
    look_soon();
    // ORDER: Relaxed; as in `look_soon`.
    INTERRUPTED.store(true, Ordering::Relaxed);
}

/// Makes the next block check for events.
pub(super) fn look_soon() {
    // ORDER: Relaxed; the simulating kernel thread, which this thread is or runs beside, sees it
    // soon.
    REMINDED.store(true, Ordering::Relaxed);
}

/// Returns true if there was a reminder since the last check.
#[inline(always)]
pub(crate) fn is_reminded() -> bool {
    // ORDER: Relaxed; see `remind`.
    REMINDED.load(Ordering::Relaxed) && REMINDED.swap(false, Ordering::Relaxed)
}

impl Files {
    pub(super) fn any_waits(&self) -> bool {
        !self.waiters.is_empty()
    }

    /// Returns the virtual time of the next expiry.
    pub(super) fn next_timer(&self) -> Option<u64> {
        self.timers.iter().filter_map(|timer| timer.next).min()
    }

    /// Lets timers expire that are due at `now`.
    fn expire(&mut self, now: u64) {
        for timer in &mut self.timers {
            let Some(next) = timer.next.filter(|&next| next <= now) else { continue };
            let missed = (now - next).checked_div(timer.interval);
            let times = missed.unwrap_or(0) + 1;
            timer.next = (timer.interval > 0).then(|| next + times * timer.interval);
            let word = [timer.file as usize, (&raw const times) as usize, 8, 0, 0, 0];
            // SAFETY: the eventfd of this timer; the kernel reads 8 bytes.
            unsafe { host::call(libc::SYS_write as usize, word) };
        }
    }
}

impl WaitsFor {
    /// Returns the files that it waits for, if it waits for files.
    pub(super) fn files(&self) -> &[Poll] {
        if let Self::Files(files) = self { files } else { &[] }
    }
}

impl Simulation {
    /// Returns the address of a word that stands for a thread's wait in the engine.
    pub(super) fn waiting_word(&self, thread: usize) -> usize {
        std::ptr::from_ref(&*self.threads[thread]) as usize
    }

    pub(super) fn add_waiter(&mut self, waiter: Waiter) {
        self.files.waiters.push_back(waiter);
        self.waiters_changed();
    }

    /// Removes the running thread from the waiters.
    pub(super) fn remove_waiter(&mut self) {
        let current = self.current;
        self.files.waiters.retain(|waiter| waiter.thread != current);
        self.waiters_changed();
    }

    fn waiters_changed(&mut self) {
        let any = self.files.any_waits();
        // ORDER: Relaxed; see `remind`.
        WAITS.store(any, Ordering::Relaxed);
        self.engine.stop_when_idle(any);
    }

    /// Lets due timers expire.
    pub(crate) fn expire_timers(&mut self) {
        self.ring_in_time();
        if !self.files.timers.is_empty() {
            let now = self.nanoseconds();
            self.files.expire(now);
        }
    }

    /// Wakes all threads that wait for files, because timers have changed.
    pub(crate) fn wake_all(&mut self) {
        let waiters: Vec<usize> = self.files.waiters.iter().map(|waiter| waiter.thread).collect();
        waiters.into_iter().for_each(|thread| self.wake_waiter(thread));
    }

    fn wake_waiter(&mut self, thread: usize) {
        self.files.waiters.retain(|waiter| waiter.thread != thread);
        self.waiters_changed();
        self.engine.futex_wake(self.waiting_word(thread), 1, u32::MAX);
    }

    /// If a signal came while all threads wait, wakes one to call its handler. Returns true if it
    /// woke one.
    pub(super) fn wake_for_signal(&mut self) -> bool {
        // ORDER: Relaxed; see `interrupt`.
        let first = self.files.waiters.front().map(|waiter| waiter.thread);
        let first = first.filter(|_| INTERRUPTED.swap(false, Ordering::Relaxed));
        first.map(|thread| self.wake_waiter(thread)).is_some()
    }

    /// Wakes the threads whose waits are over, after at most `patience` nanoseconds of real time.
    /// Returns how many.
    pub(super) fn wake_ready(&mut self, patience: u64) -> usize {
        self.expire_timers();
        let waiters = &self.files.waiters;
        let mut polls: Vec<Poll> =
            waiters.iter().flat_map(|waiter| waiter.what.files().iter().copied()).collect();
        poll(&mut polls, patience);
        let (mut found, mut taken, mut ready) = (&polls[..], Vec::new(), Vec::new());
        for waiter in waiters {
            let (own, rest) = found.split_at(waiter.what.files().len());
            found = rest;
            let free = |poll: &Poll| poll.found != 0 && !taken.contains(&poll.file);
            let is_ready = match waiter.what {
                WaitsFor::Files(_) => own.iter().any(free),
                WaitsFor::Child(which) => child_is_ready(which),
                WaitsFor::Change => true,
            };
            if is_ready {
                ready.push(waiter.thread);
                if waiter.is_alone {
                    taken.extend(own.iter().map(|poll| poll.file));
                }
            }
        }
        ready.iter().for_each(|&thread| self.wake_waiter(thread));
        ready.len()
    }
}

/// Asks the kernel which files are ready, for at most `patience` nanoseconds.
fn poll(polls: &mut [Poll], patience: u64) {
    let time = [patience / 1_000_000_000, patience % 1_000_000_000];
    let (polls, count) = (polls.as_mut_ptr() as usize, polls.len());
    let arguments = [polls, count, time.as_ptr() as usize, 0, 8, 0];
    // An interrupted check would miss what is ready now (files.O1). An interrupted wait is
    // repeated.
    let ask = if patience == 0 { host::look } else { host::call };
    // SAFETY: the array has that many entries; the timespec is a local; there is no set of signals.
    unsafe { ask(libc::SYS_ppoll as usize, arguments) };
}

/// Returns true if `waitid` would have an answer, even if that is an error.
fn child_is_ready([kind, number, options]: [usize; 3]) -> bool {
    // `siginfo_t` in words. The first word begins with the signal's number, 0 if there is no child.
    let mut found = [0_u64; 16];
    let look = options | (libc::WNOHANG | libc::WNOWAIT) as usize;
    let arguments = [kind, number, found.as_mut_ptr() as usize, look, 0, 0];
    // SAFETY: the kernel writes a `siginfo_t`, which has 128 bytes.
    let answer = unsafe { host::call(libc::SYS_waitid as usize, arguments) };
    answer != 0 || found[0] as u32 != 0
}
