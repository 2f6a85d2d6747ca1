//! The record of an item in the file.
//!
//! A record begins with 20 bytes: stamp (8), deadline (4), length of the value (4), age at the last
//! use (2), length of the key (1), marks (1). Then come flags (4) and version (8), if the marks say
//! so, then key and value.

use super::refusal::Refusal;
use crate::protocol::KEY_MAX;
use crate::store::{Item, NewItem};

/// Bytes of the fixed part.
const FIXED: usize = 20;

const SENT: u8 = 1;
const FETCHED: u8 = 1 << 1;
const STALE: u8 = 1 << 2;
const BINARY: u8 = 1 << 3;
const HAS_FLAGS: u8 = 1 << 4;
const HAS_CAS: u8 = 1 << 5;
const ALL: u8 = (HAS_CAS << 1) - 1;

/// Appends the part of a record that precedes the item's value.
pub(super) fn front(item: &Item, out: &mut Vec<u8>) {
    let (flags, cas) = (item.flags(), item.chosen_cas());
    let mark = |mark, yes| if yes { mark } else { 0 };
    let marks = mark(SENT, item.is_sent())
        | mark(FETCHED, item.was_fetched())
        | mark(STALE, item.is_stale())
        | mark(BINARY, item.is_binary())
        | mark(HAS_FLAGS, flags != 0)
        | mark(HAS_CAS, cas.is_some());
    out.extend_from_slice(&item.stamp().to_le_bytes());
    out.extend_from_slice(&item.deadline().to_le_bytes());
    out.extend_from_slice(&(item.value_len() as u32).to_le_bytes());
    out.extend_from_slice(&item.age_at_use().to_le_bytes());
    out.extend_from_slice(&[item.key().len() as u8, marks]);
    if flags != 0 {
        out.extend_from_slice(&flags.to_le_bytes());
    }
    if let Some(cas) = cas {
        out.extend_from_slice(&cas.to_le_bytes());
    }
    out.extend_from_slice(item.key());
}

/// An item that was read.
#[derive(Debug)]
pub(super) struct Record<'b> {
    pub(super) new_item: NewItem<'b>,
    pub(super) stamp: u64,
    pub(super) age_at_use: u16,
}

/// The kind of the next bytes.
#[derive(Debug)]
pub(super) enum Next<'b> {
    /// An incomplete fixed part of a record.
    Part,
    /// An incomplete record: its bytes, and the bytes of its item.
    Long { record: u64, item: u64 },
    /// A record, and its bytes.
    Whole(Record<'b>, usize),
}

fn take<'b, const N: usize>(bytes: &mut &'b [u8]) -> Option<&'b [u8; N]> {
    let (taken, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(taken)
}

/// Parses the record at the beginning.
pub(super) fn next(bytes: &[u8]) -> Result<Next<'_>, Refusal> {
    let mut rest = bytes;
    let Some(fixed) = take::<FIXED>(&mut rest) else { return Ok(Next::Part) };
    let [s0, s1, s2, s3, s4, s5, s6, s7, d0, d1, d2, d3, l0, l1, l2, l3, u0, u1, key_len, marks] =
        *fixed;
    let key_len = usize::from(key_len);
    if !(1..=KEY_MAX).contains(&key_len) || marks & !ALL != 0 {
        return Err(Refusal::Damaged("a record is malformed".into()));
    }
    let value_len = u32::from_le_bytes([l0, l1, l2, l3]);
    let extra = |mark, length: u64| if marks & mark == 0 { 0 } else { length };
    let item = key_len as u64 + u64::from(value_len);
    let record = FIXED as u64 + extra(HAS_FLAGS, 4) + extra(HAS_CAS, 8) + item;
    let long = Next::Long { record, item };
    let Some(all) = usize::try_from(record).ok().filter(|all| *all <= bytes.len()) else {
        return Ok(long);
    };
    let has = |mark| marks & mark != 0;
    let flags = if has(HAS_FLAGS) { take(&mut rest) } else { None };
    let cas = if has(HAS_CAS) { take(&mut rest) } else { None };
    let (key, rest) = rest.split_at(key_len);
    debug_assert!(
        rest.len() >= value_len as usize,
        "restart.W3: a value of {value_len} bytes is not all there"
    );
    let new_item = NewItem {
        flags: flags.map_or(0, |flags| u32::from_le_bytes(*flags)),
        deadline: u32::from_le_bytes([d0, d1, d2, d3]),
        cas: cas.map(|cas| u64::from_le_bytes(*cas)),
        is_binary: has(BINARY),
        is_stale: has(STALE),
        is_sent: has(SENT),
        is_fetched: has(FETCHED),
        ..NewItem::new(key, &rest[..value_len as usize])
    };
    let stamp = u64::from_le_bytes([s0, s1, s2, s3, s4, s5, s6, s7]);
    let age_at_use = u16::from_le_bytes([u0, u1]);
    Ok(Next::Whole(Record { new_item, stamp, age_at_use }, all))
}
