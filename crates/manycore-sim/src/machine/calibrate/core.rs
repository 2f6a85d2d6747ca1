//! Measures one core: instructions in a cycle, the out-of-order window, the time of a load that
//! hits, and the cost of a mispredicted branch.

use std::{arch::asm, hint::black_box, time::Instant};

use super::{distribution::Distribution, loads};

const SAMPLES: usize = 7;

/// Measures `work` and returns the nanoseconds of one of its steps.
fn timed(steps: usize, mut work: impl FnMut(usize)) -> Option<Distribution> {
    work(steps);
    let once = |_| {
        let start = Instant::now();
        work(steps);
        start.elapsed().as_nanos() as f64 / steps as f64
    };
    Distribution::of((0..SAMPLES).map(once).collect())
}

/// Returns the nanoseconds of an instruction, of a load and of a mispredicted branch, as measured
/// by the functions of these names.
pub(in crate::machine) fn all() -> Option<[Distribution; 3]> {
    let (load, branch) = (load()?, mispredict()?);
    // Each branch waits for a load.
    let branch = branch.map(|nanos| (nanos - load.median).max(0.0));
    Some([instruction()?, load, branch])
}

/// Nanoseconds of an instruction that waits for no other, in a mix like that of programs: eight
/// additions (one of them on vectors), four loads, two stores, a comparison and a branch.
fn instruction() -> Option<Distribution> {
    const MIX: usize = 16;
    let mut words = [0_u64; 8];
    let mix = |steps| {
        for _ in 0..steps / 4 {
            // SAFETY: reads and writes `words` and scratch registers; the branch goes to its end
            // either way.
            unsafe {
                asm!(
                    ".rept 4",
                    "add {a}, 1", "mov {x}, [{at}]", "add {b}, 1", "mov {y}, [{at} + 8]",
                    "add {c}, 1", "mov [{at} + 32], {d}", "add {d}, 1", "mov {x}, [{at} + 16]",
                    "paddq {v}, {w}", "lea {a}, [{b} + 4]", "mov {y}, [{at} + 24]", "add {b}, 1",
                    "add {c}, 1", "mov [{at} + 40], {d}", "cmp {d}, 0", "je 2f", "2:",
                    ".endr",
                    at = in(reg) words.as_mut_ptr(), a = out(reg) _,
                    b = inout(reg) 0_u64 => _, c = inout(reg) 0_u64 => _,
                    d = inout(reg) 1_u64 => _, x = out(reg) _, y = out(reg) _,
                    v = out(xmm_reg) _, w = out(xmm_reg) _, options(nostack));
            }
        }
    };
    timed(20_000, mix).map(|spread| spread.map(|nanos| nanos / MIX as f64))
}

/// Nanoseconds from a load to the next load, which needs its result.
fn load() -> Option<Distribution> {
    let mut word = 0_usize;
    let mut at = &raw mut word as usize;
    word = at;
    black_box(&mut word);
    let chain = |steps| {
        for _ in 0..steps / 16 {
            // SAFETY: `at` is the address of `word`, and `word` holds that address.
            unsafe {
                asm!(".rept 16", "mov {at}, [{at}]", ".endr", at = inout(reg) at,
                    options(readonly, nostack, preserves_flags));
            }
        }
    };
    timed(160_000, chain)
}

/// Nanoseconds that a mispredicted branch adds, measured with random directions.
fn mispredict() -> Option<Distribution> {
    const BRANCHES: usize = 1 << 16;
    let mut random = 88_172_645_463_325_252_u64;
    let bits: Vec<u8> = (0..BRANCHES)
        .map(|_| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            (random >> 33) as u8 & 1
        })
        .collect();
    let all_alike = vec![0_u8; BRANCHES];
    let through = |bits: &[u8]| {
        timed(BRANCHES, |_| {
            for bit in bits {
                // SAFETY: changes a scratch register; the branch goes to its end either way.
                unsafe {
                    asm!("test {bit}, 1", "je 2f", "add {to:e}, 1", "2:",
                        bit = in(reg_byte) *bit, to = inout(reg) 0_u32 => _,
                        options(nomem, nostack));
                }
            }
            black_box(bits);
        })
    };
    let (easy, hard) = (through(&all_alike)?, through(&bits)?);
    // Half of the random branches are mispredicted.
    Some(hard.map(|nanos| 2.0 * (nanos - easy.median).max(0.0)))
}

/// Instructions that a core has under way, in multiples of sixteen. Two loads that miss overlap as
/// long as the window has room for the instructions between them.
pub(super) fn window() -> Option<u32> {
    // The surrounding loop adds the sixteenth instruction.
    let sixteen = || {
        // SAFETY: changes scratch registers.
        unsafe {
            asm!(".rept 3", "add {a}, 1", "add {b}, 1", "add {c}, 1", "add {d}, 1", "add {e}, 1",
                ".endr", a = inout(reg) 0_u64 => _, b = inout(reg) 0_u64 => _,
                c = inout(reg) 0_u64 => _, d = inout(reg) 0_u64 => _,
                e = inout(reg) 0_u64 => _, options(nomem, nostack));
        }
    };
    loads::room(2, 64, sixteen).map(|sixteens| 16 * sixteens)
}
