//! The life of a hot state: promotion, demotion, eviction, and the drop of an object.
//!
//! ```text
//!         promote                          evict (by another object's promotion)
//! cold ------------> hot, with logs --------------------------------> hot, evicted: no logs
//!   ^                     |                                                |
//!   +------ demote -------+                 the object's next use          |
//!   +----------------------------------------------------------------------+
//! ```
//!
//! An eviction frees the logs of a hot state because another object needs its place, or because the
//! hot state has been idle. It runs in a thread that promotes another object (the newcomer). The
//! thread holds the hot state's lock, but has no access to the victim, which may be moved at any
//! time. So the value stays in the hot state until the victim's next use, which demotes it. The
//! eviction frees only what an object without logs does not need (`log_set`).
//!
//! Laws object.W1 to object.W4 are in the header of `object`.

use super::guard::{Hold, Locked, ReadGuard};
use super::hot_state::HotState;
use super::log::Log;
use super::object::Deferred;
use super::promotion::{self, Membership};
use super::readers::Readers;
use super::settings::{Config, Publish};
use super::table::{Evictable, Eviction};
use super::word::Word;
use crate::lock::{self, LOCKED, held};
use crate::percpu::{self, barrier};
use crate::profile::{self, EventKind};
use crate::sync::{self, MutPtr, Ordering, Panic, seeded_bug};
use std::mem::MaybeUninit;
use std::panic::resume_unwind;
use std::ptr;
use std::sync::Arc;

