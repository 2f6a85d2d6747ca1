//! The command line of `manycore-bench bench`: a subcommand for each workload, with the options
//! that the workload takes.
//!
//! Owns: the names and the bounds of options. Does not own: which workload takes which option; the
//! catalogue says that. All subcommands are made of one set of arguments. An option of other
//! workloads is hidden, and refused with a list of the workloads that take it.

use std::{path::PathBuf, str::FromStr, time::Duration};

use clap::{
    ArgMatches, Args, Command, FromArgMatches, Subcommand, ValueEnum, error::ErrorKind,
    parser::ValueSource,
};
use manycore_cli::number::{duration, positive};

#[cfg(target_os = "linux")]
use super::server_args::ServerArgs;
#[cfg(target_os = "linux")]
use crate::metis::MetisOptions;
use crate::{
    catalogue::{self, WORKLOADS, Workload},
    kv::{Capacity, FileTrace, KvOptions},
    notify::NotifyOptions,
    output,
    ranges::RangesOptions,
    smr::{Read, SmrOptions},
    sweep::SweepOptions,
    ticks::SPIN_MAX,
    trace::{TraceOptions, What},
    workload::{Options, OwnOptions, ReadEvery},
};

/// The longest trace: two bytes an operation, so at most two gigabytes.
const OPS_MAX: usize = 1_000_000_000;

/// The longest stall in seconds. Unbounded schemes fill about a gigabyte in each second.
const STALL_MAX: f64 = 60.0;

/// The options that every workload takes.
const COMMON: [&str; 8] =
    ["impl", "threads", "duration", "repeat", "format", "out", "pin", "no-pin"];

/// The workload to run, with its options.
pub struct BenchArgs {
    /// The workload.
    pub workload: &'static Workload,
    given: Given,
}

