//! Items: a key, its value, and what memcached knows of them. Small ones lie in one piece.
//!
//! Laws:
//! - store.I1 An item is a line of 64 bytes: 16 that say what it is, and 48 for its parts, one
//!   behind the other: version, flags, key, value. If they are less than 48, the last byte is their
//!   length. If they are more, the last eight lead to a tail (memory.R4), and the rest of the parts
//!   is there; or all of them, if what stands before the value does not fit the 40 bytes before. So
//!   what stands before the value is always in one piece. Which of these it is never changes.
//! - store.I2 When an item was used is kept as the time since it was made, in 16 bits: exact in the
//!   first two hours, and to a 4096th of that time later, a minute in six days. (memcached itself
//!   notes a use once a minute.)
//! - store.I3 An item's copy elsewhere in memory has its stamp and all else; its time, marks and
//!   use are copied under the lock of the bucket, but for a mark that is made in the same moment.

mod view;

pub use view::View;

use super::clock::second_of;
use super::memory::{GRANULE, Memory, Tail};
use std::borrow::{Borrow, Cow};
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, Ordering};

/// Bytes of a version, and of flags, that stand before the key.
const CAS: usize = 8;
const FLAGS: usize = 4;
/// Bytes of key and value together that need no tail.
const INLINE: usize = 48;
/// Bytes of an item that has a tail that are not there.
const HEAD: usize = INLINE - size_of::<Tail>();
/// Bytes that the table takes for an entry besides the item, at most.
pub(super) const ENTRY: usize = 24;

/// The value was made by `mg` with `N`, or somebody was told to make it anew.
const TOKEN_SENT: u8 = 1;
/// It was asked for.
const FETCHED: u8 = 1 << 1;
/// It is out of date, and given out all the same.
const STALE: u8 = 1 << 2;
/// Its key came in base64.
const BINARY: u8 = 1 << 3;
/// A version chosen by a client stands before the key.
const HAS_CAS: u8 = 1 << 4;
/// A client's flags stand before the key, behind the version.
const HAS_FLAGS: u8 = 1 << 5;

/// It has a tail.
const HAS_TAIL: u8 = 1 << 6;
/// Its parts fill it; or, if it has a tail, they are all there.
const IS_FULL: u8 = 1 << 7;

/// An item. Its key, value and version never change; its time, its marks and the time of its last
/// use do.
pub struct Item {
    /// When it was made: larger than that of any item of the same worker made before.
    stamp: u64,
    /// In eighths of a second since the start of the store; 0 is never.
    deadline: AtomicU32,
    /// How old it was when it was used last (store.I2).
    used: AtomicU16,
    marks: AtomicU8,
    key_len: u8,
    body: Body,
}

/// An item's parts: in it, or with a tail. Its marks say which (store.I1).
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

// SAFETY: a tail belongs to its item alone, which is dropped once, by any thread; what is in it is
// not changed after the item was made (store.I1).
unsafe impl Send for Item {}
// SAFETY: store.I1 - a shared item gives out its key and value, which never change; the fields that
// do are atomic.
unsafe impl Sync for Item {}

/// A number of seconds in 16 bits: a power of two in the upper ones, and 12 bits of it.
fn rounded(seconds: u32) -> u16 {
    let power = (u32::BITS - seconds.leading_zeros()).saturating_sub(13);
    u16::try_from((power << 12) + (seconds >> power)).unwrap_or(u16::MAX)
}

/// The least of which this is made.
fn unrounded(seconds: u16) -> u32 {
    let (power, rest) = (u32::from(seconds) >> 12, u32::from(seconds) & 0xfff);
    if power == 0 { rest } else { (rest | 0x1000) << (power - 1) }
}

/// The second at which an item with this stamp was used last, or a little before that (store.I2).
pub(crate) fn used_at(stamp: u64, age: u16) -> u32 {
    second_of(stamp).saturating_add(unrounded(age))
}

/// What an item is made of.
#[derive(Debug, Clone, Copy)]
pub struct Draft<'a> {
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
    /// Its key came in base64.
    pub is_binary: bool,
    /// It is out of date from the beginning.
    pub is_stale: bool,
    /// Somebody has been told to make it.
    pub is_sent: bool,
    /// It counts as asked for from the beginning.
    pub is_fetched: bool,
}

