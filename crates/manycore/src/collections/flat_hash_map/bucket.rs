//! Buckets: entries as words on a few cache lines, which readers check by a version
//! (flat_hash_map.F1 and flat_hash_map.F2).

use super::layout::{CacheLine, EntryLayout, HEAD, LATER, LINE_WORDS};
use super::overflow::Overflow;
use super::plain::{Bits, Plain};
use crate::sync::{AtomicU64, LoadToChange, Ordering, fence, prefetch_for_write, seeded_bug};
use std::marker::PhantomData;
use std::ptr::NonNull;

/// Flags of a version. A writer holds the lock.
pub(super) const LOCKED: u64 = 1;
/// The entries are in this bucket, and not in the old table any more. Without this flag, as in
/// zeroed memory, the bucket waits for its entries.
pub(super) const ARRIVED: u64 = 2;
/// The entries are in the next table.
pub(super) const MOVED: u64 = 4;
/// Position of the number of the chain's next bucket, which is above the flags. Zero if there is
/// none.
const NUMBER: u32 = 3;
const NUMBER_BITS: u32 = 28;
/// Increment of the count above the number. A reader overlooks updates of its bucket only if it is
/// delayed for a multiple of 2^33 of them.
pub(super) const STEP: u64 = 1 << (NUMBER + NUMBER_BITS);

/// Returns true if a reader can read the bucket now.
#[inline(always)]
pub(super) fn is_open(version: u64) -> bool {
    version & (LOCKED | ARRIVED | MOVED) == ARRIVED
}

/// Returns true if the bucket had the entries when the version was loaded.
#[inline(always)]
pub(super) fn has_entries(version: u64) -> bool {
    version & (ARRIVED | MOVED) == ARRIVED
}

/// The reason why a chain cannot be read or locked at this moment.
pub(super) enum Closed {
    /// A writer holds the lock, or has changed the chain meanwhile.
    Changing,
    /// The entries are in the old table, unless they have moved meanwhile.
    Pending,
    /// The entries are in the next table.
    Moved,
}

impl Closed {
    #[cold]
    pub(super) fn of(version: u64) -> Self {
        match version {
            _ if version & MOVED != 0 => Self::Moved,
            _ if version & ARRIVED == 0 => Self::Pending,
            _ => Self::Changing,
        }
    }
}

/// Buffers for the entries that are copied from a chain.
pub(super) struct Copied<K, V> {
    bits: Vec<(Bits, Bits)>,
    pub(super) entries: Vec<(K, V)>,
}

impl<K, V> Copied<K, V> {
    pub(super) fn new() -> Self {
        Self { bits: Vec::new(), entries: Vec::new() }
    }
}

/// A bucket: the first of a chain, or a later one.
pub(super) struct Bucket<'t, K, V> {
    /// Its first line. A thin pointer, so that a bucket is passed in two registers.
    start: NonNull<CacheLine>,
    overflow: &'t Overflow,
    _lines: PhantomData<(&'t [CacheLine], EntryLayout<K, V>)>,
}

impl<K, V> Clone for Bucket<'_, K, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, V> Copy for Bucket<'_, K, V> {}

impl<'t, K, V> Bucket<'t, K, V> {
    /// Returns the version. Only the first bucket of a chain has one; later buckets use only the
    /// link in this word.
    #[inline(always)]
    pub(super) fn version(self) -> &'t AtomicU64 {
        // SAFETY: flat_hash_map.F1 - a bucket has at least one line, and `new` borrows its lines
        // for `'t`.
        unsafe { &self.start.as_ref().0[0] }
    }
}

impl<'t, K: Plain, V: Plain> Bucket<'t, K, V> {
    /// Makes a bucket of these lines. There are as many as a bucket needs.
    #[inline(always)]
    pub(super) fn new(lines: &'t [CacheLine], overflow: &'t Overflow) -> Self {
        debug_assert!(
            lines.len() == EntryLayout::<K, V>::LINES,
            "flat_hash_map.F1: a bucket has {} lines",
            lines.len()
        );
        Self { start: NonNull::from(lines).cast(), overflow, _lines: PhantomData }
    }

