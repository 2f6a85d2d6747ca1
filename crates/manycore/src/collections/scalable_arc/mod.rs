//! A shared reference whose count is distributed.
//!
//! Owns: [`ScalableArc`], [`ScalableWeak`], the value and its memory. The count and its laws,
//! scalable_arc.A1 to scalable_arc.A8, are in `count`. In short: while cold, an exchange on one
//! word, as `Arc`. While hot, handles made and dropped are counted in the row of the thread's slot;
//! the handles that existed when the object became hot stay counted in the word, so the word alone
//! proves that the object lives. The last of those folds the rows into the word when it is dropped.
//! So there is no review and no garbage: the last handle's drop is what drops the value.

mod count;
mod generation;
#[cfg(all(test, manycore_loom))]
mod loom_tests;
mod others;
mod weak;
mod word;

pub use weak::ScalableWeak;

use crate::sync;
use count::Head;
use std::borrow::Borrow;
use std::cmp;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::ptr::NonNull;
use word::{CENTRAL, TAGS};

/// What handles point to. Aligned so that a handle's tag fits into the low bits of its address.
#[repr(C, align(16))]
struct Inner<T> {
    head: Head,
    value: ManuallyDrop<T>,
}

const TAG_MASK: usize = TAGS as usize;
const _: () = assert!(align_of::<Inner<u8>>() > TAG_MASK, "a tag fits into the low bits");

/// A shared reference to a value, as `std::sync::Arc`, for values of which many threads make and
/// drop handles all the time.
///
/// What for: an object that every request takes a reference to and gives back, such as a root
/// directory, a routing table, the configuration. When not: handles that are made once for each
/// thread and kept (`Arc` is as fast, and knows `dyn` values, `Arc::make_mut` and more); or objects
/// without a long-lived handle anywhere, for example messages that are passed on.
///
/// A *cold* object has a plain count. Contention makes it *hot*, or [`promote`](Self::promote)
/// does: then every thread counts on a line of its own. The handles that exist at that moment are
/// the object's *owners* for as long as it is hot. When the last of them is dropped, the object
/// becomes cold again, with all its handles as owners next time. An object becomes hot at most 15
/// times, which is enough for owners that outlive many clones. The value is dropped by the drop of
/// the last handle, at once and in that thread, hot or cold.
///
/// - Consistency: as `Arc`. [`strong_count`](Self::strong_count) is exact while nobody makes or
///   drops handles.
/// - Progress: while hot, `clone` and `drop` are wait-free, except that a thread's first one may
///   allocate its row, and that the drop of the last owner waits for the clones and drops that are
///   under way. While cold, they are lock-free, except where one of them promotes the object: that
///   allocates.
/// - Cost: while cold, an exchange on one shared word, as `Arc`. While hot, some 3 ns and no shared
///   line written, nor any read-modify-write (one on the thread's own line where the kernel has no
///   `membarrier`). The drop of the last owner: a `membarrier`, some microseconds, and a cache
///   miss for each thread that has counted.
/// - Memory: a handle is one word. The object has 16 bytes besides its value, and is aligned to 16.
///   When it first becomes hot or weakly held it gets 640 bytes, kept until it dies; while hot
///   128 bytes for each thread, 4 KiB at least. At most 4096 objects are hot at the same time; one
///   more stays cold until another [cools down](Self::demote) or dies.
/// - Panics: if the value's destructor panics, the drop of the last handle panics, and the memory
///   is freed.
/// - A handle may be dropped anywhere, in destructors of thread-locals too; not in a signal
///   handler.
/// - Source: OpLog, sections 3 and 5.2; the rule for zero is our own.
///
/// ```
/// use manycore::collections::ScalableArc;
///
/// let root = ScalableArc::new(String::from("/"));
/// ScalableArc::promote(&root);
/// std::thread::scope(|s| {
///     for _ in 0..4 {
///         s.spawn(|| {
///             for _ in 0..1000 {
///                 let handle = root.clone(); // writes no line of other threads
///                 assert_eq!(*handle, "/");
///             }
///         });
///     }
/// });
/// assert_eq!(ScalableArc::into_inner(root).unwrap(), "/");
/// ```
pub struct ScalableArc<T> {
    /// The address, with the tag in the low bits.
    tagged: NonNull<Inner<T>>,
    _owns: PhantomData<Inner<T>>,
}

