//! The policy: which mode an object should be in.
//!
//! Owns: the policy and its state, with no atomics and no clock: the same counts and times give the
//! same decisions. Does not own: counting, switching; trials (adaptive.A10) are in `trial`.
//!
//! Law adaptive.A11: an object takes logs only if several threads use it: a lock that only one
//! thread takes costs less than a log. Several do if a thread has waited, or if one of the last
//! [`ALONE`] looks was by another thread.
//!
//! Law adaptive.A6: a switch takes so many *looks* in a row that all want the same mode. The
//! threshold for leaving a mode is lower than the one for entering it (hysteresis). An object that
//! returns to the mode that it has just left needs twice as many looks for its next switch, up to
//! 256 times as many; a long period without a switch resets this back-off.

use super::trial::Trial;
use crate::config;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The mode of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// A value behind a lock. Every object begins in this mode.
    Direct,
    /// Updates are appended to logs, a read merges them: [`Deferred`](crate::oplog::Deferred) while
    /// hot.
    Logs,
    /// Readers read in parallel, each writing a line of its own; an update keeps them out.
    Shared,
}

/// Why an object changed its mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Why {
    /// There were many updates for each read.
    Updates,
    /// There were many reads for each update.
    Reads,
    /// Neither was true any more.
    Mixed,
    /// A busier object took its slot in the table of logs.
    Evicted,
    /// An update panicked, so no thread may read.
    Poisoned,
    /// The caller asked for it ([`Adaptive::pin`](super::Adaptive::pin)).
    Pinned,
    /// A trial under contention, at a ratio that does not decide: is this mode faster?
    Trial,
    /// The mode under trial was not faster, or not by enough.
    Slower,
    /// The mode under trial was kept, but then the rate of operations doubled or halved: another
    /// load.
    Changed,
}

/// One change of mode, with the counts that decided it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Switch {
    /// The mode before.
    pub from: Mode,
    /// The mode since.
    pub to: Mode,
    /// The reason.
    pub why: Why,
    /// Updates in the last window before the change.
    pub updates: u64,
    /// Reads in that window.
    pub reads: u64,
    /// Operations of that window that had to wait for the lock, as far as they were counted.
    pub waits: u32,
    /// How long that window was; zero if the time was not taken. For a trial and its outcome, this
    /// gives the rates that decided.
    pub time: Duration,
}

/// When an [`Adaptive`](super::Adaptive) object changes its mode.
///
/// The defaults are what `manycore bench adaptive-sweep` found on two cores of a Xeon and of an
/// EPYC, and on 6 to 48 virtual ones.
///
/// ```
/// use manycore::cluster::adaptive::Policy;
///
/// let eager = Policy { patience: 1, ..Policy::default() };
/// assert!(eager.logs_below < eager.logs_from);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// Updates for each read from which an object takes logs, if several threads use it.
    pub logs_from: u32,
    /// Updates for each read below which it leaves them.
    pub logs_below: u32,
    /// Reads for each update from which an object lets readers in concurrently.
    pub shared_from: u32,
    /// Reads for each update below which it leaves that mode.
    pub shared_below: u32,
    /// Reads for each update from which readers announce themselves by plain stores, and updates
    /// call `membarrier` for that; below half of it, each read costs a locked instruction.
    pub biased_from: u32,
    /// Looks in a row that must want the same change, before it is made.
    pub patience: u32,
    /// Updates for each read, or reads for each update, from which a contended lock is replaced on
    /// trial by the mode for that side, to see whether it is faster; `u32::MAX` for never.
    pub try_from: u32,
    /// How many percent more operations per time the mode under trial must make to stay.
    pub try_gain: u32,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            logs_from: config::LOGS_FROM,
            logs_below: config::LOGS_FROM / 2,
            shared_from: config::SHARED_FROM,
            shared_below: config::SHARED_FROM / 2,
            biased_from: config::BIASED_FROM,
            patience: config::PATIENCE,
            try_from: config::TRY_FROM,
            try_gain: config::TRY_GAIN,
        }
    }
}

/// What was counted since the last look.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Window {
    pub(super) updates: u64,
    pub(super) reads: u64,
    pub(super) waits: u32,
    /// Whether a thread was waiting for the lock at the end of the window: a running thread that
    /// locks again and again lets few others in, so waits that ended may be few.
    pub(super) is_waited_for: bool,
    /// The thread that looks.
    pub(super) by: usize,
    pub(super) time: Duration,
}

