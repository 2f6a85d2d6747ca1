//! Trials: is a neighbouring mode faster? For loads whose ratio of reads to updates does not
//! decide.
//!
//! Owns: the measurements, and when the next trial is due. Does not own: the clock (windows carry
//! their time), nor switching.
//!
//! Law adaptive.A10: where an object stays a lock by its ratio, but is contended and the ratio is
//! not even, the mode on that side is tried: it stays if it makes so many percent more operations
//! in the same time, and otherwise the lock comes back. The interval to the next trial doubles
//! after each failed one, so that trials cost some percent at first and less and less later.
//! Failures are forgotten one by one: after a long time without waiters, because threads that come
//! and go, or are preempted, look like that as well; and sooner when the rate under contention is
//! half or twice that of the last trial, which is another load. A mode that was kept by a trial is
//! left when the ratio leaves the range, or when its rate is half or twice what it was; that counts
//! as a failure too, which is forgotten if the mode has been kept for long.
//!
//! Rates are the best of some windows each, because a window in which a thread was preempted tells
//! nothing.

use super::policy::{Mode, Policy, Why, Window};

/// Looks that measure the lock before a trial.
const BEFORE: u32 = 4;
/// Looks that a trial takes; the first, with its cold misses, is not counted.
const LOOKS: u32 = 6;
/// Looks between a failed trial and the next, doubled for each further one.
const REST: u32 = 256;
const FAILED_MAX: u32 = 14;
/// Looks in a row at another rate that void the result of a trial.
const OFF: u32 = 8;
/// Looks in a row without a reason for a trial, or with one at another rate, after which a failure
/// is forgotten; doubled for each failure...
const CALM: u32 = 1024;
/// ...but at most so many times without a reason...
const PAUSES_DOUBLED_MAX: u32 = 12;
/// ...and so many times at another rate.
const OTHERS_DOUBLED_MAX: u32 = 6;
/// Operations of a window that had to wait, from which a trial may be worth it.
const WAITS: u32 = 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// No trial, and the mode is the one that the ratio calls for.
    Ratio,
    /// A trial is under way; the rate before it.
    Tries(u64),
    /// The mode was kept at that rate.
    Kept(u64),
}

#[derive(Debug)]
pub(super) struct Trial {
    state: State,
    /// The best rate of the looks in this state.
    best: u64,
    looks: u32,
    rest: u32,
    failed: u32,
    /// The lock's rate before the last trial.
    tried_rate: u64,
    /// Looks in a row without a reason...
    pauses: u32,
    /// ...and with one at another rate.
    others: u32,
    /// Looks in which a mode was kept.
    kept: u32,
}

/// Whether a rate is at most half or at least twice another.
fn is_another(now: u64, rate: u64) -> bool {
    now < rate / 2 || now / 2 > rate
}

impl Window {
    /// Operations in a second; 0 if there was no clock.
    fn rate(self) -> u64 {
        let operations = u128::from(self.updates + self.reads) * 1_000_000_000;
        operations.checked_div(self.time.as_nanos()).map_or(0, |rate| rate as u64)
    }
}

impl Policy {
    /// The mode that may be better than a lock at this ratio, if it is at least `from`.
    fn side(window: Window, from: u32) -> Option<Mode> {
        let Window { updates, reads, .. } = window;
        let at_least = |many: u64, few: u64| many >= few.saturating_mul(u64::from(from.max(2)));
        if at_least(updates, reads) {
            Some(Mode::Logs)
        } else if at_least(reads, updates) {
            Some(Mode::Shared)
        } else {
            None
        }
    }

    /// The mode that this window of a locked object is a reason to try.
    pub(super) fn tries(&self, window: Window) -> Option<Mode> {
        let is_contended = window.is_waited_for || window.waits >= WAITS;
        if is_contended { Self::side(window, self.try_from) } else { None }
    }

