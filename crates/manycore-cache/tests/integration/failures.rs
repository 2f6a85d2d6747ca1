//! Loads that fail, or find nothing: every waiter gets the error, and it is not kept.

use crate::tasks::{block_on, poll_once, within, yield_once};
use manycore_cache::Cache;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::task::Poll;
use std::thread;
use std::time::Duration;

type Numbers = Cache<u32, u32>;

/// An error that is neither `Clone` nor `PartialEq`, like most errors.
#[derive(Debug)]
struct Failed(usize);

#[test]
fn fifty_threads_that_wait_for_a_failing_load_get_its_error_together() {
    const THREADS: usize = 50;
    within(60, || {
        let (cache, loads) = (Numbers::new(10), AtomicUsize::new(0));
        let asked = AtomicUsize::new(0);
        let ask = || {
            asked.fetch_add(1, SeqCst);
            let loaded = cache.try_get_or_insert_with(1, || {
                let number = loads.fetch_add(1, SeqCst) + 1;
                while asked.load(SeqCst) < THREADS {
                    thread::yield_now();
                }
                thread::sleep(Duration::from_millis(20)); // until those that asked wait
                Err(Failed(number))
            });
            let error = loaded.unwrap_err();
            assert!((1..=loads.load(SeqCst)).contains(&error.0));
        };
        thread::scope(|scope| (0..THREADS).for_each(|_| _ = scope.spawn(ask)));
        // A thread that gets its core late may come after the first load.
        let loads = loads.into_inner();
        assert!(loads <= THREADS / 5, "{loads} loads, one after the other");
        assert!(cache.is_empty());
    });
}

/// A future that asks for key 1, with a load that fails at its second poll.
async fn ask(cache: &Numbers, loads: &AtomicUsize) -> Result<u32, Arc<Failed>> {
    let load = async {
        let number = loads.fetch_add(1, SeqCst) + 1;
        yield_once().await;
        Err(Failed(number))
    };
    cache.try_get_or_insert_async(1, load).await
}

#[test]
fn futures_that_wait_for_a_failing_load_get_the_same_error() {
    let (cache, loads) = (Numbers::new(10), AtomicUsize::new(0));
    let mut all: Vec<_> = (0..50).map(|_| Box::pin(ask(&cache, &loads))).collect();
    assert!(all.iter_mut().all(|one| poll_once(one.as_mut()).is_pending()));
    let errors: Vec<_> = all.into_iter().map(|one| block_on(one).unwrap_err()).collect();
    assert!(errors.iter().all(|error| Arc::ptr_eq(error, &errors[0])));
    assert_eq!((loads.into_inner(), Arc::strong_count(&errors[0])), (1, 50), "all else is gone");
}

#[test]
fn the_next_request_after_a_failure_loads_again() {
    let (cache, loads) = (Numbers::new(10), AtomicUsize::new(0));
    for number in 1..=3 {
        assert_eq!(block_on(ask(&cache, &loads)).unwrap_err().0, number);
    }
    assert_eq!(*cache.try_get_or_insert_with(1, || Ok::<_, Failed>(7)).unwrap(), 7);
}

/// A waiter that expects another type of error, because its own load is another function, loads
/// itself.
#[test]
fn a_waiter_that_expects_another_error_loads_itself() {
    let (cache, loads) = (Numbers::new(10), AtomicUsize::new(0));
    let mut leader = Box::pin(ask(&cache, &loads));
    assert!(poll_once(leader.as_mut()).is_pending());
    let mut other = Box::pin(cache.try_get_or_insert_async(1, async { Err("another") }));
    let mut sure = Box::pin(cache.get_or_insert_async(1, async { 7 }));
    assert!(poll_once(other.as_mut()).is_pending() && poll_once(sure.as_mut()).is_pending());
    assert_eq!(block_on(leader).unwrap_err().0, 1);
    assert_eq!(block_on(other), Err(Arc::new("another")));
    assert_eq!(block_on(sure), 7);
}

/// The key was removed during the load, so the load's error may be from before the removal.
#[test]
fn an_error_from_before_an_update_of_the_key_reaches_its_loader_alone() {
    let (cache, loads) = (Numbers::new(10), AtomicUsize::new(0));
    let [mut leader, mut waiter] = [(); 2].map(|()| Box::pin(ask(&cache, &loads)));
    assert!(poll_once(leader.as_mut()).is_pending() && poll_once(waiter.as_mut()).is_pending());
    drop(cache.remove(&1));
    assert_eq!(block_on(leader).unwrap_err().0, 1);
    assert_eq!(block_on(waiter).unwrap_err().0, 2, "it has loaded again");
}

#[test]
fn a_value_that_is_inserted_during_a_failing_load_is_what_waiters_get() {
    let (cache, loads) = (Numbers::new(10), AtomicUsize::new(0));
    let [mut leader, mut waiter] = [(); 2].map(|()| Box::pin(ask(&cache, &loads)));
    assert!(poll_once(leader.as_mut()).is_pending() && poll_once(waiter.as_mut()).is_pending());
    cache.insert(1, 5);
    assert_eq!(block_on(leader).unwrap_err().0, 1);
    assert_eq!(block_on(waiter).unwrap(), 5);
}

