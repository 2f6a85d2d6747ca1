//! Items: a key, its value, and memcached's metadata. A small item lies in one piece of 64 bytes; a
//! larger item also has a tail.
//!
//! ```text
//!          16 bytes   48 bytes
//! short:  | metadata | version? flags? key value ...          length |
//! full:   | metadata | version? flags? key value (48 bytes)          |
//! long:   | metadata | 40 bytes of the parts          | tail pointer | --> the rest of the parts
//! ```
//!
//! Laws:
//! - item.I1 An item is a line of 64 bytes: 16 bytes of metadata, and 48 bytes for its parts:
//!   version, flags, key, value. If the parts are shorter than 48 bytes, the last byte is their
//!   length. If they are longer, the last eight bytes point to a tail (memory.R4), which holds the
//!   rest of the parts. If the parts before the value do not fit the 40 bytes before the pointer,
//!   the tail holds all parts. So the parts before the value are always in one piece. An item's
//!   layout never changes.
//! - item.I2 The time of an item's last use is stored as its age at that time, in 16 bits. The
//!   age is exact in the first two hours, and later to a 4096th of the age: a minute in six days.
//!   (memcached itself records a use once a minute.)
//! - item.I3 A relocated copy of an item has the same stamp and content. Its deadline, marks and
//!   last use are copied under the lock of the bucket; a mark that is set concurrently may be lost.

mod view;

pub use view::View;

use super::clock::second_of;
use super::memory::{GRANULE, Memory, Tail};
use crate::protocol::KEY_MAX;
use std::borrow::{Borrow, Cow};
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, Ordering};

/// Bytes of a version and of flags, if the item has them before its key.
const CAS: usize = 8;
const FLAGS: usize = 4;
/// Bytes of key and value together that need no tail.
const INLINE: usize = 48;
/// Bytes of the parts that an item with a tail holds itself.
const HEAD: usize = INLINE - size_of::<Tail>();
/// The most bytes that the table uses for an entry besides the item.
pub(super) const ENTRY: usize = 24;

/// The value was vivified by `mg` with `N`, or a client was told to recache it.
const TOKEN_SENT: u8 = 1;
/// It was fetched.
const FETCHED: u8 = 1 << 1;
/// It is stale, and still returned.
const STALE: u8 = 1 << 2;
/// Its key was sent in base64.
const BINARY: u8 = 1 << 3;
/// A version chosen by a client stands before the key.
const HAS_CAS: u8 = 1 << 4;
/// A client's flags stand before the key, behind the version.
const HAS_FLAGS: u8 = 1 << 5;

/// It has a tail.
const HAS_TAIL: u8 = 1 << 6;
/// Its parts fill all 48 bytes. If it has a tail: all parts are in the tail.
const IS_FULL: u8 = 1 << 7;

/// An item. Its key, value and version never change; its deadline, marks and last use may.
pub struct Item {
    /// The time of its creation. It is larger than the stamps of all items that the same worker
    /// created before.
    stamp: u64,
    /// In eighths of a second since the start of the store; 0 is never.
    deadline: AtomicU32,
    /// Its age at its last use (item.I2).
    used: AtomicU16,
    marks: AtomicU8,
    key_len: u8,
    body: Body,
}

/// An item's parts: inline, or with a tail. The marks say which (item.I1).
#[derive(Clone, Copy)]
union Body {
    here: [u8; INLINE],
    long: Long,
}

#[derive(Clone, Copy)]
#[repr(C)]
struct Long {
    head: [u8; HEAD],
    tail: Tail,
}

// SAFETY: a tail belongs to its item alone, which is dropped once, by any thread; its content does
// not change after the item was created (item.I1).
unsafe impl Send for Item {}
// SAFETY: item.I1 - a shared item gives out its key and value, which never change; the fields that
// may change are atomic.
unsafe impl Sync for Item {}

/// Encodes a number of seconds in 16 bits: an exponent in the upper four, and 12 bits of mantissa.
fn rounded(seconds: u32) -> u16 {
    let power = (u32::BITS - seconds.leading_zeros()).saturating_sub(13);
    u16::try_from((power << 12) + (seconds >> power)).unwrap_or(u16::MAX)
}

