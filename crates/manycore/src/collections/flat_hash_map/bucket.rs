//! Buckets: entries as words on one line or a few, read under a version and written under its lock
//! (laws flat_hash_map.F1 and flat_hash_map.F2).

use super::layout::{CONTINUED, CacheLine, EntryLayout, HEAD, LINE_WORDS, MORE};
use super::overflow::Overflow;
use super::plain::{Bits, Plain};
use crate::sync::{AtomicU64, Backoff, LoadToChange, Ordering, fence, seeded_bug};
use std::marker::PhantomData;

/// Flags of a version: a writer is inside...
const LOCKED: u64 = 1;
/// ...the entries are in the table before still...
pub(super) const PENDING: u64 = 2;
/// ...or in the next table.
const MOVED: u64 = 4;
/// What the version is raised by; above the flags.
const STEP: u64 = 8;
/// A reader can't look at the bucket now.
const CLOSED: u64 = LOCKED | PENDING | MOVED;

/// Why a chain can't be read or locked at this moment.
pub(super) enum Closed {
    /// A writer is inside, or was.
    Changing,
    /// The entries are in the table before, if it has not moved them in between.
    Pending,
    /// The entries are in the next table.
    Moved,
}

impl Closed {
    #[cold]
    fn of(version: u64) -> Self {
        match version {
            _ if version & MOVED != 0 => Self::Moved,
            _ if version & PENDING != 0 => Self::Pending,
            _ => Self::Changing,
        }
    }
}

/// What was copied from a chain.
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
    lines: &'t [CacheLine],
    overflow: &'t Overflow,
    _types: PhantomData<EntryLayout<K, V>>,
}

impl<K, V> Clone for Bucket<'_, K, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, V> Copy for Bucket<'_, K, V> {}

impl<'t, K: Plain, V: Plain> Bucket<'t, K, V> {
    #[inline(always)]
    pub(super) fn new(lines: &'t [CacheLine], overflow: &'t Overflow) -> Self {
        Self { lines, overflow, _types: PhantomData }
    }

