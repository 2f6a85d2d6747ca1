//! Pinned entries stay, they count, and there are not too many of them.

use manycore_cache::{Cache, Change, Eviction};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

type Numbers = Cache<u32, u32>;

fn insert_others(cache: &Numbers, keys: u32) {
    (0..keys).for_each(|key| _ = cache.insert(1_000_000 + key, 0));
}

fn pinned_are_there(cache: &Numbers, keys: u32) -> bool {
    (0..keys).all(|key| cache.contains_key(&key))
}

#[test]
fn pinned_entries_stay_and_others_make_the_room() {
    for eviction in [Eviction::Clock, Eviction::ScanResistant] {
        for (capacity, by_weight) in [(100, false), (100, true), (40_000, false)] {
            let builder = Cache::builder(capacity).eviction(eviction);
            let builder = if by_weight { builder.weigher(|_, _| 1) } else { builder };
            let cache: Numbers = builder.build().unwrap();
            let half = capacity as u32 / 2;
            for key in 0..half {
                cache.insert(key, 7);
                assert_eq!(cache.pin(&key).as_deref(), Some(&7));
            }
            cache.insert(half, 7);
            assert!(cache.pin(&half).is_none(), "half of the capacity");
            assert!(cache.pin(&0).is_some() && cache.pinned() == u64::from(half), "once");
            insert_others(&cache, 4 * capacity as u32);
            assert!(pinned_are_there(&cache, half), "{eviction:?}, {capacity}, {by_weight}");
            assert_eq!((cache.len() as u64, cache.weight()), (capacity, capacity));
            for key in 0..half {
                assert!(cache.unpin(&key) && !cache.unpin(&key));
            }
            assert_eq!(cache.pinned(), 0);
            insert_others(&cache, 8 * capacity as u32);
            let left = (0..half).filter(|key| cache.contains_key(key)).count();
            assert!(left < half as usize, "{eviction:?}: all of {half} are left");
            assert_eq!(cache.len() as u64, capacity);
        }
    }
}

/// In every way in which its entry leaves, the key is not pinned any more.
#[test]
fn an_entry_that_goes_is_not_pinned_any_more() {
    let now = Arc::new(AtomicU64::new(0));
    let clock = Arc::clone(&now);
    let timed = Cache::builder(10)
        .time_to_live(Duration::from_secs(10))
        .weigher(|_, value| *value)
        .clock(move || Duration::from_secs(clock.load(Relaxed)))
        .build()
        .unwrap();
    type Way = fn(&Numbers);
    let ways: [(&str, Way); 10] = [
        ("insert", |cache| _ = cache.insert(1, 3)),
        ("insert, heavier", |cache| _ = cache.insert(1, 4)),
        ("insert, too heavy", |cache| _ = cache.insert(1, 11)),
        ("insert_if", |cache| _ = cache.insert_if(1, 3, |_| true)),
        ("compute", |cache| drop(cache.compute(1, |_| Change::Put(2)))),
        ("remove", |cache| drop(cache.remove(&1))),
        ("invalidate_all", Cache::invalidate_all),
        ("retain", |cache| cache.retain(|_| false)),
        ("purge", Cache::purge),
        ("get", |cache| drop(cache.get(&1))),
    ];
    for cache in [timed, Numbers::new(10)] {
        for (name, way) in ways {
            cache.invalidate_all();
            cache.insert(1, 3);
            let pinned = cache.pin(&1).map(|_| cache.pinned());
            assert_eq!(
                pinned,
                Some(if cache.time_left(&1) == Some(Duration::MAX) { 1 } else { 3 })
            );
            if matches!(name, "purge" | "get") {
                now.fetch_add(10, Relaxed);
            }
            way(&cache);
            if cache.contains_key(&1) && matches!(name, "purge" | "get") {
                assert!(cache.unpin(&1), "{name}: it has no end");
            }
            assert!(!cache.unpin(&1), "{name}: the key is pinned still");
            assert_eq!(cache.pinned(), 0, "{name}");
        }
    }
    assert!(Numbers::new(10).pin(&1).is_none() && !Numbers::new(10).unpin(&1));
    assert!(Numbers::new(1).pin(&1).is_none(), "half of one is none");
}

