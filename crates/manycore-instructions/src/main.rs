//! One short path of the library, or a rival's, called a thousand times: `ci/instructions.sh` runs
//! each under callgrind and counts.
//!
//!     manycore-instructions --list        the names of the cases
//!     manycore-instructions CASE          calls it
//!
//! What is counted runs inside a function whose name has `measured` in it. A case warms up before:
//! what an object does once, such as giving the thread its slot, is not counted. Nor is what the
//! compiler takes out of the loop, where a call is inlined: the address of the thread's own block,
//! two instructions, in `deferred read`.

mod keyed;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hint::black_box;
use std::process::ExitCode;
use std::sync::{Arc, Barrier};
use std::{array, thread, time::Duration};

use arc_swap::ArcSwap;
use manycore::cluster::Adaptive;
use manycore::collections::{
    ActiveSet, BudgetTree, Counter, EventQueue, Lru, ObjectPool, Registry, ScalableArc, TimerQueue,
};
use manycore::namespace::IdSpace;
use manycore::oplog::{Deferred, Logs, Op, Ordered};
use manycore::percpu;
use manycore::section;
use manycore_trace::{Class, Classes, Policy, Recorder, event};
use parking_lot::Mutex;

/// Calls that are counted.
const CALLS: u32 = 1000;
/// Calls before: more than reserve an object for its thread.
const WARM_UP: u32 = 5000;