// SAFETY: handles share the value (`T: Sync`), and any of them may be the one that drops it, on its
// thread (`T: Send`): the one that takes the count to zero (scalable_arc.A3).
unsafe impl<T: Send + Sync> Send for ScalableArc<T> {}
// SAFETY: a shared handle gives out `&T` (`T: Sync`), and by `clone` a handle that drops the value
// on another thread (`T: Send`).
unsafe impl<T: Send + Sync> Sync for ScalableArc<T> {}

impl<T> ScalableArc<T> {
    /// A cold object with one handle.
    #[must_use]
    pub fn new(value: T) -> Self {
        let inner = Box::new(Inner { head: Head::new(), value: ManuallyDrop::new(value) });
        Self::counted(NonNull::from(Box::leak(inner)), CENTRAL)
    }

    /// For an `inner` for which a handle with this tag has been counted.
    #[inline(always)]
    fn counted(inner: NonNull<Inner<T>>, tag: u64) -> Self {
        Self { tagged: inner.map_addr(|address| address | tag as usize), _owns: PhantomData }
    }

    #[inline(always)]
    fn inner(&self) -> *mut Inner<T> {
        self.tagged.as_ptr().map_addr(|address| address & !TAG_MASK)
    }

    #[inline(always)]
    fn tag(&self) -> u64 {
        (self.tagged.as_ptr().addr() & TAG_MASK) as u64
    }

    #[inline(always)]
    fn head(&self) -> &Head {
        // SAFETY: this handle keeps the object.
        unsafe { &(*self.inner()).head }
    }

    fn untagged(&self) -> NonNull<Inner<T>> {
        // SAFETY: an object is not at address zero.
        unsafe { NonNull::new_unchecked(self.inner()) }
    }

    /// Whether both lead to the same object.
    #[must_use]
    pub fn ptr_eq(this: &Self, other: &Self) -> bool {
        this.inner() == other.inner()
    }

    /// The address of the value; valid for as long as there is a handle.
    #[must_use]
    pub fn as_ptr(this: &Self) -> *const T {
        // SAFETY: this handle keeps the object.
        unsafe { (&raw const (*this.inner()).value).cast() }
    }

    /// How many handles there are. While others make and drop handles it is an estimate; on a hot
    /// object it may be off by as many as move meanwhile. Not a thing to decide by: see
    /// [`try_unwrap`](Self::try_unwrap).
    ///
    /// Cost: a load; on a hot object a cache miss for each thread that has counted.
    #[must_use]
    pub fn strong_count(this: &Self) -> usize {
        usize::try_from(this.head().strong()).unwrap_or(usize::MAX)
    }

    /// How many weak handles there are at this moment.
    #[must_use]
    pub fn weak_count(this: &Self) -> usize {
        usize::try_from(this.head().weak()).unwrap_or(usize::MAX)
    }

    /// A handle that does not keep the value. The first one allocates.
    #[must_use]
    pub fn downgrade(this: &Self) -> ScalableWeak<T> {
        this.head().acquire_weak();
        ScalableWeak::counted(this.untagged())
    }

    /// The value, if this is the only handle; or else the handle back. Weak handles do not count.
    ///
    /// Cost: on a hot object of which this is the last owner, as that owner's drop.
    ///
    /// # Errors
    /// The handle, if there are others.
    pub fn try_unwrap(this: Self) -> Result<T, Self> {
        if this.head().try_release_last(this.tag()) {
            // SAFETY: the last handle was given up just above.
            Ok(unsafe { this.take() })
        } else {
            Err(this)
        }
    }

    /// Gives the handle up: the value, if it was the last one.
    ///
    /// Of handles given up this way, in however many threads, exactly one gets the value.
    #[must_use = "the value is dropped otherwise"]
    pub fn into_inner(this: Self) -> Option<T> {
        let is_last = this.head().release(this.tag());
        if is_last {
            // SAFETY: the last handle was given up just above.
            return Some(unsafe { this.take() });
        }
        std::mem::forget(this);
        None
    }

