//! The command line.

use std::{
    io::{self, Write},
    path::PathBuf,
    str::FromStr,
    time::Duration,
};

use clap::{
    Args, CommandFactory, Parser, Subcommand, ValueEnum, builder::PossibleValuesParser,
    error::ErrorKind,
};
use clap_complete::Shell;
use manycore_bench::{
    catalogue::WORKLOADS,
    figures,
    kv::{FileTrace, KvOptions},
    limits,
    machine::VERSION,
    output,
    ranges::RangesOptions,
    smr::{Read, SmrOptions},
    ticks::SPIN_MAX,
    workload::{Options, OwnOptions, ReadEvery},
};

#[cfg(target_os = "linux")]
use crate::server_args::ServerArgs;
use crate::{failure::Failure, number::positive};
#[cfg(target_os = "linux")]
use manycore_bench::metis::MetisOptions;

/// The longest trace: two bytes an operation, so at most two gigabytes.
const OPS_MAX: usize = 1_000_000_000;

/// The longest stall in seconds: unbounded schemes fill about a gigabyte in each.
const STALL_MAX: f64 = 60.0;

/// Shared structures that keep scaling, against the usual ones, on this machine.
#[derive(Parser)]
#[command(name = "manycore", version = VERSION, disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
}

/// What to do.
#[derive(Subcommand)]
pub enum Command {
    /// Show the library at work and write a page with plots (the default)
    Tour(TourArgs),
    /// Run one workload against ours and every rival
    Bench(Box<BenchArgs>),
    /// List every implementation of every workload: workload, implementation, kind
    Workloads,
    /// Compare ours with each other implementation in a file of `bench --format csv`
    Compare(CompareArgs),
    /// Draw curves over the number of threads from a file of `bench --format csv`
    Plot(PlotArgs),
    /// Report the hardware features found and which of them are used
    Doctor(DoctorArgs),
    /// Run a program of cargo's on virtual machines with many cores
    Sim(SimArgs),
    /// Run the papers' figures on virtual cores and here, beside what was published
    Report(ReportArgs),
    /// Print a shell's completions of this command
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Print the manual page of this command
    Man,
}

/// What is compared.
#[derive(Args)]
pub struct CompareArgs {
    /// The workload's name, for the first column
    pub workload: String,
    /// The file
    pub file: PathBuf,
    /// The metric
    #[arg(long, value_name = "NAME", default_value = "throughput")]
    pub metric: String,
    /// The smaller figure is the better one
    #[arg(long)]
    pub less: bool,
    /// Print only the last figure of this implementation
    #[arg(long = "impl", value_name = "NAME")]
    pub implementation: Option<String>,
}

/// What is drawn.
#[derive(Args)]
pub struct PlotArgs {
    /// The file
    pub file: PathBuf,
    /// The curves, ours first: an implementation, and its name in the picture
    #[arg(value_name = "IMPL[=NAME]", required = true)]
    pub curves: Vec<String>,
    /// The picture
    #[arg(long, value_name = "PATH")]
    pub out: PathBuf,
    /// What stands above
    #[arg(long, value_name = "TEXT")]
    pub heading: String,
    /// What goes up, with its unit
    #[arg(long, value_name = "TEXT")]
    pub y: String,
    /// What goes to the right
    #[arg(long, value_name = "TEXT", default_value = "threads")]
    pub x: String,
    /// The metric
    #[arg(long, value_name = "NAME", default_value = "throughput")]
    pub metric: String,
}

/// The options of the figures.
#[derive(Args)]
pub struct ReportArgs {
    /// Where to write the page
    #[arg(long, value_name = "PATH", default_value = "manycore-report.html")]
    pub html: PathBuf,
    /// Where each run is kept as it ends, so that the next call goes on from there
    #[arg(long, value_name = "FOLDER", default_value = "target/manycore-report")]
    pub runs: PathBuf,
    /// Only these figures; 'fresh' is the simulator against this machine [default: all]
    #[arg(long, value_name = "NAMES", value_delimiter = ',',
          value_parser = PossibleValuesParser::new(figures::names()))]
    pub figures: Vec<String>,
    /// Few points and short runs, to see that everything works
    #[arg(long)]
    pub quick: bool,
}

