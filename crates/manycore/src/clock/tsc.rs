//! The x86-64 timestamp counter.
//!
//! Owns: the instructions. Laws, with the reason in the manuals (Intel SDM volume 2, AMD APM 3):
//! - tsc.T1 [`Instruction::stamp`] reads after every earlier load has its value. `rdtscp` waits
//!   until all earlier instructions have executed and all earlier loads are globally visible.
//!   `lfence` does the same for the `rdtsc` after it (on AMD since the kernel makes `lfence`
//!   serialising, Linux 4.15). A plain `rdtsc` may run before an earlier load: the stamp would then
//!   be older than an update that this thread has already seen. Later loads may run before either
//!   instruction, but retire after it. A processor that lets loads run out of order repeats a load
//!   if another core takes its line away before the load retires. So no load keeps a value that was
//!   replaced before the stamp. (The manuals promise that for loads among each other; processors do
//!   it by the line, whatever stands before the load.)
//! - tsc.T2 [`Instruction::cut`] also reads before every later load: neither instruction keeps
//!   later loads from starting, so an `lfence` follows.
//! - tsc.T3 Neither waits for earlier *stores*, which may still sit in the store buffer. See
//!   clock.C3 in [`crate::clock`]: making an update visible is the duty of the publishing thread.
//! - tsc.T4 The blocks do not claim `nomem`, so the compiler moves no memory access across them.
//!
//! Measured on a 2.6 GHz Xeon (Sapphire Rapids class, KVM guest), ns per read in a loop:
//! `rdtsc` 8.6, `rdtscp` 14.3, `lfence; rdtsc` 14.5, `rdtscp; lfence` 18.8. With the two stores of
//! a log entry behind it: 13.2 and 13.7. So `rdtscp` is the default and `lfence; rdtsc` is for
//! processors without it.

use crate::sync::Raced;
use std::arch::asm;
use std::arch::x86_64::{__cpuid, CpuidResult};

/// The kernel's clocksource that vouches for this counter.
pub(crate) const TRUSTED_CLOCKSOURCE: &str = "tsc";
/// True if the architecture itself promises one time on all cores.
pub(crate) const ARCHITECTED: bool = false;

/// The way to read the counter in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Instruction {
    Rdtscp,
    LfenceRdtsc,
}

impl Instruction {
    /// Returns the fastest ordered read that this processor has. Every x86-64 has a counter.
    pub(crate) fn detect() -> Option<Self> {
        Some(if Features::get().rdtscp { Self::Rdtscp } else { Self::LfenceRdtsc })
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Rdtscp => "rdtscp",
            Self::LfenceRdtsc => "lfence; rdtsc",
        }
    }

    /// tsc.T1: reads after everything before it, except stores, which may still be in the store
    /// buffer (tsc.T3): the publisher settles its stamp (clock.C3).
    #[inline(always)]
    pub(crate) fn stamp(self) -> u64 {
        match self {
            Self::Rdtscp => rdtscp(),
            Self::LfenceRdtsc => lfence_rdtsc(),
        }
    }

    /// tsc.T1 and tsc.T2: reads after everything before it, and before every load after it.
    #[inline(always)]
    pub(crate) fn cut(self) -> u64 {
        let ticks = self.stamp();
        // Without `nomem`, so that the compiler keeps later loads behind it too (tsc.T4).
        // SAFETY: `lfence` is in every x86-64, touches no register and no memory.
        unsafe { asm!("lfence", options(nostack, preserves_flags)) };
        ticks
    }

    /// Reads in no order with anything around it.
    #[inline(always)]
    pub(crate) fn ticks(self) -> u64 {
        let (low, high): (u64, u64);
        // SAFETY: `readable` was true when this `Instruction` was put to use.
        unsafe {
            asm!(
                "rdtsc",
                out("rax") low,
                out("rdx") high,
                options(nostack, preserves_flags, nomem)
            );
        }
        low | high << 32
    }
}

#[inline(always)]
fn rdtscp() -> u64 {
    let (low, high): (u64, u64);
    // SAFETY: `detect` saw the feature bit; writes only the three registers named.
    unsafe {
        asm!(
            "rdtscp",
            out("rax") low,
            out("rdx") high,
            out("rcx") _,
            options(nostack, preserves_flags)
        );
    }
    low | high << 32
}

#[cold]
fn lfence_rdtsc() -> u64 {
    let (low, high): (u64, u64);
    // SAFETY: both are in every x86-64; writes only the two registers named.
    unsafe {
        asm!("lfence", "rdtsc", out("rax") low, out("rdx") high, options(nostack, preserves_flags));
    }
    low | high << 32
}

/// Returns true if the counter runs at one rate through every sleep and frequency state.
pub(crate) fn invariant() -> bool {
    Features::get().invariant
}

/// Returns true if a hypervisor says that it is there.
pub(crate) fn hypervisor() -> bool {
    Features::get().hypervisor
}

/// Returns true if this process may read the counter: `prctl(PR_SET_TSC)` can forbid it.
pub(crate) fn readable() -> bool {
    #[cfg(target_os = "linux")]
    {
        let mut state: libc::c_int = libc::PR_TSC_ENABLE;
        // SAFETY: PR_GET_TSC writes one int, which lives until the call is over.
        let result = unsafe { libc::prctl(libc::PR_GET_TSC, &raw mut state) };
        result != 0 || state == libc::PR_TSC_ENABLE
    }
    #[cfg(not(target_os = "linux"))]
    true
}

/// Returns ticks per second, if the processor or the hypervisor states them exactly.
///
/// Leaf 0x16 is left out: it is rounded to megahertz.
pub(crate) fn nominal_hz() -> Option<u64> {
    if cpuid(0).eax >= 0x15 {
        let crystal = cpuid(0x15);
        if crystal.eax != 0 && crystal.ebx != 0 && crystal.ecx != 0 {
            let hz = u64::from(crystal.ecx) * u64::from(crystal.ebx) / u64::from(crystal.eax);
            return Some(hz);
        }
    }
    if hypervisor() && (0x4000_0010..0x4001_0000).contains(&cpuid(0x4000_0000).eax) {
        let khz = u64::from(cpuid(0x4000_0010).eax);
        return (khz != 0).then_some(khz * 1000);
    }
    None
}

/// The bits that matter here, read once: in a guest each CPUID is an exit, 10 us on some.
struct Features {
    rdtscp: bool,
    invariant: bool,
    hypervisor: bool,
}

impl Features {
    fn get() -> &'static Self {
        static FEATURES: Raced<Features> = Raced::new(|| {
            let leaf_max = cpuid(0x8000_0000).eax;
            let extended = |leaf| if leaf <= leaf_max { cpuid(leaf).edx } else { 0 };
            Features {
                rdtscp: extended(0x8000_0001) & (1 << 27) != 0,
                invariant: extended(0x8000_0007) & (1 << 8) != 0,
                hypervisor: cpuid(1).ecx & (1 << 31) != 0,
            }
        });
        &FEATURES
    }
}

#[allow(unused_unsafe)] // safe to call since Rust 1.94 or so; the MSRV is older
fn cpuid(leaf: u32) -> CpuidResult {
    // SAFETY: every x86-64 has CPUID, and an unknown leaf only gives meaningless numbers.
    unsafe { __cpuid(leaf) }
}
