//! The processor's own clock, and spinning on it.
//!
//! Owns: [`now`] and [`spin`]. A tick is one step of the time-stamp counter (x86-64), of the
//! virtual counter (aarch64), or a nanosecond (elsewhere). On x86-64 the counter runs at the
//! nominal frequency, so 1000 ticks are about 1000 cycles, as in the paper's microbenchmark.
//!
//! Spinning reads the clock in a loop without `pause`. A `pause` takes up to 140 cycles on current
//! processors, far too coarse for a spin of 1000. A clock read takes about 20 cycles, which bounds
//! the overshoot.

/// The most ticks one spin may take: less than a second on any processor.
pub const SPIN_MAX: u64 = 1_000_000_000;

/// The clock, now.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub fn now() -> u64 {
    // SAFETY: every x86-64 processor has the instruction, and Linux lets user space execute it
    // unless a process asked to be denied it.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// The clock, now.
#[cfg(target_arch = "aarch64")]
#[inline(always)]
pub fn now() -> u64 {
    let ticks: u64;
    // SAFETY: reads a register that user space may read; touches no memory.
    unsafe { core::arch::asm!("mrs {}, cntvct_el0", out(reg) ticks, options(nomem, nostack)) };
    ticks
}

/// The clock, now.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
#[inline(always)]
pub fn now() -> u64 {
    use std::{sync::OnceLock, time::Instant};
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

/// Burns `ticks` of the clock; none costs nothing.
#[inline(always)]
pub fn spin(ticks: u64) {
    if ticks == 0 {
        return;
    }
    let start = now();
    while now().wrapping_sub(start) < ticks {}
}

#[cfg(test)]
mod tests {
    use super::{now, spin};

    #[test]
    fn spin_takes_at_least_its_ticks() {
        let start = now();
        spin(100_000);
        assert!(now().wrapping_sub(start) >= 100_000);
    }
}
