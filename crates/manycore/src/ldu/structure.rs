//! The user's structure that a set keeps up to date.

use std::ptr::NonNull;

/// A structure that a [`DeferredSet`](super::DeferredSet) keeps up to date: any single-threaded
/// structure.
///
/// Calls for one member alternate, `insert` first. Calls for different members come in any order,
/// and the structure must not care (ldu.U2). They come later than the changes, on whichever thread
/// reads, under the set's lock.
///
/// From the call of `insert` until the call of `remove` has returned, or until the set is gone, a
/// member stays where it is, alive and unchanged. So a structure with `unsafe` code may keep
/// pointers instead of copies. (After a panic of its own, it may find that a call counted although
/// it did not do its work: ldu.U7 of the [module](super).)
///
/// ```
/// use manycore::ldu::{DeferredSet, Element, Structure};
/// use std::collections::BTreeMap;
///
/// /// How many members there are of each kind: two changes of different members commute.
/// #[derive(Default)]
/// struct Kinds(BTreeMap<&'static str, usize>);
/// impl Structure<Element<&'static str>> for Kinds {
///     fn insert(&mut self, kind: &Element<&'static str>) {
///         *self.0.entry(**kind).or_default() += 1;
///     }
///     fn remove(&mut self, kind: &Element<&'static str>) {
///         *self.0.get_mut(**kind).unwrap() -= 1; // was inserted before
///     }
/// }
///
/// let animals = DeferredSet::new(Kinds::default());
/// let (cat, dog, other_cat) = (animals.add("cat"), animals.add("dog"), animals.add("cat"));
/// drop(dog);
/// assert_eq!(animals.read().0.get("cat"), Some(&2));
/// assert_eq!(animals.read().0.get("dog").copied().unwrap_or(0), 0);
/// # drop((cat, other_cat));
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` can not be kept up to date with members of type `{E}`",
    label = "lacks `Structure<{E}>`",
    note = "implement `manycore::ldu::Structure`: what an insertion and a removal do to it"
)]
pub trait Structure<E>: Send {
    /// Notes that the member is in the set.
    fn insert(&mut self, member: &E);

    /// Notes that the member is not in the set any more.
    fn remove(&mut self, member: &E);

    /// Calls [`insert`](Self::insert). A structure that frees members overrides this, because it
    /// needs the pointer that the set has, not one made from a reference.
    ///
    /// # Safety
    /// The member is alive, and during the call only its marks change.
    #[doc(hidden)]
    unsafe fn insert_at(&mut self, member: NonNull<E>) {
        // SAFETY: the caller promises that the member is alive, and that during the call only its
        // marks change, which are atomic (# Safety).
        self.insert(unsafe { member.as_ref() });
    }

    /// Calls [`remove`](Self::remove); see [`insert_at`](Self::insert_at).
    ///
    /// # Safety
    /// As for [`insert_at`](Self::insert_at).
    #[doc(hidden)]
    unsafe fn remove_at(&mut self, member: NonNull<E>) {
        // SAFETY: the caller promises that the member is alive, and that during the call only its
        // marks change, which are atomic (# Safety).
        self.remove(unsafe { member.as_ref() });
    }
}
