//! Many keys together: the lines of all are fetched before the first is looked at.

use crate::guard::Entry;
use crate::table::{Place, prefetch};
use crate::{BATCH, Cache};
use manycore::section::Section;
use std::borrow::Borrow;
use std::fmt;
use std::hash::{BuildHasher, Hash};

/// A key of a batch, hashed, with its lines fetched: see [`Cache::visit_many`].
pub struct Spot<'a, Q: ?Sized, K, V, S> {
    cache: &'a Cache<K, V, S>,
    section: &'a Section<'a>,
    place: Place,
    key: &'a Q,
}

impl<'a, Q: ?Sized, K, V, S> Spot<'a, Q, K, V, S>
where
    K: Hash + Eq + Send + Sync + Borrow<Q>,
    V: Send + Sync,
    S: BuildHasher,
    Q: Hash + Eq,
{
    /// As [`Cache::get`].
    #[inline]
    pub fn get(self) -> Option<Entry<'a, K, V>> {
        let node = self.cache.read(self.place, self.key, self.section)?;
        // SAFETY: found in this section, which is open as long as the spot lives.
        Some(unsafe { self.cache.entry(node) })
    }

    /// As [`Cache::insert`], of this key.
    ///
    /// # Panics
    /// If it is another key than the batch's.
    #[inline]
    pub fn insert(self, key: K, value: V) -> u64 {
        assert!(key.borrow() == self.key, "manycore: another key than the batch's");
        self.cache.insert_at(self.place, key, value, self.section)
    }
}

impl<Q: ?Sized, K, V, S> fmt::Debug for Spot<'_, Q, K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Spot").field("place", &self.place.whole()).finish_non_exhaustive()
    }
}

impl<K, V, S> Cache<K, V, S>
where
    K: Hash + Eq + Send + Sync,
    V: Send + Sync,
    S: BuildHasher,
{
    /// Looks up many keys: `f` is called with each one's number and its entry, in order. Their
    /// lines are fetched together, sixteen keys at a time; so in a cache beyond the processor's a
    /// key takes a fraction of what [`get`](Self::get) takes.
    ///
    /// Consistency: each look-up by itself; not one moment for all.
    ///
    /// ```
    /// let cache = manycore_cache::Cache::new(100);
    /// cache.insert(1, 'a');
    /// cache.insert(3, 'c');
    /// let mut found = String::new();
    /// cache.get_many([1, 2, 3].iter(), |_, entry| found.push(entry.map_or('-', |e| *e.value())));
    /// assert_eq!(found, "a-c");
    /// ```
    #[inline]
    pub fn get_many<'q, Q>(
        &self,
        keys: impl IntoIterator<Item = &'q Q>,
        mut f: impl FnMut(usize, Option<Entry<'_, K, V>>),
    ) where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized + 'q,
    {
        self.visit_many(keys, |number, spot| f(number, spot.get()));
    }

    /// As [`get_many`](Self::get_many), for look-ups and insertions one among the other: `f` is
    /// called with each key's number and its [`Spot`], in order. What it does is done when the next
    /// key's turn comes. A section is open all the while, as with a [`Guard`](crate::Guard).
    ///
    /// ```
    /// let cache = manycore_cache::Cache::new(100);
    /// cache.insert(1, 'a');
    /// let mut found = String::new();
    /// cache.visit_many([1, 2, 2].iter(), |number, spot| {
    ///     if number == 1 {
    ///         spot.insert(2, 'b');
    ///     } else {
    ///         found.push(spot.get().map_or('-', |entry| *entry.value()));
    ///     }
    /// });
    /// assert_eq!(found, "ab");
    /// ```
    #[inline]
    pub fn visit_many<'q, Q>(
        &self,
        keys: impl IntoIterator<Item = &'q Q>,
        mut f: impl FnMut(usize, Spot<'_, Q, K, V, S>),
    ) where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized + 'q,
    {
        let section = self.domain.enter();
        let mut keys = keys.into_iter();
        let mut done = 0;
        loop {
            let mut batch: [Option<(&Q, Place)>; BATCH] = [None; BATCH];
            for (slot, key) in batch.iter_mut().zip(keys.by_ref()) {
                let place = self.place(key);
                prefetch(self.segment(place).table(&section).bucket(place));
                *slot = Some((key, place));
            }
            for (_, place) in batch.iter().flatten() {
                self.segment(*place).table(&section).bucket(*place).prefetch_node(*place);
            }
            for (key, place) in batch.iter().flatten() {
                f(done, Spot { cache: self, section: &section, place: *place, key });
                done += 1;
            }
            if batch[BATCH - 1].is_none() {
                return;
            }
        }
    }
}