#[test]
fn a_load_that_finds_nothing_says_so_to_all_and_puts_nothing_in() {
    let (cache, loads) = (&Numbers::new(10), &AtomicUsize::new(0));
    let ask = |found: Option<u32>| {
        let load = async move {
            loads.fetch_add(1, SeqCst);
            yield_once().await;
            found
        };
        Box::pin(cache.optionally_get_or_insert_async(1, load))
    };
    let [mut first, mut second] = [ask(None), ask(Some(1))];
    assert!(poll_once(first.as_mut()).is_pending() && poll_once(second.as_mut()).is_pending());
    assert_eq!((block_on(first), block_on(second)), (None, None));
    assert_eq!((loads.load(SeqCst), cache.len()), (1, 0));
    assert_eq!(block_on(ask(Some(2))), Some(2));
    assert_eq!(cache.optionally_get_or_insert_with(1, || None).as_deref(), Some(&2));
    assert!(cache.optionally_get_or_insert_with(3, || None).is_none());
    assert_eq!(cache.optionally_get_or_insert_with(3, || Some(4)).as_deref(), Some(&4));
}

#[test]
fn a_panic_is_not_shared() {
    let cache = Numbers::new(10);
    let load = async {
        yield_once().await;
        panic!("as the test wants it")
    };
    let mut leader = Box::pin(cache.get_or_insert_async(1, load));
    assert!(poll_once(leader.as_mut()).is_pending());
    let mut waiter = Box::pin(cache.get_or_insert_async(1, async { 2 }));
    assert!(poll_once(waiter.as_mut()).is_pending());
    let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| block_on(leader)));
    assert!(ended.is_err());
    assert_eq!(poll_once(waiter.as_mut()), Poll::Ready(2));
}

#[test]
fn a_negative_value_is_kept_for_its_own_time() {
    let secs = Arc::new(AtomicU64::new(0));
    let clock = secs.clone();
    let clock = move || Duration::from_secs(clock.load(SeqCst));
    let builder = Cache::<u32, Result<u32, Failed>>::builder(10).clock(clock.clone());
    let builder = builder.time_to_live(Duration::from_secs(100));
    let cache = builder.error_time_to_live(Duration::from_secs(5)).build().unwrap();
    let fails =
        |number| cache.get_or_insert_with(1, || Err(Failed(number))).as_ref().err().unwrap().0;
    assert_eq!((fails(1), fails(2)), (1, 1));
    secs.fetch_add(5, SeqCst);
    assert_eq!(fails(3), 3);
    drop(cache.get_or_insert_with(2, || Ok(7)));
    secs.fetch_add(99, SeqCst);
    assert!(cache.get(&1).is_none() && cache.get(&2).is_some());
    drop(cache.remove(&2));
    assert!(cache.get_or_insert_with(2, || Err(Failed(9))).is_err(), "a removal ends it, too");

    // The entry's own time counts, too: the shortest time wins.
    let builder = Cache::<u32, Option<u32>>::builder(10).clock(clock);
    let builder = builder.expire_after(|key, _| Some(Duration::from_secs(u64::from(*key))));
    let cache = builder.missing_time_to_live(Duration::from_secs(5)).build().unwrap();
    (3..9).for_each(|key| _ = cache.insert(key, (key % 2 == 0).then_some(0)));
    let left = |key| cache.time_left(&key).unwrap().as_secs();
    assert_eq!([3, 4, 7, 8].map(left), [3, 4, 5, 8]);
}

/// Returns the counts of reads and loads.
fn counted(cache: &Numbers) -> [u64; 5] {
    let stats = cache.stats();
    [stats.hits, stats.misses, stats.loads, stats.load_failures, stats.loading]
}

#[test]
fn a_load_is_counted_once_and_a_request_is_one_hit_or_one_miss() {
    let cache: Numbers = Cache::builder(10).count_reads(true).build().unwrap();
    assert_eq!(*cache.get_or_insert_with(1, || 1), 1);
    assert_eq!(counted(&cache), [0, 1, 1, 0, 0]);
    assert_eq!(*cache.get_or_insert_with(1, || 2), 1);
    assert_eq!(counted(&cache), [1, 1, 1, 0, 0]);
    assert!(cache.optionally_get_or_insert_with(2, || None).is_none());
    assert_eq!(counted(&cache), [1, 2, 1, 1, 0]);
    drop(cache.get_or_insert_with(2, || {
        assert_eq!(counted(&cache)[4], 1, "under way");
        thread::sleep(Duration::from_millis(20));
        2
    }));
    assert_eq!(counted(&cache), [1, 3, 2, 1, 0]);
    let stats = cache.stats();
    assert!(stats.load_time >= Duration::from_millis(20), "{stats:?}");
    assert!(stats.mean_load_time() >= Duration::from_millis(6), "{stats:?}");
    let panics = || drop(cache.get_or_insert_with(3, || panic!("as the test wants it")));
    let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(panics));
    assert!(ended.is_err());
    assert_eq!(counted(&cache), [1, 4, 2, 2, 0]);
}

#[test]
fn waiters_of_a_load_count_their_miss_and_no_load() {
    let cache: Numbers = Cache::builder(10).count_reads(true).build().unwrap();
    let ask = || {
        Box::pin(cache.get_or_insert_async(1, async {
            yield_once().await;
            1
        }))
    };
    let mut all: Vec<_> = (0..10).map(|_| ask()).collect();
    assert!(all.iter_mut().all(|one| poll_once(one.as_mut()).is_pending()));
    assert_eq!(counted(&cache), [0, 10, 0, 0, 1]);
    let dropped = all.remove(0);
    drop(dropped);
    assert_eq!(counted(&cache), [0, 10, 0, 1, 0], "a load whose future was dropped");
    assert!(all.iter_mut().all(|one| poll_once(one.as_mut()).is_pending()));
    assert!(all.into_iter().all(|one| block_on(one) == 1));
    assert_eq!(counted(&cache), [0, 10, 1, 1, 0]);
}
