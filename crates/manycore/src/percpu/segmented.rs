//! A table indexed by slot that grows without moving what it holds.
//!
//! Owns: segments of doubling size, allocated when first touched and freed with the table.
//! Laws:
//! - segmented.G1 An element never moves: `&T` stays valid as long as the table.
//! - segmented.G2 An index is in exactly one segment; a lookup is two loads and no store.
//! - segmented.G3 A segment has its cache lines to itself. All threads read elements and seldom
//!   write them. If another small allocation shared their line, each write to it would cost all of
//!   these threads.

use crate::config::{CACHE_LINE_BYTES, SEGMENT_BITS};
use crate::sync::{AtomicPtr, Ordering, caught, const_fn, model_failed, resume_first, run_each};
use std::alloc::{self, Layout};
use std::ptr;

const FIRST: usize = 1 << SEGMENT_BITS;
/// With doubling, this many segments hold more slots than a kernel has thread ids, and all that a
/// namespace has to number. (Under loom, eight slots: it runs five threads at most, and every look
/// into a segment is a step of the model.)
const SEGMENTS: usize = if cfg!(manycore_loom) { 3 } else { 24 };
/// Elements that a table can have, at most.
pub(crate) const CAPACITY: usize = FIRST << (SEGMENTS - 1);

/// Elements by index; `T::from(index)` creates absent ones, one segment at a time.
pub(crate) struct Segmented<T> {
    segments: [AtomicPtr<T>; SEGMENTS],
}

/// Location of an index in a table of elements of [`CACHE_LINE_BYTES`], for a caller that looks it
/// up again and again ([`Segmented::get_at`]).
#[derive(Clone, Copy)]
pub(crate) struct Location {
    number: usize,
    /// Offset in its segment, in bytes.
    offset: usize,
}

impl Location {
    /// Location of the first index.
    pub(crate) const FIRST: Self = Self { number: 0, offset: 0 };

    /// # Panics
    /// If no table can have the index.
    pub(crate) fn of(index: usize) -> Self {
        assert!(index < CAPACITY, "manycore: slot index {index} is out of range");
        let (number, offset, _) = locate(index);
        Self { number, offset: offset * CACHE_LINE_BYTES }
    }
}

/// Returns segment number and offset of an index, and the length of that segment.
#[inline(always)]
fn locate(index: usize) -> (usize, usize, usize) {
    if index < FIRST {
        return (0, index, FIRST);
    }
    let number = (index >> SEGMENT_BITS).ilog2() as usize + 1;
    let len = FIRST << (number - 1);
    (number, index - len, len)
}

impl<T> Segmented<T> {
    /// Returns the layout of a segment of `len` elements (segmented.G3).
    fn layout(len: usize) -> Layout {
        let array = Layout::array::<T>(len).and_then(|array| array.align_to(CACHE_LINE_BYTES));
        array.expect("a segment fits into memory").pad_to_align()
    }

    /// Frees a segment and its elements, even if one of their destructors panics.
    ///
    /// # Safety
    /// It came from `make` with this length, and is not used any more.
    unsafe fn free(segment: *mut T, len: usize) {
        let dropped = caught(|| {
            // SAFETY: the caller promises that it came from `make`, which has written so many
            // elements, and that this is their end.
            run_each(0..len, |offset| unsafe { segment.add(offset).drop_in_place() });
        });
        // SAFETY: `make` asked for memory of this layout, and its elements are gone.
        unsafe { alloc::dealloc(segment.cast(), Self::layout(len)) };
        resume_first([dropped]);
    }
}

impl<T: From<usize>> Segmented<T> {
    /// Makes a segment with the elements of these indices.
    fn make(first: usize, len: usize) -> *mut T {
        const { assert!(size_of::<T>() > 0, "segmented.G3: no memory is asked for") };
        let mut elements: Vec<T> = (first..first + len).map(T::from).collect();
        let layout = Self::layout(len);
        // SAFETY: elements have a size, and there is one at least.
        let segment = unsafe { alloc::alloc(layout) }.cast::<T>();
        if segment.is_null() {
            alloc::handle_alloc_error(layout);
        }
        // SAFETY: new memory with room for `len` elements, which the vector has; it forgets them,
        // so each is moved.
        unsafe {
            ptr::copy_nonoverlapping(elements.as_ptr(), segment, len);
            elements.set_len(0);
        }
        segment
    }

