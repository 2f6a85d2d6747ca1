//! Models of laws readers.A1 to adaptive.A6.
//!
//! The canary is the value's own cell, which is a loom cell here. If an update runs beside a
//! reader, or after it with no happens-before between them, the model fails whatever its assertions
//! say.

use super::super::adaptive::{Adaptive, Mode};
use super::super::contention::Contention;
use crate::oplog::{Commuting, Op};
use crate::percpu::loom_tests::{RACE, model, must_catch};
use crate::sync::{AtomicUsize, Ordering, thread};
use std::sync::Arc;

/// Adds to a number; the box makes a lost or doubled update a leak or a double free.
struct Add(Box<u32>);

impl Op<u32> for Add {
    fn apply(self, sum: &mut u32) {
        *sum += *self.0;
    }
}

type Sum = Adaptive<u32, Commuting<Add>>;

fn add(sum: &Sum, n: u32) {
    sum.update(Add(Box::new(n)));
}

const LOST: &str = "an update is missing";

/// Makes an object in `mode`, with readers that are biased or not. Its mode never changes.
fn pinned(mode: Mode, biased: bool) -> Arc<Sum> {
    let sum = Sum::new(0);
    assert!(sum.pin(mode));
    if biased {
        sum.bias();
    }
    Arc::new(sum)
}

/// Starts a thread with its own reference to `sum`. The caller joins it.
fn spawn<R: 'static>(sum: &Arc<Sum>, f: impl FnOnce(&Sum) -> R + 'static) -> thread::JoinHandle<R> {
    let sum = Arc::clone(sum);
    thread::spawn(move || f(&sum))
}

/// A thread that reads by its lane, while another updates.
fn reads_race_an_update(biased: bool) {
    model(2, move || {
        let sum = pinned(Mode::Shared, biased);
        drop(sum.read()); // claims its lane
        let updater = spawn(&sum, |sum| add(sum, 1));
        let first = *sum.read();
        assert!(*sum.read() >= first, "{LOST}");
        updater.join().unwrap();
        assert_eq!(*sum.read(), 1, "{LOST}");
    });
}

#[test]
fn loom_shared_reads_race_an_update() {
    reads_race_an_update(false);
}

#[test]
fn loom_biased_reads_race_an_update() {
    reads_race_an_update(true);
}

#[test]
fn loom_update_races_the_way_into_shared() {
    model(2, || {
        let sum = pinned(Mode::Direct, false);
        let reader = spawn(&sum, |sum| {
            sum.pin(Mode::Shared);
            drop(sum.read());
            *sum.read()
        });
        add(&sum, 1);
        let seen = reader.join().unwrap();
        assert!(seen <= 1);
        assert_eq!(*sum.read(), 1, "{LOST}");
    });
}

#[test]
fn loom_way_from_shared_to_logs_races_a_reader() {
    model(1, || {
        let sum = pinned(Mode::Shared, false);
        drop(sum.read()); // claims its lane
        let done = Arc::new(AtomicUsize::new(0));
        let updater = spawn(&sum, {
            let done = Arc::clone(&done);
            move |sum| {
                sum.pin(Mode::Logs);
                add(sum, 1);
                done.store(1, Ordering::Release);
            }
        });
        let returned = done.load(Ordering::Acquire);
        assert!(*sum.read() as usize >= returned, "{LOST}");
        updater.join().unwrap();
        assert_eq!(*sum.read(), 1, "{LOST}");
    });
}

/// The object is reserved for one thread (`lock::reservation`), which goes on updating and reading.
#[test]
fn loom_reserved_object_races_an_update_and_a_read() {
    model(2, || {
        let sum = Arc::new(Sum::new(0));
        sum.object.contention.store(Contention::DUE); // a look is due
        add(&sum, 0);
        let other = spawn(&sum, |sum| {
            add(sum, 1);
            assert!(*sum.read() >= 1);
        });
        add(&sum, 1);
        assert!(*sum.read() >= 1);
        other.join().unwrap();
        assert_eq!(*sum.read(), 2);
    });
}

#[test]
fn loom_update_under_ones_own_guard_races_another() {
    model(1, || {
        let sum = pinned(Mode::Shared, false);
        drop(sum.read()); // claims its lane
        let other = spawn(&sum, |sum| add(sum, 2));
        let guard = sum.read();
        add(&sum, 1); // deferred
        drop(guard);
        assert!(*sum.read() % 2 == 1, "{LOST}");
        other.join().unwrap();
        assert_eq!(*sum.read(), 3, "{LOST}");
    });
}

