//! Members that are modified before they join a set. The changes are delivered when they join.
//!
//! For an owner that changes a few members under its own lock, before it makes a set of them. A
//! member's word says what it would say if the set had existed all the time and had not been read
//! since (ldu_word.M1 of `word`). So the set takes such members over as they are: members with a
//! change that the structure was not told about (*untold*) count as queued.
//!
//! The owner's lock is held during every call, and the set is published under it, or after it.

use super::links::{Linked, Links, links_of};
use super::set::DeferredSet;
use super::structure::Structure;
use super::word::{Change, Word};
use crate::sync::{AtomicU64, Ordering};
use std::ptr::NonNull;

impl Links {
    #[inline]
    fn untold(&self) -> Word {
        // ORDER: Relaxed; guarded by the owner's lock, like everything here.
        Word(self.word.load(Ordering::Relaxed))
    }

    #[inline]
    fn set_untold(&self, word: Word) {
        self.word.store(word.0, Ordering::Relaxed);
    }

    /// Makes the links of a new member that its structure is still to be told about.
    #[inline]
    pub(crate) fn coming() -> Self {
        let mut links = Self::new();
        links.word = AtomicU64::new(Word::NEW.after(Change::Insert, 0).0);
        links
    }

    /// Returns true if the structure is still to be told about the member: that it came, or has
    /// gone.
    #[inline]
    pub(crate) fn is_untold(&self) -> bool {
        self.untold().is_queued()
    }

    /// Returns true if the member has not gone.
    #[inline]
    pub(crate) fn is_here(&self) -> bool {
        self.untold().is_attached()
    }

    /// Returns true if the member has not gone. Then the structure is about to be told that it
    /// came, and this notes it as told.
    #[inline]
    pub(crate) fn note_told_if_here(&self) -> bool {
        let word = self.untold();
        if word.is_attached() {
            self.set_untold(word.telling(true).told());
        }
        word.is_attached()
    }

    /// Removes for good a member that the structure has been told about. The structure is to be
    /// told of that, too.
    #[inline]
    pub(crate) fn go(&self) {
        self.set_untold(self.untold().after(Change::Recycle, 0));
    }
}

impl<T: Structure<E>, E: Linked> DeferredSet<T, E> {
    /// Takes over the members of the set's structure that it is still to be told about.
    ///
    /// # Safety
    /// These are all members that are untold, each once. The memory of each is held until the set
    /// lets it go, as after [`insert_raw`](Self::insert_raw) or [`retire_raw`](Self::retire_raw).
    pub(crate) unsafe fn take_over(&mut self, untold: impl IntoIterator<Item = NonNull<E>>) {
        let state = &mut *self.state;
        // SAFETY: drain.R1 - the caller promises members that are queued and in no other place
        // (# Safety); `&mut self` is more than the lock.
        state.pending.with_mut(|pending| unsafe {
            (*pending).carry.extend(untold.into_iter().map(|member| links_of(member)));
            // ORDER: Relaxed; `&mut self`.
            state.read_side.is_clean.store((*pending).is_clean(), Ordering::Relaxed);
        });
    }
}
