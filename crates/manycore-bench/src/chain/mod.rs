//! The anonymous reverse map under fork (LDU, section 2.5.1): `fork-chain`.
//!
//! Every process has a set of the processes that may map its pages, and a link in each ancestor's
//! set. A child copies its parent's chain of links, and adds one to its own set. All sets of a
//! family share a root.
//!
//! Owns: the trait of such chains, the load, and the table of implementations.
//!
//! A thread forks a line of one to five processes, each from the one before, under a root that all
//! threads share. It then ends them, youngest first and eldest first by turns. One operation is one
//! fork. A process at depth d takes d + 1 links and gives them back, so sets are short-lived, with
//! two to ten changes each. With `--read-every k` a thread walks a set after every k of its own
//! links that come or go. The set is one of its line's or the root's. The walk answers where a page
//! is mapped.
//!
//! Sets are in the thread's own memory, so no implementation pays for allocating them. An
//! implementation that allocates inside a set pays for that.

mod conform;
mod domain;
mod ours;
mod rivals;

use std::hint::black_box;

use crate::{
    row::Kind,
    runner::{Control, Group, Metric, Subject, Tally, total_rate},
    ticks::spin,
    workload::{Entry, Options, ReadEvery, Shape, UnknownImpl, groups_by_reads},
};

/// Processes of one line, at most.
const DEPTH: usize = 5;

/// The sets of one family, and their members.
pub trait Chains: Sync + Sized + 'static {
    /// One process' set. It is dropped when no link is in it any more.
    type Set<'a>;
    /// What takes a process out of a set again.
    type Link<'a>;
    /// What a thread keeps of its own.
    type Own<'a>;

    /// A family of which there is only the root's set.
    fn new() -> Self;

    /// What one thread keeps.
    fn own(&self) -> Self::Own<'_>;

    /// A new set.
    fn set(&self) -> Self::Set<'_>;

    /// Puts a process into a set, or into the root's. No other in it has this number.
    fn link<'a>(
        &'a self,
        own: &mut Self::Own<'a>,
        set: Option<&Self::Set<'a>>,
        process: u32,
    ) -> Self::Link<'a>;

    /// Takes it out of that set.
    fn unlink<'a>(
        &'a self,
        own: &mut Self::Own<'a>,
        set: Option<&Self::Set<'a>>,
        link: Self::Link<'a>,
    );

    /// Calls `f` with every process in the set.
    fn for_each<'a>(&'a self, set: Option<&Self::Set<'a>>, f: impl FnMut(u32));
}

/// A process: its chain of links, the root's first.
struct Process<'a, C: Chains>([Option<C::Link<'a>>; DEPTH + 1]);

/// One thread of the benchmark.
struct Worker<'a, C: Chains> {
    chains: &'a C,
    own: C::Own<'a>,
    shape: Shape,
    until_read: u64,
    random: u32,
    /// Numbers of this thread's processes begin here.
    first: u32,
    forks: u32,
    /// Of the processes of the line, eldest first.
    sets: Vec<C::Set<'a>>,
    line: Vec<Process<'a, C>>,
}

impl<'a, C: Chains> Worker<'a, C> {
    fn new(chains: &'a C, shape: Shape, index: usize) -> Self {
        Self {
            chains,
            own: chains.own(),
            shape,
            until_read: shape.read_every.countdown(),
            random: 0x9E37_79B9_u32.wrapping_mul(index as u32 + 1),
            first: (index as u32) << 16,
            forks: 0,
            sets: Vec::with_capacity(DEPTH),
            line: Vec::with_capacity(DEPTH),
        }
    }

    fn next(&mut self, bound: usize) -> usize {
        self.random = self.random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (self.random >> 16) as usize % bound
    }

    /// The youngest process of the line, or the root, forks.
    #[inline]
    fn fork(&mut self) {
        let process = self.first | (self.forks & 0xFFFF);
        self.forks = self.forks.wrapping_add(1);
        self.sets.push(self.chains.set());
        let mut links = Process([const { None }; DEPTH + 1]);
        for (level, link) in links.0.iter_mut().enumerate().take(self.sets.len() + 1) {
            let set = level.checked_sub(1).map(|place| &self.sets[place]);
            *link = Some(self.chains.link(&mut self.own, set, process));
            self.updated();
        }
        self.line.push(links);
    }

    #[inline]
    fn exit(&mut self, process: Process<'a, C>) {
        for (level, link) in process.0.into_iter().flatten().enumerate() {
            let set = level.checked_sub(1).map(|place| &self.sets[place]);
            self.chains.unlink(&mut self.own, set, link);
            self.updated();
        }
    }

