//! The latency of a connection's turns. A turn lasts from the read to the write of the replies, for
//! all requests that were received together. One turn in `SAMPLED` is timed, so the clock costs
//! little.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// One turn in this many is timed.
const SAMPLED: u32 = 16;
/// Buckets. The first ends at [`FIRST`], each further bucket at twice the end of its predecessor.
const BUCKETS: usize = 20;
/// Nanoseconds at which the first bucket ends.
const FIRST: u64 = 1 << 10;

/// A histogram of times.
#[derive(Debug, Default)]
pub struct Latency {
    buckets: [AtomicU64; BUCKETS],
    nanos: AtomicU64,
}

impl Latency {
    /// Begins a turn. Returns the time if this turn is timed. The caller keeps the count of turns.
    #[inline]
    pub fn begin(turns: &mut u32) -> Option<Instant> {
        *turns = turns.wrapping_add(1);
        turns.is_multiple_of(SAMPLED).then(Instant::now)
    }

    /// Ends a turn, and records its time if it is timed.
    #[inline]
    pub fn end(&self, started: Option<Instant>) {
        if let Some(started) = started {
            self.note(started.elapsed());
        }
    }

    #[cold]
    fn note(&self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let bucket = (nanos.max(1).div_ceil(FIRST)).next_power_of_two().ilog2() as usize;
        // ORDER: Relaxed; counts.
        self.buckets[bucket.min(BUCKETS - 1)].fetch_add(1, Ordering::Relaxed);
        self.nanos.fetch_add(nanos, Ordering::Relaxed);
    }

    /// Yields each bucket's end in seconds (`None` for the last bucket) and the number of turns
    /// that took at most that long.
    pub fn buckets(&self) -> impl Iterator<Item = (Option<f64>, u64)> + '_ {
        let mut sum = 0;
        self.buckets.iter().enumerate().map(move |(at, count)| {
            // ORDER: Relaxed; counts.
            sum += count.load(Ordering::Relaxed);
            let end = (FIRST << at) as f64 / 1e9;
            ((at + 1 < BUCKETS).then_some(end), sum)
        })
    }

    /// Returns the seconds that all timed turns took together.
    pub fn seconds(&self) -> f64 {
        // ORDER: Relaxed; a count.
        self.nanos.load(Ordering::Relaxed) as f64 / 1e9
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_time_is_in_the_bucket_that_ends_behind_it() {
        let latency = Latency::default();
        for nanos in [0, 1, 1024, 1025, 2048, 2049, u64::MAX] {
            latency.note(Duration::from_nanos(nanos));
        }
        let counts: Vec<u64> = latency.buckets().map(|(_, count)| count).collect();
        assert_eq!(counts[..4], [3, 5, 6, 6]);
        assert_eq!((counts[BUCKETS - 2], counts[BUCKETS - 1]), (6, 7));
        let ends: Vec<_> = latency.buckets().map(|(end, _)| end).collect();
        assert_eq!((ends[0], ends[BUCKETS - 1]), (Some(1.024e-6), None));
        let mut turns = 0;
        assert_eq!((0..160).filter(|_| Latency::begin(&mut turns).is_some()).count(), 10);
    }
}
