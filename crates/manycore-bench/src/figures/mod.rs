//! Figures of the papers: the statements of their text, and the command that reproduces each on
//! virtual cores.
//!
//! Owns: the table of figures, the form of a text's claims, and the comparison of a result with
//! them. Does not own: running (the command does), the page.
//!
//! Laws:
//!
//! 1. A published number stands here only if the paper's text states it, with the place. No number
//!    is read off a picture. Where a paper has only a picture, the entry has an order and no
//!    number.
//! 2. A calibrated result is marked as calibrated, and is no evidence. Everything else ran with the
//!    model as it is.
//! 3. Numbers that this library had to choose (the work around an operation) are called chosen.

mod claim;
pub mod fresh;
mod k42;
mod ldu;
#[cfg(test)]
mod lines_of_code;
pub mod list;
mod oplog;
mod origin;
pub mod page;
mod parsec;
#[cfg(test)]
mod tests;

use serde_json::Value;

pub use claim::{Claim, Finding, Points, Series};

/// One figure of a paper.
pub struct Figure {
    /// What it is called on the command line.
    pub id: &'static str,
    /// Paper, number, and subject.
    pub title: &'static str,
    /// What the paper did, what is done here, and where the two differ.
    pub story: &'static str,
    /// Whether the model was fitted to it.
    pub calibration: bool,
    /// The virtual machine.
    pub machine: &'static str,
    /// The workload.
    pub workload: &'static str,
    /// Its options, without those that the axis sets.
    pub arguments: &'static [&'static str],
    /// Virtual time of a run.
    pub duration: &'static str,
    /// Virtual time of a run in the quick form.
    pub quick_duration: &'static str,
    /// What goes to the right.
    pub axis: Axis,
    /// The metric of the rows, or one of the [simulator's own](Figure::is_seen).
    pub metric: &'static str,
    /// Its unit on the page.
    pub unit: &'static str,
    /// Values of the rows are multiplied by this, to have that unit.
    pub scale: f64,
    /// Whether each curve is divided by its own first point.
    pub relative: bool,
    /// The curves.
    pub curves: &'static [Curve],
    /// What the text says.
    pub claims: &'static [Claim],
    /// Where the simulation differs, and which experiment says why; empty if it does not.
    pub why: &'static [&'static str],
}

/// A metric of the simulator's own: the percentage of the cores' cycles that they wait for lines.
pub const WAITING: &str = "waiting";

/// Another one: the percentage of the cores' cycles in which they have no thread.
pub const IDLE: &str = "idle";

/// What changes from point to point.
pub enum Axis {
    /// The number of cores.
    Cores {
        /// Threads that the workload starts beside those that it counts.
        beside: u32,
        /// The numbers of threads.
        full: &'static [u32],
        /// The same in the quick form.
        quick: &'static [u32],
    },
    /// An option, on a number of cores that stays.
    Option {
        /// The option.
        name: &'static str,
        /// What is to be read below the axis.
        label: &'static str,
        /// Its values, and what each is on the axis.
        full: &'static [(u32, f64)],
        /// The same in the quick form.
        quick: &'static [(u32, f64)],
        /// The cores.
        cores: u32,
    },
}

/// One curve of a figure.
pub struct Curve {
    /// Its name in the paper.
    pub name: &'static str,
    /// The implementation that stands for it.
    pub implementation: &'static str,
    /// What the text gives, as point and value.
    pub published: &'static [(f64, f64)],
    /// The implementation whose value is taken away: the same loop without what is of interest.
    pub less: Option<&'static str>,
}

impl Curve {
    const fn new(
        name: &'static str,
        implementation: &'static str,
        published: &'static [(f64, f64)],
    ) -> Self {
        Self { name, implementation, published, less: None }
    }
}

/// One run of a figure: a point of its curves.
pub struct Run {
    /// The point on the axis.
    pub x: f64,
    /// Virtual cores.
    pub cores: u32,
    /// The workload and its options, as for `manycore-bench bench`.
    pub words: Vec<String>,
    /// The only implementation, where a run shows the curve of one.
    pub alone: Option<&'static str>,
}

/// Every figure.
pub fn all() -> impl Iterator<Item = &'static Figure> {
    oplog::FIGURES.iter().chain(k42::FIGURES).chain(parsec::FIGURES).chain(ldu::FIGURES)
}

/// What can be asked for by name.
pub fn names() -> impl Iterator<Item = &'static str> {
    all().map(|figure| figure.id).chain([fresh::ID])
}

impl Figure {
    /// Whether the metric is the simulator's own, which is of a whole run: so each curve has runs
    /// of its own, and a real machine has none.
    pub fn is_seen(&self) -> bool {
        [WAITING, IDLE].contains(&self.metric)
    }

    /// The runs of this figure.
    pub fn runs(&self, quick: bool) -> Vec<Run> {
        let duration = if quick { self.quick_duration } else { self.duration };
        if self.is_seen() {
            let each = |curve: &Curve| self.runs_of(quick, duration, Some(curve.implementation));
            return self.curves.iter().flat_map(each).collect();
        }
        self.runs_of(quick, duration, None)
    }

