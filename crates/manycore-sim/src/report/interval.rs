//! The interval of a curve: how much of the result is chance.
//!
//! A run gives the same figure each time, so the figure alone does not show whether threads moved
//! in step or just missed each other. Each repeat has another seed and delays each line by up to
//! some cycles ([`Machine::jitter`]). The interval reaches from the lowest to the highest rate of
//! the run and its repeats. The band is something else: it shows what is unknown about the machine.

use std::fmt::{self, Formatter};

use manycore_page::number;

use super::{Curve, Point};
use crate::machine::Machine;

/// Without a request, repeats and the band are made only if the runs have fewer accesses than this.
pub const CHEAP: u64 = 2_000_000;

/// Runs of an interval that was not requested, including the first run.
pub const SEEDS: u32 = 5;

/// Returns the machine of a repeat. Its lines arrive up to an eighth of a transfer late.
///
/// ```
/// use manycore_sim::{Machine, report};
///
/// let machine = Machine::named("opteron-8x6").unwrap();
/// assert_eq!(report::jittered(&machine).jitter, 15);
/// ```
#[must_use]
pub fn jittered(machine: &Machine) -> Machine {
    let mut jittered = machine.clone();
    if jittered.jitter == 0 {
        jittered.jitter = (machine.same_socket / 8).max(1);
    }
    jittered
}

/// Returns true if repeats of these runs take little time.
///
/// Counts accesses, so that the answer is the same on every host.
pub fn are_cheap(points: &[Point]) -> bool {
    points.iter().map(|point| point.reads + point.writes + point.rmws).sum::<u64>() < CHEAP
}

impl Curve {
    /// Returns the lowest and the highest rate of a point, over the run and its repeats. Returns
    /// `None` without repeats.
    pub fn interval(&self, at: usize, mhz: u32) -> Option<(f64, f64)> {
        let own = self.points.get(at)?.rate(mhz);
        let rates = self.repeats.iter().filter_map(|repeat| repeat.points.get(at));
        let rates = rates.map(|point| point.rate(mhz));
        let spread = |(low, high), rate| (f64::min(low, rate), f64::max(high, rate));
        (!self.repeats.is_empty()).then(|| rates.fold((own, own), spread))
    }

    /// Returns what a report says about the interval, in a line or two.
    pub(super) fn interval_line(&self, mhz: u32) -> String {
        if self.repeats.is_empty() {
            return "No interval: one run each (--seeds makes one).".to_string();
        }
        let of = |(at, point): (usize, &Point)| {
            let (low, high) = self.interval(at, mhz).unwrap_or_default();
            format!("{}: {}..{}", point.cores, number(low), number(high))
        };
        let all: Vec<String> = self.points.iter().enumerate().map(of).collect();
        let runs = self.repeats.len() + 1;
        format!("Interval of the rate over {runs} runs with jitter, by cores: {}", all.join("  "))
    }

    pub(super) fn write_interval(&self, mhz: u32, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "\n{}", self.interval_line(mhz))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Curve, Point, Variation};

    fn point(cycles: u64) -> Point {
        Point { cores: 4, operations: 1000, cycles, ..Point::default() }
    }

    #[test]
    fn the_interval_is_over_the_run_and_its_repeats() {
        let mut curve = Curve { points: vec![point(2000)], ..Curve::default() };
        assert_eq!(curve.interval(0, 1), None);
        assert!(curve.interval_line(1).contains("No interval"));
        for cycles in [1000, 1500] {
            let change = format!("after {cycles}");
            curve.repeats.push(Variation { change, points: vec![point(cycles)] });
        }
        assert_eq!(curve.interval(0, 1), Some((0.5, 1.0)));
        assert!(curve.interval_line(1).contains("over 3 runs with jitter, by cores: 4: 0.5"));
    }
}
