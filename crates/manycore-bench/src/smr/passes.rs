//! The passes over a trace: sections alone, the rate, and the times of single operations.

use std::{
    hint::black_box,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use crossbeam_utils::CachePadded;

use super::{Counts, NODE_BYTES, Read, SLOTS, Scheme, SchemeHandle, Setup, Shape, Trace, value_of};
use crate::{
    latency::{Latencies, Mean},
    runner::{Control, Subject, Tally, total_rate},
    ticks,
};

/// Operations between two looks at the stop flag, and between two rests.
const BATCH: usize = 64;

/// Updates of a thread between two samples of what is not yet reclaimed.
const SAMPLE_EVERY: u64 = 64;

/// Runs end by themselves; this is for those that could not.
const NO_LIMIT: Duration = Duration::from_secs(24 * 60 * 60);

/// A table and its counts.
struct Table<S> {
    scheme: S,
    counts: &'static Counts,
}

impl<S: Scheme> Table<S> {
    fn new(threads: usize) -> Self {
        let counts = Counts::leak(threads);
        Self { scheme: S::new(Setup { threads, counts }), counts }
    }
}

/// Enter and leave, nothing else.
pub(super) struct Sections<S> {
    table: Table<S>,
    shape: Shape,
}

impl<S: Scheme> Sections<S> {
    pub(super) fn new(shape: Shape) -> Self {
        Self { table: Table::new(shape.threads), shape }
    }
}

impl<S: Scheme> Subject for Sections<S> {
    fn duration(&self) -> Option<Duration> {
        Some(self.shape.at_most.unwrap_or(NO_LIMIT))
    }

    fn work(&self, index: usize, control: &Control) -> Tally {
        let _lane = self.table.counts.enlist(index);
        let mut handle = self.table.scheme.handle(index);
        let mut left = (self.shape.ops / self.shape.threads).max(1) as u64;
        control.drive(|| {
            let count = left.min(16 * BATCH as u64);
            handle.sections(index % SLOTS, count);
            handle.rest();
            left -= count;
            if left == 0 {
                control.finish();
            }
            count
        })
    }
}

/// The trace as fast as it goes.
pub(super) struct Rate<S> {
    table: Table<S>,
    trace: Arc<Trace>,
    shape: Shape,
}

impl<S: Scheme> Rate<S> {
    pub(super) fn new(shape: Shape) -> Self {
        let trace = Trace::shared(shape.ops, shape.update);
        Self { table: Table::new(shape.threads), trace, shape }
    }
}

impl<S: Scheme> Subject for Rate<S> {
    fn duration(&self) -> Option<Duration> {
        Some(self.shape.at_most.unwrap_or(NO_LIMIT))
    }

    fn work(&self, index: usize, control: &Control) -> Tally {
        let _lane = self.table.counts.enlist(index);
        let mut handle = self.table.scheme.handle(index);
        let mut parts = self.trace.part(index, self.shape.threads).chunks(BATCH);
        let (mut number, mut digest) = (0, 0);
        let tally = control.drive(|| {
            let Some(ops) = parts.next() else {
                control.finish();
                return 0;
            };
            digest ^= handle.run(ops, self.shape.read, &mut number);
            handle.rest();
            ops.len() as u64
        });
        black_box(digest);
        tally
    }

    fn figure(&self, metric: &str, tallies: &[Tally]) -> Option<f64> {
        // The trace is uniform: any stretch of it has this share, but for a few in a thousand.
        let updates = self.trace.update_share();
        let rate = total_rate(tallies) / 1e6;
        match metric {
            "reads" => Some(rate * (1.0 - updates)),
            "updates" => Some(rate * updates),
            _ => None,
        }
    }
}

/// What the threads of a timed run saw.
#[derive(Default)]
struct Seen {
    all: Latencies,
    reads: Mean,
    updates: Mean,
    unreclaimed: u64,
}

/// The trace with each operation timed.
pub(super) struct Times<S> {
    table: Table<S>,
    trace: Arc<Trace>,
    shape: Shape,
    /// Apart from the table, which others still read when the first threads are done.
    seen: CachePadded<Mutex<Seen>>,
}

impl<S: Scheme> Times<S> {
    pub(super) fn new(shape: Shape) -> Self {
        let trace = Trace::shared(shape.ops, shape.update);
        Self { table: Table::new(shape.threads), trace, shape, seen: CachePadded::default() }
    }

    /// Does some operations and notes how long each took.
    fn timed(&self, handle: &mut S::Handle<'_>, ops: &[super::Op], own: &mut Seen) {
        for &op in ops {
            let start = ticks::now();
            if op.is_update() {
                handle.update(op.slot(), value_of(op.slot(), own.updates.count + 1));
            } else if self.shape.read == Read::Node {
                black_box(handle.read(op.slot()));
            } else {
                handle.empty(op.slot());
            }
            let took = ticks::now().wrapping_sub(start);
            own.all.record(took);
            if !op.is_update() {
                own.reads.record(took);
                continue;
            }
            own.updates.record(took);
            if own.updates.count.is_multiple_of(SAMPLE_EVERY) {
                own.unreclaimed = own.unreclaimed.max(self.table.counts.unreclaimed());
            }
        }
    }
}

impl<S: Scheme> Subject for Times<S> {
    fn duration(&self) -> Option<Duration> {
        Some(self.shape.at_most.unwrap_or(NO_LIMIT))
    }

    fn work(&self, index: usize, control: &Control) -> Tally {
        let _lane = self.table.counts.enlist(index);
        let mut handle = self.table.scheme.handle(index);
        let mut parts = self.trace.part(index, self.shape.threads).chunks(BATCH);
        let mut own = Seen::default();
        handle.empty(index % SLOTS); // what a thread does at its first use is not timed
        let tally = control.drive(|| {
            let Some(ops) = parts.next() else {
                control.finish();
                return 0;
            };
            self.timed(&mut handle, ops, &mut own);
            handle.rest();
            ops.len() as u64
        });
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.all.merge(&own.all);
        seen.reads.merge(own.reads);
        seen.updates.merge(own.updates);
        seen.unreclaimed = seen.unreclaimed.max(own.unreclaimed);
        tally
    }

    fn figure(&self, metric: &str, _: &[Tally]) -> Option<f64> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        match metric {
            "p50" => Some(seen.all.quantile_ns(0.5)),
            "p99" => Some(seen.all.quantile_ns(0.99)),
            "p99.9" => Some(seen.all.quantile_ns(0.999)),
            "max" => Some(seen.all.max_ns()),
            "read" => Some(seen.reads.ns()),
            "update" => Some(seen.updates.ns()),
            "unreclaimed" => Some(seen.unreclaimed as f64),
            "unreclaimed-kb" => Some((seen.unreclaimed * NODE_BYTES as u64) as f64 / 1e3),
            _ => None,
        }
    }
}
