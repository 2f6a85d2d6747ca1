//! Views: a map as one section sees it, and what can be done with it.

use super::RangeMap;
use super::claim::{Claim, Fit};
use super::error::{RangeError, keys_of};
use super::guard::RangeGuard;
use super::iter::{Gaps, RangeMapIter, Removed, run_around};
use super::single;
use super::trie::{Entry, LAST_KEY, OwnEntry, find};
use super::write::{Pieces, insert_claimed, replace_claimed, settle};
use crate::section::Section;
use std::fmt;
use std::ops::{RangeBounds, RangeInclusive};
use std::ptr;

/// A [`RangeMap`] and an open section. References to values borrow from the view.
///
/// Keep a view for as long as references are needed, or for many calls in a row, but not while
/// waiting for anything: see [`Section`]. A view stays on its thread. Views nest.
///
/// ```
/// use manycore::collections::RangeMap;
///
/// let map = RangeMap::new();
/// let view = map.enter();
/// let heap = view.insert(0x1000..0x3000, String::from("heap"))?;
/// assert_eq!(view.get(0x2fff), Some(heap));
/// assert_eq!(view.get(0x3000), None);
/// # Ok::<(), manycore::collections::RangeError>(())
/// ```
pub struct RangeMapView<'m, V> {
    map: &'m RangeMap<V>,
    section: Section<'m>,
}

impl<'m, V> RangeMapView<'m, V> {
    #[inline(always)]
    pub(super) fn new(map: &'m RangeMap<V>, section: Section<'m>) -> Self {
        Self { map, section }
    }

    /// Returns the map.
    pub fn map(&self) -> &'m RangeMap<V> {
        self.map
    }

    /// Releases everything that was removed before, as if the view were closed and opened again.
    pub fn refresh(&mut self) {
        self.section.refresh();
    }

    /// Returns the key's value.
    ///
    /// ```
    /// let map = manycore::collections::RangeMap::new();
    /// let view = map.enter();
    /// view.insert(0x1000..0x3000, "heap")?;
    /// assert_eq!(view.get(0x2fff), Some(&"heap"));
    /// assert_eq!(view.get(0x3000), None);
    /// # Ok::<(), manycore::collections::RangeError>(())
    /// ```
    #[inline]
    #[must_use]
    pub fn get(&self, key: u64) -> Option<&V> {
        find(&self.map.root, key, &self.section).map(|entry| &entry.value)
    }

    /// Returns true if the key has a value.
    #[inline]
    #[must_use]
    pub fn contains_key(&self, key: u64) -> bool {
        self.get(key).is_some()
    }

    /// Returns the key's value, and the adjacent keys around it that have the same value. These are
    /// the keys of the inserted range that were neither removed nor [split](Self::split) off since.
    ///
    /// Consistency: the value is the key's. Its keys are found slot by slot, so concurrent changes
    /// beside the key may be seen or not. Cost: the slots of the range.
    #[must_use]
    pub fn get_range(&self, key: u64) -> Option<(RangeInclusive<u64>, &V)> {
        let entry = find(&self.map.root, key, &self.section)?;
        Some((run_around(&self.map.root, key, entry, &self.section), &entry.value))
    }

    /// Iterates over the ranges that have a value, in order, with their values. The iterator is
    /// double-ended.
    ///
    /// Consistency: not a snapshot. A range that is present throughout is yielded exactly once, in
    /// one piece. Concurrent changes may be seen, in whole or in part, or not. Cost: a descent for
    /// each range, and the slots of the range.
    pub fn iter(&self) -> RangeMapIter<'_, V> {
        self.iter_within((0, LAST_KEY))
    }

    /// Returns the first range that has a value, with its value, or `None` if no key has a value.
    ///
    /// ```
    /// let map = manycore::collections::RangeMap::new();
    /// let view = map.enter();
    /// view.insert(0x1000..0x3000, "heap")?;
    /// view.insert(0x8000..0x9000, "stack")?;
    /// assert_eq!(view.first(), Some((0x1000..=0x2fff, &"heap")));
    /// assert_eq!(view.last(), Some((0x8000..=0x8fff, &"stack")));
    /// assert_eq!(view.range(..0x8000)?.next_back(), view.first());
    /// # Ok::<(), manycore::collections::RangeError>(())
    /// ```
    ///
    /// Consistency: as [`iter`](Self::iter): an empty slot may be filled after the search has
    /// passed it. Cost: a descent, and the slots of the range.
    #[must_use]
    pub fn first(&self) -> Option<(RangeInclusive<u64>, &V)> {
        self.iter().next()
    }

    /// Returns the last range that has a value, with its value, as [`first`](Self::first) does. To
    /// find the last range before a key, use `range(..key)?.next_back()`.
    #[must_use]
    pub fn last(&self) -> Option<(RangeInclusive<u64>, &V)> {
        self.iter().next_back()
    }

    /// As [`iter`](Self::iter), for the keys of `range`: ranges are clipped to it.
    ///
    /// # Errors
    /// [`RangeError::Empty`].
    pub fn range(&self, range: impl RangeBounds<u64>) -> Result<RangeMapIter<'_, V>, RangeError> {
        keys_of(&range).map(|keys| self.iter_within(keys))
    }

    fn iter_within(&self, keys: (u64, u64)) -> RangeMapIter<'_, V> {
        RangeMapIter::new(&self.map.root, keys, &self.section)
    }

    /// Iterates over the gaps within a range, in order: the ranges that have no value. The iterator
    /// is double-ended.
    ///
    /// Consistency: as [`iter`](Self::iter). A key that has a value throughout is in no gap, and a
    /// gap that exists throughout is yielded in one piece. A gap may be filled by the time the
    /// caller uses it; an insertion then fails.
    ///
    /// # Errors
    /// [`RangeError::Empty`].
    pub fn gaps(&self, range: impl RangeBounds<u64>) -> Result<Gaps<'_, V>, RangeError> {
        keys_of(&range).map(|keys| Gaps::new(self.iter_within(keys), keys))
    }

    /// Finds the first gap within `range` that has room for `len` keys from a multiple of `align`
    /// on. Returns the first of these keys, or `None` if there is no such gap. Reserves nothing:
    /// see [`insert_first_fit`](Self::insert_first_fit).
    ///
    /// # Errors
    /// [`RangeError::Empty`], if the range is empty or `len` is zero.
    ///
    /// # Panics
    /// If `align` is zero.
    pub fn first_fit(
        &self,
        len: u64,
        align: u64,
        range: impl RangeBounds<u64>,
    ) -> Result<Option<u64>, RangeError> {
        assert!(align != 0, "manycore: `align` is zero");
        let Some(more) = len.checked_sub(1) else {
            return Err(RangeError::Empty { start: 0, end: 0 });
        };
        let fit = |gap: RangeInclusive<u64>| {
            let first = gap.start().checked_next_multiple_of(align)?;
            let last = first.checked_add(more)?;
            (last <= *gap.end()).then_some(first)
        };
        Ok(self.gaps(range)?.find_map(fit))
    }

    /// Frees the memory of all empty branches, including those that threads leave in place to use
    /// them again. Updates free empty branches themselves if a thread has left more than 64.
    pub fn trim(&self) {
        self.map.prune_all(&self.section);
    }

    /// Returns true if no key has a value.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }
}

