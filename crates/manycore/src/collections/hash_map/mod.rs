//! A hash map whose reads take no lock and write nothing.
//!
//! Owns: [`HashMap`], its views and its builder. Entries are nodes of a section's domain, and are
//! replaced, never changed; `table` has the buckets.
//!
//! Laws:
//! ```text
//! bucket: word | link | link | link | link | link | link | link, or the next bucket of the chain
//! word:   tag  | tag  | tag  | tag  | tag  | tag  | tag  | HERE MOVED LOCKED MORE
//!
//! zero: pending --> HERE --> MOVED
//! ```
//!
//! - hash_map.H1 A bucket is a line: a word, and seven links. The word of a chain's first bucket
//!   has its lock. Only the holder writes the word, and a thread that takes the lock; so it is
//!   released by a plain store. No user code but `Eq` runs under it.
//! - hash_map.H2 A slot's link alone says what is in the map. Its tag is set before the link and
//!   cleared after it, so a reader that finds no tag of a key finds no link either. A writer of a
//!   key changes one link once: that store is the moment of the update.
//! - hash_map.H3 Growth and shrinking are those of `growth`. To move a group: lock its one or two
//!   buckets, lock its targets, copy the links, say that they have arrived, tag the old links and
//!   say that they are gone, unlock. Until a link is tagged no thread can change the targets, so
//!   what is found by an untagged link is in the map. So a table whose buckets have moved has
//!   tagged links alone (growth.G3).
//! - hash_map.H5 Entries have no links, and chains are part of their table. The bucket that
//!   continues a full one takes over the entry of its last slot, whose link then leads to that
//!   bucket for ever, with a tag. First the link says so, and then the word, so a thread that looks
//!   for that entry by either finds it. Only then is anything else linked in the new bucket.
//! - hash_map.H7 What was found once, without a lock, is taken by its address from then on: updates
//!   replace or remove that entry, or begin again because another thread has. So a key whose `Eq`
//!   or `Clone` contradicts itself makes no call repeat itself.
//! - hash_map.H8 A view keeps the table that it has found, as long as its section is open: it is
//!   not freed before, and its buckets say when they have moved. Updates look whether it is the
//!   root still.
//! - hash_map.H6 Nodes are retired, and other user code runs, with no lock held and the map in
//!   order. What `Eq` may not do under the lock, or in the search that comes before it in an
//!   insertion or removal, `comparing` finds out.

mod builder;
mod comparing;
mod direct;
mod into_iter;
mod iter;
#[cfg(all(test, manycore_loom))]
mod loom_tests;
mod owned_view;
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

