//! The duration of single operations: a histogram of ticks, reported in nanoseconds.
//!
//! Owns: the scale between ticks and nanoseconds, the price of timing itself, and the histogram
//! (HDR: every figure is exact to one part in a thousand, whatever its size).
//!
//! A duration is the difference of two plain reads of the processor's clock. Such a pair costs
//! [`timing_ns`] by itself, and hides part of an operation that is shorter than that. Reported
//! quantiles include the price of the pair; reported means do not.

use std::{
    sync::OnceLock,
    time::{Duration, Instant},
};

use hdrhistogram::Histogram;

use crate::ticks;

/// Digits of a recorded time that are right.
const DIGITS: u8 = 3;

/// The longest time that is told from a longer one, in ticks: more than a second.
const LONGEST: u64 = 1 << 32;

/// Times of operations of one thread, or of several together.
pub struct Latencies(Histogram<u64>);

impl Latencies {
    /// No times yet.
    pub fn new() -> Self {
        // All the room from the start: growing in the middle of a run would be timed too.
        Self(Histogram::new_with_bounds(1, LONGEST, DIGITS).expect("the bounds are in order"))
    }

    /// Notes one time, in ticks.
    #[inline]
    pub fn record(&mut self, ticks: u64) {
        self.0.saturating_record(ticks);
    }

    /// Adds the times of another thread.
    pub fn merge(&mut self, other: &Self) {
        self.0.add(&other.0).expect("both have room for every time recorded");
    }

    /// How many times were noted.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// The time, in nanoseconds, that this share of all operations did not exceed.
    pub fn quantile_ns(&self, share: f64) -> f64 {
        self.0.value_at_quantile(share) as f64 * nanos_per_tick()
    }

    /// The longest time, in nanoseconds.
    pub fn max_ns(&self) -> f64 {
        self.0.max() as f64 * nanos_per_tick()
    }
}

impl Default for Latencies {
    fn default() -> Self {
        Self::new()
    }
}

/// Sums of times, for a mean that is free of the price of timing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mean {
    /// How many operations.
    pub count: u64,
    /// How many ticks they took together.
    pub ticks: u64,
}

impl Mean {
    /// Notes one time, in ticks.
    #[inline(always)]
    pub fn record(&mut self, ticks: u64) {
        self.count += 1;
        self.ticks += ticks;
    }

    /// Adds the sums of another thread.
    pub fn merge(&mut self, other: Self) {
        self.count += other.count;
        self.ticks += other.ticks;
    }

    /// Nanoseconds an operation, without the price of timing; zero if nothing was timed.
    pub fn ns(&self) -> f64 {
        let each = self.ticks as f64 * nanos_per_tick() / self.count.max(1) as f64;
        (each - timing_ns()).max(0.0)
    }
}

/// How many nanoseconds a tick lasts, measured once.
pub fn nanos_per_tick() -> f64 {
    static SCALE: OnceLock<f64> = OnceLock::new();
    *SCALE.get_or_init(|| {
        let (start, start_ticks) = (Instant::now(), ticks::now());
        std::thread::sleep(Duration::from_millis(20));
        let passed = ticks::now().wrapping_sub(start_ticks);
        start.elapsed().as_nanos() as f64 / passed.max(1) as f64
    })
}

/// What two readings of the clock with nothing between them differ by, in nanoseconds.
pub fn timing_ns() -> f64 {
    static PRICE: OnceLock<f64> = OnceLock::new();
    *PRICE.get_or_init(|| {
        let mut times = Latencies::new();
        for _ in 0..100_000 {
            let start = ticks::now();
            times.record(ticks::now().wrapping_sub(start));
        }
        // The median: an interrupt in between would distort a mean.
        times.quantile_ns(0.5)
    })
}

#[cfg(test)]
mod tests {
    use super::{Latencies, Mean, nanos_per_tick, timing_ns};

    #[test]
    fn quantiles_of_two_threads_are_those_of_all_times() {
        let (mut one, mut other) = (Latencies::new(), Latencies::new());
        (1..=500).for_each(|ticks| one.record(ticks));
        (501..=1000).for_each(|ticks| other.record(ticks));
        one.merge(&other);
        assert_eq!(one.count(), 1000);
        let near = |ns: f64, ticks: f64| (ns / nanos_per_tick() - ticks).abs() <= ticks / 500.0;
        assert!(near(one.quantile_ns(0.5), 500.0), "{}", one.quantile_ns(0.5));
        assert!(near(one.quantile_ns(0.99), 990.0), "{}", one.quantile_ns(0.99));
        assert!(near(one.max_ns(), 1000.0), "{}", one.max_ns());
    }

    #[test]
    fn a_time_beyond_the_histogram_counts_as_the_longest() {
        let mut times = Latencies::new();
        times.record(u64::MAX);
        assert!(times.count() == 1 && times.max_ns() > 1e8, "{}", times.max_ns());
    }

    #[test]
    fn a_mean_leaves_out_the_price_of_timing() {
        let mut mean = Mean::default();
        assert_eq!(mean.ns(), 0.0);
        let ticks = ((timing_ns() + 1000.0) / nanos_per_tick()) as u64;
        (0..10).for_each(|_| mean.record(ticks));
        assert!((mean.ns() - 1000.0).abs() < 10.0, "{}", mean.ns());
    }
}
