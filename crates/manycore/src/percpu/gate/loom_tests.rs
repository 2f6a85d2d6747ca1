//! Models of laws gate.E1 to gate.E7. What loom can and can't show, and how a model is itself
//! tested, is in the header of [`crate::percpu::loom_tests`].
//!
//! The canary is a cell that readers read inside, and a closer writes. So the model fails, whatever
//! its assertions say, if a reader is concurrent with a closer, or has no happens-before with it.

use super::super::{barrier, current_slot, records, thread_token, token};
use super::{Gate, Lane, pass_barrier};
use crate::percpu::announcement::{announce, announced};
use crate::percpu::loom_tests::{RACE, large_model, model, must_catch, wait_for_ended};
use crate::sync::{AtomicUsize, Ordering, UnsafeCell, thread};
use std::convert::Infallible;
use std::sync::Arc;

/// The word of a gate in these models, as that of `oplog::readers`.
const OPEN: usize = 1;
const BIASED: usize = 2;

struct Guarded {
    gate: Gate,
    canary: UnsafeCell<usize>,
}

// SAFETY: the cell is what the tests are about; loom checks each access.
unsafe impl Sync for Guarded {}
// SAFETY: the cell holds a number, which has no ties to a thread.
unsafe impl Send for Guarded {}

fn guarded(word: usize) -> Arc<Guarded> {
    Arc::new(Guarded { gate: Gate::new(word), canary: UnsafeCell::new(0) })
}

impl Guarded {
    /// Enters if the gate is open, and reads the canary.
    fn visit(&self) -> Option<usize> {
        let word = self.gate.word.load(Ordering::Relaxed);
        if word & OPEN == 0 || !self.gate.claim() {
            return None;
        }
        let lane = self.gate.enter(word, word & BIASED != 0)?;
        // SAFETY: gate.E2 - no closer writes while a reader is inside; loom checks it.
        let seen = self.canary.with(|canary| unsafe { *canary });
        lane.leave();
        Some(seen)
    }

    /// Closes the gate, adds one to the canary, and opens the gate with this word.
    fn change(&self, open: usize) {
        let was = self.gate.word.swap(0, Ordering::Relaxed);
        pass_barrier(was & BIASED != 0);
        let Ok(()) = self.gate.wait(|_| Ok::<(), Infallible>(()));
        // SAFETY: gate.E3 - closed, and no reader is inside; loom checks it.
        self.canary.with_mut(|canary| unsafe { *canary += 1 });
        self.gate.word.store(open, Ordering::Release);
    }
}

/// A reader that claims its lane and enters twice, concurrently with two changes: the gate opens
/// with `then` after the first.
fn readers_beside_changes(first: usize, then: usize) {
    model(2, move || {
        let shared = guarded(first);
        let reader = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let first = shared.visit();
                let second = shared.visit();
                assert!(second.is_none() || first <= second, "a reader saw the past");
            })
        };
        shared.change(then);
        shared.change(then);
        reader.join().unwrap();
        assert_eq!(shared.visit(), Some(2), "the open gate lets a reader in");
    });
}

#[test]
fn loom_biased_readers_and_a_closer_exclude_each_other() {
    readers_beside_changes(OPEN | BIASED, OPEN | BIASED);
}

#[test]
fn loom_fenced_readers_and_a_closer_exclude_each_other() {
    readers_beside_changes(OPEN, OPEN);
}

/// The bias is cleared between the changes (gate.E4).
#[test]
fn loom_readers_and_a_closer_exclude_each_other_when_the_bias_goes() {
    readers_beside_changes(OPEN | BIASED, OPEN);
}

fn catches(bug: &str, models: &[&str], signs: &[&str]) {
    for model in models {
        must_catch(bug, &format!("percpu::gate::loom_tests::{model}"), signs);
    }
}

const BIASED_MODEL: &str = "loom_biased_readers_and_a_closer_exclude_each_other";
const FENCED_MODEL: &str = "loom_fenced_readers_and_a_closer_exclude_each_other";

#[test]
fn loom_plain_announcement_is_caught() {
    catches("plain-publish", &[BIASED_MODEL, FENCED_MODEL], &RACE);
}

#[test]
fn loom_closer_that_waits_for_no_reader_is_caught() {
    catches("unawaited-reader", &[BIASED_MODEL, FENCED_MODEL], &RACE);
}

#[test]
fn loom_lane_that_closers_do_not_look_at_is_caught() {
    catches("unlisted-lane", &[BIASED_MODEL], &RACE);
}

