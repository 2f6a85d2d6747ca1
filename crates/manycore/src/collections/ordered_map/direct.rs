//! The map's own methods. Each method except `enter` opens a section for one call, and returns
//! nothing that borrows from the map.

use super::{OrderedMap, OrderedMapView};
use std::borrow::Borrow;

impl<K, V> OrderedMap<K, V> {
    /// Opens a section and returns a view of the map in it.
    #[doc(alias = "guard")]
    #[doc(alias = "pin")]
    #[inline]
    pub fn enter(&self) -> OrderedMapView<'_, K, V> {
        OrderedMapView::new(self, self.domain.enter())
    }

    /// Calls `f` with a view, and closes the view before the answer is returned. A destructor that
    /// panics at the end of the view would otherwise leak the answer.
    #[inline(always)]
    fn in_view<T>(&self, f: impl FnOnce(&OrderedMapView<'_, K, V>) -> T) -> T {
        let view = self.enter();
        let answer = f(&view);
        drop(view);
        answer
    }
}

impl<K, V> OrderedMap<K, V>
where
    K: Ord + Clone + Send + Sync,
    V: Clone + Send + Sync,
{
    /// Calls `look` with the key's value, if the key is present, and returns its result.
    ///
    /// `look` runs in an open section. It may use the map, but should not block or compute for
    /// long, because everything that other threads remove meanwhile waits for it.
    ///
    /// ```
    /// let map = manycore::collections::OrderedMap::from([(1, String::from("one"))]);
    /// assert_eq!(map.read(&1, |name| name.len()), Some(3));
    /// assert_eq!(map.read(&2, |name| name.len()), None);
    /// ```
    #[doc(alias = "get")]
    #[inline]
    pub fn read<Q, T>(&self, key: &Q, look: impl FnOnce(&V) -> T) -> Option<T>
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        self.in_view(|view| view.get(key).map(look))
    }

    /// Returns a clone of the key's value. This copies small values. Put large values into an
    /// `Arc`, or [`read`](Self::read) them in place.
    #[doc(alias = "get")]
    #[inline]
    #[must_use]
    pub fn get_cloned<Q>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        self.read(key, V::clone)
    }

    /// Returns true if the key is present.
    #[inline]
    #[must_use]
    pub fn contains_key<Q>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        self.enter().contains_key(key)
    }

    /// Inserts the value, or replaces the key and its value. Returns true if the key is new.
    #[doc(alias = "upsert")]
    pub fn insert(&self, key: K, value: V) -> bool {
        self.enter().insert(key, value).is_none()
    }

    /// Inserts an entry if its key is not present.
    ///
    /// # Errors
    /// The key and the value, if the key is present.
    pub fn try_insert(&self, key: K, value: V) -> Result<(), (K, V)> {
        self.enter().try_insert(key, value).map(|_| ())
    }

    /// Returns a clone of the key's value, and inserts the result of `make` first if the key is not
    /// present.
    pub fn get_or_insert_with(&self, key: K, make: impl FnOnce() -> V) -> V {
        self.in_view(|view| view.get_or_insert_with(key, make).clone())
    }

    /// Removes the key. Returns true if it was present.
    pub fn remove<Q>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        self.enter().remove(key).is_some()
    }

    /// Removes the key. Returns a clone of its value.
    pub fn remove_cloned<Q>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        self.in_view(|view| view.remove(key).cloned())
    }

    /// As [`OrderedMapView::remove_if`], but returns true if the key was removed.
    pub fn remove_if<Q>(&self, key: &Q, condition: impl FnMut(&K, &V) -> bool) -> bool
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        self.enter().remove_if(key, condition).is_some()
    }

    /// As [`OrderedMapView::update`], but returns true if the key is present.
    #[doc(alias = "get_mut")]
    #[doc(alias = "alter")]
    pub fn update<Q>(&self, key: &Q, f: impl FnMut(&V) -> V) -> bool
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        self.enter().update(key, f).is_some()
    }

    /// As [`OrderedMapView::compute`], but returns true if the key is present afterwards.
    #[doc(alias = "entry")]
    pub fn compute(&self, key: K, f: impl FnMut(Option<&V>) -> Option<V>) -> bool {
        self.enter().compute(key, f).is_some()
    }

    /// Returns a clone of the entry with the least key.
    #[doc(alias = "first_key_value")]
    #[must_use]
    pub fn first_cloned(&self) -> Option<(K, V)> {
        self.in_view(|view| view.first().map(cloned))
    }

    /// Returns a clone of the entry with the greatest key.
    #[doc(alias = "last_key_value")]
    #[must_use]
    pub fn last_cloned(&self) -> Option<(K, V)> {
        self.in_view(|view| view.last().map(cloned))
    }

    /// Removes the entry with the least key and returns a clone of it. No two threads get the same
    /// entry.
    ///
    /// ```
    /// let jobs = manycore::collections::OrderedMap::from([(30, "later"), (10, "now")]);
    /// assert_eq!(jobs.pop_first_cloned(), Some((10, "now")));
    /// assert_eq!(jobs.len(), 1);
    /// ```
    #[doc(alias = "pop_first")]
    pub fn pop_first_cloned(&self) -> Option<(K, V)> {
        self.in_view(|view| view.pop_first().map(cloned))
    }

    /// Removes the entry with the greatest key and returns a clone of it.
    #[doc(alias = "pop_last")]
    pub fn pop_last_cloned(&self) -> Option<(K, V)> {
        self.in_view(|view| view.pop_last().map(cloned))
    }

    /// Calls `f` with each entry, in order.
    pub fn for_each(&self, mut f: impl FnMut(&K, &V)) {
        self.enter().iter().for_each(|(key, value)| f(key, value));
    }

    /// As [`OrderedMapView::retain`].
    pub fn retain(&self, keep: impl FnMut(&K, &V) -> bool) {
        self.enter().retain(keep);
    }

    /// Removes each entry that [`OrderedMapView::iter`] yields.
    pub fn clear(&self) {
        self.enter().clear();
    }
}

fn cloned<K: Clone, V: Clone>((key, value): (&K, &V)) -> (K, V) {
    (key.clone(), value.clone())
}
