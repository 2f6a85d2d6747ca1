//! A load does not overwrite newer data: insertions and removals of its key during the load.

use crate::tasks::{block_on, poll_once, within};
use manycore_cache::{Cache, Cause, Change};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, OnceLock, Weak, mpsc};
use std::task::{Context, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

type Numbers = Cache<u32, u32>;

/// Loads key 1, by a thread and by a future, and runs `update` during the load. Returns the result
/// of the load, and the value that the cache has then.
fn after(update: impl Fn(&Numbers)) -> [(u32, Option<u32>); 2] {
    let by_thread = {
        let cache = Numbers::new(10);
        let load = || {
            update(&cache);
            100
        };
        let loaded = *cache.get_or_insert_with(1, load);
        (loaded, cache.get(&1).map(|found| *found))
    };
    let by_future = {
        let cache = Numbers::new(10);
        let load = async {
            crate::tasks::yield_once().await;
            update(&cache);
            100
        };
        let loaded = block_on(cache.get_or_insert_async(1, load));
        (loaded, cache.get(&1).map(|found| *found))
    };
    [by_thread, by_future]
}

#[test]
fn an_insertion_during_a_load_stays_and_is_what_the_loader_gets() {
    let newer = [(5, Some(5)); 2];
    assert_eq!(after(|cache| _ = cache.insert(1, 5)), newer);
    assert_eq!(after(|cache| _ = cache.insert_if(1, 5, |old| old.is_none())), newer);
    assert_eq!(after(|cache| _ = cache.insert_locked_if(1, 5, |_| true)), newer);
    assert_eq!(after(|cache| drop(cache.compute(1, |_| Change::Put(5)))), newer);
    assert_eq!(after(|cache| _ = cache.update_or_insert_with(1, |_| 0, || 5)), newer);
    let in_a_batch = |cache: &Numbers| {
        cache.visit_many([1].iter(), |_, spot| _ = spot.insert(1, 5));
    };
    assert_eq!(after(in_a_batch), newer);
}

#[test]
fn a_removal_during_a_load_leaves_the_key_missing() {
    let missing = [(100, None); 2];
    assert_eq!(after(|cache| drop(cache.remove(&1))), missing, "removed in vain");
    assert_eq!(after(|cache| drop(cache.remove_if(&1, |_| true))), missing);
    assert_eq!(after(|cache| drop(cache.remove_locked_if(&1, |_| true))), missing);
    assert_eq!(after(|cache| drop(cache.compute(1, |_| Change::Remove))), missing);
    assert_eq!(after(Cache::invalidate_all), missing);
    assert_eq!(after(|cache| cache.retain(|_| true)), missing);
    let in_and_out = |cache: &Numbers| {
        cache.insert(1, 5);
        drop(cache.remove(&1));
    };
    assert_eq!(after(in_and_out), missing);
    let replaced_and_evicted = |cache: &Numbers| {
        cache.insert(1, 5);
        // Chance decides when the entry is evicted.
        let mut others = 2..1_000_000;
        while cache.contains_key(&1) {
            cache.insert(others.next().expect("it is evicted some time"), 0);
        }
    };
    assert_eq!(after(replaced_and_evicted), missing);
}

#[test]
fn updates_of_other_keys_and_updates_that_change_nothing_let_a_load_land() {
    let landed = [(100, Some(100)); 2];
    assert_eq!(after(|cache| _ = cache.insert(2, 5)), landed);
    assert_eq!(after(|cache| drop(cache.remove(&2))), landed);
    assert_eq!(after(|cache| _ = cache.insert_if(1, 5, |_| false)), landed);
    assert_eq!(after(|cache| _ = cache.compare_and_swap(1, 7, 5)), landed);
    assert_eq!(after(|cache| drop(cache.compute(1, |_| Change::Keep))), landed);
    assert_eq!(after(|cache| _ = cache.update(&1, |_| 5)), landed);
    assert_eq!(after(|cache| cache.set_capacity(5)), landed);
    assert_eq!(after(Cache::purge), landed);
}

/// The removal finds an expired entry. It was inserted after the load's first look, and had expired
/// when the load began.
#[test]
fn a_removal_that_finds_an_expired_entry_leaves_the_key_missing() {
    let (secs, is_armed) = (Arc::new(AtomicU64::new(1)), Arc::new(AtomicBool::new(false)));
    let own = Arc::new(OnceLock::<Weak<Numbers>>::new());
    let clock = {
        let (secs, is_armed, own) = (secs.clone(), is_armed.clone(), own.clone());
        move || {
            if is_armed.swap(false, SeqCst) {
                own.get().unwrap().upgrade().unwrap().insert(1, 5);
                secs.fetch_add(100, SeqCst);
            }
            Duration::from_secs(secs.load(SeqCst))
        }
    };
    let builder = Cache::builder(10).time_to_live(Duration::from_secs(10)).clock(clock);
    let cache = Arc::new(builder.build().unwrap());
    own.set(Arc::downgrade(&cache)).unwrap();
    is_armed.store(true, SeqCst);
    let loaded = *cache.get_or_insert_with(1, || {
        assert_eq!(cache.len(), 1, "the expired entry is there");
        drop(cache.remove(&1));
        100
    });
    assert_eq!((loaded, cache.get(&1).is_none()), (100, true));
}

/// A waiter never gets a value that was loaded before a removal: it loads again.
#[test]
fn a_waiter_of_a_load_that_is_not_kept_loads_again() {
    let cache = Arc::new(Numbers::new(10));
    let loads = Arc::new(AtomicUsize::new(0));
    let ask = |value| {
        let (cache, loads) = (cache.clone(), loads.clone());
        Box::pin(async move {
            let load = async {
                loads.fetch_add(1, SeqCst);
                crate::tasks::yield_once().await;
                value
            };
            cache.get_or_insert_async(1, load).await
        })
    };
    let (mut leader, mut waiter) = (ask(1), ask(2));
    assert!(poll_once(leader.as_mut()).is_pending() && poll_once(waiter.as_mut()).is_pending());
    drop(cache.remove(&1));
    assert_eq!(block_on(leader), 1);
    assert_eq!(block_on(waiter), 2);
    assert_eq!((loads.load(SeqCst), cache.get(&1).map(|found| *found)), (2, Some(2)));
}

/// The listener is called for entries that were in the cache, and for nothing else.
#[test]
fn a_load_that_is_not_kept_is_not_told() {
    let told = Arc::new(Mutex::new(Vec::new()));
    let own = told.clone();
    let cache: Numbers = Cache::builder(10)
        .listener(move |_, value, cause| own.lock().unwrap().push((*value, cause)))
        .build()
        .unwrap();
    drop(cache.get_or_insert_with(1, || {
        cache.insert(1, 5);
        100
    }));
    drop(cache.remove(&1));
    assert_eq!(*told.lock().unwrap(), [(5, Cause::Removed)]);
    assert_eq!(cache.weight(), 0);
}

/// One thread writes a source, and then removes the key. Other threads read the source through the
/// cache. No thread finds a value in the cache that is older than the last removal.
#[test]
fn what_is_found_after_a_removal_is_not_from_before() {
    removals_beside_reads_through(&Cache::new(10));
}

/// The same with entries that every request refreshes.
#[test]
fn what_is_refreshed_beside_a_removal_is_not_from_before() {
    let hour = Duration::from_secs(3600);
    let cache = Cache::builder(10).time_to_live(hour).refresh_ahead(hour).build().unwrap();
    removals_beside_reads_through(&cache);
    let stats = cache.stats();
    assert!(stats.loads > 0 && stats.load_failures == 0, "{stats:?}");
}

fn removals_beside_reads_through(cache: &Cache<u32, u64>) {
    let source = AtomicU64::new(0);
    let (removed, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let until = Instant::now() + Duration::from_millis(700);
    thread::scope(|scope| {
        for reader in 0..3 {
            let (source, removed, is_over) = (&source, &removed, &is_over);
            scope.spawn(move || {
                while !is_over.load(SeqCst) {
                    let least = removed.load(SeqCst);
                    let load = || source.load(SeqCst);
                    let found = match reader {
                        0 => block_on(cache.get_or_insert_async(7, async { load() })),
                        _ => *cache.get_or_insert_with(7, load),
                    };
                    assert!(found >= least, "{found}, from before the removal of {least}");
                }
            });
        }
        while Instant::now() < until {
            let now = source.fetch_add(1, SeqCst) + 1;
            drop(cache.remove(&7));
            removed.store(now, SeqCst);
            (0..now % 50).for_each(|_| std::hint::spin_loop());
        }
        is_over.store(true, SeqCst);
    });
}

/// Panics when it wakes, or counts.
struct Bell(bool, AtomicUsize);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.1.fetch_add(1, SeqCst);
        assert!(!self.0, "as the test wants it");
    }
}

