//! Cold objects that are reserved for one thread (`lock::reservation`), and lose the reservation to
//! updates, reads and promotions of other threads.

use super::{Bag, Builder, Commuting, builder, contents, push, spawn};
use crate::oplog::contention::Contention;
use crate::oplog::guard::Locked;
use crate::oplog::{Deferred, Log, Logs, Publish};
use crate::percpu::loom_tests::{RACE, large_model, model, must_catch};
use std::sync::Arc;

fn cold() -> Arc<Bag> {
    Arc::new(builder(Publish::Locked).logs(Logs::Auto).build(Vec::new()).unwrap())
}

/// Reserves the cold object for the calling thread.
fn reserve<L: Log<Vec<u32>>>(object: &Deferred<Vec<u32>, L>) {
    let contention = object.contention.load();
    object.lock_word(false).expect("the object is free");
    drop(Locked::of(object, object.reserve(contention)));
    assert!(object.contention.load().is_reserved());
}

#[test]
fn loom_reserved_updates_race_append_and_nothing_is_lost() {
    model(3, || {
        let bag = cold();
        reserve(&bag);
        let updater = spawn(&bag, |bag| bag.append(push(2)));
        (0..2).for_each(|number| bag.append(push(number)));
        updater.join().unwrap();
        assert_eq!(contents(&bag), [0, 1, 2]);
    });
}

#[test]
fn loom_reserved_reads_race_append_and_read() {
    model(2, || {
        let bag = cold();
        reserve(&bag);
        let updater = spawn(&bag, |bag| {
            bag.append(push(1));
            assert_eq!(contents(bag), [1]);
        });
        let seen = [contents(&bag), contents(&bag)];
        assert!(seen[0].len() <= seen[1].len(), "{seen:?}");
        updater.join().unwrap();
        assert_eq!(contents(&bag), [1]);
    });
}

/// A read reserves the object, and goes on holding it while another thread wants it.
#[test]
fn loom_read_that_reserves_races_append_and_read() {
    model(2, || {
        let bag = cold();
        bag.contention.store(Contention::DUE);
        let updater = spawn(&bag, |bag| {
            bag.append(push(1));
            assert_eq!(contents(bag), [1]);
        });
        let guard = bag.read();
        let seen = guard.clone();
        assert_eq!(seen, *guard, "an update under a reader");
        drop(guard);
        assert!(seen.len() <= contents(&bag).len(), "{seen:?}");
        updater.join().unwrap();
        assert_eq!(contents(&bag), [1]);
    });
}

/// The same, and the other thread, which is inside another object, gives this object logs in the
/// reader's name.
#[test]
fn loom_read_that_reserves_races_a_promotion_in_its_name() {
    model(2, || {
        let bags = Arc::new([cold(), cold()]);
        bags[0].contention.store(Contention::DUE);
        let updater = spawn(&bags, |bags| {
            let other = bags[1].read();
            bags[0].append(push(2));
            drop(other);
        });
        let guard = bags[0].read();
        let seen = guard.clone();
        drop(guard);
        updater.join().unwrap();
        assert!(seen.is_empty() || seen == [2], "{seen:?}");
        assert_eq!(contents(&bags[0]), [2]);
    });
}

#[test]
fn loom_promotion_that_a_reserving_reader_leaves_unfinished_is_caught() {
    let test = "oplog::loom_tests::reserved::loom_read_that_reserves_races_a_promotion_in_its_name";
    must_catch("unfinished-promotion", test, &["this thread holds the object already", "deadlock"]);
}

/// A thread that is inside another object does not wait for the owner, but gives the object logs in
/// the owner's name.
#[test]
fn loom_reserved_update_races_a_promotion_in_its_name() {
    model(2, || {
        let bags = Arc::new([cold(), cold()]);
        reserve(&bags[0]);
        let updater = spawn(&bags, |bags| {
            let other = bags[1].read();
            bags[0].append(push(2));
            drop(other);
        });
        bags[0].append(push(1));
        updater.join().unwrap();
        assert_eq!(contents(&bags[0]), [1, 2]);
    });
}