    /// A line of processes comes and goes. Returns how many there were.
    #[inline]
    fn run(&mut self) -> u64 {
        let count = 1 + self.next(DEPTH);
        (0..count).for_each(|_| self.fork());
        let eldest_first = self.next(2) == 0;
        let mut line = std::mem::take(&mut self.line);
        if eldest_first {
            line.drain(..).for_each(|process| self.exit(process));
        } else {
            line.drain(..).rev().for_each(|process| self.exit(process));
        }
        self.line = line; // its memory
        self.sets.clear();
        count as u64
    }

    #[inline]
    fn updated(&mut self) {
        spin(self.shape.spin);
        self.until_read -= 1;
        if self.until_read == 0 {
            self.walk();
            self.until_read = self.shape.read_every.countdown();
        }
    }

    fn walk(&mut self) {
        let level = self.next(self.sets.len() + 1);
        let set = level.checked_sub(1).map(|place| &self.sets[place]);
        let mut digest = 0_u64;
        let add = |process| digest = digest.wrapping_add((1 << 32) | u64::from(process));
        self.chains.for_each(set, add);
        black_box(digest);
    }
}

struct ChainSubject<C> {
    chains: C,
    shape: Shape,
}

impl<C: Chains> Subject for ChainSubject<C> {
    fn work(&self, index: usize, control: &Control) -> Tally {
        let mut worker = Worker::new(&self.chains, self.shape, index);
        control.drive(|| worker.run())
    }
}

/// The table's row for an implementation.
const fn entry<C: Chains>(name: &'static str, kind: Kind, about: &'static str) -> Entry<Shape> {
    Entry::new(
        name,
        kind,
        about,
        |shape| Box::new(ChainSubject { chains: C::new(), shape }),
        conform::conform::<C>,
    )
}

/// Every implementation.
pub static ENTRIES: &[Entry<Shape>] = &[
    entry::<rivals::RootLocked<rivals::StdMutex>>(
        "unshared",
        Kind::Baseline,
        "plain trees behind a lock that only one thread takes",
    ),
    entry::<rivals::RootLocked<rivals::StdRwLock>>(
        "rwlock",
        Kind::Rival,
        "a tree for each set, and one std RwLock for the family: the root's, as in the kernel",
    ),
    entry::<rivals::RootLocked<rivals::StdMutex>>(
        "mutex",
        Kind::Rival,
        "the same with a std Mutex",
    ),
    entry::<rivals::RootLocked<rivals::ParkingLot>>(
        "parking_lot",
        Kind::Rival,
        "the same with parking_lot's RwLock",
    ),
    entry::<rivals::EachLocked<rivals::StdMutex>>(
        "set-mutex",
        Kind::Rival,
        "a std Mutex for each set: threads meet at the root's alone",
    ),
    entry::<rivals::EachLocked<rivals::ParkingLot>>(
        "set-parking_lot",
        Kind::Rival,
        "the same with parking_lot's RwLock",
    ),
    entry::<ours::Logged>(
        "oplog",
        Kind::Ours,
        "Deferred around all trees, with cancelling logs from the start",
    ),
    entry::<ours::EachMarked<false>>(
        "ldu-set-per-thread",
        Kind::Ours,
        "a DeferredSet for each set, with a queue for each thread",
    ),
    entry::<ours::EachMarked<true>>(
        "ldu-set-global",
        Kind::Ours,
        "a DeferredSet for each set, with one queue",
    ),
    entry::<ours::Domain<false>>(
        "ldu-domain-per-thread",
        Kind::Ours,
        "one DeferredSet for all sets, with a queue for each thread",
    ),
    entry::<ours::Domain<true>>(
        "ldu-domain-global",
        Kind::Ours,
        "one DeferredSet for all sets, with one queue",
    ),
    entry::<ours::Reused>(
        "ldu-domain-reused",
        Kind::Ours,
        "the same with a queue for each thread, whose links are used again while they wait",
    ),
];

const METRIC: Metric =
    Metric { name: "throughput", unit: "forks/ms", of: |tallies| total_rate(tallies) / 1e3 };

/// The groups for some options: one for each thread count and reading rate.
///
/// # Errors
/// If an implementation is unknown.
pub fn groups(options: &Options) -> Result<Vec<Group>, UnknownImpl> {
    groups_by_reads("fork-chain", ENTRIES, METRIC, options, |read_every| match read_every {
        ReadEvery::Never => "no reads".to_owned(),
        ReadEvery::Updates(count) => format!("a set read after each {count} links"),
    })
}
