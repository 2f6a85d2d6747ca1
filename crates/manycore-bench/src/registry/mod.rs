//! A registry of live entries (OpLog: the list of open files). Threads register an entry and drop
//! it again; now and then a thread walks over all entries.
//!
//! Owns: the traits that every registry implements, the loop, and the table of implementations.
//!
//! One registration and its end are one operation. With `--read-every k` a thread walks after every
//! k of its own operations. It walks while one of its own entries is registered, so a walk always
//! finds some. The value of an entry is one word, which the walk reads.

mod ours;
mod rivals;

use std::{collections::BTreeMap, hint::black_box, thread};

use crate::{
    list::reads_word,
    row::Kind,
    runner::{Control, Group, Metric, Subject, Tally, total_rate},
    ticks::spin,
    workload::{Entry, Options, Shape, UnknownImpl, groups_by_reads},
};

/// Pairs between two looks at the stop flag.
const BATCH: u64 = 16;

/// A registry of words.
pub trait RegistryImpl: Sync + Sized + 'static {
    /// What one thread works through.
    type Handle<'a>: RegistryHandle;

    /// An empty registry for this many threads.
    fn new(threads: usize) -> Self;

    /// The handle of a thread, made by that thread.
    fn handle(&self, thread: usize) -> Self::Handle<'_>;
}

/// One thread's way to the registry.
pub trait RegistryHandle {
    /// What keeps an entry registered.
    type Entry;

    /// Registers a value.
    fn register(&mut self, value: u64) -> Self::Entry;

    /// Ends a registration.
    fn unregister(&mut self, entry: Self::Entry);

    /// Calls `f` with every registered value.
    fn for_each(&mut self, f: impl FnMut(u64));
}

struct RegistrySubject<R> {
    registry: R,
    shape: Shape,
}

impl<R: RegistryImpl> Subject for RegistrySubject<R> {
    fn work(&self, index: usize, control: &Control) -> Tally {
        let Shape { read_every, spin: ticks, .. } = self.shape;
        let mut handle = self.registry.handle(index);
        let mut until_read = read_every.countdown();
        control.drive(|| {
            for _ in 0..BATCH {
                let entry = handle.register(black_box(index as u64));
                spin(ticks);
                until_read -= 1;
                if until_read == 0 {
                    let mut digest = 0_u64;
                    handle.for_each(|value| digest = digest.wrapping_add((1 << 32) | value));
                    black_box(digest);
                    until_read = read_every.countdown();
                }
                handle.unregister(entry);
                spin(ticks);
            }
            BATCH
        })
    }
}

/// The table's row for an implementation.
const fn entry<R: RegistryImpl>(
    name: &'static str,
    kind: Kind,
    about: &'static str,
) -> Entry<Shape> {
    Entry::new(
        name,
        kind,
        about,
        |shape| Box::new(RegistrySubject { registry: R::new(shape.threads), shape }),
        || conform::<R>(3),
    )
}

/// Every implementation.
pub static ENTRIES: &[Entry<Shape>] = &[
    Entry {
        conform: || conform::<rivals::Unshared>(1),
        ..entry::<rivals::Unshared>("unshared", Kind::Baseline, "a slab, owned by one thread")
    },
    entry::<rivals::MutexMap>("mutex-map", Kind::Rival, "HashMap behind std's Mutex"),
    entry::<rivals::MutexSlab>("mutex-slab", Kind::Rival, "a slab behind std's Mutex"),
    entry::<rivals::ParkingLotSlab>(
        "parking_lot-slab",
        Kind::Rival,
        "a slab behind parking_lot's Mutex",
    ),
    entry::<rivals::HandSharded>(
        "hand-sharded",
        Kind::ByHand,
        "one padded Mutex and slab per thread, by hand; a walk locks one after the other",
    ),
    entry::<rivals::Scc>("scc", Kind::Rival, "scc HashMap; a walk is no snapshot"),
    entry::<rivals::Papaya>("papaya", Kind::Rival, "papaya HashMap; a walk is no snapshot"),
    entry::<ours::Auto>("registry", Kind::Ours, "Registry: one locked list until threads contend"),
    entry::<ours::Logged>(
        "registry-hot",
        Kind::Ours,
        "Registry with a log for each thread at once",
    ),
    entry::<ours::Marked<false>>(
        "registry-marks",
        Kind::Ours,
        "Registry with marks, a queue for each thread",
    ),
    entry::<ours::Marked<true>>(
        "registry-marks-global",
        Kind::Ours,
        "Registry with marks, one queue for all",
    ),
];

const METRIC: Metric =
    Metric { name: "throughput", unit: "pairs/ms", of: |tallies| total_rate(tallies) / 1e3 };

/// The groups for some options: one for each thread count and walking rate.
///
/// # Errors
/// If an implementation is unknown.
pub fn groups(options: &Options) -> Result<Vec<Group>, UnknownImpl> {
    groups_by_reads("registry", ENTRIES, METRIC, options, |read_every| {
        reads_word(read_every, "pairs")
    })
}

/// A walk sees exactly the thread's own living entries among its own; at the end nothing is left.
fn conform<R: RegistryImpl>(threads: usize) -> Result<(), String> {
    let registry = &R::new(threads);
    let mut own = registry.handle(0);
    thread::scope(|scope| {
        let start = |index| scope.spawn(move || churn(&mut registry.handle(index), index as u64));
        let others: Vec<_> = (1..threads).map(start).collect();
        churn(&mut own, 0)?;
        for other in others {
            other.join().map_err(|_| "a thread panicked")??;
        }
        Ok::<_, String>(())
    })?;
    let mut left = Vec::new();
    own.for_each(|value| left.push(value));
    if left.is_empty() { Ok(()) } else { Err(format!("{left:?} were left at the end")) }
}

fn churn(handle: &mut impl RegistryHandle, thread: u64) -> Result<(), String> {
    let mut alive = BTreeMap::new();
    let mut random = 0x9E37_79B9_u32.wrapping_add(thread as u32);
    for step in 0..2_000_u64 {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        if random >> 31 == 0 || alive.is_empty() {
            let value = thread << 32 | step;
            alive.insert(value, handle.register(value));
        } else if let Some((_, entry)) = alive.pop_first() {
            handle.unregister(entry);
        }
        if random % 16 < 2 {
            let mut seen = Vec::new();
            handle.for_each(|value| seen.push(value));
            seen.retain(|value| value >> 32 == thread);
            seen.sort_unstable();
            if !seen.iter().eq(alive.keys()) {
                return Err(format!("a walk saw {seen:?} of {:?}", alive.keys()));
            }
        }
    }
    alive.into_values().for_each(|entry| handle.unregister(entry));
    Ok(())
}