/// A path, and what is called.
type Case = (&'static str, fn());

struct Add(u64);

impl Op<u64> for Add {
    #[inline]
    fn apply(self, sum: &mut u64) {
        *sum = sum.wrapping_add(self.0);
    }
}

type Sum = Deferred<u64, Ordered<Add>>;

/// Counts `call` after a warm-up. Both in one place: else it depends on the size of a call whether
/// it is inlined, as it is in a program that makes it in one place.
fn count(call: impl FnMut()) {
    measured(call);
}

#[inline(never)]
fn measured(mut call: impl FnMut()) {
    for calls in [WARM_UP, CALLS] {
        counted_from_here();
        for _ in 0..calls {
            call();
        }
    }
}

/// Makes callgrind forget what it has counted.
#[inline(never)]
fn counted_from_here() {
    black_box(());
}

/// Runs it in another thread, which is over afterwards.
fn elsewhere(call: impl FnOnce() + Send) {
    thread::scope(|scope| _ = scope.spawn(call));
}

/// Runs it in a thread beside forty that the library has seen before.
fn beside_others(call: impl FnOnce() + Send) {
    let (seen, over) = (Barrier::new(41), Barrier::new(41));
    thread::scope(|scope| {
        for _ in 0..40 {
            scope.spawn(|| {
                percpu::current_slot();
                seen.wait();
                over.wait();
            });
        }
        scope.spawn(|| {
            seen.wait();
            call();
            over.wait();
        });
    });
}

/// A sum that several threads have used.
fn shared_sum() -> Sum {
    let sum = Sum::new(7);
    (0..WARM_UP).for_each(|_| sum.append(Add(1)));
    elsewhere(|| sum.append(Add(1)));
    sum
}

fn shared_adaptive() -> Adaptive<u64, Ordered<Add>> {
    let sum = Adaptive::new(7);
    (0..WARM_UP).for_each(|_| sum.update(Add(1)));
    elsewhere(|| sum.update(Add(1)));
    sum
}

fn logged<T>(built: Result<T, manycore::oplog::BuildError>) -> T {
    built.expect("the bounds are the defaults")
}

fn register_pair(registry: &Registry<u64>) {
    drop(black_box(registry.register(black_box(7))));
}

fn send_and_receive(queue: &EventQueue<u64>) {
    assert!(queue.send(black_box(7)).is_ok(), "the queue is open");
    assert_eq!(queue.try_recv(), Ok(7));
}

fn a_burst(queue: &EventQueue<u64>, events: &mut Vec<u64>) {
    (0..64).for_each(|event| assert!(queue.send(black_box(event)).is_ok(), "the queue is open"));
    queue.drain_into(events);
    events.clear();
}

/// The cases of one family stand together, the library's first and then what it is compared with.
static CASES: &[Case] = &[
    ("deferred update, reserved", || {
        let sum = Sum::new(7);
        count(|| sum.append(Add(black_box(1))));
    }),
    ("deferred update, shared", || {
        let sum = shared_sum();
        count(|| sum.append(Add(black_box(1))));
    }),
    ("deferred read, reserved", || {
        let sum = Sum::new(7);
        count(|| _ = black_box(*sum.read()));
    }),
    ("deferred read, shared", || {
        let sum = shared_sum();
        count(|| _ = black_box(*sum.read()));
    }),
    ("deferred update, logged", || {
        let sum = logged(Sum::builder().logs(Logs::Always).build(7));
        count(|| sum.append(Add(black_box(1))));
    }),
    ("deferred update + read, logged", || {
        let sum = logged(Sum::builder().logs(Logs::Always).build(7));
        count(|| {
            sum.append(Add(black_box(1)));
            black_box(*sum.read());
        });
    }),
    ("adaptive update", || {
        let sum = Adaptive::<u64, Ordered<Add>>::new(7);
        count(|| sum.update(Add(black_box(1))));
    }),
    ("adaptive update, shared", || {
        let sum = shared_adaptive();
        count(|| sum.update(Add(black_box(1))));
    }),
    ("adaptive read", || {
        let sum = Adaptive::<u64, Ordered<Add>>::new(7);
        count(|| _ = black_box(*sum.read()));
    }),
    ("rival: parking_lot update", || {
        let sum = Mutex::new(7_u64);
        count(|| Add(black_box(1)).apply(&mut sum.lock()));
    }),
    ("rival: parking_lot read", || {
        let sum = Mutex::new(7_u64);
        count(|| _ = black_box(*sum.lock()));
    }),
    ("registry pair", || {
        let registry = Registry::new();
        count(|| register_pair(&registry));
    }),
    ("registry pair, shared", || {
        let registry = Registry::new();
        (0..WARM_UP).for_each(|_| register_pair(&registry));
        elsewhere(|| register_pair(&registry));
        count(|| register_pair(&registry));
    }),
    ("registry pair, owned", || {
        let registry = Registry::new();
        count(|| drop(black_box(registry.register_owned(black_box(7)))));
    }),
    ("rival: parking_lot slab pair", || {
        let slab = Mutex::new(slab::Slab::new());
        count(|| {
            let key = slab.lock().insert(black_box(7_u64));
            black_box(slab.lock().remove(key));
        });
    }),
    ("event queue send + receive", || {
        let queue = EventQueue::new();
        count(|| send_and_receive(&queue));
    }),
    ("event queue send + receive, large", || {
        let queue = EventQueue::new();
        assert!(queue.recv_timeout(Duration::ZERO).is_err(), "who has waited has made it large");
        count(|| send_and_receive(&queue));
    }),
    ("event queue send + receive, logged", || {
        let queue = logged(EventQueue::builder().logs(Logs::Always).build());
        count(|| send_and_receive(&queue));
    }),
    ("event queue 64 sends + drain", || {
        let (queue, mut events) = (EventQueue::new(), Vec::new());
        count(|| a_burst(&queue, &mut events));
    }),
    ("rival: parking_lot vec deque push + pop", || {
        let queue = Mutex::new(VecDeque::new());
        count(|| {
            queue.lock().push_back(black_box(7_u64));
            black_box(queue.lock().pop_front());
        });
    }),
    ("rival: parking_lot vec 64 pushes + swap", || {
        let (queue, mut events) = (Mutex::new(Vec::new()), Vec::new());
        count(|| {
            (0..64_u64).for_each(|event| queue.lock().push(black_box(event)));
            std::mem::swap(&mut *queue.lock(), &mut events);
            black_box(&mut events).clear();
        });
    }),
    ("counter add", || {
        let counter = Counter::new(0);
        count(|| counter.add(black_box(1)));
    }),
    ("counter add, hot", || {
        let counter = Counter::new(0);
        counter.promote();
        count(|| counter.add(black_box(1)));
    }),
    ("counter add, hot, with many threads", || {
        let counter = Counter::new(0);
        counter.promote();
        beside_others(|| count(|| counter.add(black_box(1))));
    }),
    ("counter 10 adds + sum, hot", || {
        let counter = Counter::new(0);
        counter.promote();
        count(|| {
            (0..10).for_each(|_| counter.add(black_box(1)));
            black_box(counter.sum());
        });
    }),
    ("rival: thread-local cell", || {
        thread_local!(static CELL: std::cell::Cell<i64> = const { std::cell::Cell::new(0) });
        count(|| CELL.with(|cell| cell.set(black_box(cell.get() + black_box(1)))));
    }),
    ("scalable arc clone + drop", || {
        let arc = ScalableArc::new(7_u64);
        count(|| drop(black_box(arc.clone())));
    }),
    ("scalable arc clone + drop, hot", || {
        let arc = ScalableArc::new(7_u64);
        ScalableArc::promote(&arc);
        count(|| drop(black_box(arc.clone())));
    }),
    ("scalable arc clone + drop, hot, with many threads", || {
        let arc = ScalableArc::new(7_u64);
        ScalableArc::promote(&arc);
        beside_others(|| count(|| drop(black_box(arc.clone()))));
    }),
    ("scalable arc new + drop", || {
        count(|| drop(black_box(ScalableArc::new(black_box(7_u64)))));
    }),
    ("rival: arc clone + drop", || {
        let arc = Arc::new(7_u64);
        count(|| drop(black_box(arc.clone())));
    }),
    ("rival: arc new + drop", || count(|| drop(black_box(Arc::new(black_box(7_u64)))))),
    ("rival: arc-swap load", || {
        let arc = ArcSwap::from_pointee(7_u64);
        count(|| drop(black_box(arc.load())));
    }),
    ("id space insert + remove", || {
        let ids = IdSpace::new();
        count(|| {
            let section = section::enter();
            let id = ids.insert(black_box(7_u64), &section);
            black_box(ids.remove(id, &section));
        });
    }),
    ("id space get", || {
        let ids = IdSpace::new();
        let id = ids.insert(7_u64, &section::enter());
        count(|| {
            let section = section::enter();
            black_box(ids.get(black_box(id), &section));
        });
    }),
    ("rival: sharded-slab insert + remove", || {
        let slab = sharded_slab::Slab::new();
        count(|| {
            let key = slab.insert(black_box(7_u64)).expect("there is room");
            black_box(slab.take(key));
        });
    }),
    ("object pool take + give back", || {
        let pool = ObjectPool::new(16, || 7_u64);
        count(|| drop(black_box(pool.take())));
    }),
    ("rival: parking_lot vec pop + push", || {
        let pool = Mutex::new(vec![7_u64]);
        count(|| {
            let object = black_box(pool.lock().pop());
            pool.lock().extend(object);
        });
    }),
    ("budget tree charge + release", || {
        let budget = BudgetTree::new(1 << 40);
        count(|| {
            assert!(budget.try_charge(black_box(64)).is_ok(), "there is room");
            budget.release(black_box(64));
        });
    }),
    ("lru touch", || {
        let list = Lru::new();
        (0..64_u64).for_each(|key| list.touch(key));
        let mut key = 0;
        count(|| {
            key = (key + 7) % 64;
            list.touch(black_box(key));
        });
    }),
    ("rival: parking_lot lru get", || {
        let list = Mutex::new(lru::LruCache::unbounded());
        (0..64_u64).for_each(|key| _ = list.lock().put(key, ()));
        let mut key = 0;
        count(|| {
            key = (key + 7) % 64;
            black_box(list.lock().get(&black_box(key)));
        });
    }),
    ("active set register + leave, oldest after each", || {
        let set = ActiveSet::new();
        count(|| {
            let member = set.register(black_box(7_u64));
            black_box(set.oldest());
            member.leave();
            black_box(set.oldest());
        });
    }),
    ("rival: parking_lot b-tree set insert + remove, first after each", || {
        let set = Mutex::new(BTreeSet::new());
        count(|| {
            set.lock().insert(black_box(7_u64));
            black_box(set.lock().first().copied());
            set.lock().remove(&black_box(7));
            black_box(set.lock().first().copied());
        });
    }),
    ("timer queue insert + fire", || {
        let (timers, mut now) = (TimerQueue::new(), 0);
        count(|| {
            now += 100;
            timers.insert(now, black_box(7_u64)).detach();
            black_box(timers.advance(now));
        });
    }),
    ("timer queue insert + cancel", || {
        let timers = TimerQueue::new();
        count(|| _ = black_box(timers.insert(black_box(1000), 7_u64).cancel()));
    }),
    ("rival: parking_lot b-tree insert + fire", || {
        let (timers, mut now) = (Mutex::new(BTreeMap::new()), 0_u64);
        count(|| {
            now += 100;
            timers.lock().insert((now, 0_u64), black_box(7_u64));
            let mut timers = timers.lock();
            let later = timers.split_off(&(now + 1, 0));
            black_box(std::mem::replace(&mut *timers, later));
        });
    }),
    ("trace event", || {
        let (recording, event) = traced();
        count(event);
        drop(recording);
    }),
    ("rival: a clock read and two stores", || {
        let mut ring: [u64; 64] = array::from_fn(|_| 0);
        let mut at = 0;
        count(|| {
            ring[at] = clock();
            ring[at + 1] = black_box(7);
            at = (at + 2) % 64;
            black_box(&mut ring);
        });
    }),
];

/// A recording that overwrites, and an event of one number.
fn traced() -> (manycore_trace::Recording, impl FnMut()) {
    const CLASS: Class = Class::new(1, "class");
    let recorder = Recorder::new().classes(Classes::ALL).policy(Policy::Overwrite);
    let recording = recorder.start().expect("a recording in memory");
    (recording, || event!(CLASS, Happened { number: u64 = black_box(7_u64) }))
}

#[cfg(target_arch = "x86_64")]
fn clock() -> u64 {
    // SAFETY: every x86-64 processor has the instruction.
    unsafe { std::arch::x86_64::_rdtsc() }
}

#[cfg(not(target_arch = "x86_64"))]
fn clock() -> u64 {
    black_box(7)
}

fn cases() -> impl Iterator<Item = &'static Case> {
    CASES.iter().chain(keyed::CASES)
}

fn main() -> ExitCode {
    let asked = std::env::args().nth(1).unwrap_or_default();
    if asked == "--list" {
        cases().for_each(|(name, _)| println!("{name}"));
        return ExitCode::SUCCESS;
    }
    let Some((_, run)) = cases().find(|(name, _)| *name == asked) else {
        eprintln!("no case '{asked}': see --list");
        return ExitCode::FAILURE;
    };
    run();
    ExitCode::SUCCESS
}
