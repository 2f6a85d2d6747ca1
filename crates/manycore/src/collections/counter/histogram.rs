//! A distribution of values: counts in buckets that grow wider with the value.
//!
//! Owns: the buckets. Below [`EXACT`] a bucket is one value. Above, each doubling of the value has
//! [`STEPS`] buckets, so a bucket is at most 1/[`STEPS`] as wide as its values. The counts and the
//! protocol are those of a counter array.
//!
//! Source: G. Tene's HdrHistogram.

use super::cells::{self, Group};
use super::word::GroupWord;
use super::words::{LEAF, LazyWords};
use crate::sync::Ordering;
use std::fmt;
use std::iter::FusedIterator;
use std::ops::RangeInclusive;

/// Buckets for each doubling.
const STEPS: u64 = 1 << STEP_BITS;
const STEP_BITS: u32 = 5;
/// Smaller values have a bucket each.
const EXACT: u64 = 2 * STEPS;
/// Buckets up to the greatest value of 64 bits.
const BUCKETS: usize = bucket_of(u64::MAX) + 1;

/// Returns the bucket of a value.
#[inline(always)]
const fn bucket_of(value: u64) -> usize {
    let shift = (value | STEPS).ilog2() - STEP_BITS;
    ((shift as u64) * STEPS + (value >> shift)) as usize
}

/// Returns the values of a bucket.
const fn values_of(bucket: usize) -> RangeInclusive<u64> {
    let bucket = bucket as u64;
    if bucket < EXACT {
        return bucket..=bucket;
    }
    let shift = bucket / STEPS - 1;
    let first = (bucket - shift * STEPS) << shift;
    first..=first + ((1 << shift) - 1)
}

/// Returns the value in the middle of a bucket, which stands for all of its values.
fn middle_of(bucket: usize) -> u64 {
    let values = values_of(bucket);
    values.start() + (values.end() - values.start()) / 2
}

/// A histogram over the whole range of `u64`, with a fixed relative error: for quantiles of
/// latencies and sizes.
///
/// What for: values that many threads record all the time, and that a report reads now and then.
/// When not: for a few fixed bounds (Prometheus' classic buckets), take a
/// [`CounterArray`](super::CounterArray), which is smaller; for each exact value, a log.
///
/// ```
/// use manycore::collections::Histogram;
///
/// static MICROSECONDS: Histogram = Histogram::new();
///
/// std::thread::scope(|s| {
///     for _ in 0..4 {
///         s.spawn(|| (1..=1000).for_each(|us| MICROSECONDS.record(us)));
///     }
/// });
/// let seen = MICROSECONDS.take();
/// assert_eq!(seen.count(), 4000);
/// let p99 = seen.quantile(0.99).unwrap();
/// assert!((975..=1005).contains(&p99));
/// assert!(MICROSECONDS.snapshot().is_empty());
/// ```
///
/// - Error: a reported value is within 1.6 % of the recorded one. (A bucket is at most 1/32 as wide
///   as its values, and is reported as its middle.) Values up to 63 are exact. The unit is yours.
/// - Consistency: [`snapshot`](Self::snapshot) counts every value recorded before it, and any
///   subset of the concurrent ones. [`take`](Self::take) returns each recorded value once.
/// - Progress: as [`Counter`](super::Counter).
/// - Cost of [`record`](Self::record): some instructions for the bucket and a counter's `add`.
///   While hot no write to a shared line and no read-modify-write. A contended histogram becomes
///   hot by itself. The first value of a group of buckets allocates.
/// - Cost of a snapshot: while cold the buckets that have counted, below a microsecond; while hot
///   1920 sums, some tens of microseconds and more with many threads.
/// - Memory: 128 bytes. Where values were recorded, 128 more for each four doublings and 64 for
///   each quarter of a doubling. So some 800 with ten values within a factor of four, and 17 KiB if
///   all buckets have counted. While hot 15 KiB more, and as much for each thread that records.
/// - Source: G. Tene's HdrHistogram.
pub struct Histogram {
    values: Buckets,
    hot: GroupWord,
}

