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
    /// A word that the calling thread has locked.
    fn locked() -> Arc<Self> {
        let (word, inside) = (AtomicUsize::new(0), Inside::new());
        try_lock(&word, thread_token()).expect("the word is free");
        Arc::new(Self { word, inside, canary: UnsafeCell::new(0) })
    }

    /// A word that is reserved for the calling thread.
    fn new() -> Arc<Self> {
        let locked = Self::locked();
        assert!(reservation::reserve(&locked.word, thread_token()));
        locked
    }

    fn count(&self) {
        self.canary.with_mut(|canary| {
            // SAFETY: locked, or inside a reserved word (reservation.N1); loom checks it.
            unsafe { *canary += 1 }
        });
    }

    /// Runs one critical section of the owner.
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

    /// Runs one critical section of the owner, in which it gives the reservation up.
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

    /// Runs one critical section of another thread.
    fn visit_as_any(&self) {
        let token = thread_token();
        loop {
            reservation::revoke(&self.word, &self.inside);
            match lock(&self.word, token, Of::new("a model's", &self.word), None) {
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
        let word = self.word.load(Ordering::Relaxed); // perhaps with a stale flag (lock_word.K2)
        assert!(word & LOCKED == 0 && !reservation::is_reserved(&self.word), "left locked: {word}");
        // SAFETY: lock_word.K1 - the callers have joined every thread that locks.
        assert_eq!(self.canary.with(|canary| unsafe { *canary }), visits);
    }
}

const HOT: &str = "no word is HOT here";

/// Runs `own` beside a thread for each of the others, which visit once each, and counts.
fn beside(shared: &Arc<Reserved>, others: usize, own: impl FnOnce(&Reserved), visits: usize) {
    let start = |_| {
        let shared = Arc::clone(shared);
        thread::spawn(move || shared.visit_as_any())
    };
    let others: Vec<_> = (0..others).map(start).collect();
    own(shared);
    others.into_iter().for_each(|other| other.join().unwrap());
    shared.assert_visits(visits);
}

#[test]
fn loom_owner_and_revoker_exclude_each_other() {
    model(3, || beside(&Reserved::new(), 1, |own| (0..2).for_each(|_| own.visit()), 3));
}

#[test]
fn loom_two_revokers_and_the_owner_exclude_each_other() {
    model(2, || beside(&Reserved::new(), 2, Reserved::visit, 3));
}

#[test]
fn loom_owner_that_gives_up_and_revokers_exclude_each_other() {
    model(2, || beside(&Reserved::new(), 2, Reserved::visit_last, 3));
}

/// The word becomes reserved while another thread waits for its lock.
#[test]
fn loom_reservation_races_a_locker() {
    model(3, || {
        let reserve = |own: &Reserved| {
            own.count();
            if !reservation::reserve(&own.word, thread_token()) {
                // SAFETY: `locked` locked it, and it is not reserved; the Arc keeps the word.
                unsafe { unlock(&own.word, 0) };
            }
            own.visit();
        };
        beside(&Reserved::locked(), 1, reserve, 3);
    });
}

/// The word becomes reserved for a thread that stays inside, while another thread waits for its
/// lock.
#[test]
fn loom_reservation_from_inside_races_a_locker() {
    model(3, || {
        let reserve = |own: &Reserved| {
            let token = thread_token();
            let reserved = reservation::reserve_inside(&own.word, &own.inside, token);
            own.count();
            if !reserved {
                // SAFETY: `locked` locked it, and it is not reserved; the Arc keeps the word.
                unsafe { unlock(&own.word, 0) };
            } else if !reservation::leave(&own.word, &own.inside, token) {
                assert!(reservation::leave_changed(&own.word, token), "{HOT}");
            }
            own.visit();
        };
        beside(&Reserved::locked(), 1, reserve, 3);
    });
}

#[test]
fn loom_revocation_without_the_barrier_is_caught() {
    let test = "lock::loom_tests::reservation::loom_owner_and_revoker_exclude_each_other";
    must_catch("unfenced-revocation", test, &RACE);
}
