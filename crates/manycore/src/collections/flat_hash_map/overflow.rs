//! Overflow buckets. They continue the chains of a table whose own buckets are full.

use super::super::Line;
use super::layout::CacheLine;
use crate::config::SEGMENT_BITS;
use crate::slab::large_array::LargeArray;
use crate::sync::{AtomicPtr, AtomicUsize, Ordering, model_failed};
use std::ptr;

/// Lines in segment zero. Each later segment has as many lines as all segments before it together.
const FIRST: usize = 1 << SEGMENT_BITS;
/// Enough segments for 17 GB of lines. (In models, each access to a segment is a step.)
const SEGMENTS: usize = if cfg!(manycore_loom) { 3 } else { 24 };

/// Lines that are mapped but not filled, so that no update waits until a segment is filled.
type Segment = LargeArray<CacheLine>;

/// Overflow buckets of one table. They are freed with the table, and none is given back earlier.
pub(super) struct Overflow {
    /// Each segment is made when it is first needed, and freed with the table.
    segments: [AtomicPtr<Segment>; SEGMENTS],
    /// The number of the next bucket. Numbers begin with one.
    next: Line<AtomicUsize>,
}

/// Returns the index of a bucket's first line. Buckets are a power of two lines apart, so that each
/// lies in one segment.
fn line_of(number: usize, lines: usize) -> usize {
    number * lines.next_power_of_two()
}

/// Returns the segment of a line, the number of lines before that segment, and its length in lines.
fn locate(line: usize) -> (usize, usize, usize) {
    match (line / FIRST).checked_ilog2() {
        None => (0, 0, FIRST),
        Some(log) => (log as usize + 1, FIRST << log, FIRST << log),
    }
}

impl Overflow {
    pub(super) fn new() -> Self {
        Self {
            segments: std::array::from_fn(|_| AtomicPtr::new(ptr::null_mut())),
            next: Line(AtomicUsize::new(1)),
        }
    }

    /// Returns the `lines` lines of bucket `number`, if its memory is allocated.
    #[inline]
    pub(super) fn lines(&self, number: usize, lines: usize) -> Option<&[CacheLine]> {
        let line = line_of(number, lines);
        let (segment, before, _) = locate(line);
        // ORDER: Acquire; pairs with the exchange in `make`: the lines before their address.
        let segment = self.segments.get(segment)?.load(Ordering::Acquire);
        // SAFETY: null, or made by `make`, and freed only with `self`.
        let segment = unsafe { segment.as_ref() }?;
        Some(&segment[line - before..][..lines])
    }

    /// Allocates the memory of the next `count` buckets. Never called under a bucket's lock
    /// (flat_hash_map.F1).
    ///
    /// # Panics
    /// If there are no numbers for so many buckets.
    #[cold]
    pub(super) fn reserve(&self, count: usize, lines: usize) {
        // ORDER: Relaxed; a hint, `take` decides.
        let next = self.next.0.load(Ordering::Relaxed);
        for number in next..next + count {
            if self.lines(number, lines).is_none() {
                self.make(line_of(number, lines));
            }
        }
    }

    /// Makes the segment of a line, unless another thread has made it.
    fn make(&self, line: usize) {
        let (segment, _, len) = locate(line);
        let place = self.segments.get(segment).expect("manycore: capacity overflow");
        // SAFETY: a line is words, which may be zero.
        let made = unsafe { Segment::zeroed_or(len, || CacheLine::from(0)) };
        let made = Box::into_raw(Box::new(made));
        // ORDER: Release; pairs with Acquire in `lines`.
        let raced =
            place.compare_exchange(ptr::null_mut(), made, Ordering::Release, Ordering::Relaxed);
        if raced.is_err() {
            // SAFETY: made above, and shared with no other thread.
            drop(unsafe { Box::from_raw(made) });
        }
    }

    /// Takes `count` buckets. Returns the number of the first, or `None` if some have no memory
    /// yet.
    #[cold]
    pub(super) fn take(&self, count: usize, lines: usize) -> Option<usize> {
        // ORDER: Relaxed; only shares out numbers. The segment publishes the memory.
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

impl Drop for Overflow {
    fn drop(&mut self) {
        if model_failed() {
            return;
        }
        for segment in &self.segments {
            // ORDER: Relaxed; `&mut self`: no other thread has the table.
            let segment = segment.load(Ordering::Relaxed);
            if !segment.is_null() {
                // SAFETY: made by `make`, published once, and not used any more.
                drop(unsafe { Box::from_raw(segment) });
            }
        }
    }
}
