//! Tables of buckets: the index from hashes to nodes. A bucket (module `bucket`) is a cache line,
//! and each chain of buckets has a lock.
//!
//! ```text
//! bucket:  | link 0 | link 1 | ... | link 6 | 7 reference bytes | lock |      64 bytes
//!                                     |
//!                                     +--> a node, or the next bucket of the chain
//!
//! link:    | tag: 14 bits | 0 | pinned: 1 bit | address: 48 bits |
//! ```
//!
//! Laws:
//! - cache_table.T1 A bucket is a line: seven links, a reference byte (the access *frequency*) for
//!   each, and a lock. A link holds the address of a node. Above the address are a bit that says
//!   whether the entry is pinned, a zero, and the tag: 14 bits of the key's hash. If the last link
//!   has tag 0 and is not null, it leads to the next bucket of the chain. Chains only grow, and
//!   live as long as their table. Their buckets are the table's spare lines while it has any.
//! - cache_table.T2 Links change only under the lock of the chain's first bucket, by one store
//!   each: that store is the moment of the update. Readers take no lock. A key is linked in one
//!   place. It moves only into a new bucket of the chain, and the store that overwrites its old
//!   place is the link to that bucket.
//! - cache_table.T3 The frequency is a hint: readers and evictors write it without ordering, and
//!   may overwrite each other's writes.
//! - cache_table.T4 A table is replaced with all its locks held, and its locks are never free
//!   again. So a reader that still uses it finds what held when it was replaced, which is after the
//!   reader began.

mod bucket;

pub(crate) use self::bucket::{Bucket, FREQUENCY_MAX, Hit, ON_PROBATION, PROTECTED, SLOTS, Slot};
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

/// One of this number of new keys has proved itself at once (segment.G6). After a change of the
/// working set, keys that come in turns hit again within some tens of turns. Half this number would
/// halve that, and a scan would then leave half as much.
const ONE_PROVED_OF: u32 = 128;

/// Returns the number of the bucket that the upper half of a hash chooses.
#[inline(always)]
fn bucket_of(upper: u32, buckets: usize) -> usize {
    debug_assert!(buckets > 0, "cache_table.T1: a table without buckets");
    ((u64::from(upper) * buckets as u64) >> 32) as usize
}

