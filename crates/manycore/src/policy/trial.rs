//! Finds which of two forms is faster, here and now: measures both, and keeps the faster.
//!
//! ```text
//!              measured, and a trial is due         faster by an eighth: it stays
//! form in use ------------------------------> trial ------------------------------> form in use
//!      ^                                        |
//!      +----------------------------------------+
//!          not faster, or slower in the first two windows
//! ```
//!
//! Owns: the measurements, when the next trial is due, and its result. Does not own: the clock (the
//! mechanism passes the time of each window), what a window is, nor the change of form. These
//! belong to the mechanism. The laws are in the parent module (policy.P4 to policy.P6).

use super::Doubling;

/// Windows in a measurement.
const WINDOWS: u32 = 5;
/// Failed trials cost at most one in this many ticks (policy.P5).
const SHARE: u64 = 100;
/// A change of form costs at least one in this many ticks of its trial.
const CHANGE: u64 = 16;
/// Doublings of a pause while nothing changes, at most.
const DOUBLINGS_MAX: u32 = 8;
/// Rates are given as work per this many ticks.
const TICKS: u64 = 1 << 32;

/// See the module header. At the beginning the first form is in use, and a trial of the second is
/// due.
#[derive(Debug, Default)]
pub(crate) struct Trial {
    /// True if the second form is in use.
    is_second: bool,
    /// Windows in this measurement, and the two best rates in them.
    windows: u32,
    best: [u64; 2],
    /// Rate of the other form, while the form in use is on trial.
    before: Option<u64>,
    /// Work in this trial without its first window, and the extra time of that window.
    work: u64,
    change: u64,
    /// Rate with which the form in use was kept.
    kept: u64,
    /// The time; when the next trial is due; and when it is due if the load changes.
    now: u64,
    due: u64,
    due_if_changed: u64,
    failures: Doubling,
    /// True if a trial brought the form in use, and the other form is to be tried again at once.
    /// The load may have changed between the two measurements.
    is_doubted: bool,
}

/// Returns `TICKS` times how often `many` contains `one`.
fn parts(many: u64, one: u64) -> u64 {
    many.saturating_mul(TICKS) / one.max(1)
}

impl Trial {
    /// Returns true if the second form is in use, on trial or for good.
    pub(crate) fn is_second(&self) -> bool {
        self.is_second
    }

    /// Returns true if windows may be longer, because nothing is decided soon.
    pub(crate) fn rests(&self) -> bool {
        self.before.is_none() && self.now < self.due
    }

    /// Forgets the measurement, because another load comes. The next window does not count.
    pub(crate) fn measure_anew(&mut self) {
        (self.windows, self.best) = (0, [0; 2]);
    }

    /// Notes that something else has changed the form. A trial that this ends counts as failed.
    pub(crate) fn force(&mut self, is_second: bool) {
        if let Some(before) = self.before.take() {
            self.end(false, parts(self.work, before), 0); // all of it was in vain
        }
        self.is_second = is_second;
        self.measure_anew();
    }

    /// Notes a window in which a form was in use and did `work` in `ticks`. `may_try` says whether
    /// the window is a reason to try the other form. Returns true if the second form is to be in
    /// use from now on.
    pub(crate) fn note(&mut self, is_second: bool, work: u64, ticks: u64, may_try: bool) -> bool {
        self.now = self.now.saturating_add(ticks);
        self.work = self.work.saturating_add(work);
        if is_second != self.is_second {
            self.force(is_second);
        } else if work == 0 || ticks == 0 || self.before.is_none() && !may_try {
            self.measure_anew();
        } else {
            self.measure(work, ticks);
        }
        self.is_second
    }

    fn measure(&mut self, work: u64, ticks: u64) {
        self.windows += 1;
        if self.windows == 1 {
            // This window has the change of form, and what it leaves behind: cold misses, waiters.
            let usual = self.before.map_or(ticks, |before| parts(work, before));
            (self.work, self.change) = (0, ticks.saturating_sub(usual));
            return;
        }
        let rate = parts(work, ticks);
        let [best, second] = self.best;
        self.best = [best.max(rate), second.max(best.min(rate))];
        let is_measured = self.windows > WINDOWS;
        let [best, second] = self.best;
        let rate = if is_measured { second } else { best };
        match self.before {
            Some(before) if is_measured || self.windows == 3 && rate < before => {
                self.before = None;
                let is_faster = rate > before.saturating_add(before / 8);
                self.end(is_faster, parts(self.work, rate), parts(self.work, before));
                if is_faster {
                    self.kept = rate;
                    self.decide(rate);
                } else {
                    self.kept = before;
                    self.is_second ^= true;
                    self.measure_anew();
                }
            }
            None if is_measured => self.decide(rate),
            _ => {}
        }
    }

