//! Conversion of a map into its entries by value. The caller has the only reference to the map, so
//! no view is open, and all linked entries belong to the map alone.

use super::super::growth::Growing;
use super::table::{Entry, Table};
use super::{HashMap, RandomState};
use crate::section::Owned;
use std::fmt;

/// Iterator over the entries of a map, by value: see
/// [`HashMap::into_iter`](IntoIterator::into_iter).
///
/// The entries come in no order. Dropping the iterator drops the rest of them.
///
/// ```
/// let map = manycore::collections::HashMap::from([(1, "one"), (2, "two")]);
/// let mut entries: Vec<(i32, &str)> = map.into_iter().collect();
/// entries.sort();
/// assert_eq!(entries, [(1, "one"), (2, "two")]);
/// ```
pub struct HashMapIntoIter<K, V, S = RandomState> {
    map: HashMap<K, V, S>,
    /// The root table or, if the map was growing, the old table.
    table: Option<Owned<Table<K, V>>>,
    next: usize,
    found: Vec<Owned<Entry<K, V>>>,
    left: usize,
}

impl<K, V, S> HashMapIntoIter<K, V, S> {
    pub(super) fn new(mut map: HashMap<K, V, S>) -> Self {
        let (left, table) = (map.len(), map.root.take());
        Self { map, table, next: 0, found: Vec::new(), left }
    }

    /// Takes the entries out of the next bucket. Returns false after the last bucket.
    fn gather(&mut self) -> bool {
        while let Some(table) = &mut self.table {
            if self.next < table.len() {
                let section = self.map.domain.enter();
                // SAFETY: the map was passed by value, so no view is open, and linked entries are
                // not retired.
                unsafe { table.drain_bucket(self.next, &section, &mut self.found) };
                self.next += 1;
                return true;
            }
            self.next = 0;
            self.table = self.map.root.take();
        }
        false
    }
}

impl<K, V, S> Iterator for HashMapIntoIter<K, V, S> {
    type Item = (K, V);

    fn next(&mut self) -> Option<(K, V)> {
        while self.found.is_empty() && self.gather() {}
        let Entry { key, value, .. } = self.found.pop()?.into_inner();
        self.left -= 1;
        Some((key, value))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl<K, V, S> ExactSizeIterator for HashMapIntoIter<K, V, S> {}
impl<K, V, S> std::iter::FusedIterator for HashMapIntoIter<K, V, S> {}

impl<K, V, S> Drop for HashMapIntoIter<K, V, S> {
    fn drop(&mut self) {
        // The rest of the table goes back into the map, which drops it.
        if let Some(table) = self.table.take() {
            self.map.root.put(table);
        }
    }
}

impl<K, V, S> fmt::Debug for HashMapIntoIter<K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HashMapIntoIter").field("left", &self.left).finish()
    }
}
