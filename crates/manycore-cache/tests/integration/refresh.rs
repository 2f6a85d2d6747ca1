//! Entries that are loaded again ahead of their end, under a clock that only the test moves.

use crate::tasks::{block_on, poll_once, within, yield_once};
use manycore_cache::{BuildError, Cache, Cause};
use std::convert::Infallible;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

type Numbers = Cache<u32, u32>;
type Told = Arc<Mutex<Vec<(u32, Cause)>>>;

/// Returns a cache with entries that live for 100 seconds and are refreshed in the last 10. Also
/// returns its clock, and what the listener hears.
fn cache() -> (Arc<Numbers>, Arc<AtomicU64>, Told) {
    let (now, told) = (Arc::new(AtomicU64::new(0)), Told::default());
    let (clock, heard) = (now.clone(), told.clone());
    let cache = Cache::builder(10)
        .time_to_live(secs(100))
        .refresh_ahead(secs(10))
        .clock(move || secs(clock.load(SeqCst)))
        .listener(move |_, value, cause| heard.lock().unwrap().push((*value, cause)))
        .build()
        .unwrap();
    (Arc::new(cache), now, told)
}

/// Returns a cache with value 1 under key 1, which is due for a refresh.
fn due() -> (Arc<Numbers>, Arc<AtomicU64>, Told) {
    let made = cache();
    made.0.insert(1, 1);
    made.1.store(90, SeqCst);
    made
}

#[test]
fn an_entry_that_is_due_is_loaded_anew_and_has_its_whole_time_again() {
    let (cache, now, told) = cache();
    let ask = |value| *cache.get_or_insert_with(1, || value);
    let ask_async = |value| block_on(cache.get_or_insert_async(1, async move { value }));
    assert_eq!(ask(1), 1);
    now.store(89, SeqCst);
    assert_eq!((ask(2), ask_async(2)), (1, 1), "not due");
    now.store(90, SeqCst);
    assert_eq!(cache.get(&1).as_deref(), Some(&1), "a plain read loads nothing");
    assert_eq!((ask(2), ask(3), ask_async(3)), (2, 2, 2));
    assert_eq!(cache.time_left(&1), Some(secs(100)));
    now.store(180, SeqCst);
    assert_eq!((ask_async(4), ask_async(5), ask(5)), (4, 4, 4));
    assert_eq!(*told.lock().unwrap(), [(1, Cause::Replaced), (2, Cause::Replaced)]);
    assert_eq!((cache.stats().loads, cache.len(), cache.weight()), (3, 1, 1));
}

#[test]
fn others_get_the_present_value_while_one_caller_loads() {
    let (cache, _, _) = due();
    let (begun, has_begun) = mpsc::channel();
    let (go, gone) = mpsc::channel::<()>();
    within(20, move || {
        let cache = &cache;
        thread::scope(|scope| {
            let loader = scope.spawn(move || {
                *cache.get_or_insert_with(1, || {
                    begun.send(()).unwrap();
                    gone.recv().unwrap();
                    2
                })
            });
            has_begun.recv().unwrap();
            for _ in 0..10 {
                assert_eq!(*cache.get_or_insert_with(1, || 3), 1);
                assert_eq!(block_on(cache.get_or_insert_async(1, async { 3 })), 1);
            }
            go.send(()).unwrap();
            assert_eq!(loader.join().unwrap(), 2);
            assert_eq!(*cache.get_or_insert_with(1, || 3), 2);
        });
    });
}

#[test]
fn a_refresh_does_not_overwrite_a_conditional_update() {
    let (cache, _, _) = due();
    let load = || {
        assert!(cache.insert_if(1, 3, |entry| entry.is_some()).is_ok());
        2
    };
    assert_eq!(*cache.get_or_insert_with(1, load), 3);
    assert_eq!(cache.get(&1).as_deref(), Some(&3));
}

/// A thread waits for no future's load, and does not refresh beside it either.
#[test]
fn a_thread_takes_the_present_value_while_a_future_loads() {
    let (cache, _, _) = due();
    let load = async {
        yield_once().await;
        2
    };
    let mut loader = Box::pin(cache.get_or_insert_async(1, load));
    assert!(poll_once(loader.as_mut()).is_pending());
    assert_eq!(*cache.get_or_insert_with(1, || 3), 1);
    assert_eq!(block_on(loader), 2);
    assert_eq!(*cache.get_or_insert_with(1, || 3), 2);
}