/// A read that makes the object shared, while another thread updates it (adaptive.A6).
#[test]
fn loom_read_that_is_due_races_an_update() {
    model(2, || {
        let sum = Arc::new(Sum::new(0));
        sum.object.contention.store(Contention::DUE_FOR_READERS);
        let other = spawn(&sum, |sum| add(sum, 1));
        drop(sum.read());
        assert!(*sum.read() <= 1);
        other.join().unwrap();
        assert_eq!(*sum.read(), 1, "{LOST}");
        assert_eq!(sum.mode(), Mode::Shared);
    });
}

/// An update of a shared object by a thread that must not wait for its readers, because it is one
/// of them. Another thread reads the object, and a third waits for the value (readers.A5).
#[test]
fn loom_update_beside_readers_races_a_read() {
    model(1, || {
        let sum = pinned(Mode::Shared, false);
        drop(sum.read()); // claims its lane
        let other = spawn(&sum, |sum| {
            drop(sum.read());
            let first = *sum.read();
            assert!(*sum.read() >= first, "{LOST}");
        });
        let guard = sum.read();
        add(&sum, 1);
        assert_eq!(*guard, 0);
        drop(guard);
        assert_eq!(*sum.read(), 1, "{LOST}");
        other.join().unwrap();
    });
}

type Act = Box<dyn FnOnce(&mut Vec<u32>) + Send>;
type List = Adaptive<Vec<u32>, Commuting<Act>>;

fn push(number: u32) -> Act {
    let number = Box::new(number);
    Box::new(move |list| list.push(*number))
}

/// Pushes a number and updates `to` with the next one.
fn push_and_update(number: u32, to: &Arc<List>) -> Act {
    let to = Arc::clone(to);
    Box::new(move |list| {
        list.push(number);
        to.update(push(number + 1));
    })
}

fn two_in(mode: Mode) -> Arc<[Arc<List>; 2]> {
    let lists = [(); 2].map(|()| Arc::new(List::new(Vec::new())));
    // The models' table has one slot, so only one of the objects can have logs.
    assert!(lists[0].pin(mode) && lists[1].pin(Mode::Direct));
    Arc::new(lists)
}

/// Two objects with updates that update each other (oplog.D10).
fn cross(mode: Mode) {
    model(1, move || {
        let lists = two_in(mode);
        let others = Arc::clone(&lists);
        let other = thread::spawn(move || others[1].update(push_and_update(0, &others[0])));
        lists[0].update(push_and_update(0, &lists[1]));
        other.join().unwrap();
        for _ in 0..2 {
            lists.iter().for_each(|list| drop(list.read()));
        }
        let found = lists.each_ref().map(|list| list.read().len());
        assert_eq!(found, [2, 2], "{LOST}");
    });
}

#[test]
fn loom_updates_of_each_other_in_direct() {
    cross(Mode::Direct);
}

#[test]
fn loom_updates_of_each_other_with_logs() {
    cross(Mode::Logs);
}

#[test]
fn loom_updates_of_each_other_in_shared() {
    cross(Mode::Shared);
}

/// An update by a thread that holds another object, while the updated object changes its mode
/// (readers.A5).
fn update_from_inside_races_the_way_into(mode: Mode) {
    model(2, move || {
        let lists = two_in(Mode::Direct);
        let others = Arc::clone(&lists);
        let other = thread::spawn(move || {
            let _guard = others[1].read();
            others[0].update(push(1));
        });
        lists[0].pin(mode);
        other.join().unwrap();
        assert_eq!(*lists[0].read(), [1], "{LOST}");
    });
}

#[test]
fn loom_update_from_inside_races_the_way_into_logs() {
    update_from_inside_races_the_way_into(Mode::Logs);
}

#[test]
fn loom_update_from_inside_races_the_way_into_shared() {
    update_from_inside_races_the_way_into(Mode::Shared);
}

#[test]
fn loom_value_that_is_moved_under_readers_is_caught() {
    catches("unparted-readers", &["loom_update_beside_readers_races_a_read"], &RACE);
}

#[test]
fn loom_reader_that_enters_beside_logs_is_caught() {
    let model = "loom_update_beside_readers_races_a_read";
    catches("beside-logs", &[model], &[LOST, RACE[0]]);
}

fn catches(bug: &str, models: &[&str], signs: &[&str]) {
    for model in models {
        must_catch(bug, &format!("oplog::loom_tests::adaptive::{model}"), signs);
    }
}

#[test]
fn loom_closing_without_a_wait_is_caught() {
    let models = ["loom_shared_reads_race_an_update", "loom_biased_reads_race_an_update"];
    catches("unawaited-reader", &models, &RACE);
}

#[test]
fn loom_mode_that_is_not_checked_again_is_caught() {
    catches("unchecked-mode", &["loom_update_races_the_way_into_shared"], &RACE);
}

#[test]
fn loom_logs_beside_an_open_gate_are_caught() {
    catches("open-promotion", &["loom_way_from_shared_to_logs_races_a_reader"], &[LOST, RACE[0]]);
}
