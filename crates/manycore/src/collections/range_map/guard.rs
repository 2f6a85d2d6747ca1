//! [`RangeGuard`], a locked range.

use super::claim::Claim;
use super::error::{RangeError, keys_of};
use super::iter::{RangeMapIter, Removed};
use super::trie::{OwnEntry, find};
use super::write::{insert_claimed, replace_claimed};
use crate::lock::held;
use std::fmt;
use std::ops::{RangeBounds, RangeInclusive};

/// A locked range of a [`RangeMap`](super::RangeMap). Until it is dropped, no other thread changes
/// the values of its keys. See [`RangeMapView::lock`](super::RangeMapView::lock).
///
/// User code may run under a guard. If it panics, the range is unlocked, and changes that were made
/// remain. Look-ups of any thread go on, and see each change at once.
///
/// ```
/// let map = manycore::collections::RangeMap::new();
/// let view = map.enter();
/// view.insert(0..10, "old")?;
/// let mut guard = view.lock(0..20)?;
/// guard.remove(0..10)?;
/// guard.insert(0..20, "new")?; // no other thread could take a key of it in between
/// drop(guard);
/// assert_eq!(view.get(15), Some(&"new"));
/// # Ok::<(), manycore::collections::RangeError>(())
/// ```
#[must_use = "the range is unlocked when the guard is dropped"]
pub struct RangeGuard<'v, V> {
    claim: Claim<'v, V>,
}

impl<'v, V> RangeGuard<'v, V> {
    pub(super) fn new(mut claim: Claim<'v, V>) -> Self {
        claim.open_to_user();
        Self { claim }
    }

    /// Returns the locked keys.
    pub fn keys(&self) -> RangeInclusive<u64> {
        self.claim.first..=self.claim.last
    }

    /// Returns the key's value, which stays the same until the guard changes it. A key outside of
    /// the guard may have any value by the time this returns.
    #[must_use]
    pub fn get(&self, key: u64) -> Option<&'v V> {
        find(&self.claim.map.root, key, self.claim.section).map(|entry| &entry.value)
    }

    /// Iterates over the ranges that have a value, in order. This is a snapshot. Ranges are clipped
    /// to the guard's.
    pub fn iter(&self) -> RangeMapIter<'_, V> {
        let keys = (self.claim.first, self.claim.last);
        RangeMapIter::new(self.claim.top, keys, self.claim.section)
    }

    fn within(&self, range: &impl RangeBounds<u64>) -> Result<(u64, u64), RangeError> {
        let keys = keys_of(range)?;
        if keys.0 < self.claim.first || keys.1 > self.claim.last {
            return Err(RangeError::OutOfGuard { range: keys.0..=keys.1, held: self.keys() });
        }
        Ok(keys)
    }
}

impl<'v, V: Send + Sync> RangeGuard<'v, V> {
    /// As [`RangeMapView::insert`](super::RangeMapView::insert), within the guard.
    ///
    /// # Errors
    /// [`RangeError::OutOfGuard`], `Overlap`, `Empty`. The map is then unchanged, and the value is
    /// dropped.
    pub fn insert(&mut self, range: impl RangeBounds<u64>, value: V) -> Result<&'v V, RangeError> {
        let keys = self.within(&range)?;
        insert_claimed(&mut self.claim, keys, value).map_err(|(error, _value)| error)
    }

    /// As [`RangeMapView::replace`](super::RangeMapView::replace), within the guard.
    ///
    /// # Errors
    /// [`RangeError::OutOfGuard`], `Empty`. The map is then unchanged, and the value is dropped.
    pub fn replace(
        &mut self,
        range: impl RangeBounds<u64>,
        value: V,
    ) -> Result<Removed<'v, V>, RangeError> {
        let keys = self.within(&range)?;
        let entry = OwnEntry::new(keys.0, keys.1, value);
        Ok(Removed::new(replace_claimed(&mut self.claim, keys, Some(entry))))
    }

    /// As [`RangeMapView::remove`](super::RangeMapView::remove), within the guard.
    ///
    /// # Errors
    /// [`RangeError::OutOfGuard`], `Empty`.
    pub fn remove(&mut self, range: impl RangeBounds<u64>) -> Result<Removed<'v, V>, RangeError> {
        let keys = self.within(&range)?;
        Ok(Removed::new(replace_claimed(&mut self.claim, keys, None)))
    }
}

impl<V> Drop for RangeGuard<'_, V> {
    fn drop(&mut self) {
        held::leave();
    }
}

impl<V: fmt::Debug> fmt::Debug for RangeGuard<'_, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RangeGuard").field("keys", &self.keys()).finish_non_exhaustive()
    }
}