type Buckets = LazyWords<{ BUCKETS.div_ceil(LazyWords::<0>::NODE_WORDS) }>;

impl Histogram {
    /// Makes an empty histogram.
    #[cfg(not(manycore_loom))]
    #[must_use]
    pub const fn new() -> Self {
        Self { values: Buckets::new(), hot: GroupWord::new() }
    }

    /// Makes an empty histogram.
    #[cfg(manycore_loom)]
    #[must_use]
    pub fn new() -> Self {
        Self { values: Buckets::new(), hot: GroupWord::new() }
    }

    #[inline(always)]
    fn group(&self) -> Group<'_, Buckets> {
        Group { values: &self.values, hot: &self.hot }
    }

    /// Counts a value.
    #[doc(alias = "observe")]
    #[inline]
    pub fn record(&self, value: u64) {
        self.group().add(bucket_of(value), 1);
    }

    /// Counts a value `times` times.
    #[inline]
    pub fn record_n(&self, value: u64, times: u64) {
        self.group().add(bucket_of(value), times);
    }

    /// Counts every value of a snapshot again: of another histogram, or of an earlier time.
    pub fn merge(&self, snapshot: &HistogramSnapshot) {
        for (bucket, count) in snapshot.counted() {
            self.group().add(bucket, count);
        }
    }

    /// Returns what was recorded.
    #[must_use]
    pub fn snapshot(&self) -> HistogramSnapshot {
        if !self.group().is_read_cold(0) {
            return HistogramSnapshot::of(&self.group().snapshot());
        }
        let parts = self.values.leaves().map(|(number, leaf)| Part {
            number,
            // ORDER: Relaxed; the group is cold for this read (cells.N4).
            counts: std::array::from_fn(|at| leaf[at].load(Ordering::Relaxed)),
        });
        HistogramSnapshot { parts: parts.filter(Part::has_counted).collect() }
    }

    /// Returns what was recorded since the last call, and forgets it. Each recorded value is in
    /// exactly one result, even if several threads call this at once.
    #[doc(alias = "reset")]
    pub fn take(&self) -> HistogramSnapshot {
        HistogramSnapshot::of(&self.group().take())
    }

    /// Same as [`Counter::is_hot`](super::Counter::is_hot).
    #[must_use]
    pub fn is_hot(&self) -> bool {
        self.group().is_hot()
    }

    /// Same as [`Counter::promote`](super::Counter::promote).
    pub fn promote(&self) -> bool {
        self.group().promote(true)
    }

    /// Same as [`Counter::demote`](super::Counter::demote).
    pub fn demote(&self) {
        self.group().give_up(|_| true);
    }
}

impl Default for Histogram {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.snapshot().write(f, "Histogram")
    }
}

impl Drop for Histogram {
    fn drop(&mut self) {
        cells::release_of(&self.hot);
    }
}

/// The counts of a [`Histogram`] at some time. It does not change with the histogram, and can be
/// merged with others.
///
/// ```
/// use manycore::collections::HistogramSnapshot;
///
/// let mut all: HistogramSnapshot = [1, 2, 3].into_iter().collect();
/// all.merge(&HistogramSnapshot::from_iter([1000]));
/// assert_eq!((all.count(), all.min(), all.quantile(0.5)), (4, Some(1), Some(2)));
/// assert_eq!(all.quantile(1.0), all.max());
/// assert_eq!(all.count_up_to(3), 3);
/// ```
///
/// Memory: 72 bytes for each group of eight adjacent buckets that has counted.
#[derive(Clone, PartialEq, Eq)]
pub struct HistogramSnapshot {
    /// Parts ordered by number. None is all zeros, so equal snapshots have equal parts.
    parts: Vec<Part>,
}

/// The counts of a leaf's buckets.
#[derive(Clone, PartialEq, Eq)]
struct Part {
    /// The first bucket divided by [`LEAF`].
    number: usize,
    counts: [u64; LEAF],
}

impl Part {
    fn has_counted(&self) -> bool {
        self.counts != [0; LEAF]
    }

