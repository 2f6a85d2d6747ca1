//! Calls of a backing that may refuse or panic. The database undoes its part in both cases.

use crate::Error;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// The failure of a call.
pub(super) enum Failed {
    Refused(Error),
    /// Refused, and some pages may be mapped.
    Partly(Error),
    Panicked(Box<dyn Any + Send>),
}

impl Failed {
    /// Returns the error, or resumes the panic.
    pub(super) fn into_error(self) -> Error {
        match self {
            Self::Refused(error) | Self::Partly(error) => error,
            Self::Panicked(panic) => resume_unwind(panic),
        }
    }
}

/// Calls the backing and catches its panic.
pub(super) fn attempt<T>(call: impl FnOnce() -> Result<T, Error>) -> Result<T, Failed> {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(result) => result.map_err(Failed::Refused),
        Err(panic) => Err(Failed::Panicked(panic)),
    }
}
