//! The pool: its bound, objects that travel between threads, stealing, and objects that panic.

use crate::common::env;
use crate::common::rng::Rng;
use manycore::cluster::Placement;
use manycore::collections::{ObjectPool, Pooled};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

/// An object that notices two holders at once; living objects are counted.
struct Thing {
    held: AtomicBool,
    uses: usize,
    alive: Arc<AtomicUsize>,
}

impl Drop for Thing {
    fn drop(&mut self) {
        self.alive.fetch_sub(1, SeqCst);
    }
}

fn pool(max: usize, shelf: usize) -> (ObjectPool<Thing>, Arc<AtomicUsize>) {
    placed(Placement::PerThread, max, shelf)
}

fn placed(place: Placement, max: usize, shelf: usize) -> (ObjectPool<Thing>, Arc<AtomicUsize>) {
    let alive = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&alive);
    let make = move || {
        counted.fetch_add(1, SeqCst);
        Thing { held: AtomicBool::new(false), uses: 0, alive: Arc::clone(&counted) }
    };
    (ObjectPool::builder(make).max(max).placement(place).shelf(shelf).build(), alive)
}

/// The steps in which the paper distributes its page manager: one list, a list for some threads, a
/// list for each.
const STEPS: [(Placement, usize, usize); 6] = [
    (Placement::PerThread, 5, 0), // all in the back room
    (Placement::Shared, 8, 4),
    (Placement::PerLlc, 8, 1),
    (Placement::PerThread, 1, 16),
    (Placement::PerThread, 8, 1),
    (Placement::PerThread, 40, 4),
];

#[test]
fn things_are_lent_to_one_at_a_time_and_none_is_lost() {
    let _alone = env::alone();
    for (place, max, shelf) in STEPS {
        let until = env::soak(Duration::from_millis(200));
        let (pool, alive) = placed(place, max, shelf);
        let uses = AtomicUsize::new(0);
        thread::scope(|scope| {
            for thread in 0..4 {
                let (pool, alive, uses) = (&pool, &alive, &uses);
                scope.spawn(move || {
                    let mut rng = Rng::part(env::seed(), thread);
                    let mut mine: Vec<Pooled<'_, Thing>> = Vec::new();
                    let mut rounds = 0;
                    while Instant::now() < until || rounds < 100 {
                        rounds += 1;
                        if let Some(mut thing) = pool.take() {
                            assert!(!thing.held.swap(true, SeqCst), "lent to two");
                            assert!(alive.load(SeqCst) <= max);
                            thing.uses += 1;
                            uses.fetch_add(1, SeqCst);
                            mine.push(thing);
                        }
                        if mine.len() > rng.below(6) {
                            let thing = mine.swap_remove(rng.below(mine.len()));
                            thing.held.store(false, SeqCst);
                        }
                    }
                    for thing in mine {
                        thing.held.store(false, SeqCst);
                    }
                });
            }
        });
        assert_eq!((pool.created(), pool.idle()), (alive.load(SeqCst), alive.load(SeqCst)));
        let all: Vec<_> = std::iter::from_fn(|| pool.take()).collect();
        assert_eq!(all.len(), max, "everything is found, wherever it lies");
        let seen: usize = all.iter().map(|thing| thing.uses).sum();
        assert_eq!(seen, uses.load(SeqCst));
        drop(all);
        drop(pool);
        assert_eq!(alive.load(SeqCst), 0, "everything is dropped once");
    }
}

#[test]
fn what_lies_idle_with_others_is_found() {
    let (pool, _) = pool(8, 16);
    let barrier = Barrier::new(5);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let pair = (pool.take().unwrap(), pool.take().unwrap());
                barrier.wait();
                drop(pair); // on this thread's shelf
                barrier.wait();
                barrier.wait();
            });
        }
        barrier.wait();
        barrier.wait();
        let all: Vec<_> = std::iter::from_fn(|| pool.take()).collect();
        barrier.wait();
        assert_eq!((all.len(), pool.created()), (8, 8));
    });
}

#[test]
fn constructor_that_panics_leaves_room() {
    let fails = Arc::new(AtomicBool::new(true));
    let told = Arc::clone(&fails);
    let pool = ObjectPool::new(1, move || assert!(!told.load(SeqCst), "no thing"));
    for _ in 0..3 {
        assert!(catch_unwind(AssertUnwindSafe(|| pool.take().is_some())).is_err());
        assert_eq!(pool.created(), 0);
    }
    fails.store(false, SeqCst);
    assert!(pool.take().is_some());
}

#[test]
fn detached_and_shrunk_things_make_room_for_new_ones() {
    let (pool, alive) = pool(2, 16);
    let kept = pool.take().unwrap().detach();
    assert_eq!((pool.created(), alive.load(SeqCst)), (0, 1));
    let pair = (pool.take().unwrap(), pool.take().unwrap());
    assert!(pool.take().is_none());
    drop(pair);
    assert_eq!((pool.shrink(), pool.created(), alive.load(SeqCst)), (2, 0, 1));
    assert!(pool.take().is_some());
    drop(kept);
    assert!(ObjectPool::new(0, || ()).take().is_none());
    assert_eq!(format!("{pool:?}"), "ObjectPool { created: 1, idle: 1 }");
}
