//! A large array, in huge pages if Linux has some. An access anywhere in it is then one cache miss,
//! without a miss of the translation buffer (TLB) in addition.

use super::system::{self, HUGE};
use crate::sync::{caught, resume_first, run_each};
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::Deref;
use std::ptr::NonNull;

/// Bytes of a huge page, which one access to it takes from the system.
pub(crate) const PAGE_BYTES: usize = HUGE;

/// A boxed slice, aligned to huge pages if it is as large as one.
pub(crate) struct LargeArray<T> {
    start: NonNull<T>,
    len: usize,
}

// SAFETY: it owns its elements, like a boxed slice.
unsafe impl<T: Send> Send for LargeArray<T> {}
// SAFETY: shared, it gives out `&[T]` alone, like a boxed slice.
unsafe impl<T: Sync> Sync for LargeArray<T> {}

/// Returns the layout of `len` elements, at least one.
///
/// # Panics
/// If they need more memory than there can be.
fn layout<T>(len: usize) -> Layout {
    let layout = Layout::array::<T>(len).expect("manycore: capacity overflow");
    assert!(layout.size() != 0, "manycore: an array of nothing");
    let align = if layout.size() >= HUGE { HUGE } else { 1 };
    layout.align_to(align).expect("manycore: capacity overflow")
}

/// Returns true if memory of this layout is taken from the system. The allocator may have to fill
/// it with zeros.
const fn is_mapped(layout: Layout) -> bool {
    cfg!(all(unix, not(any(manycore_loom, manycore_shuttle, miri)))) && layout.size() >= HUGE
}

/// Allocates zeroed memory of this layout, which [`layout`] has made.
fn allocate(layout: Layout) -> NonNull<u8> {
    let memory = if is_mapped(layout) {
        system::take_large(layout.size())
    } else {
        // SAFETY: not of size zero, as `layout` asserts.
        NonNull::new(unsafe { alloc_zeroed(layout) })
    };
    memory.unwrap_or_else(|| handle_alloc_error(layout))
}

impl<T> LargeArray<T> {
    /// Makes `len` elements as `make` would make them, from zeroed memory. Its pages cost nothing
    /// before they are touched. (Model checkers' atomics are more than their bytes, so `make` makes
    /// them.)
    ///
    /// # Panics
    /// If they need more memory than there can be, or no memory at all.
    ///
    /// # Safety
    /// Zeroed memory is a valid element, outside of models.
    pub(crate) unsafe fn zeroed_or(len: usize, make: impl FnMut() -> T) -> Self {
        let start = allocate(layout::<T>(len)).cast();
        if cfg!(any(manycore_loom, manycore_shuttle)) {
            Self::fill(start, len, make);
        }
        Self { start, len }
    }

    fn fill(start: NonNull<T>, len: usize, mut make: impl FnMut() -> T) {
        for index in 0..len {
            // SAFETY: within the array, and not initialized yet.
            unsafe { start.add(index).write(make()) };
        }
    }
}

impl<T> Deref for LargeArray<T> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        // SAFETY: so many elements, initialized when it was made, and dropped with this alone.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl<T> Drop for LargeArray<T> {
    fn drop(&mut self) {
        let dropped = caught(|| {
            if std::mem::needs_drop::<T>() {
                // SAFETY: initialized, and used by no other reference any more.
                run_each(0..self.len, |index| unsafe { self.start.add(index).drop_in_place() });
            }
        });
        let layout = layout::<T>(self.len);
        // SAFETY: the memory came from `allocate` with the same layout, and its elements are gone.
        unsafe {
            if is_mapped(layout) {
                system::give_large_back(self.start.cast(), layout.size());
            } else {
                dealloc(self.start.as_ptr().cast(), layout);
            }
        }
        resume_first([dropped]);
    }
}

#[cfg(all(test, not(any(manycore_loom, manycore_shuttle))))]
mod tests {
    use super::*;
    use std::rc::Rc;

    impl<T> LargeArray<T> {
        fn from_fn(len: usize, make: impl FnMut() -> T) -> Self {
            let start = allocate(layout::<T>(len)).cast();
            Self::fill(start, len, make);
            Self { start, len }
        }
    }

    #[test]
    fn elements_are_made_and_dropped_once() {
        let one = Rc::new(());
        let array = LargeArray::from_fn(100, || Rc::clone(&one));
        assert_eq!((array.len(), Rc::strong_count(&one)), (100, 101));
        drop(array);
        assert_eq!(Rc::strong_count(&one), 1);
    }

    #[test]
    fn zeroed_array_is_one_of_zeros_whatever_was_there() {
        for len in [3, 1000, if cfg!(miri) { 10 } else { HUGE / 8 + 1 }] {
            for _ in 0..2 {
                // SAFETY: a number may be zero.
                let array = unsafe { LargeArray::zeroed_or(len, || 0_u64) };
                assert!(array.len() == len && array.iter().all(|number| *number == 0));
                drop(array);
                let filled = LargeArray::from_fn(len, || u64::MAX);
                assert_eq!(filled[len - 1], u64::MAX);
            }
        }
    }

    #[test]
    fn array_of_a_huge_page_begins_with_one() {
        let len = if cfg!(miri) { 10 } else { HUGE / 8 };
        let mut next = 0_u64;
        let array = LargeArray::from_fn(len, || {
            next += 1;
            next
        });
        assert!(cfg!(miri) || array.as_ptr().addr() % HUGE == 0);
        assert_eq!((array[0], array[len - 1]), (1, len as u64));
    }
}
