//! A map as one section sees it: what can be done with it.

mod by_key;
mod decided;

use super::super::growth::{Growing, buckets_for};
use super::comparing::{comparing, forbid_in_eq};
use super::iter::{HashMapIter, HashMapKeys, HashMapValues};
use super::table::{Entry, Locked, Seen, SlotForKey, Table};
use super::{HashMap, RandomState};
use crate::config::MAP_LOAD;
use crate::section::{Owned, Section, Shared, Weight};
use std::borrow::Borrow;
use std::fmt;
use std::hash::{BuildHasher, Hash};

/// A [`HashMap`] and an open section: references to values borrow from it.
///
/// Keep it for as long as references are needed, or for many calls in a row, but not while waiting
/// for anything: see [`Section`]. It stays with its thread. Views nest.
///
/// ```
/// let users = manycore::collections::HashMap::from([(1, String::from("ann"))]);
/// let view = users.enter();
/// let ann = view.get(&1).unwrap();
/// std::thread::scope(|s| {
///     s.spawn(|| users.insert(1, "bob".into()));
/// });
/// assert_eq!(ann, "ann"); // valid as long as the view
/// assert_eq!(view.get(&1).unwrap(), "bob");
/// ```
pub struct HashMapView<'m, K, V, S = RandomState> {
    map: &'m HashMap<K, V, S>,
    section: Section<'m>,
}

/// What was to take an entry's place, which is not in the map any more.
type NotLinked<K, V> = Option<Owned<Entry<K, V>>>;

/// The entry that is there, and the one that was not put in.
type NotPut<'s, K, V> = (&'s Entry<K, V>, Owned<Entry<K, V>>);

/// An entry was put in.
struct Put<'s, K, V> {
    linked: Shared<'s, Entry<K, V>>,
    old: Option<&'s Entry<K, V>>,
}

/// An entry that was unlinked: dropping this retires it, also if its weigher panics.
struct Leaving<'s, K: Send + Sync, V: Send + Sync> {
    section: &'s Section<'s>,
    entry: Shared<'s, Entry<K, V>>,
    weight: Weight,
}

impl<K: Send + Sync, V: Send + Sync> Drop for Leaving<'_, K, V> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: unlinked under the bucket's lock by the maker, so once; without links
        // (hash_map.H5). A wrong weight is safe.
        unsafe { self.section.retire_weighed(self.entry, self.weight) };
    }
}

impl<'m, K, V, S> HashMapView<'m, K, V, S> {
    #[inline(always)]
    pub(super) fn new(map: &'m HashMap<K, V, S>, section: Section<'m>) -> Self {
        Self { map, section }
    }

