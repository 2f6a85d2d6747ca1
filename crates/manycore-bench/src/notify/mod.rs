//! Many producers, one drainer (OpLog, section 3 and figure 2: inotify).
//!
//! Owns: the traits that every queue implements, the windowed loop, and the table of
//! implementations.
//!
//! The figures are the events per second that arrived at the drainer, and the delay of events. A
//! delay runs from before the send until the drainer has the event, by the processor's clock.
//! `--threads` counts producers; the drainer is one more thread. Events are 16 bytes: the sender,
//! the time of sending, and a sequence number.
//!
//! *Three loops.* The windowed loop keeps a window of events under way (`Windowed`). With
//! `--burst`, a number of events is sent at once (`burst`). With `--gap`, single events are sent,
//! and the producer pauses between them (`single`).
//!
//! *Bound.* A queue that outgrows the cache measures the allocator. Every implementation follows
//! the same rule: a producer has at most [`WINDOW`] events under way. The drainer counts the events
//! that it took from each producer. After each round it publishes the counts, each on a line of its
//! own. A producer reads its count after every [`SENDS_PER_LOOK`] events, and yields while its
//! window is full. That is one read of a line per 64 events, the same for all. The first event
//! after such a read is stamped, and its delay counts. (On virtual cores none is stamped: that
//! would add to what is measured.)
//!
//! *Pace.* An empty queue makes the drainer yield. With `--pause`, the drainer also rests for that
//! many ticks after each round, as one does that is woken for a batch. Without it, the drainer
//! looks again at once. With a core for each thread, all implementations then measure little but
//! the travel of lines. `EventQueue` rests by itself after a small batch, because this loop asks it
//! for batches. The delays show the cost of that.
//!
//! *Order.* The drainer checks that each producer's events arrive in the order sent, with none
//! missing. The run panics otherwise.

mod burst;
mod ours;
mod rivals;
mod single;

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{
            AtomicU64,
            Ordering::{Acquire, Release},
        },
    },
    thread,
    time::Duration,
};

use crossbeam_utils::CachePadded;

use self::{burst::Burst, single::Single};
use crate::{
    latency::Latencies,
    row::Kind,
    runner::{Control, Group, Metric, Subject, Tally},
    ticks::{self, spin},
    workload::{Entry, Options, UnknownImpl, cases, choose},
};

/// The most events of one producer that are under way.
pub const WINDOW: u64 = 4096;

/// How many events a producer sends between two looks at its window and the stop flag.
pub const SENDS_PER_LOOK: u64 = 64;

/// The most events that the drainer takes in one round.
const ROUND: usize = 1024;

/// One event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The sender.
    pub producer: u32,
    /// When it was sent, by the lower bits of the clock; zero if that does not count.
    pub stamp: u32,
    /// Which of the producer's events it is, from 0.
    pub number: u64,
}

/// A queue with many producers and one drainer.
pub trait QueueImpl: Sync + Sized + 'static {
    /// A producer's end.
    type Sender<'a>: EventSender;
    /// The drainer's end.
    type Drainer<'a>: EventDrainer;

    /// An empty queue for this many producers.
    fn new(producers: usize) -> Self;

    /// The end of a producer, made by its thread.
    fn sender(&self, producer: usize) -> Self::Sender<'_>;

    /// The end of the drainer, made by its thread; only one.
    fn drainer(&self) -> Self::Drainer<'_>;
}

/// A producer's end of a queue.
pub trait EventSender {
    /// Sends; never drops, never fails.
    fn send(&mut self, event: Event);
}

/// The drainer's end of a queue.
pub trait EventDrainer {
    /// Passes on at most `max` events that are there, in the queue's best way, and does not wait.
    /// Where the queue gives more at once, the rest is for the next rounds.
    fn drain(&mut self, max: usize, f: impl FnMut(Event));

    /// The next event, if one is there, in the queue's way for single events.
    fn take(&mut self) -> Option<Event>;
}

