//! Logs, or a lock and nothing else: the faster is found by trial.
//!
//! Owns: [`Pace`], the controller, which an eviction asks. It knows no atomic and no clock: looks
//! carry their time. The list's lock guards it.
//!
//! A touch in a log is one in the list as well, later: logs only save turns at the lock. What these
//! cost differs by ten from machine to machine, so no ratio of touches to evictions says whether
//! logs pay for two threads, one of which waits while the other has the lock. With more threads
//! several wait at once, and logs stay.
//!
//! Law **lru.L4** A list whose merges find two logs at most gives them up on trial, and for as
//! long as a trial found the lock alone to be faster by a sixteenth: then the next is due. One that
//! fails doubles the pause before the next one (policy.P3). The shortest of some windows counts,
//! because one in which a thread was preempted tells nothing; the first after a change of form is
//! not counted.

use crate::policy::{Pauses, Probes};

/// Logs in a merge up to which a trial is made.
const FEW: usize = 2;
/// Evictions in a window.
const READS: u32 = 32;
/// Windows of which the shortest counts.
const WINDOWS: u32 = 4;
/// Evictions for which the list has no logs if it is not told again.
const REST: u32 = 4 * READS;
/// Windows after which a list that was kept without logs is put on trial again.
const KEPT: u32 = 512;
/// Evictions between a failed trial and the next.
const PAUSES: Pauses = Pauses { first: 16 * READS, doublings: 5 };

/// See the module header.
#[derive(Debug)]
pub(super) struct Pace {
    /// The form of the windows counted here.
    logged: bool,
    /// Evictions since the window began, and when that was.
    reads: u32,
    ticks: u64,
    /// Windows in this form, and the shortest of them.
    windows: u32,
    best: u64,
    /// The shortest with logs, while there are none on trial.
    on_trial: Option<u64>,
    /// Windows for which there are no logs after a trial.
    kept: u32,
    /// A merge in this window has found more than a few logs.
    is_crowded: bool,
    /// All evictions, and that from which on a trial is due.
    now: u64,
    trials: Probes,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            logged: false,
            reads: 0,
            ticks: 0,
            windows: 0,
            best: u64::MAX,
            on_trial: None,
            kept: 0,
            is_crowded: false,
            now: 0,
            trials: Probes::NONE,
        }
    }
}

impl Pace {
    /// Notes how many logs a merge has found.
    pub(super) fn note_logs(&mut self, logs: usize) {
        self.is_crowded |= logs > FEW;
    }

    /// Counts an eviction, before which the list had logs or not. Returns for how many more it is
    /// to have none, if that changes.
    #[inline]
    pub(super) fn look(&mut self, logged: bool, ticks: impl FnOnce() -> u64) -> Option<u32> {
        (self.now, self.reads) = (self.now + 1, self.reads + 1);
        if self.reads < READS && logged == self.logged {
            return None;
        }
        self.end_window(logged, ticks())
    }

    #[inline(never)]
    fn end_window(&mut self, logged: bool, ticks: u64) -> Option<u32> {
        let took = ticks.saturating_sub(self.ticks);
        (self.reads, self.ticks) = (0, ticks);
        let is_crowded = std::mem::take(&mut self.is_crowded);
        if logged != self.logged {
            (self.logged, self.windows, self.best) = (logged, 0, u64::MAX);
            if logged && self.on_trial.take().is_some() {
                self.trials.failed(self.now, PAUSES); // ended by something else
            }
            return None;
        }
        self.windows += 1;
        if self.windows > 1 {
            self.best = self.best.min(took);
        }
        let is_timed = self.windows > WINDOWS;
        match self.on_trial {
            _ if logged => {
                if is_timed {
                    let best = std::mem::replace(&mut self.best, u64::MAX);
                    self.windows = 1;
                    self.on_trial = (!is_crowded && self.trials.is_due(self.now)).then_some(best);
                }
                self.on_trial.map(|_| REST)
            }
            None if self.kept == 0 => None,
            None => {
                self.kept -= 1;
                Some(if self.kept == 0 { 0 } else { REST })
            }
            Some(with_logs) if is_timed && self.best < with_logs - with_logs / 16 => {
                self.trials.succeeded();
                (self.on_trial, self.kept) = (None, KEPT);
                Some(REST)
            }
            // Far slower, or not faster.
            Some(with_logs)
                if is_timed || self.windows == 2 && self.best > with_logs.saturating_mul(2) =>
            {
                self.trials.failed(self.now, PAUSES);
                self.on_trial = None;
                Some(0)
            }
            Some(_) => Some(REST),
        }
    }
}

#[cfg(all(test, not(manycore_loom), not(manycore_shuttle)))]
mod tests {
    use super::*;

    /// A list under contention: it has logs unless it rests.
    #[derive(Default)]
    struct Run {
        pace: Pace,
        ticks: u64,
        rest: u32,
        evictions: u64,
    }

    impl Run {
        /// The share of evictions, in percent, before which there were logs. `ticks` is what a
        /// touch takes without logs and with them.
        fn logged_share(&mut self, touches: u32, ticks: [u64; 2], evictions: u64) -> u64 {
            let mut logged_ones = 0;
            for _ in 0..evictions {
                let logged = self.rest == 0;
                self.evictions += 1;
                self.rest = self.rest.saturating_sub(1);
                // A thread is preempted now and then.
                let preempted = if self.evictions % 1000 == 7 { 10_000_000 } else { 0 };
                self.ticks += u64::from(touches) * ticks[usize::from(logged)] + preempted;
                logged_ones += u64::from(logged);
                if let Some(rest) = self.pace.look(logged, || self.ticks) {
                    self.rest = rest;
                }
            }
            logged_ones * 100 / evictions
        }
    }

    /// lru.L4, whatever was before.
    #[test]
    fn what_is_faster_is_found_by_trial() {
        let mut run = Run::default();
        for _ in 0..3 {
            for touches in [100, 1000] {
                run.logged_share(touches, [100, 110], 40_000);
                assert!(run.logged_share(touches, [100, 110], 40_000) <= 3, "the lock is faster");
                run.logged_share(touches, [100, 95], 40_000);
                assert!(run.logged_share(touches, [100, 95], 40_000) >= 97, "no faster");
                run.logged_share(touches, [300, 100], 40_000);
                assert!(run.logged_share(touches, [300, 100], 40_000) >= 98, "logs are faster");
            }
        }
    }

    #[test]
    fn list_of_many_threads_is_not_put_on_trial() {
        let mut run = Run::default();
        for _ in 0..10_000 {
            run.pace.note_logs(FEW + 1);
            assert_eq!(run.logged_share(100, [10, 100], 1), 100);
        }
    }

    #[test]
    fn list_that_never_had_logs_is_left_alone() {
        let mut pace = Pace::default();
        for eviction in 1..10_000_u32 {
            assert_eq!(pace.look(false, || 100 * u64::from(eviction)), None);
        }
    }

    #[test]
    fn list_that_is_kept_without_logs_is_put_on_trial_again() {
        let mut run = Run::default();
        run.logged_share(100, [100, 110], 10_000);
        let mut logged_ones = 0;
        for _ in 0..KEPT * READS {
            logged_ones += run.logged_share(100, [100, 110], 1);
        }
        assert!(logged_ones > 0);
    }
}
