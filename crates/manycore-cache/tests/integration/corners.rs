//! Empty types, iteration over time, `catch_unwind`, and settings that are seldom used.

use manycore_cache::{Builder, Cache, Cause, Eviction};
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, RefUnwindSafe, UnwindSafe, catch_unwind, panic_any};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;

#[test]
fn keys_and_values_of_no_size_are_found_by_every_look_up() {
    let builders = [Cache::builder(10), Cache::builder(10).without_metadata(|_, ()| None)];
    for builder in builders {
        let cache: Cache<(), ()> = builder.build().unwrap();
        cache.insert((), ());
        cache.insert((), ());
        assert!(cache.get(&()).is_some() && cache.contains_key(&()));
        let mut found = 0;
        cache.get_many([(), ()].iter(), |_, entry| found += usize::from(entry.is_some()));
        cache.visit_many([()].iter(), |_, spot| found += usize::from(spot.get().is_some()));
        cache.prefetch([()].iter());
        assert_eq!((found, cache.iter().count(), cache.len()), (3, 1, 1));
        drop(cache.get_or_insert_with((), || ()));
        assert!(cache.remove(&()).is_some() && cache.is_empty());
        drop(cache.get_or_insert_with((), || ()));
        assert_eq!(cache.len(), 1);
    }
}

#[test]
fn a_walk_yields_nothing_that_has_expired_since_it_began() {
    let now = Arc::new(AtomicU64::new(0));
    let clock = now.clone();
    let cache: Cache<u32, u32> = Cache::builder(100)
        .time_to_live(Duration::from_secs(10))
        .clock(move || Duration::from_secs(clock.load(SeqCst)))
        .build()
        .unwrap();
    (0..10).for_each(|key| _ = cache.insert(key, key));
    let mut walk = cache.iter();
    assert!(walk.next().is_some());
    now.store(100, SeqCst);
    assert_eq!(walk.count(), 0);
}

fn crosses_panics<T: UnwindSafe + RefUnwindSafe>() {}

#[test]
fn a_cache_can_be_used_across_a_caught_panic() {
    crosses_panics::<Cache<String, Vec<u8>>>();
    let cache: Cache<u32, u32> = Cache::new(10);
    let caught = catch_unwind(|| *cache.get_or_insert_with(1, || panic!("as the test wants it")));
    assert!(caught.is_err());
    assert_eq!(*cache.get_or_insert_with(1, || 2), 2);
}

/// The payload of a panic, which panics again when it is dropped, unless it is the first.
struct Payload(u64);

impl Drop for Payload {
    fn drop(&mut self) {
        if self.0 != 0 {
            // What a destructor panics with is forgotten; this one has no memory to leak.
            panic_any(());
        }
    }
}

#[test]
fn of_many_panics_the_caller_gets_the_first_whatever_the_payloads_of_the_others_do() {
    let told = Arc::new(AtomicU64::new(0));
    let count = told.clone();
    // One bucket, whose entries leave together.
    let cache = Cache::builder(10)
        .initial_entries(1)
        .listener(move |_: &u32, _: &u32, _| panic_any(Payload(count.fetch_add(1, SeqCst))))
        .build()
        .unwrap();
    (0..3).for_each(|key| _ = cache.insert(key, key));
    let payload = catch_unwind(AssertUnwindSafe(|| cache.invalidate_all())).unwrap_err();
    assert_eq!(payload.downcast_ref::<Payload>().map(|payload| payload.0), Some(0));
    assert_eq!((told.load(SeqCst), cache.len()), (3, 0));
}

/// An update that makes room does not evict the entry that it is about.
#[test]
fn an_update_does_not_evict_its_own_entry() {
    for eviction in [Eviction::Clock, Eviction::ScanResistant] {
        let builder = Cache::builder(1000).eviction(eviction);
        let cache: Cache<u32, u32> = builder.weigher(|_, weight: &u32| *weight).build().unwrap();
        let mut updates = 0;
        for round in 0..20_000_u32 {
            let random = round.wrapping_mul(0x9e37_79b9) >> 8;
            let (key, weight) = (random % 16, 1 + random / 16 % 600);
            if cache.contains_key(&key) {
                let updated = cache.insert_if(key, weight, |entry| entry.is_some());
                assert!(updated.is_ok(), "{eviction:?}, round {round}");
                updates += 1;
            } else {
                cache.insert(key, weight);
            }
        }
        assert!(updates > 100, "{updates}");
    }
}