    #[inline(always)]
    fn word(self, index: usize) -> &'t AtomicU64 {
        debug_assert!(
            index < EntryLayout::<K, V>::LINES * LINE_WORDS,
            "flat_hash_map.F1: a bucket has no word {index}"
        );
        // SAFETY: flat_hash_map.F1 - a bucket is `LINES` lines, which `new` borrows for `'t`. Every
        // slot's words lie in them: slot numbers come from the tags, and each tag has a slot.
        unsafe { self.start.cast::<AtomicU64>().add(index).as_ref() }
    }

    /// Returns true if both are the same bucket.
    #[inline(always)]
    pub(super) fn is(self, other: Self) -> bool {
        self.start == other.start
    }

    /// Prefetches its lines for writing.
    #[inline(always)]
    pub(super) fn prefetch_for_write(self) {
        for line in 0..EntryLayout::<K, V>::LINES {
            prefetch_for_write(self.start.as_ptr().wrapping_add(line));
        }
    }

    #[inline(always)]
    pub(super) fn tags(self) -> &'t AtomicU64 {
        self.word(1)
    }

    #[inline(always)]
    pub(super) fn key_at(self, slot: usize) -> impl Fn(usize) -> &'t AtomicU64 {
        move |index| self.word(HEAD + slot * EntryLayout::<K, V>::ENTRY + index)
    }

    #[inline(always)]
    pub(super) fn value_at(self, slot: usize) -> impl Fn(usize) -> &'t AtomicU64 {
        move |index| {
            self.word(HEAD + slot * EntryLayout::<K, V>::ENTRY + EntryLayout::<K, V>::KEY + index)
        }
    }

    /// Returns the slot of a key, according to these tags.
    #[inline(always)]
    pub(super) fn slot_of_key(self, tags: u64, hash: u64, key: K) -> Option<usize> {
        let mut hits = EntryLayout::<K, V>::hits(tags, hash);
        while hits != 0 {
            let slot = EntryLayout::<K, V>::slot_of(hits);
            if Bits::of(&key).are_at::<K>(self.key_at(slot)) {
                return Some(slot);
            }
            hits &= hits - 1;
        }
        None
    }

    /// Iterates over the slots in use, according to these tags.
    fn used(tags: u64) -> impl Iterator<Item = usize> {
        let used = EntryLayout::<K, V>::used(tags);
        (0..EntryLayout::<K, V>::SLOTS).filter(move |slot| used & Self::tag_mask(*slot) != 0)
    }

    /// Returns the chain's next bucket if it has entries, according to these tags. Returns `Err` if
    /// it was linked just now.
    #[inline(always)]
    pub(super) fn more(self, tags: u64) -> Result<Option<Self>, Closed> {
        if tags & LATER == 0 {
            return Ok(None);
        }
        self.linked().map(Some).ok_or(Closed::Changing)
    }

    /// Returns the chain's next bucket, with entries or without.
    #[inline(always)]
    pub(super) fn linked(self) -> Option<Self> {
        // ORDER: Relaxed; as a word of an entry.
        let version = self.version().load(Ordering::Relaxed);
        let number = ((version % STEP) >> NUMBER) as usize;
        if number == 0 {
            return None;
        }
        let lines = self.overflow.lines(number, EntryLayout::<K, V>::LINES)?;
        Some(Self::new(lines, self.overflow))
    }

    /// Returns the version if a reader can read the chain now.
    #[inline(always)]
    pub(super) fn open(self) -> Result<u64, Closed> {
        // ORDER: Acquire; pairs with Release in `Locked::drop` and in `arrive`: this thread sees
        // what was written under older versions.
        let version = self.version().load(Ordering::Acquire);
        if is_open(version) { Ok(version) } else { Err(Closed::of(version)) }
    }

    /// Returns true if everything that was read since [`open`](Self::open) was in the chain at one
    /// moment (flat_hash_map.F2).
    #[inline(always)]
    pub(super) fn is_still(self, version: u64) -> bool {
        // BUG: a reader does not load the version again (flat_hash_map.F2).
        if seeded_bug!("flat-single-look") {
            return true;
        }
        // ORDER: Acquire; pairs with the fence of `lock_at`: if the reader has read a word that was
        // written under a later lock, the load below sees that lock.
        fence(Ordering::Acquire);
        // ORDER: Relaxed; behind the fence.
        self.version().load(Ordering::Relaxed) == version
    }

    /// Returns the value of a key, without a lock. Returns `Err` if the chain cannot be read at
    /// this moment.
    ///
    /// The usual path has no branch on whether the key is present, which no processor can predict.
    #[inline(always)]
    pub(super) fn find(self, hash: u64, key: K) -> Result<Option<V>, Closed> {
        let version = self.open()?;
        // ORDER: Relaxed; used only if the version is unchanged (flat_hash_map.F2).
        let tags = self.tags().load(Ordering::Relaxed);
        let FirstHit { slot, is_key, is_more } = self.first_hit(tags, hash, key);
        let bits = Bits::load::<V>(self.value_at(slot));
        if !is_key & is_more {
            return self.find_further(version, tags, hash, key);
        }
        if !self.is_still(version) {
            return Err(Closed::Changing);
        }
        // SAFETY: flat_hash_map.F2 - these are the words of a slot in use, all at one moment: a
        // writer stored them, as a value.
        Ok(if is_key { Some(unsafe { bits.value() }) } else { None })
    }

    /// Returns a slot whose tag matches the hash. If there is none, returns the first slot, because
    /// its line has been loaded already.
    #[inline(always)]
    pub(super) fn first_hit(self, tags: u64, hash: u64, key: K) -> FirstHit {
        let hits = EntryLayout::<K, V>::hits(tags, hash);
        let slot = EntryLayout::<K, V>::last_of(hits);
        let is_key = Bits::of(&key).are_at::<K>(self.key_at(slot)) & (hits != 0);
        let is_more = hits & hits.wrapping_sub(1) != 0;
        FirstHit { slot, is_key, is_more: is_more | EntryLayout::<K, V>::may_be_later(tags, hash) }
    }

    /// Continues [`find`](Self::find) if the first hit is not the key's and there may be others.
    /// It, too, has no branch on whether the key is in the next bucket.
    #[inline(never)]
    fn find_further(
        self,
        version: u64,
        mut tags: u64,
        hash: u64,
        key: K,
    ) -> Result<Option<V>, Closed> {
        let mut bucket = self;
        let (is_key, bits) = loop {
            // Two keys of a bucket rarely have the same tag.
            if let Some(slot) = bucket.slot_of_key(tags, hash, key) {
                break (true, Bits::load::<V>(bucket.value_at(slot)));
            }
            let is_later = EntryLayout::<K, V>::may_be_later(tags, hash);
            let Some(later) = (if is_later { bucket.more(tags)? } else { None }) else {
                break (false, Bits::load::<V>(bucket.value_at(0)));
            };
            bucket = later;
            // ORDER: Relaxed; as in `find`.
            tags = bucket.tags().load(Ordering::Relaxed);
            let FirstHit { slot, is_key, is_more } = bucket.first_hit(tags, hash, key);
            let bits = Bits::load::<V>(bucket.value_at(slot));
            if is_key | !is_more {
                break (is_key, bits);
            }
        };
        if !self.is_still(version) {
            return Err(Closed::Changing);
        }
        // SAFETY: flat_hash_map.F2 - these are the words of a slot in use, all at one moment: a
        // value's.
        Ok(if is_key { Some(unsafe { bits.value() }) } else { None })
    }

    /// Replaces the contents of `copied` by every entry of the chain at one moment. Returns the
    /// version of that moment.
    pub(super) fn copy(self, copied: &mut Copied<K, V>) -> Result<u64, Closed> {
        let Copied { bits: found, entries } = copied;
        found.clear();
        entries.clear();
        let version = self.open()?;
        let mut next = Some(self);
        while let Some(bucket) = next {
            // ORDER: Relaxed; as in `find`.
            let tags = bucket.tags().load(Ordering::Relaxed);
            found.extend(Self::used(tags).map(|slot| {
                let key = Bits::load::<K>(bucket.key_at(slot));
                (key, Bits::load::<V>(bucket.value_at(slot)))
            }));
            next = bucket.more(tags)?;
        }
        if !self.is_still(version) {
            return Err(Closed::Changing);
        }
        // SAFETY: flat_hash_map.F2 - these are the words of slots in use, all at one moment:
        // writers stored them, as keys and values.
        let entry = |(key, value): &(Bits, Bits)| unsafe { (key.value(), value.value()) };
        entries.extend(found.iter().map(entry));
        Ok(version)
    }

    /// Publishes the entries that were moved to this bucket. From this store on they are in the map
    /// (flat_hash_map.F3).
    pub(super) fn arrive(self) {
        // ORDER: Relaxed; no thread but the mover writes it.
        let version = self.version().load(Ordering::Relaxed);
        debug_assert!(
            version & (LOCKED | ARRIVED | MOVED) == 0,
            "flat_hash_map.F3: entries arrive in a bucket that is not pending"
        );
        // ORDER: Release; pairs with Acquire in `open` and `lock_at`: the entries before.
        self.version().store(version | ARRIVED, Ordering::Release);
    }

    /// Writes entries into a pending bucket. Only the thread that holds the lock of the bucket from
    /// which they come calls this (flat_hash_map.F3). `number` is that of the first overflow bucket
    /// for the entries that do not fit.
    pub(super) fn fill<'e>(
        self,
        entries: impl Iterator<Item = &'e (u64, K, V)>,
        number: &mut usize,
    ) {
        let (mut bucket, mut slot) = (self, 0);
        for (hash, key, value) in entries {
            if slot == EntryLayout::<K, V>::SLOTS {
                (bucket, slot) = (bucket.chain(*number), 0);
                *number += 1;
            }
            bucket.write_free(slot, *hash, *key, *value);
            self.point_to(bucket, *hash);
            slot += 1;
        }
    }

    /// Links overflow bucket `number` behind this bucket, which is the last of its chain.
    pub(super) fn chain(self, number: usize) -> Self {
        // ORDER: Relaxed (both); as a word of an entry, in `Bits::store`.
        let version = self.version().load(Ordering::Relaxed);
        debug_assert!(version % STEP < 1 << NUMBER, "flat_hash_map.F1: the bucket has a next one");
        self.version().store(version | Self::link_to(number), Ordering::Relaxed);
        self.linked().expect("its memory is allocated")
    }

    /// Sets the class of this hash in every bucket of the chain before `bucket`, which has the key.
    #[inline]
    pub(super) fn point_to(self, bucket: Self, hash: u64) {
        let class = EntryLayout::<K, V>::class_of(EntryLayout::<K, V>::tag_of(hash));
        let mut before = self;
        while !before.is(bucket) {
            before.set_tags(|tags| tags | class);
            before = before.linked().expect("a later bucket follows");
        }
    }

    /// Returns the bits of a version that link an overflow bucket.
    pub(super) fn link_to(number: usize) -> u64 {
        debug_assert!(
            number >> NUMBER_BITS == 0,
            "flat_hash_map.F1: {number} is not the number of an overflow bucket"
        );
        (number as u64) << NUMBER
    }

    /// Changes the tags, under the lock.
    #[inline(always)]
    pub(super) fn set_tags(self, f: impl Fn(u64) -> u64) -> u64 {
        // ORDER: Relaxed; under the lock.
        let tags = f(self.tags().load_to_change(Ordering::Relaxed));
        self.store_tags(tags);
        tags
    }

    /// Writes the tags, under the lock.
    #[inline(always)]
    pub(super) fn store_tags(self, tags: u64) {
        // ORDER: Relaxed; as a word of an entry, in `Bits::store`.
        self.tags().store(tags, Ordering::Relaxed);
    }

    /// Returns the last slot in use, according to these tags.
    pub(super) fn last_used(tags: u64) -> Option<usize> {
        let used = EntryLayout::<K, V>::used(tags).checked_ilog2()?;
        Some((used / EntryLayout::<K, V>::TAG) as usize)
    }

    /// Writes an entry into a free slot.
    #[inline(always)]
    pub(super) fn write_free(self, slot: usize, hash: u64, key: K, value: V) {
        // ORDER: Relaxed; under the lock.
        self.write(slot, self.tags().load_to_change(Ordering::Relaxed), hash, key, value);
    }

    /// Writes an entry into a slot of a bucket with these tags.
    #[inline(always)]
    pub(super) fn write(self, slot: usize, tags: u64, hash: u64, key: K, value: V) {
        Bits::of(&key).store::<K>(self.key_at(slot));
        Bits::of(&value).store::<V>(self.value_at(slot));
        let tag = EntryLayout::<K, V>::tag_of(hash) << (slot as u32 * EntryLayout::<K, V>::TAG);
        self.store_tags(tags & !Self::tag_mask(slot) | tag);
    }

    pub(super) fn tag_mask(slot: usize) -> u64 {
        ((1 << EntryLayout::<K, V>::TAG) - 1) << (slot as u32 * EntryLayout::<K, V>::TAG)
    }
}

/// The result of looking up a key by the tags of one bucket.
pub(super) struct FirstHit {
    pub(super) slot: usize,
    pub(super) is_key: bool,
    /// The key may be in another slot.
    pub(super) is_more: bool,
}
