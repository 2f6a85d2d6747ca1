//! Measures memory: load times by working set, bandwidth, and the stores that a core buffers. Also
//! measures divisions and square roots.

use std::{hint::black_box, thread, time::Instant};

use super::{affinity, distribution::Distribution};

const SAMPLES: usize = 7;
/// Bytes of a cache line.
const LINE: usize = 64;

/// A line of its own in memory that holds the index of the next line.
#[repr(align(64))]
#[derive(Clone, Copy)]
struct ChainLine(usize);

/// Returns one cycle through `lines` lines in random order.
fn cycle(lines: usize) -> Vec<ChainLine> {
    let mut places: Vec<ChainLine> = (0..lines).map(ChainLine).collect();
    let mut random = 88_172_645_463_325_252_u64;
    // Sattolo's shuffle makes a single cycle of all lines.
    for at in (1..lines).rev() {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let other = random as usize % at;
        places.swap(at, other);
    }
    places
}

/// Nanoseconds of a load that depends on the load before, in a working set of `kib` KiB.
pub(super) fn latency(kib: usize) -> Option<Distribution> {
    let places = cycle(kib * 1024 / LINE);
    let mut at = 0;
    let steps = 200_000.max(places.len().min(1_000_000));
    let mut walk = |steps: usize| {
        for _ in 0..steps {
            at = places[at].0;
        }
        black_box(at);
    };
    walk(places.len().min(2_000_000));
    let once = |_| {
        let start = Instant::now();
        walk(steps);
        start.elapsed().as_nanos() as f64 / steps as f64
    };
    Distribution::of((0..SAMPLES).map(once).collect())
}

/// Million bytes a second that all these processors together read from memory. Each processor reads
/// its own part of `kib` KiB.
pub(super) fn bandwidth(cpus: &[usize], kib: usize) -> Option<Distribution> {
    let words = kib * 1024 / size_of::<u64>();
    let once = |_| {
        let together = std::sync::Barrier::new(cpus.len());
        let read = |cpu: usize| {
            affinity::pin(cpu);
            let part = vec![1_u64; words];
            together.wait();
            let start = Instant::now();
            black_box(black_box(&part).iter().fold(0_u64, |sum, word| sum.wrapping_add(*word)));
            (start, Instant::now())
        };
        let times: Option<Vec<_>> = thread::scope(|scope| {
            let threads: Vec<_> = cpus.iter().map(|cpu| scope.spawn(|| read(*cpu))).collect();
            threads.into_iter().map(|thread| thread.join().ok()).collect()
        });
        let times = times?;
        let first = times.iter().map(|(start, _)| *start).min()?;
        let last = times.iter().map(|(_, end)| *end).max()?;
        let bytes = (cpus.len() * words * size_of::<u64>()) as f64;
        Some(bytes / (last - first).as_secs_f64() / 1e6)
    };
    Distribution::of((0..5).filter_map(once).collect())
}

/// Returns how many `fill`s fit into the core between two loads that miss, from `least` to below
/// `most`.
///
/// The two loads overlap as long as the core has room for the instructions between them.
#[cfg(target_arch = "x86_64")]
pub(super) fn room(least: u32, most: u32, fill: impl Fn()) -> Option<u32> {
    let chain = cycle((64 << 20) / LINE);
    let mut ends = [0, chain.len() / 2];
    let mut time = |fills: u32| {
        let steps = 400; // within a time slice
        let once = |_| {
            let start = Instant::now();
            for step in 0..steps {
                // The two chains take turns: a load either overlaps the other chain's load, or has
                // to wait for what is before it.
                ends[step % 2] = chain[ends[step % 2]].0;
                (0..fills).for_each(|_| fill());
            }
            black_box(&ends);
            start.elapsed().as_nanos() as f64
        };
        Distribution::of((0..15).map(once).collect()).map(|spread| spread.min)
    };
    let (free, full) = (time(1)?, time(most)?);
    let half = (free + full) / 2.0;
    let found = (least..most).find(|fills| time(*fills).is_some_and(|took| took > half));
    found.map(|fills| fills - 1)
}

/// Stores that a core buffers, in multiples of eight.
#[cfg(target_arch = "x86_64")]
pub(super) fn store_buffer() -> Option<u32> {
    let mut target = [0_u64; 8];
    let to = target.as_mut_ptr();
    let eight = || {
        // SAFETY: writes the eight words of `target`.
        unsafe {
            std::arch::asm!(
                "mov [{to}], {value}", "mov [{to} + 8], {value}",
                "mov [{to} + 16], {value}", "mov [{to} + 24], {value}",
                "mov [{to} + 32], {value}", "mov [{to} + 40], {value}",
                "mov [{to} + 48], {value}", "mov [{to} + 56], {value}",
                to = in(reg) to, value = in(reg) 1_u64,
                options(nostack, preserves_flags));
        }
    };
    room(2, 40, eight).map(|eights| 8 * eights)
}

#[cfg(not(target_arch = "x86_64"))]
pub(super) fn store_buffer() -> Option<u32> {
    None
}

/// Nanoseconds of a division and of a square root, each of which depends on the one before.
pub(super) fn divisions() -> Option<[Distribution; 2]> {
    const STEPS: u32 = 50_000;
    let timed = |work: &dyn Fn()| {
        let once = |_| {
            let start = Instant::now();
            work();
            start.elapsed().as_nanos() as f64 / f64::from(STEPS)
        };
        Distribution::of((0..SAMPLES).map(once).collect())
    };
    let division = timed(&|| {
        let (mut value, by) = (black_box(u64::MAX), black_box(3_u64));
        (0..STEPS).for_each(|_| value = (value / by) | 1 << 63);
        black_box(value);
    })?;
    let root = timed(&|| {
        let mut value = black_box(1e300_f64);
        (0..STEPS).for_each(|_| value = value.sqrt() + 1e300);
        black_box(value);
    })?;
    Some([division, root])
}
