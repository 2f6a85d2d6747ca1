//! A hash map of plain words: entries lie in the buckets, and go in and out by copy.
//!
//! Owns: [`FlatHashMap`] and [`Plain`]. `bucket` has the protocol of a bucket's readers, `locked`
//! that of its writers, `table` the tables.
//!
//! Laws:
//! - flat_hash_map.F1 A bucket is a line or a few: a version, with a lock, two flags and the number
//!   of the chain's next bucket; a word of tags; the entries. A slot is free if its tag is zero.
//!   The version is that of the whole chain; a later bucket has the number alone. Only the last
//!   bucket with entries has free slots. Above its tags, a bucket has a bit set for the class of
//!   each tag in later buckets, perhaps more bits than that, and none if those have no entries. A
//!   writer locks the version by an exchange and unlocks it
//!   by a store. Under the lock no user code runs and nothing is allocated: hashes, and the memory
//!   of overflow buckets, are made before.
//! - flat_hash_map.F2 A reader takes what it has read for the map's if the version, before and
//!   after, is the same and has no flag. A lock is visible before the words written under it (a
//!   fence after the exchange, and one before the reader's second look), and an unlocked version
//!   after them. So no reader makes a value of words that were not one, and what it returns was in
//!   the map at a moment of the call.
//! - flat_hash_map.F3 Growth and shrinking are those of `growth`. To move a group: copy its one or
//!   two buckets and hash their keys; lock each, if the version is still that of the copy; fill the
//!   targets, which no other thread may read or write as long as they are pending; say that the
//!   entries have arrived; mark the buckets as moved and unlock them. While a bucket is locked no
//!   reader finds an entry in it. Nothing leads out of a table but its link to the one before, so
//!   growth.G3 holds.
//! - flat_hash_map.F4 What decides about an update is compared by bits, under the lock; closures
//!   run before, on a copy, and again if the comparison fails.
//! - flat_hash_map.F5 Tables are retired in a domain of all such maps. In a section of it runs no
//!   user code but `Hash` of keys that move, so tables wait for no more than that.
//! - flat_hash_map.F6 An insertion or removal in one bucket reads all that it decides by before it
//!   locks, and locks only the version that it has read. If there was another one in between, or
//!   the chain has more buckets, it looks again under the lock.

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

/// A concurrent hash map of small plain keys and values (numbers, ids, flags), which it hands out
/// as copies.
///
/// Entries lie in the buckets, two cache lines for seven of 16 bytes: a read is one miss of the
/// caches or two in a large map, takes no lock and writes nothing; an update allocates and retires
/// nothing. When
/// not: for values that own memory, are larger than 32 bytes, or are to be looked at in place, take
/// [`HashMap`](super::HashMap). A map that is built once and then read is best a
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
/// - Progress: a read waits only for an update of its bucket that is under way, some nanoseconds
///   (longer if the system preempts that thread just then), and reads again if one came in between.
///   Updates lock the key's bucket; neither a closure nor `Hash` runs under the lock.
/// - Cost of a read: the hash and one line of memory. Of a key that is there, also the line of its
///   entry, if that is another one (of 16 bytes, every third), or another bucket if it overflows
///   its own (one of fifty in a table that has grown just now, one of five in one that is full). A
///   key that is absent costs another bucket where that has a key of its class, one of eight. Of an
///   update: an exchange and a store; of an insertion or removal also a [`Counter`]'s.
/// - Growth: the table doubles at eight entries for each seven slots. The first update that
///   notices maps the new table and does not fill it. Then each update moves its own bucket, or
///   sixteen others if that has moved, and hashes their keys. The table shrinks only by
///   [`shrink_to_fit`](Self::shrink_to_fit), which threads may call while others use the map.
/// - Memory: 25 to 39 bytes for an entry of 16 bytes: two lines of 64 bytes for each seven slots,
///   and for what overflows. A key and a value take whole words of 8 bytes each. An empty map is
///   some 100 bytes and allocates nothing. A table that was replaced is freed when the reads of
///   such maps that were under way are over.
/// - Hashing: as for [`HashMap`](super::HashMap). `RandomState` is safe against keys chosen by an
///   attacker, and takes most of a read's time; if keys cannot be chosen by an attacker, take a
///   faster hasher. It should spread over both the low bits (the bucket) and the upper seven (the
///   tag).
/// - Panics: one in `Hash` or a closure leaves the map as it was. Both may use the map. While the
///   table grows, an update also hashes keys that move; if that panics, the update has not been
///   done, and a later one moves these keys.
/// - `fork`: a bucket that another thread was updating stays locked in the child.
/// - Source: entries in buckets of one line as in Li, Andersen, Kaminsky, Freedman, "Algorithmic
///   Improvements for Fast Concurrent Cuckoo Hashing" (EuroSys 2014), with chains in place of
///   cuckoo moves; bits for what has overflowed as in Boost's `unordered_flat_map` (J. M. López
///   Muñoz, 2022); the fences of a sequence lock as in Boehm, "Can Seqlocks Get Along with
///   Programming Language Memory Models?" (MSPC 2012).
#[doc(alias = "concurrent map")]
#[doc(alias = "DashMap")]
#[doc(alias = "concurrent_flat_map")]
pub struct FlatHashMap<K, V, S = RandomState> {
    root: Root<Table<K, V>>,
    hasher: S,
    count: Counter,
    /// Model checkers drop globals in no order that a domain could be dropped in.
    #[cfg(any(manycore_loom, manycore_shuttle))]
    tables: Domain,
}

