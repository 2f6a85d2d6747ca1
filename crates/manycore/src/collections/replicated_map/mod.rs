//! A map that copies its entries to the places that read them.
//!
//! Owns: [`ReplicatedMap`]. The master map is in the root of a [`Clustered`] object; each
//! representative has a cache.
//!
//! ```text
//! master   [ key | value | which caches may have a copy ]     updates, misses
//!                /            |            \
//! cache    [ copy ]       [ copy ]       [ copy ]              hits, each under its own lock
//! ```
//!
//! Laws:
//! - replicated_map.M1 A cache holds only copies of what the master holds. An entry of the master
//!   says which caches may have a copy.
//! - replicated_map.M2 A thread writes master, mark and copy under the master's lock, and a cache
//!   under its own lock inside of that (cluster.H5). So a copy that is made beside a removal is
//!   made before it, and removed by it, or not at all. A thread that holds a cache's lock, to read
//!   a value in it, is refused the master's lock and every other cache's. It could deadlock with
//!   itself by way of another thread.
//! - replicated_map.M3 An update takes the key out of the caches before it changes the master. So
//!   no reader finds the new value while another finds the old one; and user code that panics
//!   leaves less cached, never something wrong.
//! - replicated_map.M4 Keys and values that leave the master or a cache are dropped when no lock is
//!   held.
//! - replicated_map.M5 An entry has a tag: its hash and an id. A call compares a key to find the
//!   entry once, in the cache or in the master; its copies are matched by the tag. So a key with an
//!   inconsistent `Hash`, `Eq`, `Borrow` or `Clone` finds a wrong entry or none, and leaves no copy
//!   in a cache.
//! - replicated_map.M6 A cache holds at most as many copies as the map's bound says. A copy that
//!   does not fit replaces another, or is not kept.
//!
//! Source: K42's region list, section 4.1 of the paper. There a caller that misses looks at the
//! master and caches what it found, and releases the locks in between. Here it keeps the master's
//! lock, so it need not look a second time.
//! lock, which is what makes the second look unnecessary.

#[cfg(all(test, manycore_loom))]
mod loom_tests;

use super::dhash::{Table, Tag, Tagged};
use super::reentrancy_lock::{ReentrancyGuard, ReentrancyLock, panic_on_reentrancy};
use super::replica_mask::ReplicaMask;
use crate::cluster::{Clustered, Placement, Rep};
use crate::config::SMALL;
use crate::percpu;
use crate::sync::seeded_bug;
use std::borrow::Borrow;
use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};
use std::marker::PhantomData;
use std::panic::Location;

/// An entry of the master.
struct MasterEntry<K, V> {
    tag: Tag,
    key: K,
    value: V,
    replica_mask: ReplicaMask,
}

/// A copy of an entry in a cache, matched by its tag, never by the key (replicated_map.M5).
struct Copied<K, V> {
    tag: Tag,
    key: K,
    value: V,
}

impl<K, V> Tagged for MasterEntry<K, V> {
    #[inline]
    fn tag(&self) -> Tag {
        self.tag
    }
}

impl<K, V> Tagged for Copied<K, V> {
    #[inline]
    fn tag(&self) -> Tag {
        self.tag
    }
}

struct Master<K, V> {
    table: Table<MasterEntry<K, V>>,
    next_id: u64,
}

struct Root<K, V, S> {
    master: ReentrancyLock<Master<K, V>>,
    hasher: S,
    /// Entries that a cache holds, at most.
    cached_max: usize,
}

struct Cache<K, V, S> {
    place: usize,
    entries: ReentrancyLock<Table<Copied<K, V>>>,
    _hasher: PhantomData<fn() -> S>,
}

impl<K, V, S> Rep for Cache<K, V, S>
where
    K: Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: Clone + Send + Sync + 'static,
{
    type Root = Root<K, V, S>;

    fn create(_root: &Self::Root, place: usize) -> Self {
        Self { place, entries: ReentrancyLock::new(Table::new()), _hasher: PhantomData }
    }
}

