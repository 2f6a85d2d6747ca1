//! The controller of an object: when it changes its mode.
//!
//! Owns: its state, with no atomics and no clock: the same counts and times give the same
//! decisions. Does not own: thresholds (`policy`), counting, switching; probations (adaptive.A10)
//! are in `probation`.
//!
//! Law adaptive.A11: an object takes logs only if several threads use it: a lock that only one
//! thread takes costs less than a log. Several do if a thread has waited, or if one of the last
//! [`ALONE`] looks was by another thread.
//!
//! Law adaptive.A6: a switch takes so many *looks* in a row that all want the same mode
//! (policy.P1). The threshold for leaving a mode is lower than the one for entering it
//! (hysteresis). An object that returns to the mode that it has just left needs twice as many looks
//! for its next switch, up to 256 times as many (policy.P2); a long period without a switch resets
//! this back-off.

use super::policy::{Mode, Policy, Switch, SwitchReason, Window};
use super::probation::Probation;
use crate::config;
use crate::policy::{Doubling, Streak};
use std::collections::VecDeque;
use std::mem;
use std::time::{Duration, Instant};

/// Looks without a switch after which past flaps are forgotten.
const CALM: u32 = 1024;
/// Looks within which a way back counts as a flap, or twice what the switch takes if that is more.
const FLAP: u32 = 64;
const FLAPS_MAX: u32 = 8;
/// Looks by one thread in a row after which it is taken to be alone.
const ALONE: u32 = 8;
/// Switches that are kept in the history.
const REMEMBERED: usize = 16;

/// See the module header. Guarded by the object's lock.
#[derive(Debug)]
pub(super) struct Controller {
    pub(super) mode: Mode,
    pub(super) pinned: Option<Mode>,
    pub(super) policy: Policy,
    /// Whether a shared object's readers announce themselves by plain stores.
    pub(super) biased: bool,
    /// What was counted under the lock since the last look, where the meter does not count.
    pub(super) window: Window,
    /// The lanes' reads at the last look.
    pub(super) lane_reads: usize,
    probation: Probation,
    /// When the window began.
    since: Option<Instant>,
    /// The mode that the last look wanted, and the looks that did so.
    wanted: Mode,
    streak: Streak,
    /// The mode before the last switch, the looks since, and how often it was a way back.
    left: Mode,
    looks: u32,
    flaps: Doubling,
    /// The thread of the last look, and the looks by one thread (adaptive.A11).
    last_by: usize,
    alone: Streak,
    switches: u64,
    history: VecDeque<Switch>,
}

impl Controller {
    pub(super) fn new(policy: Policy) -> Self {
        Self {
            mode: Mode::Direct,
            pinned: None,
            policy,
            biased: false,
            window: Window::default(),
            lane_reads: 0,
            probation: Probation::new(),
            since: None,
            wanted: Mode::Direct,
            streak: Streak::NONE,
            left: Mode::Direct,
            looks: 0,
            flaps: Doubling::NONE,
            last_by: 0,
            alone: Streak::from_raw(ALONE), // as long as no other thread is seen
            switches: 0,
            history: VecDeque::new(),
        }
    }

    /// Looks at the counts of a window: returns the mode to change to, if a change is due.
    pub(super) fn look(&mut self, window: Window) -> Option<(Mode, SwitchReason)> {
        self.looks = self.looks.saturating_add(1);
        if self.looks > CALM {
            self.flaps = Doubling::NONE;
        }
        let is_alone = self.is_alone(window);
        let (wanted, reason) = match self.pinned {
            Some(pinned) => (pinned, SwitchReason::Pinned),
            None => match self.policy.wants(self.mode, window) {
                (Mode::Logs, _) if is_alone && self.mode != Mode::Logs => {
                    (Mode::Direct, SwitchReason::Mixed)
                }
                other => other,
            },
        };
        if self.pinned.is_none() && (wanted == Mode::Direct || self.probation.is_open()) {
            if let Ok(decided) = self.probation.look(&self.policy, self.mode, window) {
                self.streak.clear();
                return decided;
            }
        }
        if mem::replace(&mut self.wanted, wanted) != wanted {
            self.streak.clear();
        }
        let patience = self.patience();
        let is_due = self.streak.observe(wanted != self.mode).is_due(patience);
        is_due.then_some((wanted, reason))
    }

    /// Whether only one thread seems to use the object (adaptive.A11).
    fn is_alone(&mut self, window: Window) -> bool {
        let before = mem::replace(&mut self.last_by, window.by);
        let is_alone = self.alone.observe(before == window.by || before == 0).is_due(ALONE);
        is_alone && window.waits == 0 && !window.is_waited_for
    }

