//! Why a metric can't be registered.

use std::error::Error;
use std::fmt;

/// Why a metric can't be registered: see [`Registry::try_counter`](crate::Registry::try_counter)
/// for an example.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum RegisterError {
    /// A report needs the name of this label for itself: a scraper would reject all of it.
    ReservedLabel {
        /// The metric's name.
        metric: String,
        /// The label's name.
        label: String,
    },
}

impl fmt::Display for RegisterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::ReservedLabel { metric, label } = self;
        write!(f, "the label {label:?} of {metric:?} has a reserved name")
    }
}

impl Error for RegisterError {}
