//! Views: a map as one section sees it, and what can be done with it.

mod by_key;
mod decided;

use super::super::growth::{Growing, buckets_for};
use super::comparing::{comparing, forbid_in_eq};
use super::iter::{HashMapIter, HashMapKeys, HashMapValues};
use super::short::{NotLinked, find_now};
use super::table::{Entry, Locked, Seen, SlotForKey, Table};
use super::{HashMap, RandomState};
use crate::config::MAP_LOAD;
use crate::section::{Owned, Section, Shared};
use std::borrow::Borrow;
use std::cell::Cell;
use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::ptr;

/// A [`HashMap`] and an open section. References to values borrow from the view.
///
/// Keep a view for as long as references are needed, or for many calls in a row, but not while
/// waiting for anything: see [`Section`]. A view stays on its thread. Views nest.
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
    /// The table that the section found last, or null, so that not every look-up finds it again
    /// (hash_map.H8).
    table: Cell<*const Table<K, V>>,
}

/// The entry that is in the map, and the entry that was not inserted.
type NotInserted<'s, K, V> = (&'s Entry<K, V>, Owned<Entry<K, V>>);

/// The result of inserting an entry.
struct Put<'s, K, V> {
    linked: Shared<'s, Entry<K, V>>,
    old: Option<&'s Entry<K, V>>,
}

impl<'m, K, V, S> HashMapView<'m, K, V, S> {
    #[inline(always)]
    pub(super) fn new(map: &'m HashMap<K, V, S>, section: Section<'m>) -> Self {
        let table = map.root.load_now(&section).map_or(ptr::null(), ptr::from_ref);
        Self { map, section, table: Cell::new(table) }
    }

    /// Returns the table that the view found last. Returns `None` before the first insertion, or if
    /// the view has to find the table again.
    #[inline(always)]
    fn table_now(&self) -> Option<&Table<K, V>> {
        // SAFETY: hash_map.H8 - null, or found by the root's link in this section, which is open.
        unsafe { self.table.get().as_ref() }
    }

    /// As [`table_now`](Self::table_now), for an update. Returns `None` also if the table is being
    /// replaced: a view that went on in it would never help to replace it (growth.G2).
    #[inline(always)]
    fn table_to_update(&self) -> Option<&Table<K, V>> {
        self.table_now().filter(|table| self.map.root.is(table))
    }

    /// Loads the current table. Returns `None` before the first insertion.
    fn table(&self) -> Option<&Table<K, V>> {
        let table = self.map.root.load(&self.section).as_ref();
        self.table.set(table.map_or(ptr::null(), ptr::from_ref));
        table
    }

    /// Returns the map.
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

    /// Releases everything that was removed before, as if the view were closed and opened again.
    pub fn refresh(&mut self) {
        self.table.set(ptr::null());
        self.section.refresh();
        self.table();
    }

