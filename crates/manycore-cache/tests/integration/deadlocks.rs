//! Loads that ask for their own key, or for each other: each ends with a panic and its message, or
//! with a value, and never waits silently. Each scenario has a watchdog.

use crate::tasks::{block_on, message, poll_once, within};
use manycore_cache::Cache;
use std::future::pending;
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Barrier, mpsc};
use std::task::Poll;
use std::thread;
use std::time::Duration;

const OWN_KEY: &str = "manycore: the load of a cached value asks for the same key";
const DEADLOCK: &str = "manycore: deadlock: loads of cached values wait for each other";

type Shared = Arc<Cache<u32, u32>>;
type Boxed = Pin<Box<dyn Future<Output = u32> + Send>>;

fn cache() -> Shared {
    Arc::new(Cache::new(10))
}

/// How a scenario ends: with a value, or with the message of its panic.
fn outcome(scenario: impl FnOnce() -> u32 + Send + 'static) -> Result<u32, String> {
    within(20, || catch_unwind(AssertUnwindSafe(scenario)).map_err(|payload| message(&*payload)))
}

/// A future that asks for the key, with `load` as its load.
fn ask(cache: &Shared, key: u32, load: Boxed) -> Boxed {
    let cache = Arc::clone(cache);
    Box::pin(async move { cache.get_or_insert_async(key, load).await })
}

fn value(value: u32) -> Boxed {
    Box::pin(async move { value })
}

#[test]
fn an_async_load_that_awaits_its_own_key_panics() {
    let cache = cache();
    let own = ask(&cache, 1, ask(&cache, 1, value(7)));
    assert_eq!(outcome(|| block_on(own)), Err(OWN_KEY.into()));
    assert_eq!(*cache.get_or_insert_with(1, || 8), 8, "the load has ended");
}

#[test]
fn an_async_load_that_awaits_its_own_key_through_another_panics() {
    let cache = cache();
    let own = ask(&cache, 1, ask(&cache, 2, ask(&cache, 1, value(7))));
    assert_eq!(outcome(|| block_on(own)), Err(OWN_KEY.into()));
    assert!(cache.is_empty());
}

#[test]
fn a_blocking_load_that_awaits_its_own_key_panics() {
    let shared = cache();
    let (cache, nested) = (Arc::clone(&shared), ask(&shared, 1, value(7)));
    let asked = move || *cache.get_or_insert_with(1, || block_on(nested));
    assert_eq!(outcome(asked), Err(OWN_KEY.into()));
}

/// A request that was polled before, elsewhere, is then awaited by the load itself.
#[test]
fn a_waiting_request_that_its_own_load_awaits_panics() {
    let shared = cache();
    let (give, take) = mpsc::channel::<Boxed>();
    let load: Boxed = Box::pin(async move {
        let request = async { 0 }.await;
        crate::tasks::yield_once().await;
        request + take.recv().unwrap().await
    });
    let mut leader = ask(&shared, 1, load);
    assert!(poll_once(leader.as_mut()).is_pending());
    let mut waiting = ask(&shared, 1, value(3));
    assert!(poll_once(waiting.as_mut()).is_pending());
    give.send(waiting).unwrap();
    assert_eq!(outcome(|| block_on(leader)), Err(OWN_KEY.into()));
}

#[test]
fn a_blocking_request_beside_a_pending_future_loads_by_itself() {
    let shared = cache();
    let mut leader = ask(&shared, 1, Box::pin(pending()));
    assert!(poll_once(leader.as_mut()).is_pending());
    let cache = Arc::clone(&shared);
    assert_eq!(outcome(move || *cache.get_or_insert_with(1, || 5)), Ok(5));
    drop(leader);
    assert_eq!(shared.get(&1).as_deref(), Some(&5));
}

#[test]
fn an_async_load_that_asks_for_its_own_key_blocking_takes_the_nested_value() {
    let shared = cache();
    let cache = Arc::clone(&shared);
    let load = Box::pin(async move { *cache.get_or_insert_with(1, || 5) + 1 });
    let leader = ask(&shared, 1, load);
    assert_eq!(outcome(|| block_on(leader)), Ok(5), "the nested value came first");
}

/// The loads of two threads ask for each other's key. Either one load panics, and the other thread
/// then loads that key itself, too; or one of them was done before.
#[test]
fn two_threads_whose_loads_ask_for_each_other_do_not_hang() {
    let shared = cache();
    let both_load = Arc::new(Barrier::new(2));
    let (send, receive) = mpsc::channel();
    for own in [1, 2] {
        let (cache, both_load, send) = (shared.clone(), both_load.clone(), send.clone());
        thread::spawn(move || {
            let load = || {
                both_load.wait();
                *cache.get_or_insert_with(3 - own, || *cache.get_or_insert_with(own, || 9))
            };
            let ended = catch_unwind(AssertUnwindSafe(|| *cache.get_or_insert_with(own, load)));
            send.send(ended.map_err(|payload| message(&*payload))).unwrap();
        });
    }
    let ended = [(); 2].map(|()| receive.recv_timeout(Duration::from_secs(20)).expect("a hang"));
    assert!(ended.contains(&Err(DEADLOCK.into())), "{ended:?}");
}

