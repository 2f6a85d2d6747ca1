//! Tables, their buckets, and the move of entries from a table to the next one (hash_map.H1 to
//! hash_map.H5).

use super::super::growth::{Growing, Growth};
use crate::profile::{Of, Wait};
use crate::section::{Atomic, Look, Owned, Section, Shared};
use crate::slab::large_array::LargeArray;
use crate::sync::{
    AtomicU64, AtomicUsize, Backoff, LoadToChange, Mutex, Ordering, drop_each, run_each, seeded_bug,
};
use std::ptr::NonNull;
use std::sync::PoisonError;

/// Entries in a bucket: as many as fit a cache line of 64 bytes. (Models fill a bucket in few
/// steps.)
pub(super) const SLOTS: usize = if cfg!(manycore_loom) { 3 } else { 7 };
/// The slot that leads to the next bucket of the chain, if there is one.
const LAST: usize = SLOTS - 1;
const ONES: u64 = {
    let (mut ones, mut slot) = (0, 0);
    while slot < SLOTS {
        ones |= 1 << (8 * slot);
        slot += 1;
    }
    ones
};
/// The high bit of every slot's byte in a bucket's word: the slot is in use.
const USED: u64 = ONES << 7;
/// Flags above the slots' bytes. The entries are in this bucket. While the word is zero, as fresh
/// memory is, they are still in the old table.
const HERE: u64 = 1 << 63;
/// The entries are in the next table.
const MOVED: u64 = 1 << 62;
/// A writer holds the lock.
const LOCKED: u64 = 1 << 61;
/// The last slot has no entry. It leads to the next bucket of the chain.
const MORE: u64 = 1 << 60;
/// The tag of a link in a moved bucket.
const GONE: usize = 1;
/// The tag of the link to the next bucket of a chain.
const CHAIN: usize = 2;

/// A key and its value. Never changes while it is linked.
pub(super) struct Entry<K, V> {
    pub(super) hash: u64,
    pub(super) key: K,
    pub(super) value: V,
}

/// A bucket. Zeroed memory is a bucket that waits for its entries.
#[repr(C, align(64))]
pub(super) struct Bucket<K, V> {
    /// The flags, and a byte of the key's hash for each slot in use (hash_map.H2). `LOCKED` is used
    /// only in the first bucket of a chain.
    word: AtomicU64,
    /// Links to entries. The last slot may lead to a bucket of the same table.
    slots: [Atomic<Entry<K, V>>; SLOTS],
}

/// What a reader found.
pub(super) enum Seen<'s, K, V> {
    Here(&'s Entry<K, V>),
    Nowhere,
    /// The entries are in the old table, unless they have moved meanwhile.
    Pending,
    /// The entries are in the next table.
    Moved,
}

/// The first bucket of a chain, as a thread has seen it without its lock, for the short path of a
/// call: its word, and the slots whose tags are that of the key.
pub(super) struct Sight<'s, K, V> {
    bucket: &'s Bucket<K, V>,
    word: u64,
    hits: u64,
}

/// An entry, and its slot in the bucket of a [`Sight`].
pub(super) struct Found<'s, K, V> {
    pub(super) entry: &'s Entry<K, V>,
    at: usize,
}

/// An entry that no other thread can reach.
pub(super) type NewEntry<K, V> = Owned<Entry<K, V>>;

/// A link to an entry.
pub(super) type Link<'s, K, V> = Shared<'s, Entry<K, V>>;

/// A slot, and the entry that is linked in it.
pub(super) type LinkedAt<'s, K, V> = (Slot<'s, K, V>, Link<'s, K, V>);

/// What a writer found in one bucket of a chain: the key's entry, a free slot, and true if the
/// chain goes on.
type InBucket<'s, K, V> = (Option<LinkedAt<'s, K, V>>, Option<Slot<'s, K, V>>, bool);

/// A slot in a bucket whose lock is held.
pub(super) struct Slot<'s, K, V> {
    bucket: &'s Bucket<K, V>,
    at: usize,
}

/// What a writer found under the lock.
pub(super) enum SlotForKey<'s, K, V> {
    Taken(Slot<'s, K, V>, Shared<'s, Entry<K, V>>),
    Free(Slot<'s, K, V>),
    /// Every slot is in use. This is the last bucket of the chain.
    Full(&'s Bucket<K, V>),
}

/// A bucket's lock, held. Dropping this releases it.
pub(super) struct Locked<'s, K, V> {
    first: &'s Bucket<K, V>,
}

