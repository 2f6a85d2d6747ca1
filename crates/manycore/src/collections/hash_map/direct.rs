//! The map's own methods: each but `enter` opens a section for one call, and lends nothing that
//! outlives it.
//!
//! They return values as clones or show them to a closure. So they promise nothing about where an
//! entry lies, and there is no guard to keep over an `await`.

use super::{HashMap, HashMapView};
use crate::section::Section;
use crate::sync::{caught, resume_first};
use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash};

impl<K, V, S> HashMap<K, V, S> {
    /// Opens a section and shows the map in it.
    #[doc(alias = "guard")]
    #[doc(alias = "pin")]
    #[inline]
    pub fn enter(&self) -> HashMapView<'_, K, V, S> {
        HashMapView::new(self, self.domain.enter())
    }

    /// What `f` makes of a view, which ends before it is returned: a destructor that panics there
    /// would leak an answer that is on its way.
    #[inline(always)]
    pub(in crate::collections) fn in_view<T>(
        &self,
        f: impl FnOnce(&HashMapView<'_, K, V, S>) -> T,
    ) -> T {
        let view = self.enter();
        let answer = f(&view);
        drop(view);
        answer
    }

    /// Shows the map in a section of its domain that is open already: for code that has one open
    /// for several structures, and opens none for each.
    ///
    /// # Panics
    /// If the section is of another domain: see
    /// [`HashMapBuilder::domain`](super::HashMapBuilder::domain).
    ///
    /// ```
    /// use manycore::{collections::HashMap, section::Domain};
    /// use std::sync::Arc;
    ///
    /// let domain = Arc::new(Domain::new());
    /// let ages = HashMap::builder().domain(Arc::clone(&domain)).build();
    /// ages.insert("ann", 40);
    /// let section = domain.enter(); // of other structures of the domain, too
    /// assert_eq!(ages.view_in(section).get("ann"), Some(&40));
    /// ```
    #[inline]
    pub fn view_in<'m>(&'m self, section: Section<'m>) -> HashMapView<'m, K, V, S> {
        assert!(
            section.is_of(&self.domain),
            "manycore: the section is of another domain than the map, and holds nothing back there"
        );
        HashMapView::new(self, section)
    }

    /// As [`view_in`](Self::view_in), without a look at the section's domain: for code that shows
    /// a map often, in sections that it has from the map's own domain.
    ///
    /// ```
    /// use manycore::{collections::HashMap, section::Domain};
    /// use std::sync::Arc;
    ///
    /// let domain = Arc::new(Domain::new());
    /// let ages = HashMap::builder().domain(Arc::clone(&domain)).build();
    /// ages.insert("ann", 40);
    /// // SAFETY: the section is of the domain that the map was built with.
    /// let view = unsafe { ages.view_in_unchecked(domain.enter()) };
    /// assert_eq!(view.get("ann"), Some(&40));
    /// ```
    ///
    /// # Safety
    /// The section is of the map's [`domain`](Self::domain).
    #[inline]
    pub unsafe fn view_in_unchecked<'m>(
        &'m self,
        section: Section<'m>,
    ) -> HashMapView<'m, K, V, S> {
        debug_assert!(section.is_of(&self.domain), "a section of another domain than the map's");
        HashMapView::new(self, section)
    }
}

