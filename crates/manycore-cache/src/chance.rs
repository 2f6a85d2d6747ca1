//! Random numbers for the decisions that the cache leaves to chance (segment.G6).

use std::cell::Cell;

thread_local! {
    static STATE: Cell<u32> = const { Cell::new(0) };
}

/// Twelve random bits.
#[derive(Clone, Copy)]
pub(crate) struct Chance(u32);

impl Chance {
    #[inline(always)]
    pub(crate) fn draw() -> Self {
        // A linear congruential generator: its upper bits are random enough for this.
        let next = |state: &Cell<u32>| {
            let next = state.get().wrapping_mul(0x915f_77f5).wrapping_add(0x9e37_79b9);
            state.set(next);
            next
        };
        // A thread that is past its thread-locals' destructors draws the same number each time.
        Self(STATE.try_with(next).unwrap_or(0) >> 20)
    }

    /// Returns a number below `these`, which is a power of two.
    #[inline(always)]
    pub(crate) fn one_of(self, these: u32) -> u32 {
        debug_assert!(these.is_power_of_two(), "segment.G6: {these} is no power of two");
        if cfg!(manycore_loom) {
            return these - 1; // a model leaves nothing to chance
        }
        self.0 & (these - 1)
    }
}
