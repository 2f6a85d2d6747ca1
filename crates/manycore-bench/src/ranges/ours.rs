//! The library's map of ranges.

use manycore::collections::RangeMap;

use super::RangesImpl;

/// `collections::RangeMap`: a section for each call, as the others pin or lock for each.
pub(super) struct Trie(RangeMap<u64>);

impl RangesImpl for Trie {
    fn new() -> Self {
        Self(RangeMap::new())
    }

    #[inline]
    fn get(&self, key: u64) -> Option<u64> {
        self.0.enter().get(key).copied()
    }

    #[inline]
    fn insert(&self, first: u64, last: u64, value: u64) -> bool {
        self.0.enter().insert(first..=last, value).is_ok()
    }

    #[inline]
    fn remove(&self, first: u64, last: u64) {
        self.0.enter().remove(first..=last).expect("a range with keys");
    }
}
