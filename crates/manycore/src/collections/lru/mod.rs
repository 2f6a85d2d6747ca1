//! A recency list that all threads touch and few query.
//!
//! Owns: [`Lru`]. Built on [`Deferred`] with a sequential list (`list`) and its own kind of log
//! (`recent`). Source: OpLog, section 1 (the paper's opening example).
//!
//! # The laws
//!
//! - **lru.L1** Order. An entry carries a stamp taken inside `push`. If one update returns before
//!   another begins, its stamp is lower (law clock.C2). A merge that has the later update has the
//!   earlier update too, or an earlier merge had it. So applying in the order of stamps is an order
//!   in which the updates may have happened.
//! - **lru.L2** Combining. Of the updates of one key in one log only the latest counts: the key's
//!   place depends only on its last update, whatever came between. So a log may not be collected up
//!   to a cut: it may have forgotten an update below the cut for one above. It is collected whole,
//!   all logs at one moment.
//! - **lru.L3** User code. Hashing runs in the caller, `Eq` in `push` and in merges, `Drop` of keys
//!   in both. If one of them panics, the update in hand may be lost, and the list stays in order.
//!   So the next thread that meets the object's poison clears it. Keys that are integers run no
//!   user code, so a list that is reserved for a thread may be touched in place
//!   (`oplog::in_place`).
//!
//! lru_pace.L4, when the list has logs, is in `pace`.

mod list;
mod pace;
mod recent;

use super::{guarded, integer::is_integer};
use crate::clock::Clock;
use crate::oplog::{BuildError, Deferred, Logs, Publish, ReadGuard, Stats};
use hashbrown::DefaultHashBuilder;
use list::List;
use recent::{Recent, Update};
use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::marker::PhantomData;

/// Keys ordered by how recently they were touched: what a cache or a page daemon evicts by.
///
/// [`touch`](Self::touch) and [`remove`](Self::remove) are deferred. [`evict`](Self::evict) and
/// [`evict_oldest`](Self::evict_oldest) collect them and remove the least recently used keys. The
/// list holds only keys, up to 2^32 - 1 of them: keep the values in a map beside it.
///
/// When not: for a cache that evicts at every insertion. Evict in batches, or the gathering costs
/// more than it saves. Nor if an approximation will do (random or clock eviction need no list).
///
/// ```
/// use manycore::collections::Lru;
///
/// let recent = Lru::new();
/// std::thread::scope(|s| {
///     s.spawn(|| ["a", "b", "c"].map(|page| recent.touch(page))).join().unwrap();
///     s.spawn(|| recent.touch("a")); // on another thread, later
/// });
/// recent.remove("c");
/// assert_eq!(recent.evict_oldest(), Some("b"));
/// assert_eq!(recent.evict(10), ["a"]);
/// ```
///
/// - Consistency: linearizable. Once touching threads are quiescent, keys come out in the order in
///   which they were last touched, as from a sequential list.
/// - Progress: touching waits only for a merge that takes the thread's log, or for the lock while
///   the list is cold. Readers wait for each other.
/// - Cost of a touch: hashing the key and a look at the thread's own log. Once the list has logs,
///   also a clock read (about 15 ns), and no shared line written. Touching a key again and again
///   keeps one entry.
/// - Cost of a merge: some tens of ns for each key that a thread has touched since.
/// - Memory: a key, 24 bytes and 5 to 10 bytes of index per key in the list; a key, 24 bytes and
///   the index per key in a log. Buffers stay as large as they grew.
/// - Panics: a touch panics if the list is full. A panic in a key's `Hash`, `Eq` or `Drop` reaches
///   the thread that runs it. The update in hand may be lost, and the list stays in order. These
///   functions may touch and remove keys of the same list; a call that gathers the logs panics
///   there ([re-entrancy](https://github.com/manycore-rs/manycore/blob/main/docs/reentrancy.md)).
/// - Source: [OpLog](crate#sources), section 1.
#[doc(alias = "eviction")]
#[doc(alias = "recency list")]
pub struct Lru<K: Eq + Hash + Send + 'static> {
    list: Deferred<List<K>, Recent<K>>,
    hasher: DefaultHashBuilder,
}

