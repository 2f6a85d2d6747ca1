//! Probation: is a neighbouring mode faster? For loads whose ratio of reads to updates does not
//! decide.
//!
//! Owns: the measurements, and when the next probation is due. Does not own: the clock (windows
//! carry their time), nor switching.
//!
//! Law adaptive.A10: where an object stays a lock by its ratio, but is contended and the ratio is
//! not even, the mode on that side is put on probation: it stays if it makes so many percent more
//! operations in the same time, and otherwise the lock comes back. The interval to the next
//! probation doubles after each failed one (policy.P3), so that they cost some percent at first and
//! less and less later. Failures are forgotten one by one: after a long time without waiters,
//! because threads that come and go, or are preempted, look like that as well; and sooner when the
//! rate under contention is half or twice that of the last probation, which is another load. A mode
//! that was kept is left when the ratio leaves the range, or when its rate is half or twice what it
//! was; that counts as a failure too, which is forgotten if the mode has been kept for long.
//!
//! Rates are the best of some windows each, because a window in which a thread was preempted tells
//! nothing.

use super::policy::{Mode, Policy, SwitchReason, Window};
use crate::policy::{Pauses, Probes, Streak};
use std::mem;

/// Looks that measure the lock before a probation.
const BEFORE: u32 = 4;
/// Looks that a probation takes; the first, with its cold misses, is not counted.
const LOOKS: u32 = 6;
/// Looks at a locked object between a failed probation and the next.
const PAUSES: Pauses = Pauses { first: 256, doublings: 14 };
/// Looks in a row at another rate that void the result of a probation.
const OFF: u32 = 8;
/// Looks in a row without a reason for a probation, or with one at another rate, after which a
/// failure is forgotten; doubled for each failure...
const CALM: u32 = 1024;
/// ...but at most so many times without a reason...
const PAUSES_DOUBLED_MAX: u32 = 12;
/// ...and so many times at another rate.
const OTHERS_DOUBLED_MAX: u32 = 6;

#[derive(Debug, Clone, Copy)]
enum State {
    /// The mode is the one that the ratio calls for.
    Ratio,
    /// The mode is on probation; the lock's rate before it.
    OnProbation { before: u64 },
    /// The mode was kept, at that rate. The looks since, and those at another rate.
    Kept { rate: u64, kept: Streak, changed: Streak },
}

#[derive(Debug)]
pub(super) struct Probation {
    state: State,
    /// The best rate of the looks in this state, and their number.
    best: u64,
    looks: u32,
    /// When the next one is due, in looks at the locked object.
    probes: Probes,
    now: u64,
    /// The lock's rate before the last one.
    tried_rate: u64,
    /// Looks without a reason...
    calm: Streak,
    /// ...and with one at another rate.
    others: Streak,
}

/// Whether a rate is at most half or at least twice another.
fn is_another(now: u64, rate: u64) -> bool {
    now < rate / 2 || now / 2 > rate
}

impl Probation {
    pub(super) fn new() -> Self {
        Self {
            state: State::Ratio,
            best: 0,
            looks: 0,
            probes: Probes::NONE,
            now: 0,
            tried_rate: 0,
            calm: Streak::NONE,
            others: Streak::NONE,
        }
    }

    /// Whether a mode is on probation, or was kept after one.
    pub(super) fn is_open(&self) -> bool {
        !matches!(self.state, State::Ratio)
    }

    /// A look at an object that its ratio would leave or make a lock, or whose mode was decided by
    /// a probation: returns what to change to at once, or `Err` if probations do not apply.
    pub(super) fn look(
        &mut self,
        policy: &Policy,
        mode: Mode,
        window: Window,
    ) -> Result<Option<(Mode, SwitchReason)>, ()> {
        let ends = || {
            policy.wants(Mode::Direct, window).0 == mode // nothing is left to find out
                || Policy::side(window, policy.try_from / 2) != Some(mode)
        };
        match &mut self.state {
            State::Ratio if mode == Mode::Direct => Ok(self.look_direct(policy, window)),
            State::Ratio => Err(()),
            _ if ends() => {
                self.enter(State::Ratio);
                Err(())
            }
            State::OnProbation { before } => {
                let before = *before;
                Ok(self.look_on_probation(policy, mode, window, before))
            }
            State::Kept { rate, kept, changed } => {
                let patience = self.probes.failures().of_at_most(CALM, OTHERS_DOUBLED_MAX);
                if kept.observe(true).take(patience) {
                    self.probes.forgive(self.now, PAUSES);
                }
                let is_off = changed.observe(is_another(window.rate(), *rate)).is_due(OFF);
                Ok(is_off.then_some((Mode::Direct, SwitchReason::Changed)))
            }
        }
    }

    fn look_direct(&mut self, policy: &Policy, window: Window) -> Option<(Mode, SwitchReason)> {
        self.now += 1;
        let reason = policy.tries(window).filter(|_| window.rate() != 0);
        let is_other = reason.is_some() && is_another(window.rate(), self.tried_rate);
        let failures = self.probes.failures();
        let patience = |most| failures.of_at_most(CALM, most);
        let is_calm = self.calm.observe(reason.is_none()).is_due(patience(PAUSES_DOUBLED_MAX));
        if self.others.observe(is_other).is_due(patience(OTHERS_DOUBLED_MAX)) || is_calm {
            self.calm.clear();
            self.others.clear();
            self.probes.forgive(self.now, PAUSES);
        }
        let Some(side) = reason else {
            (self.best, self.looks) = (0, 0);
            return None;
        };
        self.measure(window);
        let is_due = self.looks >= BEFORE && self.probes.is_due(self.now);
        is_due.then_some((side, SwitchReason::Probation))
    }

