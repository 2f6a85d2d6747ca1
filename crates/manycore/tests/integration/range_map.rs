//! `RangeMap` from outside: threads that change ranges at the same time, user code that panics or
//! calls the map again, and which operations wait for which.

use crate::common::env;
use crate::common::rng::Rng;
use manycore::collections::{RangeError, RangeMap};
use manycore::section::Domain;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::thread;
use std::time::Duration;

const THREADS: u64 = 4;
/// Number of keys in one place. A place has one owner, spans three levels of the trie, and is not
/// aligned to them.
const PLACE: u64 = 5_000;

/// A counted value that belongs to a place.
struct Counted {
    place: u64,
    live: Arc<AtomicUsize>,
}

impl Counted {
    fn new(place: u64, live: &Arc<AtomicUsize>) -> Self {
        live.fetch_add(1, Ordering::Relaxed);
        Self { place, live: Arc::clone(live) }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.live.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Runs a thread's operations on places that no other thread changes, and reads of any other place.
fn churn(map: &RangeMap<Counted>, thread: u64, live: &Arc<AtomicUsize>, rng: &mut Rng) {
    let mut own = vec![None; 16];
    for _ in 0..3_000 {
        let at = rng.below(own.len());
        let place = at as u64 * THREADS + thread;
        let (first, last) = (place * PLACE, place * PLACE + PLACE - 1);
        let view = map.enter();
        match rng.below(5) {
            0 => {
                let (from, to) = (first + rng.below(2_000) as u64, last - rng.below(2_000) as u64);
                let inserted = view.insert(from..=to, Counted::new(place, live)).is_ok();
                assert_eq!(inserted, own[at].is_none());
                own[at] = own[at].or(Some((from, to)));
            }
            1 => {
                let removed: u64 = view
                    .remove(first..=last)
                    .unwrap()
                    .inspect(|(_, value)| assert_eq!(value.place, place))
                    .map(|(range, _)| range.end() - range.start() + 1)
                    .sum();
                assert_eq!(removed, own[at].take().map_or(0, |(from, to)| to - from + 1));
            }
            2 => {
                let mut guard = view.lock(first..=last).unwrap();
                drop(guard.replace(first..=last, Counted::new(place, live)).unwrap());
                assert_eq!(guard.remove(first + 7..=last - 7).unwrap().count(), 1);
                assert_eq!(guard.remove(..).err(), Some(outside(first, last)));
                assert_eq!(guard.remove(first..=last).unwrap().count(), 2);
                own[at] = None;
            }
            3 => {
                let key = first + rng.below(PLACE as usize) as u64;
                let is_there = own[at].is_some_and(|(from, to)| (from..=to).contains(&key));
                assert_eq!(view.get(key).map(|value| value.place), is_there.then_some(place));
            }
            _ => {
                let key = rng.below(16 * (THREADS * PLACE) as usize) as u64;
                assert!(view.get(key).is_none_or(|value| value.place == key / PLACE));
            }
        }
    }
}

fn outside(first: u64, last: u64) -> RangeError {
    RangeError::OutOfGuard { range: 0..=u64::MAX, held: first..=last }
}

#[test]
fn threads_with_places_of_their_own_do_not_disturb_each_other() {
    let live = Arc::new(AtomicUsize::new(0));
    let map = RangeMap::new();
    let seed = env::seed();
    println!("MANYCORE_SEED={seed:#x}");
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (map, live) = (&map, &live);
            scope.spawn(move || churn(map, thread, live, &mut Rng::part(seed, thread)));
        }
    });
    let view = map.enter();
    let all: Vec<_> = view.iter().map(|(range, value)| (range, value.place)).collect();
    assert!(all.iter().all(|(range, place)| range.start() / PLACE == *place));
    drop(view);
    drop(map);
    assert_eq!(live.load(Ordering::Relaxed), 0, "each value is dropped once");
}

