//! The buckets that chains of a table are continued by, when a bucket of the table is full.

use super::super::Line;
use super::layout::CacheLine;
use crate::percpu::segmented::Segmented;
use crate::sync::{AtomicUsize, Ordering};

/// Overflow buckets of one table. They go with it: none is given back before.
pub(super) struct Overflow {
    lines: Segmented<CacheLine>,
    /// The number of the next bucket. Numbers begin with one.
    next: Line<AtomicUsize>,
}

/// The number of the line at which a bucket begins: a power of two apart, so that its lines are in
/// one segment.
fn line_of(number: usize, lines: usize) -> usize {
    number * lines.next_power_of_two()
}

impl Overflow {
    pub(super) fn new() -> Self {
        Self { lines: Segmented::new(), next: Line(AtomicUsize::new(1)) }
    }

    /// A bucket of so many lines, if there is memory for it already.
    #[inline]
    pub(super) fn lines(&self, number: usize, lines: usize) -> Option<&[CacheLine]> {
        self.lines.get_run(line_of(number, lines), lines)
    }

    /// Allocates what the next `count` buckets lie in. Never under a bucket's lock
    /// (flat_hash_map.F1).
    ///
    /// # Panics
    /// If there are no numbers for so many.
    #[cold]
    pub(super) fn reserve(&self, count: usize, lines: usize) {
        // ORDER: Relaxed; a hint, `take` decides.
        let next = self.next.0.load(Ordering::Relaxed);
        for number in next..next + count {
            self.lines.get_or_init(line_of(number, lines));
        }
    }

    /// Takes `count` buckets: the number of the first, if there is memory for all.
    #[cold]
    pub(super) fn take(&self, count: usize, lines: usize) -> Option<usize> {
        // ORDER: Relaxed; only shares out numbers, and the memory is published by its segment.
        let mut next = self.next.0.load(Ordering::Relaxed);
        loop {
            if (next..next + count).any(|number| self.lines(number, lines).is_none()) {
                return None;
            }
            let (from, to) = (next, next + count);
            let order = Ordering::Relaxed;
            match self.next.0.compare_exchange_weak(from, to, order, order) {
                Ok(_) => return Some(next),
                Err(found) => next = found,
            }
        }
    }

    /// Bytes of the buckets taken.
    pub(super) fn bytes(&self, lines: usize) -> usize {
        // ORDER: Relaxed; a weight.
        line_of(self.next.0.load(Ordering::Relaxed), lines) * size_of::<CacheLine>()
    }
}
