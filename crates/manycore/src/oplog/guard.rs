//! How a thread holds an object: by a [`ReadGuard`], or by one of the library's own holds. A
//! `ReadGuard` gives access to an object that is up to date and locked.
//!
//! Owns: the guards of the locks. They release the locks, and then finish a promotion that happened
//! in between. Laws object.W1 to object.W3 are in the header of `object`.

use super::hot_state::HotState;
use super::log::Log;
use super::object::Deferred;
use crate::lock::reservation::{self, Entry};
use crate::lock::{self, held};
use crate::percpu;
use crate::sync::{MutPtr, deref_ref, panicking, seeded_bug};
use std::marker::PhantomData;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ops::{Deref, DerefMut};
use std::{fmt, ptr};

/// A guard of an object that is up to date and that one reader holds. Dropping it releases the
/// object.
///
/// While it exists, updates are still logged, but this guard does not see them. The value may be
/// changed through the guard: it is an ordinary critical section. If the holder panics after
/// changing the value, the object is poisoned. A panic of a reader that only looks does not poison
/// it.
///
/// ```
/// use manycore::oplog::{Commuting, Deferred, Op};
///
/// # struct Add(u64);
/// # impl Op<u64> for Add {
/// #     fn apply(self, sum: &mut u64) {
/// #         *sum += self.0;
/// #     }
/// # }
/// let sum = Deferred::<u64, Commuting<Add>>::new(0);
/// sum.append(Add(2));
/// let mut guard = sum.read();
/// *guard += 40; // no other reader is here
/// drop(guard);
/// assert_eq!(*sum.read(), 42);
/// ```
pub struct ReadGuard<'a, T: Send + 'static, L: Log<T>> {
    pub(super) object: &'a Deferred<T, L>,
    pub(super) hold: Hold<T, L>,
    /// `None` just before the lock is released, and while the object is demoted. Then no other code
    /// has the guard; a demotion that fails puts the value back.
    pub(super) value: Option<MutPtr<MaybeUninit<T>>>,
    /// True if the value may have been changed while the thread was not panicking.
    changed: bool,
    /// The lock knows its owner, so the guard stays on its thread.
    not_send: PhantomData<*mut ()>,
}

/// How a thread holds an object. Only a guard made [`of`](ReadGuard::of) a hold releases the
/// object. It is one word, so the slow paths return it in a register, and the guard of the short
/// path needs no memory.
#[must_use = "the object stays locked"]
pub(super) struct Hold<T: Send + 'static, L: Log<T>>(*const HotState<T, L>);

impl<T: Send + 'static, L: Log<T>> Clone for Hold<T, L> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: Send + 'static, L: Log<T>> Copy for Hold<T, L> {}

impl<T: Send + 'static, L: Log<T>> Hold<T, L> {
    /// The object was cold when the thread locked it, through its word.
    pub(super) const LOCKED: Self = Self(ptr::null());
    /// The object was cold, and is reserved for the thread.
    pub(super) const RESERVED: Self = Self(ptr::without_provenance(1));

    /// Makes a hold for a thread that has the lock of this hot state.
    #[inline(always)]
    pub(super) fn hot(hot: *const HotState<T, L>) -> Self {
        Self(hot)
    }

    /// Makes a hold of the cold object.
    #[inline(always)]
    pub(super) fn cold(reserved: bool) -> Self {
        if reserved { Self::RESERVED } else { Self::LOCKED }
    }

    #[inline(always)]
    pub(super) fn is_locked(self) -> bool {
        self.0.is_null()
    }

    #[inline(always)]
    pub(super) fn is_reserved(self) -> bool {
        self.0.addr() == 1
    }

    /// Returns the hot state with the lock that is held; null if the object was cold.
    #[inline(always)]
    pub(super) fn state(self) -> *const HotState<T, L> {
        if self.is_reserved() { ptr::null() } else { self.0 }
    }
}

// SAFETY: a shared guard gives only shared access to `T`.
unsafe impl<T: Send + Sync + 'static, L: Log<T>> Sync for ReadGuard<'_, T, L> {}

