//! Entries of different weights in one cache. With one thread and a fixed hash function, each run
//! is the same.

use manycore_cache::{Builder, Cache};
use std::hash::{BuildHasherDefault, DefaultHasher};

const CAPACITY: u64 = 16 << 20;
const LARGE: u32 = 1_000_000;
const SMALL: u32 = 100;

/// Returns a cache whose values are their weights.
fn cache(
    set: impl FnOnce(Builder<u64, u32>) -> Builder<u64, u32>,
) -> Cache<u64, u32, BuildHasherDefault<DefaultHasher>> {
    let hasher = BuildHasherDefault::<DefaultHasher>::default();
    set(Cache::builder(CAPACITY)).hasher(hasher).build().unwrap()
}

/// Returns the number of large entries.
fn large(cache: &Cache<u64, u32, BuildHasherDefault<DefaultHasher>>) -> usize {
    cache.iter().filter(|entry| **entry == LARGE).count()
}

#[test]
fn unused_large_entries_make_room_for_small_ones() {
    if cfg!(miri) {
        return;
    }
    for has_metadata in [true, false] {
        let weigh = |builder: Builder<u64, u32>| builder.weigher(|_, weight| *weight);
        let cache = cache(|builder| match has_metadata {
            true => weigh(builder),
            false => weigh(builder).without_metadata(|_, _| None),
        });
        (0..50).for_each(|key| _ = cache.insert(key, LARGE));
        assert_eq!(large(&cache), 16);
        (0..200_000).for_each(|key| _ = cache.insert(1 << 32 | key, SMALL));
        let (large, all) = (large(&cache), cache.len());
        println!("{large} large of {all}");
        // One may wait for the hand on probation, without a record (probation.Q1).
        assert!(large <= 1 && all > 150_000, "{large} large of {all}");
    }
}

#[test]
fn large_entries_in_use_stay() {
    if cfg!(miri) {
        return;
    }
    let cache = cache(|builder| builder.weigher(|_, weight| *weight));
    (0..10).for_each(|key| _ = cache.insert(key, LARGE));
    for key in 0..400_000 {
        cache.insert(1 << 32 | key, SMALL);
        if key % 2_000 == 0 {
            (0..10).for_each(|key| drop(cache.get(&key)));
        }
    }
    assert_eq!(large(&cache), 10);
}
