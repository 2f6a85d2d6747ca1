//! Weak handles: they keep the memory allocated, but not the value alive.

use super::generation::{is_still, read};
use super::{Inner, ScalableArc, count::Head};
use crate::sync;
use std::fmt;
use std::marker::PhantomData;
use std::ptr::NonNull;

/// A reference that does not keep the value alive, and can be upgraded to one that does.
///
/// What for: caches and tables that lead to objects which may be dropped, such as a cache of
/// directory entries. Find the weak handle, [`upgrade`](Self::upgrade) it, and check again that the
/// object is the right one. When not: if weak handles themselves are cloned all the time. They are
/// counted in one shared word, as in the standard library.
///
/// ```
/// use manycore::collections::ScalableArc;
///
/// let entry = ScalableArc::new("usr");
/// let cached = ScalableArc::downgrade(&entry);
/// assert_eq!(*cached.upgrade().unwrap(), "usr");
/// ScalableArc::retire(&entry);
/// assert!(cached.upgrade().is_none());
/// assert_eq!(*entry, "usr");
/// ```
///
/// - Consistency: an upgrade succeeds if and only if the object has a strong handle at that moment
///   and has not been [retired](ScalableArc::retire).
/// - Cost of an upgrade: as a clone; while the object is hot it writes no shared line.
/// - Progress: as a clone.
/// - Memory: a weak handle keeps the object's memory, but not its value.
pub struct ScalableWeak<T: ?Sized> {
    inner: NonNull<Inner<T>>,
    _owns: PhantomData<Inner<T>>,
}

// SAFETY: a weak handle can become a strong one, so the bounds are the same (those of `Arc`).
unsafe impl<T: ?Sized + Send + Sync> Send for ScalableWeak<T> {}
// SAFETY: through a shared weak handle another thread can make a strong one, so again the bounds of
// `Arc`.
unsafe impl<T: ?Sized + Send + Sync> Sync for ScalableWeak<T> {}

impl<T: ?Sized> ScalableWeak<T> {
    /// Makes a weak handle to `inner`, which has been counted.
    pub(super) fn counted(inner: NonNull<Inner<T>>) -> Self {
        Self { inner, _owns: PhantomData }
    }

    pub(super) fn head(&self) -> &Head {
        // SAFETY: a weak handle, which `release_weak` uncounts, keeps the memory. The reference
        // does not cover the value, which another thread may be dropping.
        unsafe { &(*self.inner.as_ptr()).head }
    }

    /// Returns a strong handle, if the value is alive and the object has not been retired.
    #[inline]
    #[must_use]
    pub fn upgrade(&self) -> Option<ScalableArc<T>> {
        let tag = self.head().try_acquire()?;
        Some(ScalableArc::counted(self.inner, tag))
    }

    /// Returns true if both handles refer to the same object.
    #[must_use]
    pub fn ptr_eq(&self, other: &Self) -> bool {
        std::ptr::addr_eq(self.inner.as_ptr(), other.inner.as_ptr())
    }

    /// Returns the number of strong handles: see [`ScalableArc::strong_count`].
    #[must_use]
    pub fn strong_count(&self) -> usize {
        usize::try_from(self.head().strong()).unwrap_or(usize::MAX)
    }

    /// Returns the object's current generation, also after its value was dropped. The generation is
    /// odd while the object is being [changed](ScalableArc::change).
    ///
    /// Cost: a load of a line that only changes write.
    #[inline]
    #[must_use]
    pub fn generation(&self) -> u64 {
        read(self.head().generation())
    }

    /// Returns a strong handle, if the value lives, the object has not been
    /// [retired](ScalableArc::retire), and its generation is still `generation`. An odd generation
    /// never yields a handle.
    ///
    /// What for: a cache of directory entries. A look-up finds the weak handle in its table, reads
    /// the generation, then name and parent, and takes a handle only of the entry that it has read.
    /// If the result is `None`, it looks up again.
    ///
    /// Consistency: what was read of the object between [`generation`](Self::generation) and this
    /// call is consistent. (It may change as soon as this returns.) Cost and progress: those of
    /// [`upgrade`](Self::upgrade); while the object is hot it writes no shared line. Source:
    /// [OpLog](crate#sources), section 3.
    ///
    /// ```
    /// use manycore::collections::ScalableArc;
    /// use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
    ///
    /// let entry = ScalableArc::new(AtomicU64::new(17)); // the hash of its name, say
    /// let cached = ScalableArc::downgrade(&entry);
    ///
    /// let generation = cached.generation();
    /// let found = cached.try_acquire(generation).unwrap();
    /// assert_eq!(found.load(Relaxed), 17);
    ///
    /// ScalableArc::change(&entry, || entry.store(18, Relaxed)); // renamed
    /// assert!(cached.try_acquire(generation).is_none());
    /// assert!(cached.try_acquire(cached.generation()).is_some());
    /// ```
    #[inline]
    #[must_use]
    pub fn try_acquire(&self, generation: u64) -> Option<ScalableArc<T>> {
        let handle = self.upgrade()?;
        is_still(self.head().generation(), generation).then_some(handle)
    }
}

impl<T: ?Sized> Clone for ScalableWeak<T> {
    fn clone(&self) -> Self {
        self.head().acquire_weak();
        Self::counted(self.inner)
    }
}

impl<T: ?Sized> Drop for ScalableWeak<T> {
    fn drop(&mut self) {
        if !sync::model_failed() {
            // SAFETY: this handle was counted, and is uncounted only here.
            unsafe { release_memory(self.inner) };
        }
    }
}

/// Uncounts a weak handle, and frees the memory if it was the last.
///
/// # Safety
/// The handle was counted and is not used again. (For the weak handle that all strong handles have
/// together: the value has been dropped or taken.)
pub(super) unsafe fn release_memory<T: ?Sized>(inner: NonNull<Inner<T>>) {
    // SAFETY: the caller promises that the handle was counted, so it keeps the memory until here.
    // The reference does not cover the value.
    let head = unsafe { &(*inner.as_ptr()).head };
    if head.release_weak() {
        // SAFETY: no handle is left.
        unsafe { head.free_side() };
        // SAFETY: allocated as a box is (in `new`, or for a slice); no handle is left, and the
        // value is gone (its field drops nothing).
        drop(unsafe { Box::from_raw(inner.as_ptr()) });
    }
}

impl<T: ?Sized> fmt::Debug for ScalableWeak<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(ScalableWeak)")
    }
}
