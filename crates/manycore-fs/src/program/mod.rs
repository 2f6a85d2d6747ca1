//! The program: a daemon that answers the kernel for a mount (`mount`, `fuse`, `control`), and the
//! commands that ask the daemon through a file of the mount (`client`, `commands`, `run`).

mod client;
mod command_line;
mod commands;
mod control;
mod failure;
mod fuse;
mod mount;
mod mount_table;
mod run;
mod unmount;

use clap::Parser;
use command_line::{Arguments, Command};
use failure::Failure;
use std::process::ExitCode;

/// Does what the command line says.
pub fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => error.exit(),
    };
    let done = match &arguments.command {
        Command::Mount(options) => mount::mount(options).map(|()| ExitCode::SUCCESS),
        Command::Run(options) => run::run(options),
        Command::Unmount(options) => unmount::unmount(options).map(|()| ExitCode::SUCCESS),
        other => commands::ask(other).map(|()| ExitCode::SUCCESS),
    };
    done.unwrap_or_else(|failure: Failure| {
        eprintln!("manycore-fs: {failure}");
        failure.code().into()
    })
}
