//! The `manycore` command: `sim`, `trace`, `doctor`, `completions`, `man`.
//!
//! Owns: the command line, exit codes. An error is one line on stderr and an exit code;
//! `--help` lists the codes. If the reader of the output has gone, the command ends with 141, as if
//! by SIGPIPE, and prints nothing.
//!
//! What `manycore-bench` has in common with this command is public: `command_line` and `failure`,
//! `number`, `prose`, `save`, `text`; what a result says of its `machine`; and
//! [`sim::Own`], which builds a program of the project for virtual cores. It changes with the needs
//! of these two commands.

mod args;
pub mod command_line;
mod doctor;
pub mod failure;
pub mod machine;
pub mod number;
pub mod prose;
pub mod save;
pub mod sim;
pub mod text;
mod trace;
mod trace_args;
mod trace_page;

use std::{io::stdout, process::ExitCode};

use args::Command;

/// Runs the command line.
pub fn main() -> ExitCode {
    let outcome = args::parse().and_then(|command| match command {
        Command::Doctor(options) => doctor::run(&options),
        Command::Sim(options) => sim::run(&options),
        Command::Trace(command) => trace::run(&command),
        Command::Completions { shell } => args::completions(shell, &mut stdout()),
        Command::Man => args::manual(&mut stdout()),
    });
    command_line::end("manycore", outcome)
}
