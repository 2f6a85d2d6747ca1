//! The operations of one worker on the store.

use super::clock::stamp;
use super::events::{
    DELETIONS, DETAIL, FETCHERS, MUTATIONS, TRACED_DELETES, TRACED_GETS, TRACED_STORES,
};
use super::outcome::{Change, Outcome, StoreCondition, StoreResult};
use super::{Counters, Item, NewItem, Pinned, Store};
use crate::protocol::{Arith, Mode, number};
use foldhash::quality::RandomState;
use manycore_cache::{BatchKey, Entry, Guard};
use std::borrow::Cow;
use std::sync::atomic::Ordering;

/// The kinds of events that a store of a value causes.
const TOLD_STORES: u32 = MUTATIONS | FETCHERS | DETAIL | TRACED_STORES;

/// The longest value that can be a number, with trailing bytes. memcached stores longer values in
/// chunks, and does not parse these.
const NUMBER_MAX: usize = 1 << 19;

/// Bytes of new items after which the limit is divided anew between items and tables.
const SHARE_BYTES: usize = 1 << 20;

/// One worker's access to the store. It makes the worker's stamps and counts its operations.
pub struct Handle<'s> {
    store: &'s Store,
    /// The counts of this worker.
    pub counters: &'s Counters,
    worker: usize,
    last: u64,
    /// Bytes stored since the limit was last divided between items and tables.
    stored: usize,
    /// The descriptor of the client that is being served, for watchers.
    pub client: i32,
    /// The values of this turn's replies that are sent without a copy.
    pub pinned: Pinned<'s>,
}

/// A visit to one key of a batch: the key with its bucket.
pub type Turn<'t> = BatchKey<'t, [u8], Item, (), RandomState>;
/// An item that was found, protected by a guard.
pub type Found<'s> = Guard<'s, Item, ()>;

impl<'s> Handle<'s> {
    pub(super) fn new(store: &'s Store, counters: &'s Counters, worker: usize) -> Self {
        // The clock is now above the stamps of the worker's previous handle (store.D1): each of
        // those stamps took longer than the 16 ns by which it advanced.
        store.clock.force();
        let pinned = Pinned::default();
        Self { store, counters, worker, last: 0, stored: 0, client: 0, pinned }
    }

