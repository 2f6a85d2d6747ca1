//! Timeouts that are nearly always cancelled: threads set timers and cancel them some operations
//! later. Now and then a thread advances the time.
//!
//! Owns: the traits that every queue of timers implements, the loop, and the table of
//! implementations.
//!
//! A thread has 16 timers set. One operation cancels the oldest and sets another, up to 128 ticks
//! ahead. With `--read-every k` a thread advances the time by a tick after every k of its own
//! operations, so in tables with many advances some timers fire.

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

/// Timers that a thread has set.
const RING: usize = 16;
/// Ticks that a timer is set ahead at most.
const AHEAD: u64 = 128;
/// Operations between two looks at the stop flag.
const BATCH: u64 = 16;

/// A queue of timers with numbers.
pub trait TimersImpl: Sync + Sized + 'static {
    /// What one thread works through.
    type Handle<'a>: TimersHandle;

    /// An empty queue at time zero.
    fn new() -> Self;

    /// The handle of a thread, made by that thread.
    fn handle(&self) -> Self::Handle<'_>;
}

/// One thread's way to the queue.
pub trait TimersHandle {
    /// What a timer is cancelled by.
    type Timer;

    /// Sets a timer, later than the latest advance of this thread.
    fn insert(&mut self, deadline: u64, number: u64) -> Self::Timer;

    /// Cancels one, and says whether that was in time.
    fn cancel(&mut self, timer: Self::Timer) -> bool;

    /// Makes it `now`, if it is not later, and calls `f` with the numbers of what is due.
    fn advance(&mut self, now: u64, f: impl FnMut(u64));
}

struct TimersSubject<Q> {
    queue: Q,
    shape: Shape,
}

impl<Q: TimersImpl> Subject for TimersSubject<Q> {
    fn work(&self, index: usize, control: &Control) -> Tally {
        let Shape { read_every, spin: ticks, .. } = self.shape;
        let mut handle = self.queue.handle();
        let (mut now, mut count) = (0, index as u64);
        let mut ring: Vec<_> = (0..RING).map(|_| Some(set(&mut handle, now, &mut count))).collect();
        let mut until_read = read_every.countdown();
        let tally = control.drive(|| {
            for timer in ring.iter_mut().take(BATCH as usize) {
                if let Some(timer) = timer.take() {
                    black_box(handle.cancel(timer));
                }
                *timer = Some(set(&mut handle, now, &mut count));
                spin(ticks);
                until_read -= 1;
                if until_read == 0 {
                    now += 1;
                    handle.advance(now, |number| _ = black_box(number));
                    until_read = read_every.countdown();
                }
            }
            BATCH
        });
        ring.into_iter().flatten().for_each(|timer| _ = handle.cancel(timer));
        tally
    }
}

/// Sets a thread's next timer. Its number is no other's.
#[inline]
fn set<H: TimersHandle>(handle: &mut H, now: u64, count: &mut u64) -> H::Timer {
    *count += 1 << 16; // the thread is below that
    handle.insert(now + 1 + (*count >> 16) * 37 % AHEAD, black_box(*count))
}

/// The table's row for an implementation.
const fn entry<Q: TimersImpl>(name: &'static str, kind: Kind, about: &'static str) -> Entry<Shape> {
    Entry::new(
        name,
        kind,
        about,
        |shape| Box::new(TimersSubject { queue: Q::new(), shape }),
        || conform::<Q>(3),
    )
}

