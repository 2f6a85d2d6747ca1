//! Expiration, under a clock that only the test moves.

use manycore_cache::{BuildError, Builder, Cache, Cause, Eviction};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

#[derive(Default, Clone)]
struct Hands(Arc<AtomicU64>);

impl Hands {
    fn forward(&self, seconds: u64) {
        self.0.fetch_add(seconds, SeqCst);
    }
}

fn timed(
    set: impl FnOnce(Builder<u32, u32>) -> Builder<u32, u32>,
) -> (Cache<u32, u32>, Hands, Arc<AtomicU64>) {
    let (hands, expired) = (Hands::default(), Arc::<AtomicU64>::default());
    let (clock, count) = (hands.clone(), Arc::clone(&expired));
    let builder = set(Cache::builder(1_000)).clock(move || secs(clock.0.load(SeqCst)));
    let builder = builder.listener(move |_, _, cause| {
        count.fetch_add(u64::from(cause == Cause::Expired), SeqCst);
    });
    (builder.build().unwrap(), hands, expired)
}

#[test]
fn an_entry_is_gone_when_its_time_to_live_is_over() {
    let (cache, hands, expired) = timed(|builder| builder.time_to_live(secs(10)));
    cache.insert(1, 1);
    hands.forward(9);
    assert_eq!(cache.get(&1).as_deref(), Some(&1));
    assert_eq!(cache.time_left(&1), Some(secs(1)));
    hands.forward(1);
    assert!(!cache.contains_key(&1) && cache.time_left(&1).is_none());
    assert_eq!((cache.len(), expired.load(SeqCst)), (1, 0));
    assert!(cache.get(&1).is_none());
    assert_eq!((cache.len(), expired.load(SeqCst)), (0, 1), "the read dropped it");
    cache.insert(1, 2);
    hands.forward(9);
    cache.insert(1, 3);
    hands.forward(9);
    assert_eq!(cache.get(&1).as_deref(), Some(&3), "a new value has a new time");
}

#[test]
fn a_used_entry_stays_and_an_idle_one_goes() {
    let (cache, hands, _) = timed(|builder| builder.time_to_idle(secs(160)));
    cache.insert(1, 1);
    cache.insert(2, 2);
    for _ in 0..40 {
        hands.forward(20);
        assert!(cache.get(&1).is_some());
    }
    assert!(cache.get(&2).is_none());
    hands.forward(149);
    assert!(cache.contains_key(&1), "not before fifteen sixteenths of the time");
    hands.forward(11);
    assert!(cache.get(&1).is_none());
}

#[test]
fn a_use_is_noted_if_the_last_note_is_older_than_a_sixteenth_of_the_time() {
    for (after, left) in [(10, 150), (11, 160)] {
        let (cache, hands, _) = timed(|builder| builder.time_to_idle(secs(160)));
        cache.insert(1, 1);
        hands.forward(after);
        assert!(cache.get(&1).is_some());
        hands.forward(left - 1);
        assert!(cache.contains_key(&1), "used after {after} s");
        hands.forward(1);
        assert!(!cache.contains_key(&1), "used after {after} s");
    }
}

#[test]
fn an_entry_without_an_end_is_there_at_the_end_of_all_time() {
    let builder = Cache::builder(10).expire_after(|_: &u32, _: &u32| None);
    let cache = builder.clock(|| Duration::MAX).build().unwrap();
    cache.insert(1, 1);
    cache.insert_for(2, 2, secs(1));
    cache.purge();
    assert!(cache.get(&1).is_some() && cache.get(&2).is_some());
    assert_eq!((cache.iter().count(), cache.len()), (2, 2));
    assert_eq!(cache.time_left(&1), Some(Duration::MAX));
}

#[test]
fn a_time_for_one_entry_needs_a_cache_that_keeps_times() {
    let without_times = Cache::builder(10);
    let without_metadata = Cache::builder(10).without_metadata(|_, _| None);
    for builder in [without_times, without_metadata] {
        let cache: Cache<u32, u32> = builder.build().unwrap();
        let insert = AssertUnwindSafe(|| cache.insert_for(1, 1, secs(1)));
        assert!(catch_unwind(insert).is_err());
        assert!(cache.is_empty());
        cache.insert(1, 1);
        assert!(catch_unwind(AssertUnwindSafe(|| cache.expire(&1, None))).is_err());
    }
}

#[test]
fn every_entry_may_have_a_time_of_its_own_and_get_another() {
    let own = |_: &u32, value: &u32| (*value > 0).then(|| secs(u64::from(*value)));
    let (cache, hands, _) = timed(|builder| builder.expire_after(own));
    cache.insert(1, 5);
    cache.insert(2, 0);
    cache.insert_for(3, 0, secs(7));
    cache.insert_for(4, 5, secs(7));
    assert!(cache.expire(&2, Some(secs(6))) && !cache.expire(&9, None));
    hands.forward(5);
    let there = |keys: [u32; 4]| keys.map(|key| cache.get(&key).is_some());
    assert_eq!(there([1, 2, 3, 4]), [false, true, true, false]);
    assert!(cache.expire(&3, None));
    hands.forward(1_000);
    assert_eq!(there([1, 2, 3, 4]), [false, false, true, false]);
    assert_eq!(cache.time_left(&3), Some(Duration::MAX));
}

