//! Why the command ends without doing what was asked.

use std::{fmt::Display, io, path::Path};

/// One line for the user, and an exit code.
#[derive(Debug)]
pub struct Failure {
    /// The line, without the name of the command; empty if there is nothing to say.
    pub message: String,
    /// The exit code.
    pub code: u8,
}

impl Failure {
    /// The command line makes no sense.
    pub fn usage(message: impl Display) -> Self {
        Self { message: message.to_string(), code: 2 }
    }

    /// The machine cannot do what was asked.
    pub fn run(message: impl Display) -> Self {
        Self { message: message.to_string(), code: 1 }
    }

    /// Standard output failed.
    pub fn stdout(error: &io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Self { message: String::new(), code: 141 };
        }
        Self::run(format_args!("cannot write to standard output: {error}"))
    }

    /// A file could not be written.
    pub fn file(path: &Path, error: &io::Error) -> Self {
        Self::run(format_args!("cannot write {}: {error}", path.display()))
    }
}
