//! Metrics: the library's, the baselines, and some written by hand.

use std::{
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use crossbeam_utils::CachePadded;
use manycore::collections::HistogramSnapshot;
use manycore_metrics::{Counter, Histogram, MetricRegistry, Recorder};
use metrics::{Key, Level, Metadata, Recorder as _};

use super::{Handle, Pairs};

/// The name of the counter.
pub(super) const REQUESTS: &str = "requests";

/// The name of the histogram, whose unit is a second.
pub(super) const LATENCY: &str = "latency";

/// The key that a macro would make once.
pub(super) static KEY: Key = Key::from_static_name(REQUESTS);

/// What a macro tells of its place.
pub(super) static PLACE: Metadata<'static> = Metadata::new("bench", Level::INFO, None);

/// From 1 us to 65 ms, in nanoseconds.
pub(super) fn latency(random: u64) -> u64 {
    1_000 + random % 65_536 * 1_000
}

/// The same in seconds.
pub(super) fn seconds(random: u64) -> f64 {
    Duration::from_nanos(latency(random)).as_secs_f64()
}

/// The value of a line of a report in Prometheus' text format; 0 without such a line.
pub(super) fn find(report: &str, name: &str) -> u64 {
    let value = |line: &str| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok();
    report.lines().find_map(value).unwrap_or(0)
}

fn locked<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    value.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The baseline of counters.
pub(super) struct Unshared(Mutex<u64>);

impl Pairs for Unshared {
    type Handle<'a> = MutexGuard<'a, u64>;

    fn new() -> Self {
        Self(Mutex::new(0))
    }

    fn handle(&self, _index: usize) -> MutexGuard<'_, u64> {
        locked(&self.0)
    }
}

impl Handle for MutexGuard<'_, u64> {
    #[inline]
    fn pair(&mut self, _random: u64) {
        **self += 1;
    }

    fn read(&mut self) -> u64 {
        **self
    }
}

/// One shared word.
pub(super) struct Word(CachePadded<AtomicU64>);

impl Pairs for Word {
    type Handle<'a> = &'a AtomicU64;

    fn new() -> Self {
        Self(CachePadded::default())
    }

    fn handle(&self, _index: usize) -> &AtomicU64 {
        &self.0
    }
}

impl Handle for &AtomicU64 {
    #[inline]
    fn pair(&mut self, _random: u64) {
        // ORDER: Relaxed; a number.
        self.fetch_add(1, Ordering::Relaxed);
    }

    fn read(&mut self) -> u64 {
        // ORDER: Relaxed; a number.
        self.load(Ordering::Relaxed)
    }
}

/// A counter that each thread keeps.
pub(super) struct Kept(MetricRegistry);

impl Pairs for Kept {
    type Handle<'a> = (std::sync::Arc<Counter>, &'a MetricRegistry);

    fn new() -> Self {
        Self(MetricRegistry::new())
    }

    fn handle(&self, _index: usize) -> Self::Handle<'_> {
        (self.0.counter(REQUESTS, &[]), &self.0)
    }
}

impl Handle for (std::sync::Arc<Counter>, &MetricRegistry) {
    #[inline]
    fn pair(&mut self, _random: u64) {
        self.0.inc();
    }

    fn read(&mut self) -> u64 {
        find(&self.1.render(), REQUESTS)
    }
}

/// A recorder for the crate `metrics`, and what it records into.
pub(super) struct Recording {
    registry: MetricRegistry,
    recorder: Recorder,
}

impl Recording {
    fn new() -> Self {
        let registry = MetricRegistry::new();
        let recorder = Recorder::new(&registry);
        Self { registry, recorder }
    }
}

/// Counted by a handle that each thread keeps.
pub(super) struct Recorded(Recording);

impl Pairs for Recorded {
    type Handle<'a> = (metrics::Counter, &'a MetricRegistry);

    fn new() -> Self {
        Self(Recording::new())
    }

    fn handle(&self, _index: usize) -> Self::Handle<'_> {
        (self.0.recorder.register_counter(&KEY, &PLACE), &self.0.registry)
    }
}

