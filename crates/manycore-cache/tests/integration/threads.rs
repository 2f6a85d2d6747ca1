//! Many threads: linearizable histories of each key, the bound, and a stress test with an oracle.
//!
//! `MANYCORE_SOAK=60` runs each test for 60 seconds, `MANYCORE_SEED=0x12ab` generates the same
//! programs again.

use crate::canary::{Aviary, Canary};
use crate::rng::Rng;
use manycore_cache::{Cache, CasError, Eviction};
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use todc_utils::linearizability::WGLChecker;
use todc_utils::linearizability::history::{Action, History};
use todc_utils::specifications::Specification;

const SHARE: Duration = Duration::from_millis(350);
const POLICIES: [Eviction; 2] = [Eviction::Clock, Eviction::ScanResistant];

/// A call for one key, and its answer. Versions tell entries apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Done {
    Got(Option<u64>),
    Inserted(u64),
    Added(Option<u64>),
    /// The expected version, and the result: the new version, or the version that was there
    /// instead.
    Swapped(u64, Result<u64, Option<u64>>),
    Removed(Option<u64>),
    /// The clock moved on, beyond the time to live of all entries.
    Expired,
}

/// The model of one key. A lossy key may be evicted at any moment, so it may always be missing. But
/// a value that is found is the last one inserted, and a missing value does not come back.
struct Key<const LOSSY: bool>;

impl<const LOSSY: bool> Specification for Key<LOSSY> {
    type State = Option<u64>;
    type Operation = Done;

    fn init() -> Option<u64> {
        None
    }

