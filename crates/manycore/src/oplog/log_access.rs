//! Access to the log set and to the slots' logs, from a hot state.
//!
//! Law log_set.C10 (header of `log_set`) says which thread has access, and when.

use super::hot_state::HotState;
use super::log::Log;
use super::log_set::LogSet;
use super::slot_log::SlotLog;
use crate::percpu::slot_table::SlotPtr;
use crate::sync::Ordering;
use std::ptr;

impl<T: Send + 'static, L: Log<T>> HotState<T, L> {
    /// Returns the pointer to a slot's log, if it is one or two loads away; for an updater.
    ///
    /// # Safety
    /// The caller has announced the hot state as an updater, and found the gate open after that.
    #[inline(always)]
    pub(super) unsafe fn near_place(&self, index: usize) -> Option<&SlotPtr<SlotLog<L>>> {
        match self.first.get(index) {
            // SAFETY: log_set.C10 - the caller promises that it has announced the hot state as an
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
        // SAFETY: log_set.C10, by the lock that the caller holds, or that the reader holds which
        // the caller helps (hot_state.C9).
        unsafe { slot.as_ref() }
    }

    /// Returns all existing logs of slots.
    pub(super) fn slot_logs(&self) -> impl Iterator<Item = &SlotLog<L>> {
        let others = self.logs_if_any().into_iter().flat_map(|logs| logs.slots.iter());
        let places = self.first.iter().chain(others.map(|(_, place)| place));
        // ORDER: Acquire; pairs with Release in `find_or_make_slot`.
        let logs = places.map(|place| place.0.load(Ordering::Acquire));
        // SAFETY: log_set.C10; freed with the log set.
        logs.filter_map(|raw| unsafe { raw.as_ref() })
    }

    /// Returns the number of updates appended to the existing logs.
    pub(super) fn appended(&self) -> u64 {
        // ORDER: Relaxed; a statistic.
        self.slot_logs().map(|slot| slot.appended.load(Ordering::Relaxed)).sum()
    }

    /// Returns a slot's log, for an updater; makes it if there is none.
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

    /// Returns the log set, for an updater.
    ///
    /// # Safety
    /// The caller has announced the hot state as an updater, and found the gate open after that.
    #[inline(always)]
    pub(super) unsafe fn open_logs(&self) -> &LogSet<L> {
        // ORDER: Relaxed; `revive` publishes it with the gate, which the caller read with Acquire.
        let logs = self.logs.load(Ordering::Relaxed);
        debug_assert!(!logs.is_null(), "log_set.C10: an open hot state has no log set");
        // SAFETY: log_set.C10 - the gate was open, so the log set exists, and an evictor waits for
        // the caller.
        let logs = unsafe { &*logs };
        logs.life.with(|_| ());
        logs
    }

    /// Returns the log set, if no eviction has freed it.
    pub(super) fn logs_if_any(&self) -> Option<&LogSet<L>> {
        // ORDER: Acquire; pairs with Release in `logs`: its contents.
        // SAFETY: log_set.C10 - callers hold the hot state's lock, or have the mutex or
        // announcement that log_set.C10 names.
        let logs = unsafe { self.logs.load(Ordering::Acquire).as_ref() };
        logs.inspect(|logs| logs.life.with(|_| ()))
    }

    /// Returns the log set; allocates it again if an eviction has freed it. For the holder of the
    /// hot state's lock, and for threads that may use an existing log set by log_set.C10.
    pub(super) fn logs(&self) -> &LogSet<L> {
        self.logs_if_any().unwrap_or_else(|| self.make_logs())
    }

    #[cold]
    fn make_logs(&self) -> &LogSet<L> {
        debug_assert!(self.is_evicted(), "log_set.C10: an open hot state has no log set");
        let made = LogSet::with_collected_logs(Vec::new(), 0);
        // ORDER: Release; pairs with Acquire in `logs_if_any`. Only the lock's holder stores.
        self.logs.store(made, Ordering::Release);
        // SAFETY: log_set.C10 - made above, and only the lock's holder frees it.
        unsafe { &*made }
    }

    /// Frees the log set of a hot state with empty logs. Keeps the count of appended updates, and
    /// the updates that a poisoned object has not applied. Panics of the logs' destructors are
    /// caught here.
    ///
    /// # Safety
    /// The caller holds the hot state's lock, the gate says `EVICTED`, and no updater is inside.
    pub(super) unsafe fn free_logs(&self) {
        debug_assert!(self.is_evicted(), "log_set.C10: the logs of an open gate are freed");
        debug_assert!(!self.membership.is_placed(), "log_set.C10: freed while in the table");
        let Some(old) = self.logs_if_any() else { return };
        let appended = self.appended();
        // SAFETY: the caller promises that it holds the hot state's lock (# Safety).
        let (collected_logs, collected) = old
            .inner
            .with_mut(|inner| unsafe { ((*inner).collected_logs.take(), (*inner).collected) });
        let is_empty = collected_logs.is_empty();
        // SAFETY: the caller promises that it holds the hot state's lock (# Safety).
        unsafe {
            self.count(|counts| {
                counts.appended_before += appended;
                counts.merged += if is_empty { collected } else { 0 };
            });
        }
        let kept = if is_empty {
            ptr::null_mut()
        } else {
            LogSet::with_collected_logs(collected_logs, collected)
        };
        // SAFETY: log_set.C10: the object is not in the table, no updater is inside, and the caller
        // holds the lock.
        unsafe { self.take_logs(kept) };
    }
}
