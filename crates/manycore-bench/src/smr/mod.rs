//! Safe memory reclamation: readers go through a table of nodes while other threads replace them
//! (ParSec, section 5.1, figures 4 to 6).
//!
//! Owns: the traits that every scheme implements, and the table of implementations.
//!
//! The table has [`SLOTS`] pointers, each to a node of 64 bytes. A *read* is a section: enter and
//! leave with nothing between, as in the paper (`--read empty`), or with one word of a slot's node
//! read inside (`--read node`). A scheme that guards single pointers instead of sections (hazard
//! pointers) protects the slot's node and releases it. An *update* allocates a node, swaps it into
//! a slot, and retires the one that was there. Words that a scheme makes its users embed are part
//! of the 64 bytes; what it allocates besides is not.
//!
//! Each of these is measured in runs of its own (`params.pass`):
//!
//! 1. *section*: enter and leave in a loop.
//! 2. *rate*: a trace of `--ops` operations, made beforehand, of which each thread does its part.
//!    The first thread to finish ends the run, so no thread works alone. Nothing is timed inside.
//! 3. *times*: the same trace, with each operation timed by itself. The results are quantiles over
//!    all operations and, without the price of timing, the mean of reads and of updates. The
//!    greatest number of nodes that were retired and not yet freed is sampled here, after each 64
//!    updates.
//! 4. *stall* (`--stall`, instead of the others): a reader stays in its section while other threads
//!    update; the file `stall.rs` has the details.
//!
//! Not here: read-log-update, and Citrus, a tree over RCU. In Rust we found only `stronghold-rlu`
//! (2020 to 2022) and two small projects for the first, and nothing for the second.
//!
//! Limits of the library's sections, on two cores of a Xeon in November 2026:
//!
//! - With `--update 0` they have 1.5 to 1.7 times the rate of kovan, the fastest Rust crate. The
//!   loop alone takes 0.7 to 0.9 ns an operation (`unshared` has nothing inside), kovan 3.1. A
//!   section is two stores and ten instructions more than the loop.
//! - With `--update 90` they have 1.8 to 2.2 times the rate of Concurrency Kit and liburcu when the
//!   C library's `malloc` is slow. All of those wait for it.
//! - With `--stall`, `section-epoch` takes 0.2 to 0.6 s to drain 470 to 840 MB: the speed of
//!   `free`. `section`, the default, has 0.6 MB a thread waiting, and nothing to drain.

#[cfg(feature = "c-rivals")]
mod c;
mod conform;
mod epochs;
mod eras;
mod locks;
mod node;
mod ours;
mod parsec;
mod passes;
mod pointers;
mod slots;
mod stall;
mod trace;
mod urcu;

use std::{fmt, hint::black_box, str::FromStr, time::Duration};

pub use node::{Counts, NODE_BYTES, Node, Payload};
pub use trace::{Op, SLOTS, Trace};

use crate::{
    counter::nanos_per_op,
    row::Kind,
    runner::{Group, Metric, Subject, total_rate},
    workload::{Entry, Options, UnknownImpl, cases, choose, threads_word},
};

/// A table of nodes, and a way to reclaim what is taken out of it.
pub trait Scheme: Sync + Sized + 'static {
    /// What one thread works through.
    type Handle<'a>: SchemeHandle;

    /// A full table of [`SLOTS`] nodes whose values are [`value_of`] the slot and number 0.
    fn new(setup: Setup) -> Self;

    /// The handle of a thread, made by that thread.
    fn handle(&self, thread: usize) -> Self::Handle<'_>;

    /// Urges on a collector that outlives its tables. Called when table and handles are gone.
    fn settle() {}
}

/// One thread's way to the table.
pub trait SchemeHandle {
    /// Enters a section and leaves it. A scheme without sections protects the slot's node, without
    /// a look at it.
    fn empty(&mut self, slot: usize);

    /// The value of the slot's node, read inside a section.
    fn read(&mut self, slot: usize) -> u64;

    /// Puts a new node into the slot and retires the old one.
    fn update(&mut self, slot: usize, value: u64);

    /// Calls `inside` within a section, with the slot's node.
    fn hold(&mut self, slot: usize, inside: &mut dyn FnMut(&Payload));

    /// Called now and then outside of sections, for schemes that must be told so.
    #[inline(always)]
    fn rest(&mut self) {}