/// Returns the least number of seconds with this encoding.
fn unrounded(seconds: u16) -> u32 {
    let (power, rest) = (u32::from(seconds) >> 12, u32::from(seconds) & 0xfff);
    if power == 0 { rest } else { (rest | 0x1000) << (power - 1) }
}

/// Returns the second at which an item with this stamp was last used, or a little earlier
/// (item.I2).
pub(crate) fn used_at(stamp: u64, age: u16) -> u32 {
    second_of(stamp).saturating_add(unrounded(age))
}

/// The parts and metadata of a new item.
#[derive(Debug, Clone, Copy)]
pub struct NewItem<'a> {
    /// Its key.
    pub key: &'a [u8],
    /// Parts of its value, one behind the other.
    pub value: [&'a [u8]; 2],
    /// The client's own number.
    pub flags: u32,
    /// In eighths of a second since the start of the store; 0 is never.
    pub deadline: u32,
    /// The version, if the client chose it.
    pub cas: Option<u64>,
    /// Whether its key was sent in base64.
    pub is_binary: bool,
    /// Whether it is stale from the beginning.
    pub is_stale: bool,
    /// Whether a client has been told to recache it.
    pub is_sent: bool,
    /// Whether it counts as fetched from the beginning.
    pub is_fetched: bool,
}

impl<'a> NewItem<'a> {
    /// Makes an item without a deadline and with default metadata.
    #[must_use]
    pub fn new(key: &'a [u8], value: &'a [u8]) -> Self {
        let value = [value, &[]];
        let (flags, deadline, cas) = (0, 0, None);
        Self {
            key,
            value,
            flags,
            deadline,
            cas,
            is_binary: false,
            is_stale: false,
            is_sent: false,
            is_fetched: false,
        }
    }

    /// Returns the weight that the item will have, if there is room for it in one piece.
    #[must_use]
    pub fn weight(&self) -> usize {
        let body = self.body_len();
        let tail = match () {
            () if body <= INLINE => 0,
            () if self.front_len() <= HEAD => body - HEAD,
            () => body,
        };
        weight_of(tail.next_multiple_of(GRANULE))
    }

    /// Bytes of the parts before the value.
    fn front_len(&self) -> usize {
        let cas = if self.cas.is_some() { CAS } else { 0 };
        let flags = if self.flags == 0 { 0 } else { FLAGS };
        cas + flags + self.key.len()
    }

    /// Returns the size that the size limit applies to: the bytes of its key and its value.
    pub(crate) fn item_len(&self) -> usize {
        self.key.len() + self.value_len()
    }

    /// Returns the length of its value.
    pub(super) fn value_len(&self) -> usize {
        self.value[0].len() + self.value[1].len()
    }

    fn body_len(&self) -> usize {
        self.front_len() + self.value_len()
    }

    /// Calls `give` with each existing part, in order.
    #[inline]
    fn each_part(&self, mut give: impl FnMut(&[u8])) {
        if let Some(cas) = self.cas {
            give(&cas.to_le_bytes());
        }
        if self.flags != 0 {
            give(&self.flags.to_le_bytes());
        }
        give(self.key);
        give(self.value[0]);
        if !self.value[1].is_empty() {
            give(self.value[1]);
        }
    }

    /// Creates the item, with this stamp.
    #[inline]
    #[must_use]
    pub(super) fn make(&self, memory: &Memory, stamp: u64) -> Item {
        debug_assert!(
            (1..=KEY_MAX).contains(&self.key.len()),
            "item.I1: a key has {} bytes",
            self.key.len()
        );
        let length = self.body_len();
        let mark = |mark, yes| if yes { mark } else { 0 };
        let marks = mark(STALE, self.is_stale)
            | mark(BINARY, self.is_binary)
            | mark(HAS_CAS, self.cas.is_some())
            | mark(HAS_FLAGS, self.flags != 0)
            | mark(TOKEN_SENT, self.is_sent)
            | mark(FETCHED, self.is_fetched);
        let (body, form) = if length <= INLINE {
            let mut here = [0; INLINE];
            let mut room = &mut here[..];
            self.each_part(|part| {
                let (place, rest) = std::mem::take(&mut room).split_at_mut(part.len());
                place.copy_from_slice(part);
                room = rest;
            });
            debug_assert_eq!(
                room.len(),
                INLINE - length,
                "item.I1: the parts of an item have not the length that was computed"
            );
            if length < INLINE {
                here[INLINE - 1] = length as u8;
            }
            (Body { here }, mark(IS_FULL, length == INLINE))
        } else {
            self.with_tail(memory)
        };
        Item {
            stamp,
            deadline: AtomicU32::new(self.deadline),
            used: AtomicU16::new(0),
            marks: AtomicU8::new(marks | form),
            key_len: self.key.len() as u8,
            body,
        }
    }

