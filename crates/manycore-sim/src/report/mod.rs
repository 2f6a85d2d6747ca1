//! Reports of a series of runs, for people and for machines.
//!
//! Contains the data of a [`Report`] and its three forms: text, one HTML page, and JSON. Every form
//! says what the figures are worth, and what the model leaves out.

mod html;
mod interval;
mod line;
mod missing;
mod text;

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{
    engine::Totals,
    machine::{Arbitration, Machine, PARAMETERS},
};

pub use crate::bytes::{Held, byte_ranges};
pub use interval::{CHEAP, SEEDS, are_cheap, jittered};
pub use line::{HotLine, HotSite, Sharing};
pub use missing::missing;

/// The claim in every report.
pub const CLAIM: &str = "This is a stated cost model of cache coherence on real code, in virtual \
    time. Use it to rank, to see the shape of a curve, and to find lines. Absolute figures can be \
    off by 2x or more.";

/// Explains the columns of a table of runs.
const COLUMNS: [&str; 6] = [
    "band: from the lowest to the highest rate, with uncertain parameters changed (--band)",
    "core cycles: cycles of all cores, busy or idle",
    "waiting: cycles of these in which a core waited for a cache line",
    "remote reads: loads that another core's cache answered",
    "shared writes: stores and locked instructions that took a line from other cores",
    "locked: atomic read-modify-write instructions",
];

/// Explains the list of lines.
const LINE_COLUMNS: [&str; 5] = [
    "false sharing: cores wait for the line because others use other bytes of it; it ends where \
     these have a line of their own",
    "true sharing: cores wait because others write the same bytes, or read what they write",
    "not shared: first uses, and lines that a cache had no room for",
    "bytes: what of the line a place accesses, and what lies there",
    "reads, writes, locks (atomic read-modify-writes): of the place, how often it waited, and how \
     long each time; a place in a crate stands behind the caller's own",
];

/// Returns the model with one uncertain parameter changed each time. They make the band around a
/// curve.
pub fn variations(machine: &Machine) -> Vec<(String, Machine)> {
    let mut changes: Vec<(&str, String)> = Vec::new();
    for other in [Arbitration::Fifo, Arbitration::Rounds, Arbitration::Turns] {
        if other != machine.arbitration {
            changes.push(("arbitration", format!("{other:?}").to_lowercase()));
        }
    }
    let lingers = [0, machine.same_socket / 2, machine.same_socket];
    let lingers = lingers.into_iter().filter(|linger| *linger != machine.linger);
    changes.extend(lingers.map(|linger| ("linger", linger.to_string())));
    let depths = [0, 16].into_iter().filter(|depth| *depth != machine.store_buffer);
    changes.extend(depths.map(|depth| ("store_buffer", depth.to_string())));
    let change = |(name, value): (&str, String)| {
        let mut changed = machine.clone();
        changed.set(name, &value, "varied").ok()?;
        Some((format!("{name}={value}"), changed))
    };
    changes.into_iter().filter_map(change).collect()
}

/// A report.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Report {
    /// The command that was run.
    pub title: String,
    /// Warnings that a reader must see first: why the figures may mislead.
    #[serde(default)]
    pub warnings: Vec<String>,
    /// The text of [`CLAIM`].
    pub claim: String,
    /// The parts of a real machine that the model leaves out.
    pub missing: Vec<String>,
    /// Other facts that a reader must know about these runs.
    pub notes: Vec<String>,
    /// Uninstrumented code in all runs, which cost nothing; the largest share first. `None` if the
    /// runs were too short to tell. Sampled on the host, so it differs between runs.
    #[serde(default)]
    pub blind: Option<Vec<Blind>>,
    /// The machine.
    pub machine: MachineFacts,
    /// One curve for each program or variant.
    pub curves: Vec<Curve>,
}

/// An object file whose code ran uninstrumented.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Blind {
    /// Its file.
    pub object: String,
    /// Its functions that ran most, if it has symbols.
    pub functions: Vec<String>,
    /// Its share of the executed instructions, from 0 to 1. An estimate from samples.
    pub share: f64,
}

/// The machine of a report.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct MachineFacts {
    /// Its short name.
    pub name: String,
    /// The machine that the model stands for.
    pub about: String,
    /// Million cycles per second.
    pub mhz: u32,
    /// Every parameter with its source.
    pub parameters: Vec<ParameterFact>,
}

/// One parameter of the machine.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ParameterFact {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: String,
    /// The source of the value.
    pub source: String,
}

/// One program on rising numbers of cores.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Curve {
    /// The program or variant.
    pub name: String,
    /// One point for each number of cores, in rising order.
    pub points: Vec<Point>,
    /// The same runs, each with one uncertain parameter changed.
    pub variations: Vec<Variation>,
    /// The same runs with jitter and other seeds.
    #[serde(default)]
    pub repeats: Vec<Variation>,
    /// The most expensive lines at the last point.
    pub lines: Vec<HotLine>,
}