#[inline(always)]
fn tag_of(hash: u64) -> u64 {
    hash >> 57 | 0x80
}

/// Returns one bit for each used slot whose byte equals the hash's tag. Rarely, the bit of another
/// used slot is set, too.
#[inline(always)]
fn hits(word: u64, hash: u64) -> u64 {
    // The high bit of a byte says whether the slot is used, and the rest is zero if the tags are
    // equal. So the subtraction clears the high bit of a used slot only if the tags are equal. (It
    // borrows only from the byte behind a free slot, and only if the tag is zero.)
    let unlike = word ^ ((hash >> 57) * ONES);
    unlike & !unlike.wrapping_sub(ONES) & USED
}

#[inline(always)]
fn slot_of(hit: u64) -> usize {
    (hit.trailing_zeros() / 8) as usize
}

impl<K, V> Bucket<K, V> {
    fn new(word: u64) -> Self {
        Self { word: AtomicU64::new(word), slots: std::array::from_fn(|_| Atomic::null()) }
    }

    /// Returns a slot by its number, as [`slot_of`] computes it.
    #[inline(always)]
    fn slot(&self, at: usize) -> &Atomic<Entry<K, V>> {
        debug_assert!(at < SLOTS, "hash_map.H1: a bucket has no such slot");
        // SAFETY: all slot numbers are those of bits of `USED`, or zero or one: below `SLOTS`.
        unsafe { self.slots.get_unchecked(at) }
    }

    /// Returns the next bucket of the chain. The bucket has `MORE`, or `CHAIN` in its last slot.
    #[inline(always)]
    fn next(&self) -> &Self {
        let (next, tag) = self.slots[LAST].marked();
        debug_assert!(tag == CHAIN, "hash_map.H5: the last slot leads to no bucket");
        // SAFETY: hash_map.H5 - the slot leads for ever to a bucket of the same table, which
        // `Table::spare` made and the link published. This bucket belongs to that table.
        unsafe { &*next }
    }

    /// Returns the next bucket of a chain whose lock is held, or whose table no other thread has.
    fn more(&self) -> Option<&Self> {
        // ORDER: Relaxed; under the lock.
        (self.word.load(Ordering::Relaxed) & MORE != 0).then(|| self.next())
    }

    /// Iterates over such a chain from this bucket on.
    fn chain(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(Some(self), |bucket| bucket.more())
    }

    /// Returns the slots of such a bucket that may have entries.
    fn entries(&self) -> &[Atomic<Entry<K, V>>] {
        let own = if self.more().is_some() { LAST } else { SLOTS };
        &self.slots[..own]
    }

