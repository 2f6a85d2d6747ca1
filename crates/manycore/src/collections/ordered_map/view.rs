//! Views: a map as one section sees it, and what can be done with it.

use super::OrderedMap;
use super::iter::{OrderedMapIter, OrderedMapKeys, OrderedMapValues};
use super::tree::Position;
use super::value::Fresh;
use crate::section::Section;
use std::borrow::Borrow;
use std::fmt;
use std::ops::RangeBounds;

/// An [`OrderedMap`] and an open section. References to keys and values borrow from the view.
///
/// Keep a view for as long as references are needed, or for many calls in a row, but not while
/// waiting for anything: see [`Section`]. A view stays on its thread. Views nest.
///
/// ```
/// let scores = manycore::collections::OrderedMap::from([(10, "ann"), (30, "bob"), (20, "cyd")]);
/// let view = scores.enter();
/// assert_eq!(view.last(), Some((&30, &"bob")));
/// assert_eq!(view.range(15..).map(|(score, _)| *score).collect::<Vec<_>>(), [20, 30]);
/// let bob = view.remove(&30);
/// assert_eq!(bob, Some(&"bob")); // valid as long as the view
/// assert_eq!(view.last(), Some((&20, &"cyd")));
/// ```
pub struct OrderedMapView<'m, K, V> {
    map: &'m OrderedMap<K, V>,
    section: Section<'m>,
}

impl<'m, K, V> OrderedMapView<'m, K, V> {
    #[inline(always)]
    pub(super) fn new(map: &'m OrderedMap<K, V>, section: Section<'m>) -> Self {
        Self { map, section }
    }

    /// Returns the map.
    pub fn map(&self) -> &'m OrderedMap<K, V> {
        self.map
    }

    /// As [`OrderedMap::len`].
    #[must_use]
    pub fn len(&self) -> usize {
        self.map.len()
    }

    /// As [`OrderedMap::is_empty`].
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    /// Releases everything that was removed before, as if the view were closed and opened again.
    pub fn refresh(&mut self) {
        self.section.refresh();
    }
}

impl<K: Ord, V> OrderedMapView<'_, K, V> {
    #[inline(always)]
    fn find<Q>(&self, key: &Q) -> Option<Position<'_, K, V>>
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        self.map.find(&self.section, &|own| own.borrow().cmp(key)).filter(|place| place.is_there)
    }

    /// Returns the key's value.
    #[inline]
    #[must_use]
    pub fn get<Q>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        self.get_key_value(key).map(|(_, value)| value)
    }

    /// Returns the map's own key and its value.
    #[inline]
    #[must_use]
    pub fn get_key_value<Q>(&self, key: &Q) -> Option<(&K, &V)>
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        self.find(key).map(|place| place.entry())
    }

    /// Returns true if the key is present.
    #[inline]
    #[must_use]
    pub fn contains_key<Q>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        self.find(key).is_some()
    }

    /// Iterates over all entries, in the order of their keys. The iterator is double-ended.
    ///
    /// Consistency: not a snapshot. An entry that is present throughout is yielded exactly once, in
    /// its place. An entry that is inserted or removed meanwhile may be yielded or not. No key is
    /// yielded twice or out of order. Cost: two pointers on the heap for each level of the tree.
    #[must_use]
    pub fn iter(&self) -> OrderedMapIter<'_, K, V> {
        OrderedMapIter::new(self.map, &self.section)
    }

    /// Iterates over the entries whose keys are in a range, as [`iter`](Self::iter) does. A bounded
    /// end is fixed at the last entry that is now in the range: entries that are inserted beyond it
    /// are not yielded. If the start is beyond the end, the iterator is empty.
    ///
    /// ```
    /// use manycore::collections::OrderedMap;
    ///
    /// let squares: OrderedMap<u32, u32> = (0..100).map(|n| (n, n * n)).collect();
    /// let view = squares.enter();
    /// assert!(view.range(10..=12).map(|(_, square)| *square).eq([100, 121, 144]));
    /// assert_eq!(view.range(..50).next_back(), Some((&49, &2401)));
    /// ```
    #[must_use]
    pub fn range<Q, R>(&self, range: R) -> OrderedMapIter<'_, K, V>
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
        R: RangeBounds<Q>,
    {
        let compare = |own: &K, bound: &&Q| own.borrow().cmp(*bound);
        let (from, to) = (range.start_bound(), range.end_bound());
        let iter = OrderedMapIter::within(self.map, &self.section, from, to, compare);
        // Dropped before there is a result, which a panicking destructor would leak.
        drop(range);
        iter
    }

    /// Iterates over the keys, as [`iter`](Self::iter) does over the entries.
    #[must_use]
    pub fn keys(&self) -> OrderedMapKeys<'_, K, V> {
        OrderedMapKeys(self.iter())
    }

    /// Iterates over the values in the order of their keys, as [`iter`](Self::iter) does over the
    /// entries.
    #[must_use]
    pub fn values(&self) -> OrderedMapValues<'_, K, V> {
        OrderedMapValues(self.iter())
    }
}

