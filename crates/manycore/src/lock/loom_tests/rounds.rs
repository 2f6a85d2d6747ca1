//! Models of the lock in rounds. The object is a cell: loom reports a thread that changes it while
//! another thread shares it, and a sharer that has not seen the last change.

use super::super::{Entered, Refused, Rounds};
use crate::percpu::barrier;
use crate::percpu::loom_tests::{RACE, large_model, model, must_catch, must_catch_in_full};
use crate::profile::Of;
use crate::sync::{AtomicUsize, Ordering, UnsafeCell, thread};
use std::sync::Arc;

/// The number of changes made, and how many of them the object has applied. The second number is
/// exact for a thread that has the object, and a hint for the others.
struct Shared {
    rounds: Rounds,
    changes: AtomicUsize,
    known: UnsafeCell<usize>,
    guess: AtomicUsize,
    served: AtomicUsize,
}

impl Shared {
    fn new() -> Arc<Self> {
        let zero = || AtomicUsize::new(0);
        let known = UnsafeCell::new(0);
        let (changes, guess, served) = (zero(), zero(), zero());
        Arc::new(Self { rounds: Rounds::new(), changes, known, guess, served })
    }

    fn of(&self) -> Of {
        Of::new("a model's", self)
    }

    fn change(&self) {
        self.changes.fetch_add(1, Ordering::AcqRel);
        barrier::full_after_rmw();
    }

    /// Applies the changes. The caller has the object exclusively.
    fn round(&self) {
        let round = self.rounds.begin();
        let changes = self.changes.load(Ordering::Acquire);
        // SAFETY: rounds.V1.
        self.known.with_mut(|known| unsafe { *known = changes });
        self.guess.store(changes, Ordering::Relaxed);
        self.served.fetch_add(1, Ordering::Relaxed);
        self.rounds.end(round);
    }

    /// Returns the number of changes that the object has applied, up to date.
    fn read(&self) -> usize {
        let guess = || self.guess.load(Ordering::Relaxed);
        let is_current = || self.changes.load(Ordering::Acquire) == guess();
        match self.rounds.enter(self.of(), is_current).unwrap() {
            Entered::Shared => {}
            Entered::First => {
                self.round();
                assert!(self.rounds.share(), "it is not kept");
            }
        }
        assert_eq!(self.rounds.enter(self.of(), is_current), Err(Refused::HeldBySelf), "V4");
        // SAFETY: rounds.V1 - no thread changes it while it is shared.
        let known = self.known.with(|known| unsafe { *known });
        self.rounds.leave();
        known
    }

    fn change_and_read(&self) {
        self.change();
        assert!(self.read() > 0, "a change that had returned is missing");
    }

    fn visit_alone(&self) {
        self.rounds.lock(self.of()).unwrap();
        self.round();
        self.rounds.unlock();
    }
}

fn start(shared: &Arc<Shared>, f: impl FnOnce(&Shared) + 'static) -> thread::JoinHandle<()> {
    let shared = Arc::clone(shared);
    thread::spawn(move || f(&shared))
}

#[test]
fn loom_rounds_readers_see_what_returned_before() {
    model(3, || {
        let shared = Shared::new();
        let other = start(&shared, Shared::change_and_read);
        shared.change_and_read();
        other.join().unwrap();
        assert_eq!(shared.read(), 2);
    });
}

/// The second thread finds the lock busy, or nothing to do: it never waits for the first to leave.
#[test]
fn loom_rounds_readers_that_change_nothing_share_one_round() {
    model(3, || {
        let shared = Shared::new();
        shared.change();
        let other = start(&shared, |shared| assert_eq!(shared.read(), 1));
        assert_eq!(shared.read(), 1);
        other.join().unwrap();
        assert_eq!(shared.served.load(Ordering::Relaxed), 1, "a round with nothing to do (V5)");
    });
}

