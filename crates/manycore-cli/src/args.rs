//! The command line.

use std::{
    io::{self, Write},
    path::PathBuf,
    time::Duration,
};

use clap::{
    Args, CommandFactory, Parser, Subcommand, builder::PossibleValuesParser, error::ErrorKind,
};
use clap_complete::Shell;
use manycore_bench::{figures, limits, machine::VERSION};
use manycore_sim::Machine;

use crate::{
    bench_args::BenchArgs, bench_command::BenchCommand, failure::Failure, number::duration,
    trace_args::TraceCommand,
};

const EXIT_CODES: &str = "\
Exit codes:
  0    it is done
  1    the machine cannot do what was asked, or a program or test that was run has failed
  2    the command line makes no sense
  141  the reader of the output has gone, as `head` does; nothing is said";

/// Shared structures that keep scaling, against the usual ones, on this machine.
#[derive(Parser)]
#[command(
    name = "manycore",
    version = VERSION,
    disable_help_subcommand = true,
    after_help = EXIT_CODES
)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
}

/// The subcommands.
#[derive(Subcommand)]
pub enum Command {
    /// Show the library at work and write a page with plots (the default)
    Tour(TourArgs),
    /// Run one workload against ours and every rival
    #[command(subcommand, subcommand_required = false, arg_required_else_help = false)]
    Bench(BenchCommand),
    /// List every implementation of every workload: workload, implementation, kind
    Workloads(WorkloadsArgs),
    /// Compare ours with each other implementation in a file of `bench --format csv`
    Compare(CompareArgs),
    /// Draw curves over the number of threads from a file of `bench --format csv`
    Plot(PlotArgs),
    /// Report the hardware features found and which of them are used
    Doctor(DoctorArgs),
    /// Run a program of a Cargo project on virtual machines with many cores
    Sim(SimArgs),
    /// Run the papers' figures on virtual cores and on this machine, beside the published figures
    Report(ReportArgs),
    /// Record, show and convert traces of manycore-trace
    #[command(subcommand, arg_required_else_help = false)]
    Trace(TraceCommand),
    /// Print a shell's completions of this command
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Print the manual page of this command
    Man,
}

/// The options of `manycore workloads`.
#[derive(Args)]
pub struct WorkloadsArgs {
    /// List the options of each workload instead: workload, option
    #[arg(long)]
    pub options: bool,
}

/// The options of `manycore compare`.
#[derive(Args)]
pub struct CompareArgs {
    /// The workload's name, for the first column
    pub workload: String,
    /// The file
    pub file: PathBuf,
    /// The metric
    #[arg(long, value_name = "NAME", default_value = "throughput")]
    pub metric: String,
    /// The smaller figure is better
    #[arg(long)]
    pub less: bool,
    /// Print only the last figure of this implementation
    #[arg(long = "impl", value_name = "NAME")]
    pub implementation: Option<String>,
}

/// The options of `manycore plot`.
#[derive(Args)]
pub struct PlotArgs {
    /// The file
    pub file: PathBuf,
    /// The curves, ours first: an implementation, and its name in the picture
    #[arg(value_name = "IMPL[=NAME]", required = true)]
    pub curves: Vec<String>,
    /// The picture
    #[arg(long, value_name = "PATH")]
    pub out: PathBuf,
    /// The heading of the picture
    #[arg(long, value_name = "TEXT")]
    pub heading: String,
    /// The label of the vertical axis, with its unit
    #[arg(long, value_name = "TEXT")]
    pub y: String,
    /// The label of the horizontal axis
    #[arg(long, value_name = "TEXT", default_value = "threads")]
    pub x: String,
    /// The metric
    #[arg(long, value_name = "NAME", default_value = "throughput")]
    pub metric: String,
}

/// The options of `manycore report`.
#[derive(Args)]
pub struct ReportArgs {
    /// Where to write the page
    #[arg(long, value_name = "PATH", default_value = "manycore-report.html")]
    pub html: PathBuf,
    /// Where to write the list of all published figures, with the outcome of each claim, in
    /// Markdown; with '--figures', an existing file keeps its text on the other figures
    #[arg(long, value_name = "PATH")]
    pub markdown: Option<PathBuf>,
    /// Where to keep finished runs, so that the next call continues from there
    #[arg(long, value_name = "FOLDER", default_value = "target/manycore-report")]
    pub runs: PathBuf,
    /// Only these figures; 'fresh' is the simulator against this machine [default: all]
    #[arg(long, value_name = "NAMES", value_delimiter = ',',
          value_parser = PossibleValuesParser::new(figures::names()))]
    pub figures: Vec<String>,
    /// Few points and short runs, to see that everything works
    #[arg(long)]
    pub quick: bool,
}