#[test]
fn what_is_expired_counts_as_missing_for_every_update() {
    let (cache, hands, expired) = timed(|builder| builder.time_to_live(secs(10)));
    let version = cache.insert(1, 1);
    hands.forward(10);
    assert!(cache.compare_and_swap(1, version, 2).is_err());
    assert!(cache.insert_if(1, 2, |entry| entry.is_some()).is_err());
    assert!(cache.insert_if(1, 2, |entry| entry.is_none()).is_ok());
    assert_eq!(expired.load(SeqCst), 1);
    hands.forward(10);
    assert!(cache.remove(&1).is_none() && cache.is_empty());
    cache.insert(1, 1);
    hands.forward(10);
    assert_eq!(*cache.get_or_insert_with(1, || 7), 7);
    hands.forward(10);
    assert_eq!(cache.iter().count(), 0);
}

#[test]
fn updates_sweep_out_what_nobody_asks_for() {
    type Set = fn(Builder<u32, u32>) -> Builder<u32, u32>;
    let settings: [Set; 5] = [
        |builder| builder.time_to_live(secs(10)),
        |builder| builder.time_to_idle(secs(10)),
        |builder| builder.expire_after(|_, _| Some(secs(10))),
        |builder| builder.idle_after(|_, _| Some(secs(10))),
        |builder| builder.without_metadata(|key, _| (*key < 800).then(|| secs(10))),
    ];
    for (at, set) in settings.into_iter().enumerate() {
        let (cache, hands, expired) = timed(set);
        (0..800).for_each(|key| {
            cache.insert(key, 0);
        });
        hands.forward(10);
        // As many updates as there are buckets: a segment of 1,000 entries has 179.
        (0..200).for_each(|_| {
            cache.insert(5_000, 0);
        });
        assert_eq!((cache.len(), expired.load(SeqCst)), (1, 800), "{at}");
    }
}

#[test]
fn entries_of_a_large_cache_have_their_times() {
    let time = |key: u32| secs(1 + u64::from(key));
    let builder = Cache::builder(5_000).expire_after(move |key: &u32, _: &u32| Some(time(*key)));
    let cache = builder.clock(|| Duration::ZERO).build().unwrap();
    (0..10).for_each(|key| _ = cache.insert(key, key));
    assert!((0..10).all(|key| cache.time_left(&key) == Some(time(key))));
}

#[test]
fn purge_drops_everything_expired_and_nothing_else() {
    let (cache, hands, expired) = timed(|builder| builder.expire_after(|_, _| None));
    (0..500).for_each(|key| {
        cache.insert_for(key, 0, secs(5));
        cache.insert(1_000 + key, 0);
    });
    hands.forward(5);
    cache.purge();
    assert_eq!(cache.len(), 500);
    assert_eq!((cache.stats().expirations, expired.load(SeqCst)), (500, 500));
    assert!(cache.iter().all(|entry| *entry.key() >= 1_000));
}

/// A value that knows its own weight and end.
struct Own {
    weight: u32,
    end: AtomicU64,
}

fn own(weight: u32, end: u64) -> Own {
    Own { weight, end: AtomicU64::new(end) }
}

#[test]
fn a_lean_cache_asks_its_values_for_weight_and_end() {
    let now = Arc::new(AtomicU64::new(10));
    let clock = now.clone();
    let cache = Cache::builder(1_000)
        .weigher(|_: &u32, value: &Own| value.weight)
        .without_metadata(|_, value| match value.end.load(SeqCst) {
            0 => None,
            end => Some(Duration::from_secs(end)),
        })
        .clock(move || Duration::from_secs(clock.load(SeqCst)))
        .build()
        .unwrap();
    cache.insert(1, own(300, 0));
    cache.insert(2, own(300, 11));
    cache.insert(3, own(300, 12));
    assert_eq!((cache.len(), cache.weight()), (3, 900));
    assert_eq!(cache.time_left(&1), Some(Duration::MAX));
    assert_eq!(cache.time_left(&2), Some(Duration::from_secs(1)));
    // The end of an entry changes in place.
    let held = cache.get_locked_if(&2, |entry| {
        entry.value().end.store(20, SeqCst);
        true
    });
    assert!(held.is_some());
    drop(held);
    now.store(12, SeqCst);
    assert!(cache.get(&2).is_some() && cache.get(&3).is_none());
    assert_eq!((cache.len(), cache.weight()), (2, 600), "what has ended is dropped");
    assert!(cache.get_locked_if(&3, |_| true).is_none());
    // An entry of another weight replaces it, and the bound holds.
    cache.insert(1, own(700, 0));
    assert_eq!(cache.weight(), 1_000);
    cache.insert(4, own(500, 0));
    assert!(cache.weight() <= 1_000, "{}", cache.weight());
    // Either the entry of 700 alone was evicted, or the entry of 300 before it: hashes are random.
    assert!((1..=2).contains(&cache.stats().evictions));
    assert!(cache.insert_if(4, own(1, 0), |entry| entry.is_none()).is_err());
    assert_eq!(cache.get(&4).unwrap().version(), 0);
}

