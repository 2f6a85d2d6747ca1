//! The `manycore-bench` command: `tour` (the default), `bench`, `workloads`, `compare`, `plot`,
//! `report`, `completions`, `man`.
//!
//! It is a function of the library, so that other programs can be this command. `manycore-bench
//! report` builds such a program for virtual cores.

mod args;
mod bench;
mod bench_args;
mod bench_command;
mod compare;
mod plot;
mod progress;
mod report;
mod scorecard;
#[cfg(target_os = "linux")]
mod server_args;
mod simulated;
mod tour;
mod tour_virtual;

use std::{io::stdout, process::ExitCode};

use args::Command;
use manycore_cli::command_line;

/// Runs the command line.
pub fn main() -> ExitCode {
    let outcome = args::parse().and_then(|command| match command {
        Command::Tour(options) => tour::run(&options),
        Command::Bench(options) => scorecard::bench(&options),
        Command::Workloads(options) => compare::workloads(&options),
        Command::Compare(options) => compare::run(&options),
        Command::Plot(options) => plot::run(&options),
        Command::Report(options) => report::run(&options),
        Command::Completions { shell } => args::completions(shell, &mut stdout()),
        Command::Man => args::manual(&mut stdout()),
    });
    command_line::end("manycore-bench", outcome)
}