    /// The time since the last call or change of mode. Models have none.
    pub(super) fn lap(&mut self) -> Duration {
        if config::SMALL {
            return Duration::ZERO;
        }
        let now = Instant::now();
        self.since.replace(now).map_or(Duration::ZERO, |since| now - since)
    }

    /// Looks in a row that the next switch takes.
    fn patience(&self) -> u32 {
        self.flaps.of(self.policy.patience)
    }

    /// Records that the object has changed its mode.
    pub(super) fn switched(&mut self, to: Mode, reason: SwitchReason, window: Window) {
        let from = mem::replace(&mut self.mode, to);
        self.probation.switched(reason, from != to);
        self.since = None;
        if from == to {
            return;
        }
        let is_probation = matches!(
            reason,
            SwitchReason::Probation | SwitchReason::Slower | SwitchReason::Changed
        );
        let soon = FLAP.max(self.patience().saturating_mul(2));
        if to == self.left && self.switches > 0 && self.looks <= soon && !is_probation {
            self.flaps.double(FLAPS_MAX);
        }
        debug_assert!(
            self.history.len() <= REMEMBERED
                && self.history.back().is_none_or(|last| last.to == from),
            "adaptive.A6: a change from {from:?}, which the object was not in"
        );
        self.left = from;
        self.looks = 0;
        self.streak.clear();
        self.window = Window::default();
        self.switches += 1;
        if self.history.len() == REMEMBERED {
            self.history.pop_front();
        }
        let Window { updates, reads, waits, time, .. } = window;
        self.history.push_back(Switch { from, to, reason, updates, reads, waits, time });
    }

    pub(super) fn history(&self) -> (u64, Vec<Switch>) {
        (self.switches, self.history.iter().copied().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::super::policy::{Mode, Policy, SwitchReason, Window};
    use super::{ALONE, Controller};

    /// The window of a contended object.
    fn counted(updates: u64, reads: u64) -> Window {
        Window { updates, reads, waits: 1, ..Window::default() }
    }

    fn policy() -> Policy {
        Policy {
            logs_from: 20,
            logs_below: 10,
            shared_from: 20,
            shared_below: 10,
            biased_from: 100,
            patience: 2,
            ..Policy::default()
        }
    }

    #[test]
    fn switch_takes_looks_in_a_row() {
        let mut control = Controller::new(policy());
        assert_eq!(control.look(counted(100, 0)), None);
        assert_eq!(control.look(counted(5, 5)), None);
        assert_eq!(control.look(counted(100, 0)), None);
        assert_eq!(control.look(counted(100, 0)), Some((Mode::Logs, SwitchReason::Updates)));
    }

    #[test]
    fn load_that_alternates_slows_down_its_switches() {
        let mut control = Controller::new(policy());
        let mut updating = true;
        for _ in 0..10_000 {
            // Just long enough for the object to follow, each time.
            let window = if updating { counted(100, 0) } else { counted(5, 5) };
            if let Some((to, reason)) = control.look(window) {
                control.switched(to, reason, window);
                updating = !updating;
            }
        }
        let (switches, history) = control.history();
        assert!(switches < 60, "{switches} switches in 10,000 looks");
        assert_eq!(history.len(), 16);
    }

    #[test]
    fn one_thread_alone_never_gets_logs_and_two_do() {
        let by = |by| Window { updates: 1000, by, ..Window::default() };
        let mut control = Controller::new(policy());
        assert!((0..1000).all(|_| control.look(by(1)).is_none()));
        assert_eq!(control.look(by(2)), None);
        assert_eq!(control.look(by(2)), Some((Mode::Logs, SwitchReason::Updates)));

        // The other thread has gone before the switch was due.
        let mut control = Controller::new(Policy { patience: ALONE + 1, ..policy() });
        let looks = [1, 2].into_iter().chain([2; 100]);
        assert!(looks.into_iter().all(|thread| control.look(by(thread)).is_none()));
        assert_eq!((0..20).find_map(|turn| control.look(by(turn % 2 + 1))).unwrap().0, Mode::Logs);

        // The mode stays when all threads but one have gone: no thread waits for a log.
        control.switched(Mode::Logs, SwitchReason::Updates, by(1));
        assert!((0..100).all(|_| control.look(by(1)).is_none()));
    }

    #[test]
    fn pinned_object_goes_back_to_its_pin() {
        let mut control = Controller::new(policy());
        control.pinned = Some(Mode::Shared);
        control.look(counted(100, 0));
        assert_eq!(control.look(counted(100, 0)), Some((Mode::Shared, SwitchReason::Pinned)));
    }
}
