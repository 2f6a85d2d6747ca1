//! A test of the test: models that must fail with a bug of [`crate::sync::Bug`] in place, among
//! them the two mistakes of the paper.

use crate::percpu::loom_tests::{RACE, must_catch, must_catch_in_full};

/// What loom says of a canary in memory that was freed and used again.
const GONE: &str = "index out of bounds";
/// What a canary says that was freed.
const DEAD: &str = "a dead canary sang";

fn catches(bug: &str, models: &[&str]) {
    let signs: Vec<&str> = RACE.into_iter().chain([GONE, DEAD]).collect();
    for model in models {
        must_catch(bug, &format!("section::loom_tests::readers::{model}"), &signs);
    }
}

fn catches_in_full(bug: &str, model: &str) {
    let signs: Vec<&str> = RACE.into_iter().chain([GONE, DEAD]).collect();
    must_catch_in_full(bug, &format!("section::loom_tests::readers::{model}"), &signs);
}

#[test]
fn loom_section_plain_enter_is_caught() {
    catches("plain-publish", &["loom_section_epoch_reader_keeps_its_node"]);
}

#[test]
fn loom_section_stamp_without_a_fence_after_the_unlink_is_caught() {
    catches_in_full("unfenced-retire", "loom_section_epoch_shared_quiescence_keeps_the_node");
}

#[test]
fn loom_section_round_stamped_after_its_look_is_caught() {
    catches("late-round", &["loom_section_clock_shared_quiescence_keeps_the_node"]);
}

#[test]
fn loom_section_sieve_that_does_not_look_at_births_is_caught() {
    catches("eager-sieve", &["loom_section_bounded_sieve_frees_nothing_that_the_reader_covers"]);
}
