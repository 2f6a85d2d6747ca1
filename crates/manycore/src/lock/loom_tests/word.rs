//! Models of the object lock.

use super::super::{HOT, LOCKED, Refused, is_held_by, try_lock, unlock};
use crate::percpu::loom_tests::{large_model, model, must_catch};
use crate::percpu::thread_token;
use crate::profile::Of;
use crate::sync::{AtomicUsize, Ordering, UnsafeCell, thread};
use std::sync::Arc;

fn lock(word: &AtomicUsize, token: usize) -> Result<bool, Refused> {
    super::super::lock(word, token, Of::new("a model's", word), None)
}

struct Guarded {
    word: AtomicUsize,
    canary: UnsafeCell<usize>,
}

impl Guarded {
    fn new() -> Arc<Self> {
        Arc::new(Self { word: AtomicUsize::new(0), canary: UnsafeCell::new(0) })
    }

    /// Runs one critical section; loom checks that only one thread has the canary.
    fn visit(&self) {
        lock(&self.word, thread_token())
            .expect("the word stays a lock, and this thread has it not");
        self.canary.with_mut(|canary| {
            // SAFETY: lock_word.K1 - locked.
            unsafe { *canary += 1 }
        });
        // SAFETY: locked above; the Arc keeps the word.
        unsafe { unlock(&self.word, 0) };
    }

    fn visits(&self) -> usize {
        // SAFETY: lock_word.K1 - the callers have joined every thread that locks.
        self.canary.with(|canary| unsafe { *canary })
    }
}

#[test]
fn loom_two_lockers_exclude_each_other() {
    model(3, || {
        let shared = Guarded::new();
        let other = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || (0..2).for_each(|_| shared.visit()))
        };
        (0..2).for_each(|_| shared.visit());
        other.join().unwrap();
        assert_eq!(shared.visits(), 4);
        assert_eq!(shared.word.load(Ordering::Relaxed) & LOCKED, 0);
    });
}

/// Two threads may be parked at a time: the first to be woken must pass the wake-up on
/// (lock_word.K2).
#[test]
fn loom_three_lockers_are_all_woken() {
    model(2, || {
        let shared = Guarded::new();
        let others: Vec<_> = (0..2)
            .map(|_| {
                let shared = Arc::clone(&shared);
                thread::spawn(move || shared.visit())
            })
            .collect();
        shared.visit();
        others.into_iter().for_each(|other| other.join().unwrap());
        assert_eq!(shared.visits(), 3);
    });
}

/// A lock that turns HOT wakes every thread parked on it, and no thread acquires it.
#[test]
fn loom_word_that_turns_hot_wakes_and_refuses_all() {
    model(3, || {
        let shared = Guarded::new();
        assert_eq!(lock(&shared.word, thread_token()), Ok(false));
        let others: Vec<_> = (0..2)
            .map(|_| {
                let shared = Arc::clone(&shared);
                thread::spawn(move || lock(&shared.word, thread_token()))
            })
            .collect();
        // SAFETY: lock_word.K1 - locked above.
        shared.canary.with_mut(|canary| unsafe { *canary += 1 });
        // SAFETY: locked above; the Arc keeps the word.
        unsafe { unlock(&shared.word, 128 | HOT) };
        for other in others {
            assert_eq!(other.join().unwrap(), Err(Refused::Hot));
        }
        assert_eq!(shared.word.load(Ordering::Relaxed), 128 | HOT);
    });
}

/// Two threads park, one of them is woken, and a newcomer takes the lock and turns it HOT before
/// the woken thread looks. The newcomer saw no WAITERS, so the woken thread must pass the wake-up
/// on (lock_word.K2).
#[test]
fn loom_word_that_turns_hot_between_wake_and_look_strands_no_sleeper() {
    large_model(2, || {
        let shared = Guarded::new();
        lock(&shared.word, thread_token()).unwrap();
        let lockers: Vec<_> = (0..2)
            .map(|_| {
                let shared = Arc::clone(&shared);
                thread::spawn(move || match lock(&shared.word, thread_token()) {
                    Ok(_) => {
                        // SAFETY: lock_word.K1 - locked.
                        shared.canary.with_mut(|canary| unsafe { *canary += 1 });
                        // SAFETY: locked above; the Arc keeps the word.
                        unsafe { unlock(&shared.word, 0) };
                    }
                    Err(refused) => assert_eq!(refused, Refused::Hot),
                })
            })
            .collect();
        let promoter = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let locked = lock(&shared.word, thread_token());
                assert!(locked.is_ok(), "only this thread makes the word HOT");
                // SAFETY: locked above; the Arc keeps the word.
                unsafe { unlock(&shared.word, 128 | HOT) };
            })
        };
        // SAFETY: locked above; the Arc keeps the word.
        unsafe { unlock(&shared.word, 0) };
        lockers.into_iter().for_each(|locker| locker.join().unwrap());
        promoter.join().unwrap();
        assert_eq!(shared.word.load(Ordering::Relaxed), 128 | HOT);
    });
}

#[test]
fn loom_lock_held_by_self_is_refused() {
    model(2, || {
        let shared = Guarded::new();
        let other = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || shared.visit())
        };
        let token = thread_token();
        lock(&shared.word, token).unwrap();
        assert!(is_held_by(&shared.word, token));
        // Also if the word has the other thread's WAITERS bit.
        assert_eq!(lock(&shared.word, token), Err(Refused::HeldBySelf));
        assert_eq!(try_lock(&shared.word, token), Err(Refused::HeldBySelf));
        // SAFETY: locked above; the Arc keeps the word.
        unsafe { unlock(&shared.word, 0) };
        assert!(!is_held_by(&shared.word, token));
        other.join().unwrap();
        assert_eq!(shared.visits(), 1);
    });
}

/// `try_lock` beside a waiter: the waiter's flags in the word must not look like a held lock, and
/// must not get lost.
#[test]
fn loom_try_lock_beside_a_waiter_takes_what_is_free() {
    model(3, || {
        let shared = Guarded::new();
        lock(&shared.word, thread_token()).unwrap();
        let other = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || shared.visit())
        };
        // SAFETY: locked above; the Arc keeps the word.
        unsafe { unlock(&shared.word, 0) };
        let mut visits = 1;
        match try_lock(&shared.word, thread_token()) {
            Ok(()) => {
                // SAFETY: lock_word.K1 - locked.
                shared.canary.with_mut(|canary| unsafe { *canary += 1 });
                // SAFETY: locked above; the Arc keeps the word.
                unsafe { unlock(&shared.word, 0) };
                visits += 1;
            }
            Err(refused) => assert_eq!(refused, Refused::Busy),
        }
        other.join().unwrap();
        assert_eq!(try_lock(&shared.word, thread_token()), Ok(()), "no thread holds it");
        assert_eq!(shared.visits(), visits);
    });
}

#[test]
fn loom_spinner_that_sleeps_without_a_word_is_caught() {
    let model = "lock::loom_tests::word::loom_three_lockers_are_all_woken";
    must_catch("silent-spinner", model, &["deadlock"]);
}

#[test]
fn loom_woken_locker_that_forgets_the_sleepers_is_caught() {
    let model = "lock::loom_tests::word::loom_three_lockers_are_all_woken";
    must_catch("forgotten-sleepers", model, &["deadlock"]);
}