impl<'a> Draft<'a> {
    /// An item for ever, with nothing special about it.
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

    /// Bytes that the item will be counted with, if there is room for it in one piece.
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

    /// Bytes before the value.
    fn front_len(&self) -> usize {
        let cas = if self.cas.is_some() { CAS } else { 0 };
        let flags = if self.flags == 0 { 0 } else { FLAGS };
        cas + flags + self.key.len()
    }

    /// What the limit of an item's size is about: its key and its value.
    pub(crate) fn item_len(&self) -> usize {
        self.key.len() + self.value_len()
    }

    /// The length of its value.
    pub(super) fn value_len(&self) -> usize {
        self.value[0].len() + self.value[1].len()
    }

    fn body_len(&self) -> usize {
        self.front_len() + self.value_len()
    }

    /// Gives each part that is there, in their order.
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

    /// The item, made at this moment.
    #[inline]
    #[must_use]
    pub(super) fn make(&self, memory: &Memory, stamp: u64) -> Item {
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

    /// The parts of an item that has a tail, and the marks that say so (store.I1).
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
        let form = if is_split { HAS_TAIL } else { HAS_TAIL | IS_FULL };
        (Body { long: Long { head, tail } }, form)
    }
}

fn weight_of(tail: usize) -> usize {
    size_of::<Item>() + ENTRY + tail
}

impl Item {
    fn marks(&self) -> u8 {
        // ORDER: Relaxed; a mark orders nothing, and the form never changes.
        self.marks.load(Ordering::Relaxed)
    }

    fn tail(&self) -> Option<Tail> {
        if !self.has(HAS_TAIL) {
            return None;
        }
        // SAFETY: store.I1 - made so by `Draft::make`.
        Some(unsafe { self.body.long.tail })
    }

    /// What stands before the value, and what of that is in the same piece.
    #[inline(always)]
    fn front(&self) -> &[u8] {
        self.front_of(self.marks())
    }

    #[inline(always)]
    fn front_of(&self, marks: u8) -> &[u8] {
        if marks & HAS_TAIL != 0 {
            return self.front_of_long(marks);
        }
        // SAFETY: store.I1 - made so by `Draft::make`.
        let here = unsafe { &self.body.here };
        let full = marks & IS_FULL != 0;
        &here[..if full { INLINE } else { usize::from(here[INLINE - 1]) }]
    }

