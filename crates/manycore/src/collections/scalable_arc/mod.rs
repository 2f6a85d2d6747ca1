//! A shared reference with a distributed count.
//!
//! Owns: [`ScalableArc`], [`ScalableWeak`], the value and its memory. The count and its laws,
//! count.A1 to count.A8, are in `count`.
//!
//! In short: while the object is cold, a clone or drop is an exchange on one word, as with `Arc`.
//! While it is hot, clones and drops are counted in the row of the thread's slot. The handles that
//! existed when the object became hot stay counted in the word, so the word alone proves that the
//! object is alive. The drop of the last of these handles folds the rows into the word. So nothing
//! is reviewed later and there is no garbage: the drop of the last handle drops the value.

mod contention;
mod count;
mod generation;
#[cfg(all(test, manycore_loom))]
mod loom_tests;
mod slices;
mod traits;
mod weak;
mod word;

pub use weak::ScalableWeak;

use generation::{Changing, is_still, read};

use crate::sync;
use count::Head;
use std::borrow::Borrow;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::ptr::NonNull;
use word::{CENTRAL, TAGS};

/// The allocation that handles point to. Aligned so that a handle's tag fits into the low bits of
/// its address.
#[repr(C, align(16))]
struct Inner<T: ?Sized> {
    head: Head,
    value: ManuallyDrop<T>,
}

const TAG_MASK: usize = TAGS as usize;
const _: () = assert!(align_of::<Inner<u8>>() > TAG_MASK, "a tag fits into the low bits");

/// A shared reference to a value, like `std::sync::Arc`, for values whose handles many threads
/// clone and drop all the time.
///
/// What for: an object that every request refers to by a handle, cloned and dropped, such as a root
/// directory, a routing table or the configuration. When not: handles that are made once for each
/// thread and kept (`Arc` is as fast). Nor objects without a long-lived handle, for example
/// messages that are passed on.
///
/// The value may be a `str` or a slice, made by `From` and `FromIterator`, and a `dyn` value by
/// [`into_raw`](Self::into_raw).
///
/// A *cold* object has a plain count. Contention or [`promote`](Self::promote) makes it *hot*: then
/// each thread counts on a cache line of its own. The handles that exist at that moment are the
/// object's *owners* while it is hot. When the last owner is dropped, the object becomes cold
/// again; when it next becomes hot, all its handles are owners. An object becomes hot at most 15
/// times, which is enough if owners outlive many clones. The drop of the last handle drops the
/// value, at once and in that thread, whether the object is hot or cold.
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
///
/// - Consistency: as `Arc`. [`strong_count`](Self::strong_count) is exact while no thread makes or
///   drops handles.
/// - Progress while hot: `clone` and `drop` are wait-free, with two exceptions. A thread's first
///   call may allocate its row. The drop of the last owner waits for the clones and drops that are
///   under way.
/// - Progress while cold: `clone` and `drop` are lock-free, except that a call may promote the
///   object, which allocates.
/// - Cost while cold: an exchange on one shared word, as with `Arc`.
/// - Cost while hot: about 3 ns, with no write to a shared line and no read-modify-write (one on
///   the thread's own line if the kernel has no `membarrier`). The drop of the last owner costs a
///   `membarrier` (a few microseconds) and a cache miss for each thread that has counted.
/// - Memory: a handle is one word. The object has 16 bytes besides its value, and is aligned to 16.
///   When it first becomes hot or weakly held it gets 640 bytes, kept until it is freed. While hot
///   it has 128 bytes for each thread, at least 4 KiB. At most 4096 objects are hot at the same
///   time; a further object stays cold until another one is [demoted](Self::demote) or freed.
/// - [`get_mut`](Self::get_mut) and [`make_mut`](Self::make_mut) change the value of an only
///   handle.
/// - Panics: if the value's destructor panics, the drop of the last handle panics, and the memory
///   is freed.
/// - A handle may be dropped anywhere, also in the destructor of a thread-local, but not in a
///   signal handler.
/// - Source: [OpLog](crate#sources), sections 3 and 5.2; the rule for detecting zero is not in the
///   paper.
///   paper.
#[doc(alias = "reference count")]
pub struct ScalableArc<T: ?Sized> {
    /// The address, with the tag in its low bits.
    tagged: NonNull<Inner<T>>,
    _owns: PhantomData<Inner<T>>,
}

// SAFETY: handles share the value (`T: Sync`), and the one that takes the count to zero
// (count.A3) drops it, on whatever thread it is (`T: Send`).
unsafe impl<T: ?Sized + Send + Sync> Send for ScalableArc<T> {}
// SAFETY: a shared handle gives out `&T` (`T: Sync`), and by `clone` a handle that drops the value
// on another thread (`T: Send`).
unsafe impl<T: ?Sized + Send + Sync> Sync for ScalableArc<T> {}

