//! The map's own methods: each but `enter` opens a section for one call, and lends nothing that
//! outlives it.

use super::{OrderedMap, OrderedMapView};
use std::borrow::Borrow;

impl<K, V> OrderedMap<K, V> {
    /// Opens a section and shows the map in it.
    #[doc(alias = "guard")]
    #[doc(alias = "pin")]
    #[inline]
    pub fn enter(&self) -> OrderedMapView<'_, K, V> {
        OrderedMapView::new(self, self.domain.enter())
    }

    /// What `f` makes of a view, which ends before it is returned: a destructor that panics there
    /// would leak an answer that is on its way.
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
    /// Shows the key's value to `look`, if the key is there; what `look` returns.
    ///
    /// `look` runs in an open section: it may use the map, but should not block or compute for
    /// long, because what other threads remove in between waits for it.
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

    /// A clone of the key's value. Small values are copied; put large ones into an `Arc`, or
    /// [`read`](Self::read) them in place.
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

    /// Whether the key is there.
    #[inline]
    #[must_use]
    pub fn contains_key<Q>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        self.enter().contains_key(key)
    }

    /// Puts a value in, in place of the key's if there is one. Returns whether the key is new.
    #[doc(alias = "upsert")]
    pub fn insert(&self, key: K, value: V) -> bool {
        self.enter().insert(key, value).is_none()
    }

    /// Puts an entry in if its key is absent.
    ///
    /// # Errors
    /// The key and the value, if the key is there.
    pub fn try_insert(&self, key: K, value: V) -> Result<(), (K, V)> {
        self.enter().try_insert(key, value).map(|_| ())
    }

    /// A clone of the key's value; if it is absent, of that which `make` returns, which is put in.
    pub fn get_or_insert_with(&self, key: K, make: impl FnOnce() -> V) -> V {
        self.in_view(|view| view.get_or_insert_with(key, make).clone())
    }

    /// Takes the key out. Returns whether it was there.
    pub fn remove<Q>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        self.enter().remove(key).is_some()
    }

    /// Takes the key out; a clone of its value.
    pub fn remove_cloned<Q>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        self.in_view(|view| view.remove(key).cloned())
    }

    /// As [`OrderedMapView::remove_if`]; whether the key was taken out.
    pub fn remove_if<Q>(&self, key: &Q, condition: impl FnMut(&K, &V) -> bool) -> bool
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        self.enter().remove_if(key, condition).is_some()
    }

    /// As [`OrderedMapView::update`]; whether the key is there.
    #[doc(alias = "get_mut")]
    #[doc(alias = "alter")]
    pub fn update<Q>(&self, key: &Q, f: impl FnMut(&V) -> V) -> bool
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        self.enter().update(key, f).is_some()
    }

    /// As [`OrderedMapView::compute`]; whether the key is there afterwards.
    #[doc(alias = "entry")]
    pub fn compute(&self, key: K, f: impl FnMut(Option<&V>) -> Option<V>) -> bool {
        self.enter().compute(key, f).is_some()
    }

    /// A clone of the entry with the least key.
    #[doc(alias = "first_key_value")]
    #[must_use]
    pub fn first_cloned(&self) -> Option<(K, V)> {
        self.in_view(|view| view.first().map(cloned))
    }

    /// A clone of the entry with the greatest key.
    #[doc(alias = "last_key_value")]
    #[must_use]
    pub fn last_cloned(&self) -> Option<(K, V)> {
        self.in_view(|view| view.last().map(cloned))
    }

    /// Takes the entry with the least key out; a clone of it. Of several threads each gets another
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

    /// Takes the entry with the greatest key out; a clone of it.
    #[doc(alias = "pop_last")]
    pub fn pop_last_cloned(&self) -> Option<(K, V)> {
        self.in_view(|view| view.pop_last().map(cloned))
    }

    /// Shows each entry to `f`, in order.
    pub fn for_each(&self, mut f: impl FnMut(&K, &V)) {
        self.enter().iter().for_each(|(key, value)| f(key, value));
    }

    /// As [`OrderedMapView::retain`].
    pub fn retain(&self, keep: impl FnMut(&K, &V) -> bool) {
        self.enter().retain(keep);
    }

    /// Takes out each entry that is there.
    pub fn clear(&self) {
        self.enter().clear();
    }
}

fn cloned<K: Clone, V: Clone>((key, value): (&K, &V)) -> (K, V) {
    (key.clone(), value.clone())
}
