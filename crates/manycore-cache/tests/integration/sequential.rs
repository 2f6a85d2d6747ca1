//! One thread: the cache against a sequential map, the bound, the listener, iteration, and
//! settings.

use manycore_cache::{BuildError, Builder, Cache, CasError, Cause, Change, Computed, Eviction};
use proptest::prelude::*;
use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Hashes keys so that many share a bucket and a tag.
#[derive(Default, Clone, Copy)]
struct Poor(u64);

impl Hasher for Poor {
    fn finish(&self) -> u64 {
        self.0 % 5
    }
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.0 = self.0 << 8 | u64::from(*byte));
    }
    fn write_u32(&mut self, number: u32) {
        self.0 = u64::from(number);
    }
}

type PoorHash = BuildHasherDefault<Poor>;

#[derive(Debug, Clone)]
enum Call {
    Get(u32),
    Insert(u32, u32),
    Add(u32, u32),
    Swap(u32, u32, bool),
    Remove(u32),
    RemoveEven(u32),
    Load(u32, u32),
    Count(u32, u32),
    Clear,
}

fn calls() -> impl Strategy<Value = Call> {
    let (key, value) = (0..60_u32, 0..100_u32);
    prop_oneof![
        4 => key.clone().prop_map(Call::Get),
        6 => (key.clone(), value.clone()).prop_map(|(k, v)| Call::Insert(k, v)),
        2 => (key.clone(), value.clone()).prop_map(|(k, v)| Call::Add(k, v)),
        2 => (key.clone(), value.clone(), any::<bool>()).prop_map(|(k, v, r)| Call::Swap(k, v, r)),
        2 => key.clone().prop_map(Call::Remove),
        1 => key.clone().prop_map(Call::RemoveEven),
        2 => (key.clone(), value.clone()).prop_map(|(k, v)| Call::Load(k, v)),
        2 => (key, value).prop_map(|(k, v)| Call::Count(k, v)),
        1 => Just(Call::Clear),
    ]
}

/// With room for all keys, a cache is a map.
fn answers_as_a_map<S: std::hash::BuildHasher>(calls: &[Call], cache: &Cache<u32, u32, S>) {
    let mut model: BTreeMap<u32, u32> = BTreeMap::new();
    let mut versions: HashMap<u32, u64> = HashMap::new();
    for call in calls {
        match *call {
            Call::Get(key) => {
                assert_eq!(cache.get(&key).as_deref(), model.get(&key), "{call:?}");
                assert_eq!(cache.contains_key(&key), model.contains_key(&key));
            }
            Call::Insert(key, value) => {
                let version = cache.insert(key, value);
                assert!(versions.insert(key, version) != Some(version), "a version came twice");
                model.insert(key, value);
            }
            Call::Add(key, value) => {
                let added = cache.insert_if(key, value, |entry| entry.is_none());
                assert_eq!(added.is_ok(), !model.contains_key(&key));
                if let Ok(version) = added {
                    model.insert(key, value);
                    versions.insert(key, version);
                }
            }
            Call::Swap(key, value, right) => {
                let known = versions.get(&key).copied().unwrap_or(0);
                let version = if right { known } else { 0 };
                match cache.compare_and_swap(key, version, value) {
                    Ok(new) => {
                        assert!(right && model.insert(key, value).is_some());
                        versions.insert(key, new);
                    }
                    Err(CasError::Missing(back)) => {
                        assert!(back == value && !model.contains_key(&key));
                    }
                    Err(CasError::Changed(back, seen)) => {
                        assert!(back == value && !right && seen == known);
                        assert!(model.contains_key(&key));
                    }
                    Err(other) => panic!("{other}"),
                }
            }
            Call::Remove(key) => {
                assert_eq!(cache.remove(&key).as_deref(), model.remove(&key).as_ref());
            }
            Call::RemoveEven(key) => {
                let removed = cache.remove_if(&key, |entry| entry.value() % 2 == 0);
                let expected = model.get(&key).copied().filter(|value| value % 2 == 0);
                assert_eq!(removed.as_deref(), expected.as_ref());
                if expected.is_some() {
                    model.remove(&key);
                }
            }
            Call::Load(key, value) => {
                let found = cache.get_or_insert_with(key, || value);
                assert_eq!(*found, *model.entry(key).or_insert(value));
                versions.insert(key, found.version());
            }
            Call::Count(key, value) => count(cache, &mut model, &mut versions, key, value),
            Call::Clear => {
                cache.invalidate_all();
                model.clear();
            }
        }
        assert_eq!((cache.len(), cache.weight()), (model.len(), model.len() as u64));
    }
    holds(cache, &model);
}

