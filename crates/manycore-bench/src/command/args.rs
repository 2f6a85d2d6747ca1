//! The command line.

use std::{io::Write, path::PathBuf, time::Duration};

use clap::{Args, Parser, Subcommand, builder::PossibleValuesParser};
use clap_complete::Shell;
use manycore_cli::{
    command_line::{self, EXIT_CODES},
    failure::Failure,
    number::duration,
};

use super::{bench_args::BenchArgs, bench_command::BenchCommand};
use crate::{figures, limits, machine::VERSION};

/// Shared structures that keep scaling, against the usual structures, on this machine.
#[derive(Parser)]
#[command(
    name = "manycore-bench",
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
    /// Run the papers' figures on virtual cores and on this machine, beside the published figures
    Report(ReportArgs),
    /// Print a shell's completions of this command
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Print the manual page of this command
    Man,
}

/// The options of `manycore-bench workloads`.
#[derive(Args)]
pub struct WorkloadsArgs {
    /// List the options of each workload instead: workload, option
    #[arg(long)]
    pub options: bool,
}

/// The options of `manycore-bench compare`.
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

/// The options of `manycore-bench plot`.
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

/// The options of `manycore-bench report`.
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
    /// Returns the options of a bare `manycore-bench`, which builds nothing.
    fn default() -> Self {
        let budget = Duration::from_secs(15);
        Self { html: "manycore-tour.html".into(), budget, no_virtual: true }
    }
}

/// Reads the command line. Prints help and version, and then ends the process.
///
/// # Errors
/// One line that says what is wrong.
pub fn parse() -> Result<Command, Failure> {
    let cli: Cli = command_line::parse()?;
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
/// If the writer fails.
pub fn completions(shell: Shell, out: &mut impl Write) -> Result<(), Failure> {
    command_line::completions::<Cli>(shell, out)
}

/// Writes the command line as a manual page.
///
/// # Errors
/// If the writer fails.
pub fn manual(out: &mut impl Write) -> Result<(), Failure> {
    command_line::manual::<Cli>(out)
}

/// Parses the options of a benchmark from the words of a command line.
///
/// # Errors
/// One line that says what is wrong.
pub fn bench(words: &[String]) -> Result<BenchArgs, Failure> {
    let before = ["manycore-bench", "bench"].map(str::to_owned);
    let cli: Cli = command_line::parse_from(before.iter().chain(words))?;
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