    fn add(&mut self, other: &Self) {
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count = count.wrapping_add(*more);
        }
    }

    /// Returns the part that cancels this one when it is added.
    fn negated(&self) -> Self {
        Self { number: self.number, counts: self.counts.map(u64::wrapping_neg) }
    }
}

impl HistogramSnapshot {
    /// Makes a snapshot of a histogram that has counted nothing.
    #[must_use]
    pub const fn new() -> Self {
        Self { parts: Vec::new() }
    }

    /// Makes a snapshot of the counts of all buckets.
    fn of(counts: &[i64]) -> Self {
        let parts = counts.chunks_exact(LEAF).enumerate().map(|(number, chunk)| Part {
            number,
            counts: std::array::from_fn(|at| chunk[at] as u64),
        });
        Self { parts: parts.filter(Part::has_counted).collect() }
    }

    /// Iterates over the buckets that are not empty, with their counts, from the least value.
    fn counted(&self) -> impl DoubleEndedIterator<Item = (usize, u64)> {
        let parts = self.parts.iter().flat_map(|part| {
            let counts = part.counts.iter().enumerate();
            counts.map(move |(at, count)| (part.number * LEAF + at, *count))
        });
        parts.filter(|(_, count)| *count > 0)
    }

    /// Returns how many values were counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counted().fold(0, |sum, (_, count)| sum.wrapping_add(count))
    }

    /// Returns true if no values were counted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Returns the value that a fraction `q` of all values does not exceed, from 0.0 (the least) to
    /// 1.0 (the greatest); 0.99 for the 99th percentile. Returns `None` if nothing was counted.
    ///
    /// # Panics
    /// If `q` is not between 0 and 1.
    #[doc(alias = "percentile")]
    #[must_use]
    pub fn quantile(&self, q: f64) -> Option<u64> {
        assert!((0.0..=1.0).contains(&q), "manycore: {q} is no quantile from 0 to 1");
        let count = self.count();
        let rank = ((q * count as f64).ceil() as u64).clamp(1, count.max(1));
        let mut before = 0_u64;
        let mut counted = self.counted();
        let found = counted.find(|(_, count)| {
            before = before.wrapping_add(*count);
            before >= rank
        });
        found.map(|(bucket, _)| middle_of(bucket))
    }

    /// Returns the least value.
    #[must_use]
    pub fn min(&self) -> Option<u64> {
        self.counted().next().map(|(bucket, _)| middle_of(bucket))
    }

    /// Returns the greatest value.
    #[must_use]
    pub fn max(&self) -> Option<u64> {
        self.counted().next_back().map(|(bucket, _)| middle_of(bucket))
    }

    /// Returns the sum of all values, within the error.
    #[must_use]
    pub fn sum(&self) -> f64 {
        self.counted().map(|(bucket, count)| middle_of(bucket) as f64 * count as f64).sum()
    }

    /// Returns the mean of all values, within the error, or `None` if nothing was counted.
    #[must_use]
    pub fn mean(&self) -> Option<f64> {
        (!self.is_empty()).then(|| self.sum() / self.count() as f64)
    }

    /// Returns how many values are at most `value`, within the error: for buckets with your own
    /// bounds, as in Prometheus.
    #[must_use]
    pub fn count_up_to(&self, value: u64) -> u64 {
        let last = bucket_of(value);
        let counts = self.counted().take_while(|(bucket, _)| *bucket <= last);
        counts.fold(0, |sum, (_, count)| sum.wrapping_add(count))
    }

    /// Iterates over the buckets that are not empty, from the least value: their values, and how
    /// many were counted.
    ///
    /// ```
    /// let seen: manycore::collections::HistogramSnapshot = [7, 7, 1000].into_iter().collect();
    /// let buckets: Vec<_> = seen.buckets().collect();
    /// assert_eq!(buckets, [(7..=7, 2), (992..=1007, 1)]);
    /// ```
    pub fn buckets(&self) -> HistogramBuckets<'_> {
        HistogramBuckets { parts: &self.parts, next: 0 }
    }

    /// Adds what another snapshot has counted.
    pub fn merge(&mut self, other: &Self) {
        other.parts.iter().for_each(|part| self.add(part.clone()));
    }

    fn add(&mut self, part: Part) {
        match self.parts.binary_search_by_key(&part.number, |known| known.number) {
            Ok(place) => {
                self.parts[place].add(&part);
                if !self.parts[place].has_counted() {
                    self.parts.remove(place);
                }
            }
            Err(place) => self.parts.insert(place, part),
        }
    }

    /// Returns what was counted after `earlier`, a snapshot of the same histogram. Use it for
    /// quantiles of the last minute, instead of [`Histogram::take`], which would take values from
    /// other readers.
    ///
    /// ```
    /// let latency = manycore::collections::Histogram::new();
    /// latency.record(7);
    /// let before = latency.snapshot();
    /// latency.record(9);
    /// assert_eq!(latency.snapshot().since(&before).max(), Some(9));
    /// assert_eq!(latency.snapshot().since(&before).count(), 1);
    /// ```
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut later = self.clone();
        earlier.parts.iter().for_each(|part| later.add(part.negated()));
        later
    }

    fn write(&self, f: &mut fmt::Formatter<'_>, name: &str) -> fmt::Result {
        f.debug_struct(name)
            .field("count", &self.count())
            .field("min", &self.min())
            .field("median", &self.quantile(0.5))
            .field("p99", &self.quantile(0.99))
            .field("max", &self.max())
            .finish()
    }
}

