//! A recency list: every thread touches keys, and sometimes the oldest key is evicted.
//!
//! Owns: the trait that every list implements, the loop, and the table of implementations. Keys are
//! uniform over [`KEYS`], and all are in the list at the start. A read takes out the oldest key,
//! and puts it back as the newest.

mod ours;
mod rivals;

use std::hint::black_box;

use crate::{
    counter::nanos_per_op,
    row::Kind,
    runner::{Control, Group, Metric, Subject, Tally, total_rate},
    workload::{Entry, Options, ReadEvery, UnknownImpl, groups_of},
};

/// How many keys there are.
pub const KEYS: u64 = 10_000;

/// Operations between two looks at the stop flag.
const BATCH: u64 = 64;

/// A list of keys by recency.
pub trait LruImpl: Sync + Sized + 'static {
    /// An empty one.
    fn new() -> Self;

    /// Makes the key the newest.
    fn touch(&self, key: u64);

    /// Takes the oldest key out.
    fn evict(&self) -> Option<u64>;
}

/// What a subject is built from.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    read_every: ReadEvery,
}

struct Shared<L> {
    list: L,
    shape: Shape,
}

impl<L: LruImpl> Shared<L> {
    fn new(shape: Shape) -> Self {
        let list = L::new();
        (0..KEYS).for_each(|key| list.touch(key));
        Self { list, shape }
    }
}

impl<L: LruImpl> Subject for Shared<L> {
    fn work(&self, index: usize, control: &Control) -> Tally {
        let mut random = 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(index as u64 + 1);
        let mut left = self.shape.read_every.countdown();
        control.drive(|| {
            for _ in 0..BATCH {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                self.list.touch(black_box((random >> 32) % KEYS));
                left -= 1;
                if left == 0 {
                    left = self.shape.read_every.countdown();
                    self.list.evict().into_iter().for_each(|oldest| self.list.touch(oldest));
                }
            }
            BATCH
        })
    }
}

/// The table's row for a list.
const fn entry<L: LruImpl>(name: &'static str, kind: Kind, about: &'static str) -> Entry<Shape> {
    Entry::new(name, kind, about, |shape| Box::new(Shared::<L>::new(shape)), conform::<L>)
}

/// Every implementation.
pub static ENTRIES: &[Entry<Shape>] = &[
    entry::<rivals::Unshared>("unshared", Kind::Baseline, "the crate lru, of one thread"),
    entry::<ours::Auto>("lru", Kind::Ours, "collections::Lru: logs once threads contend"),
    entry::<ours::Always>("lru-logged", Kind::Ours, "collections::Lru, with logs from the start"),
    entry::<rivals::StdMutex>("mutex", Kind::Rival, "the crate lru behind std's Mutex"),
    entry::<rivals::ParkMutex>("pl-mutex", Kind::Rival, "the crate lru behind parking_lot's Mutex"),
];

const METRICS: [Metric; 2] = [
    Metric { name: "throughput", unit: "Mops/s", of: |tallies| total_rate(tallies) / 1e6 },
    Metric { name: "latency", unit: "ns/op", of: nanos_per_op },
];

/// The groups for some options: one for each thread count and distance of evictions.
///
/// # Errors
/// If an implementation is unknown.
pub fn groups(options: &Options) -> Result<Vec<Group>, UnknownImpl> {
    groups_of(
        ("lru", ENTRIES, &METRICS),
        options,
        &options.read_every,
        |read_every| {
            let params = [("keys", KEYS.into()), ("read_every", read_every.to_string().into())];
            (format!(", evict: {read_every}"), params)
        },
        |_, read_every| Shape { read_every },
    )
}

/// Keys are evicted from the oldest, each once.
fn conform<L: LruImpl>() -> Result<(), String> {
    let list = L::new();
    (0..100).for_each(|key| list.touch(key));
    (0..50).step_by(2).for_each(|key| list.touch(key));
    let expected = (1..50).step_by(2).chain(50..100).chain((0..50).step_by(2));
    for key in expected {
        let found = list.evict();
        if found != Some(key) {
            return Err(format!("{found:?} was evicted instead of {key}"));
        }
    }
    list.evict().map_or(Ok(()), |key| Err(format!("{key} was evicted twice")))
}
