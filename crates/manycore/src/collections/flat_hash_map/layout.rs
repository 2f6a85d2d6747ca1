//! Layout of a bucket: the positions of its entries' words, and their tags (flat_hash_map.F1).

use super::plain::words_of;
use crate::sync::AtomicU64;
use std::marker::PhantomData;

/// Words of a line.
pub(super) const LINE_WORDS: usize = 8;
/// Words before the entries: the version and the tags.
pub(super) const HEAD: usize = 2;
/// Minimum number of entries that a bucket has room for, beside its head. (Models fill a bucket in
/// few steps.)
///
/// With fewer slots, more entries overflow at the same load. If buckets are half full on average,
/// 31 % of the entries are in chains of two or more buckets with three slots each, and 9 % with
/// seven.
const FEWEST: usize = if cfg!(manycore_loom) { 3 } else { 6 };

/// Bits above the tags: one for each class of tags ([`EntryLayout::class_of`]) that keys in the
/// chain's later buckets may have. All are zero if the later buckets have no entries, even if one
/// is linked.
pub(super) const LATER: u64 = 0xff << CLASSES_AT;
const CLASSES_AT: u32 = 56;
/// Number of classes of tags, minus one.
const CLASS_MASK: u64 = 7;

/// A cache line of words, zero at first.
#[repr(C, align(64))]
pub(super) struct CacheLine(pub(super) [AtomicU64; LINE_WORDS]);

impl From<usize> for CacheLine {
    fn from(_: usize) -> Self {
        Self(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

/// Layout of entries of these types in a bucket.
pub(super) struct EntryLayout<K, V>(PhantomData<(K, V)>);

impl<K, V> EntryLayout<K, V> {
    pub(super) const KEY: usize = words_of::<K>();
    pub(super) const ENTRY: usize = {
        let words = Self::KEY + words_of::<V>();
        if words == 0 { 1 } else { words }
    };
    /// Lines of a bucket.
    pub(super) const LINES: usize = (HEAD + FEWEST * Self::ENTRY).div_ceil(LINE_WORDS);
    /// Slots of a bucket: six or seven.
    pub(super) const SLOTS: usize = (Self::LINES * LINE_WORDS - HEAD) / Self::ENTRY;
    /// Entries for each bucket from which on the table grows. More than there are slots, so that
    /// after doubling, half as many still fill most of a bucket.
    pub(super) const LOAD: usize = Self::SLOTS + 1;
    /// Bits of a tag. The highest bit is always zero. The tag of a free slot is zero.
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
    /// The highest bit of the last slot's tag.
    pub(super) const LAST: u64 = 1 << (Self::SLOTS as u32 * Self::TAG - 1);

    /// Returns the tag: the upper bits of the hash, but never zero.
    #[inline(always)]
    pub(super) fn tag_of(hash: u64) -> u64 {
        (hash >> (64 - (Self::TAG - 1))).max(1)
    }

    /// Returns the bit of [`LATER`] for a key with this tag.
    #[inline(always)]
    pub(super) fn class_of(tag: u64) -> u64 {
        1 << (u64::from(CLASSES_AT) | tag & CLASS_MASK)
    }

    /// Returns the classes of the entries in a bucket with these tags.
    pub(super) fn classes(tags: u64) -> u64 {
        let (mut left, mut classes) = (tags & !LATER, 0);
        while left != 0 {
            let tag = left & ((1 << Self::TAG) - 1);
            classes |= if tag != 0 { Self::class_of(tag) } else { 0 };
            left >>= Self::TAG;
        }
        classes
    }

    /// Returns true if the key of this hash may be in a later bucket than the one with these tags.
    #[inline(always)]
    pub(super) fn may_be_later(tags: u64, hash: u64) -> bool {
        tags & Self::class_of(Self::tag_of(hash)) != 0
    }

    /// Returns the slots whose tag matches the hash, by the highest bit of each.
    #[inline(always)]
    pub(super) fn hits(tags: u64, hash: u64) -> u64 {
        // No tag borrows from the next: each difference is less than a tag's highest bit.
        let differ = tags ^ (Self::tag_of(hash) * Self::ONES);
        Self::HIGH.wrapping_sub(differ) & Self::HIGH
    }

    /// Returns the slots in use, by the highest bit of each.
    #[inline(always)]
    pub(super) fn used(tags: u64) -> u64 {
        tags.wrapping_add(Self::HIGH - Self::ONES) & Self::HIGH
    }

    /// Returns the free slots, by the highest bit of each.
    #[inline(always)]
    pub(super) fn free(tags: u64) -> u64 {
        Self::used(tags) ^ Self::HIGH
    }

    /// Returns the last of these slots, or slot zero if there is none.
    #[inline(always)]
    pub(super) fn last_of(hits: u64) -> usize {
        ((hits | 1).ilog2() / Self::TAG) as usize
    }

    #[inline(always)]
    pub(super) fn slot_of(hit: u64) -> usize {
        (hit.trailing_zeros() / Self::TAG) as usize
    }
}
