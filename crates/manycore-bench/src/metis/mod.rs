//! Address space taken, touched and given back, as a MapReduce program does it: the trace of Metis
//! (ParSec, section 5.3, figures 9 and 10).
//!
//! Owns: the trace, the trait that every page manager implements, the loop, and the table of
//! implementations.
//!
//! The trace is that of an inverted index over a text of 128 MB. An example of `manycore-vm`
//! recorded it (`inverted_index --text 128 --record`). It requests single pages and blocks of 1024
//! pages; the blocks are less than 5 % of the requests. Each thread has an equal share of the
//! requests. It takes them all in order and writes a word into each page. Then it checks the words
//! and gives everything back. That is one replay. A batch is ten replays (`--replays`), so the
//! first replay, whose pages are new, is a tenth of it. `--ops` limits the requests.
//!
//! A figure is the mean or the 99th percentile of one call. There are two calls for each of the two
//! sizes: taking with touching, and giving back. The rate is that of single pages taken, touched
//! and given back.
//!
//! When comparing, note that the kernel's pages are zeroed at each mapping. `pool` gives pages as
//! they were left, and `pool-zeroed` clears them. A manager in user space keeps free memory. Its
//! first replay pays for the system's page faults, one for each small page.

mod ours;
mod rivals;

use std::{ptr::NonNull, sync::Mutex};

use crate::{
    latency::{Latencies, Mean},
    row::Kind,
    runner::{Control, Group, Metric, Subject, Tally},
    ticks,
    workload::{Entry, Options, UnknownImpl, groups_of},
};

/// Bytes of a page.
const PAGE: usize = 4096;
/// Pages of a large request.
const BLOCK: usize = 1024;

/// The options of this workload.
#[derive(Clone, Copy, Debug)]
pub struct MetisOptions {
    /// Replays of a batch.
    pub replays: usize,
}

impl Default for MetisOptions {
    fn default() -> Self {
        Self { replays: 10 }
    }
}

/// A manager of pages.
trait Manager: Sync + Sized + 'static {
    /// Pages that were taken.
    type Pages<'m>
    where
        Self: 'm;

    /// Whether several threads may use one.
    const SHARED: bool = true;

    /// One for at most so many pages, without memory yet.
    fn new(pages_max: usize) -> Self;

    /// So many consecutive pages.
    fn take(&self, pages: usize) -> Self::Pages<'_>;

    /// Where they are.
    fn address(pages: &Self::Pages<'_>) -> NonNull<u8>;

    /// Gives them back.
    fn give<'m>(&'m self, pages: Self::Pages<'m>);
}

/// The requests, in pages, in the order of the record.
fn trace() -> Vec<usize> {
    let record = include_str!("trace.txt");
    let mut requests = Vec::new();
    for word in record.split_whitespace() {
        match word.parse() {
            Ok(singles) => requests.extend(std::iter::repeat_n(1, singles)),
            Err(_) => requests.push(BLOCK),
        }
    }
    requests
}

/// What a subject is built from.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    threads: usize,
    replays: usize,
    requests: usize,
}

/// What the calls of a thread took.
struct Times {
    /// Taking one page, giving it back, and the same for a block.
    calls: [(Mean, Latencies); 4],
}

impl Times {
    fn new() -> Self {
        Self { calls: std::array::from_fn(|_| (Mean::default(), Latencies::new())) }
    }

    fn record(&mut self, call: usize, ticks: u64) {
        self.calls[call].0.record(ticks);
        self.calls[call].1.record(ticks);
    }

    fn merge(&mut self, other: &Self) {
        for (own, other) in self.calls.iter_mut().zip(&other.calls) {
            own.0.merge(other.0);
            own.1.merge(&other.1);
        }
    }
}

struct MetisSubject<M> {
    manager: M,
    shape: Shape,
    requests: Vec<usize>,
    times: Mutex<Times>,
}

impl<M: Manager> MetisSubject<M> {
    fn new(shape: Shape) -> Self {
        let mut requests = trace();
        requests.truncate(shape.requests.max(shape.threads));
        let pages = requests.iter().sum();
        Self { manager: M::new(pages), shape, requests, times: Mutex::new(Times::new()) }
    }

    /// Takes, touches, checks and gives back all of a share.
    fn replay<'m>(&'m self, share: &[usize], held: &mut Vec<M::Pages<'m>>, times: &mut Times) {
        for (number, &pages) in share.iter().enumerate() {
            let start = ticks::now();
            let taken = self.manager.take(pages);
            touch::<M>(&taken, pages, number as u64);
            times.record(call_of(pages), ticks::now().wrapping_sub(start));
            held.push(taken);
        }
        for (number, (taken, &pages)) in held.drain(..).zip(share).enumerate() {
            check::<M>(&taken, pages, number as u64);
            let start = ticks::now();
            self.manager.give(taken);
            times.record(call_of(pages) + 1, ticks::now().wrapping_sub(start));
        }
    }
}

/// Where the times of taking so many pages are.
fn call_of(pages: usize) -> usize {
    if pages == 1 { 0 } else { 2 }
}

/// Writes a word into each page.
fn touch<M: Manager>(taken: &M::Pages<'_>, pages: usize, word: u64) {
    let address = M::address(taken).cast::<u64>();
    for page in 0..pages {
        // SAFETY: within pages that this thread has taken.
        unsafe { address.byte_add(page * PAGE).write_volatile(word ^ page as u64) };
    }
}

