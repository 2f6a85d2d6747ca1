//! One shared list at every share of updates: how close an adaptive object comes to the best fixed
//! choice.
//!
//! Owns: the trait that every implementation has, the loop, and the table of implementations. The
//! list is that of the workload `list`. An update adds an element of the thread's own or removes
//! the last one added. A read walks the list. The list holds at most one element for each thread,
//! and those that stay (`--elements`). These make reads as long as they are in a program.
//!
//! Each thread does its work for a while before its time counts, so that an object that changes
//! itself has settled.

mod ours;
mod rivals;

use std::{
    hint::black_box,
    thread,
    time::{Duration, Instant},
};

use crate::{
    counter::nanos_per_op,
    list::{ElementList, ListOp},
    row::Kind,
    runner::{Control, Group, Metric, Subject, Tally, total_rate},
    workload::{Entry, Options, UnknownImpl, cases, choose, threads_word},
};

/// Shares of updates, in thousandths, if the command names none.
const SHARES: [u64; 11] = [0, 10, 50, 100, 250, 500, 750, 900, 990, 999, 1000];

/// What concerns this workload alone.
#[derive(Clone, Debug, Default)]
pub struct SweepOptions {
    /// Shares of updates, in thousandths; none for the eleven that the command takes by default.
    pub shares: Vec<u64>,
    /// Counts of elements that stay in the list; none for an empty list.
    pub elements: Vec<u32>,
}

/// Operations between two looks at the stop flag.
const BATCH: u64 = 64;

/// Elements that a thread cycles through.
const OWN: u32 = 16;

/// A list that threads share.
pub trait SweepImpl: Sync + Sized + 'static {
    /// With this list inside.
    fn new(list: ElementList) -> Self;

    /// Makes an update.
    fn update(&self, op: ListOp);

    /// Walks the list.
    fn read(&self) -> u64;
}

/// Folds what a walk sees.
#[inline(always)]
fn walk(list: &ElementList) -> u64 {
    let mut digest = 0_u64;
    list.for_each(|element| digest = digest.wrapping_add((1 << 32) | u64::from(element)));
    digest
}

/// What a subject is built from.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    threads: usize,
    share: u64,
    elements: u32,
    warm_up: Duration,
}

impl Shape {
    /// The list as it is at first: with what stays, behind the elements of all threads.
    fn list(self) -> ElementList {
        let own = self.threads as u32 * OWN;
        let mut list = ElementList::with_limit(own + self.elements);
        (own..own + self.elements).for_each(|element| list.add(element));
        list
    }
}

struct Sweep<S> {
    list: S,
    shape: Shape,
}

/// A thread's choices.
struct Worker {
    random: u64,
    first: u32,
    turn: u32,
    updates: u64,
}

impl Worker {
    fn new(index: usize, share: u64) -> Self {
        Self {
            random: 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(index as u64 + 1),
            first: u32::try_from(index).expect("a thread count fits") * OWN,
            turn: 0,
            updates: share * 65_536 / 1000, // of 2^16 chances
        }
    }

    #[inline(always)]
    fn step(&mut self, list: &impl SweepImpl) {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        if self.random & 0xFFFF >= self.updates {
            black_box(list.read());
            return;
        }
        let element = black_box(self.first + self.turn / 2 % OWN);
        let add = self.turn.is_multiple_of(2);
        self.turn = self.turn.wrapping_add(1);
        list.update(if add { ListOp::Add(element) } else { ListOp::Remove(element) });
    }
}

impl<S: SweepImpl> Subject for Sweep<S> {
    fn work(&self, index: usize, control: &Control) -> Tally {
        let mut worker = Worker::new(index, self.shape.share);
        let begin = Instant::now();
        while begin.elapsed() < self.shape.warm_up {
            (0..BATCH).for_each(|_| worker.step(&self.list));
        }
        control.drive(|| {
            for _ in 0..BATCH {
                worker.step(&self.list);
            }
            BATCH
        })
    }
}