/// Adds to a number if it is even, and removes it if it is odd. Inserts a missing number if it is
/// even.
fn count<S: std::hash::BuildHasher>(
    cache: &Cache<u32, u32, S>,
    model: &mut BTreeMap<u32, u32>,
    versions: &mut HashMap<u32, u64>,
    key: u32,
    value: u32,
) {
    let change = |old: Option<u32>| match old {
        Some(old) if old % 2 == 0 => Change::Put(old + value),
        Some(_) => Change::Remove,
        None if value % 2 == 0 => Change::Put(value),
        None => Change::Keep,
    };
    let done = cache.compute(key, |entry| change(entry.map(|entry| *entry.value())));
    let old = model.get(&key).copied();
    match (change(old), done) {
        (Change::Put(new), Computed::Inserted(entry)) if old.is_none() => {
            assert_eq!(*entry, new);
            model.insert(key, new);
            versions.insert(key, entry.version());
        }
        (Change::Put(new), Computed::Replaced(entry)) if old.is_some() => {
            assert_eq!(*entry, new);
            model.insert(key, new);
            versions.insert(key, entry.version());
        }
        (Change::Remove, Computed::Removed(entry)) => assert_eq!(model.remove(&key), Some(*entry)),
        (Change::Keep, Computed::Absent) => {}
        (change, done) => panic!("{done:?} of {old:?} by {change:?}"),
    }
}

/// Checks the contents by every way of looking.
fn holds<S: std::hash::BuildHasher>(cache: &Cache<u32, u32, S>, model: &BTreeMap<u32, u32>) {
    let all: BTreeMap<u32, u32> = cache.iter().map(|entry| (*entry.key(), *entry)).collect();
    assert_eq!((&all, cache.iter().count()), (model, model.len()));
    let keys: Vec<u32> = (0..60).collect();
    let mut number = 0;
    cache.get_many(&keys, |index, entry| {
        assert_eq!((index, entry.map(|e| *e.value())), (number, model.get(&keys[index]).copied()));
        number += 1;
    });
    assert_eq!(number, keys.len());
}