/// The workload's own options.
#[derive(Clone, Debug, Default)]
pub struct NotifyOptions {
    /// Counts of events of a burst.
    pub burst: Vec<u64>,
    /// Ticks between two single events of a producer.
    pub gap: Vec<u64>,
}

/// What producers do.
#[derive(Clone, Copy, Debug)]
enum Load {
    /// Send as fast as the window lets them; the drainer rests for so many ticks after a round.
    Windowed { pause: u64 },
    /// Send so many events together, at once.
    Burst { events: u64 },
    /// Rest for so many ticks before each event.
    Single { gap: u64 },
}

/// What a subject is built from.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    producers: usize,
    load: Load,
}

/// A stamp: the lower bits of the clock, which go round in more than a second.
#[inline(always)]
fn stamp() -> u32 {
    (ticks::now() as u32).max(1)
}

/// The delays that a drainer has seen.
#[derive(Default)]
struct Delays(Mutex<Latencies>);

impl Delays {
    fn add(&self, delays: &Latencies) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).merge(delays);
    }

    /// The figure of one of [`DELAYS`], in nanoseconds.
    fn figure(&self, metric: &str) -> Option<f64> {
        let (_, share) = DELAYS.iter().find(|(delay, _)| delay.name == metric)?;
        Some(self.0.lock().unwrap_or_else(PoisonError::into_inner).quantile_ns(*share))
    }
}

/// The figures of the delays, each with its quantile.
const DELAYS: [(Metric, f64); 2] =
    [(Metric::of_subject("delay p50", "ns"), 0.5), (Metric::of_subject("delay p99", "ns"), 0.99)];

/// See the module header.
struct Windowed<Q> {
    queue: Q,
    /// For each producer, how many of its events have arrived; written by the drainer.
    arrived: Box<[CachePadded<AtomicU64>]>,
    pause: u64,
    delays: Delays,
    stamps: bool,
}

/// A load with producers and a drainer.
trait Sides: Sync {
    fn producers(&self) -> usize;
    fn produce(&self, producer: usize, control: &Control) -> Tally;
    fn consume(&self, control: &Control) -> Tally;

    /// What the drainer saw, if the load tells delays.
    fn delays(&self) -> Option<&Delays>;

    /// As [`Subject::duration`].
    fn duration(&self) -> Option<Duration> {
        None
    }
}

/// Both sides of a load, the drainer's thread behind the producers'.
struct Both<S>(S);

impl<S: Sides> Subject for Both<S> {
    fn workers(&self, _: usize) -> usize {
        self.0.producers() + 1
    }

    fn work(&self, index: usize, control: &Control) -> Tally {
        if index < self.0.producers() {
            self.0.produce(index, control)
        } else {
            self.0.consume(control)
        }
    }

    fn duration(&self) -> Option<Duration> {
        self.0.duration()
    }

    fn figure(&self, metric: &str, _: &[Tally]) -> Option<f64> {
        self.0.delays()?.figure(metric)
    }
}

impl<Q: QueueImpl> Windowed<Q> {
    fn new(producers: usize, pause: u64) -> Self {
        let arrived = (0..producers).map(|_| CachePadded::new(AtomicU64::new(0))).collect();
        let (delays, stamps) = (Delays::default(), !manycore_sim::is_simulated());
        Self { queue: Q::new(producers), arrived, pause, delays, stamps }
    }
}

impl<Q: QueueImpl> Sides for Windowed<Q> {
    fn producers(&self) -> usize {
        self.arrived.len()
    }

    fn delays(&self) -> Option<&Delays> {
        Some(&self.delays)
    }

