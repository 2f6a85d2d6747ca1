//! `stat` on one path from every thread: entries of a directory cache are found, referenced, read
//! and released (OpLog, section 3, figure 3).
//!
//! Owns: the trait that every cache implements, the loop, and the table of implementations.
//!
//! A path has [`DEPTH`] entries, the same for all threads. Each entry is a name and a parent, and a
//! renaming changes it. A use of an entry reads its generation, its name and its parent, takes a
//! reference, and checks that the generation is unchanged. If it has changed, the use is retried,
//! as in a seqlock. The search for the name is left out, because it is the same for all.
//!
//! With `--work`, that many ticks of other work follow each path. A server that answers requests
//! (figure 9) is in the file `http`.

mod http;
mod ours;
mod rivals;

use std::{
    array,
    hint::black_box,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
};

use crate::{
    counter::nanos_per_op,
    row::Kind,
    runner::{Control, Group, Metric, Subject, Tally, total_rate},
    ticks::spin,
    workload::{Entry, Options, UnknownImpl, groups_of},
};

/// Entries of the path.
pub const DEPTH: usize = 3;

/// Operations between two looks at the stop flag.
const BATCH: u64 = 64;

/// An entry of a directory cache, with its reference count.
pub trait Dentry: Sync + Sized + 'static {
    /// An entry of this name and this parent.
    fn new(word: u64) -> Self;

    /// Name and parent, as they were when a reference was taken that has been given back by now.
    fn stat(&self) -> [u64; 2];

    /// Gives it another name and another parent. One thread does that.
    fn rename(&self, word: u64);
}

/// What a subject is built from.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    work: u64,
}

struct Path<D> {
    entries: [D; DEPTH],
    shape: Shape,
}

impl<D: Dentry> Path<D> {
    fn new(shape: Shape) -> Self {
        Self { entries: array::from_fn(|depth| D::new(depth as u64)), shape }
    }
}

impl<D: Dentry> Subject for Path<D> {
    fn work(&self, _: usize, control: &Control) -> Tally {
        let ticks = self.shape.work;
        // With work around each path, a look at the flag for each costs nothing.
        let batch = if ticks == 0 { BATCH } else { 1 };
        control.drive(|| {
            for _ in 0..batch {
                for entry in &self.entries {
                    black_box(entry.stat());
                }
                spin(ticks);
            }
            batch
        })
    }
}

/// The table's rows, of what `$row` makes of an entry's type.
macro_rules! rows {
    ($row:ident) => {
        &[
            $row::<rivals::Uncounted>("left_out", Kind::Baseline, "the generation, no reference"),
            $row::<ours::Auto>("scalable", Kind::Ours, "ScalableWeak: rows under contention"),
            $row::<ours::Hot>("scalable-hot", Kind::Ours, "the same, hot from the start"),
            $row::<rivals::Locked>("mutex", Kind::Rival, "a Mutex around the count, as d_lock"),
            $row::<rivals::Exchange>("cas", Kind::Rival, "generation and count in one word"),
            $row::<rivals::Weak>("arc", Kind::Rival, "std Weak, upgraded, and a generation"),
        ]
    };
}

const fn stat<D: Dentry>(name: &'static str, kind: Kind, about: &'static str) -> Entry<Shape> {
    Entry::new(name, kind, about, |shape| Box::new(Path::<D>::new(shape)), conform::<D>)
}

const fn served<D: Dentry>(name: &'static str, kind: Kind, about: &'static str) -> Entry<()> {
    Entry::new(name, kind, about, |()| Box::new(http::Tree::<D>::new()), http::conform::<D>)
}

/// Every implementation.
pub static ENTRIES: &[Entry<Shape>] = rows!(stat);

/// Every implementation, behind a server.
pub static SERVERS: &[Entry<()>] = rows!(served);

const METRICS: [Metric; 2] = [
    Metric { name: "throughput", unit: "Mpaths/s", of: |tallies| total_rate(tallies) / 1e6 },
    Metric { name: "latency", unit: "ns/path", of: nanos_per_op },
];

/// The groups for some options: one for each thread count.
///
/// # Errors
/// If an implementation is unknown.
pub fn groups(options: &Options) -> Result<Vec<Group>, UnknownImpl> {
    groups_of(
        ("stat", ENTRIES, &METRICS),
        options,
        &[options.work],
        |work| {
            let params = [("depth", DEPTH.into()), ("work", work.into())];
            (format!(", a path of {DEPTH}"), params)
        },
        |_, work| Shape { work },
    )
}

const REQUESTS: [Metric; 2] = [
    Metric { name: "throughput", unit: "Mrequests/s", of: |tallies| total_rate(tallies) / 1e6 },
    Metric { name: "latency", unit: "ns/request", of: nanos_per_op },
];

/// The groups of `http`: one for each thread count.
///
/// # Errors
/// If an implementation is unknown.
pub fn servers(options: &Options) -> Result<Vec<Group>, UnknownImpl> {
    let describe = |()| (", each a server and a client".to_owned(), []);
    groups_of(("http", SERVERS, &REQUESTS), options, &[()], describe, |_, ()| ())
}

/// No thread gets a reference to half a renaming.
fn conform<D: Dentry>() -> Result<(), String> {
    let (entry, stop) = (&D::new(0), &AtomicBool::new(false));
    let look = || {
        let mut last = 0;
        while !stop.load(Relaxed) {
            let [name, parent] = entry.stat();
            if name != parent || name < last {
                return Err(format!("name {name} with parent {parent} after {last}"));
            }
            last = name;
        }
        Ok(())
    };
    thread::scope(|scope| {
        let started = [scope.spawn(look), scope.spawn(look)];
        for word in 1..2_000 {
            entry.rename(word);
            if word % 16 == 0 {
                thread::yield_now();
            }
        }
        stop.store(true, Relaxed);
        started.into_iter().try_for_each(|t| t.join().map_err(|_| "a thread panicked")?)
    })?;
    (entry.stat() == [1_999; 2]).then_some(()).ok_or_else(|| "a renaming was lost".to_owned())
}
