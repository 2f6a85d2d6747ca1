//! The storage commands of the text protocol, each on one key, and their replies.

use crate::protocol::{Arith, Gets, Mode, Store as Put};
use crate::reply::digits;
use crate::store::{Change, Handle, Item, NewItem, Outcome, StoreCondition, Turn, View};

/// The end of the reply to a get.
pub(super) const END: &[u8] = b"END\r\n";
pub(super) const NO_MEMORY: &[u8] = b"SERVER_ERROR out of memory storing object\r\n";
const NO_MEMORY_TO_COUNT: &[u8] = b"SERVER_ERROR out of memory\r\n";
const NO_NUMBER: &[u8] = b"CLIENT_ERROR cannot increment or decrement non-numeric value\r\n";

/// Writes an item that was found, in the text protocol.
#[inline]
pub(super) fn value(out: &mut Vec<u8>, item: &Item, cas: Option<u64>) {
    value_line(out, &item.view(), cas);
    item.write_value(out);
    out.extend_from_slice(b"\r\n");
}

/// Writes the line before the value of an item that was found.
#[inline]
pub(super) fn value_line(out: &mut Vec<u8>, item: &View<'_>, cas: Option<u64>) {
    out.extend_from_slice(b"VALUE ");
    out.extend_from_slice(item.key);
    out.push(b' ');
    digits(out, item.flags);
    out.push(b' ');
    digits(out, item.length);
    if let Some(cas) = cas {
        out.push(b' ');
        digits(out, cas);
    }
    out.extend_from_slice(b"\r\n");
}

/// Answers `gat` and `gats`. They are not batched, because they change the item.
pub(super) fn get_and_touch(handle: &mut Handle<'_>, key: &[u8], gets: Gets, out: &mut Vec<u8>) {
    let deadline = handle.store().clock().deadline(gets.touch.unwrap_or(0));
    let counters = handle.counters;
    counters.cmd_touch.inc();
    let found = handle.touch(key, deadline);
    handle.bump(key);
    handle.note_get(key, found.as_ref().map(|found| found.key()));
    match found {
        Some(found) => {
            counters.touch_hits.inc();
            found.key().touch(handle.store().clock().second());
            value(out, found.key(), gets.cas.then(|| handle.cas(found.key())));
        }
        None => counters.touch_misses.inc(),
    }
}

pub(super) fn store(handle: &mut Handle<'_>, put: &Put<'_>, out: &mut Vec<u8>) {
    handle.counters.cmd_set.inc();
    let deadline = handle.store().clock().deadline(put.exptime);
    let new_item = NewItem { flags: put.flags, deadline, ..NewItem::new(put.key, put.data) };
    let condition = StoreCondition::plain(put.mode);
    let condition = if condition.cas.is_some() {
        StoreCondition { mode: Mode::Set, ..condition }
    } else {
        condition
    };
    out.extend_from_slice(reply_text(handle.put(&new_item, condition).outcome));
}

/// Executes a plain `set` and returns the reply. (Not inlined, so that the loop over gets stays
/// small.)
#[inline(never)]
pub(super) fn set(
    handle: &mut Handle<'_>,
    turn: Turn<'_>,
    (key, data): (&[u8], &[u8]),
    flags: u32,
    exptime: i64,
) -> &'static [u8] {
    handle.counters.cmd_set.inc();
    let deadline = handle.store().clock().deadline(exptime);
    reply_text(handle.set(turn, &NewItem { flags, deadline, ..NewItem::new(key, data) }))
}

/// Returns the reply to a storage command.
#[inline]
fn reply_text(outcome: Outcome) -> &'static [u8] {
    match outcome {
        Outcome::Stored => b"STORED\r\n",
        Outcome::NotStored => b"NOT_STORED\r\n",
        Outcome::Exists => b"EXISTS\r\n",
        Outcome::NotFound => b"NOT_FOUND\r\n",
        Outcome::NoMemory => NO_MEMORY,
    }
}

pub(super) fn change(
    handle: &mut Handle<'_>,
    key: &[u8],
    arith: Arith,
    delta: u64,
    out: &mut Vec<u8>,
) {
    let [hits, misses] = handle.counters.of_change(arith);
    match handle.change(key, (arith, delta), None, None, None) {
        Change::Done(number, ..) => {
            hits.inc();
            digits(out, number);
            out.extend_from_slice(b"\r\n");
        }
        Change::NoNumber => out.extend_from_slice(NO_NUMBER),
        Change::NoMemory => out.extend_from_slice(NO_MEMORY_TO_COUNT),
        Change::Missing | Change::Exists => {
            misses.inc();
            out.extend_from_slice(b"NOT_FOUND\r\n");
        }
    }
}

pub(super) fn touch(handle: &mut Handle<'_>, key: &[u8], exptime: i64, out: &mut Vec<u8>) {
    let deadline = handle.store().clock().deadline(exptime);
    let counters = handle.counters;
    counters.cmd_touch.inc();
    let found = handle.touch(key, deadline);
    handle.note_look_up(key, found.as_ref().map(|found| found.key()));
    if let Some(found) = found {
        handle.bump(key);
        found.key().touch(handle.store().clock().second());
        counters.touch_hits.inc();
        out.extend_from_slice(b"TOUCHED\r\n");
    } else {
        counters.touch_misses.inc();
        out.extend_from_slice(b"NOT_FOUND\r\n");
    }
}
