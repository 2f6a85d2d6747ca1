//! A hash map for small plain keys and values, such as numbers: entries lie in the buckets, and are
//! copied in and out.
//!
//! Owns: [`FlatHashMap`] and [`Plain`]. `bucket` has the protocol of a bucket's readers, `locked`
//! the protocol of its writers, and `table` the tables.
//!
//! ```text
//! bucket of entries of 16 bytes:
//!
//! line 0   version | tags | entry | entry | entry
//! line 1   entry | entry | entry | entry
//!
//! version  count | number of the chain's next bucket | MOVED ARRIVED LOCKED
//! tags     classes of the tags in later buckets | a tag for each slot
//!
//! zero: pending --> ARRIVED --> MOVED
//! ```
//!
//! Laws:
//! - flat_hash_map.F1 A bucket is one cache line or a few: the version, a word of tags, and the
//!   entries. A slot is free if its tag is zero. The first bucket's version covers the whole chain;
//!   a later bucket uses only the number in it. Only the last bucket with entries has free slots.
//!   Above its tags, a bucket has a bit set for the class of each tag in later buckets. More bits
//!   may be set, but none if the later buckets have no entries. A writer locks the version by a
//!   compare-exchange and unlocks it by a store. Under the lock no user code runs and nothing is
//!   allocated: hashes are computed, and memory of overflow buckets is allocated, before.
//! - flat_hash_map.F2 A reader accepts what it has read if the version is the same before and
//!   after, and shows the chain open. A lock becomes visible before the words that are written
//!   under it: there is a fence after the exchange, and a fence before the reader's second load of
//!   the version. The unlocked version becomes visible after those words. So no reader makes a
//!   value of words that were not one value, and a value that it returns was in the map at some
//!   moment of the call.
//! - flat_hash_map.F3 The table grows and shrinks as `growth` says. To move a group, a thread
//!   copies its one or two buckets and hashes their keys. It locks each bucket if its version is
//!   still that of the copy. It fills the targets, which no other thread may read or write while
//!   they are pending. Then it sets ARRIVED in the targets, sets MOVED in the old buckets, and
//!   unlocks them. While a bucket is locked, no reader finds an entry in it. A table has no link
//!   except the one to the old table, so growth.G3 holds.
//! - flat_hash_map.F4 An update compares values by their bits, under the lock. Closures run before
//!   that, on a copy, and run again if the comparison fails.
//! - flat_hash_map.F5 Tables are retired in one domain that all such maps share. In its sections no
//!   user code runs except the `Hash` of keys that move, so tables wait for nothing longer than
//!   that.
//! - flat_hash_map.F6 An insertion or removal in one bucket reads everything that it decides by
//!   before it locks, and locks only the version that it has read. If another writer came in
//!   between, or if the chain has more buckets, it searches again under the lock.

mod bucket;
mod into_iter;
mod iter;
mod layout;
mod locked;
#[cfg(all(test, manycore_loom))]
mod loom_tests;
mod ops;
mod overflow;
mod plain;
mod table;
mod traits;

use self::layout::EntryLayout;
use self::table::Table;
use super::Counter;
use super::growth::{Growing, Growth, Root, buckets_for};
use crate::section::{Domain, Owned, Section};
use crate::sync::const_fn;
pub use into_iter::FlatHashMapIntoIter;
pub use iter::{FlatHashMapIter, FlatHashMapKeys, FlatHashMapValues};
#[cfg(feature = "derive")]
pub use manycore_derive::Plain;
pub use plain::Plain;
use std::hash::RandomState;