    fn apply(done: &Done, state: &Option<u64>) -> (bool, Option<u64>) {
        let missing = LOSSY || state.is_none();
        match *done {
            Done::Got(None) | Done::Removed(None) | Done::Swapped(_, Err(None)) => (missing, None),
            Done::Expired => (true, None),
            Done::Got(found) => (found == *state, *state),
            Done::Inserted(version) => (true, Some(version)),
            Done::Added(Some(version)) => (missing, Some(version)),
            Done::Added(None) => (state.is_some(), *state),
            Done::Swapped(expected, Ok(version)) => (*state == Some(expected), Some(version)),
            Done::Swapped(expected, Err(found)) => {
                (found == *state && found != Some(expected), *state)
            }
            Done::Removed(found) => (found == *state, None),
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Event {
    thread: usize,
    key: u32,
    call: u64,
    ret: u64,
    done: Done,
}

fn is_linearizable<const LOSSY: bool>(events: &[Event]) -> bool {
    (0..KEYS).all(|key| {
        let mine = events.iter().filter(|event| event.key == key);
        let mut moments: Vec<_> =
            mine.flat_map(|event| [(event.call, false, event), (event.ret, true, event)]).collect();
        moments.sort_by_key(|(time, ..)| *time);
        let action = |(_, returns, event): (u64, bool, &Event)| {
            let done = event.done;
            (event.thread, if returns { Action::Response(done) } else { Action::Call(done) })
        };
        let actions: Vec<_> = moments.into_iter().map(action).collect();
        actions.is_empty()
            || WGLChecker::<Key<LOSSY>>::is_linearizable(History::from_actions(actions))
    })
}

const KEYS: u32 = 3;

fn one_call(cache: &Cache<u32, u32>, key: u32, rng: &mut Rng, known: &mut u64) -> Done {
    let value = rng.next() as u32;
    match rng.below(8) {
        0..3 => {
            let found = cache.get(&key).map(|found| found.version());
            *known = found.unwrap_or(*known);
            Done::Got(found)
        }
        3 => Done::Inserted(cache.insert(key, value)),
        4 => Done::Added(cache.insert_if(key, value, |entry| entry.is_none()).ok()),
        5 | 6 => {
            let swapped = match cache.compare_and_swap(key, *known, value) {
                Ok(version) => Ok(version),
                Err(CasError::Changed(_, found)) => Err(Some(found)),
                Err(_) => Err(None),
            };
            Done::Swapped(*known, swapped)
        }
        _ => Done::Removed(cache.remove(&key).map(|removed| removed.version())),
    }
}

/// What threads do beside the calls of a history.
#[derive(Debug, Clone, Copy)]
enum Beside<'a> {
    Nothing,
    /// They insert other keys, which push the keys of the history out or make the table grow.
    Fill,
    /// They halve the capacity, which replaces the table by a smaller one. There is still room.
    Shrink,
    /// They move this clock on, beyond the time to live.
    Wait(&'a AtomicU64),
}

/// The time to live of a cache that has one, in seconds.
const LIFE: u64 = 10;

/// Runs random calls of a few threads for a few keys.
fn history(cache: &Cache<u32, u32>, seed: u64, beside: Beside<'_>) -> Vec<Event> {
    let moment = AtomicU64::new(0);
    let threads = 2 + (seed % 3) as usize;
    let work = |thread: usize| {
        let mut rng = Rng::part(seed, thread as u64);
        let mut known = [0; KEYS as usize];
        let mut events = Vec::new();
        for _ in 0..6 {
            match beside {
                Beside::Fill if rng.once_in(2) => {
                    cache.insert(1_000 + rng.below(1_000) as u32, 0);
                    continue;
                }
                Beside::Shrink if rng.once_in(3) => {
                    cache.set_capacity((cache.capacity() / 2).max(50));
                    continue;
                }
                Beside::Wait(clock) if rng.once_in(4) => {
                    let call = moment.fetch_add(1, Ordering::SeqCst);
                    clock.fetch_add(2 * LIFE, Ordering::SeqCst);
                    let ret = moment.fetch_add(1, Ordering::SeqCst);
                    let done = Done::Expired;
                    events.extend((0..KEYS).map(|key| Event { thread, key, call, ret, done }));
                    continue;
                }
                _ => {}
            }
            let key = rng.below(KEYS as usize) as u32;
            let call = moment.fetch_add(1, Ordering::SeqCst);
            let done = one_call(cache, key, &mut rng, &mut known[key as usize]);
            let ret = moment.fetch_add(1, Ordering::SeqCst);
            events.push(Event { thread, key, call, ret, done });
        }
        events
    };
    thread::scope(|scope| {
        let work = &work;
        let started: Vec<_> = (0..threads).map(|t| scope.spawn(move || work(t))).collect();
        started.into_iter().flat_map(|t| t.join().expect("a worker panicked")).collect()
    })
}

fn histories<const LOSSY: bool>(beside: Beside<'_>, mut make: impl FnMut() -> Cache<u32, u32>) {
    let _alone = crate::env::alone();
    let (seed, until) = (crate::env::seed(), crate::env::soak(SHARE));
    let mut number = 0;
    while number == 0 || Instant::now() < until {
        let events = history(&make(), seed.wrapping_add(number), beside);
        assert!(
            is_linearizable::<LOSSY>(&events),
            "history {number} of seed {seed:#x} has no order:\n{events:#?}"
        );
        number += 1;
    }
    println!("{number} histories, seed {seed:#x}");
}

#[test]
fn histories_of_a_cache_with_room_are_those_of_a_map_also_while_it_grows() {
    histories::<false>(Beside::Nothing, || Cache::new(100));
    histories::<false>(Beside::Fill, || Cache::builder(10_000).initial_entries(1).build().unwrap());
}

#[test]
fn histories_of_a_cache_with_room_are_those_of_a_map_also_while_it_shrinks() {
    histories::<false>(Beside::Shrink, || Cache::new(1000));
}

#[test]
fn histories_under_eviction_lose_entries_and_nothing_else() {
    for eviction in POLICIES {
        histories::<true>(Beside::Fill, || Cache::builder(4).eviction(eviction).build().unwrap());
    }
}

/// An insertion that began before the clock moved on may replace a later entry by one that has
/// expired already. So a miss is always possible here, too.
#[test]
fn histories_under_expiry_show_nothing_whose_time_is_over() {
    for eviction in POLICIES {
        let clock = Arc::new(AtomicU64::new(1));
        histories::<true>(Beside::Wait(&clock), || {
            let hands = Arc::clone(&clock);
            let builder = Cache::builder(100).eviction(eviction);
            let builder = builder.time_to_live(Duration::from_secs(LIFE));
            let now = move || Duration::from_secs(hands.load(Ordering::SeqCst));
            builder.clock(now).build().unwrap()
        });
    }
}

#[test]
fn a_stale_read_in_a_history_is_caught() {
    let event = |thread, call, ret, done| Event { thread, key: 0, call, ret, done };
    let stale = [
        event(0, 0, 1, Done::Inserted(1)),
        event(0, 2, 3, Done::Inserted(2)),
        event(1, 4, 5, Done::Got(Some(1))),
    ];
    assert!(!is_linearizable::<true>(&stale));
    let risen = [event(0, 0, 1, Done::Inserted(1)), event(1, 2, 3, Done::Got(None))];
    assert!(is_linearizable::<true>(&risen) && !is_linearizable::<false>(&risen));
    let back = [risen[0], risen[1], event(0, 4, 5, Done::Got(Some(1)))];
    assert!(!is_linearizable::<true>(&back), "what was evicted came back");
    let late = [risen[0], event(1, 2, 3, Done::Expired), back[2]];
    assert!(!is_linearizable::<true>(&late), "it was found after its time");
}

#[test]
fn the_bound_is_kept_while_threads_insert() {
    let _alone = crate::env::alone();
    const THREADS: usize = 4;
    for (capacity, heaviest) in [(1, 1), (3, 1), (50, 1), (4_000, 1), (60, 7)] {
        let seed = crate::env::seed();
        let cache = Cache::builder(capacity).weigher(move |key: &u32, ()| 1 + key % heaviest);
        let cache = &cache.build().unwrap();
        let (over, running) = (&AtomicU64::new(0), &AtomicBool::new(true));
        let work = &|thread: usize| {
            let mut rng = Rng::part(seed, thread as u64);
            for _ in 0..10_000 {
                let key = rng.below(4 * capacity as usize) as u32;
                match rng.below(10) {
                    0 => drop(cache.remove(&key)),
                    1 => drop(cache.get(&key)),
                    _ => {
                        cache.insert(key, ());
                    }
                }
            }
        };
        thread::scope(|scope| {
            let workers: Vec<_> = (0..THREADS).map(|t| scope.spawn(move || work(t))).collect();
            scope.spawn(move || {
                while running.load(Ordering::Relaxed) {
                    over.fetch_max(cache.weight().saturating_sub(capacity), Ordering::Relaxed);
                    thread::yield_now();
                }
            });
            let ended: Vec<_> = workers.into_iter().map(|worker| worker.join().is_ok()).collect();
            running.store(false, Ordering::Relaxed);
            assert!(ended.into_iter().all(|well| well), "a worker panicked");
        });
        let most = THREADS as u64 * u64::from(heaviest);
        assert!(over.load(Ordering::Relaxed) <= most, "{over:?} over {capacity}, {seed:#x}");
        cache.insert(0, ());
        let linked: u64 = cache.iter().map(|e| u64::from(1 + e.key() % heaviest)).sum();
        assert!(linked == cache.weight() && linked <= capacity, "{linked} in {cache:?}, {seed:#x}");
        assert_eq!(cache.iter().count(), cache.len());
    }
}

/// Every key has one writer. So the writer finds its last value or none, and a reader never finds
/// an older value than before. Values are alive when they are looked at, and are dropped once.
fn stress(eviction: Eviction, capacity: u64) {
    const THREADS: u32 = 4;
    const OWN: usize = 100;
    let (seed, aviary) = (crate::env::seed(), Aviary::new());
    let until = crate::env::soak(SHARE);
    let builder = Cache::builder(capacity).eviction(eviction).initial_entries(1);
    let cache: Cache<u32, (Canary, u64)> = builder.build().unwrap();
    let work = |thread: u32| {
        let mut rng = Rng::part(seed, u64::from(thread));
        let mut last = vec![0_u64; OWN];
        let mut seen = vec![0_u64; OWN * THREADS as usize];
        let mut calls = 0_u64;
        while calls % 64 != 0 || Instant::now() < until {
            calls += 1;
            let number = rng.below(OWN);
            let key = thread + THREADS * number as u32;
            match rng.below(16) {
                0..5 => {
                    last[number] = calls;
                    cache.insert(key, (aviary.hatch(key), calls));
                }
                5 => {
                    let removed = cache.remove(&key);
                    assert!(removed.is_none_or(|found| found.1 == last[number]));
                    last[number] = u64::MAX; // nothing may be found now
                }
                6 => {
                    let found = cache.get_or_insert_with(key, || (aviary.hatch(key), calls));
                    assert!(found.1 == calls || found.1 == last[number]);
                    last[number] = found.1;
                }
                7 if calls % 256 == 0 => {
                    assert!(cache.iter().all(|entry| entry.0.sing() == *entry.key()));
                }
                8 if calls % 4096 == 0 => cache.invalidate_all(),
                9 => {
                    let found = cache.get(&key);
                    assert!(
                        found.is_none_or(|found| found.1 == last[number]),
                        "a value that was replaced; seed {seed:#x}"
                    );
                }
                _ => {
                    let key = rng.below(seen.len()) as u32;
                    let Some(found) = cache.get(&key) else { continue };
                    assert_eq!(found.0.sing(), key, "another key's value; seed {seed:#x}");
                    let before = std::mem::replace(&mut seen[key as usize], found.1);
                    assert!(found.1 >= before, "time runs backwards; seed {seed:#x}");
                }
            }
        }
        calls
    };
    let calls: u64 = thread::scope(|scope| {
        let work = &work;
        let started: Vec<_> = (0..THREADS).map(|t| scope.spawn(move || work(t))).collect();
        started.into_iter().map(|t| t.join().expect("a worker panicked")).sum()
    });
    println!("{eviction:?}, {capacity}: {calls} calls, seed {seed:#x}");
    assert!(cache.weight() <= capacity && cache.iter().count() == cache.len(), "seed {seed:#x}");
    drop(cache);
    assert_eq!(aviary.living(), 0, "leaked or freed twice; seed {seed:#x}");
}

#[test]
fn a_cache_under_stress_shows_nothing_old_and_frees_everything_once() {
    let _alone = crate::env::alone();
    for eviction in POLICIES {
        stress(eviction, 60);
        stress(eviction, 10_000);
    }
}

fn is_shared<T: Send + Sync + Debug>() {}

#[test]
fn a_cache_is_shared_if_its_keys_and_values_are() {
    is_shared::<Cache<String, Vec<u8>>>();
}