    /// Makes the body of an item with a tail, and its marks (item.I1).
    fn with_tail(&self, memory: &Memory) -> (Body, u8) {
        let (length, front) = (self.body_len(), self.front_len());
        let is_split = front <= HEAD;
        let mut head = [0; HEAD];
        let mut room = if is_split { &mut head[..] } else { &mut [] };
        let (bytes, together) = if is_split { (length - HEAD, 0) } else { (length, front) };
        let tail = memory.tail(bytes, together);
        // SAFETY: allocated just now.
        let mut filler = unsafe { tail.filler() };
        self.each_part(|part| {
            let (here, there) = part.split_at(part.len().min(room.len()));
            let (place, rest) = std::mem::take(&mut room).split_at_mut(here.len());
            place.copy_from_slice(here);
            room = rest;
            filler.push(there);
        });
        debug_assert!(
            room.is_empty() && filler.is_full() && tail.bytes() == bytes,
            "item.I1: an item's parts do not fill its head and tail"
        );
        let form = if is_split { HAS_TAIL } else { HAS_TAIL | IS_FULL };
        (Body { long: Long { head, tail } }, form)
    }
}

fn weight_of(tail: usize) -> usize {
    size_of::<Item>() + ENTRY + tail
}

impl Item {
    fn marks(&self) -> u8 {
        // ORDER: Relaxed; a mark orders nothing, and the layout never changes.
        self.marks.load(Ordering::Relaxed)
    }

    fn tail(&self) -> Option<Tail> {
        if !self.has(HAS_TAIL) {
            return None;
        }
        // SAFETY: item.I1 - initialized so by `NewItem::make`.
        Some(unsafe { self.body.long.tail })
    }

    /// Returns the parts before the value, and the beginning of the value in the same piece.
    #[inline(always)]
    fn front(&self) -> &[u8] {
        self.front_of(self.marks())
    }

    #[inline(always)]
    fn front_of(&self, marks: u8) -> &[u8] {
        if marks & HAS_TAIL != 0 {
            return self.front_of_long(marks);
        }
        // SAFETY: item.I1 - initialized so by `NewItem::make`.
        let here = unsafe { &self.body.here };
        let full = marks & IS_FULL != 0;
        debug_assert!(
            full || usize::from(here[INLINE - 1]) < INLINE,
            "item.I1: an inline item has the length {}",
            here[INLINE - 1]
        );
        &here[..if full { INLINE } else { usize::from(here[INLINE - 1]) }]
    }

    #[inline]
    fn front_of_long(&self, marks: u8) -> &[u8] {
        // SAFETY: item.I1 - initialized so by `NewItem::make`.
        let long = unsafe { &self.body.long };
        if marks & IS_FULL == 0 {
            return &long.head;
        }
        long.tail.pieces().next().unwrap_or_default()
    }

    fn has(&self, mark: u8) -> bool {
        self.marks() & mark != 0
    }

    fn key_from(&self) -> usize {
        let marks = self.marks();
        let part = |mark, length| if marks & mark == 0 { 0 } else { length };
        part(HAS_CAS, CAS) + part(HAS_FLAGS, FLAGS)
    }

    /// Its key.
    #[inline]
    pub fn key(&self) -> &[u8] {
        let from = self.key_from();
        &self.front()[from..from + usize::from(self.key_len)]
    }

    #[inline]
    fn before_value(&self) -> usize {
        self.key_from() + usize::from(self.key_len)
    }

