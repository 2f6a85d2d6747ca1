//! Counters: nothing lost, nothing twice, through promotion, demotion and eviction.

use manycore::collections::{Counter, CounterArray};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::SeqCst};
use std::thread;

#[test]
fn cold_counter_is_sixteen_bytes_and_exact() {
    assert_eq!(size_of::<Counter>(), 16);
    let counter = Counter::new(5);
    counter.add(10);
    counter.dec();
    counter.inc();
    assert_eq!(counter.sum(), 15);
    assert!(!counter.is_hot());
}

#[test]
fn hot_counter_counts_every_thread() {
    let counter = Counter::new(0);
    assert!(counter.promote());
    thread::scope(|s| {
        for _ in 0..40 {
            s.spawn(|| (0..10_000).for_each(|_| counter.inc()));
        }
    });
    assert_eq!(counter.sum(), 400_000);
    counter.demote();
    assert!(!counter.is_hot());
    assert_eq!(counter.sum(), 400_000);
}

#[test]
fn second_read_does_not_count_twice() {
    let counter = Counter::new(1);
    counter.promote();
    counter.add(2);
    assert_eq!([counter.sum(), counter.sum(), counter.sum()], [3, 3, 3]);
}

#[test]
fn contention_promotes_and_idleness_demotes() {
    let counter = Counter::new(0);
    let total = AtomicI64::new(0);
    thread::scope(|s| {
        for _ in 0..2 {
            s.spawn(|| {
                let mut mine = 0;
                while !counter.is_hot() && mine < 200_000_000 {
                    counter.inc();
                    mine += 1;
                }
                total.fetch_add(mine, SeqCst);
            });
        }
    });
    assert!(counter.is_hot(), "two contending threads never promoted the counter");
    for _ in 0..20 {
        assert_eq!(counter.sum(), total.load(SeqCst));
    }
    assert!(!counter.is_hot(), "twenty idle reads did not demote it");
}

#[test]
fn reads_never_go_back_while_the_counter_changes_its_form() {
    let counter = Counter::new(0);
    let stop = AtomicBool::new(false);
    let total: i64 = thread::scope(|s| {
        let adders: Vec<_> = (0..3)
            .map(|_| {
                s.spawn(|| {
                    let mut mine = 0;
                    while !stop.load(SeqCst) {
                        counter.inc();
                        mine += 1;
                    }
                    mine
                })
            })
            .collect();
        s.spawn(|| {
            let mut last = 0;
            for round in 0..2000 {
                if round % 3 == 0 {
                    counter.promote();
                } else if round % 3 == 1 {
                    counter.demote();
                }
                let now = counter.sum();
                assert!(now >= last, "{now} after {last}");
                last = now;
            }
            stop.store(true, SeqCst);
        });
        adders.into_iter().map(|adder| adder.join().unwrap()).sum()
    });
    assert_eq!(counter.sum(), total);
}

#[test]
fn more_hot_counters_than_the_table_has_places() {
    let counters: Vec<Counter> = (0..20_000).map(|_| Counter::new(0)).collect();
    thread::scope(|s| {
        for thread in 0..3_usize {
            let counters = &counters;
            s.spawn(move || {
                for round in 0..3 {
                    for (i, counter) in counters.iter().enumerate() {
                        if (i + thread + round) % 4 == 0 {
                            counter.promote();
                        }
                        counter.inc();
                    }
                }
            });
        }
    });
    assert!(counters.iter().all(|counter| counter.sum() == 9));
    let hot = counters.iter().filter(|counter| counter.is_hot()).count();
    assert!(hot > 0, "none was ever promoted");
}

#[test]
fn array_keeps_its_counters_apart() {
    for hot in [false, true] {
        let array = CounterArray::new(37);
        if hot {
            assert!(array.promote());
        }
        thread::scope(|s| {
            for _ in 0..3 {
                s.spawn(|| (0..3700).for_each(|i| array.add(i % 37, (i % 37) as i64)));
            }
        });
        let expected: Vec<i64> = (0..37).map(|i| i * 300).collect();
        assert_eq!(array.snapshot(), expected);
        assert_eq!(array.sum(36), 36 * 300);
        array.demote();
        assert_eq!(array.snapshot(), expected);
    }
}

#[test]
fn overflow_wraps() {
    let counter = Counter::new(i64::MAX);
    counter.promote();
    counter.inc();
    assert_eq!(counter.sum(), i64::MIN);
}

#[test]
#[should_panic(expected = "no counter 3 of 3")]
fn array_refuses_a_counter_it_does_not_have() {
    CounterArray::new(3).add(3, 1);
}
