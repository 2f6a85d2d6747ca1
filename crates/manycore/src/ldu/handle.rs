//! Handles that own a member: [`Attached`] while it is in the set, and [`Detached`] while it is
//! not.
//!
//! Owns: the handles, which make ldu.U1 and ldu.U3 rules of the compiler. A member goes from
//! [`Attached`] to [`Detached`] and back by moves, and its memory belongs to the handle or to the
//! set.

use super::links::{Element, Linked};
use super::retired::retire;
use super::set::DeferredSet;
use super::structure::Structure;
use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::ptr::NonNull;

/// A member that is in the set. Dropping the handle removes and frees the member;
/// [`remove`](Self::remove) keeps it.
///
/// See [`DeferredSet`] for an example.
///
/// A member cannot be inserted twice:
///
/// ```compile_fail,E0382
/// use manycore::ldu::{DeferredSet, Element, Structure};
///
/// struct Nothing;
/// impl Structure<Element<u8>> for Nothing {
///     fn insert(&mut self, _: &Element<u8>) {}
///     fn remove(&mut self, _: &Element<u8>) {}
/// }
/// let set = DeferredSet::new(Nothing);
/// let detached = set.add(1).remove();
/// let first = detached.insert();
/// let second = detached.insert(); // moved already
/// ```
///
/// It cannot be removed twice:
///
/// ```compile_fail,E0382
/// # use manycore::ldu::{DeferredSet, Element, Structure};
/// # struct Nothing;
/// # impl Structure<Element<u8>> for Nothing {
/// #     fn insert(&mut self, _: &Element<u8>) {}
/// #     fn remove(&mut self, _: &Element<u8>) {}
/// # }
/// let set = DeferredSet::new(Nothing);
/// let attached = set.add(1);
/// let once = attached.remove();
/// let twice = attached.remove(); // moved already
/// ```
#[must_use = "dropping the handle removes the member"]
pub struct Attached<'s, T: Structure<E>, E: Linked> {
    set: &'s DeferredSet<T, E>,
    member: NonNull<E>,
}

/// A member that is not in the set, but may still be in one of its queues.
///
/// ```
/// use manycore::ldu::{DeferredSet, Element, Structure};
///
/// # #[derive(Default)]
/// # struct Sum(u64);
/// # impl Structure<Element<u64>> for Sum {
/// #     fn insert(&mut self, number: &Element<u64>) {
/// #         self.0 += **number;
/// #     }
/// #     fn remove(&mut self, number: &Element<u64>) {
/// #         self.0 -= **number;
/// #     }
/// # }
/// let set = DeferredSet::new(Sum(0));
/// let out = set.add(5).remove();
/// assert_eq!(set.read().0, 0);
/// let mut value = out.into_box(); // changed where no set looks
/// **value += 1;
/// let member = set.insert(value);
/// assert_eq!(set.read().0, 6);
/// # drop(member);
/// ```
#[must_use = "dropping the handle frees the member"]
pub struct Detached<'s, T: Structure<E>, E: Linked> {
    set: &'s DeferredSet<T, E>,
    member: NonNull<E>,
}

// SAFETY: a handle that moves takes along shared access to the set (`DeferredSet` is `Sync`) and to
// the member, which may be freed on the other thread: `Linked` is `Send + Sync`.
unsafe impl<T: Structure<E>, E: Linked> Send for Attached<'_, T, E> {}
// SAFETY: a shared handle gives out only `&E` and the set: `Linked` and `DeferredSet` are `Sync`.
unsafe impl<T: Structure<E>, E: Linked> Sync for Attached<'_, T, E> {}
// SAFETY: a moved handle is shared access to the set, and to a member that may be freed or
// taken back on the other thread: `Linked` is `Send + Sync`.
unsafe impl<T: Structure<E>, E: Linked> Send for Detached<'_, T, E> {}
// SAFETY: a shared handle gives out only `&E` and the set: `Linked` and `DeferredSet` are `Sync`.
unsafe impl<T: Structure<E>, E: Linked> Sync for Detached<'_, T, E> {}

