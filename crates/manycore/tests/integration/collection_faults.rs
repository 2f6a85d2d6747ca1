//! One panic of user code at every place where an operation of a collection calls user code:
//! `Hash`, `Eq`, `Clone`, `Drop`, closures, a store.
//!
//! Tests every operation with more than one step, in every state of the collection. Afterwards all
//! other entries are there, growth goes on, nothing waits forever, and everything is dropped once.
//! (`ldu_faults` tests collections of members, with marks or logs; `map_faults` tests maps by key.)
//!
//! `MANYCORE_SOAK=1` skips no call.

use crate::common::fuse::{Value, every_fault_in, tick};
use manycore::cluster::Placement;
use manycore::collections::{
    EventQueue, IntervalRegistry, Lru, ObjectPool, PageCache, PageStore, PrivatePages, RangeMap,
    Registry, TimerQueue,
};
use manycore::ldu::Queue;
use manycore::section::Domain;
use std::hash::{BuildHasherDefault, Hasher};
use std::mem::forget;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

/// An operation on a collection, with its name. It may take the collection away.
pub(crate) type Operation<C> = (&'static str, fn(&mut Option<C>));
pub(crate) type State<C> = (&'static str, fn() -> C);

pub(crate) fn every_fault<C: 'static>(
    name: &str,
    states: &[State<C>],
    operations: &[Operation<C>],
    check: impl Fn(C) + Clone + Send + 'static,
) {
    for (state, make) in states {
        for (operation, run) in operations {
            every_fault_in(&format!("{name}, {state}: {operation}"), *make, *run, check.clone());
        }
    }
}

/// A hasher that scatters numbers.
#[derive(Default, Clone, Copy)]
pub(crate) struct Scatter(u64);

impl Hasher for Scatter {
    fn write(&mut self, _: &[u8]) {
        unreachable!("keys are numbers");
    }
    fn write_u32(&mut self, number: u32) {
        self.0 = u64::from(number + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(32);
    }
    fn finish(&self) -> u64 {
        self.0
    }
}

pub(crate) type Scattering = BuildHasherDefault<Scatter>;

// ---- Ranges ----

fn ranges(count: u64) -> RangeMap<Value> {
    let map = RangeMap::new();
    for number in 0..count {
        let range = number * 100..number * 100 + 70;
        map.enter().insert(range, Value::new(number as u32)).unwrap();
    }
    map
}

#[test]
fn range_map_is_in_order_after_a_panic_of_any_call() {
    let states: [State<RangeMap<Value>>; 3] = [
        ("of few", || ranges(3)),
        ("of many", || ranges(100)),
        ("with holes", || {
            let map = ranges(100);
            (10..90).filter(|n| n % 3 == 0).for_each(|number| {
                drop(map.enter().remove(number * 100..number * 100 + 70).unwrap());
            });
            (0..3).for_each(|_| map.domain().collect());
            map
        }),
    ];
    let operations: [Operation<RangeMap<Value>>; 8] = [
        ("insert", |map| {
            let view = map.as_ref().unwrap().enter();
            view.insert(20_000..90_000, Value::new(0)).unwrap();
            drop(view.insert(0..9, Value::new(0)));
        }),
        ("replace", |map| {
            let view = map.as_ref().unwrap().enter();
            drop(view.replace(100..170, Value::new(9)).unwrap());
        }),
        ("replace many", |map| {
            let view = map.as_ref().unwrap().enter();
            drop(view.replace(100..20_000, Value::new(9)).unwrap());
        }),
        ("remove", |map| {
            let view = map.as_ref().unwrap().enter();
            drop(view.remove(100..20_000).unwrap());
        }),
        ("split", |map| drop(map.as_ref().unwrap().enter().split(130))),
        ("removals, and collect", |map| {
            let map = map.as_ref().unwrap();
            drop(map.enter().remove(100..20_000).unwrap());
            map.enter().trim();
            map.domain().collect();
            map.domain().collect();
        }),
        ("guard", |map| {
            let view = map.as_ref().unwrap().enter();
            let guard = view.lock(100..270).unwrap();
            tick();
            drop(guard);
        }),
        ("end", |map| drop(map.take())),
    ];
    every_fault("RangeMap", &states, &operations, |map| {
        let view = map.enter();
        assert!(view.get(5).is_some_and(|value| value.0 == 0), "lost");
        let mut last = 0;
        for (range, value) in view.iter() {
            assert!(*range.start() >= last, "ranges overlap");
            last = *range.end() + 1;
            assert!(view.get(*range.start()).is_some_and(|there| there.0 == value.0));
        }
        // No lock is held anywhere.
        drop(view.replace(0..100_000, Value::new(1)).unwrap());
        assert_eq!(view.iter().count(), 1);
        drop(view.remove(..).unwrap());
        assert!(view.is_empty());
    });
}

// ---- Queues, pools, pages ----

fn queue(bound: usize, events: u32) -> EventQueue<Value> {
    let queue = EventQueue::builder().max_events(bound).build().unwrap();
    (0..events).for_each(|number| assert!(queue.try_send(Value::new(number)).is_ok()));
    queue
}

#[test]
fn event_queue_is_in_order_after_a_panic_of_any_call() {
    let states: [State<EventQueue<Value>>; 3] =
        [("of few", || queue(8, 3)), ("full", || queue(8, 8)), ("of many", || queue(1_000, 200))];
    let operations: [Operation<EventQueue<Value>>; 6] = [
        ("try_send", |queue| drop(queue.as_ref().unwrap().try_send(Value::new(1_000)))),
        ("try_recv", |queue| drop(queue.as_ref().unwrap().try_recv())),
        ("drain", |queue| drop(queue.as_ref().unwrap().drain())),
        ("drain_at_most", |queue| {
            let mut some = Vec::new();
            queue.as_ref().unwrap().drain_at_most(3, &mut some);
        }),
        ("close, and send", |queue| {
            let queue = queue.as_ref().unwrap();
            queue.close();
            drop(queue.send(Value::new(1_000)));
        }),
        ("end", |queue| drop(queue.take())),
    ];
    every_fault("EventQueue", &states, &operations, |queue| {
        let left = queue.drain();
        assert!(left.windows(2).all(|two| two[0].0 < two[1].0), "out of order, or twice");
        assert!(queue.is_empty());
        if !queue.is_closed() {
            (0..8).for_each(|number| assert!(queue.try_send(Value::new(number)).is_ok()));
            assert_eq!(queue.drain().len(), 8);
        }
    });
}

fn pool(idle: usize) -> ObjectPool<Value> {
    let pool = ObjectPool::new(8, || (tick(), Value::new(0)).1);
    let things: Vec<_> = (0..idle).filter_map(|_| pool.take()).collect();
    drop(things);
    pool
}

#[test]
fn object_pool_is_in_order_after_a_panic_of_any_call() {
    let states: [State<ObjectPool<Value>>; 3] =
        [("new", || pool(0)), ("used", || pool(3)), ("full", || pool(8))];
    let operations: [Operation<ObjectPool<Value>>; 5] = [
        ("take", |pool| drop(pool.as_ref().unwrap().take())),
        ("take all", |pool| {
            let pool = pool.as_ref().unwrap();
            drop((0..9).filter_map(|_| pool.take()).collect::<Vec<_>>());
        }),
        ("detach", |pool| {
            drop(pool.as_ref().unwrap().take().map(manycore::collections::Pooled::detach));
        }),
        ("shrink", |pool| _ = pool.as_ref().unwrap().shrink()),
        ("end", |pool| drop(pool.take())),
    ];
    every_fault("ObjectPool", &states, &operations, |pool| {
        assert_eq!(pool.created(), pool.idle(), "one is missing");
        let all: Vec<_> = (0..9).filter_map(|_| pool.take()).collect();
        assert_eq!(all.len(), 8, "not as many as there may be");
    });
}

struct Store;

impl PageStore for Store {
    type Key = Value;
    type Page = Value;
    type Error = ();

    fn load(&self, key: &Value) -> Result<Value, ()> {
        tick();
        Ok(Value::new(key.0))
    }

    fn write_back(&self, _: &Value, _: &Value) -> Result<(), ()> {
        tick();
        Ok(())
    }
}

type Pages = PageCache<Store, Scattering>;

fn pages(cached: u32) -> Pages {
    let cache = Pages::with_hasher(Store, 20, Placement::Shared, Scattering::default());
    for number in 0..cached {
        let pin = cache.pin(&Value::new(number)).unwrap();
        if number % 2 == 0 {
            pin.mark_dirty();
        }
    }
    cache
}

#[test]
fn page_cache_is_in_order_after_a_panic_of_any_call() {
    let states: [State<Pages>; 3] =
        [("empty", || pages(0)), ("used", || pages(5)), ("full", || pages(20))];
    let operations: [Operation<Pages>; 7] = [
        ("pin", |cache| drop(cache.as_ref().unwrap().pin(&Value::new(1)))),
        ("pin others", |cache| {
            let cache = cache.as_ref().unwrap();
            (100..125).for_each(|number| drop(cache.pin(&Value::new(number))));
        }),
        ("reclaim", |cache| _ = cache.as_ref().unwrap().reclaim(10)),
        ("flush", |cache| _ = cache.as_ref().unwrap().flush()),
        ("for_each", |cache| cache.as_ref().unwrap().for_each(|_, _| tick())),
        ("distribute and fold", |cache| {
            let cache = cache.as_ref().unwrap();
            cache.distribute();
            drop(cache.pin(&Value::new(1)));
            cache.fold();
        }),
        ("end", |cache| drop(cache.take())),
    ];
    every_fault("PageCache", &states, &operations, |cache| {
        let pins: Vec<_> = (0..20).map(|number| cache.pin(&Value::new(number)).unwrap()).collect();
        assert!(pins.iter().enumerate().all(|(number, page)| page.0 == number as u32));
        drop(pins);
        cache.reclaim(usize::MAX).unwrap();
        assert_eq!(cache.len(), 0, "a pin was not given back");
    });
}

type Private = PrivatePages<Store, Scattering>;

/// Makes a view with some private pages, and a fork that shares them.
fn private(written: u32, forks: bool) -> (Private, Vec<Private>) {
    let view = Private::with_limit(Arc::new(pages(5)), 100);
    let write = |n| view.with_mut(&Value::new(n), |page| *page = Value::new(n + 100)).unwrap();
    (0..written).for_each(write);
    let other = if forks { vec![view.fork()] } else { Vec::new() };
    (0..written / 2).for_each(write);
    (view, other)
}

#[test]
fn private_pages_are_in_order_after_a_panic_of_any_call() {
    let states: [State<(Private, Vec<Private>)>; 4] = [
        ("new", || private(0, false)),
        ("written", || private(8, false)),
        ("forked", || private(8, true)),
        ("alone again", || {
            let mut view = private(8, true);
            view.1.clear();
            view
        }),
    ];
    let operations: [Operation<(Private, Vec<Private>)>; 6] = [
        ("with_mut", |view| {
            let (view, _) = view.as_ref().unwrap();
            (0..12).for_each(|n| {
                _ = view.with_mut(&Value::new(n), |page| (tick(), *page = Value::new(n + 100)));
            });
        }),
        ("read", |view| {
            let (view, _) = view.as_ref().unwrap();
            (0..12).for_each(|number| drop(view.read(&Value::new(number))));
        }),
        ("for_each", |view| view.as_ref().unwrap().0.for_each(|_, _| tick())),
        ("fork", |view| {
            let (view, _) = view.as_ref().unwrap();
            let fork = view.fork();
            _ = fork.with_mut(&Value::new(1), |page| *page = Value::new(200));
        }),
        ("end of a fork", |view| view.as_mut().unwrap().1.clear()),
        ("end", |view| drop(view.take())),
    ];
    every_fault("PrivatePages", &states, &operations, |(view, others)| {
        for number in 0..12 {
            let page = view.read(&Value::new(number)).unwrap().0;
            assert!(page == number || page == number + 100, "{page} under {number}");
            view.with_mut(&Value::new(number), |page| *page = Value::new(number + 100)).unwrap();
        }
        assert!((0..12).all(|n| view.read(&Value::new(n)).unwrap().0 == n + 100));
        drop(others);
    });
}

// ---- What waits in a domain ----

/// Makes a domain in which this many nodes wait, because another thread's section was open when
/// they were retired.
fn domain_with_garbage(nodes: u32) -> Domain {
    let domain = Domain::builder().batch_nodes(4).build().unwrap();
    let turn = Barrier::new(2);
    thread::scope(|scope| {
        scope.spawn(|| {
            let section = domain.enter();
            turn.wait();
            turn.wait();
            drop(section);
        });
        turn.wait();
        for number in 0..nodes {
            let value = Value::new(number);
            domain.enter().defer(move || drop(value));
        }
        turn.wait();
    });
    assert_eq!(domain.backlog(Duration::MAX).nodes, nodes as usize);
    domain
}

#[test]
fn domain_frees_each_node_once_though_one_panics() {
    let states: [State<Domain>; 3] = [
        ("of one", || domain_with_garbage(1)),
        ("of an open batch", || domain_with_garbage(3)),
        ("of many", || domain_with_garbage(30)),
    ];
    let operations: [Operation<Domain>; 2] = [
        ("collect", |domain| (0..3).for_each(|_| domain.as_ref().unwrap().collect())),
        ("end", |domain| drop(domain.take())),
    ];
    every_fault("Domain", &states, &operations, |domain| {
        (0..3).for_each(|_| domain.collect());
        assert_eq!(domain.backlog(Duration::MAX).nodes, 0);
    });
}

// ---- Collections of members, at their end: see `ldu_faults` for the rest ----

#[test]
fn collections_of_members_drop_each_once_at_their_end() {
    fn end<C: 'static>(name: &str, make: fn() -> C) {
        every_fault_in(name, make, |all| drop(all.take()), drop);
    }
    end("Registry", || {
        let registry = Registry::new();
        (0..40).for_each(|number| forget(registry.register(Value::new(number))));
        registry
    });
    end("Lru", || {
        let lru = Lru::new();
        (0..40).for_each(|number| lru.touch(Value::new(number % 30)));
        lru
    });
    end("Lru that was read", || {
        let lru = Lru::new();
        (0..40).for_each(|number| lru.touch(Value::new(number % 30)));
        assert_eq!(lru.len(), 30);
        lru
    });
    end("IntervalRegistry", || {
        let intervals = IntervalRegistry::builder().marks(Queue::Global).build().unwrap();
        for at in 0..40 {
            forget(intervals.add(Value::new(at)..Value::new(at + 3), Value::new(at)));
        }
        assert_eq!(intervals.len(), 40);
        intervals
    });
    end("TimerQueue", || {
        let timers = TimerQueue::new();
        (0..40).for_each(|at| timers.insert(at, Value::new(at as u32)).detach());
        assert_eq!(timers.advance(10).len(), 11);
        timers
    });
}
