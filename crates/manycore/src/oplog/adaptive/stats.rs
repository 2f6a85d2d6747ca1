//! The modes of an object, and its statistics.

use crate::oplog;
use std::fmt;

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
    /// Updates are appended to logs, and a read merges the logs, as a hot
    /// [`Deferred`](crate::oplog::Deferred) does.
    Logs,
    /// Readers read in parallel, and each writes its own line; an update keeps them out.
    Shared,
}

/// The mode of an [`Adaptive`](super::Adaptive) object, and its counts.
///
/// ```
/// use manycore::cluster::Adaptive;
/// use manycore::cluster::adaptive::Mode;
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
/// assert!(sum.pin(Mode::Logs));
/// sum.update(Add(1));
/// let stats = sum.stats();
/// assert_eq!((stats.mode, stats.pinned, stats.logs.appended), (Mode::Logs, true, 1));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// The object's mode.
    pub mode: Mode,
    /// True if the object is pinned to that mode.
    pub pinned: bool,
    /// True if the reads of a shared object cost no locked instruction now, and its updates cost a
    /// `membarrier`.
    pub biased: bool,
    /// The statistics of its logs, since the object got them.
    pub logs: oplog::Stats,
}

impl fmt::Display for Stats {
    /// Writes one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.mode)?;
        for (is_set, what) in [(self.pinned, "pinned"), (self.biased, "biased")] {
            if is_set {
                write!(f, ", {what}")?;
            }
        }
        let oplog::Stats { appended, applied, pending, merges, .. } = self.logs;
        write!(f, "; logs: {appended} appended, {applied} applied by {merges} merges, ")?;
        write!(f, "{pending} pending")
    }
}
