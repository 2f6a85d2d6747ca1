//! Whether the members of a pool come and go eagerly, or deferred: the faster is found by trial.
//!
//! Owns: [`Pace`], the controller. It knows no atomic and no clock: looks carry their time. The
//! set's lock guards it.
//!
//! Law **member_pool.N4** A set is eager on trial, and for as long as trials find that a pair takes
//! less time so (policy.P4). There is no trial where it would be in vain: where most reads find no
//! change, since they had better share the structure, or only few of those that were made, since
//! the others have cancelled.

use crate::ldu::Look;
use crate::policy::Trial;
use std::mem::replace;

/// Reads between two looks in a trial. A look reads a line of each thread that has had a member.
const READS: u32 = 256;
/// Reads between two looks at other times.
const READS_AT_REST: u32 = 4 * READS;
/// A trial is in vain where a read visits less than one in so many of the members that came.
const VISITED: u64 = 4;

/// See the module header.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// Of deferred and of eager changes.
    trial: Trial,
    /// Members that had come up to the last look, those that reads had visited, and the time.
    seen: (u64, u64, u64),
}

impl Pace {
    /// Takes a look, up to which so many members have come. Returns whether changes are to be
    /// eager, and after how many reads the next look is.
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

    /// A load: so many pairs before each read, and what a pair takes.
    #[derive(Debug, Clone, Copy)]
    struct Load {
        pairs: u64,
        /// Of them, those whose members a read visits.
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
        /// Whether changes are eager after one more read.
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

        /// The share of reads, in percent, after which changes are eager.
        fn eager_share(&mut self, load: Load, reads: usize) -> usize {
            (0..reads).filter(|_| self.read(load)).count() * 100 / reads
        }
    }

    /// member_pool.N4, whatever was before.
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

    /// What the counts say decides whether there is a trial, and nothing else.
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
        run.answer.0 = false; // so many changes without a read
        assert!(!run.read(load) || run.reads > 0);
        run.eager_share(load, 600_000);
        assert!(run.eager_share(load, 100_000) >= 95);
    }
}