/// Every thread takes random ranges of the same keys. Each key has a counter that is changed in
/// more than one instruction. Readers look at the counters.
#[test]
fn overlapping_locks_exclude_each_other_and_values_are_never_torn() {
    const KEYS: u64 = 300;
    let map = RangeMap::new();
    let counts: Vec<_> = (0..KEYS).map(|_| AtomicU64::new(0)).collect();
    let (seed, done) = (env::seed(), AtomicBool::new(false));
    println!("MANYCORE_SEED={seed:#x}");
    let taken: u64 = thread::scope(|scope| {
        let (map, counts, done) = (&map, &counts, &done);
        let lock = |thread| {
            let mut rng = Rng::part(seed, thread);
            let mut taken = 0;
            for _ in 0..2_000 {
                let (a, b) = (rng.below(KEYS as usize) as u64, rng.below(KEYS as usize) as u64);
                let (first, last) = (a.min(b), a.max(b));
                let view = map.enter();
                let mut guard = view.lock(first..=last).unwrap();
                for count in &counts[first as usize..=last as usize] {
                    count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                }
                drop(guard.replace(first..=last, [first, last]).unwrap());
                taken += last - first + 1;
            }
            taken
        };
        let lockers: Vec<_> =
            (0..THREADS).map(|thread| scope.spawn(move || lock(thread))).collect();
        scope.spawn(move || {
            while !done.load(Ordering::Relaxed) {
                let view = map.enter();
                for key in 0..KEYS {
                    assert!(
                        view.get(key).is_none_or(|[first, last]| (*first..=*last).contains(&key))
                    );
                }
                for (range, [first, last]) in view.iter() {
                    assert!(first <= range.start() && range.end() <= last);
                }
            }
        });
        let taken: Vec<_> = lockers.into_iter().map(|locker| locker.join()).collect();
        done.store(true, Ordering::Relaxed);
        taken.into_iter().map(Result::unwrap).sum()
    });
    assert_eq!(counts.iter().map(|count| count.load(Ordering::Relaxed)).sum::<u64>(), taken);
}

#[test]
fn first_fits_of_many_threads_never_overlap() {
    let map = RangeMap::new();
    let barrier = Barrier::new(THREADS as usize);
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (map, barrier) = (&map, &barrier);
            scope.spawn(move || {
                barrier.wait();
                for _ in 0..100 {
                    let view = map.enter();
                    view.insert_first_fit(0x1000, 0x1000, 0x10_000.., thread).unwrap();
                }
            });
        }
    });
    let view = map.enter();
    assert_eq!(view.iter().count() as u64, 100 * THREADS);
    assert_eq!(view.first_fit(1, 1, 0x10_000..).unwrap(), Some(0x10_000 + 100 * THREADS * 0x1000));
    let full = view.insert_first_fit(1, 1, 0x10_000..0x20_000, 9).unwrap_err();
    assert_eq!(full, RangeError::NoGap { range: 0x10_000..=0x1_ffff, len: 1 });
}

#[test]
fn disjoint_ranges_are_locked_at_once() {
    let map: RangeMap<u8> = RangeMap::new();
    let view = map.enter();
    view.insert(0..=u64::MAX, 1).unwrap();
    let mut guard = view.lock(100..=100).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            let view = map.enter();
            let _below = view.lock(..100).unwrap();
        });
    });
    thread::scope(|scope| {
        scope.spawn(|| assert_eq!(map.enter().replace(101.., 2).unwrap().count(), 1));
    });
    assert_eq!(guard.remove(100..=100).unwrap().count(), 1);
}

#[test]
fn thread_that_holds_a_range_is_refused_another_one() {
    let map = RangeMap::new();
    let view = map.enter();
    let guard = view.lock(10..20).unwrap();
    let nested = RangeError::Nested { range: 30..=30, held: 10..=19 };
    assert_eq!(view.insert(30..31, 1), Err(nested.clone()));
    assert_eq!(view.lock(30..31).err(), Some(nested));
    assert!(map.enter().remove(10..11).is_err());
    drop(guard);
    assert!(view.insert(30..31, 1).is_ok());
}

#[test]
fn threads_that_would_wait_for_each_other_are_told() {
    let maps: [RangeMap<u8>; 2] = Default::default();
    let barrier = Barrier::new(2);
    let refused = thread::scope(|scope| {
        let each = [0, 1].map(|own| {
            let (maps, barrier) = (&maps, &barrier);
            scope.spawn(move || {
                let (view, other) = (maps[own].enter(), maps[1 - own].enter());
                let _guard = view.lock(5..6).unwrap();
                barrier.wait();
                match other.insert(0..10, 1) {
                    Ok(_) => 0,
                    Err(error) => {
                        assert_eq!(error, RangeError::Deadlock { range: 0..=9 });
                        1
                    }
                }
            })
        });
        each.map(|thread| thread.join().unwrap()).into_iter().sum::<u32>()
    });
    assert_eq!(refused, 1);
}

/// One thread waits for a slot behind a branch below which two others are, of which one waits for
/// the other. None waits for a thread that waits for it.
#[test]
fn a_thread_that_waits_behind_a_branch_holds_nothing_below_it() {
    // Made elsewhere: a thread that has made a map may have its slot already.
    let map: RangeMap<u8> = thread::spawn(RangeMap::new).join().unwrap();
    let moment = || thread::sleep(Duration::from_millis(30));
    let (map, entered) = (&map, &Barrier::new(2));
    thread::scope(|scope| {
        let (behind, go) = mpsc::channel::<()>();
        let waits = scope.spawn(move || {
            let view = map.enter(); // with a slot before that of the test
            entered.wait();
            go.recv().unwrap();
            view.lock(0..192).map(drop)
        });
        entered.wait();
        let view = map.enter();
        let below = view.lock(70..71).unwrap(); // makes a branch for the keys from 64 to 127
        let (let_go, held) = mpsc::channel::<()>();
        let holds = scope.spawn(move || {
            let view = map.enter();
            let _guard = view.lock(128..192).unwrap();
            entered.wait();
            held.recv().unwrap();
        });
        entered.wait();
        behind.send(()).unwrap();
        moment();
        let waits_below = scope.spawn(|| map.enter().lock(69..71).map(drop));
        moment();
        let_go.send(()).unwrap();
        holds.join().unwrap();
        moment();
        drop(below);
        assert_eq!(waits.join().unwrap(), Ok(()));
        assert_eq!(waits_below.join().unwrap(), Ok(()));
    });
}

