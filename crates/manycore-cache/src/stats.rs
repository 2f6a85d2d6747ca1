//! What a cache counts.

use crate::Cache;
use crate::huge_pages::{LINE, ZeroedLines};
use manycore::collections::Counter;
use std::sync::Arc;

/// What [`Cache::stats`](crate::Cache::stats) says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Stats {
    /// Reads that found the key; counted only if the builder said so.
    pub hits: u64,
    /// Reads that did not; counted only if the builder said so.
    pub misses: u64,
    /// Entries that were put in, replacements included.
    pub insertions: u64,
    /// Entries that went because room was wanted.
    pub evictions: u64,
    /// Entries that went because their time was over.
    pub expirations: u64,
}

impl Stats {
    /// Hits among all reads; zero if none were counted.
    #[must_use]
    pub fn hit_ratio(&self) -> f64 {
        self.hits as f64 / (self.hits + self.misses).max(1) as f64
    }
}

/// What [`Cache::footprint`] says: bytes by part. What keys and values own elsewhere is not in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Footprint {
    /// Keys and values, and what is kept of each entry; of those, too, that have left the cache and
    /// are not freed yet.
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
        let (all, free) = self.home.memory();
        Footprint {
            entries: all.saturating_sub(free) as u64,
            free: free as u64,
            tables: tables as u64,
            chains: chains as u64,
        }
    }
}

/// Counters whose updates write a line of the thread's own.
pub(crate) struct Counts {
    reads: Option<[Counter; 2]>,
    pub(crate) insertions: Counter,
    pub(crate) evictions: Counter,
    pub(crate) expirations: Counter,
}

fn sum(counter: &Counter) -> u64 {
    u64::try_from(counter.sum()).unwrap_or(0)
}

impl Counts {
    pub(crate) fn new(reads: bool) -> Self {
        let zero = || Counter::new(0);
        Self {
            reads: reads.then(|| [zero(), zero()]),
            insertions: zero(),
            evictions: zero(),
            expirations: zero(),
        }
    }

    #[inline(always)]
    pub(crate) fn read(&self, hit: bool) {
        if let Some(reads) = &self.reads {
            reads[usize::from(!hit)].inc();
        }
    }

    pub(crate) fn sum(&self) -> Stats {
        let [hits, misses] = self.reads.as_ref().map_or([0; 2], |[h, m]| [sum(h), sum(m)]);
        Stats {
            hits,
            misses,
            insertions: sum(&self.insertions),
            evictions: sum(&self.evictions),
            expirations: sum(&self.expirations),
        }
    }
}
