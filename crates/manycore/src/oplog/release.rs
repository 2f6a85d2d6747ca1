//! Releasing an object's lock, and finishing a promotion that happened while it was held.
//!
//! Owns: the guards of the locks, which release them. Laws oplog.W1 to oplog.W3 are in the header
//! of `object`.

use super::hot_state::HotState;
use super::log::Log;
use super::object::Deferred;
use crate::lock::{self, held};
use crate::percpu;
use std::ptr;

impl<T: Send + 'static, L: Log<T>> Deferred<T, L> {
    /// Releases the lock of `hot`, or the word's own if that is null; then also finishes a
    /// promotion that happened while it was held (oplog.W2).
    ///
    /// # Safety
    /// This thread holds that lock, and no reference to the value is left.
    pub(super) unsafe fn release(&self, hot: *const HotState<T, L>, poison: bool) {
        debug_assert!(self.is_held_through(hot), "oplog.W1: a lock is released that is not held");
        held::leave();
        if !hot.is_null() {
            // SAFETY: the lock is held, so the hot state is alive until it is released.
            unsafe {
                if poison {
                    (*hot).poison();
                }
                lock::unlock(&raw const (*hot).lock, 0);
            }
            return;
        }
        if poison {
            self.contention.poison();
        }
        // SAFETY: the word is locked by this thread, or was until it became HOT.
        if !unsafe { lock::unlock_unless_hot(self.word.raw(), percpu::thread_token()) } {
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

/// The cold object's lock, released on drop. A panic under it poisons the object.
pub(crate) struct ColdGuard<'a, T: Send + 'static, L: Log<T>> {
    pub(super) object: &'a Deferred<T, L>,
    /// Set while user code runs.
    pub(super) poison: bool,
}

impl<'a, T: Send + 'static, L: Log<T>> ColdGuard<'a, T, L> {
    /// A guard of the word's lock, which this thread has just taken.
    #[inline(always)]
    pub(super) fn of(object: &'a Deferred<T, L>) -> Self {
        held::enter();
        Self { object, poison: false }
    }
}

impl<T: Send + 'static, L: Log<T>> Drop for ColdGuard<'_, T, L> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.poison {
            // SAFETY: oplog.W1 - the thread that made this `ColdGuard` holds the word's lock, and
            // no reference to the value outlives it.
            return unsafe { self.object.release_poisoned() };
        }
        held::leave();
        // SAFETY: a `ColdGuard` is made by the thread that has just taken the word's lock, which is
        // released only here; the word may have become HOT since (oplog.W2).
        if !unsafe { lock::unlock_unless_hot(self.object.word.raw(), percpu::thread_token()) } {
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
