//! Caches within one budget: the limit, which cache gives, and requests at bad moments.

use manycore::collections::BudgetTree;
use manycore_cache::{Cache, Cause};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread;

const LIMIT: u64 = 10_000;

fn budget() -> BudgetTree {
    BudgetTree::with_batch(LIMIT, 8)
}

fn within(budget: &BudgetTree, capacity: u64) -> Arc<Cache<u64, u32>> {
    let weigher = |_: &u64, weight: &u32| *weight;
    Cache::builder(capacity).weigher(weigher).build_within(budget).unwrap()
}

fn fill(cache: &Cache<u64, u32>, key: u64, weight: u32) {
    cache.insert(key, weight);
}

#[test]
fn cache_that_is_used_gets_what_one_that_is_not_holds() {
    let budget = budget();
    let (idle, busy) = (within(&budget, LIMIT), within(&budget, LIMIT));
    (0..LIMIT).for_each(|key| fill(&idle, key, 1));
    assert_eq!((idle.weight(), budget.used()), (LIMIT, LIMIT), "alone it may have all");
    for key in 0..LIMIT / 2 {
        busy.insert(key, 1);
        assert!(busy.get(&key).is_some());
        assert!(idle.weight() + busy.weight() <= LIMIT && budget.used() <= LIMIT);
    }
    assert_eq!(busy.stats().evictions, 0);
    assert!(idle.weight() >= LIMIT / 2 - 100, "{} are left", idle.weight());
    // Then the other cache is used.
    for key in LIMIT..2 * LIMIT {
        idle.insert(key, 1);
        (0..8).for_each(|_| assert!(idle.get(&key).is_some()));
    }
    assert!(idle.weight() > 8_000, "{} and {}", idle.weight(), busy.weight());
    drop(busy);
    let rest = LIMIT - budget.used();
    budget.charge(rest).map(drop).unwrap();
    drop(idle);
    assert_eq!(budget.used(), 0, "caches give all back at their end");
}

#[test]
fn cache_stays_within_its_own_capacity_and_gives_to_charges_of_others() {
    let budget = budget();
    let cache = within(&budget, 1000);
    (0..3000).for_each(|key| fill(&cache, key, 1));
    assert!(cache.weight() <= 1000 && cache.weight() > 900 && budget.used() <= 1000);
    cache.set_capacity(500);
    assert!(cache.weight() <= 500 && budget.used() <= 500);
    let all = budget.charge(LIMIT - 10).unwrap();
    assert!(cache.weight() <= 10);
    // With nothing left in the budget, the cache still works, with nothing in it but the entry that
    // is being inserted.
    let last = budget.charge(10).unwrap();
    assert!((0..1000).all(|key| {
        cache.insert(key, 1);
        cache.len() <= 1
    }));
    drop((all, last));
    (0..100).for_each(|key| fill(&cache, key, 5));
    assert!(cache.weight() > 400 && cache.weight() <= 500);
    assert_eq!(budget.set_limit(100), 0);
    assert!(cache.weight() <= 100);
}

#[test]
fn cache_gives_all_but_what_is_pinned() {
    crate::tasks::within(60, || {
        let budget = budget();
        let cache = within(&budget, LIMIT);
        // Entries that leave often weigh more than those that come, so capacity is left over.
        (0..LIMIT).for_each(|key| fill(&cache, key, 1 + key as u32 % 7));
        budget.charge(LIMIT).map(drop).unwrap();
        assert_eq!((cache.len(), budget.used()), (0, 0));
        fill(&cache, 1, 100);
        assert!(cache.pin(&1).is_some());
        assert!(budget.charge(LIMIT).is_err());
        assert!(cache.contains_key(&1));
    });
}

#[test]
fn capacity_that_segments_took_ahead_is_given_before_entries_and_no_more_than_asked() {
    let budget = budget();
    let cache = within(&budget, LIMIT);
    (0..LIMIT).for_each(|key| fill(&cache, key, 1));
    cache.invalidate_all();
    // While the pool is full, each of the eight segments takes 32 more than its first entry needs.
    (0..100).for_each(|key| fill(&cache, key, 1));
    // The pool has some tens left after that.
    fill(&cache, LIMIT, 9_700);
    assert_eq!((cache.len(), budget.used()), (101, LIMIT));
    let charged = budget.charge(100).unwrap();
    assert_eq!((cache.len(), cache.weight()), (101, 9_800), "unused capacity was enough");
    assert!(budget.used() > LIMIT - 20, "{} are used", budget.used());
    drop(charged);
    budget.charge(LIMIT).map(drop).unwrap();
    assert_eq!((cache.len(), budget.used()), (0, 0));
}

