//! Changes in place: the expiration of an entry, and the capacity of the cache.

use crate::departure::Cause;
use crate::guard::{Entry, Guard};
use crate::node::Found;
use crate::node::{NEVER, Node};
use crate::update::Asked;
use crate::{Cache, builder};
use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash};
use std::sync::atomic::Ordering;
use std::time::Duration;

impl<K, V, S> Cache<K, V, S>
where
    K: Hash + Eq + Send + Sync,
    V: Send + Sync,
    S: BuildHasher,
{
    /// Gives the key's entry another time to live from now on, or for ever; false if it is not
    /// there. Does not change its version.
    ///
    /// # Panics
    /// As [`insert_for`](Self::insert_for).
    pub fn expire<Q>(&self, key: &Q, time: Option<Duration>) -> bool
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.expire_if(key, time, |_| true).is_some()
    }

    /// As [`expire`](Self::expire), if `accept` says so of the key's entry, which is returned then.
    ///
    /// `accept` runs under the lock of the entry's bucket, once: the entry is neither replaced nor
    /// given another TTL at that time. It should be short, and must not update the cache, which
    /// panics.
    ///
    /// # Panics
    /// As [`insert_for`](Self::insert_for).
    ///
    /// ```
    /// use std::time::Duration;
    /// let cache = manycore_cache::Cache::builder(10).expire_after(|_, _| None).build()?;
    /// cache.insert("a", 1);
    /// let hour = Some(Duration::from_secs(3600));
    /// assert_eq!(*cache.expire_if("a", hour, |entry| *entry.value() == 1).unwrap(), 1);
    /// assert!(cache.expire_if("a", None, |entry| *entry.value() == 2).is_none());
    /// assert!(cache.time_left("a").unwrap() <= hour.unwrap());
    /// # Ok::<(), manycore_cache::BuildError>(())
    /// ```
    pub fn expire_if<Q>(
        &self,
        key: &Q,
        time: Option<Duration>,
        accept: impl FnOnce(Entry<'_, K, V>) -> bool,
    ) -> Option<Guard<'_, K, V>>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let is_held = self.is_timed && self.ends.is_none();
        assert!(is_held, "manycore: a cache without times; see `Builder::expire_after`");
        self.hold(key, |node| {
            let now = self.now();
            // SAFETY: found in a section that is open.
            if self.is_expired_at(node, now) || !accept(unsafe { self.entry(node) }) {
                return false;
            }
            let expires = time.map_or(NEVER, |time| now.saturating_add(builder::nanos(time)));
            if time.is_some() {
                self.note_end();
            }
            // SAFETY: cache.N2 - a timed cache is full, and this one is not lean; found in a
            // section that is open.
            // ORDER: Relaxed; times order nothing.
            unsafe { Node::extra(node).as_ref() }.expires.store(expires, Ordering::Relaxed);
            true
        })
    }

    /// Calls `look` with the key's entry under the bucket's lock, so that it can't be replaced or
    /// removed; returns the entry if `look` returns true. For interior mutability (an atomic in the
    /// value): a thread that replaces the entry afterwards sees the change.
    ///
    /// `look` runs under the bucket's lock: it should be short, and must not update the cache: that
    /// panics. Does not count as a use.
    ///
    /// ```
    /// use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
    /// let cache = manycore_cache::Cache::new(10);
    /// cache.insert("a", AtomicU32::new(1));
    /// cache.get_under_lock_if("a", |entry| entry.value().fetch_add(1, Relaxed) == 1);
    /// assert_eq!(cache.get("a").unwrap().load(Relaxed), 2);
    /// assert!(cache.get_under_lock_if("b", |_| true).is_none());
    /// ```
    pub fn get_under_lock_if<Q>(
        &self,
        key: &Q,
        look: impl FnOnce(Entry<'_, K, V>) -> bool,
    ) -> Option<Guard<'_, K, V>>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        // SAFETY: found in a section that is open.
        let held =
            self.hold(key, |node| !self.is_expired(node) && look(unsafe { self.entry(node) }))?;
        self.note_own_end(held.key(), held.value());
        Some(held)
    }

    /// As [`insert_if`](Self::insert_if), and `accept` says so once more under the bucket's lock:
    /// so it is true of the entry in the moment in which that is replaced, also if it is about
    /// something that changes in entries by itself (see
    /// [`get_under_lock_if`](Self::get_under_lock_if)).
    ///
    /// The second time it says no counts. `accept` should be short, and must not update the cache
    /// then, which panics.
    ///
    /// # Errors
    /// Key and value, if they were not accepted.
    ///
    /// ```
    /// use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
    /// let cache = manycore_cache::Cache::new(10);
    /// cache.insert("a", AtomicU32::new(1));
    /// let is_one = |entry: manycore_cache::Entry<_, AtomicU32>| entry.value().load(Relaxed) == 1;
    /// let two = || AtomicU32::new(2);
    /// assert!(cache.insert_under_lock_if("a", two(), |old| old.is_some_and(is_one)).is_ok());
    /// assert!(cache.insert_under_lock_if("a", two(), |old| old.is_some_and(is_one)).is_err());
    /// ```
    pub fn insert_under_lock_if(
        &self,
        key: K,
        value: V,
        accept: impl FnMut(Option<Entry<'_, K, V>>) -> bool,
    ) -> Result<u64, (K, V)> {
        self.put_if(key, value, true, accept)
    }

    /// As [`remove_if`](Self::remove_if), and `accept` says so once more under the bucket's lock,
    /// as in [`insert_under_lock_if`](Self::insert_under_lock_if). It should be short, and must not
    /// update the cache then, which panics.
    ///
    /// ```
    /// let cache = manycore_cache::Cache::new(10);
    /// cache.insert("a", 1);
    /// assert!(cache.remove_under_lock_if("a", |entry| *entry.value() == 2).is_none());
    /// assert!(cache.remove_under_lock_if("a", |entry| *entry.value() == 1).is_some());
    /// ```
    pub fn remove_under_lock_if<Q>(
        &self,
        key: &Q,
        accept: impl FnMut(Entry<'_, K, V>) -> bool,
    ) -> Option<Guard<'_, K, V>>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.take_if(key, true, accept)
    }

    /// `is_held` has `accept` asked once more under the bucket's lock.
    pub(crate) fn put_if(
        &self,
        key: K,
        value: V,
        is_held: bool,
        mut accept: impl FnMut(Option<Entry<'_, K, V>>) -> bool,
    ) -> Result<u64, (K, V)> {
        self.begin_update();
        let fresh = self.make(key, value, None);
        let section = self.domain.enter();
        let (place, version) = (self.place(&fresh.get().key), fresh.version());
        // SAFETY: found in this section.
        let shown = |node: Option<_>| accept(node.map(|node| unsafe { self.entry(node) }));
        let mut fresh = Some(fresh);
        let asked = if is_held { Asked::Held } else { Asked::Before };
        self.put(place, &mut fresh, &section, asked, shown);
        // Closed before there is a result: a destructor that panics then leaks what is returned.
        drop(section);
        fresh.map_or(Ok(version), |refused| Err(refused.into_parts()))
    }

    /// As `put_if`.
    pub(crate) fn take_if<Q>(
        &self,
        key: &Q,
        is_held: bool,
        mut accept: impl FnMut(Entry<'_, K, V>) -> bool,
    ) -> Option<Guard<'_, K, V>>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.begin_update();
        let section = self.domain.enter();
        let place = self.place(key);
        loop {
            let Some(node) = self.find(place, key, &section) else {
                if self.note_absence(place, key, &section) {
                    continue;
                }
                return None;
            };
            if self.is_expired(node) {
                self.take_out(place, node, Cause::Expired, &section);
                if self.note_absence(place, key, &section) {
                    continue;
                }
                return None;
            }
            // SAFETY: found in this section.
            if !accept(unsafe { self.entry(node) }) {
                return None;
            }
            // SAFETY: cache.N1 - found in this section, which is open still.
            let again = is_held.then_some(|| accept(unsafe { self.entry(node) }));
            if let Some(is_out) = self.take_out_if(place, node, Cause::Removed, &section, again) {
                // SAFETY: cache.N1 - found in this section; `take_out_if` has retired it, but the
                // section keeps it and moves into the guard. It is of this cache.
                return is_out.then(|| unsafe { self.guard(node, section) });
            }
        }
    }

    /// Calls `look` with the key's node, linked, under its bucket's lock.
    fn hold<Q>(&self, key: &Q, look: impl FnOnce(Found<K, V>) -> bool) -> Option<Guard<'_, K, V>>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.begin_update();
        let section = self.domain.enter();
        let place = self.place(key);
        while let Some(node) = self.find(place, key, &section) {
            let locked = self.lock(place, &section);
            if locked.slot_of(node).is_none() {
                continue; // replaced or removed in between
            }
            let is_wanted = self.under_lock(|| look(node));
            drop(locked);
            // SAFETY: found in this section.
            return is_wanted.then(|| unsafe { self.guard(node, section) });
        }
        None
    }

    /// Removes every entry for which `keep` returns false. Not a snapshot: concurrent insertions
    /// may be visited or not. Cost: the tables, and a lock for each bucket in turn, under which
    /// `keep` runs; it must not update the cache, which panics. Loads that are under way are not
    /// put in.
    ///
    /// ```
    /// let cache = manycore_cache::Cache::new(100);
    /// for n in 0..10 {
    ///     cache.insert(n, ());
    /// }
    /// cache.retain(|entry| entry.key() % 2 == 0);
    /// assert_eq!(cache.len(), 5);
    /// ```
    pub fn retain(&self, keep: impl Fn(Entry<'_, K, V>) -> bool) {
        // SAFETY: the walk's section keeps the node while it is asked about.
        self.clear_all(Cause::Removed, |node| !keep(unsafe { self.entry(node) }));
        self.collect();
    }

    /// Changes the capacity, which the cache keeps to at once: what is above it is evicted.
    ///
    /// # Panics
    /// If it is zero or above 2^62.
    ///
    /// ```
    /// let cache = manycore_cache::Cache::new(100);
    /// for n in 0..100 {
    ///     cache.insert(n, ());
    /// }
    /// cache.set_capacity(10);
    /// assert!(cache.len() <= 10);
    /// ```
    pub fn set_capacity(&self, capacity: u64) {
        assert!((1..=1 << 62).contains(&capacity), "manycore: a capacity of {capacity}");
        self.begin_update();
        // ORDER: Relaxed; counts of capacity order nothing.
        let old = self.capacity.swap(capacity as i64, Ordering::Relaxed);
        // ORDER: Relaxed; as above.
        self.pool.0.fetch_add(capacity as i64 - old, Ordering::Relaxed);
        for segment in &self.segments {
            // ORDER: Relaxed; as above.
            self.pool.0.fetch_add(segment.take_spare(i64::MAX), Ordering::Relaxed);
        }
        // One entry of each segment in turn, so that all lose alike.
        while self.pool.0.load(Ordering::Relaxed) < 0 {
            let section = self.domain.enter();
            let evicted = |segment| self.evict(segment, None, &section).map(|w| self.give_back(w));
            if self.segments.iter().filter_map(evicted).count() == 0 {
                return;
            }
        }
    }
}
