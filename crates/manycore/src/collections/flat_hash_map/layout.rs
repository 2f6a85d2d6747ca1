//! Where in a bucket the words of entries lie, and their tags (law flat_hash_map.F1).

use super::plain::words_of;
use crate::sync::AtomicU64;
use std::marker::PhantomData;

/// Words of a line.
pub(super) const LINE_WORDS: usize = 8;
/// The words before the entries: the version, and the tags.
pub(super) const HEAD: usize = 2;
/// Entries that a bucket has at least, beside its head. (Models fill a bucket in few steps.)
///
/// The fewer there are, the more of them overflow at the same load: of buckets that are half full
/// on average, 31 % of the entries are in chains of two or more if there are three slots, and 9 %
/// if there are seven.
const FEWEST: usize = if cfg!(manycore_loom) { 3 } else { 6 };

/// Above the tags: which keys may be in the chain's later buckets, a bit for each class of tags
/// ([`EntryLayout::class_of`]); none if those have no entries. The next one stays linked then.
pub(super) const LATER: u64 = 0xff << CLASSES_AT;
const CLASSES_AT: u32 = 56;
/// Classes of tags, less one.
const CLASS_MASK: u64 = 7;

/// A line of words; zero at first.
#[repr(C, align(64))]
pub(super) struct CacheLine(pub(super) [AtomicU64; LINE_WORDS]);

impl From<usize> for CacheLine {
    fn from(_: usize) -> Self {
        Self(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

/// How entries of these types lie in a bucket.
pub(super) struct EntryLayout<K, V>(PhantomData<(K, V)>);

impl<K, V> EntryLayout<K, V> {
    pub(super) const KEY: usize = words_of::<K>();
    pub(super) const ENTRY: usize = {
        let words = Self::KEY + words_of::<V>();
        if words == 0 { 1 } else { words }
    };
    /// Lines of a bucket.
    pub(super) const LINES: usize = (HEAD + FEWEST * Self::ENTRY).div_ceil(LINE_WORDS);
    /// Entries of a bucket: six or seven.
    pub(super) const SLOTS: usize = (Self::LINES * LINE_WORDS - HEAD) / Self::ENTRY;
    /// Entries for each bucket beyond which the table grows. More than there are slots, so that
    /// half of it still fills most of them.
    pub(super) const LOAD: usize = Self::SLOTS + 1;
    /// Bits of a tag. The highest is always zero, and in the tag of a free slot all are.
    pub(super) const TAG: u32 = {
        assert!(Self::SLOTS < 8, "flat_hash_map.F1: tags leave no room for the classes");
        8
    };
    const ONES: u64 = {
        let (mut ones, mut slot) = (0, 0);
        while slot < Self::SLOTS {
            ones |= 1 << (slot as u32 * Self::TAG);
            slot += 1;
        }
        ones
    };
    /// The highest bit of every tag.
    const HIGH: u64 = Self::ONES << (Self::TAG - 1);
    /// The last slot's.
    pub(super) const LAST: u64 = 1 << (Self::SLOTS as u32 * Self::TAG - 1);

    /// The upper bits of the hash; not zero.
    #[inline(always)]
    pub(super) fn tag_of(hash: u64) -> u64 {
        (hash >> (64 - (Self::TAG - 1))).max(1)
    }

    /// The bit of [`LATER`] for a key with this tag.
    #[inline(always)]
    pub(super) fn class_of(tag: u64) -> u64 {
        1 << (u64::from(CLASSES_AT) | tag & CLASS_MASK)
    }

    /// The classes of the entries in a bucket with these tags.
    pub(super) fn classes(tags: u64) -> u64 {
        let (mut left, mut classes) = (tags & !LATER, 0);
        while left != 0 {
            let tag = left & ((1 << Self::TAG) - 1);
            classes |= if tag != 0 { Self::class_of(tag) } else { 0 };
            left >>= Self::TAG;
        }
        classes
    }

    /// Whether the key of this hash may be in a later bucket than the one with these tags.
    #[inline(always)]
    pub(super) fn may_be_later(tags: u64, hash: u64) -> bool {
        tags & Self::class_of(Self::tag_of(hash)) != 0
    }

    /// The slots whose tag is that of the hash: the highest bit of each.
    #[inline(always)]
    pub(super) fn hits(tags: u64, hash: u64) -> u64 {
        // No tag borrows of the next one: each differs by less than its highest bit.
        let differ = tags ^ (Self::tag_of(hash) * Self::ONES);
        Self::HIGH.wrapping_sub(differ) & Self::HIGH
    }

    /// The slots in use: the highest bit of each.
    #[inline(always)]
    pub(super) fn used(tags: u64) -> u64 {
        tags.wrapping_add(Self::HIGH - Self::ONES) & Self::HIGH
    }

    /// The free slots: the highest bit of each.
    #[inline(always)]
    pub(super) fn free(tags: u64) -> u64 {
        Self::used(tags) ^ Self::HIGH
    }

    /// The last of these slots, or the first slot of all if they are none.
    #[inline(always)]
    pub(super) fn last_of(hits: u64) -> usize {
        ((hits | 1).ilog2() / Self::TAG) as usize
    }

    #[inline(always)]
    pub(super) fn slot_of(hit: u64) -> usize {
        (hit.trailing_zeros() / Self::TAG) as usize
    }
}