/// The simulator's options.
#[derive(Args)]
#[command(
    args_conflicts_with_subcommands = false,
    disable_help_subcommand = true,
    after_help = format!(
        "Operations: a program says what is measured by manycore_sim::measured(|| ...), and \
         counts in it by manycore_sim::operations(n). Both do nothing elsewhere; the crate is \
         manycore-sim with default-features = false. Without them, costs are of the whole \
         run.\n\n\
         Models of machines: {}, this-host",
        Machine::names()
    )
)]
pub struct SimArgs {
    /// The machine: a model's name, or a file that ends in .toml; 'help' lists the models
    #[arg(long, value_name = "NAME", default_value = "opteron-8x6")]
    pub machine: String,
    /// Numbers of cores, with a run for each [default: 1 and 6; for tests: 4]
    #[arg(long, value_name = "COUNTS", value_delimiter = ',', value_parser = cores)]
    pub cores: Vec<u32>,
    /// Change a parameter of the machine
    #[arg(long, value_name = "NAME=VALUE")]
    pub set: Vec<String>,
    /// Extend the model with extra sockets if the machine has too few cores
    #[arg(long)]
    pub grow: bool,
    /// Seed of the randomness in the model and in the program's system calls
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub seed: u64,
    /// Sensitivity runs over uncertain parameters; short runs always have them
    #[arg(long, conflicts_with = "plain")]
    pub band: bool,
    /// Runs of an interval, each with another seed and some jitter; the default is five for short
    /// runs and one for long runs
    #[arg(long, value_name = "COUNT", conflicts_with = "plain",
          value_parser = clap::value_parser!(u32).range(1..=100))]
    pub seeds: Option<u32>,
    /// One run for each number of cores: no interval, no band
    #[arg(long)]
    pub plain: bool,
    /// Print only the accesses of each operation: writes of shared lines, reads of others', locks
    #[arg(long)]
    pub audit: bool,
    /// How many cache lines to show
    #[arg(long, value_name = "COUNT", default_value_t = 6)]
    pub top: usize,
    /// Write the report as JSON to this file, too
    #[arg(long, value_name = "PATH")]
    pub json: Option<PathBuf>,
    /// Write the report as a page with plots to this file, too
    #[arg(long, value_name = "PATH")]
    pub html: Option<PathBuf>,
    /// Write the waits of the last run's threads, in virtual time, to this file: for futexes,
    /// threads, files, child processes and contended cache lines. 'manycore trace' reads the file,
    /// or Perfetto if its name ends in .pftrace
    #[arg(long, value_name = "PATH")]
    pub timeline: Option<PathBuf>,
    /// The package to look for the program in
    #[arg(long, short, value_name = "NAME")]
    pub package: Option<String>,
    /// Features to build it with
    #[arg(long, value_name = "FEATURES")]
    pub features: Option<String>,
    /// Build it without its default features
    #[arg(long)]
    pub no_default_features: bool,
    /// Build it with all features
    #[arg(long)]
    pub all_features: bool,
    /// The profile to build it with, without its link-time optimization [default: release]
    #[arg(long, value_name = "NAME")]
    pub profile: Option<String>,
    /// Use Cargo.lock unchanged
    #[arg(long)]
    pub locked: bool,
    /// Leave C and C++ code of build scripts uninstrumented and uncharged
    #[arg(long)]
    pub plain_c: bool,
    /// Instead of running a program
    #[command(subcommand)]
    pub command: Option<SimCommand>,
    /// A program, example, benchmark or test of this workspace, or a package; and its arguments
    #[arg(last = true, value_name = "PROGRAM")]
    pub program: Vec<String>,
}

/// The simulator's subcommands.
#[derive(Subcommand)]
pub enum SimCommand {
    /// Run cargo test, instrumented, on virtual cores
    Test(SimTestArgs),
    /// Measure this machine and write its model to a file for --machine: transfers between each
    /// pair of cores, threads, memory; takes about a minute
    Calibrate(SimCalibrateArgs),
}

