//! Iterators over the entries. They visit the buckets of the table that was the root at the start.

use super::super::growth::{Growing, Root};
use super::table::{Entry, Table};
use crate::section::Section;
use std::fmt;

/// Iterator over the entries of a map: see [`HashMapView::iter`](super::HashMapView::iter).
///
/// ```
/// let prices = manycore::collections::HashMap::from([("tea", 3), ("cake", 4)]);
/// let view = prices.enter();
/// assert_eq!(view.iter().filter(|(_, price)| **price > 3).count(), 1);
/// ```
pub struct HashMapIter<'v, K, V> {
    root: &'v Root<Table<K, V>>,
    section: &'v Section<'v>,
    /// Number of buckets of the root table at the start.
    buckets: usize,
    next: usize,
    found: Vec<&'v Entry<K, V>>,
}

impl<'v, K, V> HashMapIter<'v, K, V> {
    pub(super) fn new(root: &'v Root<Table<K, V>>, section: &'v Section<'v>) -> Self {
        let buckets = root.load(section).as_ref().map_or(0, Growing::len);
        Self { root, section, buckets, next: 0, found: Vec::new() }
    }

    /// Collects the entries of the next bucket. If the table has grown, they are in every bucket of
    /// the root whose index ends with the bucket's own. If the table has shrunk, they are a part of
    /// one bucket.
    fn gather(&mut self) {
        let (next, buckets) = (self.next, self.buckets);
        loop {
            self.found.clear();
            let table = self.root.load(self.section).as_ref().expect("a map has a table");
            let is_own = |entry: &Entry<K, V>| entry.hash as usize & (buckets - 1) == next;
            let mut parts = (next & (table.len() - 1)..table.len()).step_by(buckets);
            if parts.all(|part| {
                table.for_each_at(part, self.section, |entry| {
                    self.found.extend(Some(entry).filter(|entry| is_own(entry)));
                })
            }) {
                break;
            }
        }
        self.next += 1;
    }

    pub(super) fn next_entry(&mut self) -> Option<&'v Entry<K, V>> {
        while self.found.is_empty() && self.next < self.buckets {
            self.gather();
        }
        self.found.pop()
    }
}

impl<'v, K, V> Iterator for HashMapIter<'v, K, V> {
    type Item = (&'v K, &'v V);

    fn next(&mut self) -> Option<Self::Item> {
        self.next_entry().map(|entry| (&entry.key, &entry.value))
    }
}

impl<K, V> std::iter::FusedIterator for HashMapIter<'_, K, V> {}

impl<K, V> fmt::Debug for HashMapIter<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HashMapIter").field("buckets_left", &(self.buckets - self.next)).finish()
    }
}

/// Iterator over the keys of a map: see [`HashMapView::keys`](super::HashMapView::keys).
///
/// ```
/// let prices = manycore::collections::HashMap::from([("tea", 3), ("cake", 4)]);
/// let view = prices.enter();
/// assert_eq!(view.keys().min(), Some(&"cake"));
/// ```
#[derive(Debug)]
pub struct HashMapKeys<'v, K, V>(pub(super) HashMapIter<'v, K, V>);

impl<'v, K, V> Iterator for HashMapKeys<'v, K, V> {
    type Item = &'v K;

    fn next(&mut self) -> Option<&'v K> {
        self.0.next().map(|(key, _)| key)
    }
}

/// Iterator over the values of a map: see [`HashMapView::values`](super::HashMapView::values).
///
/// ```
/// let prices = manycore::collections::HashMap::from([("tea", 3), ("cake", 4)]);
/// assert_eq!(prices.enter().values().sum::<i32>(), 7);
/// ```
#[derive(Debug)]
pub struct HashMapValues<'v, K, V>(pub(super) HashMapIter<'v, K, V>);

impl<'v, K, V> Iterator for HashMapValues<'v, K, V> {
    type Item = &'v V;

    fn next(&mut self) -> Option<&'v V> {
        self.0.next().map(|(_, value)| value)
    }
}
