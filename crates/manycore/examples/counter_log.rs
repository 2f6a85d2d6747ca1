//! The paper's second example (OpLog, figure 8): a log of one's own. A counter needs no list of
//! increments; one number per thread says it all. A read takes that number out of the log, so that
//! it can't count twice.
//!
//! (For a counter to use, take `manycore::collections::Counter`.)

use std::thread;

// begin: counter
use manycore::clock::Stamp;
use manycore::oplog::{Deferred, Log};

#[derive(Default)]
struct CounterLog {
    sum: i64,
    updates: usize,
}

impl Log<i64> for CounterLog {
    type Op = i64;
    const ORDERED: bool = false;
    fn apply(n: i64, total: &mut i64) {
        *total += n;
    }
    fn push(&mut self, n: i64, _: Stamp) {
        self.sum += n;
        self.updates += 1;
    }
    fn len(&self) -> usize {
        usize::from(self.updates > 0)
    }
    fn merge(logs: &mut [Self], total: &mut i64) -> usize {
        let logs = logs.iter_mut().map(std::mem::take);
        logs.map(|log| *total += log.sum).count()
    }
}
// end: counter

fn main() {
    let references = Deferred::<i64, CounterLog>::new(0);
    references.promote();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..100_000 {
                    references.append(1);
                    references.append(-1);
                }
                references.append(1);
            });
        }
        scope.spawn(|| {
            for _ in 0..100 {
                assert!((0..=8).contains(&*references.read()));
            }
        });
    });
    println!("references: {} after 800,004 updates by 4 threads", *references.read());
    assert_eq!(*references.read(), 4);
    assert_eq!(*references.read(), 4, "a second read counts nothing twice");
}