/// A value that, in its clone or drop, panics or uses the map.
struct Rogue {
    map: &'static RangeMap<Rogue>,
    clone: fn(&'static RangeMap<Rogue>),
    drop: fn(&'static RangeMap<Rogue>),
}

impl Clone for Rogue {
    fn clone(&self) -> Self {
        (self.clone)(self.map);
        Self { drop: |_| {}, ..*self }
    }
}

impl Drop for Rogue {
    fn drop(&mut self) {
        (self.drop)(self.map);
    }
}

fn rogues() -> &'static RangeMap<Rogue> {
    // The sanitizer does not count memory as leaked if a static reaches it.
    static KEPT: Mutex<Vec<&'static RangeMap<Rogue>>> = Mutex::new(Vec::new());
    let domain = Domain::builder().batch_nodes(1).build().unwrap();
    let map: &'static RangeMap<Rogue> =
        Box::leak(Box::new(RangeMap::with_domain(Arc::new(domain))));
    KEPT.lock().unwrap().push(map);
    map
}

#[test]
fn panic_of_a_clone_changes_nothing() {
    let map = rogues();
    let view = map.enter();
    assert!(view.insert(0..100, Rogue { map, clone: |_| panic!("planned"), drop: |_| {} }).is_ok());
    assert!(catch_unwind(AssertUnwindSafe(|| view.split(50))).is_err());
    assert_eq!(view.get_range(10).map(|(range, _)| range), Some(0..=99));
    assert_eq!(view.remove(..).unwrap().count(), 1);
}

#[test]
fn clone_and_drop_may_use_the_map() {
    let map = rogues();
    let quiet = || Rogue { map: rogues(), clone: |_| {}, drop: |_| {} };
    let clone = |map: &'static RangeMap<Rogue>| {
        let quiet = Rogue { map, clone: |_| {}, drop: |_| {} };
        assert!(map.enter().insert(1_000..1_001, quiet).is_ok());
    };
    let drop: fn(&'static RangeMap<Rogue>) = |map| {
        assert_eq!(map.enter().remove(1_000..1_001).unwrap().count(), 1);
    };
    assert!(map.enter().insert(0..100, Rogue { map, clone, drop }).is_ok());
    assert_eq!(map.enter().split(50), Ok(true));
    assert_eq!(map.enter().iter().count(), 3);
    assert!(map.enter().replace(0..50, quiet()).is_ok());
    map.domain().collect();
    assert!(map.enter().get(1_000).is_none(), "the drop has run, and has removed it");
    // A value that is refused is dropped without a lock.
    let remove: fn(&'static RangeMap<Rogue>) = |map| {
        assert_eq!(map.enter().remove(0..50).unwrap().count(), 1);
    };
    assert!(map.enter().insert(0..60, Rogue { map, clone: |_| {}, drop: remove }).is_err());
    assert!(map.enter().get(0).is_none());
}

#[test]
fn panic_of_a_drop_surfaces_after_the_update() {
    let map = rogues();
    let drop: fn(&'static RangeMap<Rogue>) = |_| panic!("planned");
    assert!(map.enter().insert(0..100, Rogue { map, clone: |_| {}, drop }).is_ok());
    let surfaced = catch_unwind(AssertUnwindSafe(|| {
        assert_eq!(map.enter().remove(..).unwrap().count(), 1);
        map.domain().collect();
    }));
    assert!(surfaced.is_err());
    assert!(map.enter().is_empty());
    assert!(map.enter().insert(0..100, Rogue { map, clone: |_| {}, drop: |_| {} }).is_ok());
}

#[test]
fn panic_under_a_guard_unlocks_the_range() {
    let map = RangeMap::new();
    let thrown = catch_unwind(AssertUnwindSafe(|| {
        let view = map.enter();
        let mut guard = view.lock(0..100).unwrap();
        guard.insert(0..50, 1).unwrap();
        panic!("planned");
    }));
    assert!(thrown.is_err());
    assert_eq!(map.enter().get(0), Some(&1));
    thread::scope(|scope| scope.spawn(|| map.enter().remove(..).unwrap().count()).join().unwrap());
    assert!(map.enter().is_empty());
}