/// A chain with its lock held. Dropping this releases the lock.
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
        slot.cell().store(link, Ordering::Release);
    }

    fn link_to(node: NonNull<Node<K, V>>, tag: usize) -> Link<K, V> {
        let address = node.as_ptr();
        debug_assert!(address.addr() <= ADDRESS, "cache_table.T1: an address beyond 48 bits");
        debug_assert!(
            (1..1 << (usize::BITS - TAG_SHIFT)).contains(&tag),
            "cache_table.T1: a link with the tag {tag:#x}"
        );
        address.wrapping_byte_add(tag << TAG_SHIFT)
    }

    pub(crate) fn slots(&self) -> impl Iterator<Item = Slot<'t, K, V>> {
        self.first.slots()
    }

    /// Returns the place in which this node is linked.
    pub(crate) fn slot_of(&self, node: NonNull<Node<K, V>>) -> Option<Slot<'t, K, V>> {
        self.slots().find(|slot| slot.node() == Some(node))
    }

    /// Returns true if there may be an entry of this key beside the entries that it was compared
    /// with. Runs no user code.
    pub(crate) fn has_more(&self, hash: KeyHash, compared: &Compared) -> bool {
        compared.rewind();
        self.first.find(hash, |own| !compared.has(own)).is_some()
    }

    /// Replaces `old` by a node of the same key, if `old` is still linked in this place of the
    /// chain. Returns whether `old` was pinned, or `None` if it is not linked there. The new entry
    /// is not pinned.
    #[inline(always)]
    pub(crate) fn replace(
        &self,
        slot: Slot<'t, K, V>,
        old: NonNull<Node<K, V>>,
        node: NonNull<Node<K, V>>,
    ) -> Option<bool> {
        let link = slot.link();
        debug_assert!(old != node, "node.N1: a node replaces itself");
        // No bucket has the address of a node that the section keeps, so the link has a tag.
        let is_there = address_in(link) == old.as_ptr();
        if is_there {
            self.set(slot, Self::link_to(node, tag_in(link)));
        }
        is_there.then_some(link.addr() & PINNED != 0)
    }

    /// Replaces an entry that is not pinned by a node of the same key. Returns false if the place
    /// has another link by now, or if the entry is pinned.
    #[inline(always)]
    pub(crate) fn replace_unpinned(
        &self,
        hash: KeyHash,
        hit: &Hit<'t, K, V>,
        node: NonNull<Node<K, V>>,
    ) -> bool {
        debug_assert!(hit.node != node, "node.N1: a node replaces itself");
        let is_there = hit.slot.link() == hit.link && hit.link.addr() & PINNED == 0;
        if is_there {
            self.set(hit.slot, Self::link_to(node, hash.tag()));
        }
        is_there
    }

    /// Pins an entry, or unpins it (cache_pinned.P1).
    pub(crate) fn set_pinned(&self, slot: Slot<'t, K, V>, is_pinned: bool) {
        debug_assert!(slot.node().is_some(), "cache_pinned.P1: a free place is pinned");
        let set = |bits: usize| if is_pinned { bits | PINNED } else { bits & !PINNED };
        self.set(slot, slot.link().map_addr(set));
    }

    /// Unlinks the entry of this place.
    pub(crate) fn clear(&self, slot: Slot<'t, K, V>) {
        debug_assert!(slot.node().is_some(), "node.N1: an entry is unlinked twice");
        self.set(slot, ptr::null_mut());
        slot.set_frequency(0);
    }

    /// Links the node of a missing key.
    pub(crate) fn add_absent(&self, table: &Table<K, V>, hash: KeyHash, node: NonNull<Node<K, V>>) {
        self.add(table, hash, node, table.first_frequency(self.first, hash));
    }

    /// Links a node in a free place of the chain, and adds a bucket to the chain if there is no
    /// free place. The chain belongs to `table`.
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
        loop {
            if let Some(slot) = bucket.free() {
                slot.set_frequency(frequency);
                self.set(slot, link);
                return;
            }
            match Bucket::more(bucket.link(SLOTS - 1)) {
                // SAFETY: chains live as long as their table, which is borrowed.
                Some(more) => bucket = unsafe { more.as_ref() },
                None => return self.grow(table, bucket, link, frequency),
            }
        }
    }

    /// Adds a bucket behind the last one, which is full, and links a node there.
    #[cold]
    fn grow(&self, table: &Table<K, V>, last: &'t Bucket<K, V>, link: Link<K, V>, frequency: u8) {
        let last = Slot { bucket: last, at: SLOTS - 1 };
        let more = table.new_bucket();
        debug_assert!(
            last.at == SLOTS - 1 && more.addr().get() % LINE == 0,
            "cache_table.T1: a chain grows before its end, or by a bucket that is no line"
        );
        // SAFETY: the bucket is fresh and zeroed, and this thread's alone until it is linked.
        let fresh = unsafe { more.as_ref() };
        // ORDER: Relaxed; the link to the bucket publishes it.
        fresh.links[0].store(last.link(), Ordering::Relaxed);
        fresh.frequency[0].store(last.frequency_now(), Ordering::Relaxed);
        fresh.links[1].store(link, Ordering::Relaxed);
        fresh.frequency[1].store(frequency, Ordering::Relaxed);
        self.set(last, more.as_ptr().cast());
    }

    /// Links the node of a new key. Returns false if there is an entry with its tag.
    #[inline(always)]
    pub(crate) fn add_new(
        &self,
        table: &Table<K, V>,
        hash: KeyHash,
        node: NonNull<Node<K, V>>,
    ) -> bool {
        let Some((slot, last)) = self.first.room_without(hash) else { return false };
        debug_assert!(!self.first.has_tag(hash), "cache_table.T2: an entry of the tag is not seen");
        let frequency = table.first_frequency(self.first, hash);
        let link = Self::link_to(node, hash.tag());
        match slot {
            Some(slot) => {
                slot.set_frequency(frequency);
                self.set(slot, link);
            }
            None => self.grow(table, last, link, frequency),
        }
        true
    }
}

