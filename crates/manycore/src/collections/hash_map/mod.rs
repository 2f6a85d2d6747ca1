//! A hash map for many reads and some updates: reads take no lock and write nothing.
//!
//! Owns: [`HashMap`], its views and its builder. `table` owns the buckets. An entry is a node of a
//! section's domain. An update replaces the entry and never changes it in place.
//!
//! ```text
//! bucket: word | link | link | link | link | link | link | link, or the next bucket of the chain
//! word:   tag  | tag  | tag  | tag  | tag  | tag  | tag  | HERE MOVED LOCKED MORE
//!
//! zero: pending --> HERE --> MOVED
//! ```
//!
//! Laws:
//! - hash_map.H1 A bucket is one cache line: a word and seven links. The word of a chain's first
//!   bucket contains the lock of the chain. Only the lock holder and a thread that takes the lock
//!   write the word, so a plain store releases the lock. No user code except `Eq` runs under the
//!   lock.
//! - hash_map.H2 Only a slot's link decides whether an entry is in the map. A writer sets the tag
//!   before the link and clears it after the link. So a reader that finds no tag of a key finds no
//!   link either. A writer of a key changes one link once: that store is the linearization point of
//!   the update.
//! - hash_map.H3 The table grows and shrinks as `growth` says. To move a group, a thread locks its
//!   one or two buckets, locks their targets, and copies the links. Then it sets HERE in the
//!   targets, tags the old links, sets MOVED in the old buckets, and unlocks all of them. No thread
//!   can change the targets before the old links are tagged, so an entry that a reader finds by an
//!   untagged link is in the map. When all buckets of a table have moved, every link in it is
//!   tagged (growth.G3).
//! - hash_map.H5 Entries have no links, and a chain belongs to its table. When a full bucket gets a
//!   successor, the entry of its last slot moves into the successor. From then on, the link of the
//!   last slot leads to the successor and has a tag. The link changes first and the word second, so
//!   a thread that looks for the moved entry by either of them finds it. Only then is another entry
//!   linked in the successor.
//! - hash_map.H6 Nodes are retired, and user code other than `Eq` runs, while no lock is held and
//!   the map is consistent. `comparing` catches an `Eq` that updates its own map under the lock, or
//!   in the search before the lock.
//! - hash_map.H7 An update that has found an entry without a lock identifies it by its address from
//!   then on. It replaces or removes that entry, or starts again if another thread has done so. So
//!   a key with a contradictory `Eq` or `Clone` makes no call repeat for ever.
//! - hash_map.H8 A view keeps the table that it has found while its section is open. The section
//!   keeps the table from being freed, and the table's buckets say when they have moved. A bucket
//!   that has not moved has its entries, also if its table is not the root any more. So an update
//!   may work in it, even if the root changes meanwhile. An update begins at the root if its table
//!   is not the root, if its bucket has no entries, or if its table is growing: it has to help
//!   (growth.G2).
//! - hash_map.H9 An update on the short path takes the lock by a compare-exchange that expects the
//!   word that it saw before. If that succeeds, the entries are still here, and the tags are the
//!   same. So if there was no tag of the key, the key is absent. If there was one, the word does
//!   not tell whether its entry has been replaced, so the update compares the link.

mod builder;
mod comparing;
mod direct;
mod into_iter;
mod iter;
#[cfg(all(test, manycore_loom))]
mod loom_tests;
mod owned_view;
mod short;
mod table;
mod traits;
mod view;

use self::table::Table;
use super::Counter;
use super::growth::Root;
use crate::section::Domain;
use crate::sync::{const_fn, run_each};
pub use builder::HashMapBuilder;
pub use into_iter::HashMapIntoIter;
pub use iter::{HashMapIter, HashMapKeys, HashMapValues};
pub use owned_view::HashMapOwnedView;
use std::hash::RandomState;
use std::ops::Deref;
use std::sync::Arc;
pub use view::HashMapView;

