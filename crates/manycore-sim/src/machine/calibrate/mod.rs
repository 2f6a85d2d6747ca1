//! Calibration: measures a model of the machine that this code runs on, with each value's spread.
//!
//! [`Machine::this_host`] takes a second and measures only what one or two threads can show. A
//! calibration takes some tens of seconds. It pins its threads to processors of its choice and
//! measures every pair of them.

mod affinity;
#[cfg(target_arch = "x86_64")]
pub(super) mod core;
mod distribution;
mod loads;
mod pairs;
mod threads;

use std::fmt::{self, Write};

use affinity::Cpu;
pub use distribution::Distribution;
pub use pairs::LineState;

use super::Machine;

/// Maximal processors whose pairs are measured. Of more cores, every n-th is taken.
const MOST_CPUS: usize = 128;

/// A measured machine.
///
/// Use it to get figures near those of one machine: its file is the input of later runs. To compare
/// figures of several hosts, use one file for all of them. Build with optimization and keep the
/// machine idle, since other programs show in the spreads. [`Calibration::measure`] has an example.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct Calibration {
    /// The model: each measured value's source says how it was measured, and its spread.
    pub machine: Machine,
    /// The transfer matrix.
    pub transfers: Vec<Transfer>,
    /// Times of dependent loads in growing working sets: KiB and nanoseconds.
    pub loads: Vec<(usize, Distribution)>,
}

/// The cost of fetching a cache line that another core has. See [`Calibration`].
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct Transfer {
    /// The processor that fetches the line, by the system's number.
    pub to: usize,
    /// The processor that has the line.
    pub from: usize,
    /// The use that both processors make of the line.
    pub state: LineState,
    /// Nanoseconds.
    pub nanos: Distribution,
}

/// Why a machine cannot be measured. See [`Calibration::measure`].
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum CalibrateError {
    /// The process may use one core only, or the system does not say which cores it may use.
    OneCore {
        /// Processors that it may use.
        cpus: usize,
    },
    /// The system does not keep a thread on a processor.
    NoAffinity {
        /// The processor that was asked for.
        cpu: usize,
    },
    /// A measurement had no result.
    Failed {
        /// The name of the measurement.
        what: &'static str,
    },
}

impl fmt::Display for CalibrateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CalibrateError::OneCore { cpus } => write!(
                f,
                "transfers need two cores, and this process may use {cpus} processor(s) of one; \
                 see taskset, cpusets and the container's limits"
            ),
            CalibrateError::NoAffinity { cpu } => {
                write!(f, "the system does not keep a thread on processor {cpu} (affinity)")
            }
            CalibrateError::Failed { what } => write!(f, "{what} could not be measured"),
        }
    }
}

impl std::error::Error for CalibrateError {}

impl Calibration {
    /// Measures the machine. Calls `said` with the name of each part before the part begins.
    ///
    /// # Errors
    ///
    /// The process has only one core, or the system does not support affinity.
    ///
    /// # Examples
    ///
    /// ```
    /// use manycore_sim::calibrate::{CalibrateError, Calibration};
    ///
    /// # if false { // takes some tens of seconds
    /// match Calibration::measure(|part| eprintln!("{part}")) {
    ///     Ok(found) => std::fs::write("this-host.toml", found.to_toml()).unwrap(),
    ///     Err(CalibrateError::OneCore { .. }) => eprintln!("two cores are needed"),
    ///     Err(error) => eprintln!("{error}"),
    /// }
    /// # }
    /// ```
    pub fn measure(mut said: impl FnMut(&str)) -> Result<Calibration, CalibrateError> {
        let cpus = measured_cpus(affinity::cpus())?;
        // A separate thread, so that the caller's affinity stays as it is.
        std::thread::scope(|scope| {
            let parts = std::sync::mpsc::channel();
            let (tell, told) = parts;
            let work = scope.spawn(move || Work::new(cpus, tell)?.all());
            told.iter().for_each(|part: String| said(&part));
            work.join().unwrap_or(Err(CalibrateError::Failed { what: "the machine" }))
        })
    }

