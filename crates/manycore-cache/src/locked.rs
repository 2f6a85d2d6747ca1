//! Operations that evaluate their condition under the bucket's lock.

use crate::Cache;
use crate::cause::Cause;
use crate::guard::{Entry, Guard};
use crate::node::Found;
use crate::update::Asked;
use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash};

impl<K, V, S> Cache<K, V, S>
where
    K: Hash + Eq + Send + Sync,
    V: Send + Sync,
    S: BuildHasher,
{
    /// Calls `look` with the key's entry under the bucket's lock, so that the entry cannot be
    /// replaced or removed meanwhile. Returns the entry if `look` returns true. For interior
    /// mutability (an atomic in the value): a thread that replaces the entry afterwards sees the
    /// change.
    ///
    /// Because `look` runs under the bucket's lock, it should be short, and must not update the
    /// cache, which panics. Does not count as a use.
    ///
    /// ```
    /// use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
    /// let cache = manycore_cache::Cache::new(10);
    /// cache.insert("a", AtomicU32::new(1));
    /// cache.get_locked_if("a", |entry| entry.value().fetch_add(1, Relaxed) == 1);
    /// assert_eq!(cache.get("a").unwrap().load(Relaxed), 2);
    /// assert!(cache.get_locked_if("b", |_| true).is_none());
    /// ```
    pub fn get_locked_if<Q>(
        &self,
        key: &Q,
        look: impl FnOnce(Entry<'_, K, V>) -> bool,
    ) -> Option<Guard<'_, K, V>>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        // SAFETY: `with_locked` found the node in a section that is open.
        let held = self
            .with_locked(key, |node| !self.is_expired(node) && look(unsafe { self.entry(node) }))?;
        self.note_own_end(held.key(), held.value());
        Some(held)
    }

    /// As [`insert_if`](Self::insert_if), but `accept` must return true once more under the
    /// bucket's lock. So its answer holds at the moment in which the entry is replaced, even if it
    /// depends on something that changes within entries (see
    /// [`get_locked_if`](Self::get_locked_if)).
    ///
    /// If the second call returns false, nothing is inserted. In the second call `accept` should be
    /// short, and must not update the cache, which panics.
    ///
    /// # Errors
    /// Returns the key and the value if they were not accepted.
    ///
    /// ```
    /// use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
    /// let cache = manycore_cache::Cache::new(10);
    /// cache.insert("a", AtomicU32::new(1));
    /// let is_one = |entry: manycore_cache::Entry<_, AtomicU32>| entry.value().load(Relaxed) == 1;
    /// let two = || AtomicU32::new(2);
    /// assert!(cache.insert_locked_if("a", two(), |old| old.is_some_and(is_one)).is_ok());
    /// assert!(cache.insert_locked_if("a", two(), |old| old.is_some_and(is_one)).is_err());
    /// ```
    pub fn insert_locked_if(
        &self,
        key: K,
        value: V,
        accept: impl FnMut(Option<Entry<'_, K, V>>) -> bool,
    ) -> Result<u64, (K, V)> {
        self.put_if(key, value, true, accept)
    }

    /// As [`remove_if`](Self::remove_if), but `accept` must return true once more under the
    /// bucket's lock, as in [`insert_locked_if`](Self::insert_locked_if). In that call it should be
    /// short, and must not update the cache, which panics.
    ///
    /// ```
    /// let cache = manycore_cache::Cache::new(10);
    /// cache.insert("a", 1);
    /// assert!(cache.remove_locked_if("a", |entry| *entry.value() == 2).is_none());
    /// assert!(cache.remove_locked_if("a", |entry| *entry.value() == 1).is_some());
    /// ```
    pub fn remove_locked_if<Q>(
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

    /// Inserts if `accept` returns true. If `is_locked`, `accept` is called once more under the
    /// bucket's lock.
    pub(crate) fn put_if(
        &self,
        key: K,
        value: V,
        is_locked: bool,
        mut accept: impl FnMut(Option<Entry<'_, K, V>>) -> bool,
    ) -> Result<u64, (K, V)> {
        self.begin_update();
        let section = self.domain.enter();
        let fresh = self.make::<false>(key, value, None, &section);
        let (hash, version) = (self.hash(&fresh.get().key), fresh.version());
        // SAFETY: found in this section.
        let shown = |node: Option<_>| accept(node.map(|node| unsafe { self.entry(node) }));
        let mut fresh = Some(fresh);
        let asked = if is_locked { Asked::Locked } else { Asked::Before };
        self.put(hash, &mut fresh, &section, asked, shown);
        // Closed before the result is made: if a destructor panics here, nothing is leaked.
        drop(section);
        fresh.map_or(Ok(version), |refused| Err(refused.into_parts()))
    }

    /// Removes if `accept` returns true; `is_locked` is as in `put_if`.
    pub(crate) fn take_if<Q>(
        &self,
        key: &Q,
        is_locked: bool,
        mut accept: impl FnMut(Entry<'_, K, V>) -> bool,
    ) -> Option<Guard<'_, K, V>>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.begin_update();
        let section = self.domain.enter();
        let hash = self.hash(key);
        loop {
            let Some(node) = self.find(hash, key, &section) else {
                if self.note_absence(hash, key, &section) {
                    continue;
                }
                return None;
            };
            if self.is_expired(node) {
                self.unlink_entry(hash, node, Cause::Expired, &section);
                if self.note_absence(hash, key, &section) {
                    continue;
                }
                return None;
            }
            // SAFETY: found in this section.
            if !accept(unsafe { self.entry(node) }) {
                return None;
            }
            // SAFETY: node.N1 - found in this section, which is still open.
            let again = is_locked.then_some(|| accept(unsafe { self.entry(node) }));
            if let Some(is_out) = self.unlink_entry_if(hash, node, Cause::Removed, &section, again)
            {
                // SAFETY: node.N1 - found in this section. `unlink_entry_if` has retired the node,
                // but the section keeps it, and moves into the guard. The node belongs to this
                // cache.
                return is_out.then(|| unsafe { self.guard(node, section) });
            }
        }
    }

    /// Calls `look` with the key's linked node, under its bucket's lock. Returns the entry if
    /// `look` returns true.
    pub(crate) fn with_locked<Q>(
        &self,
        key: &Q,
        look: impl FnOnce(Found<K, V>) -> bool,
    ) -> Option<Guard<'_, K, V>>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.begin_update();
        let section = self.domain.enter();
        let hash = self.hash(key);
        while let Some(node) = self.find(hash, key, &section) {
            let locked = self.lock(hash, &section);
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

    /// Removes every entry for which `keep` returns false, and every expired entry, for which
    /// `keep` is not called. Not a snapshot: concurrent insertions may be visited or not. Loads
    /// that are under way are not put in.
    ///
    /// Cost: the tables, and a lock for each bucket in turn. `keep` runs under that lock, and must
    /// not update the cache, which panics.
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
        // SAFETY: the walk's section keeps the node while `keep` is called.
        self.remove_all(|node| !keep(unsafe { self.entry(node) }));
    }
}
