//! A map from ranges of 64-bit keys to values. Look-ups take no lock and write nothing, and updates
//! of disjoint ranges hardly ever wait for each other.
//!
//! Owns: [`RangeMap`], its views, guards and iterators. Does not own: the grace period of removed
//! nodes, which is the section's.
//!
//! ```text
//! branch at level 2       branch at level 1        branch at level 0
//! 4096 keys a slot        64 keys a slot           one key a slot
//!
//! empty              +--> entry (64 keys)     +--> entry
//! entry (4096 keys)  |    list of parts       |    empty
//! branch ------------+    branch -------------+    entry
//! ```
//!
//! The structure is a radix trie with 64 slots in a branch. A slot of a branch at level `n` stands
//! for an aligned block of `64^n` keys. The slot is empty, or it leads to one of these.
//! - An entry that all keys of the slot have (a *folded* range), or those of them for which it was
//!   inserted.
//! - A list of at most seven *parts* of its keys, with their entries.
//! - A branch for a block within its own block.
//!
//! A range occupies the largest slots that it fills. At its ends, it occupies parts of slots that
//! are up to 4,096 times as large as the range. A slot gets a branch when its list is full, or when
//! threads contend for it.
//!
//! Laws:
//! - range_map.R1 A look-up loads one word for each branch on its way, the list of parts if there
//!   is one, and the entry. It stores nothing, and of the words that updates write it reads only
//!   slots. A branch may lie several levels below its slot, and a look-up does not check that the
//!   key is in the branch's block. It need not. When a branch is linked in a slot, its block has
//!   all keys of the slot for which the slot's entries were inserted. So an entry that is found for
//!   a key outside of the block was not inserted for that key, and the look-up does compare the key
//!   with the entry's keys.
//! - range_map.R2 A slot is changed only under its lock bit, which is in its branch. If a slot
//!   leads to a branch, a thread may replace that branch if it holds the slot's bit and all bits
//!   below it. A thread that locks a part of the slot takes only bits below it. Brief claims
//!   (range_map.R4) are the exception: they take the bit of a slot that leads to no branch.
//! - range_map.R3 At any time, a key has one entry or none. The store to its slot is the
//!   linearization point of an update. Dividing a slot, interposing a branch and pruning change no
//!   key.
//! - range_map.R4 Lock bits are taken in the order of their keys, and a slot before the slots below
//!   it. The exception is a bit that is released before the thread waits for another. So claims
//!   alone never deadlock. A *brief* claim, for one update, also locks the other keys of the slots
//!   at its ends. It runs no user code and never parks. If other threads hold a bit for longer than
//!   a moment, or change the word of a branch's lock bits again and again, it releases everything.
//!   Then it claims exactly its range, for which slots are divided. So disjoint claims wait for
//!   each other for a moment at most.
//! - range_map.R5 An entry's `keys` counts the keys whose slots lead to it. A thread subtracts keys
//!   after it has changed their slots. The thread that subtracts the last keys retires the entry.
//!   So no slot leads to a retired entry.
//! - range_map.R6 An entry is retired after its last slot was changed. A branch is retired after it
//!   was unlinked under all its lock bits and marked as dead. A dead branch is never changed again:
//!   a reader inside it sees its keys as they were when it was unlinked, which was during the
//!   look-up. Neither has a known birth, so a domain of any mode keeps every node that a section
//!   could reach.
//! - range_map.R7 A thread that runs user code under locked ranges, or that parks with some locked,
//!   publishes its range in its record, and holds the record's lock. Threads that need a lock bit
//!   of its range park on the record, by way of the wait-for graph, so a cycle is found. A thread
//!   that holds its own record's lock is refused further ranges of the map.
//! - range_map.R8 A branch may be unlinked if it is empty while a thread holds all its lock bits
//!   and the bit of its slot. Each thread leaves as many empty branches linked as `config` says.
//! - range_map.R9 A list of parts never changes. An update of a part links a new list and then
//!   retires the old one. The word of a slot leads to an entry if all keys of the slot for which
//!   the entry was inserted have it, and no other keys of the slot have an entry. Otherwise it
//!   leads to a list.
//!
//! Source: Wang, Stamler, Parmer, "Parallel Sections" (EuroSys 2016), sections 3.6 and 4, for the
//! trie that is read in a section; Clements, Kaashoek, Zeldovich, "RadixVM" (EuroSys 2013), section
//! 3, for lock bits in the slots of a radix tree and folded ranges; Heinz, Zobel, Williams, "Burst
//! Tries" (ACM TOIS 2002), for short lists below a trie, which a branch replaces when they are
//! full.

