//! `manycore-bench tour`.

use std::{
    fmt::Write as _,
    io::{self, Write, stdout},
};

use anstream::{AutoStream, ColorChoice};
use manycore_cli::{failure::Failure, prose::wrapped, save};

use super::{args::TourArgs, progress::Progress, tour_virtual};
use crate::{
    machine,
    output::{Format, Writer, number},
    page,
    runner::Runner,
    tour::{Chapter, Findings, Verdict, plan, public_name},
};

/// Measures, prints, and writes the page.
pub fn run(args: &TourArgs) -> Result<(), Failure> {
    // If the page cannot be written, say so now and not after half a minute.
    save::check(&args.html)?;
    let machine = machine::here();
    let (chapters, runner) = plan(args.budget);
    let failed = |error: io::Error| Failure::stdout(&error);
    let is_coloured = AutoStream::choice(&stdout()) != ColorChoice::Never;
    let writer = Writer::start(stdout().lock(), Format::Table, &machine).map_err(failed)?;
    let mut writer = writer.coloured(is_coloured);
    let progress =
        Progress::over_runs(chapters.iter().flat_map(|chapter| &chapter.groups), &runner);
    let mut findings = Vec::new();
    for chapter in chapters {
        findings.push(tell(chapter, &runner, &progress, &mut writer)?);
    }
    drop(progress);
    save::whole(&args.html, page::render(&machine, &findings).as_bytes())?;
    writer.prose(&summary(&findings)).map_err(failed)?;
    let virtual_part = if args.no_virtual {
        "\n`manycore-bench tour` shows some of this on 48 virtual cores as well.".to_owned()
    } else {
        tour_virtual::text(&args.html.with_extension("mctrace"))
    };
    writer.prose(&virtual_part).map_err(failed)?;
    writer.prose(&format!("\nPlots and all figures: {}", args.html.display())).map_err(failed)
}

/// Returns the ratio of ours to the best general rival, in a line for each group with all threads.
fn summary(findings: &[Findings]) -> String {
    let mut text = "\nIn short, ours against the best general rival:".to_owned();
    for chapter in findings {
        for (title, verdict) in chapter.headlines() {
            let (times, bench) = (number(verdict.times()), chapter.bench);
            let (ours, rival) = (verdict.ours.impl_name, verdict.rival.impl_name);
            let _ = write!(text, "\n  {times:>6} x  {bench}, {title}: {ours} against {rival}");
        }
    }
    text
}

/// Runs one chapter and prints it as it goes.
fn tell<W: Write>(
    chapter: Chapter,
    runner: &Runner,
    progress: &Progress,
    writer: &mut Writer<W>,
) -> Result<Findings, Failure> {
    let failed = |error: io::Error| Failure::stdout(&error);
    let Chapter { bench, title, story, plotted, groups } = chapter;
    progress.aside(|| writer.prose(&format!("\n{title}\n{}", wrapped(story)))).map_err(failed)?;
    let mut told = Vec::new();
    for group in groups {
        let mut rows =
            runner.run(&group, |case| progress.step(&group, case)).map_err(Failure::run)?;
        for row in &mut rows {
            row.impl_name = public_name(row.impl_name);
        }
        progress
            .aside(|| {
                writer.group(&group.title, &rows)?;
                match Verdict::of(&rows, plotted) {
                    Some(verdict) => writer.prose(&wrapped(&verdict.sentence())),
                    None => Ok(()),
                }
            })
            .map_err(failed)?;
        told.push((group.title, rows));
    }
    Ok(Findings { bench, title, story, plotted, groups: told })
}
