//! Changes of an entry's expiration time in place.

use crate::guard::{Entry, Guard};
use crate::node::{NEVER, Node};
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
    /// Gives the key's entry a new time to live from now on, or no end. Returns false if the key is
    /// not there. The entry keeps its version.
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

    /// As [`expire`](Self::expire), if `accept` returns true for the key's entry, which is then
    /// returned.
    ///
    /// `accept` runs once, under the lock of the entry's bucket: meanwhile the entry is not
    /// replaced, and gets no other TTL. It should be short, and must not update the cache, which
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
        let has_times = self.is_timed && self.ends.is_none();
        assert!(has_times, "manycore: a cache without times; see `Builder::expire_after`");
        self.with_locked(key, |node| {
            let now = self.now();
            // SAFETY: `with_locked` found the node in a section that is open.
            if self.is_expired_at(node, now) || !accept(unsafe { self.entry(node) }) {
                return false;
            }
            let expires = time.map_or(NEVER, |time| now.saturating_add(builder::nanos(time)));
            if time.is_some() {
                self.note_end();
            }
            // SAFETY: node.N2 - a timed cache with metadata has full nodes; this node was found in
            // a section that is open.
            // ORDER: Relaxed; times order nothing.
            unsafe { Node::extra(node).as_ref() }.expires.store(expires, Ordering::Relaxed);
            true
        })
    }
}