/// A read-mostly map, for values that all threads look up all the time and that rarely change. Each
/// place on the machine has a cache (replica) of what was looked up there.
///
/// What for: configuration, routes, sessions, address maps. A look-up that hits the cache locks an
/// uncontended line, so look-ups scale with the cores. The cache is near, also on a machine with
/// several NUMA nodes.
///
/// When not: for maps that change more than once in some hundred look-ups, because an update visits
/// every cache that has the key. For large maps, because each cache may copy all of it. If values
/// cannot be cloned cheaply.
///
/// [`HashMap`](super::HashMap) reads one copy without a lock, and is the better choice unless
/// memory is far away or reads are to stay within one core's cache. On two cores of an EPYC (a
/// virtual machine) with one NUMA node, with 1,000 keys, `HashMap` makes 94 million gets a second
/// and this map 45. If one operation of 100 is an update, it is 80 and 30 (`manycore-bench bench
/// map`).
///
/// ```
/// use manycore::collections::ReplicatedMap;
///
/// let routes = ReplicatedMap::new();
/// routes.insert("10.0.0.0/8", 1);
/// std::thread::scope(|s| {
///     for _ in 0..4 {
///         s.spawn(|| assert_eq!(routes.get("10.0.0.0/8"), Some(1)));
///     }
/// });
/// assert_eq!(routes.remove("10.0.0.0/8"), Some(1));
/// assert_eq!(routes.get("10.0.0.0/8"), None); // in every thread
/// ```
///
/// - Consistency: linearizable. When [`remove`](Self::remove) or [`insert`](Self::insert) returns,
///   no cache has the old value.
/// - Progress: blocking. A look-up waits for an update of the same cache, which takes as long as
///   one removal from a hash map. A look-up that misses waits for updates and other misses.
/// - Cost: a hit is a look-up in a hash table under a lock without contention, a few ns. No shared
///   line is written, unless cloning the value does (read an `Arc` by [`read`](Self::read)). A miss
///   takes the master's lock and copies. An update takes the lock of each cache that has the key,
///   one after the other: a cache miss or two each.
/// - Memory: each entry once, and once more in each cache that was asked for it, up to a bound that
///   [`cached_max`](Self::with_cached_max) sets.
/// - Panics: if `read`'s closure, a key's `Eq`, or a `Clone` does one of these: it updates the same
///   map; it looks up what is not in the thread's cache; it looks up anything after the first
///   look-up hit the cache. A panic of user code leaves the map in order. If threads, from within
///   such code, use each other's maps in a cycle, the thread that closes the cycle panics.
/// - Source: the region list of K42's process object, section 4.1.
#[doc(alias = "NUMA")]
#[doc(alias = "replication")]
pub struct ReplicatedMap<K, V, S = RandomState>
where
    K: Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: Clone + Send + Sync + 'static,
{
    object: Clustered<Cache<K, V, S>>,
}

impl<K, V> ReplicatedMap<K, V>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    /// Makes an empty map with a cache for each thread.
    #[must_use]
    pub fn new() -> Self {
        Self::with_hasher(Placement::default(), RandomState::new())
    }

    /// Makes an empty map with caches of this placement.
    #[must_use]
    pub fn with_placement(placement: Placement) -> Self {
        Self::with_hasher(placement, RandomState::new())
    }
}

