//! Models of laws reservation.N1 to reservation.N3.

use super::super::reservation::{self, Entry, Inside};
use super::super::{LOCKED, Refused, lock, try_lock, unlock};
use crate::percpu::loom_tests::{RACE, model, must_catch};
use crate::percpu::thread_token;
use crate::profile::Of;
use crate::sync::{AtomicUsize, Ordering, UnsafeCell, thread};
use std::sync::Arc;

struct Reserved {
    word: AtomicUsize,
    inside: Inside,
    canary: UnsafeCell<usize>,
}

impl Reserved {
    /// A word that is reserved for the calling thread.
    fn new() -> Arc<Self> {
        let (word, inside) = (AtomicUsize::new(0), Inside::new());
        try_lock(&word, thread_token()).expect("the word is free");
        assert!(reservation::reserve(&word, thread_token()));
        Arc::new(Self { word, inside, canary: UnsafeCell::new(0) })
    }

    fn count(&self) {
        self.canary.with_mut(|canary| {
            // SAFETY: locked, or inside a reserved word (reservation.N1); loom checks it.
            unsafe { *canary += 1 }
        });
    }

    /// One critical section of the owner.
    fn visit(&self) {
        let token = thread_token();
        match reservation::enter(&self.word, &self.inside, token) {
            Entry::Inside => {
                self.count();
                if !reservation::leave(&self.word, &self.inside, token) {
                    assert!(reservation::leave_changed(&self.word, token), "{HOT}");
                }
                return;
            }
            Entry::Changed => assert!(reservation::leave_changed(&self.word, token), "{HOT}"),
            Entry::Refused => {}
        }
        self.visit_as_any();
    }

    /// One critical section of the owner, which gives the reservation up in it.
    fn visit_last(&self) {
        let token = thread_token();
        match reservation::enter(&self.word, &self.inside, token) {
            Entry::Inside => {
                reservation::give_up(&self.word, &self.inside, token);
                self.count();
                // SAFETY: locked by `give_up`; the Arc keeps the word.
                unsafe { unlock(&self.word, 0) };
                return;
            }
            Entry::Changed => assert!(reservation::leave_changed(&self.word, token), "{HOT}"),
            Entry::Refused => {}
        }
        self.visit_as_any();
    }

    /// One critical section of another thread.
    fn visit_as_any(&self) {
        let token = thread_token();
        loop {
            reservation::revoke(&self.word, &self.inside);
            match lock(&self.word, token, Of::new("a model's", &self.word)) {
                Ok(_) => break,
                Err(Refused::Hot) => {}
                Err(refused) => panic!("{refused:?}"),
            }
        }
        self.count();
        // SAFETY: locked above; the Arc keeps the word.
        unsafe { unlock(&self.word, 0) };
    }

    fn assert_visits(&self, visits: usize) {
        let word = self.word.load(Ordering::Relaxed); // perhaps with a stale flag (lock.K2)
        assert!(word & LOCKED == 0 && !reservation::is_reserved(&self.word), "left locked: {word}");
        // SAFETY: lock.K1 - the callers have joined every thread that locks.
        assert_eq!(self.canary.with(|canary| unsafe { *canary }), visits);
    }
}

const HOT: &str = "no word is HOT here";

#[test]
fn loom_owner_and_revoker_exclude_each_other() {
    model(3, || {
        let shared = Reserved::new();
        let other = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || shared.visit_as_any())
        };
        (0..2).for_each(|_| shared.visit());
        other.join().unwrap();
        shared.assert_visits(3);
    });
}

#[test]
fn loom_two_revokers_and_the_owner_exclude_each_other() {
    model(2, || {
        let shared = Reserved::new();
        let others: Vec<_> = (0..2)
            .map(|_| {
                let shared = Arc::clone(&shared);
                thread::spawn(move || shared.visit_as_any())
            })
            .collect();
        shared.visit();
        others.into_iter().for_each(|other| other.join().unwrap());
        shared.assert_visits(3);
    });
}

#[test]
fn loom_owner_that_gives_up_and_revokers_exclude_each_other() {
    model(2, || {
        let shared = Reserved::new();
        let others: Vec<_> = (0..2)
            .map(|_| {
                let shared = Arc::clone(&shared);
                thread::spawn(move || shared.visit_as_any())
            })
            .collect();
        shared.visit_last();
        others.into_iter().for_each(|other| other.join().unwrap());
        shared.assert_visits(3);
    });
}

/// The word becomes reserved while another thread waits for its lock.
#[test]
fn loom_reservation_races_a_locker() {
    model(3, || {
        let (word, inside) = (AtomicUsize::new(0), Inside::new());
        let shared = Arc::new(Reserved { word, inside, canary: UnsafeCell::new(0) });
        let token = thread_token();
        try_lock(&shared.word, token).expect("the word is free");
        let other = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || shared.visit_as_any())
        };
        shared.count();
        if !reservation::reserve(&shared.word, token) {
            // SAFETY: locked above, and not reserved; the Arc keeps the word.
            unsafe { unlock(&shared.word, 0) };
        }
        shared.visit();
        other.join().unwrap();
        shared.assert_visits(3);
    });
}

/// The word becomes reserved for a thread that stays inside, while another waits for its lock.
#[test]
fn loom_reservation_from_inside_races_a_locker() {
    model(3, || {
        let (word, inside) = (AtomicUsize::new(0), Inside::new());
        let shared = Arc::new(Reserved { word, inside, canary: UnsafeCell::new(0) });
        let token = thread_token();
        try_lock(&shared.word, token).expect("the word is free");
        let other = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || shared.visit_as_any())
        };
        let reserved = reservation::reserve_inside(&shared.word, &shared.inside, token);
        shared.count();
        if !reserved {
            // SAFETY: locked above, and not reserved; the Arc keeps the word.
            unsafe { unlock(&shared.word, 0) };
        } else if !reservation::leave(&shared.word, &shared.inside, token) {
            assert!(reservation::leave_changed(&shared.word, token), "{HOT}");
        }
        shared.visit();
        other.join().unwrap();
        shared.assert_visits(3);
    });
}

#[test]
fn loom_revocation_without_the_barrier_is_caught() {
    let test = "lock::loom_tests::reservation::loom_owner_and_revoker_exclude_each_other";
    must_catch("unfenced-revocation", test, &RACE);
}
