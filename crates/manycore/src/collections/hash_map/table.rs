//! Tables, their buckets, and how entries move from a table to the next (laws hash_map.H1 to
//! hash_map.H5).

use super::super::growth::{Growing, Growth};
use crate::lock::{self, Refused};
use crate::percpu::thread_token;
use crate::profile::Of;
use crate::section::{Atomic, Owned, Section, Shared};
use crate::slab::large_array::LargeArray;
use crate::sync::{
    AtomicPtr, AtomicU64, AtomicUsize, LoadToChange, Ordering, drop_each, fence, run_each,
    seeded_bug,
};
use std::ptr;

/// Entries in a bucket, so that it is one line of 64 bytes.
pub(super) const SLOTS: usize = 5;
/// The high bit of every slot's byte in `tags`: the slot is in use.
const USED: u64 = 0x80_8080_8080;
const ONES: u64 = 0x01_0101_0101;
/// Flags above the slots' bytes: the entries are in the table before still...
const PENDING: u64 = 1 << 56;
/// ...or in the next table.
const MOVED: u64 = 1 << 57;
/// The tag of a link in a moved bucket.
const GONE: usize = 1;

/// A key and its value; never changed while linked.
pub(super) struct Entry<K, V> {
    pub(super) hash: u64,
    pub(super) key: K,
    pub(super) value: V,
}

#[repr(C, align(64))]
pub(super) struct Bucket<K, V> {
    /// For each slot in use a byte of its key's hash (hash_map.H2), and the flags.
    tags: AtomicU64,
    /// Of the first bucket of a chain; for writers. `HOT` once the bucket has moved.
    lock: AtomicUsize,
    slots: [Atomic<Entry<K, V>>; SLOTS],
    /// The next bucket of the chain. Set once, owned by this bucket.
    more: AtomicPtr<Bucket<K, V>>,
}

/// What a reader found.
pub(super) enum Seen<'s, K, V> {
    Here(Shared<'s, Entry<K, V>>),
    Nowhere,
    /// The entries are in the table before, if it has not moved them in between.
    Pending,
    /// The entries are in the next table.
    Moved,
    /// The section has to raise its era before it may look.
    Behind,
}

/// An entry, and the slot that has it.
pub(super) type LinkedAt<'s, K, V> = (Slot<'s, K, V>, Shared<'s, Entry<K, V>>);

/// A place for an entry, in a bucket whose lock is held.
pub(super) struct Slot<'s, K, V> {
    bucket: &'s Bucket<K, V>,
    at: usize,
}

/// What a writer found under the lock.
pub(super) enum SlotForKey<'s, K, V> {
    Taken(Slot<'s, K, V>, Shared<'s, Entry<K, V>>),
    Free(Slot<'s, K, V>),
    /// Every slot is in use; this is the end of the chain.
    Full(&'s Bucket<K, V>),
}

/// A bucket's lock is held; dropping this releases it.
pub(super) struct Locked<'s, K, V> {
    first: &'s Bucket<K, V>,
    /// What the lock's word becomes.
    leave: usize,
}

fn tag_of(hash: u64) -> u64 {
    hash >> 57 | 0x80
}

/// The used slots whose byte is that of the hash: a bit each, and rarely one too many.
fn hits(tags: u64, hash: u64) -> u64 {
    let differ = tags ^ (tag_of(hash) * ONES);
    differ.wrapping_sub(ONES) & !differ & USED
}

fn slot_of(hit: u64) -> usize {
    (hit.trailing_zeros() / 8) as usize
}

impl<K, V> Bucket<K, V> {
    fn new(tags: u64) -> Self {
        Self {
            tags: AtomicU64::new(tags),
            lock: AtomicUsize::new(0),
            slots: std::array::from_fn(|_| Atomic::null()),
            more: AtomicPtr::new(ptr::null_mut()),
        }
    }

    #[inline(always)]
    fn more(&self) -> Option<&Self> {
        // ORDER: Acquire; pairs with Release in `extend`: the bucket before its link.
        let more = self.more.load(Ordering::Acquire);
        // SAFETY: null, or a bucket that this one owns and frees when it is freed itself.
        unsafe { more.as_ref() }
    }

    fn chain(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(Some(self), |bucket| bucket.more())
    }

