//! Objects that begin small, and get a large form for many threads once threads contend.
//!
//! Owns: [`Promotable`]: when an object is promoted, and that no thread still uses the small form
//! then. Each object has its own two forms.
//!
//! ```text
//! word:   0  <->  token | LOCKED  ->  HOT: there is a large form
//!         small form, free or locked      for good
//! ```
//!
//! Laws:
//! - **promoted.P1** One word is the lock of the small form, until it says for good that there is a
//!   large form. The holder of the lock makes the large form out of the small one and publishes its
//!   address before it releases the lock. The releasing instruction also keeps all others out of
//!   the small form. So all uses of the small form come before all uses of the large form: both
//!   together behave as one object.
//! - **promoted.P2** Contention alone decides. An object is promoted when a thread had to wait for
//!   the lock, or when it is asked for something the small form can't do. How often the object
//!   changes says nothing: for one thread, the small form is faster.

use super::reentrancy_lock::cannot_hold;
use crate::lock::{self, HOT, Refused};
use crate::percpu::thread_token;
use crate::profile::Of;
use crate::sync::{AtomicPtr, AtomicUsize, MutPtr, Ordering, UnsafeCell, model_failed, seeded_bug};
use std::marker::PhantomData;
use std::mem::forget;
use std::ops::{Deref, DerefMut};
use std::ptr;

/// An object's small form.
pub(super) trait SmallForm {
    /// The large form.
    type Large;

    /// Returns the large form with the contents of this one, which is left empty. `contended` is
    /// true if threads contend for the object. Runs no user code.
    fn promote(&mut self, contended: bool) -> Self::Large;
}

/// An object in one of two forms. It has cache lines of its own: each use loads `large`, and the
/// program may write what lies beside the object all the time.
#[repr(align(128))]
pub(super) struct Promotable<S: SmallForm> {
    /// Lock of the small form, or `HOT`: see the module header.
    word: AtomicUsize,
    /// The large form, or null. (Not in `word`: right after a thread has released the lock, its
    /// load of `word` waits for that instruction.)
    large: AtomicPtr<S::Large>,
    small: UnsafeCell<S>,
    owned: PhantomData<Box<S::Large>>,
}

// SAFETY: promoted.P1 - the small form is reached by one thread at a time, which may take parts of
// it along (`Send`), and the large one by any number.
unsafe impl<S: SmallForm + Send> Sync for Promotable<S> where S::Large: Send + Sync {}
// SAFETY: owned data.
unsafe impl<S: SmallForm + Send> Send for Promotable<S> where S::Large: Send {}

/// The small form, for the holder of its lock.
pub(super) struct Holding<'a, S: SmallForm> {
    /// Dropped before the lock is released.
    small: MutPtr<S>,
    lock: Lock<'a, S>,
}

/// Releases the lock when it is dropped.
struct Lock<'a, S: SmallForm>(&'a Promotable<S>);

impl<S: SmallForm> Promotable<S> {
    pub(super) fn new(form: S) -> Self {
        Self {
            word: AtomicUsize::new(0),
            large: AtomicPtr::new(ptr::null_mut()),
            small: UnsafeCell::new(form),
            owned: PhantomData,
        }
    }

    /// Returns the large form, if there is one.
    #[inline(always)]
    pub(super) fn large(&self) -> Option<&S::Large> {
        // ORDER: Acquire; pairs with Release in `Holding::promote`: all that was done to the small
        // form, and the large one, before its address.
        let large = self.large.load(Ordering::Acquire);
        // SAFETY: promoted.P1 - from the box of `Holding::promote`, which is freed with self alone.
        unsafe { large.as_ref() }
    }

    /// Locks the small form, or returns the large one (promoted.P1).
    ///
    /// # Panics
    /// If the calling thread holds the lock, or the wait for it would never end.
    #[inline(always)]
    pub(super) fn small(&self) -> Result<Holding<'_, S>, &S::Large> {
        match self.large() {
            Some(large) => Err(large),
            None => self.hold(),
        }
    }

    /// Same as [`small`](Self::small), for a caller that has found no large form.
    #[inline(always)]
    pub(super) fn hold(&self) -> Result<Holding<'_, S>, &S::Large> {
        match lock::try_lock(&self.word, thread_token()) {
            Ok(()) => Ok(self.holding()),
            Err(_) => Err(self.wait()),
        }
    }

    /// Makes the guard. The calling thread holds the lock.
    #[inline(always)]
    fn holding(&self) -> Holding<'_, S> {
        Holding { small: self.small.get_mut(), lock: Lock(self) }
    }

    /// Waits for the lock, then promotes: threads contend for it (promoted.P2).
    #[cold]
    fn wait(&self) -> &S::Large {
        match lock::lock_nested(&self.word, thread_token(), Of::new("collection", self), None) {
            Ok(_) => self.holding().promote_as(true),
            Err(Refused::Hot) => {
                // ORDER: Acquire; pairs with the release of the lock in `Holding::promote`: the
                // address of the large form before.
                self.word.load(Ordering::Acquire);
                self.large().expect("promoted.P1: the large form has gone")
            }
            Err(refused) => cannot_hold(refused),
        }
    }

    /// Returns the large form; makes it if there is none.
    pub(super) fn promote(&self) -> &S::Large {
        match self.small() {
            Ok(small) => small.promote(),
            Err(large) => large,
        }
    }

    /// Returns the small form, which is empty if there is a large one. No other thread can use it.
    pub(super) fn get_mut(&mut self) -> &mut S {
        // SAFETY: `&mut self` is more than the lock.
        self.small.with_mut(|small| unsafe { &mut *small })
    }
}

