//! The count of weak handles, and the check whether a handle is the only one of either kind
//! (count.A9).

use super::super::word::TOO_MANY;
use super::{Folding, Head, LOCKED};
use crate::sync::{self, Backoff, LoadToChange, Ordering, fence};

impl Head {
    /// Counts a weak handle.
    pub(in super::super) fn acquire_weak(&self) {
        let weak = &self.side().weak.0;
        let mut backoff = Backoff::new();
        loop {
            // ORDER: Relaxed; the exchange decides.
            let seen = weak.load_to_change(Ordering::Relaxed);
            if seen == LOCKED {
                backoff.pause();
                continue;
            }
            if seen >= TOO_MANY {
                std::process::abort(); // as `Arc` does
            }
            // ORDER: Acquire; pairs with Release in `is_unique`. The caller has a handle, weak or
            // not.
            let added = weak.compare_exchange(seen, seen + 1, Ordering::Acquire, Ordering::Relaxed);
            if added.is_ok() {
                return;
            }
        }
    }

    /// Returns true if the handle of this tag is the only one, weak ones included
    /// (count.A9). The caller has the handle, and lets no other thread use it.
    pub(in super::super) fn is_unique(&self, tag: u64) -> bool {
        let Some(side) = self.side_if_any() else {
            // If a side is made after the first look at the count, the second look, at the side,
            // sees it. The side was made by a handle that was dropped since, or still exists.
            return self.word_of_only(tag).is_some() && self.side_if_any().is_none();
        };
        let _locked = Folding::begin(); // a fork waits, too, until it is unlocked
        let weak = &side.weak.0;
        // BUG: a weak handle is made while a thread takes its handle for the only one
        // (count.A9).
        if sync::seeded_bug!("weak-unlocked") {
            return weak.load(Ordering::Acquire) == 1 && self.word_of_only(tag).is_some();
        }
        // ORDER: Acquire; pairs with Release in `release_weak`: the upgrades of a weak handle that
        // is gone, and what was read by it. Relaxed on failure, which decides nothing.
        if weak.compare_exchange(1, LOCKED, Ordering::Acquire, Ordering::Relaxed).is_err() {
            return false;
        }
        let is_only = self.word_of_only(tag).is_some();
        // ORDER: Release; pairs with Acquire in `acquire_weak`: the look at the count before the
        // next weak handle.
        weak.store(1, Ordering::Release);
        is_only
    }

    /// Uncounts a weak handle, or the one that all strong handles have together. Returns true if it
    /// was the last: the caller frees the memory.
    #[inline]
    pub(in super::super) fn release_weak(&self) -> bool {
        // There is none only if there never was a weak handle.
        // ORDER: Release; pairs with the fence below: what was done with the memory.
        if self.side_if_any().is_none_or(|side| side.weak.0.fetch_sub(1, Ordering::Release) == 1) {
            // ORDER: Acquire; see above.
            fence(Ordering::Acquire);
            return true;
        }
        false
    }

    /// Returns the number of weak handles.
    pub(in super::super) fn weak(&self) -> u64 {
        let Some(side) = self.side_if_any() else { return 0 };
        // ORDER: Relaxed; a number.
        match side.weak.0.load(Ordering::Relaxed) {
            LOCKED => 0,
            weak => weak - 1,
        }
    }
}