    /// Looks at the first bucket of a chain without its lock. Returns `None` if the entries are not
    /// here.
    #[inline(always)]
    fn sight(&self, hash: u64) -> Option<Sight<'_, K, V>> {
        // ORDER: Acquire; pairs with Release in `set_tags`, in `Sight::unlock`, in `extend` and in
        // `mark_moved` (hash_map.H2, hash_map.H3).
        let word = self.word.load(Ordering::Acquire);
        (word & HERE != 0).then(|| Sight { bucket: self, word, hits: hits(word, hash) })
    }

    /// Looks for a key without a lock, in every case.
    pub(super) fn find<'s>(
        &self,
        hash: u64,
        is_key: impl Fn(&K) -> bool,
        section: &'s Section<'_>,
    ) -> Seen<'s, K, V> {
        let mut bucket = self;
        loop {
            // ORDER: Acquire; as in `sight`.
            let word = bucket.word.load(Ordering::Acquire);
            if word & HERE == 0 {
                return if word & MOVED != 0 { Seen::Moved } else { Seen::Pending };
            }
            let (mut hits, mut is_continued) = (hits(word, hash), word & MORE != 0);
            while hits != 0 {
                let found = bucket.slot(slot_of(hits)).load(section);
                match (found.tag(), found.as_ref()) {
                    (0, Some(entry)) if is_key(&entry.key) => return Seen::Here(entry),
                    (0, _) => {}
                    // The chain has become longer since the load of the word.
                    (CHAIN, _) => is_continued = true,
                    _ => return Seen::Moved,
                }
                hits &= hits - 1;
            }
            if !is_continued {
                return Seen::Nowhere;
            }
            bucket = bucket.next();
        }
    }

    /// Calls `f` with each entry. Returns `Seen::Nowhere` if it has reached the end of the chain.
    fn for_each<'s>(
        &self,
        section: &'s Section<'_>,
        mut f: impl FnMut(&'s Entry<K, V>),
    ) -> Seen<'s, K, V>
    where
        (K, V): 's,
    {
        let mut bucket = self;
        'chain: loop {
            // ORDER: Acquire; as in `sight`.
            let word = bucket.word.load(Ordering::Acquire);
            if word & HERE == 0 {
                return if word & MOVED != 0 { Seen::Moved } else { Seen::Pending };
            }
            for slot in &bucket.slots {
                let found = slot.load(section);
                match found.tag() {
                    0 => found.as_ref().into_iter().for_each(&mut f),
                    CHAIN => {
                        bucket = bucket.next();
                        continue 'chain; // that was the last slot
                    }
                    _ => return Seen::Moved,
                }
            }
            return Seen::Nowhere;
        }
    }

    /// Looks for a key, or for a free slot for it, in this bucket of a locked chain.
    #[inline(always)]
    fn search<'s>(
        &'s self,
        hash: u64,
        is_key: impl Fn(&K) -> bool,
        section: &'s Section<'_>,
    ) -> InBucket<'s, K, V> {
        // ORDER: Relaxed; under the lock.
        let word = self.word.load_to_change(Ordering::Relaxed);
        let is_continued = word & MORE != 0;
        let mut hits = hits(word, hash);
        while hits != 0 {
            let at = slot_of(hits);
            let found = self.slot(at).load_to_change(section);
            if found.as_ref().is_some_and(|entry| is_key(&entry.key)) {
                return (Some((Slot { bucket: self, at }, found)), None, is_continued);
            }
            hits &= hits - 1;
        }
        // The last slot is not free if the chain goes on.
        let unused = !word & if is_continued { USED >> 8 } else { USED };
        let free = (unused != 0).then(|| Slot { bucket: self, at: slot_of(unused) });
        (None, free, is_continued)
    }

    /// Takes the lock. Returns `None` if the bucket has moved.
    pub(super) fn lock(&self) -> Option<Locked<'_, K, V>> {
        if self.try_lock() { Some(Locked { first: self }) } else { self.lock_slow() }
    }

    /// Takes the lock if it is free and no other thread changes the word meanwhile.
    #[inline(always)]
    fn try_lock(&self) -> bool {
        // ORDER: Relaxed; the CAS decides.
        let word = self.word.load_to_change(Ordering::Relaxed);
        let to = word | LOCKED;
        word & (LOCKED | MOVED) == 0
            // ORDER: Acquire; pairs with Release in `Locked::drop` (hash_map.H1).
            && self.word.compare_exchange(word, to, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Waits for the lock. A thread holds it for some tens of nanoseconds. It holds it longer only
    /// if its `Eq` takes longer or it has lost its core. So waiters poll, and none is woken.
    #[cold]
    #[inline(never)]
    fn lock_slow(&self) -> Option<Locked<'_, K, V>> {
        let (wait, mut backoff) = (Wait::begin(), Backoff::new());
        loop {
            // ORDER: Acquire; pairs with Release in `mark_moved`: a thread that finds the bucket
            // moved sees the next table.
            if self.word.load(Ordering::Acquire) & MOVED != 0 {
                return None;
            }
            if self.try_lock() {
                wait.end(Of::new("HashMap", self), 1);
                return Some(Locked { first: self });
            }
            backoff.pause();
        }
    }
}

