//! Implementations of the standard library's traits for a map.

use super::plain::Plain;
use super::{FlatHashMap, FlatHashMapIntoIter, FlatHashMapIter};
use std::fmt;
use std::hash::{BuildHasher, Hash};

impl<K, V, S: Default> Default for FlatHashMap<K, V, S> {
    fn default() -> Self {
        Self::with_hasher(S::default())
    }
}

impl<K, V, S> fmt::Debug for FlatHashMap<K, V, S>
where
    K: Plain + Hash + Eq + fmt::Debug,
    V: Plain + fmt::Debug,
    S: BuildHasher,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self).finish()
    }
}

impl<K, V, S> Extend<(K, V)> for FlatHashMap<K, V, S>
where
    K: Plain + Hash + Eq,
    V: Plain,
    S: BuildHasher,
{
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, entries: I) {
        (&*self).extend(entries);
    }
}

impl<K, V, S> Extend<(K, V)> for &FlatHashMap<K, V, S>
where
    K: Plain + Hash + Eq,
    V: Plain,
    S: BuildHasher,
{
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, entries: I) {
        for (key, value) in entries {
            self.insert(key, value);
        }
    }
}

impl<K, V, S> FromIterator<(K, V)> for FlatHashMap<K, V, S>
where
    K: Plain + Hash + Eq,
    V: Plain,
    S: BuildHasher + Default,
{
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        let entries = entries.into_iter();
        let map = Self::with_capacity_and_hasher(entries.size_hint().0, S::default());
        (&map).extend(entries);
        map
    }
}

impl<K, V, const N: usize> From<[(K, V); N]> for FlatHashMap<K, V>
where
    K: Plain + Hash + Eq,
    V: Plain,
{
    fn from(entries: [(K, V); N]) -> Self {
        Self::from_iter(entries)
    }
}

impl<'a, K, V, S> Extend<(&'a K, &'a V)> for FlatHashMap<K, V, S>
where
    K: Plain + Hash + Eq,
    V: Plain,
    S: BuildHasher,
{
    fn extend<I: IntoIterator<Item = (&'a K, &'a V)>>(&mut self, entries: I) {
        (&*self).extend(entries.into_iter().map(|(key, value)| (*key, *value)));
    }
}

/// Clones the entries and the hasher; not a snapshot, like [`FlatHashMap::iter`].
impl<K, V, S> Clone for FlatHashMap<K, V, S>
where
    K: Plain + Hash + Eq,
    V: Plain,
    S: BuildHasher + Clone,
{
    fn clone(&self) -> Self {
        let map = Self::with_capacity_and_hasher(self.len(), self.hasher.clone());
        (&map).extend(self);
        map
    }
}

/// Returns true if both maps have equal entries. Not a snapshot of either map: the answer is exact
/// only if neither is updated.
impl<K, V, S, R> PartialEq<FlatHashMap<K, V, R>> for FlatHashMap<K, V, S>
where
    K: Plain + Hash + Eq,
    V: Plain + PartialEq,
    S: BuildHasher,
    R: BuildHasher,
{
    fn eq(&self, other: &FlatHashMap<K, V, R>) -> bool {
        self.len() == other.len() && self.iter().all(|(key, value)| other.get(&key) == Some(value))
    }
}

impl<K, V, S> Eq for FlatHashMap<K, V, S>
where
    K: Plain + Hash + Eq,
    V: Plain + Eq,
    S: BuildHasher,
{
}

impl<'m, K, V, S> IntoIterator for &'m FlatHashMap<K, V, S>
where
    K: Plain + Hash + Eq,
    V: Plain,
    S: BuildHasher,
{
    type Item = (K, V);
    type IntoIter = FlatHashMapIter<'m, K, V, S>;

    fn into_iter(self) -> FlatHashMapIter<'m, K, V, S> {
        self.iter()
    }
}

/// Yields the entries. No other thread uses the map, so no bucket is read twice and no key is
/// hashed.
impl<K: Plain, V: Plain, S> IntoIterator for FlatHashMap<K, V, S> {
    type Item = (K, V);
    type IntoIter = FlatHashMapIntoIter<K, V, S>;

    fn into_iter(self) -> FlatHashMapIntoIter<K, V, S> {
        FlatHashMapIntoIter::new(self)
    }
}
