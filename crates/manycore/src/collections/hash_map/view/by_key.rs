//! Look-ups, insertions and removals of one key.

use super::super::comparing::{comparing, forbid_in_eq};
use super::super::table::Entry;
use super::HashMapView;
use crate::section::Owned;
use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash};

impl<K, V, S> HashMapView<'_, K, V, S>
where
    K: Hash + Eq + Send + Sync,
    V: Send + Sync,
    S: BuildHasher,
{
    /// Returns the key's value.
    ///
    /// ```
    /// let map = manycore::collections::HashMap::from([(String::from("one"), 1)]);
    /// assert_eq!(map.enter().get("one"), Some(&1));
    /// ```
    #[inline]
    #[must_use]
    pub fn get<Q>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let (hash, is_key) = (self.hash(key), |own: &K| own.borrow() == key);
        match self.find_now(hash, is_key) {
            Some(found) => found.map(|entry| &entry.value),
            None => self.find_slow(hash, is_key).map(|entry| &entry.value),
        }
    }

    /// Returns the map's own key and its value.
    #[inline]
    #[must_use]
    pub fn get_key_value<Q>(&self, key: &Q) -> Option<(&K, &V)>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.find_key(self.hash(key), key).map(|entry| (&entry.key, &entry.value))
    }

    /// As [`get_key_value`](Self::get_key_value), but takes only the fast path. Returns `None` if
    /// the caller has to call [`get_key_value`](Self::get_key_value) instead: if the map is empty,
    /// if the bucket is moving or has an overflow bucket, or if the section lags behind its domain.
    ///
    /// Use this in a function that looks up a key and returns: it is compiled without the slow
    /// path, which it calls at its end. Elsewhere this is no faster.
    ///
    /// ```
    /// let map = manycore::collections::HashMap::from([(1, 7)]);
    /// let view = map.enter();
    /// assert_eq!(view.get_key_value_now(&1), Some(Some((&1, &7))));
    /// assert_eq!(view.get_key_value_now(&2), Some(None));
    /// ```
    #[inline(always)]
    #[must_use]
    pub fn get_key_value_now<Q>(&self, key: &Q) -> Option<Option<(&K, &V)>>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let found = self.find_now(self.hash(key), |own| own.borrow() == key)?;
        Some(found.map(|entry| (&entry.key, &entry.value)))
    }

    /// Returns true if the key is present.
    #[inline]
    #[must_use]
    pub fn contains_key<Q>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.find_key(self.hash(key), key).is_some()
    }

    /// Inserts the value, or replaces the key and its value. Returns the old value.
    pub fn insert(&self, key: K, value: V) -> Option<&V> {
        self.insert_entry(key, value).map(|(_, value)| value)
    }

    /// As [`insert`](Self::insert), but returns the old key, too.
    ///
    /// ```
    /// let map = manycore::collections::HashMap::new();
    /// let view = map.enter();
    /// assert_eq!(view.insert_entry("one", 1), None);
    /// assert_eq!(view.insert_entry("one", 2), Some((&"one", &1)));
    /// ```
    #[inline(always)]
    pub fn insert_entry(&self, key: K, value: V) -> Option<(&K, &V)> {
        let (hash, entry) = self.map.begin_insert(key, value, &self.section);
        let inserted = match self.table_to_update() {
            Some(table) => self.map.insert_now(table, hash, entry, &self.section),
            None => Err(entry),
        };
        let old = inserted.unwrap_or_else(|entry| self.insert_slow(entry));
        old.map(|old| (&old.key, &old.value))
    }

    /// As [`insert_entry`](Self::insert_entry), where the short path does not apply.
    #[cold]
    #[inline(never)]
    pub(in super::super) fn insert_slow(&self, entry: Owned<Entry<K, V>>) -> Option<&Entry<K, V>> {
        self.put(entry, true).ok().and_then(|put| put.old)
    }

    /// Returns the key's value, and inserts `value` first if the key is not present.
    pub fn get_or_insert(&self, key: K, value: V) -> &V {
        self.get_or_insert_with(key, || value)
    }

    /// Returns the key's value, and inserts the result of `make` first if the key is not present.
    ///
    /// `make` runs without a lock. If another thread inserts the key first, this returns the value
    /// of that thread, and drops the result of `make`.
    pub fn get_or_insert_with(&self, key: K, make: impl FnOnce() -> V) -> &V {
        let hash = self.hash(&key);
        if let Some(entry) = self.find_key(hash, &key) {
            return &entry.value;
        }
        match self.put_absent(self.entry_of(hash, key, make())) {
            Ok(put) => &put.linked.as_ref().expect("a node").value,
            Err((theirs, _mine)) => &theirs.value,
        }
    }

    /// Inserts the value if the key is not present. Returns the value in the map.
    ///
    /// # Errors
    /// The key and the value, if the map has the key already.
    ///
    /// ```
    /// let map = manycore::collections::HashMap::new();
    /// let view = map.enter();
    /// assert_eq!(view.try_insert("a", 1), Ok(&1));
    /// assert_eq!(view.try_insert("a", 2), Err(("a", 2)));
    /// ```
    pub fn try_insert(&self, key: K, value: V) -> Result<&V, (K, V)> {
        match self.put_absent(self.entry_of(self.hash(&key), key, value)) {
            Ok(put) => Ok(&put.linked.as_ref().expect("a node").value),
            Err((_, mine)) => {
                let Entry { key, value, .. } = mine.into_inner();
                Err((key, value))
            }
        }
    }

    /// Removes the key. Returns its value.
    pub fn remove<Q>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.remove_entry(key).map(|(_, value)| value)
    }

    /// Removes the key. Returns the map's own key and its value.
    #[inline(always)]
    pub fn remove_entry<Q>(&self, key: &Q) -> Option<(&K, &V)>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        forbid_in_eq(self.map);
        let hash = self.hash(key);
        let removed = match self.table_to_update() {
            Some(table) => self.map.remove_now(table, hash, key, &self.section),
            None => None,
        };
        let removed = removed.unwrap_or_else(|| self.remove_slow(hash, key));
        removed.map(|entry| (&entry.key, &entry.value))
    }

    /// As [`remove_entry`](Self::remove_entry), where the short path does not apply.
    #[cold]
    #[inline(never)]
    pub(in super::super) fn remove_slow<Q>(&self, hash: u64, key: &Q) -> Option<&Entry<K, V>>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        loop {
            let is_key = |own: &K| comparing(self.map, || own.borrow() == key);
            let entry = self.find_slow(hash, is_key)?;
            if self.replace(entry, None).is_ok() {
                return Some(entry);
            }
        }
    }
}
