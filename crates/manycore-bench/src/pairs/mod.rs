//! Pairs: each operation undoes itself, and now and then a thread reads the whole.
//!
//! Owns: the trait that every implementation has, the loop, and the tables of seven workloads:
//!
//! - *active-set* registers a transaction and ends it; a read asks for the oldest.
//! - *budget* charges one of eight users below one limit and releases the charge; a read asks what
//!   is used.
//! - *object-pool* takes a buffer and gives it back; a read counts the idle ones.
//! - *histogram* counts a value in one of [`BUCKETS`] buckets, with no second half of the pair; a
//!   read sums them.
//! - *topic* subscribes and unsubscribes, and sometimes renames the topic.
//! - *metrics* counts a request, and *latencies* records how long one took. A read is a scrape,
//!   whose report is searched for the count.

mod metrics;
#[cfg(feature = "metrics-rivals")]
mod metrics_rivals;
mod ours;
mod rivals;
mod topic;

use std::hint::black_box;

use crate::{
    row::Kind,
    runner::{Control, Group, Metric, Subject, Tally, total_rate},
    workload::{Entry, Options, ReadEvery, Shape, UnknownImpl, groups_by_reads},
};

/// Operations between two looks at the stop flag.
const BATCH: u64 = 64;

/// Buckets of a histogram.
pub const BUCKETS: usize = 64;

/// Users below the limit of a budget.
pub const USERS: usize = 8;

/// What all of them may use together, and each alone.
pub const LIMIT: u64 = 1_000_000;

/// Objects that a pool may create.
pub const OBJECTS: usize = 1_000;

/// What a pool lends.
pub type Buffer = Box<[u8; 256]>;

/// A new buffer.
fn buffer() -> Buffer {
    Box::new([0; 256])
}

/// What threads change in pairs.
pub trait Pairs: Sync + Sized + 'static {
    /// What one thread works through.
    type Handle<'a>: Handle;

    /// The most threads it can serve.
    const THREADS_MAX: usize = usize::MAX;

    /// Without anything acquired.
    fn new() -> Self;

    /// The handle of thread `index`, made by that thread.
    fn handle(&self, index: usize) -> Self::Handle<'_>;
}

/// One thread's way to it.
pub trait Handle {
    /// Acquires, uses and releases; `random` chooses what.
    fn pair(&mut self, random: u64);

    /// The whole as a number; a table says which it must be after so many pairs.
    fn read(&mut self) -> u64;
}

/// What a read says after how many pairs of a thread that is alone.
type Check = fn(pairs: u64) -> u64;

struct Shared<P> {
    pairs: P,
    shape: Shape,
}

impl<P: Pairs> Subject for Shared<P> {
    fn work(&self, index: usize, control: &Control) -> Tally {
        let mut handle = self.pairs.handle(index);
        let mut random = 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(index as u64 + 1);
        let mut left = self.shape.read_every.countdown();
        control.drive(|| {
            for _ in 0..BATCH {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                handle.pair(black_box(random));
                crate::ticks::spin(self.shape.spin);
                left -= 1;
                if left == 0 {
                    left = self.shape.read_every.countdown();
                    black_box(handle.read());
                }
            }
            BATCH
        })
    }
}

/// The row of a table for an implementation.
const fn entry<P: Pairs>(
    name: &'static str,
    kind: Kind,
    about: &'static str,
    threads_max: usize,
    conform: fn() -> Result<(), String>,
) -> Entry<Shape> {
    Entry {
        threads_max,
        ..Entry::new(
            name,
            kind,
            about,
            |shape| Box::new(Shared { pairs: P::new(), shape }),
            conform,
        )
    }
}

