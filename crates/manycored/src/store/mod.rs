//! memcached's items on top of the cache: their times, versions, marks, and conditions.
//!
//! Laws:
//! - store.D1 A stamp is never used twice: a worker's own grow, and carry its number. Stamps follow
//!   the clock, so an item made after a reply has a larger one than what that reply was about.
//! - store.D2 An item is dead if its stamp is not above that of the last flush, of everything or of
//!   one of its key's prefixes. Dead ones are never shown; a sweep removes them later.
//! - store.D3 An item's deadline is in the item alone, and is changed under the lock of its bucket.
//!   What depends on it, or on whether the item is dead, is looked at under that lock, too, before
//!   an item is replaced or removed.
//! - store.D4 What changes a value puts a new item in the place of the one that it has seen, or
//!   begins anew; so it does if that one was given another time meanwhile, and the new one is to
//!   have it.
//! - store.D5 A flush is told twice, the second time with a later stamp. So what was made of an
//!   item that a flush kills dies, too: either its stamp is not above the second, or it was made
//!   after the first was told, and then store.D3's look found the item dead.

mod clock;
mod counters;
mod departures;
pub mod events;
mod handle;
mod item;
mod memory;
mod pinned;
mod prefixes;
mod saved;
mod told;

pub use clock::Clock;
pub use counters::{Counters, Totals};
pub use departures::DepartureCounts;
pub use events::{Events, Watch};
pub use handle::{Change, Handle, How, Outcome, StoreResult, Turn};
use item::ENTRY;
pub(crate) use item::used_at;
pub use item::{Draft, Item, View};
pub use memory::Usage;
pub use pinned::Pinned;
pub use saved::Beginning;

use departures::Departures;
use foldhash::quality::RandomState;
use manycore_cache::{Cache, Cause, Cursor};
use memory::Memory;
use prefixes::Prefixes;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, TryLockError};
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
    /// Whether items show versions; if not, all versions are 0.
    pub has_versions: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Self { memory: 64 << 20, item: 1 << 20, evicts: true, delimiter: None, has_versions: true }
    }
}

/// Buckets that are looked at for so many bytes of new items, while regions are vacated: a walk is
/// over when a twentieth of the memory has been filled, also if all items are small.
const VACATE_BYTES: usize = 8;
/// Bytes that are copied at most for each byte of new items: large items are in few buckets, and
/// what a request waits for, and what may be garbage at once, must not be all of them.
const VACATE_COPIES: usize = 4;
/// Buckets between two looks at how much was copied.
const VACATE_STEP: usize = 16;

/// Items that the table of an empty store has room for.
const ENTRIES_MIN: usize = 1 << 12;
/// Bytes beyond the budget, and a part of the limit, up to which items need not make them good.
const OVER_MIN: u64 = 2 << 20;

/// The bytes of items, of those that have left and may still be read, and of free memory in which
/// there are pieces that are worth using.
fn with_garbage(bytes: u64) -> u64 {
    bytes.saturating_add((bytes / 8).clamp(4 << 20, 32 << 20)).saturating_add(bytes / 32)
}

/// All items, for all workers.
pub struct Store {
    cache: Cache<Item, (), RandomState>,
    /// Where the items are; dropped after the cache (memory.R5).
    memory: Arc<Memory>,
    /// Where the walk is that vacates regions, if one is under way.
    vacating: Mutex<Option<Cursor>>,
    clock: Arc<Clock>,
    limits: Limits,
    /// Bytes of items and tables; as the limits have it, unless it was changed.
    limit: AtomicU64,
    /// Of these, bytes of items.
    capacity: AtomicU64,
    /// Bytes that workers may put in beyond that at the same moment, where nothing is evicted.
    beyond: u64,
    /// Items with stamps up to this are dead (store.D2).
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
    departures: Arc<Departures>,
    events: Arc<Events>,
    /// Whether expired items are looked for now and then.
    crawls: AtomicBool,
    /// Whether a client wants them looked for at once.
    crawl_wanted: AtomicBool,
    is_sweeping: AtomicBool,
    sweeps: AtomicU64,
    swept: AtomicU64,
    checked: AtomicU64,
}

/// Searches for what has expired.
#[derive(Debug, Clone, Copy)]
pub struct Sweeps {
    /// Whether there is one now, or soon.
    pub is_running: bool,
    /// How many there were.
    pub started: u64,
    /// Items that they removed.
    pub reclaimed: u64,
    /// Items that they looked at.
    pub checked: u64,
}

impl Store {
    /// An empty store for so many workers.
    ///
    /// # Panics
    /// With no memory at all, or more than [`WORKERS_MAX`] workers.
    #[must_use]
    pub fn new(limits: Limits, workers: usize) -> Self {
        Self::beginning_with(limits, workers, Beginning::default())
    }

