//! Promotion, demotion, updates under a guard, and the drop of an object (oplog.D8, object.W1 to
//! object.W3).

use super::{Bag, builder, contents, hot, push, spawn};
use crate::oplog::{Deferred, Logs, Publish};
use crate::percpu::loom_tests::{large_model, model};
use std::sync::Arc;

fn cold() -> Arc<Bag> {
    Arc::new(builder(Publish::Locked).logs(Logs::Auto).build(Vec::new()).unwrap())
}

#[test]
fn loom_promotion_races_append_and_read_and_nothing_is_lost() {
    large_model(2, || {
        let bag = cold();
        let updater = spawn(&bag, |bag| bag.append(push(1)));
        let promoter = spawn(&bag, |bag| assert!(bag.promote()));
        let seen = contents(&bag);
        assert!(matches!(seen[..], [] | [1]), "{seen:?}");
        updater.join().unwrap();
        promoter.join().unwrap();
        assert!(bag.is_hot());
        assert_eq!(contents(&bag), [1]);
    });
}

/// Makes an object with logs and one entry in them, which its policy may demote.
fn hot_for_now(publish: Publish) -> Arc<Bag> {
    let bag: Bag = builder(publish).logs(Logs::Auto).build(Vec::new()).unwrap();
    assert!(bag.promote());
    bag.append(push(0));
    Arc::new(bag)
}

fn demotion_races_append(publish: Publish) {
    model(2, move || {
        let bag = hot_for_now(publish);
        let updater = spawn(&bag, |bag| (1..3).for_each(|number| bag.append(push(number))));
        bag.demote();
        updater.join().unwrap();
        assert!(!bag.is_hot());
        assert_eq!(contents(&bag), [0, 1, 2]);
    });
}

#[test]
fn loom_demotion_races_locked_append_and_nothing_is_lost() {
    demotion_races_append(Publish::Locked);
}

#[test]
fn loom_demotion_races_biased_append_and_nothing_is_lost() {
    demotion_races_append(Publish::Biased);
}

#[test]
fn loom_demotion_races_read_and_the_core_outlives_whoever_waits_for_it() {
    model(2, || {
        let bag = hot_for_now(Publish::Locked);
        let other = spawn(&bag, |bag| assert_eq!(contents(bag), [0]));
        bag.demote();
        other.join().unwrap();
        assert_eq!(contents(&bag), [0]);
    });
}

#[test]
fn loom_two_demotions_free_the_core_once() {
    model(2, || {
        let bag = hot_for_now(Publish::Locked);
        let other = spawn(&bag, |bag| bag.demote());
        bag.demote();
        other.join().unwrap();
        assert!(!bag.is_hot());
        assert_eq!(contents(&bag), [0]);
    });
}

#[test]
fn loom_promotion_races_demotion_and_the_value_has_one_place() {
    large_model(2, || {
        let bag = cold();
        bag.append(push(0));
        let promoter = spawn(&bag, |bag| {
            bag.promote();
            bag.append(push(1));
        });
        bag.demote();
        bag.append(push(2));
        promoter.join().unwrap();
        assert_eq!(contents(&bag), [0, 1, 2]);
    });
}

/// A thread that holds a cold object may update it. That promotes the object under the guard
/// (object.W2), and the guard must still see the value at its place.
#[test]
fn loom_append_under_a_cold_guard_is_logged_for_the_next_read() {
    model(2, || {
        let bag = cold();
        let other = spawn(&bag, |bag| bag.append(push(1)));
        {
            let mut guard = bag.read();
            let before = guard.clone();
            bag.append(push(2));
            assert_eq!(*guard, before, "the guard sees the value as it was");
            guard.push(3);
        }
        other.join().unwrap();
        assert_eq!(contents(&bag), [1, 2, 3]);
    });
}

#[test]
fn loom_append_under_a_hot_guard_is_logged_for_the_next_read() {
    model(2, || {
        let bag: Arc<Bag> = hot(Publish::Locked);
        let other = spawn(&bag, |bag| {
            bag.append(push(1));
            contents(bag).len()
        });
        {
            let mut guard = bag.read();
            bag.append(push(2));
            guard.push(3);
        }
        assert!(other.join().unwrap() >= 1);
        assert_eq!(contents(&bag), [1, 2, 3]);
    });
}

/// The object's own policies: contention promotes, reads that find nothing demote.
#[test]
fn loom_policies_move_the_object_and_nothing_is_lost() {
    model(2, || {
        let bag = cold();
        (0..2).for_each(|number| bag.append(push(number)));
        let other = spawn(&bag, |bag| (2..4).for_each(|number| bag.append(push(number))));
        bag.append(push(4));
        (0..2).for_each(|_| drop(bag.read()));
        other.join().unwrap();
        assert_eq!(contents(&bag), [0, 1, 2, 3, 4]);
    });
}

/// Reads that find many updates switch publication to biased, and reads that find few switch it
/// back, both beside an updater.
#[test]
fn loom_publication_switches_under_an_updater_and_nothing_is_lost() {
    large_model(2, || {
        let bag: Arc<Bag> = hot(Publish::Auto);
        for pair in 0..2 {
            bag.append(push(2 * pair));
            bag.append(push(2 * pair + 1));
            if pair == 0 {
                drop(bag.read());
            }
        }
        let other = spawn(&bag, |bag| {
            bag.append(push(4));
            bag.append(push(5));
        });
        let mut seen = vec![contents(&bag).len()];
        for number in 6..8 {
            bag.append(push(number));
            seen.push(contents(&bag).len());
        }
        assert!(seen[0] >= 4 && seen.is_sorted_by(|one, next| one < next), "{seen:?}");
        other.join().unwrap();
        assert_eq!(contents(&bag), [0, 1, 2, 3, 4, 5, 6, 7]);
    });
}

/// The last owner takes the value, with all updates in logs of threads that have ended.
#[test]
fn loom_into_inner_finds_what_ended_threads_logged() {
    model(2, || {
        let bag: Arc<Bag> = hot(Publish::Biased);
        let others: Vec<_> =
            (0..2).map(|number| spawn(&bag, move |bag| bag.append(push(number)))).collect();
        others.into_iter().for_each(|other| other.join().unwrap());
        let mut list = Arc::into_inner(bag).map(Deferred::into_inner).unwrap();
        list.sort_unstable();
        assert_eq!(list, [0, 1]);
    });
}
