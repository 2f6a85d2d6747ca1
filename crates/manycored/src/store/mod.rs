//! memcached's items on top of the cache: their times, versions, marks, and conditions.
//!
//! Laws:
//! - D1 A stamp is never used twice: a worker's own grow, and carry its number. Stamps follow the
//!   clock, so an item made after a reply has a larger one than what that reply was about.
//! - D2 An item is dead if its stamp is not above that of the last flush, of everything or of one
//!   of its key's prefixes. Dead ones are never shown; a sweep removes them later.
//! - D3 An item's deadline is in the item alone, and is changed under the lock of its bucket. What
//!   depends on it, or on whether the item is dead, is looked at under that lock, too, before an
//!   item is replaced or removed.
//! - D4 What changes a value puts a new item in the place of the one that it has seen, or begins
//!   anew; so it does if that one was given another time meanwhile, and the new one is to have it.
//! - D5 A flush is told twice, the second time with a later stamp. So what was made of an item that
//!   a flush kills dies, too: either its stamp is not above the second, or it was made after the
//!   first was told, and then D3's look found the item dead.

mod clock;
mod counters;
mod handle;
mod item;
mod prefixes;

pub use clock::Clock;
pub use counters::{Counters, Totals};
pub use handle::{Change, Handle, How, Outcome, StoreResult, Turn};
pub use item::{Draft, Item};

use foldhash::quality::RandomState;
use manycore_cache::Cache;
use prefixes::Prefixes;
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
    /// What ends a key's prefix, if prefixes can be flushed.
    pub delimiter: Option<u8>,
}

impl Default for Limits {
    fn default() -> Self {
        Self { memory: 64 << 20, item: 1 << 20, evicts: true, delimiter: None }
    }
}

/// All items, for all workers.
pub struct Store {
    cache: Cache<Item, (), RandomState>,
    clock: Arc<Clock>,
    limits: Limits,
    /// Items with stamps up to this are dead (D2).
    flushed: AtomicU64,
    /// Only items with stamps up to this may be dead.
    suspect: AtomicU64,
    prefixes: Option<Prefixes>,
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
            prefixes: limits.delimiter.map(Prefixes::new),
            limits,
            flushed: AtomicU64::new(0),
            suspect: AtomicU64::new(0),
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
                // Up to now, and not to when it was due: who made something anew of what he read
                // has a later stamp.
                for _ in 0..2 {
                    self.kill_up_to(self.clock.all_so_far()); // D5
                }
            }
        }
    }

    fn kill_up_to(&self, stamp: u64) {
        // ORDER: Relaxed; a reply to the flush and a later request order it for clients.
        self.flushed.fetch_max(stamp, Ordering::Relaxed);
        // ORDER: SeqCst; see `sweep`.
        self.suspect.fetch_max(stamp, Ordering::SeqCst);
        self.has_dead.store(true, Ordering::Relaxed);
    }

    /// The same for keys with this prefix. False if that cannot be.
    fn kill_prefix(&self, prefix: &[u8], stamp: u64) -> bool {
        let now = self.clock.exact();
        let done = self.prefixes.as_ref().is_some_and(|all| all.flush(prefix, stamp, now));
        if done {
            // ORDER: SeqCst; see `sweep`.
            self.suspect.fetch_max(stamp, Ordering::SeqCst);
            self.has_dead.store(true, Ordering::Relaxed);
        }
        done
    }

    /// Whether the item was flushed (D2).
    #[inline]
    fn is_dead(&self, item: &Item) -> bool {
        // ORDER: Relaxed; as in `kill_up_to`.
        item.stamp() <= self.suspect.load(Ordering::Relaxed) && self.was_flushed(item)
    }

    #[cold]
    fn was_flushed(&self, item: &Item) -> bool {
        let stamp = item.stamp();
        // ORDER: Relaxed; as in `kill_up_to`.
        stamp <= self.flushed.load(Ordering::Relaxed)
            || self.prefixes.as_ref().is_some_and(|all| all.is_dead(item.key(), stamp))
    }

    /// Removes what is dead, and if `all` says so what has expired; frees what can be freed.
    /// For whoever has time.
    pub fn sweep(&self, all: bool) {
        let now = self.clock.exact();
        let old = self.prefixes.as_ref().map_or(Vec::new(), |all| all.old(now));
        let suspect = self.suspect.load(Ordering::SeqCst);
        // ORDER: Relaxed; a flush that is missed now is seen the next time.
        if self.has_dead.swap(false, Ordering::Relaxed) || !old.is_empty() {
            self.cache.retain(|entry| !self.is_dead(entry.key()));
        }
        let is_over = |all: &Prefixes| !old.is_empty() && all.forget(&old);
        if self.prefixes.as_ref().is_some_and(is_over) {
            // Nothing but what was flushed with everything is dead now.
            // ORDER: SeqCst; a flush writes what it is about first, and this word then. If the word
            // read above has it, so has the rest; if not, this fails, or comes before.
            let flushed = self.flushed.load(Ordering::SeqCst);
            let (set, not) = (Ordering::SeqCst, Ordering::Relaxed);
            let _ = self.suspect.compare_exchange(suspect, flushed, set, not);
        }
        if all {
            self.cache.purge();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{Arith, Mode};

    #[test]
    fn a_number_changed_when_a_flush_is_due_goes_with_it() {
        let store = Store::new(Limits::default(), 1);
        let mut handle = store.handle(0);
        let draft = Draft::new(b"a", b"1");
        assert_eq!(handle.put(&draft, How::plain(Mode::Set)).outcome, Outcome::Stored);
        store.flush_at.store(store.clock.exact(), Ordering::Relaxed);
        // Somebody else has moved the clock on, and will flush in a moment.
        store.clock.force();
        let changed = handle.change(b"a", (Arith::Incr, 1), None, None, None);
        assert!(matches!(changed, Change::Done(2, ..)));
        store.tick();
        assert!(handle.peek(b"a").is_none());
        // What comes later stays.
        assert_eq!(handle.put(&draft, How::plain(Mode::Set)).outcome, Outcome::Stored);
        store.tick();
        assert!(handle.peek(b"a").is_some());
    }
}