#[test]
fn a_future_that_is_dropped_lets_the_next_request_refresh() {
    let (cache, _, _) = due();
    let mut loader = Box::pin(cache.get_or_insert_async(1, std::future::pending()));
    assert!(poll_once(loader.as_mut()).is_pending());
    drop(loader);
    assert_eq!(*cache.get_or_insert_with(1, || 2), 2);
}

#[test]
fn a_refresh_that_fails_leaves_the_present_value_until_its_end() {
    let (cache, now, told) = due();
    let fails = || cache.try_get_or_insert_with(1, || Err("no")).map(|found| *found);
    let fails_async = || block_on(cache.try_get_or_insert_async(1, async { Err("no") }));
    assert_eq!((fails(), fails_async()), (Ok(1), Ok(1)));
    assert_eq!(cache.optionally_get_or_insert_with(1, || None).as_deref(), Some(&1));
    assert_eq!(cache.stats().load_failures, 3, "each request tries");
    let panics = || drop(cache.get_or_insert_with(1, || panic!("as the test wants it")));
    assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
    assert_eq!(cache.get(&1).as_deref(), Some(&1));
    now.store(100, SeqCst);
    assert_eq!((fails(), fails_async()), (Err(Arc::new("no")), Err(Arc::new("no"))));
    assert_eq!(*told.lock().unwrap(), [(1, Cause::Expired)]);
}

/// The entry ends while it is refreshed: requests then wait for that load, as for any other.
#[test]
fn an_entry_that_expires_during_its_refresh_is_waited_for() {
    let (cache, now, _) = due();
    let load = || async {
        yield_once().await;
        Ok::<_, Infallible>(2)
    };
    let mut loader = Box::pin(cache.try_get_or_insert_async(1, load()));
    assert!(poll_once(loader.as_mut()).is_pending());
    now.store(100, SeqCst);
    let mut waiter = Box::pin(cache.get_or_insert_async(1, async { 3 }));
    assert!(poll_once(waiter.as_mut()).is_pending());
    assert_eq!((block_on(loader), block_on(waiter)), (Ok(2), 2));
    assert_eq!(cache.time_left(&1), Some(secs(100)));
}

/// As in `newer`, with an entry that is there.
#[test]
fn what_is_written_during_a_refresh_wins() {
    let after = |update: fn(&Numbers)| {
        let (cache, _, _) = due();
        let loaded = *cache.get_or_insert_with(1, || {
            update(&cache);
            2
        });
        (loaded, cache.get(&1).map(|found| *found))
    };
    assert_eq!(after(|cache| _ = cache.insert(1, 5)), (5, Some(5)));
    assert_eq!(after(|cache| drop(cache.remove(&1))), (2, None));
    assert_eq!(after(Cache::invalidate_all), (2, None));
    assert_eq!(after(|cache| _ = cache.insert(2, 5)), (2, Some(2)));
    let evicted = |cache: &Numbers| (2..100).for_each(|key| _ = cache.insert(key, 0));
    assert_eq!(after(evicted), (2, Some(2)));
    let again = |cache: &Numbers| assert_eq!(*cache.get_or_insert_with(1, || 7), 1);
    assert_eq!(after(again), (2, Some(2)), "the load's own request takes what is there");
}

#[test]
fn an_entry_without_an_end_is_never_due_and_one_without_metadata_has_its_own() {
    let lone = Cache::builder(10).refresh_ahead(secs(10)).build().unwrap();
    lone.insert(1, 1);
    assert_eq!(*lone.get_or_insert_with(1, || 2), 1);
    let bare = Cache::builder(10)
        .without_metadata(|_, value: &u64| (*value > 0).then(|| secs(*value)))
        .clock(|| secs(95))
        .refresh_ahead(secs(10))
        .build()
        .unwrap();
    for (key, value) in [(1, 0), (2, 100), (3, 200)] {
        bare.insert(key, value);
    }
    assert_eq!([1, 2, 3].map(|key| *bare.get_or_insert_with(key, || 300)), [0, 300, 200]);
    let none = Cache::<u32, u32>::builder(10).refresh_ahead(Duration::ZERO).build();
    assert_eq!(none.unwrap_err(), BuildError::NoTime("time to refresh ahead"));
}