    /// Whether this window leaves a plain lock as it is.
    pub(super) fn is_content(&self, window: Window) -> bool {
        self.wants(Mode::Direct, window).0 == Mode::Direct && self.tries(window).is_none()
    }
}

impl Trial {
    pub(super) fn new() -> Self {
        Self {
            state: State::Ratio,
            best: 0,
            looks: 0,
            rest: 0,
            failed: 0,
            tried_rate: 0,
            pauses: 0,
            others: 0,
            kept: 0,
        }
    }

    /// Whether a trial is under way, or has decided on the mode.
    pub(super) fn is_open(&self) -> bool {
        self.state != State::Ratio
    }

    /// A look at an object that its ratio would leave or make a lock, or whose mode was decided by
    /// a trial: returns what to change to at once, or `Err` if trials do not apply.
    pub(super) fn look(
        &mut self,
        policy: &Policy,
        mode: Mode,
        window: Window,
    ) -> Result<Option<(Mode, Why)>, ()> {
        match self.state {
            State::Ratio if mode == Mode::Direct => Ok(self.look_direct(policy, window)),
            State::Ratio => Err(()),
            _ if policy.wants(Mode::Direct, window).0 == mode => {
                self.enter(State::Ratio); // nothing is left to find out
                Err(())
            }
            _ if Policy::side(window, policy.try_from / 2) != Some(mode) => {
                self.enter(State::Ratio);
                Err(())
            }
            State::Tries(before) => Ok(self.look_tries(policy, mode, window, before)),
            State::Kept(rate) => {
                self.kept += 1;
                if self.kept >= CALM << self.failed.min(OTHERS_DOUBLED_MAX) {
                    self.kept = 0;
                    self.failed = self.failed.saturating_sub(1);
                }
                let now = window.rate();
                self.looks = if is_another(now, rate) { self.looks + 1 } else { 0 };
                Ok((self.looks >= OFF).then_some((Mode::Direct, Why::Changed)))
            }
        }
    }

    fn look_direct(&mut self, policy: &Policy, window: Window) -> Option<(Mode, Why)> {
        self.rest = self.rest.saturating_sub(1);
        let reason = policy.tries(window).filter(|_| window.rate() != 0);
        let is_other = reason.is_some() && is_another(window.rate(), self.tried_rate);
        self.pauses = if reason.is_none() { self.pauses + 1 } else { 0 };
        self.others = if is_other { self.others + 1 } else { 0 };
        if self.pauses >= CALM << self.failed.min(PAUSES_DOUBLED_MAX)
            || self.others >= CALM << self.failed.min(OTHERS_DOUBLED_MAX)
        {
            (self.pauses, self.others) = (0, 0);
            self.failed = self.failed.saturating_sub(1);
            self.rest = self.rest.min(REST << self.failed);
        }
        let Some(side) = reason else {
            (self.best, self.looks) = (0, 0);
            return None;
        };
        self.measure(window);
        (self.looks >= BEFORE && self.rest == 0).then_some((side, Why::Trial))
    }

    fn look_tries(
        &mut self,
        policy: &Policy,
        mode: Mode,
        window: Window,
        before: u64,
    ) -> Option<(Mode, Why)> {
        if self.looks == 0 {
            self.looks = 1;
            return None;
        }
        self.measure(window);
        let hopeless = self.looks > 2 && self.best < before / 2;
        if self.looks < LOOKS && !hopeless {
            return None;
        }
        let enough = before.saturating_add(before / 100 * u64::from(policy.try_gain));
        if self.best >= enough {
            let rate = self.best;
            self.enter(State::Kept(rate));
            self.kept = 0;
            return None;
        }
        debug_assert_ne!(mode, Mode::Direct);
        Some((Mode::Direct, Why::Slower))
    }

    fn measure(&mut self, window: Window) {
        self.best = self.best.max(window.rate());
        self.looks += 1;
    }

    fn enter(&mut self, state: State) {
        (self.state, self.best, self.looks) = (state, 0, 0);
    }

