//! Sections on every virtual core, as the paper measures them (section 5.1, figures 4 and 5): what
//! a read costs while a share of all operations replaces nodes.
//!
//! `sim-smr PERCENT [OPERATIONS]`: the share of updates, and how many operations each core does. A
//! read enters a section and leaves it. An update makes a node of 64 bytes, swaps it into a slot
//! and retires the one that was there. Each operation is timed by itself, and what the timing costs
//! is taken off. Prints the mean of reads and of updates in nanoseconds of the virtual clock, and
//! how many reads all cores together would make in a microsecond.

use std::{
    hint::black_box,
    ptr::NonNull,
    sync::{
        Barrier,
        atomic::{AtomicPtr, AtomicU64, Ordering::AcqRel, Ordering::Relaxed},
    },
    thread,
    time::Instant,
};

use manycore::{section::Domain, slab::Slab};

const SLOTS: usize = 4096;

type Node = [u64; 8];

static SLAB: Slab<Node> = Slab::new();

fn in_slab() -> *mut Node {
    let place = SLAB.alloc_raw();
    // SAFETY: fresh memory for a node.
    unsafe { place.write([7; 8]) };
    place.as_ptr()
}

/// # Safety
/// A node of `in_slab` without other pointers to it.
unsafe fn free(node: NonNull<()>) {
    // SAFETY: the caller promises a node of `in_slab` that no other thread has (# Safety).
    unsafe { SLAB.free_raw(node.cast::<Node>()) };
}

struct Table {
    slots: Vec<AtomicPtr<Node>>,
    domain: Domain,
}

/// Nanoseconds and how often.
#[derive(Clone, Copy, Default)]
struct Sum {
    time: u64,
    count: u64,
}

impl Sum {
    fn mean(self) -> f64 {
        self.time as f64 / self.count.max(1) as f64
    }
}

impl Table {
    fn read(&self) {
        drop(black_box(self.domain.enter()));
    }

    fn update(&self, slot: usize) {
        let new = in_slab();
        let section = self.domain.enter();
        // ORDER: AcqRel; the node's contents before the pointer, both ways.
        let old = NonNull::new(self.slots[slot].swap(new, AcqRel)).expect("a slot is never null");
        // SAFETY: the swap took it out of the table, and gave it to this thread alone.
        unsafe { section.retire_raw(old.cast(), size_of::<Node>(), free) };
    }

    /// Reads and updates.
    fn run(&self, share: u64, operations: u64, seed: u64) -> [Sum; 2] {
        let mut sums = [Sum::default(); 2];
        let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        for _ in 0..operations {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let is_update = random % 100 < share;
            let begun = Instant::now();
            if is_update {
                self.update((random >> 32) as usize % SLOTS);
            } else {
                self.read();
            }
            let sum = &mut sums[usize::from(is_update)];
            sum.time += begun.elapsed().as_nanos() as u64;
            sum.count += 1;
        }
        sums
    }
}

/// What timing nothing takes.
fn timing() -> f64 {
    const TIMES: u64 = 1_000;
    let mut sum = Sum { time: 0, count: TIMES };
    for _ in 0..TIMES {
        let begun = Instant::now();
        sum.time += begun.elapsed().as_nanos() as u64;
    }
    sum.mean()
}

fn main() {
    let numbers: Vec<u64> = std::env::args().skip(1).filter_map(|text| text.parse().ok()).collect();
    let share = numbers.first().copied().unwrap_or(0);
    let operations = numbers.get(1).copied().unwrap_or(6_000);
    let cores = thread::available_parallelism().expect("a number of cores").get();
    let slots = (0..SLOTS).map(|_| AtomicPtr::new(in_slab())).collect();
    let table = Table { slots, domain: Domain::bounded() };
    let ready = Barrier::new(cores + 1);
    let totals = [const { [const { AtomicU64::new(0) }; 2] }; 2];
    thread::scope(|scope| {
        for core in 0..cores {
            let (table, ready, totals) = (&table, &ready, &totals);
            scope.spawn(move || {
                table.run(share, operations, core as u64 + 1); // each thread sets itself up
                ready.wait();
                ready.wait();
                let sums = table.run(share, operations, core as u64 + 1_000);
                manycore_sim::operations(operations);
                ready.wait();
                for (total, sum) in totals.iter().zip(sums) {
                    // ORDER: Relaxed; read after the threads' join.
                    total[0].fetch_add(sum.time, Relaxed);
                    total[1].fetch_add(sum.count, Relaxed);
                }
            });
        }
        ready.wait();
        manycore_sim::measured(|| {
            ready.wait();
            ready.wait();
        });
    });
    let none = timing();
    // ORDER: Relaxed; the threads are joined.
    let [reads, updates] = totals
        .map(|[time, count]| Sum { time: time.load(Relaxed), count: count.load(Relaxed) })
        .map(|sum| if sum.count == 0 { 0.0 } else { (sum.mean() - none).max(0.0) });
    let rate = if reads > 0.0 { cores as f64 * 1e3 / reads } else { 0.0 };
    println!(
        "{cores} cores, {share} % updates: a read {reads:.2} ns, an update {updates:.1} ns, \
         {rate:.0} reads/us"
    );
}
