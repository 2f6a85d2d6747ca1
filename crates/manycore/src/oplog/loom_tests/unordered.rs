//! Logs without stamps: all updaters are stopped at one moment (hot_state.C3).

use super::races::{
    appends_race_a_read, appends_race_two_reads, reader_sees_cause_before_effect,
    reads_of_own_updates_race_a_read,
};
use super::{Bag, Commuting, Push, contents, hot, push, spawn};
use crate::oplog::Publish;
use crate::percpu::loom_tests::{large_model, model};
use crate::sync::{AtomicBool, Ordering};
use std::sync::Arc;

#[test]
fn loom_unordered_locked_appends_race_reads_and_nothing_is_lost() {
    appends_race_a_read(|| hot(Publish::Locked));
    appends_race_two_reads(2, || hot(Publish::Locked));
}

#[test]
fn loom_unordered_biased_appends_race_reads_and_nothing_is_lost() {
    appends_race_two_reads(2, || hot(Publish::Biased));
}

#[test]
fn loom_unordered_locked_reader_never_sees_effect_without_cause() {
    reader_sees_cause_before_effect(|| hot::<Commuting<Push>>(Publish::Locked));
}

#[test]
fn loom_unordered_biased_reader_never_sees_effect_without_cause() {
    reader_sees_cause_before_effect(|| hot::<Commuting<Push>>(Publish::Biased));
}

/// The store-buffering litmus on two objects (oplog.D1): each thread appends to one object and
/// reads the other.
fn one_of_two_readers_sees_the_other(publish: Publish) {
    model(2, move || {
        let bags: Arc<(Arc<Bag>, Arc<Bag>)> = Arc::new((hot(publish), hot(publish)));
        let other = spawn(&bags, |(x, y)| {
            x.append(push(1));
            contents(y).len()
        });
        let (x, y) = &*bags;
        y.append(push(1));
        let seen = contents(x).len();
        assert!(other.join().unwrap() + seen > 0, "both appends were late");
    });
}

#[test]
fn loom_unordered_locked_one_of_two_readers_sees_the_other() {
    one_of_two_readers_sees_the_other(Publish::Locked);
}

#[test]
fn loom_unordered_biased_one_of_two_readers_sees_the_other() {
    one_of_two_readers_sees_the_other(Publish::Biased);
}

#[test]
fn loom_unordered_reads_of_own_updates_race_a_read() {
    for publish in [Publish::Locked, Publish::Biased] {
        for appends in [false, true] {
            reads_of_own_updates_race_a_read(appends, move || hot::<Commuting<Push>>(publish));
        }
    }
}

/// The same with an atomic of the program in place of the second object. An update is published
/// before the loads that follow it (oplog.D1), both a slot's first update and later ones. The
/// reader may have updates of its own.
fn append_or_store_is_seen(publish: Publish, updates: u32) {
    large_model(3, move || {
        let shared = Arc::new((hot::<Commuting<Push>>(publish), AtomicBool::new(false)));
        if updates == 1 {
            shared.0.append(push(0));
        }
        let other = spawn(&shared, move |(bag, flag)| {
            (1..=updates).for_each(|number| bag.append(push(number)));
            flag.load(Ordering::Acquire)
        });
        let (bag, flag): &(Arc<Bag>, AtomicBool) = &shared;
        flag.store(true, Ordering::Release);
        let seen = contents(bag).contains(&updates);
        assert!(other.join().unwrap() || seen, "both were late");
    });
}

#[test]
fn loom_unordered_locked_append_or_later_store_is_seen() {
    (1..=2).for_each(|updates| append_or_store_is_seen(Publish::Locked, updates));
}

#[test]
fn loom_unordered_biased_append_or_later_store_is_seen() {
    (1..=2).for_each(|updates| append_or_store_is_seen(Publish::Biased, updates));
}

/// A thread that appended and then reads finds its update, even if another thread reads
/// concurrently.
#[test]
fn loom_unordered_own_update_is_seen() {
    model(2, || {
        let bag: Arc<Bag> = hot(Publish::Locked);
        let other = spawn(&bag, |bag| {
            bag.append(push(1));
            assert!(contents(bag).contains(&1));
        });
        bag.append(push(2));
        assert!(contents(&bag).contains(&2));
        other.join().unwrap();
    });
}
