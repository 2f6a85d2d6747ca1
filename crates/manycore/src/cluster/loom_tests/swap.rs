//! One object: calls concurrent with a swap, concurrent swaps, helpers.

use super::{Plain, STUCK, add, object, total};
use crate::cluster::{SwapFailure, Swappable};
use crate::percpu::loom_tests::{RACE, model, must_catch};
use crate::sync::thread;
use std::sync::Arc;
use std::time::Duration;

#[test]
fn loom_call_beside_swap_is_not_lost() {
    model(2, || {
        let shared = object();
        let other = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                add(&shared);
                add(&shared);
            })
        };
        shared.swap(Plain::in_parts(1)).unwrap();
        add(&shared);
        other.join().unwrap();
        assert_eq!(total(&shared), 3, "a call was lost");
    });
}

#[test]
fn loom_call_that_a_swap_does_not_see_is_caught() {
    let test = "cluster::loom_tests::swap::loom_call_beside_swap_is_not_lost";
    let signs: Vec<&str> = RACE.into_iter().chain(["a call was lost"]).collect();
    for bug in ["plain-publish", "unawaited-reader"] {
        must_catch(bug, test, &signs);
    }
}

#[test]
fn loom_two_swappers_take_turns_or_one_is_told() {
    model(2, || {
        let shared = object();
        let swap = |shared: &Swappable<dyn super::Sum>| match shared.swap(Plain::in_parts(1)) {
            Ok(_) => true,
            Err(error) => {
                assert!(matches!(error, SwapFailure::Busy));
                false
            }
        };
        add(&shared);
        let other = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || swap(&shared))
        };
        let mine = swap(&shared);
        assert!(other.join().unwrap() || mine, "one of them swaps");
        assert_eq!(total(&shared), 1);
    });
}

#[test]
fn loom_swap_given_up_leaves_the_old_implementation_open() {
    model(2, || {
        let shared = object();
        let other = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                add(&shared);
                add(&shared);
            })
        };
        match shared.swap_within(Plain::in_parts(1), Duration::ZERO) {
            Ok(_) => (),
            Err(error) => assert!(matches!(error, SwapFailure::TimedOut)),
        }
        other.join().unwrap();
        assert_eq!(total(&shared), 2);
    });
}

#[test]
fn loom_waiting_calls_help_to_move_pieces() {
    model(2, || {
        let shared = Arc::new(Swappable::new(Plain::in_parts(2)));
        shared.call(|sum| sum.add(5));
        let other = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || assert_eq!(total(&shared), 5, "a piece was lost or moved twice"))
        };
        shared.swap(Plain::in_parts(2)).unwrap();
        other.join().unwrap();
        assert_eq!(total(&shared), 5);
    });
}

/// Spinning ends in every model above: none of them prints this.
#[test]
fn loom_stuck_threads_are_told() {
    let test = "cluster::loom_tests::nested::loom_call_from_within_itself_passes_a_swap";
    must_catch("unadmitted-insider", test, &[STUCK]);
}