    /// Looks for a key without a lock (hash_map.H2).
    pub(super) fn find<'s>(
        &self,
        hash: u64,
        is_key: impl Fn(&K) -> bool,
        section: &'s Section<'_>,
    ) -> Seen<'s, K, V> {
        self.find_by(hash, is_key, |link| Some(link.load(section)))
    }

    /// The same, unless the section has to raise its era for that ([`Seen::Behind`]).
    #[inline(always)]
    pub(super) fn find_now<'s>(
        &self,
        hash: u64,
        is_key: impl Fn(&K) -> bool,
        section: &'s Section<'_>,
        bounded: bool,
    ) -> Seen<'s, K, V> {
        self.find_by(hash, is_key, |link| link.load_now(section, bounded))
    }

    #[inline(always)]
    fn find_by<'s>(
        &self,
        hash: u64,
        is_key: impl Fn(&K) -> bool,
        load: impl Fn(&Atomic<Entry<K, V>>) -> Option<Shared<'s, Entry<K, V>>>,
    ) -> Seen<'s, K, V> {
        let mut bucket = self;
        loop {
            // ORDER: Acquire; pairs with Release in `take` and in `mark_moved` (hash_map.H2,
            // hash_map.H3).
            let tags = bucket.tags.load(Ordering::Acquire);
            if tags & (PENDING | MOVED) != 0 {
                return if tags & MOVED != 0 { Seen::Moved } else { Seen::Pending };
            }
            let mut hits = hits(tags, hash);
            while hits != 0 {
                let Some(found) = load(&bucket.slots[slot_of(hits)]) else {
                    return Seen::Behind;
                };
                if found.tag() == GONE {
                    return Seen::Moved;
                }
                if found.as_ref().is_some_and(|entry| entry.hash == hash && is_key(&entry.key)) {
                    return Seen::Here(found);
                }
                hits &= hits - 1;
            }
            match bucket.more() {
                Some(more) => bucket = more,
                None => return Seen::Nowhere,
            }
        }
    }

    /// Calls `f` with each entry; what it would be told as [`Seen`] otherwise.
    fn for_each<'s>(
        &self,
        section: &'s Section<'_>,
        mut f: impl FnMut(&'s Entry<K, V>),
    ) -> Seen<'s, K, V>
    where
        (K, V): 's,
    {
        for bucket in self.chain() {
            // ORDER: Acquire; as in `find`.
            let tags = bucket.tags.load(Ordering::Acquire);
            if tags & (PENDING | MOVED) != 0 {
                return if tags & MOVED != 0 { Seen::Moved } else { Seen::Pending };
            }
            for slot in &bucket.slots {
                let found = slot.load(section);
                if found.tag() == GONE {
                    return Seen::Moved;
                }
                found.as_ref().into_iter().for_each(&mut f);
            }
        }
        Seen::Nowhere
    }

    /// Takes the lock; `None` if the bucket has moved.
    ///
    /// # Panics
    /// If the calling thread holds it.
    pub(super) fn lock(&self) -> Option<Locked<'_, K, V>> {
        match lock::lock(&self.lock, thread_token(), Of::new("HashMap", self), None) {
            Ok(_waited) => Some(Locked { first: self, leave: 0 }),
            Err(Refused::Hot) => {
                // ORDER: Acquire, behind the load that found the word hot; pairs with Release in
                // `lock::unlock`: a thread that is refused here sees the next table.
                fence(Ordering::Acquire);
                None
            }
            Err(Refused::Busy | Refused::HeldBySelf | Refused::Deadlock) => {
                panic!("manycore: a key's `Eq` updates the map that calls it")
            }
        }
    }
}

impl<K, V> Drop for Bucket<K, V> {
    fn drop(&mut self) {
        // ORDER: Relaxed; `&mut self`: no other thread has access.
        let mut more = self.more.swap(ptr::null_mut(), Ordering::Relaxed);
        while !more.is_null() {
            // SAFETY: made by `extend`, linked here alone; its own link is taken out before it is
            // dropped, so a long chain needs no deep stack.
            let bucket = unsafe { Box::from_raw(more) };
            more = bucket.more.swap(ptr::null_mut(), Ordering::Relaxed);
        }
    }
}

impl<'s, K, V> Slot<'s, K, V> {
    fn set_tags(&self, f: impl Fn(u64, u64) -> u64) {
        let tags = &self.bucket.tags;
        // ORDER: Relaxed load under the lock. Release; pairs with Acquire in `find` (hash_map.H2).
        let new = f(tags.load_to_change(Ordering::Relaxed), 0xff_u64 << (8 * self.at));
        tags.store(new, Ordering::Release);
    }

    /// Fills the free slot: the tag first (hash_map.H2).
    pub(super) fn fill(self, hash: u64, entry: Shared<'_, Entry<K, V>>, section: &Section<'_>) {
        let tag = || {
            self.set_tags(|tags, byte| {
                debug_assert!(tags & byte & USED == 0, "hash_map.H2: a used slot is filled");
                tags & !byte | tag_of(hash) << (8 * self.at)
            });
        };
        let link = || self.bucket.slots[self.at].store(entry, section);
        // BUG: a map's entry is linked before its slot has a tag (hash_map.H2).
        if seeded_bug!("link-before-tag") {
            link();
            tag();
        } else {
            tag();
            link();
        }
    }

