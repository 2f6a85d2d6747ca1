//! From runs to the report of `manycore-sim`, with places for addresses.

use std::fmt::Write;

use manycore_sim::{
    Machine,
    report::{Curve, HotLine, HotSite, Point, Report, Variation},
    symbols::Symbols,
};

use super::{Band, Repeats, blind, outcome::Line, outcome::Run};

/// What the model does not know about the way the program is run.
const NOTE: &str = "A membarrier costs its caller alone.";

/// Places of one line that are shown.
const SITES: usize = 12;

/// The report of one program.
pub(crate) fn report(
    title: &str,
    machine: &Machine,
    runs: &[Run],
    repeats: &Repeats,
    top: usize,
) -> Report {
    let mut report = Report::new(title, machine);
    report.notes.push(NOTE.to_owned());
    let left = runs.iter().map(|run| run.count("left")).max().unwrap_or(0);
    if left > 0 {
        report.notes.push(format!(
            "{left} clock reads or system calls of the program's own could not be replaced: they \
             see the real machine."
        ));
    }
    report.blind = runs.last().and_then(blind::of);
    if report.blind.is_none() {
        // Not in the report, which is the same each time.
        eprintln!("manycore sim: too short a run to say how much of it was uninstrumented");
    }
    let mut symbols = Symbols::new();
    let variation = |band: &Band| Variation {
        change: band.change.clone(),
        points: band.runs.iter().map(point).collect(),
    };
    let lines = runs.last().map(|run| {
        let dear = run.lines.iter().take(top);
        dear.map(|line| hot_line(run, line, &mut symbols)).collect()
    });
    report.curves.push(Curve {
        name: title.to_owned(),
        points: runs.iter().map(point).collect(),
        variations: repeats.bands.iter().map(variation).collect(),
        repeats: repeats.seeds.iter().map(variation).collect(),
        lines: lines.unwrap_or_default(),
    });
    report
}

pub(crate) fn point(run: &Run) -> Point {
    Point {
        cores: run.count("cores") as u32,
        operations: run.count("operations"),
        cycles: run.count("cycles"),
        reads: run.count("reads"),
        writes: run.count("writes"),
        rmws: run.count("rmws"),
        misses: run.count("misses"),
        waited: run.count("waited"),
        remote_reads: run.count("remote-reads"),
        shared_writes: run.count("shared-writes"),
    }
}

fn hot_line(run: &Run, line: &Line, symbols: &mut Symbols) -> HotLine {
    let mut sites: Vec<HotSite> = Vec::new();
    for site in &line.sites {
        let place = symbols.place(&run.modules, &site.addresses);
        let same = |known: &&mut HotSite| known.place == place && known.kind == site.kind;
        if let Some(known) = sites.iter_mut().find(same) {
            known.misses += site.misses;
            known.cycles += site.cycles;
        } else {
            let (misses, cycles) = (site.misses, site.cycles);
            sites.push(HotSite { kind: site.kind.clone(), place, misses, cycles });
        }
    }
    sites.sort_by_key(|site| std::cmp::Reverse(site.cycles));
    sites.truncate(SITES);
    HotLine {
        address: line.address,
        share: line.cycles as f64 / run.count("waited").max(1) as f64,
        misses: line.misses,
        cycles: line.cycles,
        sites,
    }
}

/// Per run, a line with what one operation does to shared lines, rounded so that only a change of
/// the code under test changes it.
///
/// Acquisitions of locks have no column: to a machine, taking a lock is a locked instruction like
/// any other, or even a plain store. A path whose `locked` is 0 takes none of the usual ones.
pub(crate) fn audit(program: &[String], runs: &[Run]) -> String {
    let name = program.join(" ");
    let counts = [
        ("shared-writes", "shared-writes"),
        ("remote-reads", "remote-reads"),
        ("locked", "rmws"),
        ("fences", "fences"),
    ];
    let mut text = String::new();
    for run in runs {
        // Writing to a string cannot fail.
        let _ = write!(text, "{name}: cores={}", run.count("cores"));
        for (word, count) in counts {
            let _ = write!(text, " {word}={:.2}", run.each(count));
        }
        text.push('\n');
    }
    text
}
