//! `manycore-bench report`: the papers' figures as published, as simulated and as measured, side by
//! side.
//!
//! Owns: the order of the runs, and keeping each run as soon as it ends (`store`). Does not own:
//! what a figure is, what its paper says, and the page (`crate::figures`).
//!
//! The page is written anew after each figure, so that there is something to see early. If the
//! compiler cannot instrument, the page says so, and has only the measured figures.

mod fresh;
mod store;

use std::{
    fmt::Write as _,
    io::{Write, stdout},
    time::SystemTime,
};

use manycore_cli::{failure::Failure, save, sim::Own, text};
use manycore_sim::{Machine, calibration, report};
use store::Store;

use crate::command::{
    args::{self, ReportArgs},
    bench,
    progress::Progress,
    simulated,
};
use crate::{
    figures::{self, Axis, Figure, Series, fresh as unseen, page},
    limits, machine,
};

/// Runs all figures that are not in the store yet, prints the differences and writes the page.
///
/// # Errors
/// One line that says what failed. Finished runs stay in the store.
pub fn run(args: &ReportArgs) -> Result<(), Failure> {
    save::check(&args.html)?;
    args.markdown.iter().try_for_each(|path| save::check(path))?;
    // In an existing page, figures that are not run now stay. (A terminal or a pipe is not a page.)
    let before = match &args.markdown {
        Some(path) if !args.figures.is_empty() && path.is_file() => text::read(path, text::TABLE)
            .map_err(|error| {
            Failure::run(format_args!("cannot read {}: {error}", path.display()))
        })?,
        _ => String::new(),
    };
    let chosen: Vec<&Figure> = figures::all()
        .filter(|figure| args.figures.is_empty() || args.figures.iter().any(|id| id == figure.id))
        .collect();
    eprintln!("manycore-bench report: building for virtual cores (minutes, the first time)");
    let (command, without) = match Own::build(&simulated::COMMAND) {
        Ok(command) => (Some(command), None),
        Err(failure) => {
            eprintln!("manycore-bench report: only this machine is measured: {}", failure.message);
            (None, Some(failure.message))
        }
    };
    let store = Store::open(&args.runs, command.as_ref())?;
    let setting = page::Setting {
        here: machine::here().to_string(),
        claim: report::CLAIM.to_owned(),
        missing: report::missing(&Machine::named("opteron-8x6").expect("it is shipped")),
        quick: args.quick,
        without,
    };
    let here = u32::try_from(limits::cores()).unwrap_or(u32::MAX);
    let steps =
        |figure: &&Figure| figure.runs(args.quick).len() + figure.runs_here(here, args.quick).len();
    let real = args.figures.is_empty() || args.figures.iter().any(|id| id == unseen::ID);
    let real = command.as_ref().filter(|_| real);
    let more = real.map_or(0, |_| fresh::steps(here));
    let progress = Progress::new(chosen.iter().map(steps).sum::<usize>() + more);
    let mut shown = Vec::new();
    for figure in chosen {
        shown.push(one(figure, args.quick, here, &store, command.as_ref(), &progress)?);
        save::whole(&args.html, page::render(&setting, &shown, None).as_bytes())?;
    }
    let real = real.map(|command| fresh::run(args.quick, here, &store, command, &progress));
    let real = real.transpose()?;
    save::whole(&args.html, page::render(&setting, &shown, real.as_ref()).as_bytes())?;
    drop(progress);
    if let Some(path) = &args.markdown {
        save::whole(path, page::markdown(&setting, &shown, &today(), &before).as_bytes())?;
    }
    let mut text = table(&shown);
    if let Some(real) = &real {
        on_real_cores(&mut text, real);
    }
    let _ = writeln!(text, "\n{}\n\nCurves and all points: {}", report::CLAIM, args.html.display());
    stdout().write_all(text.as_bytes()).map_err(|error| Failure::stdout(&error))
}