    /// Puts another entry of the same key in.
    pub(super) fn replace(self, entry: Shared<'_, Entry<K, V>>, section: &Section<'_>) {
        self.bucket.slots[self.at].store(entry, section);
    }

    /// Empties the slot: the tag last (hash_map.H2).
    pub(super) fn empty(self, section: &Section<'_>) {
        // BUG: a map's entry loses its tag before its link (hash_map.H2).
        if seeded_bug!("tag-before-unlink") {
            self.set_tags(|tags, byte| tags & !byte);
        }
        self.bucket.slots[self.at].store(Shared::null(), section);
        self.set_tags(|tags, byte| tags & !byte);
    }
}

impl<'s, K, V> Locked<'s, K, V> {
    /// Looks for a key, or for a place for it. Runs the key's `Eq`.
    pub(super) fn search(
        &self,
        hash: u64,
        is_key: impl Fn(&K) -> bool,
        section: &'s Section<'_>,
    ) -> SlotForKey<'s, K, V> {
        let mut free = None;
        let mut bucket = self.first;
        loop {
            // ORDER: Relaxed; under the lock.
            let tags = bucket.tags.load_to_change(Ordering::Relaxed);
            let mut hits = hits(tags, hash);
            while hits != 0 {
                let at = slot_of(hits);
                let found = bucket.slots[at].load_to_change(section);
                if found.as_ref().is_some_and(|entry| entry.hash == hash && is_key(&entry.key)) {
                    return SlotForKey::Taken(Slot { bucket, at }, found);
                }
                hits &= hits - 1;
            }
            let unused = !tags & USED;
            if free.is_none() && unused != 0 {
                free = Some(Slot { bucket, at: slot_of(unused) });
            }
            match bucket.more() {
                Some(more) => bucket = more,
                None => return free.map_or(SlotForKey::Full(bucket), SlotForKey::Free),
            }
        }
    }

    /// Where this entry is linked. No user code runs.
    #[inline]
    pub(super) fn slot_of(
        &self,
        entry: &Entry<K, V>,
        section: &'s Section<'_>,
    ) -> Option<LinkedAt<'s, K, V>> {
        for bucket in self.first.chain() {
            // ORDER: Relaxed; under the lock.
            let mut hits = hits(bucket.tags.load_to_change(Ordering::Relaxed), entry.hash);
            while hits != 0 {
                let at = slot_of(hits);
                let found = bucket.slots[at].load_to_change(section);
                // BUG: an update takes what has the hash of the entry that it has found, which
                // another update has taken already (hash_map.H7).
                if ptr::eq(found.as_ptr(), entry) || seeded_bug!("replace-by-tag") {
                    return Some((Slot { bucket, at }, found));
                }
                hits &= hits - 1;
            }
        }
        None
    }

    /// Adds a bucket with this entry to the end of the chain.
    pub(super) fn extend(
        &self,
        last: &Bucket<K, V>,
        hash: u64,
        entry: Shared<'_, Entry<K, V>>,
        section: &Section<'_>,
    ) {
        let fresh = Box::new(Bucket::new(0));
        Slot { bucket: &*fresh, at: 0 }.fill(hash, entry, section);
        // ORDER: Release; pairs with Acquire in `more`: the bucket before its link.
        last.more.store(Box::into_raw(fresh), Ordering::Release);
    }

    /// Links an entry that moves here.
    fn take_in(&self, entry: Shared<'s, Entry<K, V>>, hash: u64, section: &'s Section<'_>) {
        match self.search(hash, |_| false, section) {
            SlotForKey::Free(slot) => slot.fill(hash, entry, section),
            SlotForKey::Full(last) => self.extend(last, hash, entry, section),
            SlotForKey::Taken(..) => unreachable!("no key was looked for"),
        }
    }

    /// The entries have been moved to this bucket.
    fn arrived(&self) {
        // ORDER: Relaxed load under the lock. Release; pairs with Acquire in `find`: the entries
        // before it says that they are here.
        let tags = self.first.tags.load_to_change(Ordering::Relaxed);
        debug_assert!(
            tags & (PENDING | MOVED) == PENDING,
            "hash_map.H3: entries arrive in a bucket that does not wait for them"
        );
        self.first.tags.store(tags & !PENDING, Ordering::Release);
    }

    /// The entries have been moved from this bucket: tags every link, in a table that will be
    /// unlinked (law section.E4), and lets no writer in any more.
    fn mark_moved(mut self, section: &Section<'_>) {
        for bucket in self.first.chain() {
            for slot in &bucket.slots {
                slot.store(slot.load_to_change(section).with_tag(GONE), section);
            }
            // ORDER: Relaxed load under the lock. Release; pairs with Acquire in `find`: a reader
            // that sees it sees the entries' arrival (hash_map.H3).
            let tags = bucket.tags.load_to_change(Ordering::Relaxed);
            debug_assert!(tags & MOVED == 0, "hash_map.H3: a bucket moves twice");
            bucket.tags.store(tags | MOVED, Ordering::Release);
        }
        self.leave = lock::HOT;
    }
}