#[test]
fn what_is_too_heavy_beside_pinned_entries_is_not_kept() {
    let cache = Cache::builder(10).weigher(|_: &u32, weight: &u32| *weight).build().unwrap();
    cache.insert(1, 4);
    assert!(cache.pin(&1).is_some());
    cache.insert(2, 1);
    assert!(cache.pin(&2).is_some() && cache.pinned() == 5);
    cache.insert(3, 6);
    assert!(!cache.contains_key(&3) && cache.weight() == 5);
    cache.insert(4, 5);
    assert!(cache.contains_key(&4) && cache.weight() == 10);
    cache.insert(5, 3);
    assert!(!cache.contains_key(&4) && cache.contains_key(&5) && cache.weight() == 8);
    assert!(cache.pin(&5).is_none(), "it would be 8 of 10");
    cache.insert(6, 6);
    assert!(!cache.contains_key(&6) && cache.contains_key(&5), "nothing goes for it in vain");
}

#[test]
fn what_is_pinned_twice_counts_once() {
    let cache = Numbers::new(10);
    cache.insert(1, 7);
    assert!(cache.pin(&1).is_some() && cache.pin(&1).is_some());
    assert_eq!(cache.pinned(), 1);
    assert!(cache.unpin(&1) && !cache.unpin(&1));
    assert_eq!(cache.pinned(), 0);
}

#[test]
fn pins_outlast_tables_and_a_capacity_below_them() {
    let cache: Numbers = Cache::builder(20_000).initial_entries(1).build().unwrap();
    for key in 0..1_000 {
        cache.insert(key, 7);
        assert!(cache.pin(&key).is_some());
    }
    insert_others(&cache, 40_000); // tables grow
    assert!(pinned_are_there(&cache, 1_000) && cache.len() == 20_000);
    cache.set_capacity(100); // and shrink
    assert!(pinned_are_there(&cache, 1_000));
    assert_eq!((cache.len(), cache.weight()), (1_000, 1_000));
    insert_others(&cache, 1_000);
    assert_eq!((cache.len(), cache.weight(), cache.pinned()), (1_000, 1_000, 1_000));
    assert!(cache.pin(&0).is_some(), "it is pinned already");
    (0..990).for_each(|key| assert!(cache.unpin(&key)));
    insert_others(&cache, 1_000);
    assert!((990..1_000).all(|key| cache.contains_key(&key)));
    assert!(cache.len() <= 100, "{}", cache.len());
}

/// Threads pin, unpin, replace and remove under eviction. At the end nothing is pinned, and the
/// counts are right.
#[test]
fn pins_of_many_threads_are_given_back() {
    let steps = if cfg!(miri) { 50 } else { 20_000 };
    let cache = Numbers::new(200);
    thread::scope(|scope| {
        for thread in 0..4_u32 {
            let cache = &cache;
            scope.spawn(move || {
                for step in 0..steps {
                    let key = (step * 7 + thread) % 80;
                    drop(cache.get_or_insert_with(key, || step));
                    let is_pinned = cache.pin(&key).is_some();
                    cache.insert(1_000 + step * 4 + thread, 0);
                    match step % 4 {
                        0 if is_pinned => _ = cache.insert(key, step),
                        1 => drop(cache.remove(&key)),
                        2 if step % 64 == 2 => cache.set_capacity(150 + u64::from(step % 100)),
                        _ => _ = cache.unpin(&key),
                    }
                    assert!(cache.pinned() <= 125);
                }
            });
        }
    });
    (0..80).for_each(|key| _ = cache.unpin(&key));
    assert_eq!(cache.pinned(), 0);
    cache.set_capacity(50);
    assert_eq!((cache.len(), cache.weight()), (50, 50));
}