/// The options of all workloads.
#[derive(Args)]
#[command(allow_negative_numbers = true)]
struct Given {
    /// Implementations, or 'all', or 'ours'; the one-thread baseline always takes part
    #[arg(long = "impl", value_name = "NAMES", value_delimiter = ',', default_value = "all")]
    impls: Vec<String>,
    /// Thread counts; for the workload server, the servers' threads [default: 1 and all cores]
    #[arg(long, value_name = "COUNTS", value_delimiter = ',', value_parser = positive)]
    threads: Vec<usize>,
    /// Reads: 'never', or the number of a thread's updates between two reads
    #[arg(
        long,
        value_name = "COUNTS",
        value_delimiter = ',',
        value_parser = ReadEvery::from_str,
        default_value = "never,1000,100,10,2"
    )]
    read_every: Vec<ReadEvery>,
    /// Shares of updates in percent, instead of --read-every and rounded to it: 50 is
    /// '--read-every 1', 75 is 3, 99.9 is 999
    #[arg(
        long,
        value_name = "PERCENTS",
        value_delimiter = ',',
        value_parser = update_share,
        conflicts_with = "read_every"
    )]
    update_pct: Vec<ReadEvery>,
    /// Ticks of the processor's clock to spin after each update
    #[arg(long, value_name = "TICKS", default_value_t = 0, value_parser = ticks)]
    spin: u64,
    /// Ticks of the work around each increment, or after each path
    #[arg(long, value_name = "TICKS", default_value_t = 0, value_parser = ticks)]
    work: u64,
    /// Ticks that the drainer rests after each round
    #[arg(long, value_name = "TICKS", default_value_t = 0, value_parser = ticks)]
    pause: u64,
    /// Measure instead how long it takes until this many events, sent at once and without a window,
    /// have arrived
    #[arg(long, value_name = "COUNTS", value_delimiter = ',', value_parser = burst)]
    burst: Vec<u64>,
    /// Measure instead how long single events take to arrive, this many ticks apart
    #[arg(long, value_name = "TICKS", value_delimiter = ',', value_parser = ticks)]
    gap: Vec<u64>,
    /// Shares of updates, in percent
    #[arg(
        long,
        value_name = "PERCENTS",
        value_delimiter = ',',
        value_parser = percent,
        default_value = "0,10,50,90"
    )]
    update: Vec<u8>,
    /// Shares of updates, in percent, to the tenth
    #[arg(long, value_name = "PERCENTS", value_delimiter = ',', value_parser = tenths)]
    share: Vec<u64>,
    /// How many elements stay in the list
    #[arg(
        long,
        value_name = "COUNTS",
        value_delimiter = ',',
        value_parser = clap::value_parser!(u32).range(..=100_000),
        default_value = "0"
    )]
    elements: Vec<u32>,
    /// Work before the time counts, so that adaptive objects have settled
    #[arg(long, value_name = "TIME", default_value = "60ms", value_parser = duration)]
    warm_up: Duration,
    /// Shares of sets, in percent
    #[arg(
        long,
        value_name = "PERCENTS",
        value_delimiter = ',',
        value_parser = percent,
        default_value = "0,10,20"
    )]
    set: Vec<u8>,
    /// Number of different keys, or of places for ranges
    #[arg(long, value_name = "COUNTS", value_delimiter = ',', value_parser = keys)]
    keys: Vec<usize>,
    /// Pages of a range, of 4096 keys each
    #[arg(long, value_name = "COUNTS", value_delimiter = ',', value_parser = pages)]
    pages: Vec<u64>,
    /// What is recorded: 'event', 'span' or 'off' [default: all]
    #[arg(long, value_name = "WHAT", value_delimiter = ',', value_parser = What::from_str)]
    record: Vec<What>,
    /// A file with the requests, instead of generated requests: text with 'get KEY' or 'set KEY' on
    /// each line, and optionally a size; # begins a comment. Or a recorded trace in the format of
    /// LIRS, of ARC, or of libCacheSim's oracleGeneral. The hits are counted in one pass from an
    /// empty cache
    #[arg(long, value_name = "FILE", value_parser = trace)]
    trace: Option<&'static FileTrace>,
    /// Room in the caches: for 'all' keys; for a 'tenth' of them, also with keys in other orders;
    /// 'both'; or a number of entries
    #[arg(long, value_name = "WHAT", default_value = "both")]
    capacity: Capacity,
    /// Passes of a batch through the trace
    #[cfg(target_os = "linux")]
    #[arg(long, value_name = "COUNT", default_value_t = 10, value_parser = positive)]
    replays: usize,
    /// Operations of a repeat, divided among the threads, or requests generated beforehand
    #[arg(long, value_name = "COUNT", default_value_t = 10_000_000, value_parser = operations)]
    ops: usize,
    /// What a read does in its section: 'empty', or 'node' to read a word of a node
    #[arg(long, value_name = "WHAT", default_value_t = Read::Empty, value_parser = Read::from_str)]
    read: Read,
    /// Measure instead while a reader stays in its section for this long
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    stall: Option<Duration>,
    /// How long each repeat runs, such as 300ms or 2s [default: 300ms; smr: until --ops are done]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    duration: Option<Duration>,
    /// How many repeats
    #[arg(long, value_name = "COUNT", default_value_t = 5, value_parser = positive)]
    repeat: usize,
    /// The form of the output
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
    /// Write to this file instead of standard output, all at once at the end
    #[arg(long, value_name = "PATH")]
    out: Option<PathBuf>,
    /// Keep each thread on one core, if there are enough cores (the default)
    #[arg(long, overrides_with = "no_pin")]
    pin: bool,
    /// Let the system move threads between cores
    #[arg(long)]
    no_pin: bool,
    #[cfg(target_os = "linux")]
    #[command(flatten)]
    server: ServerArgs,
}

/// The form of the output.
#[derive(Clone, Copy, ValueEnum)]
pub enum Format {
    /// Aligned columns for people
    Table,
    /// Comma-separated values
    Csv,
    /// One JSON object a line
    Json,
}

impl Format {
    /// Returns the format for the writer of rows.
    pub fn of_output(self) -> output::Format {
        match self {
            Format::Table => output::Format::Table,
            Format::Csv => output::Format::Csv,
            Format::Json => output::Format::Json,
        }
    }
}

impl BenchArgs {
    /// Returns the requested thread counts.
    pub fn threads(&self) -> &[usize] {
        &self.given.threads
    }

    /// Returns the file to write to.
    pub fn out(&self) -> Option<&PathBuf> {
        self.given.out.as_ref()
    }

    /// Returns the form of the output.
    pub fn format(&self) -> output::Format {
        self.given.format.of_output()
    }

