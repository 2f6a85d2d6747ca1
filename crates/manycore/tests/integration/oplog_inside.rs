//! User code of an object that uses the same object, from within a merge, a push or an update.

use manycore::clock::Stamp;
use manycore::oplog::*;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::Duration;

type Update = Box<dyn FnOnce(&mut u64) + Send>;
type Object = Deferred<u64, Commuting<Update>>;

fn add(more: u64) -> Update {
    Box::new(move |sum| *sum += more)
}

fn always() -> Builder<u64, Commuting<Update>> {
    Object::builder().logs(Logs::Always)
}

/// A log that notices if its entries are looked at while they are merged, as `stats` might do.
#[derive(Default)]
struct Asking {
    sum: u64,
    ask: Option<Arc<Deferred<u64, Asking>>>,
    borrowed: bool,
}

impl Log<u64> for Asking {
    type Op = (u64, Arc<Deferred<u64, Asking>>);
    const ORDERED: bool = false;

    fn apply((more, _): Self::Op, sum: &mut u64) {
        *sum += more;
    }
    fn push(&mut self, (more, ask): Self::Op, _: Stamp) {
        self.sum += more;
        self.ask = Some(ask);
    }
    fn len(&self) -> usize {
        assert!(!self.borrowed, "looked at while it is being merged");
        usize::from(self.sum != 0)
    }
    fn merge(logs: &mut [Self], sum: &mut u64) -> usize {
        for log in logs {
            log.borrowed = true;
            let object = log.ask.take().expect("every push leaves one");
            let stats = object.stats();
            assert_eq!((stats.appended, stats.applied, stats.pending), (2, 0, 2));
            *sum += std::mem::take(&mut log.sum);
            log.borrowed = false;
        }
        1
    }
}

#[test]
fn stats_from_within_a_merge_leave_the_logs_alone() {
    let builder = Deferred::<u64, Asking>::builder().logs(Logs::Always);
    let object = Arc::new(builder.build(0).unwrap());
    object.append((1, Arc::clone(&object)));
    object.append((2, Arc::clone(&object)));
    assert_eq!(*object.read(), 3);
    let stats = object.stats();
    assert_eq!((stats.appended, stats.absorbed, stats.applied, stats.pending), (2, 1, 1, 0));
}

#[test]
fn stats_from_within_an_update_are_those_of_earlier_merges() {
    let object = Arc::new(always().build(0).unwrap());
    let seen = Arc::new(Mutex::new(Stats::default()));
    let (inside, note) = (Arc::clone(&object), Arc::clone(&seen));
    object.append(Box::new(move |_| *note.lock().unwrap() = inside.stats()));
    object.append(add(1));
    assert_eq!(*object.read(), 1);
    let stats = *seen.lock().unwrap();
    assert_eq!((stats.appended, stats.applied, stats.pending, stats.logs), (2, 0, 2, 1));
    assert_eq!(object.stats().applied, 2);
}

/// The threshold of contention is reached by an update that has itself promoted the object.
#[test]
fn contended_update_that_appends_to_its_object_promotes_it_once() {
    let object = Arc::new(Object::new(0));
    (0..300).for_each(|_| object.append(add(1)));
    let mut expected = 300;
    for round in 0..4 {
        let inside = Arc::new(Barrier::new(2));
        let slow = {
            let (object, inside) = (Arc::clone(&object), Arc::clone(&inside));
            thread::spawn(move || {
                object.append(Box::new(move |sum| {
                    inside.wait();
                    thread::sleep(Duration::from_millis(20)); // the other one gets to wait
                    *sum += 1;
                }));
            })
        };
        inside.wait();
        let again = Arc::clone(&object);
        object.append(Box::new(move |sum| {
            *sum += 1;
            if round == 3 {
                again.append(add(1));
            }
        }));
        expected += if round == 3 { 3 } else { 2 };
        slow.join().unwrap();
    }
    object.synchronize();
    assert_eq!(*object.read(), expected);
}

