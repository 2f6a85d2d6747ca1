//! The description of the machine that a result belongs to.
//!
//! Owns: the first line of every result.

use std::fmt;

use serde::Serialize;

/// What a reader must know to compare two results.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// Always "machine", so that a line of JSON tells its kind by one key.
    pub bench: &'static str,
    /// The processor's own name.
    pub cpu: String,
    /// How many cores this process may use.
    pub cores: usize,
    /// How the library orders events between cores.
    pub clock: String,
    /// Which code ran.
    pub revision: &'static str,
    /// Where everything that is measured allocates.
    pub allocator: &'static str,
    /// Cargo's profile of the build.
    pub profile: &'static str,
    /// How many threads wanted to run in the minute before, if the system tells. Others' threads
    /// make every figure noisy.
    pub load: Option<f64>,
}

impl Machine {
    /// Returns this machine, now, for a program that allocates as `allocator` says.
    pub fn here(allocator: &'static str) -> Self {
        Self {
            bench: "machine",
            cpu: cpu_model(),
            cores: cores(),
            clock: clock_mode(),
            revision: REVISION,
            allocator,
            profile: env!("MANYCORE_PROFILE"),
            load: load(),
        }
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cpu, cores, clock, revision, allocator, profile, load, .. } = self;
        write!(f, "machine: {cpu}; cores: {cores}; clock: {clock}; revision: {revision}")?;
        write!(f, "; allocator: {allocator}; profile: {profile}")?;
        match load {
            Some(load) => write!(f, "; load before: {load}"),
            None => Ok(()),
        }
    }
}

/// Returns how many cores this process may use.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The git revision that this was built from, or "unknown".
pub const REVISION: &str = env!("MANYCORE_REVISION");

/// The version and the revision.
pub const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("MANYCORE_REVISION"), ")");

fn clock_mode() -> String {
    manycore::clock::Clock::system().mode().to_string()
}

fn load() -> Option<f64> {
    std::fs::read_to_string("/proc/loadavg").ok()?.split_whitespace().next()?.parse().ok()
}

fn cpu_model() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let value = |key: &str| {
        let line = text.lines().find(|line| line.starts_with(key))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    // x86 says "model name"; many arm kernels only give the implementer's and the part's number.
    value("model name")
        .or_else(|| value("Hardware"))
        .or_else(|| Some(format!("arm part {}", value("CPU part")?)))
        .unwrap_or_else(|| std::env::consts::ARCH.to_owned())
}

#[cfg(test)]
mod tests {
    use super::Machine;

    #[test]
    fn line_names_cpu_cores_clock_and_build() {
        let line = Machine::here("system").to_string();
        for word in ["machine: ", "cores: ", "clock: ", "revision: ", "allocator: ", "profile: "] {
            assert!(line.contains(word), "{line}");
        }
    }
}