/// Every implementation.
pub static ENTRIES: &[Entry<Shape>] = &[
    Entry {
        conform: || conform::<rivals::Unshared>(1),
        ..entry::<rivals::Unshared>("unshared", Kind::Baseline, "a wheel, owned by one thread")
    },
    entry::<rivals::MutexWheel>(
        "mutex-wheel",
        Kind::Rival,
        "a hierarchical wheel behind std's Mutex",
    ),
    entry::<rivals::ParkingLotWheel>(
        "parking_lot-wheel",
        Kind::Rival,
        "a hierarchical wheel behind parking_lot's Mutex",
    ),
    entry::<rivals::MutexHeap>(
        "mutex-heap",
        Kind::Rival,
        "BinaryHeap behind std's Mutex; cancelled timers go when they are most of it",
    ),
    entry::<rivals::HashWheel>(
        "hash-wheel",
        Kind::Rival,
        "hierarchical_hash_wheel_timer behind std's Mutex; a cancelled timer stays until its time",
    ),
    entry::<ours::PerThread>(
        "timers",
        Kind::Ours,
        "TimerQueue, a queue of changes for each thread",
    ),
    entry::<ours::Global>("timers-global", Kind::Ours, "TimerQueue, one queue of changes"),
];

const METRIC: Metric =
    Metric { name: "throughput", unit: "pairs/ms", of: |tallies| total_rate(tallies) / 1e3 };

/// The groups for some options: one for each thread count and rate of advances.
///
/// # Errors
/// If an implementation is unknown.
pub fn groups(options: &Options) -> Result<Vec<Group>, UnknownImpl> {
    groups_by_reads("timers", ENTRIES, METRIC, options, |read_every| {
        reads_word(read_every, "pairs").replace("read", "advance")
    })
}

/// A single thread's timers fire in time; then threads set, cancel and fire: each timer fires once
/// or was cancelled.
fn conform<Q: TimersImpl>(threads: usize) -> Result<(), String> {
    let queue = &Q::new();
    let mut own = queue.handle();
    let timers: Vec<_> = (1..=900).map(|at| own.insert(at * 7 % 901, at * 7 % 901)).collect();
    for now in [1, 2, 200, 255, 256, 600, 900] {
        let mut latest = 0;
        own.advance(now, |at| latest = at.max(latest));
        if latest != now {
            return Err(format!("at {now}, what was due at {latest} fired last"));
        }
    }
    if timers.into_iter().any(|timer| own.cancel(timer)) {
        return Err("a timer was cancelled that had fired".to_owned());
    }
    let mut fates = thread::scope(|scope| {
        let start = |index| scope.spawn(move || churn(&mut queue.handle(), index as u64));
        let others: Vec<_> = (1..threads).map(start).collect();
        let mut all = churn(&mut own, 0);
        for other in others {
            all.extend(other.join().map_err(|_| "a thread panicked")?);
        }
        Ok::<_, String>(all)
    })?;
    own.advance(100_000, |number| fates.push(number));
    fates.sort_unstable();
    let numbers = |thread| (0..STEPS).map(move |step| thread << 32 | step);
    if fates.into_iter().eq((0..threads as u64).flat_map(numbers)) {
        Ok(())
    } else {
        Err("a timer was lost, or fired although it was cancelled".to_owned())
    }
}

/// Timers that each thread of a conformance test sets.
const STEPS: u64 = 2_000;

/// The timers that this thread cancelled in time, and those that fired in its hands.
fn churn(handle: &mut impl TimersHandle, thread: u64) -> Vec<u64> {
    let (mut fates, mut set, mut now) = (Vec::new(), BTreeMap::new(), 900);
    let mut random = 0x9E37_79B9_u32.wrapping_add(thread as u32);
    for step in 0..STEPS {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let number = thread << 32 | step;
        let deadline = now + 1 + u64::from(random >> 20) % 600;
        set.insert(number, handle.insert(deadline, number));
        let cancelled = if random >> 30 == 0 { None } else { set.pop_first() };
        if let Some((number, timer)) = cancelled {
            fates.extend(handle.cancel(timer).then_some(number));
        }
        if (random >> 28) & 3 == 0 {
            now += 1;
            handle.advance(now, |number| fates.push(number));
        }
    }
    set.into_values().for_each(std::mem::forget); // these fire at the end
    fates
}
