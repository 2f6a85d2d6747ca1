//! The reverse map under fork (OpLog, figure 7; LDU, sections 2.5.2 and 2.6.5): processes map
//! shared files and go away again; now and then a file is truncated: who maps these pages?
//!
//! Owns: the traits that every reverse map implements, the loop, and the table of implementations.
//!
//! A thread forks and exits all the time: it adds eight mappings and removes them, one at a
//! time. Files are chosen as programs choose libraries: a few are mapped by nearly everybody (the
//! n-th of sixteen as often as 1/n). With `--read-every k` a thread truncates a file after each k
//! updates of its own, so that k = 1, 3, 9, 99, 999 are 50, 75, 90, 99, 99.9 % updates.

mod ours;
mod rivals;

use std::{hint::black_box, ops::Range, thread};

use crate::{
    row::Kind,
    runner::{Control, Group, Metric, Subject, Tally, total_rate},
    ticks::spin,
    workload::{Entry, Options, ReadEvery, Shape, UnknownImpl, groups_by_reads},
};

/// Files that processes share.
const FILES: usize = 16;

/// Mappings of one process.
const MAPPINGS: usize = 8;

/// Pages of a file.
const PAGES: u64 = 1024;

/// One file's reverse map.
pub trait ReverseMap: Sync + Sized + 'static {
    /// What removes a mapping again.
    type Mapping<'a>;

    /// The map of a file that nobody maps.
    fn new() -> Self;

    /// Adds a mapping. No other has its id.
    fn add(&self, pages: Range<u64>, id: u32) -> Self::Mapping<'_>;

    /// Removes one.
    fn remove(&self, mapping: Self::Mapping<'_>);

    /// Calls `f` with the id of every mapping of these pages, or of all if the map knows no ranges.
    fn for_overlapping(&self, pages: Range<u64>, f: impl FnMut(u32));
}

struct RmapSubject<R> {
    files: Vec<R>,
    shape: Shape,
}

/// What a process maps, by a linear congruence: every run maps the same.
struct Choices {
    random: u32,
    /// The sums of 1/n, scaled to 2^16.
    sums: [u32; FILES],
}

impl Choices {
    fn new(thread: usize) -> Self {
        let mut sum = 0.0;
        let parts: f64 = (1..=FILES).map(|n| 1.0 / n as f64).sum();
        let sums = std::array::from_fn(|file| {
            sum += 1.0 / (file + 1) as f64;
            (sum / parts * 65_536.0) as u32
        });
        Self { random: 0x9E37_79B9_u32.wrapping_mul(thread as u32 + 1), sums }
    }

    fn next(&mut self) -> u32 {
        self.random = self.random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        self.random >> 16
    }

    fn file(&mut self) -> usize {
        let at = self.next();
        self.sums.iter().position(|sum| at < *sum).unwrap_or(FILES - 1)
    }

    fn pages(&mut self) -> Range<u64> {
        let start = u64::from(self.next()) % (PAGES - 64);
        start..start + 1 + u64::from(self.next()) % 64
    }
}

impl<R: ReverseMap> Subject for RmapSubject<R> {
    fn workers(&self) -> usize {
        self.shape.threads
    }

    fn work(&self, index: usize, control: &Control) -> Tally {
        let Shape { read_every, spin: ticks, .. } = self.shape;
        let mut choices = Choices::new(index);
        let mut until_read = read_every.countdown();
        let first = (index * MAPPINGS) as u32;
        control.drive(|| {
            let mut truncate = |choices: &mut Choices| {
                spin(ticks);
                until_read -= 1;
                if until_read == 0 {
                    let (file, pages) = (choices.file(), choices.pages());
                    let mut digest = 0_u64;
                    let add = |id| digest = digest.wrapping_add((1 << 32) | u64::from(id));
                    self.files[file].for_overlapping(pages, add);
                    black_box(digest);
                    until_read = read_every.countdown();
                }
            };
            let mut process = Vec::with_capacity(MAPPINGS);
            for id in first..first + MAPPINGS as u32 {
                let file = &self.files[choices.file()];
                process.push((file, file.add(choices.pages(), id)));
                truncate(&mut choices);
            }
            for (file, mapping) in process {
                file.remove(mapping);
                truncate(&mut choices);
            }
            1
        })
    }
}

