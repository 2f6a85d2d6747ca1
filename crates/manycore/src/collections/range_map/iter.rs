//! Iterators over ranges, gaps and removed values. Those over the map read slot by slot, without a
//! lock.

use super::trie::{Branch, Entry};
use super::write::{Piece, Pieces, visit, visit_back};
use crate::section::Section;
use std::fmt;
use std::ops::{ControlFlow, RangeInclusive};
use std::ptr;

/// Returns the first keys from `from` to `last` that have an entry: those of a slot, and of the
/// slots after it that have the same entry.
fn next_run<'s, V>(
    top: &'s Branch<V>,
    from: u64,
    last: u64,
    section: &'s Section<'_>,
) -> Option<(u64, u64, &'s Entry<V>)> {
    let mut run: Option<(u64, u64, &'s Entry<V>)> = None;
    let _ = visit(top, (from, last), section, &mut |part, entry| match &mut run {
        Some((_, end, same)) if ptr::eq(*same, entry) && end.wrapping_add(1) == part.0 => {
            *end = part.1;
            ControlFlow::Continue(())
        }
        Some(_) => ControlFlow::Break(()),
        none => {
            *none = Some((part.0, part.1, entry));
            ControlFlow::Continue(())
        }
    });
    run
}

/// Same as [`next_run`] for the last keys: those of a slot, and of the slots before it that have
/// the same entry.
fn last_run<'s, V>(
    top: &'s Branch<V>,
    from: u64,
    last: u64,
    section: &'s Section<'_>,
) -> Option<(u64, u64, &'s Entry<V>)> {
    let mut run: Option<(u64, u64, &'s Entry<V>)> = None;
    let _ = visit_back(top, (from, last), section, &mut |part, entry| match &mut run {
        Some((start, _, same)) if ptr::eq(*same, entry) && part.1.wrapping_add(1) == *start => {
            *start = part.0;
            ControlFlow::Continue(())
        }
        Some(_) => ControlFlow::Break(()),
        none => {
            *none = Some((part.0, part.1, entry));
            ControlFlow::Continue(())
        }
    });
    run
}

/// Returns the keys around `key` that have `entry` without a gap.
pub(super) fn run_around<'s, V>(
    top: &'s Branch<V>,
    key: u64,
    entry: &'s Entry<V>,
    section: &'s Section<'_>,
) -> RangeInclusive<u64> {
    let mut last = key;
    let _ = visit(top, (key, entry.last), section, &mut |part, found| {
        if !ptr::eq(found, entry) || part.0 > last.saturating_add(1) {
            return ControlFlow::Break(());
        }
        last = part.1;
        ControlFlow::Continue(())
    });
    let mut first = key;
    let _ = visit_back(top, (entry.first, key), section, &mut |part, found| {
        if !ptr::eq(found, entry) || part.1 < first.saturating_sub(1) {
            return ControlFlow::Break(());
        }
        first = part.0;
        ControlFlow::Continue(())
    });
    first..=last
}

/// Iterator over the ranges of a map: see [`RangeMapView::iter`](super::RangeMapView::iter).
///
/// ```
/// let map = manycore::collections::RangeMap::new();
/// let view = map.enter();
/// view.insert(10..20, "b")?;
/// view.insert(0..5, "a")?;
/// assert_eq!(view.iter().collect::<Vec<_>>(), [(0..=4, &"a"), (10..=19, &"b")]);
/// # Ok::<(), manycore::collections::RangeError>(())
/// ```
pub struct RangeMapIter<'v, V> {
    top: &'v Branch<V>,
    section: &'v Section<'v>,
    /// The keys that are left to visit.
    keys: Option<(u64, u64)>,
}

impl<'v, V> RangeMapIter<'v, V> {
    pub(super) fn new(top: &'v Branch<V>, keys: (u64, u64), section: &'v Section<'v>) -> Self {
        Self { top, section, keys: Some(keys) }
    }
}

