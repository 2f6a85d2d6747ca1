//! `manycore doctor`: the hardware features found, which of them are used, and why.

use std::{
    fmt::{Display, Write as _},
    io::{IsTerminal, stderr},
};

use manycore::{
    clock::{
        Clock,
        probe::{self, PairDelta, ProbeError},
    },
    percpu::{barrier, topology::Topology},
};
use manycore_page::number;

use crate::{
    args::DoctorArgs,
    command_line::print,
    failure::Failure,
    machine::{Machine, cores},
};

/// Messages each way between two cores. They take some milliseconds a pair.
const ROUNDS: u32 = 10_000;

/// How many pairs are shown by default.
const PAIRS_MAX: usize = 12;

/// Examines the machine and prints what it found.
pub fn run(args: &DoctorArgs) -> Result<(), Failure> {
    print(&format!("{}\n{}{}", Machine::here("system"), clock(), threads()))?;
    print(&topology(&Topology::detect()))?;
    let is_watched = stderr().is_terminal();
    let found = probe::pairs(ROUNDS, &mut |probe::Progress { done, total }| {
        if is_watched {
            eprint!("\rmessages between cores: {:3} %", 100 * done / total.max(1));
        }
    });
    if is_watched {
        eprint!("\r{:31}\r", "");
    }
    print(&pairs(found, args.all_pairs))
}

fn line(text: &mut String, name: &str, value: impl Display) {
    let _ = writeln!(text, "  {name:<22} {value}");
}

fn clock() -> String {
    let verdict = Clock::system().verdict();
    let mut text = "\nclock\n".to_owned();
    line(&mut text, "mode", verdict.mode);
    line(&mut text, "read by", verdict.instruction);
    if let Some(nanos) = verdict.read_ns {
        line(&mut text, "one stamp", format_args!("{nanos:.1} ns"));
    }
    if let Some(hertz) = verdict.frequency_hz {
        line(&mut text, "frequency", format_args!("{:.6} GHz", hertz as f64 / 1e9));
    }
    line(&mut text, "invariant", yes_no(verdict.invariant_tsc));
    line(&mut text, "kernel's clock source", verdict.clocksource.as_deref().unwrap_or("unknown"));
    line(&mut text, "virtual machine", yes_no(verdict.hypervisor));
    for reason in &verdict.reasons {
        line(&mut text, "because", reason);
    }
    text
}

fn yes_no(yes: bool) -> &'static str {
    if yes { "yes" } else { "no" }
}

fn threads() -> String {
    let mut text = "\nthreads\n".to_owned();
    line(&mut text, "cores for us", cores());
    let membarrier = if barrier::is_asymmetric() {
        "yes: updates may publish with plain stores"
    } else {
        "no: every update publishes with one locked instruction"
    };
    line(&mut text, "membarrier", membarrier);
    text
}

fn topology(topology: &Topology) -> String {
    let mut text = "\ntopology\n".to_owned();
    line(&mut text, "source", topology.source());
    let (all, ours) = (topology.cpus().len(), topology.allowed().len());
    line(&mut text, "processors", format_args!("{all}, of which we may use {ours}"));
    line(&mut text, "cores", topology.cores().len());
    let (caches, nodes) = (topology.llc_groups(), topology.nodes());
    for (name, groups) in [("last-level caches", caches), ("NUMA nodes", nodes)] {
        line(&mut text, name, groups.len());
        for group in groups {
            line(&mut text, "", format_args!("{}: processors {}", group.id, ranges(&group.cpus)));
        }
    }
    text
}

/// Returns the least delay of messages between each two cores. It is above zero if stamps keep the
/// order.
fn pairs(found: Result<Vec<PairDelta>, ProbeError>, all: bool) -> String {
    let mut text =
        "\nmessages between cores, least delay by the two cores' own clocks\n".to_owned();
    let mut pairs = match found {
        Ok(pairs) => pairs,
        Err(error) => {
            line(&mut text, "not measured", error);
            return text;
        }
    };
    pairs.sort_by_key(|pair| (pair.min_ticks, pair.from, pair.to));
    let inverted = pairs.iter().filter(|pair| pair.min_ticks <= 0).count();
    let verdict = match (pairs.len(), inverted) {
        (0, _) => "none: there is one core".to_owned(),
        (_, 0) => "none: no message arrived before it was sent".to_owned(),
        (pairs, inverted) => format!("{inverted} of {pairs} pairs: these clocks differ"),
    };
    line(&mut text, "inversions", verdict);
    let shown = if all { pairs.len() } else { pairs.len().min(PAIRS_MAX) };
    for PairDelta { from, to, min_ticks, rounds } in &pairs[..shown] {
        let name = format!("{from} -> {to}");
        let rounds = number(f64::from(*rounds));
        line(&mut text, &name, format_args!("{min_ticks:>6} ticks ({rounds} messages)"));
    }
    if shown < pairs.len() {
        line(&mut text, "", format_args!("and {} more: --all-pairs", pairs.len() - shown));
    }
    text
}

/// Returns numbers as ranges: "0-3,8" for 0, 1, 2, 3, 8.
fn ranges(numbers: &[usize]) -> String {
    let mut parts: Vec<(usize, usize)> = Vec::new();
    for &number in numbers {
        match parts.last_mut() {
            Some((_, end)) if *end + 1 == number => *end = number,
            _ => parts.push((number, number)),
        }
    }
    let part = |&(start, end): &(usize, usize)| {
        if start == end { start.to_string() } else { format!("{start}-{end}") }
    };
    parts.iter().map(part).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use manycore::clock::probe::PairDelta;

    use super::{pairs, ranges};

    #[test]
    fn runs_of_numbers_become_ranges() {
        assert_eq!(ranges(&[0, 1, 2, 3, 8, 10, 11]), "0-3,8,10-11");
        assert_eq!(ranges(&[]), "");
    }

    #[test]
    fn inverted_pairs_come_first_and_are_counted() {
        let delta = |to, min_ticks| PairDelta { from: 0, to, min_ticks, rounds: 10 };
        let found = (1..40).map(|to| delta(to, 500 - 20 * to as i64)).collect();
        let text = pairs(Ok(found), false);
        // 500 - 20 * 25 is 0, which is no order either.
        assert!(text.contains("15 of 39 pairs"), "{text}");
        assert!(text.find("-280 ticks") < text.find("-260 ticks"), "{text}");
        assert!(text.contains("and 27 more"), "{text}");
    }
}
