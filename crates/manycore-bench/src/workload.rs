//! The parts of every workload: options, tables of implementations, and the choice of
//! implementations by name. [`crate::catalogue`] lists the workloads themselves.

use std::{
    any::{Any, TypeId},
    collections::HashMap,
    fmt,
    str::FromStr,
    sync::Arc,
    time::Duration,
};

use serde_json::Value;

use crate::{
    row::{Kind, Params},
    runner::{Case, Group, Metric, Runner, Subject},
};

/// How often a thread reads the whole structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadEvery {
    /// Not at all.
    Never,
    /// After each so many updates of its own.
    Updates(u64),
}

impl ReadEvery {
    /// The count that a loop counts down from: without reads, one that it never reaches.
    pub fn countdown(self) -> u64 {
        match self {
            ReadEvery::Never => u64::MAX,
            ReadEvery::Updates(count) => count,
        }
    }

    /// The whole number of updates for each read whose share of updates is nearest to this one.
    ///
    /// # Errors
    /// If the share is not from 50 to 99.99 %, or 100 %, which is no reads.
    pub fn at_share(percent: f64) -> Result<Self, &'static str> {
        match percent {
            100.0 => Ok(ReadEvery::Never),
            50.0..=99.99 => Ok(ReadEvery::Updates((percent / (100.0 - percent)).round() as u64)),
            _ => Err("a share from 50 to 99.99 is needed, or 100"),
        }
    }
}

impl fmt::Display for ReadEvery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReadEvery::Never => f.write_str("never"),
            ReadEvery::Updates(count) => count.fmt(f),
        }
    }
}

impl FromStr for ReadEvery {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match (text, text.parse()) {
            ("never", _) => Ok(ReadEvery::Never),
            (_, Ok(count)) if count > 0 => Ok(ReadEvery::Updates(count)),
            _ => Err("say 'never' or a count of updates from 1"),
        }
    }
}

/// What was asked for. Each workload uses the options that concern it.
#[derive(Clone, Debug)]
pub struct Options {
    /// Names of implementations; "all" and "ours" stand for several.
    pub impls: Vec<String>,
    /// Thread counts.
    pub threads: Vec<usize>,
    /// How often to read.
    pub read_every: Vec<ReadEvery>,
    /// Ticks to spin after each update.
    pub spin: u64,
    /// Ticks of a request around each increment (`counter`), or after each path (`stat`).
    pub work: u64,
    /// Ticks that the drainer rests after each round (`notify`).
    pub pause: u64,
    /// Of one repeat.
    pub duration: Duration,
    /// Work before it counts (`adaptive-sweep`).
    pub warm_up: Duration,
    /// How many repeats.
    pub repeats: usize,
    /// Whether threads stay on their cores.
    pub pin: bool,
    /// Shares of updates, in percent.
    pub update: Vec<u8>,
    /// Operations of a trace.
    pub ops: usize,
    /// Shares of sets, in percent (caches).
    pub set: Vec<u8>,
    /// How many different keys there are (maps, caches); none for the workload's own defaults.
    pub keys: Vec<usize>,
    /// What concerns one workload alone.
    pub own: OwnOptions,
}

/// Options that belong to one workload each, found by their type. Those that were not set are the
/// type's defaults.
#[derive(Clone, Debug, Default)]
pub struct OwnOptions(HashMap<TypeId, Arc<dyn OwnOption>>);

trait OwnOption: Any + fmt::Debug + Send + Sync {}
impl<T: Any + fmt::Debug + Send + Sync> OwnOption for T {}

impl OwnOptions {
    /// With these, too.
    #[must_use]
    pub fn with<T: Any + fmt::Debug + Send + Sync>(mut self, options: T) -> Self {
        self.0.insert(TypeId::of::<T>(), Arc::new(options));
        self
    }

    /// The options of that type.
    pub fn get<T: Any + Clone + Default>(&self) -> T {
        let own = self.0.get(&TypeId::of::<T>()).map(|own| &**own as &dyn Any);
        own.and_then(|own| own.downcast_ref()).cloned().unwrap_or_default()
    }
}