    fn produce(&self, producer: usize, control: &Control) -> Tally {
        let mut sender = self.queue.sender(producer);
        let arrived = &self.arrived[producer];
        let producer = producer as u32;
        let (mut event, mut room_until) = (Event { producer, stamp: 0, number: 0 }, WINDOW);
        let tally = control.drive(|| {
            if event.number + SENDS_PER_LOOK > room_until {
                // ORDER: Acquire; pairs with the drainer's Release: the queue's own writes for
                // those events come before the count, so their memory can be used again.
                room_until = arrived.load(Acquire) + WINDOW;
                if event.number + SENDS_PER_LOOK > room_until {
                    thread::yield_now();
                    return 0;
                }
            }
            event.stamp = if self.stamps { stamp() } else { 0 };
            for _ in 0..SENDS_PER_LOOK {
                sender.send(event);
                event.number += 1;
                event.stamp = 0;
            }
            SENDS_PER_LOOK
        });
        // What counts is what arrives.
        Tally { ops: 0, ..tally }
    }

    fn consume(&self, control: &Control) -> Tally {
        let mut drainer = self.queue.drainer();
        let mut next = vec![0_u64; self.arrived.len()];
        let mut delays = Latencies::new();
        let tally = control.drive(|| {
            let mut taken = 0;
            drainer.drain(ROUND, |event| {
                let expected = &mut next[event.producer as usize];
                assert_eq!(event.number, *expected, "an event was lost or overtaken");
                *expected += 1;
                taken += 1;
                if event.stamp != 0 {
                    delays.record(u64::from(stamp().wrapping_sub(event.stamp)));
                }
            });
            for (arrived, next) in self.arrived.iter().zip(&next) {
                // ORDER: Release; pairs with the producer's Acquire.
                arrived.store(*next, Release);
            }
            if taken == 0 {
                thread::yield_now();
            }
            spin(self.pause);
            taken
        });
        self.delays.add(&delays);
        tally
    }
}

/// The baseline: one thread sends a window to itself and takes it out again.
struct Alone;

impl Subject for Alone {
    fn workers(&self, _: usize) -> usize {
        1
    }

    fn work(&self, _: usize, control: &Control) -> Tally {
        let mut queue = std::collections::VecDeque::new();
        let mut number = 0;
        control.drive(|| {
            for _ in 0..SENDS_PER_LOOK {
                queue.push_back(std::hint::black_box(Event { producer: 0, stamp: 0, number }));
                number += 1;
            }
            let taken = queue.len() as u64;
            for event in queue.drain(..) {
                std::hint::black_box(event);
            }
            taken
        })
    }

    /// It has no delay.
    fn figure(&self, metric: &str, _: &[Tally]) -> Option<f64> {
        DELAYS.iter().any(|(delay, _)| delay.name == metric).then_some(0.0)
    }
}

/// A queue under a load.
fn subject<Q: QueueImpl>(Shape { producers, load }: Shape) -> Box<dyn Subject> {
    match load {
        Load::Windowed { pause } => Box::new(Both(Windowed::<Q>::new(producers, pause))),
        Load::Burst { events } => Box::new(Both(Burst::<Q>::new(producers, events))),
        Load::Single { gap } => Box::new(Both(Single::<Q>::new(producers, gap))),
    }
}

/// The table's row for an implementation.
const fn entry<Q: QueueImpl>(name: &'static str, about: &'static str) -> Entry<Shape> {
    Entry {
        name,
        kind: Kind::Rival,
        about,
        threads_max: u32::MAX as usize,
        build: subject::<Q>,
        conform: conform::<Q>,
    }
}

/// Every implementation.
pub static ENTRIES: &[Entry<Shape>] = &[
    Entry {
        name: "unshared",
        kind: Kind::Baseline,
        about: "a VecDeque, filled and emptied by one thread",
        threads_max: 1,
        build: |_| Box::new(Alone),
        conform: || Ok(()),
    },
    entry::<rivals::StdMutex>("mutex", "VecDeque behind std's Mutex; the drainer takes it whole"),
    entry::<rivals::ParkingLot>(
        "parking_lot",
        "VecDeque behind parking_lot's Mutex; the drainer takes it whole",
    ),
    entry::<rivals::Mpsc>("mpsc", "std's unbounded channel"),
    entry::<rivals::Channel>("crossbeam-channel", "crossbeam's unbounded channel"),
    entry::<rivals::Seg>("segqueue", "crossbeam's SegQueue"),
    entry::<rivals::Concurrent>("concurrent-queue", "concurrent-queue, unbounded"),
    Entry {
        kind: Kind::Ours,
        ..entry::<ours::Auto>("event-queue", "EventQueue: one locked queue, or logs where they pay")
    },
    Entry {
        kind: Kind::Ours,
        ..entry::<ours::Logged>("event-queue-hot", "EventQueue with a log for each sender at once")
    },
];

