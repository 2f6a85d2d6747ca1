//! The reverse map under fork (OpLog, figure 7; LDU, sections 2.5.2 and 2.6.5). Processes map
//! shared files and exit. At times a file is truncated, which asks for the processes that map its
//! pages.
//!
//! Owns: the traits of reverse maps and of loads, and the table of implementations, which all loads
//! share. `rmap-fork` is here, and `rmap-hand` is in [`cross_thread_exit`]. The programs around it
//! (`aim`, `mail`, `spawn`, `spawn-exec` and `spawn-shell`) are in [`loads`]. The kernel's own cost
//! is in `host`.
//!
//! A thread forks and exits all the time: it adds eight mappings and removes them, one at a time.
//! Files are chosen as programs choose libraries: nearly all processes map a few of them (the n-th
//! of sixteen as often as 1/n). With `--read-every k` a thread truncates a file after every k of
//! its own updates. So k = 1, 3, 9, 99, 999 give 50, 75, 90, 99, 99.9 % updates, which
//! `--update-pct` sets directly.

mod conform;
pub mod cross_thread_exit;
#[cfg(target_os = "linux")]
pub mod host;
pub mod loads;
mod ours;
mod rivals;
mod worker;

use std::{marker::PhantomData, ops::Range};

use self::worker::{FILES, Worker};
use crate::{
    row::Kind,
    runner::{Control, Group, Metric, Subject, Tally, total_rate},
    workload::{Entry, Options, ReadEvery, Shape, UnknownImpl, groups_by_reads},
};

/// One file's reverse map.
pub trait ReverseMap: Sync + Sized + 'static {
    /// What removes a mapping again, on any thread.
    type Mapping<'a>: Send;

    /// The map of a file without mappings.
    fn new() -> Self;

    /// Adds a mapping. No other has its id.
    fn add(&self, pages: Range<u64>, id: u32) -> Self::Mapping<'_>;

    /// Removes one.
    fn remove(&self, mapping: Self::Mapping<'_>);

    /// Calls `f` with the id of every mapping of these pages, or of all if the map knows no ranges.
    fn for_overlapping(&self, pages: Range<u64>, f: impl FnMut(u32));
}

/// What a worker does over and over.
trait Load: 'static {
    /// Processes of one worker at a time, at most.
    const PROCESSES: usize;

    /// Processes that one operation makes, and ends.
    const MAKES: usize;

    /// What worker number `index` has.
    fn new(index: usize) -> Self;

    /// One operation.
    fn run<R: ReverseMap>(&mut self, worker: &mut Worker<'_, R>);

    /// Threads that do that over and over.
    fn subject<R: ReverseMap>(shape: Shape) -> Box<dyn Subject>
    where
        Self: Sized,
    {
        let files = (0..FILES).map(|_| R::new()).collect();
        Box::new(RmapSubject::<R, Self> { files, shape, load: PhantomData })
    }
}

/// Processes that do nothing: made, and gone again.
struct Fork;

impl Load for Fork {
    const PROCESSES: usize = 1;
    const MAKES: usize = 1;

    fn new(_: usize) -> Self {
        Self
    }

    #[inline]
    fn run<R: ReverseMap>(&mut self, worker: &mut Worker<'_, R>) {
        let process = worker.create(0, 0);
        worker.exit(process, 0);
    }
}

struct RmapSubject<R, L> {
    files: Vec<R>,
    shape: Shape,
    load: PhantomData<fn() -> L>,
}

impl<R: ReverseMap, L: Load> Subject for RmapSubject<R, L> {
    fn work(&self, index: usize, control: &Control) -> Tally {
        let mut worker = Worker::new(&self.files, self.shape, index, L::PROCESSES);
        let mut load = L::new(index);
        control.drive(|| {
            load.run(&mut worker);
            1
        })
    }
}

/// The table's row for an implementation.
const fn entry<R: ReverseMap, L: Load>(
    name: &'static str,
    kind: Kind,
    about: &'static str,
) -> Entry<Shape> {
    Entry::new(name, kind, about, L::subject::<R>, conform::conform::<R, L>)
}

/// Every implementation, under one load.
const fn entries<L: Load>() -> [Entry<Shape>; 11] {
    [
        entry::<rivals::Locked<rivals::StdRwLock>, L>(
            "unshared",
            Kind::Baseline,
            "the plain tree behind a lock that only one thread takes",
        ),
        entry::<rivals::Locked<rivals::StdRwLock>, L>(
            "rwlock",
            Kind::Rival,
            "std RwLock around a tree for each file",
        ),
        entry::<rivals::Locked<rivals::StdMutex>, L>(
            "mutex",
            Kind::Rival,
            "std Mutex around a tree for each file",
        ),
        entry::<rivals::Locked<rivals::ParkingLot>, L>(
            "parking_lot",
            Kind::Rival,
            "parking_lot RwLock around a tree for each file",
        ),
        entry::<rivals::Harris<true>, L>(
            "harris",
            Kind::Rival,
            "the lock-free list of Harris and Michael for each file; a read is no snapshot",
        ),
        entry::<rivals::Harris<false>, L>(
            "harris-unsorted",
            Kind::Rival,
            "the same, not sorted: a mapping is added at the head (LDU draft)",
        ),
        entry::<ours::Logged<false>, L>(
            "oplog-auto",
            Kind::Ours,
            "IntervalRegistry: a plain locked tree until logs pay",
        ),
        entry::<ours::Logged<true>, L>(
            "oplog",
            Kind::Ours,
            "IntervalRegistry with logs from the start",
        ),
        entry::<ours::Marked<false>, L>(
            "ldu-per-thread",
            Kind::Ours,
            "IntervalRegistry with marks, a queue for each thread and file",
        ),
        entry::<ours::Marked<true>, L>(
            "ldu-global",
            Kind::Ours,
            "IntervalRegistry with marks, one queue for each file",
        ),
        entry::<ours::Adaptive, L>(
            "adaptive",
            Kind::Ours,
            "the rivals' tree in an Adaptive for each file: a lock, logs, or readers side by side",
        ),
    ]
}

/// Every implementation.
pub static ENTRIES: &[Entry<Shape>] = &entries::<Fork>();

const METRIC: Metric =
    Metric { name: "throughput", unit: "forks/ms", of: |tallies| total_rate(tallies) / 1e3 };

/// The groups for some options: one for each thread count and reading rate.
///
/// # Errors
/// If an implementation is unknown.
pub fn groups(options: &Options) -> Result<Vec<Group>, UnknownImpl> {
    groups_by_reads("rmap-fork", ENTRIES, METRIC, options, share_word)
}

/// How a heading says the share of updates.
fn share_word(read_every: ReadEvery) -> String {
    match read_every {
        ReadEvery::Never => "no reads".to_owned(),
        ReadEvery::Updates(count) => {
            let share = 100.0 * count as f64 / (count + 1) as f64;
            format!("{share:.1} % updates")
        }
    }
}
