//! The cost of a write to a contended cache line (OpLog, section 3.1 and figure 4).
//!
//! Owns: four ways to write. Each writes to a line that all threads share, and to a line of the
//! thread's own. The figures describe the hardware: no row is the library's or a rival's.
//!
//! A plain store retires before its line arrives, so a loop of stores measures the store buffer.
//! The paper runs `cpuid` after each store to serialise it; `store-cpuid` does the same. In a
//! virtual machine `cpuid` traps to the hypervisor, which costs far more than the line. `store`
//! therefore waits with a full fence instead. Compare each way with its private twin: the
//! difference is the transfer of the line. The pause between a core's writes matters, too: a core
//! that does not pause may write several times before it loses the line.

use std::sync::atomic::{
    AtomicU64,
    Ordering::{Relaxed, SeqCst},
    fence,
};

use crossbeam_utils::CachePadded;

use crate::{
    counter::nanos_per_op,
    row::Kind,
    runner::{Control, Group, Metric, Subject, Tally},
    workload::{Entry, Options, UnknownImpl, groups_of},
};

/// Writes between two looks at the stop flag.
const BATCH: u64 = 32;

/// A way to write a word.
trait Write: Sync + Send + 'static {
    fn write(word: &AtomicU64);
}

/// A store, then a full fence.
struct Store;
/// A store, then `cpuid`.
#[cfg(target_arch = "x86_64")]
struct StoreCpuid;
/// One atomic addition.
struct FetchAdd;
/// One atomic addition, then `cpuid`.
#[cfg(target_arch = "x86_64")]
struct FetchAddCpuid;
/// A loop of compare-and-swap until one addition succeeds.
struct CompareSwap;

impl Write for Store {
    #[inline(always)]
    fn write(word: &AtomicU64) {
        word.store(1, Relaxed);
        // ORDER: SeqCst; waits until the store buffer is empty. Measures, orders nothing.
        fence(SeqCst);
    }
}

#[cfg(target_arch = "x86_64")]
impl Write for StoreCpuid {
    #[inline(always)]
    fn write(word: &AtomicU64) {
        word.store(1, Relaxed);
        serialize();
    }
}

// ORDER: Relaxed in both; the cost of the line is measured, nothing is ordered by it.
impl Write for FetchAdd {
    #[inline(always)]
    fn write(word: &AtomicU64) {
        word.fetch_add(1, Relaxed);
    }
}

#[cfg(target_arch = "x86_64")]
impl Write for FetchAddCpuid {
    #[inline(always)]
    fn write(word: &AtomicU64) {
        word.fetch_add(1, Relaxed);
        serialize();
    }
}

impl Write for CompareSwap {
    #[inline(always)]
    fn write(word: &AtomicU64) {
        let mut seen = word.load(Relaxed);
        while let Err(now) = word.compare_exchange_weak(seen, seen + 1, Relaxed, Relaxed) {
            seen = now;
        }
    }
}

/// Waits until all that was asked of memory is done. As few instructions as can be: they are part
/// of the time between two writes.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn serialize() {
    // SAFETY: writes the registers named, and puts back the one that the compiler keeps for itself.
    unsafe {
        std::arch::asm!(
            "mov {kept}, rbx",
            "cpuid",
            "mov rbx, {kept}",
            kept = out(reg) _, inout("eax") 0 => _, inout("ecx") 0 => _, out("edx") _,
            options(nostack, preserves_flags),
        );
    }
}

/// Writers, and the lines they write.
struct Lines<W> {
    lines: Box<[CachePadded<AtomicU64>]>,
    way: std::marker::PhantomData<W>,
}

impl<W: Write> Subject for Lines<W> {
    fn work(&self, index: usize, control: &Control) -> Tally {
        let word = &*self.lines[index % self.lines.len()];
        control.drive(|| {
            for _ in 0..BATCH {
                W::write(word);
            }
            BATCH
        })
    }
}

/// How many threads write.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    threads: usize,
}

const fn shared<W: Write>(name: &'static str, about: &'static str) -> Entry<Shape> {
    let build = |_| build::<W>(1);
    Entry { name, kind: Kind::Floor, about, threads_max: usize::MAX, build, conform: conform::<W> }
}

const fn private<W: Write>(name: &'static str, about: &'static str) -> Entry<Shape> {
    let build = |Shape { threads }| build::<W>(threads);
    Entry { build, ..shared::<W>(name, about) }
}

fn build<W: Write>(lines: usize) -> Box<dyn Subject> {
    let lines = (0..lines).map(|_| CachePadded::new(AtomicU64::new(0))).collect();
    Box::new(Lines::<W> { lines, way: std::marker::PhantomData })
}

/// Every way to write.
pub static ENTRIES: &[Entry<Shape>] = &[
    Entry {
        kind: Kind::Baseline,
        ..private::<FetchAdd>("unshared", "an atomic addition on one thread, its line unshared")
    },
    shared::<Store>("store", "a store and a full fence, one line for all threads"),
    private::<Store>("store-private", "the same, a line for each thread"),
    #[cfg(target_arch = "x86_64")]
    shared::<StoreCpuid>("store-cpuid", "a store and cpuid, as in the paper; slow in a VM"),
    #[cfg(target_arch = "x86_64")]
    private::<StoreCpuid>("store-cpuid-private", "the same, a line for each thread"),
    shared::<FetchAdd>("fetch-add", "an atomic addition, one line for all threads"),
    private::<FetchAdd>("fetch-add-private", "the same, a line for each thread"),
    #[cfg(target_arch = "x86_64")]
    shared::<FetchAddCpuid>("fetch-add-cpuid", "an atomic addition and cpuid, as in the paper"),
    shared::<CompareSwap>("cas", "compare-and-swap until it succeeds, one line for all threads"),
    private::<CompareSwap>("cas-private", "the same, a line for each thread"),
];

const METRICS: [Metric; 2] = [
    Metric { name: "latency", unit: "ns/op", of: nanos_per_op },
    Metric { name: "cycles", unit: "ticks/op", of: ticks_per_op },
];

/// Ticks of an operation, over all threads.
pub(crate) fn ticks_per_op(tallies: &[Tally]) -> f64 {
    let ticks: u64 = tallies.iter().map(|tally| tally.ticks).sum();
    ticks as f64 / (tallies.iter().map(|tally| tally.ops).sum::<u64>().max(1) as f64)
}

/// The groups for some options: one for each count of writers.
///
/// # Errors
/// If an implementation is unknown.
pub fn groups(options: &Options) -> Result<Vec<Group>, UnknownImpl> {
    groups_of(
        ("coherence", ENTRIES, &METRICS),
        options,
        &[()],
        |()| (" writing".to_owned(), []),
        |threads, ()| Shape { threads },
    )
}

/// A write must change the word.
fn conform<W: Write>() -> Result<(), String> {
    let word = AtomicU64::new(0);
    W::write(&word);
    if word.into_inner() == 1 { Ok(()) } else { Err("the word was not written".to_owned()) }
}