/// The simulator's options.
#[derive(Args)]
#[command(args_conflicts_with_subcommands = false, disable_help_subcommand = true)]
pub struct SimArgs {
    /// The machine: a model's name, or a file that ends in .toml
    #[arg(long, value_name = "NAME", default_value = "opteron-8x6")]
    pub machine: String,
    /// Numbers of cores, a run for each [default: 1 and 6; for tests: 4]
    #[arg(long, value_name = "COUNTS", value_delimiter = ',', value_parser = cores)]
    pub cores: Vec<u32>,
    /// Change a parameter of the machine
    #[arg(long, value_name = "NAME=VALUE")]
    pub set: Vec<String>,
    /// Extend the model with extra sockets, where the machine has too few cores
    #[arg(long)]
    pub grow: bool,
    /// Seed of what is random in the model and in the program's system calls
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub seed: u64,
    /// Sensitivity runs over uncertain parameters
    #[arg(long)]
    pub band: bool,
    /// Print only the accesses of each operation: writes of shared lines, reads of others', locks
    #[arg(long)]
    pub audit: bool,
    /// How many cache lines to show
    #[arg(long, value_name = "COUNT", default_value_t = 6)]
    pub top: usize,
    /// Write the report as JSON to this file, too
    #[arg(long, value_name = "PATH")]
    pub json: Option<PathBuf>,
    /// Write the report as a page with plots to this file, too
    #[arg(long, value_name = "PATH")]
    pub html: Option<PathBuf>,
    /// The package to look for the program in
    #[arg(long, short, value_name = "NAME")]
    pub package: Option<String>,
    /// Features to build it with
    #[arg(long, value_name = "FEATURES")]
    pub features: Option<String>,
    /// Instead of running a program
    #[command(subcommand)]
    pub command: Option<SimCommand>,
    /// A program, example, benchmark or test of this workspace, or a package; and its arguments
    #[arg(last = true, value_name = "PROGRAM")]
    pub program: Vec<String>,
}

/// What else the simulator does.
#[derive(Subcommand)]
pub enum SimCommand {
    /// Run cargo test, instrumented, on virtual cores
    Test(SimTestArgs),
}

/// What to test.
#[derive(Args)]
pub struct SimTestArgs {
    /// Arguments of cargo test
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENTS")]
    pub arguments: Vec<String>,
}

impl SimArgs {
    /// The numbers of cores to run on.
    pub fn cores(&self) -> Vec<u32> {
        match (&self.cores[..], &self.command) {
            ([], Some(SimCommand::Test(_))) => vec![4],
            ([], None) => vec![1, 6],
            (cores, _) => cores.to_vec(),
        }
    }
}

/// The tour's options.
#[derive(Args)]
pub struct TourArgs {
    /// Where to write the page
    #[arg(long, value_name = "PATH", default_value = "manycore-tour.html")]
    pub html: PathBuf,
    /// How long all measurements together should take
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = duration)]
    pub budget: Duration,
    /// Leave out the part on virtual cores, for which a small program is built
    #[arg(long)]
    pub no_virtual: bool,
}

impl Default for TourArgs {
    /// What a bare `manycore` does: it builds nothing.
    fn default() -> Self {
        let budget = Duration::from_secs(15);
        Self { html: "manycore-tour.html".into(), budget, no_virtual: true }
    }
}

/// The doctor's options.
#[derive(Args)]
pub struct DoctorArgs {
    /// Show every pair of cores, not only the closest
    #[arg(long)]
    pub all_pairs: bool,
}