/// A cache of a hundred entries, or of entries that weigh, has no room for a million at first.
#[test]
fn a_new_cache_has_room_for_what_its_capacity_says() {
    let tables = |builder: Builder<u64, u64>| builder.build().unwrap().footprint().tables;
    let few = tables(Cache::builder(1_000));
    let weighed = tables(Cache::builder(1 << 30).weigher(|_, _| 1));
    let many = tables(Cache::builder(1 << 30));
    assert!((64..2 << 10).contains(&few), "{few} bytes of a few entries");
    assert!((32 << 10..1 << 20).contains(&weighed), "{weighed} bytes of entries that weigh");
    assert!((8 << 20..64 << 20).contains(&many), "{many} bytes of many entries");
    let asked = |builder: Builder<u64, u64>| tables(builder.initial_entries(100_000));
    for builder in [Cache::builder(1 << 30).weigher(|_, _| 1), Cache::builder(1 << 30)] {
        let found = asked(builder);
        assert!((1 << 20..4 << 20).contains(&found), "{found} bytes of 100,000 entries");
    }
    // There is no room for more entries than the cache can have.
    assert!(asked(Cache::builder(1_000)) < 32 << 10);
}

#[test]
fn the_parts_of_a_footprint_are_what_is_in_use() {
    let cache = Cache::builder(10_000).initial_entries(10).build().unwrap();
    (0..10_000_u64).for_each(|key| _ = cache.insert(key, key));
    let all = cache.footprint();
    assert!(all.entries >= 160_000 && all.tables > 0);
    assert_eq!(all.in_use(), all.entries + all.tables + all.chains);
    cache.invalidate_all();
    (0..4).for_each(|_| cache.collect());
    let none = cache.footprint();
    assert!(none.free >= 160_000 && none.entries < 80_000, "{none:?}");
    // Small caches share the memory of their entries: only the memory of this cache's entries is
    // counted. An entry takes its key, its value and 8 bytes, or 32 bytes if it expires.
    for (builder, more) in [
        (Cache::builder(1_000), 8),
        (Cache::builder(1_000).time_to_live(Duration::from_secs(1_000)), 32),
    ] {
        let few = builder.build().unwrap();
        (0..1_000_u64).for_each(|key| _ = few.insert(key, key));
        let few = few.footprint();
        assert_eq!((few.entries, few.free), (1_000 * (16 + more), 0));
    }
}

/// A key with the hash of all others.
#[derive(PartialEq, Eq)]
struct Same(u32);