impl Policy {
    /// The mode that this window calls for, of an object that is in `mode`.
    pub(super) fn wants(&self, mode: Mode, window: Window) -> (Mode, Why) {
        let Window { updates, reads, .. } = window;
        let logs = if mode == Mode::Logs { self.logs_below } else { self.logs_from };
        let shared = if mode == Mode::Shared { self.shared_below } else { self.shared_from };
        if updates >= reads.saturating_mul(u64::from(logs)) && updates > reads {
            (Mode::Logs, Why::Updates)
        } else if reads >= updates.saturating_mul(u64::from(shared)) && reads > updates {
            (Mode::Shared, Why::Reads)
        } else {
            (Mode::Direct, Why::Mixed)
        }
    }

    /// Whether readers should announce themselves by plain stores.
    pub(super) fn wants_bias(&self, biased: bool, window: Window) -> bool {
        let from = if biased { self.biased_from / 2 } else { self.biased_from };
        window.reads >= window.updates.max(1).saturating_mul(u64::from(from))
    }
}

/// Looks without a switch after which past flaps are forgotten.
const CALM: u32 = 1024;
/// Looks within which a way back counts as a flap, or twice what the switch takes if that is more.
const FLAP: u32 = 64;
const FLAPS_MAX: u32 = 8;
/// Looks by one thread in a row after which it is taken to be alone.
const ALONE: u32 = 8;
/// Switches that are kept in the history.
const REMEMBERED: usize = 16;

/// The state of an object's policy. Guarded by the object's lock.
#[derive(Debug)]
pub(super) struct Control {
    pub(super) mode: Mode,
    pub(super) pinned: Option<Mode>,
    pub(super) policy: Policy,
    /// Whether a shared object's readers announce themselves by plain stores.
    pub(super) biased: bool,
    /// What was counted under the lock since the last look, where the meter does not count.
    pub(super) window: Window,
    /// The lanes' reads at the last look.
    pub(super) lane_reads: usize,
    trial: Trial,
    /// When the window began.
    since: Option<Instant>,
    wanted: Mode,
    streak: u32,
    looks: u32,
    left: Mode,
    flaps: u32,
    /// The thread of the last look, and how many looks ago at most it was another one
    /// (adaptive.A11).
    last_by: usize,
    others: u32,
    switches: u64,
    history: VecDeque<Switch>,
}

impl Control {
    pub(super) fn new(policy: Policy) -> Self {
        Self {
            mode: Mode::Direct,
            pinned: None,
            policy,
            biased: false,
            window: Window::default(),
            lane_reads: 0,
            trial: Trial::new(),
            since: None,
            wanted: Mode::Direct,
            streak: 0,
            looks: 0,
            left: Mode::Direct,
            flaps: 0,
            last_by: 0,
            others: 0,
            switches: 0,
            history: VecDeque::new(),
        }
    }

    /// Looks at the counts of a window: returns the mode to change to, if a change is due.
    pub(super) fn look(&mut self, window: Window) -> Option<(Mode, Why)> {
        self.looks = self.looks.saturating_add(1);
        if self.looks > CALM {
            self.flaps = 0;
        }
        let is_alone = self.is_alone(window);
        let (wanted, why) = match self.pinned {
            Some(pinned) => (pinned, Why::Pinned),
            None => match self.policy.wants(self.mode, window) {
                (Mode::Logs, _) if is_alone && self.mode != Mode::Logs => {
                    (Mode::Direct, Why::Mixed)
                }
                other => other,
            },
        };
        if self.pinned.is_none() && (wanted == Mode::Direct || self.trial.is_open()) {
            if let Ok(decided) = self.trial.look(&self.policy, self.mode, window) {
                self.streak = 0;
                return decided;
            }
        }
        if wanted == self.mode {
            self.streak = 0;
            return None;
        }
        self.streak = if wanted == self.wanted { self.streak + 1 } else { 1 };
        self.wanted = wanted;
        (self.streak >= self.patience()).then_some((wanted, why))
    }