impl Default for HistogramSnapshot {
    fn default() -> Self {
        Self::new()
    }
}

impl FromIterator<u64> for HistogramSnapshot {
    fn from_iter<I: IntoIterator<Item = u64>>(values: I) -> Self {
        let mut snapshot = Self::new();
        snapshot.extend(values);
        snapshot
    }
}

impl Extend<u64> for HistogramSnapshot {
    fn extend<I: IntoIterator<Item = u64>>(&mut self, values: I) {
        for value in values {
            let bucket = bucket_of(value);
            let mut part = Part { number: bucket / LEAF, counts: [0; LEAF] };
            part.counts[bucket % LEAF] = 1;
            self.add(part);
        }
    }
}

impl fmt::Debug for HistogramSnapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, "HistogramSnapshot")
    }
}

/// Iterator over the buckets of a snapshot.
///
/// See [`HistogramSnapshot::buckets`] for an example.
#[derive(Clone)]
pub struct HistogramBuckets<'a> {
    parts: &'a [Part],
    /// Next bucket in the first of the parts.
    next: usize,
}

impl Iterator for HistogramBuckets<'_> {
    type Item = (RangeInclusive<u64>, u64);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let (part, rest) = self.parts.split_first()?;
            let at = self.next;
            self.next += 1;
            if self.next == LEAF {
                (self.parts, self.next) = (rest, 0);
            }
            if part.counts[at] > 0 {
                return Some((values_of(part.number * LEAF + at), part.counts[at]));
            }
        }
    }
}

impl FusedIterator for HistogramBuckets<'_> {}

impl fmt::Debug for HistogramBuckets<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.clone()).finish()
    }
}

#[cfg(all(test, not(manycore_loom)))]
mod tests {
    use super::*;

    #[test]
    fn each_value_is_in_its_bucket_and_buckets_are_adjacent_and_narrow() {
        let mut next = 0;
        for bucket in 0..BUCKETS {
            let values = values_of(bucket);
            assert_eq!((*values.start(), bucket_of(next)), (next, bucket));
            assert_eq!(bucket_of(*values.end()), bucket);
            let width = values.end() - values.start();
            assert!(width == 0 || width < values.start() / STEPS, "{values:?}");
            let middle = middle_of(bucket);
            let error = (middle - values.start()).max(values.end() - middle) as f64;
            assert!(error <= 0.016 * *values.start() as f64, "{values:?}: {error}");
            next = values.end().wrapping_add(1);
        }
        assert_eq!((next, BUCKETS), (0, 1920), "the last bucket ends with the greatest value");
    }
}