impl<K, V, S> HashMap<K, V, S>
where
    K: Hash + Eq + Send + Sync,
    V: Send + Sync,
    S: BuildHasher,
{
    /// Shows the key's value to `look`, if the key is there; what `look` returns.
    ///
    /// `look` runs in an open section: it may use the map, but should not block or compute for
    /// long, because what other threads remove in between waits for it.
    ///
    /// ```
    /// let map = manycore::collections::HashMap::from([(1, String::from("one"))]);
    /// assert_eq!(map.read(&1, |name| name.len()), Some(3));
    /// assert_eq!(map.read(&2, |name| name.len()), None);
    /// ```
    #[doc(alias = "get")]
    #[doc(alias = "view")]
    #[inline]
    pub fn read<Q, T>(&self, key: &Q, look: impl FnOnce(&V) -> T) -> Option<T>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.in_view(|view| view.get(key).map(look))
    }

    /// A clone of the key's value. Small values are copied; put large ones into an `Arc`, or
    /// [`read`](Self::read) them in place.
    ///
    /// ```
    /// let map = manycore::collections::HashMap::from([("one", 1)]);
    /// assert_eq!(map.get_cloned("one"), Some(1));
    /// ```
    #[doc(alias = "get")]
    #[inline]
    #[must_use]
    pub fn get_cloned<Q>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
        V: Clone,
    {
        self.read(key, V::clone)
    }

    /// Whether the key is there.
    #[inline]
    #[must_use]
    pub fn contains_key<Q>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.enter().contains_key(key)
    }

    /// Puts the value in, in place of an old one. Whether the key is new.
    ///
    /// The old value is dropped after its grace period. Code that needs it takes a view:
    /// `map.enter().insert(key, value)` lends it.
    ///
    /// ```
    /// let map = manycore::collections::HashMap::new();
    /// assert!(map.insert("one", 1));
    /// assert!(!map.insert("one", 2));
    /// assert_eq!(map.enter().insert("one", 3), Some(&2));
    /// ```
    #[doc(alias = "upsert")]
    pub fn insert(&self, key: K, value: V) -> bool {
        self.enter().insert(key, value).is_none()
    }

    /// Inserts the value if the key is not there yet.
    ///
    /// # Errors
    /// The key and the value, if the map has the key already.
    ///
    /// ```
    /// let map = manycore::collections::HashMap::new();
    /// assert_eq!(map.try_insert(1, "one"), Ok(()));
    /// assert_eq!(map.try_insert(1, "uno"), Err((1, "uno")));
    /// ```
    pub fn try_insert(&self, key: K, value: V) -> Result<(), (K, V)> {
        self.enter().try_insert(key, value).map(|_| ())
    }

    /// A clone of the key's value, after inserting what `make` makes, if there was none.
    ///
    /// `make` runs without a lock, inside a section: if another thread inserts the key first, its
    /// value counts.
    ///
    /// ```
    /// let map = manycore::collections::HashMap::new();
    /// assert_eq!(map.get_or_insert_with("one", || 1), 1);
    /// assert_eq!(map.get_or_insert_with("one", || unreachable!()), 1);
    /// ```
    pub fn get_or_insert_with(&self, key: K, make: impl FnOnce() -> V) -> V
    where
        V: Clone,
    {
        self.in_view(|view| view.get_or_insert_with(key, make).clone())
    }

    /// Removes the key. Whether it was there.
    ///
    /// Code that needs the value takes [`remove_cloned`](Self::remove_cloned) or a view.
    pub fn remove<Q>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.enter().remove(key).is_some()
    }

    /// Removes the key. Returns a clone of its value: readers may still be looking at the value
    /// itself.
    ///
    /// ```
    /// let map = manycore::collections::HashMap::from([("one", 1)]);
    /// assert_eq!(map.remove_cloned("one"), Some(1));
    /// assert_eq!(map.remove_cloned("one"), None);
    /// ```
    pub fn remove_cloned<Q>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
        V: Clone,
    {
        self.in_view(|view| view.remove(key).cloned())
    }

    /// Removes the key if `condition` holds for its entry. Whether it did.
    ///
    /// `condition` runs as [`HashMapView::remove_if`](super::HashMapView::remove_if) says.
    pub fn remove_if<Q>(&self, key: &Q, condition: impl FnMut(&K, &V) -> bool) -> bool
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.enter().remove_if(key, condition).is_some()
    }

    /// Replaces the key's value by what `f` makes of it. Whether the key was there.
    ///
    /// `f` runs without a lock, and again if the value was replaced in between.
    ///
    /// ```
    /// let map = manycore::collections::HashMap::from([("one", 1)]);
    /// assert!(map.update("one", |n| n + 1));
    /// assert_eq!(map.get_cloned("one"), Some(2));
    /// ```
    #[doc(alias = "get_mut")]
    #[doc(alias = "alter")]
    pub fn update<Q>(&self, key: &Q, f: impl FnMut(&V) -> V) -> bool
    where
        K: Borrow<Q> + Clone,
        Q: Hash + Eq + ?Sized,
    {
        self.enter().update(key, f).is_some()
    }

    /// Makes the key's next value of the present one, if there is one: a value, or none, and then
    /// the key is removed. Whether it is there afterwards.
    ///
    /// `f` runs without a lock, and again if the key's value was replaced in between. For a result
    /// of `f` besides, let it set a variable around it.
    #[doc(alias = "entry")]
    pub fn compute(&self, key: K, f: impl FnMut(Option<&V>) -> Option<V>) -> bool
    where
        K: Clone,
    {
        self.enter().compute(key, f).is_some()
    }

    /// Replaces the key's value by what `f` makes of it, or inserts what `make` makes, if the key
    /// is not there. Whether it was there.
    ///
    /// In place of an `entry` with `and_modify` and `or_insert`. Both closures run without a lock,
    /// and again if another thread changed the key in between.
    ///
    /// ```
    /// let words = manycore::collections::HashMap::new();
    /// for word in ["to", "be", "or", "not", "to", "be"] {
    ///     words.update_or_insert_with(word, |count| count + 1, || 1);
    /// }
    /// assert_eq!(words.get_cloned("be"), Some(2));
    /// ```
    #[doc(alias = "entry")]
    #[doc(alias = "upsert")]
    pub fn update_or_insert_with(
        &self,
        key: K,
        mut f: impl FnMut(&V) -> V,
        mut make: impl FnMut() -> V,
    ) -> bool
    where
        K: Clone,
    {
        let mut was_there = false;
        self.enter().compute(key, |old| {
            was_there = old.is_some();
            Some(old.map_or_else(&mut make, &mut f))
        });
        was_there
    }

    /// Calls `f` with every entry, in no order. As
    /// [`HashMapView::iter`](super::HashMapView::iter), not a snapshot.
    pub fn for_each(&self, mut f: impl FnMut(&K, &V)) {
        self.enter().iter().for_each(|(key, value)| f(key, value));
    }

    /// Removes every entry for which `keep` returns false. Concurrent insertions may be overlooked.
    pub fn retain(&self, keep: impl FnMut(&K, &V) -> bool) {
        self.enter().retain(keep);
    }

    /// Removes every entry that is there when its bucket's turn comes.
    pub fn clear(&self) {
        self.enter().clear();
    }

    /// Grows the table until it takes so many more entries.
    ///
    /// Does the moving too, so that later insertions do none. Threads may use the map in between.
    /// Cost: the table doubles until it is large enough, and each entry moves each time.
    ///
    /// # Panics
    /// If so many buckets need more memory than there can be, or if a key's `Eq` calls it.
    ///
    /// ```
    /// let map = manycore::collections::HashMap::<u32, u32>::new();
    /// map.reserve(1000);
    /// assert!(map.capacity() >= 1000);
    /// ```
    pub fn reserve(&self, additional: usize) {
        self.enter().reserve(additional);
    }

    /// Makes the table as small as it can be with room for the entries, and gives the rest of its
    /// memory back.
    ///
    /// Threads may use the map in between, as while it grows. What they insert at the same time
    /// may let the table grow again. Cost: the table halves until it is small enough, and each
    /// entry is linked anew each time; none is copied, and no key is hashed or compared. For a
    /// moment both tables exist, and the old one is freed when no view is open that can see it.
    ///
    /// # Panics
    /// If a key's `Eq` calls it.
    ///
    /// ```
    /// let map: manycore::collections::HashMap<u32, u32> = (0..1000).map(|n| (n, n)).collect();
    /// map.retain(|key, _| *key < 10);
    /// map.shrink_to_fit();
    /// assert!(map.capacity() < 100 && map.get_cloned(&7) == Some(7));
    /// ```
    pub fn shrink_to_fit(&self) {
        let (mut halves, mut ends) = (true, Vec::new());
        // Bounded, because other threads may insert.
        while halves && ends.len() < usize::BITS as usize {
            halves = false;
            ends.push(caught(|| {
                // A view for each time, so that the tables don't wait for each other.
                halves = self.enter().halve();
                self.domain.collect();
            }));
        }
        resume_first(ends);
    }
}

impl<K, V, S> HashMap<K, V, S> {
    /// How many entries the table takes before it grows, about: it grows when a bucket is full and
    /// there are so many.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.enter().capacity()
    }
}