    /// Whether only one thread seems to use the object (adaptive.A11).
    fn is_alone(&mut self, window: Window) -> bool {
        let before = std::mem::replace(&mut self.last_by, window.by);
        self.others = match before != window.by && before != 0 {
            true => ALONE,
            false => self.others.saturating_sub(1),
        };
        self.others == 0 && window.waits == 0 && !window.is_waited_for
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
        self.policy.patience.saturating_mul(1 << self.flaps)
    }

    /// Records that the object has changed its mode.
    pub(super) fn switched(&mut self, to: Mode, why: Why, window: Window) {
        let from = std::mem::replace(&mut self.mode, to);
        self.trial.switched(why, from != to);
        self.since = None;
        if from == to {
            return;
        }
        let is_trial = matches!(why, Why::Trial | Why::Slower | Why::Changed);
        let soon = FLAP.max(self.patience().saturating_mul(2));
        if to == self.left && self.switches > 0 && self.looks <= soon && !is_trial {
            self.flaps = (self.flaps + 1).min(FLAPS_MAX);
        }
        self.left = from;
        self.looks = 0;
        self.streak = 0;
        self.window = Window::default();
        self.switches += 1;
        if self.history.len() == REMEMBERED {
            self.history.pop_front();
        }
        let Window { updates, reads, waits, time, .. } = window;
        self.history.push_back(Switch { from, to, why, updates, reads, waits, time });
    }

    pub(super) fn history(&self) -> (u64, Vec<Switch>) {
        (self.switches, self.history.iter().copied().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::{ALONE, Control, Mode, Policy, Why, Window};

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
    fn ratio_decides_with_a_gap_on_the_way_out() {
        let wants = |mode, updates, reads| policy().wants(mode, counted(updates, reads)).0;
        assert_eq!(wants(Mode::Direct, 100, 0), Mode::Logs);
        assert_eq!(wants(Mode::Direct, 0, 100), Mode::Shared);
        assert_eq!(wants(Mode::Direct, 0, 0), Mode::Direct);
        assert_eq!(wants(Mode::Direct, 150, 10), Mode::Direct);
        assert_eq!(wants(Mode::Logs, 150, 10), Mode::Logs);
        assert_eq!(wants(Mode::Logs, 90, 10), Mode::Direct);
        assert_eq!(wants(Mode::Shared, 10, 150), Mode::Shared);
        assert_eq!(wants(Mode::Direct, 10, 150), Mode::Direct);
        assert_eq!(wants(Mode::Shared, 500, 10), Mode::Logs);
    }

    #[test]
    fn switch_takes_looks_in_a_row() {
        let mut control = Control::new(policy());
        assert_eq!(control.look(counted(100, 0)), None);
        assert_eq!(control.look(counted(5, 5)), None);
        assert_eq!(control.look(counted(100, 0)), None);
        assert_eq!(control.look(counted(100, 0)), Some((Mode::Logs, Why::Updates)));
    }

    #[test]
    fn load_that_alternates_slows_down_its_switches() {
        let mut control = Control::new(policy());
        let mut updating = true;
        for _ in 0..10_000 {
            // Just long enough for the object to follow, each time.
            let window = if updating { counted(100, 0) } else { counted(5, 5) };
            if let Some((to, why)) = control.look(window) {
                control.switched(to, why, window);
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
        let mut control = Control::new(policy());
        assert!((0..1000).all(|_| control.look(by(1)).is_none()));
        assert_eq!(control.look(by(2)), None);
        assert_eq!(control.look(by(2)), Some((Mode::Logs, Why::Updates)));

        // The other thread has gone before the switch was due.
        let mut control = Control::new(Policy { patience: ALONE + 1, ..policy() });
        let looks = [1, 2].into_iter().chain([2; 100]);
        assert!(looks.into_iter().all(|thread| control.look(by(thread)).is_none()));
        assert_eq!((0..20).find_map(|turn| control.look(by(turn % 2 + 1))).unwrap().0, Mode::Logs);

        // The mode stays when all threads but one have gone: no thread waits for a log.
        control.switched(Mode::Logs, Why::Updates, by(1));
        assert!((0..100).all(|_| control.look(by(1)).is_none()));
    }

    #[test]
    fn pinned_object_goes_back_to_its_pin() {
        let mut control = Control::new(policy());
        control.pinned = Some(Mode::Shared);
        control.look(counted(100, 0));
        assert_eq!(control.look(counted(100, 0)), Some((Mode::Shared, Why::Pinned)));
    }
}
