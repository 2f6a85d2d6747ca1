//! One lock that all threads take, for a read or for an update of four words.
//!
//! Owns: the trait that every lock implements, the loop, and the table of implementations. Locks
//! without a read mode are taken for a read as for an update.

mod ours;
mod rivals;

use std::{hint::black_box, thread};

use crate::{
    counter::nanos_per_op,
    row::Kind,
    runner::{Control, Group, Metric, Subject, Tally, total_rate},
    workload::{Entry, Options, UnknownImpl, cases, choose, threads_word},
};

/// Operations between two looks at the stop flag.
const BATCH: u64 = 64;

/// What the lock guards: always four times the same word.
pub type Words = [u64; 4];

fn step(words: &mut Words) {
    words.iter_mut().for_each(|word| *word += 1);
}

/// A lock around [`Words`].
pub trait LockImpl: Sync + Sized + 'static {
    /// A free one.
    fn new() -> Self;

    /// Calls `f` with what is inside, as a reader.
    fn read<R>(&self, f: impl FnOnce(&Words) -> R) -> R;

    /// Calls `f` with what is inside, alone.
    fn update<R>(&self, f: impl FnOnce(&mut Words) -> R) -> R;
}

/// What a subject is built from.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    update: u8,
}

struct Shared<L> {
    lock: L,
    shape: Shape,
}

impl<L: LockImpl> Subject for Shared<L> {
    fn work(&self, index: usize, control: &Control) -> Tally {
        let mut random = 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(index as u64 + 1);
        // Of 2^16 chances.
        let updates = u64::from(self.shape.update) * 65_536 / 100;
        control.drive(|| {
            for _ in 0..BATCH {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                if random & 0xFFFF >= updates {
                    black_box(self.lock.read(|words| words[0]));
                } else {
                    self.lock.update(step);
                }
            }
            BATCH
        })
    }
}

/// The table's row for a lock.
const fn entry<L: LockImpl>(name: &'static str, kind: Kind, about: &'static str) -> Entry<Shape> {
    Entry::new(
        name,
        kind,
        about,
        |shape| Box::new(Shared { lock: L::new(), shape }),
        || conform::<L>(3),
    )
}

/// Every implementation.
pub static ENTRIES: &[Entry<Shape>] = &[
    Entry {
        conform: || conform::<rivals::Unshared>(1),
        ..entry::<rivals::Unshared>("unshared", Kind::Baseline, "the words of one thread, no lock")
    },
    entry::<ours::Ticket>("ticket", Kind::Ours, "TicketLock: in order, all look at one word"),
    entry::<ours::Mcs>("mcs", Kind::Ours, "McsLock: in order, each waits at a word of its own"),
    entry::<ours::Br>("big-reader", Kind::Ours, "BrLock: a reader writes its own line alone"),
    entry::<rivals::StdMutex>("std-mutex", Kind::Rival, "std Mutex"),
    entry::<rivals::StdRwLock>("std-rwlock", Kind::Rival, "std RwLock"),
    entry::<rivals::ParkMutex>("pl-mutex", Kind::Rival, "parking_lot Mutex"),
    entry::<rivals::ParkFair>("pl-fair", Kind::Rival, "parking_lot Mutex, given up fairly"),
    entry::<rivals::ParkRwLock>("pl-rwlock", Kind::Rival, "parking_lot RwLock"),
    entry::<rivals::Sharded>("sharded", Kind::Rival, "crossbeam-utils ShardedLock: 8 RwLocks"),
];

const METRICS: [Metric; 2] = [
    Metric { name: "throughput", unit: "Mops/s", of: |tallies| total_rate(tallies) / 1e6 },
    Metric { name: "latency", unit: "ns/op", of: nanos_per_op },
];

/// The groups for some options: one for each share of updates and thread count.
///
/// # Errors
/// If an implementation is unknown.
pub fn groups(options: &Options) -> Result<Vec<Group>, UnknownImpl> {
    let chosen = choose("lock", ENTRIES, &options.impls)?;
    let mut groups = Vec::new();
    for &update in &options.update {
        for &threads in &options.threads {
            let (cases, left_out) = cases(&chosen, threads, |_| Shape { update });
            groups.push(Group {
                bench: "lock",
                title: format!("{}, {update} % updates", threads_word(threads)),
                params: options.params([("update", update.into())]),
                metrics: METRICS.to_vec(),
                cases,
                left_out,
            });
        }
    }
    Ok(groups)
}

/// No thread sees half an update, and none is lost.
fn conform<L: LockImpl>(threads: usize) -> Result<(), String> {
    const STEPS: u64 = 2_000;
    let lock = &L::new();
    let churn = || {
        (0..STEPS).all(|_| {
            lock.update(step);
            lock.read(|words| words.iter().all(|word| *word == words[0]))
        })
    };
    let whole = thread::scope(|scope| {
        let started: Vec<_> = (0..threads).map(|_| scope.spawn(churn)).collect();
        started.into_iter().all(|thread| thread.join().is_ok_and(|whole| whole))
    });
    let (sum, all) = (lock.read(|words| words[0]), STEPS * threads as u64);
    match (whole, sum == all) {
        (true, true) => Ok(()),
        (false, _) => Err("a reader saw half an update".to_owned()),
        (true, false) => Err(format!("{sum} of {all} updates are there")),
    }
}
