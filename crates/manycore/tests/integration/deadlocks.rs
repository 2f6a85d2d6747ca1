//! Threads that run user code under a lock (or guard) of one object, and there use the object of
//! the next thread. One thread is told of the deadlock, and the others go on.

use crate::common::kinds::Add;
use crate::common::watchdog::{End, end_of, ends};
use manycore::cluster::adaptive::{self, Mode};
use manycore::cluster::{Adaptive, Clustered, Placement, Rep};
use manycore::collections::{
    DHash, DHashBuilder, Distribution, PageCache, PageStore, PrivatePages, ReplicatedMap,
};
use manycore::ldu::{DeferredSet, Element, Structure};
use manycore::oplog::{Commuting, Deferred};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Barrier, OnceLock, Weak};
use std::thread;
use std::time::Duration;

/// Runs `cross(0)` and `cross(1)` on two threads. Both are inside their objects when they meet.
fn crossing(what: &'static str, cross: impl Fn(usize) + Clone + Send + 'static) {
    let threads = [0, 1].map(|at| {
        let cross = cross.clone();
        thread::spawn(move || end_of(what, move || cross(at)))
    });
    let ended = threads.map(|thread| thread.join().expect("the ends are caught"));
    let told = |end: &&End| end.panics_with("deadlock");
    assert_eq!(ended.iter().filter(told).count(), 1, "{what}: {ended:?}");
    assert!(ended.contains(&End::Works), "{what}: {ended:?}");
}

/// The store of two pages, whose first loads pin each other.
struct Crossed {
    cache: OnceLock<Weak<PageCache<Crossed>>>,
    firsts: [AtomicBool; 2],
    both: Barrier,
}

impl PageStore for Crossed {
    type Key = usize;
    type Page = usize;
    type Error = ();

    fn load(&self, key: &usize) -> Result<usize, ()> {
        if !self.firsts[*key].swap(true, SeqCst) {
            self.both.wait();
            let cache = self.cache.get().and_then(Weak::upgrade).expect("it is used");
            let other = cache.pin(&(1 - key)).map_err(|_| ())?;
            assert_eq!(*other, 1 - key);
        }
        Ok(*key)
    }
    fn write_back(&self, _: &usize, _: &usize) -> Result<(), ()> {
        Ok(())
    }
}

#[test]
fn loads_of_pages_that_pin_each_other_are_told() {
    let firsts = [false; 2].map(AtomicBool::new);
    let store = Crossed { cache: OnceLock::new(), firsts, both: Barrier::new(2) };
    let cache = Arc::new(PageCache::new(store, 10));
    cache.store().cache.set(Arc::downgrade(&cache)).expect("once");
    let inside = Arc::clone(&cache);
    crossing("page loads", move |at| {
        assert!(inside.pin(&at).is_ok_and(|page| *page == at));
    });
    assert!((0..2).all(|key| cache.pin(&key).is_ok_and(|page| *page == key)));
}

#[test]
fn closures_that_use_each_others_tables_are_told() {
    for distribution in [Distribution::Never, Distribution::Always] {
        let new =
            || Arc::new(DHashBuilder::new().distribution(distribution).build::<u32, u32, u64>());
        let (tables, both) = ([new(), new()], Arc::new(Barrier::new(2)));
        tables
            .iter()
            .for_each(|table: &Arc<DHash<u32, u32, u64>>| assert!(table.insert(1, 1).is_none()));
        let inside = tables.clone();
        crossing("tables", move |at| {
            inside[at].update_shared(&1, |_| {
                both.wait();
                inside[1 - at].update_shared(&1, |own| *own += 1);
            });
        });
        for table in tables {
            assert!(table.update_shared(&1, |own| *own < 3).is_some_and(|sound| sound));
        }
    }
}

#[test]
fn closures_that_read_each_others_maps_are_told() {
    let maps: [Arc<ReplicatedMap<u32, u32>>; 2] = std::array::from_fn(|_| Arc::default());
    maps.iter().for_each(|map| assert!(map.insert(1, 1).is_none()));
    let (inside, both) = (maps.clone(), Arc::new(Barrier::new(2)));
    crossing("maps", move |at| {
        // A first read is under the lock of the master.
        inside[at].read(&1, |_| {
            both.wait();
            inside[1 - at].read(&1, |own| *own);
        });
    });
    assert!(maps.iter().all(|map| map.get(&1) == Some(1)));
}

struct Pages;

