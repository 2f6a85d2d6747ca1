//! An ordered map whose reads take no lock and write nothing.
//!
//! Owns: [`OrderedMap`], its views and its walks. `tree` finds places and replaces nodes, `node`
//! has their slots, `order` the word that orders these.
//!
//! ```text
//! inner   order: 0 2 1     0 a ..      1 k ..      2 c ..     A new entry goes into the next slot
//!                |                                            that was never used; then the order
//! leaf    order: 2 0 3     0 a "one"   1 b (gone)             is replaced. A removal replaces the
//!                          2 _ "two"   3 b "new"              order. A full node is replaced.
//! ```
//!
//! Laws:
//! - ordered_map.T1 A node has slots, of a key and a word each, which are filled once and in turn,
//!   and one word that orders those in use. A slot is filled before an order has it, and stays as
//!   it is until the node is freed (the link of an inner node aside, ordered_map.T2). So a thread
//!   that has loaded the order may search it at leisure, and where the order is the same, so are
//!   the entries.
//! - ordered_map.T2 A leaf has values, an inner node has links to nodes. A node covers the keys
//!   from its own in the parent to the next one there, and the same ones for as long as it exists.
//!   (The first child of a leftmost node has any key, which is never looked at.) A link in an inner
//!   node is replaced only by one to a node that covers the same keys; what covers others gets
//!   another slot. So each order of an inner node, with links loaded later, leads to each key in
//!   one way.
//! - ordered_map.T3 Whatever is unlinked is retired, in a domain that is not bounded: a node that
//!   was replaced leads to what it led to, as long as a section is open. A reader that is in one
//!   goes on there. It was in the tree after the read began, and stays as it was in its last
//!   moment; so what the reader finds was so in that moment, or is so now.
//! - ordered_map.T4 A node changes under its lock. An updater finds its place without one, locks
//!   the node, and goes on only if the order is the one in which it found it (ordered_map.T1). To
//!   replace nodes: lock them, from left to right, then their parent; copy the links of inner ones;
//!   put others in their place in the parent; mark them as left when they are unlocked. No thread
//!   locks a node that was left.
//! - ordered_map.T5 No user code runs under a lock: keys are compared before; keys and values are
//!   cloned before, for the nodes that may take the place of others, and dropped after.

mod build;
mod direct;
mod into_iter;
mod iter;
#[cfg(all(test, manycore_loom))]
mod loom_tests;
mod node;
mod order;
mod traits;
mod tree;
mod value;
mod view;

use self::node::Node;
use super::Counter;
use crate::section::Domain;
use crate::sync::{AtomicPtr, const_fn};
pub use into_iter::OrderedMapIntoIter;
pub use iter::{OrderedMapIter, OrderedMapKeys, OrderedMapValues};
use std::marker::PhantomData;
use std::ptr;
pub use view::OrderedMapView;

