//! A clock that tests move by hand, wrong by a different amount on every thread.
//!
//! Owns: one logical time per [`FakeClock`] and one signed offset per thread and clock.

use std::cell::RefCell;
use std::sync::{Arc, Weak};

use crate::sync::{AtomicU64, Ordering, thread_local};

/// The time at which a new fake clock begins: far enough from zero for negative offsets.
const START: u64 = 1 << 20;

thread_local! {
    /// This thread's offsets by clock. While an offset for a clock is here, the `Weak` keeps the
    /// address of that clock's time from being reused for another clock. Zero offsets are not kept.
    static OFFSETS: RefCell<Vec<(Weak<AtomicU64>, i64)>> = RefCell::default();
}

/// Logical time for tests, with an error that each thread chooses.
///
/// What for: tests that must see what an algorithm does when the cores' clocks disagree. When not:
/// anywhere else; every read is a `fetch_add` on one shared word. Clones share the time.
///
/// A read returns `time + offset of the reading thread` and moves the time on by 1. So no two reads
/// see the same time, and a wait for a later time always ends. A thread starts without offset, and
/// an offset is gone with its thread. Readings stop at 0 and at `u64::MAX`.
///
/// ```
/// use manycore::clock::{Clock, FakeClock};
///
/// let time = FakeClock::new();
/// let clock = Clock::fake(&time, 100); // the clocks of two threads differ by at most 100 ticks
/// let before = clock.stamp();
/// time.with_skew_on_this_thread(-50);
/// assert!(clock.stamp() < before, "this thread's clock is now slow");
/// ```
#[derive(Debug, Clone)]
pub struct FakeClock {
    time: Arc<AtomicU64>,
}

impl FakeClock {
    /// Makes a new logical time, unrelated to all others.
    pub fn new() -> Self {
        Self { time: Arc::new(AtomicU64::new(START)) }
    }

    /// Makes this clock wrong by `ticks` on the calling thread from now on.
    pub fn with_skew_on_this_thread(&self, ticks: i64) -> &Self {
        OFFSETS.with(|offsets| {
            let mut offsets = offsets.borrow_mut();
            offsets.retain(|(time, _)| time.strong_count() > 0 && !self.is(time));
            if ticks != 0 {
                offsets.push((Arc::downgrade(&self.time), ticks));
            }
        });
        self
    }

    /// Lets `ticks` pass for all threads.
    pub fn advance(&self, ticks: u64) -> &Self {
        // ORDER: SeqCst, as in `read`: one order of all movements of the time.
        self.time.fetch_add(ticks, Ordering::SeqCst);
        self
    }

    /// Returns the time without any thread's offset; does not move it.
    pub fn time(&self) -> u64 {
        // ORDER: SeqCst, as in `read`.
        self.time.load(Ordering::SeqCst)
    }

    /// Returns the calling thread's reading, and moves the time on by 1.
    pub(crate) fn read(&self) -> u64 {
        // ORDER: SeqCst; what happened before an earlier read happens before this one, so that
        // only the offsets, not the fake itself, break the order of stamps.
        let time = self.time.fetch_add(1, Ordering::SeqCst);
        time.saturating_add_signed(self.offset())
    }

    /// Returns the calling thread's reading; does not move the time.
    pub(crate) fn peek(&self) -> u64 {
        self.time().saturating_add_signed(self.offset())
    }

    fn offset(&self) -> i64 {
        OFFSETS.with(|offsets| {
            let offsets = offsets.borrow();
            offsets.iter().find(|(time, _)| self.is(time)).map_or(0, |(_, ticks)| *ticks)
        })
    }

    fn is(&self, time: &Weak<AtomicU64>) -> bool {
        std::ptr::eq(time.as_ptr(), Arc::as_ptr(&self.time))
    }
}

impl Default for FakeClock {
    fn default() -> Self {
        Self::new()
    }
}
