//! Single flight: each key has one load at a time, also when loads fail, panic or are dropped.

use crate::tasks::{block_on, poll_once};
use manycore_cache::Cache;
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, OnceLock, Weak, mpsc};
use std::task::Poll;
use std::thread;
use std::time::Duration;

const THREADS: usize = 8;

/// Counts of loads: those under way, and all.
#[derive(Default)]
struct Loads {
    now: AtomicUsize,
    all: AtomicUsize,
}

impl Loads {
    /// Loads for a while, during which there must be no other load. Returns the number of the load.
    fn run(&self) -> usize {
        assert_eq!(self.now.fetch_add(1, SeqCst), 0, "two loads of a key at once");
        thread::sleep(Duration::from_millis(5));
        self.now.fetch_sub(1, SeqCst);
        self.all.fetch_add(1, SeqCst) + 1
    }
}

fn on_threads<R: Send>(work: impl Fn(usize) -> R + Sync) -> Vec<R> {
    thread::scope(|scope| {
        let work = &work;
        let started: Vec<_> = (0..THREADS).map(|t| scope.spawn(move || work(t))).collect();
        started.into_iter().map(|t| t.join().expect("a thread panicked")).collect()
    })
}

#[test]
fn many_who_want_a_key_load_it_once() {
    let (cache, loads) = (Cache::new(10), Loads::default());
    let found = on_threads(|_| *cache.get_or_insert_with('a', || loads.run()));
    assert_eq!(found, [1; THREADS]);
}

#[test]
fn loads_of_different_keys_run_at_once() {
    let (cache, other) = (&Cache::new(10), &Cache::new(10));
    let (send, receive) = mpsc::channel::<()>();
    thread::scope(|scope| {
        scope.spawn(move || {
            drop(cache.get_or_insert_with('a', || receive.recv_timeout(Duration::from_secs(60))));
        });
        drop(cache.get_or_insert_with('b', || Ok(())));
        drop(other.get_or_insert_with('a', || ()));
        send.send(()).unwrap();
    });
    assert!(cache.get(&'a').unwrap().is_ok(), "the load of 'b' waited for that of 'a'");
}

/// A child of `fork` does not have the thread that loads.
#[cfg(unix)]
#[test]
fn load_of_another_thread_does_not_end_in_a_child_and_other_loads_do() {
    let name = "load_of_another_thread_does_not_end_in_a_child_and_other_loads_do";
    crate::process::in_own_process(name, || {
        let (come, has_come) = mpsc::channel();
        let (go, goes) = mpsc::channel::<()>();
        let cache = Arc::new(Cache::new(10));
        let of_loader = Arc::clone(&cache);
        let loader = thread::spawn(move || {
            let load = || {
                come.send(()).unwrap();
                goes.recv().unwrap_err();
                7
            };
            *of_loader.get_or_insert_with('a', load)
        });
        has_come.recv().unwrap();
        let child = || {
            let other = *cache.get_or_insert_with('b', || 8) == 8 && cache.get(&'a').is_none();
            let of_waiter = Arc::clone(&cache);
            let waits = thread::spawn(move || *of_waiter.get_or_insert_with('a', || 9));
            thread::sleep(Duration::from_millis(20));
            other && !waits.is_finished()
        };
        assert_eq!(crate::process::in_child(child), 0);
        drop(go);
        assert_eq!(loader.join().unwrap(), 7);
    });
}

#[test]
fn a_load_that_panics_is_its_callers_and_the_next_one_loads() {
    let (cache, loads) = (Cache::new(10), Loads::default());
    let results = on_threads(|_| {
        let load = || {
            let number = loads.run();
            assert!(number > 3, "as asked for");
            number
        };
        catch_unwind(AssertUnwindSafe(|| *cache.get_or_insert_with('a', load))).ok()
    });
    assert_eq!(results.iter().filter(|result| result.is_none()).count(), 3);
    assert!(results.iter().flatten().all(|number| *number == 4));
}

/// A key that records, when it is dropped, the loads that are under way in its cache.
struct Watching {
    number: u32,
    cache: Arc<OnceLock<Weak<Cache<Watching, u32>>>>,
    loads_at_drop: Arc<Mutex<Vec<u64>>>,
}

impl PartialEq for Watching {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}
impl Eq for Watching {}

