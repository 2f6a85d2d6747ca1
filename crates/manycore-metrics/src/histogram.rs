//! The distribution of numbers, reported in buckets or as quantiles.

use crate::window::Window;
use manycore::collections::{self, HistogramSnapshot};
use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The default bounds of Prometheus' own clients, for latencies in seconds.
const BOUNDS: &[f64] = &[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// Nanoseconds in a second.
const PER_UNIT: f64 = 1e9;

/// How a [`Histogram`] counts, and what it reports.
///
/// ```
/// use manycore_metrics::{Histogram, HistogramOptions};
///
/// let bytes = HistogramOptions::new().resolution(1.0).buckets([1e3, 1e6, 1e9]);
/// let sizes = Histogram::with_options(bytes);
/// sizes.record(1_500.0);
/// assert_eq!(sizes.read().buckets(), [(1e3, 0), (1e6, 1), (1e9, 1)]);
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct HistogramOptions {
    per_unit: f64,
    bounds: Cow<'static, [f64]>,
    quantiles: Cow<'static, [f64]>,
    window: Duration,
}

impl HistogramOptions {
    /// Creates the default options: a resolution of 10^-9 (nanoseconds, if the unit is a second),
    /// and the buckets of Prometheus' clients for latencies, 5 ms to 10 s.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            per_unit: PER_UNIT,
            bounds: Cow::Borrowed(BOUNDS),
            quantiles: Cow::Borrowed(&[]),
            window: Duration::from_secs(60),
        }
    }

    /// Sets the smallest difference that counts. Values range from 0 to 1.8 * 10^19 times the
    /// resolution. For bytes use 1.
    ///
    /// # Panics
    /// If it is not a positive number.
    #[must_use]
    pub fn resolution(mut self, resolution: f64) -> Self {
        assert!(resolution > 0.0, "manycore-metrics: {resolution} is no resolution");
        self.per_unit = 1.0 / resolution;
        self
    }

    /// Sets the upper bounds of the buckets, in any order. Infinity is always added.
    #[must_use]
    pub fn buckets(mut self, bounds: impl Into<Vec<f64>>) -> Self {
        let mut bounds: Vec<f64> = bounds.into();
        bounds.retain(|bound| bound.is_finite());
        bounds.sort_by(f64::total_cmp);
        bounds.dedup();
        self.bounds = bounds.into();
        self
    }

    /// Reports these quantiles, from 0.0 to 1.0, instead of buckets: a *summary* in Prometheus'
    /// terms. They cover the values of the last minute ([`window`](Self::window)).
    ///
    /// Quantiles of several processes cannot be combined; buckets can.
    ///
    /// # Panics
    /// If a quantile is not between 0 and 1.
    #[must_use]
    pub fn quantiles(mut self, quantiles: impl Into<Vec<f64>>) -> Self {
        let quantiles: Vec<f64> = quantiles.into();
        for q in &quantiles {
            assert!((0.0..=1.0).contains(q), "manycore-metrics: {q} is no quantile from 0 to 1");
        }
        self.quantiles = quantiles.into();
        self
    }

    /// Sets how far quantiles look back: at least this long, and longer by at most a quarter of it
    /// plus the time between two reports.
    #[must_use]
    pub fn window(mut self, window: Duration) -> Self {
        self.window = window;
        self
    }

    pub(crate) fn bounds(&self) -> &[f64] {
        &self.bounds
    }

    pub(crate) fn quantiles_asked(&self) -> &[f64] {
        &self.quantiles
    }

    /// Returns true if quantiles are reported instead of buckets.
    pub(crate) fn has_quantiles(&self) -> bool {
        !self.quantiles.is_empty()
    }
}

/// Converts to units of the resolution. Negative values become zero, too large ones the maximum.
#[inline]
fn scaled(value: f64, per_unit: f64) -> u64 {
    (value * per_unit + 0.5) as u64
}

impl Default for HistogramOptions {
    fn default() -> Self {
        Self::new()
    }
}

/// The distribution of numbers that many threads record: latencies, sizes.
///
/// - Error: [`manycore::collections::Histogram`] counts values within 1.6 % of the value and half
///   of the [resolution](HistogramOptions::resolution). The same holds for quantiles and the sum. A
///   value that exceeds a bucket's bound by at most 3.2 % may count as below it.
/// - Consistency: a report counts every value that was recorded before it, and any subset of the
///   concurrent ones. Counts and the sum never decrease.
/// - Cost of [`record`](Self::record): a multiplication, some instructions for the bucket, and a
///   counter's `add`. While the histogram is hot (contended), no shared cache line is written. A
///   report reads the non-zero counts, in about a microsecond. While hot it reads 1920 sums, in
///   some tens of microseconds.
/// - Memory: 184 bytes, plus 128 for each four doublings and 64 for each quarter of a doubling in
///   which values were recorded. That is some 900 bytes with ten values within a factor of four,
///   and at most 18 KiB. While hot 15 KiB more, and as much for each thread. With quantiles up to
///   six snapshots more, each with 72 bytes for such a quarter.
///
/// ```
/// use manycore_metrics::Histogram;
/// use std::time::Duration;
///
/// static LATENCY: Histogram = Histogram::new();
///
/// LATENCY.record(0.007); // seconds
/// LATENCY.record_duration(Duration::from_micros(300));
/// let seen = LATENCY.read();
/// assert_eq!(seen.count(), 2);
/// assert!((seen.sum() - 0.0073).abs() < 0.016 * 0.0073);
/// assert_eq!(seen.buckets()[..2], [(0.005, 1), (0.01, 2)]);
/// ```
pub struct Histogram {
    values: collections::Histogram,
    /// Copied from the options.
    per_unit: f64,
    /// `None` for the default options.
    options: Option<Arc<HistogramOptions>>,
    window: Mutex<Window>,
}

