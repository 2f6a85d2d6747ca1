//! A hash table of elements with a shared part, and a local part in each place that uses them.
//!
//! Owns: [`DHash`]. The master table is in the root of a [`Clustered`] object; each representative
//! has a local table.
//!
//! A table begins *centralized*: there is only the master table, whose elements have one more part,
//! the central one, which all threads use. Once the table is *distributed*, hits go to local
//! tables, which begin empty. The central parts stay where they are.
//!
//! ```text
//! centralized:  master table   [ key | shared | central ]      all hits
//!
//! distributed:  master table   [ key | shared | central | which places have a copy ]
//!                                   /                \
//!               local tables   [ key | shared | local ]  [ key | shared | local ]   all hits
//! ```
//!
//! Laws (dhash.M1 to dhash.M4 are those of `replicated_map`, for elements in place of values):
//! - dhash.M1 A local table holds only elements that the master table holds: a copy of the shared
//!   part, and the local part of that place. The master's element says which places may have a
//!   copy, and has the central part.
//! - dhash.M2 A thread adds to the master table, marks a place and adds to a local table under the
//!   lock of the master's shard. A local table changes under its own lock inside of that
//!   (cluster.H5). A hit takes the local lock alone.
//! - dhash.M3 A call about a whole element is a change of its shared part, a gathering or a
//!   removal. It holds the lock of the master's shard and those of all local tables that have the
//!   element, at the same time. It takes the local locks in the order of the places. So the call
//!   happens at one moment: no part changes between the look at the parts and the action on them.
//! - dhash.M4 Keys and parts that leave are dropped when no lock is held.
//! - dhash.M5 Each local table, and each shard of the master, grows and shrinks by itself, under
//!   its own lock. Hashes are stored, so growing and shrinking run no user code.
//! - dhash.M6 Re-entrancy: a thread inside of the table, in a closure or in code of a key or part,
//!   holds a lock, and is refused the table. It could deadlock with itself by way of another thread
//!   (`reentrancy`). For a hit in the table of the thread's own slot, that table's lock records it.
//! - dhash.M7 Whether the table is centralized or distributed decides only which part a hit uses:
//!   the central one or its place's. A call about a whole element takes all parts there are. So it
//!   is harmless if a thread misses a change of the form, no thread waits for such a change, and
//!   distributing moves nothing.
//! - dhash.M8 is in `distribution`: when a table is distributed by itself.
//! - dhash.M9 A call compares and hashes a key once, to find an element. From then on the element
//!   is its [`Tag`]: its parts are matched, shared, folded and removed by the tag. So a key with an
//!   inconsistent `Hash`, `Eq`, `Borrow` or `Clone` finds a wrong element or none, but never mixes
//!   up the parts of two elements.
//! - dhash.M10 A removed element is dropped before the answer is made: a destructor that panics
//!   would leak an answer that waits to be returned.
//!
//! Source: K42's DHash, section 4.3 and figure 11 of the paper. There a hit counts itself into its
//! table, so that the table is not resized under it, and then locks the element. Here the lock of
//! the local table does both, which saves one atomic instruction. With a table for each thread,
//! only calls about whole elements compete for that lock. K42's tables do not shrink.

mod builder;
mod by_key;
mod distribution;
mod element;
mod element_ops;
mod inspect;
#[cfg(all(test, manycore_loom))]
mod loom_tests;
mod reentrancy;
mod table;
mod tagged;

pub use builder::DHashBuilder;
pub use distribution::{Contention, DHashStats, Distribution, DistributionReason};

use super::Line;
use super::reentrancy_lock::{ReentrancyGuard, ReentrancyLock, panic_on_reentrancy};
use crate::cluster::{Clustered, Rep};
use crate::config::SMALL;
use crate::sync::seeded_bug;
use distribution::{Form, Window};
use element::{Element, LocalElement};
use reentrancy::TableUse;
use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};
use std::num::NonZero;
use std::panic::Location;
use std::ptr;
pub(super) use table::{Table, Tag, Tagged};

/// Locks of the master table by default: misses of different elements seldom wait for each other.
const SHARDS: usize = if SMALL { 1 } else { 16 };
/// The most that [`DHashBuilder::shards`] makes.
const SHARDS_MAX: usize = if SMALL { 1 } else { 1024 };

/// Returns the shard of a hash, out of `shards`, a power of two.
#[inline(always)]
fn shard_of(hash: u64, shards: usize) -> usize {
    // Neither the lowest bits nor the highest seven: the tables look at those first.
    (hash >> 48) as usize & (shards - 1)
}