/// A concurrent hash map for many reads and some updates: reads take no lock and write nothing.
///
/// Each method of the map does one thing, and returns values as copies or shows them to a closure.
/// No reference into the map outlives such a call, so asynchronous code can use these methods. A
/// view ([`enter`](Self::enter)) opens a section for many calls, and its methods return references
/// that borrow from it. A value that is replaced or removed stays valid for the readers that hold
/// it. It is freed after its grace period.
///
/// When not: for a map that is built once and then only read, put a `std::collections::HashMap`
/// behind an `Arc`. For values that change in place, put atomics or locks into the values, or use a
/// map with locks in it: here every update allocates.
///
/// ```
/// use manycore::collections::HashMap;
///
/// let ages = HashMap::new();
/// std::thread::scope(|s| {
///     s.spawn(|| assert!(ages.insert("ann", 40)));
///     s.spawn(|| assert!(ages.insert("bob", 41)));
/// });
/// assert_eq!(ages.get_cloned("ann"), Some(40));
/// let view = ages.enter(); // for references, and for many calls
/// assert_eq!(view.get("ann"), Some(&40));
/// assert_eq!(view.update("bob", |age| age + 1), Some(&42));
/// assert_eq!(view.remove("ann"), Some(&40));
/// assert_eq!(view.len(), 1);
/// ```
///
/// - Consistency: linearizable for each key. `len` and `iter` are not snapshots.
/// - Progress: reads are lock-free: a reader retries only if the table has grown under it. Updates
///   find the key as reads do, and then lock its bucket for some tens of nanoseconds. No closure of
///   the caller runs under the lock, but the `Eq` of a key that is inserted may.
/// - No `entry`: it would hold a lock while user code runs. Use [`update`](Self::update),
///   [`compute`](HashMapView::compute) or
///   [`update_or_insert_with`](HashMapView::update_or_insert_with) instead, which are atomic.
/// - Cost of a read: the hash, the bucket's cache line, and the entry's cache line. In a map that
///   is larger than the caches, these are two misses; a map that stores entries in its table has
///   one miss. If the key is absent, a read mostly loads only the bucket's line.
/// - Cost of an update: an allocation (often the memory of an old entry), one locked instruction
///   for the bucket's lock, and the old entry to retire. Inserting or removing a key takes another
///   locked instruction to count it. [`enter`](Self::enter) takes some 2 ns. Keep a view for many
///   calls, but not for ever.
/// - Growth: the table doubles at five entries for each bucket of seven. The first update that
///   notices this maps the new table and does not fill it. If the new table is large, the next
///   updates that need room bring its huge pages into memory, one each. Then each update moves its
///   own bucket, or sixteen other buckets if its own has moved. No caller waits for more than that.
///   The table also shrinks that way, by half, within removals, when an eighth of its room is used.
///   Reserved room stays until half of it has been used. [`shrink_to_fit`](Self::shrink_to_fit)
///   shrinks the table at once, while other threads use the map.
/// - Memory: an entry takes its key, its value and 16 bytes, in an allocation of its own. The table
///   adds 14 to 28 bytes for each entry. A map with few entries takes 2 KiB. Its domain takes 1,200
///   bytes of them from the first view on, and 400 more for each further thread that uses the map.
///   Many small maps can share a domain: see [`HashMapBuilder::domain`].
///   The next large table takes its memory before it is used, and keeps it until then or until
///   [`shrink_to_fit`](Self::shrink_to_fit) is called.
/// - Removed entries wait for open views. In a bounded domain, such as the map's own, they wait
///   only for views that may still see them: see [`section::Mode`](crate::section::Mode).
///   [`Domain`] says how their bytes are bounded. The map's own domain has a budget of 2 MiB for
///   each core that the process may use, and 32 MiB at most. A [`weigher`](HashMapBuilder::weigher)
///   tells the map what entries own on the heap; without it, each entry with drop glue counts 256
///   bytes. Measured on two cores: while 8 or 64 threads replace values of 1 KiB, at most 14 MiB
///   of removed values are alive. With values of 64 KiB, they are 90 MiB for 8 threads and 400 MiB
///   for 64.
/// - Removed entries with drop glue: an entry is dropped at the end of the view that removed it, if
///   no older view is open and few entries were removed in the last milliseconds. Otherwise it is
///   dropped some 100 us later, if this thread goes on to use the map. [`Domain`] says what happens
///   if the thread does not.
/// - Hashing: `RandomState` is safe against keys that an attacker chooses, and takes a good part of
///   a read's time in a small map. If no attacker can choose keys, pass a faster hasher to
///   [`with_hasher`](Self::with_hasher). The map multiplies each hash once, so the hasher may be a
///   poor one: the key itself, a pointer, or a multiple of 64.
/// - Panics: a panic in `Hash`, `Eq` or a closure leaves the map as it was. A panic in a `Drop`
///   surfaces in the call that frees the entry, after that call has done its own work. When the map
///   is dropped, all its entries are dropped before such a panic goes on, but entries that were
///   removed earlier and still waited may leak.
/// - Updates from within `Eq`: an update of the same map panics. Reads of it are allowed. Updates
///   of other maps are allowed, too, unless maps update each other in a cycle. The `Eq` of an
///   insertion may run under its map's bucket lock, so two threads could wait for each other for
///   ever.
/// - Source: buckets of one cache line as in David, Guerraoui, Trigonakis, "Asynchronized
///   Concurrency" (ASPLOS 2015); reclamation by [`section`](crate::section).
///
/// A value does not outlive its view:
/// ```compile_fail
/// let map = manycore::collections::HashMap::from([(1, 2)]);
/// let view = map.enter();
/// let two = view.get(&1);
/// drop(view);
/// println!("{two:?}");
/// ```
#[doc(alias = "concurrent map")]
#[doc(alias = "DashMap")]
pub struct HashMap<K, V, S = RandomState> {
    root: Root<Table<K, V>>,
    hasher: S,
    count: Counter,
    /// Returns the bytes that an entry owns on the heap.
    weigher: Option<fn(&K, &V) -> usize>,
    /// Last field: dropping it frees retired entries.
    domain: MapDomain,
}

