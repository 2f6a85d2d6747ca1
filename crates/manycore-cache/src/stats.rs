//! What a cache counts.

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
    /// Reads that found the key; counted only if the builder said so.
    pub hits: u64,
    /// Reads that did not; counted only if the builder said so.
    pub misses: u64,
    /// Entries that were put in, replacements included.
    pub insertions: u64,
    /// Entries that went because room was wanted, although their time was not over.
    pub evictions: u64,
    /// Entries whose time was over when they went, by whatever call.
    pub expirations: u64,
    /// Loads of [`get_or_insert_with`](crate::Cache::get_or_insert_with) and its kin that ended
    /// with a value.
    pub loads: u64,
    /// Loads that ended without one: an error, `None`, a panic, or a future that was dropped. A
    /// load counts once, however many callers waited for it.
    pub load_failures: u64,
    /// How long all these loads took together, by the system's clock; of futures from the first
    /// poll to the end.
    pub load_time: Duration,
    /// Loads that are under way. One that stays for long may wait for itself: see
    /// [`get_or_insert_async`](crate::Cache::get_or_insert_async).
    pub loading: u64,
}

impl Stats {
    /// Hits among all reads; zero if none were counted.
    #[must_use]
    pub fn hit_ratio(&self) -> f64 {
        self.hits as f64 / (self.hits + self.misses).max(1) as f64
    }

    /// How long a load took, on average; zero if there were none.
    #[must_use]
    pub fn mean_load_time(&self) -> Duration {
        let count = (self.loads + self.load_failures).max(1);
        self.load_time / u32::try_from(count).unwrap_or(u32::MAX)
    }
}

/// The bytes of a cache, by part: see [`Cache::footprint`]. What keys and values own elsewhere is
/// not in it.
///
/// See [`Cache::footprint`] for an example.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Footprint {
    /// Keys and values, and what is kept of each entry; of those, too, that have left the cache and
    /// are not freed yet. (Not those in a cache that was built for at most 1,024 entries and does
    /// not weigh: the memory of its entries is shared with other such caches.)
    pub entries: u64,
    /// Room for entries that there is memory for; much of it may never have been touched.
    pub free: u64,
    /// Tables: links to entries, notes of keys that were evicted, entries on probation.
    pub tables: u64,
    /// Buckets that were added where a table's had no room.
    pub chains: u64,
}

impl Footprint {
    /// All that is in use: everything but [`free`](Self::free).
    #[must_use]
    pub fn in_use(&self) -> u64 {
        self.entries + self.tables + self.chains
    }
}

impl<K, V, S> Cache<K, V, S> {
    /// Where the cache's memory is.
    ///
    /// Consistency: not a snapshot. Cost: a line for each segment, and for each thread.
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

/// What loads count. One line for all threads: a load costs far more than to write it.
#[derive(Default)]
pub(crate) struct Loads {
    successes: AtomicU64,
    failures: AtomicU64,
    nanos: AtomicU64,
}

impl Loads {
    /// A load begins; when this is dropped it has failed.
    pub(crate) fn begin(&self) -> LoadMeter<'_> {
        LoadMeter { loads: self, begun: Instant::now(), is_value: false }
    }
}

/// Counts a load at its end, and how long it took.
pub(crate) struct LoadMeter<'a> {
    loads: &'a Loads,
    begun: Instant,
    is_value: bool,
}

impl LoadMeter<'_> {
    /// The load has ended with this value.
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

/// What is counted of each operation, by a place among the counts.
#[derive(Clone, Copy)]
pub(crate) enum Event {
    Hit,
    Miss,
    Insertion,
    Eviction,
    /// An insertion and an eviction at once: an entry that came in the place of another key's, in a
    /// full cache.
    InsertionInPlace,
    Expiration,
}

/// So many there are.
const EVENTS: usize = Event::Expiration as usize + 1;

/// Counts whose updates write a line of the thread's own.
pub(crate) struct Counts {
    events: SectionCounts<EVENTS>,
    has_reads: bool,
    /// Of a budgeted cache, whose reads are counted.
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

    /// Hits are uses of the budget's memory from here on, if reads are counted.
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
