//! Objects that begin small, and get the parts that many threads need when there are many.
//!
//! Owns: [`Promotable`]: when an object is promoted, and that no thread is left behind. The forms
//! are the object's own.
//!
//! Laws:
//! - **promoted.P1** The small form is used under its lock alone, and by a thread that has found
//!   there that there is no large one. The large form is made of the small one under that lock, for
//!   good, and is used by every thread that finds it. So all uses of the small form come before all
//!   uses of the large one: both together are as one object.
//! - **promoted.P2** No constant of a machine decides: an object is promoted when a thread had to
//!   wait for the lock, or when it is changed all the time, so that the large form's memory is
//!   worth it.

use super::reentrancy_lock::{ReentrancyGuard, ReentrancyLock};
use crate::clock::Clock;
use crate::config::SMALL;
use crate::sync::{AtomicPtr, Ordering, model_failed, seeded_bug};
use std::marker::PhantomData;
use std::panic::Location;
use std::ptr;
use std::time::Duration;

/// After so many changes without a wait for the lock, the small form looks at the clock ...
const CHANGES: u32 = if SMALL { 3 } else { 256 };
/// ... and is promoted if they took no longer than this: a hundred thousand in a second. What
/// changes less often has time for a lock in each.
const QUICK: Duration = Duration::from_micros(2560);

/// An object's small form.
pub(super) trait SmallForm {
    /// The large one.
    type Large;

    /// The large form, with what is in this one, which is left empty. Runs no code of the user's.
    fn promote(&mut self) -> Self::Large;
}

/// An object in one of two forms. In lines of its own: each use loads `large`, and what a program
/// has beside the object may be written all the time.
#[repr(align(128))]
pub(super) struct Promotable<S: SmallForm> {
    large: AtomicPtr<S::Large>,
    small: ReentrancyLock<Small<S>>,
    owned: PhantomData<Box<S::Large>>,
}

/// The small form, and how often it has changed.
pub(super) struct Small<S> {
    pub(super) form: S,
    /// When the changes were counted last, in ticks.
    since: u64,
    pub(super) changes: u32,
}

/// The small form, for the holder of its lock.
pub(super) type Holding<'a, S> = ReentrancyGuard<'a, Small<S>>;

impl<S: SmallForm> Promotable<S> {
    pub(super) fn new(form: S) -> Self {
        let small = ReentrancyLock::new(Small { form, since: 0, changes: 0 });
        Self { large: AtomicPtr::new(ptr::null_mut()), small, owned: PhantomData }
    }

    /// The large form, if it is there.
    #[inline(always)]
    pub(super) fn large(&self) -> Option<&S::Large> {
        // ORDER: Acquire; pairs with Release in `make`: all that was done to the small form, and
        // the large one, before its address.
        let large = self.large.load(Ordering::Acquire);
        // SAFETY: promoted.P1 - null, or from the box of `make`, which is freed with self alone.
        unsafe { large.as_ref() }
    }

    /// The small form, under its lock, or the large one (promoted.P1).
    ///
    /// # Panics
    /// If the calling thread holds the lock, or the wait for it would never end.
    #[inline]
    pub(super) fn small(&self) -> Result<Holding<'_, S>, &S::Large> {
        match self.large() {
            Some(large) => Err(large),
            None => self.hold(),
        }
    }

    fn hold(&self) -> Result<Holding<'_, S>, &S::Large> {
        let (mut small, waited) = self.small.hold_told(Location::caller());
        // BUG: a thread that has the small form's lock uses it though there is a large one by now
        // (promoted.P1).
        if let Some(large) = self.large().filter(|_| !seeded_bug!("small-beside-large")) {
            return Err(large);
        }
        if waited || small.is_busy() {
            return Err(self.make(&mut small));
        }
        Ok(small)
    }

    /// The large form, made now if it is not there.
    pub(super) fn promote(&self) -> &S::Large {
        match self.small() {
            Ok(mut small) => self.make(&mut small),
            Err(large) => large,
        }
    }

    /// The large form is there from now on, for good. The caller holds the lock.
    #[cold]
    pub(super) fn make(&self, small: &mut Small<S>) -> &S::Large {
        debug_assert!(self.large().is_none(), "promoted.P1: an object is promoted twice");
        let large = Box::into_raw(Box::new(small.form.promote()));
        // ORDER: Release; pairs with Acquire in `large`.
        self.large.store(large, Ordering::Release);
        // SAFETY: from the box above, which is freed with self alone.
        unsafe { &*large }
    }

    /// The small form, which is empty if there is a large one; no other thread can be at it.
    pub(super) fn get_mut(&mut self) -> &mut S {
        &mut self.small.get_mut().form
    }
}

impl<S> Small<S> {
    /// Whether there have been many changes in little time (promoted.P2).
    fn is_busy(&mut self) -> bool {
        if self.changes < CHANGES {
            return false;
        }
        let clock = Clock::system();
        let now = clock.ticks_now();
        self.changes = 0;
        let since = std::mem::replace(&mut self.since, now);
        now.saturating_sub(since) < clock.duration_to_ticks(QUICK)
    }
}

impl<S: SmallForm> Drop for Promotable<S> {
    fn drop(&mut self) {
        // ORDER: Relaxed; `&mut self` is exclusive.
        let large = self.large.load(Ordering::Relaxed);
        if !large.is_null() && !model_failed() {
            // SAFETY: from the box of `make`, and no reference to it outlives self.
            drop(unsafe { Box::from_raw(large) });
        }
    }
}

#[cfg(all(test, not(manycore_loom), not(manycore_shuttle)))]
mod tests {
    use super::*;
    use crate::sync::thread;

    /// A number, and how often it was promoted.
    struct Number(u32);

    impl SmallForm for Number {
        type Large = u32;

        fn promote(&mut self) -> u32 {
            self.0
        }
    }

    #[test]
    fn what_changes_seldom_stays_small_and_what_changes_all_the_time_does_not() {
        let number = Promotable::new(Number(7));
        let change = |changes: u32| {
            for _ in 0..changes {
                if let Ok(mut small) = number.small() {
                    small.changes += 1;
                }
            }
        };
        for _ in 0..3 {
            change(CHANGES / 2);
            thread::sleep(2 * QUICK);
        }
        assert!(number.large().is_none());
        let mut rounds = 0;
        while number.large().is_none() {
            change(CHANGES);
            rounds += 1;
            assert!(rounds < 1000, "it changes all the time, and stays small");
        }
        assert_eq!((number.promote(), number.small().err()), (&7, Some(&7)));
    }

    #[test]
    fn wait_for_the_lock_promotes() {
        let number = Promotable::new(Number(7));
        thread::scope(|scope| {
            let held = number.small();
            let waiter = scope.spawn(|| number.small().err().copied());
            thread::sleep(Duration::from_millis(20));
            drop(held);
            assert_eq!(waiter.join().unwrap(), Some(7));
        });
    }
}
