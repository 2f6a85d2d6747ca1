//! Items: a key, its value, and what memcached knows of them. Small ones lie in one piece.
//!
//! Laws:
//! - I1 An item is a line of 64 bytes: 16 that say what it is, and 48 for its parts, one behind the
//!   other: version, flags, key, value. If they are less than 48, the last byte is their length;
//!   if they are more, they have an allocation of their own. Which of these it is never changes.
//! - I2 When an item was used is kept as the time since it was made, in 16 bits: exact in the first
//!   two hours, and to a 4096th of that time later, a minute in six days. (memcached itself notes
//!   a use once a minute.)

use super::clock::second_of;
use std::borrow::Borrow;
use std::hash::{Hash, Hasher};
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, Ordering};

/// Bytes of a version, and of flags, that stand before the key.
const CAS: usize = 8;
const FLAGS: usize = 4;
/// Bytes of key and value together that need no allocation of their own.
const INLINE: usize = 48;
/// Bytes that the table and the slab take for an entry besides the item, at most.
const ENTRY: usize = 24;
/// Bytes that an allocation takes besides what it was asked for.
const ALLOCATION: usize = 16;

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

/// Its parts have an allocation of their own.
const IS_OWN: u8 = 1 << 6;
/// Its parts fill it.
const IS_FULL: u8 = 1 << 7;

/// An item. Its key, value and version never change; its time, its marks and the time of its last
/// use do.
pub struct Item {
    /// When it was made: larger than that of any item of the same worker made before.
    stamp: u64,
    /// In eighths of a second since the start of the store; 0 is never.
    deadline: AtomicU32,
    /// How old it was when it was used last (I2).
    used: AtomicU16,
    marks: AtomicU8,
    key_len: u8,
    body: Body,
}

/// An item's parts: in it, or on their own. Its marks say which (I1).
union Body {
    here: [u8; INLINE],
    own: ManuallyDrop<Box<[u8]>>,
}

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

    /// Bytes that the item will be counted with.
    #[must_use]
    pub fn weight(&self) -> usize {
        weight_of(self.body_len())
    }

    /// The length of its value.
    pub(super) fn value_len(&self) -> usize {
        self.value[0].len() + self.value[1].len()
    }

    fn body_len(&self) -> usize {
        let cas = if self.cas.is_some() { CAS } else { 0 };
        let flags = if self.flags == 0 { 0 } else { FLAGS };
        cas + flags + self.key.len() + self.value_len()
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
    pub fn make(&self, stamp: u64) -> Item {
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
            let mut own = Vec::with_capacity(length);
            self.each_part(|part| own.extend_from_slice(part));
            (Body { own: ManuallyDrop::new(own.into_boxed_slice()) }, IS_OWN)
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
}

fn weight_of(body: usize) -> usize {
    let own = if body <= INLINE { 0 } else { body.next_multiple_of(16) + ALLOCATION };
    size_of::<Item>() + ENTRY + own
}

impl Item {
    fn marks(&self) -> u8 {
        // ORDER: Relaxed; a mark orders nothing, and the form never changes.
        self.marks.load(Ordering::Relaxed)
    }

    #[inline(always)]
    fn body(&self) -> &[u8] {
        let marks = self.marks();
        if marks & IS_OWN != 0 {
            // SAFETY: I1 - made so by `Draft::make`.
            return unsafe { &self.body.own };
        }
        // SAFETY: I1 - as above.
        let here = unsafe { &self.body.here };
        let full = marks & IS_FULL != 0;
        &here[..if full { INLINE } else { usize::from(here[INLINE - 1]) }]
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
        &self.body()[from..from + usize::from(self.key_len)]
    }

    /// Its value.
    #[inline]
    pub fn value(&self) -> &[u8] {
        &self.body()[self.key_from() + usize::from(self.key_len)..]
    }

    /// The client's own number.
    #[inline]
    pub fn flags(&self) -> u32 {
        if !self.has(HAS_FLAGS) {
            return 0;
        }
        let from = self.key_from() - FLAGS;
        self.body()[from..].first_chunk().map_or(0, |flags| u32::from_le_bytes(*flags))
    }

    /// When it was made.
    pub fn stamp(&self) -> u64 {
        self.stamp
    }

    /// Its version: when it was made, or what the client chose.
    #[inline]
    pub fn cas(&self) -> u64 {
        let chosen = self.body().first_chunk().filter(|_| self.has(HAS_CAS));
        chosen.map_or(self.stamp, |chosen| u64::from_le_bytes(*chosen))
    }

    /// Bytes that it is counted with.
    #[inline]
    pub fn weight(&self) -> usize {
        // Those that have no allocation weigh the same.
        weight_of(if self.has(IS_OWN) { self.body().len() } else { 0 })
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

    /// Seconds since the store's start at which it was used last, or a little before that (I2).
    pub fn used(&self) -> u32 {
        // ORDER: Relaxed; times order nothing.
        second_of(self.stamp).saturating_add(unrounded(self.used.load(Ordering::Relaxed)))
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
        if *self.marks.get_mut() & IS_OWN != 0 {
            // SAFETY: I1 - made so by `Draft::make`, and never used again.
            unsafe { ManuallyDrop::drop(&mut self.body.own) };
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
mod tests {
    use super::*;
    use crate::store::clock::stamp;

    #[test]
    fn parts_come_back_at_every_length() {
        for length in [0, 1, 32, 33, 34, 35, 37, 38, 40, 41, 42, 44, 45, 46, 1000] {
            for (cas, flags) in [(None, 0), (None, 9), (Some(7), 0), (Some(7), u32::MAX)] {
                let value = vec![b'v'; length];
                let (front, back) = value.split_at(length / 2);
                let draft = Draft { value: [front, back], cas, flags, ..Draft::new(b"key", &[]) };
                let item = draft.make(5);
                assert_eq!((item.key(), item.value()), (&b"key"[..], &value[..]));
                assert_eq!((item.cas(), item.stamp(), item.flags()), (cas.unwrap_or(5), 5, flags));
                assert_eq!(item.weight(), draft.weight());
            }
        }
        assert_eq!(size_of::<Item>(), 64);
    }

    #[test]
    fn only_one_wins() {
        let item = Draft::new(b"a", b"").make(stamp(1_000_000_000, 3));
        assert_eq!((item.win(), item.win(), item.is_sent()), (true, false, true));
        assert!(!item.was_fetched());
        assert_eq!(item.used(), 1);
        item.touch(3);
        assert!(item.was_fetched() && item.used() == 3 && item.is_sent());
    }

    #[test]
    fn uses_are_exact_for_two_hours_and_to_a_4096th_later() {
        let mut last = 0;
        for age in (0..20_000).chain((0..27).map(|power| 3 << power)).chain([u32::MAX]) {
            let known = unrounded(rounded(age));
            let least = if age < 1 << 13 { age } else { age.min((1 << 27) - 1) / 4096 * 4095 };
            assert!((least..=age).contains(&known), "{known} for {age}");
            assert!(age < last || rounded(age) >= rounded(last), "{age}");
            last = age;
        }
        let item = Draft::new(b"a", b"").make(stamp(5_000_000_000, 0));
        for second in [5, 6, 5 + (1 << 13) - 1, 4] {
            item.touch(second);
            assert_eq!(item.used(), second.max(5));
        }
    }
}
