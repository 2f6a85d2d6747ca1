//! [`SectionCounts`]: statistics for code that has a section open anyway.

use super::guard::Section;
use super::home::NOWHERE;
use crate::percpu::slot_table::SlotBoxes;
use crate::sync::{AtomicU64, Ordering};
use std::array;
use std::fmt;

/// `N` counts that threads add to while they have a section open, each thread on separate lines.
///
/// What for: the statistics of a structure whose operations open a section. An add is then a load
/// and a store, because no other thread has the section's slot. When not: without a section, or
/// where sums are read often. Use [`Counter`](crate::collections::Counter) there, which also is one
/// word as long as a single thread counts.
///
/// Consistency: a sum has every add that happened before it, and any subset of the concurrent ones.
/// Progress: wait-free, except for a thread's first add, which may allocate. Cost: an add takes
/// about a nanosecond, with no shared line and no locked instruction; a sum reads a line for each
/// slot. Memory: 272 bytes and the counts, plus a pair of lines for each slot that has added: 128
/// bytes for up to 16 counts. Counts wrap. Panics: if there is no count of that index.
///
/// The section may be of any domain. In an [`unprotected`](super::unprotected) section, an add is a
/// locked instruction.
///
/// ```
/// use manycore::section::{self, SectionCounts};
///
/// let looks = &SectionCounts::<2>::new();
/// std::thread::scope(|scope| {
///     for found in [true, false, true] {
///         scope.spawn(move || looks.add(&section::enter(), usize::from(found), 1));
///     }
/// });
/// assert_eq!((looks.sum(0), looks.sum(1)), (1, 2));
/// ```
#[doc(alias = "statistics")]
#[doc(alias = "per-CPU counter")]
pub struct SectionCounts<const N: usize> {
    rows: SlotBoxes<Row<N>>,
    /// Counts of sections without a slot.
    others: [AtomicU64; N],
}

/// The counts of one slot.
#[repr(align(128))]
struct Row<const N: usize>([AtomicU64; N]);

fn zeros<const N: usize>() -> [AtomicU64; N] {
    array::from_fn(|_| AtomicU64::new(0))
}

impl<const N: usize> From<usize> for Row<N> {
    fn from(_slot: usize) -> Self {
        Self(zeros())
    }
}

impl<const N: usize> Row<N> {
    /// Adds `n` to a count, for the owner of the slot.
    #[inline(always)]
    fn add(&self, index: usize, n: u64) {
        let count = &self.0[index];
        // ORDER: Relaxed (both); a section's slot is its thread's alone, and its next owner gets it
        // by Release and Acquire (percpu.P2).
        count.store(count.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }
}

impl<const N: usize> SectionCounts<N> {
    /// Returns counts that are all zero.
    #[must_use]
    pub fn new() -> Self {
        Self { rows: SlotBoxes::new(), others: zeros() }
    }

    /// Adds `n` to the count at `index`.
    ///
    /// # Panics
    /// If `index` is not below `N`.
    #[inline(always)]
    pub fn add(&self, section: &Section<'_>, index: usize, n: u64) {
        match self.rows.get_near(section.slot()) {
            Some(row) => row.add(index, n),
            None => self.add_far(section, index, n),
        }
    }

    /// Adds for a slot that adds for the first time, for a slot far back, and for sections without
    /// a slot.
    #[cold]
    #[inline(never)]
    fn add_far(&self, section: &Section<'_>, index: usize, n: u64) {
        match section.slot() {
            // ORDER: Relaxed; a count.
            NOWHERE => _ = self.others[index].fetch_add(n, Ordering::Relaxed),
            slot => self.rows.get_or_init(slot).add(index, n),
        }
    }

    /// Returns the sum of the count at `index`.
    ///
    /// # Panics
    /// If `index` is not below `N`.
    #[must_use]
    pub fn sum(&self, index: usize) -> u64 {
        let rows = self.rows.iter().map(|(_, row)| &row.0).chain([&self.others]);
        // ORDER: Relaxed; each word has the value of some moment during the call.
        rows.fold(0, |sum, row| sum.wrapping_add(row[index].load(Ordering::Relaxed)))
    }
}

impl<const N: usize> Default for SectionCounts<N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const N: usize> fmt::Debug for SectionCounts<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries((0..N).map(|index| self.sum(index))).finish()
    }
}

#[cfg(all(test, not(manycore_loom), not(manycore_shuttle)))]
mod tests {
    use super::*;
    use crate::section::{Domain, unprotected};
    use crate::sync::thread;
    use std::sync::Barrier;

    #[test]
    fn adds_of_threads_that_end_and_of_nested_and_unprotected_sections_are_all_counted() {
        let (counts, domain) = (SectionCounts::<3>::new(), Domain::new());
        for _ in 0..3 {
            thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| {
                        for _ in 0..1_000 {
                            let outer = domain.enter();
                            counts.add(&outer, 0, 1);
                            counts.add(&domain.enter(), 1, 2);
                            counts.add(&crate::section::enter(), 1, 1);
                            // SAFETY: the section is used for a count alone, on no structure.
                            counts.add(unsafe { unprotected() }, 2, 1);
                        }
                    });
                }
            });
        }
        // More threads at once than are near.
        let far = 40;
        let all_in = Barrier::new(far);
        thread::scope(|scope| {
            for _ in 0..far {
                scope.spawn(|| {
                    let section = domain.enter();
                    all_in.wait();
                    counts.add(&section, 0, 25);
                });
            }
        });
        let expected = [13_000, 36_000, 12_000];
        assert_eq!([0, 1, 2].map(|index| counts.sum(index)), expected);
        assert_eq!(format!("{counts:?}"), "[13000, 36000, 12000]");
    }

    #[test]
    #[should_panic(expected = "index out of bounds")]
    fn count_beyond_the_last_is_refused() {
        SectionCounts::<1>::new().add(&Domain::new().enter(), 1, 1);
    }
}