impl<'a, T: Send + 'static, L: Log<T>> ReadGuard<'a, T, L> {
    /// Makes the guard of an object that the calling thread holds.
    #[inline(always)]
    pub(super) fn of(object: &'a Deferred<T, L>, hold: Hold<T, L>) -> Self {
        let hot = hold.state();
        debug_assert!(object.is_held_through(hot), "object.W1: a guard of a lock that is not held");
        let value = if hot.is_null() {
            object.value.get_mut()
        } else {
            // SAFETY: the hot state's lock is held, so it is alive.
            unsafe { (*hot).value.get_mut() }
        };
        Self { object, hold, value: Some(value), changed: false, not_send: PhantomData }
    }

    /// As [`of`](Self::of), for an object that was cold when it was locked.
    #[inline(always)]
    pub(super) fn of_cold(object: &'a Deferred<T, L>, hold: Hold<T, L>) -> Self {
        debug_assert!(hold.state().is_null(), "object.W1: the value is in a hot state");
        let value = Some(object.value.get_mut());
        Self { object, hold, value, changed: false, not_send: PhantomData }
    }

    #[inline(always)]
    fn value(&self) -> &MutPtr<MaybeUninit<T>> {
        debug_assert!(self.value.is_some(), "object.W1: a guard is used that has no value");
        // SAFETY: the guard's user has a guard that is neither dropped nor being demoted, so it has
        // the value (see the field).
        unsafe { self.value.as_ref().unwrap_unchecked() }
    }

    /// Passes the guard's duty to the caller, which makes another guard [`of`](Self::of) the lock.
    pub(super) fn into_hold(mut self) -> Hold<T, L> {
        self.value = None;
        let this = ManuallyDrop::new(self);
        this.hold
    }

    /// Passes the guard's duty to a guard of the word's lock. Not for an object with logs.
    pub(super) fn into_cold(self) -> Locked<'a, T, L> {
        debug_assert!(!self.is_hot(), "object.W1: the lock is the hot state's");
        Locked::of(self.object, self.into_hold()).settled()
    }

    /// Returns the number of updates logged between the last read and this one, or `None` if the
    /// object became cold while this guard was made.
    pub(super) fn window(&self) -> Option<u64> {
        // SAFETY: the guard holds the hot state's lock, so the hot state is alive.
        let hot = unsafe { self.hold.state().as_ref()? };
        // SAFETY: the lock guards `inner`.
        Some(hot.logs().inner.with(|inner| unsafe { (*inner).window }))
    }

    /// Returns true if an update panicked, so that this guard does not see the queued updates.
    #[must_use]
    pub fn is_poisoned(&self) -> bool {
        self.object.is_poisoned_held(self.hold.state())
    }
}

impl<T: Send + 'static, L: Log<T>> ReadGuard<'_, T, L> {
    /// Returns true if the object has logs.
    #[inline(always)]
    pub(crate) fn is_hot(&self) -> bool {
        !self.hold.state().is_null()
    }

    /// Takes the object's logs away, and lets it ask for none until the rest is ended, or until
    /// there are a thousand updates without a read. Or ends the rest. Not for a poisoned object. An
    /// object that always has logs keeps them.
    ///
    /// # Panics
    /// If an update panics that is applied here.
    #[cold]
    pub(crate) fn rest(&mut self, rests: bool) {
        let object = self.object;
        if object.config.always_logs() || self.hold.is_reserved() {
            return;
        }
        if rests {
            object.demote_guard(self);
        }
        if !self.is_hot() {
            object.contention.store(object.contention.load().resting(rests));
        }
    }
}

impl<T: Send + 'static, L: Log<T>> Deref for ReadGuard<'_, T, L> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard holds the object's lock, and the value stays in place until the drop.
        unsafe { deref_ref(self.value()).assume_init_ref() }
    }
}

impl<T: Send + 'static, L: Log<T>> DerefMut for ReadGuard<'_, T, L> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        self.changed = self.changed || !panicking();
        // SAFETY: object.W1 - the guard holds the object's lock, and the value stays in place until
        // the drop; `&mut self` makes this the guard's only access to it.
        unsafe { self.value().deref().assume_init_mut() }
    }
}