#[test]
fn two_tasks_whose_loads_ask_for_each_other_do_not_hang() {
    let shared = cache();
    let mutual = |own: u32| {
        let nested = ask(&shared, 3 - own, value(9));
        let load: Boxed = Box::pin(async move {
            crate::tasks::yield_once().await;
            nested.await
        });
        ask(&shared, own, load)
    };
    let (mut first, mut second) = (mutual(1), mutual(2));
    assert!(poll_once(first.as_mut()).is_pending() && poll_once(second.as_mut()).is_pending());
    assert!(poll_once(first.as_mut()).is_pending(), "it waits for the second");
    let ended = outcome(|| block_on(second));
    assert_eq!(ended, Err(DEADLOCK.into()));
    assert_eq!(outcome(|| block_on(first)), Ok(9), "it loads the other key itself");
}

/// This cannot be detected: the load awaits another *task*, and that task asks for the key. Each is
/// a future that waits for a waker, like any other. The load is counted as under way, and ends when
/// its future is dropped.
#[test]
fn a_load_that_awaits_a_task_that_asks_for_its_key_is_under_way_until_it_is_dropped() {
    let shared = cache();
    let (give, take) = mpsc::channel::<u32>();
    let load: Boxed = Box::pin(std::future::poll_fn(move |_| match take.try_recv() {
        Ok(value) => Poll::Ready(value),
        Err(_) => Poll::Pending,
    }));
    let mut leader = ask(&shared, 1, load);
    assert!(poll_once(leader.as_mut()).is_pending());
    let mut task = ask(&shared, 1, value(3));
    for _ in 0..10 {
        assert!(poll_once(task.as_mut()).is_pending());
        assert!(poll_once(leader.as_mut()).is_pending());
    }
    assert_eq!(shared.stats().loading, 1);
    drop((leader, give));
    assert_eq!(poll_once(task.as_mut()), Poll::Ready(3));
    assert_eq!((shared.stats().loading, shared.stats().load_failures), (0, 1));
}

/// On the only thread of an executor, a task blocks for a key that another task is loading. It
/// loads by itself, and the other task takes its value.
#[test]
fn a_blocking_request_on_the_executors_thread_does_not_wait_for_its_own_tasks() {
    let shared = cache();
    let outcome = outcome(move || {
        let load: Boxed = Box::pin(async {
            crate::tasks::yield_once().await;
            7
        });
        let (cache, blocking) = (shared.clone(), shared.clone());
        let mut tasks = [
            ask(&cache, 1, load),
            Box::pin(async move { *blocking.get_or_insert_with(1, || 5) }),
            ask(&cache, 1, value(9)),
        ];
        let mut values = [None; 3];
        while values.contains(&None) {
            for (task, value) in tasks.iter_mut().zip(&mut values).filter(|(_, v)| v.is_none()) {
                if let Poll::Ready(ended) = poll_once(task.as_mut()) {
                    *value = Some(ended);
                }
            }
        }
        assert_eq!(values, [Some(5); 3]);
        5
    });
    assert_eq!(outcome, Ok(5));
}

/// The loads of two caches wait for each other: there is one graph for all caches.
#[test]
fn a_deadlock_through_two_caches_is_found() {
    let (one, two) = (cache(), cache());
    let inner = ask(&one, 1, value(7));
    let own = ask(&one, 1, ask(&two, 1, inner));
    assert_eq!(outcome(|| block_on(own)), Err(OWN_KEY.into()));
}

/// A key with the same hash as all other keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Same(u32);

impl Hash for Same {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        0_u32.hash(hasher);
    }
}

#[test]
fn a_load_may_ask_for_another_key_of_its_hash() {
    let cache = Arc::new(Cache::<Same, u32>::new(10));
    let own = Arc::clone(&cache);
    let nested =
        move || *own.get_or_insert_with(Same(1), || *own.get_or_insert_with(Same(2), || 7));
    assert_eq!(outcome(nested), Ok(7));
    let own = Arc::clone(&cache);
    let nested = async move {
        let load = own.get_or_insert_async(Same(4), async { 8 });
        own.get_or_insert_async(Same(3), load).await
    };
    assert_eq!(outcome(|| block_on(nested)), Ok(8));
}

#[test]
fn loads_of_two_keys_of_one_hash_run_at_once() {
    let cache = Arc::new(Cache::<Same, u32>::new(10));
    let both_load = Arc::new(Barrier::new(2));
    let ended = within(20, move || {
        let started = [1, 2].map(|key| {
            let (cache, both_load) = (cache.clone(), both_load.clone());
            thread::spawn(move || {
                *cache.get_or_insert_with(Same(key), || {
                    both_load.wait();
                    key
                })
            })
        });
        started.map(|thread| thread.join().unwrap())
    });
    assert_eq!(ended, [1, 2]);
}

#[test]
fn a_future_that_is_dropped_in_a_nest_leaves_no_trace_of_the_cycle() {
    let shared = cache();
    for _ in 0..100 {
        let mut outer = ask(&shared, 1, ask(&shared, 2, Box::pin(pending())));
        assert!(poll_once(outer.as_mut()).is_pending());
        let mut waits = ask(&shared, 3, ask(&shared, 1, value(1)));
        assert!(poll_once(waits.as_mut()).is_pending());
        drop(outer);
        assert_eq!(poll_once(waits.as_mut()), Poll::Ready(1));
        drop(shared.remove(&1));
        drop(shared.remove(&3));
    }
}
