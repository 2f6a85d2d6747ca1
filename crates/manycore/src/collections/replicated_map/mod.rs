//! A map whose entries are copied to where they are read.
//!
//! Owns: [`ReplicatedMap`]. The master map is in the root of a [`Clustered`] object, a cache in
//! each representative.
//!
//! Laws:
//! - M1 A cache holds nothing but copies of what the master holds. An entry of the master says
//!   which caches may have a copy.
//! - M2 Master, mark and copy are written under the master's lock, and a cache under its own lock
//!   inside of that (H5 of [`cluster`](crate::cluster)). So a copy that is made beside a removal is
//!   made before it, and removed by it, or not at all. Who holds a cache's lock, to look at a value
//!   in it, is refused the master's and every other cache's: it could wait for itself by way of
//!   another thread.
//! - M3 An update takes the key out of the caches before it changes the master, so no reader finds
//!   the new value while another finds the old one; and user code that panics leaves less cached,
//!   never something wrong.
//! - M4 Keys and values that leave the master or a cache are dropped when no lock is held. (Not so
//!   the one that is on its way in when its own `Hash` or `Eq` panics.)
//!
//! Source: K42's region list, section 4.1 of the paper. There the caller that misses looks at the
//! master and caches what it found, with the locks given up in between; here it keeps the master's
//! lock, which is what makes the second look unnecessary.

#[cfg(all(test, manycore_loom))]
mod loom_tests;

use super::held::{Held, held_by_self};
use super::holders::Holders;
use crate::cluster::{Clustered, Placement, Rep};
use crate::percpu;
use crate::sync::{Bug, seeded_bug};
use std::borrow::Borrow;
use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};
use std::panic::Location;

struct Entry<V> {
    value: V,
    holders: Holders,
}

type Master<K, V, S> = HashMap<K, Entry<V>, S>;

struct Root<K, V, S> {
    master: Held<Master<K, V, S>>,
    hasher: S,
    /// Entries that a cache holds at most.
    cached_max: usize,
}

struct Cache<K, V, S> {
    place: usize,
    entries: Held<HashMap<K, V, S>>,
}

impl<K, V, S> Rep for Cache<K, V, S>
where
    K: Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: Clone + Send + Sync + 'static,
{
    type Root = Root<K, V, S>;

    fn create(root: &Self::Root, place: usize) -> Self {
        Self { place, entries: Held::new(HashMap::with_hasher(root.hasher.clone())) }
    }
}

/// What has left the master or a cache, to be dropped when no lock is held (M4).
type Out<K, V> = Vec<(Option<K>, Option<V>)>;