    fn look_on_probation(
        &mut self,
        policy: &Policy,
        mode: Mode,
        window: Window,
        before: u64,
    ) -> Option<(Mode, SwitchReason)> {
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
            self.enter(State::Kept { rate, kept: Streak::NONE, changed: Streak::NONE });
            return None;
        }
        debug_assert_ne!(mode, Mode::Direct, "adaptive.A10: the lock is on probation");
        Some((Mode::Direct, SwitchReason::Slower))
    }

    fn measure(&mut self, window: Window) {
        self.best = self.best.max(window.rate());
        self.looks += 1;
    }

    fn enter(&mut self, state: State) {
        (self.state, self.best, self.looks) = (state, 0, 0);
    }

    /// The object has changed its mode, or could not.
    pub(super) fn switched(&mut self, reason: SwitchReason, changed: bool) {
        let was = mem::replace(&mut self.state, State::Ratio);
        let begins = reason == SwitchReason::Probation;
        if begins {
            self.tried_rate = self.best;
            if changed {
                self.enter(State::OnProbation { before: self.tried_rate });
                return;
            }
        }
        let is_kept_no_more = reason == SwitchReason::Changed;
        if begins || is_kept_no_more || matches!(was, State::OnProbation { .. }) {
            self.probes.failed(self.now, PAUSES);
        }
        self.enter(State::Ratio);
    }
}

#[cfg(test)]
mod tests {
    use super::super::controller::Controller;
    use super::{Mode, Policy, SwitchReason, Window};
    use std::time::Duration;

    /// An object under a load: operations per second in each mode, and what a window counts.
    struct World {
        control: Controller,
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
                control: Controller::new(Policy::default()),
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
                if let Some((to, reason)) = self.control.look(window) {
                    self.control.switched(to, reason, window);
                }
            }
        }

        fn reasons(&self) -> Vec<SwitchReason> {
            self.control.history().1.iter().map(|switch| switch.reason).collect()
        }
    }

    const M: u64 = 1_000_000;

    #[test]
    fn faster_neighbour_is_found_and_kept() {
        for (updates, reads, mode) in [(9, 1, Mode::Logs), (1, 9, Mode::Shared)] {
            let mut world = World::new(updates, reads, [M, 3 * M, 3 * M]);
            world.run(5_000);
            assert_eq!(
                (world.control.mode, world.reasons()),
                (mode, vec![SwitchReason::Probation])
            );
        }
    }

    #[test]
    fn slower_neighbour_costs_less_and_less() {
        let mut world = World::new(9, 1, [10 * M, M, M]);
        world.run(2_000);
        assert_eq!(world.reasons()[..2], [SwitchReason::Probation, SwitchReason::Slower]);
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
        assert!(world.reasons().is_empty());
        let mut world = World::new(2, 1, [M, 3 * M, 3 * M]);
        world.run(5_000);
        assert!(world.reasons().is_empty());
    }

    #[test]
    fn what_a_probation_found_ends_with_its_load() {
        let mut world = World::new(9, 1, [M, 3 * M, 3 * M]);
        world.run(1_000);
        assert_eq!(world.control.mode, Mode::Logs);
        // Threads have gone: no thread waits, and a lock would be faster.
        (world.waits, world.rates) = (0, [20 * M, M, M]);
        world.run(1_000);
        assert_eq!(
            (world.control.mode, world.reasons()),
            (Mode::Direct, vec![SwitchReason::Probation, SwitchReason::Changed])
        );
        // The ratio has become even: back by the ratio.
        let mut world = World::new(9, 1, [M, 3 * M, 3 * M]);
        world.run(1_000);
        (world.updates, world.reads) = (1, 1);
        world.run(1_000);
        assert_eq!(
            (world.control.mode, world.reasons()),
            (Mode::Direct, vec![SwitchReason::Probation, SwitchReason::Mixed])
        );
    }

    #[test]
    fn one_that_always_waits_is_a_reason_though_few_waits_end() {
        let mut world = World::new(1, 9, [M, M, 3 * M]);
        (world.waits, world.waited_for) = (0, true);
        world.run(100);
        assert_eq!(
            (world.control.mode, world.reasons()),
            (Mode::Shared, vec![SwitchReason::Probation])
        );
    }

    /// At 200 updates a read the lock's threshold is not reached, and that of the logs not left.
    #[test]
    fn probation_between_the_borders_is_judged_too() {
        let mut world = World::new(200, 1, [10 * M, M, M]);
        world.run(1_000);
        assert_eq!(world.reasons()[..2], [SwitchReason::Probation, SwitchReason::Slower]);
        assert_eq!(world.control.mode, Mode::Direct);
    }

    #[test]
    fn mode_that_the_ratio_asks_for_needs_no_probation() {
        let mut world = World::new(300, 1, [10 * M, M, M]);
        world.run(1_000);
        assert_eq!(
            (world.control.mode, world.reasons()),
            (Mode::Logs, vec![SwitchReason::Updates])
        );
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
    fn another_load_is_tried_soon_though_many_probations_failed() {
        let mut world = World::new(9, 1, [10 * M, M, M]);
        world.run(50_000);
        assert_eq!(world.control.mode, Mode::Direct);
        world.rates = [M, 3 * M, M];
        world.run(300_000);
        assert_eq!(world.control.mode, Mode::Logs);
    }
}
