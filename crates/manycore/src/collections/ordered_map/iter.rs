//! Iterators over the entries, in order, from both ends.
//!
//! An iterator keeps, for each node on its path from the root, the order that the node had. A node
//! that was replaced since then does not change any more, so the iterator continues in it. It
//! compares keys only at the ends of a range.

use super::OrderedMap;
use super::tree::Position;
use crate::section::Section;
use std::cmp;
use std::fmt;
use std::iter::FusedIterator;
use std::ops::Bound;

/// A cursor between two entries, or at an end of the map. For each node from the root to a leaf, it
/// has the node's order and a position in it: the position of a child or, in the leaf, of the entry
/// after the cursor. It is empty if no entry is left on the side to which it moves.
struct Cursor<'v, K, V>(Vec<Position<'v, K, V>>);

impl<'v, K, V> Cursor<'v, K, V> {
    /// Makes a cursor before the first entry that `compare` does not find to be less.
    fn seek(
        map: &'v OrderedMap<K, V>,
        section: &'v Section<'_>,
        compare: &impl Fn(&K) -> cmp::Ordering,
    ) -> Self {
        let cursor = Self(map.path(section, compare));
        cursor.prefetch_next();
        cursor
    }

    /// Prefetches the leaf after the cursor's. Otherwise an iterator would wait for each leaf.
    #[inline]
    fn prefetch_next(&self) {
        if let [.., parent, _] = &self.0[..] {
            let next = Position { at: parent.at + 1, ..*parent };
            if next.at < next.order.len() {
                next.child().prefetch_all();
            }
        }
    }

    /// Descends from the last position to the first leaf below it, or to the last leaf.
    fn descend(&mut self, is_first: bool) {
        while let Some(place) = self.0.last().filter(|place| !place.node.is_leaf()) {
            let node = place.child();
            let (order, is_leaf) = (node.order(), node.is_leaf());
            let at = match (is_first, is_leaf) {
                (true, _) => 0,
                (false, true) => order.len(),
                (false, false) => order.len() - 1,
            };
            self.0.push(Position { node, order, at, is_there: false });
        }
    }

    /// Moves to the next leaf or to the previous one. The cursor becomes empty if there is none.
    fn turn(&mut self, is_forward: bool) {
        self.0.pop();
        while let Some(place) = self.0.last_mut() {
            if is_forward && place.at + 1 < place.order.len() {
                place.at += 1;
                self.descend(true);
                return self.prefetch_next();
            }
            if !is_forward && place.at > 0 {
                place.at -= 1;
                return self.descend(false);
            }
            self.0.pop();
        }
    }

    /// Returns the position of the entry after the cursor.
    #[inline(always)]
    fn next_place(&mut self) -> Option<&mut Position<'v, K, V>> {
        while self.0.last()?.at >= self.0.last()?.order.len() {
            self.turn(true);
        }
        self.0.last_mut()
    }

    /// Returns the position after the entry that is before the cursor.
    #[inline(always)]
    fn place_before(&mut self) -> Option<&mut Position<'v, K, V>> {
        while self.0.last()?.at == 0 {
            self.turn(false);
        }
        self.0.last_mut()
    }
}

/// The end of an iterator, as far as it is known.
enum End<'v, K> {
    /// The end of the map.
    Open,
    /// This key, included.
    With(&'v K),
    /// This key, excluded: the other end of the iterator has yielded it.
    Before(&'v K),
}

impl<K> Clone for End<'_, K> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<K> Copy for End<'_, K> {}

impl<K> End<'_, K> {
    /// Returns true if a key is inside the end. `compare` compares the key with the end, so that
    /// `Less` means inside.
    #[inline(always)]
    fn allows(&self, compare: impl FnOnce(&K) -> cmp::Ordering) -> bool {
        match self {
            Self::Open => true,
            Self::With(end) => compare(end) != cmp::Ordering::Greater,
            Self::Before(end) => compare(end) == cmp::Ordering::Less,
        }
    }
}

/// Iterator over the entries of a map or of a range, in order: see
/// [`OrderedMapView::iter`](super::OrderedMapView::iter) and
/// [`range`](super::OrderedMapView::range).
///
/// ```
/// let map = manycore::collections::OrderedMap::from([(1, "a"), (2, "b"), (3, "c")]);
/// let view = map.enter();
/// assert_eq!(view.iter().rev().map(|(key, _)| *key).collect::<Vec<_>>(), [3, 2, 1]);
/// assert_eq!(view.range(2..).next(), Some((&2, &"b")));
/// ```
pub struct OrderedMapIter<'v, K, V> {
    map: &'v OrderedMap<K, V>,
    section: &'v Section<'v>,
    front: Option<Cursor<'v, K, V>>,
    back: Option<Cursor<'v, K, V>>,
    /// The end of the front, and then the end of the back.
    last: End<'v, K>,
    first: End<'v, K>,
    is_over: bool,
}