/// A cache may forget entries, but it never makes them up, and it never holds more than its
/// capacity.
fn forgets_but_never_lies(calls: &[Call], cache: &Cache<u32, u32>) {
    let mut model: BTreeMap<u32, u32> = BTreeMap::new();
    for call in calls {
        match *call {
            Call::Insert(key, value) => {
                cache.insert(key, value);
                model.insert(key, value);
                assert_eq!(cache.get(&key).as_deref(), Some(&value), "an insertion evicted itself");
            }
            Call::Remove(key) => {
                let removed = cache.remove(&key);
                assert!(removed.is_none_or(|value| model.remove(&key) == Some(*value)));
                model.remove(&key);
            }
            Call::Clear => {
                cache.invalidate_all();
                model.clear();
                assert!(cache.is_empty() && cache.weight() == 0);
            }
            Call::Get(key)
            | Call::Add(key, _)
            | Call::Swap(key, ..)
            | Call::RemoveEven(key)
            | Call::Count(key, _) => {
                assert!(cache.get(&key).is_none_or(|value| model.get(&key) == Some(&*value)));
            }
            Call::Load(key, value) => {
                let found = *cache.get_or_insert_with(key, || value);
                assert!(found == value || model.get(&key) == Some(&found));
                model.insert(key, found);
            }
        }
        assert!(cache.weight() <= cache.capacity(), "{cache:?}");
        assert_eq!(cache.iter().count(), cache.len());
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        cases: 40,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_cache_with_room_is_a_map(calls in prop::collection::vec(calls(), 0..300)) {
        for eviction in [Eviction::Clock, Eviction::ScanResistant] {
            let build = || Cache::builder(100).eviction(eviction);
            answers_as_a_map(&calls, &build().build().unwrap());
            answers_as_a_map(&calls, &build().initial_entries(1).build().unwrap());
            let poor = build().hasher(PoorHash::default());
            answers_as_a_map(&calls, &poor.initial_entries(1).build().unwrap());
            let timed = build().time_to_live(Duration::from_secs(3600));
            answers_as_a_map(&calls, &timed.build().unwrap());
        }
    }

    #[test]
    fn a_small_cache_forgets_but_never_lies(
        calls in prop::collection::vec(calls(), 0..300),
        capacity in 1..40_u64,
    ) {
        for eviction in [Eviction::Clock, Eviction::ScanResistant] {
            let build = || Cache::builder(capacity).eviction(eviction);
            forgets_but_never_lies(&calls, &build().build().unwrap());
            let weighs = build().weigher(|_, value| if *value < 50 { 1 } else { 0 });
            forgets_but_never_lies(&calls, &weighs.build().unwrap());
        }
    }
}

#[test]
fn a_full_cache_keeps_as_many_entries_as_it_may() {
    for capacity in [1, 7, 100, 5_000, 200_000] {
        let cache = Cache::new(capacity);
        (0..2 * capacity).for_each(|key| {
            cache.insert(key, ());
        });
        assert_eq!((cache.len() as u64, cache.weight()), (capacity, capacity));
        assert_eq!(cache.stats().evictions, capacity);
    }
}

#[test]
fn a_cache_holds_every_key_up_to_its_capacity() {
    let cache = Cache::new(30_000);
    (0..30_000).for_each(|key| {
        cache.insert(key, key);
    });
    assert!((0..30_000).all(|key| cache.get(&key).as_deref() == Some(&key)));
}

#[test]
fn weights_are_kept_to_and_the_too_heavy_is_turned_away() {
    type Told = Arc<Mutex<Vec<(u32, u32, Cause)>>>;
    let told = Told::default();
    let listener = Arc::clone(&told);
    let cache = Cache::builder(10)
        .weigher(|_, weight| *weight)
        .listener(move |key, value, cause| listener.lock().unwrap().push((*key, *value, cause)))
        .build()
        .unwrap();
    cache.insert(1, 4);
    cache.insert(2, 6);
    assert_eq!((cache.len(), cache.weight()), (2, 10));
    cache.insert(2, 5);
    assert_eq!((cache.len(), cache.weight()), (2, 9));
    cache.insert(2, 11);
    assert!(cache.get(&2).is_none());
    assert_eq!((cache.len(), cache.weight()), (1, 4));
    assert_eq!(*cache.get_or_insert_with(3, || 100), 100, "what was loaded is shown, not kept");
    cache.insert(4, 11);
    assert_eq!((cache.len(), cache.weight(), cache.contains_key(&1)), (1, 4, true));
    assert!(cache.remove(&1).is_some() && cache.weight() == 0);
    cache.insert(5, 10);
    assert_eq!((cache.len(), cache.weight()), (1, 10), "as heavy as the capacity");
    cache.insert(5, 10);
    assert_eq!((cache.len(), cache.weight()), (1, 10));
    let told = told.lock().unwrap();
    let expected = [
        (2, 6, Cause::Replaced),
        (2, 5, Cause::Replaced),
        (2, 11, Cause::Evicted),
        (3, 100, Cause::Evicted),
        (4, 11, Cause::Evicted),
        (1, 4, Cause::Removed),
        (5, 10, Cause::Replaced),
    ];
    assert_eq!(*told, expected);
}

#[test]
fn a_scan_leaves_what_is_used_alone_under_the_resistant_policy() {
    let kept = |eviction| {
        let cache = Cache::builder(1_000).eviction(eviction).build().unwrap();
        for _ in 0..6 {
            for key in 0..700_u32 {
                drop(cache.get_or_insert_with(key, || ()));
            }
        }
        (10_000..30_000).for_each(|key| drop(cache.get_or_insert_with(key, || ())));
        (0..700).filter(|key| cache.contains_key(key)).count()
    };
    let (resistant, clock) = (kept(Eviction::ScanResistant), kept(Eviction::Clock));
    assert!(resistant > 600 && clock < 100, "resistant {resistant}, clock {clock} of 700");
}

/// Keys of one bucket must not evict each other for ever while there is room elsewhere. A bucket
/// has seven places, and some buckets have more of these keys than others.
#[test]
fn after_a_change_of_the_working_set_all_of_one_that_fits_hits() {
    let capacity = if cfg!(miri) { 200 } else { 10_000 };
    let cache = Cache::builder(capacity).initial_entries(capacity as usize).build().unwrap();
    let mut state = 1_u64;
    for set in 1..4_u64 {
        let mut misses = 0;
        for _ in 0..40 {
            misses = 0;
            for _ in 0..capacity {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let key = (state >> 33) % (capacity * 8 / 10);
                drop(cache.get_or_insert_with(set << 32 | key, || misses += 1));
            }
        }
        assert!(misses <= capacity / 50, "{misses} misses in the last of 40 rounds");
    }
}

/// Keys that come in turns are used again only after all others. Keys of an earlier working set
/// must not keep their places for ever (segment.G6).
#[test]
fn after_a_change_of_the_working_set_keys_in_turns_come_to_hit() {
    let capacity = if cfg!(miri) { 200 } else { 10_000 };
    let cache = Cache::builder(capacity).initial_entries(capacity as usize).build().unwrap();
    let round = |first: u64, keys: u64| {
        let mut misses = 0;
        (first..first + keys).for_each(|key| drop(cache.get_or_insert_with(key, || misses += 1)));
        misses
    };
    (0..20).for_each(|_| _ = round(0, capacity));
    let keys = capacity * 8 / 10;
    (1..60).for_each(|_| _ = round(1 << 32, keys));
    let misses = round(1 << 32, keys);
    assert!(misses < keys * 3 / 10, "{misses} of {keys} missed in the last of 60 rounds");
}

#[test]
fn a_listener_that_panics_leaves_the_cache_in_order() {
    let cache = Cache::builder(10).listener(|_: &u32, _: &u32, _| panic!("as asked for"));
    let cache = cache.build().unwrap();
    (0..10).for_each(|key| {
        cache.insert(key, 0);
    });
    let (mut has_room, mut replaced) = (false, 0);
    for key in 10..40 {
        let insert = std::panic::AssertUnwindSafe(|| cache.insert(key, 0));
        let has_panicked = std::panic::catch_unwind(insert).is_err();
        assert!(cache.len() <= 10 && cache.weight() == cache.len() as u64);
        assert_eq!(has_panicked, !has_room, "{key} makes room unless it finds some");
        // It took the place of the entry that was reported, or it made room and was not inserted.
        has_room = has_panicked && !cache.contains_key(&key);
        replaced += u32::from(has_panicked && !has_room);
        assert_eq!(cache.len(), if has_room { 9 } else { 10 });
    }
    assert!(replaced > 0, "a bucket of entries that were not used has a place for the next");
}

#[test]
fn wrong_settings_are_refused() {
    let zero = Cache::<u32, u32>::builder(0).build();
    assert!(matches!(zero, Err(BuildError::OutOfRange("capacity", _))));
    let never = Cache::<u32, u32>::builder(1).time_to_live(Duration::ZERO).build();
    assert_eq!(never.err(), Some(BuildError::NoTime("time to live")));
}

#[test]
fn stats_count_what_the_builder_asked_for() {
    let cache = Cache::builder(2).count_reads(true).build().unwrap();
    cache.insert(1, 1);
    assert!(cache.get(&1).is_some() && cache.get(&2).is_none());
    drop(cache.get_or_insert_with(2, || 2));
    let stats = cache.stats();
    assert_eq!((stats.hits, stats.misses, stats.insertions), (1, 2, 2));
    assert!((stats.hit_ratio() - 1.0 / 3.0).abs() < 1e-9);
}

/// This also holds across the sixteen keys that are fetched together, and while the tables grow.
#[test]
fn insertions_of_a_batch_are_seen_by_its_later_look_ups() {
    let cache: Cache<u32, usize> = Cache::builder(10_000).initial_entries(1).build().unwrap();
    let keys: Vec<u32> = (0..3_000).map(|number| number * 7 % 500).collect();
    let mut model = BTreeMap::new();
    cache.visit_many(&keys, |number, spot| {
        if number % 3 == 0 {
            model.insert(keys[number], number);
            spot.insert(keys[number], number);
        } else {
            assert_eq!(spot.get().map(|entry| *entry.value()), model.get(&keys[number]).copied());
        }
    });
    assert_eq!(cache.len(), model.len());
    let other = || cache.visit_many(&[1], |_, spot| assert_ne!(spot.insert(2, 0), 0));
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(other)).is_err());
    assert!(cache.iter().all(|entry| model.get(entry.key()) == Some(&*entry)));
}

