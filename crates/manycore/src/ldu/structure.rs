//! What a set keeps up to date: the user's structure.

use std::ptr::NonNull;

/// What a [`DeferredSet`](super::DeferredSet) keeps up to date: any single-threaded structure.
///
/// Calls for one member alternate, `insert` first. Calls for different members come in any order:
/// the structure must not care (ldu.U2). They come later than the changes, on whichever thread
/// reads, under the set's lock.
///
/// A member stays where it is, alive and unchanged, from the call of `insert` until that of
/// `remove` has returned, or the set is gone. So a structure that knows what it does may keep
/// pointers instead of copies. (It may find after a panic of its own that a call counted that did
/// not do its work: ldu.U7 of the [module](super).)
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
    /// The member is in the set.
    fn insert(&mut self, member: &E);

    /// The member is not in the set any more.
    fn remove(&mut self, member: &E);

    /// As [`insert`](Self::insert), which it calls; for a structure that frees members, and so
    /// needs the pointer that the set has, not one made of a reference.
    ///
    /// # Safety
    /// The member is alive, and nothing changes it during the call but its marks.
    #[doc(hidden)]
    unsafe fn insert_at(&mut self, member: NonNull<E>) {
        // SAFETY: the caller promises that the member is alive, and that nothing changes it during
        // the call but its marks, which are atomic (# Safety).
        self.insert(unsafe { member.as_ref() });
    }

    /// As [`remove`](Self::remove), which it calls.
    ///
    /// # Safety
    /// As [`insert_at`](Self::insert_at).
    #[doc(hidden)]
    unsafe fn remove_at(&mut self, member: NonNull<E>) {
        // SAFETY: the caller promises that the member is alive, and that nothing changes it during
        // the call but its marks, which are atomic (# Safety).
        self.remove(unsafe { member.as_ref() });
    }
}