    /// Returns the model's file: the parameters with their sources. The transfer matrix and the
    /// loads by size follow as comments.
    pub fn to_toml(&self) -> String {
        let mut text = self.machine.to_toml();
        // Writing to a string cannot fail.
        text += "\n# Transfers, ns: to, from, state, median, smallest, largest, samples\n";
        for transfer in &self.transfers {
            let Transfer { to, from, state, nanos } = transfer;
            let Distribution { median, min, max, count } = nanos;
            let state = format!("{state:?}");
            let _ = writeln!(
                text,
                "# {to:>4} {from:>4} {state:<14} {median:>7.1} {min:>7.1} {max:>7.1} {count}"
            );
        }
        text +=
            "\n# Loads that wait for one another, ns: KiB, median, smallest, largest, samples\n";
        for (kib, Distribution { median, min, max, count }) in &self.loads {
            let _ = writeln!(text, "# {kib:>7} {median:>7.2} {min:>7.2} {max:>7.2} {count}");
        }
        text
    }
}

/// Selects the processors whose pairs are measured: one of each core.
fn measured_cpus(all: Vec<Cpu>) -> Result<Vec<Cpu>, CalibrateError> {
    let count = all.len();
    let mut cpus = all;
    let mut seen = std::collections::BTreeSet::new();
    cpus.retain(|cpu| seen.insert(cpu.core));
    if cpus.len() < 2 {
        return Err(CalibrateError::OneCore { cpus: count });
    }
    if let Some(cpu) = cpus.iter().find(|cpu| !can_run_on(cpu.number)) {
        return Err(CalibrateError::NoAffinity { cpu: cpu.number });
    }
    let step = cpus.len().div_ceil(MOST_CPUS);
    Ok(cpus.into_iter().step_by(step).collect())
}

fn can_run_on(cpu: usize) -> bool {
    std::thread::spawn(move || affinity::pin(cpu)).join().unwrap_or(false)
}

/// A calibration in progress.
struct Work {
    cpus: Vec<Cpu>,
    tell: std::sync::mpsc::Sender<String>,
    found: Calibration,
}

impl Work {
    fn new(cpus: Vec<Cpu>, tell: std::sync::mpsc::Sender<String>) -> Result<Work, CalibrateError> {
        // The values that need only one processor: frequency, calls, instructions.
        let mut machine = Machine::this_host();
        machine.name = "calibrated".to_string();
        machine.about = "the machine that this file was measured on".to_string();
        let found = Calibration { machine, transfers: Vec::new(), loads: Vec::new() };
        Ok(Work { cpus, tell, found })
    }

    fn all(mut self) -> Result<Calibration, CalibrateError> {
        self.shape();
        self.transfers();
        self.threads()?;
        self.memory()?;
        self.instructions()?;
        self.found.machine.check().map_err(|_| CalibrateError::Failed { what: "a value" })?;
        Ok(self.found)
    }

    fn say(&self, part: &str) {
        // The receiver lives until this ends.
        let _ = self.tell.send(part.to_string());
    }

    fn set(&mut self, name: &str, value: u32, source: &str) {
        let set = self.found.machine.set(name, &value.to_string(), source);
        debug_assert!(set.is_ok(), "{name} is a parameter");
    }

    /// Sets a parameter from a time in nanoseconds, in cycles and with its spread.
    fn set_time(&mut self, name: &str, nanos: Distribution, how: &str) {
        let mhz = f64::from(self.found.machine.mhz);
        let cycles = nanos.map(|nanos| (nanos * mhz / 1e3).max(0.0));
        let Distribution { median, min, max, count } = cycles;
        let source = format!("measured: {how}; median of {count}, {min:.0} to {max:.0} cycles");
        self.set(name, (median.round() as u32).max(1), &source);
    }

    /// Sets sockets, complexes and hardware threads, as the system reports them.
    fn shape(&mut self) {
        let all = affinity::cpus();
        let count = |number: &dyn Fn(&Cpu) -> usize| {
            let numbers: std::collections::BTreeSet<usize> = all.iter().map(number).collect();
            numbers.len() as u32
        };
        let (cores, packages) = (count(&|cpu| cpu.core), count(&|cpu| cpu.package as usize));
        let complexes = count(&|cpu| cpu.complex + (cpu.package as usize) * 100_000);
        let each = cores.div_ceil(packages);
        self.set("sockets", packages, "sysfs: packages of the processors in use");
        self.set("cores_per_socket", each, "sysfs: cores of the processors in use");
        let threads = (all.len() as u32).div_ceil(cores);
        self.set("threads_per_core", threads, "sysfs");
        if threads > 1 {
            self.set("thread_share", 60, "guess: a core with two busy threads does 1.2 times");
        }
        if complexes > packages {
            let size = each.div_ceil(complexes / packages);
            self.set("cores_per_complex", size, "sysfs: who shares a last-level cache");
        }
    }

