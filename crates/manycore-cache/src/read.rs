//! Reads: they take no lock, and write only the entry's frequency and the time of its use.

use crate::Cache;
use crate::guard::Guard;
use crate::key_hash::KeyHash;
use crate::node::{NEVER, Node};
use crate::reentrancy;
use crate::table::{Hit, Slot};
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
    /// Returns the key's value. Counts as a use.
    ///
    /// Takes no lock. Writes only if the entry is not hot yet or, with a time to idle, was not used
    /// for a while. See [`Guard`] on how long to keep it.
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

    /// Returns the key's value without a trace. It does not count as a use, neither for eviction
    /// nor for a time to idle, and it is not counted in [`stats`](Self::stats). An expired entry is
    /// not returned, and is left for others to drop.
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

    /// Returns true if the key is there. Does not count as a use.
    pub fn contains_key<Q>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.peek(key).is_some()
    }

    /// Returns how long the key's entry has left, or `None` if the key is not there. An entry that
    /// does not expire at a time of its own has the longest duration.
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

    /// Returns the node of a key, also if it has expired.
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

    /// Returns the key's entry, and counts a use. Drops the entry if it has expired.
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

    /// The end of `read`: counts a use of the entry, unless it has expired.
    #[inline(always)]
    pub(crate) fn use_hit(
        &self,
        hash: KeyHash,
        hit: Option<Hit<'_, K, V>>,
        section: &Section<'_>,
    ) -> Option<NonNull<Node<K, V>>> {
        let hit = match hit {
            Some(hit) if hit.frequency >= self.traceless_from => return Some(hit.node),
            hit => hit,
        };
        if self.is_watched {
            // In parts, which go in registers: a hit in memory would cost the other path, too.
            let (node, slot) = (hit.as_ref().map(|hit| hit.node), hit.as_ref().map(|hit| hit.slot));
            let frequency = hit.map_or(0, |hit| hit.frequency);
            return self.read_watched(hash, node, slot, frequency, section);
        }
        let hit = hit?;
        self.touch(hit.slot, hit.frequency);
        Some(hit.node)
    }

    /// As `use_hit`, in a cache that counts reads or has times.
    #[inline(never)]
    fn read_watched(
        &self,
        hash: KeyHash,
        node: Option<NonNull<Node<K, V>>>,
        slot: Option<Slot<'_, K, V>>,
        frequency: u8,
        section: &Section<'_>,
    ) -> Option<NonNull<Node<K, V>>> {
        // The clock is read once, except in a cache without metadata, where most entries have no
        // end.
        let now = (self.is_timed && self.ends.is_none()).then(|| self.now());
        let node = node.filter(|node| {
            let is_over = match now {
                Some(now) => self.is_expired_at(*node, now),
                None => self.is_expired(*node),
            };
            if is_over && !reentrancy::is_under_lock_of(self.identity()) {
                self.drop_expired(hash, *node, section);
            }
            !is_over
        });
        self.counts.read(node.is_some(), section);
        let (node, slot) = node.zip(slot)?;
        self.touch(slot, frequency);
        self.note_use(node, now.unwrap_or(0));
        Some(node)
    }

    /// Returns the key's entry, unless it has expired. Does not count as a use.
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
