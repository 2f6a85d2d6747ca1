//! A walk over the entries in steps. Nothing is held between two steps.

use crate::Cache;
use crate::guard::Entry;
use crate::table::{Slot, Table};
use manycore::section::Section;
use std::hash::{BuildHasher, Hash};
use std::ops::Range;

/// The position of a walk: a segment, and a place in it that does not depend on the number of
/// buckets of its table. The default is the beginning.
///
/// See [`Cache::scan`] for an example.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cursor {
    segment: usize,
    /// The part of the segment that was visited, in units of 1/2^32.
    part: u64,
}

/// A step of a walk: the table, a range of its buckets, and where the next step begins.
type Step<'s, K, V> = (&'s Table<K, V>, Range<usize>, Option<Cursor>);

impl<K, V, S> Cache<K, V, S>
where
    K: Hash + Eq + Send + Sync,
    V: Send + Sync,
    S: BuildHasher,
{
    /// Visits the entries of up to `buckets` buckets from the cursor on; a step ends at the end of
    /// a segment. Returns where the next step begins, or `None` after the last step.
    ///
    /// Consistency: not a snapshot. An entry that is there during the whole walk is visited at
    /// least once. It is visited more often only if its table was replaced between two steps.
    /// Expired entries are not visited. Cost: the buckets. It takes no lock, and holds nothing
    /// between two steps.
    ///
    /// ```
    /// use manycore_cache::{Cache, Cursor};
    ///
    /// let cache = Cache::new(1000);
    /// for n in 0..100 {
    ///     cache.insert(n, ());
    /// }
    /// let (mut seen, mut next) = (Vec::new(), Some(Cursor::default()));
    /// while let Some(cursor) = next {
    ///     next = cache.scan(cursor, 4, |entry| seen.push(*entry.key()));
    /// }
    /// seen.sort();
    /// assert_eq!(seen, (0..100).collect::<Vec<_>>());
    /// ```
    pub fn scan(
        &self,
        cursor: Cursor,
        buckets: usize,
        mut visit: impl FnMut(Entry<'_, K, V>),
    ) -> Option<Cursor> {
        let section = self.domain.enter();
        let (table, step, next) = self.step(cursor, buckets, &section)?;
        for node in
            table.buckets()[step].iter().flat_map(|bucket| bucket.slots()).filter_map(Slot::node)
        {
            if !self.is_expired(node) {
                // SAFETY: found in this section.
                visit(unsafe { self.entry(node) });
            }
        }
        next
    }

    /// Returns the step of a walk that begins at the cursor.
    pub(crate) fn step<'s>(
        &'s self,
        cursor: Cursor,
        buckets: usize,
        section: &'s Section<'_>,
    ) -> Option<Step<'s, K, V>> {
        let table = self.segments.get(cursor.segment)?.table(section);
        let all = table.buckets().len();
        // A hash chooses its bucket by its part of 2^32, as in `table`.
        let from = ((u128::from(cursor.part) * all as u128) >> 32) as usize;
        let to = from.saturating_add(buckets.max(1)).min(all);
        debug_assert!(
            from < to && cursor.part < 1 << 32,
            "a walk steps from bucket {from} to {to}: {cursor:?}"
        );
        let segment = cursor.segment + 1;
        let next = if to < all {
            let part = ((to as u128) << 32).div_ceil(all as u128) as u64;
            Some(Cursor { part, ..cursor })
        } else {
            (segment < self.segments.len()).then_some(Cursor { segment, part: 0 })
        };
        Some((table, from..to, next))
    }
}

#[cfg(test)]
mod tests {
    use super::Cursor;
    use crate::Cache;
    use std::collections::HashSet;

    #[test]
    fn what_stays_is_visited_though_tables_are_replaced() {
        for step in [1, 3, 64] {
            let cache: Cache<u32, ()> = Cache::builder(100_000).initial_entries(1).build().unwrap();
            for n in 0..2_000 {
                cache.insert(n, ());
            }
            let (mut seen, mut next, mut more) = (HashSet::new(), Some(Cursor::default()), 2_000);
            while let Some(cursor) = next {
                next = cache.scan(cursor, step, |entry| {
                    seen.insert(*entry.key());
                });
                for _ in 0..step * 8 {
                    if more < 50_000 {
                        cache.insert(more, ());
                        more += 1;
                    }
                }
            }
            assert!((0..2_000).all(|n| seen.contains(&n)), "in steps of {step}");
        }
    }
}
