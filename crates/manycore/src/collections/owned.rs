//! Handles that keep their collection alive, in place of borrowing it.
//!
//! Owns: [`Owner`], and how a handle and its collection are kept together.
//!
//! Laws:
//! - **owned.O1** An owner's target stays where it is as long as the owner, or a clone of it,
//!   lives.
//! - **owned.O2** A handle ends before the owner that it is kept with: it is the first field.

use super::ScalableArc;
use std::ops::Deref;
use std::sync::Arc;

/// A pointer that keeps a collection alive for an owned handle, such as
/// [`OwnedTimer`](super::OwnedTimer).
///
/// - [`Arc`]: each handle costs two read-modify-writes on one line, which all threads share. Take
///   it for handles that live long.
/// - [`ScalableArc`]: the same without a shared line, for handles that come and go on many threads.
/// - `&'static`: costs nothing, for a collection in a static or a leaked one.
///
/// Nothing else can be an owner, because the library relies on where the collection lies.
///
/// ```
/// use manycore::collections::{ActiveSet, ScalableArc};
///
/// let set = ScalableArc::new(ActiveSet::new());
/// let active = ActiveSet::register_owned(&set, 100_u64);
/// drop(set);
/// assert_eq!(active.set().oldest(), Some(100));
/// ```
///
/// # Safety
/// Implemented in this crate alone (owned.O1).
pub unsafe trait Owner: Deref<Target: Sized + 'static> + Clone + sealed::Sealed {}

mod sealed {
    pub trait Sealed {}
}

impl<C: 'static> sealed::Sealed for Arc<C> {}
impl<C: Send + Sync + 'static> sealed::Sealed for ScalableArc<C> {}
impl<C: 'static> sealed::Sealed for &'static C {}

// SAFETY: owned.O1 - the collection lies in the heap block of its counts.
unsafe impl<C: 'static> Owner for Arc<C> {}
// SAFETY: owned.O1 - as in an `Arc`; clones lead to the same block.
unsafe impl<C: Send + Sync + 'static> Owner for ScalableArc<C> {}
// SAFETY: owned.O1 - a static borrow never ends.
unsafe impl<C: 'static> Owner for &'static C {}

/// A handle and what keeps its collection (owned.O2).
pub(super) struct Kept<H, Q> {
    pub(super) handle: H,
    pub(super) owner: Q,
}

impl<H, Q: Owner> Kept<H, Q> {
    /// Makes a handle from the collection, with a clone of its owner.
    #[inline]
    pub(super) fn new(owner: &Q, make: impl FnOnce(&'static Q::Target) -> H) -> Self {
        let made: Result<Self, std::convert::Infallible> =
            Self::try_new(owner, |collection| Ok(make(collection)));
        match made {
            Ok(kept) => kept,
            Err(never) => match never {},
        }
    }

    /// As [`new`](Self::new), if a handle can be made.
    #[inline]
    pub(super) fn try_new<E>(
        owner: &Q,
        make: impl FnOnce(&'static Q::Target) -> Result<H, E>,
    ) -> Result<Self, E> {
        let owner = owner.clone();
        let collection: *const Q::Target = &*owner;
        // SAFETY: owned.O1 - the clone keeps the collection in place, and goes with the handle; the
        // handle, which alone has the borrow, ends before it (owned.O2).
        let handle = make(unsafe { &*collection })?;
        Ok(Self { handle, owner })
    }
}
