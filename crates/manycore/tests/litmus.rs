//! Litmus tests on the real machine: small races, very often.
//!
//! - *Two cores* (requirement O-02): one thread does A and sets a flag, another sees the flag and
//!   does B. No read sees B without A, and no log with stamps applies B before A.
//! - *Store buffering* (law oplog.D1): each of two threads updates one object and reads the other.
//!   Never do both miss the other's update.
//! - The same races with broken objects, which must fail.
//!
//! `MANYCORE_ROUNDS=10000000 cargo test --release -p manycore --test litmus` runs each race ten
//! million times.

mod common;

use common::broken::{Broken, Bug, Tally};
use common::env;
use common::race::{Mark, Marks, Outcome, Writers, apply_number, store_buffering, two_cores};
use manycore::oplog::*;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Runs a race for the number of rounds that the environment says, or else for a moment. The
/// argument of `run` is a number of rounds.
fn often(run: impl FnMut(u64) -> Outcome) -> Outcome {
    match env::number("MANYCORE_ROUNDS") {
        Some(rounds) => Outcome::of(rounds, 5_000, None, run),
        None => Outcome::of(100_000, 200, Some(Instant::now() + Duration::from_millis(200)), run),
    }
}

const WAYS: [Publish; 3] = [Publish::Locked, Publish::Biased, Publish::Auto];

fn object<L: Log<Marks, Op = Mark>>(publish: Publish) -> Deferred<Marks, L> {
    let builder = Deferred::builder().logs(Logs::Always).publish(publish);
    builder.build(Marks::default()).expect("the default bounds")
}

fn assert_sound(race: &str, outcome: Outcome) -> Outcome {
    println!("{race}: {outcome:?}");
    assert_eq!(outcome.violations, 0, "{race}: {outcome:?}");
    outcome
}

/// Runs a race with every way to publish. Repeats it while the two sides have not met in any of
/// them. None may find a violation.
fn sound_in_every_way(race: &str, mut run: impl FnMut(Publish, u64) -> Outcome) {
    let _alone = env::alone();
    let started = Instant::now();
    loop {
        let outcome =
            |way| assert_sound(&format!("{race}, {way:?}"), often(|rounds| run(way, rounds)));
        let meetings: u64 = WAYS.into_iter().map(outcome).map(|outcome| outcome.meetings).sum();
        if meetings > 0 || !env::has_two_cores() {
            return;
        }
        if started.elapsed() >= env::UNSEEN {
            return env::was_not_seen(&format!("{race}: the two sides never met"));
        }
    }
}

fn never_both_miss<L: Log<Marks, Op = Mark>>(kind: &str) {
    sound_in_every_way(&format!("store buffering, {kind}"), |way, rounds| {
        store_buffering(&object::<L>(way), &object::<L>(way), rounds)
    });
}

#[test]
fn two_objects_with_ordered_logs_are_never_both_missed() {
    never_both_miss::<Ordered<Mark>>("ordered");
}

#[test]
fn two_objects_with_unordered_logs_are_never_both_missed() {
    never_both_miss::<Commuting<Mark>>("unordered");
}

fn never_second_without_first<L: Log<Marks, Op = Mark>>(kind: &str, writers: Writers) {
    sound_in_every_way(&format!("two cores, {kind}, {writers:?}"), |way, rounds| {
        two_cores(&Arc::new(object::<L>(way)), rounds, writers, L::ORDERED)
    });
}

#[test]
fn ordered_logs_never_show_the_second_update_without_the_first() {
    never_second_without_first::<Ordered<Mark>>("ordered", Writers::TwoThreads);
}

#[test]
fn unordered_logs_never_show_the_second_update_without_the_first() {
    never_second_without_first::<Commuting<Mark>>("unordered", Writers::TwoThreads);
}

#[test]
fn ordered_logs_of_two_slots_never_show_the_second_update_without_the_first() {
    never_second_without_first::<Ordered<Mark>>("ordered", Writers::TwoSlots);
}

#[test]
fn unordered_logs_of_two_slots_never_show_the_second_update_without_the_first() {
    never_second_without_first::<Commuting<Mark>>("unordered", Writers::TwoSlots);
}

// ---- tests of the tests ----

/// Runs a race until it finds violations.
fn assert_caught(race: &str, mut run: impl FnMut(u64) -> Outcome) {
    if !env::has_two_cores() {
        println!("{race}: skipped, needs two cores");
        return;
    }
    let (mut rounds, started) = (0, Instant::now());
    while started.elapsed() < env::UNSEEN {
        let outcome = run(2_000);
        rounds += outcome.rounds;
        if outcome.violations > 0 {
            println!(
                "{race}: {} violations in the last 2,000 of {rounds} rounds",
                outcome.violations
            );
            return;
        }
    }
    env::was_not_seen(&format!("{race}: it was not caught"));
}

fn broken(bug: Bug) -> Arc<Broken<Marks>> {
    // The reader dawdles: rings lie further apart than logs do.
    let between = || (0..20).for_each(|_| std::hint::spin_loop());
    Arc::new(Broken::new(bug, Marks::default(), apply_number, between))
}

#[test]
fn small_objects_without_a_bug_pass() {
    let _alone = env::alone();
    for writers in [Writers::TwoThreads, Writers::TwoSlots] {
        assert_sound("small object", two_cores(&broken(Bug::None), 1_000, writers, true));
    }
    assert_sound("small objects", store_buffering(&*broken(Bug::None), &*broken(Bug::None), 1_000));
    assert_sound("tallies", store_buffering(&Tally::new(false), &Tally::new(false), 1_000));
}

#[test]
fn reads_without_a_cut_are_caught() {
    let _alone = env::alone();
    assert_caught("no cut", |rounds| {
        two_cores(&broken(Bug::NoCut), rounds, Writers::TwoSlots, true)
    });
}

/// Needs a processor whose stores wait in a buffer while later loads overtake them, as nearly all
/// do.
#[test]
fn publication_by_plain_store_is_caught() {
    let _alone = env::alone();
    let run = |rounds| store_buffering(&Tally::new(true), &Tally::new(true), rounds);
    assert_caught("plain store", run);
}

#[test]
fn unfenced_stamps_are_caught() {
    let _alone = env::alone();
    if cfg!(not(target_arch = "x86_64")) {
        println!("skipped: the bug is that of an x86-64 instruction");
        return;
    }
    let run = |rounds| two_cores(&broken(Bug::UnfencedStamp), rounds, Writers::TwoThreads, true);
    assert_caught("unfenced stamp", run);
}
