//! A test of the test: models that must fail with a planted bug, among
//! them the two mistakes of the paper.

use crate::percpu::loom_tests::{RACE, is_short, must_catch, must_catch_in_full};

/// What loom reports for a canary in memory that was freed and used again, for another object or
/// none.
const GONE: [&str; 2] = ["index out of bounds", "unexpected object stored at reference"];
/// What a canary reports once it was freed.
const DEAD: &str = "a dead canary sang";

fn path(model: &str) -> String {
    let file = match model {
        _ if model.contains("walker") => "chain",
        _ if model.contains("moved") => "owned",
        _ if model.contains("reused") => "reuse",
        _ => "readers",
    };
    format!("section::loom_tests::{file}::{model}")
}

fn catches(bug: &str, models: &[&str]) {
    let signs: Vec<&str> = RACE.into_iter().chain(GONE).chain([DEAD]).collect();
    for model in models {
        must_catch(bug, &path(model), &signs);
    }
}

fn catches_in_full(bug: &str, model: &str) {
    let signs: Vec<&str> = RACE.into_iter().chain(GONE).chain([DEAD]).collect();
    must_catch_in_full(bug, &path(model), &signs);
}

#[test]
fn loom_section_plain_enter_is_caught() {
    catches("plain-publish", &["loom_section_epoch_reader_keeps_its_node"]);
}

/// The hand-over to another thread is no barrier.
#[test]
fn loom_section_plain_enter_of_a_section_that_moves_is_caught() {
    catches("plain-publish", &["loom_section_epoch_moved_section_keeps_its_node"]);
}

/// Takes a minute, so it runs only in full; in short runs, the models of `namespace` catch this
/// bug.
#[test]
fn loom_section_stamp_without_a_fence_after_the_unlink_is_caught() {
    if is_short() {
        return;
    }
    catches_in_full("unfenced-retire", "loom_section_epoch_shared_quiescence_keeps_the_node");
}

#[test]
fn loom_section_filter_that_does_not_look_at_births_is_caught() {
    catches("eager-filter", &["loom_section_bounded_filter_frees_nothing_that_the_reader_covers"]);
}

/// A leader that frees its own batches relies on its look (section.E3), whatever the margin of the
/// others' batches (section.E2).
#[test]
fn loom_section_round_that_looks_before_its_barrier_is_caught() {
    let models =
        ["loom_section_epoch_reader_keeps_its_node", "loom_section_bounded_reader_keeps_its_node"];
    catches("late-round", &models);
}

#[test]
fn loom_section_raised_era_without_a_barrier_is_caught() {
    let models = [
        "loom_section_bounded_walker_keeps_what_it_stands_on",
        "loom_section_fenced_walker_keeps_what_it_stands_on",
    ];
    catches("unfenced-raise", &models);
}

#[test]
fn loom_section_filter_before_a_round_is_caught() {
    let models = ["loom_section_bounded_filter_waits_for_a_round"];
    catches("unlooked-filter", &models);
}

#[test]
fn loom_section_filter_of_a_chain_that_does_not_look_at_births_is_caught() {
    let models = [
        "loom_section_bounded_walker_keeps_what_it_stands_on",
        "loom_section_fenced_walker_keeps_what_it_stands_on",
    ];
    catches("eager-filter", &models);
}

#[test]
fn loom_section_early_closed_batch_without_a_grace_period_is_caught() {
    catches("urgent-expired", &["loom_section_urgent_batch_waits_for_its_reader"]);
}

#[test]
fn loom_section_limbo_taken_over_from_a_thread_inside_is_caught() {
    catches("taken-inside", &["loom_section_limbo_is_taken_over_from_outside_only"]);
}

#[test]
fn loom_section_memory_reused_before_its_grace_period_is_caught() {
    catches("reused-unexpired", &["loom_section_reused_memory_has_no_reader"]);
}
