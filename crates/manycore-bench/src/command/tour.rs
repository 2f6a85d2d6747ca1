//! `manycore-bench tour`.

use std::{
    fmt::Write as _,
    fs,
    io::{self, Write, stdout},
    thread,
    time::Duration,
};

use anstream::{AutoStream, ColorChoice};
use manycore::percpu::topology::{Cpu, Topology};
use manycore_cli::{failure::Failure, prose::wrapped, save};

use super::{args::TourArgs, progress::Progress, tour_virtual};
use crate::{
    machine,
    output::{Format, Writer, number},
    page,
    runner::Runner,
    tour::{Chapter, Findings, Verdict, plan, public_name},
};

/// Looks at what other programs do, before the tour.
const SAMPLES: u32 = 10;

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
    let caution = caution(machine.cores, others(), &Topology::detect().allowed());
    if let Some(caution) = &caution {
        writer.prose(&format!("\n{}", wrapped(caution))).map_err(failed)?;
    }
    let progress =
        Progress::over_runs(chapters.iter().flat_map(|chapter| &chapter.groups), &runner);
    let mut findings = Vec::new();
    for chapter in chapters {
        findings.push(tell(chapter, &runner, &progress, &mut writer)?);
    }
    drop(progress);
    save::whole(&args.html, page::render(&machine, &findings).as_bytes())?;
    writer.prose(&summary(&findings)).map_err(failed)?;
    if let Some(caution) = &caution {
        writer.prose(&wrapped(caution)).map_err(failed)?;
    }
    let virtual_part = if args.no_virtual {
        "\n`manycore-bench tour` shows some of this on 48 virtual cores as well.".to_owned()
    } else {
        tour_virtual::text(&args.html.with_extension("mctrace"))
    };
    writer.prose(&virtual_part).map_err(failed)?;
    writer.prose(&format!("\nPlots and all figures: {}", args.html.display())).map_err(failed)
}

/// Returns how many threads of other programs run or wait for a core now, on average over a tenth
/// of a second; zero if the system does not tell. (The load of the last minute has the build, too.)
fn others() -> f64 {
    let now = || {
        let text = fs::read_to_string("/proc/loadavg").ok()?;
        let running: u32 = text.split_whitespace().nth(3)?.split_once('/')?.0.parse().ok()?;
        Some(running.saturating_sub(1)) // this thread
    };
    let samples = (0..SAMPLES).map(|_| {
        thread::sleep(Duration::from_millis(10));
        now().unwrap_or(0)
    });
    f64::from(samples.sum::<u32>()) / f64::from(SAMPLES)
}

/// Returns why figures of several threads say little on this machine, if they do.
fn caution(cores: usize, others: f64, cpus: &[Cpu]) -> Option<String> {
    let is_one_core = cpus.iter().all(|cpu| cpu.core == cpus[0].core);
    let why = if cores > 1 && others > cores as f64 * 0.3 {
        format!("{others:.1} threads of other programs want to run on its {cores} cores")
    } else if cpus.len() > 1 && is_one_core {
        format!("its {} processors are hardware threads of one core", cpus.len())
    } else {
        return None;
    };
    Some(format!(
        "Caution: {why}. So figures of several threads are not those of as many idle cores; \
         `manycore-bench tour` shows the same structures on 48 virtual cores, which other programs \
         do not disturb."
    ))
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Two processors that are one core's hardware threads, or two cores'.
    fn topology(of_one_core: bool) -> Topology {
        let folder = tempfile::tempdir().unwrap();
        let cpus = folder.path().join("cpu");
        for cpu in 0..2 {
            let own = cpus.join(format!("cpu{cpu}/topology"));
            fs::create_dir_all(&own).unwrap();
            let siblings = if of_one_core { "0-1".to_owned() } else { cpu.to_string() };
            fs::write(own.join("thread_siblings_list"), siblings).unwrap();
        }
        fs::write(cpus.join("online"), "0-1\n").unwrap();
        Topology::from_root(folder.path())
    }

    #[test]
    fn busy_machines_and_hardware_threads_are_told_of() {
        let told = |others, of_one_core| caution(2, others, topology(of_one_core).cpus());
        assert_eq!(told(0.1, false), None);
        assert!(told(3.0, false).unwrap().contains("3.0 threads of other programs"));
        assert!(told(0.0, true).unwrap().contains("hardware threads of one core"));
    }
}