const DELIVERED: Metric = Metric {
    name: "delivered",
    unit: "Mevents/s",
    of: |tallies| tallies.last().map_or(0.0, Tally::rate) / 1e6,
};

/// The groups for some options: one for each load and count of producers.
///
/// # Errors
/// If an implementation is unknown.
pub fn groups(options: &Options) -> Result<Vec<Group>, UnknownImpl> {
    let chosen = choose("notify", ENTRIES, &options.impls)?;
    let own: NotifyOptions = options.own.get();
    let bursts = own.burst.iter().map(|&events| Load::Burst { events });
    let mut loads: Vec<_> = bursts.chain(own.gap.iter().map(|&gap| Load::Single { gap })).collect();
    if loads.is_empty() {
        loads.push(Load::Windowed { pause: options.pause });
    }
    let group = |load: Load, producers: usize| {
        let (cases, left_out) = cases(&chosen, producers, |producers| Shape { producers, load });
        let delays = DELAYS.iter().map(|(metric, _)| *metric);
        let (of_load, metrics) = match load {
            Load::Windowed { .. } if manycore_sim::is_simulated() => ("", vec![DELIVERED]),
            Load::Windowed { .. } => ("", std::iter::once(DELIVERED).chain(delays).collect()),
            Load::Burst { .. } => (", a burst", vec![DELIVERED]),
            Load::Single { .. } => (", single events", delays.collect()),
        };
        let mut params = options.params([]);
        params.extend(match load {
            Load::Windowed { pause } => {
                vec![("pause".into(), pause.into()), ("window".into(), WINDOW.into())]
            }
            Load::Burst { events } => vec![("burst".into(), events.into())],
            Load::Single { gap } => vec![("gap".into(), gap.into())],
        });
        let plural = if producers == 1 { "" } else { "s" };
        let title = format!("{producers} producer{plural}{of_load}");
        Group { bench: "notify", title, params, metrics, cases, left_out }
    };
    let threads = |load| options.threads.iter().map(move |&producers| (load, producers));
    Ok(loads.into_iter().flat_map(threads).map(|(load, count)| group(load, count)).collect())
}

/// Everything sent arrives, once, in each producer's order.
fn conform<Q: QueueImpl>() -> Result<(), String> {
    const PRODUCERS: usize = 3;
    const EVENTS: u64 = 5_000;
    let queue = &Q::new(PRODUCERS);
    let produce = |producer: usize| {
        let mut sender = queue.sender(producer);
        for number in 0..EVENTS {
            sender.send(Event { producer: producer as u32, stamp: 0, number });
        }
    };
    thread::scope(|scope| {
        for producer in 0..PRODUCERS {
            scope.spawn(move || produce(producer));
        }
        let (mut drainer, mut next) = (queue.drainer(), [0; PRODUCERS]);
        let mut wrong = None;
        let start = std::time::Instant::now();
        while next != [EVENTS; PRODUCERS] && wrong.is_none() {
            let mut check = |event: Event| {
                let expected = &mut next[event.producer as usize];
                if event.number != *expected {
                    wrong.get_or_insert(format!("{event:?} came instead of {expected}"));
                }
                *expected += 1;
            };
            drainer.drain(ROUND, &mut check);
            drainer.take().into_iter().for_each(check);
            if start.elapsed().as_secs() > 60 {
                wrong = Some(format!("after a minute only {next:?} had arrived"));
            }
        }
        wrong.map_or(Ok(()), Err)
    })
}
