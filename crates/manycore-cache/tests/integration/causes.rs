//! The cause of each departure, by every way in which an entry can leave. An expired entry is
//! reported and counted as expired (law departure.D3).

use manycore::collections::BudgetTree;
use manycore_cache::{Builder, Cache, Cause, Change, Eviction};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const ENTRIES: u32 = 200;
const TIME: Duration = Duration::from_secs(10);

/// Entries of the first generation have the value 0. Entries that a way inserts have another value.
type Settings = Builder<u32, u32>;
type Told = Arc<Mutex<Vec<(u32, Cause)>>>;

type Kind = fn(Settings) -> Settings;

/// The kinds of caches with times. Each kind evicts in its own way.
const KINDS: &[(&str, Kind)] = &[
    ("time to live", |settings| settings.time_to_live(TIME)),
    ("time to idle", |settings| settings.time_to_idle(TIME)),
    ("clock", |settings| settings.time_to_live(TIME).eviction(Eviction::Clock)),
    ("weights", |settings| settings.time_to_live(TIME).weigher(weight)),
    ("own time", |settings| settings.expire_after(|_, value| (*value == 0).then_some(TIME))),
    ("no metadata", |settings| settings.without_metadata(end)),
    ("no metadata, weights", |settings| settings.without_metadata(end).weigher(weight)),
];

fn end(_: &u32, value: &u32) -> Option<Duration> {
    (*value == 0).then_some(TIME)
}

/// A weight that is too heavy for any cache. A value is its own weight.
const HEAVY: u32 = 1_000_000;

fn weight(_: &u32, value: &u32) -> u32 {
    (*value).max(1)
}