#[test]
#[should_panic = "no versions"]
fn a_lean_cache_has_no_versions_to_compare() {
    let cache = Cache::builder(10).without_metadata(|_: &u32, _: &u32| None).build().unwrap();
    let version = cache.insert(1, 2);
    let _ = cache.compare_and_swap(1, version, 3);
}

#[test]
fn a_lean_cache_reads_the_clock_only_for_an_entry_with_an_end() {
    let reads = Arc::new(AtomicU64::new(0));
    let clock = reads.clone();
    let cache = Cache::builder(10)
        .without_metadata(|_: &u32, end: &u64| (*end > 0).then(|| Duration::from_secs(*end)))
        .clock(move || Duration::from_secs(clock.fetch_add(1, SeqCst)))
        .build()
        .unwrap();
    cache.insert(1, 0);
    cache.insert(2, 1 << 20);
    let reads_of = |key: &u32| {
        let before = reads.load(SeqCst);
        cache.visit_many([key], |_, spot| assert!(spot.get().is_some()));
        assert!(cache.get(key).is_some());
        reads.load(SeqCst) - before
    };
    assert_eq!((reads_of(&1), reads_of(&2)), (0, 2));
}

#[test]
fn a_lean_cache_refuses_times_that_it_had_to_keep() {
    let build =
        |builder: Builder<u32, u32>| builder.without_metadata(|_, _| None).build().map(drop);
    let second = Duration::from_secs(1);
    for builder in [
        Cache::builder(10).time_to_live(second),
        Cache::builder(10).time_to_idle(second),
        Cache::builder(10).expire_after(|_, _| None),
        Cache::builder(10).idle_after(|_, _| None),
    ] {
        assert!(matches!(build(builder), Err(BuildError::NoMetadata(_))));
    }
    assert_eq!(build(Cache::builder(10)), Ok(()));
}

#[test]
fn a_peek_leaves_no_trace() {
    let (cache, hands, expired) =
        timed(|builder| builder.time_to_idle(secs(160)).count_reads(true));
    cache.insert(1, 1);
    for _ in 0..7 {
        hands.forward(20);
        assert_eq!(cache.peek(&1).as_deref(), Some(&1));
    }
    hands.forward(20);
    assert!(cache.peek(&1).is_none(), "it was idle for all this time");
    assert_eq!((cache.len(), expired.load(SeqCst)), (1, 0), "and is dropped by others");
    assert_eq!((cache.stats().hits, cache.stats().misses), (0, 0));
}

#[test]
fn a_peek_does_not_save_an_entry_from_eviction() {
    let cache = Cache::builder(100).eviction(Eviction::Clock).build().unwrap();
    let used = Cache::builder(100).eviction(Eviction::Clock).build().unwrap();
    for key in 0..2_000 {
        cache.insert(key, ());
        used.insert(key, ());
        assert!(cache.peek(&key).is_some(), "{key}");
        cache.peek(&0);
        used.get(&0);
    }
    assert!(cache.peek(&0).is_none() && used.peek(&0).is_some());
}

#[test]
fn every_entry_may_have_a_time_to_idle_of_its_own() {
    let own = |_: &u32, value: &u32| (*value > 0).then(|| secs(u64::from(*value)));
    let (cache, hands, _) = timed(|builder| builder.idle_after(own));
    for (key, value) in [(1, 160), (2, 32), (3, 0), (4, 32)] {
        cache.insert(key, value);
    }
    for _ in 0..10 {
        hands.forward(20);
        assert!(cache.get(&2).is_some(), "used within its time");
    }
    let there = |keys: [u32; 4]| keys.map(|key| cache.contains_key(&key));
    assert_eq!(there([1, 2, 3, 4]), [false, true, true, false]);
    hands.forward(33);
    assert_eq!(there([1, 2, 3, 4]), [false, false, true, false]);
    cache.purge();
    assert_eq!(cache.len(), 1);

    // The cache's own time to idle bounds that of an entry, and holds for entries that have none.
    let (cache, hands, _) = timed(|builder| builder.idle_after(own).time_to_idle(secs(64)));
    for (key, value) in [(1, 160), (2, 32), (3, 0), (4, 1)] {
        cache.insert(key, value);
    }
    let there = |keys: [u32; 4]| keys.map(|key| cache.contains_key(&key));
    hands.forward(40);
    assert_eq!(there([1, 2, 3, 4]), [true, false, true, false]);
    hands.forward(24);
    assert_eq!(there([1, 2, 3, 4]), [false; 4]);
}