impl<T> ScalableArc<T> {
    /// Makes a cold object with one handle.
    #[must_use]
    pub fn new(value: T) -> Self {
        let inner = Box::new(Inner { head: Head::new(), value: ManuallyDrop::new(value) });
        Self::counted(NonNull::from(Box::leak(inner)), CENTRAL)
    }

    /// Returns the value if this is the only handle, else the handle. Weak handles do not count.
    ///
    /// Cost: if this is the last owner of a hot object, that of the last owner's drop.
    ///
    /// # Errors
    /// If this is not the only handle: returns the handle.
    pub fn try_unwrap(this: Self) -> Result<T, Self> {
        if this.head().try_release_last(this.tag()) {
            // SAFETY: the count went to zero just above, by this handle (count.A3).
            Ok(unsafe { this.take() })
        } else {
            Err(this)
        }
    }

    /// Consumes the handle. Returns the value if it was the last one.
    ///
    /// If all handles are consumed this way, on any number of threads, exactly one call returns the
    /// value.
    #[must_use = "the value is dropped otherwise"]
    pub fn into_inner(this: Self) -> Option<T> {
        let is_last = this.head().release(this.tag());
        if is_last {
            // SAFETY: the count went to zero just above, by this handle (count.A3).
            return Some(unsafe { this.take() });
        }
        std::mem::forget(this);
        None
    }

    /// Moves the value out. Frees the memory unless there are weak handles.
    ///
    /// # Safety
    /// This handle has taken the count to zero.
    unsafe fn take(self) -> T {
        let this = ManuallyDrop::new(self);
        // SAFETY: no other handle exists (count.A3), so nothing reads the value after this.
        let value = unsafe { ManuallyDrop::take(&mut (*this.inner()).value) };
        // SAFETY: the value has been taken.
        unsafe { weak::release_memory(this.untagged()) };
        value
    }

    /// Returns the value if this is the only handle, else a clone of it.
    #[must_use]
    pub fn unwrap_or_clone(this: Self) -> T
    where
        T: Clone,
    {
        Self::try_unwrap(this).unwrap_or_else(|shared| (*shared).clone())
    }

    /// Returns the value, to be changed in place. If there are other handles, weak ones included,
    /// this handle refers to a clone afterwards, and the others to the value as it was.
    ///
    /// ```
    /// use manycore::collections::ScalableArc;
    ///
    /// let mut mine = ScalableArc::new(1);
    /// let theirs = mine.clone();
    /// *ScalableArc::make_mut(&mut mine) += 1;
    /// assert_eq!((*mine, *theirs), (2, 1));
    /// ```
    #[doc(alias = "copy on write")]
    pub fn make_mut(this: &mut Self) -> &mut T
    where
        T: Clone,
    {
        if !this.head().is_unique(this.tag()) {
            *this = Self::new((**this).clone());
        }
        // SAFETY: this handle is the only one: it was found to be, or was just made.
        unsafe { this.value_mut() }
    }
}