impl Default for Options {
    fn default() -> Self {
        let cores = crate::limits::cores();
        Self {
            impls: vec!["all".to_owned()],
            threads: if cores > 1 { vec![1, cores] } else { vec![1] },
            read_every: vec![
                ReadEvery::Never,
                ReadEvery::Updates(1000),
                ReadEvery::Updates(100),
                ReadEvery::Updates(10),
                ReadEvery::Updates(2),
            ],
            spin: 0,
            work: 0,
            pause: 0,
            duration: Duration::from_millis(300),
            warm_up: Duration::from_millis(60),
            repeats: 5,
            pin: true,
            update: vec![0, 10, 50, 90],
            ops: 10_000_000,
            set: vec![0, 10, 20],
            keys: Vec::new(),
            own: OwnOptions::default(),
        }
    }
}

impl Options {
    /// The runner these options ask for.
    pub fn runner(&self) -> Runner {
        Runner { duration: self.duration, repeats: self.repeats, pin: self.pin }
    }

    /// The counts of keys that were asked for, or else these.
    pub fn keys_or<'a>(&'a self, defaults: &'a [usize]) -> &'a [usize] {
        if self.keys.is_empty() { defaults } else { &self.keys }
    }

    /// The parameters of every row, plus the workload's own.
    pub fn params<const N: usize>(&self, own: [(&str, Value); N]) -> Params {
        let mut params = Params::new();
        params.insert("duration_ms".into(), millis(self.duration).into());
        params.insert("pin".into(), self.pin.into());
        params.extend(own.map(|(key, value)| (key.to_owned(), value)));
        params
    }
}

/// A duration as the rows say it: in milliseconds, to the microsecond.
pub(crate) fn millis(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e6).round() / 1e3
}

/// One implementation of a workload. `P` are the parameters its subject is built from.
pub struct Entry<P: 'static> {
    /// Its name on the command line and in rows.
    pub name: &'static str,
    /// What it is.
    pub kind: Kind,
    /// One line: how it works, and what to know when comparing.
    pub about: &'static str,
    /// The most threads it can serve.
    pub threads_max: usize,
    /// Builds the subject of one repeat.
    pub build: fn(P) -> Box<dyn Subject>,
    /// Whether the adapter does what the workload takes for granted; says what went wrong.
    pub conform: fn() -> Result<(), String>,
}

impl<P> Entry<P> {
    /// One that serves any number of threads.
    pub const fn new(
        name: &'static str,
        kind: Kind,
        about: &'static str,
        build: fn(P) -> Box<dyn Subject>,
        conform: fn() -> Result<(), String>,
    ) -> Self {
        Self { name, kind, about, threads_max: usize::MAX, build, conform }
    }
}

/// Name, kind and description of an implementation.
#[derive(Clone, Copy, Debug)]
pub struct About {
    /// Its name.
    pub name: &'static str,
    /// What it is.
    pub kind: Kind,
    /// One line on it.
    pub about: &'static str,
    /// Its conformance test.
    pub conform: fn() -> Result<(), String>,
}

impl<P> From<&Entry<P>> for About {
    fn from(entry: &Entry<P>) -> Self {
        let Entry { name, kind, about, conform, .. } = *entry;
        Self { name, kind, about, conform }
    }
}

/// A name that no implementation has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownImpl {
    /// The workload.
    pub bench: &'static str,
    /// The name asked for.
    pub name: String,
    /// The names there are.
    pub valid: Vec<&'static str>,
}

impl fmt::Display for UnknownImpl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { bench, name, valid } = self;
        write!(f, "unknown implementation '{name}' for {bench}; ")?;
        write!(f, "there are: all, ours, {}", valid.join(", "))
    }
}

impl std::error::Error for UnknownImpl {}

