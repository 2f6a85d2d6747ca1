//! The counters of a cache, and its footprint.

use crate::Cache;
use crate::huge_pages::{LINE, ZeroedLines};
use manycore::collections::Reclaimer;
use manycore::section::{Section, SectionCounts};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Counts since a cache was made: see [`Cache::stats`](crate::Cache::stats).
///
/// ```
/// let cache = manycore_cache::Cache::builder(10).count_reads(true).build()?;
/// for key in [1, 2, 1] {
///     cache.get_or_insert_with(key, || key * key);
/// }
/// let stats = cache.stats();
/// assert_eq!((stats.hits, stats.misses, stats.loads), (1, 2, 2));
/// assert_eq!(stats.hit_ratio(), 1.0 / 3.0);
/// # Ok::<(), manycore_cache::BuildError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Stats {
    /// Reads that found the key. They are counted only if the builder said so.
    pub hits: u64,
    /// Reads that did not find the key. They are counted only if the builder said so.
    pub misses: u64,
    /// Entries that were put in, including replacements.
    pub insertions: u64,
    /// Entries that were evicted before their time was over.
    pub evictions: u64,
    /// Entries that had expired when they left, by whatever call.
    pub expirations: u64,
    /// Loads of [`get_or_insert_with`](crate::Cache::get_or_insert_with) and its variants that
    /// ended with a value.
    pub loads: u64,
    /// Loads that ended without a value: with an error, with `None`, with a panic, or because a
    /// future was dropped. A load counts once, however many callers waited for it.
    pub load_failures: u64,
    /// Total time of all these loads, by the system's clock. The time of a future is that from its
    /// first poll to its end.
    pub load_time: Duration,
    /// Loads that are under way. A load that stays for long may wait for itself: see
    /// [`get_or_insert_async`](crate::Cache::get_or_insert_async).
    pub loading: u64,
}

impl Stats {
    /// Returns the share of hits among all reads, or zero if no reads were counted.
    #[must_use]
    pub fn hit_ratio(&self) -> f64 {
        self.hits as f64 / (self.hits + self.misses).max(1) as f64
    }

    /// Returns the average time of a load, or zero if there were no loads.
    #[must_use]
    pub fn mean_load_time(&self) -> Duration {
        let count = (self.loads + self.load_failures).max(1);
        self.load_time / u32::try_from(count).unwrap_or(u32::MAX)
    }
}

/// The bytes of a cache, by part: see [`Cache::footprint`]. Memory that keys and values own
/// elsewhere is not included.
///
/// See [`Cache::footprint`] for an example.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Footprint {
    /// Keys and values, and the metadata of each entry. This includes entries that have left the
    /// cache and are not freed yet. (It does not in a cache that was built for at most 1,024
    /// entries and does not weigh, because it shares the memory of its entries with other such
    /// caches.)
    pub entries: u64,
    /// Memory for further entries. Much of it may never have been touched.
    pub free: u64,
    /// Tables: links to entries, ghosts of evicted keys, and records of entries on probation.
    pub tables: u64,
    /// Buckets that were added where a bucket of the table had no room.
    pub chains: u64,
}

impl Footprint {
    /// Returns the bytes in use: everything but [`free`](Self::free).
    #[must_use]
    pub fn in_use(&self) -> u64 {
        self.entries + self.tables + self.chains
    }
}

impl<K, V, S> Cache<K, V, S> {
    /// Returns the cache's memory, by part.
    ///
    /// Consistency: not a snapshot. Cost: a cache line for each segment, and for each thread.
    ///
    /// ```
    /// let cache = manycore_cache::Cache::new(10_000);
    /// for n in 0..10_000_u64 {
    ///     cache.insert(n, n);
    /// }
    /// let footprint = cache.footprint();
    /// assert!(footprint.in_use() / 10_000 < 48, "{footprint:?}"); // 16 of them key and value
    /// ```
    #[must_use]
    pub fn footprint(&self) -> Footprint {
        let section = self.domain.enter();
        let (mut tables, mut chains) = (0, 0);
        let mut seen: Vec<&Arc<ZeroedLines>> = Vec::new();
        for segment in &self.segments {
            let table = segment.table(&section);
            tables += table.bytes();
            if !seen.iter().any(|lines| Arc::ptr_eq(lines, table.lines())) {
                seen.push(table.lines());
                chains += table.lines().spares() * LINE;
            }
        }
        let (all, free) = self.home.memory().unwrap_or((self.len() * self.home.bytes(), 0));
        Footprint {
            entries: all.saturating_sub(free) as u64,
            free: free as u64,
            tables: tables as u64,
            chains: chains as u64,
        }
    }
}