    /// The object has changed its mode, or could not.
    pub(super) fn switched(&mut self, why: Why, changed: bool) {
        let was = std::mem::replace(&mut self.state, State::Ratio);
        if why == Why::Trial {
            self.tried_rate = self.best;
            if changed {
                self.enter(State::Tries(self.tried_rate));
                return;
            }
        }
        if matches!(why, Why::Trial | Why::Changed) || matches!(was, State::Tries(_)) {
            self.rest = REST << self.failed;
            self.failed = (self.failed + 1).min(FAILED_MAX);
        }
        self.enter(State::Ratio);
    }
}

#[cfg(test)]
mod tests {
    use super::super::policy::Control;
    use super::{Mode, Policy, Why, Window};
    use std::time::Duration;

    /// An object under a load: operations per second in each mode, and what a window counts.
    struct World {
        control: Control,
        updates: u64,
        reads: u64,
        waits: u32,
        waited_for: bool,
        rates: [u64; 3],
        /// Simulated time, and the operations made in it.
        spent: Duration,
        made: u64,
    }

    impl World {
        fn new(updates: u64, reads: u64, rates: [u64; 3]) -> Self {
            Self {
                control: Control::new(Policy::default()),
                updates,
                reads,
                waits: 15,
                waited_for: false,
                rates,
                spent: Duration::ZERO,
                made: 0,
            }
        }

        fn run(&mut self, looks: u32) {
            for _ in 0..looks {
                let rate = self.rates[self.control.mode as usize];
                // A look comes after 1,024 of the more frequent kind, or 32 of the rarer.
                let most = self.updates.max(self.reads);
                let least = self.updates.min(self.reads).max(1);
                let is_lock = self.control.mode == Mode::Direct;
                let times = if is_lock { 1024 * 8 / most } else { 256 / least };
                let (updates, reads) = (self.updates * times / 8, self.reads * times / 8);
                let time = Duration::from_nanos((updates + reads) * 1_000_000_000 / rate);
                let waits = if is_lock { self.waits } else { 0 };
                let is_waited_for = is_lock && self.waited_for;
                let window = Window { updates, reads, waits, is_waited_for, by: 1, time };
                self.spent += time;
                self.made += updates + reads;
                if let Some((to, why)) = self.control.look(window) {
                    self.control.switched(to, why, window);
                }
            }
        }

        fn whys(&self) -> Vec<Why> {
            self.control.history().1.iter().map(|switch| switch.why).collect()
        }
    }

    const M: u64 = 1_000_000;

    #[test]
    fn faster_neighbour_is_found_and_kept() {
        for (updates, reads, mode) in [(9, 1, Mode::Logs), (1, 9, Mode::Shared)] {
            let mut world = World::new(updates, reads, [M, 3 * M, 3 * M]);
            world.run(5_000);
            assert_eq!((world.control.mode, world.whys()), (mode, vec![Why::Trial]));
        }
    }

    #[test]
    fn slower_neighbour_costs_less_and_less() {
        let mut world = World::new(9, 1, [10 * M, M, M]);
        world.run(2_000);
        assert_eq!(world.whys()[..2], [Why::Trial, Why::Slower]);
        world.run(100_000);
        let (switches, _) = world.control.history();
        assert!(switches <= 20, "{switches} switches");
        let ideal = world.made as f64 / (10 * M) as f64;
        let lost = world.spent.as_secs_f64() / ideal - 1.0;
        assert!(lost < 0.02, "{lost} of the time lost");
        assert_eq!(world.control.mode, Mode::Direct);
    }

    #[test]
    fn neighbour_that_is_hardly_faster_is_not_kept() {
        let mut world = World::new(9, 1, [10 * M, 11 * M, M]);
        world.run(100_000);
        assert_eq!(world.control.mode, Mode::Direct);
        let (switches, _) = world.control.history();
        assert!(switches <= 20, "{switches} switches");
    }

