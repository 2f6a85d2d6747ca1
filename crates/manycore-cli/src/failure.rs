//! The reason why the command failed.

use std::{fmt::Display, io, path::Path};

/// One line for the user, and an exit code.
#[derive(Debug)]
pub struct Failure {
    /// The line, without the name of the command. It is empty if there is nothing to say.
    pub message: String,
    /// The exit code.
    pub code: u8,
}

impl Failure {
    /// Makes the failure for a wrong command line.
    pub fn usage(message: impl Display) -> Self {
        Self { message: message.to_string(), code: 2 }
    }

    /// Makes the failure for a command that could not be run.
    pub fn run(message: impl Display) -> Self {
        Self { message: message.to_string(), code: 1 }
    }

    /// Makes the failure for an error of standard output.
    pub fn stdout(error: &io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Self { message: String::new(), code: 141 };
        }
        Self::run(format_args!("cannot write to standard output: {error}"))
    }

    /// Makes the failure for a file that could not be written.
    pub fn file(path: &Path, error: &io::Error) -> Self {
        Self::run(format_args!("cannot write {}: {error}", path.display()))
    }
}
