//! Buckets of one line (`bucket`), their chains under a lock, and tables of them.
//!
//! Laws:
//! - cache_table.T1 A bucket is a line: seven links, a reference byte (the access *frequency*) for
//!   each, a lock. A link is the node's address below a bit that says whether it is pinned, a zero,
//!   and 14 bits of its key's hash. A link of tag 0 that is not null, in the last place, leads to
//!   another bucket of the chain. Chains only grow, with their table, and their buckets are the
//!   table's spare lines while it has any.
//! - cache_table.T2 Links change only under the lock of the chain's first bucket, by one store
//!   each: that store is the moment of the update. Readers take no lock: a key is linked in one
//!   place, and moves to another only behind a link that leads there before the old place is
//!   overwritten.
//! - cache_table.T3 The frequency is a hint: readers and evictors write it without order, and may
//!   lose each other's.
//! - cache_table.T4 A table is replaced with all its locks held, and its locks are never free
//!   again. So what a reader finds in it later is what held when it was replaced, which is after
//!   the reader began.

mod bucket;

pub(crate) use self::bucket::{
    Bucket, FREQUENCY_MAX, Hit, LeastUsed, ON_PROBATION, PROTECTED, SLOTS, Slot,
};
use self::bucket::{Link, PINNED, TAG_SHIFT, address_in, tag_in};
use crate::Line;
use crate::bucket_lock::{BucketGuard, Hold, Queue, Turn};
use crate::chance::Chance;
use crate::compared::Compared;
use crate::ghosts::{Ghosts, Part};
use crate::huge_pages::{LINE, ZeroedLines};
use crate::key_hash::KeyHash;
use crate::node::{ADDRESS, Node};
use crate::probation::{self, Ends, ProbationQueue};
use std::alloc::{self, Layout};
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// One in so many of the new keys has proved itself as it comes (segment.G6). After a change of the
/// working set, keys that come in turns hit again within some tens of turns; half as many would
/// halve that, and a scan would then leave half as much.
const ONE_PROVED_OF: u32 = 128;

/// Which of so many buckets the upper half of a hash chooses.
#[inline(always)]
fn bucket_of(upper: u32, buckets: usize) -> usize {
    debug_assert!(buckets > 0, "cache_table.T1: a table without buckets");
    ((u64::from(upper) * buckets as u64) >> 32) as usize
}

/// A chain's lock is held; dropping this releases it.
pub(crate) struct Locked<'t, K, V, H = BucketGuard<'t>> {
    first: &'t Bucket<K, V>,
    hold: H,
}

impl<'t, K, V, H> Locked<'t, K, V, H> {
    #[inline(always)]
    fn set(&self, slot: Slot<'t, K, V>, link: Link<K, V>) {
        debug_assert!(
            self.slots().any(|own| ptr::eq(own.bucket, slot.bucket) && own.at == slot.at),
            "cache_table.T2: a link changes that is not of the locked chain"
        );
        // ORDER: Release; pairs with Acquire in `Bucket::link`.
        slot.bucket.links[slot.at].store(link, Ordering::Release);
    }

    fn link_to(node: NonNull<Node<K, V>>, tag: usize) -> Link<K, V> {
        let address = node.as_ptr();
        debug_assert!(address.addr() <= ADDRESS, "cache_table.T1: an address beyond 48 bits");
        debug_assert!(
            (1..1 << (usize::BITS - TAG_SHIFT)).contains(&tag),
            "cache_table.T1: a link with the tag {tag:#x}"
        );
        address.map_addr(|bits| bits | tag << TAG_SHIFT)
    }