    /// Returns the store.
    pub fn store(&self) -> &'s Store {
        self.store
    }

    /// Returns the item's version, or 0 if versions are disabled.
    #[inline]
    pub fn cas(&self, item: &Item) -> u64 {
        if self.store.limits.has_versions { item.cas() } else { 0 }
    }

    /// Returns a stamp that is larger than all earlier stamps of this worker (store.D1).
    fn next_stamp(&mut self) -> u64 {
        let before = self.last;
        self.last = stamp(self.store.clock.now(), self.worker).max(before + 256);
        debug_assert!(
            self.last > before && self.last & 0xff == self.worker as u64,
            "store.D1: worker {} takes the stamp {:#x} after {before:#x}",
            self.worker,
            self.last
        );
        self.last
    }

    fn make(&mut self, new_item: &NewItem<'_>) -> Item {
        new_item.make(&self.store.memory, self.next_stamp())
    }

    fn is_live(&self, item: &Item) -> bool {
        !self.store.is_dead(item) && !self.store.clock.is_over(item.deadline())
    }

    /// Returns the key's item, without recording the use in the item.
    pub fn peek(&self, key: &[u8]) -> Option<Found<'s>> {
        self.store.cache.get(key).filter(|found| self.is_live(found.key()))
    }

    /// As [`peek`](Self::peek), but the access does not protect the item from eviction either.
    pub fn peek_without_bump(&self, key: &[u8]) -> Option<Found<'s>> {
        self.store.cache.get_locked_if(key, |entry| self.is_live(entry.key()))
    }

    /// Visits each of these keys, in order. Fetches their bucket lines together.
    #[inline]
    pub fn each_of<'k>(
        &mut self,
        keys: impl IntoIterator<Item = &'k [u8]>,
        mut turn: impl FnMut(&mut Self, Turn<'_>),
    ) {
        let store = self.store;
        store.cache.visit_many(keys, |_, spot| turn(self, spot));
    }

    /// Returns the item of the visited key, and records the use.
    #[inline]
    pub fn get<'t>(&self, turn: Turn<'t>) -> Option<&'t Item> {
        let item = self.look(turn);
        self.counters.cmd_get.inc();
        if let Some(item) = item {
            item.touch(self.store.clock.second());
            self.counters.get_hits.inc();
        } else {
            self.counters.get_misses.inc();
        }
        item
    }

    /// Returns the item of the visited key, without recording the use.
    #[inline]
    pub fn look<'t>(&self, turn: Turn<'t>) -> Option<&'t Item> {
        let key = turn.key();
        let there = turn.get().map(Entry::key);
        let item = there.filter(|item| self.is_live(item));
        if item.is_none() {
            self.note_miss(key, there);
        }
        if self.store.events.wants(FETCHERS | DETAIL | TRACED_GETS) {
            self.note_fetch(key, item);
        }
        item
    }

    /// Appends the value of an item that the visit has just found. Pins the value if that is
    /// cheaper than a copy.
    #[inline]
    pub fn write_value(&mut self, turn: Turn<'_>, item: &Item, out: &mut Vec<u8>) {
        if !self.pinned.wants(item) || !self.pin(turn, item, out) {
            item.write_value(out);
        }
    }

    /// Pins the item. Returns false if it was replaced or removed concurrently.
    #[inline(never)]
    fn pin(&mut self, turn: Turn<'_>, item: &Item, out: &mut Vec<u8>) -> bool {
        let found = turn.guard(&self.store.cache);
        let Some(found) = found.filter(|found| std::ptr::eq(found.key(), item)) else {
            return false;
        };
        self.pinned.push(out, found);
        true
    }

    /// As [`put`](Self::put), for a plain `set` of the visited key.
    #[inline]
    pub fn set(&mut self, turn: Turn<'_>, new_item: &NewItem<'_>) -> Outcome {
        if !self.has_room(new_item.weight()) {
            return self.put(new_item, StoreCondition::plain(Mode::Set)).outcome;
        }
        let is_told = self.store.events.wants(TOLD_STORES);
        if is_told {
            self.note_found(new_item.key);
        }
        turn.insert(self.make(new_item), ());
        self.counters.total_items.inc();
        self.make_room(new_item.weight());
        if is_told {
            self.note_store(new_item, Mode::Set, Outcome::Stored);
        }
        Outcome::Stored
    }

    /// Prefetches the bucket lines of keys that will be looked up next. A hint.
    pub fn prefetch(&self, keys: &[&[u8]]) {
        self.store.cache.prefetch(keys.iter().copied());
    }

    /// Makes room for `bytes` bytes of new items: divides the limit anew and vacates regions.
    #[inline]
    fn make_room(&mut self, bytes: usize) {
        self.stored += bytes;
        if self.stored >= SHARE_BYTES {
            self.stored = 0;
            self.store.share_memory();
        }
        self.store.make_room(bytes);
    }

    /// Returns true if there is room for `bytes` more bytes.
    fn has_room(&self, bytes: usize) -> bool {
        // ORDER: Relaxed; a limit, which orders nothing.
        let (bytes, memory) = (bytes as u64, self.store.capacity.load(Ordering::Relaxed));
        bytes <= memory && (self.store.limits.evicts || self.store.cache.weight() + bytes <= memory)
    }

    /// Stores a value.
    pub fn put(&mut self, new_item: &NewItem<'_>, condition: StoreCondition) -> StoreResult {
        let is_told = self.store.events.wants(TOLD_STORES);
        if is_told {
            self.note_found(new_item.key);
        }
        let written = self.put_quietly(new_item, condition);
        if is_told {
            let mode = condition.cas.map_or(condition.mode, Mode::Cas);
            self.note_store(new_item, mode, written.outcome);
        }
        written
    }

    fn put_quietly(&mut self, new_item: &NewItem<'_>, condition: StoreCondition) -> StoreResult {
        if !self.has_room(new_item.weight()) {
            if condition.mode == Mode::Set {
                // The item in the store would be out of date.
                self.store.cache.remove(new_item.key);
            }
            self.counters.store_no_memory.inc();
            return StoreResult::refused(Outcome::NoMemory, new_item);
        }
        let written = match condition.mode {
            Mode::Append | Mode::Prepend => self.extend(new_item, condition),
            Mode::Set if condition.cas.is_none() => {
                let item = self.make(new_item);
                let cas = self.cas(&item);
                self.store.cache.insert(item, ());
                StoreResult::stored(cas, new_item)
            }
            _ => self.put_if(new_item, condition),
        };
        if written.outcome == Outcome::Stored {
            self.counters.total_items.inc();
            // An append has rewritten the whole item.
            self.make_room(new_item.weight().max(written.length));
        }
        written
    }

    /// Makes an item that a reply shows, and that is not in the store.
    pub(crate) fn shown(&self, new_item: &NewItem<'_>, stamp: u64) -> Item {
        new_item.make(&self.store.memory, stamp)
    }

    fn put_if(&mut self, new_item: &NewItem<'_>, condition: StoreCondition) -> StoreResult {
        let item = self.make(new_item);
        let cas = self.cas(&item);
        let mut outcome = Outcome::Stored;
        let result = self.store.cache.insert_locked_if(item, (), |entry| {
            outcome =
                self.judge(entry.map(Entry::key).filter(|item| self.is_live(item)), condition);
            outcome == Outcome::Stored
        });
        if condition.cas.is_some() {
            match outcome {
                Outcome::Stored => self.counters.cas_hits.inc(),
                Outcome::NotFound => self.counters.cas_misses.inc(),
                _ => self.counters.cas_badval.inc(),
            }
        }
        match (result, condition.cas) {
            (Err(_), Some(seen)) if outcome == Outcome::Exists && condition.invalidate => {
                self.put_stale(new_item, seen)
            }
            (Ok(_), _) => StoreResult::stored(cas, new_item),
            (Err(_), _) => StoreResult::refused(outcome, new_item),
        }
    }

    /// Decides whether the value may be stored, given the current item.
    fn judge(&self, there: Option<&Item>, condition: StoreCondition) -> Outcome {
        match (condition.mode, condition.cas, there) {
            (Mode::Add, _, there) if there.is_none() => Outcome::Stored,
            (Mode::Add, ..) | (Mode::Replace, None, None) => Outcome::NotStored,
            (_, None, _) => Outcome::Stored,
            (_, Some(_), None) => Outcome::NotFound,
            (_, Some(cas), Some(item)) if self.cas(item) == cas => Outcome::Stored,
            _ => Outcome::Exists,
        }
    }

    /// Stores the value as stale after a failed compare-and-swap, if its version is older than the
    /// item's.
    fn put_stale(&mut self, new_item: &NewItem<'_>, seen: u64) -> StoreResult {
        loop {
            let Some(old) = self.peek(new_item.key) else {
                return StoreResult::refused(Outcome::NotFound, new_item);
            };
            if seen == 0 || seen >= self.cas(old.key()) {
                return StoreResult::refused(Outcome::Exists, new_item);
            }
            let (deadline, is_sent) = (old.key().deadline(), old.key().is_sent());
            let new_item = NewItem { deadline, is_stale: true, is_sent, ..*new_item };
            if let Some(cas) = self.exchange(&old, &new_item, true) {
                return StoreResult::stored(cas, &new_item);
            }
        }
    }

    /// Replaces the old item with the new item, if the old item is still in the table (store.D4).
    /// `keeps_time` is true if the new item copied the old deadline. Then the old item must still
    /// have that deadline.
    fn exchange(
        &mut self,
        old: &Found<'_>,
        new_item: &NewItem<'_>,
        keeps_time: bool,
    ) -> Option<u64> {
        let item = self.make(new_item);
        let cas = self.cas(&item);
        let same = |entry: Option<Entry<'_, Item, ()>>| {
            entry.map(Entry::key).is_some_and(|there| {
                there.stamp() == old.key().stamp()
                    && self.is_live(there)
                    && (!keeps_time || there.deadline() == new_item.deadline)
            })
        };
        self.store.cache.insert_locked_if(item, (), same).ok()?;
        Some(cas)
    }

    fn extend(&mut self, new_item: &NewItem<'_>, condition: StoreCondition) -> StoreResult {
        loop {
            let Some(old) = self.peek(new_item.key) else {
                let Some(deadline) = condition.vivify else {
                    return StoreResult::refused(Outcome::NotStored, new_item);
                };
                let add = StoreCondition { mode: Mode::Add, cas: None, ..condition };
                match self.put_if(&NewItem { deadline, ..*new_item }, add) {
                    StoreResult { outcome: Outcome::NotStored, .. } => continue,
                    done => return done,
                }
            };
            let item = old.key();
            if condition.cas.is_some_and(|cas| cas != 0 && cas != self.cas(item)) {
                return StoreResult::refused(Outcome::Exists, new_item);
            }
            let (before, after) = (item.value(), new_item.value[0]);
            let value =
                if condition.mode == Mode::Append { [&*before, after] } else { [after, &*before] };
            let (flags, deadline, is_binary) = (item.flags(), item.deadline(), item.is_binary());
            let longer = NewItem { value, flags, deadline, is_binary, ..*new_item };
            if new_item.key.len() + before.len() + after.len() > self.store.limits.item
                || !self.has_room(longer.weight())
            {
                return StoreResult::refused(Outcome::NotStored, new_item);
            }
            if let Some(cas) = self.exchange(&old, &longer, true) {
                return StoreResult::stored(cas, &longer);
            }
        }
    }

    /// Increments or decrements a number. `cas` is a condition, `deadline` a new deadline.
    pub fn change(
        &mut self,
        key: &[u8],
        (arith, delta): (Arith, u64),
        cas: Option<u64>,
        new_cas: Option<u64>,
        deadline: Option<u32>,
    ) -> Change {
        self.note_change(key);
        loop {
            let Some(old) = self.peek(key) else { return Change::Missing };
            let item = old.key();
            // Checked before the version, as in memcached.
            if !(1..=NUMBER_MAX).contains(&item.value_len()) {
                return Change::NoNumber;
            }
            if cas.is_some_and(|cas| cas != self.cas(item)) {
                return Change::Exists;
            }
            let Some(number) = number_of(&item.value()) else { return Change::NoNumber };
            let sum = match arith {
                Arith::Incr => number.wrapping_add(delta),
                Arith::Decr => number.saturating_sub(delta),
            };
            let mut digits = itoa::Buffer::new();
            let text = digits.format(sum).as_bytes();
            // As in memcached, a shorter number is padded to the old length, and a longer number
            // makes a new item, without marks.
            let fits = text.len() <= item.value_len();
            let fill = spaces(item.value_len().saturating_sub(text.len()));
            let new_item = NewItem {
                key,
                value: [text, &fill],
                flags: item.flags(),
                deadline: deadline.unwrap_or(item.deadline()),
                cas: new_cas,
                is_binary: item.is_binary(),
                is_stale: fits && item.is_stale(),
                is_sent: fits && item.is_sent(),
                is_fetched: fits && item.was_fetched(),
            };
            if !self.has_room(0) {
                return Change::NoMemory;
            }
            if let Some(cas) = self.exchange(&old, &new_item, deadline.is_none()) {
                return Change::Done(sum, cas, new_item.deadline);
            }
        }
    }

    /// Deletes the key, if it has this version. Returns `NotFound`, `Exists`, or `Stored` for
    /// success.
    pub fn delete(&mut self, key: &[u8], cas: Option<u64>) -> Outcome {
        self.delete_by("delete", key, cas)
    }

    /// As [`delete`](Self::delete), with the name of the command, for watchers.
    pub fn delete_by(&mut self, command: &str, key: &[u8], cas: Option<u64>) -> Outcome {
        self.note_before(key);
        let mut outcome = Outcome::NotFound;
        let removed = self.store.cache.remove_locked_if(key, |entry| {
            let item = entry.key();
            outcome = match cas {
                _ if !self.is_live(item) => Outcome::NotFound,
                Some(cas) if cas != self.cas(item) => Outcome::Exists,
                _ => Outcome::Stored,
            };
            outcome != Outcome::Exists
        });
        if removed.is_none() && outcome == Outcome::Stored {
            outcome = Outcome::NotFound; // removed concurrently by another worker
        }
        if self.store.events.wants(DELETIONS | DETAIL | TRACED_DELETES) {
            self.note_delete(command, key, removed.as_ref().map(|found| found.key()));
        }
        match outcome {
            Outcome::Stored => self.counters.delete_hits.inc(),
            _ => self.counters.delete_misses.inc(),
        }
        outcome
    }

    /// Marks the key's item as stale, sets its deadline, or clears its value.
    pub fn invalidate(
        &mut self,
        key: &[u8],
        cas: Option<u64>,
        change: impl Fn(&Item, &mut NewItem<'_>),
    ) -> Outcome {
        self.note_change(key);
        loop {
            let Some(old) = self.peek(key) else {
                self.counters.delete_misses.inc();
                return Outcome::NotFound;
            };
            let item = old.key();
            if cas.is_some_and(|cas| cas != self.cas(item)) {
                self.counters.delete_misses.inc();
                return Outcome::Exists;
            }
            let value = item.value();
            let mut new_item = NewItem {
                flags: item.flags(),
                deadline: item.deadline(),
                is_binary: item.is_binary(),
                is_stale: item.is_stale(),
                is_sent: item.is_sent(),
                is_fetched: item.was_fetched(),
                ..NewItem::new(key, &value)
            };
            let copied = new_item.deadline;
            change(item, &mut new_item);
            if self.exchange(&old, &new_item, new_item.deadline == copied).is_some() {
                let is_told = self.store.events.wants(MUTATIONS | DELETIONS | FETCHERS);
                if is_told && new_item.value_len() == 0 && item.value_len() > 0 {
                    self.note_emptied(&new_item);
                }
                return Outcome::Stored;
            }
        }
    }

    /// Sets the deadline of the key's item (store.D3). Returns the item.
    pub fn touch(&mut self, key: &[u8], deadline: u32) -> Option<Found<'s>> {
        self.store.cache.get_locked_if(key, |entry| {
            let is_live = self.is_live(entry.key());
            if is_live {
                entry.key().set_deadline(deadline);
            }
            is_live
        })
    }

    /// Records a use for eviction, as a get does.
    pub fn bump(&self, key: &[u8]) {
        drop(self.store.cache.get(key));
    }

    /// Flushes everything, now or after a delay by memcached's rules.
    pub fn flush(&mut self, delay: i64) {
        self.counters.cmd_flush.inc();
        let clock = &self.store.clock;
        let wait = clock.until(clock.deadline(delay)).filter(|wait| !wait.is_zero());
        let at = wait.map_or(0, |wait| clock.now() + wait.as_nanos() as u64);
        // ORDER: Relaxed; the last flush requested replaces the others.
        self.store.flush_at.store(at, Ordering::Relaxed);
        if at == 0 {
            for _ in 0..2 {
                let all = self.all_so_far();
                self.store.kill_up_to(all); // store.D5
            }
        }
    }

    /// Flushes all keys with this prefix, which comes without its delimiter. Returns false if too
    /// many prefixes were flushed recently.
    pub fn flush_prefix(&mut self, prefix: &[u8]) -> bool {
        self.counters.cmd_flush.inc();
        (0..2).all(|_| {
            let all = self.all_so_far();
            self.store.kill_prefix(prefix, all) // store.D5
        })
    }

    /// Stores an item of an earlier store, with its stamp and its last use. Returns false if there
    /// is no room. This store must continue the earlier store's clock, and have no clients yet.
    pub fn restore(&mut self, new_item: &NewItem<'_>, stamp: u64, age_at_use: u16) -> bool {
        if !self.has_room(new_item.weight()) {
            return false;
        }
        let item = new_item.make(&self.store.memory, stamp);
        item.set_age_at_use(age_at_use);
        self.store.cache.insert(item, ());
        if new_item.is_fetched {
            self.bump(new_item.key); // it was used, and so is kept from eviction like a used item
        }
        self.make_room(new_item.weight());
        true
    }

    /// Returns a stamp that is above all stamps taken so far, and below all later stamps (store.D1,
    /// store.D2).
    fn all_so_far(&mut self) -> u64 {
        let all = self.store.clock.all_so_far().max(self.last | 0xff);
        self.last = all - 0xff + self.worker as u64;
        all
    }
}

/// Returns a string of `count` spaces.
fn spaces(count: usize) -> Cow<'static, [u8]> {
    const FEW: &[u8] = &[b' '; 20];
    FEW.get(..count).map_or_else(|| vec![b' '; count].into(), Cow::from)
}

/// Parses a number by memcached's rules. Leading spaces are skipped. Anything behind a space or a
/// zero byte after the number is ignored. A negative number wraps around, as long as the result is
/// below 2^63.
fn number_of(text: &[u8]) -> Option<u64> {
    let is_space = |byte: &u8| matches!(byte, b' ' | b'\t'..=b'\r');
    let mut words = text.split(|byte| is_space(byte) || *byte == 0);
    let before = text.iter().take_while(|byte| is_space(byte)).count();
    match words.nth(before)? {
        [b'-', digits @ ..] if digits.first().is_some_and(u8::is_ascii_digit) => {
            number(digits).map(u64::wrapping_neg).filter(|number| number >> 63 == 0)
        }
        word => number(word),
    }
}
