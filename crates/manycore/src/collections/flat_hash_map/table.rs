//! Tables, and the move of buckets from a table to the next one (flat_hash_map.F3).

use super::super::growth::{Growing, Growth};
use super::bucket::{ARRIVED, Bucket, Closed, Copied};
use super::layout::{CacheLine, EntryLayout};
use super::locked::Locked;
use super::overflow::Overflow;
use super::plain::Plain;
use crate::section::Section;
use crate::slab::large_array::LargeArray;
use crate::sync::{Backoff, Ordering, seeded_bug};
use std::marker::PhantomData;

pub(super) struct Table<K, V> {
    mask: usize,
    lines: LargeArray<CacheLine>,
    pub(super) overflow: Overflow,
    growth: Growth<Self>,
    _types: PhantomData<fn() -> (K, V)>,
}

impl<K, V> Growing for Table<K, V> {
    const BUCKET_BYTES: usize = size_of::<CacheLine>() * EntryLayout::<K, V>::LINES;

    fn with_buckets(buckets: usize, growth: Growth<Self>) -> Self {
        debug_assert!(buckets.is_power_of_two());
        let lines =
            buckets.checked_mul(EntryLayout::<K, V>::LINES).expect("manycore: capacity overflow");
        // SAFETY: a line is words, which may be zero.
        let lines = unsafe { LargeArray::zeroed_or(lines, || CacheLine::from(0)) };
        if growth.is_first() {
            for line in lines.iter().step_by(EntryLayout::<K, V>::LINES) {
                // ORDER: Relaxed; no other thread has the table yet.
                line.0[0].store(ARRIVED, Ordering::Relaxed);
            }
        }
        Self { mask: buckets - 1, lines, overflow: Overflow::new(), growth, _types: PhantomData }
    }

    #[inline(always)]
    fn len(&self) -> usize {
        self.mask + 1
    }

    fn bytes(&self) -> usize {
        let overflow = self.overflow.bytes(EntryLayout::<K, V>::LINES);
        size_of::<Self>() + size_of_val(&*self.lines) + overflow
    }

    fn touch(&self, index: usize) {
        // ORDER: Relaxed; no other thread has the table yet.
        self.lines[index * EntryLayout::<K, V>::LINES].0[0].store(0, Ordering::Relaxed);
    }

    #[inline(always)]
    fn growth(&self) -> &Growth<Self> {
        &self.growth
    }

    fn growth_mut(&mut self) -> &mut Growth<Self> {
        &mut self.growth
    }
}

impl<K, V> Table<K, V> {
    /// Number of entries that the table takes before it grows.
    pub(super) fn capacity(&self) -> usize {
        self.len() * EntryLayout::<K, V>::LOAD
    }
}