    /// Returns the options of the workload.
    pub fn options(&self) -> Options {
        let (given, defaults) = (&self.given, Options::default());
        let threads =
            if given.threads.is_empty() { defaults.threads } else { given.threads.clone() };
        let reads = if given.update_pct.is_empty() { &given.read_every } else { &given.update_pct };
        Options {
            impls: given.impls.clone(),
            threads,
            read_every: reads.clone(),
            spin: given.spin,
            work: given.work,
            pause: given.pause,
            duration: given.duration.unwrap_or(defaults.duration),
            warm_up: given.warm_up,
            repeats: given.repeat,
            pin: !given.no_pin,
            update: given.update.clone(),
            ops: given.ops,
            set: given.set.clone(),
            keys: given.keys.clone(),
            own: given.own(),
        }
    }
}

impl Given {
    /// Returns the options that belong to one workload each.
    fn own(&self) -> OwnOptions {
        let (read, stall, at_most) = (self.read, self.stall, self.duration);
        let own = OwnOptions::default()
            .with(SmrOptions { read, stall, at_most })
            .with(KvOptions { trace: self.trace, capacity: self.capacity })
            .with(NotifyOptions { burst: self.burst.clone(), gap: self.gap.clone() })
            .with(RangesOptions { pages: self.pages.clone() })
            .with(TraceOptions { record: self.record.clone() })
            .with(SweepOptions { shares: self.share.clone(), elements: self.elements.clone() });
        #[cfg(target_os = "linux")]
        let own = own.with(self.server.options()).with(MetisOptions { replays: self.replays });
        own
    }
}

/// Returns true if a workload takes the option of this name.
fn takes(workload: &Workload, option: &str) -> bool {
    COMMON.contains(&option) || workload.options.iter().any(|(name, _)| *name == option)
}

/// Makes the subcommand of a workload.
fn subcommand(workload: &'static Workload) -> Command {
    let command = Given::augment_args(Command::new(workload.name)).about(workload.about);
    command.long_about(None).after_long_help(implementations(workload)).mut_args(|arg| {
        let Some(name) = arg.get_long().map(str::to_owned) else { return arg };
        let own = workload.options.iter().find(|(option, _)| *option == name);
        match own.and_then(|(_, default)| *default) {
            Some(default) => arg.default_value(default),
            None => arg.hide(!takes(workload, &name)),
        }
    })
}

impl Subcommand for BenchArgs {
    fn augment_subcommands(command: Command) -> Command {
        // An unknown name reaches `from_arg_matches`, which lists all names.
        let command = command.subcommand_value_name("WORKLOAD").allow_external_subcommands(true);
        command.subcommand_help_heading("Workloads").subcommands(WORKLOADS.iter().map(subcommand))
    }

    fn augment_subcommands_for_update(command: Command) -> Command {
        Self::augment_subcommands(command)
    }

    fn has_subcommand(name: &str) -> bool {
        catalogue::find(name).is_some()
    }
}

impl FromArgMatches for BenchArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let invalid = |what: &str| {
            let names: Vec<_> = WORKLOADS.iter().map(|workload| workload.name).collect();
            let message = format!("{what}; there are: {}", names.join(", "));
            clap::Error::raw(ErrorKind::InvalidSubcommand, message)
        };
        let Some((name, matches)) = matches.subcommand() else {
            return Err(invalid("a WORKLOAD is needed"));
        };
        let unknown = || invalid(&format!("no workload '{name}'"));
        let workload = catalogue::find(name).ok_or_else(unknown)?;
        for arg in Given::augment_args(Command::new(workload.name)).get_arguments() {
            let Some(option) = arg.get_long() else { continue };
            let is_given =
                matches.value_source(arg.get_id().as_str()) == Some(ValueSource::CommandLine);
            if is_given && !takes(workload, option) {
                return Err(foreign(workload, option));
            }
        }
        Ok(Self { workload, given: Given::from_arg_matches(matches)? })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Returns the error for an option that only other workloads take.
fn foreign(workload: &Workload, option: &str) -> clap::Error {
    let takers = WORKLOADS.iter().filter(|other| takes(other, option));
    let takers: Vec<_> = takers.map(|other| other.name).collect();
    let (name, takers) = (workload.name, takers.join(", "));
    let message = format!("{name} has no option '--{option}'; these have: {takers}");
    clap::Error::raw(ErrorKind::UnknownArgument, message)
}

/// Returns the help's list of implementations.
fn implementations(workload: &Workload) -> String {
    let mut text = "Implementations:\n".to_owned();
    for about in (workload.impls)() {
        text.push_str(&format!("  {:<20} {}\n", about.name, about.about));
    }
    text
}

fn tenths(text: &str) -> Result<u64, &'static str> {
    match text.parse::<f64>() {
        Ok(percent) if (0.0..=100.0).contains(&percent) => Ok((percent * 10.0).round() as u64),
        _ => Err("a number from 0 to 100 is needed"),
    }
}

