//! What ends a command: words for its user, and an exit code.

use std::fmt;
use std::path::Path;

/// The exit code of a command that failed.
pub const FAILED: u8 = 1;
/// The exit code of `run` if it fails itself, as `env` and `timeout` have it.
pub const RUN_FAILED: u8 = 125;
/// Of `run`: the command can't be executed.
pub const NOT_EXECUTABLE: u8 = 126;
/// Of `run`: there is no such command.
pub const NO_COMMAND: u8 = 127;

pub type Result<T> = std::result::Result<T, Failure>;

/// Why a command failed. Its text names the thing that failed, and says what to do if that is
/// known.
#[derive(Debug)]
pub struct Failure {
    words: String,
    code: u8,
}

impl Failure {
    pub fn new(words: impl Into<String>) -> Failure {
        Failure { words: words.into(), code: FAILED }
    }

    /// The system's error about this file.
    pub fn of(path: impl AsRef<Path>, error: impl fmt::Display) -> Failure {
        Failure::new(format!("{}: {error}", path.as_ref().display()))
    }

    /// The same with another exit code.
    pub fn with_code(self, code: u8) -> Failure {
        Failure { code, ..self }
    }

    pub fn code(&self) -> u8 {
        self.code
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.words)
    }
}