/// A concurrent hash map of small plain keys and values (numbers, ids, flags), which it returns as
/// copies.
///
/// Entries lie in the buckets: two cache lines for seven entries of 16 bytes. A read takes no lock,
/// writes nothing, and in a large map takes one or two cache misses. An update allocates and
/// retires nothing.
///
/// When not: for values that own memory, are larger than 32 bytes, or are to be read in place, use
/// [`HashMap`](super::HashMap). For a map that is built once and then only read, put a
/// `std::collections::HashMap` behind an `Arc`.
///
/// ```
/// use manycore::collections::FlatHashMap;
///
/// let stock = FlatHashMap::new();
/// std::thread::scope(|s| {
///     s.spawn(|| stock.insert(1_u64, 40_u32));
///     s.spawn(|| stock.insert(2, 41));
/// });
/// assert_eq!(stock.get(&1), Some(40));
/// assert_eq!(stock.update(&2, |count| count + 1), Some(42));
/// assert_eq!(stock.compare_exchange(&2, 42, 50), Ok(42));
/// assert_eq!(stock.remove(&1), Some(40));
/// assert_eq!(stock.len(), 1);
/// ```
///
/// - Consistency: linearizable for each key. `len` and `iter` are not snapshots.
/// - Progress: a read waits only for an update of its bucket that is under way. This takes some
///   nanoseconds, or longer if the system preempts the updating thread just then. A read starts
///   again if an update came in between. Updates lock the key's bucket; neither a closure nor
///   `Hash` runs under the lock.
/// - Cost of a read: the hash and one cache line. If the key is present, a read also loads the line
///   of its entry, if that is another line (of 16-byte entries, every third). If the entry has
///   overflowed, a read also loads another bucket: one entry of fifty in a table that has just
///   grown, one of five in a full table. If the key is absent, a read loads another bucket only if
///   later buckets have a key of the same class; there are eight classes.
/// - Cost of an update: a compare-exchange and a store. An insertion or removal also updates a
///   [`Counter`].
/// - Growth: the table doubles at eight entries for each seven slots. The first update that notices
///   this maps the new table and does not fill it. If the new table is large, the next updates that
///   need room bring its huge pages into memory, one each. Then each update moves its own bucket,
///   or sixteen other buckets if its own has moved, and hashes their keys. The table shrinks only
///   by [`shrink_to_fit`](Self::shrink_to_fit), which threads may call while others use the map.
/// - Memory: 25 to 39 bytes for an entry of 16 bytes: two lines of 64 bytes for each seven slots,
///   and the overflow buckets. A key and a value take whole words of 8 bytes each. An empty map
///   takes some 100 bytes and allocates nothing. A table that was replaced is freed when all reads
///   of such maps that were under way have ended. The next large table takes its memory before it
///   is used, and keeps it until then or until [`shrink_to_fit`](Self::shrink_to_fit) is called.
/// - Hashing: as for [`HashMap`](super::HashMap). `RandomState` is safe against keys that an
///   attacker chooses, and takes most of a read's time. If no attacker can choose keys, use a
///   faster hasher. It should distribute keys over both the low bits (the bucket) and the upper
///   seven (the tag).
/// - Panics: a panic in `Hash` or a closure leaves the map as it was. Both may use the map. While
///   the table grows, an update also hashes keys that move. If that panics, the update has not been
///   done, and a later update moves these keys.
/// - `fork`: a bucket that another thread was updating stays locked in the child.
/// - Source: entries in buckets of one line as in Li, Andersen, Kaminsky, Freedman, "Algorithmic
///   Improvements for Fast Concurrent Cuckoo Hashing" (EuroSys 2014), with chains in place of
///   cuckoo moves; bits for overflowed entries as in Boost's `unordered_flat_map` (J. M. López
///   Muñoz, 2022); the fences of a sequence lock as in Boehm, "Can Seqlocks Get Along with
///   Programming Language Memory Models?" (MSPC 2012).
#[doc(alias = "concurrent map")]
#[doc(alias = "DashMap")]
#[doc(alias = "concurrent_flat_map")]
pub struct FlatHashMap<K, V, S = RandomState> {
    root: Root<Table<K, V>>,
    hasher: S,
    count: Counter,
    /// In models each map has its own domain: model checkers drop globals in an order in which a
    /// domain cannot be dropped.
    #[cfg(any(manycore_loom, manycore_shuttle))]
    tables: Domain,
}

