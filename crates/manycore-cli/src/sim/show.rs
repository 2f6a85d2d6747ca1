//! Makes the report of `manycore-sim` from runs, with places for addresses.

use std::fmt::Write;

use manycore_sim::{
    Machine,
    report::{Curve, HotLine, HotSite, Point, Report, Sharing, Variation, byte_ranges},
    symbols::Symbols,
};

use super::{
    Band, Repeats, blind,
    holders::Holders,
    outcome::{Line, Run, Site},
};

/// A limit of the way in which the program is run, which the model does not know.
const NOTE: &str = "A membarrier costs its caller alone.";

/// The most places of a line that are shown.
const SITES: usize = 12;

/// Makes the report of a program.
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
    // Short runs have few samples each, and are repeated.
    let repeated = repeats.seeds.iter().chain(&repeats.bands).flat_map(|band| &band.runs);
    report.blind = blind::of(runs.iter().chain(repeated));
    if report.blind.is_none() {
        // Not in the report, because the report is the same each time.
        eprintln!("manycore sim: the runs are too short to say how much code was uninstrumented");
    }
    let (mut symbols, mut holders) = (Symbols::new(), Holders::default());
    let variation = |band: &Band| Variation {
        change: band.change.clone(),
        points: band.runs.iter().map(point).collect(),
    };
    let lines = runs.last().map(|run| {
        let dear = run.lines.iter().take(top);
        dear.map(|line| hot_line(run, line, &mut symbols, &mut holders)).collect()
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

fn hot_line(run: &Run, line: &Line, symbols: &mut Symbols, holders: &mut Holders) -> HotLine {
    let mut places: Vec<(String, Site)> = Vec::new();
    for site in &line.sites {
        let place = symbols.place(&run.modules, &site.addresses);
        let is_same = |(at, known): &&mut (String, Site)| *at == place && known.kind == site.kind;
        match places.iter_mut().find(is_same) {
            Some((_, known)) => known.add(site),
            None => places.push((place, site.clone())),
        }
    }
    places.sort_by_key(|(_, site)| std::cmp::Reverse(site.cycles));
    places.truncate(SITES);
    let hot_site = |(place, site): (String, Site)| HotSite {
        kind: site.kind,
        place,
        misses: site.misses,
        cycles: site.cycles,
        false_sharing: site.false_sharing,
        true_sharing: site.true_sharing,
        bytes: byte_ranges(site.bytes),
        core: site.core,
    };
    HotLine {
        address: line.address,
        share: line.cycles as f64 / run.count("waited").max(1) as f64,
        misses: line.misses,
        cycles: line.cycles,
        sharing: Sharing::of(line.false_sharing, line.true_sharing),
        false_sharing: line.false_sharing,
        true_sharing: line.true_sharing,
        holds: holders.on(run, line, symbols),
        sites: places.into_iter().map(hot_site).collect(),
    }
}

/// Returns a line for each run with what one operation does to shared lines. The numbers are
/// rounded, so that only a change of the code under test changes them.
///
/// Acquisitions of locks have no column. To a machine, taking a lock is a locked instruction like
/// any other, or even a plain store. If a path's `locked` is 0, it takes no usual lock.
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