mod claim;
mod error;
mod guard;
mod iter;
#[cfg(all(test, manycore_loom))]
mod loom_tests;
mod parts;
mod prune;
mod records;
mod single;
#[cfg(all(test, not(manycore_loom), not(manycore_shuttle)))]
mod tests;
mod trie;
mod view;
mod write;

use self::records::Records;
use self::trie::{Branch, Entry, OwnEntry, ROOT_LEVEL, Slot, decode};
use crate::section::{Domain, Mode, Section};
use crate::sync::{Ordering, drop_each};
pub use error::RangeError;
pub use guard::RangeGuard;
pub use iter::{Gaps, RangeMapIter, Removed};
use std::fmt;
use std::ptr::{self, NonNull};
use std::sync::Arc;
pub use view::RangeMapView;

/// A concurrent map from ranges of `u64` keys to values: look-ups take no lock and write nothing,
/// and updates of ranges that are far apart share no lock.
///
/// Use this for tables whose keys the caller chooses: mappings of an address space, blocks of a
/// file or a device, leases of numbers. When not:
/// - For values under single keys, use [`HashMap`](super::HashMap).
/// - For ranges that may overlap, or with keys that are not numbers, use
///   [`IntervalRegistry`](super::IntervalRegistry).
/// - For ids that the table may choose, use [`IdSpace`](crate::namespace::IdSpace).
/// - For one thread that rarely looks anything up, use a `BTreeMap` behind a lock (see the
///   figures).
///
/// All operations go through a view: [`enter`](Self::enter) opens a section, and references to
/// values borrow from the view. Ranges may have any form of Rust's ranges: `a..=b` includes the
/// last key, and `..` has all keys. Errors and iterators name a range by its first and last key. If
/// ranges are often locked ([`lock`](RangeMapView::lock)) and their ends are multiples of a unit
/// such as a page, divide the keys by the unit: each end of a locked range costs branches.
///
/// - Consistency: linearizable for each key. For threads that lock a range, linearizable for all
///   its keys. An update of a range becomes visible slot by slot, in the order of the keys: a
///   concurrent look-up may find one key changed and the next not yet. Iteration, gaps and first
///   fit are not snapshots; each says what it sees.
/// - A value belongs to keys, not to a range. If a part of a range is removed or replaced, the rest
///   keeps the same value, in the same place, without a clone. [`split`](RangeMapView::split) makes
///   two ranges of one, and clones.
/// - Progress: look-ups are wait-free. Updates lock the slots of their range, in the order of keys.
///   Disjoint ranges never wait for each other, except for the moment in which a slot is changed or
///   divided that has a part of both. No user code runs under a lock, except under a
///   [`RangeGuard`]. A thread that holds a guard is refused other updates of the map
///   ([`RangeError::Nested`]). A wait that would never end is refused, too
///   ([`RangeError::Deadlock`]).
/// - Cost of a look-up: a load for each branch on the way, a list if a few ranges share a slot, and
///   the entry's line. For pages of an address space, these are some five loads.
/// - Cost of an update: it locks each branch that has slots of its range, with one locked
///   instruction each, and writes those slots. It allocates an entry, and a list if the entry is
///   not alone in a slot. Most ranges lie in one slot: a range of `n` keys takes slots of up to
///   `4096 * n` keys in whole or in part. A range that does not fit that way fills its largest
///   aligned blocks of `64^n` keys. An aligned gigabyte of addresses is one slot; for each level,
///   there are never more than 63 slots at each end. While other threads work elsewhere, inserting
///   and removing a range writes no line that they use (`sim-audit range-update`), except for grace
///   periods. A thread leads a round of them for its first batch of removed nodes, and then one for
///   some hundreds of removals.
/// - Neighbours: the lock bits of 64 adjacent slots share a cache line. Threads that update their
///   own ranges there never wait for each other's locks, but they share that line. Look-ups do not
///   read it. If you can choose keys, keep the ranges of different threads a branch apart: 64 times
///   their size.
/// - Memory of an entry: its value and 24 bytes. A list takes 24 bytes for each range in it. Both
///   are rounded up to 32, 48, 64, 96, 128 or 176 bytes and come from the process's slabs. For each
///   of these sizes that it uses, a thread has 64 kilobytes of addresses. A branch has 64 slots and
///   takes 640 bytes, which neighbouring ranges share.
/// - Memory of a map: an empty map takes some 900 bytes, or 2,100 with a domain of its own. An
///   emptied map keeps at most 64 branches for each thread that removed from it (41 kilobytes), and
///   the branches above them. So ranges that are inserted and removed again and again build their
///   branches once. [`trim`](RangeMapView::trim) frees these branches. Removed entries wait for
///   open views.
/// - Errors: [`RangeError`], which names the range. A call that returns an error has changed
///   nothing.
/// - Panics: a panic in a value's `Clone` leaves the map as it was. A panic in a `Drop` surfaces in
///   the call that frees the entry, after that call has done its own work. A panic under a guard
///   unlocks the range, and changes made until then remain. A guard that is forgotten leaves its
///   range locked.
/// - Source: the radix tries of ParSec, section 3.6, and the lock bits and folded ranges of RadixVM
///   (EuroSys 2013).
///
/// Resident memory for each range, everything included, with values of 8 bytes:
///
/// | ranges | bytes |
/// |---|---|
/// | 50,000 of 16 unaligned pages | 69 |
/// | 20,000 of 1 to 40 pages | 90 |
/// | single pages side by side | 58 |
/// | single pages, every fourth | 99 |
/// | single pages far apart, one in each 64 megabytes | 127 |
///
/// Millions of operations a second on a quiet EPYC with two cores (`manycore-bench bench ranges`):
/// this map and the best of its rivals. The rivals are a `BTreeMap` behind a `RwLock`, `rangemap`
/// behind a lock, a skip list, and a tree of range locks.
///
/// | ranges | updates | one thread | best rival | two threads | best rival |
/// |---|---|---|---|---|---|
/// | 1,000 of one page | none | 62 | 24 | 123 | 32 |
/// | 1,000 of one page | half | 36 | 18 | 56 | 14 |
/// | 100,000 of 16 pages | none | 47 | 11 | 94 | 19 |
/// | 100,000 of 16 pages | half | 22 | 9.4 | 38 | 8.2 |
/// | 100,000 of 16 pages | nine tenths | 18 | 8.9 | 31 | 7.2 |
///
/// ```
/// use manycore::collections::{RangeError, RangeMap};
///
/// let space = RangeMap::new();
/// std::thread::scope(|s| {
///     s.spawn(|| space.enter().insert(0x1000..0x3000, "heap").map(|_| ()));
///     s.spawn(|| space.enter().insert(0x4000_0000..0x8000_0000, "file").map(|_| ()));
/// });
/// let view = space.enter();
/// assert_eq!(view.get(0x2fff), Some(&"heap"));
/// assert!(matches!(view.insert(0x2000..0x4000, "stack"), Err(RangeError::Overlap { .. })));
///
/// // A hole in the file, filled in one step for all threads that lock it.
/// let mut hole = view.lock(0x5000_0000..0x5000_2000)?;
/// assert_eq!(hole.remove(0x5000_0000..0x5000_2000)?.count(), 1);
/// hole.insert(0x5000_0000..0x5000_1000, "guard page")?;
/// drop(hole);
/// assert_eq!(view.get_range(0x5000_2000), Some((0x5000_2000..=0x7fff_ffff, &"file")));
/// assert_eq!(view.gaps(0x5000_0000..0x6000_0000)?.next(), Some(0x5000_1000..=0x5000_1fff));
/// # Ok::<(), RangeError>(())
/// ```
#[doc(alias = "interval map")]
#[doc(alias = "radix tree")]
pub struct RangeMap<V> {
    root: Branch<V>,
    records: Records,
    /// Last field: dropping it frees retired entries.
    domain: Arc<Domain>,
}