impl<K, V, S> ReplicatedMap<K, V, S>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    /// Makes an empty map that hashes by `hasher`, as do its caches.
    #[must_use]
    pub fn with_hasher(placement: Placement, hasher: S) -> Self {
        Self::with_cached_max(placement, hasher, usize::MAX)
    }

    /// Makes an empty map with caches that hold at most `cached_max` entries. In a full cache, an
    /// arbitrary entry makes room for the next.
    #[must_use]
    pub fn with_cached_max(placement: Placement, hasher: S, cached_max: usize) -> Self {
        let master = ReentrancyLock::new(Master { table: Table::new(), next_id: 0 });
        Self { object: Clustered::new(placement, Root { master, hasher, cached_max }) }
    }

    /// Returns a clone of the key's value.
    ///
    /// # Panics
    /// As [`read`](Self::read).
    #[inline]
    #[track_caller]
    pub fn get<Q>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        self.read(key, V::clone)
    }

    /// Returns true if the map has the key.
    ///
    /// # Panics
    /// As [`read`](Self::read).
    #[inline]
    #[track_caller]
    pub fn contains_key<Q>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        self.read(key, |_| ()).is_some()
    }

    /// Calls `look` with the key's value, in the cache, under its lock.
    ///
    /// # Panics
    /// If `look` does, or if it uses the map (see the type).
    #[inline]
    #[track_caller]
    pub fn read<Q, T>(&self, key: &Q, look: impl FnOnce(&V) -> T) -> Option<T>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        let hash = self.hash(key);
        let cache = self.object.local();
        let mut look = Some(look);
        let hit = cache.entries.with(|entries| {
            let copy = entries.find_mut(hash, |copy| copy.key.borrow() == key)?;
            look.take().map(|look| look(&copy.value))
        });
        match look {
            None => hit,
            Some(look) => self.read_master(cache, hash, key, look),
        }
    }

    #[inline]
    fn hash<Q: Hash + ?Sized>(&self, key: &Q) -> u64 {
        self.object.root().hasher.hash_one(key)
    }

    /// Looks in the master, and caches what is there (replicated_map.M2).
    #[cold]
    #[track_caller]
    fn read_master<Q, T>(
        &self,
        cache: &Cache<K, V, S>,
        hash: u64,
        key: &Q,
        look: impl FnOnce(&V) -> T,
    ) -> Option<T>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        let (mut out, seen);
        {
            let mut master = self.master();
            let entry = master.table.find_mut(hash, |entry| entry.key.borrow() == key)?;
            out = Vec::new();
            seen = look(&entry.value);
            let copy =
                Copied { tag: entry.tag, key: entry.key.clone(), value: entry.value.clone() };
            entry.replica_mask.add(cache.place);
            if seeded_bug!("cached-unlocked") {
                drop(master);
            }
            self.cache(cache, copy, &mut out);
        }
        drop(out); // first: a panic would leak the result
        Some(seen)
    }

    /// Locks the master (replicated_map.M2).
    ///
    /// # Panics
    /// If the calling thread holds the master's lock, or looks into a cache.
    #[track_caller]
    fn master(&self) -> ReentrancyGuard<'_, Master<K, V>> {
        self.assert_outside();
        self.object.root().master.hold()
    }

    /// # Panics
    /// If the calling thread looks into a cache.
    fn assert_outside(&self) {
        // A thread keeps its slot for as long as it has a slot, but it may change its node.
        let is_fixed = match self.object.placement() {
            Placement::PerThread => percpu::own_slot().is_some(),
            _ => false,
        };
        let is_inside = if is_fixed {
            self.object.at(self.object.place()).is_some_and(|cache| cache.entries.is_mine())
        } else {
            self.object.reps().any(|(_, cache)| cache.entries.is_mine())
        };
        if is_inside {
            panic_on_reentrancy();
        }
    }

    /// Puts a copy into a cache; another copy may have to make room for it.
    #[track_caller]
    fn cache(&self, cache: &Cache<K, V, S>, copy: Copied<K, V>, out: &mut Vec<Copied<K, V>>) {
        let Root { master, cached_max: max, .. } = self.object.root();
        debug_assert!(
            SMALL || master.is_mine(),
            "replicated_map.M2: an entry is copied without the master's lock"
        );
        let max = *max;
        let mut entries = cache.entries.hold();
        if let Some(at) = entries.index_of_tag(copy.tag) {
            out.push(entries.remove_at(at)); // another thread of the place was first
        } else if entries.len() >= max {
            out.extend(entries.pop());
        }
        if max > 0 {
            entries.insert(copy);
        } else {
            out.push(copy);
        }
        debug_assert!(
            entries.len() <= max,
            "replicated_map.M6: {} copies in a cache for {max}",
            entries.len()
        );
    }

    /// Takes the entry out of every cache that may have it. The caller holds the master's lock.
    fn purge(
        &self,
        entry: &MasterEntry<K, V>,
        out: &mut Vec<Copied<K, V>>,
        place: &'static Location<'static>,
    ) {
        let holding =
            self.object.reps().filter(|(place, _)| entry.replica_mask.may_include(*place));
        for (_, cache) in holding {
            let mut entries = cache.entries.hold_for(place);
            out.extend(entries.index_of_tag(entry.tag).map(|at| entries.remove_at(at)));
            debug_assert!(
                entries.index_of_tag(entry.tag).is_none(),
                "replicated_map.M3: a cache keeps a copy of what changes"
            );
        }
    }

    /// Sets the key's value and returns the old one. The caller's cache has the new value at once.
    ///
    /// # Panics
    /// From within a look into the map.
    #[track_caller]
    pub fn insert(&self, key: K, mut value: V) -> Option<V> {
        let hash = self.hash(&key);
        let (own, copied) = (key.clone(), value.clone());
        // They outlive the lock, as `key` and `value` do (replicated_map.M4).
        let (mut out, mut spare) = (Vec::new(), None);
        let cache = self.object.local();
        let mut replica_mask = ReplicaMask::default();
        replica_mask.add(cache.place);
        let mut master = self.master();
        let Master { table, next_id } = &mut *master;
        let found = table.find_mut(hash, |entry| entry.key == key);
        let (tag, old) = if let Some(entry) = found {
            self.purge(entry, &mut out, Location::caller()); // replicated_map.M3
            std::mem::swap(&mut entry.value, &mut value);
            entry.replica_mask = replica_mask;
            spare = Some(key);
            (entry.tag, Some(value))
        } else {
            let tag = Tag { hash, id: *next_id };
            debug_assert!(
                table.index_of_tag(tag).is_none(),
                "replicated_map.M5: two entries have one tag"
            );
            *next_id += 1;
            table.insert(MasterEntry { tag, key, value, replica_mask });
            (tag, None)
        };
        self.cache(cache, Copied { tag, key: own, value: copied }, &mut out);
        drop(master);
        drop((out, spare)); // first: a panic would leak the result
        old
    }

    /// Removes the key from the master and every cache. Returns the value it had.
    ///
    /// # Panics
    /// From within a look into the map.
    #[track_caller]
    pub fn remove<Q>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        let hash = self.hash(key);
        let mut out = Vec::new();
        let mut master = self.master();
        let at = master.table.index_of(hash, |entry| entry.key.borrow() == key)?;
        self.purge(master.table.at(at), &mut out, Location::caller()); // replicated_map.M3
        let removed = master.table.remove_at(at);
        drop(master); // replicated_map.M4
        drop((removed.key, out)); // first: a panic would leak the result
        Some(removed.value)
    }

    /// Removes everything.
    ///
    /// # Panics
    /// From within a look into the map.
    #[track_caller]
    pub fn clear(&self) {
        let mut master = self.master();
        let caches = self.object.reps();
        let copies: Vec<_> =
            caches.map(|(_, cache)| cache.entries.with(|entries| entries.take(|_| true))).collect();
        let entries = master.table.take(|_| true);
        drop(master); // replicated_map.M4
        drop((copies, entries));
    }

    /// Returns the number of entries.
    ///
    /// # Panics
    /// From within the closure of a [`read`](Self::read) of the same map.
    #[track_caller]
    pub fn len(&self) -> usize {
        self.master().table.len()
    }

    /// Returns true if there is no entry.
    ///
    /// # Panics
    /// From within the closure of a [`read`](Self::read) of the same map.
    #[track_caller]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns clones of all entries, as they were at one moment. Blocks concurrent updates and
    /// misses.
    ///
    /// # Panics
    /// From within the closure of a [`read`](Self::read) of the same map.
    #[track_caller]
    pub fn snapshot(&self) -> Vec<(K, V)> {
        let mut clones = Vec::new();
        let master = self.master();
        clones.extend(master.table.iter().map(|own| (own.key.clone(), own.value.clone())));
        clones
    }

    /// Returns how many copies the caches hold now, all together.
    ///
    /// # Panics
    /// From within the closure of a [`read`](Self::read) of the same map.
    pub fn cached(&self) -> usize {
        self.assert_outside();
        self.object.gather(0, |sum, cache| sum + cache.entries.with(|entries| entries.len()))
    }

    /// Returns all entries. The caches are dropped.
    pub fn into_entries(self) -> impl Iterator<Item = (K, V)> {
        let mut master = self.object.into_root().master.into_inner();
        master.table.take(|_| true).into_iter().map(|entry| (entry.key, entry.value))
    }
}