    /// Measures each pair of cores in each state. The model has one cost for each distance.
    fn transfers(&mut self) {
        self.say("transfers between each pair of cores");
        let mut by_distance = [const { Vec::new() }; 3];
        let pairs = self.cpus.iter().enumerate();
        let pairs: Vec<(Cpu, Cpu)> = pairs
            .flat_map(|(at, to)| self.cpus[..at].iter().map(|from| (to.clone(), from.clone())))
            .collect();
        for (to, from) in pairs {
            let distance = match (to.package == from.package, to.complex == from.complex) {
                (true, true) => 0,
                (true, false) => 1,
                (false, _) => 2,
            };
            let Some(times) = pairs::transfer(to.number, from.number) else { continue };
            for (state, nanos) in pairs::STATES.into_iter().zip(times) {
                by_distance[distance].push(nanos.median);
                let (to, from) = (to.number, from.number);
                self.found.transfers.push(Transfer { to, from, state, nanos });
            }
        }
        let has_complexes = self.found.machine.cores_per_complex > 0;
        let [near, socket, far] = by_distance;
        let (near, socket) = if has_complexes { (near, socket) } else { (Vec::new(), near) };
        let names = [("same_complex", near), ("same_socket", socket), ("hop1", far)];
        for (name, values) in names {
            if let Some(spread) = Distribution::of(values) {
                self.set_time(name, spread, "a line another core has, over pairs and states");
            }
        }
        let half = self.found.machine.same_socket / 2;
        self.set("linger", half, "guess: half a transfer");
    }

    fn threads(&mut self) -> Result<(), CalibrateError> {
        self.say("waking, creating and switching threads");
        let failed = |what| CalibrateError::Failed { what };
        let machine = &self.found.machine;
        let call = f64::from(machine.syscall) * 1e3 / f64::from(machine.mhz);
        let without_call = |nanos: f64| (nanos - call).max(0.0);
        let (here, there) = (self.cpus[0].number, self.cpus[1].number);
        let wake = threads::wake(here, there).ok_or(failed("a wake-up"))?;
        self.set_time("wake", wake.map(without_call), "two threads that wake each other");
        let switch = threads::switch(here).ok_or(failed("a switch"))?;
        let how = "two threads of one processor that yield";
        self.set_time("context_switch", switch.map(without_call), how);
        let spawn = threads::spawn().ok_or(failed("a thread's creation"))?;
        self.set_time("spawn", spawn.map(without_call), "creating a thread");
        Ok(())
    }

    fn memory(&mut self) -> Result<(), CalibrateError> {
        self.say("loads by size, bandwidth, stores under way");
        let cpu = self.cpus[0].number;
        affinity::pin(cpu);
        let sizes = [1, 2, 3].map(|level| affinity::cache_kib(cpu, level).unwrap_or(0) as usize);
        for (name, kib) in ["l1_kib", "l2_kib", "l3_kib"].into_iter().zip(sizes) {
            self.set(name, kib as u32, "sysfs: size of the cache");
        }
        let [first, second, third] = sizes;
        let beyond = (4 * third.max(second)).clamp(64 << 10, 512 << 10);
        let mut at = 8;
        while at <= beyond {
            self.found.loads.extend(loads::latency(at).map(|spread| (at, spread)));
            at *= 2;
        }
        // Well inside a cache, and beyond all caches.
        let inside = |lower: usize, upper: usize| lower + (upper - lower) / 4;
        let levels = [
            ("l2_hit", inside(first, second.max(first)), second > 0),
            ("l3_hit", inside(second, third.max(second)), third > 0),
            ("memory", beyond, true),
        ];
        for (name, kib, is_there) in levels {
            if let Some(nanos) = is_there.then(|| loads::latency(kib)).flatten() {
                self.set_time(
                    name,
                    nanos,
                    &format!("loads that wait for one another in {kib} KiB"),
                );
            }
        }
        self.bandwidth(beyond)?;
        if let Some(depth) = loads::store_buffer() {
            let source = "measured: stores between two loads that miss, in eights";
            self.set("store_buffer", depth, source);
        }
        Ok(())
    }

