//! The cost of exchanging an implementation under load: a million calls a second, and a swap every
//! millisecond that moves [`ENTRIES_MOVED`] entries.
//!
//! Owns: the traits, the loop, and the table. Each thread calls at a fixed pace; together they make
//! a million calls a second. One more thread exchanges two implementations for each other. At the
//! end, the object must have counted every call once. Implementations that cannot move their
//! content without losing calls do not take part.

use std::{
    hint::black_box,
    sync::{
        Arc, Mutex, PoisonError, RwLock,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use crossbeam_utils::CachePadded;
use manycore::cluster::{Family, Swappable};

use crate::{
    latency::{Latencies, Mean, nanos_per_tick},
    row::Kind,
    runner::{Control, Group, Metric, Subject, Tally, total_rate},
    ticks,
    workload::{Entry, Options, UnknownImpl, groups_of},
};

/// Entries that each exchange moves.
pub const ENTRIES_MOVED: usize = 1000;

/// Between two exchanges.
const REST: Duration = Duration::from_millis(1);

/// Between two calls of all threads together, in nanoseconds.
const PACE_NS: f64 = 1000.0;

/// Calls between two looks at the stop flag.
const BATCH: u64 = 16;

/// The object: counts calls by entry.
trait Calls: Family<Part = Vec<u64>> {
    fn call(&self, entry: usize);
}

/// Counts in an array of atomic words.
struct Plain(Box<[AtomicU64]>);

/// The same, the other way round: a different implementation.
struct Mirrored(Plain);

impl Plain {
    fn new() -> Self {
        Self((0..ENTRIES_MOVED).map(|_| AtomicU64::new(0)).collect())
    }
}

impl Calls for Plain {
    fn call(&self, entry: usize) {
        // ORDER: Relaxed; read when no call is running.
        self.0[entry].fetch_add(1, Relaxed);
    }
}

impl Family for Plain {
    type Part = Vec<u64>;

    fn export(&self, _part: usize) -> Vec<u64> {
        self.0.iter().map(|count| count.load(Relaxed)).collect()
    }

    fn import(&self, counts: Vec<u64>) {
        self.0.iter().zip(counts).for_each(|(own, count)| own.store(count, Relaxed));
    }
}

impl Calls for Mirrored {
    fn call(&self, entry: usize) {
        self.0.call(ENTRIES_MOVED - 1 - entry);
    }
}

impl Family for Mirrored {
    type Part = Vec<u64>;

    fn export(&self, _part: usize) -> Vec<u64> {
        let mut counts = self.0.export(0);
        counts.reverse();
        counts
    }

    fn import(&self, mut counts: Vec<u64>) {
        counts.reverse();
        self.0.import(counts);
    }
}

/// One or the other.
fn make(which: usize) -> Arc<dyn Calls> {
    if which.is_multiple_of(2) { Arc::new(Plain::new()) } else { Arc::new(Mirrored(Plain::new())) }
}

/// A way to exchange an implementation.
trait SwapImpl: Sync + Sized + 'static {
    fn new() -> Self;

    fn call(&self, entry: usize);

    fn swap(&self, new: Arc<dyn Calls>);

    /// All calls counted.
    fn total(&self) -> u64;
}

fn sum(object: &dyn Calls) -> u64 {
    object.export(0).into_iter().sum()
}

fn moved(old: &dyn Calls, new: Arc<dyn Calls>) -> Arc<dyn Calls> {
    new.import(old.export(0));
    new
}

struct Exchangeable(Swappable<dyn Calls>);

impl SwapImpl for Exchangeable {
    fn new() -> Self {
        Self(Swappable::new(make(0)))
    }

    #[inline]
    fn call(&self, entry: usize) {
        self.0.call(|object| object.call(entry));
    }

    fn swap(&self, new: Arc<dyn Calls>) {
        self.0.swap(new).expect("no other thread swaps");
    }

    fn total(&self) -> u64 {
        self.0.call(sum)
    }
}

struct StdRwLock(CachePadded<RwLock<Arc<dyn Calls>>>);

impl SwapImpl for StdRwLock {
    fn new() -> Self {
        Self(CachePadded::new(RwLock::new(make(0))))
    }

    #[inline]
    fn call(&self, entry: usize) {
        self.0.read().unwrap_or_else(PoisonError::into_inner).call(entry);
    }

    fn swap(&self, new: Arc<dyn Calls>) {
        let mut object = self.0.write().unwrap_or_else(PoisonError::into_inner);
        *object = moved(&**object, new);
    }

    fn total(&self) -> u64 {
        sum(&**self.0.read().unwrap_or_else(PoisonError::into_inner))
    }
}

struct StdMutex(CachePadded<Mutex<Arc<dyn Calls>>>);

impl SwapImpl for StdMutex {
    fn new() -> Self {
        Self(CachePadded::new(Mutex::new(make(0))))
    }

    #[inline]
    fn call(&self, entry: usize) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).call(entry);
    }

    fn swap(&self, new: Arc<dyn Calls>) {
        let mut object = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *object = moved(&**object, new);
    }

    fn total(&self) -> u64 {
        sum(&**self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// What a subject is built from.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    threads: usize,
}

struct Shared<S> {
    object: S,
    threads: usize,
    over: AtomicBool,
    calls: AtomicU64,
    latencies: Mutex<Latencies>,
    swaps: Mutex<Mean>,
}

impl<S: SwapImpl> Shared<S> {
    fn new(threads: usize) -> Self {
        Self {
            object: S::new(),
            threads,
            over: AtomicBool::new(false),
            calls: AtomicU64::new(0),
            latencies: Mutex::default(),
            swaps: Mutex::default(),
        }
    }

    fn caller(&self, index: usize, control: &Control) -> Tally {
        let pace = (PACE_NS * self.threads as f64 / nanos_per_tick()) as u64;
        let mut times = Latencies::new();
        let mut entry = index;
        let tally = control.drive(|| {
            for _ in 0..BATCH {
                entry = (entry + 7) % ENTRIES_MOVED;
                let start = ticks::now();
                self.object.call(black_box(entry));
                let took = ticks::now().wrapping_sub(start);
                times.record(took);
                ticks::spin(pace.saturating_sub(took));
            }
            BATCH
        });
        self.calls.fetch_add(tally.ops, Relaxed);
        self.latencies.lock().unwrap_or_else(PoisonError::into_inner).merge(&times);
        tally
    }

    fn swapper(&self, control: &Control) -> Tally {
        let mut which = 1;
        let mut mean = Mean::default();
        let tally = control.drive(|| {
            let new = make(which);
            let start = ticks::now();
            self.object.swap(new);
            mean.record(ticks::now().wrapping_sub(start));
            which += 1;
            thread::sleep(REST);
            0
        });
        *self.swaps.lock().unwrap_or_else(PoisonError::into_inner) = mean;
        tally
    }
}

impl<S: SwapImpl> Subject for Shared<S> {
    fn workers(&self, _: usize) -> usize {
        self.threads + 1
    }

    fn work(&self, index: usize, control: &Control) -> Tally {
        if index < self.threads { self.caller(index, control) } else { self.swapper(control) }
    }

    fn figure(&self, metric: &str, _: &[Tally]) -> Option<f64> {
        if !self.over.swap(true, Relaxed) {
            let (counted, made) = (self.object.total(), self.calls.load(Relaxed));
            assert_eq!(counted, made, "calls were lost, or counted twice");
        }
        let times = self.latencies.lock().unwrap_or_else(PoisonError::into_inner);
        match metric {
            "p50" => Some(times.quantile_ns(0.5)),
            "p99.9" => Some(times.quantile_ns(0.999) / 1e3),
            "max" => Some(times.max_ns() / 1e3),
            "swap" => Some(self.swaps.lock().unwrap_or_else(PoisonError::into_inner).ns() / 1e3),
            _ => None,
        }
    }
}

/// The table's row for a way to exchange.
const fn entry<S: SwapImpl>(name: &'static str, about: &'static str) -> Entry<Shape> {
    Entry::new(
        name,
        Kind::Rival,
        about,
        |Shape { threads }| Box::new(Shared::<S>::new(threads)),
        conform::<S>,
    )
}

/// Every way. (The baseline locks, too: it has a swapper beside its one caller.)
pub static ENTRIES: &[Entry<Shape>] = &[
    Entry {
        kind: Kind::Baseline,
        ..entry::<StdMutex>("mutex", "std Mutex, held for the whole exchange; one caller")
    },
    Entry {
        kind: Kind::Ours,
        ..entry::<Exchangeable>("swappable", "Swappable: calls wait for the transfer")
    },
    entry::<StdRwLock>("rwlock", "std RwLock, held for the whole exchange"),
];

const METRICS: [Metric; 5] = [
    Metric { name: "throughput", unit: "Mcalls/s", of: |tallies| total_rate(tallies) / 1e6 },
    Metric::of_subject("p50", "ns"),
    Metric::of_subject("p99.9", "us"),
    Metric::of_subject("max", "us"),
    Metric::of_subject("swap", "us"),
];

/// The groups for some options: one for each thread count.
///
/// # Errors
/// If an implementation is unknown.
pub fn groups(options: &Options) -> Result<Vec<Group>, UnknownImpl> {
    groups_of(
        ("swap", ENTRIES, &METRICS),
        options,
        &[()],
        |()| (" calling, one swapping".to_owned(), [("entries", ENTRIES_MOVED.into())]),
        |threads, ()| Shape { threads },
    )
}

/// No call is lost or counted twice while the object is exchanged.
fn conform<S: SwapImpl>() -> Result<(), String> {
    let object = &S::new();
    let until = Instant::now() + Duration::from_millis(50);
    let made: u64 = thread::scope(|scope| {
        let start = |index: usize| {
            scope.spawn(move || {
                let mut made = 0;
                while Instant::now() < until {
                    object.call((index + made as usize) % ENTRIES_MOVED);
                    made += 1;
                }
                made
            })
        };
        let started: Vec<_> = (0..3).map(start).collect();
        for which in 1.. {
            if Instant::now() >= until {
                break;
            }
            object.swap(make(which));
        }
        started.into_iter().map(|thread| thread.join().unwrap_or(u64::MAX / 4)).sum()
    });
    match object.total() {
        counted if counted == made => Ok(()),
        counted => Err(format!("{made} calls, {counted} counted")),
    }
}
