//! Managed objects: the owner decides when they have logs. For `cluster::adaptive`.
//!
//! Owns: the owner's interface to a *managed* object. Such an object neither promotes nor demotes
//! itself; it may be evicted. While it is cold, nothing in this module accesses its value except on
//! the owner's request: so the owner may admit readers of its own, as long as it excludes them
//! while it changes the value or promotes the object.
//!
//! - oplog.W5 While a managed object is cold, only its owner accesses the value under the word's
//!   lock; updates that find the object cold are returned to the owner.
//!
//! While the object is cold, its `contention` is the owner's *meter*: updates, reads and waits
//! since the owner last took them, next to the flags. It is guarded by the word's lock.

use super::configurations::ConfigId;
use super::contention::{Kind, Meter};
use super::guard::{Hold, ReadGuard};
use super::hot_state::HotState;
use super::lifecycle::Admission;
use super::log::Log;
use super::object::Deferred;
use super::push::Refusal;
use super::release::{ColdGuard, Poison};
use super::table::Eviction;
use crate::lock::{self, Refused, held};
use crate::percpu;
use crate::profile::Of;
use crate::sync::{ConstPtr, MutPtr, const_fn, seeded_bug};
use std::mem::{ManuallyDrop, MaybeUninit};

impl<T: Send + 'static, L: Log<T>> Deferred<T, L> {
    const_fn! {
        /// An object whose owner has a policy of its own.
        pub(crate) const fn new_managed(value: T) -> Self {
            Self::with_config(value, ConfigId::managed())
        }
    }

    /// The value of the cold object, for a thread that the owner has admitted (oplog.W5).
    #[inline(always)]
    pub(crate) fn value_unlocked(&self) -> ConstPtr<MaybeUninit<T>> {
        self.value.get()
    }

    /// The value in the hot state whose guard was kept; it may be read until the hot state's lock
    /// is released.
    pub(crate) fn value_kept(&self, hot: *const ()) -> ConstPtr<MaybeUninit<T>> {
        // SAFETY: the calling thread holds the hot state's lock, so the hot state is alive.
        unsafe { (*hot.cast::<HotState<T, L>>()).value.get() }
    }

    /// Logs an update, or returns it if the object is cold. Not inlined, as `append_logged`.
    #[inline(never)]
    pub(crate) fn append_to_logs(&self, op: L::Op) -> Result<(), L::Op> {
        let word = self.word.load();
        let refused = match percpu::idle_slot() {
            Some(slot) if word.is_plain() => self.append_plain(slot, word, op),
            _ => Err(op),
        };
        match refused {
            Ok(()) => Ok(()),
            Err(op) => self.append_to_logs_slow(op),
        }
    }

    #[cold]
    fn append_to_logs_slow(&self, op: L::Op) -> Result<(), L::Op> {
        self.append_while_logged(op, Refusal::Stale)
    }

    /// Releases a lock whose [`ColdGuard`] was kept.
    ///
    /// # Safety
    /// This thread has kept the `ColdGuard`, and uses no reference to the value any more.
    #[inline(always)]
    pub(crate) unsafe fn release_cold(&self) {
        drop(ColdGuard::of_counted(self));
    }

    /// As [`release_cold`](Self::release_cold), for a hold by a reservation.
    ///
    /// # Safety
    /// As there.
    #[inline(always)]
    pub(crate) unsafe fn release_reserved(&self) {
        drop(ColdGuard::of_reserved(self));
    }

    /// Releases the lock of a hot state whose guard was kept.
    ///
    /// # Safety
    /// This thread has kept the guard, `ReadGuard::keep` returned `hot`, and the thread uses no
    /// reference to the value any more.
    pub(crate) unsafe fn release_logged(&self, hot: *const ()) {
        // SAFETY: the caller promises that this thread kept the lock's guard, that `keep` returned
        // `hot`, and that no reference to the value is used any more (# Safety).
        unsafe { self.release_slow(Hold::hot(hot.cast()), false) };
    }

    /// Whether an object whose lock this thread has kept is poisoned; the word's own lock if `hot`
    /// is null.
    pub(crate) fn is_poisoned_kept(&self, hot: *const ()) -> bool {
        self.is_poisoned_held(hot.cast())
    }

    /// The short path of an update: makes it if the object is cold, free or reserved for this
    /// thread, and `is_plain`, which is asked under the lock. Then the lock is still held if the
    /// owner's policy is due. Else the update is given back, and nothing has happened.
    #[inline(always)]
    pub(crate) fn update_plain(
        &self,
        op: L::Op,
        is_plain: impl Fn() -> bool,
        due: u32,
    ) -> Result<Option<ColdGuard<'_, T, L>>, L::Op> {
        let Some(hold) = self.hold_plain(is_plain) else { return Err(op) };
        if hold.is_reserved() {
            // No other thread uses the object: no policy has to look.
            hold.apply_and_release(op);
            return Ok(None);
        }
        let hold = self.apply_held(op, hold);
        Ok(if hold.count(Kind::Update, due) { Some(hold) } else { None })
    }

    /// Takes the cold object's lock, if it is free or reserved for this thread, the object is not
    /// poisoned, and `is_plain`, which is asked under the lock.
    #[inline(always)]
    pub(crate) fn hold_plain(&self, is_plain: impl Fn() -> bool) -> Option<ColdGuard<'_, T, L>> {
        let (contention, token) = (self.contention.load(), percpu::thread_token());
        if contention.is_plain() {
            // (A hint, which saves the lock in other modes.)
            if !is_plain() || !lock::try_lock_plain(self.word.raw(), token) {
                return None;
            }
            // BUG: a use acts on the mode that it saw before it took the lock (adaptive.A7).
            let is_plain = seeded_bug!("unchecked-mode") || is_plain();
            if !is_plain || !self.contention.load().is_plain() || percpu::has_log() {
                return self.give_up();
            }
            return Some(ColdGuard::of(self));
        }
        if !contention.is_reserved() || percpu::has_log() || !self.enter_reserved(token) {
            return None;
        }
        if !is_plain() {
            return self.give_up_reserved();
        }
        held::enter();
        Some(ColdGuard::of_reserved(self))
    }

    #[cold]
    fn give_up_reserved(&self) -> Option<ColdGuard<'_, T, L>> {
        self.leave_reserved(percpu::thread_token());
        None
    }

    #[cold]
    fn give_up(&self) -> Option<ColdGuard<'_, T, L>> {
        drop(ColdGuard::of(self));
        None
    }

    /// Takes the cold object's lock, if it is free or reserved for this thread. The latter is for
    /// the object's shortest paths alone: any other takes the hold as it is
    /// [`settled`](ColdGuard::settled).
    pub(crate) fn try_hold_cold(&self) -> Result<ColdGuard<'_, T, L>, Refused> {
        match self.try_hold(self.contention.load()) {
            Some(hold) => Ok(hold),
            None if percpu::has_log() => Err(Refused::Busy),
            None => self.try_lock_cold(),
        }
    }

    /// As [`try_hold_cold`](Self::try_hold_cold), only if the object is reserved for this thread.
    #[inline(always)]
    pub(crate) fn try_hold_reserved(&self) -> Option<ColdGuard<'_, T, L>> {
        let contention = self.contention.load();
        let may = contention.is_reserved() && !percpu::has_log();
        if may { self.try_hold(contention) } else { None }
    }

    /// Takes the cold object's lock, if it is free.
    #[cold]
    pub(crate) fn try_lock_cold(&self) -> Result<ColdGuard<'_, T, L>, Refused> {
        loop {
            match lock::try_lock(self.lockable_word(), percpu::thread_token()) {
                Ok(()) => return Ok(ColdGuard::of(self)),
                Err(Refused::Hot) if !self.has_hot_state() => {} // reserved a moment ago
                Err(refused) => return Err(refused),
            }
        }
    }

    /// Takes the cold object's lock, and waits for it if `wait` is set. Returns whether it had to
    /// wait.
    #[track_caller]
    pub(crate) fn lock_cold(&self, wait: bool) -> Result<(ColdGuard<'_, T, L>, bool), Refused> {
        if !wait {
            return self.try_lock_cold().map(|hold| (hold, false));
        }
        loop {
            let of = Of::new("Adaptive", self);
            let (word, token) = (self.lockable_word(), percpu::thread_token());
            match lock::lock_nested(word, token, of, Some(self.contention.turns())) {
                Ok(waited) => return Ok((ColdGuard::of(self), waited)),
                Err(Refused::Hot) if !self.has_hot_state() => {} // as above
                Err(refused) => return Err(refused),
            }
        }
    }

    /// Brings the object up to date and locks it, if it has logs; `Refused::Hot` means that it has
    /// none.
    #[track_caller]
    pub(crate) fn acquire_hot(&self, wait: bool) -> Result<ReadGuard<'_, T, L>, Refused> {
        self.acquire(wait)
    }

    /// Runs `f` under the object's lock, in any state, without accessing the value.
    #[track_caller]
    pub(crate) fn while_locked<R>(&self, f: impl FnOnce() -> R) -> Result<R, Refused> {
        let _locked = self.lock_as_it_is()?;
        Ok(f())
    }
}

