//! Locking an object: its own lock while it is cold, its hot state's while it is hot.
//!
//! Owns: taking and releasing either lock. Laws oplog.W1 to oplog.W3 are in the header of
//! `deferred`.

use super::Deferred;
use super::deferred::{CONTENDED, LOGGED, POISONED, UPDATES};
use super::guard::ReadGuard;
use super::hot_state::HotState;
use super::log::Log;
use super::promotion::{self, Word};
use super::reader::logs_pay_from;
use crate::lock::{self, Refused, held};
use crate::percpu::{self, Slot};
use crate::profile::{self, Of};
use crate::sync::{Backoff, Ordering, panicking};
use std::marker::PhantomData;
use std::ptr;

impl<T: Send + 'static, L: Log<T>> Deferred<T, L> {
    /// Locks the object and brings it up to date (unless it is poisoned); also changes its state if
    /// a policy says so.
    ///
    /// # Panics
    /// If it would have to wait and the thread has a log in hand (`held`): the lock's holder might
    /// be waiting for that log.
    #[track_caller]
    pub(super) fn acquire(&self, wait: bool) -> Result<ReadGuard<'_, T, L>, Refused> {
        if percpu::is_announcing() {
            assert!(
                !wait,
                "manycore: an object was read from within Log::push or Log::absorb, where updates \
                 are allowed and reads are not"
            );
            return Err(Refused::Busy);
        }
        let mut backoff = Backoff::new();
        loop {
            // ORDER: Relaxed; a hint; taking either lock orders what follows.
            if !Word::load(&self.word, Ordering::Relaxed).is_hot() {
                if self.config.is_managed() {
                    return Err(Refused::Hot); // only its owner locks it while cold
                }
                match self.lock_word(wait) {
                    Ok(()) => {
                        self.note_cold_read();
                        return Ok(self.guard(ptr::null()));
                    }
                    Err(Refused::Hot) => continue,
                    Err(refused) => return Err(refused),
                }
            }
            match self.lock_hot_state(wait) {
                Ok(hot) => {
                    let guard = self.merge_held(hot);
                    if profile::counts() && !self.config.is_managed() {
                        let updates = guard.window().unwrap_or(0);
                        profile::operations("Deferred", self, updates, 1);
                    }
                    return Ok(guard);
                }
                Err(Refused::Hot) => backoff.pause(),
                Err(refused) => return Err(refused),
            }
        }
    }

    /// Takes the object's lock without bringing the object up to date; null means that it is cold.
    /// Fails if this thread holds it, or would deadlock.
    ///
    /// # Panics
    /// As [`acquire`](Self::acquire).
    #[track_caller]
    pub(super) fn lock_as_it_is(&self) -> Result<Locked<'_, T, L>, Refused> {
        assert!(
            !percpu::is_announcing(),
            "manycore: an object is locked from within Log::push or Log::absorb, where updates are \
             allowed and this is not"
        );
        let mut backoff = Backoff::new();
        loop {
            // ORDER: Relaxed; a hint; taking either lock orders what follows.
            let locked = if Word::load(&self.word, Ordering::Relaxed).is_hot() {
                self.lock_hot_state(true)
            } else {
                self.lock_word(true).map(|()| ptr::null())
            };
            match locked {
                Ok(hot) => return Ok(Locked { object: self, hot }),
                Err(Refused::Hot) => backoff.pause(),
                Err(refused) => return Err(refused),
            }
        }
    }

    #[track_caller]
    fn lock_word(&self, wait: bool) -> Result<(), Refused> {
        let token = percpu::thread_token();
        if wait {
            lock::lock_nested(&self.word, token, Of::new("Deferred", self))?;
        } else {
            lock::try_lock(&self.word, token)?;
        }
        held::enter();
        Ok(())
    }

    fn note_cold_read(&self) {
        // ORDER: Relaxed; guarded by the word's lock.
        let contention = self.contention.load(Ordering::Relaxed);
        let pays = contention & UPDATES >= logs_pay_from(percpu::slot_count());
        let kept = if pays { contention & !UPDATES } else { contention & !(UPDATES | CONTENDED) };
        if kept != contention {
            self.contention.store(kept, Ordering::Relaxed);
        }
    }

    /// A guard for the lock that this thread has just taken.
    fn guard(&self, hot: *const HotState<T, L>) -> ReadGuard<'_, T, L> {
        let value = if hot.is_null() {
            self.value.get_mut()
        } else {
            // SAFETY: the hot state's lock is held, so it is alive.
            unsafe { (*hot).value.get_mut() }
        };
        ReadGuard {
            object: self,
            hot,
            value: Some(value),
            panicking: panicking(),
            not_send: PhantomData,
        }
    }

    /// Merges under the hot state's lock, which this thread has just taken.
    fn merge_held(&self, hot: *const HotState<T, L>) -> ReadGuard<'_, T, L> {
        let release = Locked { object: self, hot };
        // SAFETY: the lock is held, so the hot state is alive.
        let held = unsafe { &*hot };
        if !held.is_evicted() {
            // SAFETY: this thread has taken the hot state's lock, which the guard releases when it
            // is dropped.
            unsafe {
                held.merge();
                if let Some(biased) = held.wants_bias() {
                    self.set_biased(held, biased);
                }
            }
        }
        std::mem::forget(release);
        let mut guard = self.guard(hot);
        // SAFETY: this thread has taken the hot state's lock, which the guard releases when it is
        // dropped.
        let idle = unsafe { held.wants_demotion() };
        let is_kept = self.config.always_logs() || self.config.is_managed();
        // SAFETY: this thread has taken the hot state's lock, which the guard releases when it is
        // dropped.
        let homeless = held.is_evicted() || unsafe { held.is_without_place() };
        if (idle && !is_kept) || homeless || self.config.never_logs() {
            self.demote_guard(&mut guard);
        }
        guard
    }

    fn set_biased(&self, hot: &HotState<T, L>, biased: bool) {
        // ORDER: Relaxed; only the holder of the hot state's lock changes the word of a hot object.
        let word = Word::load(&self.word, Ordering::Relaxed).with_bias(biased);
        // ORDER: Release; an updater that enters by the new word reads it with Acquire.
        self.word.store(word.raw(), Ordering::Release);
        // SAFETY: `merge_held`, the only caller, holds the hot state's lock.
        unsafe { hot.set_biased(biased) };
    }

    /// Takes the lock of the object's hot state. `Refused::Hot`: the word has changed, load it
    /// again.
    #[track_caller]
    pub(super) fn lock_hot_state(&self, wait: bool) -> Result<*const HotState<T, L>, Refused> {
        let of = Of::new("Deferred", self);
        let locked = self.with_hot_state(|hot, _| {
            let token = percpu::thread_token();
            if wait {
                lock::lock_nested(&hot.lock, token, of)?;
            } else {
                lock::try_lock(&hot.lock, token)?;
            }
            // ORDER: Relaxed; guarded by the lock.
            if hot.closed.load(Ordering::Relaxed) {
                // SAFETY: oplog.W3 - this thread has taken the lock just above, and the hot state
                // lives until its waiters have left.
                unsafe { lock::unlock(&hot.lock, 0) };
                return Err(Refused::Hot);
            }
            held::enter();
            Ok(ptr::from_ref(hot))
        });
        locked.unwrap_or(Err(Refused::Hot))
    }

    /// Runs `f` on the object's hot state, if it has one, without taking its lock.
    pub(super) fn with_hot_state<R>(
        &self,
        f: impl FnOnce(&HotState<T, L>, Slot) -> R,
    ) -> Option<R> {
        let look = |hot: &promotion::Inside<HotState<T, L>>, slot| {
            hot.in_use();
            f(hot, slot)
        };
        // SAFETY: oplog.W3 - this is the object's word, and its hot states are freed only as
        // promotion.H4 allows.
        unsafe { promotion::look_on(&self.word, look) }
    }

    /// Queues an update for the next read without waiting (`late`), or returns it if the object is
    /// cold or about to be.
    pub(super) fn append_late(&self, op: L::Op) -> Result<(), L::Op> {
        let mut waiting = Some(op);
        let pushed = self.with_hot_state(|hot, _| {
            // SAFETY: this call borrows the object, which keeps the clock's configuration
            // (oplog.O1).
            waiting.take().map(|op| unsafe { hot.push_late(op) })
        });
        match pushed.flatten() {
            Some(Ok(skewed)) => {
                if let Some((clock, stamp)) = skewed {
                    clock.settle(stamp);
                }
                Ok(())
            }
            Some(Err(op)) => Err(op),
            None => waiting.map_or(Ok(()), Err),
        }
    }

    pub(super) fn is_held_by_this_thread(&self) -> bool {
        let token = percpu::thread_token();
        lock::is_held_by(&self.word, token)
            || self.with_hot_state(|hot, _| lock::is_held_by(&hot.lock, token)).unwrap_or(false)
    }

    /// Releases the lock of `hot`, or the word's own if that is null; then also finishes a
    /// promotion that happened while it was held (oplog.W2).
    ///
    /// # Safety
    /// This thread holds that lock, and no reference to the value is left.
    pub(super) unsafe fn release(&self, hot: *const HotState<T, L>, poison: bool) {
        held::leave();
        if !hot.is_null() {
            // SAFETY: the lock is held, so the hot state is alive until it is released.
            unsafe {
                if poison {
                    (*hot).poisoned.store(true, Ordering::Relaxed);
                }
                lock::unlock(&raw const (*hot).lock, 0);
            }
            return;
        }
        if poison {
            // ORDER: Relaxed; see `is_poisoned`.
            self.contention.fetch_or(POISONED, Ordering::Relaxed);
        }
        // SAFETY: the word is locked by this thread, or was until it became HOT.
        if !unsafe { lock::unlock_unless_hot(&self.word, percpu::thread_token()) } {
            // SAFETY: oplog.W2 - the hot state's lock is this thread's, and the value is inline.
            unsafe { self.finish_promotion() };
        }
    }

    /// The word became HOT while this thread held its lock: moves the value into the hot state, and
    /// releases the hot state's lock (oplog.W2).
    ///
    /// # Safety
    /// The word became HOT while this thread held its lock, and no reference to the value is left.
    #[cold]
    unsafe fn finish_promotion(&self) {
        // ORDER: Acquire; pairs with Release in `lock::redirect`: the hot state's contents.
        let word = Word::load(&self.word, Ordering::Acquire);
        debug_assert!(
            word.is_open(),
            "oplog.W2: a hot state is closed before its promotion is over"
        );
        // ORDER: Relaxed; a hint, which the holder may have overwritten since.
        self.contention.fetch_or(LOGGED, Ordering::Relaxed);
        let hot: *const HotState<T, L> = word.state();
        // SAFETY: oplog.W2 - the hot state is locked in this thread's name; the value is inline.
        unsafe {
            self.move_in(&*hot);
            lock::unlock(&raw const (*hot).lock, 0);
        }
    }

    /// Moves the value and the poison flag from the object to a hot state that was published
    /// without them (oplog.W2).
    ///
    /// # Safety
    /// The caller holds the hot state's lock, or has exclusive access to the object. The value is
    /// inline.
    pub(super) unsafe fn move_in(&self, hot: &HotState<T, L>) {
        // ORDER: Relaxed; guarded by the hot state's lock.
        let has_value = hot.has_value.load(Ordering::Relaxed);
        debug_assert!(!has_value, "oplog.W2: a promotion is finished twice");
        // SAFETY: oplog.W1, oplog.W2 - the caller promises that it holds the hot state's lock or
        // has exclusive access to the object, and that the value is inline (# Safety). The place in
        // the hot state is empty.
        unsafe {
            self.value.with(|from| hot.value.with_mut(|to| ptr::copy_nonoverlapping(from, to, 1)));
        }
        // ORDER: Relaxed (all); guarded by the hot state's lock.
        hot.has_value.store(true, Ordering::Relaxed);
        if self.contention.load(Ordering::Relaxed) & POISONED != 0 {
            self.contention.fetch_and(!POISONED, Ordering::Relaxed);
            hot.poisoned.store(true, Ordering::Relaxed);
        }
    }
}

