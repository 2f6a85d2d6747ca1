//! The error of registering a metric.

use std::error::Error;
use std::fmt;

/// The reason why a metric can't be registered.
///
/// [`MetricRegistry::try_counter`](crate::MetricRegistry::try_counter) has an example.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum RegisterError {
    /// A report uses the name of this label itself. A scraper would reject the whole report.
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
