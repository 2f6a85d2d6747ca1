//! The aarch64 virtual counter, CNTVCT_EL0.
//!
//! Owns: the instructions. Laws, with the reason in the Arm ARM (D12, "The Generic Timer"):
//! - cntvct.T1 [`Instruction::stamp`] reads after every earlier load has its value. `dsb ishld`
//!   completes the loads before any later instruction executes. The first `isb` keeps the counter,
//!   which may be read speculatively, from being read before that. The second `isb` lets nothing
//!   after it start before the counter is read: an Arm load that ran early keeps what it found.
//! - cntvct.T2 [`Instruction::cut`] also reads before every later load, by the same second `isb`.
//! - cntvct.T3 Neither waits for earlier *stores*. See clock.C3 in [`crate::clock`].
//! - cntvct.T4 The blocks do not claim `nomem`, so the compiler moves no memory access across them.

use std::arch::asm;

/// The kernel's clocksource that vouches for this counter.
pub(crate) const TRUSTED_CLOCKSOURCE: &str = "arch_sys_counter";
/// True if the architecture itself promises one time on all cores.
pub(crate) const ARCHITECTED: bool = true;

/// The way to read the counter in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Instruction {
    Cntvct,
}

impl Instruction {
    pub(crate) fn detect() -> Option<Self> {
        Some(Self::Cntvct)
    }

    pub(crate) fn name(self) -> &'static str {
        "dsb ishld; isb; mrs cntvct_el0; isb"
    }

    /// cntvct.T1: reads after everything before it.
    #[inline(always)]
    pub(crate) fn stamp(self) -> u64 {
        let ticks: u64;
        // SAFETY: user mode may read CNTVCT_EL0 (Linux, macOS and Windows rely on it in their own
        // time calls); writes only the register named.
        unsafe {
            asm!(
                "dsb ishld",
                "isb",
                "mrs {ticks}, cntvct_el0",
                "isb",
                ticks = out(reg) ticks,
                // Without `nomem` (cntvct.T4). Earlier stores are not waited for (cntvct.T3): the
                // publisher settles its stamp (clock.C3).
                options(nostack, preserves_flags)
            );
        }
        ticks
    }

    /// cntvct.T1 and cntvct.T2: reads after everything before it, and before every load after it.
    #[inline(always)]
    pub(crate) fn cut(self) -> u64 {
        self.stamp()
    }

    /// Reads in no order with anything around it.
    #[inline(always)]
    pub(crate) fn ticks(self) -> u64 {
        let ticks: u64;
        // SAFETY: user mode may read CNTVCT_EL0, as the system's own time calls do; this writes
        // only the register named.
        unsafe {
            asm!(
                "mrs {ticks}, cntvct_el0",
                ticks = out(reg) ticks,
                options(nostack, preserves_flags, nomem)
            );
        }
        ticks
    }
}

/// Returns true: the architecture runs the counter at one rate in every state.
pub(crate) fn invariant() -> bool {
    true
}

/// Returns false: user mode has no way to find out.
pub(crate) fn hypervisor() -> bool {
    false
}

/// Returns true: this process may read the counter.
pub(crate) fn readable() -> bool {
    true
}

/// Returns ticks per second, as the firmware states them.
pub(crate) fn nominal_hz() -> Option<u64> {
    let hz: u64;
    // SAFETY: user mode may read CNTFRQ_EL0 wherever it may read CNTVCT_EL0.
    unsafe {
        asm!("mrs {hz}, cntfrq_el0", hz = out(reg) hz, options(nostack, preserves_flags, nomem));
    }
    (hz != 0).then_some(hz)
}
