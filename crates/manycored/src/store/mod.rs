//! The store: memcached's items on top of the cache, with their deadlines, versions, marks and
//! conditions.
//!
//! Laws:
//! - store.D1 A stamp is never used twice: the stamps of one worker grow, and contain its number.
//!   Stamps follow the clock. So an item made after a reply has a larger stamp than the item that
//!   the reply was about.
//! - store.D2 An item is dead if its stamp is not above the stamp of the last flush of
//!   everything, or of the last flush of one of its key's prefixes. Dead items are never shown; a
//!   sweep removes them later.
//! - store.D3 An item's deadline is only in the item, and changes under the lock of the item's
//!   bucket. Before a worker replaces or removes an item, it decides under that lock whether the
//!   item is dead or expired.
//! - store.D4 A change of a value replaces the item that it has read by a new item, or starts
//!   over. If the new item is to keep the deadline, the change also starts over when the old item's
//!   deadline was changed meanwhile.
//! - store.D5 A flush is published twice, the second time with a later stamp. So if a flush kills
//!   an item, it also kills an item that a worker derives from it at the same time. Either the
//!   derived item's stamp is not above the second stamp. Or it was made after the first stamp was
//!   published; then the check of store.D3 found the old item dead.

mod clock;
mod counters;
mod departures;
pub mod events;
mod handle;
mod item;
mod memory;
mod outcome;
mod pinned;
mod prefixes;
mod reporting;
mod saved;

pub use clock::Clock;
pub use counters::{Counters, Totals};
pub use departures::DepartureCounts;
pub use events::{Events, Watch};
pub use handle::{Handle, Turn};
use item::ENTRY;
pub(crate) use item::used_at;
pub use item::{Item, NewItem, View};
pub use memory::Usage;
pub use outcome::{Change, Outcome, StoreCondition, StoreResult};
pub use pinned::Pinned;
pub use saved::Beginning;

use departures::Departures;
use foldhash::quality::RandomState;
use manycore_cache::{Cache, Cause, Cursor};
use memory::Memory;
use prefixes::Prefixes;
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, TryLockError};
use std::time::Duration;

/// The smallest limit of memory that can be set while the server runs, in megabytes.
pub const MEMLIMIT_MIN: u64 = 8;
/// The most workers that stamps can distinguish.
pub const WORKERS_MAX: usize = 256;

/// The limits and options of a store.
#[derive(Debug, Clone)]
pub struct Limits {
    /// The most bytes of all items together.
    pub memory: u64,
    /// The most bytes of one item.
    pub item: usize,
    /// Whether items are evicted to make room. If not, new items are refused.
    pub evicts: bool,
    /// The delimiter of key prefixes, if prefixes can be flushed.
    pub delimiter: Option<u8>,
    /// Whether items show versions. If not, all versions are 0.
    pub has_versions: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Self { memory: 64 << 20, item: 1 << 20, evicts: true, delimiter: None, has_versions: true }
    }
}

/// Bytes of new items for each visited bucket, while regions are vacated. With this number a walk
/// is complete when a twentieth of the memory has been filled, even if all items are small.
const VACATE_BYTES: usize = 8;
/// The most bytes copied for each byte of new items. Large items may be in few buckets; this bounds
/// the latency of a request and the garbage at one time.
const VACATE_COPIES: usize = 4;
/// Buckets between two checks of the bytes copied.
const VACATE_STEP: usize = 16;

/// The initial capacity of an empty store's table, in items.
const ENTRIES_MIN: usize = 1 << 12;
/// Bytes above the budget, besides a part of the limit, that do not reduce the capacity for items.
const OVER_MIN: u64 = 2 << 20;

/// Adds a reserve to the bytes of items, for items that are not reclaimed yet and for
/// fragmentation.
fn with_garbage(bytes: u64) -> u64 {
    bytes.saturating_add((bytes / 8).clamp(4 << 20, 32 << 20)).saturating_add(bytes / 32)
}