/// The table's row for an implementation.
const fn entry<S: SweepImpl>(name: &'static str, kind: Kind, about: &'static str) -> Entry<Shape> {
    Entry {
        name,
        kind,
        about,
        threads_max: usize::MAX,
        build: |shape| Box::new(Sweep { list: S::new(shape.list()), shape }),
        conform: || conform::<S>(3),
    }
}

/// Every implementation.
pub static ENTRIES: &[Entry<Shape>] = &[
    Entry {
        conform: || conform::<rivals::Unshared>(1),
        ..entry::<rivals::Unshared>("unshared", Kind::Baseline, "the list of one thread, no lock")
    },
    entry::<rivals::StdMutex>("mutex", Kind::Rival, "std Mutex around the list"),
    entry::<rivals::ParkMutex>("parking_lot", Kind::Rival, "parking_lot Mutex around the list"),
    entry::<rivals::FlatCombining>("lamlock", Kind::Rival, "flat-combining lock around the list"),
    entry::<rivals::StdRwLock>("rwlock", Kind::Rival, "std RwLock around the list"),
    entry::<rivals::ParkRwLock>("pl-rwlock", Kind::Rival, "parking_lot RwLock around the list"),
    entry::<ours::Free>("adaptive", Kind::Ours, "Adaptive, by its own policy"),
    entry::<ours::Direct>("direct", Kind::Ours, "Adaptive, pinned to a lock"),
    entry::<ours::Logs>("logs", Kind::Ours, "Adaptive, pinned to logs"),
    entry::<ours::Shared>("shared", Kind::Ours, "Adaptive, pinned to readers side by side"),
    entry::<ours::Auto>("deferred", Kind::Ours, "Deferred: a lock until logs pay"),
    entry::<ours::Br>("big-reader", Kind::Ours, "BrLock around the list"),
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
    let chosen = choose("adaptive-sweep", ENTRIES, &options.impls)?;
    let SweepOptions { shares, elements } = options.own.get();
    let shares = if shares.is_empty() { SHARES.to_vec() } else { shares };
    let elements = if elements.is_empty() { vec![0] } else { elements };
    let settings: Vec<_> = elements
        .iter()
        .flat_map(|count| shares.iter().map(move |share| (*count, *share)))
        .collect();
    let mut groups = Vec::new();
    for &threads in &options.threads {
        for &(elements, share) in &settings {
            let percent = share as f64 / 10.0;
            let warm_up = options.warm_up;
            let shape = |threads| Shape { threads, share, elements, warm_up };
            let (cases, left_out) = cases(&chosen, threads, shape);
            groups.push(Group {
                bench: "adaptive-sweep",
                title: format!(
                    "{}, {percent} % updates, {elements} elements that stay",
                    threads_word(threads)
                ),
                params: options.params([("update", percent.into()), ("elements", elements.into())]),
                metrics: METRICS.to_vec(),
                cases,
                left_out,
            });
        }
    }
    Ok(groups)
}

/// What each thread has put in is there, and nothing else.
fn conform<S: SweepImpl>(threads: usize) -> Result<(), String> {
    const STEPS: u32 = 2_000;
    let list = &S::new(ElementList::with_limit(threads as u32 * OWN));
    thread::scope(|scope| {
        for index in 0..threads as u32 {
            scope.spawn(move || {
                for step in 0..STEPS {
                    let element = index * OWN + step % OWN;
                    list.update(ListOp::Add(element));
                    if list.read() >> 32 == 0 {
                        return; // what is left in the end tells
                    }
                    list.update(ListOp::Remove(element));
                }
                list.update(ListOp::Add(index * OWN + 1));
            });
        }
    });
    let expected: u64 =
        (0..threads as u64).map(|index| (1 << 32) + index * u64::from(OWN) + 1).sum();
    let seen = list.read();
    if seen == expected { Ok(()) } else { Err(format!("a walk saw {seen:#x}, not {expected:#x}")) }
}
