//! The end of a member: its memory is freed by its owner, or by the drain that lets it go last
//! (ldu.U3, ldu_word.M4).

use super::links::{Linked, links_of};
use crate::sync::seeded_bug;
use std::ptr::NonNull;

/// A member that was given up: dropping this frees it.
pub(super) struct Retired<E: Linked>(NonNull<E>);

impl<E: Linked> Drop for Retired<E> {
    fn drop(&mut self) {
        // SAFETY: ldu_word.M4 of `word` - no reference to the member is left, and a `Retired` is
        // made once.
        unsafe {
            (*links_of(self.0).as_ptr()).is_over();
            E::free(self.0);
        }
    }
}

impl<E: Linked> Retired<E> {
    /// # Safety
    /// `member` was given up and is in no queue, and this is called once for it.
    pub(super) unsafe fn new(member: NonNull<E>) -> Self {
        debug_assert!(
            // SAFETY: ldu_word.M4 - the caller has the member alone (# Safety).
            !unsafe { links_of(member).as_ref() }.load().is_attached(),
            "ldu.U1: a member is freed while it is in the set"
        );
        Self(member)
    }
}

/// Frees a member that is not attached, or leaves that to the drain if a queue has the member
/// (ldu.U3).
///
/// # Safety
/// The caller owns the member, which is not attached, and does not touch it afterwards.
pub(super) unsafe fn retire<E: Linked>(member: NonNull<E>) {
    // SAFETY: ldu.U3 - the caller promises that it owns the member (# Safety), so the member is
    // alive until the change that gives it up.
    let marks = unsafe { &*links_of(member).as_ptr() };
    let mut word = marks.load_for_change();
    // BUG: a member is freed while it is queued (`ldu`, ldu.U3).
    while word.is_queued() && !seeded_bug!("free-queued") {
        match marks.change(word, word.given_up()) {
            Ok(()) => return,
            Err(now) => word = now,
        }
    }
    // SAFETY: no queue and no drain has the member (the load shows everything that a drain did),
    // and its owner is here.
    drop(unsafe { Retired::new(member) });
}
