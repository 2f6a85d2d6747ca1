//! The replicated map, compared with the sequential one under every placement, and checked for
//! linearizability. Under stress its values say their key. User code panics or uses the map.
//!
//! `MANYCORE_SOAK=60` runs each test for 60 seconds. `MANYCORE_SEED=0x12ab` generates the same
//! programs again.

use crate::common::calls::{self, Model, Subject};
use crate::common::env;
use crate::common::rng::Rng;
use manycore::cluster::Placement;
use manycore::collections::ReplicatedMap;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher, RandomState};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, LazyLock};
use std::thread;
use std::time::Duration;

fn ignore<T>(_: T) {}

const SHARE: Duration = Duration::from_millis(350);

const PLACEMENTS: [Placement; 4] =
    [Placement::Shared, Placement::PerNode, Placement::PerLlc, Placement::PerThread];

#[allow(missing_docs, reason = "public only as the answer of a public trait must be")]
#[derive(Debug, Clone, Copy)]
pub enum Call {
    Get(u32),
    Insert(u32, u32),
    Remove(u32),
    Clear,
    Len,
}

fn call() -> impl Strategy<Value = Call> {
    prop_oneof![
        6 => (0..20_u32).prop_map(Call::Get),
        4 => (0..20_u32, 0..100_u32).prop_map(|(key, value)| Call::Insert(key, value)),
        3 => (0..20_u32).prop_map(Call::Remove),
        1 => Just(Call::Clear),
        1 => Just(Call::Len),
    ]
}

#[derive(Debug, Default, Clone, PartialEq, Eq, Hash)]
struct Values(BTreeMap<u32, u32>);

impl Model for Values {
    type Call = Call;
    type Answer = Option<u32>;

    fn call(rng: &mut Rng) -> Call {
        let (key, value) = (rng.below(2) as u32, rng.below(100) as u32);
        match rng.below(10) {
            0..=4 => Call::Get(key),
            5 | 6 => Call::Insert(key, value),
            7 => Call::Remove(key),
            8 => Call::Len,
            _ => Call::Clear,
        }
    }

    fn answer(&mut self, call: &Call) -> Option<u32> {
        match *call {
            Call::Get(key) => self.0.get(&key).copied(),
            Call::Insert(key, value) => self.0.insert(key, value),
            Call::Remove(key) => self.0.remove(&key),
            Call::Clear => {
                self.0.clear();
                None
            }
            Call::Len => Some(self.0.len() as u32),
        }
    }
}

type Map = ReplicatedMap<u32, u32>;

