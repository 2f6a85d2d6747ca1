//! Maps and caches.

use crate::{Case, count};
use foldhash::fast::FixedState as Hasher;
use manycore::collections::{FlatHashMap, HashMap, OrderedMap};
use manycore_cache::Cache;
use parking_lot::Mutex;
use quick_cache::{UnitWeighter, sync::DefaultLifecycle};
use std::collections::BTreeMap;
use std::hint::black_box;

/// What a cache here has place for. The two hash with the same constants.
const CACHED: u64 = MAPPED;

fn full_cache() -> Cache<u64, u64, Hasher> {
    let cache = Cache::builder(CACHED).hasher(Hasher::default()).build().expect("a valid cache");
    (0..CACHED).for_each(|key| _ = cache.insert(key, 7));
    cache
}

fn full_quick_cache() -> quick_cache::sync::Cache<u64, u64, UnitWeighter, Hasher> {
    let lifecycle = DefaultLifecycle::default();
    let (items, hasher) = (CACHED as usize, Hasher::default());
    let cache = quick_cache::sync::Cache::with(items, CACHED, UnitWeighter, hasher, lifecycle);
    (0..CACHED).for_each(|key| cache.insert(key, 7));
    cache
}

/// What a map has in it. All of them hash with the same constants.
const MAPPED: u64 = 1000;

fn full_map() -> HashMap<u64, u64, Hasher> {
    let map = HashMap::with_hasher(Hasher::default());
    (0..MAPPED).for_each(|key| _ = map.insert(key, 7));
    map
}

fn full_flat_map() -> FlatHashMap<u64, u64, Hasher> {
    let map = FlatHashMap::with_hasher(Hasher::default());
    (0..MAPPED).for_each(|key| _ = map.insert(key, 7));
    map
}

fn full_dashmap() -> dashmap::DashMap<u64, u64, Hasher> {
    let map = dashmap::DashMap::with_hasher(Hasher::default());
    (0..MAPPED).for_each(|key| _ = map.insert(key, 7));
    map
}

fn full_papaya() -> papaya::HashMap<u64, u64, Hasher> {
    let map = papaya::HashMap::with_hasher(Hasher::default());
    (0..MAPPED).for_each(|key| _ = map.pin().insert(key, 7));
    map
}

/// Of even keys, so that those between them are absent.
fn full_ordered_map() -> OrderedMap<u64, u64> {
    let map = OrderedMap::new();
    (0..MAPPED).for_each(|key| _ = map.insert(2 * key, 7));
    map
}

fn full_b_tree() -> Mutex<BTreeMap<u64, u64>> {
    Mutex::new((0..MAPPED).map(|key| (2 * key, 7)).collect())
}

/// Calls `f` with each key of a full map or cache in turn.
fn count_by_key(mut f: impl FnMut(u64)) {
    let mut key = 0;
    count(move || {
        key = if key == MAPPED - 1 { 0 } else { key + 1 };
        f(black_box(key));
    });
}

