//! Models of laws cells.N1 to cells.N5. What loom can and can't show is in the header of
//! [`crate::percpu::loom_tests`]. Counts are atomics, so there are no canaries: these models look
//! for counts that are missing or counted twice.

use super::Counter;
use crate::percpu::loom_tests::{large_model, model, must_catch};
use crate::sync::thread;
use std::sync::Arc;

/// Makes a counter at `count`, all of it in the calling thread's row.
fn hot(count: i64) -> Arc<Counter> {
    let counter = Counter::new(0);
    assert!(counter.promote());
    counter.add(count);
    Arc::new(counter)
}

fn spawn(counter: &Arc<Counter>, f: impl FnOnce(&Counter) + 'static) -> thread::JoinHandle<()> {
    let counter = Arc::clone(counter);
    thread::spawn(move || f(&counter))
}

#[test]
fn loom_counter_promoted_under_adds_loses_none() {
    model(2, || {
        let counter = Arc::new(Counter::new(1));
        let adder = spawn(&counter, |counter| (0..2).for_each(|_| counter.inc()));
        let promoter = spawn(&counter, |counter| assert!(counter.promote()));
        let seen = counter.sum();
        assert!((1..=3).contains(&seen), "{seen} of 1 to 3");
        adder.join().unwrap();
        promoter.join().unwrap();
        assert_eq!(counter.sum(), 3);
    });
}

#[test]
fn loom_counter_promoted_twice_at_once_has_one_set_of_cells() {
    model(2, || {
        let counter = Arc::new(Counter::new(0));
        let other = spawn(&counter, |counter| {
            counter.promote();
            counter.inc();
        });
        counter.promote();
        counter.inc();
        other.join().unwrap();
        assert_eq!(counter.sum(), 2);
    });
}

#[test]
fn loom_counter_demoted_under_adds_loses_none() {
    large_model(3, || {
        let counter = hot(1);
        let adder = spawn(&counter, |counter| (0..2).for_each(|_| counter.inc()));
        counter.demote();
        adder.join().unwrap();
        assert_eq!(counter.sum(), 3);
    });
}

/// The adding thread has a straight slot, the first, and finds its row there.
#[test]
fn loom_counter_demoted_under_straight_adds_loses_none() {
    model(3, || {
        let counter = hot(1);
        let demoter = spawn(&counter, Counter::demote);
        (0..2).for_each(|_| counter.inc());
        demoter.join().unwrap();
        assert_eq!(counter.sum(), 3, "an add was lost");
    });
}

/// A reader never sees a total without the part that is being folded (cells.N4).
#[test]
fn loom_counter_demoted_under_sum_hides_nothing() {
    large_model(3, || {
        let counter = hot(1);
        let reader = spawn(&counter, |counter| {
            (0..2).for_each(|_| assert_eq!(counter.sum(), 1));
        });
        counter.demote();
        reader.join().unwrap();
        assert_eq!(counter.sum(), 1);
    });
}

#[test]
fn loom_counter_demoted_twice_at_once_folds_once() {
    model(3, || {
        let counter = hot(1);
        let other = spawn(&counter, Counter::demote);
        counter.demote();
        other.join().unwrap();
        assert!(!counter.is_hot());
        assert_eq!(counter.sum(), 1);
    });
}

/// Two counters and one place in the table: the evicted one still counts.
#[test]
fn loom_counter_evicted_under_adds_and_sum_loses_none() {
    large_model(2, || {
        let (victim, newcomer) = (hot(1), Arc::new(Counter::new(0)));
        let adder = spawn(&victim, Counter::inc);
        let evictor = spawn(&newcomer, |newcomer| {
            newcomer.promote();
            newcomer.inc();
        });
        let seen = victim.sum();
        assert!((1..=2).contains(&seen), "{seen} of 1 to 2");
        adder.join().unwrap();
        evictor.join().unwrap();
        assert_eq!((victim.sum(), newcomer.sum()), (2, 1));
    });
}

