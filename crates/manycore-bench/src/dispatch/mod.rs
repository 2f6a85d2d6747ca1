//! The cost of reaching an object: one method call, by every way of sharing an implementation (K42,
//! section 3.3: no more than a virtual call).
//!
//! Owns: the traits, the loop, and the table. The method reads one word of the implementation and
//! writes none, so the figure is the cost of the way there. Each result is the next argument.

mod ours;
mod rivals;

use std::{hint::black_box, thread};

use crate::{
    counter::nanos_per_op,
    row::Kind,
    runner::{Control, Group, Metric, Subject, Tally, total_rate},
    workload::{Entry, Options, UnknownImpl, groups_of},
};

/// Calls between two looks at the stop flag.
const BATCH: u64 = 64;

/// The object's interface.
pub trait Step: Send + Sync {
    /// The next number.
    fn step(&self, number: u64) -> u64;
}

/// An implementation: adds what it holds.
#[derive(Debug)]
pub struct Adder(pub u64);

impl Step for Adder {
    #[inline(never)]
    fn step(&self, number: u64) -> u64 {
        number + self.0
    }
}

/// Another, so that no compiler takes the first for the only one.
#[derive(Debug)]
pub struct Turner(pub u64);

impl Step for Turner {
    #[inline(never)]
    fn step(&self, number: u64) -> u64 {
        number ^ self.0
    }
}

/// An implementation that the compiler cannot know.
pub fn any(add: u64) -> Box<dyn Step> {
    if black_box(add) > 0 { Box::new(Adder(add)) } else { Box::new(Turner(add)) }
}

/// A way to share an implementation.
pub trait WayImpl: Sync + Sized + 'static {
    /// An object that adds so much.
    fn new(add: u64) -> Self;

    /// Calls the method.
    fn step(&self, number: u64) -> u64;
}

struct Shared<W> {
    way: W,
}

impl<W: WayImpl> Subject for Shared<W> {
    fn work(&self, _: usize, control: &Control) -> Tally {
        let mut number = 0;
        control.drive(|| {
            for _ in 0..BATCH {
                number = self.way.step(number);
            }
            black_box(number);
            BATCH
        })
    }
}

/// The table's row for a way.
const fn entry<W: WayImpl>(name: &'static str, about: &'static str) -> Entry<()> {
    Entry::new(name, Kind::Rival, about, |()| Box::new(Shared { way: W::new(1) }), conform::<W>)
}

/// Every way.
pub static ENTRIES: &[Entry<()>] = &[
    Entry {
        kind: Kind::Baseline,
        ..entry::<rivals::Direct>("direct", "a call of a known function, one thread")
    },
    Entry {
        kind: Kind::Ours,
        ..entry::<ours::PerThread>("clustered", "Clustered, a representative for each thread")
    },
    Entry {
        kind: Kind::Ours,
        ..entry::<ours::PerLlc>("clustered-llc", "Clustered, one for each last-level cache")
    },
    Entry {
        kind: Kind::Ours,
        ..entry::<ours::Exchangeable>("swappable", "Swappable: may be exchanged at any time")
    },
    entry::<rivals::Virtual>("dyn", "a call through a dyn reference, shared by all"),
    entry::<rivals::Swapped>("arc-swap", "arc-swap, a load and a dyn call"),
    entry::<rivals::StdRwLock>("rwlock", "std RwLock around the dyn"),
    entry::<rivals::StdMutex>("mutex", "std Mutex around the dyn"),
];

const METRICS: [Metric; 2] = [
    Metric { name: "latency", unit: "ns/call", of: nanos_per_op },
    Metric { name: "throughput", unit: "Mcalls/s", of: |tallies| total_rate(tallies) / 1e6 },
];

/// The groups for some options: one for each thread count.
///
/// # Errors
/// If an implementation is unknown.
pub fn groups(options: &Options) -> Result<Vec<Group>, UnknownImpl> {
    groups_of(
        ("dispatch", ENTRIES, &METRICS),
        options,
        &[()],
        |()| (", one call".to_owned(), []),
        |_, ()| (),
    )
}

/// Every thread's calls reach an implementation that adds what it should.
fn conform<W: WayImpl>() -> Result<(), String> {
    let way = &W::new(3);
    thread::scope(|scope| {
        let start = |_| scope.spawn(|| (0..100).fold(0, |number, _| way.step(number)));
        let started: Vec<_> = (0..3).map(start).collect();
        started.into_iter().try_for_each(|thread| match thread.join() {
            Ok(300) => Ok(()),
            Ok(other) => Err(format!("100 calls came to {other}")),
            Err(_) => Err("a thread panicked".to_owned()),
        })
    })
}
