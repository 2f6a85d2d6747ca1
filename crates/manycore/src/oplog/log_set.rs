//! The log set: the part of a hot state that exists only while the object has logs, and that an
//! eviction frees.
//!
//! Owns: its layout, access to it and to the slots' logs from a hot state, and freeing it. (The hot
//! state stays after an eviction, because the object's word leads to it, and the evictor can't
//! reach the object, which may have been moved.)
//!
//! - oplog.C10 A hot state has its log set unless its gate says `EVICTED`. Only an eviction frees
//!   it, under the hot state's lock, after the hot state has left the table, the gate was closed
//!   for good and the updaters have left (oplog.C7). So these may use it: the lock's holder; a
//!   thread that has announced the hot state as an updater and has seen a gate value other than
//!   `EVICTED` after that; and a thread that has the mutex of the place in the table where it has
//!   found the hot state (oplog.T2). A thread announced as a waiter may not. The holder of an
//!   evicted hot state's lock makes a new log set if it needs one.

use super::combining_tree::Tree;
use super::gate::Numbers;
use super::hot_state::HotState;
use super::log::Log;
use super::slot_log::{Padded, SlotLog, SlotPtr, SlotTable};
use crate::percpu::dirty::DirtyTable;
use crate::sync::{self, AtomicPtr, Ordering, UnsafeCell};
use std::ptr;

/// State that the hot state's lock guards, besides the value.
pub(super) struct Inner<L> {
    /// Collected, not yet applied (oplog.C5).
    pub(super) collected_logs: Vec<L>,
    /// Logs in `collected_logs` may be empty, because user code panicked.
    pub(super) untidy: bool,
    /// Emptied logs, kept for their buffers.
    pub(super) spares: Vec<L>,
    /// Slots of the current collection.
    pub(super) slots: Vec<usize>,
    /// The number of late updates that the current collection takes (`late`, oplog.L4).
    pub(super) late: usize,
    /// Those of these slots that no helper has collected (`combining_tree`).
    pub(super) rest: Vec<usize>,
    /// The number of merges from which on a tree is tried again, and how often it was tried without
    /// success.
    pub(super) next_tree_at: u64,
    pub(super) failed_trees: u32,
    /// The number of collections with a tree since trees were last abandoned.
    pub(super) tree_tries: u32,
    pub(super) numbers: Numbers,
    /// The number of updates since the last read, for the policies.
    pub(super) window: u64,
    /// The number of consecutive reads that are evidence for a switch of publication, or for
    /// demotion.
    pub(super) for_switch: u32,
    pub(super) for_demotion: u32,
    /// A biased read had to call membarrier, because an updater did not answer.
    pub(super) unanswered: bool,
    /// The number of merges from which on a read waits for answers again, and how often it waited
    /// without success.
    pub(super) next_probe_at: u64,
    pub(super) failed_probes: u32,
}

impl<L> Inner<L> {
    fn new(collected_logs: Vec<L>) -> Self {
        Self {
            untidy: !collected_logs.is_empty(),
            collected_logs,
            spares: Vec::new(),
            slots: Vec::new(),
            late: 0,
            rest: Vec::new(),
            next_tree_at: 0,
            failed_trees: 0,
            tree_tries: 0,
            numbers: Numbers::default(),
            window: 0,
            for_switch: 0,
            for_demotion: 0,
            unanswered: false,
            next_probe_at: 0,
            failed_probes: 0,
        }
    }
}

/// See the module header.
#[repr(C)]
pub(super) struct LogSet<L> {
    // Read by every update; written at a slot's first one.
    pub(super) slots: SlotTable<SlotLog<L>>,
    /// The branches; null until a collection uses them.
    pub(super) tree: AtomicPtr<Tree<L>>,
    // Written by updates that set a dirty bit.
    pub(super) dirty: Padded<DirtyTable>,
    // Written by readers.
    pub(super) inner: UnsafeCell<Inner<L>>,
    /// A canary of oplog.C10 for loom; nothing elsewhere.
    life: UnsafeCell<()>,
}

