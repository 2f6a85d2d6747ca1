//! The result of a measurement: rows in a form that all workloads share.
//!
//! Owns: the form of a result. A row names the implementation, its parameters, the quantity and the
//! unit. It gives the median, minimum and maximum.

use serde::Serialize;
use serde_json::{Map, Value};

/// What an implementation is, so that a reader compares like with like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A type of this library.
    Ours,
    /// A general rival: it offers the same guarantees to the same callers.
    Rival,
    /// Code written by hand for this very workload: an honest baseline, but no general type.
    ByHand,
    /// The plain structure on one thread, unshared.
    Baseline,
    /// What the loop costs when nothing is done, or less than what is asked for, or the hardware's
    /// own figure.
    Floor,
}

impl Kind {
    /// The word that rows carry in `params.kind`.
    pub fn word(self) -> &'static str {
        match self {
            Kind::Ours => "ours",
            Kind::Rival => "rival",
            Kind::ByHand => "by-hand",
            Kind::Baseline => "baseline",
            Kind::Floor => "floor",
        }
    }
}

/// The parameters of a row, in alphabetical order.
pub type Params = Map<String, Value>;

/// One result. Serialised, its keys are exactly these, in this order.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The workload.
    pub bench: &'static str,
    /// The implementation.
    #[serde(rename = "impl")]
    pub impl_name: &'static str,
    /// True for a type of this library.
    pub ours: bool,
    /// How many threads took part (a queue's drainer not counted).
    pub threads: usize,
    /// Everything else that was chosen, and the kind of implementation.
    pub params: Params,
    /// What was measured.
    pub metric: &'static str,
    /// In which unit.
    pub unit: &'static str,
    /// The middle of the repeats.
    pub median: f64,
    /// The smallest of the repeats.
    pub min: f64,
    /// The largest of the repeats.
    pub max: f64,
    /// How many repeats.
    pub repeats: usize,
}

impl Row {
    /// The kind of implementation, as its parameter says.
    pub fn kind(&self) -> &str {
        self.params.get("kind").and_then(Value::as_str).unwrap_or("")
    }

    /// The parameters without the kind, as `key=value` words: what a group of rows shares.
    pub fn settings(&self) -> String {
        let words = self.params.iter().filter(|(key, _)| *key != "kind");
        words.map(|(key, value)| format!("{key}={}", plain(value))).collect::<Vec<_>>().join(" ")
    }
}

/// A JSON value as a bare word.
pub(crate) fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Median, minimum and maximum of some samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// The middle sample, or the mean of the two in the middle.
    pub median: f64,
    /// The smallest sample.
    pub min: f64,
    /// The largest sample.
    pub max: f64,
}

impl Summary {
    /// Of at least one sample.
    ///
    /// # Panics
    /// If there is no sample.
    pub fn of(samples: &[f64]) -> Self {
        assert!(!samples.is_empty(), "a summary needs at least one sample");
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (low, high) = (sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2]);
        Self { median: (low + high) / 2.0, min: sorted[0], max: sorted[sorted.len() - 1] }
    }
}

#[cfg(test)]
mod tests {
    use super::Summary;

    #[test]
    fn summary_of_odd_count_is_the_middle_sample() {
        let summary = Summary::of(&[3.0, 1.0, 2.0]);
        assert_eq!(summary, Summary { median: 2.0, min: 1.0, max: 3.0 });
    }

    #[test]
    fn summary_of_even_count_is_the_mean_of_the_middle() {
        assert_eq!(Summary::of(&[4.0, 1.0, 2.0, 8.0]).median, 3.0);
    }
}
