//! What writers do to a bucket, under its lock (laws flat_hash_map.F1 and flat_hash_map.F2).

use super::bucket::{Bucket, Closed, FirstHit, LOCKED, MOVED, STEP, has_entries, is_open};
use super::layout::{EntryLayout, LATER};
use super::plain::{Bits, Plain};
use crate::sync::{Backoff, LoadToChange, Ordering, fence, seeded_bug};

impl<'t, K: Plain, V: Plain> Bucket<'t, K, V> {
    /// Locks the chain; `Err` if its entries are not here.
    #[inline(always)]
    pub(super) fn lock(self) -> Result<Locked<'t, K, V>, Closed> {
        let mut backoff = Backoff::new();
        loop {
            // ORDER: Relaxed; the exchange below orders, or the caller's next look.
            let version = self.version().load_to_change(Ordering::Relaxed);
            if !has_entries(version) {
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
        debug_assert!(is_open(version), "flat_hash_map.F1: a closed bucket is locked");
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

    /// Puts a value under a key, if the key is in this bucket, or only can be here and a slot is
    /// free; the value that was there. `Err` if not, or if another writer came in between.
    ///
    /// All is read before the lock is taken, because a processor does little else during a locked
    /// instruction; the lock is that of the version that was read (flat_hash_map.F6). As in
    /// [`find`](Bucket::find) there is no branch on whether the key is there.
    #[inline(always)]
    pub(super) fn put(self, hash: u64, key: K, value: V) -> Result<Option<V>, NotHere> {
        let version = self.open().map_err(|_| NotHere)?;
        // ORDER: Relaxed; counts only if the version is locked.
        let tags = self.tags().load_to_change(Ordering::Relaxed);
        let FirstHit { slot, is_key, is_more } = self.first_hit(tags, hash, key);
        let free = EntryLayout::<K, V>::free(tags);
        if !is_key & (is_more | (free == 0)) {
            return Err(NotHere);
        }
        let free = EntryLayout::<K, V>::slot_of(free | EntryLayout::<K, V>::LAST);
        // By arithmetic, since compilers make a branch of a choice.
        let slot = free ^ ((slot ^ free) & usize::from(is_key).wrapping_neg());
        let old = Bits::load::<V>(self.value_at(slot));
        let mut locked = self.lock_seen(version).ok_or(NotHere)?;
        locked.changes();
        self.write(slot, tags, hash, key, value);
        // SAFETY: flat_hash_map.F2, flat_hash_map.F6 - the words of the key's slot at the moment of
        // the lock: what a writer stored, of a value.
        Ok(if is_key { Some(unsafe { old.value() }) } else { None })
    }

    /// As [`put`](Self::put), in whichever bucket of the chain, under a lock that is waited for.
    /// `Err` if the entries are not here, or every slot is in use.
    #[inline(never)]
    pub(super) fn put_further(self, hash: u64, key: K, value: V) -> Result<Option<V>, NotHere> {
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

    /// As [`take`](Self::take), from whichever bucket of the chain; writes nothing if the key is
    /// not there. `Err` if the entries are not here, or another writer came in between.
    #[inline(never)]
    pub(super) fn take_further(self, hash: u64, key: K) -> Result<Option<V>, NotHere> {
        if self.find(hash, key).map_err(|_| NotHere)?.is_none() {
            return Ok(None);
        }
        let mut locked = self.lock().map_err(|_| NotHere)?;
        let SlotForKey::Taken(slot) = locked.search(hash, key) else { return Err(NotHere) };
        let old = slot.value();
        locked.remove(&slot);
        Ok(Some(old))
    }

    /// Takes a key's value out, if the key is in this bucket, or only can be here; `None` if it is
    /// not there. `Err` as for [`put`](Self::put).
    #[inline(always)]
    pub(super) fn take(self, hash: u64, key: K) -> Result<Option<V>, NotHere> {
        let version = self.open().map_err(|_| NotHere)?;
        // ORDER: Relaxed; counts only if the version is locked, or the same still.
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
            locked.changes();
            self.store_tags(tags & !Self::tag_mask(slot));
        } else {
            locked.remove(&Slot { bucket: self, slot });
        }
        // SAFETY: flat_hash_map.F2, flat_hash_map.F6 - as in `put`, of a slot in use.
        Ok(Some(unsafe { old.value() }))
    }

    /// Locks the chain as it was read.
    #[inline(always)]
    fn lock_seen(self, version: u64) -> Option<Locked<'t, K, V>> {
        // BUG: a writer locks whatever version there is, and does what it read before
        // (flat_hash_map.F6).
        if seeded_bug!("flat-stale-write") {
            return self.lock().ok();
        }
        self.lock_at(version)
    }

    /// As [`lock_at`](Self::lock_at), to move the entries away.
    pub(super) fn lock_to_move(self, version: u64) -> Option<Locked<'t, K, V>> {
        // BUG: a bucket is moved while writers are in it (flat_hash_map.F3).
        if seeded_bug!("flat-unlocked-move") {
            return Some(Locked { first: self, leave: version });
        }
        self.lock_at(version)
    }
}

/// A key has to be looked for in the whole chain, under its lock.
pub(super) struct NotHere;

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

    /// Fills a free slot.
    #[inline(always)]
    pub(super) fn insert(&mut self, slot: &Slot<'t, K, V>, hash: u64, key: K, value: V) {
        self.changes();
        slot.bucket.write_free(slot.slot, hash, key, value);
        self.first.point_to(slot.bucket, hash);
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
            // In those further ahead, classes that are left over cost a look, and go with the rest.
            before.set_tags(|tags| tags & !LATER | EntryLayout::<K, V>::classes(left));
        }
    }

    /// Adds an overflow bucket with this entry to the end of the chain.
    #[cold]
    pub(super) fn extend(&mut self, number: usize, hash: u64, key: K, value: V) {
        self.changes();
        let (_, last) = self.last();
        let new = last.chain(number);
        new.write_free(0, hash, key, value);
        self.first.point_to(new, hash);
        if last.is(self.first) {
            self.leave |= Bucket::<K, V>::link_to(number);
        }
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
        self.first.version().store(self.leave, Ordering::Release);
    }
}
