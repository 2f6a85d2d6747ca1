//! Empty types, walks in time, and `catch_unwind`.

use manycore_cache::{Cache, Eviction};
use std::panic::{RefUnwindSafe, UnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
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

/// What an update evicts to make room is not the entry that it is about.
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