/// A concurrent map that keeps its keys in order, for many reads and updates of different keys:
/// reads take no lock and write nothing.
///
/// What for: ranges and neighbours beside look-ups, in both directions: order books, indices by
/// time, tables in memory, priority queues. When not: if no order is needed, a
/// [`HashMap`](super::HashMap) is faster; if threads seldom meet, a `std::collections::BTreeMap`
/// behind a lock; for values under ranges of numbers take a [`RangeMap`](super::RangeMap). Keys are
/// cloned, some two times each while the map grows, and values may be. One that costs much to
/// clone, or has a state that changes, goes into an `Arc`.
///
/// The map's own methods do one thing each, and hand values out as copies or to a closure. A view
/// ([`enter`](Self::enter)) opens a section for many calls, and lends references to keys and values
/// that borrow from it.
///
/// ```
/// use manycore::collections::OrderedMap;
///
/// let orders = OrderedMap::new();
/// std::thread::scope(|s| {
///     s.spawn(|| assert!(orders.insert(105, "ann")));
///     s.spawn(|| assert!(orders.insert(99, "bob")));
/// });
/// let view = orders.enter(); // for references, and for many calls
/// assert_eq!(view.first(), Some((&99, &"bob")));
/// assert_eq!(view.range(100..).next(), Some((&105, &"ann")));
/// assert_eq!(view.pop_last(), Some((&105, &"ann")));
/// assert_eq!(view.len(), 1);
/// ```
///
/// - Consistency: linearizable for each key, and so are the first and the last entry. `len` and
///   walks are not snapshots: [`iter`](OrderedMapView::iter) says what a walk may miss.
/// - Progress: a look-up never waits, nor goes back. An update finds its place as a look-up does,
///   and locks one node for a few stores; one in seven insertions also makes two nodes of one, and
///   locks its parent, too. No code of the user's runs under a lock.
/// - Cost of a look-up: a node for each level, of which there are five or six for a million keys.
///   Of an update: one slot, and one insertion in seven makes one or two nodes of its own; a value
///   that does not lie in its slot is allocated, and the one before retired.
///   [`enter`](Self::enter): some 2 ns; keep a view for many calls, not for ever.
/// - Memory: for keys and values of 8 bytes 30 bytes an entry after insertions in any order, and 22
///   if it was collected. A node takes 24 bytes, and a key and a word for each of its 15 slots. A
///   value that fits into the word, and has no drop glue, lies in it; any other has a block of its
///   own, of its size or 16 bytes. An empty map takes 40 bytes, its domain 1,200 from the first
///   view on, and 400 more for each further thread.
/// - Removed values, and nodes that others replaced, wait for open views; one that stalls holds all
///   of them that were removed since it was opened. [`Domain`] says how their bytes are bounded
///   otherwise, and when what is removed is dropped. The key of a removed entry, and one that
///   another has replaced, stay until their node is replaced: after fourteen updates there, or
///   fewer.
/// - Panics: one in `Ord`, `Clone` or a closure leaves the map in order. If a removal or
///   [`first`](OrderedMapView::first) tidies up, and `Clone` panics there, the removal is done. One
///   in a `Drop` surfaces in whichever call frees the entry, with that call's own work done; when
///   the map is dropped, all entries are dropped before it goes on.
/// - User code may use the map in any way, also from within `Ord` and `Clone`. If `Ord` contradicts
///   itself, keys may be lost or there twice, and walks out of order. Every call still ends, but
///   that [`compute`](OrderedMapView::compute) may call its closure again while it does so.
/// - Source: Y. Mao, E. Kohler, R. Morris, *Cache craftiness for fast multicore key-value storage*
///   (EuroSys 2012), for leaves whose keys are ordered by one word; that nodes keep their range,
///   and readers go on in those that were replaced, is ours; reclamation by
///   [`section`](crate::section).
///
/// A value does not outlive its view:
/// ```compile_fail
/// let map = manycore::collections::OrderedMap::from([(1, 2)]);
/// let view = map.enter();
/// let two = view.get(&1);
/// drop(view);
/// println!("{two:?}");
/// ```
#[doc(alias = "BTreeMap")]
#[doc(alias = "SkipMap")]
#[doc(alias = "skip list")]
pub struct OrderedMap<K, V> {
    root: AtomicPtr<Node<K, V>>,
    count: Counter,
    /// Last: it frees what was retired when it is dropped.
    domain: Domain,
    _entries: PhantomData<(K, V)>,
}

// SAFETY: the map owns its keys and values, and other threads drop them, too.
unsafe impl<K: Send + Sync, V: Send + Sync> Send for OrderedMap<K, V> {}
// SAFETY: it is for that: threads that share it share its keys and values, and drop those of
// others.
unsafe impl<K: Send + Sync, V: Send + Sync> Sync for OrderedMap<K, V> {}

impl<K, V> OrderedMap<K, V> {
    const_fn! {
        /// An empty map. Allocates nothing until the first insertion.
        ///
        /// ```
        /// use manycore::collections::OrderedMap;
        ///
        /// static PORTS: OrderedMap<u16, &str> = OrderedMap::new();
        ///
        /// PORTS.insert(80, "http");
        /// assert_eq!(PORTS.get_cloned(&80), Some("http"));
        /// ```
        #[must_use]
        pub const fn new() -> Self {
            Self {
                root: AtomicPtr::new(ptr::null_mut()),
                count: Counter::new(0),
                domain: Domain::new(),
                _entries: PhantomData,
            }
        }
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

    /// The domain of the map's sections: how much garbage waits there, and for which readers.
    pub fn domain(&self) -> &Domain {
        &self.domain
    }
}
