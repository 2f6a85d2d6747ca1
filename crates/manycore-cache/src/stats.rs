//! What a cache counts.

use manycore::collections::Counter;

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