fn ticks(text: &str) -> Result<u64, String> {
    match text.parse() {
        Ok(ticks) if ticks <= SPIN_MAX => Ok(ticks),
        _ => Err(format!("a whole number from 0 to {SPIN_MAX} is needed")),
    }
}

fn burst(text: &str) -> Result<u64, String> {
    match text.parse() {
        Ok(count) if (1..=OPS_MAX as u64).contains(&count) => Ok(count),
        _ => Err(format!("a whole number from 1 to {OPS_MAX} is needed")),
    }
}

fn percent(text: &str) -> Result<u8, &'static str> {
    match text.parse() {
        Ok(percent) if percent <= 100 => Ok(percent),
        _ => Err("a whole number from 0 to 100 is needed"),
    }
}

fn update_share(text: &str) -> Result<ReadEvery, &'static str> {
    ReadEvery::at_share(text.parse().unwrap_or(f64::NAN))
}

fn operations(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(count) if (1..=OPS_MAX).contains(&count) => Ok(count),
        _ => Err(format!("a whole number from 1 to {OPS_MAX} is needed")),
    }
}

fn keys(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(count) if (100..=100_000_000).contains(&count) => Ok(count),
        _ => Err("a whole number from 100 to 100000000 is needed".to_owned()),
    }
}

fn pages(text: &str) -> Result<u64, String> {
    match text.parse() {
        Ok(count) if (1..=4096).contains(&count) => Ok(count),
        _ => Err("a whole number from 1 to 4096 is needed".to_owned()),
    }
}

fn trace(path: &str) -> Result<&'static FileTrace, String> {
    FileTrace::read(path.as_ref()).map_err(|error| error.to_string())
}

fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse() {
        Ok(seconds) if (0.001..=STALL_MAX).contains(&seconds) => {
            Ok(Duration::from_secs_f64(seconds))
        }
        _ => Err(format!("a number of seconds from 0.001 to {STALL_MAX} is needed")),
    }
}

#[cfg(test)]
mod tests {
    use crate::figures;

    use super::*;
    use crate::command::args;

    fn parse(words: &[&str]) -> Result<BenchArgs, clap::Error> {
        let command = BenchArgs::augment_subcommands(Command::new("bench"));
        BenchArgs::from_arg_matches(&command.try_get_matches_from(words)?)
    }

    #[test]
    fn each_option_of_the_catalogue_is_one_of_the_command() {
        let command = Given::augment_args(Command::new("x"));
        let all: Vec<_> = command.get_arguments().filter_map(|arg| arg.get_long()).collect();
        let own = WORKLOADS.iter().flat_map(|workload| workload.options.iter().map(|own| own.0));
        for option in own.clone().chain(COMMON) {
            assert!(all.contains(&option), "--{option}");
        }
        for option in all {
            assert!(COMMON.contains(&option) || own.clone().any(|own| own == option), "--{option}");
        }
    }

    #[test]
    fn defaults_that_help_states_are_those_of_the_workload() {
        for workload in WORKLOADS {
            let given = parse(&["bench", workload.name]).ok().unwrap().options();
            let titles = |options: &Options| {
                let groups = (workload.groups)(options).ok().unwrap();
                groups.into_iter().map(|group| group.title).collect::<Vec<_>>()
            };
            assert_eq!(titles(&given), titles(&Options::default()), "{}", workload.name);
        }
    }

    #[test]
    fn runs_of_figures_take_only_options_of_their_workloads() {
        let runs = figures::all().flat_map(|figure| [figure.runs(true), figure.runs_here(2, true)]);
        let words = runs.flatten().map(|run| run.words);
        for words in words.chain(figures::fresh::cases(2).map(|case| case.words("1ms", 1))) {
            assert!(args::bench(&words).is_ok(), "{words:?}");
        }
    }

    #[test]
    fn options_of_other_workloads_are_refused_with_their_names() {
        let error = parse(&["bench", "list", "--pages", "1"]).err().unwrap().to_string();
        assert!(
            error.contains("list has no option '--pages'") && error.contains("ranges"),
            "{error}"
        );
        let error = parse(&["bench", "list", "--connect", "localhost:1"]).err();
        assert!(error.is_some() || cfg!(not(target_os = "linux")));
        assert!(parse(&["bench", "ranges", "--pages", "1"]).is_ok());
    }
}