    /// Frees what can be freed, as a program does that has nothing else to do.
    fn flush(&mut self) {}

    /// Waits outside of sections, for long.
    fn idle(&mut self, wait: &mut dyn FnMut()) {
        self.flush();
        wait();
    }

    /// Does some operations; `number` numbers the updates. Returns a digest of what was read.
    #[inline]
    fn run(&mut self, ops: &[Op], read: Read, number: &mut u64) -> u64 {
        let mut digest = 0;
        for &op in ops {
            if op.is_update() {
                *number += 1;
                self.update(op.slot(), value_of(op.slot(), *number));
            } else if read == Read::Node {
                digest ^= self.read(op.slot());
            } else {
                self.empty(op.slot());
            }
        }
        digest
    }

    /// Enters and leaves so many sections.
    #[inline]
    fn sections(&mut self, slot: usize, count: u64) {
        for _ in 0..count {
            self.empty(black_box(slot));
        }
    }
}

/// What a scheme is built from.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// How many threads will take a handle.
    pub threads: usize,
    /// The counts of nodes.
    pub counts: &'static Counts,
}

impl Setup {
    /// What the table holds at first, made by `node`.
    fn table<N>(self, node: impl Fn(u64, &'static Counts) -> N) -> Box<[N]> {
        (0..SLOTS).map(|slot| node(value_of(slot, 0), self.counts)).collect()
    }
}

/// Bits of a value that number the update; the slot is above them.
const NUMBER_BITS: u32 = 48;

/// The value for that slot and that number, which tells in its upper bits where it belongs.
#[inline(always)]
pub fn value_of(slot: usize, number: u64) -> u64 {
    (slot as u64) << NUMBER_BITS | number
}

/// What happens inside a read's section.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Read {
    /// Nothing.
    #[default]
    Empty,
    /// One word of a node is read.
    Node,
}

impl fmt::Display for Read {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Read::Node { "node" } else { "empty" })
    }
}

impl FromStr for Read {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "empty" => Ok(Read::Empty),
            "node" => Ok(Read::Node),
            _ => Err("say 'empty' or 'node'"),
        }
    }
}

/// What is asked of this workload alone.
#[derive(Clone, Copy, Debug, Default)]
pub struct SmrOptions {
    /// What a read does.
    pub read: Read,
    /// How long a reader stays in its section, if that is to be measured.
    pub stall: Option<Duration>,
    /// The most time for one run, if not the whole trace.
    pub at_most: Option<Duration>,
}

/// What a subject is built from.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    threads: usize,
    ops: usize,
    update: u8,
    read: Read,
    at_most: Option<Duration>,
    pass: Pass,
}

/// What is measured in a run.
#[derive(Clone, Copy, Debug)]
enum Pass {
    Section,
    Rate,
    Times,
    Stall(Duration),
}

fn build<S: Scheme>(shape: Shape) -> Box<dyn Subject> {
    match shape.pass {
        Pass::Section => Box::new(passes::Sections::<S>::new(shape)),
        Pass::Rate => Box::new(passes::Rate::<S>::new(shape)),
        Pass::Times => Box::new(passes::Times::<S>::new(shape)),
        Pass::Stall(length) => Box::new(stall::Stall::<S>::new(shape.threads, length)),
    }
}

/// The table's row for a scheme.
const fn entry<S: Scheme>(name: &'static str, about: &'static str) -> Entry<Shape> {
    Entry::new(name, Kind::Rival, about, build::<S>, || conform::run::<S>(3))
}

/// Of a table behind one of the library's locks.
const fn by_hand<S: Scheme>(name: &'static str, about: &'static str) -> Entry<Shape> {
    Entry { kind: Kind::ByHand, ..entry::<S>(name, about) }
}

