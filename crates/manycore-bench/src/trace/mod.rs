//! Events with 16 bytes of fields, spans with the same, and events that are switched off.
//!
//! Owns: the trait that every recorder implements, the loop, and the table of implementations.
//!
//! A thread records as fast as it can, so the figure is the thread's cost of one event. Each
//! recorder keeps the time and both fields, in memory or in what it passes to its consumer, which
//! drops it. In a measured run only the recorders whose name says so write to a disk.

mod by_hand;
#[cfg(all(feature = "trace-rivals", target_os = "linux"))]
mod lttng;
mod ours;
#[cfg(feature = "trace-rivals")]
mod rivals;
mod tracing_crate;

use std::{hint::black_box, thread};

use crate::{
    counter::nanos_per_op,
    row::Kind,
    runner::{Control, Group, Metric, Subject, Tally, total_rate},
    workload::{Entry, Options, UnknownImpl, groups_of, threads_word},
};

/// Operations between two looks at the stop flag.
const BATCH: u64 = 64;

/// Bytes that a recorder written by hand, or ours, keeps of each thread.
const RING_BYTES: usize = 1 << 20;

/// [`RING_BYTES`], or on virtual cores, where each store is simulated, a part of it.
fn ring_bytes() -> usize {
    if manycore_sim::is_simulated() { RING_BYTES / 16 } else { RING_BYTES }
}

/// What is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// An event.
    Event,
    /// A span: its beginning with the fields, and its end.
    Span,
    /// An event that is switched off.
    Off,
}

impl What {
    const ALL: [Self; 3] = [Self::Event, Self::Span, Self::Off];

    fn word(self) -> &'static str {
        match self {
            Self::Event => "event",
            Self::Span => "span",
            Self::Off => "off",
        }
    }
}

impl std::str::FromStr for What {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.into_iter().find(|what| what.word() == text);
        found.ok_or("say 'event', 'span' or 'off'")
    }
}

/// The workload's own options.
#[derive(Clone, Debug, Default)]
pub struct TraceOptions {
    /// What is recorded; none for each.
    pub record: Vec<What>,
}

/// What a recorder has kept: how many events and beginnings of spans, and the sum of all fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Kept {
    records: u64,
    sum: u64,
}

impl Kept {
    fn add(&mut self, fields: u64) {
        self.records += 1;
        self.sum = self.sum.wrapping_add(fields);
    }

    fn merge(&mut self, other: Self) {
        self.records += other.records;
        self.sum = self.sum.wrapping_add(other.sum);
    }
}

/// A recorder.
trait TraceImpl: Sync + Sized + 'static {
    /// What one thread records through.
    type Handle<'a>: TraceHandle;

    /// One that drops what its consumer gets, or keeps it for [`kept`](Self::kept).
    fn new(keeps: bool) -> Self;

    /// The handle of a thread, made by that thread, and dropped by it.
    fn handle(&self) -> Self::Handle<'_>;

    /// What is kept, when all handles are dropped.
    fn kept(self) -> Kept;
}

/// One thread's way to the recorder.
trait TraceHandle {
    /// Records an event.
    fn event(&mut self, a: u64, b: u64);

    /// Records a span, and nothing in it.
    fn span(&mut self, a: u64, b: u64);

    /// Comes to an event that is switched off.
    fn off(&mut self, a: u64, b: u64);

    /// Around some operations, for recorders that need a root.
    #[inline(always)]
    fn batch(&mut self, body: impl FnOnce(&mut Self)) {
        body(self);
    }
}

/// What a subject is built from.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    what: What,
}

struct Recording<T> {
    recorder: T,
    what: What,
}

/// Runs batches of one operation.
fn drive<H: TraceHandle>(
    handle: &mut H,
    control: &Control,
    record: impl Fn(&mut H, u64, u64),
) -> Tally {
    let mut count = 0_u64;
    control.drive(|| {
        handle.batch(|handle| {
            for _ in 0..BATCH {
                count += 1;
                record(handle, black_box(count), count);
            }
        });
        BATCH
    })
}

impl<T: TraceImpl> Subject for Recording<T> {
    fn work(&self, _index: usize, control: &Control) -> Tally {
        let handle = &mut self.recorder.handle();
        // The first ones make what a thread needs.
        handle.batch(|handle| {
            handle.event(1, 1);
            handle.span(1, 1);
        });
        match self.what {
            What::Event => drive(handle, control, |handle, a, b| handle.event(a, b)),
            What::Span => drive(handle, control, |handle, a, b| handle.span(a, b)),
            What::Off => drive(handle, control, |handle, a, b| handle.off(a, b)),
        }
    }
}

/// The table's row for a recorder.
const fn entry<T: TraceImpl>(name: &'static str, kind: Kind, about: &'static str) -> Entry<Shape> {
    Entry::new(
        name,
        kind,
        about,
        |shape| Box::new(Recording { recorder: T::new(false), what: shape.what }),
        || conform::<T>(3),
    )
}