    #[inline(always)]
    fn word(self, index: usize) -> &'t AtomicU64 {
        &self.lines[index / LINE_WORDS].0[index % LINE_WORDS]
    }

    /// Of the first bucket of a chain.
    #[inline(always)]
    fn version(self) -> &'t AtomicU64 {
        self.word(0)
    }

    #[inline(always)]
    fn tags(self) -> &'t AtomicU64 {
        self.word(1)
    }

    #[inline(always)]
    fn key_at(self, slot: usize) -> impl Fn(usize) -> &'t AtomicU64 {
        move |index| self.word(HEAD + slot * EntryLayout::<K, V>::ENTRY + index)
    }

    #[inline(always)]
    fn value_at(self, slot: usize) -> impl Fn(usize) -> &'t AtomicU64 {
        move |index| {
            self.word(HEAD + slot * EntryLayout::<K, V>::ENTRY + EntryLayout::<K, V>::KEY + index)
        }
    }

    /// The slot of a key, by these tags.
    #[inline(always)]
    fn slot_of_key(self, tags: u64, hash: u64, key: K) -> Option<usize> {
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

    /// The slots in use, by these tags.
    fn used(tags: u64) -> impl Iterator<Item = usize> {
        let used = tags & EntryLayout::<K, V>::USED;
        (0..EntryLayout::<K, V>::SLOTS).filter(move |slot| used & Self::tag_mask(*slot) != 0)
    }

    /// The chain's next bucket, by these tags, if it has entries; `Err` if it was linked just now.
    #[inline(always)]
    fn more(self, tags: u64) -> Result<Option<Self>, Closed> {
        if tags & CONTINUED == 0 {
            return Ok(None);
        }
        self.linked(tags).map(Some).ok_or(Closed::Changing)
    }

    /// The chain's next bucket, by these tags, whether it has entries or not.
    #[inline(always)]
    fn linked(self, tags: u64) -> Option<Self> {
        let number = ((tags & !CONTINUED) >> MORE) as usize;
        if number == 0 {
            return None;
        }
        let lines = self.overflow.lines(number, EntryLayout::<K, V>::LINES)?;
        Some(Self { lines, ..self })
    }

    /// The version, if a reader can look at the chain.
    #[inline(always)]
    fn open(self) -> Result<u64, Closed> {
        // ORDER: Acquire; pairs with Release in `Locked::drop`, and in `arrive`: what was written
        // under an older version is seen.
        let version = self.version().load(Ordering::Acquire);
        if version & CLOSED == 0 { Ok(version) } else { Err(Closed::of(version)) }
    }

    /// Whether what was read since the chain was [`open`](Self::open) was there all at one moment
    /// (flat_hash_map.F2).
    #[inline(always)]
    fn is_still(self, version: u64) -> bool {
        // BUG: a reader does not look at the version again (flat_hash_map.F2).
        if seeded_bug!("flat-single-look") {
            return true;
        }
        // ORDER: Acquire; pairs with the fence of `lock_at`: if a word that was read was written
        // under a later lock, the load below sees that lock.
        fence(Ordering::Acquire);
        // ORDER: Relaxed; behind the fence.
        self.version().load(Ordering::Relaxed) == version
    }

    /// The value of a key, without a lock; `Err` if that can't be told at this moment.
    ///
    /// The usual case has no branch on whether the key is there, which no processor can predict.
    #[inline(always)]
    pub(super) fn find(self, hash: u64, key: K) -> Result<Option<V>, Closed> {
        let version = self.open()?;
        // ORDER: Relaxed; counts only if the version says so (flat_hash_map.F2).
        let tags = self.tags().load(Ordering::Relaxed);
        let FirstHit { slot, is_key, is_more } = self.first_hit(tags, hash, key);
        let bits = Bits::load::<V>(self.value_at(slot));
        if !is_key & is_more {
            return self.find_further(hash, key);
        }
        if !self.is_still(version) {
            return Err(Closed::Changing);
        }
        // SAFETY: flat_hash_map.F2 - the words of a slot in use, all at one moment: those that a
        // writer stored, of a value.
        Ok(if is_key { Some(unsafe { bits.value() }) } else { None })
    }

    /// The first slot whose tag is that of the hash, or the last slot.
    #[inline(always)]
    fn first_hit(self, tags: u64, hash: u64, key: K) -> FirstHit {
        let hits = EntryLayout::<K, V>::hits(tags, hash);
        let slot = EntryLayout::<K, V>::slot_of(hits | EntryLayout::<K, V>::LAST);
        let is_key = Bits::of(&key).are_at::<K>(self.key_at(slot)) & (hits != 0);
        FirstHit { slot, is_key, is_more: (hits & hits.wrapping_sub(1) | tags & CONTINUED) != 0 }
    }

    /// As [`find`](Self::find), in the whole chain.
    #[inline(never)]
    fn find_further(self, hash: u64, key: K) -> Result<Option<V>, Closed> {
        let version = self.open()?;
        let mut bucket = self;
        let found = loop {
            // ORDER: Relaxed; as in `find`.
            let tags = bucket.tags().load(Ordering::Relaxed);
            if let Some(slot) = bucket.slot_of_key(tags, hash, key) {
                break Some(Bits::load::<V>(bucket.value_at(slot)));
            }
            match bucket.more(tags)? {
                Some(more) => bucket = more,
                None => break None,
            }
        };
        if !self.is_still(version) {
            return Err(Closed::Changing);
        }
        // SAFETY: flat_hash_map.F2 - the words of a slot in use, all at one moment: a value's.
        Ok(found.map(|bits| unsafe { bits.value() }))
    }

    /// Every entry of the chain at one moment, in place of what `copied` has; the version of that
    /// moment.
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
        // SAFETY: flat_hash_map.F2 - the words of slots in use, all at one moment: those that
        // writers stored, of keys and values.
        let entry = |(key, value): &(Bits, Bits)| unsafe { (key.value(), value.value()) };
        entries.extend(found.iter().map(entry));
        Ok(version)
    }

    /// Locks the chain; `Err` if its entries are not here.
    #[inline(always)]
    pub(super) fn lock(self) -> Result<Locked<'t, K, V>, Closed> {
        let mut backoff = Backoff::new();
        loop {
            // ORDER: Relaxed; the exchange below orders, or the caller's next look.
            let version = self.version().load_to_change(Ordering::Relaxed);
            if version & (PENDING | MOVED) != 0 {
                // ORDER: Acquire, behind the load; pairs with Release in `Locked::drop`: a thread
                // that is refused here sees the next table.
                fence(Ordering::Acquire);
                return Err(Closed::of(version));
            }
            if version & LOCKED == 0 {
                if let Some(locked) = self.lock_at(version) {
                    return Ok(locked);
                }
            }
            backoff.pause();
        }
    }

    /// Locks the chain if this is its version.
    #[inline(always)]
    pub(super) fn lock_at(self, version: u64) -> Option<Locked<'t, K, V>> {
        debug_assert!(version & CLOSED == 0, "flat_hash_map.F1: a closed bucket is locked");
        // ORDER: Acquire; pairs with Release in `Locked::drop`: the writer before is done.
        let exchanged = self.version().compare_exchange(
            version,
            version | LOCKED,
            Ordering::Acquire,
            Ordering::Relaxed,
        );
        exchanged.ok()?;
        // BUG: a writer's words may be seen before its lock is (flat_hash_map.F2).
        if !seeded_bug!("flat-unfenced-write") {
            // ORDER: Release; pairs with the fence of `is_still`: the lock before each word
            // that is written under it.
            fence(Ordering::Release);
        }
        Some(Locked { first: self, leave: version })
    }

    /// As [`lock_at`](Self::lock_at), to move the entries away.
    pub(super) fn lock_to_move(self, version: u64) -> Option<Locked<'t, K, V>> {
        // BUG: a bucket is moved while writers are in it (flat_hash_map.F3).
        if seeded_bug!("flat-unlocked-move") {
            return Some(Locked { first: self, leave: version });
        }
        self.lock_at(version)
    }

    /// The moment at which entries that were moved to this bucket are in the map (law
    /// flat_hash_map.F3).
    pub(super) fn arrive(self) {
        debug_assert!(
            // ORDER: Relaxed; the mover's own.
            cfg!(manycore_loom) || self.version().load(Ordering::Relaxed) == PENDING,
            "flat_hash_map.F3: entries arrive in a bucket that does not wait for them"
        );
        // ORDER: Release; pairs with Acquire in `open` and `lock_at`: the entries before.
        self.version().store(0, Ordering::Release);
    }

    /// Puts entries into a bucket that waits for them; only the thread that holds the lock of the
    /// bucket from which they come calls it (flat_hash_map.F3). `number` is that of the first of
    /// the buckets for those that do not fit.
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
            bucket.write(slot, *hash, *key, *value);
            slot += 1;
        }
    }

    /// Links this overflow bucket behind the last one of the chain, which is this.
    fn chain(self, number: usize) -> Self {
        // ORDER: Relaxed; as a word of an entry, in `Bits::store`.
        let tags = self.tags().load_to_change(Ordering::Relaxed);
        debug_assert!(tags >> MORE == 0, "flat_hash_map.F1: a chain has two ends");
        let tags = tags | (number as u64) << MORE | CONTINUED;
        self.tags().store(tags, Ordering::Relaxed);
        self.linked(tags).expect("taken from the overflow")
    }

    /// Changes the tags, under the lock.
    #[inline(always)]
    fn set_tags(self, f: impl Fn(u64) -> u64) -> u64 {
        // ORDER: Relaxed; as a word of an entry, in `Bits::store`.
        let tags = f(self.tags().load_to_change(Ordering::Relaxed));
        self.tags().store(tags, Ordering::Relaxed);
        tags
    }

    /// The last slot in use, by these tags.
    fn last_used(tags: u64) -> Option<usize> {
        let used = (tags & EntryLayout::<K, V>::USED).checked_ilog2()?;
        Some((used / EntryLayout::<K, V>::TAG) as usize)
    }

    /// Writes an entry into a free slot.
    #[inline(always)]
    fn write(self, slot: usize, hash: u64, key: K, value: V) {
        Bits::of(&key).store::<K>(self.key_at(slot));
        Bits::of(&value).store::<V>(self.value_at(slot));
        let tag = EntryLayout::<K, V>::tag_of(hash) << (slot as u32 * EntryLayout::<K, V>::TAG);
        self.set_tags(|tags| tags & !Self::tag_mask(slot) | tag);
    }

    fn tag_mask(slot: usize) -> u64 {
        ((1 << EntryLayout::<K, V>::TAG) - 1) << (slot as u32 * EntryLayout::<K, V>::TAG)
    }
}

