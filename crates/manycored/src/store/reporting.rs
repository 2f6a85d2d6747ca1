//! Reports of a worker's operations, to watchers, to the counts by prefix, and to the recording.

use super::departures::Departures;
use super::events::{
    Asked, DELETIONS, DETAIL, FETCHERS, MUTATIONS, TRACED_DELETES, TRACED_GETS, TRACED_STORES,
    write_key,
};
use super::{Handle, Item, NewItem, Outcome};
use crate::protocol::Mode;
use crate::trace;
use std::fmt::Write;

/// Returns the command of a storage mode.
fn command_of(mode: Mode) -> &'static str {
    match mode {
        Mode::Set => "set",
        Mode::Add => "add",
        Mode::Replace => "replace",
        Mode::Append => "append",
        Mode::Prepend => "prepend",
        Mode::Cas(_) => "cas",
    }
}

impl Handle<'_> {
    /// Counts the reason of a miss, if an item was there a moment ago.
    pub(super) fn note_miss(&self, key: &[u8], there: Option<&Item>) {
        let has_expired = match there {
            // The cache has already dropped the item if it found it expired.
            None => Departures::has_just_expired(key),
            Some(item) if self.store().is_dead(item) => {
                self.counters.get_flushed.inc();
                false
            }
            Some(_) => true,
        };
        if has_expired {
            self.counters.get_expired.inc();
        }
    }

    /// Reports a get outside a batch, and counts the reason of a miss.
    #[inline]
    pub fn note_get(&self, key: &[u8], item: Option<&Item>) {
        if item.is_none() {
            self.note_miss(key, None);
        }
        if self.store().events().wants(FETCHERS | DETAIL | TRACED_GETS) {
            self.note_fetch(key, item);
        }
    }

    /// Reports a get.
    #[cold]
    pub(super) fn note_fetch(&self, key: &[u8], item: Option<&Item>) {
        let events = self.store().events();
        if events.wants(TRACED_GETS) {
            trace::get(self.client, key, item);
        }
        if events.wants(DETAIL) {
            events.count(key, Asked::Get(item.is_some()));
        }
        self.tell_found(key, item.map(Item::value_len));
    }

    /// Reports the look-up of `touch`, which does not count as a get, as in memcached.
    #[inline]
    pub fn note_look_up(&self, key: &[u8], item: Option<&Item>) {
        if self.store().events().wants(FETCHERS | TRACED_STORES) {
            trace::change(self.client, key);
            self.tell_found(key, item.map(Item::value_len));
        }
    }

    /// Reports the look-up before a change or a deletion, as memcached does.
    #[inline]
    pub fn note_before(&self, key: &[u8]) {
        if self.store().events().wants(FETCHERS) {
            self.note_found(key);
        }
    }

    /// Reports a change in place.
    #[inline]
    pub(super) fn note_change(&self, key: &[u8]) {
        if self.store().events().wants(FETCHERS | TRACED_STORES) {
            trace::change(self.client, key);
            self.note_before(key);
        }
    }

    /// Reports the look-up before a value is stored.
    #[cold]
    pub(super) fn note_found(&self, key: &[u8]) {
        if self.store().events().wants(FETCHERS) {
            let found = self.peek_without_bump(key).map(|found| found.key().value_len());
            self.tell_found(key, found);
        }
    }

    #[cold]
    fn tell_found(&self, key: &[u8], found: Option<usize>) {
        let events = self.store().events();
        if events.wants(FETCHERS) {
            let status = if found.is_some() { "found" } else { "not_found" };
            let (class, size) = (u8::from(found.is_some()), found.unwrap_or(0));
            events.tell(FETCHERS, |line| {
                line.push_str("type=item_get key=");
                write_key(line, key);
                let client = self.client;
                let _ = write!(line, " status={status} clsid={class} cfd={client} size={size}");
            });
        }
    }

    /// Reports a storage command.
    #[cold]
    pub(super) fn note_store(&self, new_item: &NewItem<'_>, mode: Mode, outcome: Outcome) {
        let events = self.store().events();
        if events.wants(DETAIL) {
            events.count(new_item.key, Asked::Set);
        }
        if events.wants(TRACED_STORES) {
            let size = new_item.value_len();
            trace::store(self.client, command_of(mode), new_item.key, size, outcome);
        }
        if !events.wants(MUTATIONS) {
            return;
        }
        let status = match outcome {
            Outcome::Stored => "stored",
            Outcome::NotStored => "not_stored",
            Outcome::Exists => "exists",
            Outcome::NotFound => "not_found",
            Outcome::NoMemory => "no_memory",
        };
        let command = command_of(mode);
        let (mut deadline, mut size) = (new_item.deadline, new_item.value_len());
        let extends = matches!(mode, Mode::Append | Mode::Prepend);
        if extends && outcome == Outcome::Stored {
            // Reported with the length of the whole value, and with the deadline of the old item.
            if let Some(found) = self.peek_without_bump(new_item.key) {
                (deadline, size) = (found.key().deadline(), found.key().value_len());
            }
        }
        let left = self.store().clock().seconds_left(deadline).max(0);
        events.tell(MUTATIONS, |line| {
            line.push_str("type=item_store key=");
            write_key(line, new_item.key);
            let _ = write!(line, " status={status} cmd={command} ttl={left} clsid=1");
            let _ = write!(line, " cfd={} size={size}", self.client);
        });
    }

    /// Reports `md x`. As in memcached, the report is a store of an empty value, and a deletion.
    #[cold]
    pub(super) fn note_emptied(&self, new_item: &NewItem<'_>) {
        self.note_found(new_item.key);
        self.note_store(new_item, Mode::Set, Outcome::Stored);
        self.tell_deleted("md", new_item.key, 0);
    }

    /// Reports a deletion.
    #[cold]
    pub(super) fn note_delete(&self, command: &str, key: &[u8], gone: Option<&Item>) {
        let events = self.store().events();
        if events.wants(TRACED_DELETES) {
            trace::delete(self.client, key, gone.is_some());
        }
        if events.wants(DETAIL) {
            events.count(key, Asked::Delete);
        }
        if let Some(size) = gone.map(Item::value_len) {
            self.tell_deleted(command, key, size);
        }
    }

    fn tell_deleted(&self, command: &str, key: &[u8], size: usize) {
        let events = self.store().events();
        if events.wants(DELETIONS) {
            events.tell(DELETIONS, |line| {
                line.push_str("type=deleted key=");
                write_key(line, key);
                let _ = write!(line, " cmd={command} clsid=1 size={size}");
            });
        }
    }
}