impl PageStore for Pages {
    type Key = usize;
    type Page = usize;
    type Error = ();

    fn load(&self, key: &usize) -> Result<usize, ()> {
        Ok(*key)
    }
    fn write_back(&self, _: &usize, _: &usize) -> Result<(), ()> {
        Ok(())
    }
}

#[test]
fn closures_that_write_each_others_pages_are_told() {
    let view = Arc::new(PrivatePages::new(Arc::new(PageCache::new(Pages, 10))));
    for key in 0..2 {
        view.with_mut(&key, |_| ()).expect("there is room");
    }
    let (inside, both) = (Arc::clone(&view), Arc::new(Barrier::new(2)));
    crossing("pages", move |at| {
        let written = inside.with_mut(&at, |_| {
            both.wait();
            inside.with_mut(&(1 - at), |page| *page += 10).expect("there is room");
        });
        written.expect("there is room");
    });
    assert!((0..2).any(|key| *view.read(&key).expect("it is there") == key + 10));
}

/// A representative that calls another object from its constructor, the first time only.
struct Calling;

struct Root {
    other: OnceLock<Arc<Clustered<Calling>>>,
    first: AtomicBool,
    both: Arc<Barrier>,
}

impl Rep for Calling {
    type Root = Root;

    fn create(root: &Root, _: usize) -> Self {
        if !root.first.swap(true, SeqCst) {
            root.both.wait();
            root.other.get().expect("set before the first call").with(|_| ());
        }
        Self
    }
}

#[test]
fn constructors_that_call_each_others_objects_are_told() {
    let both = Arc::new(Barrier::new(2));
    let objects: [Arc<Clustered<Calling>>; 2] = std::array::from_fn(|_| {
        let first = AtomicBool::new(false);
        let root = Root { other: OnceLock::new(), first, both: Arc::clone(&both) };
        Arc::new(Clustered::new(Placement::Shared, root))
    });
    for at in 0..2 {
        let other = Arc::clone(&objects[1 - at]);
        assert!(objects[at].root().other.set(other).is_ok());
    }
    crossing("constructors", move |at| objects[at].with(|_| ()));
}

type Numbers = Adaptive<u64, Commuting<Add>>;

/// Makes an object that its readers share.
fn shared() -> Arc<Numbers> {
    let object = Arc::new(Numbers::new(0));
    assert!(object.pin(Mode::Shared));
    drop(object.read()); // this thread's first read takes the lock
    object
}

/// Reads as often as a thread must before it has a lane, and returns the last guard.
fn read_by_lane(object: &Numbers) -> adaptive::ReadGuard<'_, u64, Commuting<Add>> {
    drop(object.read());
    object.read()
}

#[test]
fn readers_of_shared_objects_that_change_each_others_are_told() {
    let (objects, both) = ([shared(), shared()], Arc::new(Barrier::new(2)));
    let inside = objects.clone();
    crossing("changes of shared objects", move |at| {
        let _guard = read_by_lane(&inside[at]);
        both.wait();
        inside[1 - at].change(|sum| *sum += 1);
    });
    assert_eq!(objects.iter().map(|object| *object.read()).sum::<u64>(), 1);
    assert!(objects.iter().all(|object| object.mode() == Mode::Shared), "readers are let in again");
}

#[test]
fn readers_of_shared_objects_with_updates_that_wait_are_told() {
    let (objects, both) = ([shared(), shared()], Arc::new(Barrier::new(2)));
    let inside = objects.clone();
    crossing("reads of shared objects", move |at| {
        let _guard = read_by_lane(&inside[at]);
        inside[at].update(Add(1)); // waits for the guard
        both.wait();
        assert_eq!(*inside[1 - at].read(), 1);
    });
    assert!(objects.iter().all(|object| *object.read() == 1));
}

#[test]
fn pin_that_would_deadlock_is_refused() {
    let (objects, both) = ([shared(), shared()], Arc::new(Barrier::new(2)));
    let threads = [0, 1].map(|at| {
        let (objects, both) = (objects.clone(), Arc::clone(&both));
        thread::spawn(move || {
            ends("pins of shared objects", move || {
                let _guard = read_by_lane(&objects[at]);
                both.wait();
                objects[1 - at].pin(Mode::Direct)
            })
        })
    });
    let pinned = threads.map(|thread| thread.join().expect("no pin panics"));
    assert_eq!(pinned.iter().filter(|pinned| **pinned).count(), 1, "{pinned:?}");
}

struct Members(u64);

