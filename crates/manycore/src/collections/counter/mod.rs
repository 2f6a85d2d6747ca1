//! Counters for many threads: [`Counter`], [`CounterArray`], [`Gauge`] and [`Histogram`].

mod cells;
mod gauge;
mod histogram;
#[cfg(all(test, manycore_loom))]
mod loom_tests;
mod recent;
mod word;
mod words;

use crate::sync::AtomicU64;
use cells::Group;
pub use gauge::Gauge;
pub use histogram::{Histogram, HistogramBuckets, HistogramSnapshot};
use std::fmt;
use word::GroupWord;

/// A counter that many threads change and few read.
///
/// For statistics, reference counts in bulk, request and byte counts. While cold it is one word and
/// a pointer, so a program may have millions. While hot (contended) each thread has a word on a
/// cache line of its own. Use an atomic instead if a decision depends on each change at once (a
/// limit, a semaphore). If threads read the count as often as they change it, it stays one word, or
/// becomes one again.
///
/// ```
/// use manycore::collections::Counter;
///
/// static REQUESTS: Counter = Counter::new(0);
///
/// std::thread::scope(|s| {
///     for _ in 0..4 {
///         s.spawn(|| (0..1000).for_each(|_| REQUESTS.add(1)));
///     }
/// });
/// assert_eq!(REQUESTS.sum(), 4000);
/// ```
///
/// - Consistency: [`sum`](Self::sum) counts every [`add`](Self::add) that happened before it and
///   any subset of the concurrent ones, so it is exact once writers are quiescent.
/// - Progress: `add` is wait-free, except when it promotes or demotes the counter itself. A
///   promotion waits for the mutex of the counter's place in the table. It may apply the updates of
///   a [`Deferred`](crate::oplog::Deferred) object that had the place, so do not count under a lock
///   that such updates take. A demotion waits for threads inside an `add` or a `sum`. `sum` waits
///   for a promotion or demotion.
/// - Cost of `add`: while cold one atomic addition to the counter's word. While hot no write to a
///   shared line and no read-modify-write (one on the thread's own line if the kernel has no
///   `membarrier`).
/// - Cost of `sum`: one cache miss per thread that has counted.
/// - Memory: 16 bytes while cold. While hot 264 bytes more (some 530 if more than eight threads
///   run) and 128 for each thread that counts. At most 4,096 counters and other objects of
///   [`oplog`](crate::oplog#evictions) are hot: a counter that loses its place to another keeps the
///   264 bytes until it is next used. Consecutive reads that find a change by less than 4 demote
///   the counter and free all of it.
/// - Overflow wraps around, as with atomics.
/// - Source: [OpLog](crate#sources), section 5.2, Figure 8.
#[doc(alias = "LongAdder")]
#[doc(alias = "sharded counter")]
pub struct Counter {
    value: AtomicU64,
    hot: GroupWord,
}

impl Counter {
    /// Makes a cold counter with this value.
    #[cfg(not(manycore_loom))]
    #[must_use]
    pub const fn new(value: i64) -> Self {
        Self { value: AtomicU64::new(value as u64), hot: GroupWord::new() }
    }

    /// Makes a cold counter with this value.
    #[cfg(manycore_loom)]
    #[must_use]
    pub fn new(value: i64) -> Self {
        Self { value: AtomicU64::new(value as u64), hot: GroupWord::new() }
    }

    #[inline(always)]
    fn group(&self) -> Group<'_> {
        Group { values: std::slice::from_ref(&self.value), hot: &self.hot }
    }

    /// Adds `n`, which may be negative.
    #[inline]
    pub fn add(&self, n: i64) {
        self.group().add(0, n as u64);
    }

    /// Adds 1.
    #[inline]
    pub fn inc(&self) {
        self.add(1);
    }

    /// Subtracts 1.
    #[inline]
    pub fn dec(&self) {
        self.add(-1);
    }

    /// Returns the count: every add that happened before this call, and any subset of the
    /// concurrent ones.
    #[must_use]
    #[inline]
    pub fn sum(&self) -> i64 {
        let sum = self.group().sum(0);
        if self.group().has_cells() {
            self.group().note_read(sum);
        }
        sum as i64
    }

    /// Returns the count and sets it to zero: for reports of what was counted since the last
    /// report.
    ///
    /// Consistency: every add is returned by exactly one `take` or still counted, even if several
    /// threads take at once. Adds that happened before this call are returned by it or by an
    /// earlier `take`. Progress and cost: as [`sum`](Self::sum), and a compare-exchange. Another
    /// `take`, or an add while the counter is cold, makes that begin again.
    ///
    /// ```
    /// let requests = manycore::collections::Counter::new(0);
    /// requests.add(3);
    /// assert_eq!(requests.take(), 3);
    /// assert_eq!(requests.take(), 0);
    /// ```
    #[doc(alias = "reset")]
    #[doc(alias = "swap")]
    pub fn take(&self) -> i64 {
        let sum = self.group().replace(0, 0);
        if self.group().has_cells() {
            self.group().note_reset(sum == 0);
        }
        sum as i64
    }

    /// Returns true if each thread counts on a line of its own now; false after an eviction.
    #[must_use]
    pub fn is_hot(&self) -> bool {
        self.group().is_hot()
    }

    /// Lets each thread count on a line of its own from now on, without waiting for contention.
    /// Returns true if it does; false if the counter's place in the table is in use at this moment.
    pub fn promote(&self) -> bool {
        self.group().promote(true)
    }

    /// Goes back to one word. Contention may promote the counter again.
    pub fn demote(&self) {
        self.group().give_up(|_| true);
    }
}