/// A map for values that all threads look up all the time and somebody changes now and then: each
/// place on the machine has a cache of what was asked for there.
///
/// What for: configuration, routes, sessions, maps from addresses to what is there. A look-up that
/// hits the cache locks a line that nobody else uses, so look-ups scale with the cores; and the
/// cache is near, also on a machine with several memory nodes. When not: for maps that change more
/// than once in some hundred look-ups, because an update visits every cache that has the key; for
/// large maps, because each cache may copy all of it; where values cannot be cloned cheaply.
/// [`HashMap`](super::HashMap) reads one copy without a lock, and is the better choice unless
/// memory is far away or reads are to stay within one core's cache.
///
/// - Consistency: linearizable. When [`remove`](Self::remove) or [`insert`](Self::insert) returns,
///   no cache has the old value.
/// - Progress: blocking. A look-up waits for an update of the same cache, which takes as long as
///   one removal from a hash map; one that misses waits for updates and other misses.
/// - Cost: a hit is a look-up in a `std` map under a lock without contention, and a few ns; no
///   shared line is written, unless cloning the value does (an `Arc` is better read by
///   [`read`](Self::read)). A miss takes the master's lock and copies. An update takes the lock of
///   each cache that has the key, one after the other: a cache miss or two each.
/// - Memory: each entry once, and once more in each cache that was asked for it, up to a bound that
///   [`cached_max`](Self::with_cached_max) sets.
/// - Panics: if `read`'s closure, a key's `Hash` or `Eq`, or `Clone`, updates the same map, or
///   looks up what is not in the thread's cache, or looks up anything after it was found in the
///   cache itself. A panic of user code leaves the map in order. Closures of two threads that each
///   use the other's map can wait for each other for ever, as with any two locks.
/// - Source: the region list of K42's process object, section 4.1.
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
    /// An empty map with a cache for each thread.
    #[must_use]
    pub fn new() -> Self {
        Self::with_hasher(Placement::default(), RandomState::new())
    }

    /// An empty map with caches of this placement.
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
    /// An empty map that hashes by `hasher`, as do its caches.
    #[must_use]
    pub fn with_hasher(placement: Placement, hasher: S) -> Self {
        Self::with_cached_max(placement, hasher, usize::MAX)
    }

    /// An empty map whose caches hold so many entries at most: of a full one, an arbitrary entry
    /// makes room for the next.
    #[must_use]
    pub fn with_cached_max(placement: Placement, hasher: S, cached_max: usize) -> Self {
        let master = Held::new(HashMap::with_hasher(hasher.clone()));
        Self { object: Clustered::new(placement, Root { master, hasher, cached_max }) }
    }

    /// A clone of the key's value.
    #[inline]
    #[track_caller]
    pub fn get<Q>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        self.read(key, V::clone)
    }

    /// Whether the key is there.
    #[inline]
    #[track_caller]
    pub fn contains_key<Q>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        self.read(key, |_| ()).is_some()
    }

    /// Looks at the key's value, in the cache, under its lock.
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
        let cache = self.object.local();
        let mut look = Some(look);
        let hit = cache.entries.with(|entries| {
            let value = entries.get(key)?;
            look.take().map(|look| look(value))
        });
        match look {
            None => hit,
            Some(look) => self.read_master(cache, key, look),
        }
    }

    /// Looks in the master, and caches what is there (M2).
    #[cold]
    #[track_caller]
    fn read_master<Q, T>(
        &self,
        cache: &Cache<K, V, S>,
        key: &Q,
        look: impl FnOnce(&V) -> T,
    ) -> Option<T>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        let mut out = Out::new();
        let mut late = None;
        let seen = self.with_master(|master| {
            let (own, entry) = master.get_key_value(key)?;
            let seen = look(&entry.value);
            let (own, copy) = (own.clone(), entry.value.clone());
            master.get_mut(key)?.holders.add(cache.place);
            if seeded_bug(Bug::CachedUnlocked) {
                late = Some((own, copy));
            } else {
                self.cache(cache, own, copy, &mut out);
            }
            Some(seen)
        })?;
        if let Some((key, value)) = late {
            self.cache(cache, key, value, &mut out);
        }
        Some(seen)
    }

    /// Runs `f` on the master under its lock (M2).
    ///
    /// # Panics
    /// If the calling thread holds that, or looks into a cache.
    #[track_caller]
    fn with_master<T>(&self, f: impl FnOnce(&mut Master<K, V, S>) -> T) -> T {
        self.assert_outside();
        self.object.root().master.with(f)
    }

    /// # Panics
    /// If the calling thread looks into a cache.
    fn assert_outside(&self) {
        // A thread keeps its slot for as long as it has one, but it may change its node.
        let is_fixed = match self.object.placement() {
            Placement::PerCore => percpu::own_slot().is_some(),
            _ => false,
        };
        let is_inside = if is_fixed {
            self.object.at(self.object.place()).is_some_and(|cache| cache.entries.is_mine())
        } else {
            self.object.reps().any(|(_, cache)| cache.entries.is_mine())
        };
        if is_inside {
            held_by_self();
        }
    }

    /// Puts a copy into a cache, where another may have to make room for it.
    #[track_caller]
    fn cache(&self, cache: &Cache<K, V, S>, key: K, value: V, out: &mut Out<K, V>) {
        let max = self.object.root().cached_max;
        cache.entries.with(|entries| {
            if let Some((key, value)) = entries.remove_entry(&key) {
                out.push((Some(key), Some(value))); // another thread of the place was first
            } else if entries.len() >= max {
                if let Some(victim) = entries.keys().next().cloned() {
                    let evicted = entries.remove_entry(&victim);
                    out.extend(evicted.map(|(key, value)| (Some(key), Some(value))));
                    out.push((Some(victim), None));
                }
            }
            if max > 0 {
                entries.insert(key, value);
            } else {
                out.push((Some(key), Some(value)));
            }
        });
    }

    /// Takes the key out of every cache that may have it. For the holder of the master's lock.
    fn purge<Q>(
        &self,
        holders: Holders,
        key: &Q,
        out: &mut Out<K, V>,
        place: &'static Location<'static>,
    ) where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        let holding = self.object.reps().filter(|(place, _)| holders.may_include(*place));
        for (_, cache) in holding {
            let copy = cache.entries.hold_for(place).remove_entry(key);
            out.extend(copy.map(|(key, value)| (Some(key), Some(value))));
        }
    }

    /// Sets the key's value, and returns the one it had. The caller's cache has it at once.
    ///
    /// # Panics
    /// From within a look into the map.
    #[track_caller]
    pub fn insert(&self, key: K, value: V) -> Option<V> {
        let cache = self.object.local();
        let (mut out, place) = (Out::new(), Location::caller());
        let old = self.with_master(|master| {
            let holders = master.get(&key).map_or(Holders::default(), |entry| entry.holders);
            self.purge(holders, &key, &mut out, place); // M3
            let (own, copy) = (key.clone(), value.clone());
            let mut holders = Holders::default();
            holders.add(cache.place);
            let entry = Entry { value, holders };
            let old = match master.get_mut(&key) {
                Some(present) => {
                    out.push((Some(key), None));
                    Some(std::mem::replace(present, entry))
                }
                None => master.insert(key, entry),
            };
            self.cache(cache, own, copy, &mut out);
            old
        });
        old.map(|entry| entry.value)
    }

    /// Removes the key, here and in every cache, and returns the value it had.
    ///
    /// # Panics
    /// From within a look into the map.
    #[track_caller]
    pub fn remove<Q>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        let (mut out, place) = (Out::new(), Location::caller());
        let (_key, removed) = self.with_master(|master| {
            let holders = master.get(key)?.holders;
            self.purge(holders, key, &mut out, place); // M3
            master.remove_entry(key)
        })?;
        Some(removed.value)
    }

    /// Removes everything.
    ///
    /// # Panics
    /// From within a look into the map.
    #[track_caller]
    pub fn clear(&self) {
        let dropped = self.with_master(|master| {
            let caches = self.object.reps();
            let copies: Vec<_> =
                caches.map(|(_, cache)| cache.entries.with(|entries| taken(entries))).collect();
            (copies, taken(master))
        });
        drop(dropped); // M4
    }

    /// How many entries there are.
    #[track_caller]
    pub fn len(&self) -> usize {
        self.with_master(|master| master.len())
    }

    /// Whether there is none.
    #[track_caller]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Clones of all entries, as they were at one moment. Blocks updates and misses meanwhile.
    #[track_caller]
    pub fn snapshot(&self) -> Vec<(K, V)> {
        let clone = |(key, entry): (&K, &Entry<V>)| (key.clone(), entry.value.clone());
        self.with_master(|master| master.iter().map(clone).collect())
    }

    /// How many copies the caches hold now, all together.
    pub fn cached(&self) -> usize {
        self.assert_outside();
        self.object.gather(0, |sum, cache| sum + cache.entries.with(|entries| entries.len()))
    }

    /// All entries; the caches are dropped.
    pub fn into_entries(self) -> impl Iterator<Item = (K, V)> {
        let master = self.object.into_root().master.into_inner();
        master.into_iter().map(|(key, entry)| (key, entry.value))
    }
}

/// What is in a map, which is empty then.
fn taken<K, V, S: Clone>(map: &mut HashMap<K, V, S>) -> HashMap<K, V, S> {
    let empty = HashMap::with_hasher(map.hasher().clone());
    std::mem::replace(map, empty)
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
        map.insert(1, 1);
        map.insert(2, 2);
        let mut out = Out::new();
        map.cache(map.object.local(), 1, 1, &mut out); // as by a thread that came second
        assert_eq!((map.cached(), out), (2, vec![(Some(1), Some(1))]));
        map.cache(map.object.local(), 3, 3, &mut Out::new());
        assert_eq!(map.cached(), 2);
    }
}
