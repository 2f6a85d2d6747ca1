//! Typical multi-threaded programs, each written in the usual ways: locks, shared reads, maps,
//! queues, channels, counts, memory, pools of threads and tasks.
//!
//! Owns: the list of cases, the groups of cases that do the same thing ([`ALIKE`]), and the loops.
//! The simulator is scored on each pair within a group (`figures::fresh`): on which one is faster,
//! and by how much.
//!
//! Laws:
//!
//! 1. The list was written down before any of it ran on virtual cores, and nothing is removed from
//!    it because of its result.
//! 2. It uses other crates and std unchanged, and nothing of this library.
//! 3. A case checks its result.

mod own;
mod pools;
mod shared;
mod waiting;

use std::thread;

use crate::{
    counter::nanos_per_op,
    runner::{Control, Group, Metric, Subject, Tally, total_rate},
    workload::{Entry, Options, UnknownImpl, groups_of},
};

/// Operations between two looks at the stop flag.
const BATCH: u64 = 16;

/// Threads that each do one thing over and over: to what all have, with what each has.
struct Repeated<S, O> {
    shared: S,
    own: fn(usize) -> O,
    once: fn(&S, &mut O),
}

impl<S: Sync, O> Subject for Repeated<S, O> {
    fn work(&self, index: usize, control: &Control) -> Tally {
        let mut own = (self.own)(index);
        control.drive(|| {
            (0..BATCH).for_each(|_| (self.once)(&self.shared, &mut own));
            BATCH
        })
    }
}

/// Two threads do it a hundred times; it checks itself.
fn try_out<S: Sync, O>(repeated: &Repeated<S, O>) -> Result<(), String> {
    thread::scope(|scope| {
        let started = [0, 1].map(|index| {
            scope.spawn(move || {
                let mut own = (repeated.own)(index);
                (0..100).for_each(|_| (repeated.once)(&repeated.shared, &mut own));
            })
        });
        started.into_iter().try_for_each(|t| t.join().map_err(|_| "a thread panicked".to_owned()))
    })
}

/// A row: what all threads have, made for so many, what each has, and what each does.
macro_rules! repeated {
    ($name:expr, $about:expr, $shared:expr, $own:expr, $once:expr) => {
        crate::workload::Entry::new(
            $name,
            crate::row::Kind::Rival,
            $about,
            |threads| Box::new(crate::everyday::Repeated::new(threads, $shared, $own, $once)),
            || crate::everyday::try_out(&crate::everyday::Repeated::new(2, $shared, $own, $once)),
        )
    };
}
use repeated;

impl<S, O> Repeated<S, O> {
    fn new(
        threads: usize,
        shared: fn(usize) -> S,
        own: fn(usize) -> O,
        once: fn(&S, &mut O),
    ) -> Self {
        Self { shared: shared(threads), own, once }
    }
}

/// Marsaglia's xorshift: which key, and whether to change it.
struct Random(u64);

impl Random {
    fn new(index: usize) -> Self {
        Self(0x9E37_79B9_7F4A_7C15_u64.wrapping_mul(index as u64 + 1))
    }

    fn below(&mut self, bound: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((self.0 >> 32).wrapping_mul(u64::from(bound)) >> 32) as u32
    }
}

const METRICS: [Metric; 2] = [
    Metric { name: "throughput", unit: "M/s", of: |tallies| total_rate(tallies) / 1e6 },
    Metric { name: "latency", unit: "ns/op", of: nanos_per_op },
];

/// What threads do with what all have.
pub static SHARED: Everyday = Everyday { name: "everyday-shared", entries: shared::ENTRIES };
/// What each thread does alone, beside others that do the same.
pub static OWN: Everyday = Everyday { name: "everyday-own", entries: own::ENTRIES };
/// What threads do that wait for each other.
pub static WAITING: Everyday = Everyday { name: "everyday-waiting", entries: waiting::ENTRIES };
/// What is given to pools of threads.
pub static POOLS: Everyday = Everyday { name: "everyday-pools", entries: pools::ENTRIES };

/// One of the workloads.
pub struct Everyday {
    name: &'static str,
    /// Its cases.
    pub entries: &'static [Entry<usize>],
}

impl Everyday {
    /// The groups for some options: one for each number of threads.
    ///
    /// # Errors
    /// If a case is unknown.
    pub fn groups(&self, options: &Options) -> Result<Vec<Group>, UnknownImpl> {
        let describe = |()| (String::new(), []);
        let table = (self.name, self.entries, &METRICS[..]);
        groups_of(table, options, &[()], describe, |threads, ()| threads)
    }
}

/// Cases that do the same thing, by workload. Each two of them are a pair.
pub const ALIKE: &[(&str, &[&str])] = &[
    ("everyday-shared", &["lock-std", "lock-pl", "lock-std-rw", "lock-pl-rw"]),
    ("everyday-shared", &["work-std", "work-pl", "work-std-rw", "work-atomic"]),
    ("everyday-shared", &["long-std", "long-pl", "long-sharded"]),
    ("everyday-shared", &["read-std", "read-std-rw", "read-pl-rw", "read-arc", "read-arc-swap"]),
    ("everyday-shared", &["map-std", "map-std-rw", "map-dashmap", "map-papaya"]),
    ("everyday-shared", &["map-pl-rw", "map-scc"]),
    ("everyday-shared", &["update-std", "update-pl-rw", "update-dashmap", "update-scc"]),
    ("everyday-shared", &["queue-std", "queue-seg", "queue-array", "queue-channel"]),
    ("everyday-shared", &["queue-pl", "queue-concurrent"]),
    ("everyday-shared", &["arc-shared", "arc-own", "arc-weak"]),
    ("everyday-shared", &["count-exchange", "count-swap", "count-padded"]),
    ("everyday-shared", &["count-max", "count-local"]),
    ("everyday-shared", &["once-lazy", "once-std"]),
    ("everyday-shared", &["once-lock", "once-std"]),
    ("everyday-own", &["box-small", "box-page"]),
    ("everyday-own", &["vec-grown", "vec-reserved"]),
    ("everyday-own", &["string-format", "string-join"]),
    ("everyday-own", &["fill-hash", "fill-tree"]),
    ("everyday-own", &["get-hash", "get-tree"]),
    ("everyday-own", &["get-fold", "get-sorted"]),
    ("everyday-own", &["sort", "sort-unstable"]),
    ("everyday-waiting", &["stream-std", "stream-crossbeam", "stream-by-hand"]),
    ("everyday-waiting", &["stream-std-bounded", "stream-crossbeam-bounded"]),
    ("everyday-waiting", &["stream-tokio", "stream-std"]),
    ("everyday-waiting", &["back-std", "back-park", "back-yield"]),
    ("everyday-waiting", &["back-crossbeam", "back-by-hand"]),
    ("everyday-pools", &["sum-rayon", "sum-scope"]),
    ("everyday-pools", &["join-rayon", "join-serial"]),
    ("everyday-pools", &["sort-rayon", "sort-serial"]),
    ("everyday-pools", &["tasks-spawn", "tasks-rayon"]),
    ("everyday-pools", &["tasks-std", "tasks-tokio"]),
];