pub static CASES: &[Case] = &[
    ("hash map get in a view", || {
        let map = full_map();
        let view = map.enter();
        count_by_key(|key| _ = black_box(view.get(&key)));
    }),
    ("hash map get in a view, absent", || {
        let map = full_map();
        let view = map.enter();
        count_by_key(|key| _ = black_box(view.get(&(MAPPED + key))));
    }),
    ("hash map get", || {
        let map = full_map();
        count_by_key(|key| _ = black_box(map.get_cloned(&key)));
    }),
    ("hash map insert over", || {
        let map = full_map();
        count_by_key(|key| _ = black_box(map.insert(key, 8)));
    }),
    ("hash map insert + remove", || {
        let map = full_map();
        count_by_key(|key| {
            black_box(map.insert(MAPPED + key, 8));
            black_box(map.remove(&(MAPPED + key)));
        });
    }),
    ("flat hash map get", || {
        let map = full_flat_map();
        count_by_key(|key| _ = black_box(map.get(&key)));
    }),
    ("flat hash map get, absent", || {
        let map = full_flat_map();
        count_by_key(|key| _ = black_box(map.get(&(MAPPED + key))));
    }),
    ("flat hash map insert over", || {
        let map = full_flat_map();
        count_by_key(|key| _ = black_box(map.insert(key, 8)));
    }),
    ("flat hash map insert + remove", || {
        let map = full_flat_map();
        count_by_key(|key| {
            black_box(map.insert(MAPPED + key, 8));
            black_box(map.remove(&(MAPPED + key)));
        });
    }),
    ("rival: papaya get in a pin", || {
        let map = full_papaya();
        let pin = map.pin();
        count_by_key(|key| _ = black_box(pin.get(&key)));
    }),
    ("rival: papaya get in a pin, absent", || {
        let map = full_papaya();
        let pin = map.pin();
        count_by_key(|key| _ = black_box(pin.get(&(MAPPED + key))));
    }),
    ("rival: papaya get", || {
        let map = full_papaya();
        count_by_key(|key| _ = black_box(map.pin().get(&key).copied()));
    }),
    ("rival: papaya insert over", || {
        let map = full_papaya();
        count_by_key(|key| _ = black_box(map.pin().insert(key, 8).is_none()));
    }),
    ("rival: papaya insert + remove", || {
        let map = full_papaya();
        count_by_key(|key| {
            black_box(map.pin().insert(MAPPED + key, 8).is_none());
            black_box(map.pin().remove(&(MAPPED + key)).is_some());
        });
    }),
    ("rival: dashmap get", || {
        let map = full_dashmap();
        count_by_key(|key| _ = black_box(map.get(&key).map(|found| *found)));
    }),
    ("rival: dashmap get, absent", || {
        let map = full_dashmap();
        count_by_key(|key| _ = black_box(map.get(&(MAPPED + key)).map(|found| *found)));
    }),
    ("rival: dashmap insert over", || {
        let map = full_dashmap();
        count_by_key(|key| _ = black_box(map.insert(key, 8)));
    }),
    ("rival: dashmap insert + remove", || {
        let map = full_dashmap();
        count_by_key(|key| {
            black_box(map.insert(MAPPED + key, 8));
            black_box(map.remove(&(MAPPED + key)));
        });
    }),
    ("ordered map get in a view", || {
        let map = full_ordered_map();
        let view = map.enter();
        count_by_key(|key| _ = black_box(view.get(&(2 * key))));
    }),
    ("ordered map get", || {
        let map = full_ordered_map();
        count_by_key(|key| _ = black_box(map.get_cloned(&(2 * key))));
    }),
    ("ordered map get, absent", || {
        let map = full_ordered_map();
        count_by_key(|key| _ = black_box(map.get_cloned(&(2 * key + 1))));
    }),
    ("ordered map insert over", || {
        let map = full_ordered_map();
        count_by_key(|key| _ = black_box(map.insert(2 * key, 8)));
    }),
    ("ordered map insert + remove", || {
        let map = full_ordered_map();
        count_by_key(|key| {
            black_box(map.insert(2 * key + 1, 8));
            black_box(map.remove(&(2 * key + 1)));
        });
    }),
    ("rival: parking_lot b-tree get", || {
        let map = full_b_tree();
        count_by_key(|key| _ = black_box(map.lock().get(&(2 * key)).copied()));
    }),
    ("rival: parking_lot b-tree get, absent", || {
        let map = full_b_tree();
        count_by_key(|key| _ = black_box(map.lock().get(&(2 * key + 1)).copied()));
    }),
    ("rival: parking_lot b-tree insert over", || {
        let map = full_b_tree();
        count_by_key(|key| _ = black_box(map.lock().insert(2 * key, 8)));
    }),
    ("rival: parking_lot b-tree insert + remove", || {
        let map = full_b_tree();
        count_by_key(|key| {
            black_box(map.lock().insert(2 * key + 1, 8));
            black_box(map.lock().remove(&(2 * key + 1)));
        });
    }),
    ("cache get", || {
        let cache = full_cache();
        count_by_key(|key| _ = black_box(cache.get(&key)));
    }),
    ("cache get, absent", || {
        let cache = full_cache();
        count_by_key(|key| _ = black_box(cache.get(&(CACHED + key))));
    }),
    ("cache insert over", || {
        let cache = full_cache();
        count_by_key(|key| _ = cache.insert(key, 8));
    }),
    ("cache insert, evicting", || {
        let cache = full_cache();
        let mut key = CACHED;
        count(|| {
            key += 1;
            cache.insert(black_box(key), 8);
        });
    }),
    ("rival: quick_cache get", || {
        let cache = full_quick_cache();
        count_by_key(|key| _ = black_box(cache.get(&key)));
    }),
    ("rival: quick_cache get, absent", || {
        let cache = full_quick_cache();
        count_by_key(|key| _ = black_box(cache.get(&(CACHED + key))));
    }),
    ("rival: quick_cache insert over", || {
        let cache = full_quick_cache();
        count_by_key(|key| cache.insert(key, 8));
    }),
    ("rival: quick_cache insert, evicting", || {
        let cache = full_quick_cache();
        let mut key = CACHED;
        count(|| {
            key += 1;
            cache.insert(black_box(key), 8);
        });
    }),
];
