//! Sampled classes: one in so many events is recorded.
//!
//! This module owns the rates and a thread's choice. It does not own which classes are on (`class`)
//! and how a file stores the rates (`schema`: each entry has its event's rate).
//!
//! A thread draws a gap from 1 to twice the rate less one, and takes the event after the gap. So
//! the rate is kept on average, and events that come in a fixed order have equal chances. Skipped
//! events are not counted, because the rate stands for them.

use crate::class::{self, Class};
use crate::sync::{AtomicU64, Ordering};
use std::cell::Cell;

static RATES: [AtomicU64; 64] = [const { AtomicU64::new(1) }; 64];

/// Sets these rates, and 1 for all other classes. The caller holds the lock of the recorder's
/// state, and no class is on.
pub(crate) fn set_rates(rates: &[(Class, u32)]) {
    // ORDER: Relaxed, here and below; a thread that reads an old rate samples by it for a while.
    RATES.iter().for_each(|rate| rate.store(1, Ordering::Relaxed));
    let mut sampled = 0;
    for (class, every) in rates {
        RATES[usize::from(class.number())].store((*every).max(1).into(), Ordering::Relaxed);
        sampled |= u64::from(*every > 1) << class.number();
    }
    class::set_sampled(sampled);
}

/// Returns the rate of the class with this number: one in so many events is recorded.
pub(crate) fn rate(number: u8) -> u32 {
    // ORDER: Relaxed; as in `set_rates`.
    RATES[usize::from(number)].load(Ordering::Relaxed) as u32
}

/// A thread's random state and its current gaps.
struct Gaps {
    random: Cell<u64>,
    /// For each class: events up to and including the next one that is taken. 0 before the first
    /// draw.
    left: [Cell<u32>; 64],
}

thread_local! {
    static GAPS: Gaps = const {
        Gaps { random: Cell::new(0), left: [const { Cell::new(0) }; 64] }
    };
}

impl Gaps {
    /// Xorshift: the gaps must be spread, not secret.
    fn random(&self) -> u64 {
        let mut x = self.random.get();
        if x == 0 {
            let own = std::ptr::from_ref(self).addr() as u64;
            x = (own ^ class::generation() << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        }
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        self.random.set(x);
        x
    }
}

impl Class {
    /// Returns true if this thread must record its next event of this class. Called once for each
    /// event. Used by the macros.
    ///
    /// True if the class is on and, if it is sampled, its turn has come.
    #[doc(hidden)]
    #[inline(always)]
    #[must_use]
    pub fn takes_next(self) -> bool {
        self.is_on() && (!self.is_sampled() || takes(self.number()))
    }
}

/// Not inlined and with the number only: a class that is off must cost one load and a branch.
#[inline(never)]
fn takes(number: u8) -> bool {
    takes_one_in(rate(number), number)
}

fn takes_one_in(every: u32, number: u8) -> bool {
    GAPS.with(|gaps| {
        let widest = every.saturating_mul(2) - 1;
        let left = &gaps.left[usize::from(number)];
        let drawn = match left.get() {
            0 => 1 + (gaps.random() >> 32) as u32 % widest,
            // The gap may come from an earlier recording's rate.
            drawn => drawn.min(widest),
        };
        left.set(drawn - 1);
        drawn == 1
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_keep_the_rate_and_no_rhythm() {
        for every in [1, 2, 10, 100] {
            let events = 20_000 * u64::from(every);
            let mut by_rest = [0_u64; 16];
            (0..events)
                .filter(|_| takes_one_in(every, 40))
                .for_each(|n| by_rest[n as usize % 16] += 1);
            let taken: u64 = by_rest.iter().sum();
            assert!((19_000..=21_000).contains(&taken), "{taken} of {events}, one in {every}");
            // A fixed gap of 16, or of a divisor of 16, would leave some of them out.
            assert!(by_rest.iter().all(|count| (900..1_600).contains(count)), "{by_rest:?}");
        }
    }
}