/// Every implementation.
pub static ENTRIES: &[Entry<Shape>] = &[
    Entry {
        conform: || conform::<by_hand::Floor>(1),
        ..entry::<by_hand::Floor>(
            "floor",
            Kind::Baseline,
            "a clock read and two stores, one thread",
        )
    },
    entry::<by_hand::Floor>("floor-each", Kind::ByHand, "the same, a ring for each thread"),
    entry::<ours::Memory>("memory", Kind::Ours, "manycore-trace, rings in memory"),
    entry::<ours::File>("file", Kind::Ours, "manycore-trace, rings in a mapped file"),
    #[cfg(feature = "trace-rivals")]
    entry::<ours::Layer>("layer", Kind::Ours, "tracing's macros, with manycore-trace's layer"),
    entry::<by_hand::Locked>("locked-ring", Kind::ByHand, "one ring behind std's Mutex"),
    entry::<by_hand::Claimed>("shared-ring", Kind::ByHand, "one ring, places by fetch_add"),
    entry::<tracing_crate::Bare>(
        "tracing",
        Kind::Rival,
        "tracing, its subscriber by hand: clock and fields into the thread's ring",
    ),
    #[cfg(feature = "trace-rivals")]
    entry::<rivals::Fmt>("tracing-fmt", Kind::Rival, "tracing-subscriber's lines, then dropped"),
    #[cfg(feature = "trace-rivals")]
    entry::<rivals::Chrome>("tracing-chrome", Kind::Rival, "tracing-chrome, its file dropped"),
    #[cfg(feature = "trace-rivals")]
    entry::<rivals::Fastrace>("fastrace", Kind::Rival, "fastrace: properties below a local span"),
    #[cfg(feature = "trace-rivals")]
    entry::<rivals::Puffin>("puffin", Kind::Rival, "puffin: scopes, fields as their text"),
    #[cfg(all(feature = "trace-rivals", target_os = "linux"))]
    Entry {
        conform: || lttng::check().map_or_else(not_here, |()| conform::<lttng::Lttng>(3)),
        ..entry::<lttng::Lttng>(
            LTTNG,
            Kind::Rival,
            "LTTng-UST, a session in snapshot mode; in C, called through a pointer",
        )
    },
];

/// The name of the rival that has to be installed.
#[cfg(all(feature = "trace-rivals", target_os = "linux"))]
const LTTNG: &str = "lttng";

/// A rival that is not installed can't be tested.
#[cfg(all(feature = "trace-rivals", target_os = "linux"))]
fn not_here(reason: String) -> Result<(), String> {
    eprintln!("skipped, {LTTNG} is not here: {reason}");
    Ok(())
}

/// Leaves out what would have to be installed.
#[cfg(all(feature = "trace-rivals", target_os = "linux"))]
fn leave_out(groups: &mut [Group]) {
    let is_asked = groups.iter().any(|group| group.cases.iter().any(|c| c.impl_name == LTTNG));
    if is_asked && lttng::check().is_err() {
        for group in groups {
            group.cases.retain(|case| case.impl_name != LTTNG);
            group.left_out.push("lttng (it needs cc, lttng-tools, liblttng-ust-dev, babeltrace2)");
        }
    }
}

const METRICS: [Metric; 2] = [
    Metric { name: "latency", unit: "ns/op", of: nanos_per_op },
    Metric { name: "throughput", unit: "Mops/s", of: |tallies| total_rate(tallies) / 1e6 },
];

/// The groups for some options: one for each thread count and kind of record.
///
/// # Errors
/// If an implementation is unknown.
pub fn groups(options: &Options) -> Result<Vec<Group>, UnknownImpl> {
    let own = options.own.get::<TraceOptions>();
    let record = if own.record.is_empty() { What::ALL.to_vec() } else { own.record };
    let describe = |what: What| (format!(", {}", what.word()), [("record", what.word().into())]);
    let table = ("trace", ENTRIES, METRICS.as_slice());
    #[allow(unused_mut, reason = "rivals behind the feature")]
    let mut groups = groups_of(table, options, &record, describe, |_, what| Shape { what })?;
    #[cfg(all(feature = "trace-rivals", target_os = "linux"))]
    leave_out(&mut groups);
    Ok(groups)
}

/// Each event and each span is kept with its fields, and no event that is off.
fn conform<T: TraceImpl>(threads: usize) -> Result<(), String> {
    const EACH: u64 = 300;
    let recorder = T::new(true);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let mut handle = recorder.handle();
                for turn in 0..EACH {
                    handle.batch(|handle| {
                        handle.event(turn, 1);
                        handle.span(2, turn);
                        handle.off(1 << 40, turn);
                    });
                }
            });
        }
    });
    let (kept, threads_word) = (recorder.kept(), threads_word(threads));
    let sum = EACH * (EACH - 1) + 3 * EACH;
    let expected = Kept { records: 2 * EACH * threads as u64, sum: sum * threads as u64 };
    if kept == expected {
        return Ok(());
    }
    Err(format!("{threads_word}: {kept:?} instead of {expected:?}"))
}

#[cfg(all(test, feature = "trace-rivals"))]
mod tests {
    use super::ENTRIES;

    #[test]
    fn recorders_of_all_crates_keep_what_is_recorded() {
        for entry in ENTRIES {
            assert_eq!((entry.conform)(), Ok(()), "{}", entry.name);
        }
    }
}