macro_rules! table {
    (
        $(#[$doc:meta])* $TABLE:ident, $check:expr,
        $($(#[$when:meta])* [$Type:ty, $name:expr, $kind:ident, $about:expr]),+ $(,)?
    ) => {
        $(#[$doc])*
        pub static $TABLE: &[Entry<Shape>] = &[
            $($(#[$when])* entry::<$Type>($name, Kind::$kind, $about, <$Type>::THREADS_MAX, || {
                conform::<$Type>($check)
            })),+
        ];
    };
}

table!(
    /// Every set of active transactions.
    ACTIVE,
    |_| u64::MAX,
    [rivals::Unshared, "unshared", Baseline, "a BTreeMap of one thread"],
    [ours::Active, "active-set", Ours, "ActiveSet: register and leave cancel by marks"],
    [rivals::Mutexed, "mutex", Rival, "a BTreeMap behind std's Mutex"],
    [rivals::SkipList, "skip-map", Rival, "crossbeam-skiplist: no lock"],
    [rivals::Board, "board", Rival, "a padded slot for each thread, scanned by reads (64 threads)"],
);

table!(
    /// Every budget.
    BUDGET,
    |_| 0,
    [rivals::OwnAccounts, "unshared", Baseline, "the counts of one thread"],
    [ours::Budget, "budget-tree", Ours, "BudgetTree: a stock of each processor"],
    [rivals::Atomics, "atomics", Rival, "an atomic count for each user and one for all"],
    [rivals::Accounts, "mutex", Rival, "the same counts behind std's Mutex"],
);

table!(
    /// Every pool.
    POOL,
    |_| 1,
    [rivals::OwnStack, "unshared", Baseline, "a Vec of one thread"],
    [ours::Pool, "object-pool", Ours, "ObjectPool: a shelf of each processor"],
    [rivals::Stack, "mutex", Rival, "a Vec behind std's Mutex"],
    [rivals::Ring, "array-queue", Rival, "crossbeam's ArrayQueue"],
    [rivals::Fresh, "malloc", Rival, "no pool: a new buffer each time"],
);

table!(
    /// Every histogram.
    HISTOGRAM,
    |pairs| pairs,
    [rivals::Plain, "unshared", Baseline, "an array of one thread"],
    [ours::Counters, "counter-array", Ours, "CounterArray: cells of each slot if contended"],
    [ours::Combined, "combining", Ours, "Deferred with Combining: an update a bucket"],
    [rivals::Shared, "atomics", Rival, "an array of atomics, eight to a line"],
    [rivals::Padded, "padded", Rival, "an array of atomics, one to a line"],
    [rivals::Locked, "mutex", Rival, "an array behind std's Mutex"],
);

table!(
    /// Every topic.
    TOPIC,
    topic::last_name,
    [topic::Unshared, "unshared", Baseline, "a set and a name of one thread"],
    [topic::Combined, "combined", Ours, "Deferred with a log of both kinds, as the example room"],
    [topic::Stamped, "ordered", Ours, "Deferred with Ordered: every update in a log"],
    [topic::Mutexed, "mutex", Rival, "a BTreeSet and a name behind std's Mutex"],
);

table!(
    /// Every counter of a metrics crate.
    METRICS,
    |pairs| pairs,
    [metrics::Unshared, "unshared", Baseline, "an integer of one thread"],
    [metrics::Kept, "registry", Ours, "manycore-metrics' Counter, kept by the thread"],
    [metrics::Recorded, "recorder", Ours, "the same behind a kept handle of the crate metrics"],
    [metrics::LookedUp, "recorder-lookup", Ours, "the same, looked up for each count as macros do"],
    [metrics::Word, "atomic", Rival, "a shared AtomicU64: what metrics-util's storage is"],
    #[cfg(feature = "metrics-rivals")]
    [metrics_rivals::Exporter, "exporter", Rival, "metrics-exporter-prometheus, a kept handle"],
    #[cfg(feature = "metrics-rivals")]
    [metrics_rivals::ExporterLookedUp, "exporter-lookup", Rival, "the same, looked up each time"],
    #[cfg(feature = "metrics-rivals")]
    [metrics_rivals::Prometheus, "prometheus-client", Rival, "prometheus-client's Counter"],
    #[cfg(feature = "metrics-rivals")]
    [metrics_rivals::Otel<false>, "otel", Rival, "opentelemetry_sdk's Counter, no attributes"],
    #[cfg(feature = "metrics-rivals")]
    [metrics_rivals::Otel<true>, "otel-attribute", Rival, "the same with one attribute"],
);

table!(
    /// Every histogram of a metrics crate.
    LATENCIES,
    |pairs| pairs,
    [metrics::Own, "unshared", Baseline, "a histogram of one thread"],
    [metrics::Timed, "registry", Ours, "manycore-metrics' Histogram, kept by the thread"],
    [metrics::RecordedTimes, "recorder", Ours, "the same behind a kept handle of metrics"],
    [metrics::LockedHdr, "hdr-mutex", Rival, "hdrhistogram behind std's Mutex"],
    #[cfg(feature = "metrics-rivals")]
    [metrics_rivals::ExporterTimes, "exporter", Rival, "metrics-exporter-prometheus: AtomicBucket"],
    #[cfg(feature = "metrics-rivals")]
    [metrics_rivals::PrometheusTimes, "prometheus-client", Rival, "prometheus-client's Histogram"],
    #[cfg(feature = "metrics-rivals")]
    [metrics_rivals::OtelTimes, "otel", Rival, "opentelemetry_sdk's Histogram, no attributes"],
);

const THROUGHPUT: Metric =
    Metric { name: "throughput", unit: "Mops/s", of: |tallies| total_rate(tallies) / 1e6 };

fn groups(
    bench: &'static str,
    entries: &'static [Entry<Shape>],
    options: &Options,
) -> Result<Vec<Group>, UnknownImpl> {
    groups_by_reads(bench, entries, THROUGHPUT, options, |every| match every {
        ReadEvery::Never => "never read".to_owned(),
        ReadEvery::Updates(count) => format!("read every {count}"),
    })
}

/// The groups of *active-set*.
///
/// # Errors
/// If an implementation is unknown.
pub fn active(options: &Options) -> Result<Vec<Group>, UnknownImpl> {
    groups("active-set", ACTIVE, options)
}

/// The groups of *budget*.
///
/// # Errors
/// If an implementation is unknown.
pub fn budget(options: &Options) -> Result<Vec<Group>, UnknownImpl> {
    groups("budget", BUDGET, options)
}

/// The groups of *object-pool*.
///
/// # Errors
/// If an implementation is unknown.
pub fn pool(options: &Options) -> Result<Vec<Group>, UnknownImpl> {
    groups("object-pool", POOL, options)
}

/// The groups of *histogram*.
///
/// # Errors
/// If an implementation is unknown.
pub fn histogram(options: &Options) -> Result<Vec<Group>, UnknownImpl> {
    groups("histogram", HISTOGRAM, options)
}

/// The groups of *topic*.
///
/// # Errors
/// If an implementation is unknown.
pub fn topic(options: &Options) -> Result<Vec<Group>, UnknownImpl> {
    groups("topic", TOPIC, options)
}

/// The groups of *metrics*.
///
/// # Errors
/// If an implementation is unknown.
pub fn metrics(options: &Options) -> Result<Vec<Group>, UnknownImpl> {
    groups("metrics", METRICS, options)
}

/// The groups of *latencies*.
///
/// # Errors
/// If an implementation is unknown.
pub fn latencies(options: &Options) -> Result<Vec<Group>, UnknownImpl> {
    groups("latencies", LATENCIES, options)
}

/// What a conformance test's pair of this number is given.
fn test_value(step: u64) -> u64 {
    step.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// After any number of pairs, a read says what it must.
fn conform<P: Pairs>(check: Check) -> Result<(), String> {
    let pairs = P::new();
    let mut handle = pairs.handle(0);
    for step in 1..500_u64 {
        handle.pair(test_value(step));
        let (found, expected) = (handle.read(), check(step));
        if found != expected {
            return Err(format!("after {step} pairs a read says {found} instead of {expected}"));
        }
    }
    Ok(())
}
