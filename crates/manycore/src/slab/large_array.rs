//! A large array, in huge pages where Linux has some: an access anywhere in it is then one miss of
//! the caches, and not another of the translation buffer.

use super::system::HUGE;
use crate::sync::{caught, resume_first, run_each};
use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ops::Deref;
use std::ptr::NonNull;

/// A boxed slice, aligned to huge pages if it is as large as one.
pub(crate) struct LargeArray<T> {
    start: NonNull<T>,
    len: usize,
}

// SAFETY: it owns its elements, like a boxed slice.
unsafe impl<T: Send> Send for LargeArray<T> {}
// SAFETY: shared, it gives out `&[T]` alone, like a boxed slice.
unsafe impl<T: Sync> Sync for LargeArray<T> {}

/// Of so many elements, at least one.
///
/// # Panics
/// If they need more memory than there can be.
fn layout<T>(len: usize) -> Layout {
    let layout = Layout::array::<T>(len).expect("manycore: capacity overflow");
    assert!(layout.size() != 0, "manycore: an array of nothing");
    let align = if layout.size() >= HUGE { HUGE } else { 1 };
    layout.align_to(align).expect("manycore: capacity overflow")
}

impl<T> LargeArray<T> {
    /// `len` elements, which `make` makes. If that panics, those that it made are leaked.
    ///
    /// # Panics
    /// If they need more memory than there can be, or no memory at all.
    pub(crate) fn from_fn(len: usize, mut make: impl FnMut() -> T) -> Self {
        let layout = layout::<T>(len);
        // SAFETY: not of size zero, as `layout` asserts.
        let Some(start) = NonNull::new(unsafe { alloc(layout) }.cast::<T>()) else {
            handle_alloc_error(layout)
        };
        #[cfg(all(target_os = "linux", not(any(manycore_loom, manycore_shuttle, miri))))]
        if layout.size() >= HUGE {
            // SAFETY: memory that is ours, from a page's start on; the advice changes no content,
            // and if it is refused, the pages are small.
            unsafe {
                libc::madvise(start.as_ptr().cast(), layout.size(), libc::MADV_HUGEPAGE);
            }
        }
        for index in 0..len {
            // SAFETY: within the array, and not initialized yet.
            unsafe { start.add(index).write(make()) };
        }
        Self { start, len }
    }
}

impl<T> Deref for LargeArray<T> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        // SAFETY: so many elements, initialized by `from_fn`, and dropped with this alone.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl<T> Drop for LargeArray<T> {
    fn drop(&mut self) {
        let dropped = caught(|| {
            // SAFETY: initialized by `from_fn`, and used by no other reference any more.
            run_each(0..self.len, |index| unsafe { self.start.add(index).drop_in_place() });
        });
        // SAFETY: the memory came from `alloc` with the same layout, and its elements are gone.
        unsafe { dealloc(self.start.as_ptr().cast(), layout::<T>(self.len)) };
        resume_first([dropped]);
    }
}

#[cfg(all(test, not(any(manycore_loom, manycore_shuttle))))]
mod tests {
    use super::*;
    use std::rc::Rc;

    #[test]
    fn elements_are_made_and_dropped_once() {
        let one = Rc::new(());
        let array = LargeArray::from_fn(100, || Rc::clone(&one));
        assert_eq!((array.len(), Rc::strong_count(&one)), (100, 101));
        drop(array);
        assert_eq!(Rc::strong_count(&one), 1);
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