impl From<i64> for Counter {
    fn from(value: i64) -> Self {
        Self::new(value)
    }
}

impl Default for Counter {
    fn default() -> Self {
        Self::new(0)
    }
}

impl fmt::Debug for Counter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Counter").field(&self.sum()).finish()
    }
}

impl Drop for Counter {
    fn drop(&mut self) {
        cells::release_of(&self.hot);
    }
}

/// An array of counters that are counted, promoted and read together: histograms, per-status
/// counts.
///
/// Like an array of [`Counter`]s, but one promotion serves all of them. While hot, a thread's
/// counts are adjacent on its own lines, so a histogram of 16 cells costs a thread 128 bytes, not 2
/// KiB. For values of a wide range, such as latencies, there is [`Histogram`].
///
/// Two threads of an EPYC count 296 million values a second in 64 buckets, with an array of atomics
/// 98, with padded ones 236. With a sum at every 100 values it is 98, 88 and 174 (`manycore-bench
/// bench histogram`).
///
/// ```
/// use manycore::collections::CounterArray;
///
/// let by_status = CounterArray::new(6);
/// by_status.add(2, 1); // 2xx
/// by_status.add(4, 1); // 4xx
/// by_status.add(2, 1);
/// assert_eq!(by_status.snapshot(), [0, 0, 2, 0, 1, 0]);
/// ```
pub struct CounterArray {
    values: Box<[AtomicU64]>,
    hot: GroupWord,
}

impl CounterArray {
    /// Makes `len` counters at zero.
    #[must_use]
    pub fn new(len: usize) -> Self {
        Self { values: (0..len).map(|_| AtomicU64::new(0)).collect(), hot: GroupWord::new() }
    }

    #[inline(always)]
    fn group(&self) -> Group<'_> {
        Group { values: &self.values, hot: &self.hot }
    }

    /// Adds `n`, which may be negative, to one counter.
    ///
    /// # Panics
    /// If there is no such counter.
    #[inline]
    pub fn add(&self, index: usize, n: i64) {
        assert!(index < self.values.len(), "manycore: no counter {index} of {}", self.len());
        self.group().add(index, n as u64);
    }

    /// Returns the count of one counter; see [`Counter::sum`].
    ///
    /// # Panics
    /// If there is no such counter.
    #[must_use]
    pub fn sum(&self, index: usize) -> i64 {
        assert!(index < self.values.len(), "manycore: no counter {index} of {}", self.len());
        self.group().sum(index) as i64
    }

    /// Returns every count. Not a consistent snapshot: counters may change while others are read.
    #[must_use]
    pub fn snapshot(&self) -> Vec<i64> {
        self.group().snapshot()
    }

    /// Returns every count and sets each to zero. Same as [`Counter::take`] for each counter: not a
    /// consistent snapshot, but every add is in exactly one result.
    #[doc(alias = "reset")]
    pub fn take(&self) -> Vec<i64> {
        self.group().take()
    }

    /// Returns the number of counters.
    #[must_use]
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Returns true if there are no counters.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Returns true if each thread counts on a line of its own now; false after an eviction.
    #[must_use]
    pub fn is_hot(&self) -> bool {
        self.group().is_hot()
    }

    /// Same as [`Counter::promote`].
    pub fn promote(&self) -> bool {
        self.group().promote(true)
    }

    /// Same as [`Counter::demote`].
    pub fn demote(&self) {
        self.group().give_up(|_| true);
    }
}

impl fmt::Debug for CounterArray {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CounterArray").field(&self.snapshot()).finish()
    }
}

/// Makes counters at these counts.
impl FromIterator<i64> for CounterArray {
    fn from_iter<I: IntoIterator<Item = i64>>(counts: I) -> Self {
        let values = counts.into_iter().map(|count| AtomicU64::new(count as u64)).collect();
        Self { values, hot: GroupWord::new() }
    }
}

impl Drop for CounterArray {
    fn drop(&mut self) {
        cells::release_of(&self.hot);
    }
}
