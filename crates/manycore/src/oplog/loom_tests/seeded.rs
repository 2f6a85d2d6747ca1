//! A test of the test: models that must fail with a planted bug.

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
    ];
    catches("plain-publish", &models, &RACE);
    // loom finds that the freed hot state is in use.
    let freed = RACE.into_iter().chain(["failed to get object"]).collect::<Vec<_>>();
    let models = ["life::loom_demotion_races_locked_append_and_nothing_is_lost"];
    catches("plain-publish", &models, &freed);
}

#[test]
fn loom_helper_for_whom_an_eviction_does_not_wait_is_caught() {
    catches("waiting-helper", &["combining_tree::loom_tree_helper_races_an_eviction"], &RACE);
}

#[test]
fn loom_branch_that_is_left_open_is_caught() {
    let models = [
        "combining_tree::loom_tree_ordered_reader_sees_cause_before_effect",
        "combining_tree::loom_tree_biased_helpers_race_reads_and_nothing_is_lost",
    ];
    catches("unshut-branch", &models, &RACE);
    catches(
        "unshut-branch",
        &["combining_tree::loom_tree_of_two_branches_locked_helpers_race_a_read"],
        &RACE,
    );
}

#[test]
fn loom_second_branch_that_the_reader_passes_by_is_caught() {
    let models = [
        "combining_tree::loom_tree_of_two_branches_locked_helpers_race_a_read",
        "combining_tree::loom_tree_of_two_branches_biased_helpers_race_a_read",
    ];
    let lost = RACE.into_iter().chain(["lost or doubled"]).collect::<Vec<_>>();
    catches("forgotten-branch", &models, &lost);
}

/// The panic of the litmus of oplog.D1.
const LATE: &str = "both were late";
/// The panic of a list that lacks an update.
const MISSING: &str = "what returned before the read began is missing";

const STAMPED: [&str; 2] = [
    "hardware::loom_stamped_locked_cause_comes_before_effect",
    "hardware::loom_stamped_biased_cause_comes_before_effect",
];

#[test]
fn loom_hardware_stamp_as_old_as_the_last_update_is_caught() {
    catches("unfenced-stamp", &STAMPED, &[EFFECT, ORDER]);
}

#[test]
fn loom_hardware_stamp_of_after_the_update_is_caught() {
    catches("late-stamp", &STAMPED, &[EFFECT, ORDER, MISSING]);
}

#[test]
fn loom_hardware_plain_publication_is_caught() {
    let models = [
        "hardware::loom_stamped_locked_appends_race_reads_and_keep_their_order",
        "hardware::loom_stamped_biased_append_or_later_store_is_seen",
    ];
    let late = RACE.into_iter().chain([LATE]).collect::<Vec<_>>();
    catches("plain-publish", &models, &late);
}

#[test]
fn loom_cut_after_the_look_at_the_logs_is_caught() {
    catches("late-cut", &STAMPED, &[EFFECT]);
    catches("no-cut", &STAMPED, &[EFFECT]);
    let counted = ["ordered::loom_ordered_locked_cause_comes_before_effect"];
    catches("late-cut", &counted, &[EFFECT]);
}

#[test]
fn loom_read_that_looks_before_its_stores_are_visible_is_caught() {
    // If updates are not biased, the reader's announcement is already a fence.
    let models = [
        "hardware::loom_stamped_biased_append_or_later_store_is_seen",
        "ordered::loom_ordered_biased_append_or_later_store_is_seen",
        "unordered::loom_unordered_biased_append_or_later_store_is_seen",
    ];
    catches("unfenced-read", &models, &[LATE]);
}

#[test]
fn loom_log_of_another_thread_that_is_taken_for_the_readers_is_caught() {
    let models = [
        "unordered::loom_unordered_biased_appends_race_reads_and_nothing_is_lost",
        "ordered::loom_ordered_biased_appends_race_reads_and_keep_their_order",
        "hardware::loom_stamped_biased_appends_race_reads_and_keep_their_order",
    ];
    catches("ungated-log", &models, &RACE);
}

#[test]
fn loom_loads_that_run_before_the_stamp_are_caught() {
    let models = [
        "hardware::loom_stamped_locked_append_or_later_store_is_seen",
        "hardware::loom_stamped_biased_append_or_later_store_is_seen",
    ];
    catches("early-loads", &models, &[LATE]);
}

#[test]
fn loom_stamps_that_fall_are_caught() {
    let models = ["hardware::loom_stamped_thread_that_is_moved_to_a_slower_clock_keeps_its_order"];
    let signs = ["a stamp is not above the one before", "oplog.D2: a slot's stamps decrease"];
    catches("unsteady-stamp", &models, &signs);
}

#[test]
fn loom_skew_that_is_not_waited_out_is_caught() {
    let ahead = ["hardware::loom_skewed_cause_ahead_comes_before_effect"];
    catches("unsettled", &ahead, &[ORDER, EFFECT]);
    let reader = ["hardware::loom_skewed_reader_ahead_sees_cause_before_effect"];
    catches("unsettled", &reader, &[EFFECT]);
}

#[test]
fn loom_core_freed_with_late_updates_is_caught() {
    let models = [
        "inside::loom_update_of_ones_own_object_in_a_demotion_races_another",
        "inside::loom_late_update_races_demotion",
    ];
    catches("unsealed-late", &models, &["an update is missing"]);
}

#[test]
fn loom_read_that_forgets_late_updates_is_caught() {
    let models = ["inside::loom_late_update_races_reads"];
    catches("forgotten-late", &models, &["an update is missing"]);
}

#[test]
fn loom_release_that_looks_for_a_promotion_too_early_is_caught() {
    let asserted = "lock_word.K1: a lock is released by another thread";
    let signs = ["unlocked by another", "an update is missing", "deadlock", asserted];
    catches(
        "blind-unlock",
        &["inside::loom_cold_objects_whose_updates_append_to_each_other"],
        &signs,
    );
}