impl<T: Send + 'static, L: Log<T>> Deferred<T, L> {
    /// Promotes the cold object that `acquire` has locked, and releases the lock.
    #[cold]
    pub(super) fn promote_held(&self, hold: Locked<'_, T, L>, admission: Admission) -> bool {
        let eviction = self.publish_hot_state(&hold, admission);
        drop(hold);
        let admitted = eviction.is_some();
        drop(eviction); // runs the victim's updates, now that this thread holds no lock
        admitted
    }

    /// Makes a hot state for this object, locked by `token`, and the word that leads to it.
    fn new_hot_state(&self, token: usize) -> (*mut HotState<T, L>, Word) {
        let config: Arc<Config> = self.config.config();
        // `Auto` starts biased, too: only a read switches, and an object may never be read.
        let biased = config.publish != Publish::Locked && barrier::is_asymmetric();
        let hot = HotState::<T, L>::new_locked(config, token, biased);
        // SAFETY: made just above.
        let slow_path = unsafe { (*hot).needs_slow_path() };
        (hot, Word::hot(hot, biased, slow_path))
    }

    /// Publishes a hot state for the object, which is cold and locked by this thread, unless
    /// another thread has done so first (object.W2). Returns `None` if the table has no place for
    /// it.
    pub(super) fn publish_hot_state(
        &self,
        _hold: &Locked<'_, T, L>,
        admission: Admission,
    ) -> Option<Option<Eviction>> {
        let (hot, word) = self.new_hot_state(percpu::thread_token());
        let eviction = match admission {
            Admission::Bypass => None,
            _ => {
                // SAFETY: not published yet, so this thread has exclusive access to the hot state.
                match unsafe { (*hot).enter_table(admission == Admission::Insist) } {
                    Ok(eviction) => Some(eviction),
                    Err(_) => {
                        // SAFETY: made above by `Box::into_raw` (`new_hot_state`), and neither
                        // published nor in the table.
                        drop(unsafe { Box::from_raw(hot) });
                        return None;
                    }
                }
            }
        };
        if self.publish(hot, word) {
            return Some(eviction);
        }
        // Another thread has published a hot state first, without a place (oplog_table.T1).
        // SAFETY: published nowhere but in the table, which it leaves here.
        unsafe {
            (*hot).leave_table();
            drop(Box::from_raw(hot));
        }
        Some(eviction)
    }

    /// Gives logs to an object with a word that this thread or another one has locked: for an
    /// update that must not wait (object.W2). Does nothing if the word is not locked, or the object
    /// has logs.
    pub(super) fn publish_for_holder(&self) {
        let (hot, word) = self.new_hot_state(0);
        if !self.publish(hot, word) {
            // SAFETY: made above by `Box::into_raw` (`new_hot_state`), and neither published nor in
            // the table.
            drop(unsafe { Box::from_raw(hot) });
        }
    }

    /// As [`publish_for_holder`](Self::publish_for_holder), also if the word is free, for an object
    /// that may have readers through lanes. The value stays where it is until they have left
    /// (readers.A5).
    pub(super) fn publish_beside(&self, readers: &Readers) {
        let (hot, word) = self.new_hot_state(0);
        // SAFETY: made above, and not published yet.
        unsafe { (*hot).set_readers(Some(readers)) };
        // Only a locked word becomes HOT.
        let locked = lock::try_lock(self.lockable_word(), percpu::thread_token());
        let hold = locked.map(|()| Locked::cold(self));
        if !self.publish(hot, word) {
            // SAFETY: made above by `Box::into_raw` (`new_hot_state`), and neither published nor in
            // the table.
            drop(unsafe { Box::from_raw(hot) });
        }
        drop(hold);
    }

    fn publish(&self, hot: *mut HotState<T, L>, word: Word) -> bool {
        // SAFETY: not published yet; at most the table leads to the hot state, and evictors only
        // try its lock.
        let lock = unsafe { &(*hot).lock };
        // SAFETY: not published yet, as above.
        debug_assert!(!unsafe { (*hot).has_value() }, "object.W2: published with a value");
        // ORDER: Relaxed; published with the hot state.
        let in_name_of = |token| lock.store(token | LOCKED, Ordering::Relaxed);
        let published = self.word.publish(word, in_name_of);
        if published {
            self.contention.note_hot();
            profile::happened(EventKind::Promoted, self.kind(), self, 0);
        }
        published
    }

    /// Makes the object that `guard` holds cold, if it is hot and not poisoned. If an update that
    /// must not wait comes in between, the object stays hot, with that update queued.
    pub(super) fn demote_guard(&self, guard: &mut ReadGuard<'_, T, L>) {
        let hot = guard.hold.state();
        if hot.is_null() {
            return;
        }
        guard.value = None;
        // SAFETY: the guard holds the hot state's lock, so it is alive.
        let closed = sync::caught(|| unsafe { self.close(&*hot) });
        if !matches!(closed, Ok(true)) {
            // SAFETY: object.W3 - the hot state was not closed, so the object keeps it, and the
            // guard still holds its lock.
            unsafe {
                guard.value = Some((*hot).value.get_mut());
                (*hot).revive();
            }
            return closed.map_or_else(|panic| resume_unwind(panic), drop);
        }
        // SAFETY: object.W3 - `close` returned true, this thread holds the hot state's lock, and
        // the guard's reference to the value is gone.
        unsafe { self.abandon(hot) };
        guard.hold = Hold::LOCKED;
        guard.value = Some(self.value.get_mut());
        profile::happened(EventKind::Demoted, self.kind(), self, 0);
    }

    /// Excludes updaters and applies everything. Returns true if the hot state may be freed.
    ///
    /// # Safety
    /// This thread holds the hot state's lock.
    pub(super) unsafe fn close(&self, hot: &HotState<T, L>) -> bool {
        let closing = self.word.close(ptr::from_ref(hot));
        // SAFETY: the lock is held, and CLOSING keeps new updaters out.
        let drained = unsafe {
            hot.drain_all();
            // BUG: a hot state is freed whatever its queue of late updates holds (late.L5's late
            // updates).
            !hot.has_collected_logs() && (hot.late.seal() || seeded_bug!("unsealed-late"))
        };
        if drained {
            closing.stay_closed();
        }
        drained
    }

    /// Moves the value back, leaves the word cold and locked by this thread, and frees the hot
    /// state.
    ///
    /// # Safety
    /// This thread holds the hot state's lock, and `close` returned true.
    pub(super) unsafe fn abandon(&self, hot: *const HotState<T, L>) {
        // SAFETY: the hot state is alive until this function frees it at its end (object.W3).
        let held = unsafe { &*hot };
        // SAFETY: object.W1 - the value is in the hot state, whose lock this thread holds.
        unsafe { held.move_out(&self.value) };
        self.contention.note_cold(held.is_poisoned(), self.config.always_logs());
        self.word.make_cold(percpu::thread_token());
        // SAFETY: object.W3 - this thread holds the lock. The hot state is freed below only after
        // its waiters, which the HOT word refuses, have left.
        unsafe { lock::unlock(&raw const held.lock, lock::HOT) };
        held.leave_table();
        promotion::wait_until_left(hot, held.is_biased());
        // SAFETY: object.W3 - no thread can reach it any more; it came from `Box::into_raw`.
        drop(unsafe { Box::from_raw(promotion::freed_by(hot)) });
    }

    /// Returns true if this thread is running an eviction of this very object further up the stack
    /// (object.W4).
    pub(crate) fn is_in_own_eviction(&mut self) -> bool {
        let word = self.word.hint();
        if !word.is_hot() {
            return false;
        }
        // SAFETY: object.W3 - the object has this hot state.
        let hot = unsafe { &*word.state::<HotState<T, L>>() };
        // An evictor holds the lock and the claim while it runs user code.
        lock::is_held_by(&hot.lock, percpu::thread_token()) && hot.membership.is_claimed()
    }

    #[track_caller]
    pub(super) fn assert_not_in_own_eviction(&mut self) {
        assert!(
            !self.is_in_own_eviction(),
            "manycore: an object was taken apart from within its own updates or logs"
        );
    }

    /// Leaves the value and the hot state to the evictor up the stack (object.W4).
    pub(super) fn leave_to_evictor(&mut self) {
        let word = self.word.hint();
        debug_assert!(word.is_open(), "object.W4: an end within the eviction of a cold object");
        self.word.reset();
        // SAFETY: object.W4 - the evictor, further up this stack, frees it after this has returned.
        unsafe { (*word.state::<HotState<T, L>>()).orphan() };
    }

    /// Brings the object up to date and makes it cold. No other thread has access to it. If it is
    /// poisoned and updates are queued, they stay, and the value stays in the hot state. If an
    /// update panics, the panic is returned after the object is in a consistent state (oplog.D11).
    pub(super) fn settle_down(&mut self) -> Result<(), Panic> {
        let word = self.word.hint();
        if !word.is_hot() {
            self.word.reset(); // locked at most by a guard that was leaked
            return Ok(());
        }
        let raw: *mut HotState<T, L> = word.state();
        // SAFETY: object.W3 - the object has this hot state. `&mut self`: only an evictor can reach
        // it as well.
        let hot = unsafe { &*raw };
        hot.leave_table(); // waits for that evictor
        // ORDER: Relaxed; `&mut self`. Held at most by a guard that was leaked.
        hot.lock.store(0, Ordering::Relaxed);
        if !hot.has_value() {
            // Promoted under a guard that was leaked, so the promotion was not finished
            // (object.W2).
            // SAFETY: object.W2 - the value is still inline, and `&mut self` is exclusive.
            unsafe { self.move_in(hot) };
        }
        // SAFETY: `&mut self`, and `leave_table` has waited for the evictor: no other thread takes
        // the lock or announces the hot state, so none is inside and none will be.
        let drained = sync::caught(|| unsafe { hot.drain_all() });
        // SAFETY: `&mut self`, and the hot state has left the table: no other thread takes its
        // lock.
        if unsafe { hot.has_collected_logs() } || !hot.late.is_empty() || hot.has_dirty() {
            // SAFETY: `&mut self`, and the hot state has left the table: no other thread takes its
            // lock.
            unsafe { hot.revive() };
            return drained;
        }
        self.word.reset();
        self.contention.note_cold(hot.is_poisoned(), self.config.always_logs());
        // SAFETY: object.W1 - the value is in the hot state, which is freed without dropping it.
        unsafe { hot.move_out(&self.value) };
        // SAFETY: object.W3 - the word and the table no longer lead to the hot state, and it came
        // from `Box::into_raw`.
        drop(unsafe { Box::from_raw(raw) });
        drained
    }

    /// Returns the value, after [`settle_down`](Self::settle_down): from the object, or from the
    /// hot state that stayed.
    pub(super) fn settled_value(&mut self) -> MutPtr<MaybeUninit<T>> {
        let word = self.word.hint();
        if !word.is_hot() {
            return self.value.get_mut();
        }
        // SAFETY: object.W3 - the object has this hot state.
        unsafe { (*word.state::<HotState<T, L>>()).value.get_mut() }
    }

    /// Moves the value out for good. Frees the hot state, if there is one, with its queued updates.
    ///
    /// # Safety
    /// `settle_down` ran, and the object is not used again.
    pub(super) unsafe fn take_value(&mut self) -> T {
        let word = self.word.hint();
        if !word.is_hot() {
            // SAFETY: object.W1 - the value is inline, and the caller promises that the object is
            // not used again (# Safety).
            return self.value.with(|value| unsafe { ptr::read(value).assume_init() });
        }
        self.word.reset();
        let hot: *mut HotState<T, L> = word.state();
        // SAFETY: it has left the table (`settle_down`); no other thread can reach it.
        let value = unsafe { (*hot).take_value() };
        // SAFETY: it came from `Box::into_raw`, and no other thread can reach it.
        drop(unsafe { Box::from_raw(hot) });
        value
    }
}