    fn runs_of(&self, quick: bool, duration: &str, alone: Option<&'static str>) -> Vec<Run> {
        match &self.axis {
            Axis::Cores { beside, full, quick: few } => {
                let threads = if quick { few } else { full };
                let run = |&threads: &u32| Run {
                    x: f64::from(threads),
                    cores: threads + beside,
                    words: self.words(threads, duration, &[], alone),
                    alone,
                };
                threads.iter().map(run).collect()
            }
            Axis::Option { cores, .. } => self.runs_by_option(*cores, quick, duration, alone),
        }
    }

    /// A run for each value of the option that changes; none if the number of cores does.
    fn runs_by_option(
        &self,
        cores: u32,
        quick: bool,
        duration: &str,
        alone: Option<&'static str>,
    ) -> Vec<Run> {
        let Axis::Option { name, full, quick: few, .. } = &self.axis else { return Vec::new() };
        let values = if quick { few } else { full };
        let run = |&(value, x): &(u32, f64)| Run {
            x,
            cores,
            words: self.words(cores, duration, &[name, &value.to_string()], alone),
            alone,
        };
        values.iter().map(run).collect()
    }

    /// The same on this machine: with one thread and with all cores, or with all cores alone. None
    /// of what only the simulator sees.
    pub fn runs_here(&self, cores: u32, quick: bool) -> Vec<Run> {
        if self.is_seen() {
            return Vec::new();
        }
        let duration = if quick { "10ms" } else { "100ms" };
        match &self.axis {
            Axis::Cores { beside, .. } => {
                let most = cores.saturating_sub(*beside).max(1);
                let mut threads = vec![1, most];
                threads.dedup();
                let run = |threads: u32| Run {
                    x: f64::from(threads),
                    cores,
                    words: self.words(threads, duration, &[], None),
                    alone: None,
                };
                threads.into_iter().map(run).collect()
            }
            Axis::Option { .. } => self.runs_by_option(cores, quick, duration, None),
        }
    }

    /// The workload and its options: of all curves, or of one implementation.
    fn words(
        &self,
        threads: u32,
        duration: &str,
        option: &[&str],
        alone: Option<&'static str>,
    ) -> Vec<String> {
        let own = |curve: &Curve| [Some(curve.implementation), curve.less];
        let all = self.curves.iter().flat_map(own).flatten();
        let mut names: Vec<&str> = match alone {
            Some(name) => vec![name],
            None => all.collect(),
        };
        names.sort_unstable();
        names.dedup();
        let (threads, names) = (threads.to_string(), names.join(","));
        let own = ["--threads", &threads, "--impl", &names, "--duration", duration];
        let ours = ["--repeat", "1", "--format", "json"];
        let words = [self.workload].into_iter().chain(self.arguments.iter().copied());
        words.chain(option.iter().copied()).chain(own).chain(ours).map(str::to_owned).collect()
    }

    /// A row of the simulator's own metric, in the form of the workloads'.
    pub fn seen_row(&self, implementation: &str, percent: f64) -> String {
        let row =
            serde_json::json!({ "impl": implementation, "metric": self.metric, "median": percent });
        format!("{row}\n")
    }

    /// What is to be read below the axis.
    pub fn axis_label(&self) -> &'static str {
        match self.axis {
            Axis::Cores { .. } => "cores",
            Axis::Option { label, .. } => label,
        }
    }

    /// The value of each curve in the rows of one run.
    pub fn values(&self, rows: &str) -> Vec<Option<f64>> {
        let rows: Vec<Value> =
            rows.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        let median = |name: &str| {
            let mine = |row: &&Value| row["impl"] == name && row["metric"] == self.metric;
            rows.iter().find(mine)?["median"].as_f64()
        };
        let value = |curve: &Curve| {
            let less = curve.less.map_or(Some(0.0), median)?;
            Some((median(curve.implementation)? - less) * self.scale)
        };
        self.curves.iter().map(value).collect()
    }

    /// The curves of runs, each a point on the axis and the rows that it gave.
    pub fn series(&self, runs: &[(f64, String)]) -> Series {
        let mut curves = vec![Vec::new(); self.curves.len()];
        for (x, rows) in runs {
            for (curve, value) in curves.iter_mut().zip(self.values(rows)) {
                curve.extend(value.map(|value| (*x, value)));
            }
        }
        if self.relative {
            for curve in &mut curves {
                let first = curve.first().map_or(1.0, |point| point.1);
                curve.iter_mut().for_each(|point| point.1 /= first);
            }
        }
        let names = self.curves.iter().map(|curve| (curve.implementation, curve.name));
        Series { curves: names.zip(curves).map(|((id, name), c)| (id, name, c)).collect() }
    }

    /// What became of each claim.
    pub fn findings(&self, series: &Series) -> Vec<Finding> {
        self.claims.iter().map(|claim| claim.judge(series)).collect()
    }
}
