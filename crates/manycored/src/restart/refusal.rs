//! Why a saved file is not taken.

use std::{fmt, io};

/// Why a file is not taken.
#[derive(Debug)]
pub enum Refusal {
    /// It is not one of this server's.
    Foreign,
    /// It is, and is right, but cannot be used.
    Unfit(String),
    /// It is, and is wrong.
    Damaged(String),
    /// It cannot be read.
    Unreadable(io::Error),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Foreign => f.write_str("it is not a file of this server"),
            Self::Unfit(why) => f.write_str(why),
            Self::Damaged(why) => write!(f, "it is damaged: {why}"),
            Self::Unreadable(error) => write!(f, "it cannot be read: {error}"),
        }
    }
}

impl std::error::Error for Refusal {}