impl<L: Default> LogSet<L> {
    /// A boxed log set with updates collected from earlier logs and not yet applied.
    pub(super) fn with_collected_logs(collected_logs: Vec<L>) -> *mut Self {
        Box::into_raw(Box::new(Self {
            slots: SlotTable::new(),
            tree: AtomicPtr::new(ptr::null_mut()),
            dirty: Padded(DirtyTable::new()),
            inner: UnsafeCell::new(Inner::new(collected_logs)),
            life: UnsafeCell::new(()),
        }))
    }
}

impl<L> Drop for LogSet<L> {
    /// Drops the logs. Each panic of a destructor is caught here, so that all memory is freed.
    fn drop(&mut self) {
        self.life.with_mut(|_| ());
        // ORDER: Relaxed (both); `&mut self` proves that no other thread is left.
        let tree = self.tree.load(Ordering::Relaxed);
        if !tree.is_null() {
            // SAFETY: made by `Box::into_raw` in `combining_tree`, and no other thread is left.
            let tree = unsafe { Box::from_raw(tree) };
            tree.into_logs(|log| sync::contain(|| drop(log)));
        }
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
            let logs = inner.collected_logs.drain(..).chain(inner.spares.drain(..));
            logs.for_each(|log| sync::contain(|| drop(log)));
        });
    }
}

impl<T, L: Log<T>> HotState<T, L> {
    /// Frees the log set and the logs of the first slots, and replaces it by `next`. Panics of the
    /// logs' destructors are caught here.
    ///
    /// # Safety
    /// No other thread reaches it (oplog.C10).
    pub(super) unsafe fn take_logs(&self, next: *mut LogSet<L>) {
        // ORDER: AcqRel; Release pairs with Acquire in `logs_if_any`, and Acquire with Release in
        // `make_logs`.
        let old = self.logs.swap(next, Ordering::AcqRel);
        if old.is_null() {
            return;
        }
        // SAFETY: oplog.C10 - the set came from a box, the swap has taken it out, and the caller
        // promises that no other thread reaches it (# Safety).
        let old = unsafe { Box::from_raw(old) };
        for (from, to) in self.first.iter().zip(&old.slots.near) {
            // ORDER: Acquire, Relaxed; pairs with Release in `find_or_make_slot`.
            let log = from.0.swap(ptr::null_mut(), Ordering::Acquire);
            to.0.store(log, Ordering::Relaxed);
        }
        // Dropped, which runs user code, only after the hot state no longer refers to any of it.
        drop(old);
    }
}