    #[inline(always)]
    pub(super) fn root(&self) -> Shared<'_, Table<K, V>> {
        self.map.root.load(&self.section)
    }

    /// None before the first insertion.
    #[inline(always)]
    fn table(&self) -> Option<&Table<K, V>> {
        self.root().as_ref()
    }

    /// The map.
    pub fn map(&self) -> &'m HashMap<K, V, S> {
        self.map
    }

    /// As [`HashMap::len`].
    #[must_use]
    pub fn len(&self) -> usize {
        self.map.len()
    }

    /// As [`HashMap::is_empty`].
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    /// As [`HashMap::capacity`].
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.table().map_or(0, Growing::len) * MAP_LOAD
    }

    /// Lets go of everything that was removed before, as if the view were closed and opened again.
    pub fn refresh(&mut self) {
        self.section.refresh();
    }

    /// Every entry, in no order.
    ///
    /// Consistency: not a snapshot. An entry that is present throughout is yielded exactly once;
    /// concurrent insertions and removals may be seen or not, and a key that is removed and
    /// inserted again may be yielded twice. Cost: the table, and a buffer for one bucket.
    pub fn iter(&self) -> HashMapIter<'_, K, V> {
        HashMapIter::new(&self.map.root, &self.section)
    }

    /// The keys, as [`iter`](Self::iter) finds them.
    pub fn keys(&self) -> HashMapKeys<'_, K, V> {
        HashMapKeys(self.iter())
    }

    /// The values, as [`iter`](Self::iter) finds them.
    pub fn values(&self) -> HashMapValues<'_, K, V> {
        HashMapValues(self.iter())
    }

    /// The key's entry. The usual way calls nothing but `is_key`, and so keeps few registers.
    #[inline]
    fn find(&self, hash: u64, is_key: impl Fn(&K) -> bool) -> Option<Shared<'_, Entry<K, V>>> {
        match self.find_now(hash, &is_key) {
            Some(found) => found,
            None => self.find_anyway(hash, is_key),
        }
    }

    /// The usual way alone: `None` if `find_anyway` is to be called.
    #[inline(always)]
    fn find_now(
        &self,
        hash: u64,
        is_key: impl Fn(&K) -> bool,
    ) -> Option<Option<Shared<'_, Entry<K, V>>>> {
        let bounded = self.section.is_bounded();
        let Some(table) = self.map.root.load_now(&self.section, bounded)?.as_ref() else {
            return Some(None);
        };
        match table.bucket(hash).find_now(hash, is_key, &self.section, bounded) {
            Seen::Here(entry) => Some(Some(entry)),
            Seen::Nowhere => Some(None),
            Seen::Moved | Seen::Pending | Seen::Behind => None,
        }
    }

    /// The same, while the map grows, or where the section has to raise its era.
    #[cold]
    #[inline(never)]
    fn find_anyway(
        &self,
        hash: u64,
        is_key: impl Fn(&K) -> bool,
    ) -> Option<Shared<'_, Entry<K, V>>> {
        loop {
            let table = self.table()?;
            match table.bucket(hash).find(hash, &is_key, &self.section) {
                Seen::Here(entry) => return Some(entry),
                Seen::Nowhere => return None,
                Seen::Moved | Seen::Behind => {} // there is a new root
                Seen::Pending => match self.find_old(table, hash, &is_key) {
                    Seen::Here(entry) => return Some(entry),
                    Seen::Nowhere => return None,
                    Seen::Moved | Seen::Pending | Seen::Behind => {} // it has arrived by now
                },
            }
        }
    }

    /// Looks in the table before (hash_map.H3).
    #[cold]
    fn find_old(
        &self,
        table: &Table<K, V>,
        hash: u64,
        is_key: impl Fn(&K) -> bool,
    ) -> Seen<'_, K, V> {
        let old = table.growth().old.load(&self.section).as_ref();
        old.map_or(Seen::Moved, |old| old.bucket(hash).find(hash, is_key, &self.section))
    }
}

