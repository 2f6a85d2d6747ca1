//! The cost of one type alone: bytes, and nanoseconds in a loop of one thread.

use std::{
    hint::black_box,
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

use foldhash::fast::RandomState;
use manycore::{
    collections::{ActiveSet, EventQueue, FlatHashMap, HashMap, ScalableArc, TimerQueue},
    namespace::IdSpace,
    oplog::{Deferred, Op, Ordered},
    section,
};

use super::{Alone, Limit};
use crate::{resident::resident, row::Summary};

/// Objects of which the bytes of one are told.
const OBJECTS: usize = 4_000;
/// Entries of which the bytes of one are told.
const ENTRIES: u64 = 1_000_000;
/// Calls of a timed loop.
const CALLS: u64 = 200_000;

/// How much work is done: all, or a hundredth to see that everything works.
#[derive(Clone, Copy)]
pub struct Effort {
    /// By what counts are divided.
    divisor: u64,
}

impl Effort {
    /// In full, or a hundredth.
    pub fn new(is_quick: bool) -> Self {
        Self { divisor: if is_quick { 100 } else { 1 } }
    }

    fn of(self, count: u64) -> u64 {
        count / self.divisor
    }
}

type Measured = fn(Effort) -> f64;

const fn bytes(subject: &'static str, ours: Measured, most: f64) -> Alone {
    Alone { subject, metric: "cold object", unit: "B", ours, limit: Limit::AtMost(most) }
}

const fn time(subject: &'static str, metric: &'static str, ours: Measured, limit: Limit) -> Alone {
    Alone { subject, metric, unit: "ns", ours, limit }
}

/// Every goal about a type alone.
pub static ALONE: &[Alone] = &[
    Alone {
        subject: "FlatHashMap",
        metric: "entry of 16 bytes, of a million",
        unit: "B",
        ours: |effort| {
            filled(effort, FlatHashMap::<u64, u64, RandomState>::default(), flat_insert).0
        },
        limit: Limit::AtMost(40.0),
    },
    time(
        "FlatHashMap",
        "insertion, of a million",
        |effort| filled(effort, FlatHashMap::<u64, u64, RandomState>::default(), flat_insert).1,
        Limit::AtMost(120.0),
    ),
    time(
        "FlatHashMap",
        "new and drop",
        |effort| each(effort, || drop(FlatHashMap::<u64, u64>::new())),
        Limit::AtMost(150.0),
    ),
    Alone {
        subject: "HashMap",
        metric: "entry of 16 bytes, of a million",
        unit: "B",
        ours: |effort| filled(effort, HashMap::<u64, u64, RandomState>::default(), node_insert).0,
        limit: Limit::AtMost(40.0),
    },
    time(
        "HashMap",
        "insertion, of a million",
        |effort| filled(effort, HashMap::<u64, u64, RandomState>::default(), node_insert).1,
        Limit::AtMost(120.0),
    ),
    time(
        "HashMap",
        "longest insertion, of three million; processor time",
        longest_insertion,
        Limit::AtMost(4e6),
    ),
    time(
        "HashMap",
        "new and drop",
        |effort| each(effort, || drop(HashMap::<u64, u64>::new())),
        Limit::AtMost(150.0),
    ),
    time(
        "Deferred",
        "cold read, once reserved",
        cold_read,
        Limit::Times(0.88, "Mutex", mutex_read),
    ),
    time(
        "Deferred",
        "cold update, once reserved",
        cold_update,
        Limit::Times(0.94, "Mutex", mutex_update),
    ),
    Alone {
        subject: "IdSpace",
        metric: "memory for two live ids",
        unit: "B",
        ours: two_ids,
        limit: Limit::AtMost((1 << 20) as f64),
    },
    time(
        "ScalableArc",
        "new and drop",
        |effort| each(effort, || drop(ScalableArc::new(black_box(7_u64)))),
        Limit::Times(0.9, "Arc", |effort| each(effort, || drop(Arc::new(black_box(7_u64))))),
    ),
    bytes("EventQueue", |_| each_of(queue), 256.0),
    bytes("ActiveSet", |_| each_of(active_set), 256.0),
    bytes("TimerQueue", |_| each_of(timer_queue), 256.0),
];

/// Nanoseconds of a call: the median of seven loops.
fn each(effort: Effort, mut call: impl FnMut()) -> f64 {
    let calls = effort.of(CALLS);
    let mut sample = || {
        let begin = Instant::now();
        (0..calls).for_each(|_| call());
        begin.elapsed().as_secs_f64() * 1e9 / calls as f64
    };
    sample(); // warms up
    Summary::of(&std::array::from_fn::<_, 7, _>(|_| sample())).median
}

/// Resident bytes of each of many objects, their heap included, that one thread has used. Never
/// fewer of them: memory is counted by the page.
fn each_of<T>(object: fn() -> T) -> f64 {
    let mut objects = Vec::with_capacity(OBJECTS);
    objects.push(object()); // what all share is there now
    let before = resident();
    objects.extend((1..OBJECTS).map(|_| object()));
    let bytes = resident().saturating_sub(before);
    let each = bytes as f64 / (objects.len() - 1) as f64;
    // Not freed: what another type's objects are counted by is not to lie in their memory.
    std::mem::forget(black_box(objects));
    each
}

fn queue() -> EventQueue<u64> {
    let queue = EventQueue::new();
    assert!(queue.send(7).is_ok() && queue.recv() == Some(7), "a queue that is open");
    queue
}

fn active_set() -> ActiveSet<u64> {
    let set = ActiveSet::new();
    set.register(7).leave();
    assert_eq!(set.oldest(), None);
    set
}

fn timer_queue() -> TimerQueue<u64> {
    let timers = TimerQueue::new();
    assert_eq!(timers.insert(7, 1).cancel(), Some(1));
    timers
}

fn flat_insert(map: &FlatHashMap<u64, u64, RandomState>, key: u64) {
    assert!(map.insert(key, key).is_none(), "each key is new");
}

fn node_insert(map: &HashMap<u64, u64, RandomState>, key: u64) {
    assert!(map.insert(key, key), "each key is new");
}

/// Bytes of an entry, and nanoseconds of an insertion, of a map that grows from nothing.
fn filled<M>(effort: Effort, map: M, insert: impl Fn(&M, u64)) -> (f64, f64) {
    let entries = effort.of(ENTRIES);
    let before = resident();
    let begin = Instant::now();
    for key in 0..entries {
        insert(&map, key.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    }
    let nanos = begin.elapsed().as_secs_f64() * 1e9;
    section::global().synchronize();
    let bytes = resident().saturating_sub(before);
    drop(black_box(map));
    (bytes as f64 / entries as f64, nanos / entries as f64)
}

/// Nanoseconds of the longest insertion while a map grows.
fn longest_insertion(effort: Effort) -> f64 {
    let (map, mut longest) = (HashMap::<u64, u64, RandomState>::default(), 0);
    let mut before = nanos_of_thread();
    for key in 0..effort.of(3 * ENTRIES) {
        node_insert(&map, key.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let now = nanos_of_thread();
        longest = longest.max(now - before);
        before = now;
    }
    longest as f64
}

/// Nanoseconds for which the calling thread has run: other threads' turns do not count.
#[cfg(target_os = "linux")]
fn nanos_of_thread() -> i64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

/// Nanoseconds that have passed, because only Linux is asked for a thread's own.
#[cfg(not(target_os = "linux"))]
fn nanos_of_thread() -> i64 {
    static BEGIN: std::sync::LazyLock<Instant> = std::sync::LazyLock::new(Instant::now);
    i64::try_from(BEGIN.elapsed().as_nanos()).unwrap_or(i64::MAX)
}

/// What a name space takes that has had two nodes and goes on exchanging them.
fn two_ids(effort: Effort) -> f64 {
    let before = resident();
    let ids = IdSpace::new();
    for node in 0..effort.of(2_000_000) {
        let section = section::enter();
        let id = ids.insert(node, &section);
        ids.remove(id, &section);
    }
    let section = section::enter();
    let live = [ids.insert(1, &section), ids.insert(2, &section)];
    let bytes = resident().saturating_sub(before);
    assert!(live.iter().all(|id| ids.get(*id, &section).is_some()));
    bytes as f64
}

struct Add(u64);

impl Op<u64> for Add {
    #[inline]
    fn apply(self, sum: &mut u64) {
        *sum = sum.wrapping_add(self.0);
    }
}

fn cold_read(effort: Effort) -> f64 {
    let object = Deferred::<u64, Ordered<Add>>::new(7);
    each(effort, || _ = black_box(*object.read()))
}

fn cold_update(effort: Effort) -> f64 {
    let object = Deferred::<u64, Ordered<Add>>::new(7);
    each(effort, || object.append(Add(black_box(1))))
}

fn mutex_read(effort: Effort) -> f64 {
    let object = Mutex::new(7_u64);
    each(effort, || _ = black_box(*object.lock().unwrap_or_else(PoisonError::into_inner)))
}

fn mutex_update(effort: Effort) -> f64 {
    let object = Mutex::new(7_u64);
    each(effort, || *object.lock().unwrap_or_else(PoisonError::into_inner) += black_box(1))
}