    /// Handles a finished measurement of the form in use: begins a trial if one is due, unless the
    /// load has changed.
    fn decide(&mut self, rate: u64) {
        let kept = self.kept;
        self.measure_anew();
        if kept != 0 && rate.abs_diff(kept) > kept / 4 {
            (self.kept, self.failures, self.due) = (rate, Doubling::NONE, self.due_if_changed);
        } else if self.now >= self.due {
            (self.before, self.work, self.change) = (Some(rate), 0, 0);
            self.is_second ^= true;
            return;
        }
        self.windows = 1; // the form stays, so the next window counts
    }

    /// Ends a trial that took `ticks`, and would have taken `usual` in the other form (policy.P5,
    /// policy.P6).
    fn end(&mut self, has_succeeded: bool, ticks: u64, usual: u64) {
        let change = self.change.saturating_mul(2).saturating_add(ticks / CHANGE); // and back
        let cost = ticks.saturating_sub(usual).saturating_add(change);
        self.is_doubted = has_succeeded && !self.is_doubted;
        let pause = if self.is_doubted { 0 } else { cost.saturating_mul(SHARE) };
        self.due_if_changed = self.now.saturating_add(pause);
        let doubled = pause.saturating_mul(self.failures.of(1).into());
        self.due = self.now.saturating_add(doubled);
        match has_succeeded {
            true => self.failures = Doubling::NONE,
            false => self.failures.double(DOUBLINGS_MAX),
        }
    }
}

