//! Logs that belong to CPUs (oplog.V1 to oplog.V3, oplog.C6): several threads under one concurrency
//! id, and a thread that is moved between two updates.

use super::{Bag, List, builder, contents, push, spawn};
use crate::oplog::{Deferred, Log, Logs, Publish, Slots};
use crate::percpu::cid::run_under;
use crate::percpu::loom_tests::{large_model, model};
use crate::sync::{AtomicBool, Ordering};
use std::sync::Arc;

/// A hot object with logs by CPU; the calling thread runs under id 0.
fn by_cpu<L: Log<Vec<u32>>>(logs: Logs) -> Arc<Deferred<Vec<u32>, L>> {
    run_under(0);
    let object = builder(Publish::Auto).slots(Slots::Cpu).logs(logs).build(Vec::new()).unwrap();
    assert!(object.promote());
    Arc::new(object)
}

#[test]
fn loom_shared_log_of_two_threads_loses_nothing() {
    large_model(3, || {
        let bag: Arc<Bag> = by_cpu(Logs::Always);
        let other = spawn(&bag, |bag| {
            run_under(0);
            bag.append(push(1));
        });
        bag.append(push(2));
        let seen = contents(&bag);
        assert!(matches!(seen[..], [2] | [1, 2]), "{seen:?}");
        other.join().unwrap();
        assert_eq!(contents(&bag), [1, 2]);
    });
}

#[test]
fn loom_shared_logs_keep_the_order_of_a_thread_that_is_moved() {
    model(2, || {
        let list: Arc<List> = by_cpu(Logs::Always);
        let moved = spawn(&list, |list| {
            run_under(0);
            list.append(push(1));
            run_under(1);
            list.append(push(2));
        });
        let seen = list.read().clone();
        assert!([1, 2].starts_with(&seen), "{seen:?}");
        moved.join().unwrap();
        assert_eq!(*list.read(), [1, 2]);
    });
}

#[test]
fn loom_unordered_shared_reader_never_sees_effect_without_cause() {
    model(2, || {
        let shared = Arc::new((by_cpu(Logs::Always), AtomicBool::new(false)));
        let (bag, happened): &(Arc<Bag>, AtomicBool) = &shared;
        bag.append(push(0));
        let cause = spawn(&shared, |(bag, happened)| {
            run_under(1);
            bag.append(push(1));
            happened.store(true, Ordering::Release);
        });
        let reader = spawn(&shared, |(bag, _)| {
            let seen = contents(bag);
            assert!(seen.contains(&0), "what returned before the read began is missing");
            assert!(!seen.contains(&2) || seen.contains(&1), "effect without its cause: {seen:?}");
        });
        if happened.load(Ordering::Acquire) {
            bag.append(push(2));
        }
        cause.join().unwrap();
        reader.join().unwrap();
    });
}

#[test]
fn loom_ordered_shared_cause_comes_before_effect() {
    model(2, || {
        let shared = Arc::new((by_cpu(Logs::Always), AtomicBool::new(false)));
        let (list, happened): &(Arc<List>, AtomicBool) = &shared;
        list.append(push(0));
        let cause = spawn(&shared, |(list, happened)| {
            run_under(1);
            list.append(push(1));
            happened.store(true, Ordering::Release);
        });
        let reader = spawn(&shared, |(list, _)| {
            let seen = list.read().clone();
            assert!(
                matches!(seen[..], [0] | [0, 1] | [0, 1, 2]),
                "effect without its cause, or before it: {seen:?}"
            );
        });
        if happened.load(Ordering::Acquire) {
            list.append(push(2));
        }
        cause.join().unwrap();
        reader.join().unwrap();
    });
}

/// As `append_or_store_is_seen` of the other logs (oplog.D1).
#[test]
fn loom_shared_append_or_later_store_is_seen() {
    for updates in 1..=2 {
        model(3, move || {
            let shared = Arc::new((by_cpu(Logs::Always), AtomicBool::new(false)));
            let other = spawn(&shared, move |(bag, flag)| {
                run_under(1);
                (1..=updates).for_each(|number| bag.append(push(number)));
                flag.load(Ordering::Acquire)
            });
            let (bag, flag): &(Arc<Bag>, AtomicBool) = &shared;
            flag.store(true, Ordering::Release);
            let seen = contents(bag).contains(&updates);
            assert!(other.join().unwrap() || seen, "both were late");
        });
    }
}

#[test]
fn loom_shared_log_demoted_under_an_update_loses_nothing() {
    model(2, || {
        let bag: Arc<Bag> = by_cpu(Logs::Auto);
        bag.append(push(0));
        let updater = spawn(&bag, |bag| {
            run_under(0);
            (1..3).for_each(|number| bag.append(push(number)));
        });
        bag.demote();
        updater.join().unwrap();
        assert_eq!(contents(&bag), [0, 1, 2]);
    });
}
