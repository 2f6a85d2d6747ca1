//! Reads: no lock, and no write but the entry's frequency and the time of its use.

use crate::Cache;
use crate::guard::Guard;
use crate::key_hash::KeyHash;
use crate::node::{NEVER, Node};
use crate::reentrancy;
use crate::table::Hit;
use manycore::section::Section;
use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash};
use std::ptr::NonNull;
use std::time::Duration;

impl<K, V, S> Cache<K, V, S>
where
    K: Hash + Eq + Send + Sync,
    V: Send + Sync,
    S: BuildHasher,
{
    /// The key's value. Counts as a use.
    ///
    /// Takes no lock; writes only if the entry is not hot yet, or, with a time to idle, was not
    /// used for a while. See [`Guard`] on how long to keep it.
    #[inline(always)]
    pub fn get<Q>(&self, key: &Q) -> Option<Guard<'_, K, V>>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let section = self.domain.enter();
        let node = self.read(self.hash(key), key, &section)?;
        // SAFETY: found in this section.
        Some(unsafe { self.guard(node, section) })
    }

    /// The key's value, without a trace: it does not count as a use, neither for eviction nor for a
    /// time to idle, and not in [`stats`](Self::stats). An expired entry is not returned, and is
    /// left for others to drop.
    ///
    /// ```
    /// let cache = manycore_cache::Cache::builder(10).count_reads(true).build()?;
    /// cache.insert("a", 1);
    /// assert_eq!(cache.peek("a").as_deref(), Some(&1));
    /// assert_eq!(cache.stats().hits, 0);
    /// # Ok::<(), manycore_cache::BuildError>(())
    /// ```
    pub fn peek<Q>(&self, key: &Q) -> Option<Guard<'_, K, V>>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.look(self.hash(key), key)
    }

    /// Whether the key is there. Does not count as a use.
    pub fn contains_key<Q>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.peek(key).is_some()
    }

    /// How long the key's entry has left; `None` if it is not there, and the longest duration if it
    /// does not expire by a time of its own.
    pub fn time_left<Q>(&self, key: &Q) -> Option<Duration>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let section = self.domain.enter();
        let node = self.find(self.hash(key), key, &section)?;
        if !self.is_timed {
            return Some(Duration::MAX);
        }
        let now = self.now();
        let expires = self.expires_of(node);
        if self.is_expired_at(node, now) {
            return None;
        }
        let left = expires.saturating_sub(now);
        Some(if expires == NEVER { Duration::MAX } else { Duration::from_nanos(left) })
    }

    #[inline(always)]
    pub(crate) fn hash<Q: Hash + ?Sized>(&self, key: &Q) -> KeyHash {
        KeyHash::of(self.hasher.hash_one(key))
    }

    /// The node of a key, whether its time is over or not.
    #[inline(always)]
    pub(crate) fn find<Q>(
        &self,
        hash: KeyHash,
        key: &Q,
        section: &Section<'_>,
    ) -> Option<NonNull<Node<K, V>>>
    where
        K: Borrow<Q>,
        Q: Eq + ?Sized,
    {
        let table = self.segment(hash).table(section);
        table.bucket(hash).find(hash, |own| own.borrow() == key).map(|hit| hit.node)
    }

    /// The key's entry, used. Drops it if its time is over.
    #[inline(always)]
    pub(crate) fn read<Q>(
        &self,
        hash: KeyHash,
        key: &Q,
        section: &Section<'_>,
    ) -> Option<NonNull<Node<K, V>>>
    where
        K: Borrow<Q>,
        Q: Eq + ?Sized,
    {
        let table = self.segment(hash).table(section);
        let hit = table.bucket(hash).find(hash, |own| own.borrow() == key);
        self.use_hit(hash, hit, section)
    }

    /// The end of `read`: what was found is used, unless its time is over.
    #[inline(always)]
    pub(crate) fn use_hit(
        &self,
        hash: KeyHash,
        hit: Option<Hit<'_, K, V>>,
        section: &Section<'_>,
    ) -> Option<NonNull<Node<K, V>>> {
        if self.is_watched {
            return self.read_watched(hash, hit, section);
        }
        let hit = hit?;
        self.touch(&hit);
        Some(hit.node)
    }

    /// The same where reads are counted, or entries expire.
    #[inline(never)]
    fn read_watched(
        &self,
        hash: KeyHash,
        hit: Option<Hit<'_, K, V>>,
        section: &Section<'_>,
    ) -> Option<NonNull<Node<K, V>>> {
        // Read once, but for a cache without metadata, most of whose entries have no end.
        let now = (self.is_timed && self.ends.is_none()).then(|| self.now());
        let hit = hit.filter(|hit| {
            let is_over = match now {
                Some(now) => self.is_expired_at(hit.node, now),
                None => self.is_expired(hit.node),
            };
            if is_over && !reentrancy::is_under_lock_of(self.identity()) {
                self.drop_expired(hash, hit.node, section);
            }
            !is_over
        });
        self.counts.read(hit.is_some(), section);
        let hit = hit?;
        self.touch(&hit);
        self.note_use(hit.node, now.unwrap_or(0));
        Some(hit.node)
    }

    /// The key's entry, unless its time is over; no use of it.
    pub(crate) fn look<Q>(&self, hash: KeyHash, key: &Q) -> Option<Guard<'_, K, V>>
    where
        K: Borrow<Q>,
        Q: Eq + ?Sized,
    {
        let section = self.domain.enter();
        let node = self.find(hash, key, &section)?;
        // SAFETY: found in this section.
        (!self.is_expired(node)).then(|| unsafe { self.guard(node, section) })
    }
}
