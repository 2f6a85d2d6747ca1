//! One counted reference that all threads clone and drop (the dcache reference count of K42 and
//! ParSec in its simplest form).
//!
//! Owns: the traits that every counted reference implements, the loop, and the table.
//!
//! Each thread has its own reference to one shared value. An operation takes one more reference,
//! reads a word through it, and drops it.

mod ours;
mod papers;
mod rivals;

use std::{
    hint::black_box,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    thread,
};

use crate::{
    counter::nanos_per_op,
    row::Kind,
    runner::{Control, Group, Metric, Subject, Tally, total_rate},
    workload::{Entry, Options, UnknownImpl, groups_of},
};

/// Operations between two looks at the stop flag.
const BATCH: u64 = 64;

/// What is shared: a word, and a note of its end.
#[derive(Debug)]
pub struct Value {
    /// The word that is read.
    pub word: u64,
    ended: &'static AtomicU64,
}

impl Value {
    /// A value that counts its end there.
    pub fn new(word: u64, ended: &'static AtomicU64) -> Self {
        Self { word, ended }
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        // ORDER: Relaxed; read after the threads' join.
        self.ended.fetch_add(1, Relaxed);
    }
}

/// A counted reference to a shared value.
pub trait CountedImpl: Sync + Sized + 'static {
    /// What one thread works through.
    type Handle<'a>: CountedHandle;

    /// The first reference.
    fn new(value: Value) -> Self;

    /// The reference of a thread, made by that thread.
    fn handle(&self) -> Self::Handle<'_>;
}

/// One thread's reference.
pub trait CountedHandle {
    /// Takes one more reference, reads the word through it, and lets it go.
    fn pair(&mut self) -> u64;
}

struct Shared<C> {
    counted: C,
}

impl<C: CountedImpl> Subject for Shared<C> {
    fn work(&self, _: usize, control: &Control) -> Tally {
        let mut handle = self.counted.handle();
        control.drive(|| {
            for _ in 0..BATCH {
                black_box(handle.pair());
            }
            BATCH
        })
    }
}

/// Where the ends of measured values are counted.
static ENDED: AtomicU64 = AtomicU64::new(0);

/// The table's row for a counted reference.
const fn entry<C: CountedImpl>(name: &'static str, about: &'static str) -> Entry<()> {
    Entry {
        name,
        kind: Kind::Rival,
        about,
        threads_max: usize::MAX,
        build: |()| Box::new(Shared { counted: C::new(Value::new(7, &ENDED)) }),
        conform: || conform::<C>(3),
    }
}

/// Every implementation.
pub static ENTRIES: &[Entry<()>] = &[
    Entry {
        kind: Kind::Baseline,
        conform: || conform::<rivals::Unshared>(1),
        ..entry::<rivals::Unshared>("unshared", "std Rc, owned by one thread")
    },
    Entry {
        kind: Kind::Ours,
        ..entry::<ours::Auto>("scalable-arc", "ScalableArc: one word until threads contend")
    },
    Entry {
        kind: Kind::Ours,
        ..entry::<ours::Hot>("scalable-arc-hot", "ScalableArc, hot from the start")
    },
    entry::<rivals::StdArc>("arc", "std Arc"),
    entry::<rivals::Triomphe>("triomphe", "triomphe Arc: no weak count"),
    entry::<rivals::Swapped>("arc-swap", "arc-swap, a load: borrowed with a debt where it can"),
    Entry {
        kind: Kind::ByHand,
        ..entry::<papers::Snzi>(
            "snzi",
            "SNZI, written for this: a tree that says whether there is one",
        )
    },
    Entry {
        kind: Kind::ByHand,
        ..entry::<papers::Refcache>(
            "refcache",
            "Refcache, written for this: changes are kept apart",
        )
    },
];

const METRICS: [Metric; 2] = [
    Metric { name: "throughput", unit: "Mpairs/s", of: |tallies| total_rate(tallies) / 1e6 },
    Metric { name: "latency", unit: "ns/pair", of: nanos_per_op },
];

/// The groups for some options: one for each thread count.
///
/// # Errors
/// If an implementation is unknown.
pub fn groups(options: &Options) -> Result<Vec<Group>, UnknownImpl> {
    groups_of(
        ("arc", ENTRIES, &METRICS),
        options,
        &[()],
        |()| (", clone and drop".to_owned(), []),
        |_, ()| (),
    )
}

/// The word is always there while a thread has a reference; the value ends once, with the last.
fn conform<C: CountedImpl>(threads: usize) -> Result<(), String> {
    let ended: &'static AtomicU64 = Box::leak(Box::default());
    let first = C::new(Value::new(42, ended));
    let counted = &first;
    thread::scope(|scope| {
        let start = |_| {
            scope.spawn(|| {
                for _ in 0..50 {
                    let mut handle = counted.handle();
                    let right = (0..100).all(|_| handle.pair() == 42);
                    if !right || ended.load(Relaxed) > 0 {
                        return Err("the value ended under a reference".to_owned());
                    }
                }
                Ok(())
            })
        };
        let started: Vec<_> = (0..threads).map(start).collect();
        started.into_iter().try_for_each(|t| t.join().map_err(|_| "a thread panicked")?)
    })?;
    drop(first);
    match ended.load(Relaxed) {
        1 => Ok(()),
        times => Err(format!("the value ended {times} times")),
    }
}
