//! [`Owned`]: a node that no other thread can reach.

use super::super::guard::Section;
use super::node::{self, Header, Layouted, Pointable, RETIRED};
use super::sealed::Sealed;
use crate::sync::Ordering;
use std::borrow::{Borrow, BorrowMut};
use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// A node that no other thread can reach: a box that can be linked without a copy.
///
/// Memory: one block, with the value and a header of eight bytes (sixteen for a slice or a `str`).
/// [`section`](crate::section#memory) says where blocks come from. Because of the header, turning a
/// `Box` into a node, or a node into a `Box`, moves the value.
///
/// ```
/// use manycore::section::Owned;
///
/// let mut node = Owned::new(vec![1]);
/// node.push(2);
/// assert_eq!(node.into_inner(), [1, 2]);
///
/// let slice: Owned<[i32]> = (0..3).collect(); // or from a `Vec`, a `Box<[T]>`, a `&[T]`
/// assert_eq!(*slice, [0, 1, 2]);
/// let text: Owned<str> = "abc".into();
/// assert_eq!(&*text, "abc");
/// ```
pub struct Owned<T: ?Sized + Pointable> {
    node: NonNull<Header>,
    _owns: PhantomData<T>,
}

// SAFETY: an `Owned` owns its value, like a `Box`.
unsafe impl<T: ?Sized + Pointable + Send> Send for Owned<T> {}
// SAFETY: a shared `Owned` gives out `&T` alone, like a `Box`.
unsafe impl<T: ?Sized + Pointable + Sync> Sync for Owned<T> {}

impl<T> Owned<T> {
    /// Allocates a node with this value.
    #[inline(always)]
    pub fn new(value: T) -> Self {
        // SAFETY: just allocated.
        unsafe { Self::from_node(node::alloc(value)) }
    }

    /// As [`new`](Self::new), but in the memory of a retired node, if one is at hand: a node of
    /// this type that the calling thread retired and would free next (section.S13).
    #[inline(always)]
    pub(crate) fn new_in(value: T, section: &Section<'_>) -> Self {
        // A value with drop glue would have to be dropped first.
        let reused = if std::mem::needs_drop::<T>() {
            None
        } else {
            section.reuse_raw(<T as Layouted>::free)
        };
        match reused {
            // SAFETY: `T::free` would have freed it, and the caller owns it now.
            Some(memory) => unsafe { Self::from_node(node::alloc_in(memory, value)) },
            None => Self::new(value),
        }
    }

    /// Returns the value.
    pub fn into_inner(self) -> T {
        // SAFETY: a node of this type that only we have, and its owner does not drop it any more.
        unsafe { node::into_value(self.into_node()) }
    }

    /// Moves the value into a box: a node has a header and a box has none.
    ///
    /// ```
    /// use manycore::section::Owned;
    ///
    /// let node: Owned<i32> = Box::new(7).into();
    /// assert_eq!(*node.into_box(), 7);
    /// ```
    pub fn into_box(self) -> Box<T> {
        Box::new(self.into_inner())
    }
}

impl<T> Owned<[T]> {
    /// Moves the items into a vector.
    ///
    /// ```
    /// use manycore::section::Owned;
    ///
    /// let names = Owned::<[_]>::from(vec![String::from("ann"), String::from("bob")]);
    /// assert_eq!(names.into_vec(), ["ann", "bob"]);
    /// ```
    pub fn into_vec(self) -> Vec<T> {
        // SAFETY: a node of this type that only we have, and its owner does not drop it any more.
        unsafe { node::into_items(self.into_node()) }
    }
}

impl<T: ?Sized + Pointable> Owned<T> {
    /// # Safety
    /// `node` is a node of this type, and no other thread has it.
    pub(super) unsafe fn from_node(node: NonNull<Header>) -> Self {
        debug_assert!(
            // SAFETY: the caller has the node alone (# Safety).
            !unsafe { node.as_ref() }.is_retired(),
            "section.E1: a retired node is taken for one that no other thread has"
        );
        Self { node, _owns: PhantomData }
    }

    fn into_node(self) -> NonNull<Header> {
        ManuallyDrop::new(self).node
    }