/// The table's row for an implementation.
const fn entry<R: ReverseMap>(name: &'static str, kind: Kind, about: &'static str) -> Entry<Shape>
where
    RmapSubject<R>: Subject,
{
    Entry {
        name,
        kind,
        about,
        threads_max: usize::MAX,
        build: |shape| {
            Box::new(RmapSubject { files: (0..FILES).map(|_| R::new()).collect(), shape })
        },
        conform: conform::<R>,
    }
}

/// Every implementation.
pub static ENTRIES: &[Entry<Shape>] = &[
    entry::<rivals::Locked<rivals::StdRwLock>>(
        "unshared",
        Kind::Baseline,
        "the plain tree behind a lock that only one thread takes",
    ),
    entry::<rivals::Locked<rivals::StdRwLock>>(
        "rwlock",
        Kind::Rival,
        "std RwLock around a tree for each file",
    ),
    entry::<rivals::Locked<rivals::StdMutex>>(
        "mutex",
        Kind::Rival,
        "std Mutex around a tree for each file",
    ),
    entry::<rivals::Locked<rivals::ParkingLot>>(
        "parking_lot",
        Kind::Rival,
        "parking_lot RwLock around a tree for each file",
    ),
    entry::<rivals::Harris>(
        "harris",
        Kind::Rival,
        "the lock-free list of Harris and Michael for each file; a read is no snapshot",
    ),
    entry::<ours::Logged<false>>(
        "oplog-auto",
        Kind::Ours,
        "IntervalRegistry: a plain locked tree until logs pay",
    ),
    entry::<ours::Logged<true>>("oplog", Kind::Ours, "IntervalRegistry with logs from the start"),
    entry::<ours::Marked<false>>(
        "ldu-percore",
        Kind::Ours,
        "IntervalRegistry with marks, a queue for each thread and file",
    ),
    entry::<ours::Marked<true>>(
        "ldu-global",
        Kind::Ours,
        "IntervalRegistry with marks, one queue for each file",
    ),
];

const METRIC: Metric =
    Metric { name: "throughput", unit: "forks/ms", of: |tallies| total_rate(tallies) / 1e3 };

/// The groups for some options: one for each thread count and reading rate.
///
/// # Errors
/// If an implementation is unknown.
pub fn groups(options: &Options) -> Result<Vec<Group>, UnknownImpl> {
    groups_by_reads("rmap-fork", ENTRIES, METRIC, options, |read_every| match read_every {
        ReadEvery::Never => "no reads".to_owned(),
        ReadEvery::Updates(count) => {
            let share = 100.0 * count as f64 / (count + 1) as f64;
            format!("{share:.1} % updates")
        }
    })
}

/// Three threads map one file; a question finds exactly the thread's own mappings among its own.
fn conform<R: ReverseMap>() -> Result<(), String> {
    let file = &R::new();
    thread::scope(|scope| {
        let start = |thread: usize| {
            scope.spawn(move || {
                let mut choices = Choices::new(thread);
                let first = (thread * MAPPINGS) as u32;
                for _ in 0..300 {
                    let ids = first..first + MAPPINGS as u32;
                    let process: Vec<_> =
                        ids.clone().map(|id| file.add(choices.pages(), id)).collect();
                    let mut seen = Vec::new();
                    file.for_overlapping(0..PAGES, |id| seen.push(id));
                    seen.retain(|id| ids.contains(id));
                    seen.sort_unstable();
                    if !seen.iter().copied().eq(ids) {
                        return Err(format!("thread {thread} found {seen:?} of its own"));
                    }
                    process.into_iter().for_each(|mapping| file.remove(mapping));
                }
                Ok(())
            })
        };
        let threads: Vec<_> = (0..3).map(start).collect();
        threads.into_iter().try_for_each(|one| one.join().map_err(|_| "a thread panicked")?)
    })?;
    let mut left = 0;
    file.for_overlapping(0..PAGES, |_| left += 1);
    if left == 0 { Ok(()) } else { Err(format!("{left} mappings were left at the end")) }
}

#[cfg(test)]
mod tests {
    use super::ENTRIES;

    #[test]
    fn every_reverse_map_knows_who_maps() {
        for entry in ENTRIES {
            if let Err(error) = (entry.conform)() {
                panic!("{}: {error}", entry.name);
            }
        }
    }
}