/// Returns the date, in UTC.
fn today() -> String {
    let now = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    now.split('T').next().unwrap_or_default().to_owned()
}

/// Returns the virtual machine of a figure.
fn model(figure: &Figure) -> Machine {
    let machine = Machine::named(figure.machine).expect("figures name machines that are shipped");
    simulated::for_benchmarks(machine)
}

/// Runs one figure, except for runs that are in the store.
fn one(
    figure: &'static Figure,
    quick: bool,
    here: u32,
    store: &Store,
    command: Option<&Own>,
    progress: &Progress,
) -> Result<page::Shown, Failure> {
    let machine = model(figure);
    let mut simulated = Vec::new();
    for run in figure.runs(quick) {
        let cores = run.cores;
        progress.next(&format!("{}: {cores} virtual cores", figure.id));
        let Some(command) = command else { continue };
        let words = [&["bench".to_owned()], &run.words[..]].concat();
        let rows = match run.alone {
            Some(name) => {
                // The simulator's name of what the run counts.
                let count = if figure.metric == figures::IDLE { "idle" } else { "waited" };
                let kept = [&[count.to_owned()], &words[..]].concat();
                store.simulated(&machine, cores, &kept, || {
                    let part = command.part(&machine, cores, &words, count)?;
                    Ok(figure.seen_row(name, part))
                })
            }
            None => {
                store.simulated(&machine, cores, &words, || command.run(&machine, cores, &words))
            }
        };
        simulated.push((run.x, rows?));
    }
    let mut measured = Vec::new();
    for run in figure.runs_here(here, quick) {
        progress.next(&format!("{}: this machine", figure.id));
        let rows = store.measured(&run.words, || bench::output(&args::bench(&run.words)?))?;
        measured.push((run.x, rows));
    }
    let notes = if figure.calibration { vec![calibrated(figure, &machine)] } else { Vec::new() };
    let series = |runs: &[_]| if runs.is_empty() { Series::default() } else { figure.series(runs) };
    let (simulated, measured) = (series(&simulated), series(&measured));
    Ok(page::Shown { figure, simulated, measured, notes })
}

/// Returns what the model gives for the accesses that it was calibrated with.
fn calibrated(figure: &Figure, machine: &Machine) -> String {
    let Axis::Cores { full, .. } = &figure.axis else { return String::new() };
    let mut text = "Accesses alone, as the model was fitted:".to_owned();
    for &cores in *full {
        let published = calibration::published(cores);
        if let Ok(simulated) = calibration::contended_write(machine, cores) {
            let off = (simulated / published - 1.0) * 100.0;
            // Writing to a string cannot fail.
            let _ = write!(text, " {cores} cores {simulated:.0} ({off:+.0} %),");
        }
    }
    text.trim_end_matches(',').to_owned() + " of the line through the published ends."
}

/// Appends the workloads that the model has not seen, for a terminal.
fn on_real_cores(text: &mut String, real: &page::Real) {
    let _ = writeln!(text, "\nWorkloads that the model has not seen, on this machine's cores");
    for one in &real.compared {
        let [workload, implementation, threads, measured, simulated, error] = page::cells(one);
        let _ = writeln!(
            text,
            "  {error:>7}  {workload}, {implementation}, {threads} threads: \
             measured {measured}, simulated {simulated}"
        );
    }
    let _ = writeln!(text, "{}", page::verdict(&real.compared));
}

/// Returns all differences, for a terminal.
fn table(shown: &[page::Shown]) -> String {
    let mut text = String::new();
    for one in shown {
        let _ = writeln!(text, "\n{}", one.figure.title);
        for finding in one.figure.findings(&one.simulated) {
            let (off, word) = (page::difference(&finding), page::word(one.figure, &finding));
            let _ = writeln!(
                text,
                "  {word:<15} {off:>7}  {}: published {}, simulated {}",
                finding.about, finding.published, finding.simulated
            );
        }
    }
    text
}