impl Subject<Values> for Map {
    fn answer(&self, call: &Call) -> Option<u32> {
        match *call {
            Call::Get(key) => self.get(&key),
            Call::Insert(key, value) => self.insert(key, value),
            Call::Remove(key) => self.remove(&key),
            Call::Clear => {
                self.clear();
                None
            }
            Call::Len => Some(self.len() as u32),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn map_answers_as_the_sequential_one_does(calls in prop::collection::vec(call(), 0..200)) {
        for cached_max in [usize::MAX, 3, 0] {
            let map: Map =
                Map::with_cached_max(Placement::PerThread, RandomState::new(), cached_max);
            let mut model = Values::default();
            for call in &calls {
                prop_assert_eq!(Subject::answer(&map, call), Model::answer(&mut model, call));
                prop_assert!(map.cached() <= cached_max.min(map.len()));
            }
            let Values(expected) = model;
            let shown: BTreeMap<_, _> = map.snapshot().into_iter().collect();
            prop_assert_eq!(&shown, &expected);
            prop_assert_eq!(map.into_entries().collect::<BTreeMap<_, _>>(), expected);
        }
    }
}

#[test]
fn histories_are_linearizable_by_every_placement() {
    let _alone = env::alone();
    for placement in PLACEMENTS {
        let until = env::soak(SHARE);
        let make = |_: &mut Rng| Map::with_placement(placement);
        match calls::check::<Values, _>(env::seed(), until, make) {
            Ok(histories) => println!("{placement:?}: {histories} histories"),
            Err(report) => panic!("{placement:?}: {report}"),
        }
    }
}

/// The checker notices a cache entry that outlives a removal.
#[test]
fn cache_that_is_not_cleared_is_not_linearizable() {
    let _alone = env::alone();
    struct Stale {
        map: Map,
        cache: std::sync::Mutex<Values>,
    }
    impl Subject<Values> for Stale {
        fn answer(&self, call: &Call) -> Option<u32> {
            let Call::Get(key) = *call else { return self.map.answer(call) };
            if let Some(value) = self.cache.lock().unwrap().0.get(&key) {
                return Some(*value);
            }
            self.map
                .get(&key)
                .inspect(|value| ignore(self.cache.lock().unwrap().0.insert(key, *value)))
        }
    }
    let until = env::deadline("MANYCORE_SOAK", Duration::from_secs(20));
    let make = |_: &mut Rng| Stale { map: Map::new(), cache: Default::default() };
    assert!(calls::check::<Values, _>(env::seed(), until, make).is_err());
}

/// Each key's values only grow. Readers never see a value fall, and never see a value under a wrong
/// key.
#[test]
fn readers_see_each_key_grow_while_it_is_replaced_and_removed() {
    const KEYS: u64 = 8;
    let _alone = env::alone();
    let until = env::soak(SHARE);
    let map = ReplicatedMap::<u64, u64>::new();
    let over = AtomicBool::new(false);
    let told: Vec<AtomicU64> = (0..KEYS).map(|_| AtomicU64::new(0)).collect();
    thread::scope(|scope| {
        for thread in 0..3 {
            let (map, over, told) = (&map, &over, &told);
            scope.spawn(move || {
                let mut rng = Rng::part(env::seed(), thread);
                while !over.load(Relaxed) {
                    let key = rng.below(KEYS as usize) as u64;
                    // Told before the look: what the look finds is as new.
                    let least = told[key as usize].load(std::sync::atomic::Ordering::Acquire);
                    if let Some(value) = map.get(&key) {
                        assert_eq!(value % KEYS, key, "a value under the wrong key");
                        assert!(value >= least, "{value} was replaced by {least} before");
                    }
                }
            });
        }
        let mut round = 1;
        while std::time::Instant::now() < until {
            for key in 0..KEYS {
                let value = round * KEYS + key;
                map.insert(key, value);
                told[key as usize].store(value, std::sync::atomic::Ordering::Release);
                if round % 3 == 0 {
                    assert_eq!(map.remove(&key), Some(value));
                }
            }
            round += 1;
        }
        over.store(true, Relaxed);
    });
}

#[test]
fn removal_reaches_every_cache_before_it_returns() {
    let map = ReplicatedMap::new();
    let barrier = std::sync::Barrier::new(5);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for round in 0..50 {
                    barrier.wait();
                    assert_eq!(map.get(&1), Some(round));
                    barrier.wait();
                    barrier.wait();
                    assert_eq!(map.get(&1), None);
                    barrier.wait();
                }
            });
        }
        for round in 0..50 {
            map.insert(1, round);
            barrier.wait();
            barrier.wait();
            assert!(map.cached() >= 4, "each thread has a copy");
            assert_eq!(map.remove(&1), Some(round));
            assert_eq!(map.cached(), 0);
            barrier.wait();
            barrier.wait();
        }
    });
}

#[test]
fn more_threads_than_holders_have_bits() {
    let map = ReplicatedMap::new();
    map.insert("key", 1);
    let barrier = std::sync::Barrier::new(100);
    thread::scope(|scope| {
        for _ in 0..100 {
            scope.spawn(|| {
                assert_eq!(map.get("key"), Some(1));
                barrier.wait();
            });
        }
    });
    assert!(map.cached() >= 64);
    map.insert("key", 2);
    assert_eq!((map.cached(), map.get("key")), (1, Some(2)));
    map.clear();
    assert_eq!((map.cached(), map.get("key")), (0, None));
}

#[test]
fn read_that_uses_the_map_is_told_and_leaves_it_working() {
    let map = ReplicatedMap::new();
    map.insert(1, 1);
    let again = || map.read(&1, |_| map.get(&1));
    let panic = catch_unwind(AssertUnwindSafe(again)).unwrap_err();
    assert!(panic.downcast_ref::<&str>().is_some_and(|text| text.contains("under its own lock")));
    let remove = || map.read(&1, |_| map.remove(&1));
    assert!(catch_unwind(AssertUnwindSafe(remove)).is_err());
    // From within a miss, which has the master's lock.
    let other = ReplicatedMap::with_cached_max(Placement::PerThread, RandomState::new(), 0);
    other.insert(1, 1);
    let update = || other.read(&1, |_| other.insert(2, 2));
    assert!(catch_unwind(AssertUnwindSafe(update)).is_err());
    assert_eq!((map.remove(&1), other.remove(&1), other.len()), (Some(1), Some(1), 0));
}

/// A key whose `Eq` and value whose `Clone` panic when they are told to.
#[derive(Debug, Clone, Copy)]
struct Touchy(u32);

static IN_EQ: AtomicUsize = AtomicUsize::new(usize::MAX);