/// As the collections do: in place if possible, else by an update.
fn push_in_place(bag: &Bag, number: u32) {
    let pushed = bag.change_in_place(|list| {
        list.push(number);
        Some(())
    });
    if pushed.is_none() {
        bag.append(push(number));
    }
}

#[test]
fn loom_reserved_changes_in_place_race_append() {
    model(3, || {
        let bag = cold();
        reserve(&bag);
        let updater = spawn(&bag, |bag| bag.append(push(2)));
        (0..2).for_each(|number| push_in_place(&bag, number));
        updater.join().unwrap();
        assert_eq!(contents(&bag), [0, 1, 2]);
    });
}

/// An object that is free, and due for a look.
#[test]
fn loom_changes_in_place_of_two_threads_and_a_read_lose_nothing() {
    large_model(2, || {
        let bag = cold();
        bag.contention.store(Contention::DUE);
        let other = spawn(&bag, |bag| push_in_place(bag, 2));
        push_in_place(&bag, 0);
        let seen = contents(&bag);
        assert!(seen.contains(&0), "{seen:?}");
        push_in_place(&bag, 1);
        other.join().unwrap();
        assert_eq!(contents(&bag), [0, 1, 2]);
    });
}

/// Another thread, which is inside another object, gives the object logs in the holder's name.
fn change_in_place_races_a_promotion(reserved: bool) {
    model(2, move || {
        let bags = Arc::new([cold(), cold()]);
        if reserved {
            reserve(&bags[0]);
        }
        let updater = spawn(&bags, |bags| {
            let other = bags[1].read();
            bags[0].append(push(2));
            drop(other);
        });
        push_in_place(&bags[0], 1);
        updater.join().unwrap();
        assert_eq!(contents(&bags[0]), [1, 2]);
    });
}

#[test]
fn loom_change_in_place_races_a_promotion_in_its_name() {
    change_in_place_races_a_promotion(false);
}

#[test]
fn loom_reserved_change_in_place_races_a_promotion_in_its_name() {
    change_in_place_races_a_promotion(true);
}

type Act = Box<dyn FnOnce(&mut Vec<u32>) + Send>;
type Acts = Deferred<Vec<u32>, Commuting<Act>>;

#[test]
fn loom_reserved_update_of_ones_own_object_races_append() {
    large_model(2, || {
        let builder: Builder<Vec<u32>, Commuting<Act>> = builder(Publish::Locked);
        let acts: Arc<Acts> = Arc::new(builder.logs(Logs::Auto).build(Vec::new()).unwrap());
        reserve(&acts);
        let updater = spawn(&acts, |acts| acts.append(Box::new(|list| list.push(3))));
        let own = Arc::downgrade(&acts);
        acts.append(Box::new(move |list| {
            list.push(1);
            own.upgrade().unwrap().append(Box::new(|list| list.push(2)));
        }));
        updater.join().unwrap();
        assert_eq!(contents(&acts), [1, 2, 3]);
    });
}

#[test]
fn loom_revocation_without_the_barrier_is_caught() {
    let test = "oplog::loom_tests::reserved::loom_reserved_updates_race_append_and_nothing_is_lost";
    must_catch("unfenced-revocation", test, &RACE);
}

#[test]
fn loom_promotion_that_a_reservations_owner_leaves_unfinished_is_caught() {
    let test = "oplog::loom_tests::reserved::loom_reserved_update_races_a_promotion_in_its_name";
    must_catch("unfinished-promotion", test, &["this thread holds the object already", "deadlock"]);
}

#[test]
fn loom_change_in_place_of_a_revoked_object_is_caught() {
    let test = "oplog::loom_tests::reserved::loom_reserved_changes_in_place_race_append";
    must_catch("unfenced-revocation", test, &RACE);
}

#[test]
fn loom_promotion_that_a_change_in_place_leaves_unfinished_is_caught() {
    let test =
        "oplog::loom_tests::reserved::loom_reserved_change_in_place_races_a_promotion_in_its_name";
    must_catch("unfinished-promotion", test, &["this thread holds the object already", "deadlock"]);
}
