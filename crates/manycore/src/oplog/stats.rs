//! Statistics of an object's updates.

use super::hot_state::HotState;
use super::log::Log;

/// Statistics of the updates of one [`Deferred`](super::Deferred) object since it was promoted.
///
/// A cold object applies its updates at once and has no room for counts, so then all counts are
/// zero. If no thread updates or reads the object meanwhile, `appended = absorbed + applied +
/// pending`. Within the object's own updates, these are the counts after earlier merges.
///
/// ```
/// use manycore::oplog::{Combine, Combining, Deferred, Logs, Op};
///
/// # struct Add(u64);
/// # impl Op<u64> for Add {
/// #     fn apply(self, sum: &mut u64) {
/// #         *sum += self.0;
/// #     }
/// # }
/// # impl Combine for Add {
/// #     type Key = ();
/// #     fn key(&self) {}
/// #     fn combine(&mut self, other: Self) {
/// #         self.0 += other.0;
/// #     }
/// # }
/// let sum = Deferred::<u64, Combining<Add>>::builder().logs(Logs::Always).build(0)?;
/// for _ in 0..100 {
///     sum.append(Add(1));
/// }
/// assert_eq!(*sum.read(), 100);
/// let stats = sum.stats();
/// assert_eq!((stats.appended, stats.absorbed, stats.applied), (100, 99, 1));
/// # Ok::<(), manycore::oplog::BuildError>(())
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Updates that went to a log.
    pub appended: u64,
    /// Updates that merges took but did not have to apply: cancelled, combined or absorbed.
    pub absorbed: u64,
    /// Updates applied to the object by a merge.
    pub applied: u64,
    /// Updates that no merge has taken yet, also those that the log has absorbed.
    pub pending: u64,
    /// The number of merges, by readers and by updates that found their log full.
    pub merges: u64,
    /// The number of evictions of this object.
    pub evictions: u64,
    /// Slots that have a log of this object.
    pub logs: usize,
    /// True if updates publish with plain stores now (see [`Publish`](super::Publish)).
    pub biased: bool,
}

impl<T: Send + 'static, L: Log<T>> HotState<T, L> {
    /// The result of [`Deferred::stats`](super::Deferred::stats). Runs no user code.
    ///
    /// # Safety
    /// The caller holds the hot state's lock.
    pub(super) unsafe fn stats(&self) -> Stats {
        // SAFETY: the caller promises that it holds the hot state's lock (# Safety), which guards
        // the counts.
        let counts = unsafe { self.counts() };
        let appended = counts.appended_before + self.appended() + self.late.len() as u64;
        let pending = appended.saturating_sub(counts.merged);
        Stats {
            appended,
            absorbed: appended.saturating_sub(pending.saturating_add(counts.applied)),
            applied: counts.applied,
            pending,
            merges: counts.merges,
            evictions: counts.evictions,
            logs: self.slot_logs().count(),
            biased: self.is_biased(),
        }
    }
}