impl<K, V> Locked<'_, K, V> {
    /// Gives the lock up for ever, because the table has been replaced (cache_table.T4).
    pub(crate) fn retire(self) {
        self.hold.retire();
    }
}

/// The buckets of one segment, and the ghosts of entries that were evicted from them.
pub(crate) struct Table<K, V> {
    buckets: NonNull<Bucket<K, V>>,
    len: usize,
    /// The memory of the buckets.
    lines: Arc<ZeroedLines>,
    ghosts: Ghosts,
    /// The ring of the probation queue; empty if there is no probation.
    records: Box<[AtomicU32]>,
    changing: Line<Changing>,
}

/// The part of a table that updates write. It lies apart from the fields that readers need.
struct Changing {
    ends: Ends,
    /// The waiters for the chains' locks.
    queue: Queue,
}

// SAFETY: threads share the nodes of a table under cache_table.T2, and nodes pass from one thread
// to another.
unsafe impl<K: Send + Sync, V: Send + Sync> Send for Table<K, V> {}
// SAFETY: a shared table gives out `&K` and `&V` (`Sync`); links change by one atomic store each,
// under their chain's lock (cache_table.T2).
unsafe impl<K: Send + Sync, V: Send + Sync> Sync for Table<K, V> {}

impl<K, V> Table<K, V> {
    /// Allocates a bucket for the end of a chain.
    fn new_bucket(&self) -> NonNull<Bucket<K, V>> {
        if let Some(line) = self.lines.spare() {
            return line.cast();
        }
        let layout = Layout::new::<Bucket<K, V>>();
        // SAFETY: the size of a bucket is not zero.
        let memory = unsafe { alloc::alloc_zeroed(layout) };
        NonNull::new(memory.cast()).unwrap_or_else(|| alloc::handle_alloc_error(layout))
    }

    /// Makes `tables` tables of `buckets` empty buckets each, which share their memory.
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

    /// Makes a table of `buckets` empty buckets.
    pub(crate) fn new(buckets: usize, has_probation: bool) -> Self {
        Self::some(1, buckets, has_probation).next().expect("one was asked for")
    }

    #[inline(always)]
    pub(crate) fn buckets(&self) -> &[Bucket<K, V>] {
        // SAFETY: the lines are ours and zeroed, and an empty bucket is all zero.
        unsafe { std::slice::from_raw_parts(self.buckets.as_ptr(), self.len) }
    }

