//! Controllers: from evidence to a decision.
//!
//! An object that chooses between forms (a lock or logs, one table or many) counts evidence where
//! counting is free, and decides by it now and then. Every such controller is made of the values
//! here, so that all of them resist a load that alternates in the same way.
//!
//! Owns: how much evidence a decision takes, and how long a failed one is not repeated. Does not
//! own: the evidence and its thresholds, the state of the object, and the change itself; these are
//! the mechanism's, which counts and obeys. Nothing here is atomic, and nothing reads a clock: the
//! same evidence gives the same decisions. A controller is part of the state that the object's lock
//! guards, or is kept in a cell of one thread; where its state is an atomic, it is loaded, shown
//! the evidence, and stored ([`Streak::raw`]).
//!
//! Laws:
//! - policy.P1 A [`Streak`] is due only after as many observations that call for the change as its
//!   *patience* says, in a row ([`observe`](Streak::observe)). So an object changes at most once in
//!   so many observations, whatever its load does. Beside that, the threshold for entering a form
//!   lies above the one for leaving it (hysteresis); both are the mechanism's.
//! - policy.P2 A [`Doubling`] doubles a patience with each failure, up to a bound (exponential
//!   back-off). So a load that reverses each change gets a number of changes that grows with the
//!   logarithm of its length, and at the bound a fixed share.
//! - policy.P3 [`Probes`] tell when an attempt that may fail is made: at once, and after a failure
//!   only once a pause is over, which doubles as in policy.P2. So failures cost a share that
//!   becomes smaller with each of them, down to one attempt in each of the longest pauses.
//! - policy.P4 A [`Trial`] measures two forms one after the other, and keeps the second only if it
//!   does more work in the same time by an eighth. The rate of a form is the second best of five
//!   windows: one in which a thread was preempted tells nothing, nor one in which it was alone, nor
//!   the first after a change of form. The load may have changed in between, so a form that is kept
//!   is doubted: the other one is tried again at once.
//! - policy.P5 A trial that fails is followed by a pause of a hundred times what it has cost: what
//!   it took longer than its work would have taken in the other form; its first window, with the
//!   change of form, counts twice, because the way back costs as much, and a sixteenth of its time
//!   at least. So trials cost at most one percent of the time, the first apart.
//! - policy.P6 While nothing changes, the pause doubles with each failure, up to a bound. A rate
//!   that has changed by a quarter takes the doublings back, but not policy.P5's pause:
//!   so a load that alternates pays no more than that.

mod trial;

pub(crate) use trial::Trial;

/// How often a change was called for in a row.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Streak(u32);

impl Streak {
    pub(crate) const NONE: Self = Self(0);

    /// The streak that [`raw`](Self::raw) gave, for a state that is kept in an atomic.
    #[inline(always)]
    pub(crate) const fn from_raw(raw: u32) -> Self {
        Self(raw)
    }

    /// The number of observations.
    #[inline(always)]
    pub(crate) const fn raw(self) -> u32 {
        self.0
    }

    /// Counts an observation; one that does not call for the change ends the streak.
    #[inline(always)]
    pub(crate) fn observe(&mut self, calls: bool) -> &mut Self {
        self.0 = if calls { self.0.saturating_add(1) } else { 0 };
        self
    }

    /// Whether the change is due (policy.P1). A patience of 0 is one of 1.
    #[inline(always)]
    pub(crate) fn is_due(&self, patience: u32) -> bool {
        self.0 >= patience.max(1)
    }

    /// As [`is_due`](Self::is_due), and if it is, begins again: for a change that is made at once.
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

/// How often a patience or a pause has been doubled (policy.P2).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Doubling(u32);

impl Doubling {
    pub(crate) const NONE: Self = Self(0);

    /// The doublings after so many failures in a row, of which `most` count.
    pub(crate) fn after(failures: u64, most: u32) -> Self {
        Self(u32::try_from(failures).unwrap_or(u32::MAX).min(most))
    }

