//! Releasing an object's lock, and finishing a promotion that happened while it was held.
//!
//! Owns: the guards of the locks, which release them. Laws oplog.W1 to oplog.W3 are in the header
//! of `object`.

use super::contention::Contention;
use super::guard::Hold;
use super::hot_state::HotState;
use super::log::Log;
use super::object::Deferred;
use crate::lock::reservation::{self, Entry};
use crate::lock::{self, held};
use crate::percpu::{self, barrier};
use crate::sync::seeded_bug;

impl<T: Send + 'static, L: Log<T>> Deferred<T, L> {
    /// The short path of [`release_slow`](Self::release_slow): releases a cold object to which
    /// nothing happened while it was held. If that returns false, the object is released by
    /// `release_slow`.
    ///
    /// # Safety
    /// This thread holds the object so, and no reference to the value is left.
    #[inline(always)]
    pub(super) unsafe fn try_release(&self, hold: Hold<T, L>) -> bool {
        debug_assert!(
            self.is_held_through(hold.state()),
            "oplog.W1: a lock is released that is not held"
        );
        let (word, token) = (self.word.raw(), percpu::thread_token());
        let released = if hold.is_locked() {
            lock::unlock_plain(word, token)
        } else {
            hold.is_reserved() && reservation::leave(word, &self.inside, token)
        };
        if released {
            held::leave();
        }
        released
    }

    /// Poisons the object and releases it; or releases it where [`try_release`](Self::try_release)
    /// has not. Then also finishes a promotion that happened while it was held (oplog.W2).
    ///
    /// # Safety
    /// This thread holds the object so; if it is not to be poisoned, by a hot state, or
    /// `try_release` has returned false. No reference to the value is left.
    #[inline(never)]
    pub(super) unsafe fn release_slow(&self, hold: Hold<T, L>, poison: bool) {
        held::leave();
        // SAFETY: the caller promises that this thread has the hold, so a hot state is alive.
        if let Some(hot) = unsafe { hold.state().as_ref() } {
            if poison {
                hot.poison();
            }
            // SAFETY: this thread has the lock of the hot state, which is alive until then.
            return unsafe { lock::unlock(&raw const (*hold.state()).lock, 0) };
        }
        if poison {
            self.contention.poison();
        }
        let token = percpu::thread_token();
        if hold.is_reserved() && poison {
            self.leave_reserved(token);
        } else if hold.is_reserved() {
            self.leave_changed(token); // `try_release` has cleared the flag
        } else {
            // SAFETY: the caller holds the word's lock, or held it until the word became HOT.
            unsafe { self.release_marked(token) };
        }
    }

    /// Enters the object, if it is reserved for this thread, whose token it is.
    #[inline(always)]
    pub(super) fn enter_reserved(&self, token: usize) -> bool {
        match reservation::enter(self.word.raw(), &self.inside, token) {
            Entry::Inside => true,
            Entry::Refused => false,
            Entry::Changed => {
                self.leave_changed(token);
                false
            }
        }
    }

    /// Leaves the object, which this thread has entered by its reservation.
    #[inline(always)]
    pub(super) fn leave_reserved(&self, token: usize) {
        if !reservation::leave(self.word.raw(), &self.inside, token) {
            self.leave_changed(token);
        }
    }

    /// Releases the word's own lock, or finishes a promotion (oplog.W2).
    ///
    /// # Safety
    /// This thread, whose token it is, holds the lock, or did until the word became HOT, and no
    /// reference to the value is left.
    #[inline(always)]
    pub(super) unsafe fn release_word(&self, token: usize) {
        if !lock::unlock_plain(self.word.raw(), token) {
            // SAFETY: the caller's promise is the same (# Safety).
            unsafe { self.release_marked(token) };
        }
    }

    /// As [`release_word`](Self::release_word), if there is a flag in the word, or it is HOT.
    ///
    /// # Safety
    /// As there.
    #[cold]
    #[inline(never)]
    unsafe fn release_marked(&self, token: usize) {
        // SAFETY: the word is locked by this thread, or was until it became HOT.
        if !unsafe { lock::unlock_unless_hot(self.word.raw(), token) } {
            // SAFETY: oplog.W2 - the hot state's lock is this thread's, and the value is inline.
            unsafe { self.finish_promotion() };
        }
    }

    /// What is left to this thread, which is inside no longer, of a reservation that was revoked.
    #[cold]
    pub(super) fn leave_changed(&self, token: usize) {
        if reservation::leave_changed(self.word.raw(), token) {
            return;
        }
        // The word is HOT. A promotion in this thread's name waits for it; but the word may have
        // been free in between, and be hot by another thread.
        let hot_lock_held = self.with_hot_state(|hot, _| lock::is_held_by(&hot.lock, token));
        // BUG: the owner of a reservation leaves a promotion in its name unfinished (oplog.W2).
        if hot_lock_held == Some(true) && !seeded_bug!("unfinished-promotion") {
            // SAFETY: oplog.W2 - the hot state was locked in this thread's name while it held the
            // word, so the value is inline, and no reference to it is left.
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
        let word = self.word.load();
        debug_assert!(
            word.is_open(),
            "oplog.W2: a hot state is closed before its promotion is over"
        );
        self.contention.note_hot(); // the holder may have overwritten it since
        let hot: *const HotState<T, L> = word.state();
        // SAFETY: oplog.W2 - the hot state is locked in this thread's name; the value is inline.
        unsafe {
            if (*hot).readers().is_none() {
                self.move_in(&*hot);
            }
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
        // SAFETY: oplog.W1, oplog.W2 - the caller promises that it holds the hot state's lock or
        // has exclusive access to the object, and that the value is inline (# Safety).
        unsafe { hot.move_in(&self.value) };
        if self.contention.load().is_poisoned() {
            self.contention.clear_poison();
            hot.poison();
        }
    }
}

/// The cold object's lock, released on drop.
///
/// On the short paths user code runs under a [`UserCode`] in its stead. What this drops is too much
/// to be inlined where a panic unwinds, so it would have to be in memory, and the locked
/// instruction that releases the lock waits for every store before it.
pub(crate) struct ColdGuard<'a, T: Send + 'static, L: Log<T>> {
    pub(super) object: &'a Deferred<T, L>,
    /// The thread has the lock by a reservation.
    reserved: bool,
}

impl<'a, T: Send + 'static, L: Log<T>> ColdGuard<'a, T, L> {
    /// A guard of the word's lock, which this thread has just taken.
    #[inline(always)]
    pub(super) fn of(object: &'a Deferred<T, L>) -> Self {
        held::enter();
        Self::of_counted(object)
    }

    /// As [`of_counted`](Self::of_counted), for a lock that the thread has by a reservation.
    #[inline(always)]
    pub(super) fn of_reserved(object: &'a Deferred<T, L>) -> Self {
        Self { object, reserved: true }
    }

    /// As [`of`](Self::of), for a lock that `held` has counted.
    #[inline(always)]
    pub(super) fn of_counted(object: &'a Deferred<T, L>) -> Self {
        Self { object, reserved: false }
    }

    #[inline(always)]
    pub(crate) fn is_reserved(&self) -> bool {
        self.reserved
    }

    /// The same hold without a reservation, which a holder must not have that promotes the object.
    #[cold]
    pub(crate) fn settled(mut self) -> Self {
        if std::mem::take(&mut self.reserved) {
            let token = percpu::thread_token();
            reservation::give_up(self.object.word.raw(), &self.object.inside, token);
        }
        self
    }

    /// As [`reserve`](Self::reserve), by a thread that goes on holding the object.
    #[cold]
    pub(super) fn reserve_held(&mut self, contention: Contention) {
        let reserves = barrier::is_asymmetric() && !barrier::is_denied();
        let object = self.object;
        object.contention.store(contention.spent(reserves));
        let (word, token) = (object.word.raw(), percpu::thread_token());
        self.reserved = reserves && reservation::reserve_inside(word, &object.inside, token);
    }

    /// Stores `contention`, and releases the lock; reserves the object for this thread, if no other
    /// waits for it.
    #[cold]
    pub(super) fn reserve(self, contention: Contention) {
        let reserves = barrier::is_asymmetric() && !barrier::is_denied();
        self.object.contention.store(contention.spent(reserves));
        // (A reader that finds the flag, and the word not reserved, takes the long path.)
        if reserves && lock::reservation::reserve(self.object.word.raw(), percpu::thread_token()) {
            held::leave();
            std::mem::forget(self);
        }
    }
}

impl<T: Send + 'static, L: Log<T>> Drop for ColdGuard<'_, T, L> {
    #[inline(always)]
    fn drop(&mut self) {
        held::leave();
        let token = percpu::thread_token();
        if self.reserved {
            return self.object.leave_reserved(token);
        }
        // SAFETY: a `ColdGuard` is made by the thread that has just taken the word's lock, which is
        // released only here; the word may have become HOT since (oplog.W2).
        unsafe { self.object.release_word(token) };
    }
}

/// A hold while user code runs: its panic poisons the object, and releases the lock.
pub(super) struct UserCode<'a, T: Send + 'static, L: Log<T>> {
    pub(super) object: &'a Deferred<T, L>,
    pub(super) reserved: bool,
}

impl<T: Send + 'static, L: Log<T>> Drop for UserCode<'_, T, L> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: oplog.W1 - this has the duty of a `ColdGuard`, which is made by the thread that
        // has just taken the word's lock. The reference to the value has gone with user code.
        unsafe { self.object.release_slow(Hold::cold(self.reserved), true) };
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
        unsafe { self.object.release_slow(Hold::hot(self.hot), false) };
    }
}