impl<T: Send + 'static + fmt::Debug, L: Log<T>> fmt::Debug for ReadGuard<'_, T, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: Send + 'static, L: Log<T>> Drop for ReadGuard<'_, T, L> {
    // Short enough to be inlined also where a panic unwinds. Otherwise the guard would have to be
    // in memory.
    #[inline(always)]
    fn drop(&mut self) {
        self.value = None;
        let poison = self.changed && panicking();
        // SAFETY: object.W1 - the guard has the hold, and the reference to the value is gone.
        let released = !poison && unsafe { self.object.try_release(self.hold) };
        if !released {
            // SAFETY: object.W1 - as above.
            unsafe { self.object.release_slow(self.hold, poison) };
        }
    }
}

impl<T: Send + 'static, L: Log<T>> Deferred<T, L> {
    /// As [`ReadGuard::rest`], for an object that no other thread knows yet.
    pub(crate) fn rest_at_first(&mut self) {
        if !self.config.always_logs() {
            self.contention.store(self.contention.load().resting(true));
        }
    }

    /// Takes the short path of [`release_slow`](Self::release_slow): releases a cold object to
    /// which nothing happened while it was held. If this returns false, `release_slow` must release
    /// the object.
    ///
    /// # Safety
    /// This thread has this hold of the object, and no reference to the value is left.
    #[inline(always)]
    pub(super) unsafe fn try_release(&self, hold: Hold<T, L>) -> bool {
        debug_assert!(
            self.is_held_through(hold.state()),
            "object.W1: a lock is released that is not held"
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

    /// Poisons the object and releases it, or releases it if [`try_release`](Self::try_release) has
    /// not. Then also finishes a promotion that happened while it was held (object.W2).
    ///
    /// # Safety
    /// This thread has this hold of the object. Unless the object is to be poisoned, the hold is
    /// one of a hot state, or `try_release` has returned false. No reference to the value is left.
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

    /// Releases the object by [`try_release`](Self::try_release) or
    /// [`release_slow`](Self::release_slow), and poisons it before that if `poison` is set.
    ///
    /// # Safety
    /// This thread has this hold of the object, and no reference to the value is left.
    #[inline(never)]
    unsafe fn release(&self, hold: Hold<T, L>, poison: bool) {
        // SAFETY: the caller's promises are the same (# Safety); what `release_slow` needs besides
        // is what is tested here.
        unsafe {
            if poison || !self.try_release(hold) {
                self.release_slow(hold, poison);
            }
        }
    }

    /// Enters the object if it is reserved for this thread, which has `token`.
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

    /// Releases the word's own lock, or finishes a promotion (object.W2).
    ///
    /// # Safety
    /// This thread has `token`, and holds the lock, or did until the word became HOT. No reference
    /// to the value is left.
    #[inline(always)]
    pub(super) unsafe fn release_word(&self, token: usize) {
        if !lock::unlock_plain(self.word.raw(), token) {
            // SAFETY: the caller's promise is the same (# Safety).
            unsafe { self.release_marked(token) };
        }
    }

    /// As [`release_word`](Self::release_word), if the word has a flag or is HOT.
    ///
    /// # Safety
    /// As for [`release_word`](Self::release_word).
    #[cold]
    #[inline(never)]
    unsafe fn release_marked(&self, token: usize) {
        // SAFETY: the word is locked by this thread, or was until it became HOT.
        if !unsafe { lock::unlock_unless_hot(self.word.raw(), token) } {
            // SAFETY: object.W2 - the hot state's lock is this thread's, and the value is inline.
            unsafe { self.finish_promotion() };
        }
    }

    /// Does what a revoked reservation leaves to this thread, which is no longer inside.
    #[cold]
    pub(super) fn leave_changed(&self, token: usize) {
        if reservation::leave_changed(self.word.raw(), token) {
            return;
        }
        // The word is HOT. A promotion in this thread's name waits for it. But the word may have
        // been free in between, and be hot through another thread.
        let hot_lock_held = self.with_hot_state(|hot, _| lock::is_held_by(&hot.lock, token));
        // BUG: the owner of a reservation leaves a promotion in its name unfinished (object.W2).
        if hot_lock_held == Some(true) && !seeded_bug!("unfinished-promotion") {
            // SAFETY: object.W2 - the hot state was locked in this thread's name while it held the
            // word, so the value is inline, and no reference to it is left.
            unsafe { self.finish_promotion() };
        }
    }

    /// Moves the value into the hot state, and releases the hot state's lock: the word became HOT
    /// while this thread held its lock (object.W2).
    ///
    /// # Safety
    /// The word became HOT while this thread held its lock, and no reference to the value is left.
    #[cold]
    unsafe fn finish_promotion(&self) {
        let word = self.word.load();
        debug_assert!(
            word.is_open(),
            "object.W2: a hot state is closed before its promotion is over"
        );
        self.contention.note_hot(); // the holder may have overwritten it since
        let hot: *const HotState<T, L> = word.state();
        // SAFETY: object.W2 - the hot state is locked in this thread's name; the value is inline.
        unsafe {
            if (*hot).readers().is_none() {
                self.move_in(&*hot);
            }
            lock::unlock(&raw const (*hot).lock, 0);
        }
    }

    /// Moves the value and the poison flag from the object to a hot state that was published
    /// without them (object.W2).
    ///
    /// # Safety
    /// The caller holds the hot state's lock, or has exclusive access to the object. The value is
    /// inline.
    pub(super) unsafe fn move_in(&self, hot: &HotState<T, L>) {
        // SAFETY: object.W1, object.W2 - the caller promises that it holds the hot state's lock or
        // has exclusive access to the object, and that the value is inline (# Safety).
        unsafe { hot.move_in(&self.value) };
        if self.contention.load().is_poisoned() {
            self.contention.clear_poison();
            hot.poison();
        }
    }
}

/// A hold of an object by the library's own code. Dropping it gives the object up, also after a
/// panic.
pub(super) struct Locked<'a, T: Send + 'static, L: Log<T>> {
    pub(super) object: &'a Deferred<T, L>,
    hold: Hold<T, L>,
    poison: bool,
}

impl<'a, T: Send + 'static, L: Log<T>> Locked<'a, T, L> {
    /// Makes the guard of a hold that this thread has, and that `held` has counted.
    #[inline(always)]
    pub(super) fn of(object: &'a Deferred<T, L>, hold: Hold<T, L>) -> Self {
        Self { object, hold, poison: false }
    }

    /// Makes a guard of the word's lock, which this thread has just taken.
    #[inline(always)]
    pub(super) fn cold(object: &'a Deferred<T, L>) -> Self {
        held::enter();
        Self::of(object, Hold::LOCKED)
    }

    /// Makes the guard of a cold object while user code runs: if it is dropped, because the code
    /// panics, it poisons the object.
    #[inline(always)]
    pub(super) fn poisoning(object: &'a Deferred<T, L>, reserved: bool) -> Self {
        Self { object, hold: Hold::cold(reserved), poison: true }
    }

    #[inline(always)]
    pub(super) fn is_reserved(&self) -> bool {
        self.hold.is_reserved()
    }

    /// Turns a hold by a reservation into an ordinary one. A holder that promotes the object needs
    /// that.
    #[cold]
    pub(super) fn settled(mut self) -> Self {
        if self.is_reserved() {
            let token = percpu::thread_token();
            reservation::give_up(self.object.word.raw(), &self.object.inside, token);
            self.hold = Hold::LOCKED;
        }
        self
    }
}

impl<T: Send + 'static, L: Log<T>> Drop for Locked<'_, T, L> {
    // A call, so that it can be inlined also where a panic unwinds. Otherwise the guard would have
    // to be in memory, and the locked instruction that releases the lock waits for every store
    // before it.
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: object.W1 - the guard has the hold, and gives out no reference to the value.
        unsafe { self.object.release(self.hold, self.poison) };
    }
}