    pub(crate) fn slots(&self) -> impl Iterator<Item = Slot<'t, K, V>> {
        self.first.slots()
    }

    /// Where this node is linked.
    pub(crate) fn slot_of(&self, node: NonNull<Node<K, V>>) -> Option<Slot<'t, K, V>> {
        self.slots().find(|slot| slot.node() == Some(node))
    }

    /// Whether there may be an entry of this key beside those it was compared with. No user code.
    pub(crate) fn has_more(&self, hash: KeyHash, compared: &Compared) -> bool {
        compared.rewind();
        self.first.find(hash, |own| !compared.has(own)).is_some()
    }

    /// Puts a node in the place of `old`, of the same key, if that is linked there still; whether
    /// `old` was pinned, which the new one is not. The place is one of this chain's.
    #[inline(always)]
    pub(crate) fn replace(
        &self,
        slot: Slot<'t, K, V>,
        old: NonNull<Node<K, V>>,
        node: NonNull<Node<K, V>>,
    ) -> Option<bool> {
        let link = slot.bucket.link(slot.at);
        debug_assert!(old != node, "node.N1: a node replaces itself");
        let is_there = tag_in(link) != 0 && address_in(link) == old.as_ptr();
        if is_there {
            self.set(slot, Self::link_to(node, tag_in(link)));
        }
        is_there.then_some(link.addr() & PINNED != 0)
    }

    /// Pins an entry, or unpins it (cache_pinned.P1).
    pub(crate) fn set_pinned(&self, slot: Slot<'t, K, V>, is_pinned: bool) {
        debug_assert!(slot.node().is_some(), "cache_pinned.P1: a free place is pinned");
        let set = |bits: usize| if is_pinned { bits | PINNED } else { bits & !PINNED };
        self.set(slot, slot.bucket.link(slot.at).map_addr(set));
    }

    /// Unlinks.
    pub(crate) fn clear(&self, slot: Slot<'t, K, V>) {
        debug_assert!(slot.node().is_some(), "node.N1: an entry is unlinked twice");
        self.set(slot, ptr::null_mut());
        slot.set_frequency(0);
    }

    /// Links the node of a key that is not there.
    pub(crate) fn add_absent(&self, table: &Table<K, V>, hash: KeyHash, node: NonNull<Node<K, V>>) {
        self.add(table, hash, node, table.first_frequency(self.first, hash));
    }

    /// Links a node in a free place, and makes one if there is none.
    /// The bucket is one of this table's.
    #[inline(never)]
    pub(crate) fn add(
        &self,
        table: &Table<K, V>,
        hash: KeyHash,
        node: NonNull<Node<K, V>>,
        frequency: u8,
    ) {
        let link = Self::link_to(node, hash.tag());
        debug_assert!(
            hash.tag() != 0,
            "cache_table.T1: an entry with the tag of a link to a bucket"
        );
        debug_assert!(self.slot_of(node).is_none(), "node.N1: a node is linked twice");
        let mut bucket = self.first;
        let last = loop {
            if let Some(slot) = bucket.free() {
                slot.set_frequency(frequency);
                self.set(slot, link);
                return;
            }
            let last = Slot { bucket, at: SLOTS - 1 };
            match Bucket::more(bucket.link(last.at)) {
                // SAFETY: chains live as long as their table, which is borrowed.
                Some(more) => bucket = unsafe { more.as_ref() },
                None => break last,
            }
        };
        let more = table.new_bucket();
        debug_assert!(
            last.at == SLOTS - 1 && more.addr().get() % LINE == 0,
            "cache_table.T1: a chain grows before its end, or by a bucket that is no line"
        );
        // SAFETY: fresh, zeroed, ours until linked.
        let fresh = unsafe { more.as_ref() };
        // ORDER: Relaxed; published by the link to the bucket.
        fresh.links[0].store(last.bucket.link(last.at), Ordering::Relaxed);
        fresh.frequency[0].store(last.frequency_now(), Ordering::Relaxed);
        fresh.links[1].store(link, Ordering::Relaxed);
        fresh.frequency[1].store(frequency, Ordering::Relaxed);
        self.set(last, more.as_ptr().cast());
    }

    /// Links the node of a new key, unless there is an entry of its tag; then false.
    #[inline(always)]
    pub(crate) fn add_new(
        &self,
        table: &Table<K, V>,
        hash: KeyHash,
        node: NonNull<Node<K, V>>,
    ) -> bool {
        let slot = self.first.free_without(hash);
        if slot.is_none() && self.first.has_tag(hash) {
            return false;
        }
        let frequency = table.first_frequency(self.first, hash);
        let Some(slot) = slot else {
            self.add(table, hash, node, frequency);
            return true;
        };
        debug_assert!(!self.first.has_tag(hash), "cache_table.T2: an entry of the tag is not seen");
        slot.set_frequency(frequency);
        self.set(slot, Self::link_to(node, hash.tag()));
        true
    }
}

impl<K, V> Locked<'_, K, V> {
    /// Gives the lock up for ever: the table has been replaced (cache_table.T4).
    pub(crate) fn retire(self) {
        self.hold.retire();
    }
}

