//! Items: a key, its value, and what memcached knows of them. Small ones lie in one piece.

use std::borrow::Borrow;
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

/// Bytes of a version, and of flags, that stand before the key.
const CAS: usize = 8;
const FLAGS: usize = 4;
/// Bytes of key and value together that need no allocation of their own.
const INLINE: usize = 52;
/// Bytes that the table, the slab and the cache take for an entry besides the item.
const ENTRY: usize = 40;
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

/// An item. Its key, value and version never change; its time, its marks and the time of its last
/// use do.
pub struct Item {
    /// When it was made: larger than that of any item of the same worker made before.
    stamp: u64,
    /// In eighths of a second since the start of the store; 0 is never.
    deadline: AtomicU32,
    /// In seconds since the start of the store.
    used: AtomicU32,
    body: Body,
}

/// What an item says of itself, and its parts one behind the other: in it, or on their own.
enum Body {
    Inline(Head, u8, [u8; INLINE]),
    Own(Head, Box<[u8]>),
}

/// In both forms, so that it fills what alignment would leave empty.
struct Head {
    key_len: u8,
    marks: AtomicU8,
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

    fn body_len(&self) -> usize {
        let cas = if self.cas.is_some() { CAS } else { 0 };
        let flags = if self.flags == 0 { 0 } else { FLAGS };
        cas + flags + self.key.len() + self.value[0].len() + self.value[1].len()
    }

    /// The item, made at this moment and second.
    #[must_use]
    pub fn make(&self, stamp: u64, second: u32) -> Item {
        let cas = self.cas.map(u64::to_le_bytes);
        let flags = self.flags.to_le_bytes();
        let parts = [
            cas.as_ref().map_or(&[][..], |cas| cas),
            if self.flags == 0 { &[][..] } else { &flags },
            self.key,
            self.value[0],
            self.value[1],
        ];
        let length = self.body_len();
        let mark = |mark, yes| if yes { mark } else { 0 };
        let marks = mark(STALE, self.is_stale)
            | mark(BINARY, self.is_binary)
            | mark(HAS_CAS, cas.is_some())
            | mark(HAS_FLAGS, self.flags != 0)
            | mark(TOKEN_SENT, self.is_sent)
            | mark(FETCHED, self.is_fetched);
        let head = Head { key_len: self.key.len() as u8, marks: AtomicU8::new(marks) };
        let body = if length <= INLINE {
            let (mut bytes, mut at) = ([0; INLINE], 0);
            for part in parts {
                bytes[at..at + part.len()].copy_from_slice(part);
                at += part.len();
            }
            Body::Inline(head, length as u8, bytes)
        } else {
            Body::Own(head, parts.concat().into_boxed_slice())
        };
        Item { stamp, deadline: AtomicU32::new(self.deadline), used: AtomicU32::new(second), body }
    }
}

fn weight_of(body: usize) -> usize {
    let own = if body <= INLINE { 0 } else { body.next_multiple_of(16) + ALLOCATION };
    size_of::<Item>() + ENTRY + own
}

impl Item {
    fn body(&self) -> &[u8] {
        match &self.body {
            Body::Inline(_, length, bytes) => &bytes[..usize::from(*length)],
            Body::Own(_, bytes) => bytes,
        }
    }

    #[inline(always)]
    fn head(&self) -> &Head {
        match &self.body {
            Body::Inline(head, ..) | Body::Own(head, _) => head,
        }
    }

    fn has(&self, mark: u8) -> bool {
        // ORDER: Relaxed; a mark orders nothing.
        self.head().marks.load(Ordering::Relaxed) & mark != 0
    }

    fn key_from(&self) -> usize {
        // ORDER: Relaxed; these two marks never change.
        let marks = self.head().marks.load(Ordering::Relaxed);
        let part = |mark, length| if marks & mark == 0 { 0 } else { length };
        part(HAS_CAS, CAS) + part(HAS_FLAGS, FLAGS)
    }

    /// Its key.
    #[inline]
    pub fn key(&self) -> &[u8] {
        let from = self.key_from();
        &self.body()[from..from + usize::from(self.head().key_len)]
    }

    /// Its value.
    #[inline]
    pub fn value(&self) -> &[u8] {
        &self.body()[self.key_from() + usize::from(self.head().key_len)..]
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
    pub fn weight(&self) -> usize {
        weight_of(self.body().len())
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

    /// Seconds since the store's start at which it was used last.
    pub fn used(&self) -> u32 {
        // ORDER: Relaxed; times order nothing.
        self.used.load(Ordering::Relaxed)
    }

    /// Notes a use. Writes once a second at most.
    #[inline]
    pub fn touch(&self, second: u32) {
        if !self.has(FETCHED) {
            // ORDER: Relaxed; a mark orders nothing.
            self.head().marks.fetch_or(FETCHED, Ordering::Relaxed);
        }
        if self.used() != second {
            // ORDER: Relaxed; times order nothing.
            self.used.store(second, Ordering::Relaxed);
        }
    }

    /// Makes the caller the one who is told to make the value; false if somebody is already.
    pub fn win(&self) -> bool {
        // ORDER: Relaxed; only that one caller finds the mark clear matters.
        self.head().marks.fetch_or(TOKEN_SENT, Ordering::Relaxed) & TOKEN_SENT == 0
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

    #[test]
    fn parts_come_back_at_every_length() {
        for length in [0, 1, 37, 38, 39, 40, 41, 42, 46, 47, 49, 50, 51, 1000] {
            for (cas, flags) in [(None, 0), (None, 9), (Some(7), 0), (Some(7), u32::MAX)] {
                let value = vec![b'v'; length];
                let (front, back) = value.split_at(length / 2);
                let draft = Draft { value: [front, back], cas, flags, ..Draft::new(b"key", &[]) };
                let item = draft.make(5, 1);
                assert_eq!((item.key(), item.value()), (&b"key"[..], &value[..]));
                assert_eq!((item.cas(), item.stamp(), item.flags()), (cas.unwrap_or(5), 5, flags));
                assert_eq!(item.weight(), draft.weight());
            }
        }
        assert_eq!(size_of::<Item>(), 72);
    }

    #[test]
    fn only_one_wins() {
        let item = Draft::new(b"a", b"").make(1, 0);
        assert_eq!((item.win(), item.win(), item.is_sent()), (true, false, true));
        assert!(!item.was_fetched());
        item.touch(3);
        assert!(item.was_fetched() && item.used() == 3 && item.is_sent());
    }
}