/// A way out of a cache that holds the keys below `ENTRIES`. With the cause for entries that have
/// not expired, or `None` if they stay.
type Way = (&'static str, fn(&Cache<u32, u32>), Option<Cause>);

const WAYS: &[Way] = &[
    ("room", |cache| others(cache, 8 * ENTRIES), Some(Cause::Evicted)),
    ("room for loads", |cache| others_loaded(cache, 8 * ENTRIES), Some(Cause::Evicted)),
    ("insert", |cache| each(|key| _ = cache.insert(key, 1)), Some(Cause::Replaced)),
    ("insert_if", |cache| each(|key| _ = cache.insert_if(key, 1, |_| true)), Some(Cause::Replaced)),
    (
        "insert_locked_if",
        |cache| each(|key| _ = cache.insert_locked_if(key, 1, |_| true)),
        Some(Cause::Replaced),
    ),
    ("compute", |cache| each(|key| put(cache, key)), Some(Cause::Replaced)),
    (
        "compute, removing",
        |cache| each(|key| drop(cache.compute(key, |_| Change::Remove))),
        Some(Cause::Removed),
    ),
    ("get", |cache| each(|key| drop(cache.get(&key))), None),
    ("load", |cache| each(|key| drop(cache.get_or_insert_with(key, || 1))), None),
    ("remove", |cache| each(|key| drop(cache.remove(&key))), Some(Cause::Removed)),
    (
        "remove_locked_if",
        |cache| each(|key| drop(cache.remove_locked_if(&key, |_| true))),
        Some(Cause::Removed),
    ),
    ("sweep", |cache| (0..ENTRIES).for_each(|_| _ = cache.insert(0, 1)), None),
    ("purge", Cache::purge, None),
    ("set_capacity", |cache| cache.set_capacity(1), Some(Cause::Evicted)),
    ("invalidate_all", Cache::invalidate_all, Some(Cause::Removed)),
    ("retain", |cache| cache.retain(|_| false), Some(Cause::Removed)),
];

fn each(use_key: impl Fn(u32)) {
    (0..ENTRIES).for_each(use_key);
}

fn put(cache: &Cache<u32, u32>, key: u32) {
    drop(cache.compute(key, |_| Change::Put(1)));
}

fn others(cache: &Cache<u32, u32>, keys: u32) {
    (0..keys).for_each(|key| _ = cache.insert(ENTRIES + key, 1));
}

fn others_loaded(cache: &Cache<u32, u32>, keys: u32) {
    (0..keys).for_each(|key| drop(cache.get_or_insert_with(ENTRIES + key, || 1)));
}

/// Returns a builder with a clock in seconds. Its listener adds the entries of the first generation
/// to `told`, and all entries to `all`.
fn watched(capacity: u64, told: &Told, all: &Told, seconds: &Arc<AtomicU64>) -> Settings {
    let (told, all, seconds) = (Arc::clone(told), Arc::clone(all), Arc::clone(seconds));
    Cache::builder(capacity).clock(move || Duration::from_secs(seconds.load(Relaxed))).listener(
        move |key, value, cause| {
            all.lock().unwrap().push((*key, cause));
            if *value == 0 {
                told.lock().unwrap().push((*key, cause));
            }
        },
    )
}

/// Takes the entries out. Returns those that were reported, in the order of their keys.
#[track_caller]
fn told_by(cache: &Cache<u32, u32>, told: &Told, all: &Told, way: fn(&Cache<u32, u32>)) -> Told {
    way(cache);
    let count = |cause| all.lock().unwrap().iter().filter(|(_, told)| *told == cause).count();
    let stats = cache.stats();
    let counted = (stats.expirations as usize, stats.evictions as usize);
    assert_eq!(counted, (count(Cause::Expired), count(Cause::Evicted)), "counted and told");
    told.lock().unwrap().sort_by_key(|(key, _)| *key);
    Arc::clone(told)
}

fn filled(set: fn(Settings) -> Settings, is_over: bool) -> (Cache<u32, u32>, Told, Told) {
    let (told, all) = (Told::default(), Told::default());
    let seconds = Arc::<AtomicU64>::default();
    let builder = watched(u64::from(ENTRIES), &told, &all, &seconds);
    let cache = set(builder).build().unwrap();
    each(|key| _ = cache.insert(key, 0));
    assert!(cache.len() == ENTRIES as usize && told.lock().unwrap().is_empty());
    seconds.store(if is_over { TIME.as_secs() } else { 1 }, Relaxed);
    (cache, told, all)
}

#[test]
fn what_is_over_leaves_as_expired_whoever_finds_it() {
    for (kind, set) in KINDS {
        for (name, way, _) in WAYS {
            let (cache, told, all) = filled(*set, true);
            let told = told_by(&cache, &told, &all, *way);
            let told = told.lock().unwrap();
            // `set_capacity` leaves one entry, for which there is still capacity.
            let gone = if *name == "set_capacity" { ENTRIES - 1 } else { ENTRIES };
            assert_eq!(told.len(), gone as usize, "{kind}, {name}: each once");
            let other = told.iter().find(|(_, cause)| *cause != Cause::Expired);
            assert_eq!(other, None, "{kind}, {name}");
        }
    }
}

#[test]
fn what_is_not_over_leaves_for_the_callers_reason() {
    for (kind, set) in KINDS {
        for (name, way, cause) in WAYS {
            let (cache, told, all) = filled(*set, false);
            let told = told_by(&cache, &told, &all, *way);
            let told = told.lock().unwrap();
            // The way "sweep" also replaces one key.
            let strange = told
                .iter()
                .find(|(key, told)| Some(*told) != *cause && !(*name == "sweep" && *key == 0));
            assert_eq!(strange, None, "{kind}, {name}");
            assert!(cause.is_none() || !told.is_empty(), "{kind}, {name}");
        }
    }
}

/// A value that is too heavy takes the old value out, and is itself evicted.
#[test]
fn what_is_too_heavy_takes_the_old_value_out_for_its_own_cause() {
    for (is_over, cause) in [(true, Cause::Expired), (false, Cause::Replaced)] {
        let (cache, told, all) = filled(|set| set.time_to_live(TIME).weigher(weight), is_over);
        cache.insert(7, HEAVY);
        assert!(told.lock().unwrap().contains(&(7, cause)));
        assert!(all.lock().unwrap().contains(&(7, Cause::Evicted)));
        assert!(!cache.contains_key(&7));
    }
}

/// Another cache asks the budget for memory.
#[test]
fn what_a_budget_asks_back_leaves_as_expired_if_it_is_over() {
    for (is_over, cause) in [(true, Cause::Expired), (false, Cause::Evicted)] {
        let (told, all) = (Told::default(), Told::default());
        let seconds = Arc::<AtomicU64>::default();
        let budget = BudgetTree::with_batch(u64::from(ENTRIES), 1);
        let builder = watched(u64::from(ENTRIES), &told, &all, &seconds).time_to_live(TIME);
        let first = builder.weigher(weight).build_within(&budget).unwrap();
        each(|key| _ = first.insert(key, 0));
        let second = Cache::builder(u64::from(ENTRIES)).weigher(weight).build_within(&budget);
        seconds.store(if is_over { TIME.as_secs() } else { 1 }, Relaxed);
        others(&second.unwrap(), ENTRIES / 2);
        let told = told.lock().unwrap();
        assert!(!told.is_empty() && told.iter().all(|(_, told)| *told == cause), "{told:?}");
    }
}

/// A cache that is dropped does not call its listener.
#[test]
fn a_dropped_cache_tells_nothing() {
    let (cache, told, all) = filled(|set| set.time_to_live(TIME), true);
    drop(cache);
    assert!(told.lock().unwrap().is_empty() && all.lock().unwrap().is_empty());
}