/// How a promotion asks for a place in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Admission {
    /// Do not promote now if the place is in use.
    Ask,
    /// Evict the object that has the place.
    Insist,
    /// Promote without a place, because the update cannot be kept otherwise. The next read asks for
    /// a place (oplog_table.T1).
    Bypass,
}

impl<T: Send + 'static, L: Log<T>> HotState<T, L> {
    /// Lets an evicted hot state have logs again, because it cannot be freed.
    ///
    /// # Safety
    /// The caller holds the hot state's lock.
    pub(super) unsafe fn revive(&self) {
        if self.is_evicted() {
            self.logs(); // the log set exists before the gate is open (log_set.C10)
            self.gate.revive();
        }
    }

    /// Frees the logs of a hot state with a lock that `try_claim` has taken. Never unwinds.
    fn evict(&self) {
        self.gate.evict();
        // A panic here belongs to the *victim*: it must not unwind the newcomer's thread. The
        // victim is poisoned, its updates stay queued, and its next reader finds it poisoned
        // (oplog.D7).
        // SAFETY: hot_state.C7 - the lock is held, and the gate says `EVICTED`: updaters that
        // announce the hot state from now on touch no log.
        let collected = sync::caught(|| unsafe { self.collect_all() });
        if let Err(panic) = collected {
            sync::contain(|| drop(panic));
            self.poison();
            // Updates are still in the logs, so the logs stay until the next read (oplog_table.T1).
            // SAFETY: `try_claim` has taken the hot state's lock, which `finish_eviction` releases
            // after this.
            return unsafe { self.revive() };
        }
        sync::contain(|| {
            // SAFETY: the lock is held, which guards `inner` and the value; user code that runs in
            // here is refused the lock.
            self.logs().inner.with_mut(|inner| unsafe { self.apply(&mut *inner) });
        });
        // SAFETY: the lock is held, and the collection has waited for the updaters.
        unsafe {
            self.count(|counts| counts.evictions += 1);
            self.free_logs();
        }
        self.late.trim();
    }
}