/// The domain in which tables wait for readers (flat_hash_map.F5).
#[cfg(not(any(manycore_loom, manycore_shuttle)))]
static TABLES: Domain = Domain::bounded();

impl<K, V> FlatHashMap<K, V> {
    /// Makes an empty map. Allocates nothing until the first insertion.
    #[must_use]
    pub fn new() -> Self {
        Self::with_hasher(RandomState::new())
    }

    /// Makes an empty map with room for `capacity` entries.
    ///
    /// # Panics
    /// If the buckets need more memory than there can be.
    #[must_use]
    pub fn with_capacity(capacity: usize) -> Self {
        Self::with_capacity_and_hasher(capacity, RandomState::new())
    }
}

impl<K, V, S> FlatHashMap<K, V, S> {
    const_fn! {
        /// Makes an empty map that hashes with `hasher`. Allocates nothing until the first
        /// insertion.
        ///
        /// ```
        /// use manycore::collections::FlatHashMap;
        /// use std::hash::{BuildHasherDefault, DefaultHasher};
        ///
        /// static OWNERS: FlatHashMap<u16, u64, BuildHasherDefault<DefaultHasher>> =
        ///     FlatHashMap::with_hasher(BuildHasherDefault::new());
        ///
        /// OWNERS.insert(80, 7);
        /// assert_eq!(OWNERS.get(&80), Some(7));
        /// ```
        #[must_use]
        pub const fn with_hasher(hasher: S) -> Self {
            Self {
                root: Root::new(),
                hasher,
                count: Counter::new(0),
                #[cfg(any(manycore_loom, manycore_shuttle))]
                tables: Domain::bounded(),
            }
        }
    }

    /// Makes an empty map that hashes with `hasher` and has room for `capacity` entries.
    ///
    /// # Panics
    /// If the buckets need more memory than there can be.
    #[must_use]
    pub fn with_capacity_and_hasher(capacity: usize, hasher: S) -> Self {
        let mut map = Self::with_hasher(hasher);
        if capacity > 0 {
            map.root.put(Owned::new(Self::table_for(capacity)));
        }
        map
    }

    /// Returns the domain of the tables.
    #[inline(always)]
    fn tables(&self) -> &Domain {
        #[cfg(not(any(manycore_loom, manycore_shuttle)))]
        return &TABLES;
        #[cfg(any(manycore_loom, manycore_shuttle))]
        &self.tables
    }

    /// Opens a section, which keeps the tables that are loaded in it alive.
    #[inline(always)]
    fn enter(&self) -> Section<'_> {
        self.tables().enter()
    }

    /// Makes a table with room for `entries` entries.
    fn table_for(entries: usize) -> Table<K, V> {
        Table::with_buckets(buckets_for(entries, EntryLayout::<K, V>::LOAD), Growth::none())
    }

    /// Returns the number of entries. It includes every update that happened before, and perhaps
    /// some that are happening.
    #[must_use]
    pub fn len(&self) -> usize {
        usize::try_from(self.count.sum()).unwrap_or(0)
    }

    /// Returns true if [`len`](Self::len) is zero.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the hasher.
    pub fn hasher(&self) -> &S {
        &self.hasher
    }

    /// Returns about how many entries the map takes before it grows. It grows when a bucket is full
    /// and the map has that many entries.
    #[must_use]
    pub fn capacity(&self) -> usize {
        let section = self.enter();
        self.root.load(&section).as_ref().map_or(0, Table::capacity)
    }
}

impl<K, V, S> Drop for FlatHashMap<K, V, S> {
    fn drop(&mut self) {
        if crate::sync::model_failed() {
            return;
        }
        // The table, and the old table if the map was growing.
        while self.root.take().is_some() {}
    }
}
