//! memcached's items on top of the cache: their times, versions, marks, and conditions.
//!
//! Laws:
//! - D1 A stamp is never used twice: a worker's own grow, and carry its number. Stamps follow the
//!   clock, so an item made after a reply has a larger one than what that reply was about.
//! - D2 An item is dead if its stamp is not above the last flush's. Dead ones are never shown; a
//!   sweep removes them later.
//! - D3 An item's deadline is in the item alone, and is changed under the lock of its bucket. What
//!   depends on it is looked at under that lock, too, before an item is replaced or removed.
//! - D4 What changes a value puts a new item in the place of the one that it has seen, or begins
//!   anew; so it does if that one was given another time meanwhile, and the new one is to have it.

mod clock;
mod counters;
mod handle;
mod item;

pub use clock::Clock;
pub use counters::{Counters, Totals};
pub use handle::{Change, Handle, How, Outcome, Turn};
pub use item::{Draft, Item};

use foldhash::quality::RandomState;
use manycore_cache::Cache;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// The smallest limit of memory that can be asked for while the server runs, in megabytes.
pub const MEMLIMIT_MIN: u64 = 8;
/// Workers that stamps tell apart.
pub const WORKERS_MAX: usize = 256;

/// What a store is made with.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Bytes of all items together.
    pub memory: u64,
    /// Bytes of one item.
    pub item: usize,
    /// Whether items go when room is wanted; if not, new ones are refused.
    pub evicts: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Self { memory: 64 << 20, item: 1 << 20, evicts: true }
    }
}

/// All items, for all workers.
pub struct Store {
    cache: Cache<Item, (), RandomState>,
    clock: Arc<Clock>,
    limits: Limits,
    /// Items with stamps up to this are dead (D2).
    flushed: AtomicU64,
    /// When the next flush is due, in nanoseconds of the clock; 0 is never.
    flush_at: AtomicU64,
    /// Whether dead items may be in the table.
    has_dead: AtomicBool,
    /// Counts of the workers.
    counters: Box<[Counters]>,
}

impl Store {
    /// An empty store for so many workers.
    ///
    /// # Panics
    /// With no memory at all, or more than [`WORKERS_MAX`] workers.
    #[must_use]
    pub fn new(limits: Limits, workers: usize) -> Self {
        assert!(workers <= WORKERS_MAX, "manycored: {workers} workers");
        let clock = Arc::new(Clock::new());
        let cache_clock = clock.clone();
        let cache = Cache::builder(limits.memory)
            .hasher(RandomState::default())
            .weigher(|item: &Item, ()| u32::try_from(item.weight()).unwrap_or(u32::MAX))
            .weight_in_bytes(true)
            .lean(move |item: &Item, ()| Clock::moment(item.deadline()))
            .clock(move || Duration::from_nanos(cache_clock.now()))
            .build()
            .unwrap_or_else(|error| panic!("manycored: {error}"));
        Self {
            cache,
            clock,
            limits,
            flushed: AtomicU64::new(0),
            flush_at: AtomicU64::new(0),
            has_dead: AtomicBool::new(false),
            counters: (0..workers).map(|_| Counters::default()).collect(),
        }
    }

    /// One worker's way to the store.
    ///
    /// # Panics
    /// If there is no such worker.
    pub fn handle(&self, worker: usize) -> Handle<'_> {
        Handle::new(self, &self.counters[worker], worker)
    }

    /// What it was made with.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Its time.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// What the workers counted, together.
    pub fn totals(&self) -> Totals {
        Totals::sum(&self.counters)
    }

    /// Begins all counts anew.
    pub fn reset_counters(&self) {
        self.counters.iter().for_each(Counters::reset);
    }

    /// Items, dead ones that no sweep has met included.
    pub fn len(&self) -> usize {
        self.cache.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.cache.is_empty()
    }

    /// Bytes that the tables take: they are a part of what items are counted with.
    pub fn table_bytes(&self) -> u64 {
        let footprint = self.cache.footprint();
        footprint.tables + footprint.chains
    }

    /// Bytes that items take, with their part of the tables.
    pub fn bytes(&self) -> u64 {
        self.cache.weight()
    }

    /// The limit of memory now.
    pub fn memory(&self) -> u64 {
        self.cache.capacity()
    }

    /// What the cache counted: evictions and the like.
    pub fn cache_stats(&self) -> manycore_cache::Stats {
        self.cache.stats()
    }

    /// Changes the limit of memory, in bytes.
    pub fn set_memory(&self, bytes: u64) {
        self.cache.set_capacity(bytes.max(1));
    }

    /// Moves the clock on, and flushes if that is due. A worker calls it whenever it wakes up.
    pub fn tick(&self) {
        let now = self.clock.tick();
        // ORDER: Relaxed; whoever comes first does it, and a later tick would, too.
        let due = self.flush_at.load(Ordering::Relaxed);
        if due != 0 && due <= now {
            let taken =
                self.flush_at.compare_exchange(due, 0, Ordering::Relaxed, Ordering::Relaxed);
            if taken.is_ok() {
                self.kill_up_to(clock::stamp(due, WORKERS_MAX - 1));
            }
        }
    }

    fn kill_up_to(&self, stamp: u64) {
        // ORDER: Relaxed; a reply to the flush and a later request order it for clients.
        self.flushed.fetch_max(stamp, Ordering::Relaxed);
        self.has_dead.store(true, Ordering::Relaxed);
    }

    /// Whether the item was flushed (D2).
    #[inline]
    fn is_dead(&self, item: &Item) -> bool {
        // ORDER: Relaxed; as in `kill_up_to`.
        item.stamp() <= self.flushed.load(Ordering::Relaxed)
    }

    /// Removes what is dead, and if `all` says so what has expired; frees what can be freed.
    /// For whoever has time.
    pub fn sweep(&self, all: bool) {
        // ORDER: Relaxed; a flush that is missed now is seen the next time.
        if self.has_dead.swap(false, Ordering::Relaxed) {
            self.cache.retain(|entry| !self.is_dead(entry.key()));
        }
        if all {
            self.cache.purge();
        }
    }
}