/// The options of a benchmark.
#[derive(Args)]
#[command(after_long_help = implementations(), allow_negative_numbers = true)]
pub struct BenchArgs {
    /// Which workload
    #[arg(value_parser = PossibleValuesParser::new(WORKLOADS.iter().map(|w| w.name)))]
    pub workload: String,
    /// Implementations, or 'all', or 'ours'; the one-thread baseline always takes part
    #[arg(long = "impl", value_name = "NAMES", value_delimiter = ',', default_value = "all")]
    pub impls: Vec<String>,
    /// Thread counts, of the servers for server [default: 1 and all cores]
    #[arg(long, value_name = "COUNTS", value_delimiter = ',', value_parser = positive)]
    pub threads: Vec<usize>,
    /// Reads: 'never', or after each so many updates of a thread
    #[arg(
        long,
        value_name = "COUNTS",
        value_delimiter = ',',
        value_parser = ReadEvery::from_str,
        default_value = "never,1000,100,10,2"
    )]
    pub read_every: Vec<ReadEvery>,
    /// The same as shares of updates, in percent, to the nearest: 50 is 1, 75 is 3, 99.9 is 999
    #[arg(
        long,
        value_name = "PERCENTS",
        value_delimiter = ',',
        value_parser = update_share,
        conflicts_with = "read_every"
    )]
    pub update_pct: Vec<ReadEvery>,
    /// Ticks of the processor's clock to spin after each update (list, registry)
    #[arg(long, value_name = "TICKS", default_value_t = 0, value_parser = ticks)]
    pub spin: u64,
    /// Ticks of the request around each increment (counter), or after each path (stat)
    #[arg(long, value_name = "TICKS", default_value_t = 0, value_parser = ticks)]
    pub work: u64,
    /// Ticks that the drainer rests after each round (notify)
    #[arg(long, value_name = "TICKS", default_value_t = 0, value_parser = ticks)]
    pub pause: u64,
    /// Work before the time counts, so that objects that change themselves have settled
    /// (adaptive-sweep)
    #[arg(long, value_name = "TIME", default_value = "60ms", value_parser = duration)]
    pub warm_up: Duration,
    /// Shares of updates, in percent (smr, map, ranges, lock)
    #[arg(
        long,
        value_name = "PERCENTS",
        value_delimiter = ',',
        value_parser = percent,
        default_value = "0,10,50,90"
    )]
    pub update: Vec<u8>,
    /// Shares of sets, in percent (kv, server)
    #[arg(
        long,
        value_name = "PERCENTS",
        value_delimiter = ',',
        value_parser = percent,
        default_value = "0,10,20"
    )]
    pub set: Vec<u8>,
    /// How many different keys there are (map, kv, server), or places for ranges (ranges)
    /// [default: 1000, 64000 and 1000000 for map; 1000 and 100000 for ranges; 1000000]
    #[arg(long, value_name = "COUNTS", value_delimiter = ',', value_parser = keys)]
    pub keys: Vec<usize>,
    /// How many pages of 4096 keys a range has (ranges) [default: 1 and 16]
    #[arg(long, value_name = "COUNTS", value_delimiter = ',', value_parser = pages)]
    pub pages: Vec<u64>,
    /// A file with the requests, instead of generated ones (kv): text, 'get KEY' or
    /// 'set KEY' a line, a size behind it if you like; # begins a comment. The hits are those of an
    /// empty cache that goes through it once
    #[arg(long, value_name = "FILE", value_parser = trace)]
    pub trace: Option<&'static FileTrace>,
    /// Times that a batch goes through the trace (metis)
    #[cfg(target_os = "linux")]
    #[arg(long, value_name = "COUNT", default_value_t = 10, value_parser = positive)]
    pub replays: usize,
    /// Operations of a repeat, shared out among the threads (smr); requests made beforehand (kv,
    /// server)
    #[arg(long, value_name = "COUNT", default_value_t = 10_000_000, value_parser = operations)]
    pub ops: usize,
    /// What a read does in its section: 'empty', or 'node' to read a word of a node (smr)
    #[arg(long, value_name = "WHAT", default_value_t = Read::Empty, value_parser = Read::from_str)]
    pub read: Read,
    /// Measure instead how it goes while a reader stays in its section so long (smr)
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub stall: Option<Duration>,
    /// How long each repeat runs, such as 300ms or 2s [default: 300ms; smr: until --ops are done]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub duration: Option<Duration>,
    /// How many repeats
    #[arg(long, value_name = "COUNT", default_value_t = 5, value_parser = positive)]
    pub repeat: usize,
    /// The form of the output
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,
    /// Write to this file instead of standard output, all at once at the end
    #[arg(long, value_name = "PATH")]
    pub out: Option<PathBuf>,
    /// Keep each thread on one core, where there are cores enough (the default)
    #[arg(long, overrides_with = "no_pin")]
    pub pin: bool,
    /// Let the system move threads between cores
    #[arg(long)]
    pub no_pin: bool,
    #[cfg(target_os = "linux")]
    #[command(flatten)]
    pub server: ServerArgs,
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

impl From<Format> for output::Format {
    fn from(format: Format) -> Self {
        match format {
            Format::Table => output::Format::Table,
            Format::Csv => output::Format::Csv,
            Format::Json => output::Format::Json,
        }
    }
}

