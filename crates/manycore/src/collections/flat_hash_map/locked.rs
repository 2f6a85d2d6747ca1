//! Changes of a bucket under its lock (flat_hash_map.F1 and flat_hash_map.F2).

use super::bucket::{Bucket, Closed, FirstHit, LOCKED, MOVED, STEP, has_entries, is_open};
use super::layout::{EntryLayout, LATER};
use super::plain::{Bits, Plain};
use crate::sync::{Backoff, LoadToChange, Ordering, fence, seeded_bug};

impl<'t, K: Plain, V: Plain> Bucket<'t, K, V> {
    /// Locks the chain. Returns `Err` if its entries are not in this table.
    #[inline(always)]
    pub(super) fn lock(self) -> Result<Locked<'t, K, V>, Closed> {
        let mut backoff = Backoff::new();
        loop {
            // ORDER: Relaxed; the exchange below orders, or the fence.
            let version = self.version().load_to_change(Ordering::Relaxed);
            if !has_entries(version) {
                // ORDER: Acquire, after the load; pairs with Release in `Locked::drop`: a thread
                // that finds the bucket moved sees the next table.
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

    /// Locks the chain if this is still its version.
    #[inline(always)]
    pub(super) fn lock_at(self, version: u64) -> Option<Locked<'t, K, V>> {
        debug_assert!(is_open(version), "flat_hash_map.F1: a closed bucket is locked");
        // ORDER: Acquire; pairs with Release in `Locked::drop`: the previous writer is done.
        let exchanged = self.version().compare_exchange(
            version,
            version | LOCKED,
            Ordering::Acquire,
            Ordering::Relaxed,
        );
        exchanged.ok()?;
        // BUG: a writer's words may become visible before its lock does (flat_hash_map.F2).
        if !seeded_bug!("flat-unfenced-write") {
            // ORDER: Release; pairs with the fence of `is_still`: the lock before each word that is
            // written under it.
            fence(Ordering::Release);
        }
        Some(Locked { first: self, leave: version })
    }

    /// Writes a value under a key, if the key is in this bucket, or cannot be in another and a slot
    /// is free. Returns the old value. Returns `Err` otherwise, or if another writer came in
    /// between.
    ///
    /// This reads everything before it takes the lock, because a processor does little else during
    /// a locked instruction. It locks only the version that it has read (flat_hash_map.F6). Like
    /// [`find`](Bucket::find), it has no branch on whether the key is present.
    #[inline(always)]
    pub(super) fn put(self, hash: u64, key: K, value: V) -> Result<Option<V>, NotHere> {
        let version = self.open().map_err(|_| NotHere)?;
        // ORDER: Relaxed; used only if that version is locked.
        let tags = self.tags().load_to_change(Ordering::Relaxed);
        let FirstHit { slot, is_key, is_more } = self.first_hit(tags, hash, key);
        let free = EntryLayout::<K, V>::free(tags);
        if !is_key & (is_more | (free == 0)) {
            return Err(NotHere);
        }
        let free = EntryLayout::<K, V>::slot_of(free | EntryLayout::<K, V>::LAST);
        // Selects by arithmetic, because compilers turn a conditional into a branch.
        let slot = free ^ ((slot ^ free) & usize::from(is_key).wrapping_neg());
        let old = Bits::load::<V>(self.value_at(slot));
        let mut locked = self.lock_seen(version).ok_or(NotHere)?;
        locked.begin_change();
        self.write(slot, tags, hash, key, value);
        // SAFETY: flat_hash_map.F2, flat_hash_map.F6 - these are the words of the key's slot at the
        // moment of the lock: a writer stored them, as a value.
        Ok(if is_key { Some(unsafe { old.value() }) } else { None })
    }

    /// As [`put`](Self::put), but in any bucket of the chain, and waits for the lock. Returns `Err`
    /// if the entries are not in this table, or every slot is in use.
    #[inline(never)]
    pub(super) fn put_slow(self, hash: u64, key: K, value: V) -> Result<Option<V>, NotHere> {
        let mut locked = self.lock().map_err(|_| NotHere)?;
        match locked.search(hash, key) {
            SlotForKey::Taken(slot) => {
                let old = slot.value();
                locked.replace(&slot, value);
                Ok(Some(old))
            }
            SlotForKey::Free(slot) => {
                locked.insert(&slot, hash, key, value);
                Ok(None)
            }
            SlotForKey::Full => Err(NotHere),
        }
    }

    /// As [`take`](Self::take), but from any bucket of the chain. Writes nothing if the key is not
    /// present. Returns `Err` if the entries are not in this table, or another writer came in
    /// between.
    #[inline(never)]
    pub(super) fn take_slow(self, hash: u64, key: K) -> Result<Option<V>, NotHere> {
        if self.find(hash, key).map_err(|_| NotHere)?.is_none() {
            return Ok(None);
        }
        let mut locked = self.lock().map_err(|_| NotHere)?;
        let SlotForKey::Taken(slot) = locked.search(hash, key) else { return Err(NotHere) };
        let old = slot.value();
        locked.remove(&slot);
        Ok(Some(old))
    }

    /// Removes a key and returns its value, if the key is in this bucket. Returns `None` if the key
    /// is in no bucket. Returns `Err` if it may be in another bucket, or if another writer came in
    /// between.
    #[inline(always)]
    pub(super) fn take(self, hash: u64, key: K) -> Result<Option<V>, NotHere> {
        let version = self.open().map_err(|_| NotHere)?;
        // ORDER: Relaxed; used only if that version is locked, or still the same.
        let tags = self.tags().load(Ordering::Relaxed);
        let FirstHit { slot, is_key, is_more } = self.first_hit(tags, hash, key);
        if !is_key & is_more {
            return Err(NotHere);
        }
        let old = Bits::load::<V>(self.value_at(slot));
        if !is_key {
            return if self.is_still(version) { Ok(None) } else { Err(NotHere) };
        }
        let mut locked = self.lock_seen(version).ok_or(NotHere)?;
        if tags & LATER == 0 {
            locked.begin_change();
            self.store_tags(tags & !Self::tag_mask(slot));
        } else {
            locked.remove(&Slot { bucket: self, slot });
        }
        // SAFETY: flat_hash_map.F2, flat_hash_map.F6 - as in `put`; the slot is in use.
        Ok(Some(unsafe { old.value() }))
    }

    /// Locks the chain if it still has the version that was read.
    #[inline(always)]
    fn lock_seen(self, version: u64) -> Option<Locked<'t, K, V>> {
        // BUG: a writer locks any version, and applies what it read before (flat_hash_map.F6).
        if seeded_bug!("flat-stale-write") {
            return self.lock().ok();
        }
        self.lock_at(version)
    }

