//! Updates that append updates: to their own object or to each other's, from within an update, a
//! push or under a guard. Each is tested in each state that an object passes through. Everything
//! runs under a watchdog, because no thread may wait forever.

use crate::common::watchdog::ends;
use manycore::clock::Stamp;
use manycore::cluster::Adaptive;
use manycore::cluster::adaptive::Mode;
use manycore::oplog::*;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Barrier, Weak, mpsc};
use std::thread;
use std::time::{Duration, Instant};

/// An update that adds one and appends itself again, the given number of times.
struct Tick(u32, Weak<Chained>);
type Chained = Deferred<u64, Ordered<Tick>>;

impl Op<u64> for Tick {
    fn apply(self, sum: &mut u64) {
        *sum += 1;
        if let (Some(object), true) = (self.1.upgrade(), self.0 > 0) {
            object.append(Tick(self.0 - 1, self.1));
        }
    }
}

fn chained(table: Option<&Arc<LogTable>>) -> Arc<Chained> {
    let mut builder = Chained::builder();
    if let Some(table) = table {
        builder = builder.table(Arc::clone(table));
    }
    Arc::new(builder.build(0).unwrap())
}

/// Reads until the value no longer changes.
fn settled(object: &Chained) -> u64 {
    let mut last = *object.read();
    loop {
        let now = *object.read();
        if now == last {
            return now;
        }
        last = now;
    }
}

#[test]
fn update_that_appends_to_its_object_survives_a_demotion() {
    for chain in [1, 2, 100] {
        ends("demotion", move || {
            let object = chained(None);
            assert!(object.promote());
            object.append(Tick(chain, Arc::downgrade(&object)));
            object.demote();
            assert_eq!(settled(&object), u64::from(chain) + 1);
            object.demote();
            assert!(!object.is_hot(), "with a quiet object, a demotion works");
        });
    }
}

#[test]
fn update_that_appends_to_its_object_survives_an_idle_demotion() {
    ends("idle demotion in a read", || {
        let object = chained(None);
        assert!(object.promote());
        object.append(Tick(100, Arc::downgrade(&object)));
        (0..200).for_each(|_| drop(object.read()));
        assert_eq!(*object.read(), 101);
        assert!(!object.is_hot(), "idle");
    });
}

#[test]
fn update_that_appends_to_its_object_survives_an_eviction() {
    for chain in [1, 50] {
        ends("eviction", move || {
            let table = Arc::new(LogTable::new(1));
            let (victim, newcomer) = (chained(Some(&table)), chained(Some(&table)));
            assert!(victim.promote());
            victim.append(Tick(chain, Arc::downgrade(&victim)));
            assert!(newcomer.promote());
            assert!(!victim.is_hot());
            assert_eq!(settled(&victim), u64::from(chain) + 1);
        });
    }
}

#[test]
fn update_that_appends_to_its_object_is_in_get_mut_and_into_inner() {
    ends("get_mut", || {
        let object = chained(None);
        assert!(object.promote());
        // The update finds no object to append to: `Arc::into_inner` took it.
        object.append(Tick(3, Arc::downgrade(&object)));
        let mut object = Arc::into_inner(object).unwrap();
        assert_eq!(*object.get_mut(), 1);
        assert_eq!(object.into_inner(), 1);
    });
}

/// An update that counts, and tries to read its own object while it is applied.
struct Peek(u32, Weak<Peeked>, Arc<AtomicUsize>);
type Peeked = Deferred<u64, Ordered<Peek>>;

impl Op<u64> for Peek {
    fn apply(self, sum: &mut u64) {
        *sum += 1;
        let Some(object) = self.1.upgrade() else { return };
        if self.0 > 0 {
            object.append(Peek(self.0 - 1, self.1, self.2));
            return;
        }
        if matches!(object.try_read(), Err(TryReadError::Busy)) {
            self.2.fetch_add(1, SeqCst);
        }
        let read = catch_unwind(AssertUnwindSafe(|| drop(object.read())));
        assert!(read.is_err(), "it would wait for itself");
        let _ = (object.stats(), object.is_hot(), object.is_poisoned());
        assert!(object.promote() || !object.is_hot());
    }
}

