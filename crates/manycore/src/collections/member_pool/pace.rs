//! Whether the members of a pool come and go eagerly, or deferred: the faster is found by trial.
//!
//! Owns: [`Pace`], the controller. It knows no atomic and no clock: looks carry their time. The
//! set's lock guards it.
//!
//! Law **member_pool.N4** A set is eager on trial, or after a trial in which a pair took a third
//! less time than before it, and for so many looks at most; then the next trial is due. A trial
//! that fails doubles the pause before the next one (policy.P3). So no constant here says what is
//! faster on some machine. Counts only tell where a trial would be in vain: where a read finds
//! nearly all changes cancelled, or no change at all. Times are the median of three looks: one in
//! which a thread was preempted tells nothing, nor does one in which a thread was alone for long.

use crate::ldu::{Drained, Look};
use crate::policy::{Pauses, Probes};

/// Lines that a read takes from other cores to empty queues, however few members are in them.
const READ_LINES: u64 = 5;
/// Lines that it takes to visit a member.
const VISIT_LINES: u64 = 2;
/// Lines that it takes besides to tell the structure of it.
const APPLY_LINES: u64 = 3;
/// Lines that an eager change takes.
const CHANGE_LINES: u64 = 4;
/// How far these counts may be off: a trial is not in vain for sure if eager changes take so many
/// times as many lines.
const DOUBT: u64 = 3;
/// Reads between two looks in a trial. A look reads a line of each thread that has had a member.
const READS: u32 = 256;
/// At other times looks move apart, up to so many doublings.
const READS_DOUBLED: u32 = 2;
/// Looks whose times are compared, of each way.
const TIMED: usize = 3;
/// Looks after which a set that was kept eager is put on trial again.
const KEPT: u32 = 64;
/// Looks between a failed trial and the next.
const PAUSES: Pauses = Pauses { first: 16, doublings: 8 };

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Deferred,
    /// Eager; the time for a pair before.
    OnTrial {
        before: u64,
    },
    /// Eager; the changes for 16 reads.
    Kept {
        changes: u64,
    },
}

/// What happened between two looks.
#[derive(Debug, Clone, Copy)]
struct Window {
    reads: u64,
    pairs: u64,
    drained: Drained,
    ticks: u64,
}

impl Window {
    /// In 64ths of a tick.
    fn time_for_a_pair(self) -> u64 {
        self.ticks.saturating_mul(64).checked_div(self.pairs).unwrap_or(u64::MAX)
    }

    fn changes_for_16_reads(self) -> u64 {
        32 * self.pairs / self.reads
    }

    /// Whether eager changes may be faster. (Where most reads find no change, they had better share
    /// the structure.)
    fn calls_for_a_trial(self) -> bool {
        let Drained { visited, applied } = self.drained;
        let deferred = READ_LINES * self.reads + VISIT_LINES * visited + APPLY_LINES * applied;
        2 * self.pairs >= self.reads && CHANGE_LINES * 2 * self.pairs <= DOUBT * deferred
    }
}

/// See the module header.
#[derive(Debug)]
pub(super) struct Pace {
    state: State,
    /// How often the way to the next look is doubled.
    doubled: u32,
    /// Members that had come up to the last look, what reads had done, and the time.
    seen: (u64, Drained, u64),
    /// The looks in this state that count, and what a pair took in the last ones.
    looks: u32,
    times: [u64; TIMED],
    /// All looks, and that from which on a trial is due.
    now: u64,
    trials: Probes,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            state: State::Deferred,
            doubled: 0,
            seen: (0, Drained::default(), 0),
            looks: 0,
            times: [0; TIMED],
            now: 0,
            trials: Probes::NONE,
        }
    }
}

impl Pace {
    fn is_eager(&self) -> bool {
        self.state != State::Deferred
    }

    fn median(&self) -> u64 {
        let mut times = self.times;
        times.sort_unstable();
        times[TIMED / 2]
    }

    fn begin(&mut self, state: State) {
        (self.state, self.looks, self.doubled) = (state, 0, 0);
    }

    /// Takes a look, up to which so many members have come. Returns whether changes are to be
    /// eager, and after how many reads the next look is.
    pub(super) fn look(&mut self, look: Look, came: u64, ticks: u64) -> (bool, u32) {
        if self.is_eager() && !look.is_eager {
            self.begin(State::Deferred); // it was not read for long
        }
        let (came_before, before, ticks_before) =
            std::mem::replace(&mut self.seen, (came, look.drained, ticks));
        self.decide(Window {
            reads: u64::from(look.reads),
            pairs: came.wrapping_sub(came_before),
            drained: Drained {
                visited: look.drained.visited - before.visited,
                applied: look.drained.applied - before.applied,
            },
            ticks: ticks.wrapping_sub(ticks_before),
        });
        (self.is_eager(), READS << self.doubled)
    }

    fn decide(&mut self, window: Window) {
        self.now += 1;
        self.looks += 1;
        self.times.rotate_left(1);
        self.times[TIMED - 1] = window.time_for_a_pair();
        // The first look in a state, with its cold misses, is not counted.
        let is_timed = self.looks as usize > TIMED;
        match self.state {
            State::Deferred => {
                if !window.calls_for_a_trial() || !self.trials.is_due(self.now) {
                    let doubled = (self.doubled + 1).min(READS_DOUBLED);
                    self.begin(State::Deferred);
                    self.doubled = doubled;
                } else if is_timed {
                    self.begin(State::OnTrial { before: self.median() });
                } else {
                    self.doubled = 0;
                }
            }
            State::OnTrial { before } if is_timed => {
                if self.median() < before - before / 3 {
                    self.trials.succeeded();
                    self.begin(State::Kept { changes: window.changes_for_16_reads() });
                } else {
                    self.trials.failed(self.now, PAUSES);
                    self.begin(State::Deferred);
                }
            }
            State::OnTrial { .. } => {}
            State::Kept { changes } => {
                self.doubled = (self.doubled + 1).min(READS_DOUBLED);
                let now = window.changes_for_16_reads();
                if self.looks >= KEPT || now > 2 * changes || now < changes / 2 {
                    self.begin(State::Deferred);
                }
            }
        }
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
        drained: Drained,
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
            let preempted = if self.all_reads % 10_000 == 7 { 10_000_000 } else { 0 };
            self.ticks += load.pairs * load.ticks[usize::from(is_eager)] + preempted;
            if !is_eager {
                self.drained.visited += load.visited;
                self.drained.applied += load.visited;
            }
            if self.reads >= next {
                let look = Look { reads: self.reads, drained: self.drained, is_eager };
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
            Load { pairs: 2, visited: 2, ticks: [100, 75] },
            Load { pairs: 100, visited: 10, ticks: [10, 1000] },
            Load { pairs: 0, visited: 0, ticks: [0, 0] },
        ];
        let mut run = Run::default();
        for round in 0..3 {
            for (load, other) in eager_pays.into_iter().zip(deferring_pays.into_iter().cycle()) {
                run.eager_share(load, 300_000);
                let share = run.eager_share(load, 100_000);
                assert!(share >= 95, "{round}: {share} % of {load:?}");
                run.eager_share(other, 300_000);
                let share = run.eager_share(other, 100_000);
                assert!(share <= 2, "{round}: {share} % of {other:?}");
            }
        }
        let rare = deferring_pays[2];
        assert_eq!(run.eager_share(rare, 100_000), 0, "a trial that was in vain for sure");
    }

    /// What the counts say of lines decides whether there is a trial, and nothing else: where it is
    /// off by as much as `DOUBT`, the result is the same.
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
        assert!(run.eager_share(load, 100_000) >= 95);
    }
}