/// Counts of loads, in one line for all threads: a load costs far more than to write it.
#[derive(Default)]
pub(crate) struct Loads {
    successes: AtomicU64,
    failures: AtomicU64,
    nanos: AtomicU64,
}

impl Loads {
    /// Begins to time a load. Dropping the result counts a failure, unless the load succeeded.
    pub(crate) fn begin(&self) -> LoadMeter<'_> {
        LoadMeter { loads: self, begun: Instant::now(), is_value: false }
    }
}

/// Counts a load and its time when the load ends.
pub(crate) struct LoadMeter<'a> {
    loads: &'a Loads,
    begun: Instant,
    is_value: bool,
}

impl LoadMeter<'_> {
    /// Records that the load has ended with this value.
    pub(crate) fn succeed<V>(mut self, value: V) -> V {
        self.is_value = true;
        value
    }
}

impl Drop for LoadMeter<'_> {
    fn drop(&mut self) {
        let Loads { successes, failures, nanos } = self.loads;
        let count = if self.is_value { successes } else { failures };
        // ORDER: Relaxed; counts order nothing.
        count.fetch_add(1, Ordering::Relaxed);
        nanos.fetch_add(self.begun.elapsed().as_nanos() as u64, Ordering::Relaxed);
    }
}

/// The events that are counted, by their place among the counts.
#[derive(Clone, Copy)]
pub(crate) enum Event {
    Hit,
    Miss,
    Insertion,
    Eviction,
    /// An insertion and an eviction at once: in a full cache, a new entry took the place of another
    /// key's entry.
    InsertionInPlace,
    Expiration,
}

/// The number of events.
const EVENTS: usize = Event::Expiration as usize + 1;

/// Counts that each thread writes in a line of its own.
pub(crate) struct Counts {
    events: SectionCounts<EVENTS>,
    has_reads: bool,
    /// The budget, if the cache has one: it hears of hits.
    budget: Option<Reclaimer>,
    pub(crate) loads: Box<Loads>,
}

impl Counts {
    pub(crate) fn new(has_reads: bool) -> Self {
        let (events, loads) = (SectionCounts::new(), Box::default());
        Self { events, has_reads, budget: None, loads }
    }

    #[inline(always)]
    pub(crate) fn note(&self, event: Event, section: &Section<'_>) {
        self.events.add(section, event as usize, 1);
    }

    #[inline(always)]
    pub(crate) fn read(&self, is_hit: bool, section: &Section<'_>) {
        if self.has_reads {
            self.note(if is_hit { Event::Hit } else { Event::Miss }, section);
            if let Some(budget) = self.budget.as_ref().filter(|_| is_hit) {
                budget.note_uses(1);
            }
        }
    }

    /// Reports hits as uses of the budget's memory from here on, if reads are counted.
    pub(crate) fn note_hits_to(&mut self, budget: Reclaimer) {
        self.budget = Some(budget);
    }

    pub(crate) fn sum(&self) -> Stats {
        let sum = |event| self.events.sum(event as usize);
        let in_place = sum(Event::InsertionInPlace);
        Stats {
            hits: sum(Event::Hit),
            misses: sum(Event::Miss),
            insertions: sum(Event::Insertion) + in_place,
            evictions: sum(Event::Eviction) + in_place,
            expirations: sum(Event::Expiration),
            // ORDER: Relaxed; counts.
            loads: self.loads.successes.load(Ordering::Relaxed),
            load_failures: self.loads.failures.load(Ordering::Relaxed),
            load_time: Duration::from_nanos(self.loads.nanos.load(Ordering::Relaxed)),
            loading: 0,
        }
    }
}

#[cfg(all(test, not(manycore_loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_mean_is_of_all_loads_those_that_failed_too() {
        let stats = |loads, load_failures, secs| {
            let load_time = Duration::from_secs(secs);
            Stats { loads, load_failures, load_time, ..Stats::default() }.mean_load_time()
        };
        assert_eq!(stats(2, 1, 9), Duration::from_secs(3));
        assert_eq!([stats(3, 0, 9), stats(0, 3, 9)], [Duration::from_secs(3); 2]);
        assert_eq!(stats(0, 0, 0), Duration::ZERO);
    }
}
