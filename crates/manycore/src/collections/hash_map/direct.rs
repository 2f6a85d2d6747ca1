//! The map's own methods. Each method except `enter` opens a section for one call, and returns
//! nothing that borrows from the map.
//!
//! They return values as clones, or show them to a closure. So they promise nothing about where an
//! entry lies, and there is no guard that a caller could keep across an `await`.

use super::comparing::forbid_in_eq;
use super::short::find_now;
use super::{HashMap, HashMapView};
use crate::section::Section;
use crate::sync::{caught, resume_first};
use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash};

impl<K, V, S> HashMap<K, V, S> {
    /// Opens a section and returns a view of the map in it.
    #[doc(alias = "guard")]
    #[doc(alias = "pin")]
    #[inline]
    pub fn enter(&self) -> HashMapView<'_, K, V, S> {
        HashMapView::new(self, self.domain.enter())
    }

    /// Calls `f` with a view, and closes the view before the answer is returned. A destructor that
    /// panics at the end of the view would otherwise leak the answer.
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

    /// Returns a view in a section of the map's domain that is already open: for code that opens
    /// one section for several structures.
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

    /// As [`view_in`](Self::view_in), but does not check the section's domain: for code that often
    /// opens views, in sections that come from the map's own domain.
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
        debug_assert!(section.is_of(&self.domain), "the section is of another domain than the map");
        HashMapView::new(self, section)
    }
}