/// Mixes a key's hash, so that every bit of it affects the lower bits, which choose the bucket, and
/// the upper bits, which are the tag. A hasher may return pointers, or multiples of 64.
#[inline(always)]
fn mixed(hash: u64) -> u64 {
    let product = u128::from(hash) * 0x9e37_79b9_7f4a_7c15;
    product as u64 ^ (product >> 64) as u64
}

/// The domain whose sections a map uses.
enum MapDomain {
    Own(Domain),
    Shared(Arc<Domain>),
}

impl MapDomain {
    const_fn! {
        const fn own() -> Self {
            Self::Own(Domain::bounded_by_cores())
        }
    }
}

impl Deref for MapDomain {
    type Target = Domain;

    #[inline(always)]
    fn deref(&self) -> &Domain {
        match self {
            Self::Own(domain) => domain,
            Self::Shared(domain) => domain,
        }
    }
}

impl<K, V, S> HashMap<K, V, S> {
    /// Returns the number of entries. The number is exact if no thread is updating the map.
    /// Otherwise it includes every update that happened before, and perhaps some that are
    /// happening.
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

    /// Returns the domain of the map's sections: how much garbage waits there, and for which
    /// readers.
    pub fn domain(&self) -> &Domain {
        &self.domain
    }
}

impl<K, V, S> Drop for HashMap<K, V, S> {
    fn drop(&mut self) {
        if crate::sync::model_failed() {
            return;
        }
        // The table, and the old table if the map was growing.
        run_each(std::iter::from_fn(|| self.root.take()), |mut table| {
            let section = self.domain.enter();
            // SAFETY: hash_map.H3 - an entry has an untagged link in one table only, so it is
            // dropped once. `&mut self`: no view is open, and linked entries are not retired.
            unsafe { table.drop_entries(&section) };
        });
    }
}
