//! The log set: the part of a hot state that exists only while the object has logs. An eviction
//! frees it.
//!
//! Owns: its layout, and what its end drops. (The hot state itself stays after an eviction: the
//! object's word leads to it, and the evictor cannot reach the object, which may have been moved.)
//!
//! - log_set.C10 A hot state has its log set unless its gate says `EVICTED`. Only an eviction frees
//!   the log set. It does so under the hot state's lock, after the hot state has left the table,
//!   the gate was closed for good and the updaters have left (hot_state.C7). So three kinds of
//!   threads may use the log set. The first is the lock's holder. The second is a thread that has
//!   announced the hot state as an updater and has then seen a gate value other than `EVICTED`. The
//!   third is a thread that has the mutex of the place in the table where it found the hot state
//!   (oplog_table.T2). A thread announced as a waiter may not use it. The holder of an evicted hot
//!   state's lock makes a new log set if it needs one.

use super::branches::Tree;
use super::collected_logs::CollectedLogs;
use super::gate::Numbers;
use super::policy::Policy;
use super::slot_log::{Padded, SlotLog};
use crate::percpu::dirty::DirtyTable;
use crate::percpu::slot_table::SlotTable;
use crate::sync::{self, Ordering, Raced, UnsafeCell};

/// State that the hot state's lock guards, besides the value.
pub(super) struct Inner<L> {
    /// Logs that were collected but not applied yet (hot_state.C5).
    pub(super) collected_logs: CollectedLogs<L>,
    /// Slots of the current collection, without those that helpers have collected.
    pub(super) slots: Vec<usize>,
    /// The number of late updates that the current collection takes (`late`, late.L4).
    pub(super) late: usize,
    pub(super) numbers: Numbers,
    /// The number of updates since the last read.
    pub(super) window: u64,
    /// Updates that have been collected, and that no merge has counted yet.
    pub(super) collected: u64,
    /// True if a biased read had to call membarrier, because an updater did not answer.
    pub(super) unanswered: bool,
    pub(super) policy: Policy,
}

/// A log set; the module header explains it.
#[repr(C)]
pub(super) struct LogSet<L> {
    // Read by every update; written at the first update of a slot.
    pub(super) slots: SlotTable<SlotLog<L>>,
    /// The branches; null until a collection uses them.
    pub(super) tree: Raced<Tree<L>, ()>,
    // Written by updates that set a dirty bit.
    pub(super) dirty: Padded<DirtyTable>,
    // Written by readers.
    pub(super) inner: UnsafeCell<Inner<L>>,
    /// A canary of log_set.C10 for loom; empty elsewhere.
    pub(super) life: UnsafeCell<()>,
}

impl<L: Default> LogSet<L> {
    /// Makes a boxed log set with logs that were collected earlier and not applied yet.
    pub(super) fn with_collected_logs(collected_logs: Vec<L>, collected: u64) -> *mut Self {
        let inner = Inner {
            collected_logs: CollectedLogs::of(collected_logs),
            slots: Vec::new(),
            late: 0,
            numbers: Numbers::default(),
            window: 0,
            collected,
            unanswered: false,
            policy: Policy::default(),
        };
        Box::into_raw(Box::new(Self {
            slots: SlotTable::new(),
            tree: Raced::unmade(),
            dirty: Padded(DirtyTable::new()),
            inner: UnsafeCell::new(inner),
            life: UnsafeCell::new(()),
        }))
    }
}

impl<L> Drop for LogSet<L> {
    /// Drops the logs. Each panic of a destructor is caught here, so that all memory is freed.
    fn drop(&mut self) {
        self.life.with_mut(|_| ());
        // ORDER: Relaxed (all); `&mut self` proves that no other thread is left.
        for (_, slot) in self.slots.iter() {
            let raw = slot.0.load(Ordering::Relaxed);
            if !raw.is_null() {
                // SAFETY: made by `Box::into_raw` in `find_or_make_slot`; no other thread is left.
                let slot = unsafe { Box::from_raw(raw) };
                sync::contain(|| drop(slot));
            }
        }
        self.inner.with_mut(|inner| {
            // SAFETY: `&mut self` is exclusive.
            let inner = unsafe { &mut *inner };
            inner.collected_logs.drain(|log| sync::contain(|| drop(log)));
        });
    }
}
