//! Counts of items that were evicted or expired.

use super::Item;
use super::clock::Clock;
use super::events::{EVICTIONS, Events, write_key};
use manycore::collections::Counter;
use manycore_cache::Cause;
use std::cell::RefCell;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// An evicted item counts as active if it was used within this many seconds.
const ACTIVE: u32 = 60;

thread_local! {
    /// The key of the last item that this thread found to have expired.
    static EXPIRED: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// The counts since the start.
pub(super) struct Departures {
    events: Arc<Events>,
    clock: Arc<Clock>,
    evicted: Counter,
    evicted_unfetched: Counter,
    evicted_nonzero: Counter,
    evicted_active: Counter,
    expired: Counter,
    expired_unfetched: Counter,
    /// Seconds for which the last evicted item was unused.
    evicted_time: AtomicU64,
    /// The counts at the last reset.
    before: std::sync::Mutex<DepartureCounts>,
}

/// The counts at a point in time.
#[derive(Debug, Clone, Copy, Default)]
pub struct DepartureCounts {
    /// Items that were evicted.
    pub evicted: u64,
    /// Evicted items that were never fetched.
    pub evicted_unfetched: u64,
    /// Evicted items that had a deadline.
    pub evicted_nonzero: u64,
    /// Evicted items that were used within the minute before.
    pub evicted_active: u64,
    /// Items that expired.
    pub expired: u64,
    /// Expired items that were never fetched.
    pub expired_unfetched: u64,
    /// Seconds for which the last evicted item was unused.
    pub evicted_time: u64,
}

impl Departures {
    pub(super) fn new(events: Arc<Events>, clock: Arc<Clock>) -> Self {
        let zero = || Counter::new(0);
        Self {
            events,
            clock,
            evicted: zero(),
            evicted_unfetched: zero(),
            evicted_nonzero: zero(),
            evicted_active: zero(),
            expired: zero(),
            expired_unfetched: zero(),
            evicted_time: AtomicU64::new(0),
            before: std::sync::Mutex::default(),
        }
    }

    /// Counts an item that has left the table.
    pub(super) fn note(&self, item: &Item, cause: Cause) {
        match cause {
            Cause::Evicted => self.note_evicted(item),
            Cause::Expired => {
                self.expired.inc();
                if !item.was_fetched() {
                    self.expired_unfetched.inc();
                }
                EXPIRED.with_borrow_mut(|key| {
                    key.clear();
                    key.extend_from_slice(item.key());
                });
            }
            _ => {}
        }
    }

    fn note_evicted(&self, item: &Item) {
        self.evicted.inc();
        if !item.was_fetched() {
            self.evicted_unfetched.inc();
        }
        if item.deadline() != 0 {
            self.evicted_nonzero.inc();
        }
        let unused = self.clock.second().saturating_sub(item.used());
        if item.was_fetched() && unused < ACTIVE {
            self.evicted_active.inc();
        }
        // ORDER: Relaxed; a statistic. Written only when it changes.
        if self.evicted_time.load(Ordering::Relaxed) != u64::from(unused) {
            self.evicted_time.store(unused.into(), Ordering::Relaxed);
        }
        if self.events.wants(EVICTIONS) {
            let left = self.clock.seconds_left(item.deadline());
            let fetched = if item.was_fetched() { "yes" } else { "no" };
            self.events.tell(EVICTIONS, |line| {
                line.push_str("type=eviction key=");
                write_key(line, item.key());
                let size = item.value().len();
                let _ = write!(line, " fetch={fetched} ttl={left} la={unused} clsid=1 size={size}");
            });
        }
    }

    /// Returns true if this thread's last look-up found this key's item expired. It returns true
    /// once.
    pub(super) fn has_just_expired(key: &[u8]) -> bool {
        EXPIRED.with_borrow_mut(|expired| {
            let is_it = !expired.is_empty() && expired == key;
            expired.clear();
            is_it
        })
    }

    fn all(&self) -> DepartureCounts {
        let sum = |counter: &Counter| u64::try_from(counter.sum()).unwrap_or(0);
        DepartureCounts {
            evicted: sum(&self.evicted),
            evicted_unfetched: sum(&self.evicted_unfetched),
            evicted_nonzero: sum(&self.evicted_nonzero),
            evicted_active: sum(&self.evicted_active),
            expired: sum(&self.expired),
            expired_unfetched: sum(&self.expired_unfetched),
            // ORDER: Relaxed; a statistic.
            evicted_time: self.evicted_time.load(Ordering::Relaxed),
        }
    }

    fn before(&self) -> std::sync::MutexGuard<'_, DepartureCounts> {
        self.before.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Returns the counts since the last reset.
    pub(super) fn counts(&self) -> DepartureCounts {
        let (all, before) = (self.all(), *self.before());
        DepartureCounts {
            evicted: all.evicted.saturating_sub(before.evicted),
            evicted_unfetched: all.evicted_unfetched.saturating_sub(before.evicted_unfetched),
            evicted_nonzero: all.evicted_nonzero.saturating_sub(before.evicted_nonzero),
            evicted_active: all.evicted_active.saturating_sub(before.evicted_active),
            expired: all.expired.saturating_sub(before.expired),
            expired_unfetched: all.expired_unfetched.saturating_sub(before.expired_unfetched),
            evicted_time: all.evicted_time,
        }
    }

    /// Resets the counts.
    pub(super) fn reset(&self) {
        *self.before() = self.all();
    }
}
