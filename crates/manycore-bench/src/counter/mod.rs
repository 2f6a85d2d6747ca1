//! One shared counter, incremented by every thread (K42, figure 4).
//!
//! Owns: the traits that every counter implements, the loop, and the table of implementations.
//!
//! Without `--work` the loop is nothing but increments, and the figure is the cost of one. With
//! `--work 1200` each increment sits in the middle of a request of 1200 ticks, as in the paper's
//! experiment. The figure is then the time of the whole request. With `--read-every k` a thread
//! reads the total after every k of its own increments.

#[cfg(feature = "c-rivals")]
mod c;
mod ours;
mod rivals;

use std::hint::black_box;

use crate::{
    list::reads_word,
    row::Kind,
    runner::{Control, Group, Metric, Subject, Tally, total_rate},
    ticks::spin,
    workload::{Entry, Options, ReadEvery, UnknownImpl, groups_of},
};

/// Increments between two looks at the stop flag.
const BATCH: u64 = 32;

/// A shared counter.
pub trait CounterImpl: Sync + Sized + 'static {
    /// What one thread works through.
    type Handle<'a>: CounterHandle;

    /// A counter at zero for this many threads.
    fn new(threads: usize) -> Self;

    /// The handle of a thread, made by that thread; one at a time.
    fn handle(&self, thread: usize) -> Self::Handle<'_>;
}

/// One thread's way to the counter.
pub trait CounterHandle {
    /// Adds.
    fn add(&mut self, n: u64);

    /// The total of everything added before the call, and perhaps of concurrent additions.
    fn read(&mut self) -> u64;
}

/// What a subject is built from.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    threads: usize,
    read_every: ReadEvery,
    work: u64,
}

struct CounterSubject<C> {
    counter: C,
    shape: Shape,
}

impl<C: CounterImpl> Subject for CounterSubject<C> {
    fn work(&self, index: usize, control: &Control) -> Tally {
        let Shape { read_every, work, .. } = self.shape;
        let mut handle = self.counter.handle(index);
        let mut until_read = read_every.countdown();
        control.drive(|| {
            for _ in 0..BATCH {
                spin(work / 2);
                handle.add(black_box(1));
                spin(work / 2);
                until_read -= 1;
                if until_read == 0 {
                    black_box(handle.read());
                    until_read = read_every.countdown();
                }
            }
            BATCH
        })
    }
}

/// The table's row for an implementation.
const fn entry<C: CounterImpl>(
    name: &'static str,
    kind: Kind,
    about: &'static str,
) -> Entry<Shape> {
    Entry::new(
        name,
        kind,
        about,
        |shape| Box::new(CounterSubject { counter: C::new(shape.threads), shape }),
        || conform::<C>(3),
    )
}

/// Every implementation.
pub static ENTRIES: &[Entry<Shape>] = &[
    Entry {
        conform: || conform::<rivals::Unshared>(1),
        ..entry::<rivals::Unshared>("unshared", Kind::Baseline, "a plain integer on one thread")
    },
    entry::<rivals::StdMutex>("mutex", Kind::Rival, "an integer behind std's Mutex"),
    entry::<rivals::Mcs>("mcs", Kind::ByHand, "an integer behind manycore's McsLock, a queue lock"),
    entry::<rivals::Atomic>("atomic", Kind::Rival, "AtomicU64::fetch_add on one shared word"),
    entry::<rivals::Unpadded>(
        "unpadded",
        Kind::ByHand,
        "an array of words, one per thread, side by side: false sharing",
    ),
    entry::<rivals::Padded>(
        "padded",
        Kind::ByHand,
        "an array of words, one per thread, each on its own line; the thread keeps its index",
    ),
    entry::<rivals::ThreadLocal>(
        "thread-local",
        Kind::ByHand,
        "a plain add to a static thread-local; a read sums all threads' words under a lock",
    ),
    entry::<ours::Auto>("counter", Kind::Ours, "Counter: one word until threads contend for it"),
    entry::<ours::Promoted>("counter-hot", Kind::Ours, "Counter, told to count per thread at once"),
    #[cfg(feature = "c-rivals")]
    entry::<c::FromC>(
        "counter-c",
        Kind::Ours,
        "Counter as C programs have it: a call for each add",
    ),
];

const METRICS: [Metric; 2] = [
    Metric { name: "latency", unit: "ns/op", of: nanos_per_op },
    Metric { name: "throughput", unit: "Mops/s", of: |tallies| total_rate(tallies) / 1e6 },
];

/// The time of one operation on one thread, over all threads.
pub(crate) fn nanos_per_op(tallies: &[Tally]) -> f64 {
    let nanos: f64 = tallies.iter().map(|tally| tally.elapsed.as_secs_f64() * 1e9).sum();
    nanos / (tallies.iter().map(|tally| tally.ops).sum::<u64>().max(1) as f64)
}

/// The groups for some options: one for each thread count and reading rate.
///
/// # Errors
/// If an implementation is unknown.
pub fn groups(options: &Options) -> Result<Vec<Group>, UnknownImpl> {
    let work = options.work;
    groups_of(
        ("counter", ENTRIES, &METRICS),
        options,
        &options.read_every,
        |read_every| {
            let params = [("read_every", read_every.to_string().into()), ("work", work.into())];
            (format!(", {}", reads_word(read_every, "increments")), params)
        },
        |threads, read_every| Shape { threads, read_every, work },
    )
}

/// A thread must see its own additions at once, totals must not fall, and the last total must be
/// exact.
fn conform<C: CounterImpl>(threads: usize) -> Result<(), String> {
    const ADDS: u64 = 10_000;
    let counter = &C::new(threads);
    let mut own = counter.handle(0);
    let churn = |handle: &mut C::Handle<'_>| {
        let mut last = 0;
        for turn in 1..=ADDS {
            handle.add(turn % 3);
            let sum = own_sum(turn);
            if turn % 16 == 0 {
                let seen = handle.read();
                if seen < last.max(sum) {
                    return Err(format!("read {seen} after {last} and own {sum}"));
                }
                last = seen;
            }
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let start = |index| scope.spawn(move || churn(&mut counter.handle(index)));
        let others: Vec<_> = (1..threads).map(start).collect();
        let mut outcomes = vec![churn(&mut own)];
        for other in others {
            outcomes.push(other.join().map_err(|_| "a thread panicked".to_owned())?);
        }
        outcomes.into_iter().collect::<Result<(), String>>()
    })?;
    let (total, expected) = (own.read(), own_sum(ADDS) * threads as u64);
    if total == expected {
        return Ok(());
    }
    Err(format!("the total is {total} instead of {expected}"))
}

/// The sum of `turn % 3` over the turns so far.
fn own_sum(turns: u64) -> u64 {
    turns / 3 * 3 + [0, 1, 3][(turns % 3) as usize]
}
