//! The command line.

use std::{ffi::OsString, io::Write, path::PathBuf};

use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;
use manycore_sim::Machine;

use crate::{
    command_line::{self, EXIT_CODES},
    failure::Failure,
    machine::VERSION,
    trace_args::TraceCommand,
};

/// Tools for programs on many cores: a simulator, traces, and a report on this machine.
#[derive(Parser)]
#[command(
    name = "manycore",
    version = VERSION,
    disable_help_subcommand = true,
    arg_required_else_help = true,
    after_help = EXIT_CODES
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// The subcommands.
#[derive(Subcommand)]
pub enum Command {
    /// Report the hardware features found and which of them are used
    Doctor(DoctorArgs),
    /// Run a program of a Cargo project on virtual machines with many cores
    Sim(SimArgs),
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
    /// Day on which the program's time of day begins, at midnight UTC, as YYYY-MM-DD; repeats a run
    /// of another day [default: today]
    #[arg(long, value_name = "DATE", value_parser = crate::sim::day::parse)]
    pub date: Option<u64>,
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
    /// Print only the accesses of each operation: writes of shared lines, reads of other threads'
    /// lines, locked instructions
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
    /// Returns the day on which the program runs, in days since 1970.
    pub fn day(&self) -> u64 {
        self.date.unwrap_or_else(crate::sim::day::today)
    }

    /// Returns the numbers of cores to run on.
    pub fn cores(&self) -> Vec<u32> {
        match (&self.cores[..], &self.command) {
            ([], Some(SimCommand::Test(_))) => vec![4],
            ([], _) => vec![1, 6],
            (cores, _) => cores.to_vec(),
        }
    }
}

/// The doctor's options.
#[derive(Args)]
pub struct DoctorArgs {
    /// Show every pair of cores, not only the closest
    #[arg(long)]
    pub all_pairs: bool,
}

/// Doubles the two dashes of `manycore sim test -- ARGUMENTS`, which are cargo test's: clap takes
/// the first ones for its own.
fn with_dashes(mut words: Vec<OsString>) -> Vec<OsString> {
    if let Some(at) = words.iter().position(|word| word == "--") {
        let is_test = words[..at].last().is_some_and(|word| word == "test");
        if is_test && words[1..at].first().is_some_and(|word| word == "sim") {
            words.insert(at, "--".into());
        }
    }
    words
}

/// Reads the command line. Prints help and version, and then ends the process.
///
/// # Errors
/// One line that says what is wrong.
pub fn parse() -> Result<Command, Failure> {
    let cli: Cli = command_line::parse_words(with_dashes(std::env::args_os().collect()))?;
    Ok(cli.command)
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

fn cores(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(count) if (1..=manycore_sim::MAX_CORES).contains(&count) => Ok(count),
        _ => Err(format!("a whole number from 1 to {} is needed", manycore_sim::MAX_CORES)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dashes_before_a_tests_arguments_reach_cargo() {
        let arguments = |text: &str| {
            let words = with_dashes(text.split(' ').map(OsString::from).collect());
            let cli: Cli = command_line::parse_words(words).unwrap_or_else(|_| panic!("{text}"));
            let Command::Sim(sim) = cli.command else { panic!("{text}") };
            match sim.command {
                Some(SimCommand::Test(tests)) => tests.arguments.join(" "),
                _ => panic!("{text}"),
            }
        };
        assert_eq!(arguments("manycore sim test -- --include-ignored"), "-- --include-ignored");
        assert_eq!(arguments("manycore sim --cores 8 test -- x"), "-- x");
        assert_eq!(arguments("manycore sim test --lib -- x"), "--lib -- x");
        assert_eq!(arguments("manycore sim test --lib"), "--lib");
        let program = "manycore sim -- test -- x".split(' ').map(OsString::from);
        assert_eq!(with_dashes(program.clone().collect()), program.collect::<Vec<_>>());
    }
}