/// Panics if a word is not the one that was written.
fn check<M: Manager>(taken: &M::Pages<'_>, pages: usize, word: u64) {
    let address = M::address(taken).cast::<u64>();
    for page in 0..pages {
        // SAFETY: within pages that this thread has taken.
        let found = unsafe { address.byte_add(page * PAGE).read_volatile() };
        assert_eq!(found, word ^ page as u64, "another owner wrote to a page");
    }
}

impl<M: Manager> Subject for MetisSubject<M> {
    fn work(&self, index: usize, control: &Control) -> Tally {
        let Shape { threads, replays, .. } = self.shape;
        let at = |thread: usize| thread * self.requests.len() / threads;
        let share = &self.requests[at(index)..at(index + 1)];
        let (mut held, mut times) = (Vec::with_capacity(share.len()), Times::new());
        let tally = control.drive(|| {
            (0..replays).for_each(|_| self.replay(share, &mut held, &mut times));
            (share.len() * replays) as u64
        });
        self.times.lock().expect("no panic under this lock").merge(&times);
        tally
    }

    fn figure(&self, metric: &str, tallies: &[Tally]) -> Option<f64> {
        let times = self.times.lock().expect("no panic under this lock");
        let mean = |call: usize| times.calls[call].0.ns();
        let p99 = |call: usize| times.calls[call].1.quantile_ns(0.99);
        Some(match metric {
            "pages" => tallies.len() as f64 * 1e3 / (mean(0) + mean(1)).max(1e-3),
            "take1" => mean(0),
            "give1" => mean(1),
            "take1024" => mean(2),
            "give1024" => mean(3),
            "take1_p99" => p99(0),
            "give1_p99" => p99(1),
            "take1024_p99" => p99(2),
            "give1024_p99" => p99(3),
            _ => return None,
        })
    }
}

/// The table's row for an implementation.
const fn entry<M: Manager>(name: &'static str, kind: Kind, about: &'static str) -> Entry<Shape> {
    Entry::new(name, kind, about, |shape| Box::new(MetisSubject::<M>::new(shape)), conform::<M>)
}

/// Every implementation.
pub static ENTRIES: &[Entry<Shape>] = &[
    entry::<rivals::Unshared>("unshared", Kind::Baseline, "one mapping and lists of one thread"),
    entry::<rivals::Kernel>("mmap", Kind::Rival, "the kernel: mmap and munmap for each request"),
    entry::<rivals::Locked>(
        "process-lock",
        Kind::Rival,
        "one mapping, and a tree of its free runs under one lock: a stand-in for a manager with a \
         lock for each process",
    ),
    entry::<rivals::SystemMalloc>("malloc", Kind::Rival, "aligned memory of the C library"),
    entry::<ours::Pool<false>>("pool", Kind::Ours, "PagePool, pages as their last owner left them"),
    entry::<ours::Pool<true>>("pool-huge", Kind::Ours, "the same, in huge pages of the system"),
    entry::<ours::ZeroedPool>("pool-zeroed", Kind::Ours, "PagePool, zeros, in huge pages"),
    entry::<ours::Mappings>(
        "mappings",
        Kind::Ours,
        "MappingDb over a memory file: grant and unmap",
    ),
];

const METRICS: [Metric; 9] = [
    Metric::of_subject("pages", "Mpages/s"),
    Metric::of_subject("take1", "ns"),
    Metric::of_subject("take1_p99", "ns"),
    Metric::of_subject("give1", "ns"),
    Metric::of_subject("give1_p99", "ns"),
    Metric::of_subject("take1024", "ns"),
    Metric::of_subject("take1024_p99", "ns"),
    Metric::of_subject("give1024", "ns"),
    Metric::of_subject("give1024_p99", "ns"),
];

/// The groups for some options: one for each thread count.
///
/// # Errors
/// If an implementation is unknown.
pub fn groups(options: &Options) -> Result<Vec<Group>, UnknownImpl> {
    let MetisOptions { replays } = options.own.get();
    let requests = options.ops;
    groups_of(
        ("metis", ENTRIES, &METRICS),
        options,
        &[()],
        |()| (String::new(), [("replays", replays.into())]),
        |threads, ()| Shape { threads, replays, requests },
    )
}

/// No page has two owners, and a page that was given back is taken again.
fn conform<M: Manager>() -> Result<(), String> {
    let shape = Shape { threads: 2, replays: 3, requests: 3_000 };
    let subject = MetisSubject::<M>::new(shape);
    let replay = |share: &[usize]| {
        let (mut held, mut times) = (Vec::new(), Times::new());
        (0..shape.replays).for_each(|_| subject.replay(share, &mut held, &mut times));
    };
    let (one, other) = subject.requests.split_at(subject.requests.len() / 2);
    if !M::SHARED {
        replay(one);
        replay(other);
        return Ok(());
    }
    std::thread::scope(|scope| {
        let threads = [scope.spawn(|| replay(one)), scope.spawn(|| replay(other))];
        let joined = threads.map(|thread| thread.join());
        joined
            .into_iter()
            .try_for_each(|thread| thread.map_err(|_| "a word was overwritten".into()))
    })
}

#[cfg(test)]
mod tests {
    use super::{BLOCK, trace};

    #[test]
    fn the_trace_has_the_papers_mix() {
        let requests = trace();
        let large = requests.iter().filter(|pages| **pages == BLOCK).count();
        assert!(requests.iter().all(|pages| [1, BLOCK].contains(pages)));
        assert!(large > 0 && large * 20 < requests.len(), "{large} of {}", requests.len());
        let megabytes = requests.iter().sum::<usize>() / 256;
        assert!((300..1000).contains(&megabytes), "{megabytes} MB; the paper has some 650");
    }
}