impl<T: Structure<E>, E: Linked> DeferredSet<T, E> {
    /// Inserts a member. The next read sees it.
    #[inline]
    pub fn insert(&self, member: Box<E>) -> Attached<'_, T, E> {
        let member = NonNull::from(Box::leak(member));
        // SAFETY: the box was not shared, and its memory belongs to the set from here on. All
        // further calls for the member come from this handle (ldu.U1).
        unsafe { self.insert_raw(member) };
        Attached { set: self, member }
    }
}

impl<T: Structure<Element<V>>, V: Send + Sync + 'static> DeferredSet<T, Element<V>> {
    /// Inserts a value, in a box with links: the [`insert`](Self::insert) for types that have no
    /// links.
    #[inline]
    pub fn add(&self, value: V) -> Attached<'_, T, Element<V>> {
        self.insert(Box::new(Element::new(value)))
    }
}

impl<'s, T: Structure<E>, E: Linked> Attached<'s, T, E> {
    /// Takes the member out. The next read does not see it any more.
    #[inline]
    pub fn remove(self) -> Detached<'s, T, E> {
        let this = ManuallyDrop::new(self);
        // SAFETY: ldu.U1 - this handle was the only one, and is spent.
        unsafe { this.set.remove_raw(this.member) };
        Detached { set: this.set, member: this.member }
    }
}

impl<'s, T: Structure<E>, E: Linked> Detached<'s, T, E> {
    /// Puts the member back into its set. Whichever thread removed it, the removal and this
    /// insertion cancel.
    #[inline]
    pub fn insert(self) -> Attached<'s, T, E> {
        let this = ManuallyDrop::new(self);
        // SAFETY: ldu.U1 - this handle was the only one, and is spent.
        unsafe { this.set.insert_raw(this.member) };
        Attached { set: this.set, member: this.member }
    }

    /// Takes the member back, to change it or to insert it elsewhere. If the member is still in a
    /// queue, this takes a read of the set.
    ///
    /// # Panics
    /// As for [`DeferredSet::read`], if a read is needed. Then a later drain frees the member.
    #[must_use]
    pub fn into_box(self) -> Box<E> {
        // SAFETY: the handle is the only one, and the member is not attached.
        unsafe { self.set.dequeue_raw(self.member) };
        let this = ManuallyDrop::new(self);
        // SAFETY: it came from a box, no queue has it, and the handle is spent.
        unsafe { Box::from_raw(this.member.as_ptr()) }
    }
}

impl<T: Structure<E>, E: Linked> Deref for Attached<'_, T, E> {
    type Target = E;

    #[inline]
    fn deref(&self) -> &E {
        // SAFETY: ldu.U3 - the member lives as long as its handle.
        unsafe { self.member.as_ref() }
    }
}

impl<T: Structure<E>, E: Linked> Deref for Detached<'_, T, E> {
    type Target = E;

    #[inline]
    fn deref(&self) -> &E {
        // SAFETY: ldu.U3 - the member lives as long as its handle.
        unsafe { self.member.as_ref() }
    }
}

impl<T: Structure<E>, E: Linked> Drop for Attached<'_, T, E> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: ldu.U1, ldu.U3 - this handle was the only one; from here on the set frees the
        // member.
        unsafe { self.set.retire_raw(self.member) };
    }
}

impl<T: Structure<E>, E: Linked> Drop for Detached<'_, T, E> {
    fn drop(&mut self) {
        // SAFETY: this handle was the only one; the member is not attached.
        unsafe { retire(self.member) };
    }
}

impl<T: Structure<E>, E: Linked + fmt::Debug> fmt::Debug for Attached<'_, T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Attached").field(&**self).finish()
    }
}

impl<T: Structure<E>, E: Linked + fmt::Debug> fmt::Debug for Detached<'_, T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Detached").field(&**self).finish()
    }
}