impl PartialEq for Touchy {
    fn eq(&self, other: &Self) -> bool {
        let left = IN_EQ.fetch_sub(1, Relaxed);
        assert!(left != 0, "touchy");
        self.0 == other.0
    }
}
impl Eq for Touchy {}
impl Hash for Touchy {
    fn hash<H: Hasher>(&self, state: &mut H) {
        0_u32.hash(state); // all in one bucket, so that they are compared
    }
}

#[test]
fn comparison_that_panics_leaves_no_stale_copy() {
    let _alone = env::alone();
    for calls in 0..40 {
        let map = ReplicatedMap::new();
        IN_EQ.store(usize::MAX, Relaxed);
        (0..4).for_each(|key| ignore(map.insert(Touchy(key), 0)));
        thread::scope(|scope| {
            scope.spawn(|| (0..4).for_each(|key| ignore(map.get(&Touchy(key)))));
        });
        IN_EQ.store(calls, Relaxed);
        let update = || {
            map.insert(Touchy(1), 1);
            map.remove(&Touchy(2));
        };
        let _ = catch_unwind(AssertUnwindSafe(update));
        IN_EQ.store(usize::MAX, Relaxed);
        let seen = |key| map.get(&Touchy(key));
        let here: Vec<_> = (0..4).map(seen).collect();
        let there = thread::scope(|scope| {
            scope.spawn(|| (0..4).map(seen).collect::<Vec<_>>()).join().unwrap()
        });
        assert_eq!(here, there, "after {calls} comparisons");
        assert!(here[0] == Some(0) && here[3] == Some(0));
        map.insert(Touchy(9), 9);
        assert_eq!(map.remove(&Touchy(9)), Some(9));
    }
}

#[test]
fn every_copy_is_dropped_once() {
    let value = Arc::new(());
    let map = ReplicatedMap::with_cached_max(Placement::PerThread, RandomState::new(), 2);
    for key in 0..5 {
        map.insert(key, Arc::clone(&value));
    }
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| (0..5).for_each(|key| ignore(map.get(&key))));
        }
    });
    assert_eq!(Arc::strong_count(&value), 1 + 5 + map.cached());
    map.remove(&0);
    assert_eq!(Arc::strong_count(&value), 1 + 4 + map.cached());
    drop(map);
    assert_eq!(Arc::strong_count(&value), 1);
}

static MAPS: [LazyLock<ReplicatedMap<Looks, Looks>>; 3] = [
    LazyLock::new(|| ReplicatedMap::with_cached_max(Placement::Shared, RandomState::new(), 2)),
    LazyLock::new(|| ReplicatedMap::with_cached_max(Placement::PerThread, RandomState::new(), 0)),
    LazyLock::new(ReplicatedMap::new),
];

/// A key or value with a `Drop` that uses every map. It may do so only while no lock of theirs is
/// held.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Looks(u32);

impl Drop for Looks {
    fn drop(&mut self) {
        for map in &MAPS {
            assert!(map.len() < 100);
        }
    }
}

/// Drops keys and values that are replaced, evicted, removed, or present already.
#[test]
fn nothing_is_dropped_under_a_lock() {
    for map in &MAPS {
        for round in 0..3 {
            for key in 0..5 {
                map.insert(Looks(key), Looks(round));
            }
            thread::scope(|scope| {
                scope.spawn(|| (0..5).for_each(|key| drop(map.get(&Looks(key)))));
            });
            (0..5).for_each(|key| drop(map.get(&Looks(key))));
            assert_eq!(map.remove(&Looks(round)), Some(Looks(round)));
        }
        map.clear();
        assert!(map.is_empty());
    }
}

/// Two threads each look at a value in their cache, and try to change the value that the other
/// looks at.
#[test]
fn looks_that_update_are_refused_and_wait_for_nobody() {
    for placement in [Placement::PerThread, Placement::Shared] {
        let map = ReplicatedMap::with_placement(placement);
        map.insert(1, 1);
        let barrier = std::sync::Barrier::new(2);
        let one_at_a_time = placement == Placement::Shared;
        let update = || {
            assert_eq!(map.get(&1), Some(1));
            let refused = map.read(&1, |_| {
                if !one_at_a_time {
                    barrier.wait();
                }
                let refused = [
                    catch_unwind(AssertUnwindSafe(|| ignore(map.insert(1, 2)))),
                    catch_unwind(AssertUnwindSafe(|| ignore(map.remove(&1)))),
                    catch_unwind(AssertUnwindSafe(|| ignore(map.cached()))),
                    catch_unwind(AssertUnwindSafe(|| ignore(map.get(&2)))),
                ];
                refused.iter().all(Result::is_err)
            });
            assert_eq!(refused, Some(true));
        };
        thread::scope(|scope| {
            scope.spawn(update);
            update();
        });
        assert_eq!(map.insert(1, 2), Some(1));
    }
}
