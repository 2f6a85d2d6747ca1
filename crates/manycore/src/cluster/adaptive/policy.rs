//! The policy: which mode a load calls for.
//!
//! Owns: the modes, the thresholds, and what was counted in a window of operations. Does not own:
//! counting, and when the object follows (`controller`).

use crate::config;
use std::time::Duration;

/// The mode of an object.
///
/// ```
/// use manycore::cluster::{Adaptive, adaptive::Mode};
/// use manycore::oplog::{Commuting, Op};
///
/// # struct Add(u64);
/// # impl Op<u64> for Add {
/// #     fn apply(self, sum: &mut u64) {
/// #         *sum += self.0;
/// #     }
/// # }
/// let sum = Adaptive::<u64, Commuting<Add>>::new(0);
/// assert_eq!(sum.mode(), Mode::Direct);
/// assert!(sum.pin(Mode::Logs)); // the load is known: many updates for each read
/// sum.update(Add(1));
/// assert_eq!(*sum.read(), 1);
/// assert_eq!(sum.mode(), Mode::Logs);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
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
///
/// See [`Stats`](super::Stats) for an example.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SwitchReason {
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
    /// Contention at a ratio that does not decide: the mode is on probation, to see whether it is
    /// faster.
    Probation,
    /// The mode on probation was not faster, or not by enough.
    Slower,
    /// A mode was kept after its probation, but then the rate of operations doubled or halved:
    /// another load.
    Changed,
}

/// One change of mode, with the counts that decided it.
///
/// See [`Stats`](super::Stats) for an example.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Switch {
    /// The mode before.
    pub from: Mode,
    /// The mode since.
    pub to: Mode,
    /// Why.
    pub reason: SwitchReason,
    /// Updates in the last window before the change.
    pub updates: u64,
    /// Reads in that window.
    pub reads: u64,
    /// Operations of that window that had to wait for the lock, as far as they were counted.
    pub waits: u32,
    /// How long that window was; zero if the time was not taken. For a probation and its
    /// outcome, this gives the rates that decided.
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
/// let eager = Policy::default().with_patience(1).with_logs_from(8).with_logs_below(4);
/// assert!(eager.logs_below() < eager.logs_from());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    pub(super) logs_from: u32,
    pub(super) logs_below: u32,
    pub(super) shared_from: u32,
    pub(super) shared_below: u32,
    pub(super) biased_from: u32,
    pub(super) patience: u32,
    pub(super) try_from: u32,
    pub(super) try_gain: u32,
}

impl Policy {
    /// Updates for each read from which an object takes logs, if several threads use it.
    #[must_use]
    pub fn logs_from(&self) -> u32 {
        self.logs_from
    }

    /// Sets [`logs_from`](Self::logs_from).
    #[must_use]
    pub fn with_logs_from(mut self, logs_from: u32) -> Self {
        self.logs_from = logs_from;
        self
    }

    /// Updates for each read below which it leaves them.
    #[must_use]
    pub fn logs_below(&self) -> u32 {
        self.logs_below
    }

    /// Sets [`logs_below`](Self::logs_below).
    #[must_use]
    pub fn with_logs_below(mut self, logs_below: u32) -> Self {
        self.logs_below = logs_below;
        self
    }

    /// Reads for each update from which an object lets readers in concurrently.
    #[must_use]
    pub fn shared_from(&self) -> u32 {
        self.shared_from
    }

    /// Sets [`shared_from`](Self::shared_from).
    #[must_use]
    pub fn with_shared_from(mut self, shared_from: u32) -> Self {
        self.shared_from = shared_from;
        self
    }

    /// Reads for each update below which it leaves that mode.
    #[must_use]
    pub fn shared_below(&self) -> u32 {
        self.shared_below
    }

    /// Sets [`shared_below`](Self::shared_below).
    #[must_use]
    pub fn with_shared_below(mut self, shared_below: u32) -> Self {
        self.shared_below = shared_below;
        self
    }

    /// Reads for each update from which readers announce themselves by plain stores, and updates
    /// call `membarrier` for that; below half of it, each read costs a locked instruction.
    #[must_use]
    pub fn biased_from(&self) -> u32 {
        self.biased_from
    }

    /// Sets [`biased_from`](Self::biased_from).
    #[must_use]
    pub fn with_biased_from(mut self, biased_from: u32) -> Self {
        self.biased_from = biased_from;
        self
    }

    /// Looks in a row that must want the same change, before it is made.
    #[must_use]
    pub fn patience(&self) -> u32 {
        self.patience
    }

    /// Sets [`patience`](Self::patience).
    #[must_use]
    pub fn with_patience(mut self, patience: u32) -> Self {
        self.patience = patience;
        self
    }

    /// Updates for each read, or reads for each update, from which the mode for that side replaces
    /// a contended lock on probation, to see whether it is faster; `u32::MAX` for never.
    #[must_use]
    pub fn try_from(&self) -> u32 {
        self.try_from
    }

    /// Sets [`try_from`](Self::try_from).
    #[must_use]
    pub fn with_try_from(mut self, try_from: u32) -> Self {
        self.try_from = try_from;
        self
    }

    /// How many percent more operations per time the mode on probation must make to stay.
    #[must_use]
    pub fn try_gain(&self) -> u32 {
        self.try_gain
    }

    /// Sets [`try_gain`](Self::try_gain).
    #[must_use]
    pub fn with_try_gain(mut self, try_gain: u32) -> Self {
        self.try_gain = try_gain;
        self
    }
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

impl Window {
    /// Operations in a second; 0 if there was no clock.
    pub(super) fn rate(self) -> u64 {
        let operations = u128::from(self.updates + self.reads) * 1_000_000_000;
        operations.checked_div(self.time.as_nanos()).map_or(0, |rate| rate as u64)
    }
}

/// Operations of a window that had to wait, from which a probation may be worth it.
const WAITS: u32 = 8;

impl Policy {
    /// The mode that this window calls for, of an object that is in `mode`.
    pub(super) fn wants(&self, mode: Mode, window: Window) -> (Mode, SwitchReason) {
        let Window { updates, reads, .. } = window;
        let logs = if mode == Mode::Logs { self.logs_below } else { self.logs_from };
        let shared = if mode == Mode::Shared { self.shared_below } else { self.shared_from };
        if updates >= reads.saturating_mul(u64::from(logs)) && updates > reads {
            (Mode::Logs, SwitchReason::Updates)
        } else if reads >= updates.saturating_mul(u64::from(shared)) && reads > updates {
            (Mode::Shared, SwitchReason::Reads)
        } else {
            (Mode::Direct, SwitchReason::Mixed)
        }
    }

    /// Whether readers should announce themselves by plain stores.
    pub(super) fn wants_bias(&self, biased: bool, window: Window) -> bool {
        let from = if biased { self.biased_from / 2 } else { self.biased_from };
        window.reads >= window.updates.max(1).saturating_mul(u64::from(from))
    }

    /// The mode that may be better than a lock at this ratio, if it is at least `from`.
    pub(super) fn side(window: Window, from: u32) -> Option<Mode> {
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

#[cfg(test)]
mod tests {
    use super::{Mode, Policy, Window};

    #[test]
    fn ratio_decides_with_a_gap_on_the_way_out() {
        let policy = Policy {
            logs_from: 20,
            logs_below: 10,
            shared_from: 20,
            shared_below: 10,
            ..Policy::default()
        };
        let counted = |updates, reads| Window { updates, reads, waits: 1, ..Window::default() };
        let wants = |mode, updates, reads| policy.wants(mode, counted(updates, reads)).0;
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
}