/// A concurrent hash map, for many reads and some updates: reads take no lock and write nothing.
///
/// The map's own methods do one thing each, and hand values out as copies or to a closure: no
/// reference into the map outlives a call, so they are what asynchronous code uses. A view
/// ([`enter`](Self::enter)) opens a section for many calls, and lends references to values that
/// borrow from it: a value that is replaced or removed stays valid for readers that hold it, and is
/// freed after its grace period. When not: for a map that is built once and then read, put a
/// `std::collections::HashMap` behind an `Arc`; for values that change in place, put atomics or
/// locks into them, or take a map with locks in it, because here an update allocates.
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
/// - Progress: reads are lock-free (a reader goes round again only when the table has grown under
///   it). Updates find the key as reads do and lock its bucket, some tens of nanoseconds; no
///   closure of the caller's runs under the lock, but the `Eq` of a key that is inserted may.
/// - No `entry`: it would hold a lock while user code runs. [`update`](Self::update),
///   [`compute`](HashMapView::compute) and
///   [`update_or_insert_with`](HashMapView::update_or_insert_with) do what it is for, atomically.
/// - Cost of a read: the hash, the bucket's line and the entry's line (two misses in a map beyond
///   the caches, where one with its entries in the table has one); if the key is absent, mostly the
///   bucket's line alone. Of an update: an entry, in the memory of an old one or a new one, one
///   locked instruction for the bucket's lock, and the old entry to retire. A key that is inserted
///   or removed is counted, with another locked instruction. [`enter`](Self::enter): some 2 ns;
///   keep a view for many calls, not for ever.
/// - Growth: the table doubles at five entries for each bucket of seven. The first update that
///   notices maps the new table and does not fill it. Then each update moves its own bucket, or
///   sixteen others if that has moved. No caller waits for more than that. The table
///   shrinks in the same way, by half, within removals, when an eighth of its room is used. Room
///   that was asked for stays until half of it was used. [`shrink_to_fit`](Self::shrink_to_fit)
///   shrinks it at once, while threads use the map.
/// - Memory: an entry is its key and value and 16 bytes, allocated by itself; the table adds 14 to
///   28 bytes for each. Removed entries wait for open views, in a bounded domain (the map's own is
///   one) only those that a view may still see: see [`section::Mode`](crate::section::Mode). Their
///   bytes are bounded as [`Domain`] says; the map's own has a budget of 2 MiB for each core that
///   the process may use, and 32 MiB at most. What entries own on the heap is known if the map has
///   a [`weigher`](HashMapBuilder::weigher). Without one they count 256 bytes each. So while 8 or
///   64 threads on two cores replace values of 1 KiB, at most 14 MiB of removed ones are alive. Of
///   values of 64 KiB it was 90 MiB with 8 threads, and 400 with 64. A removed entry with drop glue
///   is dropped at the end of the view in which it was removed, if no older view is open and few
///   were removed in the last milliseconds; else some 100 us later, if this thread goes on to use
///   the map. [`Domain`] says what becomes of it if it does not. A map with few entries takes 2
///   KiB: its domain 1,200 bytes from the first view on, and 400 more for each further thread that
///   uses the map; its table the rest. Many small maps can share a domain: see
///   [`HashMapBuilder::domain`].
/// - Hashing: `RandomState` is safe against keys chosen by an attacker, and takes a good part of a
///   read's time in a small map. If keys cannot be chosen by an attacker, take a faster hasher, by
///   [`with_hasher`](Self::with_hasher). The map multiplies what it returns once, so that it may be
///   a poor one: the key itself, a pointer or a multiple of 64.
/// - Panics: one in `Hash`, `Eq` or a closure leaves the map as it was. One in a `Drop` surfaces in
///   whichever call frees the entry, with that call's own work done; when the map is dropped, all
///   entries are dropped before it goes on, but what was removed before and still waited may leak.
///   An update of the same map from within `Eq` panics; reads
///   of it are fine, and so are updates of other maps, unless maps update each other in a cycle:
///   the `Eq` of an insertion may run under its map's bucket lock, so two threads could wait for
///   each other for ever.
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
    /// What an entry owns on the heap, in bytes.
    weigher: Option<fn(&K, &V) -> usize>,
    /// Last: it frees retired entries when it is dropped.
    domain: MapDomain,
}

/// A key's hash, with every bit of it in the lower bits, which choose the bucket, and in the upper
/// ones, which are its tag: a hasher may hand pointers on, or multiples of 64.
#[inline(always)]
fn mixed(hash: u64) -> u64 {
    let product = u128::from(hash) * 0x9e37_79b9_7f4a_7c15;
    product as u64 ^ (product >> 64) as u64
}

/// Whose sections a map uses.
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
    /// How many entries there are: exactly, if no thread is at an update. Counts every update that
    /// happened before, and perhaps some that are happening.
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

    /// The domain of the map's sections: how much garbage waits there, and for which readers.
    pub fn domain(&self) -> &Domain {
        &self.domain
    }
}

impl<K, V, S> Drop for HashMap<K, V, S> {
    fn drop(&mut self) {
        if crate::sync::model_failed() {
            return;
        }
        // The table, and the one before it if the map was growing.
        run_each(std::iter::from_fn(|| self.root.take()), |mut table| {
            let section = self.domain.enter();
            // SAFETY: hash_map.H3 - an entry is linked without a tag in one table only, so it is
            // dropped once; `&mut self`: no view is open, and what is linked is not retired.
            unsafe { table.drop_entries(&section) };
        });
    }
}