/// All items, shared by all workers.
pub struct Store {
    cache: Cache<Item, (), RandomState>,
    /// The memory of the items. It is dropped after the cache (memory.R5).
    memory: Arc<Memory>,
    /// The position of the walk that vacates regions, if one is under way.
    vacating: Mutex<Option<Cursor>>,
    clock: Arc<Clock>,
    limits: Limits,
    /// The limit in bytes of items and tables. It is the initial limit, unless it was changed.
    limit: AtomicU64,
    /// Of these, bytes of items.
    capacity: AtomicU64,
    /// If nothing is evicted, bytes that concurrent workers may store beyond the capacity.
    beyond: u64,
    /// Items with stamps up to this are dead (store.D2).
    flushed: AtomicU64,
    /// Only items with stamps up to this may be dead.
    suspect: AtomicU64,
    prefixes: Option<Prefixes>,
    /// The time of the next delayed flush, in nanoseconds of the clock; 0 is never.
    flush_at: AtomicU64,
    /// Whether dead items may be in the table.
    has_dead: AtomicBool,
    /// Counts of the workers.
    counters: Box<[Counters]>,
    departures: Arc<Departures>,
    events: Arc<Events>,
    /// Whether expired items are searched for periodically.
    crawls: AtomicBool,
    /// Whether a client has requested a search for expired items.
    crawl_wanted: AtomicBool,
    is_sweeping: AtomicBool,
    sweeps: AtomicU64,
    swept: AtomicU64,
    swept_flushed: AtomicU64,
    checked: AtomicU64,
}

/// Statistics of the searches for expired items.
#[derive(Debug, Clone, Copy)]
pub struct Sweeps {
    /// Whether a search is running, or requested.
    pub is_running: bool,
    /// The number of searches.
    pub started: u64,
    /// Expired items that they removed.
    pub expired: u64,
    /// Flushed items that they removed.
    pub flushed: u64,
    /// Items that they looked at.
    pub checked: u64,
}

impl Store {
    /// Makes an empty store for `workers` workers.
    ///
    /// # Panics
    /// If there is no memory at all, or if there are more than [`WORKERS_MAX`] workers.
    #[must_use]
    pub fn new(limits: Limits, workers: usize) -> Self {
        Self::beginning_with(limits, workers, Beginning::default())
    }

    /// Makes an empty store that continues an earlier store.
    ///
    /// # Panics
    /// As [`new`](Self::new).
    #[must_use]
    pub fn beginning_with(limits: Limits, workers: usize, beginning: Beginning) -> Self {
        assert!(workers <= WORKERS_MAX, "manycored: {workers} workers");
        let clock = Arc::new(Clock::new(beginning.clock));
        let cache_clock = clock.clone();
        let events = Arc::new(Events::new(limits.delimiter));
        let departures = Arc::new(Departures::new(events.clone(), clock.clone()));
        let told = departures.clone();
        let memory = Arc::new(Memory::new(with_garbage(limits.memory), workers));
        // Each worker may find room for an item, although the item's pieces take more memory than
        // its weight.
        let beyond = workers as u64 * (2 * limits.item as u64 + 4096);
        let evicts_at = if limits.evicts { limits.memory } else { limits.memory + beyond };
        // At most as many entries as the whole memory has room for.
        let entries = beginning.entries.min(limits.memory / (ENTRY + 64) as u64) as usize;
        let cache = Cache::builder(evicts_at)
            .initial_entries(entries.max(ENTRIES_MIN))
            .memory(memory.clone())
            .hasher(RandomState::default())
            .weigher(|item: &Item, ()| u32::try_from(item.weight()).unwrap_or(u32::MAX))
            .weight_in_bytes(true)
            .without_metadata(move |item: &Item, ()| Clock::moment(item.deadline()))
            .clock(move || Duration::from_nanos(cache_clock.now()))
            .listener(move |item: &Item, (), cause| told.note(item, cause))
            .listener_causes(&[Cause::Evicted, Cause::Expired])
            .build()
            .unwrap_or_else(|error| panic!("manycored: {error}"));
        Self {
            cache,
            memory,
            vacating: Mutex::new(None),
            clock,
            prefixes: limits.delimiter.map(Prefixes::new),
            limit: AtomicU64::new(limits.memory),
            capacity: AtomicU64::new(limits.memory),
            beyond,
            limits,
            flushed: AtomicU64::new(0),
            suspect: AtomicU64::new(0),
            flush_at: AtomicU64::new(beginning.flush_at),
            has_dead: AtomicBool::new(false),
            counters: (0..workers).map(|_| Counters::default()).collect(),
            departures,
            events,
            crawls: AtomicBool::new(true),
            crawl_wanted: AtomicBool::new(false),
            is_sweeping: AtomicBool::new(false),
            sweeps: AtomicU64::new(0),
            swept: AtomicU64::new(0),
            swept_flushed: AtomicU64::new(0),
            checked: AtomicU64::new(0),
        }
    }