    /// As [`lock_at`](Self::lock_at), to move the entries away.
    pub(super) fn lock_to_move(self, version: u64) -> Option<Locked<'t, K, V>> {
        // BUG: a bucket is moved while writers change it (flat_hash_map.F3).
        if seeded_bug!("flat-unlocked-move") {
            return Some(Locked { first: self, leave: version });
        }
        self.lock_at(version)
    }
}

/// The fast path gave up. The key has to be looked for in the whole chain, under its lock.
pub(super) struct NotHere;

/// The result of a search under the lock.
pub(super) enum SlotForKey<'t, K, V> {
    /// The key's entry.
    Taken(Slot<'t, K, V>),
    Free(Slot<'t, K, V>),
    /// Every slot is in use.
    Full,
}

/// A slot in a bucket that is locked.
pub(super) struct Slot<'t, K, V> {
    bucket: Bucket<'t, K, V>,
    slot: usize,
}

impl<K: Plain, V: Plain> Slot<'_, K, V> {
    /// Returns the value of a slot in use.
    #[inline(always)]
    pub(super) fn value(&self) -> V {
        let bits = Bits::load::<V>(self.bucket.value_at(self.slot));
        // SAFETY: flat_hash_map.F2 - read under the lock from a slot in use: a writer stored these
        // words, as a value.
        unsafe { bits.value() }
    }
}