impl<V> RangeMap<V> {
    /// Makes an empty map with a domain of its own.
    #[must_use]
    pub fn new() -> Self {
        let domain = Domain::builder().mode(Mode::Epoch).build();
        Self::in_domain(Arc::new(domain.expect("the default settings are in their bounds")))
    }

    /// Makes an empty map that uses the sections of `domain`. Maps with a common domain need less
    /// memory, and a thread that has views of several of them enters once.
    ///
    /// Values wait in the domain and may be dropped after the map; hence `'static`.
    #[must_use]
    pub fn with_domain(domain: Arc<Domain>) -> Self
    where
        V: 'static,
    {
        Self::in_domain(domain)
    }

    fn in_domain(domain: Arc<Domain>) -> Self {
        let root = *Branch::new(ROOT_LEVEL, 0);
        Self { root, records: Records::new(), domain }
    }

    /// Opens a section and returns a view of the map in it.
    #[inline]
    pub fn enter(&self) -> RangeMapView<'_, V> {
        RangeMapView::new(self, self.domain.enter())
    }

    /// Returns the domain of the map's sections: how much garbage waits there, and for which
    /// readers.
    pub fn domain(&self) -> &Domain {
        &self.domain
    }
}

impl<V> Default for RangeMap<V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<V> Drop for RangeMap<V> {
    fn drop(&mut self) {
        if crate::sync::model_failed() {
            return;
        }
        let mut entries = Vec::new();
        let domain = Arc::clone(&self.domain);
        take_all(&mut self.root, &domain.enter(), &mut entries);
        drop_each(entries);
    }
}