impl<'a, S: SmallForm> Holding<'a, S> {
    /// Keeps the lock and gives up the access to the small form.
    fn into_lock(self) -> Lock<'a, S> {
        self.lock
    }

    /// Makes the large form, which is there for good from now on.
    pub(super) fn promote(self) -> &'a S::Large {
        self.promote_as(false)
    }

    #[cold]
    fn promote_as(mut self, contended: bool) -> &'a S::Large {
        let large = Box::into_raw(Box::new((*self).promote(contended)));
        let lock = self.into_lock();
        let of = lock.0;
        forget(lock);
        // BUG: the small form is free for a moment when it was emptied already (promoted.P1).
        if seeded_bug!("small-beside-large") {
            // SAFETY: lock_word.K3 - this thread holds the lock, and `of` is borrowed.
            unsafe { lock::unlock(&of.word, 0) };
            lock::lock_nested(&of.word, thread_token(), Of::new("collection", of), None)
                .expect("promoted.P1: an object is promoted twice");
        }
        // ORDER: Release; pairs with Acquire in `Promotable::large`.
        of.large.store(large, Ordering::Release);
        // SAFETY: lock_word.K3 - this thread holds the lock, and `of` is borrowed.
        unsafe { lock::unlock(&of.word, HOT) };
        // SAFETY: from the box above, which is freed with `of` alone.
        unsafe { &*large }
    }
}

impl<S: SmallForm> Deref for Holding<'_, S> {
    type Target = S;

    #[inline(always)]
    fn deref(&self) -> &S {
        // Not by way of `&mut S`, which would end the references that this gave before.
        // SAFETY: promoted.P1 - this thread holds the lock until `lock` is dropped, and the guard
        // is borrowed for reading, so there are other references for reading at most.
        self.small.with(|small| unsafe { &*small })
    }
}

impl<S: SmallForm> DerefMut for Holding<'_, S> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut S {
        // SAFETY: promoted.P1 - this thread holds the lock until `lock` is dropped, and the guard
        // is borrowed for writing, so this is the only reference.
        unsafe { self.small.deref() }
    }
}

impl<S: SmallForm> Drop for Lock<'_, S> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: lock_word.K3 - `small` and `wait` make the guard when this thread has taken the
        // lock; it keeps the word.
        unsafe { lock::unlock(&self.0.word, 0) };
    }
}

impl<S: SmallForm> Drop for Promotable<S> {
    fn drop(&mut self) {
        // ORDER: Relaxed; `&mut self` is exclusive.
        let large = self.large.load(Ordering::Relaxed);
        if !large.is_null() && !model_failed() {
            // SAFETY: from the box of `Holding::promote`, and no reference to it outlives self.
            drop(unsafe { Box::from_raw(large) });
        }
    }
}

#[cfg(all(test, not(manycore_loom), not(manycore_shuttle)))]
mod tests {
    use super::*;
    use crate::sync::thread;
    use std::time::Duration;

    /// A number that can be promoted.
    struct Number(u32);

    impl SmallForm for Number {
        type Large = u64;

        fn promote(&mut self, _: bool) -> u64 {
            u64::from(self.0)
        }
    }

    #[test]
    fn what_one_thread_changes_stays_small() {
        let number = Promotable::new(Number(0));
        for _ in 0..if cfg!(miri) { 100 } else { 1_000_000 } {
            number.small().expect("no other thread uses it").0 += 1;
        }
        let sum = number.small().expect("no other thread uses it").0;
        assert_eq!((number.promote(), number.small().err()), (&sum.into(), Some(&sum.into())));
    }

    #[test]
    fn wait_for_the_lock_promotes() {
        // On a busy machine, the other thread may come only when the lock is free again.
        let promoted = (0..1000).any(|_| {
            let number = Promotable::new(Number(7));
            thread::scope(|scope| {
                let held = number.small();
                let waiter = scope.spawn(|| number.small().err().copied());
                thread::sleep(Duration::from_millis(20));
                drop(held);
                waiter.join().unwrap() == Some(7)
            })
        });
        assert!(promoted);
    }

    #[test]
    #[should_panic(expected = "is used by code that runs under its own lock")]
    fn use_from_within_itself_panics() {
        let number = Promotable::new(Number(7));
        let _held = number.small();
        number.promote();
    }
}