/// The entries that the names choose, in the table's order, the baseline always first. On virtual
/// cores the baseline takes part only if it is named, or all are: costs are of all runs together.
///
/// # Errors
/// If a name is unknown.
pub fn choose<P>(
    bench: &'static str,
    entries: &'static [Entry<P>],
    names: &[String],
) -> Result<Vec<&'static Entry<P>>, UnknownImpl> {
    let group_word = |name: &str| name == "all" || name == "ours";
    let known = |name: &str| entries.iter().any(|entry| entry.name == name);
    if let Some(name) = names.iter().find(|name| !group_word(name) && !known(name)) {
        let valid = entries.iter().map(|entry| entry.name).collect();
        return Err(UnknownImpl { bench, name: name.clone(), valid });
    }
    let always = !manycore_sim::is_simulated();
    let chosen = |entry: &&Entry<P>| {
        (entry.kind == Kind::Baseline && always)
            || names.iter().any(|name| {
                name == "all" || name == entry.name || (name == "ours" && entry.kind == Kind::Ours)
            })
    };
    let (baseline, others): (Vec<_>, Vec<_>) =
        entries.iter().filter(chosen).partition(|entry| entry.kind == Kind::Baseline);
    Ok(baseline.into_iter().chain(others).collect())
}

/// The cases of one group: the baseline on one thread, all others on `threads`; and the names
/// of those that cannot serve so many.
pub fn cases<P: Copy + 'static>(
    entries: &[&'static Entry<P>],
    threads: usize,
    params: impl Fn(usize) -> P,
) -> (Vec<Case>, Vec<&'static str>) {
    let (mut cases, mut left_out) = (Vec::new(), Vec::new());
    for entry in entries {
        let threads = if entry.kind == Kind::Baseline { 1 } else { threads };
        if threads > entry.threads_max {
            left_out.push(entry.name);
            continue;
        }
        let (build, params) = (entry.build, params(threads));
        cases.push(Case {
            impl_name: entry.name,
            kind: entry.kind,
            threads,
            build: Box::new(move || build(params)),
        });
    }
    (cases, left_out)
}

/// The groups of a workload: one for each thread count and setting. `describe` gives a setting's
/// part of the title and its parameters.
///
/// # Errors
/// If an implementation is unknown.
pub fn groups_of<P: Copy + 'static, S: Copy, const N: usize>(
    (bench, entries, metrics): (&'static str, &'static [Entry<P>], &[Metric]),
    options: &Options,
    settings: &[S],
    describe: impl Fn(S) -> (String, [(&'static str, Value); N]),
    shape: impl Fn(usize, S) -> P,
) -> Result<Vec<Group>, UnknownImpl> {
    let chosen = choose(bench, entries, &options.impls)?;
    let group = |threads: usize, setting: S| {
        let (cases, left_out) = cases(&chosen, threads, |threads| shape(threads, setting));
        let (what, own) = describe(setting);
        Group {
            bench,
            title: threads_word(threads) + &what,
            params: options.params(own),
            metrics: metrics.to_vec(),
            cases,
            left_out,
        }
    };
    let each = |&threads: &usize| settings.iter().map(move |&setting| (threads, setting));
    let each = options.threads.iter().flat_map(each);
    Ok(each.map(|(threads, setting)| group(threads, setting)).collect())
}

/// What a subject is built from whose threads update, and read everything now and then.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// How many there are.
    pub threads: usize,
    /// How often each of them reads.
    pub read_every: ReadEvery,
    /// Ticks to spin after each update.
    pub spin: u64,
}

/// The groups of such a workload: one for each thread count and reading rate, which `reads` words.
///
/// # Errors
/// If an implementation is unknown.
pub fn groups_by_reads(
    bench: &'static str,
    entries: &'static [Entry<Shape>],
    metric: Metric,
    options: &Options,
    reads: impl Fn(ReadEvery) -> String,
) -> Result<Vec<Group>, UnknownImpl> {
    let spin = options.spin;
    groups_of(
        (bench, entries, &[metric]),
        options,
        &options.read_every,
        |read_every| {
            let params = [("read_every", read_every.to_string().into()), ("spin", spin.into())];
            (format!(", {}", reads(read_every)), params)
        },
        |threads, read_every| Shape { threads, read_every, spin },
    )
}

/// "1 thread", "2 threads".
pub fn threads_word(threads: usize) -> String {
    format!("{threads} thread{}", if threads == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::OwnOptions;

    #[test]
    fn own_options_are_found_by_their_type_and_else_are_the_default() {
        let own = OwnOptions::default().with(7_u32).with(8_u64).with(9_u32);
        assert_eq!((own.get::<u32>(), own.get::<u64>(), own.get::<u16>()), (9, 8, 0));
    }
}
