//! More objects with logs than their table has places: some are evicted, and no update is lost.

use crate::common::env;
use manycore::oplog::{Commuting, Deferred, LogTable, Logs, Op};
use std::sync::Arc;
use std::thread;

struct Add(u64);
impl Op<u64> for Add {
    fn apply(self, sum: &mut u64) {
        *sum += self.0;
    }
}

type Sum = Deferred<u64, Commuting<Add>>;

#[test]
fn eviction_bounds_the_objects_with_logs() {
    let table = Arc::new(LogTable::new(8));
    let builder = Sum::builder().logs(Logs::Always).table(Arc::clone(&table));
    let objects: Vec<Sum> = (0..1000).map(|_| builder.build(0).unwrap()).collect();
    let mut seed = 1_u64;
    let rounds = env::rounds(20_000);
    for _ in 0..rounds {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        objects[(seed >> 33) as usize % 1000].append(Add(1));
        assert!(table.hot_objects() <= 8);
    }
    assert!(table.evictions() > 1000);
    let with_logs = objects.iter().filter(|object| object.stats().logs > 0).count();
    assert!(with_logs <= 8, "{with_logs} objects have logs");
    let total: u64 = objects.into_iter().map(Deferred::into_inner).sum();
    assert_eq!(total, rounds as u64);
}

#[test]
fn forced_conflicts_between_threads_lose_nothing() {
    let table = Arc::new(LogTable::new(2));
    let builder = Sum::builder().logs(Logs::Always).table(Arc::clone(&table));
    let objects: Vec<Sum> = (0..16).map(|_| builder.build(0).unwrap()).collect();
    let rounds = env::rounds(10_000);
    thread::scope(|s| {
        for thread in 0..4_u64 {
            let objects = &objects;
            s.spawn(move || {
                let mut seed = thread + 1;
                for _ in 0..rounds {
                    seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    let object = &objects[(seed >> 33) as usize % 16];
                    match seed >> 59 {
                        0 => drop(object.read()),
                        1 => object.demote(),
                        _ => {}
                    }
                    object.append(Add(1));
                }
            });
        }
    });
    assert!(table.evictions() > 0);
    assert_eq!(objects.into_iter().map(Deferred::into_inner).sum::<u64>(), 4 * rounds as u64);
}