impl<K: Eq + Hash + Send + 'static> Lru<K> {
    /// Makes an empty list.
    ///
    /// # Panics
    /// Never: the defaults are valid.
    #[must_use]
    pub fn new() -> Self {
        Self::builder().build().expect("the defaults are valid")
    }

    /// Starts a builder for a list with other bounds and policies.
    #[must_use]
    pub fn builder() -> LruBuilder<K> {
        LruBuilder { list: Deferred::<List<K>, Recent<K>>::builder(), lru: PhantomData }
    }

    /// Makes `key` the most recently touched key, adding it if need be.
    // (Everything but the shortest path is a call.)
    #[inline(always)]
    pub fn touch(&self, key: K) {
        let hash = self.hasher.hash_one(&key);
        // lru.L3: an integer's `Eq` is no user code.
        let touch_again = |list: &mut List<K>| list.touch_again(hash, &key);
        if !is_integer::<K>() || self.list.change_if_reserved(touch_again).is_none() {
            self.append_touch(hash, key);
        }
    }

    #[inline(never)]
    fn append_touch(&self, hash: u64, key: K) {
        self.list.append(Update::touch(hash, key));
    }

    /// Removes `key`, if it is in the list.
    #[inline]
    pub fn remove(&self, key: K) {
        self.list.append(Update::remove(self.hasher.hash_one(&key), key));
    }

    /// Removes and returns the `count` least recently touched keys, the oldest first; fewer if
    /// there are fewer.
    pub fn evict(&self, count: usize) -> Vec<K> {
        let mut list = self.hold();
        Self::pace(&mut list);
        let mut evicted = Vec::with_capacity(count.min(list.len()));
        evicted.extend(std::iter::from_fn(|| list.pop_oldest()).take(count));
        evicted
    }

    /// Removes and returns the least recently touched key. Same as [`evict`](Self::evict) of one
    /// key, without a vector for it.
    pub fn evict_oldest(&self) -> Option<K> {
        let mut list = self.hold();
        Self::pace(&mut list);
        list.pop_oldest()
    }

    /// Returns true if `key` is in the list. Gathers the logs, so not for hot paths.
    #[must_use]
    pub fn contains(&self, key: &K) -> bool {
        let hash = self.hasher.hash_one(key);
        self.with_list(|list| list.contains(hash, key))
    }

    /// Returns the number of keys. Gathers the logs, so not for hot paths.
    #[must_use]
    pub fn len(&self) -> usize {
        self.with_list(|list| list.len())
    }

    /// Returns true if the list has no keys. Costs as much as [`len`](Self::len).
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns clones of all keys, the least recently touched one first.
    #[must_use]
    pub fn snapshot(&self) -> Vec<K>
    where
        K: Clone,
    {
        self.with_list(|list| list.iter().cloned().collect())
    }

    /// Returns counts of what happened to touches and removals while the list had logs. Combined
    /// updates count as absorbed.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.list.stats()
    }

    fn with_list<R>(&self, f: impl FnOnce(&mut ReadGuard<'_, List<K>, Recent<K>>) -> R) -> R {
        guarded(|| self.hold(), f, || ()) // lru.L3
    }

    /// Decides whether the list has logs (lru_pace.L4), if it ever had some. Called by evictions,
    /// which run no other user code.
    #[inline(always)]
    fn pace(list: &mut ReadGuard<'_, List<K>, Recent<K>>) {
        if list.pace.is_some() {
            Self::pace_what_had_logs(list);
        }
    }

    #[inline(never)]
    fn pace_what_had_logs(list: &mut ReadGuard<'_, List<K>, Recent<K>>) {
        let logged = list.is_hot();
        let Some(pace) = &mut list.pace else { return };
        if let Some(rests) = pace.look(logged, || Clock::system().ticks_now()) {
            list.rest(rests);
        }
    }

    /// Locks the up-to-date list, poisoned or not (lru.L3).
    #[inline]
    fn hold(&self) -> ReadGuard<'_, List<K>, Recent<K>> {
        match self.list.acquire_cold() {
            Some(list) => list,
            None => self.hold_slow(),
        }
    }

    #[inline(never)]
    fn hold_slow(&self) -> ReadGuard<'_, List<K>, Recent<K>> {
        loop {
            let list = self.list.read_poisoned();
            if !list.is_poisoned() {
                return list;
            }
            drop(list);
            self.list.clear_poison();
        }
    }
}

