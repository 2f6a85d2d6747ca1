//! Calls of a backing, which may refuse or panic: the database undoes its part in both cases.

use crate::Error;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// How a call failed.
pub(super) enum Failed {
    Refused(Error),
    /// Refused, and some may be mapped.
    Partly(Error),
    Panicked(Box<dyn Any + Send>),
}

impl Failed {
    /// The error. A panic goes on.
    pub(super) fn into_error(self) -> Error {
        match self {
            Self::Refused(error) | Self::Partly(error) => error,
            Self::Panicked(panic) => resume_unwind(panic),
        }
    }
}

/// Calls the backing, and holds its panic.
pub(super) fn attempt<T>(call: impl FnOnce() -> Result<T, Error>) -> Result<T, Failed> {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(result) => result.map_err(Failed::Refused),
        Err(panic) => Err(Failed::Panicked(panic)),
    }
}
