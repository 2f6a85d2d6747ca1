//! Iterators over the entries. They visit the buckets of the table that was the root at the start.

use super::bucket::Copied;
use super::plain::Plain;
use super::{FlatHashMap, RandomState};
use crate::collections::growth::Growing;
use std::fmt;
use std::hash::{BuildHasher, Hash};

/// Iterator over the entries of a map, by value: see [`FlatHashMap::iter`].
///
/// ```
/// let prices = manycore::collections::FlatHashMap::from([(1, 3), (2, 4)]);
/// assert_eq!(prices.iter().filter(|(_, price)| *price > 3).count(), 1);
/// ```
pub struct FlatHashMapIter<'m, K, V, S = RandomState> {
    map: &'m FlatHashMap<K, V, S>,
    /// Number of buckets of the root table at the start.
    buckets: usize,
    next: usize,
    /// The entries of the current bucket that were not yielded yet, and a buffer for a part of
    /// them.
    found: Vec<(K, V)>,
    part: Copied<K, V>,
}

impl<'m, K, V, S> FlatHashMapIter<'m, K, V, S>
where
    K: Plain + Hash + Eq,
    V: Plain,
    S: BuildHasher,
{
    pub(super) fn new(map: &'m FlatHashMap<K, V, S>) -> Self {
        let section = map.enter();
        let buckets = map.root.load(&section).as_ref().map_or(0, Growing::len);
        Self { map, buckets, next: 0, found: Vec::new(), part: Copied::new() }
    }

    /// Collects the entries of the next bucket. If the table has grown, they are in every bucket of
    /// the root whose index ends with the bucket's own. If the table has shrunk, they are a part of
    /// one bucket.
    fn gather(&mut self) {
        let Self { map, buckets, next, found, part } = self;
        let section = map.enter();
        let hash_of = |key: &K| map.hasher.hash_one(key);
        // If `Hash` panics, `found` stays empty: no bucket is yielded in part.
        let mut all = std::mem::take(found);
        loop {
            all.clear();
            let table = map.root.load(&section).as_ref().expect("a map has a table");
            let mut parts = (*next & (table.len() - 1)..table.len()).step_by(*buckets);
            if parts.all(|index| table.copy(index, &section, hash_of, part, &mut all)) {
                if table.len() < *buckets {
                    all.retain(|(key, _)| hash_of(key) as usize & (*buckets - 1) == *next);
                }
                break;
            }
        }
        *found = all;
        *next += 1;
    }
}

impl<K, V, S> Iterator for FlatHashMapIter<'_, K, V, S>
where
    K: Plain + Hash + Eq,
    V: Plain,
    S: BuildHasher,
{
    type Item = (K, V);

    fn next(&mut self) -> Option<(K, V)> {
        while self.found.is_empty() && self.next < self.buckets {
            self.gather();
        }
        self.found.pop()
    }
}

impl<K, V, S> std::iter::FusedIterator for FlatHashMapIter<'_, K, V, S>
where
    K: Plain + Hash + Eq,
    V: Plain,
    S: BuildHasher,
{
}

impl<K, V, S> fmt::Debug for FlatHashMapIter<'_, K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let left = self.buckets - self.next;
        f.debug_struct("FlatHashMapIter").field("buckets_left", &left).finish()
    }
}

/// Iterator over the keys of a map, by value: see [`FlatHashMap::keys`].
///
/// ```
/// let prices = manycore::collections::FlatHashMap::from([(1, 3), (2, 4)]);
/// assert_eq!(prices.keys().max(), Some(2));
/// ```
#[derive(Debug)]
pub struct FlatHashMapKeys<'m, K, V, S = RandomState>(pub(super) FlatHashMapIter<'m, K, V, S>);

/// Iterator over the values of a map, by value: see [`FlatHashMap::values`].
///
/// ```
/// let prices = manycore::collections::FlatHashMap::from([(1, 3), (2, 4)]);
/// assert_eq!(prices.values().sum::<i32>(), 7);
/// ```
#[derive(Debug)]
pub struct FlatHashMapValues<'m, K, V, S = RandomState>(pub(super) FlatHashMapIter<'m, K, V, S>);

macro_rules! part {
    ($iter:ident, $item:ident, $of:expr) => {
        impl<K, V, S> Iterator for $iter<'_, K, V, S>
        where
            K: Plain + Hash + Eq,
            V: Plain,
            S: BuildHasher,
        {
            type Item = $item;

            fn next(&mut self) -> Option<$item> {
                self.0.next().map($of)
            }
        }

        impl<K, V, S> std::iter::FusedIterator for $iter<'_, K, V, S>
        where
            K: Plain + Hash + Eq,
            V: Plain,
            S: BuildHasher,
        {
        }
    };
}
part! { FlatHashMapKeys, K, |(key, _)| key }
part! { FlatHashMapValues, V, |(_, value)| value }
