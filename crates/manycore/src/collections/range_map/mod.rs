//! Values under ranges of 64-bit keys: look-ups take no lock and write nothing, and updates of
//! disjoint ranges do not meet.
//!
//! Owns: [`RangeMap`], its views, guards and iterators. Does not own: the grace period of what was
//! removed, which is the section's.
//!
//! A radix trie with 64 slots in a branch. A slot of a branch at level `n` stands for an aligned
//! block of `64^n` keys and is empty, or leads to an entry that its keys have, all (a *folded*
//! range) or those for which it was inserted, or to a list of at most seven *parts* of its keys
//! with their entries, or to a branch for a block within its own. A range occupies the largest
//! slots that it fills, and at its ends parts of slots up to 4,096 times as large as those: a slot
//! gets a branch when its list is full, or when threads meet at it.
//!
//! Laws:
//! - range_map.R1 A look-up is one load for each branch on the way, the list of parts if there is
//!   one, and the entry. It stores nothing, and reads no word that is written but the slots. A
//!   branch may lie several levels below its slot; then the look-up does not compare the block. It
//!   need not: the keys that an entry was inserted for within a slot are all in the block of the
//!   branch below the slot when it is linked there, so a key beside the branch's block is not one
//!   for which the entry was inserted, and this is compared.
//! - range_map.R2 A slot is changed only under its lock bit, which stands in its branch. Under the
//!   bit of a slot that leads to a branch, a holder of all bits below it may replace the branch.
//!   Those that lock a part of the slot take bits below it alone, but for brief claims
//!   (range_map.R4), which take the bit of a slot that leads to no branch.
//! - range_map.R3 A key has one entry at any time, or none, and the store to its slot is the moment
//!   of its update. Dividing a slot, interposing a branch and pruning change no key.
//! - range_map.R4 Lock bits are taken in the order of their keys, a slot before what lies below it;
//!   with the exception of a bit that is given back before another is waited for. So claims alone
//!   never deadlock. A *brief* claim, for one update, also locks keys beside its own, those of the
//!   slots at its ends. It runs no user code and parks for no lock bit: where others hold one for
//!   longer than a moment, or change the word of a branch's lock bits again and again, it gives
//!   back all and claims its range alone, for which slots are divided. So disjoint claims wait for
//!   each other for a moment at most.
//! - range_map.R5 An entry's `keys` counts the keys whose slots lead to it. A thread takes keys off
//!   the count after it has changed their slots; the one that takes the last ones retires the
//!   entry. So no slot leads to a retired entry.
//! - range_map.R6 An entry is retired after its last slot was changed, a branch after it was
//!   unlinked under all its lock bits and marked as dead. A dead branch is never changed again: a
//!   reader that is in it sees its keys as they were when it was unlinked, at a moment within its
//!   look-up. Neither has a known birth, so a domain of any mode keeps all that a section could
//!   reach.
//! - range_map.R7 A thread that user code runs in under locked ranges, or that parks with some
//!   locked, shows its range in its record, and holds the record's lock. Threads that want a bit of
//!   its range park on the record, by way of the wait-for graph; so a cycle is found. A thread
//!   whose record is locked by itself is refused further ranges of the map.
//! - range_map.R8 A branch that is empty under all its lock bits, and the bit of its slot, may be
//!   unlinked. Each thread leaves so many empty branches linked as `config` says.
//! - range_map.R9 A list of parts is never changed: an update of a part links another one, and
//!   retires the old one after that. The word of a slot is an entry's alone if all keys of the slot
//!   for which the entry was inserted have it, and no others have one; else it is a list's.
//!
//! Source: Wang, Stamler, Parmer, "Parallel Sections" (EuroSys 2016), sections 3.6 and 4, for the
//! trie that is read in a section; Clements, Kaashoek, Zeldovich, "RadixVM" (EuroSys 2013), section
//! 3, for lock bits in the slots of a radix tree and folded ranges; Heinz, Zobel, Williams, "Burst
//! Tries" (ACM TOIS 2002), for short lists below a trie that give way to a branch when they are
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
/// and updates of ranges that are apart share no lock.
///
/// What for: tables of what lies where, with keys that the caller chooses: mappings of an address
/// space, blocks of a file or a device, leases of numbers. When not: for values by single keys take
/// [`HashMap`](super::HashMap); for ranges that may overlap, or whose keys are not numbers,
/// [`IntervalRegistry`](super::IntervalRegistry); for ids that the table may choose,
/// [`IdSpace`](crate::namespace::IdSpace); for one thread that hardly looks anything up, a
/// `BTreeMap` behind a lock (below). Where ranges are locked often ([`lock`](RangeMapView::lock)),
/// and their ends are multiples of some common unit such as a page, divide keys by it: each end of
/// a locked range costs branches.
///
/// Everything is done through a view: [`enter`](Self::enter) opens a section, and references to
/// values borrow from it. Ranges are given as ranges of keys, by any of Rust's forms; `a..=b` has
/// the last key too, and `..` is all of them. Reports name ranges by first and last key.
///
/// - Consistency: linearizable for each key, and for all keys of a range that is locked, among
///   those that lock it. An update of a range becomes visible slot by slot, in the order of the
///   keys: a look-up that runs at the same time may find one key changed and the next one not
///   yet. Iteration, gaps and first fit are no snapshots; each says what it sees.
/// - A value belongs to keys, not to a range: if a part of a range is removed or replaced, the rest
///   keeps the same value, in the same place, without a clone.
///   [`split`](RangeMapView::split) makes two ranges of one, and clones.
/// - Progress: look-ups are wait-free. Updates lock the slots of their range, in the order of keys;
///   disjoint ranges never wait for each other, except for the moment in which a slot that both
///   have a part of is changed or divided. No user code runs under a lock but that under a
///   [`RangeGuard`]. A thread that holds a guard is refused other updates of the map
///   ([`RangeError::Nested`]); a wait that would never end is refused too
///   ([`RangeError::Deadlock`]).
/// - Cost: a look-up is a load for each branch on the way, a list of a few ranges where they share
///   a slot, and the entry's line: for pages of an address space some five. An update locks as many
///   branches as its range has parts in, with one locked instruction each, writes its slots, and
///   allocates an entry, and a list where it is not alone in a slot. Most ranges lie in one slot: a
///   range of `n` keys takes slots of up to `4096 * n` keys as a whole or in part. A range that
///   does not fit so fills the largest aligned blocks of `64^n` keys that it has: a gigabyte of
///   addresses is one slot if it is aligned, and never more than 63 slots at each end for each
///   level. An insertion with its removal, beside other threads' elsewhere, writes no line that
///   others use (`sim-audit range-update`), but for the rounds of grace periods: a thread leads one
///   for its first batch of what it has removed, and then one for some hundreds of removals.
/// - Neighbours: the lock bits of 64 slots side by side are on one line. Threads that update ranges
///   of their own there never wait for each other's locks, but for that line; look-ups do not read
///   it. Where keys can be chosen, keep what different threads update a branch apart: 64 times its
///   own size.
/// - Figures, in millions a second on a quiet EPYC with two cores, beside the best of a `BTreeMap`
///   behind a `RwLock`, `rangemap` behind a lock, a skip list and a tree of range locks
///   (`manycore bench ranges`). One thread, 1,000 single pages: looked up 62 and 24, half updates
///   36 and 18; 100,000 ranges of 16 pages: looked up 47 and 11, half updates 22 and 9.4, nine
///   tenths 18 and 8.9. Two threads: 123 and 32, 56 and 14; 94 and 19, 38 and 8.2, 31 and 7.2.
/// - Memory: an entry is its value and 24 bytes, a list 24 for each range in it, both rounded up to
///   32, 48, 64, 96, 128 or 176 bytes and from slabs of the process; a thread has 64 kilobytes of
///   addresses for each of these sizes that it uses. A branch has 64 slots and takes 640 bytes,
///   which its neighbours share. Of resident memory, with values of 8 bytes, a range takes, all
///   told: 69 bytes in 50,000 ranges of 16 unaligned pages; 90 in 20,000 of 1 to 40 pages; 58 and
///   99 in single pages side by side and every fourth; 127 where no other one is near (a page in
///   each 64 megabytes). An empty map takes some 900 bytes, and 2,100 with a domain of its own.
///   A map that was emptied keeps at most
///   64 branches for each thread that
///   removed from it (41 kilobytes), and those above them, so that what is inserted and removed
///   again and again makes its way once; [`trim`](RangeMapView::trim) gives them back. Removed
///   entries wait for open views.
/// - Errors: [`RangeError`], which names the range. Nothing is half done then.
/// - Panics: one in a value's `Clone` leaves the map as it was. One in a `Drop` surfaces in
///   whichever call frees the entry, with that call's own work done. One under a guard unlocks the
///   range, with what was changed until then. A guard that is forgotten leaves its range locked.
/// - Source: the radix tries of ParSec, section 3.6, and the lock bits and folded ranges of RadixVM
///   (EuroSys 2013).
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
    /// Last: it frees retired entries when it is dropped.
    domain: Arc<Domain>,
}

