//! The public interface of [`Deferred`].

use super::configurations::ConfigId;
use super::guard::{Hold, Locked, ReadGuard};
use super::lifecycle::Admission;
use super::log::Log;
use super::object::Deferred;
use super::stats::Stats;
use crate::config;
use crate::lock::error::{TryReadError, would_deadlock};
use crate::lock::{self, Refused, held};
use crate::percpu;
use crate::profile::Of;
use crate::sync::{self, Panic, const_fn, panicking};
use std::fmt;
use std::panic::resume_unwind;
use std::ptr;

impl<T: Send + 'static, L: Log<T>> Deferred<T, L> {
    const_fn! {
        /// Makes an object with this value, cold, with the default bounds and policies.
        ///
        /// ```
        /// use manycore::oplog::{Commuting, Deferred, Op};
        ///
        /// struct Add(u64);
        /// impl Op<u64> for Add {
        ///     fn apply(self, sum: &mut u64) {
        ///         *sum += self.0;
        ///     }
        /// }
        ///
        /// static SUM: Deferred<u64, Commuting<Add>> = Deferred::new(0);
        /// SUM.append(Add(2));
        /// assert_eq!(*SUM.read(), 2);
        /// ```
        #[must_use]
        pub const fn new(value: T) -> Self {
            Self::with_config(value, ConfigId::new())
        }
    }

    /// Appends an update; the next read sees it.
    ///
    /// If this thread's log is full, the call may apply updates of other threads. Their panics are
    /// caught here: they poison the object for its next reader, and this update is appended.
    ///
    /// # Panics
    /// If the object is cold and applying the update panics.
    #[inline]
    #[track_caller]
    pub fn append(&self, op: L::Op) {
        self.append_or(op, self);
    }

    /// Brings the object up to date and locks it, for reading or changing the value.
    ///
    /// # Panics
    /// - If the object is poisoned, because an update panicked. Repair the value through
    ///   [`get_mut`](Self::get_mut) or [`read_poisoned`](Self::read_poisoned) and call
    ///   [`clear_poison`](Self::clear_poison).
    /// - If an update panics while this read applies it; the object is poisoned then.
    /// - If the read would deadlock: this thread holds the object already, or holds another object
    ///   for which the object's holder waits, or is in [`Log::push`] (see [the module](super)).
    #[inline(always)]
    #[track_caller]
    pub fn read(&self) -> ReadGuard<'_, T, L> {
        match self.hold_cold() {
            Some(hold) => ReadGuard::of_cold(self, hold),
            None => ReadGuard::of(self, self.read_slow()),
        }
    }

    /// Not inlined, so that the short path saves no registers: see `append_logged`.
    #[inline(never)]
    #[track_caller]
    fn read_slow(&self) -> Hold<T, L> {
        match self.acquire_hot() {
            Some(hold) if !self.is_poisoned_held(hold.state()) => hold,
            hold => self.read_rarely(hold),
        }
    }

    /// Reads an object that is poisoned, or that had a busy lock.
    #[cold]
    #[inline(never)]
    #[track_caller]
    fn read_rarely(&self, hold: Option<Hold<T, L>>) -> Hold<T, L> {
        let acquired = match hold {
            Some(hold) => Ok(hold),
            None => self.acquire_slow(true),
        };
        let guard = match acquired {
            Ok(hold) => ReadGuard::of(self, hold),
            Err(refused) => not_held(refused),
        };
        if guard.is_poisoned() {
            drop(guard);
            poisoned();
        }
        guard.into_hold()
    }

    /// As [`read`](Self::read), but also returns a guard if the object is poisoned. Then the queued
    /// updates are not applied, so the value can be examined and repaired.
    ///
    /// # Panics
    /// As [`read`](Self::read), except for poison.
    #[track_caller]
    pub fn read_poisoned(&self) -> ReadGuard<'_, T, L> {
        match self.acquire(true) {
            Ok(guard) => guard,
            Err(refused) => not_held(refused),
        }
    }

    /// As [`read`](Self::read), unless that would wait for another reader.
    ///
    /// # Errors
    /// [`TryReadError::Busy`] if a reader holds the object, [`TryReadError::Poisoned`] if an update
    /// panicked.
    ///
    /// # Panics
    /// If an update panics while this read applies it.
    #[track_caller]
    pub fn try_read(&self) -> Result<ReadGuard<'_, T, L>, TryReadError> {
        let guard = self.acquire(false).map_err(|_| TryReadError::Busy)?;
        if guard.is_poisoned() { Err(TryReadError::Poisoned) } else { Ok(guard) }
    }

    /// Applies pending updates: the same as dropping a [`read`](Self::read) guard at once.
    ///
    /// # Panics
    /// As [`read`](Self::read).
    #[track_caller]
    pub fn synchronize(&self) {
        drop(self.read());
    }

    /// Returns the value, up to date. No other thread can use it, so this is cheap.
    ///
    /// The value of a poisoned object is as the panic left it, for repair. Queued updates stay
    /// queued, and the first read after [`clear_poison`](Self::clear_poison) applies them.
    ///
    /// # Panics
    /// If an update panics while it is applied; then the object is poisoned, and the updates after
    /// it stay queued. Also if it is called from within an update or a log of this object that owns
    /// the object.
    #[track_caller]
    pub fn get_mut(&mut self) -> &mut T {
        self.assert_not_in_own_eviction();
        rethrow(self.settle_down());
        let value = self.settled_value();
        // SAFETY: object.W1 - `&mut self` is exclusive. The pointer is to memory that `self` owns,
        // and is used only as long as `self` is borrowed.
        unsafe { (*ptr::from_mut(value.deref())).assume_init_mut() }
    }

    /// Returns the value, up to date.
    ///
    /// # Panics
    /// If the object is poisoned, or an update panics while it is applied: then the value and the
    /// queued updates are dropped. [`try_into_inner`](Self::try_into_inner) keeps them.
    #[must_use]
    #[track_caller]
    pub fn into_inner(self) -> T {
        match self.try_into_inner() {
            Ok(value) => value,
            Err(object) => {
                drop(object);
                poisoned()
            }
        }
    }

    /// Returns the value, up to date, unless the object is poisoned.
    ///
    /// # Errors
    /// The object, if it is poisoned, with its queued updates: repair it through
    /// [`get_mut`](Self::get_mut) and call [`clear_poison`](Self::clear_poison).
    ///
    /// # Panics
    /// If an update panics while it is applied: then the value and the updates after it are
    /// dropped. (If that matters, call [`synchronize`](Self::synchronize) first.) Otherwise as
    /// [`get_mut`](Self::get_mut).
    #[track_caller]
    pub fn try_into_inner(mut self) -> Result<T, Self> {
        self.assert_not_in_own_eviction();
        rethrow(self.settle_down());
        if self.is_poisoned() {
            return Err(self);
        }
        let mut this = std::mem::ManuallyDrop::new(self);
        drop(std::mem::take(&mut this.config));
        // SAFETY: `settle_down` has run, and `this` is never dropped.
        Ok(unsafe { this.take_value() })
    }

    /// Returns true if the object is poisoned: an update panicked, or a reader that had changed the
    /// value.
    #[must_use]
    pub fn is_poisoned(&self) -> bool {
        self.contention.load().is_poisoned()
            || self.with_hot_state(|hot, _| hot.is_poisoned()).unwrap_or(false)
    }

    /// Clears the poison flag. The next read applies the queued updates.
    ///
    /// Takes the object's lock, unless this thread already holds the object.
    ///
    /// # Panics
    /// If taking the lock would deadlock, as [`read`](Self::read).
    #[track_caller]
    pub fn clear_poison(&self) {
        // Under the lock: a read that has collected without applying must find the poison flag that
        // made it skip the updates. Otherwise it would return a value without them.
        let locked = self.lock_as_it_is();
        if matches!(locked, Err(Refused::Deadlock)) {
            would_deadlock();
        }
        self.contention.clear_poison();
        self.with_hot_state(|hot, _| hot.clear_poison());
    }

    /// Returns true if updates go to logs now; false once the object has been evicted.
    #[must_use]
    pub fn is_hot(&self) -> bool {
        self.has_hot_state() && self.with_hot_state(|hot, _| !hot.is_evicted()).unwrap_or(false)
    }

    /// Returns true if the object has a hot state, perhaps an evicted one; a hint.
    #[inline]
    pub(crate) fn has_hot_state(&self) -> bool {
        self.word.hint().is_hot()
    }

    /// Gives the object logs now, without waiting for contention. Returns true if it has them.
    /// Returns false if this thread holds the object, or if its place in the table of objects with
    /// logs is in use at this moment.
    #[track_caller]
    pub fn promote(&self) -> bool {
        if self.has_hot_state() && !self.is_hot() && !held::is_inside() {
            // Evicted, so this demotes the object. A panic belongs to an update applied here, and
            // has poisoned the object.
            sync::contain(|| drop(self.acquire(true)));
        }
        let token = percpu::thread_token();
        loop {
            let word = self.lockable_word();
            let locked = if held::is_inside() {
                lock::try_lock(word, token)
            } else {
                lock::lock(word, token, Of::new(self.kind(), self), Some(self.contention.turns()))
                    .map(drop)
            };
            return match locked {
                Ok(()) => self.promote_held(Locked::cold(self), Admission::Insist),
                Err(Refused::Busy) => {
                    self.publish_for_holder(); // without a place: it must not wait (oplog_table.T1)
                    true
                }
                Err(Refused::Hot) if !self.has_hot_state() => continue, // reserved since, or cold
                Err(refused) => refused == Refused::Hot && self.is_hot(),
            };
        }
    }

    /// Applies pending updates and frees the logs. Contention may promote the object again.
    ///
    /// If the object's updates keep appending updates to it, it keeps its logs.
    ///
    /// # Panics
    /// As [`read`](Self::read).
    #[track_caller]
    pub fn demote(&self) {
        let mut guard = self.read();
        for _ in 0..config::ROUNDS_OF_DEMOTION {
            self.demote_guard(&mut guard);
            if !guard.is_hot() || guard.is_poisoned() {
                return;
            }
        }
    }

    /// Returns statistics of this object's updates.
    ///
    /// Takes the object's lock, so it is not for hot paths. Within an update of this object, or a
    /// log's own code, it returns what is known without reading logs and without waiting: see
    /// [`Stats`].
    #[must_use]
    pub fn stats(&self) -> Stats {
        if self.is_held_by_this_thread() {
            // SAFETY: this thread holds the hot state's lock.
            return self.with_hot_state(|hot, _| unsafe { hot.stats() }).unwrap_or_default();
        }
        let waits = !percpu::has_log();
        loop {
            match self.lock_hot_state(waits) {
                Ok(hot) => {
                    let _locked = Locked::of(self, Hold::hot(hot));
                    // SAFETY: the lock is held, so the hot state is alive.
                    return unsafe { (*hot).stats() };
                }
                Err(Refused::Hot) if self.has_hot_state() => {}
                Err(_) => return Stats::default(),
            }
        }
    }
}