impl<'s, K, V> Sight<'s, K, V> {
    /// Looks for the key (hash_map.H2). Returns `None` if the caller has to call [`Bucket::find`]:
    /// if the key may be in the next bucket of the chain, or if the section has to raise its era.
    #[inline(always)]
    pub(super) fn find<'e>(
        &self,
        is_key: impl Fn(&K) -> bool,
        section: &'e Section<'_>,
    ) -> Option<Option<Found<'e, K, V>>> {
        let mut hits = self.hits;
        while hits != 0 {
            let at = slot_of(hits);
            match self.bucket.slot(at).look(section) {
                Look::Node(entry) if is_key(&entry.key) => return Some(Some(Found { entry, at })),
                Look::Node(_) | Look::Null => {}
                Look::Tagged | Look::Behind => return None,
            }
            hits &= hits - 1;
        }
        (self.word & MORE == 0).then_some(None)
    }

    /// Finds the slot where this entry is linked. Runs no user code.
    #[inline(always)]
    pub(super) fn slot_of(&self, entry: &'s Entry<K, V>) -> Option<Found<'s, K, V>> {
        let mut hits = self.hits;
        while hits != 0 {
            let at = slot_of(hits);
            if self.bucket.slot(at).load_if(entry).is_some() {
                return Some(Found { entry, at });
            }
            hits &= hits - 1;
        }
        None
    }

    /// Takes the bucket's lock, and sets the bits `tag`, if no thread has changed the word since
    /// (hash_map.H9).
    #[inline(always)]
    fn lock(&self, tag: u64) -> bool {
        let to = self.word | LOCKED | tag;
        self.word & LOCKED == 0
            // ORDER: Acquire; pairs with Release in `Locked::drop` and `unlock` (hash_map.H1).
            && self
                .bucket
                .word
                .compare_exchange(self.word, to, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
    }

    /// Releases the lock, and leaves this word.
    #[inline(always)]
    fn unlock(&self, word: u64) {
        // ORDER: Release; pairs with Acquire in `try_lock` and `lock` (hash_map.H1), and with
        // Acquire in `sight` (hash_map.H2).
        self.bucket.word.store(word, Ordering::Release);
    }

    /// Takes the lock if the entry is still in its slot, and returns its link.
    #[inline(always)]
    fn lock_entry(
        &self,
        found: &Found<'s, K, V>,
        section: &'s Section<'_>,
    ) -> Option<LinkedAt<'s, K, V>> {
        if !self.lock(0) {
            return None;
        }
        let slot = Slot { bucket: self.bucket, at: found.at };
        let link = self.bucket.slot(found.at);
        // BUG: an update takes the entry in the slot where it found its own, although another
        // update has replaced that already (hash_map.H7).
        let linked = if seeded_bug!("replace-by-place") {
            Some(link.load_to_change(section))
        } else {
            link.load_if(found.entry)
        };
        if linked.is_none() {
            self.unlock(self.word);
        }
        linked.map(|linked| (slot, linked))
    }

    /// Replaces an entry that was found here by another entry with the same key. Returns the links
    /// of the old entry and of the new one.
    ///
    /// # Errors
    /// `next`, if the entry may have left its slot.
    #[inline(always)]
    pub(super) fn replace(
        &self,
        found: &Found<'s, K, V>,
        next: NewEntry<K, V>,
        section: &'s Section<'_>,
    ) -> Result<[Link<'s, K, V>; 2], NewEntry<K, V>> {
        let Some((slot, old)) = self.lock_entry(found, section) else { return Err(next) };
        let next = next.into_shared(section);
        slot.replace(next, section);
        self.unlock(self.word);
        Ok([old, next])
    }

    /// Removes an entry that was found here. Returns its link, and true if the bucket is then
    /// empty. Returns `None` if the entry may have left its slot.
    #[inline(always)]
    pub(super) fn remove(
        &self,
        found: &Found<'s, K, V>,
        section: &'s Section<'_>,
    ) -> Option<(Link<'s, K, V>, bool)> {
        let (slot, old) = self.lock_entry(found, section)?;
        let word = self.word & !(0xff << (8 * found.at));
        // BUG: a map's entry loses its tag before its link (hash_map.H2).
        if seeded_bug!("tag-before-unlink") {
            self.bucket.word.store(word | LOCKED, Ordering::Release);
        }
        slot.replace(Shared::null(), section);
        self.unlock(word);
        Some((old, word & (USED | MORE) == 0))
    }

    /// Inserts the entry of a key that was not found here.
    ///
    /// # Errors
    /// The entry, if its key may be here by now, or if there may be no free slot.
    #[inline(always)]
    pub(super) fn insert(
        &self,
        hash: u64,
        entry: NewEntry<K, V>,
        section: &'s Section<'_>,
    ) -> Result<(), NewEntry<K, V>> {
        let unused = !self.word & USED;
        // (With a tag of the key, the word does not tell enough: hash_map.H9.)
        if self.hits != 0 || self.word & MORE != 0 || unused == 0 {
            return Err(entry);
        }
        let at = slot_of(unused);
        let tag = tag_of(hash) << (8 * at);
        // BUG: a map's entry is linked before its slot has a tag (hash_map.H2).
        let first = if seeded_bug!("link-before-tag") { 0 } else { tag };
        if !self.lock(first) {
            return Err(entry);
        }
        self.bucket.slot(at).store(entry, section);
        self.unlock(self.word | tag);
        Ok(())
    }
}