/// The file that `sim calibrate` writes by default.
pub const CALIBRATED: &str = "this-host.toml";

/// The options of `manycore sim calibrate`.
#[derive(Args)]
pub struct SimCalibrateArgs {
    /// The file; '--machine this-host' uses this-host.toml if it is in the current folder
    #[arg(long, value_name = "PATH", default_value = CALIBRATED)]
    pub out: PathBuf,
}

/// The options of `manycore sim test`.
#[derive(Args)]
pub struct SimTestArgs {
    /// Arguments of cargo test
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENTS")]
    pub arguments: Vec<String>,
}

impl SimArgs {
    /// Returns the numbers of cores to run on.
    pub fn cores(&self) -> Vec<u32> {
        match (&self.cores[..], &self.command) {
            ([], Some(SimCommand::Test(_))) => vec![4],
            ([], _) => vec![1, 6],
            (cores, _) => cores.to_vec(),
        }
    }
}

/// The tour's options.
#[derive(Args)]
pub struct TourArgs {
    /// Where to write the page
    #[arg(long, value_name = "PATH", default_value = "manycore-tour.html")]
    pub html: PathBuf,
    /// How long all measurements together should take
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = duration)]
    pub budget: Duration,
    /// Leave out the part on virtual cores, which builds a small program
    #[arg(long)]
    pub no_virtual: bool,
}

impl Default for TourArgs {
    /// Returns the options of a bare `manycore`, which builds nothing.
    fn default() -> Self {
        let budget = Duration::from_secs(15);
        Self { html: "manycore-tour.html".into(), budget, no_virtual: true }
    }
}

/// The doctor's options.
#[derive(Args)]
pub struct DoctorArgs {
    /// Show every pair of cores, not only the closest
    #[arg(long)]
    pub all_pairs: bool,
}

/// Reads the command line. Prints help and version, and then ends the process.
///
/// # Errors
/// One line that says what is wrong.
pub fn parse() -> Result<Command, Failure> {
    let cli = Cli::try_parse().map_err(|error| match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => error.exit(),
        _ => Failure::usage(one_line(&error.to_string())),
    })?;
    let command = cli.command.unwrap_or_else(|| Command::Tour(TourArgs::default()));
    if let Command::Bench(bench) = &command {
        for threads in bench.threads() {
            limits::check(*threads).map_err(Failure::run)?;
        }
    }
    Ok(command)
}

/// Writes a shell's completions of the command line.
///
/// # Errors
/// The writer's.
pub fn completions(shell: Shell, out: &mut impl Write) -> io::Result<()> {
    let mut text = Vec::new(); // clap would panic if the reader has gone
    clap_complete::generate(shell, &mut Cli::command(), "manycore", &mut text);
    out.write_all(&text)
}

/// Writes the command line as a manual page.
///
/// # Errors
/// The writer's.
pub fn manual(out: &mut impl Write) -> io::Result<()> {
    clap_mangen::Man::new(Cli::command()).render(out)
}

/// Parses the options of a benchmark from the words of a command line.
///
/// # Errors
/// One line that says what is wrong.
pub fn bench(words: &[String]) -> Result<BenchArgs, Failure> {
    let before = ["manycore", "bench"].map(str::to_owned);
    let cli = Cli::try_parse_from(before.iter().chain(words))
        .map_err(|error| Failure::usage(one_line(&error.to_string())))?;
    match cli.command {
        Some(Command::Bench(bench)) => match bench {
            BenchCommand::Workload(bench) => Ok(*bench),
            BenchCommand::Scorecard(_) => Err(no_benchmark()),
        },
        _ => Err(no_benchmark()),
    }
}

fn no_benchmark() -> Failure {
    Failure::usage("these are not the words of a benchmark")
}

/// Returns clap's message on one line, without usage and advice.
fn one_line(message: &str) -> String {
    let parts = message
        .lines()
        .map(str::trim)
        .take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more"))
        .filter(|line| !line.is_empty())
        .map(|line| line.trim_start_matches("error: "));
    let line = parts.collect::<Vec<_>>().join(" ").replace(" tip: ", "; ");
    format!("{line} (try --help)")
}

fn cores(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(count) if (1..=manycore_sim::MAX_CORES).contains(&count) => Ok(count),
        _ => Err(format!("a whole number from 1 to {} is needed", manycore_sim::MAX_CORES)),
    }
}