#[test]
fn entry_that_is_heavier_than_the_batch_gets_in() {
    let budget = budget();
    let (first, second) = (within(&budget, LIMIT), within(&budget, LIMIT));
    first.insert(1, 9_000);
    second.insert(1, 9_000);
    assert!(second.contains_key(&1) && !first.contains_key(&1));
    second.insert(2, 10_001);
    assert!(!second.contains_key(&2), "heavier than all");
    assert!(first.weight() + second.weight() <= LIMIT);
}

/// Requests for memory within callbacks: under a lock a cache gives nothing, and nothing hangs.
#[test]
fn inserting_into_another_cache_from_callbacks_works() {
    let budget = budget();
    let (first, second) = (within(&budget, LIMIT), within(&budget, LIMIT));
    (0..LIMIT).for_each(|key| fill(&first, key, 1));
    first.retain(|entry| {
        if entry.key() % 100 < 2 {
            second.insert(*entry.key(), 1); // under a lock of the first
        }
        entry.key() % 2 == 0
    });
    assert!(first.weight() + second.weight() <= LIMIT);
    let told = Arc::new(AtomicUsize::new(0));
    let (count, other) = (Arc::clone(&told), Arc::clone(&second));
    let third = Cache::builder(500)
        .listener(move |key: &u64, _: &u32, cause| {
            if cause == Cause::Evicted {
                other.insert(*key, 1);
                count.fetch_add(1, SeqCst);
            }
        })
        .build_within(&budget)
        .unwrap();
    (0..1_000).for_each(|key| fill(&third, key, 1));
    assert!(told.load(SeqCst) > 0);
    assert!(first.weight() + second.weight() + third.weight() <= LIMIT);
}

/// A listener panics while its cache gives memory: the insertion elsewhere is not done, and nothing
/// is lost.
#[test]
fn panic_of_a_listener_reaches_the_insertion_that_wanted_memory() {
    let budget = budget();
    let wild = Arc::new(AtomicBool::new(false));
    let is_wild = Arc::clone(&wild);
    let idle: Arc<Cache<u64, u32>> = Cache::builder(LIMIT)
        .listener(move |_, _, _| assert!(!is_wild.load(SeqCst), "planned"))
        .build_within(&budget)
        .unwrap();
    let busy = within(&budget, LIMIT);
    (0..LIMIT).for_each(|key| fill(&idle, key, 1));
    wild.store(true, SeqCst);
    let insert = || busy.insert(1, 5);
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(insert)).is_err());
    assert!(!busy.contains_key(&1));
    wild.store(false, SeqCst);
    insert();
    assert!(busy.contains_key(&1));
    assert!(idle.weight() + busy.weight() <= LIMIT && idle.weight() > LIMIT - 200);
    drop((idle, busy));
    assert_eq!(budget.used(), 0);
}

#[test]
fn caches_under_stress_keep_the_limit_and_lose_nothing() {
    const INSERTIONS: u64 = 20_000;
    let budget = BudgetTree::with_batch(2_000, 8);
    let caches = [within(&budget, 2_000), within(&budget, 1_500)];
    let running = AtomicUsize::new(3);
    thread::scope(|scope| {
        for thread in 0..2_u64 {
            let (caches, running) = (&caches, &running);
            scope.spawn(move || {
                for n in 0..INSERTIONS {
                    let key = n.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(17) % 4_000;
                    let cache = &caches[((n / 4_000 + thread) % 2) as usize];
                    if cache.get(&key).is_none() {
                        cache.insert(key, 1 + (key % 7) as u32);
                    }
                }
                running.fetch_sub(1, SeqCst);
            });
        }
        scope.spawn(|| {
            while running.load(SeqCst) > 1 {
                drop(budget.charge(300));
                assert!(budget.used() <= 2_000);
                thread::yield_now();
            }
        });
    });
    let used: u64 = caches.iter().map(|cache| cache.weight()).sum();
    assert!(used <= budget.used() && budget.used() <= 2_000, "{used} of {}", budget.used());
    drop(caches);
    assert_eq!(budget.used(), 0);
    budget.charge(2_000).map(drop).unwrap();
}