    /// Moves the value out and frees the memory unless there are weak handles.
    ///
    /// # Safety
    /// The count is zero, by this handle.
    unsafe fn take(self) -> T {
        let this = ManuallyDrop::new(self);
        // SAFETY: nobody else has a handle (scalable_arc.A3), and nobody will look at the value
        // again.
        let value = unsafe { ManuallyDrop::take(&mut (*this.inner()).value) };
        // SAFETY: the value has been taken.
        unsafe { weak::release_memory(this.untagged()) };
        value
    }

    /// Makes the object hot, without waiting for contention. All handles that exist become its
    /// owners. Returns whether it is hot: no if it was hot 15 times before, was retired, or if 4096
    /// others are hot.
    pub fn promote(this: &Self) -> bool {
        this.head().promote()
    }

    /// Makes the object cold. Contention may undo it.
    ///
    /// Cost: as the drop of the last owner. Blocks for the clones and drops that are under way.
    pub fn demote(this: &Self) {
        this.head().demote();
    }

    /// Whether the object is hot at this moment.
    #[must_use]
    pub fn is_distributed(this: &Self) -> bool {
        this.head().is_hot()
    }

    /// Ends the object's public life: no weak handle can be upgraded after this, and the object
    /// stays cold. Its value is dropped with the last handle, as ever. Returns whether this call
    /// did it; false if it was retired before.
    ///
    /// What for: an entry that was taken out of its table, so that nobody finds it any more. Cost
    /// and progress: as [`demote`](Self::demote).
    pub fn retire(this: &Self) -> bool {
        this.head().retire()
    }

    /// Whether the object was [retired](Self::retire).
    #[must_use]
    pub fn is_retired(this: &Self) -> bool {
        this.head().is_retired()
    }

    /// The rest of a drop, after what the fast part has found.
    #[cold]
    #[inline(never)]
    fn drop_slow(&self, released: Option<bool>) {
        if released.unwrap_or_else(|| self.head().release_slow(self.tag())) {
            self.destroy();
        }
    }

    /// Drops the value and frees the memory unless there are weak handles.
    fn destroy(&self) {
        struct Memory<T>(NonNull<Inner<T>>);
        impl<T> Drop for Memory<T> {
            fn drop(&mut self) {
                // SAFETY: the value has been dropped, or its destructor has panicked and it is not
                // touched again.
                unsafe { weak::release_memory(self.0) };
            }
        }
        let memory = Memory(self.untagged());
        // SAFETY: only called with the count at zero (scalable_arc.A3): nobody else looks at the
        // value.
        unsafe { ManuallyDrop::drop(&mut (*memory.0.as_ptr()).value) };
    }
}

impl<T> Clone for ScalableArc<T> {
    #[inline]
    fn clone(&self) -> Self {
        let tag = self.head().acquire();
        Self::counted(self.untagged(), tag)
    }
}

impl<T> Drop for ScalableArc<T> {
    #[inline]
    fn drop(&mut self) {
        if sync::model_failed() {
            return;
        }
        let released = self.head().release_fast(self.tag());
        if released != Some(false) {
            self.drop_slow(released);
        }
    }
}

impl<T> Deref for ScalableArc<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: this handle keeps the value, and nobody changes it while there is one.
        unsafe { &(*self.inner()).value }
    }
}

impl<T> AsRef<T> for ScalableArc<T> {
    fn as_ref(&self) -> &T {
        self
    }
}

impl<T> Borrow<T> for ScalableArc<T> {
    fn borrow(&self) -> &T {
        self
    }
}

impl<T> From<T> for ScalableArc<T> {
    fn from(value: T) -> Self {
        Self::new(value)
    }
}

impl<T: Default> Default for ScalableArc<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T: fmt::Debug> fmt::Debug for ScalableArc<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: fmt::Display> fmt::Display for ScalableArc<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: PartialEq> PartialEq for ScalableArc<T> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl<T: Eq> Eq for ScalableArc<T> {}

impl<T: PartialOrd> PartialOrd for ScalableArc<T> {
    fn partial_cmp(&self, other: &Self) -> Option<cmp::Ordering> {
        (**self).partial_cmp(&**other)
    }
}

impl<T: Ord> Ord for ScalableArc<T> {
    fn cmp(&self, other: &Self) -> cmp::Ordering {
        (**self).cmp(&**other)
    }
}

impl<T: Hash> Hash for ScalableArc<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}