    /// Iterates over all entries, in no order.
    ///
    /// Consistency: not a snapshot. An entry that is present throughout is yielded exactly once.
    /// Concurrent insertions and removals may be seen or not. A key that is removed and inserted
    /// again may be yielded twice. Cost: a pass over the table, and a buffer for one bucket.
    pub fn iter(&self) -> HashMapIter<'_, K, V> {
        HashMapIter::new(&self.map.root, &self.section)
    }

    /// Iterates over the keys, as [`iter`](Self::iter) does.
    pub fn keys(&self) -> HashMapKeys<'_, K, V> {
        HashMapKeys(self.iter())
    }

    /// Iterates over the values, as [`iter`](Self::iter) does.
    pub fn values(&self) -> HashMapValues<'_, K, V> {
        HashMapValues(self.iter())
    }

    /// Finds the key's entry on the short path. Returns `None` if the caller has to call
    /// `find_slow`.
    #[inline(always)]
    fn find_now(&self, hash: u64, is_key: impl Fn(&K) -> bool) -> Option<Option<&Entry<K, V>>> {
        find_now(self.table_now()?, hash, is_key, &self.section)
    }

    /// Finds the key's entry in every case: in an empty map, in a long chain, while the map grows,
    /// and if the section has to raise its era.
    #[cold]
    #[inline(never)]
    pub(super) fn find_slow(&self, hash: u64, is_key: impl Fn(&K) -> bool) -> Option<&Entry<K, V>> {
        loop {
            let table = self.table()?;
            match table.bucket(hash).find(hash, &is_key, &self.section) {
                Seen::Here(entry) => return Some(entry),
                Seen::Nowhere => return None,
                Seen::Moved => {} // there is a new root
                Seen::Pending => match self.find_old(table, hash, &is_key) {
                    Seen::Here(entry) => return Some(entry),
                    Seen::Nowhere => return None,
                    Seen::Moved | Seen::Pending => {} // it has arrived by now
                },
            }
        }
    }

    /// Looks in the old table (hash_map.H3).
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
    /// Finds the key's entry.
    #[inline(always)]
    fn find_key<Q>(&self, hash: u64, key: &Q) -> Option<&Entry<K, V>>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let is_key = |own: &K| own.borrow() == key;
        self.find_now(hash, is_key).unwrap_or_else(|| self.find_slow(hash, is_key))
    }

    #[inline(always)]
    fn hash<Q: Hash + ?Sized>(&self, key: &Q) -> u64 {
        self.map.hash(key)
    }

    /// Locks the bucket of this hash in the root table. If the map is growing, moves groups first.
    /// The caller has called `forbid_in_eq`.
    fn lock(&self, hash: u64) -> (&Table<K, V>, Locked<'_, K, V>) {
        let section = &self.section;
        loop {
            let root = self.map.root.to_update(hash, section, |table, old, index| {
                table.move_group(old, index, section)
            });
            let table = root.as_ref().expect("a map has a table");
            // Not a newer root: the key's group has not moved there.
            self.table.set(table);
            if let Some(locked) = table.bucket(hash).lock() {
                debug_assert!(locked.is_filled(), "hash_map.H3: an update locks a pending bucket");
                return (table, locked);
            }
        }
    }

    /// Looks under the lock for a key, or for a free slot for it.
    fn search<'s>(
        &'s self,
        locked: &Locked<'s, K, V>,
        hash: u64,
        is_key: impl Fn(&K) -> bool,
    ) -> SlotForKey<'s, K, V> {
        locked.search(hash, |own| comparing(self.map, || is_key(own)), &self.section)
    }

    /// Doubles the table if it is still the root and has reached its load (growth.G2).
    #[cold]
    fn grow_if_full(&self, table: &Table<K, V>) {
        let root = self.map.root.load(&self.section);
        if ptr::eq(root.as_ptr(), table) && self.len() >= table.len() * MAP_LOAD {
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
        self.map.root.set_floor(needed);
        self.map
            .root
            .reserve(buckets, section, |table, old, index| table.move_group(old, index, section));
    }

    /// Halves the table if the entries fit. Returns false if they do not.
    pub(super) fn halve(&self) -> bool {
        forbid_in_eq(self.map);
        let (needed, section) = (buckets_for(self.len(), MAP_LOAD), &self.section);
        self.map.root.set_floor(0);
        self.map
            .root
            .halve(needed, section, |table, old, index| table.move_group(old, index, section))
    }

    /// Inserts the entry if the key is not present.
    ///
    /// # Errors
    /// The entry that is in the map, and the entry that was not inserted.
    fn put_absent<'s>(
        &'s self,
        entry: Owned<Entry<K, V>>,
    ) -> Result<Put<'s, K, V>, NotInserted<'s, K, V>> {
        forbid_in_eq(self.map);
        self.put(entry, false)
    }

    /// Inserts the entry. If the key is present, replaces its entry only if `replace` is true. The
    /// caller has called `forbid_in_eq`.
    ///
    /// # Errors
    /// The entry that is in the map, and the entry that was not inserted.
    #[inline(never)]
    fn put<'s>(
        &'s self,
        entry: Owned<Entry<K, V>>,
        replace: bool,
    ) -> Result<Put<'s, K, V>, NotInserted<'s, K, V>> {
        let (hash, section) = (entry.hash, &self.section);
        let mut may_grow = true;
        loop {
            let (table, locked) = self.lock(hash);
            let place = self.search(&locked, hash, |key| *key == entry.key);
            let found = if let SlotForKey::Taken(_, found) = &place { Some(*found) } else { None };
            if let (Some(there), false) = (found.and_then(Shared::as_ref), replace) {
                drop(locked); // so that `entry` is dropped without the lock
                return Err((there, entry));
            }
            if matches!(place, SlotForKey::Full(_)) && std::mem::take(&mut may_grow) {
                drop(locked);
                self.grow_if_full(table);
                continue;
            }
            let linked = entry.into_shared(section);
            match place {
                SlotForKey::Taken(slot, _) => slot.replace(linked, section),
                SlotForKey::Free(slot) => slot.fill(hash, linked, section),
                SlotForKey::Full(last) => locked.extend(table, last, hash, linked, section),
            }
            drop(locked);
            if found.is_none() {
                self.map.count.inc();
            }
            if let Some(old) = found {
                self.map.retire(old, section);
            }
            return Ok(Put { linked, old: found.and_then(Shared::as_ref) });
        }
    }

    #[inline(always)]
    fn entry_of(&self, hash: u64, key: K, value: V) -> Owned<Entry<K, V>> {
        Owned::new_in(Entry { hash, key, value }, &self.section)
    }

    /// Removes `entry` from the map, or replaces it by `next`, if it is still in the map
    /// (hash_map.H7). Returns the new entry. The caller has called `forbid_in_eq`.
    ///
    /// # Errors
    /// `next`, if `entry` is not in the map any more.
    #[inline(always)]
    fn replace<'s>(
        &'s self,
        entry: &'s Entry<K, V>,
        next: Option<Owned<Entry<K, V>>>,
    ) -> Result<Option<&'s Entry<K, V>>, NotLinked<K, V>> {
        let replaced = match self.table_to_update() {
            Some(table) => self.map.replace_now(table, entry, next, &self.section),
            None => Err(next),
        };
        replaced.or_else(|next| self.replace_slow(entry, next))
    }

    /// As [`replace`](Self::replace), where the short path does not apply.
    #[cold]
    #[inline(never)]
    fn replace_slow<'s>(
        &'s self,
        entry: &'s Entry<K, V>,
        next: Option<Owned<Entry<K, V>>>,
    ) -> Result<Option<&'s Entry<K, V>>, NotLinked<K, V>> {
        let section = &self.section;
        let (table, locked) = self.lock(entry.hash);
        let Some((slot, old)) = locked.slot_of(entry) else {
            drop(locked); // so that `next` is dropped without the lock
            return Err(next);
        };
        let linked = match next {
            Some(next) => {
                let linked = next.into_shared(section);
                slot.replace(linked, section);
                drop(locked);
                linked.as_ref()
            }
            None => {
                let is_bare = slot.empty(section);
                drop(locked);
                self.map.note_removed(table, entry.hash, is_bare);
                None
            }
        };
        self.map.retire(old, section);
        Ok(linked)
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