/// The cold object's lock, released on drop. A panic under it poisons the object.
pub(crate) struct ColdHold<'a, T: Send + 'static, L: Log<T>> {
    pub(super) object: &'a Deferred<T, L>,
    /// Set while user code runs.
    pub(super) poison: bool,
}

impl<'a, T: Send + 'static, L: Log<T>> ColdHold<'a, T, L> {
    /// A guard of the word's lock, which this thread has just taken.
    #[inline(always)]
    pub(super) fn of(object: &'a Deferred<T, L>) -> Self {
        held::enter();
        Self { object, poison: false }
    }
}

impl<T: Send + 'static, L: Log<T>> Drop for ColdHold<'_, T, L> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.poison {
            // SAFETY: oplog.W1 - the thread that made this `ColdHold` holds the word's lock, and no
            // reference to the value outlives it.
            return unsafe { self.object.release_poisoned() };
        }
        held::leave();
        // SAFETY: a `ColdHold` is made by the thread that has just taken the word's lock, which is
        // released only here; the word may have become HOT since (oplog.W2).
        if !unsafe { lock::unlock_unless_hot(&self.object.word, percpu::thread_token()) } {
            // SAFETY: oplog.W2 - the hot state's lock is this thread's, and the value is inline.
            unsafe { self.object.finish_promotion() };
        }
    }
}

impl<T: Send + 'static, L: Log<T>> Deferred<T, L> {
    /// [`release`](Self::release)s the word's own lock after a panic.
    ///
    /// # Safety
    /// This thread holds that lock, and no reference to the value is left.
    #[cold]
    unsafe fn release_poisoned(&self) {
        // SAFETY: the caller promises that this thread holds the word's lock, and that no reference
        // to the value is left (# Safety). Null means the word's own lock.
        unsafe { self.release(ptr::null(), true) };
    }
}

/// The object's lock, the word's or the hot state's, held by this thread; released on drop, also by
/// a panic.
pub(super) struct Locked<'a, T: Send + 'static, L: Log<T>> {
    pub(super) object: &'a Deferred<T, L>,
    /// Null if the lock is the word's.
    pub(super) hot: *const HotState<T, L>,
}

impl<T: Send + 'static, L: Log<T>> Drop for Locked<'_, T, L> {
    fn drop(&mut self) {
        // SAFETY: oplog.W1 - the thread that made this `Locked` holds the lock, and takes no
        // reference to the value.
        unsafe { self.object.release(self.hot, false) };
    }
}
