//! The buckets that chains of a table are continued by, when a bucket of the table is full.

use super::super::Line;
use super::layout::CacheLine;
use crate::config::SEGMENT_BITS;
use crate::slab::large_array::LargeArray;
use crate::sync::{AtomicPtr, AtomicUsize, Ordering, model_failed};
use std::ptr;

/// Lines in segment zero. Each other one has as many as all before it together.
const FIRST: usize = 1 << SEGMENT_BITS;
/// Enough for 17 GB of lines. (Each look at a segment is a step of a model.)
const SEGMENTS: usize = if cfg!(manycore_loom) { 3 } else { 24 };

/// Lines that are mapped, and not filled: no update waits until a segment is.
type Segment = LargeArray<CacheLine>;

/// Overflow buckets of one table. They go with it: none is given back before.
pub(super) struct Overflow {
    /// Made when they are first needed, and freed with the table.
    segments: [AtomicPtr<Segment>; SEGMENTS],
    /// The number of the next bucket. Numbers begin with one.
    next: Line<AtomicUsize>,
}

/// The number of the line at which a bucket begins: a power of two apart, so that its lines are in
/// one segment.
fn line_of(number: usize, lines: usize) -> usize {
    number * lines.next_power_of_two()
}

/// The segment that has a line, how many come before it, and how many the segment has.
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

    /// A bucket of so many lines, if there is memory for it already.
    #[inline]
    pub(super) fn lines(&self, number: usize, lines: usize) -> Option<&[CacheLine]> {
        let line = line_of(number, lines);
        let (segment, before, _) = locate(line);
        // ORDER: Acquire; pairs with the exchange in `make`: the lines before their address.
        let segment = self.segments.get(segment)?.load(Ordering::Acquire);
        // SAFETY: null, or made by `reserve`, and freed with `self` alone.
        let segment = unsafe { segment.as_ref() }?;
        Some(&segment[line - before..][..lines])
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
            if self.lines(number, lines).is_none() {
                self.make(line_of(number, lines));
            }
        }
    }

    /// Makes the segment of a line, unless another thread does.
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