/// One thread goes first; the others share, or wait for the next round; all are woken.
#[test]
fn loom_rounds_three_readers_are_all_served() {
    large_model(2, || {
        let shared = Shared::new();
        let others = [(); 2].map(|()| start(&shared, Shared::change_and_read));
        shared.change_and_read();
        others.into_iter().for_each(|other| other.join().unwrap());
    });
}

#[test]
fn loom_rounds_who_has_the_object_alone_excludes_those_who_share_it() {
    large_model(2, || {
        let shared = Shared::new();
        let others = [start(&shared, Shared::change_and_read), start(&shared, Shared::visit_alone)];
        shared.visit_alone();
        others.into_iter().for_each(|other| other.join().unwrap());
        assert_eq!(shared.read(), 1);
    });
}

#[test]
fn loom_rounds_nothing_new_is_shared_without_the_lock() {
    model(3, || {
        let shared = Shared::new();
        let other = start(&shared, |shared| {
            shared.read();
        });
        assert_eq!(shared.read(), 0);
        shared.visit_alone();
        other.join().unwrap();
    });
}

#[test]
fn loom_rounds_try_lock_has_the_object_alone_or_is_refused() {
    model(3, || {
        let shared = Shared::new();
        let other = start(&shared, Shared::change_and_read);
        if shared.rounds.try_lock().is_ok() {
            shared.round();
            shared.rounds.unlock();
        }
        other.join().unwrap();
        assert!(shared.rounds.try_lock().is_ok(), "no thread is left");
        assert_eq!(shared.rounds.try_lock(), Err(Refused::HeldBySelf));
        shared.rounds.unlock();
    });
}

/// The other thread's lock keeps the word while it waits for the sharer to leave.
#[test]
fn loom_rounds_sharer_that_asks_again_is_refused_while_another_waits() {
    model(3, || {
        let shared = Shared::new();
        let other = start(&shared, Shared::visit_alone);
        if shared.rounds.enter(shared.of(), || true).unwrap() == Entered::First {
            shared.round();
            assert!(shared.rounds.share(), "it is not kept");
        }
        assert_eq!(shared.rounds.lock(shared.of()), Err(Refused::HeldBySelf), "V4");
        assert_eq!(shared.rounds.try_lock(), Err(Refused::HeldBySelf), "V4");
        shared.rounds.leave();
        other.join().unwrap();
        assert!(shared.rounds.try_lock().is_ok(), "no thread is left");
        shared.rounds.unlock();
    });
}

fn catches(bug: &str, model: &str, signs: &[&str]) {
    must_catch(bug, &format!("lock::loom_tests::rounds::loom_rounds_{model}"), signs);
}

#[test]
fn loom_rounds_round_that_had_begun_is_caught() {
    let signs = ["a change that had returned is missing"];
    catches("old-round", "readers_see_what_returned_before", &signs);
}

#[test]
fn loom_rounds_holder_that_does_not_wait_for_those_inside_is_caught() {
    catches("hasty-closing", "who_has_the_object_alone_excludes_those_who_share_it", &RACE);
}

#[test]
fn loom_rounds_sleeper_that_does_not_look_again_is_caught() {
    catches("forgotten-sleepers", "three_readers_are_all_served", &["deadlock"]);
}

#[test]
fn loom_rounds_announcement_left_by_a_reader_that_does_not_park_is_caught() {
    let model = "lock::loom_tests::rounds::loom_rounds_three_readers_are_all_served";
    must_catch_in_full("flag-left-set", model, &["deadlock"]);
}

#[test]
fn loom_rounds_word_taken_before_the_look_is_caught() {
    let model = "sharer_that_asks_again_is_refused_while_another_waits";
    catches("word-before-look", model, &["deadlock"]);
}

#[test]
fn loom_rounds_round_with_nothing_to_do_is_caught() {
    let model = "readers_that_change_nothing_share_one_round";
    catches("needless-round", model, &["a round with nothing to do"]);
}
