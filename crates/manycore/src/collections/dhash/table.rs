//! A hash table that grows and shrinks by itself.
//!
//! Owns: [`Table`]. The only user code that it runs is the comparison it is given. Hashes are
//! stored with their entries, so growing and shrinking hash nothing. No value moves in or out while
//! a comparison runs, so a comparison that panics leaves the table as it was.

use super::Lookup;
use crate::config::SMALL;
use crate::sync::drop_each;
use hashbrown::HashTable;

/// Places that a table keeps, even if it needs fewer.
const KEPT: usize = if SMALL { 4 } else { 32 };

/// A table shrinks if it has more than this many times as many places as entries, to twice its
/// entries. It must then halve or grow fourfold before its size changes again. So an operation pays
/// for a bounded number of moves.
const SPARSE: usize = 8;

/// Identity of an element of a table. No other element has it, nor does a later element with the
/// same key.
///
/// `hash` is the hash that the element was inserted with, whatever the key's `Hash` says now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::collections) struct Tag {
    pub(in crate::collections) hash: u64,
    pub(in crate::collections) id: u64,
}

/// Something that is an element, or a part of one, and knows the element's tag.
pub(in crate::collections) trait Tagged {
    fn tag(&self) -> Tag;
}

fn hash_of<E: Tagged>(entry: &E) -> u64 {
    entry.tag().hash
}

pub(in crate::collections) struct Table<E>(HashTable<E>);

impl<E: Tagged> Table<E> {
    pub(in crate::collections) const fn new() -> Self {
        Self(HashTable::new())
    }

    #[inline]
    pub(in crate::collections) fn find_mut(
        &mut self,
        hash: u64,
        eq: impl FnMut(&E) -> bool,
    ) -> Option<&mut E> {
        self.0.find_mut(hash, eq)
    }

    /// Same, and notes in `lookup` where the entry was found.
    #[inline(always)]
    pub(in crate::collections) fn find_at(
        &mut self,
        lookup: &mut Lookup,
        eq: impl FnMut(&E) -> bool,
    ) -> Option<&mut E> {
        let found = self.0.find_entry(lookup.tag.hash, eq).ok()?;
        lookup.index = found.bucket_index();
        lookup.tag = found.get().tag();
        Some(found.into_mut())
    }

    /// Returns the entry at `index`, if there is one.
    #[inline(always)]
    pub(in crate::collections) fn get(&mut self, index: usize) -> Option<&mut E> {
        self.0.get_bucket_mut(index)
    }

    /// Inserts an entry that is not in the table.
    pub(in crate::collections) fn insert(&mut self, entry: E) -> &mut E {
        debug_assert!(
            self.index_of_tag(entry.tag()).is_none(),
            "dhash.M9: two elements have the tag {:?}",
            entry.tag()
        );
        self.0.insert_unique(hash_of(&entry), entry, hash_of).into_mut()
    }

    /// Returns the index of this element's entry, valid until the table changes.
    #[inline]
    pub(in crate::collections) fn index_of_tag(&self, tag: Tag) -> Option<usize> {
        self.index_of(tag.hash, |entry| entry.tag() == tag)
    }

    /// Returns the index of an entry, valid until the table changes.
    pub(in crate::collections) fn index_of(
        &self,
        hash: u64,
        eq: impl FnMut(&E) -> bool,
    ) -> Option<usize> {
        self.0.find_bucket_index(hash, eq)
    }

    /// Returns the entry at `index`.
    ///
    /// # Panics
    /// If there is no entry at `index`.
    pub(in crate::collections) fn at(&mut self, index: usize) -> &mut E {
        self.0.get_bucket_mut(index).expect("the table has not changed since")
    }

    /// Removes and returns the entry at `index`.
    ///
    /// # Panics
    /// If there is no entry at `index`.
    pub(in crate::collections) fn remove_at(&mut self, index: usize) -> E {
        let entry = self.0.get_bucket_entry(index).ok();
        let entry = entry.expect("the table has not changed since");
        let (entry, _) = entry.remove();
        self.fit();
        entry
    }

    /// Removes and returns some entry.
    pub(in crate::collections) fn pop(&mut self) -> Option<E> {
        self.0.extract_if(|_| true).next()
    }

    /// Removes and returns the entries for which `which` returns true.
    pub(in crate::collections) fn take(&mut self, which: impl Fn(&E) -> bool) -> Vec<E> {
        let taken = self.0.extract_if(|entry| which(entry)).collect();
        self.fit();
        taken
    }

    fn fit(&mut self) {
        let (entries, places) = (self.0.len(), self.0.capacity());
        if places > KEPT && entries.saturating_mul(SPARSE) < places {
            // dhash.M5: by the kept hashes, under this table's own lock; no user code runs.
            self.0.shrink_to((entries * 2).max(KEPT / 2), hash_of);
        }
    }

    pub(in crate::collections) fn iter(&self) -> impl Iterator<Item = &E> {
        self.0.iter()
    }

    pub(in crate::collections) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the number of entries that fit before the table grows.
    pub(in crate::collections) fn capacity(&self) -> usize {
        self.0.capacity()
    }
}

impl<E> Drop for Table<E> {
    fn drop(&mut self) {
        drop_each(self.0.drain()); // each, also if one panics
    }
}

#[cfg(all(test, not(manycore_loom), not(manycore_shuttle)))]
mod tests {
    use super::*;

    impl Tagged for u64 {
        fn tag(&self) -> Tag {
            Tag { hash: self.wrapping_mul(0x9e37_79b9_7f4a_7c15), id: *self }
        }
    }

    fn remove(table: &mut Table<u64>, n: u64) {
        let index = table.index_of_tag(n.tag()).unwrap();
        assert_eq!(table.remove_at(index), n);
    }

    #[test]
    fn emptied_table_shrinks_and_one_at_the_border_does_not_flap() {
        let mut table = Table::new();
        (0..10_000).for_each(|n: u64| assert_eq!(*table.insert(n), n));
        let full = table.capacity();
        assert!(full >= 10_000);
        let mut changes = 0;
        for n in 100..10_000_u64 {
            let before = table.capacity();
            remove(&mut table, n);
            changes += usize::from(table.capacity() != before);
            assert!(table.capacity() <= KEPT.max(SPARSE * table.len() * 2));
        }
        assert!((3..=8).contains(&changes), "{changes} changes of size");
        // One in, one out, at the size at which it has just shrunk.
        let border = table.capacity();
        for n in 20_000..21_000_u64 {
            table.insert(n);
            remove(&mut table, n);
            assert_eq!(table.capacity(), border);
        }
        assert_eq!(table.take(|_| true).len(), 100);
        assert!(table.capacity() <= KEPT && table.len() == 0);
        assert_eq!(table.index_of(hash_of(&1), |_| true), None);
    }
}