#[cfg(all(test, not(manycore_loom), not(manycore_shuttle)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A mechanism that obeys a trial, in windows of a hundred units of work.
    #[derive(Default)]
    struct World {
        trial: Trial,
        time: u64,
        windows: u64,
        /// Windows in the second form, and changes of form.
        second: u64,
        changes: u64,
    }

    impl World {
        const WORK: u64 = 100;

        /// Runs windows in which a unit takes `ticks` in each form; `noise` gives each window's
        /// time as a percentage of that.
        fn run_with(&mut self, windows: u64, ticks: [u64; 2], noise: impl Fn(u64) -> u64) {
            for _ in 0..windows {
                let was = self.trial.is_second();
                let usual = ticks[usize::from(was)] * Self::WORK;
                let took = usual * noise(self.windows) / 100;
                self.windows += 1;
                self.time += took;
                self.second += u64::from(was);
                self.changes += u64::from(self.trial.note(was, Self::WORK, took, true) != was);
            }
        }

        fn run(&mut self, windows: u64, ticks: [u64; 2]) -> &mut Self {
            self.run_with(windows, ticks, |_| 100);
            self
        }

        /// Returns the share of windows in the second form, in percent, over that many further
        /// windows.
        fn share(&mut self, windows: u64, ticks: [u64; 2]) -> u64 {
            let before = self.second;
            self.run(windows, ticks);
            (self.second - before) * 100 / windows
        }
    }

    #[test]
    fn first_trial_follows_the_first_measurement_and_its_windows_are_few() {
        let mut world = World::default();
        world.run(6, [100, 50]);
        assert!(world.trial.is_second() && !world.trial.rests());
        world.run(6 + 3, [100, 50]);
        assert!(world.trial.is_second() && world.trial.rests(), "it was doubted, and is kept");
        assert_eq!(world.changes, 3);
        let mut world = World::default();
        world.run(6 + 3, [100, 1000]);
        assert!(!world.trial.is_second(), "a form that is far slower is found out at once");
        assert_eq!((world.second, world.changes), (3, 2));
    }

    #[test]
    fn faster_form_is_found_whatever_was_before() {
        let mut world = World::default();
        for _ in 0..3 {
            for ticks in [[100, 50], [1000, 500]] {
                world.run(20_000, ticks);
                assert!(world.share(20_000, ticks) >= 99);
            }
            for ticks in [[100, 130], [1000, 3000]] {
                world.run(20_000, ticks);
                assert!(world.share(20_000, ticks) <= 1);
            }
        }
    }

    #[test]
    fn form_that_is_hardly_faster_is_not_kept() {
        let mut world = World::default();
        world.run(10_000, [100, 95]);
        assert!(world.share(10_000, [100, 95]) <= 1);
    }

    #[test]
    fn pauses_double_while_nothing_changes_and_a_change_takes_the_doublings_back() {
        let mut world = World::default();
        let mut gaps = Vec::new();
        for _ in 0..14 {
            let began = world.windows;
            let changes = world.changes;
            while world.changes == changes || world.trial.is_second() {
                world.run(1, [100, 200]);
            }
            gaps.push(world.windows - began);
        }
        assert!(gaps[1..6].windows(2).all(|pair| pair[1] > pair[0] * 3 / 2), "{gaps:?}");
        let most = *gaps.last().unwrap();
        assert!(gaps[10..].iter().all(|gap| gap.abs_diff(most) < most / 8), "{gaps:?}");
        let changes = world.changes;
        world.run(most / 8, [1000, 2000]);
        assert!(world.changes > changes, "another load is tried soon");
    }

    #[test]
    fn window_without_work_or_reason_tells_nothing() {
        let mut trial = Trial::default();
        for window in 0..1000 {
            let has_work = window % 4 != 0;
            assert!(!trial.note(false, u64::from(has_work), 100, window % 3 != 0));
        }
        assert!((0..6).any(|_| trial.note(false, 1, 100, true)));
        assert!(
            (0..9).any(|_| !trial.note(true, 1, 200, false)),
            "a trial ends without reason, too"
        );
    }

    #[test]
    fn form_that_cannot_be_had_is_asked_for_ever_more_rarely() {
        let (mut trial, mut asked) = (Trial::default(), Vec::new());
        for window in 0..10_000_u64 {
            if trial.note(false, 100, 100, true) {
                asked.push(window);
            }
        }
        assert!((2..10).contains(&asked.len()), "{asked:?}");
    }

    #[test]
    fn largest_numbers_do_not_overflow() {
        let mut trial = Trial::default();
        for window in 0..100_u64 {
            let most = |at| if window / at % 2 == 0 { u64::MAX } else { 1 };
            trial.note(trial.is_second(), most(1), most(3), true);
        }
    }

    /// Ticks of a pair of changes in windows of 256 reads of an `ActiveSet` under two threads on
    /// two cores. In the windows with large numbers a thread was preempted. In those with small
    /// numbers one thread was not there yet.
    #[test]
    fn recorded_windows_with_preemptions_give_the_rate() {
        let deferred = [411, 402, 2911, 398, 405, 129, 404, 410, 1790, 399];
        let eager = [214, 220, 218, 3004, 221, 96, 217, 219, 2500, 222];
        let (mut trial, mut second) = (Trial::default(), 0);
        for window in 0..2000 {
            let is_second = trial.is_second();
            let ticks = if is_second { eager } else { deferred }[window % 10];
            trial.note(is_second, 1, ticks, true);
            second += u64::from(is_second);
        }
        assert!(second > 1950, "{second} windows of 2000");
    }

    /// Returns a generator of numbers in a range, the same numbers each time.
    fn numbers(mut random: u64) -> impl FnMut(u64, u64) -> u64 {
        move |from, to| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            from + random % (to - from)
        }
    }

    /// policy.P4: finds the faster form, with threads that are preempted, or alone for a while. A
    /// fifth of the windows is wrong, so several trials may be deceived; of 200 loads, few are.
    #[test]
    fn faster_form_is_kept_in_noise() {
        let mut next = numbers(0x9E37_79B9_7F4A_7C15);
        let mut kept = 0;
        for load in 0..200 {
            let (fast, more, is_second) = (next(20, 1000), next(30, 2000), load % 2 == 0);
            let slow = fast + fast * more / 100;
            let ticks = if is_second { [slow, fast] } else { [fast, slow] };
            let noise: [u64; 503] = std::array::from_fn(|_| match next(0, 50) {
                0..39 => next(98, 103),
                39..49 => next(150, 3000),
                _ => next(40, 60),
            });
            let noise = |window| noise[window as usize % 503];
            let mut world = World::default();
            world.run_with(5_000, ticks, noise);
            let before = world.second;
            world.run_with(20_000, ticks, noise);
            let share = (world.second - before) / 200;
            kept += u64::from(if is_second { share >= 85 } else { share <= 15 });
        }
        assert!(kept >= 195, "{kept} of 200");
    }

    /// policy.P6: an alternating load, which may alternate during a trial. That may deceive a
    /// trial. Few of 300 loads lose more than a twentieth by it, and none more than a tenth.
    #[test]
    fn load_that_alternates_costs_little() {
        let mut next = numbers(0x2545_F491_4F6C_DD1D);
        let mut costly = 0;
        for load in 0..300 {
            let (phase, factor, more) = match load {
                0 => (188, 16, 737), // nearly the worst
                _ => (next(60, 3000), next(2, 20), next(20, 1000)),
            };
            let mut world = World::default();
            let (mut best, mut at) = (0, 0);
            while world.windows < 60_000 {
                at += 1;
                let fast = if at % 2 == 0 { 100 } else { 100 * factor };
                world.run(phase, [fast, fast + fast * more / 100]);
                best += phase * World::WORK * fast;
            }
            let lost = world.time - best;
            assert!(lost <= best / 10, "{lost} of {best}: {phase}, {factor}, {more}");
            costly += u64::from(lost > best / 20);
        }
        assert!(costly <= 6, "{costly} of 300 lose more than a twentieth");
    }

    proptest! {
        /// policy.P5, whichever form is slower, and by how much.
        #[test]
        fn trials_cost_at_most_their_share(
            fast in 20_u64..1000,
            more in 0_u64..10_000,
            is_second in any::<bool>(),
        ) {
            let slow = fast + fast * more / 100;
            let ticks = if is_second { [slow, fast] } else { [fast, slow] };
            let mut world = World::default();
            world.run(100, ticks); // the first measurement, and the first trial
            let (time, windows) = (world.time, world.windows);
            world.run(30_000, ticks);
            let best = if is_second && more > 15 { fast } else { ticks[0].min(slow) };
            let best = (world.windows - windows) * World::WORK * best;
            let lost = (world.time - time).saturating_sub(best);
            prop_assert!(lost <= best / 100, "{lost} of {best}");
        }
    }
}