#[test]
fn reads_from_within_an_update_are_refused_in_each_state() {
    type State = (&'static str, fn(&Peeked));
    let states: [State; 4] = [
        ("cold", |_| ()),
        ("read", |object| drop(object.read())),
        ("demoted", Peeked::demote),
        ("demoted when idle", |object| (0..20).for_each(|_| drop(object.read()))),
    ];
    for (name, act) in states {
        for depth in [0, 1] {
            ends(name, move || {
                let busy = Arc::new(AtomicUsize::new(0));
                let object = Arc::new(Peeked::builder().build(0).unwrap());
                if name != "cold" {
                    assert!(object.promote());
                }
                object.append(Peek(depth, Arc::downgrade(&object), Arc::clone(&busy)));
                act(&object);
                (0..3).for_each(|_| drop(object.read()));
                assert_eq!((*object.read(), busy.load(SeqCst)), (u64::from(depth) + 1, 1));
            });
        }
    }
}

/// The same update as [`Tick`], for an adaptive object.
struct Tock(u32, Weak<Adaptive<u64, Ordered<Tock>>>);

impl Op<u64> for Tock {
    fn apply(self, sum: &mut u64) {
        *sum += 1;
        if let (Some(object), true) = (self.1.upgrade(), self.0 > 0) {
            object.update(Tock(self.0 - 1, self.1));
        }
    }
}

#[test]
fn update_that_updates_its_adaptive_object_survives_each_change_of_mode() {
    let modes = [Mode::Direct, Mode::Logs, Mode::Shared];
    for (from, to) in modes.into_iter().flat_map(|from| modes.map(|to| (from, to))) {
        ends("change of mode", move || {
            let object = Arc::new(Adaptive::new(0));
            object.pin(from);
            for chain in [2, 50] {
                object.update(Tock(chain, Arc::downgrade(&object)));
                object.pin(to);
                object.pin(from);
            }
            object.unpin();
            (0..300).for_each(|_| drop(object.read()));
            assert_eq!(*object.read(), 3 + 51, "{from:?} to {to:?}");
        });
    }
}

/// An update that adds one, and may add one to another object, too.
enum Cross {
    One,
    Both(Arc<Crossed>),
}
type Crossed = Deferred<u64, Commuting<Cross>>;

impl Op<u64> for Cross {
    fn apply(self, sum: &mut u64) {
        *sum += 1;
        if let Cross::Both(other) = self {
            other.append(Cross::One);
        }
    }
}

/// Runs four threads with updates that go from each of two objects to the other. `besides` is what
/// they also do.
fn cross(name: &'static str, logs: Logs, besides: fn(&Crossed, u64)) {
    const STEPS: u64 = 4000;
    ends(name, move || {
        let make = || Arc::new(Crossed::builder().logs(logs).build(0).unwrap());
        let objects = [make(), make()];
        thread::scope(|scope| {
            for number in 0..4 {
                let objects = &objects;
                scope.spawn(move || {
                    let (own, other) = (&objects[number % 2], &objects[1 - number % 2]);
                    for step in 0..STEPS {
                        own.append(Cross::Both(Arc::clone(other)));
                        besides(own, step);
                    }
                });
            }
        });
        for _ in 0..3 {
            objects.iter().for_each(|object| object.synchronize());
        }
        let sums = objects.each_ref().map(|object| *object.read());
        assert_eq!(sums, [4 * STEPS, 4 * STEPS], "{name}: updates are missing");
    });
}

#[test]
fn objects_whose_updates_append_to_each_other_work_in_each_state() {
    cross("cold", Logs::Never, |_, _| ());
    cross("cold, with reads", Logs::Never, |own, step| {
        if step % 50 == 0 {
            own.synchronize();
        }
    });
    cross("hot", Logs::Always, |own, step| {
        if step % 50 == 0 {
            own.synchronize();
        }
    });
    cross("flapping", Logs::Auto, |own, step| {
        if step % 7 == 0 {
            own.promote();
        }
        if step % 11 == 0 {
            own.demote();
        }
    });
    cross("by itself", Logs::Auto, |own, step| {
        if step % 3 == 0 {
            own.synchronize();
        }
        if step % 500 == 0 {
            own.promote();
        }
    });
}

/// The same update as [`Cross`], for adaptive objects.
enum Swing {
    One,
    Both(Arc<Adaptive<u64, Commuting<Swing>>>),
}

impl Op<u64> for Swing {
    fn apply(self, sum: &mut u64) {
        *sum += 1;
        if let Swing::Both(other) = self {
            other.update(Swing::One);
        }
    }
}

#[test]
fn adaptive_objects_whose_updates_update_each_other_work_in_each_mode() {
    const STEPS: u64 = 3000;
    let pins = [Some(Mode::Direct), Some(Mode::Logs), Some(Mode::Shared), None];
    for pin in pins {
        ends("adaptive", move || {
            let objects = [Arc::new(Adaptive::new(0)), Arc::new(Adaptive::new(0))];
            if let Some(mode) = pin {
                objects.iter().for_each(|object| assert!(object.pin(mode)));
            }
            let modes = [Mode::Direct, Mode::Logs, Mode::Shared];
            thread::scope(|scope| {
                for number in 0..4 {
                    let objects = &objects;
                    scope.spawn(move || {
                        let (own, other) = (&objects[number % 2], &objects[1 - number % 2]);
                        for step in 0..STEPS {
                            own.update(Swing::Both(Arc::clone(other)));
                            if step % 20 == 0 {
                                drop(own.read());
                            }
                            if pin.is_none() && step % 40 == 0 {
                                own.pin(modes[step as usize / 40 % 3]);
                            }
                        }
                    });
                }
            });
            for _ in 0..3 {
                objects.iter().for_each(|object| drop(object.read()));
            }
            let sums = objects.each_ref().map(|object| *object.read());
            assert_eq!(sums, [4 * STEPS, 4 * STEPS], "{pin:?}: updates are missing");
        });
    }
}

/// A log that runs each update within `push`.
#[derive(Default)]
struct Telling(u64);
type Told = Deferred<u64, Telling>;
type Tell = Box<dyn FnOnce() + Send>;

impl Log<u64> for Telling {
    type Op = Tell;
    const ORDERED: bool = false;

    fn apply(tell: Tell, sum: &mut u64) {
        tell();
        *sum += 1;
    }
    fn push(&mut self, tell: Tell, _: Stamp) {
        tell();
        self.0 += 1;
    }
    fn len(&self) -> usize {
        usize::from(self.0 > 0)
    }
    fn merge(logs: &mut [Self], sum: &mut u64) -> usize {
        logs.iter_mut().for_each(|log| *sum += std::mem::take(&mut log.0));
        1
    }
}

fn nothing() -> Tell {
    Box::new(|| ())
}

/// A's update appends to B, which then takes C's place. C's update appends to D, which then takes
/// A's place. An eviction in either push would wait for the other push.
#[test]
fn evictions_from_within_pushes_do_not_deadlock() {
    ends("evictions from within pushes", || {
        let tables = [Arc::new(LogTable::new(1)), Arc::new(LogTable::new(1))];
        let make = |table: usize| {
            let builder = Told::builder().logs(Logs::Always).table(Arc::clone(&tables[table]));
            Arc::new(builder.build(0).unwrap())
        };
        let (a, b, c, d) = (make(1), make(0), make(0), make(1));
        a.append(nothing());
        c.append(nothing());
        let barrier = Arc::new(Barrier::new(2));
        let meet_and_append = |to: &Arc<Told>| -> Tell {
            let (barrier, to) = (Arc::clone(&barrier), Arc::clone(to));
            Box::new(move || {
                barrier.wait();
                to.append(nothing());
            })
        };
        let (to_b, to_d) = (meet_and_append(&b), meet_and_append(&d));
        thread::scope(|scope| {
            scope.spawn(|| a.append(to_b));
            scope.spawn(|| c.append(to_d));
        });
        assert_eq!([&a, &b, &c, &d].map(|object| *object.read()), [2, 1, 2, 1]);
        assert!(tables.iter().all(|table| table.hot_objects() <= 1));
    });
}

/// Pushes of two objects append to each other, while both objects are read without end. Each reader
/// waits for a push, and each push finds a closed gate.
#[test]
fn pushes_that_append_to_each_other_meet_readers() {
    ends("crossed pushes", || {
        for logs in [Logs::Always, Logs::Auto, Logs::Never] {
            let make = || Arc::new(Told::builder().logs(logs).build(0).unwrap());
            let objects = [make(), make()];
            let done = AtomicBool::new(false);
            const STEPS: u64 = 3000;
            thread::scope(|scope| {
                let writers: Vec<_> = (0..4)
                    .map(|number| {
                        let objects = &objects;
                        scope.spawn(move || {
                            let (own, other) = (&objects[number % 2], &objects[1 - number % 2]);
                            for _ in 0..STEPS {
                                let other = Arc::clone(other);
                                own.append(Box::new(move || other.append(nothing())));
                            }
                        })
                    })
                    .collect();
                for object in &objects {
                    let done = &done;
                    scope.spawn(move || {
                        while !done.load(SeqCst) {
                            object.synchronize();
                            thread::yield_now();
                        }
                    });
                }
                writers.into_iter().for_each(|writer| writer.join().unwrap());
                done.store(true, SeqCst);
            });
            objects.iter().for_each(|object| object.synchronize());
            let sums = objects.each_ref().map(|object| *object.read());
            assert_eq!(sums, [4 * STEPS, 4 * STEPS], "{logs:?}");
        }
    });
}

#[test]
fn reads_from_within_a_push_are_refused_whatever_they_read() {
    ends("reads in a push", || {
        let make = || Arc::new(Told::builder().logs(Logs::Always).build(0).unwrap());
        let (outer, other) = (make(), make());
        [&outer, &other].iter().for_each(|object| object.append(nothing()));
        let read = Arc::clone(&other);
        let said = catch_unwind(AssertUnwindSafe(|| {
            outer.append(Box::new(move || drop(read.read())));
        }));
        let said = *said.unwrap_err().downcast::<&str>().expect("a text");
        assert!(said.contains("from within Log::push"), "{said}");
        let tried = Arc::clone(&other);
        outer.append(Box::new(move || {
            assert!(matches!(tried.try_read(), Err(TryReadError::Busy)));
            assert!(tried.stats().appended >= 1);
        }));
        assert_eq!((*outer.read(), *other.read()), (2, 1));
    });
}

/// Updates that read each other's objects under a lock: one update is told of the deadlock.
#[test]
fn updates_that_read_each_others_objects_are_told() {
    for logs in [Logs::Never, Logs::Always] {
        ends("crossed reads", move || {
            type Act = Box<dyn FnOnce(&mut u64) + Send>;
            type Object = Deferred<u64, Commuting<Act>>;
            let make = || Arc::new(Object::builder().logs(logs).build(0).unwrap());
            let objects = [make(), make()];
            let barrier = Arc::new(Barrier::new(2));
            let threads: Vec<_> = [0, 1]
                .map(|own: usize| {
                    let (objects, barrier) = (objects.clone(), Arc::clone(&barrier));
                    thread::spawn(move || {
                        let other = Arc::clone(&objects[1 - own]);
                        let act: Act = Box::new(move |sum| {
                            barrier.wait();
                            *sum += 1 + *other.read();
                        });
                        let ran = catch_unwind(AssertUnwindSafe(|| {
                            objects[own].append(act);
                            objects[own].synchronize();
                        }));
                        ran.map_err(|said| *said.downcast::<&str>().expect("a text"))
                    })
                })
                .into();
            let ran: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
            let told: Vec<_> = ran.iter().filter_map(|ran| ran.err()).collect();
            // The second one may read an object that the first one's panic has poisoned.
            assert!(told.iter().any(|said| said.contains("would wait for itself")), "{told:?}");
            objects.iter().for_each(|object| object.clear_poison());
            assert!(objects.iter().all(|object| *object.read() <= 1));
        });
    }
}

/// Guards of two objects, taken one after the other in both orders, with updates under them.
#[test]
fn updates_under_guards_of_other_objects_do_not_wait_for_each_other() {
    ends("updates under guards", || {
        let make = || Arc::new(Crossed::builder().logs(Logs::Never).build(0).unwrap());
        let objects = [make(), make()];
        let barrier = Barrier::new(2);
        thread::scope(|scope| {
            for own in [0, 1] {
                let (objects, barrier) = (&objects, &barrier);
                scope.spawn(move || {
                    let guard = objects[own].read();
                    barrier.wait();
                    objects[1 - own].append(Cross::One);
                    assert_eq!(*guard, 0, "a guard shows the object as it was");
                    barrier.wait();
                    drop(guard);
                });
            }
        });
        assert!(objects.iter().all(|object| *object.read() == 1));
    });
}

/// Updates that one thread appends stay in order, even if they could not wait.
#[test]
fn order_of_a_threads_updates_survives_late_ones() {
    type Act = Box<dyn FnOnce(&mut Vec<u64>) + Send>;
    type List = Deferred<Vec<u64>, Ordered<Act>>;
    ends("order", || {
        let list: Arc<List> = Arc::new(List::builder().logs(Logs::Always).build(vec![]).unwrap());
        let outer: Arc<Crossed> = Arc::new(Crossed::new(0));
        let (next, end) = (AtomicU64::new(0), Instant::now() + Duration::from_millis(300));
        thread::scope(|scope| {
            scope.spawn(|| {
                // Under a guard of another object, nothing waits.
                let _guard = outer.read();
                while Instant::now() < end {
                    let number = next.fetch_add(1, SeqCst);
                    list.append(Box::new(move |list| list.push(number)));
                }
            });
            scope.spawn(|| {
                while Instant::now() < end {
                    assert!(list.read().is_sorted());
                    list.demote();
                    list.promote();
                }
            });
        });
        let list = list.read();
        assert!(list.is_sorted() && list.len() as u64 == next.load(SeqCst));
    });
}

#[test]
fn watchdog_reports_a_hang() {
    let (_keep, never) = mpsc::channel::<()>();
    let hangs = catch_unwind(|| {
        crate::common::watchdog::ends_within("a hang", Duration::from_millis(50), move || {
            never.recv().ok();
        });
    });
    assert!(hangs.is_err());
}
