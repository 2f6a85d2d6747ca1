//! Counts of scheduled and finished call-backs, in two generations (capi.A4).
//!
//! A generation is *drained* when its two counts are equal. The finished call-backs are summed up
//! first, then the scheduled ones. Let the first sum be complete at a moment t. It is at most what
//! was finished until t, and the second sum is at least what was scheduled until t. So if the sums
//! are equal, everything that was scheduled until t is finished.
//!
//! A barrier waits until it has found each generation drained once. When one generation is drained,
//! new call-backs are counted in it from then on. So a barrier ends although others go on
//! scheduling.

use crate::sync::{self, AtomicU64, AtomicUsize, Ordering, seeded_bug};
use std::time::Duration;

/// Threads in low slots have a stripe of their own. All others share the last stripe.
const STRIPES: usize = if cfg!(manycore_loom) { 3 } else { 64 };

/// One thread's counts, by generation.
#[repr(align(128))]
#[derive(Debug, Default)]
struct Stripe {
    scheduled: [AtomicU64; 2],
    done: [AtomicU64; 2],
}

/// The counts of a domain.
#[derive(Debug)]
pub(crate) struct Pending {
    generation: AtomicUsize,
    stripes: [Stripe; STRIPES],
}

/// Adds one to a count.
#[inline(always)]
fn raise(count: &AtomicU64, is_own: bool) {
    // BUG: a count does not publish the effects of the call-back (capi.A4).
    if seeded_bug!("pending-unpublished") {
        count.fetch_add(1, Ordering::Relaxed);
    } else if is_own {
        // ORDER: Release; pairs with Acquire in `sum`: the effects before. Relaxed: the thread's
        // own word.
        count.store(count.load(Ordering::Relaxed) + 1, Ordering::Release);
    } else {
        // ORDER: Release; as above.
        count.fetch_add(1, Ordering::Release);
    }
}

impl Pending {
    pub(crate) fn new() -> Self {
        let stripes = std::array::from_fn(|_| Stripe::default());
        Self { generation: AtomicUsize::new(0), stripes }
    }

    /// Returns the stripe of the calling thread, and true if no other thread uses it. `slot` is
    /// `None` if the thread has none any more.
    #[inline(always)]
    fn stripe(&self, slot: Option<usize>) -> (&Stripe, bool) {
        match slot {
            Some(slot) if slot < STRIPES - 1 => (&self.stripes[slot], true),
            _ => (&self.stripes[STRIPES - 1], false),
        }
    }

    /// Counts a call-back that the calling thread is about to retire; returns its generation.
    #[inline(always)]
    pub(crate) fn schedule(&self, slot: Option<usize>) -> usize {
        // ORDER: Relaxed; either generation is correct.
        let generation = self.generation.load(Ordering::Relaxed) & 1;
        let (stripe, is_own) = self.stripe(slot);
        raise(&stripe.scheduled[generation], is_own);
        generation
    }

    /// Counts a call-back that has returned.
    #[inline(always)]
    pub(crate) fn done(&self, slot: Option<usize>, generation: usize) {
        let (stripe, is_own) = self.stripe(slot);
        raise(&stripe.done[generation & 1], is_own);
    }

    fn sum(&self, count: impl Fn(&Stripe) -> &AtomicU64) -> u64 {
        // ORDER: Acquire; pairs with Release in `raise`: the effects of the call-backs. It also
        // keeps the loads of one sum before those of the next.
        self.stripes.iter().map(|stripe| count(stripe).load(Ordering::Acquire)).sum()
    }

    fn is_drained(&self, generation: usize) -> bool {
        // BUG: the scheduled call-backs are summed up first, so call-backs that others finish in
        // between are taken for them.
        if seeded_bug!("pending-scheduled-first") {
            let scheduled = self.sum(|stripe| &stripe.scheduled[generation]);
            return scheduled == self.sum(|stripe| &stripe.done[generation]);
        }
        let done = self.sum(|stripe| &stripe.done[generation]);
        done == self.sum(|stripe| &stripe.scheduled[generation])
    }

    /// Runs in the child of a fork, which has one thread: sets the counts to what waits there, in
    /// each generation. Call-backs that missing threads were about to retire or call are not
    /// counted any more.
    #[cfg(not(manycore_loom))]
    pub(crate) fn reset(&self, waiting: [u64; 2]) {
        // ORDER: Relaxed (all); there is one thread.
        for (generation, count) in waiting.into_iter().enumerate() {
            for stripe in &self.stripes {
                stripe.scheduled[generation].store(0, Ordering::Relaxed);
                stripe.done[generation].store(0, Ordering::Relaxed);
            }
            let rest = &self.stripes[STRIPES - 1].scheduled[generation];
            rest.store(count, Ordering::Relaxed);
        }
    }

    /// Returns true if no call-back waits.
    pub(crate) fn is_none(&self) -> bool {
        self.is_drained(0) && self.is_drained(1)
    }

    /// Waits until everything that was scheduled before is finished. `help` runs some of it.
    pub(crate) fn wait(&self, help: impl Fn()) {
        let mut drained = [false; 2];
        let mut pause = Duration::from_micros(1);
        loop {
            // ORDER: Relaxed; a hint.
            let current = self.generation.load(Ordering::Relaxed);
            for generation in [1 - current, current] {
                drained[generation] = drained[generation] || self.is_drained(generation);
            }
            if drained == [true; 2] {
                return;
            }
            if drained[1 - current] {
                // ORDER: Relaxed; as above. On failure, another barrier has changed it.
                let (change, keep) = (Ordering::Relaxed, Ordering::Relaxed);
                let _ = self.generation.compare_exchange(current, 1 - current, change, keep);
            }
            help();
            if !self.is_none() {
                sync::pause(&mut pause);
            }
        }
    }
}