/// A curve's points with one parameter changed.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Variation {
    /// The change, such as `arbitration=fifo`.
    pub change: String,
    /// One for each point of the curve.
    pub points: Vec<Point>,
}

/// One run.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Point {
    /// Virtual cores.
    pub cores: u32,
    /// Operations of all cores. 0 if the program did not count them.
    pub operations: u64,
    /// Virtual time, in cycles.
    pub cycles: u64,
    /// Loads of all cores.
    pub reads: u64,
    /// Stores.
    pub writes: u64,
    /// Locked instructions.
    pub rmws: u64,
    /// Requests for lines.
    pub misses: u64,
    /// Cycles that cores waited for lines.
    pub waited: u64,
    /// Loads that another core's cache answered.
    pub remote_reads: u64,
    /// Stores that took the line from other cores.
    pub shared_writes: u64,
}

impl Report {
    /// Creates an empty report of runs on that machine.
    pub fn new(title: &str, machine: &Machine) -> Report {
        let fact = |name: &str| ParameterFact {
            name: name.to_string(),
            value: machine.get(name).unwrap_or_default(),
            source: machine.source(name).to_string(),
        };
        Report {
            title: title.to_string(),
            warnings: Vec::new(),
            claim: CLAIM.to_string(),
            missing: missing(machine),
            notes: Vec::new(),
            blind: None,
            machine: MachineFacts {
                name: machine.name.clone(),
                about: machine.about.clone(),
                mhz: machine.mhz,
                parameters: PARAMETERS.iter().map(|parameter| fact(parameter.name)).collect(),
            },
            curves: Vec::new(),
        }
    }

    /// Returns the lines that a reader must see first: the warnings, and a line if uninstrumented
    /// code has a large share.
    fn first_lines(&self) -> Vec<String> {
        /// The share from which on the report warns.
        const RESTS: f64 = 0.1;
        let mut lines = self.warnings.clone();
        let blind = self.blind.as_deref().unwrap_or_default();
        let all: f64 = blind.iter().map(|blind| blind.share).sum();
        if let Some(most) = blind.first().filter(|_| all >= RESTS) {
            lines.push(format!(
                "{:.0} % of the instructions are of uninstrumented code, which costs nothing here \
                 but system calls and allocations: {most}",
                100.0 * all
            ));
        }
        lines
    }

    /// Returns the report as JSON.
    ///
    /// # Panics
    ///
    /// Never: every part of a report can be written.
    pub fn json(&self) -> String {
        let text = serde_json::to_string_pretty(self).expect("strings, numbers and lists");
        text + "\n"
    }

    /// Returns true if the programs counted operations. Otherwise costs are those of whole runs.
    pub fn counts_operations(&self) -> bool {
        self.curves.iter().flat_map(|curve| &curve.points).all(|point| point.operations > 0)
    }
}

impl fmt::Display for Blind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1} % {}", 100.0 * self.share, self.object)?;
        if !self.functions.is_empty() {
            write!(f, " ({})", self.functions.join(", "))?;
        }
        Ok(())
    }
}

impl Point {
    /// Creates the point of a run, or of a part of a run.
    pub fn new(cores: u32, operations: u64, cycles: u64, totals: &Totals) -> Point {
        let [reads, writes, rmws] = totals.accesses;
        Point {
            cores,
            operations,
            cycles,
            reads,
            writes,
            rmws,
            misses: totals.misses,
            waited: totals.waited,
            remote_reads: totals.remote_reads,
            shared_writes: totals.shared_writes,
        }
    }

    /// Returns operations a microsecond, or runs a second if operations were not counted.
    pub fn rate(&self, mhz: u32) -> f64 {
        let microseconds = self.cycles as f64 / f64::from(mhz);
        if self.operations > 0 {
            self.operations as f64 / microseconds.max(f64::MIN_POSITIVE)
        } else {
            1e6 / microseconds.max(f64::MIN_POSITIVE)
        }
    }

    /// Returns a count for each operation, or for the whole run.
    pub fn each(&self, count: u64) -> f64 {
        count as f64 / self.operations.max(1) as f64
    }

    /// Returns the cycles of all cores for each operation.
    pub fn core_cycles(&self) -> f64 {
        self.each(self.cycles * u64::from(self.cores))
    }
}

impl Curve {
    /// Returns the lowest and the highest rate of a point, over the curve and its variations.
    pub fn band(&self, at: usize, mhz: u32) -> (f64, f64) {
        let others = self.variations.iter().filter_map(|variation| variation.points.get(at));
        let own = self.points.get(at).into_iter();
        others
            .chain(own)
            .map(|point| point.rate(mhz))
            .fold((f64::MAX, 0.0), |(low, high), rate| (f64::min(low, rate), f64::max(high, rate)))
    }
}

#[cfg(test)]
mod tests;