/// Same, where the adding thread looks only for its row (cells.N7).
#[test]
fn loom_counter_evicted_under_straight_adds_loses_none() {
    large_model(3, || {
        let (victim, newcomer) = (hot(1), Arc::new(Counter::new(0)));
        let evictor = spawn(&newcomer, |newcomer| assert!(newcomer.promote()));
        victim.inc();
        assert_eq!(victim.sum(), 2, "a sum lacks an add");
        victim.inc();
        evictor.join().unwrap();
        assert_eq!((victim.sum(), newcomer.sum()), (3, 0), "an add was lost");
    });
}

/// Same, where the row is not among the first: the thread's first add makes it.
#[test]
fn loom_counter_evicted_under_straight_adds_to_another_row_loses_none() {
    model(2, || {
        let (victim, newcomer) = (hot(1), Arc::new(Counter::new(0)));
        let adder = spawn(&victim, |victim| (0..2).for_each(|_| victim.inc()));
        assert!(newcomer.promote());
        adder.join().unwrap();
        assert_eq!((victim.sum(), newcomer.sum()), (3, 0), "an add was lost");
    });
}

#[test]
fn loom_counter_evicted_under_demotion_folds_once() {
    model(3, || {
        let (victim, newcomer) = (hot(1), Arc::new(Counter::new(0)));
        let evictor = spawn(&newcomer, |newcomer| {
            newcomer.promote();
        });
        victim.demote();
        evictor.join().unwrap();
        assert_eq!((victim.sum(), newcomer.sum()), (1, 0));
    });
}

/// The last owner drops the victim while another counter evicts it.
#[test]
fn loom_counter_dropped_under_eviction_is_freed_once() {
    model(3, || {
        let (victim, newcomer) = (hot(1), Arc::new(Counter::new(0)));
        let evictor = spawn(&newcomer, |newcomer| {
            newcomer.promote();
        });
        drop(Arc::into_inner(victim));
        evictor.join().unwrap();
    });
}

/// Every add is taken once or still counted (cells.N5), in the counter's form at that time.
fn takes_lose_nothing(counter: &Arc<Counter>, count: i64, change: fn(&Counter)) {
    let adder = spawn(counter, Counter::inc);
    let taker = {
        let counter = Arc::clone(counter);
        thread::spawn(move || counter.take())
    };
    change(counter);
    let mine = counter.take();
    adder.join().unwrap();
    let theirs = taker.join().unwrap();
    assert!(mine >= 0 && theirs >= 0, "{mine} and {theirs} taken");
    assert_eq!(mine + theirs + counter.take(), count + 1, "a take lost an add");
}

#[test]
fn loom_counter_taken_twice_under_add_loses_none() {
    model(2, || takes_lose_nothing(&Arc::new(Counter::new(1)), 1, |_| {}));
}

#[test]
fn loom_counter_taken_under_demotion_and_add_loses_none() {
    large_model(2, || takes_lose_nothing(&hot(1), 1, Counter::demote));
}

#[test]
fn loom_counter_taken_under_promotion_and_add_loses_none() {
    model(2, || {
        let counter = Arc::new(Counter::new(1));
        let taker = {
            let counter = Arc::clone(&counter);
            thread::spawn(move || counter.take())
        };
        assert!(counter.promote());
        counter.inc();
        let mine = counter.take();
        let theirs = taker.join().unwrap();
        assert!(mine >= 0 && theirs >= 0, "{mine} and {theirs} taken");
        assert_eq!(mine + theirs + counter.take(), 2, "a take lost an add");
    });
}

#[test]
fn loom_counter_seeded_set_unseen_is_caught() {
    let test = "collections::counter::loom_tests::loom_counter_taken_twice_under_add_loses_none";
    must_catch("set-unseen", test, &["a take lost an add", "taken"]);
}

#[test]
fn loom_counter_rows_folded_under_straight_adds_are_caught() {
    let signs = ["an add was lost", "a sum lacks an add"];
    let demoted =
        "collections::counter::loom_tests::loom_counter_demoted_under_straight_adds_loses_none";
    must_catch("unwaited-updaters", demoted, &signs);
    must_catch("plain-publish", demoted, &signs);
    for row in ["", "_to_another_row"] {
        let tests = "collections::counter::loom_tests";
        let test = format!("{tests}::loom_counter_evicted_under_straight_adds{row}_loses_none");
        // Or the row is freed: then the word that is added to is not an object of loom's.
        must_catch("unwaited-rows", &test, &[signs[0], signs[1], "failed to get object"]);
    }
}