impl<T: ?Sized> ScalableArc<T> {
    /// Makes a handle to `inner`, which has been counted with this tag.
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
        // SAFETY: this handle was counted and keeps the object alive (count.A3).
        unsafe { &(*self.inner()).head }
    }

    fn untagged(&self) -> NonNull<Inner<T>> {
        // SAFETY: an object is not at address zero.
        unsafe { NonNull::new_unchecked(self.inner()) }
    }

    /// Returns true if both handles refer to the same object.
    #[must_use]
    pub fn ptr_eq(this: &Self, other: &Self) -> bool {
        std::ptr::addr_eq(this.inner(), other.inner())
    }

    /// Returns the address of the value, valid as long as a handle exists.
    #[must_use]
    pub fn as_ptr(this: &Self) -> *const T {
        // SAFETY: this handle was counted and keeps the object alive (count.A3).
        (unsafe { &raw const (*this.inner()).value }) as *const T
    }

    /// Returns the value, to be changed in place, if this is the only handle, weak ones included.
    ///
    /// Cost: that of [`try_unwrap`](Self::try_unwrap).
    ///
    /// ```
    /// use manycore::collections::ScalableArc;
    ///
    /// let mut text = ScalableArc::<str>::from("abc");
    /// ScalableArc::get_mut(&mut text).unwrap().make_ascii_uppercase();
    /// assert_eq!(&*text, "ABC");
    /// let other = text.clone();
    /// assert!(ScalableArc::get_mut(&mut text).is_none());
    /// # drop(other);
    /// ```
    #[must_use]
    pub fn get_mut(this: &mut Self) -> Option<&mut T> {
        // SAFETY: this handle is the only one (count.A9).
        this.head().is_unique(this.tag()).then(|| unsafe { this.value_mut() })
    }

    /// # Safety
    /// There is no other handle, weak or not.
    unsafe fn value_mut(&mut self) -> &mut T {
        // SAFETY: without another handle no thread reads the value, and none can get a handle but
        // from this one, which is borrowed for as long.
        unsafe { &mut (*self.inner()).value }
    }

    /// Turns the handle into a pointer to its value. [`from_raw`](Self::from_raw) turns it back;
    /// otherwise the value is never dropped.
    ///
    /// Use it for foreign code, and for handles of a `dyn` type: the compiler converts pointers,
    /// but of handles only those of `std`.
    ///
    /// ```
    /// use manycore::collections::ScalableArc;
    /// use std::fmt::Display;
    ///
    /// let raw: *const i32 = ScalableArc::into_raw(ScalableArc::new(7));
    /// let raw: *const dyn Display = raw;
    /// // SAFETY: from `into_raw`, of the same value.
    /// let shown: ScalableArc<dyn Display> = unsafe { ScalableArc::from_raw(raw) };
    /// assert_eq!(shown.to_string(), "7");
    /// ```
    ///
    /// Cost: for a handle of a hot object, that of a clone on a cold one; the object gets one more
    /// owner.
    #[must_use = "the value is never dropped otherwise"]
    pub fn into_raw(this: Self) -> *const T {
        this.head().make_central(this.tag());
        Self::as_ptr(&ManuallyDrop::new(this))
    }

    /// Returns the handle that [`into_raw`](Self::into_raw) turned into this pointer.
    ///
    /// # Safety
    /// `raw` is from `into_raw` of a `ScalableArc<U>`, and is turned back once. `U` is `T`, or the
    /// pointer was converted from `*const U` to `*const T` by the compiler (to `dyn`, or to a
    /// slice).
    #[must_use]
    pub unsafe fn from_raw(raw: *const T) -> Self {
        // SAFETY: the caller promises that a handle keeps the value alive.
        let align = align_of_val(unsafe { &*raw });
        let offset = size_of::<Head>().next_multiple_of(align);
        // SAFETY: the value is so far behind the beginning of its allocation, as `repr(C)` has it,
        // and the pointer is from one to the whole allocation.
        let inner = unsafe { raw.byte_sub(offset) } as *mut Inner<T>;
        // SAFETY: inside an allocation, so not null.
        Self::counted(unsafe { NonNull::new_unchecked(inner) }, CENTRAL)
    }

    /// Returns the number of handles. It is an estimate while other threads make and drop handles;
    /// on a hot object it may be off by as many as they make and drop during the call. Do not base
    /// decisions on it: see [`try_unwrap`](Self::try_unwrap).
    ///
    /// Cost: a load; on a hot object a cache miss for each thread that has counted.
    #[must_use]
    pub fn strong_count(this: &Self) -> usize {
        usize::try_from(this.head().strong()).unwrap_or(usize::MAX)
    }

    /// Returns the number of weak handles at this moment.
    #[must_use]
    pub fn weak_count(this: &Self) -> usize {
        usize::try_from(this.head().weak()).unwrap_or(usize::MAX)
    }

    /// Returns a handle that does not keep the value alive. The first one allocates.
    #[must_use]
    pub fn downgrade(this: &Self) -> ScalableWeak<T> {
        this.head().acquire_weak();
        ScalableWeak::counted(this.untagged())
    }

    /// Makes the object hot, without waiting for contention. All handles that exist become its
    /// owners. Returns true if it is hot. Returns false if it was hot 15 times before, if it was
    /// retired, or if 4096 other objects are hot.
    pub fn promote(this: &Self) -> bool {
        this.head().promote()
    }

    /// Makes the object cold. Contention may make it hot again.
    ///
    /// Cost: that of the last owner's drop. Waits for the clones and drops that are under way.
    pub fn demote(this: &Self) {
        this.head().demote();
    }

    /// Returns true if the object is hot at this moment.
    #[must_use]
    pub fn is_hot(this: &Self) -> bool {
        this.head().is_hot()
    }

    /// Ends the object's public life: no weak handle can be upgraded after this, and the object
    /// stays cold. Its value is dropped with the last handle, as always. Returns true if this call
    /// retired it, false if it was retired before.
    ///
    /// What for: an entry that was removed from its table, so that no look-up can still take a
    /// handle. Cost and progress: those of [`demote`](Self::demote).
    pub fn retire(this: &Self) -> bool {
        this.head().retire()
    }

    /// Returns true if the object was [retired](Self::retire).
    #[must_use]
    pub fn is_retired(this: &Self) -> bool {
        this.head().is_retired()
    }

    /// Returns the object's current generation: see [`ScalableWeak::try_acquire`]. The generation
    /// is odd while the object is being [changed](Self::change). The first call allocates, as
    /// [`downgrade`](Self::downgrade) does.
    #[must_use]
    pub fn generation(this: &Self) -> u64 {
        read(this.head().generation())
    }

    /// Runs `f`, which changes what the object stands for, such as renaming a directory entry. A
    /// thread that looked at the object before gets no handle by the old generation.
    ///
    /// What `f` changes must be atomics, in the object or beside it, because other threads read
    /// them concurrently. `Relaxed` is enough on both sides. Consistency: changes of one object are
    /// serialized. Progress: waits for another change of the same object; readers never wait. Cost:
    /// an exchange and a store on a line that readers have to fetch again.
    ///
    /// `f` must not call `change` on the same object: that would deadlock.
    ///
    /// # Panics
    /// If `f` does; the change counts as complete then.
    pub fn change<R>(this: &Self, f: impl FnOnce() -> R) -> R {
        let _changing = Changing::begin(this.head().generation());
        f()
    }

    /// Returns another handle, if the object's generation is still `generation` after the handle
    /// was counted: see [`ScalableWeak::try_acquire`].
    #[must_use]
    pub fn try_acquire(this: &Self, generation: u64) -> Option<Self> {
        let handle = this.clone();
        is_still(this.head().generation(), generation).then_some(handle)
    }

    /// Clones a handle that the straight paths have not counted.
    #[cold]
    #[inline(never)]
    fn clone_slow(&self) -> Self {
        Self::counted(self.untagged(), self.head().acquire_slow())
    }

    /// Drops a handle that the straight paths have not uncounted.
    #[inline(never)]
    fn drop_slow(this: ManuallyDrop<Self>) {
        if this.head().is_lone() { this.destroy::<true>() } else { Self::drop_shared(this) }
    }

    /// Same, for a handle that is not the only one.
    #[inline(never)]
    fn drop_shared(this: ManuallyDrop<Self>) {
        if this.head().release_slow(this.tag()) {
            this.destroy::<false>();
        }
    }

    /// Drops the value. Frees the memory unless there are weak handles. `LONE`: the handle was
    /// found to be the only one of either kind (count.A3).
    fn destroy<const LONE: bool>(&self) {
        struct Memory<T: ?Sized, const LONE: bool>(NonNull<Inner<T>>);
        impl<T: ?Sized, const LONE: bool> Drop for Memory<T, LONE> {
            fn drop(&mut self) {
                if LONE {
                    // SAFETY: allocated as a box is (in `new`, or for a slice); there is neither
                    // another handle nor a side, and the value is gone (its field drops nothing).
                    return drop(unsafe { Box::from_raw(self.0.as_ptr()) });
                }
                // SAFETY: the value has been dropped, or its destructor has panicked and it is not
                // touched again.
                unsafe { weak::release_memory(self.0) };
            }
        }
        let memory = Memory::<T, LONE>(self.untagged());
        // SAFETY: called only when the count is zero (count.A3): no other thread can read
        // the value.
        unsafe { ManuallyDrop::drop(&mut (*memory.0.as_ptr()).value) };
    }
}

