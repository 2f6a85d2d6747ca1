//! Updates that append updates, to their own object and to another one, in each state (oplog.D10),
//! and updates by a thread that holds another object: no update waits or is lost.

use super::spawn;
use crate::oplog::{Commuting, Deferred, LogTable, Logs, Publish};
use crate::percpu::loom_tests::model;
use std::sync::Arc;

type Act = Box<dyn FnOnce(&mut Vec<u32>) + Send>;
type Bag = Deferred<Vec<u32>, Commuting<Act>>;

/// Makes two cold objects of one table with one place.
fn two(logs: Logs) -> Arc<[Arc<Bag>; 2]> {
    let builder =
        Bag::builder().publish(Publish::Locked).logs(logs).table(Arc::new(LogTable::new(1)));
    Arc::new([(); 2].map(|()| Arc::new(builder.build(Vec::new()).unwrap())))
}

fn push(number: u32) -> Act {
    let number = Box::new(number);
    Box::new(move |list| list.push(*number))
}

/// Pushes a number and appends the next one to `to`.
fn push_and_append(number: u32, to: &Arc<Bag>) -> Act {
    let to = Arc::clone(to);
    Box::new(move |list| {
        list.push(number);
        to.append(push(number + 1));
    })
}

/// The contents of an object after all its updates, smallest first.
fn settled(bag: &Bag) -> Vec<u32> {
    drop(bag.read()); // the updates that it applies may append
    let mut list = bag.read().clone();
    list.sort_unstable();
    list
}

const LOST: &str = "an update is missing";

#[test]
fn loom_update_of_ones_own_object_in_a_demotion_races_another() {
    model(2, || {
        let bags = two(Logs::Auto);
        let bag = &bags[0];
        assert!(bag.promote());
        // The read within the demotion applies the first update, so the demotion must handle the
        // second.
        let to = Arc::clone(bag);
        bag.append(Box::new(move |list| {
            list.push(3);
            to.append(push_and_append(0, &to));
        }));
        let other = spawn(&bags, |bags| bags[0].append(push(2)));
        bag.demote();
        other.join().unwrap();
        assert_eq!(settled(bag), [0, 1, 2, 3], "{LOST}");
    });
}

#[test]
fn loom_update_of_ones_own_object_in_an_eviction_races_another() {
    model(2, || {
        let bags = two(Logs::Auto);
        assert!(bags[0].promote());
        bags[0].append(push_and_append(0, &bags[0]));
        let evictor = spawn(&bags, |bags| bags[1].promote());
        bags[0].append(push(2));
        evictor.join().unwrap();
        assert_eq!(settled(&bags[0]), [0, 1, 2], "{LOST}");
    });
}

/// Each of two threads appends to one of the objects an update that appends to the other object.
fn cross(preemptions: usize, logs: Logs, promotes: bool) {
    model(preemptions, move || {
        let bags = two(logs);
        let other = spawn(&bags, move |bags| {
            if promotes {
                bags[0].promote();
            }
            bags[1].append(push_and_append(0, &bags[0]));
        });
        bags[0].append(push_and_append(0, &bags[1]));
        other.join().unwrap();
        for _ in 0..2 {
            bags.iter().for_each(|bag| drop(bag.read()));
        }
        assert_eq!(settled(&bags[0]), [0, 1], "{LOST}");
        assert_eq!(settled(&bags[1]), [0, 1], "{LOST}");
    });
}

#[test]
fn loom_cold_objects_whose_updates_append_to_each_other() {
    cross(3, Logs::Never, false);
}

#[test]
fn loom_objects_whose_updates_append_to_each_other_while_one_is_promoted() {
    cross(2, Logs::Auto, true);
}

/// The same with logs, which readers of both objects apply.
#[test]
fn loom_readers_whose_updates_append_to_each_others_objects() {
    model(2, || {
        let bags = two(Logs::Auto);
        assert!(bags[0].promote());
        bags[0].append(push_and_append(0, &bags[1]));
        bags[1].append(push(4));
        let other = spawn(&bags, |bags| bags[1].append(push_and_append(2, &bags[0])));
        drop(bags[0].read());
        other.join().unwrap();
        drop(bags[1].read());
        assert_eq!(settled(&bags[0]), [0, 3], "{LOST}");
        assert_eq!(settled(&bags[1]), [1, 2, 4], "{LOST}");
    });
}

/// A thread that holds another object updates an object that is concurrently demoted or read.
fn late_update_races(logs: Logs, act: fn(&Bag)) {
    model(2, move || {
        let bags = two(logs);
        assert!(bags[0].promote());
        bags[0].append(push(0));
        let other = spawn(&bags, |bags| {
            let _guard = bags[1].read();
            bags[0].append(push(1));
            bags[0].append(push(2));
        });
        act(&bags[0]);
        other.join().unwrap();
        let mut found = bags[0].read().clone();
        found.sort_unstable();
        assert_eq!(found, [0, 1, 2], "{LOST}");
    });
}

#[test]
fn loom_late_update_races_demotion() {
    late_update_races(Logs::Auto, Bag::demote);
}

#[test]
fn loom_late_update_races_reads() {
    // With `Always` no read demotes, so no read finds the update by a demotion.
    late_update_races(Logs::Always, |bag| {
        let first = bag.read().len();
        assert!(bag.read().len() >= first, "taken back");
    });
}

/// Two threads read each other's objects. The thread that waits last gets an error; the other
/// proceeds.
#[test]
fn loom_reads_that_would_deadlock_are_refused() {
    use crate::lock::{LOCKED, Refused, held, lock_nested, try_lock, unlock};
    use crate::percpu::thread_token;
    use crate::profile::Of;
    use crate::sync::{AtomicUsize, Ordering};
    model(2, || {
        let words = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
        let hold_and_take = |words: &[AtomicUsize; 2], own: usize| {
            let token = thread_token();
            if try_lock(&words[own], token).is_err() {
                return Ok(()); // the first thread has both: there is no cycle
            }
            held::enter();
            let taken = lock_nested(&words[1 - own], token, Of::new("test", words), None);
            if taken.is_ok() {
                // SAFETY: this thread has taken the lock just above.
                unsafe { unlock(&words[1 - own], 0) };
            }
            // SAFETY: this thread has taken the lock above.
            unsafe { unlock(&words[own], 0) };
            held::leave();
            taken.map(drop)
        };
        let token = thread_token();
        try_lock(&words[0], token).unwrap();
        held::enter();
        let other = spawn(&words, move |words| hold_and_take(words, 1));
        let taken = lock_nested(&words[1], token, Of::new("test", &*words), None).map(drop);
        if taken.is_ok() {
            // SAFETY: this thread has taken the lock just above.
            unsafe { unlock(&words[1], 0) };
        }
        // SAFETY: this thread has taken the lock above.
        unsafe { unlock(&words[0], 0) };
        held::leave();
        let told = [taken, other.join().unwrap()];
        assert!(told.iter().filter(|told| **told == Err(Refused::Deadlock)).count() <= 1);
        assert!(words.iter().all(|word| word.load(Ordering::Relaxed) & LOCKED == 0));
    });
}
