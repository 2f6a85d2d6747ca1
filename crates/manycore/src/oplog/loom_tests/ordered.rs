//! Logs with stamps: collected up to a cut, applied in the order of stamps (hot_state.C4,
//! oplog.D2). The clock is a counter here; `hardware` has the same races with hardware stamps.

use super::races::{reader_sees_cause_before_effect, reads_of_own_updates_race_a_read};
use super::{List, builder, push, spawn};
use crate::clock::Clock;
use crate::oplog::Publish;
use crate::percpu::loom_tests::{large_model, model};
use crate::sync::{AtomicBool, Ordering};
use std::sync::Arc;

/// Makes a hot list with its own counter as its clock.
fn list(publish: Publish) -> Arc<List> {
    let list = builder(publish).clock(Arc::new(Clock::counter())).build(Vec::new()).unwrap();
    assert!(list.promote());
    Arc::new(list)
}

/// Two updaters and a reader: no update is lost or applied twice, and what the reader saw is a
/// prefix of the final list (batches are applied in the order of reads, oplog.D3).
pub(super) fn appends_race_a_read(make: impl Fn() -> Arc<List> + Sync + Send + 'static) {
    large_model(2, move || {
        let list = make();
        list.append(push(0));
        let other = spawn(&list, |list| list.append(push(1)));
        let reader = spawn(&list, |list| list.read().clone());
        list.append(push(2));
        other.join().unwrap();
        let seen = reader.join().unwrap();
        let all = list.read().clone();
        assert!(all.starts_with(&seen), "{seen:?} was taken back: {all:?}");
        assert!(matches!(all[..], [0, 1, 2] | [0, 2, 1]), "lost or doubled: {all:?}");
    });
}

/// One updater, two reads: its updates stay in order across cuts.
pub(super) fn appends_race_two_reads(make: impl Fn() -> Arc<List> + Sync + Send + 'static) {
    model(2, move || {
        let list = make();
        let other = spawn(&list, |list| (1..=3).for_each(|number| list.append(push(number))));
        let first = list.read().clone();
        let second = list.read().clone();
        assert!(second.starts_with(&first), "{first:?} was taken back: {second:?}");
        other.join().unwrap();
        let all = list.read().clone();
        assert!(all.starts_with(&second), "{second:?} was taken back: {all:?}");
        assert_eq!(all, [1, 2, 3]);
    });
}

#[test]
fn loom_ordered_locked_appends_race_reads_and_keep_their_order() {
    appends_race_a_read(|| list(Publish::Locked));
    appends_race_two_reads(|| list(Publish::Locked));
}

#[test]
fn loom_ordered_biased_appends_race_reads_and_keep_their_order() {
    appends_race_a_read(|| list(Publish::Biased));
    appends_race_two_reads(|| list(Publish::Biased));
}

#[test]
fn loom_ordered_locked_cause_comes_before_effect() {
    reader_sees_cause_before_effect(|| list(Publish::Locked));
}

#[test]
fn loom_ordered_biased_cause_comes_before_effect() {
    reader_sees_cause_before_effect(|| list(Publish::Biased));
}

/// The store-buffering litmus on two objects (oplog.D1), which share a clock as objects do by
/// default.
pub(super) fn one_of_two_readers_sees_the_other(
    make: impl Fn() -> Arc<List> + Sync + Send + 'static,
) {
    model(2, move || {
        let lists = Arc::new((make(), make()));
        let other = spawn(&lists, |(x, y)| {
            x.append(push(1));
            y.read().len()
        });
        let (x, y) = &*lists;
        y.append(push(1));
        let seen = x.read().len();
        assert!(other.join().unwrap() + seen > 0, "both appends were late");
    });
}

#[test]
fn loom_ordered_locked_one_of_two_readers_sees_the_other() {
    one_of_two_readers_sees_the_other(|| list(Publish::Locked));
}

#[test]
fn loom_ordered_biased_one_of_two_readers_sees_the_other() {
    one_of_two_readers_sees_the_other(|| list(Publish::Biased));
}

#[test]
fn loom_ordered_reads_of_own_updates_race_a_read() {
    for publish in [Publish::Locked, Publish::Biased] {
        for appends in [false, true] {
            reads_of_own_updates_race_a_read(appends, move || list(publish));
        }
    }
}

/// The same with an atomic of the program in place of the second object. An update is published
/// before the loads that follow it (oplog.D1), both a slot's first update and later ones. The
/// reader may have updates of its own.
pub(super) fn append_or_store_is_seen(
    updates: u32,
    make: impl Fn() -> Arc<List> + Sync + Send + 'static,
) {
    large_model(3, move || {
        let shared = Arc::new((make(), AtomicBool::new(false)));
        if updates == 1 {
            shared.0.append(push(0));
        }
        let other = spawn(&shared, move |(list, flag)| {
            (1..=updates).for_each(|number| list.append(push(number)));
            flag.load(Ordering::Acquire)
        });
        let (list, flag): &(Arc<List>, AtomicBool) = &shared;
        flag.store(true, Ordering::Release);
        let seen = list.read().contains(&updates);
        assert!(other.join().unwrap() || seen, "both were late");
    });
}

#[test]
fn loom_ordered_locked_append_or_later_store_is_seen() {
    (1..=2).for_each(|updates| append_or_store_is_seen(updates, || list(Publish::Locked)));
}

#[test]
fn loom_ordered_biased_append_or_later_store_is_seen() {
    (1..=2).for_each(|updates| append_or_store_is_seen(updates, || list(Publish::Biased)));
}

/// A thread ends with entries in its log; the next thread that takes the slot continues the same
/// log, and a read finds both in order.
#[test]
fn loom_slot_handed_over_with_entries_keeps_them_in_order() {
    model(2, || {
        let shared = Arc::new((list(Publish::Locked), AtomicBool::new(false)));
        let old = spawn(&shared, |(list, happened)| {
            list.append(push(1));
            happened.store(true, Ordering::Release);
        });
        let new = spawn(&shared, |(list, happened)| {
            let knew = happened.load(Ordering::Acquire);
            list.append(push(if knew { 3 } else { 2 }));
            knew
        });
        old.join().unwrap();
        let knew = new.join().unwrap();
        let all = shared.0.read().clone();
        if knew {
            assert_eq!(all, [1, 3]);
        } else {
            assert!(matches!(all[..], [1, 2] | [2, 1]), "{all:?}");
        }
    });
}
