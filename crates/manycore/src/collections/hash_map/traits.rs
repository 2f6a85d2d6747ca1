//! Implementations of the standard library's traits for a map.

use super::{HashMap, HashMapIntoIter};
use std::fmt;
use std::hash::{BuildHasher, Hash};

impl<K, V, S: Default> Default for HashMap<K, V, S> {
    fn default() -> Self {
        Self::with_hasher(S::default())
    }
}

impl<K, V, S> fmt::Debug for HashMap<K, V, S>
where
    K: Hash + Eq + Send + Sync + fmt::Debug,
    V: Send + Sync + fmt::Debug,
    S: BuildHasher,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.enter(), f)
    }
}

impl<K, V, S> Extend<(K, V)> for HashMap<K, V, S>
where
    K: Hash + Eq + Send + Sync,
    V: Send + Sync,
    S: BuildHasher,
{
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, entries: I) {
        (&*self).extend(entries);
    }
}

impl<K, V, S> Extend<(K, V)> for &HashMap<K, V, S>
where
    K: Hash + Eq + Send + Sync,
    V: Send + Sync,
    S: BuildHasher,
{
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, entries: I) {
        for (key, value) in entries {
            self.enter().insert(key, value);
        }
    }
}

impl<K, V, S> FromIterator<(K, V)> for HashMap<K, V, S>
where
    K: Hash + Eq + Send + Sync,
    V: Send + Sync,
    S: BuildHasher + Default,
{
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        let entries = entries.into_iter();
        let map = Self::with_capacity_and_hasher(entries.size_hint().0, S::default());
        (&map).extend(entries);
        map
    }
}

impl<K, V, const N: usize> From<[(K, V); N]> for HashMap<K, V>
where
    K: Hash + Eq + Send + Sync,
    V: Send + Sync,
{
    fn from(entries: [(K, V); N]) -> Self {
        Self::from_iter(entries)
    }
}

impl<'a, K, V, S> Extend<(&'a K, &'a V)> for HashMap<K, V, S>
where
    K: Hash + Eq + Copy + Send + Sync,
    V: Copy + Send + Sync,
    S: BuildHasher,
{
    fn extend<I: IntoIterator<Item = (&'a K, &'a V)>>(&mut self, entries: I) {
        (&*self).extend(entries.into_iter().map(|(key, value)| (*key, *value)));
    }
}

/// Clones the entries; not a snapshot, like [`HashMapView::iter`](super::HashMapView::iter). The
/// clone has the same hasher and weigher, and a domain of its own.
impl<K, V, S> Clone for HashMap<K, V, S>
where
    K: Hash + Eq + Clone + Send + Sync,
    V: Clone + Send + Sync,
    S: BuildHasher + Clone,
{
    fn clone(&self) -> Self {
        let mut map = Self::with_capacity_and_hasher(self.len(), self.hasher.clone());
        map.weigher = self.weigher;
        for (key, value) in &self.enter() {
            map.insert(key.clone(), value.clone());
        }
        map
    }
}

/// Returns true if both maps have equal entries. Not a snapshot of either map: the answer is exact
/// only if neither is updated.
impl<K, V, S, R> PartialEq<HashMap<K, V, R>> for HashMap<K, V, S>
where
    K: Hash + Eq + Send + Sync,
    V: PartialEq + Send + Sync,
    S: BuildHasher,
    R: BuildHasher,
{
    fn eq(&self, other: &HashMap<K, V, R>) -> bool {
        let (mine, theirs) = (self.enter(), other.enter());
        mine.len() == theirs.len() && mine.iter().all(|(key, value)| theirs.get(key) == Some(value))
    }
}

impl<K, V, S> Eq for HashMap<K, V, S>
where
    K: Hash + Eq + Send + Sync,
    V: Eq + Send + Sync,
    S: BuildHasher,
{
}

/// Yields the entries themselves. No view is open, so no entry is copied.
impl<K, V, S> IntoIterator for HashMap<K, V, S> {
    type Item = (K, V);
    type IntoIter = HashMapIntoIter<K, V, S>;

    fn into_iter(self) -> HashMapIntoIter<K, V, S> {
        HashMapIntoIter::new(self)
    }
}