impl Structure<Element<u64>> for Members {
    fn insert(&mut self, number: &Element<u64>) {
        self.0 += **number;
    }
    fn remove(&mut self, number: &Element<u64>) {
        self.0 -= **number;
    }
}

type Set = DeferredSet<Members, Element<u64>>;

fn sets() -> [Arc<Set>; 2] {
    [(); 2].map(|()| Arc::new(Set::new(Members(0))))
}

#[test]
fn holders_of_sets_that_read_each_others_are_told() {
    let (sets, both) = (sets(), Arc::new(Barrier::new(2)));
    crossing("sets", move |at| {
        let _guard = sets[at].read();
        both.wait();
        drop(sets[1 - at].read_poisoned()); // by the guard of the thread that panicked
    });
}

#[test]
fn sharers_of_sets_that_hold_each_others_are_told() {
    let (sets, both) = (sets(), Arc::new(Barrier::new(2)));
    crossing("shared sets", move |at| {
        let _guard = sets[at].read_shared();
        both.wait();
        drop(sets[1 - at].read_poisoned()); // by the guard of the thread that panicked
    });
}

#[test]
fn sharers_of_sets_that_bring_each_others_up_to_date_are_told() {
    let (sets, both) = (sets(), Arc::new(Barrier::new(2)));
    crossing("changed sets", move |at| {
        let _guard = sets[at].read_shared();
        let _member = sets[at].add(1); // there is something to do for the next one
        both.wait();
        drop(sets[1 - at].read_shared());
    });
}

/// A deadlock between a thread that shares a set and a thread that holds an object with logs.
#[test]
fn deadlock_through_a_set_and_an_object_is_reported() {
    let (sets, both) = (sets(), Arc::new(Barrier::new(2)));
    let object = Arc::new(Deferred::<u64, Commuting<Add>>::new(0));
    crossing("a set and an object", move |at| {
        if at == 0 {
            let _guard = sets[0].read_shared();
            both.wait();
            drop(object.read_poisoned());
        } else {
            let _guard = object.read();
            both.wait();
            drop(sets[0].read_poisoned());
        }
    });
}

/// Three threads: two share an object that the third wants exclusively.
#[test]
fn deadlock_is_found_through_each_of_the_sharers() {
    for through in [0, 1] {
        let ([set, _], all) = (sets(), Arc::new(Barrier::new(3)));
        let object = Arc::new(Deferred::<u64, Commuting<Add>>::new(0));
        let sharers = [0, 1].map(|at| {
            let (set, all, object) = (Arc::clone(&set), Arc::clone(&all), Arc::clone(&object));
            thread::spawn(move || {
                end_of("a sharer", move || {
                    let _guard = set.read_shared();
                    all.wait();
                    if at == through {
                        drop(object.read_poisoned());
                    } else {
                        thread::sleep(Duration::from_millis(50)); // in no deadlock
                    }
                })
            })
        });
        let alone = end_of("who wants it alone", move || {
            let _guard = object.read();
            all.wait();
            drop(set.read_poisoned());
        });
        let mut ended = sharers.map(|thread| thread.join().expect("the ends are caught")).to_vec();
        ended.push(alone);
        let told = |end: &&End| end.panics_with("deadlock");
        assert_eq!(ended.iter().filter(told).count(), 1, "{ended:?}");
        assert_eq!(ended.iter().filter(|end| **end == End::Works).count(), 2, "{ended:?}");
    }
}

#[cfg(unix)]
#[test]
fn deadlocks_in_the_child_of_a_fork_are_reported() {
    let tests: &[fn()] = &[
        loads_of_pages_that_pin_each_other_are_told,
        closures_that_use_each_others_tables_are_told,
        closures_that_read_each_others_maps_are_told,
        closures_that_write_each_others_pages_are_told,
        constructors_that_call_each_others_objects_are_told,
        readers_of_shared_objects_that_change_each_others_are_told,
        readers_of_shared_objects_with_updates_that_wait_are_told,
        pin_that_would_deadlock_is_refused,
        holders_of_sets_that_read_each_others_are_told,
        sharers_of_sets_that_hold_each_others_are_told,
        sharers_of_sets_that_bring_each_others_up_to_date_are_told,
        deadlock_through_a_set_and_an_object_is_reported,
        deadlock_is_found_through_each_of_the_sharers,
    ];
    crate::common::process::again_in_children(
        "deadlocks_in_the_child_of_a_fork_are_reported",
        tests,
    );
}
