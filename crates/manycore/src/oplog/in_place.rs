//! Changes of a cold object that are made in place and return something.
//!
//! Owns: [`Deferred::change_in_place`], the shortest path of the library's own collections. Their
//! changes run no user code, so a change cannot call the object again, or panic. So a change is not
//! counted as a hold (`lock::held`), and no guard catches a panic. Even a thread with a log in hand
//! may make one, because it waits for no other thread. Everything rare is left to `append`, before
//! anything has been changed. Laws object.W1 to object.W3 are in the header of `object`.

use super::contention::Kind;
use super::log::Log;
use super::object::Deferred;
use crate::lock;
use crate::lock::reservation;
use crate::percpu;

impl<T: Send + 'static, L: Log<T>> Deferred<T, L> {
    /// Runs `change` on the value of a cold object that is free, or reserved for this thread, and
    /// counts it as an update.
    ///
    /// Returns `None` if the object is in another state, or if `change` returns `None` (then it has
    /// changed nothing): the caller then appends. `change` runs no user code, and does not panic.
    #[inline(always)]
    pub(crate) fn change_in_place<R>(&self, change: impl FnOnce(&mut T) -> Option<R>) -> Option<R> {
        if self.contention.load().is_merely_reserved() {
            return self.change_reserved(change);
        }
        if self.contention.load().is_plain() { self.change_locked(change) } else { None }
    }

    /// As [`change_in_place`](Self::change_in_place), only for an object that is reserved for this
    /// thread: for a change that is too long to be in a caller's code twice.
    #[inline(always)]
    pub(crate) fn change_if_reserved<R>(
        &self,
        change: impl FnOnce(&mut T) -> Option<R>,
    ) -> Option<R> {
        if self.contention.load().is_merely_reserved() {
            self.change_reserved(change)
        } else {
            None
        }
    }

    #[inline(always)]
    fn change_reserved<R>(&self, change: impl FnOnce(&mut T) -> Option<R>) -> Option<R> {
        let (word, token) = (self.word.raw(), percpu::thread_token());
        if !self.enter_reserved(token) {
            return None;
        }
        let Some(result) = self.change_value(change) else {
            return self.leave_unchanged(token);
        };
        match reservation::leave(word, &self.inside, token) {
            true => Some(result),
            false => Some(self.leave_changed_with(token, result)),
        }
    }

    /// Leaves the object as it was. This thread has entered it by its reservation.
    #[inline(never)]
    fn leave_unchanged<R>(&self, token: usize) -> Option<R> {
        self.leave_reserved(token);
        None
    }

    #[inline(always)]
    fn change_locked<R>(&self, change: impl FnOnce(&mut T) -> Option<R>) -> Option<R> {
        let (word, token) = (self.word.raw(), percpu::thread_token());
        if !lock::try_lock_plain(word, token) {
            return None;
        }
        // Asked under the lock, which waits for the loads before it.
        let contention = self.contention.load().with(Kind::Update);
        if !contention.needs_no_look(Kind::Update) {
            return self.release_marked_with(token, None);
        }
        let Some(result) = self.change_value(change) else {
            return self.release_marked_with(token, None);
        };
        self.contention.store(contention);
        match lock::unlock_plain(word, token) {
            true => Some(result),
            false => Some(self.release_marked_with(token, result)),
        }
    }

    /// Runs `change` on the value. The caller holds the object, which is cold.
    #[inline(always)]
    fn change_value<R>(&self, change: impl FnOnce(&mut T) -> Option<R>) -> Option<R> {
        // SAFETY: object.W1 - this thread holds the word, by its lock or by its reservation. The
        // word was not HOT when the thread took it, so the value is inline.
        self.value.with_mut(|value| change(unsafe { (*value).assume_init_mut() }))
    }

    /// Does [`leave_changed`](Self::leave_changed), and passes `result` on, so that the caller has
    /// nothing to keep.
    #[cold]
    #[inline(never)]
    fn leave_changed_with<R>(&self, token: usize, result: R) -> R {
        self.leave_changed(token);
        result
    }

    /// As [`leave_changed_with`](Self::leave_changed_with), for the word's lock, which this thread
    /// holds.
    #[cold]
    #[inline(never)]
    fn release_marked_with<R>(&self, token: usize, result: R) -> R {
        // SAFETY: object.W1 - the caller holds the lock, which it has taken of a cold object, and
        // its reference to the value is gone.
        unsafe { self.release_word(token) };
        result
    }
}
