//! Changes in place: of times, of the capacity, and of which entries stay.

use manycore_cache::Cache;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

fn fill(cache: &Cache<u32, u32>, entries: u32) {
    for n in 0..entries {
        cache.insert(n, n);
    }
}

#[test]
fn capacity_that_shrinks_evicts_and_then_holds() {
    let cache: Cache<u32, u32> = Cache::builder(10_000).build().unwrap();
    fill(&cache, 5_000);
    assert_eq!(cache.len(), 5_000);
    cache.set_capacity(1_000);
    assert_eq!((cache.len(), cache.weight(), cache.capacity()), (1_000, 1_000, 1_000));
    fill(&cache, 5_000);
    assert!(cache.len() <= 1_000, "{}", cache.len());
    cache.set_capacity(3_000);
    fill(&cache, 5_000);
    assert!((2_500..=3_000).contains(&cache.len()), "{}", cache.len());
}

#[test]
fn shrinking_beside_insertions_keeps_to_the_last_capacity() {
    let cache: Arc<Cache<u32, u32>> = Arc::new(Cache::new(5_000));
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let cache = &cache;
            scope.spawn(move || {
                for n in 0..5_000 {
                    cache.insert(n * 2 + thread, n);
                }
            });
        }
        [3_000, 9_000, 1_000, 2_000].iter().for_each(|n| cache.set_capacity(*n));
    });
    cache.insert(1_000_000, 0);
    assert!(cache.len() <= 2_000, "{}", cache.len());
}

#[test]
fn entry_that_is_not_accepted_keeps_its_time() {
    let now = Arc::new(AtomicU64::new(0));
    let clock = now.clone();
    let cache: Cache<&str, u32> = Cache::builder(10)
        .expire_after(|_, _| Some(Duration::from_secs(10)))
        .clock(move || Duration::from_secs(clock.load(Relaxed)))
        .build()
        .unwrap();
    cache.insert("a", 1);
    assert!(cache.expire_if("a", Some(Duration::from_secs(99)), |_| false).is_none());
    assert_eq!(cache.time_left("a"), Some(Duration::from_secs(10)));
    let version = cache.get("a").unwrap().version();
    let guard = cache.expire_if("a", Some(Duration::from_secs(20)), |entry| *entry.value() == 1);
    assert_eq!(guard.map(|guard| guard.version()), Some(version));
    now.store(19, Relaxed);
    assert!(cache.contains_key("a"));
    now.store(20, Relaxed);
    assert!(cache.expire_if("a", None, |_| panic!("it is over")).is_none());
}

#[test]
fn retained_entries_stay_and_others_go() {
    let cache: Cache<u32, u32> = Cache::new(10_000);
    fill(&cache, 5_000);
    cache.retain(|entry| *entry.value() >= 4_000);
    assert_eq!((cache.len(), cache.weight()), (1_000, 1_000));
    assert!(cache.contains_key(&4_000) && !cache.contains_key(&3_999));
}

#[test]
fn room_of_large_entries_serves_small_ones_in_all_segments() {
    let cache: Cache<u32, u32> =
        Cache::builder(16 << 20).weigher(|_, weight| *weight).build().unwrap();
    for n in 0..50 {
        cache.insert(n, 1 << 20);
    }
    for n in 0..40_000 {
        cache.insert(1_000 + n, 512);
    }
    assert!(cache.weight() > 12 << 20, "{} of {}", cache.weight(), cache.capacity());
}

/// A value that counts the values that are alive.
struct Large(Arc<AtomicUsize>);

impl Drop for Large {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

#[test]
fn what_waits_to_be_freed_is_bounded_by_weight_in_bytes() {
    let alive = Arc::new(AtomicUsize::new(0));
    let most = |in_bytes: Option<bool>| {
        let builder = Cache::builder(10 << 20).weigher(|_: &u32, _: &Large| 1 << 20);
        let builder = match in_bytes {
            Some(in_bytes) => builder.weight_in_bytes(in_bytes),
            None => builder,
        };
        let cache: Cache<u32, Large> = builder.build().unwrap();
        let seen = (0..400).map(|n| {
            alive.fetch_add(1, Relaxed);
            cache.insert(n, Large(alive.clone()));
            alive.load(Relaxed)
        });
        seen.max().unwrap()
    };
    for in_bytes in [None, Some(true)] {
        let most = most(in_bytes);
        assert!(most <= 20, "{in_bytes:?}: {most}, where ten are in the cache, and few wait");
    }
    // The values count as small, and are still not left to a batch of nodes.
    most(Some(false));
    assert_eq!(alive.load(Relaxed), 0);
}

/// An entry changes between the first look and the lock. Here `accept` itself changes it when it is
/// called for the first time.
#[test]
fn entry_that_changes_by_itself_is_looked_at_again_under_the_lock() {
    let cache: Cache<u32, AtomicU64> = Cache::new(10);
    cache.insert(1, AtomicU64::new(0));
    let is_new = |value: &AtomicU64| value.fetch_add(1, Relaxed) == 0;
    let held = cache.insert_locked_if(1, AtomicU64::new(9), |old| is_new(old.unwrap().value()));
    assert!(held.is_err(), "it had changed");
    assert_eq!(cache.get(&1).unwrap().load(Relaxed), 2, "one look without the lock, one under it");
    cache.insert(1, AtomicU64::new(0));
    assert!(cache.remove_locked_if(&1, |entry| is_new(entry.value())).is_none());
    cache.insert(1, AtomicU64::new(0));
    assert!(cache.remove_if(&1, |entry| is_new(entry.value())).is_some());
    assert!(cache.insert_locked_if(1, AtomicU64::new(9), |old| old.is_none()).is_ok());
    assert!(cache.remove_locked_if(&1, |entry| entry.value().load(Relaxed) == 9).is_some());
    assert_eq!((cache.len(), cache.weight()), (0, 0));
}