impl<V> RangeMap<V> {
    /// An empty map with a domain of its own.
    #[must_use]
    pub fn new() -> Self {
        let domain = Domain::builder().mode(Mode::Epoch).build();
        Self::in_domain(Arc::new(domain.expect("the default settings are in their bounds")))
    }

    /// An empty map that uses the sections of `domain`: maps with a common domain cost less memory,
    /// and a thread that is in views of several enters once.
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

    /// Opens a section and shows the map in it.
    #[inline]
    pub fn enter(&self) -> RangeMapView<'_, V> {
        RangeMapView::new(self, self.domain.enter())
    }

    /// The domain of the map's sections: how much garbage waits there, and for which readers.
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

/// Frees what is below a branch, but for the entries, which are collected.
fn take_all<V>(branch: &mut Branch<V>, section: &Section<'_>, entries: &mut Vec<OwnEntry<V>>) {
    let spans: Vec<_> = (0..trie::FAN).map(|at| branch.span(at)).collect();
    let mut take = |(first, last): (u64, u64), word: *mut ()| {
        let entry = word.cast::<Entry<V>>();
        // SAFETY: range_map.R6 - linked here, so not freed yet; no other thread has the map.
        let keys = unsafe { &(*entry).keys };
        // ORDER: Relaxed; the caller has the map to itself.
        let left = keys.load(Ordering::Relaxed).wrapping_sub((last - first).wrapping_add(1));
        keys.store(left, Ordering::Relaxed);
        if left == 0 {
            // SAFETY: range_map.R5 - this was its last slot.
            entries.push(unsafe { OwnEntry::from_word(word) });
        }
    };
    let mut branches = Vec::new();
    for (word, span) in branch.words_mut().zip(spans) {
        // SAFETY: range_map.R6 - linked, so not retired; no other thread has the map.
        match unsafe { decode::<V>(word, section) } {
            Slot::Empty => {}
            Slot::Entry(entry) => take(entry.part_in(span), word),
            Slot::Parts(parts) => {
                parts.iter().for_each(|part| take(part.keys(), part.entry));
                // SAFETY: range_map.R9 - in its slot until now, and the caller has the map alone.
                NonNull::new(word).inspect(|list| unsafe { parts::free_list(*list) });
            }
            Slot::Branch(below) => branches.push(ptr::from_ref(below)),
        }
    }
    for below in branches {
        // SAFETY: range_map.R6 - from a box (`Branch::into_word`), linked once, and the caller has
        // the map to itself.
        let mut below = unsafe { Box::from_raw(trie::owned(below)) };
        take_all(&mut below, section, entries);
    }
}

impl<V: fmt::Debug> fmt::Debug for RangeMap<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.enter(), f)
    }
}