static DEFAULT: HistogramOptions = HistogramOptions::new();

impl Histogram {
    /// Creates an empty histogram with the default options.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            values: collections::Histogram::new(),
            per_unit: PER_UNIT,
            options: None,
            window: Mutex::new(Window::new()),
        }
    }

    /// Creates an empty histogram with these options.
    #[must_use]
    pub fn with_options(options: HistogramOptions) -> Self {
        Self::sharing_options(Arc::new(options))
    }

    /// Like [`with_options`](Self::with_options). Histograms of one name share their options.
    pub(crate) fn sharing_options(options: Arc<HistogramOptions>) -> Self {
        Self { per_unit: options.per_unit, options: Some(options), ..Self::new() }
    }

    /// Returns how it counts and what it reports.
    #[must_use]
    pub fn options(&self) -> &HistogramOptions {
        self.options.as_deref().unwrap_or(&DEFAULT)
    }

    /// Counts a value. A negative value counts as zero; NaN is ignored.
    #[doc(alias = "observe")]
    #[inline]
    pub fn record(&self, value: f64) {
        self.record_n(value, 1);
    }

    /// Counts a value `times` times.
    #[inline]
    pub fn record_n(&self, value: f64, times: u64) {
        if !value.is_nan() {
            self.values.record_n(scaled(value, self.per_unit), times);
        }
    }

    /// Counts a duration, in seconds.
    #[inline]
    pub fn record_duration(&self, duration: Duration) {
        self.record(duration.as_secs_f64());
    }

    /// Returns what the histogram reports now.
    #[must_use]
    pub fn read(&self) -> HistogramReading {
        self.read_at(Instant::now())
    }

    /// Returns what the histogram reports now, without quantiles.
    #[cfg(feature = "opentelemetry")]
    pub(crate) fn read_counts(&self) -> HistogramReading {
        self.reading_of(&self.values.snapshot())
    }

    fn read_at(&self, now: Instant) -> HistogramReading {
        let options = self.options();
        let seen = self.values.snapshot();
        let mut reading = self.reading_of(&seen);
        if options.has_quantiles() {
            let mut window = self.window.lock().unwrap_or_else(PoisonError::into_inner);
            let recent = window.advance(seen, now, options.window);
            let value = |&q: &f64| (q, quantile_of(&recent, q, options.per_unit));
            reading.quantiles = options.quantiles.iter().map(value).collect();
        }
        reading
    }

    fn reading_of(&self, seen: &HistogramSnapshot) -> HistogramReading {
        let up_to = |&bound: &f64| (bound, seen.count_up_to(scaled(bound, self.per_unit)));
        let buckets = self.options().bounds.iter().map(up_to).collect();
        let (count, sum) = (seen.count(), seen.sum() / self.per_unit);
        HistogramReading { count, sum, buckets, quantiles: Vec::new() }
    }
}

fn quantile_of(values: &HistogramSnapshot, q: f64, per_unit: f64) -> f64 {
    values.quantile(q).map_or(f64::NAN, |value| value as f64 / per_unit)
}

impl Default for Histogram {
    fn default() -> Self {
        Self::new()
    }
}

/// Returns the library's histogram, to promote it or to take a snapshot in units of the resolution.
impl AsRef<collections::Histogram> for Histogram {
    fn as_ref(&self) -> &collections::Histogram {
        &self.values
    }
}

impl fmt::Debug for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Histogram").field(&self.values.snapshot()).finish()
    }
}

/// The report of a [`Histogram`].
#[derive(Debug, Clone, PartialEq)]
pub struct HistogramReading {
    count: u64,
    sum: f64,
    buckets: Vec<(f64, u64)>,
    quantiles: Vec<(f64, f64)>,
}

impl HistogramReading {
    /// Returns how many values were recorded.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the sum of the values.
    #[must_use]
    pub fn sum(&self) -> f64 {
        self.sum
    }

    /// Returns each bound with the number of values up to it.
    #[must_use]
    pub fn buckets(&self) -> &[(f64, u64)] {
        &self.buckets
    }

    /// Returns each requested quantile with its value, which is NaN without recent values. Empty if
    /// the histogram reports buckets.
    #[must_use]
    pub fn quantiles(&self) -> &[(f64, f64)] {
        &self.quantiles
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_of_the_window_and_counts_of_all_time() {
        let options = HistogramOptions::new().resolution(1.0).quantiles([0.5]);
        let histogram = Histogram::with_options(options);
        let start = Instant::now();
        let median_at = |seconds| {
            let reading = histogram.read_at(start + Duration::from_secs(seconds));
            reading.quantiles()[0].1
        };
        histogram.record_n(10.0, 100);
        assert_eq!(median_at(0), 10.0);
        for seconds in [10, 20, 30, 40, 50, 60, 70] {
            histogram.record_n(50.0, 10);
            assert_eq!(median_at(seconds), 10.0, "at {seconds}: the hundred still count");
        }
        assert_eq!(median_at(80), 50.0, "the snapshot at 20 is as old as the window");
        assert!(median_at(200).is_nan(), "nothing was recorded in the last minute");
        let all = histogram.read();
        assert_eq!((all.count(), all.sum()), (170, 4500.0));
    }

    #[test]
    fn values_that_are_no_counts_do_not_disturb() {
        let histogram = Histogram::new();
        for value in [f64::NAN, -3.0, f64::NEG_INFINITY, f64::INFINITY, 1e300] {
            histogram.record(value);
        }
        let seen = histogram.read();
        assert_eq!(seen.count(), 4);
        assert_eq!(seen.buckets().first(), Some(&(0.005, 2)));
        assert_eq!(seen.buckets().last(), Some(&(10.0, 2)));
    }
}