impl<'s, K, V> Slot<'s, K, V> {
    fn set_tags(&self, f: impl Fn(u64, u64) -> u64) -> u64 {
        let word = &self.bucket.word;
        // ORDER: Relaxed load under the lock. Release; pairs with Acquire in `sight`
        // (hash_map.H2).
        let new = f(word.load_to_change(Ordering::Relaxed), 0xff_u64 << (8 * self.at));
        word.store(new, Ordering::Release);
        new
    }

    /// Fills a free slot. The tag is set first (hash_map.H2).
    pub(super) fn fill(self, hash: u64, entry: Shared<'_, Entry<K, V>>, section: &Section<'_>) {
        self.set_tags(|word, byte| {
            debug_assert!(word & byte == 0, "hash_map.H2: a used slot is filled");
            word | tag_of(hash) << (8 * self.at)
        });
        self.replace(entry, section);
    }

    /// Replaces the slot's entry by another entry with the same key.
    #[inline(always)]
    pub(super) fn replace(&self, entry: Shared<'_, Entry<K, V>>, section: &Section<'_>) {
        self.bucket.slot(self.at).store(entry, section);
    }

    /// Empties the slot. The tag is cleared last (hash_map.H2). Returns true if the bucket is then
    /// empty.
    pub(super) fn empty(self, section: &Section<'_>) -> bool {
        self.replace(Shared::null(), section);
        self.set_tags(|word, byte| word & !byte) & (USED | MORE) == 0
    }
}

impl<'s, K, V> Locked<'s, K, V> {
    /// Looks for a key, or for a free slot for it. Runs the key's `Eq`.
    #[inline(always)]
    pub(super) fn search(
        &self,
        hash: u64,
        is_key: impl Fn(&K) -> bool,
        section: &'s Section<'_>,
    ) -> SlotForKey<'s, K, V> {
        let mut bucket = self.first;
        let mut free = match bucket.search(hash, &is_key, section) {
            (Some((slot, found)), ..) => return SlotForKey::Taken(slot, found),
            (None, free, true) => free,
            (None, free, false) => return free.map_or(SlotForKey::Full(bucket), SlotForKey::Free),
        };
        loop {
            bucket = bucket.next();
            match bucket.search(hash, &is_key, section) {
                (Some((slot, found)), ..) => return SlotForKey::Taken(slot, found),
                (None, own, is_continued) => {
                    free = free.or(own);
                    if !is_continued {
                        return free.map_or(SlotForKey::Full(bucket), SlotForKey::Free);
                    }
                }
            }
        }
    }

    /// Returns the slot where this entry is linked. Runs no user code.
    pub(super) fn slot_of(&self, entry: &'s Entry<K, V>) -> Option<LinkedAt<'s, K, V>> {
        for bucket in self.first.chain() {
            // ORDER: Relaxed; under the lock.
            let mut hits = hits(bucket.word.load_to_change(Ordering::Relaxed), entry.hash);
            while hits != 0 {
                let at = slot_of(hits);
                if let Some(found) = bucket.slot(at).load_if(entry) {
                    return Some((Slot { bucket, at }, found));
                }
                hits &= hits - 1;
            }
        }
        None
    }

    /// Appends a bucket with this entry to the chain. The entry of the last slot moves there, too.
    /// First the link changes, then the word, and then the new entry is linked. So no thread can
    /// see the new entry before a thread that reads the word could see it.
    #[cold]
    pub(super) fn extend(
        &self,
        table: &Table<K, V>,
        last: &'s Bucket<K, V>,
        hash: u64,
        entry: Shared<'_, Entry<K, V>>,
        section: &'s Section<'_>,
    ) {
        let fresh = table.spare();
        let moved = last.slots[LAST].load_to_change(section);
        // ORDER: Relaxed, here and below; under the lock, or not linked yet.
        let word = last.word.load_to_change(Ordering::Relaxed);
        let byte = 0xff << (8 * LAST);
        fresh.word.store(HERE | (word & byte) >> (8 * LAST), Ordering::Relaxed);
        fresh.slots[0].store(moved, section);
        last.slots[LAST].store_marked(fresh, CHAIN);
        // ORDER: Release; pairs with Acquire in `find`: the bucket before the flag.
        last.word.store(word & !byte | MORE, Ordering::Release);
        Slot { bucket: fresh, at: 1 }.fill(hash, entry, section);
    }

    /// Links an entry that moves here from the old table.
    fn insert_moved(
        &self,
        table: &Table<K, V>,
        entry: Shared<'s, Entry<K, V>>,
        hash: u64,
        section: &'s Section<'_>,
    ) {
        match self.search(hash, |_| false, section) {
            SlotForKey::Free(slot) => slot.fill(hash, entry, section),
            SlotForKey::Full(last) => self.extend(table, last, hash, entry, section),
            SlotForKey::Taken(..) => unreachable!("no key was looked for"),
        }
    }

    /// Returns true if the chain has its entries; false if they are still in the old table.
    pub(super) fn is_filled(&self) -> bool {
        // ORDER: Relaxed; under the lock.
        self.first.word.load_to_change(Ordering::Relaxed) & HERE != 0
    }

    /// Publishes that the entries have moved to this bucket.
    fn mark_arrived(&self) {
        // ORDER: Relaxed load under the lock. Release; pairs with Acquire in `sight`: the
        // entries before the flag.
        let word = self.first.word.load_to_change(Ordering::Relaxed);
        debug_assert!(
            word & (HERE | MOVED) == 0,
            "hash_map.H3: entries arrive in a bucket that is not pending"
        );
        self.first.word.store(word | HERE, Ordering::Release);
    }

    /// Publishes that the entries have moved away. Tags every link, because the table will be
    /// unlinked (section.E4). No writer can lock the bucket from then on.
    fn mark_moved(&self, section: &Section<'_>) {
        for bucket in self.first.chain() {
            for slot in bucket.entries() {
                slot.store(slot.load_to_change(section).with_tag(GONE), section);
            }
            // ORDER: Relaxed load under the lock. Release; pairs with Acquire in `sight`: a
            // reader that sees the flag sees that the entries have arrived (hash_map.H3).
            let word = bucket.word.load_to_change(Ordering::Relaxed);
            debug_assert!(word & MOVED == 0, "hash_map.H3: a bucket moves twice");
            bucket.word.store(word & !HERE | MOVED, Ordering::Release);
        }
    }
}

