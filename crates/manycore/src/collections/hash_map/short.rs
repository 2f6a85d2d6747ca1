//! The short paths of a call: for one key, in a table that is not growing, and in the first bucket
//! of the key's chain.
//!
//! They call nothing that takes the section or a view by reference, except what is inlined. So the
//! methods of a map, which open a section for one call, have it in registers. If a short path does
//! not apply, it has changed nothing, and the caller goes on with a view.

use super::super::growth::Growing;
use super::HashMap;
use super::comparing::{comparing, forbid_in_eq};
use super::mixed;
use super::table::{Entry, Link, NewEntry, Table};
use crate::config::{MAP_LOAD, MAP_REMOVALS_PER_LOOK, MAP_SHRINKS_TO, MAP_SPARSE};
use crate::section::{Owned, Section, Weight};
use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash};
use std::ptr;

/// The entry that an update could not link, because the entry that it replaces has left the map.
pub(super) type NotLinked<K, V> = Option<NewEntry<K, V>>;

/// Finds a key's entry. Returns `None` if the caller has to look in every place where it may be.
#[inline(always)]
pub(super) fn find_now<'s, K, V>(
    table: &'s Table<K, V>,
    hash: u64,
    is_key: impl Fn(&K) -> bool,
    section: &'s Section<'_>,
) -> Option<Option<&'s Entry<K, V>>> {
    Some(table.sight(hash)?.find(is_key, section)?.map(|found| found.entry))
}

/// An unlinked entry. Dropping this retires the entry, also if its weigher panics. For maps with a
/// weigher.
struct RetireOnDrop<'s, K: Send + Sync, V: Send + Sync> {
    section: &'s Section<'s>,
    entry: Link<'s, K, V>,
    weight: Weight,
}

impl<K: Send + Sync, V: Send + Sync> Drop for RetireOnDrop<'_, K, V> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: the maker has unlinked the entry under the bucket's lock, so it is retired once;
        // an entry has no links (hash_map.H5). A wrong weight is safe.
        unsafe { self.section.retire_weighed(self.entry, self.weight) };
    }
}