/// A locked chain. Dropping this unlocks it.
pub(super) struct Locked<'t, K, V> {
    first: Bucket<'t, K, V>,
    /// The version that unlocking stores.
    leave: u64,
}

impl<'t, K: Plain, V: Plain> Locked<'t, K, V> {
    /// Looks for a key, or for a free slot for it.
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
            // The last bucket with entries. The buckets before it are full.
            let free = EntryLayout::<K, V>::free(tags);
            if free != 0 {
                let slot = EntryLayout::<K, V>::slot_of(free);
                return SlotForKey::Free(Slot { bucket, slot });
            }
            return match bucket.linked() {
                Some(next) => SlotForKey::Free(Slot { bucket: next, slot: 0 }),
                None => SlotForKey::Full,
            };
        }
    }

    /// Returns the bucket before the last bucket with entries, if any, and the last bucket itself.
    fn last(&self) -> (Option<Bucket<'t, K, V>>, Bucket<'t, K, V>) {
        let (mut before, mut last) = (None, self.first);
        // ORDER: Relaxed; under the lock.
        while let Ok(Some(more)) = last.more(last.tags().load_to_change(Ordering::Relaxed)) {
            (before, last) = (Some(last), more);
        }
        (before, last)
    }

    /// Called before the first write under this lock. Readers that are under way will read again.
    fn begin_change(&mut self) {
        // Once for each lock, except a lock to move the entries.
        self.leave = self.leave.wrapping_add(STEP);
    }

    /// Fills a free slot.
    #[inline(always)]
    pub(super) fn insert(&mut self, slot: &Slot<'t, K, V>, hash: u64, key: K, value: V) {
        self.begin_change();
        slot.bucket.write_free(slot.slot, hash, key, value);
        self.first.point_to(slot.bucket, hash);
    }

    /// Replaces the value of a slot in use.
    #[inline(always)]
    pub(super) fn replace(&mut self, slot: &Slot<'t, K, V>, value: V) {
        self.begin_change();
        Bits::of(&value).store::<V>(slot.bucket.value_at(slot.slot));
    }

    /// Empties a slot. The chain's last entry takes its place, so that only the last bucket with
    /// entries has free slots.
    pub(super) fn remove(&mut self, slot: &Slot<'t, K, V>) {
        self.begin_change();
        let (before, last) = self.last();
        // ORDER: Relaxed; under the lock.
        let tags = last.tags().load_to_change(Ordering::Relaxed);
        let from = Bucket::<K, V>::last_used(tags).expect("the slot is in use");
        if from != slot.slot || !last.is(slot.bucket) {
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
        if let Some(before) = before {
            // Earlier buckets may keep classes that no later entry has. They cost a reader a load,
            // and go with the other classes.
            before.set_tags(|tags| tags & !LATER | EntryLayout::<K, V>::classes(left));
        }
    }

    /// Appends an overflow bucket with this entry to the chain.
    #[cold]
    pub(super) fn extend(&mut self, number: usize, hash: u64, key: K, value: V) {
        self.begin_change();
        let (_, last) = self.last();
        let new = last.chain(number);
        new.write_free(0, hash, key, value);
        self.first.point_to(new, hash);
        if last.is(self.first) {
            self.leave |= Bucket::<K, V>::link_to(number);
        }
    }

    /// Marks the entries as moved to the next table. No reader and no writer enters the bucket any
    /// more.
    pub(super) fn mark_moved(mut self) {
        self.leave |= MOVED;
    }
}

impl<K, V> Drop for Locked<'_, K, V> {
    #[inline(always)]
    fn drop(&mut self) {
        // ORDER: Release; pairs with Acquire in `open`, `lock` and `lock_at`: everything that was
        // written under the lock, and the table that the entries have moved to.
        self.first.version().store(self.leave, Ordering::Release);
    }
}