impl<K, V> Drop for Locked<'_, K, V> {
    #[inline(always)]
    fn drop(&mut self) {
        // No other thread writes the word of a locked bucket, so this needs no locked instruction.
        // ORDER: Relaxed load, as above. Release; pairs with Acquire in `try_lock`.
        let word = self.first.word.load_to_change(Ordering::Relaxed);
        debug_assert!(word & LOCKED != 0, "hash_map.H1: a lock is released that is not held");
        self.first.word.store(word & !LOCKED, Ordering::Release);
    }
}

/// A table. It has cache lines of its own, as its buckets do.
#[repr(align(64))]
pub(super) struct Table<K, V> {
    mask: usize,
    /// The buckets of the table, and then the spare buckets for chains.
    buckets: LargeArray<Bucket<K, V>>,
    growth: Growth<Self>,
    /// Number of spare buckets that are taken.
    spares: AtomicUsize,
    /// Further buckets for chains, each in an allocation of its own. Needed if the same hash comes
    /// again and again.
    beyond: Mutex<Vec<NonNull<Bucket<K, V>>>>,
}

// SAFETY: the table owns the buckets in `beyond`, as it owns the others.
unsafe impl<K: Send + Sync, V: Send + Sync> Send for Table<K, V> {}
// SAFETY: a shared table gives out only `&Bucket`.
unsafe impl<K: Send + Sync, V: Send + Sync> Sync for Table<K, V> {}

/// Returns the number of spare buckets behind a table's own: as many as a good hash needs.
const fn spares_of(buckets: usize) -> usize {
    buckets / 4
}

impl<K, V> Growing for Table<K, V> {
    const BUCKET_BYTES: usize = size_of::<Bucket<K, V>>() * 5 / 4;