impl<K: Eq + Hash + Send + 'static> Default for Lru<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Eq + Hash + Send + 'static> fmt::Debug for Lru<K> {
    /// Prints the state, not the keys: that would take a merge.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lru").field("hot", &self.list.is_hot()).finish_non_exhaustive()
    }
}

/// Builder for an [`Lru`].
///
/// ```
/// use manycore::collections::Lru;
/// use manycore::oplog::Logs;
///
/// let pages = Lru::builder().logs(Logs::Always).build().unwrap();
/// pages.touch(4096_u64);
/// assert_eq!(pages.len(), 1);
///
/// let error = Lru::<u64>::builder().max_entries(0).build().unwrap_err();
/// assert_eq!(error.to_string(), "max_entries must not be zero: no update would fit");
/// ```
pub struct LruBuilder<K: Eq + Hash + Send + 'static> {
    list: crate::oplog::Builder<List<K>, Recent<K>>,
    lru: PhantomData<fn() -> K>,
}

impl<K: Eq + Hash + Send + 'static> LruBuilder<K> {
    /// Sets the number of keys that one thread's log keeps before it is merged (default 4,096).
    #[must_use]
    pub fn max_entries(mut self, entries: usize) -> Self {
        self.list = self.list.max_entries(entries);
        self
    }

    /// Sets when the list has logs. By default when its lock is contended. If only two threads
    /// touch it, it keeps them as long as trials during evictions find them faster than the lock
    /// alone.
    #[must_use]
    pub fn logs(mut self, logs: Logs) -> Self {
        self.list = self.list.logs(logs);
        self
    }

    /// Sets how touches are published (default: depends on the ratio of touches to reads).
    #[must_use]
    pub fn publish(mut self, publish: Publish) -> Self {
        self.list = self.list.publish(publish);
        self
    }

    /// Makes the list.
    ///
    /// # Errors
    /// If the bound is zero or absurdly large, or if one key does not fit a log.
    pub fn build(&self) -> Result<Lru<K>, BuildError> {
        let list = self.list.build(List::default())?;
        Ok(Lru { list, hasher: DefaultHashBuilder::default() })
    }
}

impl<K: Eq + Hash + Send + 'static> fmt::Debug for LruBuilder<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LruBuilder").finish_non_exhaustive()
    }
}

#[cfg(all(test, not(manycore_loom), not(manycore_shuttle)))]
mod tests {
    use super::*;
    use crate::sync::thread;

    /// Touches a hundred keys that were never in.
    fn touch_new(list: &Lru<u64>, from: u64) {
        (from..from + 100).for_each(|key| list.touch(key));
    }

    /// lru_pace.L4; nothing is lost on the way.
    #[test]
    fn list_with_logs_gives_them_up_on_trial() {
        let list = Lru::new();
        assert!(list.list.promote());
        let mut evicted = Vec::new();
        let mut colds = 0;
        for round in 0..400 {
            touch_new(&list, 100 * round);
            evicted.extend(list.evict_oldest());
            colds += u32::from(!list.list.is_hot());
        }
        assert!(colds > 0);
        evicted.extend(list.evict(usize::MAX));
        assert!(evicted.into_iter().eq(0..40_000));
    }

    #[test]
    fn two_threads_lose_no_touch_in_trials() {
        let list = Lru::new();
        list.list.promote();
        let work = |first: u64| {
            let mut evicted = Vec::new();
            for round in 0..2000 {
                touch_new(&list, first + 100 * round);
                evicted.extend(list.evict_oldest());
            }
            evicted
        };
        let second = 1 << 32;
        let mut all = thread::scope(|scope| {
            let other = scope.spawn(|| work(second));
            let mut evicted = work(0);
            evicted.extend(other.join().unwrap());
            evicted
        });
        all.extend(list.evict(usize::MAX));
        all.sort_unstable();
        assert!(all.into_iter().eq((0..200_000).chain(second..second + 200_000)));
    }
}
