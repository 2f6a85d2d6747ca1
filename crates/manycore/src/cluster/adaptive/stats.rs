//! The statistics of an object.

use super::controller::Controller;
use super::policy::{Mode, Switch};
use crate::oplog;
use std::fmt;

/// The mode of an [`Adaptive`](super::Adaptive) object, and the changes that led to it.
///
/// ```
/// use manycore::cluster::Adaptive;
/// use manycore::cluster::adaptive::{Mode, SwitchReason};
/// use manycore::oplog::{Commuting, Op};
///
/// struct Add(u64);
/// impl Op<u64> for Add {
///     fn apply(self, sum: &mut u64) {
///         *sum += self.0;
///     }
/// }
///
/// let sum = Adaptive::<u64, Commuting<Add>>::new(0);
/// assert!(sum.pin(Mode::Shared));
/// let stats = sum.stats();
/// assert_eq!((stats.mode, stats.history[0].reason), (Mode::Shared, SwitchReason::Pinned));
/// assert!(stats.to_string().contains("Direct to Shared"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// The object's mode.
    pub mode: Mode,
    /// The mode that it is pinned to, if any.
    pub pinned: Option<Mode>,
    /// Whether a shared object's reads cost no locked instruction now, and its updates a
    /// `membarrier`.
    pub biased: bool,
    /// Changes of mode so far.
    pub switches: u64,
    /// The last of them, at most 16, the latest last.
    pub history: Vec<Switch>,
    /// The statistics of its logs, since the object got them.
    pub logs: oplog::Stats,
}

impl Stats {
    pub(super) fn of_plain(logs: oplog::Stats) -> Self {
        Self {
            mode: Mode::Direct,
            pinned: None,
            biased: false,
            switches: 0,
            history: Vec::new(),
            logs,
        }
    }

    pub(super) fn of(control: &Controller, logs: oplog::Stats, is_hot: bool) -> Self {
        let (switches, history) = control.history();
        let evicted = control.mode == Mode::Logs && !is_hot;
        Self {
            mode: if evicted { Mode::Direct } else { control.mode },
            pinned: control.pinned,
            biased: control.mode == Mode::Shared && control.biased,
            switches,
            history,
            logs,
        }
    }
}

impl fmt::Display for Stats {
    /// One line for the mode, and one for each change in the history.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}, after {} switches", self.mode, self.switches)?;
        for Switch { from, to, reason, updates, reads, waits, time } in &self.history {
            write!(f, "\n{from:?} to {to:?} ({reason:?}): ")?;
            write!(f, "{updates} updates, {reads} reads, {waits} waits in {time:.1?}")?;
        }
        Ok(())
    }
}