impl<T: ?Sized> Clone for ScalableArc<T> {
    #[inline]
    fn clone(&self) -> Self {
        let seen = self.head().look();
        if seen.takes_one_more() {
            self.head().acquire_central();
            return Self::counted(self.untagged(), CENTRAL);
        }
        if seen.is_hot() && self.head().add_straight(seen, 1) {
            return Self::counted(self.untagged(), seen.tag());
        }
        self.clone_slow()
    }
}

impl<T: ?Sized> Drop for ScalableArc<T> {
    #[inline]
    fn drop(&mut self) {
        if sync::model_failed() {
            return;
        }
        let is_done = match self.tag() {
            // SAFETY: as in `head`; without a tag, the address is the object's.
            CENTRAL => unsafe { &(*self.tagged.as_ptr()).head }.release_central(),
            tag => self.head().release_hot(tag),
        };
        if !is_done {
            // A copy, so that the handle itself need not be in memory.
            Self::drop_slow(ManuallyDrop::new(Self { tagged: self.tagged, _owns: PhantomData }));
        }
    }
}

impl<T: ?Sized> Deref for ScalableArc<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: this handle keeps the value alive, and nothing changes it while a handle exists
        // (count.A3).
        unsafe { &(*self.inner()).value }
    }
}

impl<T: ?Sized> AsRef<T> for ScalableArc<T> {
    fn as_ref(&self) -> &T {
        self
    }
}

impl<T: ?Sized> Borrow<T> for ScalableArc<T> {
    fn borrow(&self) -> &T {
        self
    }
}