impl Handle for (metrics::Counter, &MetricRegistry) {
    #[inline]
    fn pair(&mut self, _random: u64) {
        self.0.increment(1);
    }

    fn read(&mut self) -> u64 {
        find(&self.1.render(), REQUESTS)
    }
}

/// Counted by a handle that is looked up each time.
pub(super) struct LookedUp(Recording);

impl Pairs for LookedUp {
    type Handle<'a> = &'a Recording;

    fn new() -> Self {
        Self(Recording::new())
    }

    fn handle(&self, _index: usize) -> &Recording {
        &self.0
    }
}

impl Handle for &Recording {
    #[inline]
    fn pair(&mut self, _random: u64) {
        self.recorder.register_counter(&KEY, &PLACE).increment(1);
    }

    fn read(&mut self) -> u64 {
        find(&self.registry.render(), REQUESTS)
    }
}

/// The baseline of histograms.
pub(super) struct Own(Mutex<HistogramSnapshot>);

impl Pairs for Own {
    type Handle<'a> = MutexGuard<'a, HistogramSnapshot>;

    fn new() -> Self {
        Self(Mutex::default())
    }

    fn handle(&self, _index: usize) -> Self::Handle<'_> {
        locked(&self.0)
    }
}

impl Handle for MutexGuard<'_, HistogramSnapshot> {
    #[inline]
    fn pair(&mut self, random: u64) {
        self.extend([latency(random)]);
    }

    fn read(&mut self) -> u64 {
        self.count()
    }
}

/// A histogram that each thread keeps.
pub(super) struct Timed(MetricRegistry);

impl Pairs for Timed {
    type Handle<'a> = (std::sync::Arc<Histogram>, &'a MetricRegistry);

    fn new() -> Self {
        Self(MetricRegistry::new())
    }

    fn handle(&self, _index: usize) -> Self::Handle<'_> {
        (self.0.histogram(LATENCY, &[]), &self.0)
    }
}

impl Handle for (std::sync::Arc<Histogram>, &MetricRegistry) {
    #[inline]
    fn pair(&mut self, random: u64) {
        self.0.record(seconds(random));
    }

    fn read(&mut self) -> u64 {
        find(&self.1.render(), "latency_count")
    }
}

/// Recorded by a handle that each thread keeps.
pub(super) struct RecordedTimes(Recording);

impl Pairs for RecordedTimes {
    type Handle<'a> = (metrics::Histogram, &'a MetricRegistry);

    fn new() -> Self {
        Self(Recording::new())
    }

    fn handle(&self, _index: usize) -> Self::Handle<'_> {
        let key = Key::from_static_name(LATENCY);
        (self.0.recorder.register_histogram(&key, &PLACE), &self.0.registry)
    }
}

impl Handle for (metrics::Histogram, &MetricRegistry) {
    #[inline]
    fn pair(&mut self, random: u64) {
        self.0.record(seconds(random));
    }

    fn read(&mut self) -> u64 {
        find(&self.1.render(), "latency_count")
    }
}

type Hdr = hdrhistogram::Histogram<u64>;

/// hdrhistogram with the error of ours, behind a lock.
pub(super) struct LockedHdr(Mutex<Hdr>);

impl Pairs for LockedHdr {
    type Handle<'a> = &'a Mutex<Hdr>;

    fn new() -> Self {
        Self(Mutex::new(Hdr::new(2).expect("two digits are a precision")))
    }

    fn handle(&self, _index: usize) -> &Mutex<Hdr> {
        &self.0
    }
}

impl Handle for &Mutex<Hdr> {
    #[inline]
    fn pair(&mut self, random: u64) {
        locked(self).record(latency(random)).expect("the histogram grows");
    }

    fn read(&mut self) -> u64 {
        locked(self).len()
    }
}

#[cfg(test)]
mod tests {
    use crate::pairs::{LATENCIES, METRICS};

    #[test]
    fn scrapes_of_all_metrics_crates_say_what_was_counted() {
        for entry in METRICS.iter().chain(LATENCIES) {
            assert_eq!((entry.conform)(), Ok(()), "{}", entry.name);
        }
    }
}