#[test]
fn a_waker_that_panics_keeps_no_other_from_being_woken() {
    let bells: Vec<_> = (0..6).map(|n| Arc::new(Bell(n % 2 == 0, AtomicUsize::new(0)))).collect();
    let own = bells.clone();
    within(20, move || {
        let cache = Numbers::new(10);
        let blocked = AtomicUsize::new(0);
        let mut waiting: Vec<_> =
            bells.iter().map(|_| Box::pin(cache.get_or_insert_async(1, async { 2 }))).collect();
        let (go, gone) = mpsc::channel::<()>();
        thread::scope(|scope| {
            let (cache, blocked) = (&cache, &blocked);
            let leader = scope.spawn(move || {
                let load = || {
                    blocked.fetch_add(1, SeqCst);
                    gone.recv().unwrap();
                    1
                };
                catch_unwind(AssertUnwindSafe(|| *cache.get_or_insert_with(1, load))).is_err()
            });
            while blocked.load(SeqCst) == 0 {
                thread::yield_now();
            }
            for (waiting, bell) in waiting.iter_mut().zip(&bells) {
                let waker = Waker::from(bell.clone());
                assert!(waiting.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
            }
            // This thread waits beside the futures.
            let waits = scope.spawn(move || *cache.get_or_insert_with(1, || 3));
            go.send(()).unwrap();
            assert!(leader.join().unwrap(), "a waker's panic is not hidden");
            assert_eq!(waits.join().unwrap(), 1);
        });
        assert!(waiting.into_iter().all(|waiting| block_on(waiting) == 1));
    });
    assert!(own.iter().all(|bell| bell.1.load(SeqCst) == 1), "each is woken once");
}

#[test]
fn a_waiting_future_keeps_its_last_waker_only_and_none_when_it_is_dropped() {
    let cache = Numbers::new(10);
    let mut leader = Box::pin(cache.get_or_insert_async(1, std::future::pending()));
    assert!(poll_once(leader.as_mut()).is_pending());
    let mut other = Box::pin(cache.get_or_insert_async(1, async { 3 }));
    let other_bell = Arc::new(Bell(false, AtomicUsize::new(0)));
    let waker = Waker::from(other_bell.clone());
    assert!(other.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    drop(waker);
    let mut waiting = Box::pin(cache.get_or_insert_async(1, async { 2 }));
    let bells: Vec<_> = (0..100).map(|_| Arc::new(Bell(false, AtomicUsize::new(0)))).collect();
    for bell in &bells {
        let waker = Waker::from(bell.clone());
        assert!(waiting.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    }
    let kept = |bell: &Arc<Bell>| Arc::strong_count(bell) > 1;
    assert_eq!(bells.iter().position(kept), Some(99), "the last one");
    drop(waiting);
    assert!(!bells.iter().any(kept) && kept(&other_bell));
}

#[test]
fn what_is_put_in_during_a_load_stays_whichever_way_it_is_put_in() {
    let ways: [fn(&Numbers); 3] = [
        |cache| _ = cache.insert(1, 5),
        |cache| assert!(cache.insert_if(1, 5, |entry| entry.is_none()).is_ok()),
        |cache| {
            cache.insert(1, 4);
            assert!(cache.insert_if(1, 5, |entry| entry.is_some()).is_ok());
        },
    ];
    for (at, put) in ways.into_iter().enumerate() {
        let cache = Numbers::new(10);
        let load = || {
            put(&cache);
            2
        };
        let loaded = *cache.get_or_insert_with(1, load);
        assert_eq!((loaded, cache.get(&1).as_deref()), (5, Some(&5)), "{at}");
    }
}