#[test]
fn update_whose_log_is_full_survives_the_panic_of_another() {
    let object = always().max_entries(4).build(0).unwrap();
    (0..3).for_each(|_| object.append(add(1)));
    object.append(Box::new(|_| panic!("planned")));
    object.append(add(1)); // the log is full: applies, and one of them panics
    assert!(object.is_poisoned());
    object.append(add(1));
    object.clear_poison();
    assert_eq!(*object.read(), 5);
}

#[test]
fn update_of_an_evicted_object_survives_the_panic_of_another() {
    let table = Arc::new(LogTable::new(1));
    let builder = always().table(table);
    let (victim, other) = (builder.build(0).unwrap(), builder.build(0).unwrap());
    victim.append(add(1));
    victim.append(Box::new(|_| panic!("planned")));
    victim.append(add(1));
    other.append(add(1));
    victim.append(add(1));
    victim.clear_poison();
    assert_eq!((*victim.read(), *other.read()), (3, 1));
}

#[test]
fn logs_made_under_a_leaked_guard_are_applied_at_the_end() {
    for poisons in [false, true] {
        let mut object = Object::new(0);
        object.append(add(1));
        std::mem::forget(object.read());
        (0..3).for_each(|_| object.append(add(1)));
        if poisons {
            object.append(Box::new(|_| panic!("planned")));
            assert!(catch_unwind(AssertUnwindSafe(|| *object.get_mut())).is_err());
            assert!(object.is_poisoned());
            continue;
        }
        assert_eq!(*object.get_mut(), 4);
        object.append(add(1));
        assert_eq!(object.into_inner(), 5);
    }
}

/// An update that adds, and that tells another object when two updates become one.
struct Telling(u64, Arc<Object>);
impl Op<u64> for Telling {
    fn apply(self, sum: &mut u64) {
        *sum += self.0;
    }
}
impl Combine for Telling {
    type Key = ();
    fn key(&self) {}
    fn combine(&mut self, other: Self) {
        self.0 += other.0;
        self.1.append(add(1));
    }
}

#[test]
fn promotion_from_within_a_push_does_not_evict_the_object_pushed_to() {
    let table = Arc::new(LogTable::new(1));
    let told = Arc::new(always().table(Arc::clone(&table)).build(0).unwrap());
    let builder = Deferred::<u64, Combining<Telling>>::builder().logs(Logs::Always);
    let sum = builder.table(Arc::clone(&table)).build(0).unwrap();
    sum.append(Telling(1, Arc::clone(&told)));
    sum.append(Telling(1, Arc::clone(&told)));
    assert_eq!((*sum.read(), *told.read()), (2, 1));
    assert_eq!(table.evictions(), 0);
}

#[test]
fn logs_outside_the_table_end_with_the_next_read() {
    let table = Arc::new(LogTable::new(1));
    let builder = Object::builder().table(Arc::clone(&table));
    let objects: Vec<Object> = (0..10).map(|_| builder.build(0).unwrap()).collect();
    for object in &objects {
        let guard = object.read();
        object.append(add(1));
        drop(guard);
    }
    assert!(objects.iter().all(|object| *object.read() == 1));
    assert_eq!(objects.iter().filter(|object| object.is_hot()).count(), 1);
    assert_eq!(table.hot_objects(), 1);
}

#[test]
fn idle_object_loses_its_logs_without_a_read_while_another_is_promoted() {
    let builder = Object::builder().table(Arc::new(LogTable::new(2)));
    let idle = builder.build(0).unwrap();
    assert!(idle.promote());
    idle.append(add(1));
    // An object in the other place, if there is one among a few.
    let others: Vec<Object> = (0..8).map(|_| builder.build(0).unwrap()).collect();
    for other in &others {
        for _ in 0..8 {
            other.promote();
            other.demote();
        }
    }
    assert!(!idle.is_hot());
    assert_eq!(*idle.read(), 1);
}