/// A part of the master table.
struct Shard<K, Shared, Local> {
    table: Table<Element<K, Shared, Local>>,
    window: Window,
    /// Id of the next element. Each shard has its own remainder, so no two shards give the same id.
    next_id: u64,
    shards: u64,
}

impl<K, Shared, Local> Shard<K, Shared, Local> {
    fn new(number: usize, shards: usize) -> Self {
        let (next_id, shards) = (number as u64, shards as u64);
        Self { table: Table::new(), window: Window::default(), next_id, shards }
    }

    /// Adds an element, whose hash belongs to this shard.
    fn add(&mut self, hash: u64, key: K, shared: Shared) -> Tag {
        let tag = Tag { hash, id: self.next_id };
        self.table.insert(Element::new(tag, key, shared));
        self.next_id += self.shards;
        tag
    }
}

type Shards<K, Shared, Local> = Box<[Line<ReentrancyLock<Shard<K, Shared, Local>>>]>;

struct Root<K, Shared, Local, S> {
    shards: Shards<K, Shared, Local>,
    form: Form,
    hasher: S,
}

/// The start of a search for an element, and where the search found it.
#[derive(Debug)]
pub(super) struct Lookup {
    /// The hash alone until the element is found.
    tag: Tag,
    index: usize,
    /// True if the search used the central part.
    is_central: bool,
}

impl Lookup {
    pub(super) fn new(hash: u64) -> Self {
        Self::of(Tag { hash, id: u64::MAX })
    }

    /// Starts a search for this element.
    pub(super) fn of(tag: Tag) -> Self {
        Self { tag, index: 0, is_central: false }
    }

    /// Returns the tag of the element, if it was found.
    #[inline(always)]
    pub(super) fn tag(&self) -> Tag {
        self.tag
    }

    /// Returns the index in the place's table, if the element was found there.
    #[inline(always)]
    pub(super) fn near(&self) -> Option<NonZero<usize>> {
        if self.is_central { None } else { NonZero::new(self.index + 1) }
    }
}

/// Notes that the thread is inside of this table until the end of the block, or panics if it is
/// already (dhash.M6). User values that the block drops must outlive the block.
macro_rules! enter {
    ($table:expr) => {
        let table_use = TableUse::new(ptr::from_ref($table).cast());
        let _entered = table_use.enter();
        $table.refuse_in_hit();
    };
}
use enter;

/// Same for a hit: `$place` is the calling thread's place. If that is its own slot's, it needs no
/// note.
macro_rules! enter_place {
    ($table:expr, $place:ident) => {
        let table_use = TableUse::new(ptr::from_ref($table).cast());
        let _entered;
        let $place = match $table.object.near() {
            Some(near) => {
                table_use.refuse();
                near
            }
            None => {
                _entered = table_use.enter();
                $table.object.local()
            }
        };
    };
}
use enter_place;

struct LocalTable<K, Shared, Local, S> {
    place: usize,
    table: ReentrancyLock<Table<LocalElement<K, Shared, Local>>>,
    _hasher: std::marker::PhantomData<fn() -> S>,
}

impl<K, Shared, Local, S> Rep for LocalTable<K, Shared, Local, S>
where
    K: Send + Sync + 'static,
    Shared: Send + Sync + 'static,
    Local: Send + 'static,
    S: Send + Sync + 'static,
{
    type Root = Root<K, Shared, Local, S>;

    fn create(_root: &Self::Root, place: usize) -> Self {
        Self { place, table: ReentrancyLock::new(Table::new()), _hasher: std::marker::PhantomData }
    }
}

