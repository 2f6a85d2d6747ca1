//! Eager or deferred: a trial finds in which way the members of a pool should come and go.
//!
//! Owns: [`Pace`], the controller. It uses no atomics and no clock: the caller passes the time to
//! each look. The set's lock guards it.
//!
//! Law **member_pool_pace.N4** A set is eager on trial, and for as long as trials find that a pair
//! takes less time then (policy.P4). There is no trial in two cases where it would be in vain. If
//! most reads find no change, readers had better share the structure. If reads find only few of the
//! changes that were made, the others have cancelled.

use crate::ldu::Look;
use crate::policy::Trial;
use std::mem::replace;

/// Reads between two looks in a trial. A look reads a line of each thread that had a member.
const READS: u32 = 256;
/// Reads between two looks at other times.
const READS_AT_REST: u32 = 4 * READS;
/// A trial is in vain if reads visit less than one in this many of the members that came.
const VISITED: u64 = 4;

/// See the module header.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// The trial of deferred and of eager changes.
    trial: Trial,
    /// At the last look: members that had come, members that reads had visited, and the time.
    seen: (u64, u64, u64),
}

impl Pace {
    /// Takes a look, up to which `came` members have come. Returns whether changes are to be eager,
    /// and after how many reads the next look is.
    pub(super) fn look(&mut self, look: Look, came: u64, now: u64) -> (bool, u32) {
        let seen = replace(&mut self.seen, (came, look.visited, now));
        let (pairs, visited) = (came.wrapping_sub(seen.0), look.visited - seen.1);
        let ticks = now.wrapping_sub(seen.2);
        let are_found = 2 * pairs >= u64::from(look.reads);
        if !are_found && look.is_eager {
            self.trial.force(false);
            return (false, READS_AT_REST);
        }
        let may_try = are_found && (look.is_eager || VISITED * visited >= pairs);
        let is_eager = self.trial.note(look.is_eager, pairs, ticks, may_try);
        (is_eager, if may_try && !self.trial.rests() { READS } else { READS_AT_REST })
    }
}

#[cfg(all(test, not(manycore_loom), not(manycore_shuttle)))]
mod tests {
    use super::*;

    /// A load: pairs before each read, and the time of a pair.
    #[derive(Debug, Clone, Copy)]
    struct Load {
        pairs: u64,
        /// Pairs among them whose members a read visits.
        visited: u64,
        ticks: [u64; 2],
    }

    #[derive(Default)]
    struct Run {
        pace: Pace,
        came: u64,
        visited: u64,
        ticks: u64,
        all_reads: u64,
        reads: u32,
        answer: (bool, u32),
    }

    impl Run {
        /// Makes one more read. Returns true if changes are eager after it.
        fn read(&mut self, load: Load) -> bool {
            let (is_eager, next) = self.answer;
            self.came += load.pairs;
            self.all_reads += 1;
            self.reads += 1;
            // A thread is preempted now and then.
            let preempted = if self.all_reads % 10_000 == 7 { 1_000_000 } else { 0 };
            self.ticks += load.pairs * load.ticks[usize::from(is_eager)] + preempted;
            if !is_eager {
                self.visited += load.visited;
            }
            if self.reads >= next {
                let look = Look { reads: self.reads, visited: self.visited, is_eager };
                (self.answer, self.reads) = (self.pace.look(look, self.came, self.ticks), 0);
            }
            self.answer.0
        }

        /// Returns the share of reads, in percent, after which changes are eager.
        fn eager_share(&mut self, load: Load, reads: usize) -> usize {
            (0..reads).filter(|_| self.read(load)).count() * 100 / reads
        }
    }

    /// member_pool_pace.N4, whatever happened before.
    #[test]
    fn what_is_faster_is_found_by_trial() {
        let eager_pays = [
            Load { pairs: 1, visited: 1, ticks: [200, 100] },
            Load { pairs: 2, visited: 2, ticks: [100, 60] },
            Load { pairs: 20, visited: 18, ticks: [100, 60] },
        ];
        let deferring_pays = [
            Load { pairs: 1, visited: 1, ticks: [100, 200] },
            Load { pairs: 2, visited: 2, ticks: [100, 140] },
            Load { pairs: 100, visited: 10, ticks: [10, 30] },
            Load { pairs: 0, visited: 0, ticks: [0, 0] },
        ];
        let mut run = Run::default();
        for round in 0..3 {
            for (load, other) in eager_pays.into_iter().zip(deferring_pays.into_iter().cycle()) {
                run.eager_share(load, 600_000);
                let share = run.eager_share(load, 100_000);
                assert!(share >= 95, "{round}: {share} % of {load:?}");
                run.eager_share(other, 600_000);
                let share = run.eager_share(other, 100_000);
                assert!(share <= 2, "{round}: {share} % of {other:?}");
            }
        }
        let rare = deferring_pays[2];
        assert_eq!(run.eager_share(rare, 100_000), 0, "a trial that was in vain for sure");
    }

    /// Only the counts decide whether there is a trial.
    #[test]
    fn counts_that_are_off_change_no_result() {
        for visited in [2, 4, 6, 10] {
            let (mut run, load) = (Run::default(), Load { pairs: 3, visited, ticks: [100, 60] });
            run.eager_share(load, 100_000);
            assert!(run.eager_share(load, 100_000) >= 95, "{visited} visits");
            let (mut run, load) = (Run::default(), Load { pairs: 3, visited, ticks: [60, 100] });
            run.eager_share(load, 100_000);
            assert!(run.eager_share(load, 100_000) <= 4, "{visited} visits");
        }
    }

    #[test]
    fn set_that_stopped_being_eager_is_put_on_trial_anew() {
        let mut run = Run::default();
        let load = Load { pairs: 1, visited: 1, ticks: [200, 100] };
        while !run.read(load) {}
        run.answer.0 = false; // that many changes without a read
        assert!(!run.read(load) || run.reads > 0);
        run.eager_share(load, 600_000);
        assert!(run.eager_share(load, 100_000) >= 95);
    }
}