impl BenchArgs {
    /// The options of the workload.
    pub fn options(&self) -> Options {
        let defaults = Options::default();
        let mut threads = self.threads.clone();
        if threads.is_empty() {
            threads = defaults.threads;
        }
        Options {
            impls: self.impls.clone(),
            threads,
            read_every: if self.update_pct.is_empty() {
                self.read_every.clone()
            } else {
                self.update_pct.clone()
            },
            spin: self.spin,
            work: self.work,
            pause: self.pause,
            duration: self.duration.unwrap_or(defaults.duration),
            warm_up: self.warm_up,
            repeats: self.repeat,
            pin: !self.no_pin,
            update: self.update.clone(),
            ops: self.ops,
            set: self.set.clone(),
            keys: self.keys.clone(),
            own: self.own(),
        }
    }

    /// The options that belong to one workload each.
    fn own(&self) -> OwnOptions {
        let (read, stall, at_most) = (self.read, self.stall, self.duration);
        let own = OwnOptions::default()
            .with(SmrOptions { read, stall, at_most })
            .with(KvOptions { trace: self.trace })
            .with(RangesOptions { pages: self.pages.clone() });
        #[cfg(target_os = "linux")]
        let own = own.with(self.server.options()).with(MetisOptions { replays: self.replays });
        own
    }
}

/// Reads the command line. Help and version are printed here, and end the process.
///
/// # Errors
/// One line that says what is wrong.
pub fn parse() -> Result<Command, Failure> {
    let cli = Cli::try_parse().map_err(|error| match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => error.exit(),
        _ => Failure::usage(one_line(&error.to_string())),
    })?;
    let command = cli.command.unwrap_or_else(|| Command::Tour(TourArgs::default()));
    if let Command::Bench(bench) = &command {
        for threads in &bench.threads {
            limits::check(*threads).map_err(Failure::run)?;
        }
    }
    Ok(command)
}

/// A shell's completions of the command line, as text.
///
/// # Errors
/// The writer's.
pub fn completions(shell: Shell, out: &mut impl Write) -> io::Result<()> {
    let mut text = Vec::new(); // clap would panic where a reader has gone
    clap_complete::generate(shell, &mut Cli::command(), "manycore", &mut text);
    out.write_all(&text)
}

/// The command line as a manual page.
///
/// # Errors
/// The writer's.
pub fn manual(out: &mut impl Write) -> io::Result<()> {
    clap_mangen::Man::new(Cli::command()).render(out)
}

/// The options of a benchmark, from words as a command line has them.
///
/// # Errors
/// One line that says what is wrong.
pub fn bench(words: &[String]) -> Result<BenchArgs, Failure> {
    let before = ["manycore", "bench"].map(str::to_owned);
    let cli = Cli::try_parse_from(before.iter().chain(words))
        .map_err(|error| Failure::usage(one_line(&error.to_string())))?;
    match cli.command {
        Some(Command::Bench(bench)) => Ok(*bench),
        _ => Err(Failure::usage("these are not the words of a benchmark")),
    }
}

/// clap's message without its usage and advice, on one line.
fn one_line(message: &str) -> String {
    let parts = message
        .lines()
        .map(str::trim)
        .take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more"))
        .filter(|line| !line.is_empty())
        .map(|line| line.trim_start_matches("error: "));
    let line = parts.collect::<Vec<_>>().join(" ").replace(" tip: ", "; ");
    format!("{line} (try --help)")
}

fn cores(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(count) if (1..=manycore_sim::MAX_CORES).contains(&count) => Ok(count),
        _ => Err(format!("a whole number from 1 to {} is needed", manycore_sim::MAX_CORES)),
    }
}

fn ticks(text: &str) -> Result<u64, String> {
    match text.parse() {
        Ok(ticks) if ticks <= SPIN_MAX => Ok(ticks),
        _ => Err(format!("a whole number from 0 to {SPIN_MAX} is needed")),
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

fn duration(text: &str) -> Result<Duration, String> {
    let duration = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    if duration.is_zero() || duration > Duration::from_secs(24 * 60 * 60) {
        return Err("a time above zero and up to a day is needed".to_owned());
    }
    Ok(duration)
}

/// The help's list of implementations.
fn implementations() -> String {
    let mut text = "Implementations:\n".to_owned();
    for workload in WORKLOADS {
        text.push_str(&format!("\n  {}: {}\n", workload.name, workload.about));
        for about in (workload.impls)() {
            text.push_str(&format!("    {:<20} {}\n", about.name, about.about));
        }
    }
    text
}