impl<T: Send + 'static, L: Log<T>> HotState<T, L> {
    /// The pointer to a slot's log, if it is one or two loads away; for an updater.
    ///
    /// # Safety
    /// The caller has announced the hot state as an updater, and found the gate open after that.
    #[inline(always)]
    pub(super) unsafe fn near_place(&self, index: usize) -> Option<&SlotPtr<SlotLog<L>>> {
        match self.first.get(index) {
            // SAFETY: oplog.C10 - the caller promises that it has announced the hot state as an
            // updater, and has found the gate open after that (# Safety).
            None => unsafe { self.open_logs() }.slots.near.get(index),
            place => place,
        }
    }

    fn place(&self, index: usize) -> Option<&SlotPtr<SlotLog<L>>> {
        match self.first.get(index) {
            None => self.logs_if_any()?.slots.get(index),
            place => place,
        }
    }

    pub(super) fn slot_log(&self, index: usize) -> Option<&SlotLog<L>> {
        // ORDER: Acquire; pairs with Release in `find_or_make_slot`.
        let slot = self.place(index)?.0.load(Ordering::Acquire);
        // SAFETY: oplog.C10, by the lock that the caller holds, or that the reader it helps holds
        // (oplog.C9).
        unsafe { slot.as_ref() }
    }

    /// All existing logs of slots.
    pub(super) fn slot_logs(&self) -> impl Iterator<Item = &SlotLog<L>> {
        let others = self.logs_if_any().into_iter().flat_map(|logs| logs.slots.iter());
        let places = self.first.iter().chain(others.map(|(_, place)| place));
        // ORDER: Acquire; pairs with Release in `find_or_make_slot`.
        let logs = places.map(|place| place.0.load(Ordering::Acquire));
        // SAFETY: oplog.C10; freed with the log set.
        logs.filter_map(|raw| unsafe { raw.as_ref() })
    }

    /// The number of updates appended to the existing logs.
    pub(super) fn appended(&self) -> u64 {
        // ORDER: Relaxed; a statistic.
        self.slot_logs().map(|slot| slot.appended.load(Ordering::Relaxed)).sum()
    }

    /// A slot's log, for an updater.
    #[cold]
    pub(super) fn find_or_make_slot(&self, index: usize) -> *mut SlotLog<L> {
        let place = match self.first.get(index) {
            None => self.logs().slots.get_or_init(index),
            Some(place) => place,
        };
        // ORDER: Acquire; pairs with the compare-exchange below if another thread of this CPU made
        // it.
        let found = place.0.load(Ordering::Acquire);
        if !found.is_null() {
            return found;
        }
        let made = Box::into_raw(Box::new(SlotLog::new()));
        // ORDER: Release; pairs with the Acquire loads of readers: contents before pointer.
        let raced =
            place.0.compare_exchange(ptr::null_mut(), made, Ordering::AcqRel, Ordering::Acquire);
        match raced {
            Ok(_) => made,
            Err(other) => {
                // SAFETY: made just above and shared with no thread.
                drop(unsafe { Box::from_raw(made) });
                other
            }
        }
    }

    /// The log set, for an updater.
    ///
    /// # Safety
    /// The caller has announced the hot state as an updater, and found the gate open after that.
    #[inline(always)]
    pub(super) unsafe fn open_logs(&self) -> &LogSet<L> {
        // ORDER: Relaxed; `revive` publishes it with the gate, which the caller read with Acquire.
        // SAFETY: oplog.C10 - the gate was open, so the log set exists, and an evictor waits for
        // the caller.
        let logs = unsafe { &*self.logs.load(Ordering::Relaxed) };
        logs.life.with(|_| ());
        logs
    }

    /// The log set, if no eviction has freed it.
    pub(super) fn logs_if_any(&self) -> Option<&LogSet<L>> {
        // ORDER: Acquire; pairs with Release in `logs`: its contents.
        // SAFETY: oplog.C10 - callers hold the hot state's lock, or the mutex or announcement that
        // it names.
        let logs = unsafe { self.logs.load(Ordering::Acquire).as_ref() };
        logs.inspect(|logs| logs.life.with(|_| ()))
    }

    /// The log set, allocated again if an eviction has freed it. For the holder of the hot state's
    /// lock, and for threads that oplog.C10 lets use an existing one.
    pub(super) fn logs(&self) -> &LogSet<L> {
        self.logs_if_any().unwrap_or_else(|| self.make_logs())
    }

    #[cold]
    fn make_logs(&self) -> &LogSet<L> {
        let made = LogSet::with_collected_logs(Vec::new());
        // ORDER: Release; pairs with Acquire in `logs_if_any`. Only the lock's holder stores.
        self.logs.store(made, Ordering::Release);
        // SAFETY: oplog.C10 - made above, and only the lock's holder frees it.
        unsafe { &*made }
    }

    /// Frees the log set of a hot state whose logs are empty, but keeps the count of appended
    /// updates, and the updates that a poisoned object has not applied. Panics of the logs'
    /// destructors are caught here.
    ///
    /// # Safety
    /// The caller holds the hot state's lock, the gate says `EVICTED`, and no updater is inside.
    pub(super) unsafe fn free_logs(&self) {
        let Some(old) = self.logs_if_any() else { return };
        let appended = self.appended();
        // SAFETY: the caller promises that it holds the hot state's lock (# Safety).
        let collected_logs =
            old.inner.with_mut(|inner| unsafe { std::mem::take(&mut (*inner).collected_logs) });
        // SAFETY: the caller promises that it holds the hot state's lock (# Safety).
        unsafe { self.count(|counts| counts.appended_before += appended) };
        let kept = if collected_logs.is_empty() {
            ptr::null_mut()
        } else {
            LogSet::with_collected_logs(collected_logs)
        };
        // SAFETY: oplog.C10: the object is not in the table, no updater is inside, and the caller
        // holds the lock.
        unsafe { self.take_logs(kept) };
    }
}
