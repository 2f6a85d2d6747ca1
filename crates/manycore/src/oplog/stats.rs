//! Statistics of an object's updates.

use super::hot_state::{EVICTED, FROZEN, HotState};
use super::log::Log;
use super::promotion;
use super::reader::{Collecting, Reopen};
use super::slot_log::SlotLog;
use crate::percpu;
use crate::sync::Ordering;

/// Statistics of the updates of one [`Deferred`](super::Deferred) object since it was promoted.
///
/// A cold object applies its updates at once and has no room for counts, so all are zero then. In
/// every state `appended = absorbed + applied + pending`. Within an update or a log's own code
/// while the object is being merged, its logs can't be read: then these are the counts after
/// earlier merges, all updates not applied by then count as `pending`, and `bytes` is zero.
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
    /// The number of merges, by readers and by updates whose log was full.
    pub merges: u64,
    /// The number of evictions of this object.
    pub evictions: u64,
    /// Slots that have a log of this object.
    pub logs: usize,
    /// Bytes of logs: slots, entries, and spare buffers counted by their entries.
    pub bytes: usize,
    /// Whether updates publish with plain stores now (see [`Publish`](super::Publish)).
    pub biased: bool,
}

/// Counts kept by the holder of a hot state's lock, apart from `Inner`, which is borrowed while
/// user code runs: no reference to this outlives a call.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Counts {
    /// Updates appended to logs that an eviction has freed.
    pub(super) appended_before: u64,
    pub(super) applied: u64,
    pub(super) merges: u64,
    pub(super) evictions: u64,
    /// The lock's holder has borrowed the hot state's `Inner`, and perhaps logs.
    merging: bool,
}

/// A merge in progress; dropping this ends it.
pub(super) struct Merging<'a, T: Send + 'static, L: Log<T>> {
    hot: &'a HotState<T, L>,
    outer: bool,
}

impl<T: Send + 'static, L: Log<T>> Drop for Merging<'_, T, L> {
    fn drop(&mut self) {
        // SAFETY: `begin_merging`'s caller promised to hold the hot state's lock until this is
        // dropped.
        unsafe { self.hot.count(|counts| counts.merging = self.outer) };
    }
}

impl<T: Send + 'static, L: Log<T>> HotState<T, L> {
    /// # Safety
    /// The caller holds the hot state's lock.
    pub(super) unsafe fn counts(&self) -> Counts {
        // SAFETY: the lock guards it, and no reference to it outlives a call.
        self.counts.with(|counts| unsafe { *counts })
    }

    /// Changes the counts. `change` runs no user code.
    ///
    /// # Safety
    /// The caller holds the hot state's lock.
    pub(super) unsafe fn count(&self, change: impl FnOnce(&mut Counts)) {
        // SAFETY: the caller promises that it holds the hot state's lock (# Safety), which guards
        // the counts; `change` runs no user code, so no other reference to them exists.
        self.counts.with_mut(|counts| unsafe { change(&mut *counts) });
    }

    /// Records that the calling thread has borrowed `Inner` and logs, so that user code that it
    /// runs does not access them.
    ///
    /// # Safety
    /// The caller holds the hot state's lock until the result is dropped.
    pub(super) unsafe fn begin_merging(&self) -> Merging<'_, T, L> {
        // SAFETY: the caller promises that it holds the hot state's lock (# Safety), which guards
        // the counts.
        let outer = unsafe { self.counts() }.merging;
        // SAFETY: the caller promises that it holds the hot state's lock until the result is
        // dropped (# Safety), which guards the counts now and at the drop.
        unsafe { self.count(|counts| counts.merging = true) };
        Merging { hot: self, outer }
    }

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
        // The log set is not allocated again: an evicted object's statistics allocate nothing.
        if self.logs_if_any().is_none() {
            stats.pending = self.late.len() as u64;
            stats.appended += stats.pending;
            stats.absorbed = stats.appended.saturating_sub(stats.applied + stats.pending);
            return stats;
        }
        stats.appended += self.appended();
        stats.logs = self.slot_logs().count();
        // Within a merge, logs are borrowed; within a push, one is, and its object's reader may be
        // waiting for this thread.
        if counts.merging || percpu::is_announcing() {
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
        // SAFETY: the caller promises that it holds the lock, which guards `inner`, and that it is
        // not merging (# Safety), so no other reference to `inner` exists.
        stats.pending = self
            .logs()
            .inner
            .with(|inner| unsafe { (*inner).collected_logs.iter().map(L::len).sum::<usize>() })
            as u64;
        // SAFETY: the caller promises that it holds the hot state's lock (# Safety), which guards
        // the counts.
        stats.appended = unsafe { self.counts() }.appended_before;
        stats.logs = 0;
        // ORDER: as in `collect_frozen`.
        let _collecting = Collecting::begin(&self.collecting, FROZEN);
        let gate = Reopen { gate: &self.gate, to: self.gate.load(Ordering::Relaxed) };
        let closed = if gate.to == EVICTED { EVICTED } else { FROZEN };
        self.gate.store(closed, Ordering::Release);
        promotion::wait_for_updaters(self, self.is_biased());
        for slot in self.slot_logs() {
            // ORDER: Relaxed; stable under oplog.C1.
            stats.appended += slot.appended.load(Ordering::Relaxed);
            // SAFETY: oplog.C1 - gate closed, barrier passed, no updater inside.
            stats.pending += slot.local.with(|local| unsafe { (*local).log.len() }) as u64;
            stats.logs += 1;
        }
        let late = self.late.len() as u64;
        stats.appended += late;
        stats.pending += late;
    }
}
