//! A model of the machine that this code runs on, measured as far as that needs no privileges.

use std::{
    hint::{black_box, spin_loop},
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

#[cfg(target_arch = "x86_64")]
use super::calibrate::core;
use super::{Arbitration, Machine};

/// Cycles of a multiplication followed by a dependent bitwise or, on most processors since 2008.
const LINK_CYCLES: f64 = 4.0;
/// Repetitions of each measurement. The smallest counts, since disturbances only add time.
const REPEATS: usize = 15;
/// Longest time for the two threads that pass a line around.
const PATIENCE: Duration = Duration::from_millis(300);
/// The number of times that each of the two threads polls the line before it yields the processor.
const LOOKS: u32 = 2_000;

impl Machine {
    /// Measures this host and returns its model.
    ///
    /// The shape comes from the system. Measured are: the frequency, locked instructions,
    /// transfers, instructions, loads, mispredictions, and calls of the clock, the allocator and
    /// the kernel. All other values are guesses, and their sources say so.
    ///
    /// Takes about a second. Two calls give slightly different models: to compare figures, measure
    /// once and keep [`Machine::to_toml`]. All cores get one transfer time, measured between two
    /// cores that the system chooses. It stays a guess if the two threads never run side by side.
    /// In a build without optimisation the measurements show the unoptimised code rather than the
    /// machine.
    pub fn this_host() -> Machine {
        let mut machine = Machine::guessed("this-host");
        machine.about = "the machine that this runs on".to_string();
        let cores = thread::available_parallelism().map_or(1, |count| count.get() as u32);
        let packages = packages().clamp(1, cores);
        let cycle = cycle_nanos();
        let cycles = |nanos: f64| (nanos / cycle).round().max(1.0) as u32;
        machine.arbitration = Arbitration::Turns;
        let mut facts = vec![
            ("sockets", packages, "sysfs: packages of the processors in use"),
            ("cores_per_socket", cores.div_ceil(packages), "the processors that may be used"),
            ("mhz", (1e3 / cycle).round() as u32, "measured: a chain of multiplications"),
            ("rmw", cycles(locked_nanos()), "measured: an uncontended locked addition"),
            ("pause", cycles(pause_nanos()), "measured"),
            ("malloc", cycles(heap_nanos()), "measured: half of an allocation and its return"),
            ("syscall", cycles(kernel_nanos()), "measured: asking for the process's id"),
        ];
        if let Some([clock, serialize]) = system_nanos() {
            facts.push(("clock_read", cycles(clock), "measured: one reading after another"));
            let why = "measured: `cpuid`, which leaves a virtual machine";
            facts.push(("serialize", cycles(serialize), why));
        }
        #[cfg(target_arch = "x86_64")]
        if let Some([instruction, load, branch]) = core::all() {
            let rate = (10.0 * cycle / instruction.median).round().max(1.0) as u32;
            facts.push(("instructions_per_10_cycles", rate, "measured: a mix of them"));
            facts.push(("load", cycles(load.median), "measured: loads that wait for one another"));
            let why = "measured: branches by chance, beyond others";
            facts.push(("mispredict", cycles(branch.median), why));
            facts.push(("window", 224, "guess: the fewest of current servers' cores"));
            facts.push(("hit", 0, "in the rate of instructions, and in load"));
        }
        if let Some(nanos) = transfer(cores) {
            let transfer = cycles(nanos);
            let why = "measured: a line between two threads, a fourth of there and back";
            facts.push(("same_socket", transfer, why));
            facts.push(("linger", transfer / 2, "guess: half a transfer"));
        }
        for (name, value, source) in facts {
            let set = machine.set(name, &value.to_string(), source);
            debug_assert!(set.is_ok(), "{name} is a parameter");
        }
        machine
    }
}

/// Returns the number of packages of the system's processors, or 1 if the system does not say.
fn packages() -> u32 {
    let mut known = Vec::new();
    for cpu in 0.. {
        let path = format!("/sys/devices/system/cpu/cpu{cpu}/topology/physical_package_id");
        let Ok(package) = std::fs::read_to_string(path) else { break };
        if !known.contains(&package) {
            known.push(package);
        }
    }
    known.len().max(1) as u32
}

/// Runs `work` several times and returns the smallest time, in nanoseconds a step.
fn smallest(steps: u32, mut work: impl FnMut(u32)) -> f64 {
    let times = (0..REPEATS).map(|_| {
        let start = Instant::now();
        work(steps);
        start.elapsed().as_nanos() as f64 / f64::from(steps)
    });
    times.fold(f64::MAX, f64::min)
}

fn cycle_nanos() -> f64 {
    let chain = |steps| {
        let mut value = black_box(3_u64);
        for _ in 0..steps {
            value = value.wrapping_mul(value | 1);
        }
        black_box(value);
    };
    (smallest(200_000, chain) / LINK_CYCLES).clamp(0.05, 10.0)
}

fn locked_nanos() -> f64 {
    let word = AtomicU64::new(0);
    smallest(100_000, |steps| {
        for _ in 0..steps {
            word.fetch_add(1, Ordering::SeqCst);
        }
        black_box(word.load(Ordering::Relaxed));
    })
}

fn pause_nanos() -> f64 {
    smallest(2_000, |steps| (0..steps).for_each(|_| spin_loop()))
}

fn heap_nanos() -> f64 {
    let round = |steps| (0..steps).for_each(|step| drop(black_box(Box::new([step; 16]))));
    smallest(20_000, round) / 2.0
}

fn kernel_nanos() -> f64 {
    smallest(2_000, |steps| (0..steps).for_each(|_| _ = black_box(std::process::id())))
}

/// Returns the times of a time stamp counter read and of a serializing instruction.
#[cfg(target_arch = "x86_64")]
fn system_nanos() -> Option<[f64; 2]> {
    use std::arch::x86_64::{__cpuid, _rdtsc};
    let clock = smallest(20_000, |steps| {
        // SAFETY: every x86-64 processor has the instruction.
        (0..steps).for_each(|_| _ = black_box(unsafe { _rdtsc() }));
    });
    let serialize = smallest(200, |steps| (0..steps).for_each(|_| _ = black_box(__cpuid(0))));
    Some([clock, serialize])
}

#[cfg(not(target_arch = "x86_64"))]
fn system_nanos() -> Option<[f64; 2]> {
    None
}

/// Measures one transfer. Tries several times, since on a busy system the two threads may share a
/// processor.
fn transfer(cores: u32) -> Option<f64> {
    (0..3).filter(|_| cores > 1).find_map(|_| transfer_nanos())
}

/// Measures one transfer: two threads answer each other on one line.
///
/// A round trip takes four transfers: each thread fetches the line to read it, and then to write
/// it. Returns the median, because the smallest time comes from rounds in which requests met by
/// chance. Returns `None` if the two threads did not run side by side.
fn transfer_nanos() -> Option<f64> {
    // Short rounds, so that some of them run undisturbed on a busy machine too.
    const ROUNDS: u64 = 25;
    let line = Line(AtomicU64::new(0));
    let end = Instant::now() + PATIENCE;
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut turn = 1;
            while line.wait_for(turn) {
                line.0.store(turn + 1, Ordering::Release);
                turn += 2;
            }
        });
        let (mut times, mut turn) = (Vec::new(), 0);
        while Instant::now() < end {
            let start = Instant::now();
            for _ in 0..ROUNDS {
                line.0.store(turn + 1, Ordering::Release);
                turn += 2;
                line.wait_for(turn);
            }
            times.push(start.elapsed().as_nanos() as f64 / (ROUNDS * 4) as f64);
        }
        line.0.store(STOP, Ordering::Release);
        // 500 ns are over a thousand cycles: no transfer within a socket, the threads shared one
        // core.
        times.sort_by(f64::total_cmp);
        times.get(times.len() / 2).copied().filter(|nanos| *nanos < 500.0)
    })
}

const STOP: u64 = u64::MAX;

#[repr(align(128))]
struct Line(AtomicU64);

impl Line {
    /// Waits until the word has that value. Returns false if the word says stop.
    fn wait_for(&self, value: u64) -> bool {
        let mut looks = 0;
        loop {
            // ORDER: Acquire; pairs with the partner's Release store. Only the word itself is
            // passed on; the order keeps one round from beginning inside the round before.
            match self.0.load(Ordering::Acquire) {
                seen if seen == value => return true,
                STOP => return false,
                _ => {}
            }
            looks += 1;
            if looks > LOOKS {
                thread::yield_now();
            } else {
                spin_loop();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Machine;

    #[test]
    fn this_host_is_a_sound_model_that_says_what_was_measured() {
        let machine = Machine::this_host();
        machine.check().unwrap();
        assert!(machine.source("rmw").starts_with("measured"));
        assert_eq!(machine.source("memory"), "guess");
        println!("{}", machine.to_toml());
        let again = Machine::from_toml(&machine.to_toml()).unwrap();
        assert_eq!(again.encode(), machine.encode());
    }
}
