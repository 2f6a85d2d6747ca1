//! Operations found by key: by a scan while they are few, by a hash index when they are many.

use hashbrown::{DefaultHashBuilder, HashTable};
use std::hash::{BuildHasher, Hash};

/// Up to this many operations, a scan (newest first) is faster than hashing.
const SCAN_LIMIT: usize = 16;

/// An unordered bag of operations, each found by its key.
#[derive(Debug)]
pub(crate) struct Keyed<O> {
    ops: Vec<O>,
    /// Positions of all of `ops`, once they are more than `SCAN_LIMIT`; else absent or empty. If
    /// its length differs from that of `ops`, it is stale (after `pop`, or because user code
    /// panicked) and is rebuilt at the next look-up.
    index: Option<Box<Index>>,
}

#[derive(Debug, Default)]
struct Index {
    hasher: DefaultHashBuilder,
    places: HashTable<usize>,
    /// By position: the hash that the key had when it was indexed. If the hash of a key changes
    /// later, a look-up misses it, but no position of a removed operation is left.
    hashes: Vec<u64>,
}

impl<O> Default for Keyed<O> {
    fn default() -> Self {
        Self { ops: Vec::new(), index: None }
    }
}

impl<O> Keyed<O> {
    #[inline(always)]
    pub(crate) fn len(&self) -> usize {
        self.ops.len()
    }

    #[inline(always)]
    fn is_indexed(&self) -> bool {
        self.ops.len() > SCAN_LIMIT
    }

    /// Returns the position of an operation with this key.
    #[inline(always)]
    pub(crate) fn find<K: Hash + Eq>(
        &mut self,
        key: &K,
        key_of: impl Fn(&O) -> K,
    ) -> Option<usize> {
        if !self.is_indexed() {
            return self.ops.iter().rposition(|op| key_of(op) == *key);
        }
        self.find_indexed(key, key_of)
    }

    fn find_indexed<K: Hash + Eq>(&mut self, key: &K, key_of: impl Fn(&O) -> K) -> Option<usize> {
        if self.index.as_ref().is_none_or(|index| index.places.len() != self.ops.len()) {
            self.index_last(&key_of);
        }
        let index = self.index.as_ref()?;
        let hash = index.hasher.hash_one(key);
        index.places.find(hash, |place| key_of(&self.ops[*place]) == *key).copied()
    }

    pub(crate) fn get_mut(&mut self, place: usize) -> &mut O {
        &mut self.ops[place]
    }

    pub(crate) fn get(&self, place: usize) -> &O {
        &self.ops[place]
    }

    #[inline(always)]
    pub(crate) fn push<K: Hash + Eq>(&mut self, op: O, key_of: impl Fn(&O) -> K) {
        self.ops.push(op);
        if self.is_indexed() {
            self.index_last(key_of);
        }
    }

    /// Indexes the last operation, or all of them if the index is stale.
    #[cold]
    fn index_last<K: Hash + Eq>(&mut self, key_of: impl Fn(&O) -> K) {
        let index = self.index.get_or_insert_with(Box::default);
        let Index { hasher, places, hashes } = &mut **index;
        let from = if places.len() + 1 == self.ops.len() { places.len() } else { 0 };
        if from == 0 {
            places.clear();
        }
        hashes.truncate(from);
        for (place, op) in self.ops.iter().enumerate().skip(from) {
            hashes.push(hasher.hash_one(key_of(op)));
            places.insert_unique(hashes[place], place, |other| hashes[*other]);
        }
    }

    /// Takes an operation out; the last one moves to its position. Calls no user code.
    #[inline(always)]
    pub(crate) fn remove(&mut self, place: usize) -> O {
        if self.is_indexed() {
            self.unindex(place);
        }
        self.ops.swap_remove(place)
    }

    #[cold]
    fn unindex(&mut self, place: usize) {
        let Some(index) = &mut self.index else { return };
        let Index { places, hashes, .. } = &mut **index;
        let last = self.ops.len() - 1;
        if last == SCAN_LIMIT || places.len() != self.ops.len() {
            places.clear(); // few enough for scans from now on, or stale
            return;
        }
        let moved = hashes[last];
        if let Ok(found) = places.find_entry(hashes.swap_remove(place), |other| *other == place) {
            found.remove();
        }
        if let Some(moved) = places.find_mut(moved, |other| *other == last) {
            *moved = place;
        }
    }

    /// Returns the operation that [`pop`](Self::pop) takes.
    pub(crate) fn last(&self) -> Option<&O> {
        self.ops.last()
    }

    /// Takes any operation out.
    pub(crate) fn pop(&mut self) -> Option<O> {
        if let Some(index) = &mut self.index {
            index.places.clear();
        }
        self.ops.pop()
    }
}

#[cfg(all(test, not(manycore_loom), not(manycore_shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn finds_everything_after_a_pop() {
        let mut keyed: Keyed<u64> = Keyed::default();
        for op in 0..40 {
            keyed.push(op, |op| *op);
        }
        keyed.pop();
        for op in (0..39).rev() {
            let place = keyed.find(&op, |op| *op);
            assert_eq!(place.map(|place| keyed.remove(place)), Some(op));
        }
        assert_eq!(keyed.len(), 0);
    }

    #[test]
    fn behaves_like_a_list_that_is_searched() {
        let mut seed = 0x9e37_79b9_u64;
        let mut keyed: Keyed<u64> = Keyed::default();
        let mut model: Vec<u64> = Vec::new();
        let key_of = |op: &u64| op % 64;
        for step in 0..20_000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let key = (seed >> 33) % 64;
            let grow = step % 4000 < 2000;
            let found = keyed.find(&key, key_of);
            assert_eq!(found.is_some(), model.iter().any(|op| op % 64 == key));
            match found {
                Some(place) if !grow || seed & 1 == 0 => {
                    let op = keyed.remove(place);
                    assert_eq!(op % 64, key);
                    let at = model.iter().position(|other| *other == op).unwrap();
                    model.swap_remove(at);
                }
                _ => {
                    keyed.push(key + 64 * step, key_of);
                    model.push(key + 64 * step);
                }
            }
            assert_eq!(keyed.len(), model.len());
        }
        let mut rest: Vec<u64> = std::iter::from_fn(|| keyed.pop()).collect();
        rest.sort();
        model.sort();
        assert_eq!(rest, model);
    }
}
