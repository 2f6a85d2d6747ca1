//! The longer paths of updates and reads, which the short paths leave to them, and the use of a
//! shared object.

use super::{Adaptive, Entry, ReadGuard};
use crate::config::{self, BIASED_FROM};
use crate::lock::{self, Refused, held};
use crate::oplog;
use crate::oplog::append::Rare;
use crate::oplog::contention::Kind;
use crate::oplog::deferred::{not_held, poisoned};
use crate::oplog::guard::{Hold, Locked};
use crate::oplog::log::Log;
use crate::oplog::push::Refusal;
use crate::oplog::readers::{Lane, Readers};
use crate::percpu;
use crate::profile;
use crate::sync::seeded_bug;

impl<T: Send + Sync + 'static, L: Log<T>> Adaptive<T, L> {
    /// Lets the readers of a pinned object announce themselves by plain stores.
    #[cfg(all(test, manycore_loom))]
    pub(in crate::oplog) fn bias(&self) {
        self.readers.get_or_new().open(true);
    }

    pub(super) fn is_read_by_lane(&self) -> bool {
        self.readers.get().is_some_and(Readers::is_read_by_me)
    }

    /// Enters through the thread's lane, if the object is shared (readers.A1).
    #[inline(always)]
    pub(super) fn enter_lane(&self) -> Option<&Lane> {
        let readers = self.readers.get()?;
        // BUG: a reader enters though there are logs beside the value (readers.A1).
        if self.object.has_hot_state() && !seeded_bug!("beside-logs") {
            return None;
        }
        let lane = readers.enter()?;
        held::enter();
        Some(lane)
    }

    /// Reads an object that has logs, is held, poisoned, or shared.
    #[inline(never)]
    #[track_caller]
    pub(super) fn read_rare(&self) -> Entry<'_, T, L> {
        let guard = match self.enter(true) {
            Ok(entry) => ReadGuard::new(self, entry),
            Err(refused) => not_held(refused),
        };
        if guard.is_poisoned() {
            drop(guard);
            poisoned();
        }
        guard.into_entry()
    }

    #[track_caller]
    pub(super) fn enter(&self, wait: bool) -> Result<Entry<'_, T, L>, Refused> {
        if let Some(readers) = self.readers.get() {
            readers.claim();
            if let Some(lane) = self.enter_lane() {
                return Ok(Entry::Lane(lane));
            }
        }
        let inside = self.is_read_by_lane();
        let hold = match self.object.acquire_hold(wait && !inside) {
            Err(Refused::Busy) if inside => return Err(Refused::HeldBySelf),
            hold => hold?,
        };
        self.let_in(hold);
        Ok(Entry::Hold(hold))
    }

    /// Locks the object, up to date, and keeps out its readers. They stay out if the caller panics;
    /// otherwise the caller passes the guard to [`end`](Self::end).
    #[track_caller]
    pub(super) fn exclusive(&self) -> Result<oplog::ReadGuard<'_, T, L>, Refused> {
        if self.is_read_by_lane() {
            return Err(Refused::HeldBySelf);
        }
        let hold = self.object.acquire_hold(true)?;
        // BUG: an object changes its mode while its gate is open (readers.A4).
        if self.is_shared_by(hold) && !seeded_bug!("open-promotion") {
            if let Err(refused) = self.readers.get_or_new().close(true) {
                drop(Locked::of(&self.object, hold));
                return Err(refused);
            }
        }
        Ok(oplog::ReadGuard::of(&self.object, hold))
    }

    /// Lets readers in again, and releases the object.
    pub(super) fn end(&self, guard: oplog::ReadGuard<'_, T, L>) {
        let hold = guard.into_hold();
        self.let_in(hold);
        drop(ReadGuard::new(self, Entry::Hold(hold)));
    }

    /// Returns true if the object is cold and shared. This thread has this hold of it.
    fn is_shared_by(&self, hold: Hold<T, L>) -> bool {
        hold.state().is_null() && self.object.contention.load().is_shared()
    }

    /// Opens the object's gate, if the object is shared and not poisoned. This thread has this hold
    /// of it.
    fn let_in(&self, hold: Hold<T, L>) {
        if self.is_shared_by(hold) && !self.object.contention.load().is_poisoned() {
            let readers = self.readers.get_or_new();
            if !readers.is_open() {
                readers.open(false);
            }
        }
    }

    /// Makes an update of a shared object, and keeps its readers out. If that is not possible,
    /// returns the update, and true if it must be logged.
    fn update_shared(&self, op: L::Op) -> Result<(), (L::Op, bool)> {
        match self.object.lock_word(true) {
            Ok(()) => {}
            Err(refused) => return Err((op, refused != Refused::Hot)),
        }
        let hold = Locked::of(&self.object, Hold::LOCKED);
        let contention = self.object.contention.load();
        if !contention.is_shared() {
            return Err((op, false));
        }
        if contention.is_poisoned() {
            return Err((op, true));
        }
        let readers = self.readers.get_or_new();
        let Ok(closed) = readers.close(true) else { return Err((op, true)) };
        let hold = self.object.apply_held(op, hold);
        let contention = self.object.contention.load().with(Kind::Update);
        self.object.contention.store(contention);
        if contention.count(Kind::Update) < config::SHARED_UPDATES_PER_LOOK {
            readers.open(closed.was_biased);
        } else {
            let ratio = self.take_ratio(readers);
            if contention.is_pinned() || ratio >= config::SHARED_FROM / 2 {
                let pays = if closed.was_biased { BIASED_FROM / 2 } else { BIASED_FROM };
                readers.open(ratio >= pays);
            } else {
                self.object.contention.store(contention.flags().in_mode(false, false));
            }
        }
        drop(hold);
        Ok(())
    }

    /// Returns the reads per update of a shared object since the last call. This thread has the
    /// lock.
    fn take_ratio(&self, readers: &Readers) -> u32 {
        let contention = self.object.contention.load();
        let updates = u64::from(contention.count(Kind::Update));
        let reads = u64::from(contention.count(Kind::Read)) + readers.take_reads();
        profile::operations(self.object.kind(), &self.object, updates, reads);
        self.object.contention.store(contention.flags());
        u32::try_from(reads / updates.max(1)).unwrap_or(u32::MAX)
    }

    /// Decides after many reads through one lane whether the readers should be biased, if no thread
    /// holds the object.
    #[cold]
    pub(super) fn look_after_reads(&self) {
        let Some(readers) = self.readers.get() else { return };
        if lock::try_lock(self.object.lockable_word(), percpu::thread_token()).is_err() {
            return;
        }
        let hold = Locked::cold(&self.object);
        if readers.is_open() && self.take_ratio(readers) >= BIASED_FROM {
            readers.open(true); // readers.A3: it was open, so this sets the bias at most
        }
        drop(hold);
    }
}

impl<T: Send + Sync + 'static, L: Log<T>> Rare<L::Op> for Adaptive<T, L> {
    #[cold]
    #[inline(never)]
    #[track_caller]
    fn append_rarely(&self, mut op: L::Op, mut refusal: Refusal) {
        loop {
            op = match self.object.append_while_logged(op, refusal) {
                Ok(()) => return,
                Err(op) => op,
            };
            refusal = Refusal::Stale;
            // The object is shared, or its holder may make it so.
            let must_wait_for_none = held::is_inside() || self.is_read_by_lane();
            let refused = if must_wait_for_none { Err((op, true)) } else { self.update_shared(op) };
            op = match refused {
                Ok(()) => return,
                Err((op, true)) => {
                    self.object.publish_beside(self.readers.get_or_new());
                    op
                }
                Err((op, false)) => op,
            };
        }
    }
}