/// Tables are as large as their entries, or those that may come, need; and every entry is found.
#[test]
fn less_capacity_gives_the_tables_back() {
    for by_weight in [false, true] {
        let builder: Builder<u32, u32> = Cache::builder(50_000).initial_entries(50_000);
        let builder = if by_weight { builder.weigher(|_, _| 1) } else { builder };
        let cache = builder.build().unwrap();
        let tables = || cache.footprint().tables + cache.footprint().chains;
        (0..50_000).for_each(|key| _ = cache.insert(key, key));
        let full = tables();
        cache.set_capacity(30_000);
        let most = tables();
        assert!(most <= full && cache.len() <= 30_000);
        cache.set_capacity(100);
        // Each of the 32 segments has at least one bucket of 64 bytes, and what belongs to it.
        assert!(tables() <= 16 << 10, "{by_weight}: {} bytes of {full}", tables());
        assert!(cache.len() <= 100 && !cache.is_empty());
        let there = (0..50_000).filter(|key| cache.get(key).as_deref() == Some(key)).count();
        assert_eq!((there, cache.iter().count()), (cache.len(), there), "{by_weight}");
        cache.set_capacity(20_000);
        (0..20_000).for_each(|key| _ = cache.insert(key, key));
        let there = (0..50_000).filter(|key| cache.get(key).as_deref() == Some(key)).count();
        assert_eq!(there, cache.len());
        assert!(there > 15_000, "{by_weight}: {there}");
    }
}