    fn with_buckets(buckets: usize, growth: Growth<Self>) -> Self {
        debug_assert!(buckets.is_power_of_two());
        let all = buckets.checked_add(spares_of(buckets)).expect("manycore: capacity overflow");
        let is_first = growth.is_first();
        let table = Self {
            mask: buckets - 1,
            // SAFETY: zeroed memory is what `new(0)` makes: a word of no flags, and null links.
            buckets: unsafe { LargeArray::zeroed_or(all, || Bucket::new(0)) },
            growth,
            spares: AtomicUsize::new(0),
            beyond: Mutex::new(Vec::new()),
        };
        if is_first {
            // ORDER: Relaxed; not shared yet.
            table.own().iter().for_each(|bucket| bucket.word.store(HERE, Ordering::Relaxed));
        }
        table
    }

    #[inline(always)]
    fn len(&self) -> usize {
        self.mask + 1
    }

    fn bytes(&self) -> usize {
        // ORDER: Relaxed; a weight.
        let spares = self.spares.load(Ordering::Relaxed);
        size_of::<Self>() + (self.len() + spares) * size_of::<Bucket<K, V>>()
    }

    fn touch(&self, index: usize) {
        // ORDER: Relaxed; not shared yet.
        self.at(index).word.store(0, Ordering::Relaxed);
    }

    #[inline(always)]
    fn growth(&self) -> &Growth<Self> {
        &self.growth
    }

    fn growth_mut(&mut self) -> &mut Growth<Self> {
        &mut self.growth
    }
}

impl<K, V> Table<K, V> {
    #[inline(always)]
    pub(super) fn sight(&self, hash: u64) -> Option<Sight<'_, K, V>> {
        self.bucket(hash).sight(hash)
    }

    /// Returns true if no entries are moving to this table.
    #[inline(always)]
    pub(super) fn is_settled(&self, section: &Section<'_>) -> bool {
        self.growth.old.leads_nowhere(section)
    }

    #[inline(always)]
    pub(super) fn bucket(&self, hash: u64) -> &Bucket<K, V> {
        // SAFETY: the array has more than `mask` elements, and this index is at most `mask`.
        unsafe { self.buckets.get_unchecked(hash as usize & self.mask) }
    }

    #[inline(always)]
    pub(super) fn at(&self, index: usize) -> &Bucket<K, V> {
        &self.own()[index]
    }

    /// Returns the first buckets of all chains.
    fn own(&self) -> &[Bucket<K, V>] {
        &self.buckets[..self.len()]
    }

    /// Returns an empty bucket for a chain. It is the caller's alone until the caller links it.
    fn spare(&self) -> &Bucket<K, V> {
        // ORDER: Relaxed; only shares out indices.
        let number = self.spares.fetch_add(1, Ordering::Relaxed);
        if number < spares_of(self.len()) {
            return &self.buckets[self.len() + number];
        }
        let made = NonNull::from(Box::leak(Box::new(Bucket::new(0))));
        self.beyond.lock().unwrap_or_else(PoisonError::into_inner).push(made);
        // SAFETY: just made, and freed with the table.
        unsafe { made.as_ref() }
    }

    /// Calls `f` with each entry of one bucket, wherever the entries are now. Returns false if the
    /// table has been replaced; `f` may then have been called with some of the entries.
    pub(super) fn for_each_at<'s>(
        &self,
        index: usize,
        section: &'s Section<'_>,
        mut f: impl FnMut(&'s Entry<K, V>),
    ) -> bool
    where
        (K, V): 's,
    {
        loop {
            match self.at(index).for_each(section, &mut f) {
                Seen::Here(_) | Seen::Nowhere => return true,
                Seen::Moved => return false,
                Seen::Pending => {}
            }
            let Some(old) = self.growth.old.load(section).as_ref() else {
                continue; // moved meanwhile
            };
            let groups = self.len().min(old.len());
            let mut found = Vec::new();
            let mine = |entry: &Entry<K, V>| entry.hash as usize & self.mask == index;
            let seen = (index & (groups - 1)..old.len()).step_by(groups).all(|source| {
                let seen = old.at(source).for_each(section, |entry| {
                    found.extend(Some(entry).filter(|entry| mine(entry)));
                });
                matches!(seen, Seen::Nowhere)
            });
            if seen {
                found.into_iter().for_each(&mut f);
                return true;
            }
        }
    }

    /// Moves one group of buckets from `old` to this table (hash_map.H3). Returns false if the
    /// group has moved already.
    pub(super) fn move_group<'s>(
        &'s self,
        old: &'s Self,
        index: usize,
        section: &'s Section<'_>,
    ) -> bool {
        let groups = self.len().min(old.len());
        let Some(first) = old.at(index).lock() else {
            return false;
        };
        // The upper bucket of a group, which only the larger table has. All threads take locks in
        // the same order.
        let upper = |table: &'s Self, why| {
            (groups < table.len()).then(|| table.at(index + groups).lock().expect(why))
        };
        let sources = [Some(first), upper(old, "moved without the first of its group")];
        let why = "moved before it was filled";
        let targets = [Some(self.at(index).lock().expect(why)), upper(self, why)];
        let chains = sources.iter().flatten().flat_map(|source| source.first.chain());
        for slot in chains.flat_map(Bucket::entries) {
            let entry = slot.load(section);
            if let Some(hash) = entry.as_ref().map(|entry| entry.hash) {
                let upper = hash as usize & self.mask >= groups;
                let target = targets[usize::from(upper)].as_ref().expect("in the larger table");
                target.insert_moved(self, entry, hash, section);
            }
        }
        targets.iter().flatten().for_each(Locked::mark_arrived);
        // Marks them before the targets are unlocked.
        sources.iter().flatten().for_each(|source| source.mark_moved(section));
        true
    }

    /// Drops all entries that have not moved away, and then lets the first panic go on.
    ///
    /// # Safety
    /// No other thread can reach the table, and the entries linked here are not retired.
    pub(super) unsafe fn drop_entries(&mut self, section: &Section<'_>) {
        let mut bucket = Vec::new();
        run_each(0..self.len(), |index| {
            // SAFETY: no other thread reaches the table, and linked entries are not retired
            // (# Safety).
            unsafe { self.drain_bucket(index, section, &mut bucket) };
            drop_each(bucket.drain(..));
        });
    }

    /// Takes the entries that have not moved away out of one bucket.
    ///
    /// # Safety
    /// No other thread can reach the table, and the entries linked here are not retired.
    pub(super) unsafe fn drain_bucket(
        &mut self,
        index: usize,
        section: &Section<'_>,
        into: &mut Vec<Owned<Entry<K, V>>>,
    ) {
        into.extend(self.at(index).chain().flat_map(Bucket::entries).filter_map(|slot| {
            let here = slot.load(section).tag() != GONE;
            let entry = slot.swap(Shared::null(), section);
            let link = Atomic::null();
            link.store(if here { entry } else { Shared::null() }, section);
            // SAFETY: the caller promises that no other thread reaches the table, and that the
            // entries linked here are not retired. The swap has taken the entry out of its slot. A
            // moved entry (`GONE`) is left to the next table (hash_map.H3).
            unsafe { link.into_owned() }
        }));
    }
}

