//! Tests of `compute`, and of the methods that are built on it.

use crate::tasks::message;
use manycore_cache::{Cache, Cause, Change, Computed, Entry};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::Duration;

type Numbers = Cache<u32, u32>;

fn value(entry: Option<Entry<'_, u32, u32>>) -> Option<u32> {
    entry.map(|entry| *entry.value())
}

#[test]
fn what_was_done_is_said_and_told() {
    let told = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&told);
    let listener = move |key: &u32, value: &u32, cause| {
        heard.lock().unwrap().push((*key, *value, cause));
    };
    let cache = Cache::builder(10).listener(listener).build().unwrap();
    let change = |change| cache.compute(1, |_| change);
    assert!(matches!(change(Change::Keep), Computed::Absent));
    assert!(matches!(change(Change::Remove), Computed::Absent));
    let Computed::Inserted(first) = change(Change::Put(5)) else { panic!("it was not there") };
    let version = first.version();
    assert_eq!((*first.key(), *first, cache.len()), (1, 5, 1));
    let Computed::Kept(kept) = change(Change::Keep) else { panic!("it was there") };
    assert_eq!((*kept, kept.version()), (5, version));
    let Computed::Replaced(second) = change(Change::Put(6)) else { panic!("it was there") };
    assert!((*second, cache.len()) == (6, 1) && second.version() != version);
    let Computed::Removed(last) = change(Change::Remove) else { panic!("it was there") };
    assert_eq!((*last, cache.len(), cache.weight()), (6, 0, 0));
    assert_eq!(*told.lock().unwrap(), [(1, 5, Cause::Replaced), (1, 6, Cause::Removed)]);
}

#[test]
fn the_closure_is_shown_what_is_there() {
    let cache = Numbers::new(10);
    let seen = |key| {
        let mut seen = None;
        drop(cache.compute(key, |entry| {
            seen = Some(value(entry));
            Change::Keep
        }));
        seen.expect("it was called")
    };
    cache.insert(1, 5);
    assert_eq!((seen(1), seen(2)), (Some(5), None));
    assert!(cache.update(&1, |n| n + 1) && !cache.update(&2, |n| n + 1));
    assert!(cache.update_or_insert_with(1, |n| n + 1, || 50));
    assert!(!cache.update_or_insert_with(2, |n| n + 1, || 50));
    assert_eq!((seen(1), seen(2), cache.len()), (Some(7), Some(50), 2));
}

#[test]
fn an_entry_whose_time_is_over_is_not_there() {
    let now = Arc::new(AtomicU64::new(0));
    let clock = Arc::clone(&now);
    let cache = Cache::builder(10)
        .time_to_live(Duration::from_secs(10))
        .clock(move || Duration::from_secs(clock.load(Relaxed)))
        .build()
        .unwrap();
    let age = || _ = now.fetch_add(10, Relaxed);
    cache.insert(1, 5);
    age();
    assert!(matches!(cache.compute(1, |_| Change::Keep), Computed::Absent));
    assert!(!cache.update(&1, |n| n + 1));
    assert!(matches!(cache.compute(1, |_| Change::Remove), Computed::Absent));
    assert_eq!((cache.len(), cache.stats().expirations), (0, 1), "removed in vain, and dropped");
    cache.insert(1, 5);
    age();
    let put = cache.compute(1, |entry| Change::Put(value(entry).unwrap_or(70)));
    assert!(matches!(put, Computed::Inserted(new) if *new == 70));
    assert_eq!(cache.stats().expirations, 2);
    now.fetch_add(5, Relaxed);
    assert!(cache.update(&1, |n| n + 1));
    assert_eq!(cache.time_left(&1), Some(Duration::from_secs(10)), "as after an insertion");
}

#[test]
fn what_is_too_heavy_is_shown_and_not_kept() {
    let cache = Cache::builder(10).weigher(|_: &u32, value: &u32| *value).build().unwrap();
    cache.insert(1, 5);
    assert!(matches!(cache.compute(1, |_| Change::Put(11)), Computed::Replaced(n) if *n == 11));
    assert_eq!((cache.len(), cache.weight()), (0, 0));
    assert!(matches!(cache.compute(1, |_| Change::Put(11)), Computed::Inserted(n) if *n == 11));
    assert_eq!((cache.len(), cache.weight()), (0, 0));
}

/// A change that the closure makes to its own key is shown to it in the next call.
#[test]
fn the_closure_is_asked_again_if_the_key_changed() {
    for change in [Change::Put(100), Change::Remove] {
        let cache = Numbers::new(10);
        let mut seen = Vec::new();
        let computed = cache.compute(1, |entry| {
            seen.push(value(entry));
            match seen.len() {
                1 => _ = cache.insert(1, 5),
                2 => _ = cache.insert(1, 6),
                3 => drop(cache.remove(&1)),
                4 => _ = cache.insert(1, 7),
                _ => {}
            }
            change
        });
        assert_eq!(seen, [None, Some(5), Some(6), None, Some(7)]);
        match change {
            Change::Put(_) => assert!(matches!(computed, Computed::Replaced(new) if *new == 100)),
            _ => assert!(matches!(computed, Computed::Removed(old) if *old == 7)),
        }
    }
}