impl<'a, T: Send + 'static, L: Log<T>> ColdGuard<'a, T, L> {
    pub(crate) fn is_poisoned(&self) -> bool {
        self.object.contention.load().is_poisoned()
    }

    /// Applies an update and counts it; returns the hold if the owner's policy is due, and releases
    /// it otherwise. If the object is poisoned, returns the update. The owner has excluded all
    /// readers of the value.
    #[inline(always)]
    pub(crate) fn apply_and_count(
        self,
        op: L::Op,
        due: u32,
    ) -> Result<Option<Self>, (Self, L::Op)> {
        let object = self.object;
        let contention = object.contention.load();
        if contention.is_poisoned() {
            return Err((self, op));
        }
        let hold = object.apply_held(op, self);
        let contention = contention.unreserved().with(Kind::Update);
        object.contention.store(contention);
        Ok((contention.count(Kind::Update) >= due).then_some(hold))
    }

    /// Passes the guard's duty to the caller, which releases the lock by [`release_cold`].
    ///
    /// [`release_cold`]: Deferred::release_cold
    #[inline(always)]
    pub(crate) fn keep(self) {
        std::mem::forget(self);
    }

    /// Applies an update, and releases the lock. The owner has excluded all readers of the value.
    #[inline(always)]
    pub(crate) fn apply_and_release(self, op: L::Op) {
        let object = self.object;
        drop(object.apply_held(op, self));
    }

    /// Applies an update. The lock is held even if that panics: the owner's guards, which exclude
    /// readers, are dropped before it is released.
    pub(crate) fn apply(&mut self, op: L::Op) {
        let poison = Poison(self.object);
        self.object.apply_cold(op);
        std::mem::forget(poison);
    }

    /// Runs user code that changes the value; its panic poisons the object.
    pub(crate) fn with_value<R>(&mut self, f: impl FnOnce(&mut T) -> R) -> R {
        let value: MutPtr<MaybeUninit<T>> = self.object.value.get_mut();
        let poison = Poison(self.object);
        // SAFETY: oplog.W5 - the word is locked by this thread, and its owner has excluded all
        // readers.
        let result = f(unsafe { value.deref().assume_init_mut() });
        std::mem::forget(poison);
        result
    }

    /// Counts an access; returns whether the owner's policy is due.
    #[inline(always)]
    pub(crate) fn count(&self, kind: Kind, due: u32) -> bool {
        let contention = self.object.contention.load().unreserved().with(kind);
        self.object.contention.store(contention);
        // `>=`, not `==`: the count may exceed the due value if the owner did not take the meter at
        // once.
        contention.count(kind) >= due
    }

    pub(crate) fn count_wait(&self) {
        self.object.contention.store(self.object.contention.load().with_wait());
    }

    /// Releases the lock, and reserves the object for this thread, unless it was reserved before or
    /// has any of the counts that [`take_meter`](Self::take_meter) returns.
    pub(crate) fn release_to_owner(self) {
        let contention = self.object.contention.load();
        if contention.is_new() {
            self.reserve(contention);
        }
    }

    /// As [`release_to_owner`](Self::release_to_owner), by a thread that stays inside.
    pub(crate) fn keep_as_owner(&mut self) {
        let contention = self.object.contention.load();
        if contention.is_new() {
            self.reserve_held(contention);
        }
    }

    /// Whether no access had to wait since the owner last took the meter, and no thread waits now.
    pub(crate) fn is_calm(&self) -> bool {
        self.object.contention.load().meter().waits == 0 && !self.is_waited_for()
    }

    /// Whether threads are waiting for the lock now.
    pub(crate) fn is_waited_for(&self) -> bool {
        lock::is_waited_for(self.object.word.raw())
    }

    /// Returns the counts and resets them.
    pub(crate) fn take_meter(&self) -> Meter {
        let contention = self.object.contention.load();
        self.object.contention.store(contention.flags());
        contention.meter()
    }

    /// Gives the object logs, if the table admits it; runs no user code. The owner has excluded all
    /// readers of the value. Drop the returned eviction, which runs it, after this guard.
    pub(crate) fn publish(&self, insist: bool) -> Option<Option<Eviction>> {
        let admission = if insist { Admission::Insist } else { Admission::Ask };
        self.object.publish_hot_state(self, admission)
    }
}