    /// An empty store that is to have the items of an earlier one.
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
        // Each may find room for an item, of which the pieces may take more than it.
        let beyond = workers as u64 * (2 * limits.item as u64 + 4096);
        let evicts_at = if limits.evicts { limits.memory } else { limits.memory + beyond };
        // No more than all of the memory has room for.
        let entries = beginning.entries.min(limits.memory / (ENTRY + 64) as u64) as usize;
        let cache = Cache::builder(evicts_at)
            .initial_entries(entries.max(ENTRIES_MIN))
            .memory(memory.clone())
            .hasher(RandomState::default())
            .weigher(|item: &Item, ()| u32::try_from(item.weight()).unwrap_or(u32::MAX))
            .weight_in_bytes(true)
            .lean(move |item: &Item, ()| Clock::moment(item.deadline()))
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
            checked: AtomicU64::new(0),
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
        self.departures.reset();
        self.events.reset_details();
    }

    /// What became of items that left by themselves.
    pub fn departures(&self) -> DepartureCounts {
        self.departures.counts()
    }

    /// Who is told of single requests.
    pub fn events(&self) -> &Arc<Events> {
        &self.events
    }

    /// Visits live items from a place on, those of so many buckets; where it goes on, unless that
    /// was the end. Nothing is held between two steps.
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
        // ORDER: Relaxed; a number to keep to.
        self.limit.load(Ordering::Relaxed)
    }

    /// What the cache counted: evictions and the like.
    pub fn cache_stats(&self) -> manycore_cache::Stats {
        self.cache.stats()
    }

    /// Changes the limit of memory, in bytes.
    pub fn set_memory(&self, bytes: u64) {
        // ORDER: Relaxed; a number to keep to.
        self.limit.store(bytes.max(1), Ordering::Relaxed);
        self.share_memory();
    }

    /// Divides the limit between items and tables. Items are counted with their part of the tables;
    /// but tables do not become smaller when there are fewer items.
    pub(crate) fn share_memory(&self) {
        let (limit, tables) = (self.memory(), self.table_bytes());
        let excess = tables.saturating_sub(self.len() as u64 * ENTRY as u64);
        // What is in pieces that nothing fits is made good by fewer items.
        let over = (self.memory.bytes_over() as u64).saturating_sub(limit / 32 + OVER_MIN);
        let capacity = limit.saturating_sub(excess + over).max(limit / 2).max(1);
        // ORDER: Relaxed; a number to keep to.
        self.capacity.store(capacity, Ordering::Relaxed);
        let evicts_at = if self.limits.evicts { capacity } else { limit + self.beyond };
        if evicts_at != self.cache.capacity() {
            self.cache.set_capacity(evicts_at);
        }
        self.memory.set_bytes(with_garbage(limit.saturating_sub(tables)));
    }

    /// What items have of the system's memory, whether they use it or not.
    pub fn usage(&self) -> Usage {
        self.memory.usage()
    }

    /// Goes on with vacating regions, if free memory is where it is not wanted: a part that goes
    /// with so many bytes of new items.
    #[inline]
    pub(crate) fn make_room(&self, bytes: usize) {
        if self.memory.is_over() {
            self.vacate(bytes / VACATE_BYTES + 1, VACATE_COPIES * bytes);
        }
    }

    /// Looks at so many buckets of the table for items that are in the way, until about so many
    /// bytes were copied.
    #[cold]
    fn vacate(&self, buckets: usize, most: usize) {
        let mut vacating = match self.vacating.try_lock() {
            Ok(vacating) => vacating,
            // A walk that panicked goes on where it was.
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

    /// Whether the item was flushed (store.D2).
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
            self.sweep_expired();
        }
        self.share_memory();
        if self.memory.is_over() {
            self.vacate(usize::MAX, usize::MAX);
        }
    }

    fn sweep_expired(&self) {
        // ORDER: Relaxed, here and below; facts for people, and hints for the next sweep.
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

    /// Whether expired items are looked for now and then.
    pub fn crawls(&self) -> bool {
        // ORDER: Relaxed; a hint.
        self.crawls.load(Ordering::Relaxed)
    }

    /// Has expired items be looked for now and then, or not.
    pub fn set_crawls(&self, yes: bool) {
        // ORDER: Relaxed; a hint.
        self.crawls.store(yes, Ordering::Relaxed);
    }

    /// Has expired items be looked for soon.
    pub fn ask_for_crawl(&self) {
        // ORDER: Relaxed; a hint.
        self.crawl_wanted.store(true, Ordering::Relaxed);
    }

    /// Whether a client wants expired items looked for.
    pub fn is_crawl_wanted(&self) -> bool {
        // ORDER: Relaxed; a hint.
        self.crawl_wanted.load(Ordering::Relaxed)
    }

    /// What the searches for expired items came to.
    pub fn sweeps(&self) -> Sweeps {
        // ORDER: Relaxed; facts for people.
        Sweeps {
            is_running: self.is_crawl_wanted() || self.is_sweeping.load(Ordering::Relaxed),
            started: self.sweeps.load(Ordering::Relaxed),
            reclaimed: self.swept.load(Ordering::Relaxed),
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
    /// Large items are in few buckets: a request must not wait for copies of them all.
    #[test]
    fn a_part_of_a_walk_copies_no_more_than_it_may() {
        let store = Store::new(Limits { memory: 16 << 20, ..Limits::default() }, 1);
        let mut handle = store.handle(0);
        for number in 0..1500_u32 {
            handle.put(&Draft::new(&number.to_le_bytes(), &[1; 9000]), How::plain(Mode::Set));
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