#[track_caller]
pub(super) fn poisoned() -> ! {
    panic!(
        "manycore: the object is poisoned, because an update panicked; repair it by repair(), or \
         by read_poisoned() and clear_poison()"
    )
}

#[track_caller]
pub(super) fn not_held(refused: Refused) -> ! {
    if refused == Refused::Deadlock {
        would_deadlock();
    }
    panic!(
        "manycore: this thread holds the object already; drop the guard before reading again, and \
         do not read an object from within its own updates"
    )
}

fn rethrow(result: Result<(), Panic>) {
    if let Err(panic) = result {
        resume_unwind(panic);
    }
}

impl<T: Send + 'static, L: Log<T>> Drop for Deferred<T, L> {
    /// Applies pending updates, then drops the value. If an update panics, the value is dropped
    /// first, and then the panic is resumed (unless the thread is already unwinding).
    ///
    /// The queued updates of a poisoned object are dropped with it: the panic that poisoned it has
    /// already been reported. [`try_into_inner`](Self::try_into_inner) keeps them.
    fn drop(&mut self) {
        if self.is_in_own_eviction() {
            return self.leave_to_evictor();
        }
        let settled = self.settle_down();
        // SAFETY: `settle_down` has run, and the object is not used again.
        drop(unsafe { self.take_value() });
        if !panicking() {
            rethrow(settled);
        }
    }
}

impl<T: Send + 'static, L: Log<T>> From<T> for Deferred<T, L> {
    fn from(value: T) -> Self {
        Self::new(value)
    }
}

impl<T: Send + Default + 'static, L: Log<T>> Default for Deferred<T, L> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T: Send + 'static, L: Log<T>> fmt::Debug for Deferred<T, L> {
    /// Prints the state, not the value: printing the value would take a read.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Deferred")
            .field("hot", &self.is_hot())
            .field("poisoned", &self.is_poisoned())
            .finish_non_exhaustive()
    }
}
