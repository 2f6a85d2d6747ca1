//! Updates that a closure of the user decides. The closure runs without a lock (hash_map.H7), and
//! runs again if the entry that it saw was replaced meanwhile.

use super::super::comparing::forbid_in_eq;
use super::HashMapView;
use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash};

impl<K, V, S> HashMapView<'_, K, V, S>
where
    K: Hash + Eq + Send + Sync,
    V: Send + Sync,
    S: BuildHasher,
{
    /// Removes the key if `condition` returns true for its entry. Returns the removed value.
    ///
    /// `condition` runs without a lock, and runs again if the value was replaced meanwhile. The
    /// removed entry is the one for which it last returned true.
    ///
    /// ```
    /// let map = manycore::collections::HashMap::from([("idle", 0), ("busy", 3)]);
    /// let view = map.enter();
    /// assert_eq!(view.remove_if("busy", |_, users| *users == 0), None);
    /// assert_eq!(view.remove_if("idle", |_, users| *users == 0), Some(&0));
    /// assert_eq!(view.len(), 1);
    /// ```
    pub fn remove_if<Q>(&self, key: &Q, mut condition: impl FnMut(&K, &V) -> bool) -> Option<&V>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let hash = self.hash(key);
        loop {
            let entry = self.find_key(hash, key)?;
            if !condition(&entry.key, &entry.value) {
                return None;
            }
            forbid_in_eq(self.map);
            if self.replace(entry, None).is_ok() {
                return Some(&entry.value);
            }
        }
    }

    /// Replaces the key's value by the result of `f`, if the key is present. Returns the new value.
    ///
    /// `f` runs without a lock, and runs again if the value was replaced meanwhile.
    pub fn update<Q>(&self, key: &Q, mut f: impl FnMut(&V) -> V) -> Option<&V>
    where
        K: Borrow<Q> + Clone,
        Q: Hash + Eq + ?Sized,
    {
        let hash = self.hash(key);
        loop {
            let entry = self.find_key(hash, key)?;
            let (key, value) = (entry.key.clone(), f(&entry.value));
            forbid_in_eq(self.map);
            if let Ok(linked) = self.replace(entry, Some(self.entry_of(hash, key, value))) {
                return linked.map(|entry| &entry.value);
            }
        }
    }

    /// Computes the key's next value from the current value, or from `None` if the key is not
    /// present. If `f` returns `None`, the key is removed. Returns the next value.
    ///
    /// `f` runs without a lock, and runs again if the key's value was replaced meanwhile.
    ///
    /// ```
    /// let map = manycore::collections::HashMap::new();
    /// let view = map.enter();
    /// let next = |count: Option<&u32>| Some(count.map_or(1, |count| count + 1));
    /// assert_eq!(view.compute("apple", next), Some(&1));
    /// assert_eq!(view.compute("apple", next), Some(&2));
    /// assert_eq!(view.compute("apple", |_| None), None);
    /// assert!(view.is_empty());
    /// ```
    pub fn compute(&self, key: K, mut f: impl FnMut(Option<&V>) -> Option<V>) -> Option<&V>
    where
        K: Clone,
    {
        let hash = self.hash(&key);
        let find = || self.find_key(hash, &key);
        let mut found = find();
        loop {
            let next = f(found.map(|old| &old.value));
            let next = next.map(|value| self.entry_of(hash, key.clone(), value));
            match (found, next) {
                (None, None) => return None,
                (None, Some(next)) => match self.put_absent(next) {
                    Ok(put) => return put.linked.as_ref().map(|entry| &entry.value),
                    Err((theirs, _mine)) => found = Some(theirs),
                },
                (Some(old), next) => {
                    forbid_in_eq(self.map);
                    match self.replace(old, next) {
                        Ok(linked) => return linked.map(|entry| &entry.value),
                        Err(_dropped) => found = find(),
                    }
                }
            }
        }
    }

    /// Replaces the key's value by the result of `f`, or inserts the result of `make` if the key is
    /// not present. Returns the new value.
    ///
    /// Use this in place of `entry` with `and_modify` and `or_insert`, which would have to hold the
    /// bucket's lock while closures run. Both closures run without a lock, and run again if another
    /// thread changed the key meanwhile.
    ///
    /// ```
    /// let words = manycore::collections::HashMap::new();
    /// let view = words.enter();
    /// for word in ["to", "be", "or", "not", "to", "be"] {
    ///     view.update_or_insert_with(word, |count| count + 1, || 1);
    /// }
    /// assert_eq!(view.get("be"), Some(&2));
    /// ```
    pub fn update_or_insert_with(
        &self,
        key: K,
        mut f: impl FnMut(&V) -> V,
        mut make: impl FnMut() -> V,
    ) -> &V
    where
        K: Clone,
    {
        let next = |old: Option<&V>| Some(old.map_or_else(&mut make, &mut f));
        self.compute(key, next).expect("`next` returns a value")
    }

    /// Removes every entry for which `keep` returns false. May miss concurrent insertions.
    pub fn retain(&self, mut keep: impl FnMut(&K, &V) -> bool) {
        let mut entries = self.iter();
        while let Some(entry) = entries.next_entry() {
            if !keep(&entry.key, &entry.value) {
                forbid_in_eq(self.map);
                let _gone = self.replace(entry, None);
            }
        }
    }

    /// Removes every entry that is present when its bucket is visited.
    pub fn clear(&self) {
        self.retain(|_, _| false);
    }
}
