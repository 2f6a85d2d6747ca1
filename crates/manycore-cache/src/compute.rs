//! Updates that depend on the key's present entry, in one step for each key.

use crate::Cache;
use crate::cause::Cause;
use crate::guard::{Entry, Guard};
use crate::key_hash::KeyHash;
use crate::node::Found;
use crate::update::Asked;
use manycore::section::Section;
use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash};

/// What [`Cache::compute`] does with a key, as its closure decides.
///
/// ```
/// use manycore_cache::{Cache, Change};
///
/// let cache = Cache::new(10);
/// cache.insert("a", 3);
/// // Counts down, and removes what is used up.
/// let use_one = |key| {
///     cache.compute(key, |entry| match entry.map(|entry| *entry.value()) {
///         None => Change::Keep,
///         Some(1) => Change::Remove,
///         Some(left) => Change::Put(left - 1),
///     })
/// };
/// (0..3).for_each(|_| drop(use_one("a")));
/// assert!(cache.is_empty());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change<V> {
    /// Leave the key as it is.
    Keep,
    /// Put this value in, in place of the old value if there is one.
    Put(V),
    /// Remove the key if it is there.
    Remove,
}

/// What [`Cache::compute`] has done.
///
/// ```
/// use manycore_cache::{Cache, Change, Computed};
///
/// let cache = Cache::new(10);
/// let set = |value| cache.compute("a", |_| Change::Put(value));
/// assert!(matches!(set(1), Computed::Inserted(new) if *new == 1));
/// assert!(matches!(set(2), Computed::Replaced(new) if *new == 2));
/// ```
#[derive(Debug)]
pub enum Computed<'c, K, V> {
    /// The key was missing, and this is its new entry.
    Inserted(Guard<'c, K, V>),
    /// This is the new entry, in place of an old one.
    Replaced(Guard<'c, K, V>),
    /// This entry was removed.
    Removed(Guard<'c, K, V>),
    /// This entry was kept.
    Kept(Guard<'c, K, V>),
    /// The key was missing, and nothing was done.
    Absent,
}

impl<K, V, S> Cache<K, V, S>
where
    K: Hash + Eq + Send + Sync,
    V: Send + Sync,
    S: BuildHasher,
{
    /// Changes the key as `f` decides, in one step. `f` gets the key's entry, or `None` if the key
    /// is missing, and exactly that entry is replaced, removed or kept. Returns what was done.
    ///
    /// `f` runs without a lock, so it may use the cache, this key included. If the key's entry was
    /// replaced in between, the value that `f` made is dropped, and `f` runs again. An expired
    /// entry counts as missing.
    ///
    /// A new value is treated as an insertion: it makes room first, lives as long as the cache's
    /// times say, counts as a use, and is not kept if it weighs more than the capacity. A kept
    /// entry does not count as used. A change of the key keeps loads of it that are under way from
    /// being put in. So does a removal of a key that is missing.
    ///
    /// Cost: one look-up more than [`insert`](Self::insert). Use that if the present entry does not
    /// matter. To load a missing value once for all callers, use
    /// [`get_or_insert_with`](Self::get_or_insert_with).
    ///
    /// # Panics
    /// If `f` panics. The key is then as it was.
    ///
    /// ```
    /// use manycore_cache::{Cache, Change, Computed};
    ///
    /// let best = Cache::new(10);
    /// let offer = |name, price| {
    ///     best.compute(name, |entry| match entry {
    ///         Some(entry) if *entry.value() <= price => Change::Keep,
    ///         _ => Change::Put(price),
    ///     })
    /// };
    /// assert!(matches!(offer("a", 7), Computed::Inserted(_)));
    /// assert!(matches!(offer("a", 9), Computed::Kept(old) if *old == 7));
    /// assert!(matches!(offer("a", 5), Computed::Replaced(new) if *new == 5));
    /// ```
    #[doc(alias = "entry")]
    #[doc(alias = "and_compute_with")]
    #[doc(alias = "alter")]
    pub fn compute(
        &self,
        key: K,
        mut f: impl FnMut(Option<Entry<'_, K, V>>) -> Change<V>,
    ) -> Computed<'_, K, V> {
        self.begin_update();
        let section = self.domain.enter();
        let hash = self.hash(&key);
        let mut key = Some(key);
        let (done, node) = loop {
            let own = key.as_ref().expect("each turn leaves the key");
            let seen = self.find(hash, own, &section).filter(|node| !self.is_expired(*node));
            // SAFETY: found in this section.
            let done = match f(seen.map(|node| unsafe { self.entry(node) })) {
                Change::Keep => Some((Done::Kept, seen)),
                Change::Remove => self.remove_seen(hash, own, seen, &section),
                Change::Put(value) => self.put_for(hash, &mut key, value, seen, &section),
            };
            if let Some(done) = done {
                break done;
            }
        };
        // Dropped before the result is made: if a destructor panicked after that, the result would
        // be leaked, and with it an open section.
        drop((key, f));
        let Some(node) = node else { return Computed::Absent };
        // SAFETY: the node was found, or put in, in this section.
        let guard = unsafe { self.guard(node, section) };
        match done {
            Done::Inserted => Computed::Inserted(guard),
            Done::Replaced => Computed::Replaced(guard),
            Done::Removed => Computed::Removed(guard),
            Done::Kept => Computed::Kept(guard),
        }
    }

    /// Removes the key if it is still as it was seen; returns `None` if it is not.
    fn remove_seen(
        &self,
        hash: KeyHash,
        key: &K,
        seen: Option<Found<K, V>>,
        section: &Section<'_>,
    ) -> Option<(Done, Option<Found<K, V>>)> {
        let Some(node) = seen else {
            let over = self.find(hash, key, section).filter(|node| self.is_expired(*node));
            if let Some(over) = over {
                self.unlink_entry(hash, over, Cause::Expired, section);
            }
            return (!self.note_absence(hash, key, section)).then_some((Done::Removed, None));
        };
        let always = None::<fn() -> bool>;
        self.unlink_entry_if(hash, node, Cause::Removed, section, always)
            .map(|_| (Done::Removed, seen))
    }

    /// Puts the value in if the key is still as it was seen. If it is not, leaves the key to the
    /// caller.
    fn put_for(
        &self,
        hash: KeyHash,
        key: &mut Option<K>,
        value: V,
        seen: Option<Found<K, V>>,
        section: &Section<'_>,
    ) -> Option<(Done, Option<Found<K, V>>)> {
        let own = key.take().expect("each turn leaves the key");
        let mut fresh = Some(self.make::<false>(own, value, None, section));
        let node = self.put(hash, &mut fresh, section, Asked::Before, |now| now == seen);
        if let Some(refused) = fresh {
            *key = Some(refused.into_parts().0);
        }
        let done = if seen.is_some() { Done::Replaced } else { Done::Inserted };
        node.map(|node| (done, Some(node)))
    }

    /// Replaces the key's value by the result of `f`. Returns true if the key was there.
    ///
    /// `f` runs without a lock, and again if the value was replaced in between. The new value is
    /// treated as an insertion, also in its times. See [`compute`](Self::compute), which can do
    /// more.
    ///
    /// # Panics
    /// If `f` panics. The key is then as it was.
    ///
    /// ```
    /// let cache = manycore_cache::Cache::new(10);
    /// cache.insert("one", 1);
    /// assert!(cache.update("one", |n| n + 1));
    /// assert!(!cache.update("two", |n| n + 1));
    /// assert_eq!(cache.get("one").as_deref(), Some(&2));
    /// ```
    #[doc(alias = "get_mut")]
    #[doc(alias = "alter")]
    pub fn update<Q>(&self, key: &Q, mut f: impl FnMut(&V) -> V) -> bool
    where
        K: Borrow<Q> + Clone,
        Q: Hash + Eq + ?Sized,
    {
        self.begin_update();
        let Some(own) = self.peek(key).map(|found| found.key().clone()) else { return false };
        let next = |entry: Option<Entry<'_, K, V>>| match entry {
            Some(entry) => Change::Put(f(entry.value())),
            None => Change::Keep,
        };
        matches!(self.compute(own, next), Computed::Replaced(_))
    }

    /// Replaces the key's value by the result of `f`, or inserts the result of `make` if the key is
    /// missing. Returns true if the key was there.
    ///
    /// Both closures run without a lock, and again if another thread changed the key in between.
    /// See [`compute`](Self::compute).
    ///
    /// # Panics
    /// If a closure panics. The key is then as it was.
    ///
    /// ```
    /// let words = manycore_cache::Cache::new(100);
    /// for word in ["to", "be", "or", "not", "to", "be"] {
    ///     words.update_or_insert_with(word, |count| count + 1, || 1);
    /// }
    /// assert_eq!(words.get("be").as_deref(), Some(&2));
    /// ```
    #[doc(alias = "entry")]
    #[doc(alias = "upsert")]
    #[doc(alias = "and_upsert_with")]
    pub fn update_or_insert_with(
        &self,
        key: K,
        mut f: impl FnMut(&V) -> V,
        mut make: impl FnMut() -> V,
    ) -> bool {
        let next = |entry: Option<Entry<'_, K, V>>| {
            Change::Put(entry.map_or_else(&mut make, |entry| f(entry.value())))
        };
        matches!(self.compute(key, next), Computed::Replaced(_))
    }
}

/// What was done with the key.
#[derive(Clone, Copy)]
enum Done {
    Inserted,
    Replaced,
    Removed,
    Kept,
}