    fn bandwidth(&mut self, kib: usize) -> Result<(), CalibrateError> {
        let cpus: Vec<usize> = self.cpus.iter().map(|cpu| cpu.number).collect();
        let each = (kib / cpus.len()).max(16 << 10);
        let read = loads::bandwidth(&cpus, each);
        let sockets = f64::from(self.found.machine.sockets);
        let rate = read.ok_or(CalibrateError::Failed { what: "bandwidth" })?;
        let Distribution { median, min, max, count } = rate.map(|all| all / sockets);
        let source =
            format!("measured: all cores read; median of {count}, {min:.0} to {max:.0} MB/s");
        self.set("memory_bandwidth", median as u32, &source);
        Ok(())
    }

    fn instructions(&mut self) -> Result<(), CalibrateError> {
        let [division, root] =
            loads::divisions().ok_or(CalibrateError::Failed { what: "a division" })?;
        self.set_time("division", division, "divisions of 64 bits that wait for one another");
        self.set_time("square_root", root, "roots (and additions) that wait for one another");
        #[cfg(target_arch = "x86_64")]
        self.core()?;
        Ok(())
    }

    /// Measures how the core runs instructions. A load that hits counts in the instruction rate,
    /// and the instructions that need its result wait for it.
    #[cfg(target_arch = "x86_64")]
    fn core(&mut self) -> Result<(), CalibrateError> {
        self.say("instructions under way");
        let failed = |what| CalibrateError::Failed { what };
        let mhz = f64::from(self.found.machine.mhz);
        let [instruction, load, branch] = core::all().ok_or(failed("an instruction"))?;
        let rate = instruction.map(|nanos| 1e4 / (nanos * mhz));
        let Distribution { median, min, max, count } = rate;
        let how = format!("measured: a mix of them; median of {count}, {min:.0} to {max:.0}");
        self.set("instructions_per_10_cycles", (median.round() as u32).max(1), &how);
        self.set_time("load", load, "loads of one word that wait for one another");
        self.set_time("mispredict", branch, "branches by chance, beyond others");
        if let Some(window) = core::window() {
            self.set("window", window, "measured: additions between two loads that miss");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cpu(number: usize, core: usize) -> Cpu {
        Cpu { number, package: 0, core, complex: 0 }
    }

    #[test]
    fn a_line_of_another_core_takes_longer_than_one_s_own() {
        let Ok(cpus) = measured_cpus(affinity::cpus()) else {
            println!("one core: nothing to measure");
            return;
        };
        let [read, written, shared] =
            pairs::transfer(cpus[0].number, cpus[1].number).expect("it can be pinned");
        // The walking core's own time is subtracted. A cache hit takes less than 2 ns, and no two
        // cores are that near.
        for nanos in [read, written, shared] {
            assert!(nanos.median > 2.0, "{read:?} {written:?} {shared:?}");
        }
    }

    #[test]
    fn one_core_is_an_error_that_says_so() {
        let none = measured_cpus(Vec::new()).unwrap_err();
        assert_eq!(none, CalibrateError::OneCore { cpus: 0 });
        let one = measured_cpus(vec![cpu(0, 0), cpu(1, 0)]).unwrap_err();
        assert!(one.to_string().contains("two cores"), "{one}");
        let absent = measured_cpus(vec![cpu(0, 0), cpu(4000, 4000)]).unwrap_err();
        assert!(absent.to_string().contains("affinity"), "{absent}");
    }

    #[test]
    fn the_file_has_the_spreads_and_is_a_model() {
        let nanos = Distribution::of(vec![40.0, 41.0, 90.0]).unwrap();
        let transfer = Transfer { to: 1, from: 0, state: LineState::WrittenRead, nanos };
        let (tell, _told) = std::sync::mpsc::channel();
        let found = Calibration {
            machine: Machine::guessed("any"),
            transfers: vec![transfer],
            loads: vec![(32, nanos)],
        };
        let mut work = Work { cpus: Vec::new(), tell, found };
        work.set_time("same_socket", nanos, "this");
        let text = work.found.to_toml();
        assert!(text.contains("#    1    0 WrittenRead       41.0    40.0    90.0 3"), "{text}");
        let read = Machine::from_toml(&text).unwrap();
        assert_eq!(read.same_socket, 98, "41 ns at 2.4 GHz");
        assert_eq!(read.source("same_socket"), "measured: this; median of 3, 96 to 216 cycles");
    }
}