    /// Returns the node, to be linked by a section with `birth` as the latest era that it has seen;
    /// zero if it is linked where no section is known.
    pub(super) fn born(self, birth: u64) -> *mut Header {
        debug_assert!(birth & RETIRED == 0, "section.E4: the eras have come to an end");
        let node = self.into_node();
        // SAFETY: only we have the node until it is linked.
        let header = unsafe { &node.as_ref().birth };
        // ORDER: Relaxed; published with the node.
        header.store(birth, Ordering::Relaxed);
        node.as_ptr()
    }
}

impl<T: ?Sized + Pointable> Sealed<T> for Owned<T> {
    #[inline(always)]
    fn publish(self, section: &Section<'_>) -> *mut Header {
        // The latest era that this section has seen. It was read before the node is linked
        // (section.E4), and this section itself may hold nodes born in it.
        self.born(section.upper())
    }

    unsafe fn recover(raw: *mut Header) -> Self {
        // SAFETY: the caller promises that `raw` came from `publish`, which never returns null, and
        // was linked nowhere (# Safety). So only the caller has the node.
        unsafe { Self::from_node(NonNull::new_unchecked(raw)) }
    }
}

impl<T: ?Sized + Pointable> Drop for Owned<T> {
    fn drop(&mut self) {
        // SAFETY: a node of this type that only we have.
        unsafe { T::free(self.node.cast()) }
    }
}

impl<T: ?Sized + Pointable> Deref for Owned<T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: only we have the node, and it lives until it is dropped.
        unsafe { &*T::value(self.node.as_ptr()) }
    }
}

impl<T: ?Sized + Pointable> DerefMut for Owned<T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: only we have the node, and it is borrowed exclusively.
        unsafe { &mut *T::value(self.node.as_ptr()) }
    }
}

impl<T> From<T> for Owned<T> {
    fn from(value: T) -> Self {
        Self::new(value)
    }
}

/// Moves the value.
impl<T> From<Box<T>> for Owned<T> {
    fn from(boxed: Box<T>) -> Self {
        Self::new(*boxed)
    }
}

/// Moves the items.
impl<T> From<Vec<T>> for Owned<[T]> {
    fn from(items: Vec<T>) -> Self {
        // SAFETY: just allocated.
        unsafe { Self::from_node(node::alloc_slice(items)) }
    }
}

/// Moves the items.
impl<T> From<Box<[T]>> for Owned<[T]> {
    fn from(items: Box<[T]>) -> Self {
        items.into_vec().into()
    }
}

impl<T: Clone> From<&[T]> for Owned<[T]> {
    fn from(items: &[T]) -> Self {
        items.to_vec().into()
    }
}

impl<T> FromIterator<T> for Owned<[T]> {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Self {
        Vec::from_iter(items).into()
    }
}

/// Moves the text.
impl From<String> for Owned<str> {
    fn from(text: String) -> Self {
        // SAFETY: just allocated; a `str` node is a node of its bytes.
        unsafe { Self::from_node(node::alloc_slice(text.into_bytes())) }
    }
}

impl From<&str> for Owned<str> {
    fn from(text: &str) -> Self {
        String::from(text).into()
    }
}

impl<T: Default> Default for Owned<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T: Clone> Clone for Owned<T> {
    /// Makes another node with a clone of the value.
    fn clone(&self) -> Self {
        Self::new(T::clone(self))
    }
}

impl<T: ?Sized + Pointable> AsRef<T> for Owned<T> {
    fn as_ref(&self) -> &T {
        self
    }
}

impl<T: ?Sized + Pointable> AsMut<T> for Owned<T> {
    fn as_mut(&mut self) -> &mut T {
        self
    }
}

impl<T: ?Sized + Pointable> Borrow<T> for Owned<T> {
    fn borrow(&self) -> &T {
        self
    }
}

impl<T: ?Sized + Pointable> BorrowMut<T> for Owned<T> {
    fn borrow_mut(&mut self) -> &mut T {
        self
    }
}

impl<T: ?Sized + Pointable + fmt::Debug> fmt::Debug for Owned<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

impl<T: ?Sized + Pointable + fmt::Display> fmt::Display for Owned<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&**self, f)
    }
}

/// The address of the value.
impl<T: ?Sized + Pointable> fmt::Pointer for Owned<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Pointer::fmt(&(&raw const **self), f)
    }
}