impl<K, V> Drop for Locked<'_, K, V> {
    fn drop(&mut self) {
        // SAFETY: this holds the lock and borrows the bucket.
        unsafe { lock::unlock(&raw const self.first.lock, self.leave) };
    }
}

/// On lines of its own, as its buckets are.
#[repr(align(64))]
pub(super) struct Table<K, V> {
    mask: usize,
    buckets: LargeArray<Bucket<K, V>>,
    growth: Growth<Self>,
}

impl<K, V> Growing for Table<K, V> {
    const BUCKET_BYTES: usize = size_of::<Bucket<K, V>>();

    fn with_buckets(buckets: usize, growth: Growth<Self>) -> Self {
        debug_assert!(buckets.is_power_of_two());
        let tags = if growth.is_first() { 0 } else { PENDING };
        Self {
            mask: buckets - 1,
            buckets: LargeArray::from_fn(buckets, || Bucket::new(tags)),
            growth,
        }
    }

    #[inline(always)]
    fn len(&self) -> usize {
        self.mask + 1
    }

    /// But for the ends of its chains.
    fn bytes(&self) -> usize {
        size_of::<Self>() + size_of_val(&*self.buckets)
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
    pub(super) fn bucket(&self, hash: u64) -> &Bucket<K, V> {
        self.at(hash as usize & self.mask)
    }

    #[inline(always)]
    pub(super) fn at(&self, index: usize) -> &Bucket<K, V> {
        &self.buckets[index]
    }

    /// Calls `f` with each entry of one bucket, wherever it is now; false if the table has been
    /// left behind, and then some calls were in vain.
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
                Seen::Pending | Seen::Behind => {}
            }
            let Some(old) = self.growth.old.load(section).as_ref() else {
                continue; // moved in between
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

    /// Moves one group of buckets here from the table before, unless that is done (hash_map.H3).
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
        // The upper bucket of a group, in the larger of the two tables. Locks are taken in the
        // same order by all.
        let upper = |table: &'s Self, why| {
            (groups < table.len()).then(|| table.at(index + groups).lock().expect(why))
        };
        let sources = [Some(first), upper(old, "moved without the first of its group")];
        let why = "moved before it was filled";
        let targets = [Some(self.at(index).lock().expect(why)), upper(self, why)];
        let chains = sources.iter().flatten().flat_map(|source| source.first.chain());
        for slot in chains.flat_map(|bucket| &bucket.slots) {
            let entry = slot.load(section);
            if let Some(hash) = entry.as_ref().map(|entry| entry.hash) {
                let upper = hash as usize & self.mask >= groups;
                let target = targets[usize::from(upper)].as_ref().expect("in the larger table");
                target.take_in(entry, hash, section);
            }
        }
        targets.iter().flatten().for_each(Locked::arrived);
        // Before the targets are unlocked.
        sources.into_iter().flatten().for_each(|source| source.mark_moved(section));
        true
    }

    /// Drops the entries that have not moved away, all of them, and lets the first panic go on.
    ///
    /// # Safety
    /// No other thread can reach the table, and the entries linked here are not retired.
    pub(super) unsafe fn drop_entries(&mut self, section: &Section<'_>) {
        let mut bucket = Vec::new();
        run_each(0..self.len(), |index| {
            // SAFETY: no other thread reaches the table, and what is linked is not retired
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
        let first = &self.buckets[index];
        into.extend(first.chain().flat_map(|bucket| &bucket.slots).filter_map(|slot| {
            let here = slot.load(section).tag() != GONE;
            let entry = slot.swap(Shared::null(), section);
            let link = Atomic::null();
            link.store(if here { entry } else { Shared::null() }, section);
            // SAFETY: the caller promises that no other thread reaches the table and that the
            // entries linked here are not retired. The swap has taken the entry out of its
            // slot, and a moved one (`GONE`) is left to the next table (hash_map.H3).
            unsafe { link.into_owned() }
        }));
    }
}