/// Frees everything below a branch, except the entries, which go to `entries`.
fn take_all<V>(branch: &mut Branch<V>, section: &Section<'_>, entries: &mut Vec<OwnEntry<V>>) {
    let spans: Vec<_> = (0..trie::FAN).map(|at| branch.span(at)).collect();
    let mut take = |(first, last): (u64, u64), word: *mut ()| {
        let entry = word.cast::<Entry<V>>();
        // SAFETY: range_map.R6 - linked here, so not freed yet. No other thread has the map.
        let keys = unsafe { &(*entry).keys };
        // ORDER: Relaxed; no other thread has the map.
        let left = keys.load(Ordering::Relaxed).wrapping_sub((last - first).wrapping_add(1));
        keys.store(left, Ordering::Relaxed);
        if left == 0 {
            // SAFETY: range_map.R5 - this was its last slot.
            entries.push(unsafe { OwnEntry::from_word(word) });
        }
    };
    let mut branches = Vec::new();
    for (word, span) in branch.words_mut().zip(spans) {
        // SAFETY: range_map.R6 - linked, so not retired. No other thread has the map.
        match unsafe { decode::<V>(word, section) } {
            Slot::Empty => {}
            Slot::Entry(entry) => take(entry.part_in(span), word),
            Slot::Parts(parts) => {
                parts.iter().for_each(|part| take(part.keys(), part.entry));
                // SAFETY: range_map.R9 - in its slot until now. No other thread has the map.
                NonNull::new(word).inspect(|list| unsafe { parts::free_list(*list) });
            }
            Slot::Branch(below) => branches.push(ptr::from_ref(below)),
        }
    }
    for below in branches {
        // SAFETY: range_map.R6 - from a box (`Branch::into_word`), and linked once. No other thread
        // has the map.
        let mut below = unsafe { Box::from_raw(trie::owned(below)) };
        take_all(&mut below, section, entries);
    }
}

impl<V: fmt::Debug> fmt::Debug for RangeMap<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.enter(), f)
    }
}