/// The buckets of one segment, and what was evicted from them.
pub(crate) struct Table<K, V> {
    buckets: NonNull<Bucket<K, V>>,
    len: usize,
    /// Where the buckets are.
    lines: Arc<ZeroedLines>,
    ghosts: Ghosts,
    /// Of the queue of probation: without room where there is no probation.
    records: Box<[AtomicU32]>,
    changing: Line<Changing>,
}

/// What updates write. Beside it, readers look for buckets.
struct Changing {
    ends: Ends,
    /// The waiters for the chains' locks.
    queue: Queue,
}

// SAFETY: what a table leads to is shared by all threads under cache_table.T2; nodes pass from one
// to another.
unsafe impl<K: Send + Sync, V: Send + Sync> Send for Table<K, V> {}
// SAFETY: a shared table gives out `&K` and `&V` (`Sync`); links change by one atomic store each,
// under their chain's lock (cache_table.T2).
unsafe impl<K: Send + Sync, V: Send + Sync> Sync for Table<K, V> {}

impl<K, V> Table<K, V> {
    /// An end of a chain.
    fn new_bucket(&self) -> NonNull<Bucket<K, V>> {
        if let Some(line) = self.lines.spare() {
            return line.cast();
        }
        let layout = Layout::new::<Bucket<K, V>>();
        // SAFETY: a bucket has a size.
        let memory = unsafe { alloc::alloc_zeroed(layout) };
        NonNull::new(memory.cast()).unwrap_or_else(|| alloc::handle_alloc_error(layout))
    }

    /// So many tables of so many empty buckets each, which share their memory.
    pub(crate) fn some(
        tables: usize,
        buckets: usize,
        has_probation: bool,
    ) -> impl Iterator<Item = Self> {
        let total = tables.checked_mul(buckets).expect("manycore: capacity overflow");
        let words = if has_probation { buckets } else { 0 };
        let ghosts = Ghosts::lines(words);
        debug_assert!(
            tables > 0 && buckets > 0,
            "cache_table.T1: {tables} tables of {buckets} buckets"
        );
        let lines = Arc::new(ZeroedLines::zeroed(total + tables * ghosts, total));
        (0..tables).map(move |at| Self {
            buckets: lines.line(at * buckets).cast(),
            len: buckets,
            ghosts: Ghosts::new(&lines, total + at * ghosts, words),
            records: probation::records(words),
            lines: Arc::clone(&lines),
            changing: Line(Changing { ends: Ends::default(), queue: Queue::new() }),
        })
    }

    /// A table of so many empty buckets.
    pub(crate) fn new(buckets: usize, has_probation: bool) -> Self {
        Self::some(1, buckets, has_probation).next().expect("one was asked for")
    }

    #[inline(always)]
    pub(crate) fn buckets(&self) -> &[Bucket<K, V>] {
        // SAFETY: lines of ours, zeroed, which is what an empty bucket is.
        unsafe { std::slice::from_raw_parts(self.buckets.as_ptr(), self.len) }
    }