#[test]
fn loom_fence_against_light_barriers_is_caught() {
    catches("fenced-closing", &[BIASED_MODEL], &RACE);
}

#[test]
fn loom_reader_that_announced_itself_by_an_old_bias_is_caught() {
    let model = "loom_readers_and_a_closer_exclude_each_other_when_the_bias_goes";
    catches("stale-bias", &[model], &RACE);
}

/// A full fence of the reader pairs with the heavy barrier, too: so the bias may be set on an open
/// gate (gate.E4).
#[test]
fn loom_fenced_announcement_meets_heavy_barrier() {
    model(3, || {
        let shared = Arc::new((AtomicUsize::new(0), AtomicUsize::new(0)));
        let reader = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                announce(&shared.0, 16, false);
                shared.1.load(Ordering::Acquire) != 0
            })
        };
        shared.1.store(1, Ordering::Release);
        barrier::heavy();
        let closer_saw = announced(&shared.0) == 16;
        assert!(reader.join().unwrap() || closer_saw, "neither side saw the other");
    });
}

/// A thread that is inside enters again while a closer waits for it (gate.E7).
#[test]
fn loom_reader_enters_again_while_a_closer_waits() {
    model(2, || {
        let shared = guarded(OPEN | BIASED);
        assert!(shared.gate.claim());
        let outer = shared.gate.enter(OPEN | BIASED, true).unwrap();
        let closer = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || shared.change(OPEN))
        };
        let inner = shared.gate.enter_again().unwrap();
        outer.leave();
        // SAFETY: gate.E2, gate.E7 - this thread is still counted once.
        assert_eq!(shared.canary.with(|canary| unsafe { *canary }), 0);
        inner.leave();
        closer.join().unwrap();
    });
}

/// A thread that is ending has given its slot back, and is still counted in the slot's lane. The
/// slot's next owner has no lane until that thread has left, concurrently with a closer (gate.E5).
#[test]
fn loom_lane_passes_to_the_next_owner_of_its_slot_when_it_is_empty() {
    model(2, || {
        let shared = guarded(OPEN | BIASED);
        let ending = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                assert!(shared.gate.claim());
                assert!(shared.gate.enter(OPEN | BIASED, true).is_some());
            })
        };
        ending.join().unwrap();
        while token::in_use() != 0 || !records().is_unused() {
            thread::yield_now();
        }
        // From here on this thread plays the one that is ending: it has its token, and no slot.
        assert!(shared.gate.lanes().all(|lane| lane.is_held_by(thread_token())));
        let next = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                shared.visit();
                assert!(shared.gate.inside().is_none(), "another's count is taken for its own");
                shared.visit();
                assert_eq!(current_slot(), 0, "the slot of the thread that is ending");
            })
        };
        // SAFETY: gate.E2 - this thread is counted still; loom checks it.
        assert_eq!(shared.canary.with(|canary| unsafe { *canary }), 0);
        shared.gate.lanes().for_each(Lane::leave);
        shared.change(OPEN | BIASED);
        next.join().unwrap();
        assert_eq!(shared.visit(), Some(1), "the lane of an ended thread is free");
    });
}

#[test]
fn loom_lane_taken_over_while_it_counts_another_thread_is_caught() {
    let model = "loom_lane_passes_to_the_next_owner_of_its_slot_when_it_is_empty";
    catches("counted-lane", &[model], &["another's count is taken for its own"]);
}

/// A thread that has ended leaves its token to one thread and its lane to another. The first must
/// not take the second's lane for its own (gate.E7).
#[test]
fn loom_token_and_lane_of_an_ended_thread_go_different_ways() {
    large_model(3, || {
        let shared = guarded(OPEN | BIASED);
        let here = thread_token();
        let visit = || {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                assert!(shared.gate.inside().is_none(), "another's lane is taken for its own");
                shared.visit();
                (thread_token(), current_slot())
            })
        };
        let ended = visit().join().unwrap();
        wait_for_ended();
        // The slot, and with it the lane, of the ended thread.
        assert_eq!(current_slot(), ended.1);
        let heir = visit();
        shared.visit();
        shared.change(OPEN | BIASED);
        let heir = heir.join().unwrap();
        assert!(here != ended.0 && heir.0 == ended.0 && heir.1 != ended.1);
    });
}

#[test]
fn loom_thread_that_trusts_a_dead_threads_token_is_caught() {
    let model = "loom_token_and_lane_of_an_ended_thread_go_different_ways";
    catches("token-before-count", &[model], &["another's lane is taken for its own"]);
}