impl Hash for Same {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

#[test]
fn a_footprint_counts_the_buckets_that_long_chains_take() {
    let cache = Cache::builder(100).initial_entries(100).build().unwrap();
    let chains = |keys: std::ops::Range<u32>| {
        keys.for_each(|key| _ = cache.insert(Same(key), key));
        cache.footprint().chains
    };
    assert_eq!(chains(0..7), 0);
    // Six entries are in each bucket that leads to another, and up to seven in the last one.
    assert_eq!([chains(7..13), chains(13..19), chains(19..25)], [64, 2 * 64, 3 * 64]);
}

/// An insertion that finds another key of its tag has evicted an entry before it goes the long way.
#[test]
fn a_full_cache_of_keys_with_one_hash_counts_every_entry_that_goes() {
    let cache = Cache::new(10);
    (0..30).for_each(|key| _ = cache.insert(Same(key), key));
    let (there, stats) = (cache.iter().count() as u64, cache.stats());
    assert!(there >= 9, "{there} are left");
    assert_eq!((cache.len() as u64, cache.weight()), (there, there));
    assert_eq!((stats.insertions, stats.evictions), (30, 30 - there));
}

/// For each bucket there is a word that remembers what was evicted, and a word of the queue.
#[test]
fn a_footprint_counts_what_probation_takes() {
    let tables = |eviction| {
        let builder = Cache::<u64, u64>::builder(1_000).initial_entries(1_000);
        builder.eviction(eviction).build().unwrap().footprint().tables
    };
    let (buckets, all) = (tables(Eviction::Clock), tables(Eviction::ScanResistant));
    let words = buckets / 64;
    assert_eq!(all - buckets, 4 * (words + words.next_power_of_two()));
}

#[test]
fn an_entry_weighs_what_it_owns_and_what_it_takes_here() {
    let builder = Cache::builder(1 << 20).byte_weigher(|_: &u64, owned: &Vec<u8>| owned.capacity());
    let cache = builder.build().unwrap();
    cache.insert(1, Vec::new());
    // Key and value take 32 bytes, and so does the metadata; the table takes the rest.
    let least = cache.weight();
    assert!((64 + 20..200).contains(&least), "{least}");
    cache.insert(2, Vec::with_capacity(5_000));
    assert_eq!(cache.weight(), 2 * least + 5_000);
}

#[test]
fn a_listener_hears_of_each_cause_that_it_asked_for_and_of_no_other() {
    let told = Arc::new(Mutex::new(Vec::new()));
    let listener = told.clone();
    let cache = Cache::builder(10)
        .listener(move |key: &u32, _: &u32, cause| listener.lock().unwrap().push((*key, cause)))
        // Naming a cause twice is the same as once.
        .listener_causes(&[Cause::Removed, Cause::Replaced, Cause::Removed])
        .build()
        .unwrap();
    (0..20).for_each(|key| _ = cache.insert(key, 0));
    let there: Vec<u32> = cache.iter().map(|entry| *entry.key()).collect();
    cache.insert(there[0], 1);
    assert!(cache.remove(&there[1]).is_some());
    let expected = [(there[0], Cause::Replaced), (there[1], Cause::Removed)];
    assert_eq!(*told.lock().unwrap(), expected);
}

#[test]
fn a_guard_of_a_batch_outlives_the_visit_and_is_of_the_batch_s_cache() {
    let (cache, other) = (Cache::new(100), Cache::new(100));
    cache.insert(1, 'a');
    other.insert(1, 'b');
    let mut kept = Vec::new();
    cache.visit_many([1, 2].iter(), |_, key| kept.push(key.guard(&cache)));
    assert!(cache.remove(&1).is_some());
    let kept: Vec<_> = kept.iter().map(|guard| guard.as_deref().copied()).collect();
    assert_eq!(kept, [Some('a'), None]);
    let of_another = || cache.visit_many([1].iter(), |_, key| drop(key.guard(&other)));
    assert!(catch_unwind(AssertUnwindSafe(of_another)).is_err());
}

#[test]
fn every_value_that_waited_for_a_guard_is_dropped() {
    let value = Arc::new(());
    let cache = Cache::new(100);
    let insert = |times: u32| (0..times).for_each(|n| _ = cache.insert(n % 50, value.clone()));
    insert(50);
    for _ in 0..3 {
        let held = cache.get(&1);
        insert(1_000);
        drop(held);
        insert(1_000);
    }
    drop(cache);
    assert_eq!(Arc::strong_count(&value), 1);
}

#[test]
fn what_another_thread_kept_from_being_freed_is_freed_by_collect() {
    let value = Arc::new(());
    let cache = Cache::new(100);
    cache.insert(1, value.clone());
    let step = Barrier::new(2);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let held = cache.get(&1);
            step.wait();
            step.wait();
            drop(held);
            step.wait();
        });
        step.wait();
        cache.insert(1, Arc::default());
        cache.collect();
        assert_eq!(Arc::strong_count(&value), 2, "the reader has it");
        step.wait();
        step.wait();
        // A grace period is over when a later round finds no reader.
        (0..4).for_each(|_| cache.collect());
        assert_eq!(Arc::strong_count(&value), 1);
    });
}

