//! Generations: a reader checks that the object did not change between the look at it and taking
//! the handle. Law count.A8.
//!
//! Source: OpLog, section 3 (`stat`: the generation of a directory entry is read, the count is
//! taken, the generation is checked); the sequence lock of Linux.

use crate::sync::{AtomicU64, Backoff, Ordering, fence, seeded_bug};

/// A change in progress; dropping this ends it.
pub(super) struct Changing<'a> {
    generation: &'a AtomicU64,
    odd: u64,
}

impl<'a> Changing<'a> {
    pub(super) fn begin(generation: &'a AtomicU64) -> Self {
        let mut backoff = Backoff::new();
        loop {
            // ORDER: Relaxed; the exchange decides.
            let seen = generation.load(Ordering::Relaxed);
            // ORDER: Acquire; pairs with Release in `drop`: one change after the other.
            if seen % 2 == 0
                && generation
                    .compare_exchange(seen, seen + 1, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok()
            {
                // ORDER: Release; pairs with the fence in `is_still`: a reader that has read any
                // part of the change finds the generation odd or greater.
                fence(Ordering::Release);
                return Self { generation, odd: seen + 1 };
            }
            backoff.pause();
        }
    }
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        debug_assert!(self.odd % 2 == 1, "count.A8: a change that has not begun ends");
        // ORDER: Release; pairs with Acquire in `read`: a reader of this generation reads what the
        // change wrote.
        self.generation.store(self.odd + 1, Ordering::Release);
    }
}

pub(super) fn read(generation: &AtomicU64) -> u64 {
    // ORDER: Acquire; pairs with Release in `Changing::drop`.
    generation.load(Ordering::Acquire)
}

/// Returns true if nothing has changed since `then` was read, so that all loads in between are
/// consistent with each other (count.A8).
pub(super) fn is_still(generation: &AtomicU64, then: u64) -> bool {
    // ORDER: Acquire; pairs with the fence in `Changing::begin`: the loads before the fence come
    // before the second load of the generation.
    fence(Ordering::Acquire);
    // ORDER: Relaxed; behind the fence.
    let now = generation.load(Ordering::Relaxed);
    // BUG: a handle is taken whatever the object's generation has become (count.A8).
    then % 2 == 0 && (now == then || seeded_bug!("unchecked-generation"))
}
