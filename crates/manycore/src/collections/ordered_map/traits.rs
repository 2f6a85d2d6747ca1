//! Implementations of the standard library's traits for a map.

use super::{OrderedMap, OrderedMapIntoIter};
use std::fmt;

impl<K, V> Default for OrderedMap<K, V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Ord + fmt::Debug, V: fmt::Debug> fmt::Debug for OrderedMap<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.enter(), f)
    }
}

/// Sorts the entries, unless they are sorted, and builds full nodes of them. Of equal keys, the
/// last one's entry is kept.
impl<K: Ord + Clone, V> FromIterator<(K, V)> for OrderedMap<K, V> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        Self::of(entries.into_iter().collect())
    }
}

impl<K: Ord + Clone, V, const N: usize> From<[(K, V); N]> for OrderedMap<K, V> {
    fn from(entries: [(K, V); N]) -> Self {
        Self::from_iter(entries)
    }
}

impl<K, V> Extend<(K, V)> for OrderedMap<K, V>
where
    K: Ord + Clone + Send + Sync,
    V: Clone + Send + Sync,
{
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, entries: I) {
        (&*self).extend(entries);
    }
}

impl<K, V> Extend<(K, V)> for &OrderedMap<K, V>
where
    K: Ord + Clone + Send + Sync,
    V: Clone + Send + Sync,
{
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, entries: I) {
        for (key, value) in entries {
            self.enter().insert(key, value);
        }
    }
}

impl<'a, K, V> Extend<(&'a K, &'a V)> for OrderedMap<K, V>
where
    K: Ord + Copy + Send + Sync,
    V: Copy + Send + Sync,
{
    fn extend<I: IntoIterator<Item = (&'a K, &'a V)>>(&mut self, entries: I) {
        (&*self).extend(entries.into_iter().map(|(key, value)| (*key, *value)));
    }
}

/// Clones the entries; not a snapshot, like [`OrderedMapView::iter`](super::OrderedMapView::iter).
impl<K: Ord + Clone, V: Clone> Clone for OrderedMap<K, V> {
    fn clone(&self) -> Self {
        self.enter().iter().map(|(key, value)| (key.clone(), value.clone())).collect()
    }
}

/// Returns true if both maps have equal entries. Not a snapshot of either map: the answer is exact
/// only if neither is updated.
impl<K: Ord, V: PartialEq> PartialEq for OrderedMap<K, V> {
    fn eq(&self, other: &Self) -> bool {
        self.enter().iter().eq(other.enter().iter())
    }
}

impl<K: Ord, V: Eq> Eq for OrderedMap<K, V> {}

/// Yields the entries themselves. No view is open, so no entry is copied.
impl<K, V> IntoIterator for OrderedMap<K, V> {
    type Item = (K, V);
    type IntoIter = OrderedMapIntoIter<K, V>;

    fn into_iter(self) -> OrderedMapIntoIter<K, V> {
        OrderedMapIntoIter::new(self)
    }
}
