//! Converts recordings to formats of other programs, and to figures.
//!
//! ```
//! use manycore_trace::{Class, Recorder, Trace, convert, span};
//!
//! const QUERIES: Class = Class::new(3, "queries");
//! let recording = Recorder::new().start()?;
//! drop(span!(QUERIES, Query { id: u32 = 17 }));
//! let mut trace = Trace::from_bytes(recording.finish()?)?;
//!
//! let mut json = Vec::new();
//! convert::chrome(&mut trace, &convert::Filter::default(), &mut json)?;
//! assert!(json.starts_with(b"{\"traceEvents\":["));
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! | For | Take |
//! |---|---|
//! | Perfetto's viewer, of any size | [`perfetto`] |
//! | Chrome's viewer, Speedscope, and others that read its JSON | [`chrome`] |
//! | babeltrace2 from 2.1 on, and other readers of the Common Trace Format 2 | [`ctf`] |
//! | figures: events by name, and quantiles of spans | [`Summary`] |
//!
//! Memory: that of a [`crate::Merge`], and a list of the threads.

mod chrome;
mod ctf;
mod perfetto;
mod summary;

pub use chrome::chrome;
pub use ctf::ctf;
pub use perfetto::perfetto;
pub use summary::{SpanTimes, Summary};

use crate::Record;

/// Selects records.
///
/// ```
/// use manycore_trace::convert::Filter;
///
/// let mut filter = Filter::default(); // all
/// filter.classes.push("queries".to_owned());
/// filter.from_nanos = 1_000_000_000; // from the first second on
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Filter {
    /// Only these classes. If empty, all classes.
    pub classes: Vec<String>,
    /// Only events of these names. If empty, all names.
    pub names: Vec<String>,
    /// Only these threads, by number or name. If empty, all threads.
    pub threads: Vec<String>,
    /// Only records from this time on, in nanoseconds from the start of the recording.
    pub from_nanos: i64,
    /// Only records before this time, in the same unit.
    pub to_nanos: i64,
}

impl Default for Filter {
    fn default() -> Self {
        Self {
            classes: Vec::new(),
            names: Vec::new(),
            threads: Vec::new(),
            from_nanos: i64::MIN,
            to_nanos: i64::MAX,
        }
    }
}

impl Filter {
    /// Returns true if the filter selects this record.
    #[must_use]
    pub fn takes(&self, record: &Record<'_>) -> bool {
        let has = |list: &[String], what: &str| {
            list.is_empty() || list.iter().any(|wanted| wanted == what)
        };
        let is_in_time = || {
            (self.from_nanos, self.to_nanos) == (i64::MIN, i64::MAX)
                || (self.from_nanos..self.to_nanos).contains(&record.nanos())
        };
        has(&self.classes, &record.info.class_name)
            && has(&self.names, &record.info.name)
            && (self.threads.is_empty()
                || has(&self.threads, record.thread_name())
                || has(&self.threads, &record.thread.to_string()))
            && is_in_time()
    }
}