    #[inline]
    fn front_of_long(&self, marks: u8) -> &[u8] {
        // SAFETY: store.I1 - made so by `Draft::make`.
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

    /// Bytes of its value.
    #[inline]
    pub fn value_len(&self) -> usize {
        let before = self.before_value();
        let all = match self.tail() {
            None => self.front().len(),
            Some(tail) if self.has(IS_FULL) => tail.bytes(),
            Some(tail) => HEAD + tail.bytes(),
        };
        all - before
    }

    /// What a reply to a get has of it, with one look at its marks.
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

    /// Its value, piece by piece.
    #[inline]
    pub fn value_parts(&self) -> impl Iterator<Item = &[u8]> {
        let before = self.before_value();
        let is_whole = self.has(IS_FULL);
        let tail = self.tail().map(|tail| tail.pieces().skip(usize::from(is_whole)));
        std::iter::once(&self.front()[before..]).chain(tail.into_iter().flatten())
    }

    /// The part of its value that lies in the item itself, and the pieces elsewhere.
    pub(super) fn value_by_place(&self) -> (&[u8], impl Iterator<Item = &[u8]>) {
        let mut parts = self.value_parts();
        let is_elsewhere = self.has(HAS_TAIL) && self.has(IS_FULL);
        let here = if is_elsewhere { None } else { parts.next() };
        (here.unwrap_or_default(), parts)
    }

    /// Whether some of it lies elsewhere.
    #[inline]
    pub(super) fn has_tail(&self) -> bool {
        self.has(HAS_TAIL)
    }

    /// Its value; copied if it is in several pieces.
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

    /// Whether it is to go elsewhere, because some of it lies where memory is vacated.
    pub(super) fn is_to_move(&self) -> bool {
        let node = usize::from(Memory::is_vacated(std::ptr::from_ref(self).cast()));
        let pieces = node + self.tail().map_or(0, Tail::vacated);
        pieces > 0 && Memory::is_worth_moving(self.weight(), pieces)
    }

    /// The same item elsewhere (store.I3).
    pub(super) fn copy(&self, memory: &Memory) -> Item {
        let (value, cas) = (self.value(), self.chosen_cas());
        let draft = Draft { flags: self.flags(), cas, ..Draft::new(self.key(), &value) };
        let copy = draft.make(memory, self.stamp);
        copy.take_over(self);
        copy
    }

    /// Takes over what changes in an item (store.I3).
    pub(super) fn take_over(&self, from: &Self) {
        const CHANGING: u8 = TOKEN_SENT | FETCHED | STALE | BINARY;
        self.set_deadline(from.deadline());
        // ORDER: Relaxed; times and marks order nothing.
        self.used.store(from.used.load(Ordering::Relaxed), Ordering::Relaxed);
        self.marks.fetch_or(from.marks() & CHANGING, Ordering::Relaxed);
    }

    /// The client's own number.
    #[inline]
    pub fn flags(&self) -> u32 {
        if !self.has(HAS_FLAGS) {
            return 0;
        }
        let from = self.key_from() - FLAGS;
        self.front()[from..].first_chunk().map_or(0, |flags| u32::from_le_bytes(*flags))
    }

    /// When it was made.
    pub fn stamp(&self) -> u64 {
        self.stamp
    }

    /// Its version: when it was made, or what the client chose.
    #[inline]
    pub fn cas(&self) -> u64 {
        let chosen = self.front().first_chunk().filter(|_| self.has(HAS_CAS));
        chosen.map_or(self.stamp, |chosen| u64::from_le_bytes(*chosen))
    }

    /// Its version, if the client chose it.
    pub fn chosen_cas(&self) -> Option<u64> {
        self.has(HAS_CAS).then(|| self.cas())
    }

    /// Bytes that it is counted with.
    #[inline]
    pub fn weight(&self) -> usize {
        weight_of(self.tail().map_or(0, Tail::memory))
    }

    /// When it ends: eighths of a second since the store's start; 0 is never.
    pub fn deadline(&self) -> u32 {
        // ORDER: Relaxed; times order nothing.
        self.deadline.load(Ordering::Relaxed)
    }

    /// Changes its end; the caller changes the cache's, too.
    pub fn set_deadline(&self, deadline: u32) {
        // ORDER: Relaxed; times order nothing.
        self.deadline.store(deadline, Ordering::Relaxed);
    }

    /// Whether its key came in base64.
    pub fn is_binary(&self) -> bool {
        self.has(BINARY)
    }

    /// Whether it is out of date.
    pub fn is_stale(&self) -> bool {
        self.has(STALE)
    }

    /// Whether somebody was told to make its value.
    pub fn is_sent(&self) -> bool {
        self.has(TOKEN_SENT)
    }

    /// Whether it was asked for, before.
    pub fn was_fetched(&self) -> bool {
        self.has(FETCHED)
    }

    /// Seconds since the store's start at which it was used last, or a little before that
    /// (store.I2).
    pub fn used(&self) -> u32 {
        used_at(self.stamp, self.age_at_use())
    }

    /// How old it was when it was used last, in the form of store.I2.
    pub(crate) fn age_at_use(&self) -> u16 {
        // ORDER: Relaxed; times order nothing.
        self.used.load(Ordering::Relaxed)
    }

    /// The same for one that was just made of what was saved.
    pub(super) fn set_age_at_use(&self, age: u16) {
        // ORDER: Relaxed; times order nothing.
        self.used.store(age, Ordering::Relaxed);
    }

    /// Notes a use. Writes once a second at most.
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

    /// Makes the caller the one who is told to make the value; false if somebody is already.
    pub fn win(&self) -> bool {
        // ORDER: Relaxed; only that one caller finds the mark clear matters.
        self.marks.fetch_or(TOKEN_SENT, Ordering::Relaxed) & TOKEN_SENT == 0
    }
}

impl Drop for Item {
    #[inline]
    fn drop(&mut self) {
        if let Some(tail) = self.tail() {
            // SAFETY: store.I1 - the item's own, which is never used again.
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
