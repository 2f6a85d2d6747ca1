//! Conversion of a map into its entries, which hashes no key. The caller has the only reference to
//! the map, so no thread is in a bucket: each bucket is open, or its entries are in the other
//! table.

use super::super::growth::Growing;
use super::bucket::Copied;
use super::plain::Plain;
use super::table::Table;
use super::{FlatHashMap, RandomState};
use crate::section::Owned;
use std::fmt;

/// Iterator over the entries of a map: see [`FlatHashMap::into_iter`](IntoIterator::into_iter).
///
/// The entries come in no order.
///
/// ```
/// let map = manycore::collections::FlatHashMap::from([(1, 10), (2, 20)]);
/// let mut entries: Vec<(i32, i32)> = map.into_iter().collect();
/// entries.sort();
/// assert_eq!(entries, [(1, 10), (2, 20)]);
/// ```
pub struct FlatHashMapIntoIter<K, V, S = RandomState> {
    map: FlatHashMap<K, V, S>,
    /// The root table or, if the map was growing, the old table.
    table: Option<Owned<Table<K, V>>>,
    next: usize,
    found: Copied<K, V>,
    left: usize,
}

impl<K: Plain, V: Plain, S> FlatHashMapIntoIter<K, V, S> {
    pub(super) fn new(mut map: FlatHashMap<K, V, S>) -> Self {
        let (left, table) = (map.len(), map.root.take());
        Self { map, table, next: 0, found: Copied::new(), left }
    }

    /// Copies the entries of the next bucket. Returns false after the last bucket.
    fn gather(&mut self) -> bool {
        while let Some(table) = &self.table {
            if self.next < table.len() {
                let bucket = table.bucket(self.next as u64);
                self.next += 1;
                // A closed bucket yields nothing: its entries are in the other table
                // (flat_hash_map.F3).
                let _ = bucket.copy(&mut self.found);
                return true;
            }
            self.next = 0;
            self.table = self.map.root.take();
        }
        false
    }
}

impl<K: Plain, V: Plain, S> Iterator for FlatHashMapIntoIter<K, V, S> {
    type Item = (K, V);

    fn next(&mut self) -> Option<(K, V)> {
        while self.found.entries.is_empty() && self.gather() {}
        let entry = self.found.entries.pop()?;
        self.left = self.left.saturating_sub(1);
        Some(entry)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl<K: Plain, V: Plain, S> ExactSizeIterator for FlatHashMapIntoIter<K, V, S> {}
impl<K: Plain, V: Plain, S> std::iter::FusedIterator for FlatHashMapIntoIter<K, V, S> {}

impl<K, V, S> fmt::Debug for FlatHashMapIntoIter<K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FlatHashMapIntoIter").field("left", &self.left).finish()
    }
}