impl<K, V> Drop for Table<K, V> {
    fn drop(&mut self) {
        let beyond =
            std::mem::take(&mut *self.beyond.lock().unwrap_or_else(PoisonError::into_inner));
        for bucket in beyond {
            // SAFETY: `spare` made it, and the chains that lead to it belong to the table, which is
            // dropped.
            drop(unsafe { Box::from_raw(bucket.as_ptr()) });
        }
    }
}

#[cfg(all(test, not(any(manycore_loom, manycore_shuttle))))]
mod tests {
    use super::super::mixed;
    use super::*;

    #[test]
    fn hits_are_all_used_slots_with_the_tag_and_no_free_slot() {
        let mut number = 0_u64;
        let mut next = || {
            number = number.wrapping_add(0xbf58_476d_1ce4_e5b9);
            mixed(mixed(number))
        };
        for _ in 0..if cfg!(miri) { 100 } else { 100_000 } {
            let hash = if next() % 4 == 0 { 0 } else { next() };
            let (mut word, mut same, mut used) = (next() & !((1 << 56) - 1), 0, 0);
            for slot in 0..SLOTS {
                let byte = match next() % 4 {
                    0 => 0,
                    1 => tag_of(hash),
                    _ => next() & 0x7f | 0x80,
                };
                word |= byte << (8 * slot);
                same |= u64::from(byte == tag_of(hash)) << (8 * slot + 7);
                used |= (byte & 0x80) << (8 * slot);
            }
            let hits = hits(word, hash);
            assert_eq!((hits & same, hits & !used), (same, 0), "{word:x} {hash:x}");
        }
    }
}
