//! Which of two ways is faster, here and now: for loads whose ratio of updates to reads does not
//! decide.
//!
//! Owns: the measurements, of updates in the same time. Does not own: the clock, when the other way
//! is due for a trial, nor the switch.
//!
//! The way in use is measured in windows of some reads. If the other way is due then, it goes on
//! trial: it is measured, too, and kept if it makes more updates by a sixteenth; else the first way
//! comes back. Rates are the best of some windows each, because a window in which a thread was
//! preempted tells nothing; the first window after a switch is not counted.

use crate::config::SMALL;

/// Reads in a window.
const READS: u32 = if SMALL { 1 } else { 32 };
/// Windows in a rate.
const WINDOWS: u32 = if SMALL { 1 } else { 4 };

/// What to do after a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Stay,
    /// Switch, and put the other way on trial.
    Try,
    /// The way on trial is faster: it stays.
    Keep,
    /// The way on trial is not faster: switch back.
    Return,
}

#[derive(Debug, Default)]
pub(super) struct Comparison {
    reads: u32,
    updates: u64,
    /// The time at which the window began.
    began: u64,
    /// Windows since the switch or the last rate.
    windows: u32,
    best: u64,
    /// The rate of the other way, while this one is on trial.
    other: Option<u64>,
}

impl Comparison {
    /// Forgets what was measured: the ratio decides, or has changed.
    pub(super) fn restart(&mut self) {
        *self = Self::default();
    }

    /// Counts a read after so many updates. `now` is asked once in a window; `is_due` says whether
    /// the other way may go on trial.
    pub(super) fn look(&mut self, updates: u64, now: impl FnOnce() -> u64, is_due: bool) -> Step {
        (self.reads, self.updates) = (self.reads + 1, self.updates.saturating_add(updates));
        if self.reads < READS {
            return Step::Stay;
        }
        let now = now();
        let rate = self.updates.saturating_mul(1 << 16) / now.saturating_sub(self.began).max(1);
        (self.reads, self.updates, self.began) = (0, 0, now);
        self.windows += 1;
        if self.windows == 1 {
            return Step::Stay; // it began before the switch, or with cold misses
        }
        self.best = self.best.max(rate);
        if self.windows <= WINDOWS {
            return Step::Stay;
        }
        let best = std::mem::take(&mut self.best);
        self.windows = 1;
        match self.other.take() {
            None if is_due => {
                (self.other, self.windows) = (Some(best), 0);
                Step::Try
            }
            None => Step::Stay,
            Some(other) if best > other.saturating_add(other / 16) => Step::Keep,
            Some(_) => {
                self.windows = 0;
                Step::Return
            }
        }
    }
}
