//! Controllers: from evidence to a decision.
//!
//! An object that chooses between forms (a lock or logs, one table or many) counts evidence where
//! counting is free, and decides by it now and then. Every such controller is made of the values
//! here, so all of them resist an alternating load in the same way.
//!
//! Owns: how much evidence a decision takes, and how long a failed decision is not repeated. Does
//! not own: the evidence and its thresholds, the state of the object, and the change itself. These
//! belong to the mechanism, which counts and obeys. Nothing here is atomic, and nothing reads a
//! clock: the same evidence gives the same decisions. A controller is part of the state that the
//! object's lock guards, or is kept in a cell of one thread. If its state is an atomic, the
//! mechanism loads it, shows it the evidence, and stores it ([`Streak::raw`]).
//!
//! Laws:
//! - policy.P1 A [`Streak`] is due only after *patience* observations in a row that call for the
//!   change ([`observe`](Streak::observe)). So an object changes at most once in that many
//!   observations, whatever its load does. Besides, the threshold for entering a form lies above
//!   the threshold for leaving it (hysteresis); the mechanism sets both.
//! - policy.P2 A [`Doubling`] doubles a patience with each failure, up to a bound (exponential
//!   back-off). So under a load that reverses each change, the number of changes grows with the
//!   logarithm of the load's length, and at the bound it is a fixed share.
//! - policy.P4 A [`Trial`] measures two forms one after the other, and keeps the second only if it
//!   does an eighth more work in the same time. The rate of a form is the second best of five
//!   windows. A window tells nothing if a thread was preempted in it, if a thread was alone in it,
//!   or if it is the first after a change of form. The load may have changed between the two
//!   measurements, so a form that is kept is doubted: the other one is tried again at once.
//! - policy.P5 A trial that fails is followed by a pause of a hundred times its cost. Its cost is
//!   the time beyond what its work would have taken in the other form. Its first window, with the
//!   change of form, counts twice, because the way back costs as much; and at least a sixteenth of
//!   its time counts. So trials cost at most one percent of the time, apart from the first.
//! - policy.P6 While nothing changes, the pause doubles with each failure, up to a bound. When a
//!   rate has changed by a quarter, the doublings are taken back, but not policy.P5's pause. So an
//!   alternating load pays no more than that.

mod trial;

pub(crate) use trial::Trial;

/// Number of observations in a row that called for a change.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Streak(u32);

impl Streak {
    pub(crate) const NONE: Self = Self(0);

    /// Makes the streak that [`raw`](Self::raw) returned, for a state that is kept in an atomic.
    #[inline(always)]
    pub(crate) const fn from_raw(raw: u32) -> Self {
        Self(raw)
    }

    /// Returns the number of observations.
    #[inline(always)]
    pub(crate) const fn raw(self) -> u32 {
        self.0
    }

    /// Counts an observation. An observation that does not call for the change ends the streak.
    #[inline(always)]
    pub(crate) fn observe(&mut self, calls: bool) -> &mut Self {
        self.0 = if calls { self.0.saturating_add(1) } else { 0 };
        self
    }

    /// Returns true if the change is due (policy.P1). A patience of 0 counts as 1.
    #[inline(always)]
    pub(crate) fn is_due(&self, patience: u32) -> bool {
        self.0 >= patience.max(1)
    }

    /// Same as [`is_due`](Self::is_due), and begins again if it is due: for a change that is made
    /// at once.
    #[inline(always)]
    pub(crate) fn take(&mut self, patience: u32) -> bool {
        let is_due = self.is_due(patience);
        if is_due {
            *self = Self::NONE;
        }
        is_due
    }

    /// Forgets what was observed.
    #[inline(always)]
    pub(crate) fn clear(&mut self) {
        *self = Self::NONE;
    }
}

/// Number of times that a patience or a pause has been doubled (policy.P2).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Doubling(u32);

impl Doubling {
    pub(crate) const NONE: Self = Self(0);

    /// Returns the doublings after `failures` failures in a row, at most `most`.
    pub(crate) fn after(failures: u64, most: u32) -> Self {
        Self(u32::try_from(failures).unwrap_or(u32::MAX).min(most))
    }

    /// Doubles once more, but at most `most` times in all.
    pub(crate) fn double(&mut self, most: u32) {
        self.0 = self.0.saturating_add(1).min(most);
    }

    /// Returns `base`, doubled that many times.
    pub(crate) fn of(self, base: u32) -> u32 {
        base.saturating_mul(1_u32.checked_shl(self.0).unwrap_or(u32::MAX))
    }
}

#[cfg(all(test, not(manycore_loom), not(manycore_shuttle)))]
mod tests {
    use super::{Doubling, Streak};
    use proptest::prelude::*;

    #[test]
    fn change_is_due_after_calls_in_a_row() {
        let calls = [true, true, false, true, true, true, true, false];
        let due = [false, false, false, false, false, true, true, false];
        let mut streak = Streak::NONE;
        assert_eq!(calls.map(|calls| streak.observe(calls).is_due(3)), due);
    }