/// Where tables wait for readers (flat_hash_map.F5).
#[cfg(not(any(manycore_loom, manycore_shuttle)))]
static TABLES: Domain = Domain::bounded();

impl<K, V> FlatHashMap<K, V> {
    /// An empty map. Allocates nothing until the first insertion.
    #[must_use]
    pub fn new() -> Self {
        Self::with_hasher(RandomState::new())
    }

    /// An empty map that takes so many entries before it grows.
    ///
    /// # Panics
    /// If so many buckets need more memory than there can be.
    #[must_use]
    pub fn with_capacity(capacity: usize) -> Self {
        Self::with_capacity_and_hasher(capacity, RandomState::new())
    }
}

impl<K, V, S> FlatHashMap<K, V, S> {
    const_fn! {
        /// An empty map that hashes by `hasher`. Allocates nothing until the first insertion.
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

    /// An empty map that hashes by `hasher` and takes so many entries before it grows.
    ///
    /// # Panics
    /// If so many buckets need more memory than there can be.
    #[must_use]
    pub fn with_capacity_and_hasher(capacity: usize, hasher: S) -> Self {
        let mut map = Self::with_hasher(hasher);
        if capacity > 0 {
            map.root.put(Owned::new(Self::table_for(capacity)));
        }
        map
    }

    /// The domain of the tables.
    #[inline(always)]
    fn tables(&self) -> &Domain {
        #[cfg(not(any(manycore_loom, manycore_shuttle)))]
        return &TABLES;
        #[cfg(any(manycore_loom, manycore_shuttle))]
        &self.tables
    }

    /// Opens a section, which keeps the tables that are loaded in it.
    #[inline(always)]
    fn enter(&self) -> Section<'_> {
        self.tables().enter()
    }

    /// A table that takes so many entries.
    fn table_for(entries: usize) -> Table<K, V> {
        Table::with_buckets(buckets_for(entries, EntryLayout::<K, V>::LOAD), Growth::none())
    }

    /// How many entries there are: every update that happened before, and perhaps some that are
    /// happening.
    #[must_use]
    pub fn len(&self) -> usize {
        usize::try_from(self.count.sum()).unwrap_or(0)
    }

    /// Whether there are none, as [`len`](Self::len) has it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The hasher.
    pub fn hasher(&self) -> &S {
        &self.hasher
    }

    /// How many entries the map takes before it grows, about: it grows when a bucket is full and
    /// there are so many.
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
        // The table, and the one before it if the map was growing.
        while self.root.take().is_some() {}
    }
}
