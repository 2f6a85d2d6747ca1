//! A test of the test: models that must fail with a bug of [`crate::sync::Bug`] in place.

use crate::percpu::loom_tests::{RACE, must_catch};

const EFFECT: &str = "effect without its cause";
const ORDER: &str = "effect before its cause";

fn catches(bug: &str, models: &[&str], signs: &[&str]) {
    for model in models {
        must_catch(bug, &format!("oplog::loom_tests::{model}"), signs);
    }
}

#[test]
fn loom_collecting_without_a_cut_is_caught() {
    let models = [
        "unordered::loom_unordered_locked_reader_never_sees_effect_without_cause",
        "unordered::loom_unordered_biased_reader_never_sees_effect_without_cause",
        "ordered::loom_ordered_locked_cause_comes_before_effect",
        "ordered::loom_ordered_biased_cause_comes_before_effect",
    ];
    catches("no-cut", &models, &[EFFECT]);
}

#[test]
fn loom_stamp_as_old_as_the_last_update_is_caught() {
    let models = [
        "ordered::loom_ordered_locked_cause_comes_before_effect",
        "ordered::loom_ordered_biased_cause_comes_before_effect",
    ];
    catches("unfenced-stamp", &models, &[EFFECT, ORDER]);
}

#[test]
fn loom_answer_to_another_collection_is_caught() {
    let models = [
        "unordered::loom_unordered_biased_appends_race_reads_and_nothing_is_lost",
        "unordered::loom_unordered_biased_append_or_later_store_is_seen",
        "ordered::loom_ordered_biased_cause_comes_before_effect",
    ];
    catches("unasked-answer", &models, &RACE);
}

#[test]
fn loom_plain_publication_is_caught() {
    let models = [
        "unordered::loom_unordered_locked_appends_race_reads_and_nothing_is_lost",
        "unordered::loom_unordered_biased_append_or_later_store_is_seen",
        "ordered::loom_ordered_locked_appends_race_reads_and_keep_their_order",
        "ordered::loom_ordered_biased_cause_comes_before_effect",
        "life::loom_demotion_races_locked_append_and_nothing_is_lost",
    ];
    catches("plain-publish", &models, &RACE);
}

#[test]
fn loom_branch_that_is_left_open_is_caught() {
    let models = [
        "tree::loom_tree_ordered_reader_sees_cause_before_effect",
        "tree::loom_tree_biased_helpers_race_reads_and_nothing_is_lost",
    ];
    catches("unshut-branch", &models, &RACE);
}
