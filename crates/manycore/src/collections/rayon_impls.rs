//! rayon's traits on the maps and sets of this module: feature `rayon`.
//!
//! References that a parallel iterator lends out may be kept by any thread as long as the view, so
//! it is the view's section that must keep what they lead to. Hence they are all gathered by the
//! thread that opened it (two words each, before the first is handed out), and only then spread
//! over threads: a section that another thread opened would end with its part of the work.
//! A flat map's entries are gathered as copies, since a walk over it has no parts.
//! In the other direction nothing is gathered: each thread of rayon inserts into the map.

use super::hash_map::HashMapView;
use super::hash_set::HashSetView;
use super::ordered_map::OrderedMapView;
use super::{FlatHashMap, HashMap, HashSet, OrderedMap, Plain};
use rayon::iter::{FromParallelIterator, IntoParallelIterator, ParallelExtend, ParallelIterator};
use rayon::slice::ParallelSliceMut;
use std::hash::{BuildHasher, Hash};

/// The entries that are there when it is called: no snapshot, as [`HashMapView::iter`].
///
/// Cost: a walk over the map by the calling thread, which gathers references; what is done with
/// the entries is done in parallel.
///
/// ```
/// use manycore::collections::HashMap;
/// use rayon::prelude::*;
///
/// let squares: HashMap<u64, u64> = (0..1000).into_par_iter().map(|n| (n, n * n)).collect();
/// let view = squares.enter();
/// assert_eq!(view.par_iter().map(|(_, square)| square % 10).sum::<u64>(), 4500);
/// ```
impl<'v, K: Sync, V: Sync, S> IntoParallelIterator for &'v HashMapView<'_, K, V, S> {
    type Item = (&'v K, &'v V);
    type Iter = rayon::vec::IntoIter<(&'v K, &'v V)>;

    fn into_par_iter(self) -> Self::Iter {
        self.iter().collect::<Vec<_>>().into_par_iter()
    }
}

/// The entries that are there when it is called, in order: as those of a [`HashMapView`].
impl<'v, K: Ord + Sync, V: Sync> IntoParallelIterator for &'v OrderedMapView<'_, K, V> {
    type Item = (&'v K, &'v V);
    type Iter = rayon::vec::IntoIter<(&'v K, &'v V)>;

    fn into_par_iter(self) -> Self::Iter {
        self.iter().collect::<Vec<_>>().into_par_iter()
    }
}

/// The entries themselves, in order.
impl<K: Send, V: Send> IntoParallelIterator for OrderedMap<K, V> {
    type Item = (K, V);
    type Iter = rayon::vec::IntoIter<(K, V)>;

    fn into_par_iter(self) -> Self::Iter {
        self.into_iter().collect::<Vec<_>>().into_par_iter()
    }
}

/// The entries that are there when it is called, as copies: no snapshot, as [`FlatHashMap::iter`].
///
/// Cost: a walk over the map by the calling thread.
impl<K, V, S> IntoParallelIterator for &FlatHashMap<K, V, S>
where
    K: Plain + Hash + Eq,
    V: Plain,
    S: BuildHasher,
{
    type Item = (K, V);
    type Iter = rayon::vec::IntoIter<(K, V)>;

    fn into_par_iter(self) -> Self::Iter {
        self.iter().collect::<Vec<_>>().into_par_iter()
    }
}

/// The entries themselves.
impl<K: Plain, V: Plain, S> IntoParallelIterator for FlatHashMap<K, V, S> {
    type Item = (K, V);
    type Iter = rayon::vec::IntoIter<(K, V)>;

    fn into_par_iter(self) -> Self::Iter {
        self.into_iter().collect::<Vec<_>>().into_par_iter()
    }
}

/// The members that are there when it is called: no snapshot, as [`HashSetView::iter`].
impl<'v, T: Sync, S> IntoParallelIterator for &'v HashSetView<'_, T, S> {
    type Item = &'v T;
    type Iter = rayon::vec::IntoIter<&'v T>;

    fn into_par_iter(self) -> Self::Iter {
        self.iter().collect::<Vec<_>>().into_par_iter()
    }
}

/// The entries themselves.
impl<K: Send, V: Send, S> IntoParallelIterator for HashMap<K, V, S> {
    type Item = (K, V);
    type Iter = rayon::vec::IntoIter<(K, V)>;

    fn into_par_iter(self) -> Self::Iter {
        self.into_iter().collect::<Vec<_>>().into_par_iter()
    }
}

/// The members themselves.
impl<T: Send, S> IntoParallelIterator for HashSet<T, S> {
    type Item = T;
    type Iter = rayon::vec::IntoIter<T>;

    fn into_par_iter(self) -> Self::Iter {
        self.into_iter().collect::<Vec<_>>().into_par_iter()
    }
}