    /// Returns one worker's access to the store.
    ///
    /// # Panics
    /// If there is no such worker.
    pub fn handle(&self, worker: usize) -> Handle<'_> {
        Handle::new(self, &self.counters[worker], worker)
    }

    /// Returns the limits that it was created with.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Its clock.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Returns the sum of the workers' counts.
    pub fn totals(&self) -> Totals {
        Totals::sum(&self.counters)
    }

    /// Resets all counts.
    pub fn reset_counters(&self) {
        self.counters.iter().for_each(Counters::reset);
        self.departures.reset();
        self.events.reset_details();
    }

    /// Returns the counts of items that were evicted or expired.
    pub fn departures(&self) -> DepartureCounts {
        self.departures.counts()
    }

    /// Returns the events of single requests.
    pub fn events(&self) -> &Arc<Events> {
        &self.events
    }

    /// Visits the live items of some buckets, from a position on. Returns the next position, or
    /// `None` at the end. No lock is held between two calls.
    pub fn scan(
        &self,
        from: Cursor,
        buckets: usize,
        mut visit: impl FnMut(&Item),
    ) -> Option<Cursor> {
        self.cache.scan(from, buckets, |entry| {
            let item = entry.key();
            if !self.is_dead(item) && !self.clock.is_over(item.deadline()) {
                visit(item);
            }
        })
    }

    /// Returns the number of items, including dead items that no sweep has removed yet.
    pub fn len(&self) -> usize {
        self.cache.len()
    }

    /// Returns true if there are no items.
    pub fn is_empty(&self) -> bool {
        self.cache.is_empty()
    }

    /// Bytes of the tables, which are a part of the items' weight.
    pub fn table_bytes(&self) -> u64 {
        let footprint = self.cache.footprint();
        footprint.tables + footprint.chains
    }

    /// Bytes of items, with their part of the tables.
    pub fn bytes(&self) -> u64 {
        self.cache.weight()
    }

    /// Returns the current limit of memory.
    pub fn memory(&self) -> u64 {
        // ORDER: Relaxed; a limit.
        self.limit.load(Ordering::Relaxed)
    }

    /// Returns the cache's own statistics: evictions and the like.
    pub fn cache_stats(&self) -> manycore_cache::Stats {
        self.cache.stats()
    }

    /// Sets the limit of memory, in bytes.
    pub fn set_memory(&self, bytes: u64) {
        // ORDER: Relaxed; a limit.
        self.limit.store(bytes.max(1), Ordering::Relaxed);
        self.share_memory();
    }

    /// Divides the limit between items and tables. The weight of items includes their part of the
    /// tables, but tables do not shrink when there are fewer items.
    pub(crate) fn share_memory(&self) {
        let (limit, tables) = (self.memory(), self.table_bytes());
        let excess = tables.saturating_sub(self.len() as u64 * ENTRY as u64);
        // Memory lost to fragmentation is compensated by fewer items.
        let over = (self.memory.bytes_over() as u64).saturating_sub(limit / 32 + OVER_MIN);
        let capacity = limit.saturating_sub(excess + over).max(limit / 2).max(1);
        debug_assert!((1..=limit).contains(&capacity), "capacity {capacity} of a limit of {limit}");
        // ORDER: Relaxed; a limit.
        self.capacity.store(capacity, Ordering::Relaxed);
        let evicts_at = if self.limits.evicts { capacity } else { limit + self.beyond };
        if evicts_at != self.cache.capacity() {
            self.cache.set_capacity(evicts_at);
        }
        self.memory.set_bytes(with_garbage(limit.saturating_sub(tables)));
    }

    /// Returns the memory that items have from the system, used or not.
    pub fn usage(&self) -> Usage {
        self.memory.usage()
    }

    /// Continues to vacate regions, if free memory is in the wrong regions. Does as much of the
    /// walk as `bytes` bytes of new items pay for.
    #[inline]
    pub(crate) fn make_room(&self, bytes: usize) {
        if self.memory.is_over() {
            self.vacate(bytes / VACATE_BYTES + 1, VACATE_COPIES * bytes);
        }
    }

    /// Visits `buckets` buckets of the table, and relocates items out of the regions that are being
    /// vacated, until about `most` bytes were copied.
    #[cold]
    fn vacate(&self, buckets: usize, most: usize) {
        let mut vacating = match self.vacating.try_lock() {
            Ok(vacating) => vacating,
            // After a panic, the walk continues at its position.
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        if vacating.is_none() {
            if self.memory.begin_vacating() == 0 {
                return;
            }
            *vacating = Some(Cursor::default());
        }
        let (mut copied, mut left) = (0, buckets);
        while let Some(from) = vacating.filter(|_| left > 0 && copied <= most) {
            let step = left.min(VACATE_STEP);
            left -= step;
            *vacating = self.cache.relocate(
                from,
                step,
                |entry| {
                    let item = entry.key();
                    item.is_to_move().then(|| {
                        copied += item.weight();
                        (item.copy(&self.memory), ())
                    })
                },
                |old, new| new.key().take_over(old.key()),
            );
        }
        if vacating.is_none() {
            self.cache.collect();
            self.memory.end_vacating();
        }
    }

    /// Advances the clock, and flushes if a delayed flush is due. A worker calls it whenever it
    /// wakes up.
    pub fn tick(&self) {
        let now = self.clock.tick();
        // ORDER: Relaxed; one of the workers flushes. If it misses the time, a later tick sees it.
        let due = self.flush_at.load(Ordering::Relaxed);
        if due != 0 && due <= now {
            let taken =
                self.flush_at.compare_exchange(due, 0, Ordering::Relaxed, Ordering::Relaxed);
            if taken.is_ok() {
                // Kills items up to now, and not only up to the time when the flush was due. An
                // item that was derived meanwhile from a killed item has a later stamp than that
                // time.
                for _ in 0..2 {
                    self.kill_up_to(self.clock.all_so_far()); // store.D5
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

    /// Kills items with this prefix, up to `stamp`. Returns false if the flush cannot be
    /// remembered.
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

    /// Returns true if the item was flushed (store.D2).
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

    /// Removes dead items, and expired items if `all` is set. Reclaims memory. The housekeeping
    /// calls this.
    pub fn sweep(&self, all: bool) {
        let now = self.clock.exact();
        let old = self.prefixes.as_ref().map_or(Vec::new(), |all| all.old(now));
        let suspect = self.suspect.load(Ordering::SeqCst);
        // ORDER: Relaxed; a flush that is missed now is seen the next time.
        if self.has_dead.swap(false, Ordering::Relaxed) || !old.is_empty() {
            let flushed = Cell::new(0);
            self.cache.retain(|entry| {
                let is_dead = self.is_dead(entry.key());
                flushed.set(flushed.get() + u64::from(is_dead));
                !is_dead
            });
            self.swept_flushed.fetch_add(flushed.get(), Ordering::Relaxed);
        }
        let is_over = |all: &Prefixes| !old.is_empty() && all.forget(&old);
        if self.prefixes.as_ref().is_some_and(is_over) {
            // From now on, only a flush of everything can have killed items.
            // ORDER: SeqCst; a flush writes its own record first, and this word then. If the word
            // read above has it, so has the rest; if not, this fails, or comes before.
            let flushed = self.flushed.load(Ordering::SeqCst);
            let (set, not) = (Ordering::SeqCst, Ordering::Relaxed);
            let _ = self.suspect.compare_exchange(suspect, flushed, set, not);
        }
        if all {
            self.sweep_expired();
        }
        self.share_memory();
        if self.memory.is_over() {
            self.vacate(usize::MAX, usize::MAX);
        }
    }

    fn sweep_expired(&self) {
        // ORDER: Relaxed, here and below; statistics, and hints for the next sweep.
        self.crawl_wanted.store(false, Ordering::Relaxed);
        self.is_sweeping.store(true, Ordering::Relaxed);
        let items = self.len();
        let before = self.cache.stats().expirations;
        self.cache.purge();
        let gone = self.cache.stats().expirations.saturating_sub(before);
        self.sweeps.fetch_add(1, Ordering::Relaxed);
        self.swept.fetch_add(gone, Ordering::Relaxed);
        self.checked.fetch_add(items as u64, Ordering::Relaxed);
        self.is_sweeping.store(false, Ordering::Relaxed);
    }

    /// Returns true if expired items are searched for periodically.
    pub fn crawls(&self) -> bool {
        // ORDER: Relaxed; a hint.
        self.crawls.load(Ordering::Relaxed)
    }

    /// Enables or disables the periodic search for expired items.
    pub fn set_crawls(&self, yes: bool) {
        // ORDER: Relaxed; a hint.
        self.crawls.store(yes, Ordering::Relaxed);
    }

    /// Requests a search for expired items.
    pub fn ask_for_crawl(&self) {
        // ORDER: Relaxed; a hint.
        self.crawl_wanted.store(true, Ordering::Relaxed);
    }

    /// Returns true if a client has requested a search for expired items.
    pub fn is_crawl_wanted(&self) -> bool {
        // ORDER: Relaxed; a hint.
        self.crawl_wanted.load(Ordering::Relaxed)
    }

    /// Returns the statistics of the searches for expired items.
    pub fn sweeps(&self) -> Sweeps {
        // ORDER: Relaxed; statistics.
        Sweeps {
            is_running: self.is_crawl_wanted() || self.is_sweeping.load(Ordering::Relaxed),
            started: self.sweeps.load(Ordering::Relaxed),
            expired: self.swept.load(Ordering::Relaxed),
            flushed: self.swept_flushed.load(Ordering::Relaxed),
            checked: self.checked.load(Ordering::Relaxed),
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
        let new_item = NewItem::new(b"a", b"1");
        assert_eq!(
            handle.put(&new_item, StoreCondition::plain(Mode::Set)).outcome,
            Outcome::Stored
        );
        store.flush_at.store(store.clock.exact(), Ordering::Relaxed);
        // Another worker has advanced the clock, and is about to flush.
        store.clock.force();
        let changed = handle.change(b"a", (Arith::Incr, 1), None, None, None);
        assert!(matches!(changed, Change::Done(2, ..)));
        store.tick();
        assert!(handle.peek(b"a").is_none());
        // Later items survive.
        assert_eq!(
            handle.put(&new_item, StoreCondition::plain(Mode::Set)).outcome,
            Outcome::Stored
        );
        store.tick();
        assert!(handle.peek(b"a").is_some());
    }
    /// Large items are in few buckets: a request must not wait for copies of them all.
    #[test]
    fn a_part_of_a_walk_copies_no_more_than_it_may() {
        let store = Store::new(Limits { memory: 16 << 20, ..Limits::default() }, 1);
        let mut handle = store.handle(0);
        for number in 0..1500_u32 {
            handle.put(
                &NewItem::new(&number.to_le_bytes(), &[1; 9000]),
                StoreCondition::plain(Mode::Set),
            );
        }
        for number in (0..1500_u32).filter(|number| number % 4 != 0) {
            handle.delete(&number.to_le_bytes(), None);
        }
        store.vacate(usize::MAX, 1);
        assert!(store.vacating.try_lock().unwrap().is_some(), "it copied more than it may");
        store.vacate(usize::MAX, usize::MAX);
        assert!(store.vacating.try_lock().unwrap().is_none());
        assert!(store.usage().vacated > 0);
    }
}