/// A hash table for elements that all threads use, with a part of each element per thread: hits,
/// dirty bits, borrowed references, statistics by key.
///
/// All threads agree on the *shared part* of an element. An element has one or more *local parts*,
/// and each begins as `Local::default()`.
///
/// - [`with_local`](Self::with_local) gives the caller the shared part and one local part.
/// - [`gather`](Self::gather) folds the local parts.
/// - [`update_shared`](Self::update_shared) changes the shared part everywhere.
/// - [`remove`](Self::remove) removes the element and returns all of its parts.
///
/// A table begins *centralized*: each element has one local part, which all threads use, under one
/// of 16 locks ([`DHashBuilder::shards`] makes fewer, or more).
///
/// If threads wait for each other (see [`Distribution`]), the table is *distributed*. From then on,
/// each place on the machine that uses an element has its own copy of the shared part and its own
/// local part, under an uncontended lock. A place is a thread, unless a
/// [`Placement`](crate::cluster::Placement) says otherwise. The part that all threads used before
/// stays, and is gathered with the others. So a thread may find another part than it used before:
/// treat a part as a share of a sum, not as the thread's private data. ([`Distribution::Always`]
/// gives each place its own part from the start.)
///
/// A distributed table stays distributed: that costs a single thread little, and copies of parts go
/// with their elements. [`fold`](Self::fold) brings the parts together again; call it if you know
/// how to add parts up, and that the contention is over.
///
/// What for: descriptors that all threads change at every use, and that are occasionally read as a
/// whole. When not: if elements have no part for each thread, take
/// [`ReplicatedMap`](super::ReplicatedMap) or [`HashMap`](super::HashMap). For a fixed number of
/// counts, take [`CounterArray`](super::CounterArray). Nor if one thread uses most elements once,
/// because a thread's first use copies the shared part.
///
/// ```
/// use manycore::collections::DHash;
///
/// // Pages by number; each thread keeps whether it has written to the page.
/// let pages = DHash::<u64, String, bool>::new();
/// pages.insert(7, "seven".into());
/// std::thread::scope(|s| {
///     for writes in [false, true, false] {
///         let pages = &pages;
///         s.spawn(move || pages.with_local(&7, |_page, dirty| *dirty |= writes));
///     }
/// });
/// // Has anybody? Asked and cleared at one moment.
/// let dirty = pages.gather(&7, false, |any, dirty| any | std::mem::take(dirty));
/// assert_eq!(dirty, Some(true));
/// let (page, bits) = pages.remove(&7).unwrap();
/// assert_eq!(page, "seven");
/// assert!(bits.iter().all(|dirty| !dirty));
/// ```
///
/// - Consistency: linearizable for each key, also for gatherings and removals: each happens at one
///   moment. When [`update_shared`](Self::update_shared) or a removal returns, no place has the old
///   element. Calls about all keys ([`len`](Self::len), [`snapshot`](Self::snapshot),
///   [`clear`](Self::clear)) see one part of the table after the other.
/// - Progress: blocking. A hit waits for other calls of the same place, and for calls about a whole
///   element that the place has.
/// - Cost: a hit is a look-up under a lock, a few ns. Centralized, the lock is one of 16, and the
///   hit is counted. Distributed, the lock is the place's, and a hit writes no shared line unless
///   the closure does. A miss of a distributed table locks a sixteenth of the master table and
///   copies the shared part. A call about a whole element takes one lock if the table is
///   centralized. Distributed, it takes the locks of all places that have used the element: some
///   cache misses each.
/// - Memory: centralized, each element once. Distributed, each element once more for each place
///   that has used it, so twice as much even with one thread. Every table grows when it must, and
///   shrinks when seven eighths of it are empty.
/// - Panics: if a closure, a key's `Hash` or `Eq`, or a part's `Clone` or `Default` uses the same
///   table while a call of it runs. Also if it closes a cycle of threads whose closures use each
///   other's tables. A panic of user code leaves the table in order, and each part as the user code
///   left it.
/// - Source: [K42](crate#sources)'s DHash, section 4.3.
#[doc(alias = "per-thread map")]
pub struct DHash<K, Shared, Local, S = RandomState>
where
    K: Send + Sync + 'static,
    Shared: Send + Sync + 'static,
    Local: Send + 'static,
    S: Send + Sync + 'static,
{
    object: Clustered<LocalTable<K, Shared, Local, S>>,
}

