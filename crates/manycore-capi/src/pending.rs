//! What waits to be called: two generations, in each of which what was scheduled and what is done
//! is counted (capi.A4).
//!
//! A generation is *drained* when its counts are equal. What is done is summed up first, then what
//! was scheduled: let the first sum be finished at a moment t. It is at most what was done until t,
//! and the second at least what was scheduled until t; so if they are equal, all that was scheduled
//! until t was done. A barrier waits until it has found both generations drained, each once. Which
//! one new call-backs are counted in changes when the other is drained, so that a barrier ends
//! although others go on scheduling.

use crate::sync::{self, AtomicU64, AtomicUsize, Ordering, seeded_bug};
use std::time::Duration;

/// Threads in lower slots have a stripe of their own; the last one is for all others.
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
    // BUG: a count does not publish what the call-back has done (capi.A4).
    if seeded_bug!("pending-unpublished") {
        count.fetch_add(1, Ordering::Relaxed);
    } else if is_own {
        // ORDER: Release; pairs with Acquire in `sum`: what was done before. Relaxed: the thread's
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

    /// The stripe of the calling thread, which has this slot, or none any more; and whether it is
    /// no other thread's.
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
        // ORDER: Relaxed; either is correct.
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
        // ORDER: Acquire; pairs with Release in `raise`: what the call-backs did. And the loads of
        // one sum stay before those of the next.
        self.stripes.iter().map(|stripe| count(stripe).load(Ordering::Acquire)).sum()
    }

    fn is_drained(&self, generation: usize) -> bool {
        // BUG: what was scheduled is summed up first, and then what others have done in between is
        // taken for it.
        if seeded_bug!("pending-scheduled-first") {
            let scheduled = self.sum(|stripe| &stripe.scheduled[generation]);
            return scheduled == self.sum(|stripe| &stripe.done[generation]);
        }
        let done = self.sum(|stripe| &stripe.done[generation]);
        done == self.sum(|stripe| &stripe.scheduled[generation])
    }

    /// In the child of a fork, which has one thread: what waits there, in each generation. What
    /// threads were about to retire or to call that are not in the child is counted no more.
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

    /// Whether no call-back waits.
    pub(crate) fn is_none(&self) -> bool {
        self.is_drained(0) && self.is_drained(1)
    }

    /// Waits until all that was scheduled before is done; `help` runs some of it.
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
                // ORDER: Relaxed; as above. A failure: another barrier has changed it.
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
