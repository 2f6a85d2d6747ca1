//! Logs, or only a lock: a trial finds which is faster.
//!
//! Owns: [`Pace`], the controller, which an eviction asks. It uses no atomics and no clock: the
//! caller passes the time to each look. The list's lock guards it.
//!
//! A touch in a log is applied to the list as well, later: logs only save turns at the lock. The
//! cost of such a turn differs by ten from machine to machine. So no ratio of touches to evictions
//! says whether logs pay for two threads, where one waits while the other has the lock. With more
//! threads several wait at once, and logs stay.
//!
//! Law **lru_pace.L4** A list whose merges find at most two logs gives them up on trial, and for as
//! long as trials find the lock alone to be faster (policy.P4).

use crate::policy::Trial;
use std::mem::{replace, take};

/// Logs in a merge up to which a trial is made.
const FEW: usize = 2;
/// Evictions in a window.
const READS: u32 = 32;

/// See the module header.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// The trial of logs and of no logs.
    trial: Trial,
    /// Evictions since the window began, and when it began.
    reads: u32,
    began: u64,
    /// True if a merge in this window has found more than a few logs.
    is_crowded: bool,
}

impl Pace {
    /// Notes how many logs a merge has found.
    pub(super) fn note_logs(&mut self, logs: usize) {
        self.is_crowded |= logs > FEW;
    }

    /// Counts an eviction; `logged` says whether the list had logs before it. Returns
    /// whether the list is to have none from now on, if that changes.
    #[inline]
    pub(super) fn look(&mut self, logged: bool, now: impl FnOnce() -> u64) -> Option<bool> {
        self.reads += 1;
        if self.reads < READS {
            return None;
        }
        self.end_window(logged, now())
    }

    #[inline(never)]
    fn end_window(&mut self, logged: bool, now: u64) -> Option<bool> {
        let ticks = now.saturating_sub(replace(&mut self.began, now));
        let (_, is_crowded) = (take(&mut self.reads), take(&mut self.is_crowded));
        if !logged && !self.trial.is_second() {
            self.trial.measure_anew(); // logs come when its lock is contended
            return None;
        }
        match self.trial.note(!logged, READS.into(), ticks, !logged || !is_crowded) {
            true => Some(true),
            false if logged => None,
            false => Some(false),
        }
    }
}

#[cfg(all(test, not(manycore_loom), not(manycore_shuttle)))]
mod tests {
    use super::*;

    /// A list under contention, which has logs unless it rests.
    #[derive(Default)]
    struct Run {
        pace: Pace,
        ticks: u64,
        rests: bool,
        evictions: u64,
    }

    impl Run {
        /// Returns the share of evictions, in percent, before which there were logs. `ticks` is the
        /// time of a touch without logs and with them.
        fn logged_share(&mut self, touches: u32, ticks: [u64; 2], evictions: u64) -> u64 {
            let mut logged_ones = 0;
            for _ in 0..evictions {
                let logged = !self.rests;
                self.evictions += 1;
                // A thread is preempted now and then.
                let preempted = if self.evictions % 1000 == 7 { 1_000_000 } else { 0 };
                self.ticks += u64::from(touches) * ticks[usize::from(logged)] + preempted;
                logged_ones += u64::from(logged);
                if let Some(rests) = self.pace.look(logged, || self.ticks) {
                    self.rests = rests;
                }
            }
            logged_ones * 100 / evictions
        }
    }

    /// lru_pace.L4, whatever happened before.
    #[test]
    fn what_is_faster_is_found_by_trial() {
        let mut run = Run::default();
        for _ in 0..3 {
            for touches in [100, 1000] {
                run.logged_share(touches, [100, 140], 40_000);
                assert!(run.logged_share(touches, [100, 140], 40_000) <= 3, "the lock is faster");
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
}