    /// Returns the length of its value in bytes.
    #[inline]
    pub fn value_len(&self) -> usize {
        let before = self.before_value();
        let all = match self.tail() {
            None => self.front().len(),
            Some(tail) if self.has(IS_FULL) => tail.bytes(),
            Some(tail) => HEAD + tail.bytes(),
        };
        debug_assert!(
            before <= all,
            "item.I1: an item of {all} bytes has {before} before its value"
        );
        all - before
    }

    /// Returns the view that a reply to a get needs, with one load of its marks.
    #[inline]
    pub fn view(&self) -> View<'_> {
        let marks = self.marks();
        let part = |mark, length| if marks & mark == 0 { 0 } else { length };
        let (cas, flags) = (part(HAS_CAS, CAS), part(HAS_FLAGS, FLAGS));
        let front = self.front_of(marks);
        let (before, value) = front.split_at(cas + flags + usize::from(self.key_len));
        let (numbers, key) = before.split_at(cas + flags);
        let flags = numbers[cas..].first_chunk().map_or(0, |flags| u32::from_le_bytes(*flags));
        let has_tail = marks & HAS_TAIL != 0;
        let length = if has_tail { self.value_len() } else { value.len() };
        View { key, flags, length, front: value, item: has_tail.then_some(self) }
    }

    /// Returns its value, piece by piece.
    #[inline]
    pub fn value_parts(&self) -> impl Iterator<Item = &[u8]> {
        let before = self.before_value();
        let is_whole = self.has(IS_FULL);
        let tail = self.tail().map(|tail| tail.pieces().skip(usize::from(is_whole)));
        std::iter::once(&self.front()[before..]).chain(tail.into_iter().flatten())
    }

    /// Returns the inline part of its value, and the pieces in its tail.
    pub(super) fn value_by_place(&self) -> (&[u8], impl Iterator<Item = &[u8]>) {
        let mut parts = self.value_parts();
        let is_elsewhere = self.has(HAS_TAIL) && self.has(IS_FULL);
        let here = if is_elsewhere { None } else { parts.next() };
        (here.unwrap_or_default(), parts)
    }

    /// Returns true if a part of it is in a tail.
    #[inline]
    pub(super) fn has_tail(&self) -> bool {
        self.has(HAS_TAIL)
    }

    /// Returns its value, as a copy if it is in several pieces.
    pub fn value(&self) -> Cow<'_, [u8]> {
        let before = self.before_value();
        match self.tail() {
            None => Cow::Borrowed(&self.front()[before..]),
            Some(_) => Cow::Owned(self.value_parts().collect::<Vec<_>>().concat()),
        }
    }

    /// Appends its value.
    #[inline]
    pub fn write_value(&self, out: &mut Vec<u8>) {
        match self.tail() {
            None => out.extend_from_slice(&self.front()[self.before_value()..]),
            Some(_) => self.value_parts().for_each(|part| out.extend_from_slice(part)),
        }
    }

    /// Returns true if it should be relocated, because a part of it lies in a region that is being
    /// vacated.
    pub(super) fn is_to_move(&self) -> bool {
        let node = usize::from(Memory::is_vacated(std::ptr::from_ref(self).cast()));
        let pieces = node + self.tail().map_or(0, Tail::vacated);
        pieces > 0 && Memory::is_worth_moving(self.weight(), pieces)
    }

    /// Makes a copy of the item in other memory (item.I3).
    pub(super) fn copy(&self, memory: &Memory) -> Item {
        let (value, cas) = (self.value(), self.chosen_cas());
        let new_item = NewItem { flags: self.flags(), cas, ..NewItem::new(self.key(), &value) };
        let copy = new_item.make(memory, self.stamp);
        copy.take_over(self);
        copy
    }

    /// Copies the fields that change during an item's life (item.I3).
    pub(super) fn take_over(&self, from: &Self) {
        debug_assert!(
            self.stamp == from.stamp && self == from,
            "item.I3: a copy takes over from another item"
        );
        const CHANGING: u8 = TOKEN_SENT | FETCHED | STALE | BINARY;
        self.set_deadline(from.deadline());
        // ORDER: Relaxed; times and marks order nothing.
        self.used.store(from.used.load(Ordering::Relaxed), Ordering::Relaxed);
        self.marks.fetch_or(from.marks() & CHANGING, Ordering::Relaxed);
    }

    /// Returns the client's flags.
    #[inline]
    pub fn flags(&self) -> u32 {
        if !self.has(HAS_FLAGS) {
            return 0;
        }
        let from = self.key_from() - FLAGS;
        self.front()[from..].first_chunk().map_or(0, |flags| u32::from_le_bytes(*flags))
    }

    /// Returns the stamp of its creation.
    pub fn stamp(&self) -> u64 {
        self.stamp
    }

    /// Its version: its stamp, or the version that a client chose.
    #[inline]
    pub fn cas(&self) -> u64 {
        let chosen = self.front().first_chunk().filter(|_| self.has(HAS_CAS));
        chosen.map_or(self.stamp, |chosen| u64::from_le_bytes(*chosen))
    }

    /// Its version, if a client chose it.
    pub fn chosen_cas(&self) -> Option<u64> {
        self.has(HAS_CAS).then(|| self.cas())
    }

    /// Returns the bytes that it counts towards the limit.
    #[inline]
    pub fn weight(&self) -> usize {
        weight_of(self.tail().map_or(0, Tail::memory))
    }

    /// Returns its deadline, in eighths of a second since the store's start. 0 is never.
    pub fn deadline(&self) -> u32 {
        // ORDER: Relaxed; times order nothing.
        self.deadline.load(Ordering::Relaxed)
    }

    /// Sets its deadline. The caller sets the cache's deadline, too.
    pub fn set_deadline(&self, deadline: u32) {
        // ORDER: Relaxed; times order nothing.
        self.deadline.store(deadline, Ordering::Relaxed);
    }

    /// Returns true if its key was sent in base64.
    pub fn is_binary(&self) -> bool {
        self.has(BINARY)
    }

    /// Returns true if it is stale.
    pub fn is_stale(&self) -> bool {
        self.has(STALE)
    }

    /// Returns true if a client was told to recache it.
    pub fn is_sent(&self) -> bool {
        self.has(TOKEN_SENT)
    }

    /// Returns true if it was fetched before.
    pub fn was_fetched(&self) -> bool {
        self.has(FETCHED)
    }

    /// Returns the second of its last use, since the store's start, or a little less (item.I2).
    pub fn used(&self) -> u32 {
        used_at(self.stamp, self.age_at_use())
    }

    /// Its age at its last use, encoded as in item.I2.
    pub(crate) fn age_at_use(&self) -> u16 {
        // ORDER: Relaxed; times order nothing.
        self.used.load(Ordering::Relaxed)
    }

    /// Sets the age at its last use. For an item that was just created from saved data.
    pub(super) fn set_age_at_use(&self, age: u16) {
        // ORDER: Relaxed; times order nothing.
        self.used.store(age, Ordering::Relaxed);
    }

    /// Records a use. Writes once a second at most.
    #[inline]
    pub fn touch(&self, second: u32) {
        if !self.has(FETCHED) {
            // ORDER: Relaxed; a mark orders nothing.
            self.marks.fetch_or(FETCHED, Ordering::Relaxed);
        }
        let used = rounded(second.saturating_sub(second_of(self.stamp)));
        // ORDER: Relaxed; times order nothing.
        if self.used.load(Ordering::Relaxed) != used {
            self.used.store(used, Ordering::Relaxed);
        }
    }

    /// Makes the caller the winner, which is told to recache. Returns false if there is a winner
    /// already.
    pub fn win(&self) -> bool {
        // ORDER: Relaxed; only that exactly one caller finds the mark clear matters.
        self.marks.fetch_or(TOKEN_SENT, Ordering::Relaxed) & TOKEN_SENT == 0
    }
}

impl Drop for Item {
    #[inline]
    fn drop(&mut self) {
        if let Some(tail) = self.tail() {
            // SAFETY: item.I1 - the item's own, which is never used again.
            unsafe { tail.free() };
        }
    }
}

impl Borrow<[u8]> for Item {
    #[inline]
    fn borrow(&self) -> &[u8] {
        self.key()
    }
}

impl Hash for Item {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key().hash(state);
    }
}

impl PartialEq for Item {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Item {}

#[cfg(test)]
mod tests;
