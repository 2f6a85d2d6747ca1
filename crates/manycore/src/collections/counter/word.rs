//! The word that leads to a group's cells, and every transition between its states.
//!
//! Owns: the stores and exchanges. The bits are those of [`Word`], which [`promotion`] reads.
//!
//! [`promotion`]: crate::oplog::promotion

use crate::config::SMALL;
use crate::oplog::promotion::Word;
use crate::sync::{AtomicUsize, Ordering};
use std::ptr;

/// Zero while the group is cold, else the [`Word`] of its cells.
pub(super) struct GroupWord(AtomicUsize);

impl GroupWord {
    /// Makes the word of a cold group.
    #[cfg(not(manycore_loom))]
    pub(super) const fn new() -> Self {
        Self(AtomicUsize::new(0))
    }

    /// Makes the word of a cold group.
    #[cfg(manycore_loom)]
    pub(super) fn new() -> Self {
        Self(AtomicUsize::new(0))
    }

    /// Returns the address that stands for the group in a thread's memory of it; only to compare.
    #[inline(always)]
    pub(super) fn address(&self) -> usize {
        ptr::from_ref(self).addr()
    }

    /// Returns the word for `promotion`, which only loads it.
    #[inline(always)]
    pub(super) fn raw(&self) -> &AtomicUsize {
        &self.0
    }

    /// Returns the word to a thread that may follow it.
    #[inline(always)]
    pub(super) fn load(&self) -> Word {
        // ORDER: Acquire; pairs with Release in `publish`: the cells before their address.
        Word::load(&self.0, Ordering::Acquire)
    }

    /// Returns the word to a thread that only wants a hint, or has the group alone.
    #[inline(always)]
    pub(super) fn hint(&self) -> Word {
        // ORDER: Relaxed; nothing is reached by it.
        Word::load(&self.0, Ordering::Relaxed)
    }

    /// Makes a cold group lead to the cells of `hot`. Returns false if the group has cells already.
    pub(super) fn publish(&self, hot: Word) -> bool {
        debug_assert!(hot.is_open(), "cells.N3: {hot:?} is published");
        // ORDER: AcqRel; Release publishes the cells.
        self.0.compare_exchange(0, hot.raw(), Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Closes the group to updaters. Returns true to exactly one thread, which folds the cells
    /// (cells.N4).
    pub(super) fn close(&self, open: Word) -> bool {
        let closing = open.closing().raw();
        // ORDER: AcqRel; the winner folds alone.
        self.0.compare_exchange(open.raw(), closing, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Makes a closed group cold. Called by the thread that has closed and folded it.
    pub(super) fn make_cold(&self, open: Word) {
        debug_assert!(
            SMALL || self.hint() == open.closing(),
            "cells.N4: {:?} becomes cold",
            self.hint()
        );
        // ORDER: Release; pairs with Acquire in `load`: the values before the zero.
        self.0.store(0, Ordering::Release);
    }
}