    /// Doubles once more, but at most `most` times in all.
    pub(crate) fn double(&mut self, most: u32) {
        self.0 = self.0.saturating_add(1).min(most);
    }

    /// `base`, doubled so many times.
    pub(crate) fn of(self, base: u32) -> u32 {
        base.saturating_mul(1_u32.checked_shl(self.0).unwrap_or(u32::MAX))
    }
}

/// How long an attempt rests after a failure.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pauses {
    /// After the first failure.
    pub(crate) first: u32,
    /// After each further one it is twice as long, but doubled at most so many times.
    pub(crate) doublings: u32,
}

/// When an attempt that may fail is due (policy.P3). Time is the mechanism's count of operations,
/// which only increases.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Probes {
    from: u64,
    failures: Doubling,
}

impl Probes {
    /// Whether an attempt may be made now.
    #[inline(always)]
    pub(crate) fn is_due(&self, now: u64) -> bool {
        now >= self.from
    }

    /// An attempt has failed.
    pub(crate) fn failed(&mut self, now: u64, pauses: Pauses) {
        self.from = now + u64::from(self.failures.of(pauses.first));
        self.failures.double(pauses.doublings);
    }

    /// An attempt has succeeded: the next failure is the first again.
    #[inline(always)]
    pub(crate) fn succeeded(&mut self) {
        self.failures = Doubling::NONE;
    }
}

#[cfg(all(test, not(manycore_loom), not(manycore_shuttle)))]
mod tests {
    use super::{Doubling, Pauses, Probes, Streak};
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

    const PAUSES: Pauses = Pauses { first: 10, doublings: 2 };

    #[test]
    fn failed_attempt_rests_twice_as_long_each_time() {
        let mut probes = Probes::default();
        let mut tried = Vec::new();
        for now in 0..150 {
            if probes.is_due(now) {
                tried.push(now);
                probes.failed(now, PAUSES);
            }
        }
        assert_eq!(tried, [0, 10, 30, 70, 110]);
    }

    #[test]
    fn success_shortens_the_pause() {
        let mut probes = Probes::default();
        (0..3).for_each(|_| probes.failed(100, PAUSES));
        assert!(!probes.is_due(139) && probes.is_due(140));
        probes.failed(130, PAUSES);
        probes.succeeded();
        probes.failed(200, PAUSES);
        assert!(!probes.is_due(209) && probes.is_due(210));
    }

    // Streams of evidence as they were recorded on two cores of a Xeon, shortened where the same
    // comes again and again.

    /// Updates per read of a `Deferred`: two threads append and end, then each read finds one
    /// update. Below 8, logs do not pay.
    #[test]
    fn recorded_end_of_a_load_demotes_at_the_eighth_idle_read() {
        let updates = [7494, 4096, 4096, 94, 243, 1, 1, 1, 1, 1, 1, 1, 1];
        let mut idle = Streak::NONE;
        let due: Vec<_> = updates.iter().map(|&new| idle.observe(new < 8).is_due(8)).collect();
        assert_eq!(due.iter().position(|is_due| *is_due), Some(12));
    }

    /// Its biased reads: now and then an updater that was preempted does not answer, 107 times in
    /// 18,983 reads, and never twice in a row.
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
        /// policy.P1: whatever the evidence.
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

        /// policy.P3: whatever fails.
        #[test]
        fn failures_cost_a_bounded_share(
            first in 1_u32..64,
            doublings in 0_u32..8,
            cost in 1_u64..16,
        ) {
            const LENGTH: u64 = 20_000;
            let pauses = Pauses { first, doublings };
            let (mut probes, mut now, mut failed) = (Probes::default(), 0, 0);
            while now < LENGTH {
                if probes.is_due(now) {
                    failed += 1;
                    now += cost;
                    probes.failed(now, pauses);
                } else {
                    now += 1;
                }
            }
            let longest = u64::from(first) << doublings;
            let bound = u64::from(doublings) + 2 + LENGTH / (longest + cost);
            prop_assert!(failed <= bound, "{failed} of at most {bound}");
        }
    }
}