#[test]
fn a_panic_of_the_closure_leaves_the_key_as_it_was() {
    let cache = Cache::new(10);
    cache.insert("a".to_string(), "x".to_string());
    let ended = catch_unwind(AssertUnwindSafe(|| {
        drop(cache.compute("a".to_string(), |_| panic!("as asked for")));
    }));
    assert_eq!(message(&*ended.unwrap_err()), "as asked for");
    let ended = catch_unwind(AssertUnwindSafe(|| cache.update("a", |_| panic!("as asked for"))));
    assert!(ended.is_err());
    assert_eq!(cache.get("a").as_deref().map(String::as_str), Some("x"));
    assert!(cache.update("a", |old| old.clone() + "y"));
    assert_eq!(cache.get("a").as_deref().map(String::as_str), Some("xy"));
}

/// Each step counts a number down, or makes a new number if the key is missing. The cache evicts
/// nothing, so no step is lost, and none is counted twice.
#[test]
fn steps_of_many_threads_on_the_same_keys_are_one_after_the_other() {
    const THREADS: u32 = 4;
    const FULL: u32 = 5;
    let steps = if cfg!(miri) { 50 } else { 20_000 };
    for by_weight in [false, true] {
        let builder = Cache::builder(1_000);
        let builder = if by_weight { builder.weigher(|_, _| 1) } else { builder };
        let cache: Numbers = builder.build().unwrap();
        let begun = Barrier::new(THREADS as usize);
        let work = |_| {
            begun.wait();
            let (mut made, mut ended) = (0, 0);
            for step in 0..steps {
                let done = cache.compute(step % 3, |entry| match value(entry) {
                    None => Change::Put(FULL),
                    Some(1) => Change::Remove,
                    Some(left) => Change::Put(left - 1),
                });
                made += u32::from(matches!(done, Computed::Inserted(_)));
                ended += u32::from(matches!(done, Computed::Removed(_)));
            }
            (made, ended)
        };
        let sums: Vec<_> = thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS).map(|n| scope.spawn(move || work(n))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let made: u32 = sums.iter().map(|(made, _)| made).sum();
        let ended: u32 = sums.iter().map(|(_, ended)| ended).sum();
        let left: u32 = cache.iter().map(|entry| *entry).sum();
        // For each number, there is the step that made it, and a step for each time that it was
        // counted down.
        let there = u32::try_from(cache.len()).unwrap();
        assert_eq!(made - ended, there);
        assert_eq!(THREADS * steps, made + made * FULL - left, "{by_weight}: steps");
    }
}

/// As above, for `update` beside insertions: the last value is that of the last update.
#[test]
fn updates_of_many_threads_all_count() {
    let (threads, steps) = (4, if cfg!(miri) { 50 } else { 20_000 });
    let cache = Numbers::new(1_000);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                for step in 0..steps {
                    if step % 2 == 0 {
                        _ = cache.update_or_insert_with(1, |n| n + 1, || 1);
                    } else {
                        assert!(cache.update(&1, |n| n + 1));
                    }
                }
            });
        }
    });
    assert_eq!(cache.get(&1).as_deref(), Some(&(threads * steps)));
}

#[test]
fn a_guard_says_whether_its_call_has_loaded() {
    let cache = Cache::new(10);
    assert!(cache.get_or_insert_with(1, || 5).is_fresh());
    assert!(!cache.get_or_insert_with(1, || 6).is_fresh());
    assert!(!cache.get(&1).unwrap().is_fresh());
    assert!(!cache.peek(&1).unwrap().is_fresh());
    assert!(cache.try_get_or_insert_with(2, || Ok::<_, ()>(5)).unwrap().is_fresh());
    assert!(cache.optionally_get_or_insert_with(3, || Some(5)).unwrap().is_fresh());
    let newer = cache.get_or_insert_with(4, || {
        cache.insert(4, 7);
        5
    });
    assert!(*newer == 7 && !newer.is_fresh(), "it has loaded 5");
    let removed = cache.get_or_insert_with(5, || {
        drop(cache.remove(&5));
        5
    });
    assert!(*removed == 5 && removed.is_fresh(), "loaded, and not put in");
}

/// If many callers want a key at once, one of them has loaded it.
#[test]
fn one_of_many_guards_is_fresh() {
    const THREADS: usize = 8;
    let cache = Numbers::new(10);
    let begun = Barrier::new(THREADS);
    let load = || {
        begun.wait();
        let found = cache.get_or_insert_with(1, || {
            thread::sleep(Duration::from_millis(20));
            5
        });
        found.is_fresh()
    };
    let fresh = thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(load)).collect();
        threads.into_iter().filter_map(|thread| thread.join().unwrap().then_some(())).count()
    });
    assert_eq!(fresh, 1);
}
