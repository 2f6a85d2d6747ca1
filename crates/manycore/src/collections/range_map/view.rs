//! A map as one section sees it: what can be done with it.

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

/// A [`RangeMap`] and an open section: references to values borrow from it.
///
/// Keep it for as long as references are needed, or for many calls in a row, but not while waiting
/// for anything: see [`Section`]. It stays with its thread. Views nest.
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

    /// The map.
    pub fn map(&self) -> &'m RangeMap<V> {
        self.map
    }

    /// Lets go of everything that was removed before, as if the view were closed and opened again.
    pub fn refresh(&mut self) {
        self.section.refresh();
    }

    /// The key's value.
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

    /// Whether the key has a value.
    #[inline]
    #[must_use]
    pub fn contains_key(&self, key: u64) -> bool {
        self.get(key).is_some()
    }

    /// The key's value, and the keys around it that have the same one: of the range that was
    /// inserted, what was not removed or [split](Self::split) off since.
    ///
    /// Consistency: the value is the key's; how far it reaches is found slot by slot, so
    /// concurrent changes beside the key may be seen or not. Cost: the slots of the range.
    #[must_use]
    pub fn get_range(&self, key: u64) -> Option<(RangeInclusive<u64>, &V)> {
        let entry = find(&self.map.root, key, &self.section)?;
        Some((run_around(&self.map.root, key, entry, &self.section), &entry.value))
    }

    /// The ranges that have a value, in order, with their values; from both ends if one likes.
    ///
    /// Consistency: not a snapshot. A range that is present throughout is yielded exactly once, in
    /// one piece; concurrent changes may be seen or not, or in part. Cost: a descent for
    /// each slot in use.
    pub fn iter(&self) -> RangeMapIter<'_, V> {
        self.iter_within((0, LAST_KEY))
    }

    /// The first range that has a value, with its value; `None` if no key has one.
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
    /// Consistency: as [`iter`](Self::iter): an empty slot that was passed may have been filled
    /// since. Cost: a descent, and the slots of the range.
    #[must_use]
    pub fn first(&self) -> Option<(RangeInclusive<u64>, &V)> {
        self.iter().next()
    }

    /// The last range that has a value, with its value: as [`first`](Self::first). The last one
    /// before a key is `range(..key)?.next_back()`.
    #[must_use]
    pub fn last(&self) -> Option<(RangeInclusive<u64>, &V)> {
        self.iter().next_back()
    }

    /// As [`iter`](Self::iter), for the keys of a range: what sticks out of it is cut off.
    ///
    /// # Errors
    /// [`RangeError::Empty`].
    pub fn range(&self, range: impl RangeBounds<u64>) -> Result<RangeMapIter<'_, V>, RangeError> {
        keys_of(&range).map(|keys| self.iter_within(keys))
    }

    fn iter_within(&self, keys: (u64, u64)) -> RangeMapIter<'_, V> {
        RangeMapIter::new(&self.map.root, keys, &self.section)
    }

    /// The ranges that have no value within a range, in order; from both ends if one likes.
    ///
    /// Consistency: as [`iter`](Self::iter): a key that has a value throughout is in no gap, a gap
    /// that is there throughout is yielded in one piece. By the time the caller looks, a gap
    /// may have been filled: an insertion then says so.
    ///
    /// # Errors
    /// [`RangeError::Empty`].
    pub fn gaps(&self, range: impl RangeBounds<u64>) -> Result<Gaps<'_, V>, RangeError> {
        keys_of(&range).map(|keys| Gaps::new(self.iter_within(keys), keys))
    }

    /// The first key of the first gap within `range` that has room for `len` keys from a multiple
    /// of `align` on; `None` if there is none. Nothing is reserved: see
    /// [`insert_first_fit`](Self::insert_first_fit).
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
        assert!(align != 0, "manycore: no key is a multiple of zero");
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

    /// Gives back the memory of branches that are empty, of those too that threads leave in place
    /// to use them again. Updates do so by themselves beyond
    /// 64 for each thread.
    pub fn trim(&self) {
        self.map.prune_all(&self.section);
    }

    /// Whether no key has a value.
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

    /// Gives the keys of a range a value, if none of them has one.
    ///
    /// # Errors
    /// [`RangeError::Overlap`] and the other kinds but `OutOfGuard` and `NoGap`. The map is as it
    /// was then, and the value is dropped.
    pub fn insert(&self, range: impl RangeBounds<u64>, value: V) -> Result<&V, RangeError> {
        let keys = self.keys_to_change(&range)?;
        let value = match single::insert(self.map, &self.section, keys, value) {
            Ok(done) => return done,
            Err(value) => value,
        };
        let mut claim = self.claim(keys, Fit::Exact)?;
        let inserted = insert_claimed(&mut claim, keys, value);
        drop(claim); // before the value
        inserted.map_err(|(error, _value)| error)
    }

    /// Inserts a value of `len` keys into the first gap within `range` that has room for them, from
    /// a multiple of `align` on. Returns the keys.
    ///
    /// ```
    /// let map = manycore::collections::RangeMap::new();
    /// let view = map.enter();
    /// view.insert(0x1000..0x2000, 'a')?;
    /// assert_eq!(view.insert_first_fit(0x2000, 0x1000, 0x1000.., 'b')?, 0x2000..=0x3fff);
    /// # Ok::<(), manycore::collections::RangeError>(())
    /// ```
    ///
    /// Looks again if another thread fills the gap first: so it is linearizable, and lock-free at
    /// best.
    ///
    /// # Errors
    /// [`RangeError::NoGap`], and the kinds of [`insert`](Self::insert) but `Overlap`.
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
                drop(claim); // before the value
                return inserted.map(|_| keys.0..=keys.1).map_err(|(error, _value)| error);
            }
        }
    }

    /// Gives the keys of a range a value, whether they have one or not. Returns what they had; of
    /// ranges that stick out, the rest stays as it is.
    ///
    /// # Errors
    /// [`RangeError::Empty`], `Nested`, `Deadlock`. The map is as it was then, and the value is
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

    /// Takes the values off the keys of a range. Returns what they had; of ranges that stick out,
    /// the rest stays as it is.
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
    /// [`RangeError::Empty`], `Nested`, `Deadlock`. The map is as it was then.
    pub fn remove(&self, range: impl RangeBounds<u64>) -> Result<Removed<'_, V>, RangeError> {
        let keys = self.keys_to_change(&range)?;
        if let Some(pieces) = single::remove(self.map, &self.section, keys) {
            return Ok(Removed::new(pieces));
        }
        let mut claim = self.claim(keys, Fit::Loose)?;
        Ok(Removed::new(replace_claimed(&mut claim, keys, None)))
    }

    /// Divides the range around `at` into two, which are told apart from then on: the upper one
    /// begins at `at` and has a clone of the value. Returns false if there is nothing to divide:
    /// if `at` and the key before it do not have the same value.
    ///
    /// The clone is made before any lock is taken.
    ///
    /// # Errors
    /// `Nested`, `Deadlock`. The map is as it was then.
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
            drop(claim); // before an entry that was not linked
            if let Ok(pieces) = split {
                settle(&pieces, &self.section);
                return Ok(true);
            }
        }
    }

    fn entry(&self, key: u64) -> Option<&Entry<V>> {
        find(&self.map.root, key, &self.section)
    }

    /// Locks a range: until the guard is dropped, no other thread changes its keys. Look-ups go on.
    ///
    /// # Errors
    /// [`RangeError::Empty`], `Nested`, `Deadlock`.
    pub fn lock(&self, range: impl RangeBounds<u64>) -> Result<RangeGuard<'_, V>, RangeError> {
        let keys = keys_of(&range)?;
        Ok(RangeGuard::new(Claim::new(self.map, &self.section, keys, Fit::Exact)?))
    }
}

/// Links `upper` where `old` is in one piece from the first key of the claim on; what it took the
/// place of, or `upper` if `old` is not there any more.
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