/// What the tags of a chain's first bucket say of a key.
struct FirstHit {
    slot: usize,
    is_key: bool,
    /// The key may be in another slot.
    is_more: bool,
}

/// What a writer found.
pub(super) enum SlotForKey<'t, K, V> {
    /// The key's entry.
    Taken(Slot<'t, K, V>),
    Free(Slot<'t, K, V>),
    /// Every slot is in use.
    Full,
}

/// A place for an entry, in a bucket that is locked.
pub(super) struct Slot<'t, K, V> {
    bucket: Bucket<'t, K, V>,
    slot: usize,
}

impl<K: Plain, V: Plain> Slot<'_, K, V> {
    /// The value of a slot in use.
    #[inline(always)]
    pub(super) fn value(&self) -> V {
        let bits = Bits::load::<V>(self.bucket.value_at(self.slot));
        // SAFETY: flat_hash_map.F2 - read from a slot in use under its lock: what a writer stored,
        // of a value.
        unsafe { bits.value() }
    }
}

/// A chain is locked; dropping this unlocks it.
pub(super) struct Locked<'t, K, V> {
    first: Bucket<'t, K, V>,
    /// What the version becomes.
    leave: u64,
}

impl<'t, K: Plain, V: Plain> Locked<'t, K, V> {
    /// Looks for a key, or for a place for it.
    #[inline(always)]
    pub(super) fn search(&self, hash: u64, key: K) -> SlotForKey<'t, K, V> {
        let mut bucket = self.first;
        loop {
            // ORDER: Relaxed; under the lock.
            let tags = bucket.tags().load_to_change(Ordering::Relaxed);
            if let Some(slot) = bucket.slot_of_key(tags, hash, key) {
                return SlotForKey::Taken(Slot { bucket, slot });
            }
            let Ok(more) = bucket.more(tags) else {
                unreachable!("flat_hash_map.F1: linked under the lock");
            };
            if let Some(more) = more {
                bucket = more;
                continue;
            }
            // The last one with entries: those before it are full.
            let unused = !tags & EntryLayout::<K, V>::USED;
            if unused != 0 {
                let slot = EntryLayout::<K, V>::slot_of(unused);
                return SlotForKey::Free(Slot { bucket, slot });
            }
            return match bucket.linked(tags) {
                Some(next) => SlotForKey::Free(Slot { bucket: next, slot: 0 }),
                None => SlotForKey::Full,
            };
        }
    }

    /// The last bucket with entries, and the one before it.
    fn last(&self) -> (Option<Bucket<'t, K, V>>, Bucket<'t, K, V>) {
        let (mut before, mut last) = (None, self.first);
        // ORDER: Relaxed; under the lock.
        while let Ok(Some(more)) = last.more(last.tags().load_to_change(Ordering::Relaxed)) {
            (before, last) = (Some(last), more);
        }
        (before, last)
    }

    /// From here on the chain is written: readers that are under way look again.
    fn changes(&mut self) {
        // The first change of this lock; there is one, but for a move.
        self.leave = self.leave.wrapping_add(STEP);
    }

    /// Puts a value under a key, if the first bucket of the chain has the key, or has a place for
    /// it and the key can't be elsewhere; the value that was there. (As [`find`](Bucket::find),
    /// with no branch on that.)
    #[inline(always)]
    pub(super) fn put(&mut self, hash: u64, key: K, value: V) -> Option<Option<V>> {
        let bucket = self.first;
        // ORDER: Relaxed; under the lock.
        let tags = bucket.tags().load_to_change(Ordering::Relaxed);
        let FirstHit { slot, is_key, is_more } = bucket.first_hit(tags, hash, key);
        let free = !tags & EntryLayout::<K, V>::USED;
        if !is_key & (is_more | (free == 0)) {
            return None;
        }
        let free = EntryLayout::<K, V>::slot_of(free | EntryLayout::<K, V>::LAST);
        let slot = if is_key { slot } else { free };
        let old = Bits::load::<V>(bucket.value_at(slot));
        self.changes();
        bucket.write(slot, hash, key, value);
        // SAFETY: flat_hash_map.F2 - read from the key's slot under its lock: what a writer stored,
        // of a value.
        Some(if is_key { Some(unsafe { old.value() }) } else { None })
    }

    /// Takes a key's value out, if the chain is one bucket, which has the key.
    #[inline(always)]
    pub(super) fn take(&mut self, hash: u64, key: K) -> Option<Option<V>> {
        // ORDER: Relaxed; under the lock.
        let tags = self.first.tags().load_to_change(Ordering::Relaxed);
        let FirstHit { slot, is_key, .. } = self.first.first_hit(tags, hash, key);
        if !is_key | (tags & CONTINUED != 0) {
            return None;
        }
        let old = Slot { bucket: self.first, slot }.value();
        self.changes();
        self.first.set_tags(|tags| tags & !Bucket::<K, V>::tag_mask(slot));
        Some(Some(old))
    }

    /// Fills a free slot.
    #[inline(always)]
    pub(super) fn insert(&mut self, slot: &Slot<'t, K, V>, hash: u64, key: K, value: V) {
        self.changes();
        slot.bucket.write(slot.slot, hash, key, value);
        let (_, last) = self.last();
        if !std::ptr::eq(last.lines, slot.bucket.lines) {
            last.set_tags(|tags| tags | CONTINUED); // it was full, and the slot is the next one's
        }
    }

    /// Puts another value into a slot in use.
    #[inline(always)]
    pub(super) fn replace(&mut self, slot: &Slot<'t, K, V>, value: V) {
        self.changes();
        Bits::of(&value).store::<V>(slot.bucket.value_at(slot.slot));
    }

    /// Empties a slot: the chain's last entry takes its place, so that only the last bucket with
    /// entries has free slots.
    pub(super) fn remove(&mut self, slot: &Slot<'t, K, V>) {
        self.changes();
        let (before, last) = self.last();
        // ORDER: Relaxed; under the lock.
        let tags = last.tags().load_to_change(Ordering::Relaxed);
        let from = Bucket::<K, V>::last_used(tags).expect("the slot is in use");
        if from != slot.slot || !std::ptr::eq(last.lines, slot.bucket.lines) {
            for index in 0..EntryLayout::<K, V>::ENTRY {
                // ORDER: Relaxed; as in `Bits::store`.
                let word = last.key_at(from)(index).load(Ordering::Relaxed);
                slot.bucket.key_at(slot.slot)(index).store(word, Ordering::Relaxed);
            }
            let tag =
                (tags & Bucket::<K, V>::tag_mask(from)) >> (from as u32 * EntryLayout::<K, V>::TAG);
            let tag = tag << (slot.slot as u32 * EntryLayout::<K, V>::TAG);
            slot.bucket.set_tags(|tags| tags & !Bucket::<K, V>::tag_mask(slot.slot) | tag);
        }
        let left = last.set_tags(|tags| tags & !Bucket::<K, V>::tag_mask(from));
        if let (0, Some(before)) = (left & EntryLayout::<K, V>::USED, before) {
            before.set_tags(|tags| tags & !CONTINUED);
        }
    }

    /// Adds an overflow bucket with this entry to the end of the chain.
    #[cold]
    pub(super) fn extend(&mut self, number: usize, hash: u64, key: K, value: V) {
        self.changes();
        let (_, last) = self.last();
        last.chain(number).write(0, hash, key, value);
    }

    /// The entries are in the next table: no reader and no writer comes in any more.
    pub(super) fn mark_moved(mut self) {
        self.leave |= MOVED;
    }
}

impl<K, V> Drop for Locked<'_, K, V> {
    #[inline(always)]
    fn drop(&mut self) {
        // ORDER: Release; pairs with Acquire in `open`, `lock` and `lock_at`: what was
        // written under the lock, and where the entries have gone.
        self.first.lines[0].0[0].store(self.leave, Ordering::Release);
    }
}