impl<'v, V> Iterator for RangeMapIter<'v, V> {
    type Item = (RangeInclusive<u64>, &'v V);

    fn next(&mut self) -> Option<Self::Item> {
        let (from, end) = self.keys.take()?;
        let (first, last, entry) = next_run(self.top, from, end, self.section)?;
        self.keys = (last < end).then(|| (last + 1, end));
        Some((first..=last, &entry.value))
    }
}

impl<V> DoubleEndedIterator for RangeMapIter<'_, V> {
    fn next_back(&mut self) -> Option<Self::Item> {
        let (from, end) = self.keys.take()?;
        let (first, last, entry) = last_run(self.top, from, end, self.section)?;
        self.keys = (from < first).then(|| (from, first - 1));
        Some((first..=last, &entry.value))
    }
}

impl<V> std::iter::FusedIterator for RangeMapIter<'_, V> {}

impl<V> fmt::Debug for RangeMapIter<'_, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RangeMapIter").field("left", &self.keys).finish_non_exhaustive()
    }
}

/// Iterator over the ranges without a value: see [`RangeMapView::gaps`](super::RangeMapView::gaps).
///
/// ```
/// let map = manycore::collections::RangeMap::new();
/// let view = map.enter();
/// view.insert(10..20, "taken")?;
/// assert_eq!(view.gaps(0..30)?.collect::<Vec<_>>(), [0..=9, 20..=29]);
/// # Ok::<(), manycore::collections::RangeError>(())
/// ```
pub struct Gaps<'v, V> {
    taken: RangeMapIter<'v, V>,
    /// The keys that are left to visit.
    keys: Option<(u64, u64)>,
}

impl<'v, V> Gaps<'v, V> {
    pub(super) fn new(taken: RangeMapIter<'v, V>, keys: (u64, u64)) -> Self {
        Self { taken, keys: Some(keys) }
    }
}

impl<V> Iterator for Gaps<'_, V> {
    type Item = RangeInclusive<u64>;

    fn next(&mut self) -> Option<RangeInclusive<u64>> {
        loop {
            let (from, end) = self.keys.take()?;
            let Some((taken, _)) = self.taken.next() else {
                return Some(from..=end);
            };
            self.keys = (*taken.end() < end).then(|| (taken.end() + 1, end));
            if from < *taken.start() {
                return Some(from..=taken.start() - 1);
            }
        }
    }
}

impl<V> DoubleEndedIterator for Gaps<'_, V> {
    fn next_back(&mut self) -> Option<RangeInclusive<u64>> {
        loop {
            let (from, end) = self.keys.take()?;
            let Some((taken, _)) = self.taken.next_back() else {
                return Some(from..=end);
            };
            self.keys = (from < *taken.start()).then(|| (from, taken.start() - 1));
            if *taken.end() < end {
                return Some(taken.end() + 1..=end);
            }
        }
    }
}

impl<V> std::iter::FusedIterator for Gaps<'_, V> {}

impl<V> fmt::Debug for Gaps<'_, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gaps").field("left", &self.keys).finish_non_exhaustive()
    }
}

/// Iterator over the keys from which a call has removed values, in order, with these values. The
/// view keeps them.
///
/// See [`RangeMapView::remove`](super::RangeMapView::remove) for an example.
pub struct Removed<'v, V> {
    far: std::vec::IntoIter<Piece<'v, V>>,
    near: Option<Piece<'v, V>>,
}

impl<'v, V> Removed<'v, V> {
    pub(super) fn new(pieces: Pieces<'v, V>) -> Self {
        let (far, near) = pieces.into_parts();
        Self { far, near }
    }
}

impl<'v, V> Iterator for Removed<'v, V> {
    type Item = (RangeInclusive<u64>, &'v V);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let Piece { first, last, entry } = self.far.next().or_else(|| self.near.take())?;
        Some((first..=last, &entry.value))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.far.len() + usize::from(self.near.is_some());
        (left, Some(left))
    }
}

impl<V> DoubleEndedIterator for Removed<'_, V> {
    fn next_back(&mut self) -> Option<Self::Item> {
        let Piece { first, last, entry } = self.near.take().or_else(|| self.far.next_back())?;
        Some((first..=last, &entry.value))
    }
}

impl<V> ExactSizeIterator for Removed<'_, V> {}
impl<V> std::iter::FusedIterator for Removed<'_, V> {}

impl<V> fmt::Debug for Removed<'_, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Removed").field("left", &self.len()).finish_non_exhaustive()
    }
}