impl<K: Plain, V: Plain> Table<K, V> {
    #[inline(always)]
    pub(super) fn bucket(&self, hash: u64) -> Bucket<'_, K, V> {
        let first = (hash as usize & self.mask) * EntryLayout::<K, V>::LINES;
        // SAFETY: flat_hash_map.F1 - `with_buckets` makes `LINES` lines for each of `mask + 1`
        // buckets, and the index is at most `mask`.
        let lines = unsafe { self.lines.get_unchecked(first..first + EntryLayout::<K, V>::LINES) };
        Bucket::new(lines, &self.overflow)
    }

    /// Finds the value of a key that may still be in the old table (growth.G1).
    pub(super) fn find_pending(
        &self,
        hash: u64,
        key: K,
        section: &Section<'_>,
    ) -> Result<Option<V>, Closed> {
        let old = self.growth.old.load(section).as_ref();
        old.map_or(Err(Closed::Moved), |old| old.bucket(hash).find(hash, key))
    }

    /// Appends an overflow bucket with this entry to a full chain. If the bucket has no memory yet,
    /// unlocks the chain, allocates the memory and returns false.
    pub(super) fn extend(&self, mut locked: Locked<'_, K, V>, hash: u64, key: K, value: V) -> bool {
        let taken = self.overflow.take(1, EntryLayout::<K, V>::LINES);
        match taken {
            Some(number) => locked.extend(number, hash, key, value),
            None => {
                drop(locked);
                self.overflow.reserve(1, EntryLayout::<K, V>::LINES);
            }
        }
        taken.is_some()
    }

    /// Adds the entries of one bucket to `found`, wherever they are now. Returns false if the table
    /// has been replaced. `hash_of` is called with no lock held.
    pub(super) fn copy(
        &self,
        index: usize,
        section: &Section<'_>,
        hash_of: impl Fn(&K) -> u64,
        copied: &mut Copied<K, V>,
        found: &mut Vec<(K, V)>,
    ) -> bool {
        let before = found.len();
        let mut backoff = Backoff::new();
        loop {
            match self.bucket(index as u64).copy(copied) {
                Ok(_) => {
                    found.append(&mut copied.entries);
                    return true;
                }
                Err(Closed::Moved) => return false,
                Err(Closed::Changing) => {}
                Err(Closed::Pending) => {
                    let Some(old) = self.growth.old.load(section).as_ref() else { continue };
                    let (groups, own) =
                        (self.groups(old), |hash: u64| hash as usize & self.mask == index);
                    let is_copied =
                        (index & (groups - 1)..old.len()).step_by(groups).all(|source| {
                            let source = old.bucket(source as u64).copy(copied);
                            copied.entries.retain(|(key, _)| own(hash_of(key)));
                            found.append(&mut copied.entries);
                            source.is_ok()
                        });
                    if is_copied {
                        return true;
                    }
                    found.truncate(before);
                }
            }
            backoff.pause();
        }
    }

    /// Returns the number of groups of buckets that move from `old` to this table (growth.G1).
    fn groups(&self, old: &Self) -> usize {
        self.len().min(old.len())
    }

    /// Moves one group of buckets from `old` to this table (flat_hash_map.F3). Returns false if the
    /// group has moved already. `hash_of` is called with no lock held.
    pub(super) fn move_group(
        &self,
        old: &Self,
        index: usize,
        hash_of: impl Fn(&K) -> u64,
        mover: &mut Mover<K, V>,
    ) -> bool {
        let groups = self.groups(old);
        for target in (index..self.len()).step_by(groups) {
            self.bucket(target as u64).prefetch_for_write();
        }
        let mut backoff = Backoff::new();
        loop {
            let mut versions = [0; 2];
            mover.sides.iter_mut().for_each(Vec::clear);
            let sources = (index..old.len()).step_by(groups).zip(&mut versions);
            let copied = sources.into_iter().try_for_each(|(source, version)| {
                *version = old.bucket(source as u64).copy(&mut mover.copied)?;
                mover.sort(|hash| hash as usize & self.mask >= groups, &hash_of);
                Ok(())
            });
            match copied {
                Ok(()) if self.receive(old, versions, index, mover) => return true,
                Err(Closed::Moved) => return false,
                Ok(()) | Err(_) => {}
            }
            backoff.pause();
        }
    }

    /// Fills this table's buckets of a group, if the buckets of `old` still have these versions.
    fn receive(&self, old: &Self, versions: [u64; 2], index: usize, mover: &Mover<K, V>) -> bool {
        let (lines, groups) = (EntryLayout::<K, V>::LINES, self.groups(old));
        let full = |side: &Vec<_>| side.len().saturating_sub(1) / EntryLayout::<K, V>::SLOTS;
        let needed = mover.sides.iter().map(full).sum();
        if needed > 0 {
            self.overflow.reserve(needed, lines);
        }
        let lock = |number: usize| {
            let source = old.bucket((index + number * groups) as u64);
            source.lock_to_move(versions[number])
        };
        let Some(first) = lock(0) else { return false };
        let second = if groups < old.len() { lock(1) } else { None };
        if groups < old.len() && second.is_none() {
            return false;
        }
        let taken = if needed > 0 { self.overflow.take(needed, lines) } else { Some(0) };
        let Some(mut number) = taken else {
            return false; // another thread took what was reserved
        };
        for (target, side) in (index..self.len()).step_by(groups).zip(&mover.sides) {
            let target = self.bucket(target as u64);
            // BUG: entries are published before they are written (flat_hash_map.F3).
            if seeded_bug!("flat-early-arrival") {
                target.arrive();
                target.fill(side.iter(), &mut number);
            } else {
                target.fill(side.iter(), &mut number);
                target.arrive();
            }
        }
        first.mark_moved();
        second.into_iter().for_each(Locked::mark_moved);
        true
    }
}

/// The buffers of a thread that moves buckets.
pub(super) struct Mover<K, V> {
    copied: Copied<K, V>,
    /// Entries with their hashes, for the lower target and for the upper target.
    sides: [Vec<(u64, K, V)>; 2],
}

impl<K: Plain, V: Plain> Mover<K, V> {
    pub(super) fn new() -> Self {
        Self { copied: Copied::new(), sides: [Vec::new(), Vec::new()] }
    }

    /// Distributes the copied entries over the two sides.
    fn sort(&mut self, is_upper: impl Fn(u64) -> bool, hash_of: impl Fn(&K) -> u64) {
        for (key, value) in &self.copied.entries {
            let hash = hash_of(key);
            self.sides[usize::from(is_upper(hash))].push((hash, *key, *value));
        }
    }
}
