//! Two threads, each in user code that runs under a lock of one object, that use the object of the
//! other: one of them is told, and the other goes on.

mod common;

use common::watchdog::{End, end_of};
use manycore::cluster::{Clustered, Placement, Rep};
use manycore::collections::{
    DHash, DHashBuilder, PageCache, PageStore, PrivatePages, ReplicatedMap, Spread,
};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Barrier, OnceLock, Weak};
use std::thread;

/// Runs `cross(0)` and `cross(1)` on two threads, which are both inside when they meet.
fn crossing(what: &'static str, cross: impl Fn(usize) + Clone + Send + 'static) {
    let threads = [0, 1].map(|at| {
        let cross = cross.clone();
        thread::spawn(move || end_of(what, move || cross(at)))
    });
    let ended = threads.map(|thread| thread.join().expect("the ends are caught"));
    let told = |end: &&End| end.panics_with("in a circle");
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
    for spread in [Spread::Never, Spread::Always] {
        let new = || Arc::new(DHashBuilder::new().spread(spread).build::<u32, u32, u64>());
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

/// A representative that calls another object when it is made, the first time.
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
