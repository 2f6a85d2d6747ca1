//! `manycore sim`: runs a Cargo target, unchanged, on virtual many-core machines.
//!
//! Owns: the steps from a name on the command line to a report.
//!
//! ```text
//! toolchain       can the compiler instrument, and how?
//! configuration   the project's own flags
//! runtime         the library that receives the callbacks
//! source          the programs of this project itself
//! standard        instruments Rust's standard library
//! native          instruments C and C++
//! build           builds the program
//! day             the date on which it runs
//! map             files that show it the virtual machine
//! launch          runs it once for each number of cores
//! outcome         reads the file that a run leaves
//! blind           finds uninstrumented code
//! holders         finds what lies on a cache line
//! show            makes the report
//! timeline        makes a recording of the waits
//! ```
//!
//! Does not own: what a virtual core is, what a line costs, and where an address is in the source
//! (the crate `manycore-sim`).

mod blind;
mod build;
mod configuration;
pub(crate) mod day;
mod holders;
mod launch;
mod machines;
mod map;
mod native;
mod outcome;
mod repeats;
mod runtime;
mod show;
mod source;
mod standard;
mod test;
mod timeline;
mod toolchain;

use std::{
    io::{Write, stdout},
    panic::resume_unwind,
    path::{Path, PathBuf},
    thread,
};

use manycore_sim::Machine;

use crate::{
    args::{SimArgs, SimCommand},
    failure::Failure,
    save, text,
};
use launch::Launch;
use outcome::Run;
pub use source::Part;
use standard::Standard;

/// Runs the program, or the tests, as the command line says.
///
/// # Errors
/// A line that says what is missing, what failed, or how the program ended.
pub(crate) fn run(args: &SimArgs) -> Result<(), Failure> {
    if args.machine == "help" {
        let written = stdout().write_all(machines::list().as_bytes());
        return written.map_err(|error| Failure::stdout(&error));
    }
    let machine = machine(args)?;
    match &args.command {
        Some(SimCommand::Test(tests)) => return test::run(args, &machine, &tests.arguments),
        Some(SimCommand::Calibrate(calibrate)) => return machines::calibrate(&calibrate.out),
        None => {}
    }
    let Some((name, arguments)) = args.program.split_first() else {
        let advice = "what to run is missing: manycore sim --cores 1,6,12 -- NAME [ARGUMENTS]";
        return Err(Failure::usage(advice));
    };
    for path in [&args.json, &args.html, &args.timeline].into_iter().flatten() {
        save::check(path)?;
    }
    let tools = toolchain::Tools::check()?;
    let plan = build::Plan::new(&tools, name, args)?;
    let library = runtime::find(&tools)?;
    let standard = plan.standard(&tools);
    let program = plan.build(&tools, &library, &standard)?;
    let waits = if args.timeline.is_some() { timeline::WAITS } else { 0 };
    let (seed, quiet) = (args.seed, args.audit);
    let day = args.day();
    let launch = Launch { program: &program, arguments, seed, day, quiet, waits };
    let cores = args.cores();
    let mut runs = Vec::new();
    for &count in &cores {
        eprintln!(
            "manycore sim: {name} on {count} of {} cores of {}",
            machine.cores(),
            machine.name
        );
        runs.push(launch.run(&machine, count)?);
    }
    let repeats = repeats::run(&launch, args, &machine, &runs)?;
    let title = args.program.join(" ");
    let mut report = show::report(&title, &machine, &runs, &repeats, args.top);
    report.notes.insert(0, standard.note());
    let failures: Vec<Failure> =
        cores.iter().zip(&runs).filter_map(|(count, run)| run.failure(*count)).collect();
    report.warnings.extend(failures.iter().map(|failure| failure.message.clone()));
    if let Some(path) = &args.json {
        save::whole(path, report.json().as_bytes())?;
    }
    if let Some(path) = &args.html {
        save::whole(path, report.html().as_bytes())?;
    }
    if let (Some(path), Some(last)) = (&args.timeline, runs.last()) {
        save::whole(path, &timeline::file(path, timeline::trace(last, &machine))?)?;
        if let missing @ 1.. = last.count(timeline::LEFT_OUT) {
            let kept = last.waits.len();
            eprintln!("manycore sim: the timeline has the first {kept} waits, and lacks {missing}");
        }
    }
    let text = if args.audit { show::audit(&args.program, &runs) } else { format!("\n{report}") };
    stdout().write_all(text.as_bytes()).map_err(|error| Failure::stdout(&error))?;
    // After the report, because the report is useful even if the program fails.
    failures.into_iter().next().map_or(Ok(()), Err)
}

/// A program of this project itself, built for virtual cores.
pub struct Own {
    program: PathBuf,
    /// The runtime that it is linked with.
    runtime: PathBuf,
}

impl Own {
    /// Builds a program, which may take minutes the first time.
    ///
    /// # Errors
    /// A line that says why it cannot be simulated here.
    pub fn build(part: &Part) -> Result<Self, Failure> {
        let tools = toolchain::Tools::check()?;
        let plan = build::Plan::of_own(&tools, part)?;
        let library = runtime::find(&tools)?;
        Self::of(&tools, &plan, &library, &plan.standard(&tools))
    }

