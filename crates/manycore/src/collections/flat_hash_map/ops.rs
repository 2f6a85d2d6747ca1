//! The operations of a map.

use super::bucket::Closed;
use super::layout::EntryLayout;
use super::locked::{Locked, SlotForKey};
use super::plain::{Bits, Plain};
use super::table::{Mover, Table};
use super::{FlatHashMap, FlatHashMapIter, FlatHashMapKeys, FlatHashMapValues};
use crate::collections::growth::buckets_for;
use crate::section::{Section, Shared};
use crate::sync::Backoff;
use std::hash::{BuildHasher, Hash};

/// A key and its hash.
#[derive(Clone, Copy)]
struct Hashed<K> {
    hash: u64,
    key: K,
}

/// The decision of an update about a key.
#[derive(Clone, Copy)]
enum Change<V> {
    Keep,
    Put(V),
    Remove,
}

impl<K, V, S> FlatHashMap<K, V, S>
where
    K: Plain + Hash + Eq,
    V: Plain,
    S: BuildHasher,
{
    #[inline(always)]
    fn hash(&self, key: &K) -> u64 {
        self.hasher.hash_one(key)
    }

    #[inline(always)]
    fn hashed(&self, key: &K) -> Hashed<K> {
        Hashed { hash: self.hash(key), key: *key }
    }

    /// Returns the key's value.
    ///
    /// ```
    /// let map = manycore::collections::FlatHashMap::from([(1, 10), (2, 20)]);
    /// assert_eq!((map.get(&1), map.get(&3)), (Some(10), None));
    /// ```
    #[inline]
    #[must_use]
    pub fn get(&self, key: &K) -> Option<V> {
        self.find(self.hashed(key), &self.enter())
    }

    #[inline(always)]
    fn find(&self, key: Hashed<K>, section: &Section<'_>) -> Option<V> {
        let found = self.root.load_now(section).map(|table| {
            let bucket = table.bucket(key.hash);
            bucket.find(key.hash, key.key)
        });
        if let Some(Ok(found)) = found { found } else { self.find_slow(key, section) }
    }

    /// Finds the key in every case: in an empty map, in a bucket that is being written or moved,
    /// and if the section has to raise its era.
    #[cold]
    #[inline(never)]
    fn find_slow(&self, key: Hashed<K>, section: &Section<'_>) -> Option<V> {
        let mut backoff = Backoff::new();
        loop {
            let table = self.root.load(section).as_ref()?;
            let mut found = table.bucket(key.hash).find(key.hash, key.key);
            if let Err(Closed::Pending) = found {
                found = table.find_pending(key.hash, key.key, section);
            }
            match found {
                Ok(found) => return found,
                Err(Closed::Moved | Closed::Pending) => {} // there is a new root, or it has arrived
                Err(Closed::Changing) => backoff.pause(),
            }
        }
    }

    /// Returns true if the key is present.
    #[inline]
    #[must_use]
    pub fn contains_key(&self, key: &K) -> bool {
        self.get(key).is_some()
    }

    /// Returns the table in which to update the bucket of this hash, after moving some buckets if
    /// the map grows.
    #[inline(always)]
    fn to_update<'s>(&self, hash: u64, section: &'s Section<'_>) -> Shared<'s, Table<K, V>> {
        let mut mover = None;
        self.root.to_update(hash, section, |table, old, index| {
            let mover = mover.get_or_insert_with(Mover::new);
            table.move_group(old, index, |key| self.hash(key), mover)
        })
    }

    /// Applies the decision of `decide` to the key, under the lock. Returns the value that was
    /// there.
    #[inline(never)]
    fn change(
        &self,
        key: Hashed<K>,
        section: &Section<'_>,
        decide: impl Fn(Option<V>) -> Change<V>,
    ) -> Option<V> {
        let mut may_grow = true;
        loop {
            let root = self.to_update(key.hash, section);
            let table = root.as_ref().expect("a map has a table");
            if let Ok(locked) = table.bucket(key.hash).lock() {
                if let Some(old) = self.change_locked(table, locked, key, &decide, may_grow) {
                    return old;
                }
                if std::mem::take(&mut may_grow) && self.len() >= table.capacity() {
                    self.root.grow(root, section);
                }
            }
        }
    }

    /// Same in a locked chain. Unlocks the chain and returns `None` if it is full and the map
    /// `may_grow`, or if another bucket had no memory; then that has been allocated.
    #[inline(never)]
    fn change_locked<'t>(
        &self,
        table: &'t Table<K, V>,
        mut locked: Locked<'t, K, V>,
        key: Hashed<K>,
        decide: impl Fn(Option<V>) -> Change<V>,
        may_grow: bool,
    ) -> Option<Option<V>> {
        let place = locked.search(key.hash, key.key);
        let old = if let SlotForKey::Taken(slot) = &place { Some(slot.value()) } else { None };
        match (place, decide(old)) {
            (SlotForKey::Taken(slot), Change::Put(value)) => locked.replace(&slot, value),
            (SlotForKey::Taken(slot), Change::Remove) => {
                locked.remove(&slot);
                drop(locked);
                self.count.dec();
            }
            (SlotForKey::Free(slot), Change::Put(value)) => {
                locked.insert(&slot, key.hash, key.key, value);
                drop(locked);
                self.count.inc();
            }
            (SlotForKey::Full, Change::Put(value)) => {
                if may_grow || !table.extend(locked, key.hash, key.key, value) {
                    return None;
                }
                self.count.inc();
            }
            _ => {}
        }
        Some(old)
    }

    /// Inserts the value, or replaces the key's value by it. Returns the old value.
    ///
    /// ```
    /// let map = manycore::collections::FlatHashMap::new();
    /// assert_eq!(map.insert(1, 10), None);
    /// assert_eq!(map.insert(1, 11), Some(10));
    /// ```
    #[doc(alias = "upsert")]
    #[inline]
    pub fn insert(&self, key: K, value: V) -> Option<V> {
        let (key, section) = (self.hashed(&key), self.enter());
        if let Some(table) = self.root.settled(&section) {
            let bucket = table.bucket(key.hash);
            let put = bucket.put(key.hash, key.key, value);
            if let Ok(old) = put.or_else(|_| bucket.put_slow(key.hash, key.key, value)) {
                if old.is_none() {
                    self.count.inc();
                }
                return old;
            }
        }
        self.change(key, &section, |_| Change::Put(value))
    }

    /// Inserts the value if the key is not present.
    ///
    /// # Errors
    /// The value that is in the map.
    ///
    /// ```
    /// let map = manycore::collections::FlatHashMap::new();
    /// assert_eq!(map.try_insert(1, 10), Ok(()));
    /// assert_eq!(map.try_insert(1, 11), Err(10));
    /// ```
    pub fn try_insert(&self, key: K, value: V) -> Result<(), V> {
        let key = self.hashed(&key);
        let section = self.enter();
        let there = self.find(key, &section).or_else(|| {
            self.change(key, &section, |old| old.map_or(Change::Put(value), |_| Change::Keep))
        });
        there.map_or(Ok(()), Err)
    }

    /// Returns the key's value, and inserts the result of `make` first if the key is not present.
    ///
    /// `make` runs without a lock. If another thread inserts the key first, this returns the value
    /// of that thread.
    ///
    /// ```
    /// let map = manycore::collections::FlatHashMap::new();
    /// assert_eq!(map.get_or_insert_with(1, || 10), 10);
    /// assert_eq!(map.get_or_insert_with(1, || unreachable!()), 10);
    /// ```
    pub fn get_or_insert_with(&self, key: K, make: impl FnOnce() -> V) -> V {
        self.get(&key).unwrap_or_else(|| {
            let value = make();
            self.try_insert(key, value).err().unwrap_or(value)
        })
    }

    /// Removes the key. Returns its value. Writes nothing if the key is not present.
    ///
    /// ```
    /// let map = manycore::collections::FlatHashMap::from([(1, 10)]);
    /// assert_eq!((map.remove(&1), map.remove(&1)), (Some(10), None));
    /// ```
    #[inline]
    pub fn remove(&self, key: &K) -> Option<V> {
        let (key, section) = (self.hashed(key), self.enter());
        if let Some(table) = self.root.settled(&section) {
            let bucket = table.bucket(key.hash);
            let taken = bucket.take(key.hash, key.key);
            if let Ok(old) = taken.or_else(|_| bucket.take_slow(key.hash, key.key)) {
                if old.is_some() {
                    self.count.dec();
                }
                return old;
            }
        }
        self.find(key, &section)?;
        self.change(key, &section, |_| Change::Remove)
    }

    /// Removes the key if `condition` returns true for its value. Returns the removed value.
    ///
    /// `condition` runs without a lock, and runs again if the value was replaced meanwhile.
    ///
    /// ```
    /// let map = manycore::collections::FlatHashMap::from([(1, 10)]);
    /// assert_eq!(map.remove_if(&1, |value| *value > 10), None);
    /// assert_eq!(map.remove_if(&1, |value| *value == 10), Some(10));
    /// ```
    pub fn remove_if(&self, key: &K, mut condition: impl FnMut(&V) -> bool) -> Option<V> {
        let mut seen = self.get(key);
        loop {
            let value = seen.filter(&mut condition)?;
            match self.exchange(key, Some(value), None) {
                Ok(()) => return Some(value),
                Err(found) => seen = found,
            }
        }
    }

    /// Replaces the key's value by `new` if it has the same bits as `current`. Returns `current`
    /// then.
    ///
    /// # Errors
    /// The value that is in the map, or `None` if the key is not present.
    ///
    /// ```
    /// let map = manycore::collections::FlatHashMap::from([(1, 10)]);
    /// assert_eq!(map.compare_exchange(&1, 10, 11), Ok(10));
    /// assert_eq!(map.compare_exchange(&1, 10, 12), Err(Some(11)));
    /// assert_eq!(map.compare_exchange(&2, 10, 12), Err(None));
    /// ```
    pub fn compare_exchange(&self, key: &K, current: V, new: V) -> Result<V, Option<V>> {
        self.exchange(key, Some(current), Some(new)).map(|()| current)
    }

    /// Replaces the key's value by `new` if it is `current`; `None` stands for no entry
    /// (flat_hash_map.F4).
    ///
    /// # Errors
    /// The key's value, or `None` if the key is not present.
    pub(super) fn exchange(
        &self,
        key: &K,
        current: Option<V>,
        new: Option<V>,
    ) -> Result<(), Option<V>> {
        let (key, section) = (self.hashed(key), self.enter());
        let is_current =
            |value: Option<V>| value.as_ref().map(Bits::of) == current.as_ref().map(Bits::of);
        let found = self.change(key, &section, |old| match new {
            _ if !is_current(old) => Change::Keep,
            Some(new) => Change::Put(new),
            None => Change::Remove,
        });
        if is_current(found) { Ok(()) } else { Err(found) }
    }

    /// Replaces the key's value by the result of `f`, if the key is present. Returns the new value.
    ///
    /// `f` runs without a lock, and runs again if the value was replaced meanwhile.
    ///
    /// ```
    /// let map = manycore::collections::FlatHashMap::from([(1, 10)]);
    /// assert_eq!(map.update(&1, |value| value + 1), Some(11));
    /// assert_eq!(map.update(&2, |value| value + 1), None);
    /// ```
    #[doc(alias = "fetch_add")]
    #[doc(alias = "fetch_update")]
    #[doc(alias = "get_mut")]
    #[doc(alias = "alter")]
    pub fn update(&self, key: &K, mut f: impl FnMut(V) -> V) -> Option<V> {
        let mut seen = self.get(key);
        loop {
            let new = f(seen?);
            match self.exchange(key, seen, Some(new)) {
                Ok(()) => return Some(new),
                Err(found) => seen = found,
            }
        }
    }

    /// Computes the key's next value from the current value, or from `None` if the key is not
    /// present. If `f` returns `None`, the key is removed. Returns the result of `f`.
    ///
    /// `f` runs without a lock, and runs again if the key's value was replaced meanwhile.
    ///
    /// ```
    /// let map = manycore::collections::FlatHashMap::new();
    /// let count = |n: Option<u32>| Some(n.unwrap_or(0) + 1);
    /// assert_eq!((map.compute(7, count), map.compute(7, count)), (Some(1), Some(2)));
    /// assert_eq!(map.compute(7, |_| None), None);
    /// assert!(map.is_empty());
    /// ```
    #[doc(alias = "entry")]
    pub fn compute(&self, key: K, mut f: impl FnMut(Option<V>) -> Option<V>) -> Option<V> {
        let mut seen = self.get(&key);
        loop {
            let new = f(seen);
            match self.exchange(&key, seen, new) {
                Ok(()) => return new,
                Err(found) => seen = found,
            }
        }
    }

    /// Iterates over all entries, by value, in no order.
    ///
    /// Consistency: only each bucket's entries are those of one moment. An entry that is present
    /// throughout is yielded exactly once. Concurrent insertions and removals may be seen or not. A
    /// key that is removed and inserted again may be yielded twice. The iterator holds nothing
    /// between two calls of `next`.
    ///
    /// ```
    /// let map = manycore::collections::FlatHashMap::from([(1, 10), (2, 20)]);
    /// assert_eq!(map.iter().map(|(_, value)| value).sum::<i32>(), 30);
    /// ```
    pub fn iter(&self) -> FlatHashMapIter<'_, K, V, S> {
        FlatHashMapIter::new(self)
    }

    /// Iterates over the keys, as [`iter`](Self::iter) does over the entries.
    pub fn keys(&self) -> FlatHashMapKeys<'_, K, V, S> {
        FlatHashMapKeys(self.iter())
    }

    /// Iterates over the values, as [`iter`](Self::iter) does over the entries.
    pub fn values(&self) -> FlatHashMapValues<'_, K, V, S> {
        FlatHashMapValues(self.iter())
    }

    /// Calls `f` with every entry that [`iter`](Self::iter) yields.
    pub fn for_each(&self, mut f: impl FnMut(K, V)) {
        self.iter().for_each(|(key, value)| f(key, value));
    }

    /// Removes every entry for which `keep` returns false. `keep` runs without a lock, and runs
    /// again for a value that was replaced meanwhile. May miss concurrent insertions.
    ///
    /// ```
    /// let map = manycore::collections::FlatHashMap::from([(1, 10), (2, 20)]);
    /// map.retain(|key, _| *key > 1);
    /// assert_eq!(map.iter().collect::<Vec<_>>(), [(2, 20)]);
    /// ```
    pub fn retain(&self, mut keep: impl FnMut(&K, &V) -> bool) {
        self.iter().for_each(|(key, value)| {
            let mut seen = Some(value);
            while let Some(value) = seen.filter(|value| !keep(&key, value)) {
                seen = self.exchange(&key, Some(value), None).err().flatten();
            }
        });
    }

    /// Removes every entry that is present when its bucket is visited. Keeps the table.
    pub fn clear(&self) {
        self.iter().for_each(|(key, _)| {
            self.remove(&key);
        });
    }

    /// Grows the table until it has room for `additional` more entries.
    ///
    /// This also moves the entries, so that later insertions need not. Threads may use the map
    /// meanwhile.
    ///
    /// # Panics
    /// If the buckets need more memory than there can be.
    ///
    /// ```
    /// let map = manycore::collections::FlatHashMap::<u32, u32>::new();
    /// map.reserve(1000);
    /// assert!(map.capacity() >= 1000);
    /// ```
    pub fn reserve(&self, additional: usize) {
        let needed = self.len().checked_add(additional).expect("manycore: capacity overflow");
        let buckets = buckets_for(needed, EntryLayout::<K, V>::LOAD);
        let (section, mut mover) = (self.enter(), Mover::new());
        self.root.reserve(buckets, &section, |table, old, index| {
            table.move_group(old, index, |key| self.hash(key), &mut mover)
        });
    }

    /// Makes the table as small as its entries allow, and frees the rest of its memory.
    ///
    /// Threads may use the map meanwhile. Their insertions may let the table grow again. Cost: the
    /// table halves until it is small enough, and each entry is hashed and moves each time. For a
    /// moment both tables exist; the old table is freed when all reads of such maps that were under
    /// way have ended.
    ///
    /// ```
    /// let map: manycore::collections::FlatHashMap<u32, u32> =
    ///     (0..1000).map(|n| (n, n)).collect();
    /// map.retain(|key, _| *key < 10);
    /// map.shrink_to_fit();
    /// assert!(map.capacity() < 100 && map.get(&7) == Some(7));
    /// ```
    pub fn shrink_to_fit(&self) {
        // Bounded, because other threads may insert.
        for _ in 0..usize::BITS {
            // A section for each round, so that the tables do not wait for each other.
            let halves = self.halve(&self.enter());
            self.tables().collect();
            if !halves {
                break;
            }
        }
    }

    /// Halves the table if the entries fit. Returns false if they do not.
    pub(super) fn halve(&self, section: &Section<'_>) -> bool {
        let needed = buckets_for(self.len(), EntryLayout::<K, V>::LOAD);
        let mut mover = Mover::new();
        self.root.halve(needed, section, |table, old, index| {
            table.move_group(old, index, |key| self.hash(key), &mut mover)
        })
    }
}
