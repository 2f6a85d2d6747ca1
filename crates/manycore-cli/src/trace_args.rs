//! The command line of `manycore trace`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use manycore_trace::convert::Filter;

use crate::number::duration;

/// The subcommands of `manycore trace`.
#[derive(Subcommand)]
pub enum TraceCommand {
    /// Run a program with MANYCORE_TRACE set, which `Recorder::from_env` reads
    Record {
        /// The file that it records into
        #[arg(long, value_name = "PATH", default_value = "trace.mctrace")]
        out: PathBuf,
        /// The classes that are on, as the bits of a number
        #[arg(long, value_name = "BITS")]
        classes: Option<String>,
        /// The program and its arguments
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<String>,
    },
    /// Print records as they are recorded, until interrupted or until the process ends
    Tail(ShowArgs),
    /// Print a trace's records in the order of their times
    Show(ShowArgs),
    /// Print counts of events, and quantiles of the times of spans
    Stat(ShowArgs),
    /// Write a trace in the format of a viewer
    Convert {
        #[command(flatten)]
        show: ShowArgs,
        /// The format
        #[arg(long, value_enum)]
        to: Format,
        /// The file, or for ctf the folder, that is written
        #[arg(long, value_name = "PATH")]
        out: PathBuf,
    },
}

/// A format of a viewer.
#[derive(Clone, Copy, ValueEnum)]
pub enum Format {
    /// Perfetto's protocol buffers, for ui.perfetto.dev
    Perfetto,
    /// Chrome's JSON
    Chrome,
    /// The Common Trace Format, version 2
    Ctf,
    /// A page with a timeline, which needs no viewer
    Html,
}

/// A trace, and a selection of its records.
#[derive(Args)]
pub struct ShowArgs {
    /// The file
    pub file: PathBuf,
    /// Only these classes, by name; may be repeated
    #[arg(long, value_name = "NAME")]
    pub class: Vec<String>,
    /// Only events of these names; may be repeated
    #[arg(long, value_name = "NAME")]
    pub event: Vec<String>,
    /// Only these threads, by number or name; may be repeated
    #[arg(long, value_name = "THREAD")]
    pub thread: Vec<String>,
    /// Only from this time after the start on, such as 1.5s or 20ms
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub from: Option<std::time::Duration>,
    /// Only before this time after the start
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub until: Option<std::time::Duration>,
}

impl ShowArgs {
    /// Returns the filter for the selected records.
    pub fn filter(&self) -> Filter {
        let mut filter = Filter::default();
        filter.classes.clone_from(&self.class);
        filter.names.clone_from(&self.event);
        filter.threads.clone_from(&self.thread);
        let nanos = |time: std::time::Duration| i64::try_from(time.as_nanos()).unwrap_or(i64::MAX);
        filter.from_nanos = self.from.map_or(filter.from_nanos, nanos);
        filter.to_nanos = self.until.map_or(filter.to_nanos, nanos);
        filter
    }
}
