//! A hash table whose elements have a part in common and a part in each place.
//!
//! Owns: [`DHash`]. The master table is in the root of a [`Clustered`] object, a local table in
//! each representative.
//!
//! Laws (M1 to M4 are those of `replicated_map`, for elements in place of values):
//! - M1 A local table holds nothing but elements that the master table holds: a copy of the shared
//!   part, and the local part of that place. The master's element says which places may have one.
//! - M2 Master, mark and local element are made under the lock of the master's shard, and a local
//!   table changes under its own lock inside of that (H5 of [`cluster`](crate::cluster)). A hit
//!   takes the local lock alone.
//! - M3 What concerns a whole element (a change of its shared part, a gathering, a removal) holds
//!   the locks of all local tables that have it at the same time, taken in the order of the places.
//!   So it happens at one moment, and no local part changes between the look at the parts and what
//!   is done about it.
//! - M4 Keys and parts that leave are dropped when no lock is held.
//! - M5 Each table, and each shard of the master, grows and shrinks by itself, under its own lock.
//!   Hashes are kept, so that takes no code of the user's.
//! - M6 Who is inside of an element's closure holds a local lock, its own place's among them, and
//!   is refused whatever needs another: it could wait for itself by way of another thread.
//!
//! Source: K42's DHash, section 4.3 and figure 11 of the paper. There a hit counts itself into its
//! table, so that the table is not resized under it, and then locks the element. Here the lock of
//! the local table is both, which is one atomic instruction and one wait less; with a table for
//! each thread nobody else wants that lock but for whole elements. K42's tables do not shrink.

mod element;
#[cfg(all(test, manycore_loom))]
mod loom_tests;
mod table;

use super::Line;
use super::held::{Held, HeldGuard, held_by_self};
use super::holders::Holders;
use crate::cluster::{Clustered, Placement, Rep};
use crate::config::SMALL;
use crate::percpu;
use crate::sync::{Bug, seeded_bug};
use element::{Element, Near, Whole};
use std::borrow::Borrow;
use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};
use std::panic::Location;
use table::Table;

/// Locks of the master table: misses of different elements seldom wait for each other.
const SHARDS: usize = if SMALL { 1 } else { 16 };

const _: () = assert!(SHARDS.is_power_of_two());

fn shard_of(hash: u64) -> usize {
    // Not the bits that the tables look at first: neither the lowest ones, nor the highest seven.
    (hash >> 48) as usize & (SHARDS - 1)
}

type Shard<K, Shared> = Line<Held<Table<Element<K, Shared>>>>;

struct Root<K, Shared, S> {
    shards: Box<[Shard<K, Shared>]>,
    hasher: S,
}

struct Place<K, Shared, Local, S> {
    place: usize,
    table: Held<Table<Near<K, Shared, Local>>>,
    _hasher: std::marker::PhantomData<fn() -> S>,
}

impl<K, Shared, Local, S> Rep for Place<K, Shared, Local, S>
where
    K: Send + Sync + 'static,
    Shared: Send + Sync + 'static,
    Local: Send + 'static,
    S: Send + Sync + 'static,
{
    type Root = Root<K, Shared, S>;

    fn create(_root: &Self::Root, place: usize) -> Self {
        Self { place, table: Held::new(Table::new()), _hasher: std::marker::PhantomData }
    }
}

/// A hash table for elements that all threads use, and of which each thread keeps its own part:
/// hits, dirty bits, borrowed references, statistics by key.
///
/// The *shared part* of an element is what all agree on. A place on the machine (a thread, unless
/// a [`Placement`] says otherwise) that uses the element has a copy of it, and beside that a *local
/// part*, which begins as `Local::default()`. [`with_local`](Self::with_local) gives the caller
/// both, under a lock that nobody else wants. [`gather`](Self::gather) folds the local parts,
/// [`update_shared`](Self::update_shared) changes all copies, [`remove`](Self::remove) brings all
/// parts home.
///
/// What for: descriptors that are changed at every use, by everybody, and looked at as a whole now
/// and then. When not: where elements have no part of their own for each thread, take
/// [`ReplicatedMap`](super::ReplicatedMap) or [`HashMap`](super::HashMap); for a fixed number of
/// counts, [`CounterArray`](super::CounterArray); where most elements are used by one thread once,
/// because the first use by a thread copies the shared part.
///
/// - Consistency: linearizable for each key, gatherings and removals among them: each happens at
///   one moment. When [`update_shared`](Self::update_shared) or a removal returns, no place has the
///   old element. Calls about all keys ([`len`](Self::len), [`snapshot`](Self::snapshot),
///   [`clear`](Self::clear)) see one part of the table after the other.
/// - Progress: blocking. A hit waits for calls of the same place, and for what concerns a whole
///   element that the place has.
/// - Cost: a hit is a look-up under a lock without contention, a few ns, and writes no shared line,
///   unless the closure does. A miss locks a sixteenth of the master table and copies the shared
///   part. What concerns a whole element locks the tables of all places that have used it: some
///   cache misses each.
/// - Memory: each element once, and once more in each place that has used it. Every table grows
///   when it must, and shrinks when seven eighths of it are empty.
/// - Panics: if a closure, or a key's `Hash` or `Eq`, or `Clone` or `Default` of a part, uses the
///   same table. (With a placement other than [`PerCore`](Placement::PerCore) such a use may go
///   unnoticed if the thread has moved to another place meanwhile. It is wrong all the same.) A
///   panic of user code leaves the table in order, and the parts that it changes as it left them.
/// - Source: K42's DHash, section 4.3 of the paper.
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
pub struct DHash<K, Shared, Local, S = RandomState>
where
    K: Send + Sync + 'static,
    Shared: Send + Sync + 'static,
    Local: Send + 'static,
    S: Send + Sync + 'static,
{
    object: Clustered<Place<K, Shared, Local, S>>,
}