impl<'v, K: Ord, V> OrderedMapIter<'v, K, V> {
    pub(super) fn new(map: &'v OrderedMap<K, V>, section: &'v Section<'v>) -> Self {
        let (front, back) = (None, None);
        Self { map, section, front, back, last: End::Open, first: End::Open, is_over: false }
    }

    /// Makes an iterator over the entries within the bounds. `compare` compares a key with a bound.
    pub(super) fn within<B>(
        map: &'v OrderedMap<K, V>,
        section: &'v Section<'v>,
        from: Bound<B>,
        to: Bound<B>,
        compare: impl Fn(&K, &B) -> cmp::Ordering,
    ) -> Self {
        let mut iter = Self::new(map, section);
        // If an equal key is in the range, the cursor is on its outer side.
        let seek = |bound: &B, is_before: bool| {
            let equal = if is_before { cmp::Ordering::Greater } else { cmp::Ordering::Less };
            Cursor::seek(map, section, &|own| compare(own, bound).then(equal))
        };
        match &from {
            Bound::Unbounded => {}
            Bound::Included(bound) => iter.front = Some(seek(bound, true)),
            Bound::Excluded(bound) => iter.front = Some(seek(bound, false)),
        }
        match &to {
            Bound::Unbounded => {}
            Bound::Included(bound) => iter.back = Some(seek(bound, false)),
            Bound::Excluded(bound) => iter.back = Some(seek(bound, true)),
        }
        // Each end of the range is fixed at an entry that is present now. Entries that are inserted
        // beyond it are not seen.
        if let Some(back) = &mut iter.back {
            match back.place_before() {
                Some(place) => iter.last = End::With(Position { at: place.at - 1, ..*place }.key()),
                None => iter.is_over = true,
            }
        }
        if let Some(front) = &mut iter.front {
            match front.next_place() {
                Some(place) => iter.first = End::With(place.key()),
                None => iter.is_over = true,
            }
        }
        iter
    }
}

impl<'v, K: Ord, V> Iterator for OrderedMapIter<'v, K, V> {
    type Item = (&'v K, &'v V);

    #[inline]
    fn next(&mut self) -> Option<(&'v K, &'v V)> {
        if self.is_over {
            return None;
        }
        let Self { map, section, last, .. } = *self;
        let start = || Cursor::seek(map, section, &|_| cmp::Ordering::Greater);
        let place = self.front.get_or_insert_with(start).next_place();
        let place = place.filter(|place| {
            let key = place.key();
            last.allows(|end| key.cmp(end))
        });
        let Some(place) = place else {
            self.is_over = true;
            return None;
        };
        let entry = place.entry();
        place.at += 1;
        self.first = End::Before(entry.0);
        Some(entry)
    }
}

impl<'v, K: Ord, V> DoubleEndedIterator for OrderedMapIter<'v, K, V> {
    #[inline]
    fn next_back(&mut self) -> Option<(&'v K, &'v V)> {
        if self.is_over {
            return None;
        }
        let Self { map, section, first, .. } = *self;
        let start = || Cursor::seek(map, section, &|_| cmp::Ordering::Less);
        let place = self.back.get_or_insert_with(start).place_before();
        let before = place.map(|place| (Position { at: place.at - 1, ..*place }, place));
        let before = before.filter(|(entry, _)| {
            let key = entry.key();
            first.allows(|end| end.cmp(key))
        });
        let Some((entry, place)) = before else {
            self.is_over = true;
            return None;
        };
        place.at -= 1;
        let entry = entry.entry();
        self.last = End::Before(entry.0);
        Some(entry)
    }
}

impl<K: Ord, V> FusedIterator for OrderedMapIter<'_, K, V> {}

impl<K, V> fmt::Debug for OrderedMapIter<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OrderedMapIter").field("is_over", &self.is_over).finish_non_exhaustive()
    }
}

macro_rules! half {
    ($Name:ident, $Item:ident, $field:tt, $what:literal) => {
        #[doc = $what]
        pub struct $Name<'v, K, V>(pub(super) OrderedMapIter<'v, K, V>);

        impl<'v, K: Ord, V> Iterator for $Name<'v, K, V> {
            type Item = &'v $Item;

            fn next(&mut self) -> Option<&'v $Item> {
                self.0.next().map(|entry| entry.$field)
            }
        }

        impl<'v, K: Ord, V> DoubleEndedIterator for $Name<'v, K, V> {
            fn next_back(&mut self) -> Option<&'v $Item> {
                self.0.next_back().map(|entry| entry.$field)
            }
        }

        impl<K: Ord, V> FusedIterator for $Name<'_, K, V> {}

        impl<K, V> fmt::Debug for $Name<'_, K, V> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($Name)).finish_non_exhaustive()
            }
        }
    };
}

half!(
    OrderedMapKeys,
    K,
    0,
    "Iterator over the keys in order: see [`OrderedMapView::keys`](super::OrderedMapView::keys)."
);
half!(
    OrderedMapValues,
    V,
    1,
    "Iterator over the values: see [`OrderedMapView::values`](super::OrderedMapView::values)."
);