    #[cfg(not(any(manycore_loom, manycore_shuttle)))]
    pub(crate) const fn new() -> Self {
        Self { segments: [const { AtomicPtr::new(ptr::null_mut()) }; SEGMENTS] }
    }

    #[cfg(any(manycore_loom, manycore_shuttle))]
    pub(crate) fn new() -> Self {
        Self { segments: std::array::from_fn(|_| AtomicPtr::new(ptr::null_mut())) }
    }

    /// Returns the element, if its segment exists.
    #[inline(always)]
    pub(crate) fn get(&self, index: usize) -> Option<&T> {
        // `locate` inlined for the first segment, where nearly every slot is.
        let (number, offset) =
            if index < FIRST { (0, index) } else { (locate(index).0, locate(index).1) };
        // ORDER: Acquire; pairs with the publishing CAS in `get_or_init`: elements before pointer.
        let segment = self.segments[number].load(Ordering::Acquire);
        if segment.is_null() {
            return None;
        }
        debug_assert!(offset < locate(index).2, "segmented.G2: {index} is not in its segment");
        // SAFETY: segmented.G1, segmented.G2 - `locate` names the only segment that has the index;
        // a published one has `len > offset` elements and lives as long as self.
        Some(unsafe { &*segment.add(offset) })
    }

    /// Returns the element at this location, if its segment exists.
    #[inline(always)]
    pub(crate) fn get_at(&self, at: Location) -> Option<&T> {
        const { assert!(size_of::<T>() == CACHE_LINE_BYTES, "segmented.G2: a location of others") };
        debug_assert!(at.number < SEGMENTS, "segmented.G2: a location beyond all segments");
        // SAFETY: `Location::of` has found that a table can have the index.
        let segment = unsafe { self.segments.get_unchecked(at.number) };
        // ORDER: Acquire; as in `get`.
        let segment = segment.load(Ordering::Acquire);
        if segment.is_null() {
            return None;
        }
        // SAFETY: segmented.G1, segmented.G2 - a published segment has all elements that `locate`
        // finds in it, and lives as long as self.
        Some(unsafe { &*segment.byte_add(at.offset) })
    }

    /// Returns the element, if it is in the first segment and that exists. For a caller that counts
    /// instructions, and otherwise falls back to `get`.
    #[inline(always)]
    pub(crate) fn get_near(&self, index: usize) -> Option<&T> {
        if index >= FIRST {
            return None;
        }
        // ORDER: Acquire; as in `get`.
        let segment = self.segments[0].load(Ordering::Acquire);
        if segment.is_null() {
            return None;
        }
        // SAFETY: segmented.G1, segmented.G2 - indices below FIRST are in the first segment, which
        // has FIRST elements and lives as long as self.
        Some(unsafe { &*segment.add(index) })
    }

    /// Returns the element; creates its segment if it does not exist.
    ///
    /// # Panics
    /// If the index is beyond about 268 million (more threads than any kernel runs).
    #[inline]
    pub(crate) fn get_or_init(&self, index: usize) -> &T {
        self.get(index).unwrap_or_else(|| self.init(index))
    }

    #[cold]
    #[inline(never)]
    fn init(&self, index: usize) -> &T {
        let (number, _, len) = locate(index);
        assert!(number < SEGMENTS, "manycore: slot index {index} is out of range");
        let first = index - locate(index).1;
        let raw = Self::make(first, len);
        // ORDER: Release publishes the elements; Acquire on failure reads the winner's.
        let won = self.segments[number].compare_exchange(
            ptr::null_mut(),
            raw,
            Ordering::AcqRel,
            Ordering::Acquire,
        );
        if won.is_err() {
            // SAFETY: made above with this length, and not shared.
            unsafe { Self::free(raw, len) };
        }
        self.get(index).expect("segment was just published")
    }

    /// Iterates over every element that exists, with its index, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, &T)> {
        (0..SEGMENTS).flat_map(move |number| {
            let (first, len) = if number == 0 {
                (0, FIRST)
            } else {
                (FIRST << (number - 1), FIRST << (number - 1))
            };
            let exists = self.get(first).is_some();
            let range = if exists { first..first + len } else { 0..0 };
            range.map(move |index| (index, self.get(index).expect("segments are never removed")))
        })
    }
}

impl<T> Drop for Segmented<T> {
    fn drop(&mut self) {
        if model_failed() {
            return;
        }
        run_each(self.segments.iter().enumerate(), |(number, segment)| {
            // ORDER: Relaxed; `&mut self` proves that every publisher is done.
            let raw = segment.load(Ordering::Relaxed);
            let len = if number == 0 { FIRST } else { FIRST << (number - 1) };
            if !raw.is_null() {
                // SAFETY: segmented.G1 - made with this length, and in use until now.
                unsafe { Self::free(raw, len) };
            }
        });
    }
}