impl<K, Shared, Local> DHash<K, Shared, Local>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    Shared: Clone + Send + Sync + 'static,
    Local: Default + Send + 'static,
{
    /// An empty table with a local one for each thread.
    #[must_use]
    pub fn new() -> Self {
        Self::with_hasher(Placement::default(), RandomState::new())
    }

    /// An empty table with local ones of this placement.
    #[must_use]
    pub fn with_placement(placement: Placement) -> Self {
        Self::with_hasher(placement, RandomState::new())
    }
}

impl<K, Shared, Local, S> DHash<K, Shared, Local, S>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    Shared: Clone + Send + Sync + 'static,
    Local: Default + Send + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    /// An empty table that hashes by `hasher`.
    #[must_use]
    pub fn with_hasher(placement: Placement, hasher: S) -> Self {
        let shards = (0..SHARDS).map(|_| Line(Held::new(Table::new()))).collect();
        Self { object: Clustered::new(placement, Root { shards, hasher }) }
    }

    #[inline]
    fn hash<Q: Hash + ?Sized>(&self, key: &Q) -> u64 {
        self.object.root().hasher.hash_one(key)
    }

    /// The shard of the master table that has such elements (M2).
    ///
    /// # Panics
    /// If the calling thread is inside an element.
    #[track_caller]
    fn master(&self, shard: usize) -> HeldGuard<'_, Table<Element<K, Shared>>> {
        let shards = &self.object.root().shards;
        // A thread keeps its slot for as long as it has one, but it may change its node.
        let is_fixed =
            self.object.placement() == Placement::PerCore && percpu::own_slot().is_some();
        let is_inside = if is_fixed {
            self.object.at(self.object.place()).is_some_and(|place| place.table.is_mine())
        } else {
            self.object.reps().any(|(_, place)| place.table.is_mine())
        };
        if is_inside || shards.iter().any(|shard| shard.0.is_mine()) {
            held_by_self();
        }
        shards[shard].0.hold()
    }

    /// Runs `f` on the element's shared part and on the local part of the calling thread's place.
    /// `None` if there is no such element.
    ///
    /// # Panics
    /// If `f` does, or if it uses the table (see the type).
    #[inline]
    #[track_caller]
    pub fn with_local<Q, T>(&self, key: &Q, f: impl FnOnce(&Shared, &mut Local) -> T) -> Option<T>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        let hash = self.hash(key);
        let place = self.object.local();
        {
            let mut table = place.table.hold();
            if let Some(near) = table.find_mut(hash, |near| near.key.borrow() == key) {
                return Some(f(&near.shared, &mut near.local));
            }
        }
        self.bring(place, hash, key, f)
    }

    /// Makes the local element of one that the master has (M2), and runs `f` on it.
    #[cold]
    #[track_caller]
    fn bring<Q, T>(
        &self,
        place: &Place<K, Shared, Local, S>,
        hash: u64,
        key: &Q,
        f: impl FnOnce(&Shared, &mut Local) -> T,
    ) -> Option<T>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        let new; // dropped last, if another thread of the place was first
        let mut table;
        {
            let mut master = self.master(shard_of(hash));
            let element = master.find_mut(hash, |element| element.key.borrow() == key)?;
            let (own, shared) = (element.key.clone(), element.shared.clone());
            let near = Near { hash, key: own, shared, local: Local::default() };
            element.holders.add(place.place);
            if seeded_bug(Bug::CachedUnlocked) {
                drop(master);
            }
            table = place.table.hold();
            new = match table.find_mut(hash, |near| near.key.borrow() == key) {
                Some(_) => Some(near),
                None => {
                    table.insert(near);
                    None
                }
            };
        }
        let near = table.find_mut(hash, |near| near.key.borrow() == key)?;
        let seen = f(&near.shared, &mut near.local);
        drop(table);
        drop(new);
        Some(seen)
    }

    /// Whether there is such an element.
    #[track_caller]
    pub fn contains_key<Q>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        self.with_local(key, |_, _| ()).is_some()
    }

    /// A clone of the element's shared part.
    #[inline]
    #[track_caller]
    pub fn get<Q>(&self, key: &Q) -> Option<Shared>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        self.with_local(key, |shared, _| shared.clone())
    }

    /// Locks the local tables of `holders`, and the caller's own (M3, M6), and finds the element
    /// in each. For the holder of the shard's lock.
    #[track_caller]
    fn hold_all<Q>(&self, holders: Holders, hash: u64, key: &Q) -> Whole<'_, K, Shared, Local>
    where
        K: Borrow<Q>,
        Q: Eq + ?Sized,
    {
        let (own, place) = (self.object.place(), Location::caller());
        // By place, as everybody does.
        let concerned = self.object.reps().filter(|&(at, _)| holders.may_include(at) || at == own);
        let held = concerned.map(|(_, at)| {
            let table = at.table.hold_for(place);
            let index = table.index_of(hash, |near| near.key.borrow() == key);
            (table, index)
        });
        Whole { tables: held.collect() }
    }

    /// Adds an element, or gives the one that is there another shared part and returns the old one.
    /// Local parts stay.
    ///
    /// # Panics
    /// From within an element of the table.
    #[track_caller]
    pub fn insert(&self, key: K, shared: Shared) -> Option<Shared> {
        let hash = self.hash(&key);
        let mut out = Vec::new(); // M4: as `key`, it outlives the locks
        let mut master = self.master(shard_of(hash));
        let Some(element) = master.find_mut(hash, |element| element.key == key) else {
            master.insert(Element { hash, key, shared, holders: Holders::default() });
            return None;
        };
        let mut whole = self.hold_all(element.holders, hash, &key);
        whole.share(element, shared, &mut out);
        drop(whole);
        drop(master);
        out.pop()
    }

    /// Adds an element.
    ///
    /// # Errors
    /// If there is one with this key. It stays as it is, and `shared` comes back.
    ///
    /// # Panics
    /// From within an element of the table.
    #[track_caller]
    pub fn try_insert(&self, key: K, shared: Shared) -> Result<(), Shared> {
        let hash = self.hash(&key);
        let mut master = self.master(shard_of(hash));
        if master.find_mut(hash, |element| element.key == key).is_some() {
            drop(master);
            return Err(shared);
        }
        master.insert(Element { hash, key, shared, holders: Holders::default() });
        Ok(())
    }

    /// Changes the element's shared part, everywhere at the same moment.
    ///
    /// # Panics
    /// If `change` does (then nothing is changed), or uses the table.
    #[track_caller]
    pub fn update_shared<Q, T>(&self, key: &Q, change: impl FnOnce(&mut Shared) -> T) -> Option<T>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        self.scatter(key, change, |_| ())
    }

    /// Changes the element's shared part, and each of its local parts, at the same moment. Places
    /// that have not used the element have no local part yet.
    ///
    /// # Panics
    /// If `change` does (then nothing is changed) or `each` does, or one uses the table.
    ///
    /// ```
    /// use manycore::collections::DHash;
    ///
    /// let limits = DHash::<&str, u32, u32>::new();
    /// limits.insert("requests", 100);
    /// limits.with_local("requests", |_, used| *used += 1);
    /// // A new period: another limit, and nothing used.
    /// limits.scatter("requests", |limit| *limit = 50, |used| *used = 0);
    /// assert_eq!(limits.with_local("requests", |limit, used| (*limit, *used)), Some((50, 0)));
    /// ```
    #[track_caller]
    pub fn scatter<Q, T>(
        &self,
        key: &Q,
        change: impl FnOnce(&mut Shared) -> T,
        each: impl FnMut(&mut Local),
    ) -> Option<T>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        let hash = self.hash(key);
        let mut out = Vec::new(); // M4: outlives the locks
        let mut master = self.master(shard_of(hash));
        let element = master.find_mut(hash, |element| element.key.borrow() == key)?;
        let mut whole = self.hold_all(element.holders, hash, key);
        let mut shared = element.shared.clone();
        let answer = change(&mut shared);
        whole.share(element, shared, &mut out);
        whole.locals().for_each(each);
        Some(answer)
    }

    /// Folds the element's local parts, and may change them: all at one moment. Places that have
    /// not used the element have none.
    ///
    /// # Panics
    /// If `fold` does, or if it uses the table.
    #[track_caller]
    pub fn gather<Q, T>(&self, key: &Q, start: T, fold: impl FnMut(T, &mut Local) -> T) -> Option<T>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        let hash = self.hash(key);
        let mut master = self.master(shard_of(hash));
        let element = master.find_mut(hash, |element| element.key.borrow() == key)?;
        let mut whole = self.hold_all(element.holders, hash, key);
        Some(whole.locals().fold(start, fold))
    }

    /// Removes the element, here and in every place, and returns all of its parts.
    ///
    /// # Panics
    /// From within an element of the table.
    #[track_caller]
    pub fn remove<Q>(&self, key: &Q) -> Option<(Shared, Vec<Local>)>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        self.remove_if(key, |_, _| true)
    }

    /// Removes the element if `decide` says so, who sees all of its parts; nothing comes between
    /// the look and the removal.
    ///
    /// # Panics
    /// If `decide` does, or if it uses the table.
    ///
    /// ```
    /// use manycore::collections::DHash;
    ///
    /// // How many references a thread has taken, less those that it gave back.
    /// let objects = DHash::<u32, &str, i32>::new();
    /// objects.insert(1, "one");
    /// objects.with_local(&1, |_, taken| *taken += 1);
    /// let unused = |_: &&str, taken: &mut [&mut i32]| {
    ///     taken.iter().map(|taken| **taken).sum::<i32>() == 0
    /// };
    /// assert_eq!(objects.remove_if(&1, unused), None);
    /// std::thread::scope(|s| s.spawn(|| objects.with_local(&1, |_, taken| *taken -= 1)).join());
    /// assert!(objects.remove_if(&1, unused).is_some());
    /// ```
    #[track_caller]
    pub fn remove_if<Q>(
        &self,
        key: &Q,
        decide: impl FnOnce(&Shared, &mut [&mut Local]) -> bool,
    ) -> Option<(Shared, Vec<Local>)>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        let hash = self.hash(key);
        let mut master = self.master(shard_of(hash));
        let index = master.index_of(hash, |element| element.key.borrow() == key)?;
        let element = master.at(index);
        let mut whole = self.hold_all(element.holders, hash, key);
        if !decide(&element.shared, &mut whole.locals().collect::<Vec<_>>()) {
            return None;
        }
        if seeded_bug(Bug::TornGather) {
            let holders = element.holders;
            drop(whole);
            whole = self.hold_all(holders, hash, key);
        }
        // From here on, nothing of the user's runs until the locks are given up.
        let nears = whole.take();
        let element = master.remove_at(index);
        drop(whole);
        drop(master);
        Some((element.shared, nears.into_iter().map(|near| near.local).collect()))
    }

    /// Removes everything, a part of the table after the other.
    ///
    /// # Panics
    /// From within an element of the table.
    #[track_caller]
    pub fn clear(&self) {
        for shard in 0..SHARDS {
            let mut master = self.master(shard);
            let mut tables: Vec<_> =
                self.object.reps().map(|(_, place)| place.table.hold()).collect();
            let nears: Vec<_> =
                tables.iter_mut().map(|t| t.take(|near| shard_of(near.hash) == shard)).collect();
            let elements = master.take(|_| true);
            drop((tables, master));
            drop((nears, elements)); // M4
        }
    }

    /// How many elements there are, counted in one part of the table after the other.
    #[track_caller]
    pub fn len(&self) -> usize {
        (0..SHARDS).map(|shard| self.master(shard).len()).sum()
    }

    /// Whether there is none.
    #[track_caller]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Clones of all keys and shared parts, of one part of the table after the other.
    #[track_caller]
    pub fn snapshot(&self) -> Vec<(K, Shared)> {
        let clone = |element: &Element<K, Shared>| (element.key.clone(), element.shared.clone());
        let of_shard = |shard| self.master(shard).iter().map(clone).collect::<Vec<_>>();
        (0..SHARDS).flat_map(of_shard).collect()
    }

    /// Clones of all keys, of one part of the table after the other.
    #[track_caller]
    pub fn keys(&self) -> Vec<K> {
        let key = |element: &Element<K, Shared>| element.key.clone();
        let of_shard = |shard| self.master(shard).iter().map(key).collect::<Vec<_>>();
        (0..SHARDS).flat_map(of_shard).collect()
    }

    /// How many local parts there are now, all together.
    pub fn replicas(&self) -> usize {
        self.sizes(Table::len)
    }

    /// How many elements fit into all tables, master and local ones, as large as they are now.
    pub fn capacity(&self) -> usize {
        let masters: usize = (0..SHARDS).map(|shard| self.master(shard).capacity()).sum();
        masters + self.sizes(Table::capacity)
    }

    fn sizes(&self, size: impl Fn(&Table<Near<K, Shared, Local>>) -> usize) -> usize {
        drop(self.master(0)); // refuses who is inside of an element
        self.object.gather(0, |sum, place| sum + size(&place.table.hold()))
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
