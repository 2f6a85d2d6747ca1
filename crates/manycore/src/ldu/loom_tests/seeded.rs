//! A test of the test: the faults of the published forms, planted, must be caught.

use crate::percpu::loom_tests::{RACE, must_catch};

fn catches(bug: &str, models: &[&str], signs: &[&str]) {
    for model in models {
        must_catch(bug, &format!("ldu::loom_tests::{model}"), signs);
    }
}

/// The public kernel patch has this fault: an updater may have queued the member again, elsewhere.
#[test]
fn loom_ldu_next_read_after_the_member_was_let_go_is_caught() {
    let models = ["reads::loom_ldu_member_queued_again_behind_a_walk_is_not_lost"];
    catches("next-after-clear", &models, &["a change was lost", "is told twice", "was never"]);
}

/// The papers say nothing of the members' memory.
#[test]
fn loom_ldu_member_freed_while_queued_is_caught() {
    let models = [
        "lives::loom_ldu_member_dropped_while_queued_is_freed_once",
        "lives::loom_ldu_global_member_dropped_while_queued_is_freed_once",
    ];
    let mut signs = vec!["a member is used after its time"];
    signs.extend(RACE);
    catches("free-queued", &models, &signs);
}

/// The published reads take whatever they find, queue after queue.
#[test]
fn loom_ldu_read_without_a_cut_is_caught() {
    let models = [
        "reads::loom_ldu_reader_never_sees_effect_without_cause",
        "reads::loom_ldu_read_sees_a_state_that_was",
        "reads::loom_ldu_global_read_sees_a_state_that_was",
    ];
    catches("no-cut", &models, &["effect without its cause", "was never the set"]);
}

#[test]
fn loom_ldu_change_that_waits_while_its_thread_holds_a_set_is_caught() {
    let models = ["shared::loom_ldu_sharers_that_change_each_others_sets_do_not_wait"];
    catches("waiting-holder", &models, &["deadlock"]);
}

/// An eager change relies on what it saw before it had the lock.
#[test]
fn loom_ldu_eager_change_under_sharers_is_caught() {
    let models = ["eager::loom_ldu_eager_change_of_a_set_that_is_eager_no_longer_is_deferred"];
    let mut signs = vec!["the structure changed under a reader", "rounds.V1"];
    signs.extend(RACE);
    catches("kept-no-longer", &models, &signs);
}