    #[test]
    fn without_waits_or_at_an_even_ratio_nothing_is_tried() {
        let mut world = World::new(9, 1, [M, 3 * M, 3 * M]);
        world.waits = 2;
        world.run(5_000);
        assert!(world.whys().is_empty());
        let mut world = World::new(2, 1, [M, 3 * M, 3 * M]);
        world.run(5_000);
        assert!(world.whys().is_empty());
    }

    #[test]
    fn what_a_trial_found_ends_with_its_load() {
        let mut world = World::new(9, 1, [M, 3 * M, 3 * M]);
        world.run(1_000);
        assert_eq!(world.control.mode, Mode::Logs);
        // Threads have gone: no thread waits, and a lock would be faster.
        (world.waits, world.rates) = (0, [20 * M, M, M]);
        world.run(1_000);
        assert_eq!(
            (world.control.mode, world.whys()),
            (Mode::Direct, vec![Why::Trial, Why::Changed])
        );
        // The ratio has become even: back by the ratio.
        let mut world = World::new(9, 1, [M, 3 * M, 3 * M]);
        world.run(1_000);
        (world.updates, world.reads) = (1, 1);
        world.run(1_000);
        assert_eq!(
            (world.control.mode, world.whys()),
            (Mode::Direct, vec![Why::Trial, Why::Mixed])
        );
    }

    #[test]
    fn one_that_always_waits_is_a_reason_though_few_waits_end() {
        let mut world = World::new(1, 9, [M, M, 3 * M]);
        (world.waits, world.waited_for) = (0, true);
        world.run(100);
        assert_eq!((world.control.mode, world.whys()), (Mode::Shared, vec![Why::Trial]));
    }

    /// At 200 updates a read the lock's threshold is not reached, and that of the logs not left.
    #[test]
    fn trial_between_the_borders_is_judged_too() {
        let mut world = World::new(200, 1, [10 * M, M, M]);
        world.run(1_000);
        assert_eq!(world.whys()[..2], [Why::Trial, Why::Slower]);
        assert_eq!(world.control.mode, Mode::Direct);
    }

    #[test]
    fn mode_that_the_ratio_asks_for_needs_no_trial() {
        let mut world = World::new(300, 1, [10 * M, M, M]);
        world.run(1_000);
        assert_eq!((world.control.mode, world.whys()), (Mode::Logs, vec![Why::Updates]));
    }

    #[test]
    fn load_that_changes_again_and_again_does_not_flap() {
        let mut world = World::new(9, 1, [10 * M, M, M]);
        for phase in 0..1_000 {
            world.waits = if phase % 2 == 0 { 15 } else { 0 };
            world.run(100);
        }
        let (switches, _) = world.control.history();
        assert!(switches <= 20, "{switches} switches in 100,000 looks");
        // The same with long pauses, as where threads take turns on the cores.
        for phase in 0..200 {
            world.waits = if phase % 2 == 0 { 15 } else { 0 };
            world.run(2_000);
        }
        let (switches, _) = world.control.history();
        assert!(switches <= 30, "{switches} switches in 500,000 looks");
    }

    /// As where threads are preempted: the kept mode seems to be slower again soon after.
    #[test]
    fn mode_that_is_kept_and_lost_again_and_again_does_not_flap() {
        let mut world = World::new(1, 9, [M, M, 3 * M]);
        for _ in 0..2_000 {
            world.rates[2] = 3 * M;
            world.run(40);
            world.rates[2] = M;
            world.run(40);
        }
        let (switches, _) = world.control.history();
        assert!(switches <= 30, "{switches} switches in 160,000 looks");
    }

    #[test]
    fn another_load_is_tried_soon_though_many_trials_were_in_vain() {
        let mut world = World::new(9, 1, [10 * M, M, M]);
        world.run(50_000);
        assert_eq!(world.control.mode, Mode::Direct);
        world.rates = [M, 3 * M, M];
        world.run(300_000);
        assert_eq!(world.control.mode, Mode::Logs);
    }
}
