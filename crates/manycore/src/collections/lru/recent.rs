//! The touches of one slot: the latest update of each key, and its stamp.
//!
//! Owns: the kind of log behind the recency list. The laws are in the parent module (L numbers).

use super::list::List;
use crate::clock::{Clock, Stamp};
use crate::oplog::Log;
use hashbrown::HashTable;

/// Bit in an update's hash that says that the key is removed. No table looks at this bit: the bits
/// of the tag are above it, those of the bucket below.
const REMOVES: u64 = 1 << 56;

/// A touch or a removal on its way, with the hash that the caller has computed.
///
/// If the key is one word, it has two words and not three. So it is passed in registers, and the
/// lock of a cold list does not wait for it to be written and read again.
#[derive(Debug)]
pub(super) struct Update<K> {
    marked_hash: u64,
    key: K,
}

/// The updates of one slot since the last merge, one for each key.
#[derive(Debug)]
pub(super) struct Recent<K> {
    entries: Vec<(Stamp, Update<K>)>,
    /// Indices in `entries`.
    index: HashTable<usize>,
}

impl<K> Default for Recent<K> {
    fn default() -> Self {
        Self { entries: Vec::new(), index: HashTable::new() }
    }
}

impl<K> Update<K> {
    #[inline(always)]
    pub(super) fn touch(hash: u64, key: K) -> Self {
        Self { marked_hash: hash & !REMOVES, key }
    }

    #[inline(always)]
    pub(super) fn remove(hash: u64, key: K) -> Self {
        Self { marked_hash: hash | REMOVES, key }
    }

    #[inline(always)]
    fn hash(&self) -> u64 {
        self.marked_hash & !REMOVES
    }

    #[inline(always)]
    fn run(self, list: &mut List<K>)
    where
        K: Eq,
    {
        match self.marked_hash & REMOVES {
            0 => list.touch(self.marked_hash, self.key),
            _ => drop(list.remove(self.hash(), &self.key)),
        }
    }
}

impl<K: Eq> Recent<K> {
    #[inline]
    fn add(&mut self, stamp: Stamp, update: Update<K>) {
        let (hash, key) = (update.hash(), &update.key);
        let entries = &mut self.entries;
        // `Eq` runs before anything changes; rehashing uses the stored hashes.
        match self.index.find(hash, |place| entries[*place].1.key == *key) {
            Some(place) => {
                // The older key object stays: equal keys are one key.
                let entry = &mut entries[*place];
                (entry.0, entry.1.marked_hash) = (stamp, update.marked_hash);
            }
            None => {
                let place = entries.len();
                entries.push((stamp, update));
                self.index.insert_unique(hash, place, |other| entries[*other].1.hash());
            }
        }
    }
}

impl<K: Eq + Send + 'static> Log<List<K>> for Recent<K> {
    type Op = Update<K>;
    /// lru.L2: logs are collected all at one moment, because a log keeps only the latest update of
    /// a key. The stamps in the entries give the order.
    const ORDERED: bool = false;

    #[inline(always)]
    fn apply(update: Update<K>, list: &mut List<K>) {
        update.run(list);
    }

    #[inline(always)]
    fn push(&mut self, update: Update<K>, _: Stamp) {
        let clock = Clock::system();
        let stamp = clock.stamp();
        // lru.L1: an update that begins after this returns has a higher stamp; a merge needs no
        // cut.
        clock.commit_wait(stamp);
        self.add(stamp, update);
    }

    #[inline(always)]
    fn len(&self) -> usize {
        self.entries.len()
    }

    #[inline(always)]
    fn bytes(&self) -> usize {
        self.entries.len() * (size_of::<(Stamp, Update<K>)>() + size_of::<usize>())
    }

    fn merge(logs: &mut [Self], list: &mut List<K>) -> usize {
        list.pace.get_or_insert_default().note_logs(logs.len());
        let Some((first, others)) = logs.split_first_mut() else { return 0 };
        first.index.clear();
        let mut rest = Rest { home: first, entries: Vec::new() };
        std::mem::swap(&mut rest.entries, &mut rest.home.entries);
        for other in others {
            other.index.clear();
            rest.entries.append(&mut other.entries);
        }
        let count = rest.entries.len();
        // Taken from the end. Stable, so that of equal stamps the first slot's comes first.
        rest.entries.sort_by_key(|(stamp, _)| *stamp);
        rest.entries.reverse();
        while let Some((_, update)) = rest.entries.pop() {
            update.run(list);
        }
        count
    }
}

/// Holds what is not applied yet: puts it back if applying panics, else gives the buffer back.
struct Rest<'a, K> {
    home: &'a mut Recent<K>,
    entries: Vec<(Stamp, Update<K>)>,
}

impl<K> Drop for Rest<'_, K> {
    fn drop(&mut self) {
        std::mem::swap(&mut self.home.entries, &mut self.entries);
    }
}
