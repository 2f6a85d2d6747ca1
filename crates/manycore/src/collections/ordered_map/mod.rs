//! An ordered map for many reads and updates of different keys: reads take no lock and write
//! nothing.
//!
//! Owns: [`OrderedMap`], its views and its iterators. `tree` searches the tree and replaces nodes,
//! `node` has the slots of a node, and `order` has the word that orders them.
//!
//! ```text
//! inner   order: 0 2 1     0 a ..      1 k ..      2 c ..     A new entry goes into the next slot
//!                |                                            that was never used; then the order
//! leaf    order: 2 0 3     0 a "one"   1 b (gone)             is replaced. A removal replaces the
//!                          2 _ "two"   3 b "new"              order. A full node is replaced.
//! ```
//!
//! Laws:
//! - ordered_map.T1 A node has slots, each with a key and a word, and one word that orders the
//!   slots in use. Slots are filled once, one after the other. A slot is filled before it gets into
//!   an order, and does not change until the node is freed (except the link of an inner node,
//!   ordered_map.T2). So a thread that has loaded the order may search it at any time later, and if
//!   the order is the same, so are the entries.
//! - ordered_map.T2 A leaf has values; an inner node has links to nodes. A node covers the keys
//!   from its own key in the parent up to the next key there, and it covers the same keys for as
//!   long as it exists. (The first child of a leftmost node may have any key, which is never
//!   compared.) A link in an inner node is replaced only by a link to a node that covers the same
//!   keys. A node that covers other keys gets another slot. So each order of an inner node leads to
//!   each key in one way, even if links are loaded later.
//! - ordered_map.T3 Everything that is unlinked is retired, in a domain that is not bounded. So as
//!   long as a section is open, a replaced node still leads to the same nodes. A reader inside a
//!   replaced node continues there. That node was in the tree after the read began, and does not
//!   change after it was replaced. So the reader's answer was true when the node was replaced, or
//!   is true now.
//! - ordered_map.T4 A node changes under its lock. An updater finds its place without a lock, locks
//!   the node, and continues only if the order is still the order that it has found
//!   (ordered_map.T1). To replace nodes, a thread locks them from left to right, and then their
//!   parent. It copies the links of inner nodes, links the new nodes in the parent, and marks the
//!   old nodes as replaced when it unlocks them. No thread locks a replaced node.
//! - ordered_map.T5 No user code runs under a lock. Keys are compared before. The keys and values
//!   of new nodes are cloned before, and dropped after.

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
/// Use this for ranges and neighbours beside look-ups, in both directions: order books, indices by
/// time, tables in memory, priority queues. When not: if no order is needed, a
/// [`HashMap`](super::HashMap) is faster. If threads rarely contend, use a
/// `std::collections::BTreeMap` behind a lock. For values under ranges of numbers, use a
/// [`RangeMap`](super::RangeMap). Keys are cloned, some two times each while the map grows, and
/// values may be. Put a key or value into an `Arc` if it is expensive to clone or has a state that
/// changes.
///
/// Each method of the map does one thing, and returns entries as copies or shows them to a closure.
/// A view ([`enter`](Self::enter)) opens a section for many calls, and its methods return
/// references to keys and values that borrow from it.
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
/// - Consistency: linearizable for each key, and for the first and the last entry. `len` and
///   iterators are not snapshots: [`iter`](OrderedMapView::iter) says what an iterator may miss.
/// - Progress: a look-up never waits and never starts again. An update finds its place as a look-up
///   does, and locks one node for a few stores. One insertion in seven also splits a node, and
///   locks its parent, too. No user code runs under a lock.
/// - Cost of a look-up: a node for each level. A million keys have five or six levels.
/// - Cost of an update: one slot, and in one insertion of seven one or two new nodes. A value that
///   does not fit in its slot is allocated, and the old value retired. [`enter`](Self::enter) takes
///   some 2 ns. Keep a view for many calls, but not for ever.
/// - Memory: with keys and values of 8 bytes, an entry takes 30 bytes after insertions in any
///   order, and 22 if the map was collected. A node takes 24 bytes, and a key and a word for each
///   of its 15 slots. A value that fits into the word and has no drop glue lies in it. Any other
///   value has a block of its own, of its size or 16 bytes. An empty map takes 40 bytes. Its domain
///   takes 1,200 from the first view on, and 400 more for each further thread.
/// - Removed values and replaced nodes wait for open views. A view that stalls holds all values and
///   nodes that were removed since it was opened. Otherwise [`Domain`] says how their bytes are
///   bounded, and when they are dropped. A removed or replaced key stays until its node is
///   replaced, which takes at most fourteen updates of that node.
/// - Panics: a panic in `Ord`, `Clone` or a closure leaves the map consistent. If a removal or
///   [`first`](OrderedMapView::first) joins nodes and `Clone` panics there, the removal has been
///   done. A panic in a `Drop` surfaces in the call that frees the entry, after that call has done
///   its own work. When the map is dropped, all its entries are dropped before such a panic goes
///   on.
/// - User code may use the map in any way, also from within `Ord` and `Clone`. If `Ord` contradicts
///   itself, keys may be lost or present twice, and iterators may yield them out of order. Every
///   call still ends, except that [`compute`](OrderedMapView::compute) may call its closure again
///   for as long as `Ord` contradicts itself.
/// - Source: Y. Mao, E. Kohler, R. Morris, *Cache craftiness for fast multicore key-value storage*
///   (EuroSys 2012), for leaves whose keys are ordered by one word. It is our own that nodes keep
///   their range and that readers continue in replaced nodes. Reclamation by
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
    /// Last field: dropping it frees retired values and nodes.
    domain: Domain,
    _entries: PhantomData<(K, V)>,
}

// SAFETY: the map owns its keys and values, and other threads may drop them.
unsafe impl<K: Send + Sync, V: Send + Sync> Send for OrderedMap<K, V> {}
// SAFETY: threads that share the map share its keys and values, and drop those of other threads.
unsafe impl<K: Send + Sync, V: Send + Sync> Sync for OrderedMap<K, V> {}

impl<K, V> OrderedMap<K, V> {
    const_fn! {
        /// Makes an empty map. Allocates nothing until the first insertion.
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

    /// Returns the domain of the map's sections: how much garbage waits there, and for which
    /// readers.
    pub fn domain(&self) -> &Domain {
        &self.domain
    }
}