/// Every implementation.
pub static ENTRIES: &[Entry<Shape>] = &[
    Entry {
        kind: Kind::Baseline,
        conform: || conform::run::<locks::Unshared>(1),
        ..entry::<locks::Unshared>("unshared", "a table of one thread's own; freed at once")
    },
    entry::<locks::StdMutex>("mutex", "std Mutex around the table; freed at once"),
    entry::<locks::StdRwLock>("rwlock", "std RwLock around the table; freed at once"),
    by_hand::<locks::Br>("brlock", "manycore's BrLock around the table; freed at once"),
    by_hand::<locks::Mcs>("mcs", "manycore's McsLock, a queue lock; freed at once"),
    entry::<pointers::ArcSwapped>("arc-swap", "each slot an ArcSwap; an empty read is a load"),
    entry::<pointers::Hazard>("haphazard", "hazard pointers, one kept by each thread"),
    entry::<epochs::Crossbeam>("crossbeam-epoch", "epochs; a collector and handles of its own"),
    entry::<epochs::Flize>("flize", "epochs with an asymmetric fence, through a thread's local"),
    entry::<epochs::Sdd>("sdd", "epochs, through the thread's guard"),
    entry::<urcu::Urcu>("urcu", "user-space RCU with full fences, a port; an update waits"),
    entry::<parsec::Parsec<0>>("parsec-0", "ParSec, a port, without its four optimisations"),
    entry::<parsec::Parsec<1>>("parsec-1", "... a section's end does not read the clock"),
    entry::<parsec::Parsec<2>>("parsec-2", "... and threads share what they found quiescent"),
    entry::<parsec::Parsec<3>>("parsec-3", "... and remember it of each other thread"),
    entry::<parsec::Parsec<4>>("parsec-4", "... and begin their looks at different threads"),
    entry::<eras::Seize>(SEIZE, "batches counted by reference (Hyaline)"),
    entry::<eras::SeizePortable>("seize-0.4-portable", "seize before, built with its full fence"),
    entry::<eras::Kovan>("kovan", "batches counted by reference, with eras; bounded"),
    #[cfg(feature = "c-rivals")]
    native::<c::MembCall>("urcu-memb", "liburcu with membarrier; call_rcu and its helper thread"),
    #[cfg(feature = "c-rivals")]
    native::<c::MembDefer>(
        "urcu-memb-defer",
        "the same with defer_rcu: waits when a queue is full",
    ),
    #[cfg(feature = "c-rivals")]
    native::<c::MbCall>("urcu-mb", "liburcu with full fences; call_rcu"),
    #[cfg(feature = "c-rivals")]
    native::<c::MbDefer>("urcu-mb-defer", "the same with defer_rcu"),
    #[cfg(feature = "c-rivals")]
    native::<c::QsbrCall>(
        "urcu-qsbr",
        "liburcu, told by the program when a thread rests; call_rcu",
    ),
    #[cfg(feature = "c-rivals")]
    native::<c::QsbrDefer>("urcu-qsbr-defer", "the same with defer_rcu"),
    #[cfg(feature = "c-rivals")]
    native::<c::BpCall>("urcu-bp", "liburcu, no registration of threads; call_rcu"),
    #[cfg(feature = "c-rivals")]
    native::<c::BpDefer>("urcu-bp-defer", "the same with defer_rcu"),
    #[cfg(feature = "c-rivals")]
    native::<c::CkEpoch>("ck-epoch", "Concurrency Kit's epochs, polled after each 64 updates"),
    #[cfg(feature = "c-rivals")]
    native::<c::CkBrlock>("ck-brlock", "Concurrency Kit's big-reader lock; freed at once"),
    #[cfg(feature = "c-rivals")]
    native::<c::CkMcs>("ck-mcs", "Concurrency Kit's queue lock (MCS); freed at once"),
    ours::<ours::Bounded>("section", "sections as they come: eras, and nodes that know theirs"),
    ours::<ours::Epoch>("section-epoch", "sections with eras alone: a stalled reader is unbounded"),
    #[cfg(feature = "c-rivals")]
    Entry {
        kind: Kind::Ours,
        ..native::<c::OwnC>("section-c", "sections with eras as C programs have them")
    },
    #[cfg(feature = "c-rivals")]
    Entry {
        kind: Kind::Ours,
        ..native::<c::OwnQuiescentC>(
            "section-c-quiescent",
            "the same, told by the program when a thread rests, as urcu-qsbr",
        )
    },
];

/// The table's row for the library's sections.
const fn ours<M: ours::Setting>(name: &'static str, about: &'static str) -> Entry<Shape> {
    Entry { kind: Kind::Ours, ..entry::<ours::Sections<M>>(name, about) }
}

/// The table's row for a library written in C.
#[cfg(feature = "c-rivals")]
const fn native<L: c::Library>(name: &'static str, about: &'static str) -> Entry<Shape> {
    // Two threads: three that spin for a lock on two cores wait for each other's time slices.
    Entry { conform: || conform::run::<c::Native<L>>(2), ..entry::<c::Native<L>>(name, about) }
}