    #[test]
    fn change_that_is_taken_begins_again() {
        let mut streak = Streak::NONE;
        let taken: Vec<_> = (0..9).map(|_| streak.observe(true).take(3)).collect();
        assert_eq!(taken, [false, false, true, false, false, true, false, false, true]);
    }

    #[test]
    fn no_patience_is_that_of_one_call() {
        assert!(!Streak::NONE.is_due(0));
        assert!(!Streak::from_raw(7).observe(false).is_due(0));
        assert!(Streak::from_raw(0).observe(true).is_due(0));
    }

    #[test]
    fn state_survives_its_raw_form_and_does_not_wrap_around() {
        let mut streak = Streak::from_raw(u32::MAX);
        assert_eq!(streak.observe(true).raw(), u32::MAX);
        assert_eq!(Streak::from_raw(streak.raw()), streak);
    }

    #[test]
    fn doubling_ends_at_its_bound_and_at_the_largest_number() {
        let mut doubling = Doubling::NONE;
        let patience: Vec<_> = (0..5)
            .map(|_| {
                doubling.double(3);
                doubling.of(2)
            })
            .collect();
        assert_eq!(patience, [4, 8, 16, 16, 16]);
        assert_eq!(Doubling::after(u64::MAX, 40).of(3), u32::MAX);
        assert_eq!(Doubling::after(2, 40).of(3), 12);
    }

    // Streams of evidence, recorded on two cores of a Xeon, shortened where they repeat.

    /// Updates per read of a `Deferred`: two threads append and end, then each read finds one
    /// update. Below 8, logs do not pay.
    #[test]
    fn recorded_end_of_a_load_demotes_at_the_eighth_idle_read() {
        let updates = [7494, 4096, 4096, 94, 243, 1, 1, 1, 1, 1, 1, 1, 1];
        let mut idle = Streak::NONE;
        let due: Vec<_> = updates.iter().map(|&new| idle.observe(new < 8).is_due(8)).collect();
        assert_eq!(due.iter().position(|is_due| *is_due), Some(12));
    }

    /// Its biased reads: now and then a preempted updater does not answer, 107 times in 18,983
    /// reads, and never twice in a row.
    #[test]
    fn recorded_updaters_that_miss_an_answer_keep_the_bias() {
        let reads = [
            (4811, true),
            (2209, false),
            (4096, true),
            (4963, true),
            (5365, true),
            (1341, false),
            (7558, true),
            (5353, true),
            (1530, false),
            (4668, true),
            (94, true),
            (243, false),
            (1, true),
        ];
        let mut against = Streak::NONE;
        let due = reads.map(|(updates, is_answered)| {
            let limit = if is_answered { 4 } else { 3000 };
            against.observe(updates < limit).is_due(2)
        });
        assert_eq!(due.iter().position(|is_due| *is_due), Some(reads.len() - 1));
    }

    /// Waits in the windows of a `DHash` under two threads, from the middle of 2,799 windows.
    #[test]
    fn recorded_waits_spread_a_table_at_the_second_window_in_a_row() {
        let waits = [11, 7, 0, 12, 10, 12, 10, 3, 0, 1, 25, 3, 10, 2, 8, 0, 2, 17, 24];
        let mut contended = Streak::NONE;
        let due = waits.map(|waits| contended.observe(waits >= 16).take(2));
        assert_eq!(due.iter().filter(|is_due| **is_due).count(), 1);
        assert!(due[18] && contended == Streak::NONE);
    }

    proptest! {
        /// policy.P1, whatever the evidence.
        #[test]
        fn changes_lie_a_patience_of_calls_apart(
            evidence in prop::collection::vec(any::<bool>(), 0..400),
            patience in 1_u32..8,
        ) {
            let (mut in_a_row, mut row) = (Streak::NONE, 0);
            for calls in evidence {
                row = if calls { row + 1 } else { 0 };
                prop_assert_eq!(in_a_row.observe(calls).take(patience), row == patience);
                row %= patience;
            }
        }

        /// policy.P1, policy.P2: a load that always calls for the other form, with noise.
        #[test]
        fn load_that_reverses_each_change_gets_few_changes(
            patience in 1_u32..5,
            most in 0_u32..8,
            noise in 2_usize..50,
        ) {
            const LENGTH: usize = 20_000;
            let (mut streak, mut flaps, mut changes) = (Streak::NONE, Doubling::NONE, 0);
            for at in 0..LENGTH {
                if streak.observe(at % noise != 0 || noise > 40).take(flaps.of(patience)) {
                    changes += 1;
                    flaps.double(most);
                }
            }
            let longest = patience as usize * (1 << most);
            prop_assert!(changes <= most as usize + 1 + LENGTH / longest, "{} changes", changes);
        }
    }
}