impl<T: Send + 'static, L: Log<T>> HotState<T, L> {
    /// Applies the remaining updates of an object that was dropped, and frees its value and its hot
    /// state (object.W4). Never unwinds: this thread is no user of the object.
    ///
    /// # Safety
    /// `hot` came from `Box::into_raw`, and nothing else refers to it.
    unsafe fn bury(hot: *mut Self) {
        // SAFETY: object.W4 - the caller promises that nothing else refers to the hot state (#
        // Safety): its lock has no other taker, and no updater can announce it.
        sync::contain(|| unsafe { (*hot).drain_all() });
        // SAFETY: object.W4 - the caller promises that nothing else refers to the hot state (#
        // Safety).
        let value = unsafe { (*hot).take_value() };
        sync::contain(|| drop(value));
        // SAFETY: the caller promises a hot state from `Box::into_raw` to which nothing else refers
        // (# Safety), and this is its last use.
        sync::contain(|| drop(unsafe { Box::from_raw(hot) }));
    }
}

impl<T: Send + 'static, L: Log<T>> promotion::State for HotState<T, L> {
    const RUNS_USER_CODE: bool = true;
}

impl<T: Send + 'static, L: Log<T>> Evictable for HotState<T, L> {
    fn try_claim(&self) -> bool {
        let free = lock::try_lock(&self.lock, percpu::thread_token()).is_ok();
        if free {
            self.membership.claim();
        }
        free
    }

    fn activity(&self) -> u64 {
        // oplog_table.T2: the hot state is in the table, so no thread has begun to free its logs.
        self.appended()
    }

    unsafe fn finish_eviction(this: *const Self) {
        // SAFETY: `try_claim` took the hot state's lock, so the hot state lives until `unlock`
        // below.
        unsafe { (*this).evict() };
        // SAFETY: `try_claim` took the hot state's lock and it is claimed, so the hot state lives
        // until both are released below; an orphaned one (object.W4) until `bury`.
        if unsafe { (*this).is_orphaned() } {
            held::leave();
            // SAFETY: object.W4 - the object was dropped, and has left value and hot state to this
            // eviction.
            return unsafe { Self::bury(promotion::freed_by(this)) };
        }
        // SAFETY: locked by `try_claim`; the claim keeps the hot state alive until it ends.
        unsafe {
            lock::unlock(&raw const (*this).lock, 0);
            Membership::end_claim(&raw const (*this).membership);
        }
    }
}
