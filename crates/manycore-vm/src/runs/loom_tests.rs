//! Models of numbers that move between shelves and the central store (runs.R1 to runs.R3).

use super::*;
use crate::loom_models::{self, model, unexplored};
use loom::thread;
use std::sync::Arc;

/// Makes runs in which only the `free` numbers are free. These lie on the calling thread's shelf or
/// in a magazine.
fn free_of(limit: u32, shelves: usize, free: &[u32]) -> Arc<Runs> {
    let runs = Runs::with_shelves(limit, shelves);
    runs.alloc(limit, 1).expect("all of them");
    free.iter().for_each(|number| self::free(&runs, *number));
    Arc::new(runs)
}

fn free(runs: &Runs, number: u32) {
    runs.free((number, 1), usize::MAX);
}

/// Runs two threads at the same time.
fn beside(
    (limit, shelves, free): (u32, usize, &'static [u32]),
    one: impl Fn(&Runs) + Copy + Send + Sync + 'static,
    other: impl Fn(&Runs) + Copy + Send + Sync + 'static,
    idle: usize,
) {
    model(3, move || {
        let runs = unexplored(|| free_of(limit, shelves, free));
        let thread = {
            let runs = Arc::clone(&runs);
            thread::spawn(move || other(&runs))
        };
        one(&runs);
        thread.join().unwrap();
        unexplored(|| assert_eq!(runs.idle(), idle, "a number is lost"));
    });
}

/// Takes `count` single numbers, which must lie idle.
fn take(runs: &Runs, count: usize) {
    let found = (0..count).map_while(|_| runs.alloc(1, 1)).collect::<BTreeSet<_>>();
    assert_eq!(found.len(), count, "what lies idle is not found, or twice");
}

/// 0 and 1 are idle all the time, on the shelf or in the magazine that the free makes.
#[test]
fn loom_run_is_found_beside_a_free() {
    let found = |runs: &Runs| {
        assert_eq!(runs.alloc(2, 1), Some(0), "what lies idle is not found, or twice");
    };
    beside((7, 2, &[0, 1, 4]), |runs| free(runs, 6), found, 2);
}

/// The other thread takes a magazine of 0 and 1, because it needs one number.
#[test]
fn loom_last_number_is_found_beside_a_refill() {
    beside((7, 2, &[0, 1, 4, 6]), |runs| take(runs, 3), |runs| take(runs, 1), 0);
}

/// The other thread takes from the shelf that overflows.
#[test]
fn loom_shelf_overflows_beside_a_thread_that_steals_from_it() {
    beside((4, 2, &[0, 1, 2]), |runs| free(runs, 3), |runs| take(runs, 1), 3);
}

#[test]
fn loom_shelf_overflows_beside_a_thread_that_shares_it() {
    beside((4, 1, &[0, 1, 2]), |runs| free(runs, 3), |runs| take(runs, 3), 1);
}

fn must_catch(bug: &str, model: &str, sign: &str) {
    loom_models::must_catch(bug, &format!("runs::loom_tests::{model}"), &[sign]);
}

#[test]
fn loom_magazine_in_hand_is_caught() {
    must_catch("vm-magazine-in-hand", "loom_run_is_found_beside_a_free", "is not found");
}

#[test]
fn loom_refill_in_hand_is_caught() {
    must_catch("vm-refill-in-hand", "loom_last_number_is_found_beside_a_refill", "is not found");
}

#[test]
fn loom_shelf_before_the_central_lock_is_caught() {
    must_catch(
        "vm-shelf-before-central",
        "loom_shelf_overflows_beside_a_thread_that_steals_from_it",
        "deadlock",
    );
}

#[test]
fn loom_shelf_that_is_taken_for_full_is_caught() {
    must_catch(
        "vm-shelf-taken-for-full",
        "loom_shelf_overflows_beside_a_thread_that_shares_it",
        "out of range",
    );
}
