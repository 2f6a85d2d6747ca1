//! The reasons to refuse a saved file.

use std::{fmt, io};

/// The reason why a file is refused.
#[derive(Debug)]
pub enum Refusal {
    /// It is not a file of this server.
    Foreign,
    /// It is a valid file of this server, but cannot be used.
    Unfit(String),
    /// It is a file of this server, but damaged.
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