impl<K, Shared, Local, S> DHash<K, Shared, Local, S>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    Shared: Clone + Send + Sync + 'static,
    Local: Default + Send + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    #[inline]
    pub(super) fn hash<Q: Hash + ?Sized>(&self, key: &Q) -> u64 {
        self.object.root().hasher.hash_one(key)
    }

    /// Panics if the calling thread is in a hit in its own slot's table (dhash.M6).
    #[inline(always)]
    #[track_caller]
    fn refuse_in_hit(&self) {
        if self.object.near().is_some_and(|place| place.table.is_mine()) {
            panic_on_reentrancy();
        }
    }

    /// Returns the number of shards of the master table.
    #[inline(always)]
    fn shards(&self) -> usize {
        self.object.root().shards.len()
    }

    /// Locks the shard of an element with this hash. The caller has entered the table.
    #[inline]
    #[track_caller]
    fn shard_for(&self, hash: u64) -> ReentrancyGuard<'_, Shard<K, Shared, Local>> {
        self.shard(shard_of(hash, self.shards()))
    }

    /// Locks a shard of the master table (dhash.M2). The caller has entered the table.
    #[inline]
    #[track_caller]
    fn shard(&self, shard: usize) -> ReentrancyGuard<'_, Shard<K, Shared, Local>> {
        self.object.root().shards[shard].0.hold()
    }

    /// Runs `f` on the shared part and a local part of the element for which `which` returns true.
    /// Looks at the elements with the hash of `lookup`, and notes in `lookup` which element it
    /// found, and where.
    #[inline(always)]
    #[track_caller]
    pub(super) fn with_local_at<T>(
        &self,
        lookup: &mut Lookup,
        which: impl Fn(Tag, &K) -> bool,
        f: impl FnOnce(&Shared, &mut Local) -> T,
    ) -> Option<T> {
        lookup.is_central = !self.object.root().form.is_distributed();
        if lookup.is_central {
            return self.with_central(lookup, which, f);
        }
        {
            enter_place!(self, place);
            let mut table = place.table.hold();
            if let Some(near) = table.find_at(lookup, |near| which(near.tag, &near.key)) {
                return Some(f(&near.shared, &mut near.local));
            }
        }
        self.bring(lookup, which, f)
    }

    /// Runs `f` on the shared part and the central part.
    #[inline(always)]
    #[track_caller]
    fn with_central<T>(
        &self,
        lookup: &mut Lookup,
        which: impl Fn(Tag, &K) -> bool,
        f: impl FnOnce(&Shared, &mut Local) -> T,
    ) -> Option<T> {
        enter!(self);
        let shards = &self.object.root().shards;
        let shard = &shards[shard_of(lookup.tag.hash, shards.len())];
        let (mut shard, waited) = shard.0.hold_told(Location::caller());
        let Shard { table, window, .. } = &mut *shard;
        if window.count(waited) {
            self.object.root().form.look(window);
        }
        let element = table.find_at(lookup, |element| which(element.tag, &element.key))?;
        Some(f(&element.shared, element.central.get_or_insert_default()))
    }

    /// Makes the local copy of an element that the master has (dhash.M2), and runs `f` on it.
    #[cold]
    #[track_caller]
    fn bring<T>(
        &self,
        lookup: &mut Lookup,
        which: impl Fn(Tag, &K) -> bool,
        f: impl FnOnce(&Shared, &mut Local) -> T,
    ) -> Option<T> {
        let _spare; // dhash.M4: outlives the locks
        enter!(self);
        let place = self.object.local();
        let mut table;
        {
            let mut master = self.shard_for(lookup.tag.hash);
            let found = |element: &Element<_, _, _>| which(element.tag, &element.key);
            let element = master.table.find_mut(lookup.tag.hash, found)?;
            lookup.tag = element.tag; // dhash.M9
            let (key, shared) = (element.key.clone(), element.shared.clone());
            let near = LocalElement { tag: element.tag, key, shared, local: Local::default() };
            element.replica_mask.add(place.place);
            // BUG: a found value is cached after the root's lock was given up (cluster.H5).
            if seeded_bug!("cached-unlocked") {
                drop(master);
            }
            table = place.table.hold();
            if table.index_of_tag(lookup.tag).is_none() {
                table.insert(near);
            } else {
                _spare = near; // another thread of the place was first
            }
        }
        let tag = lookup.tag;
        let near = table.find_at(lookup, |near| near.tag == tag)?;
        Some(f(&near.shared, &mut near.local))
    }

    /// Distributes the table: from now on each place uses its own parts. Returns true if the table
    /// is distributed then; it is not if it was built to stay centralized.
    ///
    /// The call itself moves nothing: each place's first use of an element makes its part.
    pub fn distribute(&self) -> bool {
        self.object.root().form.ask(true)
    }
}

impl<K, Shared, Local> Default for DHash<K, Shared, Local>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    Shared: Clone + Send + Sync + 'static,
    Local: Default + Send + 'static,
{
    fn default() -> Self {
        Self::new()
    }
}

impl<K, Shared, Local, S> fmt::Debug for DHash<K, Shared, Local, S>
where
    K: Eq + Hash + Clone + fmt::Debug + Send + Sync + 'static,
    Shared: Clone + fmt::Debug + Send + Sync + 'static,
    Local: Default + Send + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.snapshot()).finish()
    }
}
