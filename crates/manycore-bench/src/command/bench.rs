//! `manycore-bench bench`.

use std::io::{Write, stdout};

use anstream::{AutoStream, ColorChoice};
use manycore_cli::{failure::Failure, save};
use manycore_trace::{Class, Recorder, Recording};

use super::{bench_args::BenchArgs, progress::Progress};
use crate::{machine, output::Writer};

/// Events of the library's objects while a workload runs.
const LIBRARY: Class = Class::new(1, "library");

/// Runs one workload. Under `manycore trace record`, also records the events of the library.
pub fn run(args: &BenchArgs) -> Result<(), Failure> {
    let _recording = recording(args)?;
    match args.out() {
        None => {
            let is_coloured = AutoStream::choice(&stdout()) != ColorChoice::Never;
            drop(run_to(args, stdout().lock(), is_coloured, Failure::stdout)?);
        }
        Some(path) => {
            save::check(path)?;
            let content = run_to(args, Vec::new(), false, |error| Failure::run(error))?;
            save::whole(path, &content)?;
        }
    }
    Ok(())
}

/// Starts the recording that the environment asks for. The workload `trace` makes its own.
fn recording(args: &BenchArgs) -> Result<Option<Recording>, Failure> {
    let asked = if args.workload.name == "trace" { None } else { Recorder::from_env() };
    let started = asked.map(Recorder::start).transpose();
    let recording =
        started.map_err(|error| Failure::run(format_args!("cannot record: {error}")))?;
    if recording.is_some() {
        manycore_trace::observe_library(LIBRARY);
    }
    Ok(recording)
}

/// Runs one workload and returns its output.
///
/// # Errors
/// If it cannot be run.
pub fn output(args: &BenchArgs) -> Result<String, Failure> {
    let bytes = run_to(args, Vec::new(), false, |error| Failure::run(error))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn run_to<W: Write>(
    args: &BenchArgs,
    out: W,
    is_coloured: bool,
    failed: impl Fn(&std::io::Error) -> Failure,
) -> Result<W, Failure> {
    let (options, workload) = (args.options(), args.workload);
    if workload.name == "server" && manycore_sim::is_simulated() {
        return Err(Failure::usage(
            "'server' measures processes of their own, which are not on the virtual cores; run it \
             without `manycore sim`, or simulate 'kv', the cache that is in the server",
        ));
    }
    let groups = (workload.groups)(&options).map_err(Failure::usage)?;
    let runner = options.runner();
    let writer = Writer::start(out, args.format(), &machine::here());
    let mut writer = writer.map_err(|error| failed(&error))?.coloured(is_coloured);
    let progress = Progress::over_runs(groups.iter(), &runner);
    for group in &groups {
        if !group.left_out.is_empty() {
            let names = group.left_out.join(", ");
            let note =
                format!("left out at {}, not here or cannot serve so many: {names}", group.title);
            progress.note(&note);
        }
        let rows = runner.run(group, |case| progress.step(group, case)).map_err(Failure::run)?;
        progress.aside(|| writer.group(&group.title, &rows)).map_err(|error| failed(&error))?;
    }
    tell_context(workload.name, &options.threads, &progress);
    Ok(writer.into_inner())
}

/// For loads that consist of processes: prints how long real processes take on this machine.
fn tell_context(workload: &str, threads: &[usize], progress: &Progress) {
    #[cfg(target_os = "linux")]
    if ["rmap-fork", "fork-chain", "spawn"].contains(&workload) {
        match crate::rmap::host::context(threads) {
            Ok(Some(line)) => progress.note(&line),
            Ok(None) => {}
            Err(error) => progress.note(&format!("no context, real processes: {error}")),
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (workload, threads, progress);
}