/// seize under the name of the fence it was built with.
const SEIZE: &str = if cfg!(feature = "fast-barrier") { "seize" } else { "seize-portable" };

/// The groups for some options: for each thread count the empty section, and for each share of
/// updates the rate and the times; or, if a reader is to stall, that.
///
/// # Errors
/// If an implementation is unknown.
pub fn groups(options: &Options) -> Result<Vec<Group>, UnknownImpl> {
    let chosen = choose("smr", ENTRIES, &options.impls)?;
    let mut groups = Vec::new();
    let mut group = |threads: usize, update: u8, pass: Pass| {
        let (ops, SmrOptions { read, at_most, .. }) = (options.ops, options.own.get());
        let shape = |threads| Shape { threads, ops, update, read, at_most, pass };
        let (cases, left_out) = cases(&chosen, threads, shape);
        let (what, metrics) = pass.plan(update);
        groups.push(Group {
            bench: "smr",
            title: format!("{}, {what}", threads_word(threads)),
            params: pass.params(options, update),
            metrics,
            cases,
            left_out,
        });
    };
    if let Some(length) = options.own.get::<SmrOptions>().stall {
        options.threads.iter().for_each(|&threads| group(threads, 100, Pass::Stall(length)));
        return Ok(groups);
    }
    options.threads.iter().for_each(|&threads| group(threads, 0, Pass::Section));
    for &update in &options.update {
        for &threads in &options.threads {
            group(threads, update, Pass::Rate);
            group(threads, update, Pass::Times);
        }
    }
    Ok(groups)
}

impl Pass {
    /// What a heading says of it, and what it measures.
    fn plan(self, update: u8) -> (String, Vec<Metric>) {
        let reads = (update < 100).then_some(());
        let updates = (update > 0).then_some(());
        let known = |name, unit, of: fn(&[_]) -> f64| Metric { name, unit, of };
        match self {
            Pass::Section => {
                ("an empty section".to_owned(), vec![known("section", "ns/section", nanos_per_op)])
            }
            Pass::Rate => {
                let rate = |name| Metric::of_subject(name, "Mops/s");
                let mut metrics =
                    vec![known("throughput", "Mops/s", |tallies| total_rate(tallies) / 1e6)];
                metrics.extend(reads.map(|()| rate("reads")));
                metrics.extend(updates.map(|()| rate("updates")));
                (format!("{update} % updates"), metrics)
            }
            Pass::Times => {
                let mut metrics: Vec<_> = ["p50", "p99", "p99.9", "max"]
                    .map(|name| Metric::of_subject(name, "ns"))
                    .into();
                metrics.extend(reads.map(|()| Metric::of_subject("read", "ns/op")));
                metrics.extend(updates.map(|()| Metric::of_subject("update", "ns/op")));
                metrics.push(Metric::of_subject("unreclaimed", "nodes"));
                metrics.push(Metric::of_subject("unreclaimed-kb", "kB"));
                (format!("{update} % updates, each operation timed"), metrics)
            }
            Pass::Stall(length) => (
                format!("updating, and a reader that stalls for {} s", length.as_secs_f64()),
                stall::METRICS.map(|(name, unit)| Metric::of_subject(name, unit)).into(),
            ),
        }
    }

    fn params(self, options: &Options, update: u8) -> crate::row::Params {
        let (ops, SmrOptions { read, at_most, .. }) = (options.ops, options.own.get());
        let mut params = options.params([("slots", SLOTS.into())]);
        params.remove("duration_ms");
        let mut say = |key: &str, value: serde_json::Value| params.insert(key.to_owned(), value);
        match self {
            Pass::Section => say("pass", "section".into()),
            Pass::Rate => say("pass", "rate".into()),
            Pass::Times => say("pass", "times".into()),
            Pass::Stall(length) => {
                say("stall_ms", crate::workload::millis(length).into());
                say("pass", "stall".into())
            }
        };
        if matches!(self, Pass::Rate | Pass::Times) {
            say("read", read.to_string().into());
            say("update", update.into());
        }
        if !matches!(self, Pass::Stall(_)) {
            say("ops", ops.into());
            if let Some(at_most) = at_most {
                say("duration_ms", crate::workload::millis(at_most).into());
            }
        }
        params
    }
}