impl Hash for Watching {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.number.hash(state);
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        let cache = self.cache.get().and_then(Weak::upgrade).expect("the test has the cache");
        self.loads_at_drop.lock().unwrap().push(cache.stats().loading);
    }
}

/// Other requests compare a load's key as long as the load is listed (single_flight.F5).
#[test]
fn a_key_whose_weigher_panics_after_its_load_is_dropped_once_the_load_is_over() {
    let builder = Cache::builder(10).weigher(|_: &Watching, _: &u32| panic!("as asked for"));
    let cache = Arc::new(builder.build().unwrap());
    let known = Arc::new(OnceLock::new());
    known.set(Arc::downgrade(&cache)).expect("set once");
    let loads_at_drop = Arc::default();
    let key = Watching { number: 1, cache: known, loads_at_drop: Arc::clone(&loads_at_drop) };
    let load = || {
        assert_eq!(cache.stats().loading, 1);
        2
    };
    assert!(catch_unwind(AssertUnwindSafe(|| drop(cache.get_or_insert_with(key, load)))).is_err());
    cache.collect();
    assert_eq!(*loads_at_drop.lock().unwrap(), [0]);
}

#[test]
fn a_load_that_wants_its_own_key_panics_instead_of_waiting_for_ever() {
    let cache = Cache::new(10);
    let nested = || cache.get_or_insert_with('a', || *cache.get_or_insert_with('a', || 1));
    assert!(catch_unwind(AssertUnwindSafe(|| drop(nested()))).is_err());
    assert_eq!(*cache.get_or_insert_with('a', || *cache.get_or_insert_with('b', || 2)), 2);
}

#[test]
fn many_futures_that_want_a_key_load_it_once() {
    let (cache, loads) = (Cache::new(10), Loads::default());
    let found = on_threads(|_| block_on(cache.get_or_insert_async('a', async { loads.run() })));
    assert_eq!(found, [1; THREADS]);
}

/// A thread does not wait for a future's load, but loads beside it. One value counts for all.
#[test]
fn threads_and_futures_that_want_a_key_agree_on_one_of_two_loads() {
    let cache = Cache::new(10);
    let (threads, futures) = (Loads::default(), Loads::default());
    let found = on_threads(|thread| match thread % 2 {
        0 => block_on(cache.get_or_insert_async('a', async { futures.run() * 10 })),
        _ => *cache.get_or_insert_with('a', || threads.run()),
    });
    assert!(threads.all.load(SeqCst) <= 1 && futures.all.load(SeqCst) <= 1);
    assert!(found.iter().all(|value| *value == found[0]), "{found:?}");
}

#[test]
fn a_future_waits_for_a_threads_load() {
    let cache = &Cache::new(10);
    let (send, receive) = mpsc::channel::<()>();
    thread::scope(|scope| {
        let (begun, has_begun) = mpsc::channel();
        scope.spawn(move || {
            drop(cache.get_or_insert_with('a', || {
                begun.send(()).unwrap();
                receive.recv_timeout(Duration::from_secs(60)).map_or(0, |()| 1)
            }));
        });
        has_begun.recv().unwrap();
        let mut waiting = Box::pin(cache.get_or_insert_async('a', async { 2 }));
        assert!(poll_once(waiting.as_mut()).is_pending());
        send.send(()).unwrap();
        assert_eq!(block_on(waiting), 1);
    });
}

#[test]
fn a_load_that_is_dropped_lets_the_next_one_load() {
    let cache = Cache::new(10);
    let mut waiting = {
        let mut first = Box::pin(cache.get_or_insert_async('a', std::future::pending()));
        assert!(poll_once(first.as_mut()).is_pending());
        let mut waiting = Box::pin(cache.get_or_insert_async('a', async { 2 }));
        assert!(poll_once(waiting.as_mut()).is_pending());
        waiting
    };
    assert_eq!(poll_once(waiting.as_mut()), Poll::Ready(2));
}

#[test]
fn a_future_can_be_sent_to_another_thread() {
    let cache = Arc::new(Cache::new(10));
    let other = Arc::clone(&cache);
    let future = async move { other.get_or_insert_async('a', async { 1 }).await };
    assert_eq!(thread::spawn(move || block_on(future)).join().unwrap(), 1);
}
