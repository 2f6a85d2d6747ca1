//! The first plots of the tour's page: how one counter scales, recorded on virtual cores and
//! measured on this machine.
//!
//! Owns: the recorded runs. `ci/rivals.sh record` makes them anew. The README's picture is drawn
//! from the same file.

use std::fmt::Write;

use manycore_page::{Curve, Plot};

use crate::{compare, tour::Findings};

/// Rows of `bench counter` on 1 to 240 cores of `opteron-8x6`, one run for each number of cores.
const RECORDED: &str = include_str!("recorded.csv");

/// The counters, ours first: in the benchmark, on the tour, and with more words.
const COUNTERS: [(&str, &str, &str); 3] = [
    ("counter", "Counter", "Counter, of this library"),
    ("atomic", "atomic", "one atomic word"),
    ("mutex", "mutex", "a word behind a Mutex"),
];

/// Virtual cores of the plot: what the machine of the model has.
const CORES: f64 = 48.0;

/// Writes the section. The plot of this machine is there if the tour measured counters.
pub(super) fn section(page: &mut String, findings: &[Findings]) {
    page.push_str(
        "<h2>One counter, more and more cores</h2>\n<p>The first plot is what this library is made \
         for: every thread adds to one counter, on 1 to 48 cores. It is simulated: the \
         benchmark's own code on a cost model of cache coherence, recorded with this version. It \
         ranks, and shows the shape; absolute figures can be off by two times or more. The \
         second plot is the same program on this machine.</p>\n<div class=\"plots\">\n",
    );
    let recorded = |name: &str| {
        let points = compare::by_threads(RECORDED, "throughput", name);
        points.into_iter().filter(|(cores, _)| *cores <= CORES).collect()
    };
    figure(page, "Recorded, virtual cores", "cores", |(name, ..)| recorded(name));
    let rows = || findings.iter().filter(|f| f.bench == "counter").flat_map(|f| &f.groups);
    let here = |name: &str| -> Vec<(f64, f64)> {
        let rows = rows().flat_map(|(_, rows)| rows);
        let rows = rows.filter(|row| row.impl_name == name && row.metric == "throughput");
        rows.map(|row| (row.threads as f64, row.median)).collect()
    };
    if rows().next().is_some() {
        figure(page, "Measured, this machine", "threads", |(_, name, _)| here(name));
    }
    page.push_str("</div>\n");
}

fn figure(
    page: &mut String,
    heading: &str,
    x: &str,
    points: impl Fn((&str, &str, &str)) -> Vec<(f64, f64)>,
) {
    let curve = |(colour, counter): (usize, &(&str, &str, &str))| {
        let (points, name) = (points(*counter), counter.2.to_owned());
        Curve { name, points, colour, ..Curve::default() }
    };
    let plot = Plot {
        heading: heading.to_owned(),
        x: x.to_owned(),
        y: "million additions a second".to_owned(),
        curves: COUNTERS.iter().enumerate().map(curve).collect(),
    };
    // Writing to a string cannot fail.
    let _ = write!(page, "<figure>\n{}</figure>\n", plot.svg());
}

#[cfg(test)]
mod tests {
    use super::{COUNTERS, RECORDED};
    use crate::compare;

    #[test]
    fn each_counter_was_recorded_on_1_to_240_cores() {
        for (name, ..) in COUNTERS {
            let points = compare::by_threads(RECORDED, "throughput", name);
            let cores: Vec<f64> = points.iter().map(|(cores, _)| *cores).collect();
            assert!(cores.is_sorted() && cores.len() >= 5, "{name}: {cores:?}");
            assert_eq!((cores.first(), cores.last()), (Some(&1.0), Some(&240.0)), "{name}");
        }
    }
}
