//! The `manycore` command: `tour` (the default), `bench`, `workloads`, `compare`,
//! `plot`, `doctor`, `sim`, `report`, `trace`, `completions`, `man`.
//!
//! It is a library with one function, [`main`], so that other programs can be this command.
//! `manycore report` builds such a program for virtual cores.
//!
//! Owns: the command line, progress, exit codes. An error is one line on stderr and an exit code;
//! `--help` lists the codes. If the reader of the output has gone, the command ends with 141, as if
//! by SIGPIPE, and prints nothing.

mod args;
mod bench;
mod bench_args;
mod bench_command;
mod compare;
mod doctor;
mod failure;
mod number;
mod plot;
mod progress;
mod prose;
mod report;
mod save;
mod scorecard;
#[cfg(target_os = "linux")]
mod server_args;
mod sim;
mod text;
mod tour;
mod tour_virtual;
mod trace;
mod trace_args;
mod trace_page;

use std::{
    io::{Write, stdout},
    process::ExitCode,
};

use args::Command;
use failure::Failure;

/// Runs the command line.
pub fn main() -> ExitCode {
    let outcome = match args::parse() {
        Ok(Command::Tour(options)) => tour::run(&options),
        Ok(Command::Bench(options)) => scorecard::bench(&options),
        Ok(Command::Doctor(options)) => doctor::run(&options),
        Ok(Command::Sim(options)) => sim::run(&options),
        Ok(Command::Workloads(options)) => compare::workloads(&options),
        Ok(Command::Compare(options)) => compare::run(&options),
        Ok(Command::Plot(options)) => plot::run(&options),
        Ok(Command::Report(options)) => report::run(&options),
        Ok(Command::Trace(command)) => trace::run(&command),
        Ok(Command::Completions { shell }) => {
            args::completions(shell, &mut stdout()).map_err(|error| Failure::stdout(&error))
        }
        Ok(Command::Man) => args::manual(&mut stdout()).map_err(|error| Failure::stdout(&error)),
        Err(failure) => Err(failure),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure { message, code }) => {
            if !message.is_empty() {
                // If stderr is closed, too, there is no other channel.
                let _ = writeln!(std::io::stderr(), "manycore: {message}");
            }
            ExitCode::from(code)
        }
    }
}
