//! Typed pointers to nodes: [`Atomic`] is a link, [`Shared`] a pointer that a section may follow,
//! and [`Owned`] a node that no other thread has.
//!
//! Owns: the node's header (the era of its birth), its layout (`node`), and the tag in a link: the
//! bits that are zero in every node's address. A `Shared` also knows whether it is *wild*: loaded
//! with a tag in a bounded domain, so it must not be followed (section.E4).

mod atomic;
mod node;
mod owned;
mod shared;

pub(crate) use atomic::Look;
pub use atomic::{Atomic, CompareExchangeError};
pub use node::Pointable;
pub use owned::Owned;
pub use shared::Shared;

use node::Header;

/// A pointer that can be put into an [`Atomic`]: a [`Shared`], or an [`Owned`], which becomes a
/// `Shared`.
///
/// See [`CompareExchangeError`] for an example with both.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be linked as a node of type `{T}`",
    note = "link an `Owned<{T}>` or a `Shared<{T}>`; `Owned::new(value)` makes a node"
)]
pub trait Pointer<T: ?Sized + Pointable>: sealed::Sealed<T> {}
impl<T: ?Sized + Pointable> Pointer<T> for Owned<T> {}
impl<T: ?Sized + Pointable> Pointer<T> for Shared<'_, T> {}

mod sealed {
    pub trait Sealed<T: ?Sized>: Sized {
        /// Returns the bits for a link that is about to be written in `section`.
        #[doc(hidden)]
        fn publish(self, section: &super::super::Section<'_>) -> *mut super::Header;
        /// Takes back a published pointer that was not linked after all.
        ///
        /// # Safety
        /// `raw` came from `publish` and was linked nowhere.
        #[doc(hidden)]
        unsafe fn recover(raw: *mut super::Header) -> Self;
    }
}

#[cfg(all(test, not(any(manycore_loom, manycore_shuttle))))]
mod tests;