impl<K, V, S> HashMap<K, V, S>
where
    K: Hash + Eq + Send + Sync,
    V: Send + Sync,
    S: BuildHasher,
{
    #[inline(always)]
    pub(super) fn hash<Q: Hash + ?Sized>(&self, key: &Q) -> u64 {
        mixed(self.hasher.hash_one(key))
    }

    /// Begins an insertion: makes the entry. Returns the key's hash, too.
    ///
    /// # Panics
    /// If an `Eq` of the map calls this.
    #[inline(always)]
    pub(super) fn begin_insert(
        &self,
        key: K,
        value: V,
        section: &Section<'_>,
    ) -> (u64, NewEntry<K, V>) {
        forbid_in_eq(self);
        let hash = self.hash(&key);
        (hash, Owned::new_in(Entry { hash, key, value }, section))
    }

    /// Inserts an entry, or replaces the key's entry by it. Returns the old entry.
    ///
    /// # Errors
    /// The entry, if nothing was done.
    #[inline(always)]
    pub(super) fn insert_now<'s>(
        &self,
        table: &'s Table<K, V>,
        hash: u64,
        entry: NewEntry<K, V>,
        section: &'s Section<'_>,
    ) -> Result<Option<&'s Entry<K, V>>, NewEntry<K, V>> {
        let Some(sight) = table.sight(hash) else { return Err(entry) };
        // An update that finds a growing table has to help to fill it (growth.G2).
        if !table.is_settled(section) {
            return Err(entry);
        }
        match sight.find(|own| comparing(self, || *own == entry.key), section) {
            Some(Some(found)) => {
                let [old, _] = sight.replace(&found, entry, section)?;
                self.retire(old, section);
                Ok(Some(found.entry))
            }
            Some(None) => {
                sight.insert(hash, entry, section)?;
                self.count.inc();
                Ok(None)
            }
            None => Err(entry),
        }
    }

    /// Removes `entry` from the map, or replaces it by `next` (hash_map.H7). Returns the new entry.
    ///
    /// # Errors
    /// `next`, if nothing was done.
    #[inline(always)]
    pub(super) fn replace_now<'s>(
        &self,
        table: &'s Table<K, V>,
        entry: &'s Entry<K, V>,
        next: Option<NewEntry<K, V>>,
        section: &'s Section<'_>,
    ) -> Result<Option<&'s Entry<K, V>>, NotLinked<K, V>> {
        let Some(sight) = table.sight(entry.hash).filter(|_| table.is_settled(section)) else {
            return Err(next);
        };
        let Some(found) = sight.slot_of(entry) else { return Err(next) };
        match next {
            Some(next) => {
                let [old, linked] = sight.replace(&found, next, section).map_err(Some)?;
                self.retire(old, section);
                Ok(linked.as_ref())
            }
            None => {
                let (old, is_bare) = sight.remove(&found, section).ok_or(None)?;
                self.note_removed(table, entry.hash, is_bare);
                self.retire(old, section);
                Ok(None)
            }
        }
    }

    /// Removes a key. Returns its entry. Returns `None` if nothing was done.
    #[inline(always)]
    pub(super) fn remove_now<'s, Q>(
        &self,
        table: &'s Table<K, V>,
        hash: u64,
        key: &Q,
        section: &'s Section<'_>,
    ) -> Option<Option<&'s Entry<K, V>>>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let sight = table.sight(hash)?;
        if !table.is_settled(section) {
            return None;
        }
        let is_key = |own: &K| comparing(self, || own.borrow() == key);
        let Some(found) = sight.find(is_key, section)? else { return Some(None) };
        let (old, is_bare) = sight.remove(&found, section)?;
        self.note_removed(table, hash, is_bare);
        self.retire(old, section);
        Some(Some(found.entry))
    }

    /// Counts a removal. Checks, after some of the removals that leave a bucket empty, whether the
    /// table should shrink (growth.G2).
    #[inline(always)]
    pub(super) fn note_removed(&self, table: &Table<K, V>, hash: u64, is_bare: bool) {
        self.count.dec();
        // The bits must not be those that all entries of a bucket have in common.
        if is_bare && hash >> 48 & (MAP_REMOVALS_PER_LOOK - 1) == 0 && table.len() > MAP_SHRINKS_TO
        {
            self.shrink_if_sparse(table);
        }
    }

    #[cold]
    #[inline(never)]
    fn shrink_if_sparse(&self, table: &Table<K, V>) {
        let (section, len, capacity) = (self.domain.enter(), self.len(), table.len() * MAP_LOAD);
        if len >= self.root.floor() / 2 {
            self.root.set_floor(0);
        }
        let root = self.root.load(&section);
        let is_sparse = len < capacity / MAP_SPARSE && self.root.floor() <= capacity / 2;
        if is_sparse && ptr::eq(root.as_ptr(), table) {
            self.root.shrink(root, &section);
        }
    }

    /// Retires an entry. This is the last step of an update: no lock of the map is held
    /// (hash_map.H6).
    #[inline(always)]
    pub(super) fn retire<'s>(&self, old: Link<'s, K, V>, section: &'s Section<'_>) {
        if let Some(heap_bytes) = self.weigher {
            return self.weigh_and_retire(old, heap_bytes);
        }
        // SAFETY: the caller has unlinked the entry under the bucket's lock, so it is retired once;
        // an entry has no links (hash_map.H5).
        unsafe { section.retire_weighed(old, const { Weight::of::<Entry<K, V>>() }) };
    }

    /// As [`retire`](Self::retire), inside the caller's section.
    #[inline(never)]
    fn weigh_and_retire(&self, old: Link<'_, K, V>, heap_bytes: fn(&K, &V) -> usize) {
        let section = &self.domain.enter();
        let weight = const { Weight::of::<Entry<K, V>>() };
        let mut retired = RetireOnDrop { section, entry: old, weight };
        if let Some(entry) = old.as_ref() {
            let heap = heap_bytes(&entry.key, &entry.value);
            retired.weight = Weight::exact(size_of::<Entry<K, V>>()).plus(heap);
        }
    }
}