impl<K, V> OrderedMapView<'_, K, V>
where
    K: Ord + Clone + Send + Sync,
    V: Clone + Send + Sync,
{
    /// Returns the entry with the least key.
    ///
    /// Consistency: linearizable. Writes only if the first leaf is empty because a removal has not
    /// joined it yet.
    #[doc(alias = "first_key_value")]
    #[must_use]
    pub fn first(&self) -> Option<(&K, &V)> {
        self.map.end(&self.section, true).map(|place| place.entry())
    }

    /// Returns the entry with the greatest key, as [`first`](Self::first) does.
    #[doc(alias = "last_key_value")]
    #[must_use]
    pub fn last(&self) -> Option<(&K, &V)> {
        self.map.end(&self.section, false).map(|place| place.entry())
    }

    /// Removes the entry with the least key and returns it. Linearizable.
    pub fn pop_first(&self) -> Option<(&K, &V)> {
        self.map.pop(&self.section, true)
    }

    /// Removes the entry with the greatest key and returns it. Linearizable.
    pub fn pop_last(&self) -> Option<(&K, &V)> {
        self.map.pop(&self.section, false)
    }

    /// Inserts an entry, or replaces the key and its value. Returns the old value.
    #[doc(alias = "upsert")]
    pub fn insert(&self, key: K, value: V) -> Option<&V> {
        match self.map.put(key, Fresh::new(value), true, &self.section) {
            Ok((_, old)) => old,
            Err(_) => unreachable!("it may replace what is there"),
        }
    }

    /// Inserts an entry if its key is not present. Returns the value in the map.
    ///
    /// # Errors
    /// The key and the value, if the key is present.
    pub fn try_insert(&self, key: K, value: V) -> Result<&V, (K, V)> {
        self.map
            .put(key, Fresh::new(value), false, &self.section)
            .map(|(new, _)| new)
            .map_err(|(key, value, _)| (key, value.into_inner()))
    }

    /// Returns the key's value, and inserts `value` first if the key is not present.
    pub fn get_or_insert(&self, key: K, value: V) -> &V {
        match self.map.put(key, Fresh::new(value), false, &self.section) {
            Ok((new, _)) => new,
            Err((_, _, place)) => place.entry().1,
        }
    }

    /// Returns the key's value, and inserts the result of `make` first if the key is not present.
    /// If another thread inserts the key first, this returns the value of that thread.
    pub fn get_or_insert_with(&self, key: K, make: impl FnOnce() -> V) -> &V {
        if let Some(value) = self.get(&key) {
            return value;
        }
        self.get_or_insert(key, make())
    }

    /// Removes the key. Returns its value.
    pub fn remove<Q>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        self.remove_if(key, |_, _| true)
    }

    /// Removes the key if `condition` returns true for its entry. Returns the removed value.
    /// `condition` runs without a lock, and runs again if another thread replaces the value
    /// meanwhile.
    pub fn remove_if<Q>(&self, key: &Q, mut condition: impl FnMut(&K, &V) -> bool) -> Option<&V>
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        loop {
            let place = self.find(key)?;
            if !condition(place.key(), place.value()) {
                return None;
            }
            if self.map.take(&place, &self.section, &|own| own.borrow().cmp(key)) {
                return Some(place.value());
            }
        }
    }

    /// Replaces the key's value by the result of `f`. Returns the new value. `f` runs without a
    /// lock, and runs again if another thread replaces the value meanwhile.
    #[doc(alias = "get_mut")]
    #[doc(alias = "alter")]
    pub fn update<Q>(&self, key: &Q, mut f: impl FnMut(&V) -> V) -> Option<&V>
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        let compare = |own: &K| own.borrow().cmp(key);
        loop {
            let place = self.map.find_to_replace(&self.section, &compare)?;
            let (own, next) = (place.key().clone(), Fresh::new(f(place.value())));
            if let Ok(next) = self.map.replace(&place, own, next, &self.section) {
                return Some(next);
            }
        }
    }

    /// Computes the key's next value from the current value, or from `None` if the key is not
    /// present. If `f` returns `None`, the key is removed. Returns the next value. `f` runs without
    /// a lock, and runs again if another thread changes the entry meanwhile.
    ///
    /// ```
    /// let counts = manycore::collections::OrderedMap::new();
    /// let view = counts.enter();
    /// for word in ["a", "b", "a"] {
    ///     view.compute(word, |count| Some(count.map_or(1, |count| count + 1)));
    /// }
    /// assert!(view.iter().eq([(&"a", &2), (&"b", &1)]));
    /// ```
    #[doc(alias = "entry")]
    pub fn compute(&self, key: K, mut f: impl FnMut(Option<&V>) -> Option<V>) -> Option<&V> {
        let mut key = key;
        loop {
            let found = self.map.find_to_replace(&self.section, &|own| own.cmp(&key));
            let Some(place) = found else {
                let value = Fresh::new(f(None)?);
                match self.map.put(key, value, false, &self.section) {
                    Ok((new, _)) => return Some(new),
                    Err((own, ..)) => key = own,
                }
                continue;
            };
            match f(Some(place.value())).map(Fresh::new) {
                Some(next) => match self.map.replace(&place, key, next, &self.section) {
                    Ok(next) => return Some(next),
                    Err((own, _)) => key = own,
                },
                None => {
                    if self.map.take(&place, &self.section, &|own| own.cmp(&key)) {
                        return None;
                    }
                }
            }
        }
    }

    /// Removes each entry that [`iter`](Self::iter) yields and for which `keep` returns false.
    pub fn retain(&self, mut keep: impl FnMut(&K, &V) -> bool) {
        for (key, value) in self.iter() {
            if !keep(key, value) {
                let mut is_first = true;
                self.remove_if(key, |key, now| {
                    let is_same = std::mem::take(&mut is_first) && std::ptr::eq(now, value);
                    is_same || !keep(key, now)
                });
            }
        }
    }

    /// Removes each entry that [`iter`](Self::iter) yields.
    pub fn clear(&self) {
        self.retain(|_, _| false);
    }
}

impl<K: Ord + fmt::Debug, V: fmt::Debug> fmt::Debug for OrderedMapView<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl<'v, K: Ord, V> IntoIterator for &'v OrderedMapView<'_, K, V> {
    type Item = (&'v K, &'v V);
    type IntoIter = OrderedMapIter<'v, K, V>;

    fn into_iter(self) -> OrderedMapIter<'v, K, V> {
        self.iter()
    }
}