/// A table that costs one word until it is first written: for what is hardly ever needed.
pub(crate) struct Lazy<T: From<usize>>(AtomicPtr<Segmented<T>>);

impl<T: From<usize>> Lazy<T> {
    const_fn! {
        pub(crate) const fn new() -> Self {
            Self(AtomicPtr::new(ptr::null_mut()))
        }
    }

    fn table(&self) -> Option<&Segmented<T>> {
        // ORDER: Acquire; pairs with the CAS in `get_or_init`: the table before its address.
        // SAFETY: segmented.G1 - null or from a box, which is freed only with self.
        unsafe { self.0.load(Ordering::Acquire).as_ref() }
    }

    /// Returns true if no element exists.
    #[inline(always)]
    pub(crate) fn is_unused(&self) -> bool {
        // ORDER: Acquire; as in `table`.
        self.0.load(Ordering::Acquire).is_null()
    }

    /// Returns the element, if its segment exists.
    pub(crate) fn get(&self, index: usize) -> Option<&T> {
        self.table()?.get(index)
    }

    /// Returns the element; creates its table and segment if they do not exist.
    #[cold]
    pub(crate) fn get_or_init(&self, index: usize) -> &T {
        if let Some(table) = self.table() {
            return table.get_or_init(index);
        }
        let made = Box::into_raw(Box::new(Segmented::new()));
        // ORDER: Release publishes the table; Acquire on failure reads the winner's.
        let raced =
            self.0.compare_exchange(ptr::null_mut(), made, Ordering::AcqRel, Ordering::Acquire);
        let table = match raced {
            Ok(_) => made,
            Err(other) => {
                // SAFETY: made above and shared with no other thread.
                drop(unsafe { Box::from_raw(made) });
                other
            }
        };
        // SAFETY: from a box, published by this exchange or another one, and freed only with self.
        unsafe { &*table }.get_or_init(index)
    }

    /// Iterates over every element that exists, with its index.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, &T)> {
        self.table().into_iter().flat_map(Segmented::iter)
    }
}

impl<T: From<usize>> Drop for Lazy<T> {
    fn drop(&mut self) {
        if model_failed() {
            return;
        }
        // ORDER: Relaxed; `&mut self` proves that every publisher is done.
        let table = self.0.load(Ordering::Relaxed);
        if !table.is_null() {
            // SAFETY: from a box, and `&mut self` is exclusive.
            drop(unsafe { Box::from_raw(table) });
        }
    }
}

#[cfg(all(test, not(manycore_loom), not(manycore_shuttle)))]
mod tests {
    use super::*;
    use crate::sync::AtomicUsize;
    use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

    #[test]
    fn every_index_has_its_own_place() {
        let table: Segmented<usize> = Segmented::new();
        for index in 0..5000 {
            assert_eq!(*table.get_or_init(index), index);
        }
        let mut seen = 0;
        for (index, value) in table.iter() {
            assert_eq!(index, *value);
            seen += 1;
        }
        assert!(seen >= 5000);
    }

    #[test]
    fn every_element_is_dropped_though_destructors_panic() {
        static DROPPED: AtomicUsize = AtomicUsize::new(0);
        struct Fragile(usize);
        impl From<usize> for Fragile {
            fn from(index: usize) -> Self {
                Self(index)
            }
        }
        impl Drop for Fragile {
            fn drop(&mut self) {
                DROPPED.fetch_add(1, Ordering::Relaxed);
                if self.0 % FIRST == 3 {
                    resume_unwind(Box::new("planned"));
                }
            }
        }
        let table: Segmented<Fragile> = Segmented::new();
        table.get_or_init(3);
        table.get_or_init(FIRST);
        let result = catch_unwind(AssertUnwindSafe(|| drop(table)));
        assert!(result.is_err());
        assert_eq!(DROPPED.load(Ordering::Relaxed), 2 * FIRST);
    }

    #[test]
    fn absent_segment_is_none() {
        let table: Segmented<usize> = Segmented::new();
        assert!(table.get(0).is_none());
        table.get_or_init(FIRST * 4);
        assert!(table.get(0).is_none());
        assert_eq!(table.get(FIRST * 4).copied(), Some(FIRST * 4));
    }
}