    /// Returns the queue of entries on probation. It has no room if there is no probation.
    #[inline(always)]
    pub(crate) fn probation(&self) -> ProbationQueue<'_> {
        ProbationQueue::of(&self.records, &self.changing.0.ends, self.len)
    }

    /// Returns the memory of this table, and of the tables that were made with it.
    pub(crate) fn lines(&self) -> &Arc<ZeroedLines> {
        &self.lines
    }

    /// Returns the size of the table in bytes, without the buckets that were added to chains.
    pub(crate) fn bytes(&self) -> usize {
        size_of_val(self.buckets()) + self.ghosts.bytes() + self.probation().bytes()
    }

    #[inline(always)]
    pub(crate) fn bucket(&self, hash: KeyHash) -> &Bucket<K, V> {
        self.bucket_of(hash.upper())
    }

    /// Returns the bucket that the upper half of a hash chooses.
    #[inline(always)]
    pub(crate) fn bucket_of(&self, upper: u32) -> &Bucket<K, V> {
        // SAFETY: the function `bucket_of` returns a number below the length.
        unsafe { &*self.buckets.as_ptr().add(bucket_of(upper, self.len)) }
    }

    /// Returns the number of a chain's first bucket.
    #[inline(always)]
    fn index(&self, bucket: &Bucket<K, V>) -> usize {
        let at = ptr::from_ref(bucket).addr() - self.buckets.addr().get();
        let at = at / size_of::<Bucket<K, V>>();
        debug_assert!(at < self.len, "cache_table.T1: a bucket is not its table's");
        at
    }

    /// Locks a chain of this table. Returns `None` if the table has been replaced (cache_table.T4).
    #[inline]
    pub(crate) fn lock<'t>(&'t self, first: &'t Bucket<K, V>) -> Option<Locked<'t, K, V>> {
        Some(Locked { first, hold: first.lock.lock(&self.changing.0.queue)? })
    }

    /// Locks a chain if its lock is free now. Returns `None` also if the table has been replaced.
    #[inline(always)]
    pub(crate) fn try_lock<'t>(first: &'t Bucket<K, V>) -> Option<Locked<'t, K, V, Hold<'t>>> {
        Some(Locked { first, hold: first.lock.try_lock()? })
    }

    /// Acquires the turn: all other threads that would wait for a lock wait until it is released.
    pub(crate) fn turn(&self) -> Turn<'_> {
        self.changing.0.queue.turn()
    }

    /// Locks all chains. Returns `None` if the table has been replaced.
    pub(crate) fn lock_all<'t>(&'t self, turn: &Turn<'_>) -> Option<Vec<Locked<'t, K, V>>> {
        let lock =
            |first: &'t Bucket<K, V>| Some(Locked { first, hold: first.lock.lock_in_turn(turn)? });
        self.buckets().iter().map(lock).collect()
    }

    /// Unlinks an entry of a locked chain, and remembers it, unless its place has another link than
    /// `link` now, or a frequency above `most`. Returns true if it was unlinked.
    #[inline(always)]
    pub(crate) fn evict<'t, H>(
        &self,
        locked: &Locked<'t, K, V, H>,
        slot: Slot<'t, K, V>,
        link: Link<K, V>,
        most: u8,
    ) -> bool {
        let frequency = slot.frequency_now();
        let goes = slot.link() == link && frequency <= most;
        if goes {
            let part = if frequency == ON_PROBATION { Part::Probation } else { Part::Proved };
            if self.ghosts.remember(self.index(locked.first), tag_in(link), part) {
                if !self.probation().is_open() {
                    self.open_probation();
                }
                self.probation().note_eviction(part);
            }
            locked.clear(slot);
        }
        goes
    }

    #[cold]
    fn open_probation(&self) {
        self.probation().open();
    }

    #[cold]
    fn note_return(&self, part: Part) {
        self.probation().note_return(part);
    }

    /// Returns the reference byte of a new entry (segment.G5). The caller holds the bucket's lock.
    #[inline(always)]
    pub(crate) fn first_frequency(&self, bucket: &Bucket<K, V>, hash: KeyHash) -> u8 {
        let queue = self.probation();
        if !queue.is_open() {
            return PROTECTED;
        }
        let left = self.ghosts.recall(self.index(bucket), hash.tag());
        if let Some(part) = left {
            self.note_return(part);
        }
        let is_protected = left == Some(Part::Probation)
            || Chance::draw().one_of(ONE_PROVED_OF) == 0
            || !queue.push(hash);
        if is_protected { PROTECTED } else { ON_PROBATION }
    }

    /// Copies all links of a table, with the locks of that table held.
    pub(crate) fn take_over(
        &self,
        old: &[Locked<'_, K, V>],
        hash_of: impl Fn(&Node<K, V>) -> KeyHash,
    ) {
        for slot in old.iter().flat_map(Locked::slots) {
            let Some(node) = slot.node() else { continue };
            // SAFETY: the node is linked, and its bucket is locked.
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
            "cache_table.T4: the new table lacks links of the old one"
        );
    }
}

impl<K, V> Drop for Table<K, V> {
    fn drop(&mut self) {
        for bucket in self.buckets() {
            let mut more = Bucket::more(bucket.link(SLOTS - 1));
            while let Some(next) = more {
                // SAFETY: `new_bucket` made the bucket, and this chain alone owns it.
                more = Bucket::more(unsafe { next.as_ref() }.link(SLOTS - 1));
                if !self.lines.has(next.cast()) {
                    // SAFETY: cache_table.T1 - the bucket is not a line of the table's, so
                    // `new_bucket` took it from the allocator with this layout. This chain alone
                    // led to it.
                    unsafe { alloc::dealloc(next.as_ptr().cast(), Layout::new::<Bucket<K, V>>()) };
                }
            }
        }
    }
}

#[cfg(all(test, not(manycore_loom)))]
mod tests;
