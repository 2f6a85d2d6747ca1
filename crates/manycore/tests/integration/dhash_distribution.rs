//! When a distributed hash table changes its form, and what the change costs. (`dhash.rs` tests
//! that its answers stay the same.)

use crate::common::env;
use manycore::collections::{Contention, DHash, DHashBuilder, Distribution, DistributionReason};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

type Table = DHash<u32, u32, u32>;

fn add(sum: &mut u32, part: &mut u32) {
    *sum += *part;
}

#[test]
fn table_that_is_waited_for_spreads_and_one_thread_alone_never_does() {
    let _alone = env::alone();
    let table = Table::new();
    (0..100).for_each(|key| assert!(table.insert(key, key).is_none()));
    for round in 0..50_000 {
        table.with_local(&(round % 100), |_, part| *part += 1);
    }
    let stats = table.stats();
    assert!(
        !stats.is_distributed && stats.reason == DistributionReason::Built && table.replicas() == 0,
        "{stats}"
    );

    let over = AtomicBool::new(false);
    let added = thread::scope(|scope| {
        let adders: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    let mut added = 0;
                    while !over.load(Relaxed) {
                        // At times so long that others come in between, also on one busy core;
                        // they get in afterwards, and so it counts that they have waited.
                        let pause = || {
                            if added % 16 == 0 {
                                thread::sleep(Duration::from_micros(50));
                            }
                        };
                        table.with_local(&1, |_, part| {
                            *part += 1;
                            pause();
                        });
                        pause();
                        added += 1;
                    }
                    added
                })
            })
            .collect();
        let until = Instant::now() + Duration::from_secs(20);
        while !table.stats().is_distributed && Instant::now() < until {
            thread::sleep(Duration::from_millis(1));
        }
        over.store(true, Relaxed);
        adders.into_iter().map(|adder| adder.join().unwrap()).sum::<u32>()
    });
    let stats = table.stats();
    assert!(
        stats.is_distributed
            && stats.reason == DistributionReason::Contended
            && stats.distributions == 1,
        "{stats}"
    );
    assert!(stats.waits >= Contention::default().waits() && stats.hits == 1024, "{stats}");
    assert_eq!(table.gather(&1, 0, |sum, part| sum + *part), Some(added + 500));
    // One thread alone leaves it as it is.
    assert!((0..5_000).all(|_| table.get(&1).is_some()) && table.stats() == stats);
    assert!(table.fold(add) && table.replicas() == 0);
    let stats = table.stats();
    assert_eq!(
        (stats.is_distributed, stats.reason, stats.folds),
        (false, DistributionReason::Asked, 1)
    );
    assert_eq!(table.with_local(&1, |_, part| *part), Some(added + 500));
}

/// An element of a centralized table takes half the memory of an element with a part at one place.
#[test]
fn distributed_table_of_one_thread_is_twice_as_large() {
    let table = Table::new();
    (0..10_000).for_each(|key| assert!(table.insert(key, key).is_none()));
    (0..10_000).for_each(|key| assert_eq!(table.get(&key), Some(key)));
    let in_one = table.capacity();
    assert!(table.distribute());
    (0..10_000).for_each(|key| assert_eq!(table.get(&key), Some(key)));
    assert!(table.capacity() * 10 <= in_one * 22, "{} of {in_one}", table.capacity());
}

#[test]
fn fold_whose_merge_panics_loses_no_part() {
    let table = Table::new();
    table.insert(1, 1);
    table.with_local(&1, |_, part| *part += 1);
    table.distribute();
    let barrier = Barrier::new(3);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                table.with_local(&1, |_, part| *part += 10);
                barrier.wait();
            });
        }
    });
    let mut merges = 0;
    let attempt = AssertUnwindSafe(|| {
        table.fold(|sum, part| {
            merges += 1;
            assert!(merges < 2, "on purpose");
            *sum += *part;
        })
    });
    assert!(catch_unwind(attempt).is_err());
    assert_eq!(table.replicas(), 2);
    assert_eq!(table.gather(&1, 0, |sum, part| sum + *part), Some(31));
    assert!(table.fold(add));
    assert_eq!((table.replicas(), table.remove(&1)), (0, Some((1, vec![31]))));
}

/// Slots are found in two ways: the first 32 directly, later slots otherwise. All threads exist at
/// the same time, so that some have later slots.
#[test]
fn hits_by_forty_threads_are_complete_and_refuse_the_table() {
    const THREADS: usize = 40;
    let table: DHash<u32, u32, u64> =
        DHashBuilder::new().distribution(Distribution::Always).build();
    table.insert(1, 1);
    let together = Barrier::new(THREADS);
    let hit = || {
        table.with_local(&1, |_, hits| {
            *hits += 1;
            let nested = catch_unwind(AssertUnwindSafe(|| table.get(&1)));
            assert!(nested.is_err(), "a table was used from within a hit");
        })
    };
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                assert_eq!(hit(), Some(()));
                together.wait();
                assert_eq!(hit(), Some(()));
            });
        }
    });
    assert_eq!(table.gather(&1, 0, |sum, hits| sum + *hits), Some(2 * THREADS as u64));
    assert!(table.replicas() > 32, "some slots are later ones: {}", table.replicas());
}

/// The table behaves the same with one lock for all elements or with many.
#[test]
fn shards_divide_the_elements_and_change_nothing_else() {
    for shards in [0, 1, 3, 16, 100, 5000] {
        let builder = DHashBuilder::new().shards(shards);
        let table = builder.distribution(Distribution::Always).build::<u32, u32, u32>();
        thread::scope(|s| {
            for thread in 0..3 {
                let table = &table;
                s.spawn(move || {
                    (0..500).for_each(|key| _ = table.try_insert(key, key + 1));
                    let local = |key| table.with_local(&key, |_, own| *own += 1 + thread);
                    (0..500).for_each(|key| local(key).unwrap());
                });
            }
        });
        assert_eq!((table.len(), table.keys().len(), table.snapshot().len()), (500, 500, 500));
        let sum = |key| table.gather(&key, 0, |sum, own| sum + *own);
        assert!((0..500).all(|key| sum(key) == Some(6)), "{shards}");
        assert!(
            (0..250).all(|key| table.remove(&key).is_some_and(|(shared, _)| shared == key + 1))
        );
        assert_eq!(table.len(), 250);
        table.clear();
        assert_eq!((table.len(), table.replicas()), (0, 0), "{shards}");
    }
}
