//! Statistics of an object's updates.

use super::gate::Gate;
use super::hot_state::HotState;
use super::log::Log;
use super::promotion;
use super::slot_log::SlotLog;
use crate::percpu;
use crate::sync::Ordering;

/// Statistics of the updates of one [`Deferred`](super::Deferred) object since it was promoted.
///
/// A cold object applies its updates at once and has no room for counts, so then all counts are
/// zero. In every state, `appended = absorbed + applied + pending`. While the object is being
/// merged, updates and a log's own code cannot read its logs. Within them, these are the counts
/// after earlier merges: all updates that were not applied by then count as `pending`, and `bytes`
/// is zero.
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
    /// Updates that never had to be applied: cancelled, combined or absorbed.
    pub absorbed: u64,
    /// Updates applied to the object by a merge.
    pub applied: u64,
    /// Updates that are in logs now.
    pub pending: u64,
    /// The number of merges, by readers and by updates that found their log full.
    pub merges: u64,
    /// The number of evictions of this object.
    pub evictions: u64,
    /// Slots that have a log of this object.
    pub logs: usize,
    /// Bytes of logs: slots, entries, and spare buffers counted by their entries.
    pub bytes: usize,
    /// True if updates publish with plain stores now (see [`Publish`](super::Publish)).
    pub biased: bool,
}

impl<T: Send + 'static, L: Log<T>> HotState<T, L> {
    /// The result of [`Deferred::stats`](super::Deferred::stats).
    ///
    /// # Safety
    /// The caller holds the hot state's lock.
    pub(super) unsafe fn stats(&self) -> Stats {
        // SAFETY: the caller promises that it holds the hot state's lock (# Safety), which guards
        // the counts.
        let counts = unsafe { self.counts() };
        let mut stats = Stats {
            appended: counts.appended_before,
            applied: counts.applied,
            merges: counts.merges,
            evictions: counts.evictions,
            biased: self.is_biased(),
            ..Stats::default()
        };
        // The log set is not allocated again: the statistics of an evicted object allocate nothing.
        if self.logs_if_any().is_none() {
            stats.pending = self.late.len() as u64;
            stats.appended += stats.pending;
            stats.absorbed = stats.appended.saturating_sub(stats.applied + stats.pending);
            return stats;
        }
        stats.appended += self.appended();
        stats.logs = self.slot_logs().count();
        // Within a merge, logs are borrowed. Within a push, one log is, and its object's reader may
        // be waiting for this thread.
        if counts.merging || percpu::has_log() {
            stats.appended += self.late.len() as u64;
            stats.pending = stats.appended.saturating_sub(stats.applied);
            return stats;
        }
        // SAFETY: the caller promises that it holds the hot state's lock (# Safety), and the branch
        // above returns if it is merging or inside as an updater.
        unsafe { self.look_into_logs(&mut stats) };
        let known = stats.applied.saturating_add(stats.pending);
        stats.absorbed = stats.appended.saturating_sub(known);
        stats.bytes =
            stats.logs * size_of::<SlotLog<L>>() + stats.pending as usize * size_of::<L::Op>();
        stats
    }

    /// Counts appended and pending updates while all updaters are excluded for a moment.
    ///
    /// # Safety
    /// The caller holds the hot state's lock; it is not merging, and not inside as an updater.
    unsafe fn look_into_logs(&self, stats: &mut Stats) {
        // SAFETY: the caller promises that it holds the hot state's lock (# Safety); `_merging` is
        // dropped on return.
        let _merging = unsafe { self.begin_merging() }; // `len` is user code
        let collected = self.logs().inner.with(|inner| {
            // SAFETY: the caller promises that it holds the lock, which guards `inner`, and that it
            // is not merging (# Safety), so no other reference to `inner` exists.
            unsafe { (*inner).collected_logs.iter().map(L::len).sum::<usize>() }
        });
        stats.pending = collected as u64;
        // SAFETY: the caller promises that it holds the hot state's lock (# Safety), which guards
        // the counts.
        stats.appended = unsafe { self.counts() }.appended_before;
        stats.logs = 0;
        // An evicted hot state's gate is closed already.
        let inspected = (!self.is_evicted()).then(|| {
            self.collecting.close(Gate::UNANSWERED);
            self.gate.close(Gate::UNANSWERED);
            (self.gate.open_later(), self.collecting.open_later())
        });
        promotion::wait_for_updaters(self, self.is_biased());
        for slot in self.slot_logs() {
            // ORDER: Relaxed; stable under hot_state.C1.
            stats.appended += slot.appended.load(Ordering::Relaxed);
            // SAFETY: hot_state.C1 - gate closed, barrier passed, no updater inside.
            stats.pending += slot.local.with(|local| unsafe { (*local).log.len() }) as u64;
            stats.logs += 1;
        }
        let late = self.late.len() as u64;
        stats.appended += late;
        stats.pending += late;
        drop(inspected);
    }
}