/// An insertion makes a larger table when the entries no longer fit, so that chains stay short.
#[test]
fn tables_grow_with_their_entries_and_no_more_than_they_need() {
    let builder = Cache::builder(1 << 20).weigher(|_: &u64, _: &u64| 1);
    for cache in [builder.initial_entries(1), Cache::builder(1 << 20).initial_entries(1)] {
        let cache = cache.build().unwrap();
        let mut entries = 0;
        for most in [10_000, 30_000, 100_000] {
            (entries..most).for_each(|key| _ = cache.insert(key, key));
            entries = most;
            let all = cache.footprint();
            let each = (all.tables + all.chains) / entries;
            assert!((8..40).contains(&each), "{each} bytes of each of {entries}: {all:?}");
            assert!(all.chains < all.tables / 2, "{entries}: {all:?}");
        }
        // Some buckets have no room for all entries that belong there.
        let all = cache.footprint();
        assert!(all.chains > all.tables / 50 && all.chains % 64 == 0, "{all:?}");
    }
}

/// All segments share one capacity: what an entry's own segment lacks, others give.
#[test]
fn an_entry_that_weighs_nearly_all_makes_room_in_every_segment() {
    const ALL: u64 = 16_384;
    let builder = Cache::builder(ALL).weigher(|_: &u32, weight: &u32| *weight);
    let cache = builder.build().unwrap();
    for round in 0..3_u32 {
        // An evicted entry often weighs more than the next one needs, so that segments have spare
        // capacity.
        (0..20_000).for_each(|key| _ = cache.insert(key, 1 + key % 7));
        assert!(cache.weight() <= ALL && cache.weight() > ALL / 2, "{}", cache.weight());
        let (heavy, weight) = (100_000 + round, ALL as u32 - 100);
        cache.insert(heavy, weight);
        assert_eq!(cache.get(&heavy).as_deref(), Some(&weight));
        let sum: u64 = cache.iter().map(|entry| u64::from(*entry)).sum();
        assert_eq!((cache.weight(), cache.iter().count()), (sum, cache.len()));
        assert!(sum <= ALL, "{sum}");
        assert!(cache.remove(&heavy).is_some());
        assert_eq!(cache.weight(), sum - u64::from(weight));
    }
}

#[test]
fn a_dropped_cache_drops_what_is_in_it() {
    let value = Arc::new(());
    let builders: [Builder<u32, Arc<()>>; 5] = [
        Cache::builder(100),
        Cache::builder(100).time_to_live(Duration::from_secs(100)),
        Cache::builder(5_000),
        Cache::builder(5_000).weigher(|_, _| 1),
        Cache::builder(5_000).without_metadata(|_, _| None),
    ];
    for (at, builder) in builders.into_iter().enumerate() {
        let cache = builder.build().unwrap();
        (0..1_000).for_each(|key| _ = cache.insert(key, value.clone()));
        (0..1_000).for_each(|key| _ = cache.insert(key, value.clone()));
        assert!(Arc::strong_count(&value) > 100);
        drop(cache);
        assert_eq!(Arc::strong_count(&value), 1, "{at}");
    }
}

#[test]
fn no_two_entries_have_one_version_whichever_threads_insert_them() {
    let cache = Cache::<u32, u32>::new(10);
    // These are more versions than a thread takes at a time.
    let versions = |key| (0..70_000).map(|at| cache.insert(key, at)).collect::<Vec<_>>();
    let mut all = std::thread::scope(|scope| {
        let threads = [1, 2].map(|key| scope.spawn(move || versions(key)));
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    assert!(!all.contains(&0));
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 140_000);
}

#[test]
fn tables_become_smaller_if_less_than_half_of_the_capacity_is_left() {
    let cache = Cache::<u64, u64>::builder(40_000).initial_entries(40_000).build().unwrap();
    let tables = || cache.footprint().tables;
    let full = tables();
    cache.set_capacity(20_000);
    assert_eq!(tables(), full);
    cache.set_capacity(9_999);
    let less = tables();
    assert!(less < full / 2, "{less} of {full}");
    cache.set_capacity(80_000);
    assert_eq!(tables(), less, "they grow with their entries");
    cache.set_capacity(15_000);
    assert_eq!(tables(), less, "they do not grow with the capacity");
}