impl<V: Send + Sync> RangeMapView<'_, V> {
    #[inline]
    fn keys_to_change(&self, range: &impl RangeBounds<u64>) -> Result<(u64, u64), RangeError> {
        let keys = keys_of(range)?;
        self.map.records.forbid_nesting(self.section.slot(), keys)?;
        Ok(keys)
    }

    fn claim(&self, keys: (u64, u64), fit: Fit) -> Result<Claim<'_, V>, RangeError> {
        Claim::brief(self.map, &self.section, keys, fit)
    }

    /// Inserts a value for the keys of a range, if none of them has a value.
    ///
    /// # Errors
    /// [`RangeError::Overlap`], `Empty`, `Nested`, `Deadlock`. The map is then unchanged, and the
    /// value is dropped.
    pub fn insert(&self, range: impl RangeBounds<u64>, value: V) -> Result<&V, RangeError> {
        let keys = self.keys_to_change(&range)?;
        let value = match single::insert(self.map, &self.section, keys, value) {
            Ok(done) => return done,
            Err(value) => value,
        };
        let mut claim = self.claim(keys, Fit::Exact)?;
        let inserted = insert_claimed(&mut claim, keys, value);
        drop(claim); // so that the value is dropped without a lock
        inserted.map_err(|(error, _value)| error)
    }

    /// Inserts a value for `len` keys into the first gap within `range` that has room for them,
    /// from a multiple of `align` on. Returns the keys.
    ///
    /// ```
    /// let map = manycore::collections::RangeMap::new();
    /// let view = map.enter();
    /// view.insert(0x1000..0x2000, 'a')?;
    /// assert_eq!(view.insert_first_fit(0x2000, 0x1000, 0x1000.., 'b')?, 0x2000..=0x3fff);
    /// # Ok::<(), manycore::collections::RangeError>(())
    /// ```
    ///
    /// Searches again if another thread fills the gap first, so the call is linearizable and at
    /// best lock-free.
    ///
    /// # Errors
    /// [`RangeError::NoGap`], `Empty`, `Nested`, `Deadlock`. The map is then unchanged, and the
    /// value is dropped.
    ///
    /// # Panics
    /// If `align` is zero.
    pub fn insert_first_fit(
        &self,
        len: u64,
        align: u64,
        range: impl RangeBounds<u64>,
        value: V,
    ) -> Result<RangeInclusive<u64>, RangeError> {
        let within = keys_of(&range)?;
        loop {
            let Some(first) = self.first_fit(len, align, within.0..=within.1)? else {
                return Err(RangeError::NoGap { range: within.0..=within.1, len });
            };
            let keys = (first, first + (len - 1));
            let mut claim = self.claim(keys, Fit::Exact)?;
            if claim.first_taken(keys).is_none() {
                let inserted = insert_claimed(&mut claim, keys, value);
                drop(claim); // so that the value is dropped without a lock
                return inserted.map(|_| keys.0..=keys.1).map_err(|(error, _value)| error);
            }
        }
    }

    /// Sets the value of the keys of a range, whether they have a value or not. Returns the old
    /// values. Ranges that extend beyond this range keep their other keys.
    ///
    /// # Errors
    /// [`RangeError::Empty`], `Nested`, `Deadlock`. The map is then unchanged, and the value is
    /// dropped.
    pub fn replace(
        &self,
        range: impl RangeBounds<u64>,
        value: V,
    ) -> Result<Removed<'_, V>, RangeError> {
        let keys = keys_of(&range)?;
        let entry = OwnEntry::new(keys.0, keys.1, value);
        let mut claim = self.claim(keys, Fit::Exact)?;
        Ok(Removed::new(replace_claimed(&mut claim, keys, Some(entry))))
    }

    /// Removes the values of the keys of a range. Returns the old values. Ranges that extend beyond
    /// this range keep their other keys.
    ///
    /// ```
    /// let map = manycore::collections::RangeMap::new();
    /// let view = map.enter();
    /// view.insert(10..=19, "ten")?;
    /// let removed: Vec<_> = view.remove(15..)?.collect();
    /// assert_eq!(removed, [(15..=19, &"ten")]);
    /// assert_eq!(view.get_range(12), Some((10..=14, &"ten")));
    /// # Ok::<(), manycore::collections::RangeError>(())
    /// ```
    ///
    /// # Errors
    /// [`RangeError::Empty`], `Nested`, `Deadlock`. The map is then unchanged.
    pub fn remove(&self, range: impl RangeBounds<u64>) -> Result<Removed<'_, V>, RangeError> {
        let keys = self.keys_to_change(&range)?;
        if let Some(pieces) = single::remove(self.map, &self.section, keys) {
            return Ok(Removed::new(pieces));
        }
        let mut claim = self.claim(keys, Fit::Loose)?;
        Ok(Removed::new(replace_claimed(&mut claim, keys, None)))
    }

    /// Splits the range around `at` in two, which are separate ranges from then on. The upper range
    /// begins at `at` and has a clone of the value. Returns false if there is nothing to split,
    /// because `at` and the key before it do not have the same value.
    ///
    /// The value is cloned before any lock is taken.
    ///
    /// # Errors
    /// `Nested`, `Deadlock`. The map is then unchanged.
    pub fn split(&self, at: u64) -> Result<bool, RangeError>
    where
        V: Clone,
    {
        loop {
            let Some(old) = at.checked_sub(1).and_then(|below| self.entry(below)) else {
                return Ok(false);
            };
            if !self.entry(at).is_some_and(|upper| ptr::eq(upper, old)) {
                return Ok(false);
            }
            let upper = OwnEntry::new(at, old.last, old.value.clone());
            let mut claim = self.claim((at, old.last), Fit::Exact)?;
            let split = split_claimed(&mut claim, old, upper);
            drop(claim); // so that an unlinked entry is dropped without a lock
            if let Ok(pieces) = split {
                settle(&pieces, &self.section);
                return Ok(true);
            }
        }
    }

    fn entry(&self, key: u64) -> Option<&Entry<V>> {
        find(&self.map.root, key, &self.section)
    }

    /// Locks a range. Until the guard is dropped, no other thread changes its keys. Look-ups go on.
    ///
    /// # Errors
    /// [`RangeError::Empty`], `Nested`, `Deadlock`.
    pub fn lock(&self, range: impl RangeBounds<u64>) -> Result<RangeGuard<'_, V>, RangeError> {
        let keys = keys_of(&range)?;
        Ok(RangeGuard::new(Claim::new(self.map, &self.section, keys, Fit::Exact)?))
    }
}

/// Links `upper` at the first keys of the claim that still have `old` without a gap. Returns the
/// replaced pieces, or `upper` if the first key does not have `old` any more.
fn split_claimed<'s, V: Send + Sync>(
    claim: &mut Claim<'s, V>,
    old: &Entry<V>,
    mut upper: OwnEntry<V>,
) -> Result<Pieces<'s, V>, OwnEntry<V>> {
    let first = claim.first;
    let is_old = |key: u64| {
        find(&claim.map.root, key, claim.section).is_some_and(|entry| ptr::eq(entry, old))
    };
    if !is_old(first) {
        return Err(upper);
    }
    let last = *run_around(claim.top, first, old, claim.section).end();
    let last = last.min(claim.last);
    upper.set_keys(first, last);
    let mut pieces = Pieces::new();
    claim.put((first, last), upper.into_word(), &mut pieces);
    Ok(pieces)
}

impl<V: fmt::Debug> fmt::Debug for RangeMapView<'_, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}
