//! The command line of `manycore-bench bench`: a workload's subcommand, or the scorecard's.
//!
//! Owns: the choice between the two, and the scorecard's options. Does not own: the workloads'
//! options, which are in `bench_args`.

use std::path::PathBuf;

use clap::{ArgMatches, Args, Command, FromArgMatches, Subcommand, builder::PossibleValuesParser};

use super::bench_args::{BenchArgs, Format};
use crate::scorecard::SUBJECTS;

const NAME: &str = "scorecard";

/// The subcommands of `manycore-bench bench`.
pub enum BenchCommand {
    /// Run one workload.
    Workload(Box<BenchArgs>),
    /// Compare goals with many rivals.
    Scorecard(ScorecardArgs),
}

/// The options of the scorecard.
#[derive(Args)]
pub struct ScorecardArgs {
    /// Only these subjects [default: all]
    #[arg(long, value_name = "NAMES", value_delimiter = ',',
          value_parser = PossibleValuesParser::new(SUBJECTS.iter().copied()))]
    pub subjects: Vec<String>,
    /// Short runs, once each, to see that everything works
    #[arg(long)]
    pub quick: bool,
    /// Exit with 0 even if goals are missed
    #[arg(long)]
    pub no_check: bool,
    /// The form of the output
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,
    /// Write to this file instead of standard output, all at once at the end
    #[arg(long, value_name = "PATH")]
    pub out: Option<PathBuf>,
}

impl BenchCommand {
    /// Returns the requested thread counts.
    pub fn threads(&self) -> &[usize] {
        match self {
            BenchCommand::Workload(bench) => bench.threads(),
            BenchCommand::Scorecard(_) => &[1, 2],
        }
    }
}

impl Subcommand for BenchCommand {
    fn augment_subcommands(command: Command) -> Command {
        let about = "hold all goals against the best rivals, and fail where one is missed";
        let own = ScorecardArgs::augment_args(Command::new(NAME)).about(about).long_about(None);
        BenchArgs::augment_subcommands(command).subcommand(own)
    }

    fn augment_subcommands_for_update(command: Command) -> Command {
        Self::augment_subcommands(command)
    }

    fn has_subcommand(name: &str) -> bool {
        name == NAME || BenchArgs::has_subcommand(name)
    }
}

impl FromArgMatches for BenchCommand {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        match matches.subcommand() {
            Some((NAME, own)) => ScorecardArgs::from_arg_matches(own).map(Self::Scorecard),
            _ => BenchArgs::from_arg_matches(matches).map(Box::new).map(Self::Workload),
        }
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