    /// The queue of entries on probation, which has no room where there is no probation.
    #[inline(always)]
    pub(crate) fn probation(&self) -> ProbationQueue<'_> {
        ProbationQueue::of(&self.records, &self.changing.0.ends, self.len)
    }

    /// The memory of this table, and of others that were made with it.
    pub(crate) fn lines(&self) -> &Arc<ZeroedLines> {
        &self.lines
    }

    /// What the table takes, without the ends of chains.
    pub(crate) fn bytes(&self) -> usize {
        size_of_val(self.buckets()) + self.ghosts.bytes() + self.probation().bytes()
    }

    #[inline(always)]
    pub(crate) fn bucket(&self, hash: KeyHash) -> &Bucket<K, V> {
        self.bucket_of(hash.upper())
    }

    /// The bucket that the upper half of a hash chooses.
    #[inline(always)]
    pub(crate) fn bucket_of(&self, upper: u32) -> &Bucket<K, V> {
        // SAFETY: `bucket_of` is below the length.
        unsafe { &*self.buckets.as_ptr().add(bucket_of(upper, self.len)) }
    }

    /// The number of a chain's first bucket.
    #[inline(always)]
    fn index(&self, bucket: &Bucket<K, V>) -> usize {
        let at = ptr::from_ref(bucket).addr() - self.buckets.addr().get();
        let at = at / size_of::<Bucket<K, V>>();
        debug_assert!(at < self.len, "cache_table.T1: a bucket is not its table's");
        at
    }

    /// Takes the lock of a chain of this table; `None` if the table has been replaced
    /// (cache_table.T4).
    #[inline]
    pub(crate) fn lock<'t>(&'t self, first: &'t Bucket<K, V>) -> Option<Locked<'t, K, V>> {
        Some(Locked { first, hold: first.lock.lock(&self.changing.0.queue)? })
    }

    /// Takes the lock if it is free now; `None` also if the table has been replaced.
    #[inline(always)]
    pub(crate) fn try_lock<'t>(first: &'t Bucket<K, V>) -> Option<Locked<'t, K, V, Hold<'t>>> {
        Some(Locked { first, hold: first.lock.try_lock()? })
    }

    /// Makes all threads that would wait for a lock wait, except the caller.
    pub(crate) fn turn(&self) -> Turn<'_> {
        self.changing.0.queue.turn()
    }

    /// The locks of all chains, if the table has not been replaced.
    pub(crate) fn lock_all<'t>(&'t self, turn: &Turn<'_>) -> Option<Vec<Locked<'t, K, V>>> {
        let lock =
            |first: &'t Bucket<K, V>| Some(Locked { first, hold: first.lock.lock_in_turn(turn)? });
        self.buckets().iter().map(lock).collect()
    }

    /// Remembers an entry that is about to be evicted from the bucket. Under the bucket's lock.
    #[inline(always)]
    pub(crate) fn remember(&self, bucket: &Bucket<K, V>, slot: Slot<'_, K, V>) {
        if !self.ghosts.is_empty() {
            let is_protected = slot.frequency_now() != ON_PROBATION;
            let part = if is_protected { Part::Proved } else { Part::Probation };
            self.ghosts.remember(self.index(bucket), slot.tag(), part);
            self.probation().note_eviction(part);
        }
    }

    /// The reference byte of an entry that comes (segment.G5). Under the bucket's lock.
    #[inline(always)]
    pub(crate) fn first_frequency(&self, bucket: &Bucket<K, V>, hash: KeyHash) -> u8 {
        let queue = self.probation();
        if !queue.has_room() || !queue.is_open() {
            return PROTECTED;
        }
        let left = self.ghosts.recall(self.index(bucket), hash.tag());
        if let Some(part) = left {
            queue.note_return(part);
        }
        let is_protected = left == Some(Part::Probation)
            || Chance::draw().one_of(ONE_PROVED_OF) == 0
            || !queue.push(hash);
        if is_protected { PROTECTED } else { ON_PROBATION }
    }

    /// Copies all links of a table whose locks are held.
    pub(crate) fn take_over(
        &self,
        old: &[Locked<'_, K, V>],
        hash_of: impl Fn(&Node<K, V>) -> KeyHash,
    ) {
        for slot in old.iter().flat_map(Locked::slots) {
            let Some(node) = slot.node() else { continue };
            // SAFETY: linked, and its bucket is locked.
            let hash = hash_of(unsafe { node.as_ref() });
            let target = self.lock(self.bucket(hash)).expect("no other thread has this table");
            target.add(self, hash, node, slot.frequency_now());
            if slot.is_pinned() {
                target.set_pinned(target.slot_of(node).expect("just added"), true);
            }
        }
        debug_assert_eq!(
            self.buckets().iter().flat_map(Bucket::slots).filter_map(Slot::node).count(),
            old.iter().flat_map(Locked::slots).filter_map(Slot::node).count(),
            "cache_table.T4: the new table has not the links of the old one"
        );
    }
}

impl<K, V> Drop for Table<K, V> {
    fn drop(&mut self) {
        for bucket in self.buckets() {
            let mut more = Bucket::more(bucket.link(SLOTS - 1));
            while let Some(next) = more {
                // SAFETY: made by `new_bucket`, owned by this chain alone.
                more = Bucket::more(unsafe { next.as_ref() }.link(SLOTS - 1));
                if !self.lines.has(next.cast()) {
                    // SAFETY: cache_table.T1 - no line of the table's, so `new_bucket` took it from
                    // the allocator with this layout; this chain alone led to it.
                    unsafe { alloc::dealloc(next.as_ptr().cast(), Layout::new::<Bucket<K, V>>()) };
                }
            }
        }
    }
}

#[cfg(all(test, not(manycore_loom)))]
mod tests;
