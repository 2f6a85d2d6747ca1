//! Releasing an object's lock, and finishing a promotion that happened while it was held.
//!
//! Owns: the guards of the locks, which release them. Laws oplog.W1 to oplog.W3 are in the header
//! of `object`.

use super::contention::Contention;
use super::hot_state::HotState;
use super::log::Log;
use super::object::Deferred;
use crate::lock::reservation::{self, Entry};
use crate::lock::{self, held};
use crate::percpu::{self, barrier};
use crate::sync::seeded_bug;
use std::mem::ManuallyDrop;
use std::ptr;

impl<T: Send + 'static, L: Log<T>> Deferred<T, L> {
    /// Releases the lock of `hot`, or the word's own if that is null; then also finishes a
    /// promotion that happened while it was held (oplog.W2).
    ///
    /// # Safety
    /// This thread holds that lock, and no reference to the value is left.
    #[inline]
    pub(super) unsafe fn release(&self, hot: *const HotState<T, L>, reserved: bool, poison: bool) {
        debug_assert!(self.is_held_through(hot), "oplog.W1: a lock is released that is not held");
        held::leave();
        if !hot.is_null() {
            // SAFETY: the caller promises that it holds the hot state's lock (# Safety).
            return unsafe { Self::release_hot(hot, poison) };
        }
        if poison {
            self.contention.poison();
        }
        // SAFETY: the caller holds the word's lock, or held it until the word became HOT.
        unsafe { self.release_word(reserved) };
    }

    /// Releases the lock of `hot`. Not inlined, so that a cold object is released without a frame.
    ///
    /// # Safety
    /// This thread holds that lock, and no reference to the value is left.
    #[inline(never)]
    unsafe fn release_hot(hot: *const HotState<T, L>, poison: bool) {
        // SAFETY: the lock is held, so the hot state is alive until it is released.
        unsafe {
            if poison {
                (*hot).poison();
            }
            lock::unlock(&raw const (*hot).lock, 0);
        }
    }

    /// Releases the word's own lock, or finishes a promotion (oplog.W2). `reserved` says that the
    /// thread has it by a reservation.
    ///
    /// # Safety
    /// This thread holds the lock, or did until the word became HOT, and no reference to the value
    /// is left.
    #[inline(always)]
    unsafe fn release_word(&self, reserved: bool) {
        let token = percpu::thread_token();
        if reserved {
            if !reservation::leave(self.word.raw(), &self.inside, token) {
                self.leave_changed(token);
            }
            return;
        }
        // SAFETY: the word is locked by this thread, or was until it became HOT.
        if !unsafe { lock::unlock_unless_hot(self.word.raw(), token) } {
            // SAFETY: oplog.W2 - the hot state's lock is this thread's, and the value is inline.
            unsafe { self.finish_promotion() };
        }
    }

    /// What is left to this thread, which is inside no longer, of a reservation that was revoked.
    #[cold]
    fn leave_changed(&self, token: usize) {
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

    /// Takes the lock of a cold object, if it is free or reserved for this thread. `contention` is
    /// a hint.
    #[inline(always)]
    pub(super) fn try_hold(&self, contention: Contention) -> Option<ColdGuard<'_, T, L>> {
        let token = percpu::thread_token();
        if !contention.is_reserved() {
            lock::try_lock(self.word.raw(), token).ok()?;
            return Some(ColdGuard::of(self));
        }
        match reservation::enter(self.word.raw(), &self.inside, token) {
            Entry::Inside => {
                held::enter();
                Some(ColdGuard::of_reserved(self))
            }
            Entry::Refused => None,
            Entry::Changed => {
                self.leave_changed(token);
                None
            }
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
        // SAFETY: a `ColdGuard` is made by the thread that has just taken the word's lock, which is
        // released only here; the word may have become HOT since (oplog.W2).
        unsafe { self.object.release_word(self.reserved) };
    }
}

/// A hold while user code runs: its panic poisons the object, and releases the lock.
pub(super) struct UserCode<'a, T: Send + 'static, L: Log<T>> {
    object: &'a Deferred<T, L>,
    reserved: bool,
}

impl<'a, T: Send + 'static, L: Log<T>> UserCode<'a, T, L> {
    #[inline(always)]
    pub(super) fn under(hold: ColdGuard<'a, T, L>) -> Self {
        let hold = ManuallyDrop::new(hold);
        Self { object: hold.object, reserved: hold.reserved }
    }

    /// There was no panic.
    #[inline(always)]
    pub(super) fn over(self) -> ColdGuard<'a, T, L> {
        let this = ManuallyDrop::new(self);
        ColdGuard { object: this.object, reserved: this.reserved }
    }
}

impl<T: Send + 'static, L: Log<T>> Drop for UserCode<'_, T, L> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: oplog.W1 - this has the duty of a `ColdGuard`, which is made by the thread that
        // has just taken the word's lock. The reference to the value has gone with user code.
        unsafe { self.object.release_poisoned(self.reserved) };
    }
}

impl<T: Send + 'static, L: Log<T>> Deferred<T, L> {
    /// [`release`](Self::release)s the word's own lock after a panic.
    ///
    /// # Safety
    /// This thread holds that lock, and no reference to the value is left.
    #[cold]
    #[inline(never)]
    unsafe fn release_poisoned(&self, reserved: bool) {
        // SAFETY: the caller promises that this thread holds the word's lock, and that no reference
        // to the value is left (# Safety). Null means the word's own lock.
        unsafe { self.release(ptr::null(), reserved, true) };
    }
}

/// Poisons a cold object whose lock this thread holds, and goes on holding, if it is dropped.
pub(super) struct Poison<'a, T: Send + 'static, L: Log<T>>(pub(super) &'a Deferred<T, L>);

impl<T: Send + 'static, L: Log<T>> Drop for Poison<'_, T, L> {
    fn drop(&mut self) {
        self.0.contention.poison();
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
        unsafe { self.object.release(self.hot, false, false) };
    }
}
