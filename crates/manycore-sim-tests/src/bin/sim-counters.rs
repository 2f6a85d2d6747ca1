//! A shared counter, and the library's, under the same load: what the curve of a bad and of a good
//! structure look like. `sim-counters shared` or `sim-counters ours`, and how many additions.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    thread,
};

use manycore::collections::Counter;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let which = arguments.next().unwrap_or_default();
    let each: u64 = arguments.next().map_or(200, |text| text.parse().expect("a number"));
    let cores = thread::available_parallelism().expect("a number of cores").get();
    let (shared, ours) = (AtomicU64::new(0), Counter::new(0));
    ours.promote();
    let add = |count: u64| match which.as_str() {
        "shared" => (0..count).for_each(|_| {
            shared.fetch_add(1, Relaxed);
        }),
        _ => (0..count).for_each(|_| ours.add(1)),
    };
    let ready = std::sync::Barrier::new(cores + 1);
    thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                add(each); // each thread sets itself up
                ready.wait();
                ready.wait();
                add(each);
                manycore_sim::operations(each);
                ready.wait();
            });
        }
        ready.wait();
        manycore_sim::measured(|| {
            ready.wait();
            ready.wait();
        });
    });
    let total = 2 * each * cores as u64;
    let counted = if which == "shared" { shared.load(Relaxed) } else { ours.sum() as u64 };
    assert_eq!(counted, total);
    println!("{which}: {counted}");
}