    /// Builds a program twice: for virtual cores, and for this machine.
    ///
    /// # Errors
    /// As [`Own::build`].
    pub fn build_both(part: &Part) -> Result<(Self, PathBuf), Failure> {
        let tools = toolchain::Tools::check()?;
        let plan = build::Plan::of_own(&tools, part)?;
        let (standard, library, plain) = thread::scope(|scope| {
            let standard = scope.spawn(|| plan.standard(&tools));
            let (library, plain) = (runtime::find(&tools), plan.build_plainly(&tools));
            (standard.join().unwrap_or_else(|panic| resume_unwind(panic)), library, plain)
        });
        Ok((Self::of(&tools, &plan, &library?, &standard)?, plain?))
    }

    fn of(
        tools: &toolchain::Tools,
        plan: &build::Plan,
        library: &Path,
        standard: &Standard,
    ) -> Result<Self, Failure> {
        Ok(Self { program: plan.build(tools, library, standard)?, runtime: library.to_owned() })
    }

    /// Returns the executable for virtual cores, and the simulator that it loads.
    pub fn files(&self) -> [&Path; 2] {
        [&self.program, &self.runtime]
    }

    /// Returns what a run of the program needs. The run records up to `waits` waits of its threads.
    fn launch<'a>(&'a self, arguments: &'a [String], waits: u32) -> Launch<'a> {
        let (program, day) = (&self.program, day::OF_OWN_PROGRAMS);
        Launch { program, arguments, seed: 1, day, quiet: true, waits }
    }

    /// Runs it on virtual cores, and returns what it prints.
    ///
    /// # Errors
    /// If it ends badly.
    pub fn run(
        &self,
        machine: &Machine,
        cores: u32,
        arguments: &[String],
    ) -> Result<String, Failure> {
        let (_, printed) = self.launch(arguments, 0).run_and_read(machine, cores)?;
        Ok(printed)
    }

    /// Runs it, and returns a count of cycles in percent of all cores' cycles.
    ///
    /// # Errors
    /// If it ends badly.
    pub fn part(
        &self,
        machine: &Machine,
        cores: u32,
        arguments: &[String],
        count: &str,
    ) -> Result<f64, Failure> {
        let run = self.launch(arguments, 0).run(machine, cores)?;
        let cycles = run.count("cycles").max(1) as f64 * f64::from(cores);
        Ok(run.count(count) as f64 / cycles * 100.0)
    }

    /// As [`Own::run`], with a recording of its threads' waits.
    ///
    /// # Errors
    /// If it ends badly.
    pub fn run_recorded(
        &self,
        machine: &Machine,
        cores: u32,
        arguments: &[String],
    ) -> Result<(String, Vec<u8>), Failure> {
        let (run, printed) =
            self.launch(arguments, timeline::WAITS).run_and_read(machine, cores)?;
        Ok((printed, timeline::trace(&run, machine)))
    }
}

/// Returns the model, with the changes from the command line.
fn machine(args: &SimArgs) -> Result<Machine, Failure> {
    let mut machine = match args.machine.as_str() {
        "this-host" => machines::this_host()?,
        name => Machine::named(name).map_or_else(|| from_file(name), Ok)?,
    };
    for setting in &args.set {
        let (name, value) = setting
            .split_once('=')
            .ok_or_else(|| Failure::usage(format_args!("--set {setting}: name=value is needed")))?;
        machine.set(name.trim(), value.trim(), "the command line").map_err(Failure::usage)?;
    }
    machine.check().map_err(Failure::usage)?;
    let most = args.cores().into_iter().max().unwrap_or(1);
    let machine = if args.grow { machine.grown_to(most) } else { machine };
    machine.check().map_err(|error| {
        let (cores, sockets) = (machine.cores(), machine.sockets);
        Failure::usage(format_args!(
            "{} cannot grow to {most} cores: with {sockets} sockets ({cores} cores), {error}",
            machine.name
        ))
    })?;
    if most > machine.cores() {
        return Err(Failure::usage(format_args!(
            "{} has {} cores, and {most} were requested (--grow adds extra sockets)",
            machine.name,
            machine.cores()
        )));
    }
    Ok(machine)
}

fn from_file(name: &str) -> Result<Machine, Failure> {
    if !name.ends_with(".toml") {
        return Err(Failure::usage(format_args!(
            "no machine '{name}': it is one of {}, this-host, or a file that ends in .toml \
             (--machine help)",
            Machine::names()
        )));
    }
    let text = text::read(std::path::Path::new(name), text::MACHINE)
        .map_err(|error| Failure::usage(format_args!("cannot read {name}: {error}")))?;
    Machine::from_toml(&text).map_err(|error| Failure::usage(format_args!("{name}: {error}")))
}

/// Runs with a changed parameter, for the band.
pub(crate) struct Band {
    /// The change, such as `arbitration=fifo`.
    pub(crate) change: String,
    /// One run per number of cores.
    pub(crate) runs: Vec<Run>,
}

/// The runs that are made in addition to the runs themselves.
#[derive(Default)]
pub(crate) struct Repeats {
    /// Runs with another seed each.
    pub(crate) seeds: Vec<Band>,
    /// Runs with another value of an unknown parameter each.
    pub(crate) bands: Vec<Band>,
}