impl<K, V, S> HashMapView<'_, K, V, S>
where
    K: Hash + Eq + Send + Sync,
    V: Send + Sync,
    S: BuildHasher,
{
    #[inline(always)]
    fn hash<Q: Hash + ?Sized>(&self, key: &Q) -> u64 {
        self.map.hasher.hash_one(key)
    }

    #[inline(always)]
    fn find_key<Q>(&self, key: &Q) -> Option<Shared<'_, Entry<K, V>>>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.find(self.hash(key), |own| own.borrow() == key)
    }

    /// The entry of a key that the caller is about to change, found without a lock.
    ///
    /// # Panics
    /// If an `Eq` of the map calls it.
    #[inline(always)]
    fn find_to_change(&self, hash: u64, is_key: impl Fn(&K) -> bool) -> Option<&Entry<K, V>> {
        forbid_in_eq(self.map);
        self.find(hash, |key| comparing(self.map, || is_key(key))).and_then(Shared::as_ref)
    }

    /// The bucket of this hash, locked, in the root table; does its part if the map is growing.
    ///
    /// # Panics
    /// If an `Eq` of the map calls it.
    fn lock(&self, hash: u64) -> (Shared<'_, Table<K, V>>, Locked<'_, K, V>) {
        forbid_in_eq(self.map);
        loop {
            let section = &self.section;
            let root = self.map.root.to_update(hash, section, |table, old, index| {
                table.move_group(old, index, section)
            });
            let table = root.as_ref().expect("a map has a table");
            if let Some(locked) = table.bucket(hash).lock() {
                return (root, locked);
            }
        }
    }

    /// Looks for a key, or for a place for it, under the lock.
    fn search<'s>(
        &'s self,
        locked: &Locked<'s, K, V>,
        hash: u64,
        is_key: impl Fn(&K) -> bool,
    ) -> SlotForKey<'s, K, V> {
        locked.search(hash, |key| comparing(self.map, || is_key(key)), &self.section)
    }

    /// Puts a table of twice the size in place of `root`, if there are so many entries
    /// (growth.G2).
    #[cold]
    fn grow_if_full(&self, root: Shared<'_, Table<K, V>>) {
        let table = root.as_ref().expect("a map has a table");
        if self.len() >= table.len() * MAP_LOAD {
            self.map.root.grow(root, &self.section);
        }
    }

    /// As [`HashMap::reserve`].
    ///
    /// # Panics
    /// As [`HashMap::reserve`].
    pub fn reserve(&self, additional: usize) {
        forbid_in_eq(self.map);
        let needed = self.len().checked_add(additional).expect("manycore: capacity overflow");
        let (buckets, section) = (buckets_for(needed, MAP_LOAD), &self.section);
        self.map
            .root
            .reserve(buckets, section, |table, old, index| table.move_group(old, index, section));
    }

    /// Halves the table, if that has room for the entries. Returns false if it has not.
    pub(super) fn halve(&self) -> bool {
        forbid_in_eq(self.map);
        let (needed, section) = (buckets_for(self.len(), MAP_LOAD), &self.section);
        self.map
            .root
            .halve(needed, section, |table, old, index| table.move_group(old, index, section))
    }

    /// The last step of an update: nothing of the map's is held any more (hash_map.H6).
    fn retire<'s>(&'s self, old: Shared<'s, Entry<K, V>>) -> Option<&'s Entry<K, V>> {
        let entry = old.as_ref();
        let weight = const { Weight::of::<Entry<K, V>>() };
        let mut leaving = Leaving { section: &self.section, entry: old, weight };
        if let (Some(heap_bytes), Some(entry)) = (self.map.weigher, entry) {
            let heap = heap_bytes(&entry.key, &entry.value);
            leaving.weight = Weight::exact(size_of::<Entry<K, V>>()).plus(heap);
        }
        drop(leaving);
        entry
    }

    /// Puts the entry in. In place of one with its key only if it may `replace` it.
    ///
    /// # Errors
    /// The one that is there, and the one that was not put in.
    fn put<'s>(
        &'s self,
        entry: Owned<Entry<K, V>>,
        replace: bool,
    ) -> Result<Put<'s, K, V>, NotPut<'s, K, V>> {
        let (hash, section) = (entry.hash, &self.section);
        let mut may_grow = true;
        loop {
            let (root, locked) = self.lock(hash);
            let place = self.search(&locked, hash, |key| *key == entry.key);
            let found = if let SlotForKey::Taken(_, found) = &place { Some(*found) } else { None };
            if let (Some(there), false) = (found.and_then(Shared::as_ref), replace) {
                drop(locked); // before `entry`
                return Err((there, entry));
            }
            if matches!(place, SlotForKey::Full(_)) && std::mem::take(&mut may_grow) {
                drop(locked);
                self.grow_if_full(root);
                continue;
            }
            let linked = entry.into_shared(section);
            match place {
                SlotForKey::Taken(slot, _) => slot.replace(linked, section),
                SlotForKey::Free(slot) => slot.fill(hash, linked, section),
                SlotForKey::Full(last) => locked.extend(last, hash, linked, section),
            }
            drop(locked);
            if found.is_none() {
                self.map.count.inc();
            }
            return Ok(Put { linked, old: found.and_then(|old| self.retire(old)) });
        }
    }

    fn entry(&self, key: K, value: V) -> Owned<Entry<K, V>> {
        Owned::new(Entry { hash: self.hash(&key), key, value })
    }

    /// Takes this entry out of the map, if it is still in it, or puts another one in its place
    /// (hash_map.H7); the other one.
    ///
    /// # Errors
    /// The other one, if the entry is not in the map any more.
    #[inline]
    fn replace<'s>(
        &'s self,
        entry: &'s Entry<K, V>,
        next: Option<Owned<Entry<K, V>>>,
    ) -> Result<Shared<'s, Entry<K, V>>, NotLinked<K, V>> {
        let section = &self.section;
        let (_, locked) = self.lock(entry.hash);
        let Some((slot, found)) = locked.slot_of(entry, section) else {
            drop(locked); // before `next`
            return Err(next);
        };
        let linked = next.map(|next| next.into_shared(section));
        match linked {
            Some(linked) => slot.replace(linked, section),
            None => slot.empty(section),
        }
        drop(locked);
        if linked.is_none() {
            self.map.count.dec();
        }
        self.retire(found);
        Ok(linked.unwrap_or_else(Shared::null))
    }
}

impl<K, V, S> fmt::Debug for HashMapView<'_, K, V, S>
where
    K: fmt::Debug,
    V: fmt::Debug,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl<'v, K, V, S> IntoIterator for &'v HashMapView<'_, K, V, S> {
    type Item = (&'v K, &'v V);
    type IntoIter = HashMapIter<'v, K, V>;

    fn into_iter(self) -> HashMapIter<'v, K, V> {
        self.iter()
    }
}