impl<K, V> Default for ReplicatedMap<K, V>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    fn default() -> Self {
        Self::new()
    }
}

impl<K, V> FromIterator<(K, V)> for ReplicatedMap<K, V>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        let map = Self::new();
        for (key, value) in entries {
            map.insert(key, value);
        }
        map
    }
}

impl<K, V, S> fmt::Debug for ReplicatedMap<K, V, S>
where
    K: Eq + Hash + Clone + fmt::Debug + Send + Sync + 'static,
    V: Clone + fmt::Debug + Send + Sync + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.snapshot()).finish()
    }
}

#[cfg(all(test, not(manycore_loom), not(manycore_shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn copy_that_is_there_already_makes_no_room() {
        let map = ReplicatedMap::with_cached_max(Placement::Shared, RandomState::new(), 2);
        map.insert(1, 1_u64);
        map.insert(2, 2);
        let cache = |id: u64, hash| {
            let mut out = Vec::new();
            let copy = Copied { tag: Tag { hash, id }, key: 0, value: id };
            let master = map.master();
            map.cache(map.object.local(), copy, &mut out);
            drop(master);
            assert_eq!((map.cached(), out.len()), (2, 1));
            out[0].tag.id
        };
        let hash = map.hash(&1);
        assert_eq!(cache(0, hash), 0, "as by a thread that came second");
        assert!(cache(9, hash) < 2, "one of the two makes room");
        assert_eq!(map.cached(), 2);
    }
}