impl<'a, T: Send + 'static, L: Log<T>> ReadGuard<'a, T, L> {
    /// The number of updates logged between the last read and this one; `None` if the object became
    /// cold while this guard was made.
    pub(crate) fn window(&self) -> Option<u64> {
        // SAFETY: the guard holds the hot state's lock, so the hot state is alive.
        let hot = unsafe { self.hold.state().as_ref()? };
        // SAFETY: the lock guards `inner`.
        Some(hot.logs().inner.with(|inner| unsafe { (*inner).window }))
    }

    /// Passes the guard's duty to the caller, which releases the lock by [`release_logged`]. Not
    /// for a guard of a cold object.
    ///
    /// [`release_logged`]: Deferred::release_logged
    pub(crate) fn keep(self) -> *const () {
        self.into_hold().state().cast()
    }

    /// Demotes the object, unless it is poisoned, or its updates append to it in each of `rounds`
    /// rounds.
    pub(crate) fn demote(&mut self, rounds: u32) {
        let object = self.object;
        for _ in 0..rounds {
            if self.is_hot() && !self.is_poisoned() {
                object.demote_guard(self);
            }
        }
    }

    /// The lock of the object that this guard holds, if it is cold.
    pub(crate) fn into_cold(mut self) -> Result<ColdGuard<'a, T, L>, Self> {
        if self.is_hot() {
            return Err(self);
        }
        self.value = None;
        let this = ManuallyDrop::new(self);
        Ok(ColdGuard::of_counted(this.object))
    }
}