impl<K, V, S> HashMap<K, V, S>
where
    K: Hash + Eq + Send + Sync,
    V: Send + Sync,
    S: BuildHasher,
{
    /// Calls `look` with the key's value, if the key is present, and returns its result.
    ///
    /// `look` runs in an open section. It may use the map, but should not block or compute for
    /// long, because everything that other threads remove meanwhile waits for it.
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
        let (section, hash) = (self.domain.enter(), self.hash(key));
        let found = self.root.load_now(&section);
        let found =
            found.and_then(|table| find_now(table, hash, |own| own.borrow() == key, &section));
        let Some(found) = found else { return self.read_slow(section, hash, key, look) };
        let answer = found.map(|entry| look(&entry.value));
        drop(section);
        answer
    }

    #[cold]
    #[inline(never)]
    fn read_slow<Q, T>(
        &self,
        section: Section<'_>,
        hash: u64,
        key: &Q,
        look: impl FnOnce(&V) -> T,
    ) -> Option<T>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let view = HashMapView::new(self, section);
        let found = view.find_slow(hash, |own| own.borrow() == key);
        let answer = found.map(|entry| look(&entry.value));
        drop(view);
        answer
    }

    /// Returns a clone of the key's value. This copies small values. Put large values into an
    /// `Arc`, or [`read`](Self::read) them in place.
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

    /// Returns true if the key is present.
    #[inline]
    #[must_use]
    pub fn contains_key<Q>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.read(key, |_| ()).is_some()
    }

    /// Inserts the value, or replaces the key's value by it. Returns true if the key is new.
    ///
    /// The old value is dropped after its grace period. To get the old value, use a view:
    /// `map.enter().insert(key, value)` returns a reference to it.
    ///
    /// ```
    /// let map = manycore::collections::HashMap::new();
    /// assert!(map.insert("one", 1));
    /// assert!(!map.insert("one", 2));
    /// assert_eq!(map.enter().insert("one", 3), Some(&2));
    /// ```
    #[doc(alias = "upsert")]
    pub fn insert(&self, key: K, value: V) -> bool {
        let section = self.domain.enter();
        let (hash, entry) = self.begin_insert(key, value, &section);
        let inserted = match self.root.load_now(&section) {
            Some(table) => self.insert_now(table, hash, entry, &section),
            None => Err(entry),
        };
        match inserted {
            Ok(old) => old.is_none(),
            Err(entry) => HashMapView::new(self, section).insert_slow(entry).is_none(),
        }
    }

    /// Inserts the value if the key is not present.
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

    /// Returns a clone of the key's value, and inserts the result of `make` first if the key is not
    /// present.
    ///
    /// `make` runs without a lock, inside a section. If another thread inserts the key first, this
    /// returns the value of that thread.
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

    /// Removes the key. Returns true if it was present.
    ///
    /// To get the value, use [`remove_cloned`](Self::remove_cloned) or a view.
    pub fn remove<Q>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let section = self.domain.enter();
        forbid_in_eq(self);
        let hash = self.hash(key);
        let removed = self.root.load_now(&section);
        let removed = removed.and_then(|table| self.remove_now(table, hash, key, &section));
        match removed {
            Some(removed) => removed.is_some(),
            None => HashMapView::new(self, section).remove_slow(hash, key).is_some(),
        }
    }

    /// Removes the key. Returns a clone of its value, because readers may still be looking at the
    /// value itself.
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

    /// Removes the key if `condition` returns true for its entry. Returns true if the key was
    /// removed.
    ///
    /// [`HashMapView::remove_if`](super::HashMapView::remove_if) says how `condition` runs.
    pub fn remove_if<Q>(&self, key: &Q, condition: impl FnMut(&K, &V) -> bool) -> bool
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.enter().remove_if(key, condition).is_some()
    }

    /// Replaces the key's value by the result of `f`. Returns true if the key was present.
    ///
    /// `f` runs without a lock, and runs again if the value was replaced meanwhile.
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

    /// Computes the key's next value from the current value, or from `None` if the key is not
    /// present. If `f` returns `None`, the key is removed. Returns true if the key is present
    /// afterwards.
    ///
    /// `f` runs without a lock, and runs again if the key's value was replaced meanwhile. To get
    /// another result out of `f`, let it set a captured variable.
    #[doc(alias = "entry")]
    pub fn compute(&self, key: K, f: impl FnMut(Option<&V>) -> Option<V>) -> bool
    where
        K: Clone,
    {
        self.enter().compute(key, f).is_some()
    }

    /// Replaces the key's value by the result of `f`, or inserts the result of `make` if the key is
    /// not present. Returns true if the key was present.
    ///
    /// Use this in place of `entry` with `and_modify` and `or_insert`. Both closures run without a
    /// lock, and run again if another thread changed the key meanwhile.
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

    /// Calls `f` with every entry, in no order. Not a snapshot, like
    /// [`HashMapView::iter`](super::HashMapView::iter).
    pub fn for_each(&self, mut f: impl FnMut(&K, &V)) {
        self.enter().iter().for_each(|(key, value)| f(key, value));
    }

    /// Removes every entry for which `keep` returns false. May miss concurrent insertions.
    pub fn retain(&self, keep: impl FnMut(&K, &V) -> bool) {
        self.enter().retain(keep);
    }

    /// Removes every entry that is present when its bucket is visited.
    pub fn clear(&self) {
        self.enter().clear();
    }

    /// Grows the table until it has room for `additional` more entries.
    ///
    /// This also moves the entries, so that later insertions need not. Threads may use the map
    /// meanwhile. Cost: the table doubles until it is large enough, and each entry moves each time.
    ///
    /// # Panics
    /// If the buckets need more memory than there can be, or if a key's `Eq` calls this.
    ///
    /// ```
    /// let map = manycore::collections::HashMap::<u32, u32>::new();
    /// map.reserve(1000);
    /// assert!(map.capacity() >= 1000);
    /// ```
    pub fn reserve(&self, additional: usize) {
        self.enter().reserve(additional);
    }

    /// Makes the table as small as its entries allow, and frees the rest of its memory.
    ///
    /// Threads may use the map meanwhile. Their insertions may let the table grow again. Cost: the
    /// table halves until it is small enough, and each entry is linked anew each time. No entry is
    /// copied, and no key is hashed or compared. For a moment both tables exist; the old table is
    /// freed when no view that can see it is open.
    ///
    /// # Panics
    /// If a key's `Eq` calls this.
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
                // A view for each round, so that the tables do not wait for each other.
                halves = self.enter().halve();
                self.domain.collect();
            }));
        }
        resume_first(ends);
    }
}

impl<K, V, S> HashMap<K, V, S> {
    /// Returns about how many entries the table takes before it grows. It grows when a bucket is
    /// full and the map has that many entries.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.enter().capacity()
    }
}