macro_rules! hashed {
    ($($map:ident: $($bound:ident)+;)*) => {$(
        /// Of two entries with one key, either stays: threads insert at once.
        impl<K, V, S> ParallelExtend<(K, V)> for &$map<K, V, S>
        where
            K: Hash + Eq $(+ $bound)+,
            V: $($bound +)+,
            S: BuildHasher + Sync,
        {
            fn par_extend<I: IntoParallelIterator<Item = (K, V)>>(&mut self, entries: I) {
                entries.into_par_iter().for_each(|(key, value)| {
                    self.insert(key, value);
                });
            }
        }

        /// As that of the reference.
        impl<K, V, S> ParallelExtend<(K, V)> for $map<K, V, S>
        where
            K: Hash + Eq $(+ $bound)+,
            V: $($bound +)+,
            S: BuildHasher + Sync,
        {
            fn par_extend<I: IntoParallelIterator<Item = (K, V)>>(&mut self, entries: I) {
                (&*self).par_extend(entries);
            }
        }

        /// Of two entries with one key, either stays: threads insert at once.
        impl<K, V, S> FromParallelIterator<(K, V)> for $map<K, V, S>
        where
            K: Hash + Eq $(+ $bound)+,
            V: $($bound +)+,
            S: BuildHasher + Default + Sync,
        {
            fn from_par_iter<I: IntoParallelIterator<Item = (K, V)>>(entries: I) -> Self {
                let entries = entries.into_par_iter();
                let capacity = entries.opt_len().unwrap_or(0);
                let map = Self::with_capacity_and_hasher(capacity, S::default());
                (&map).par_extend(entries);
                map
            }
        }
    )*};
}
hashed! {
    HashMap: Send Sync;
    FlatHashMap: Plain;
}

/// Of two entries with one key, either stays: threads insert at once.
impl<K, V> ParallelExtend<(K, V)> for &OrderedMap<K, V>
where
    K: Ord + Clone + Send + Sync,
    V: Clone + Send + Sync,
{
    fn par_extend<I: IntoParallelIterator<Item = (K, V)>>(&mut self, entries: I) {
        entries.into_par_iter().for_each(|(key, value)| {
            self.insert(key, value);
        });
    }
}

/// As that of `&OrderedMap`.
impl<K, V> ParallelExtend<(K, V)> for OrderedMap<K, V>
where
    K: Ord + Clone + Send + Sync,
    V: Clone + Send + Sync,
{
    fn par_extend<I: IntoParallelIterator<Item = (K, V)>>(&mut self, entries: I) {
        (&*self).par_extend(entries);
    }
}

/// Gathers the entries, sorts them in parallel, and builds the map of them. Of two entries with one
/// key the last one counts.
impl<K: Ord + Clone + Send, V: Send> FromParallelIterator<(K, V)> for OrderedMap<K, V> {
    fn from_par_iter<I: IntoParallelIterator<Item = (K, V)>>(entries: I) -> Self {
        let mut entries: Vec<(K, V)> = entries.into_par_iter().collect();
        entries.par_sort_by(|one, other| one.0.cmp(&other.0));
        entries.into_iter().collect()
    }
}

/// Each thread inserts what it has.
impl<T, S> ParallelExtend<T> for &HashSet<T, S>
where
    T: Hash + Eq + Send + Sync,
    S: BuildHasher + Sync,
{
    fn par_extend<I: IntoParallelIterator<Item = T>>(&mut self, members: I) {
        members.into_par_iter().for_each(|member| {
            self.insert(member);
        });
    }
}

/// As that of `&HashSet`.
impl<T, S> ParallelExtend<T> for HashSet<T, S>
where
    T: Hash + Eq + Send + Sync,
    S: BuildHasher + Sync,
{
    fn par_extend<I: IntoParallelIterator<Item = T>>(&mut self, members: I) {
        (&*self).par_extend(members);
    }
}

/// Each thread inserts what it has.
impl<T, S> FromParallelIterator<T> for HashSet<T, S>
where
    T: Hash + Eq + Send + Sync,
    S: BuildHasher + Default + Sync,
{
    fn from_par_iter<I: IntoParallelIterator<Item = T>>(members: I) -> Self {
        let members = members.into_par_iter();
        let capacity = members.opt_len().unwrap_or(0);
        let set = Self::with_capacity_and_hasher(capacity, S::default());
        (&set).par_extend(members);
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_gathered_before_the_first_is_handed_out() {
        let map: HashMap<u32, u32> = (0..100).map(|n| (n, n)).collect();
        let view = map.enter();
        let entries = (&view).into_par_iter();
        map.clear();
        assert_eq!(entries.map(|(_, value)| value).sum::<u32>(), 4950);
    }
}
