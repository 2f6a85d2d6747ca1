//! The flat map, compared with the sequential one, checked for linearizability while it grows, and
//! under stress with values that reveal a torn read. User code panics, lies or calls the map again.
//!
//! `MANYCORE_SOAK=60` runs each test for 60 seconds. `MANYCORE_SEED=0x12ab` generates the same
//! programs again.

use crate::common::calls::{self, Model, Subject};
use crate::common::env;
use crate::common::rng::Rng;
use crate::hash_map::{Call, FILL, Identity, OneHash, Values, calls_below, next_even};
use manycore::collections::{FlatHashMap, Plain};
use proptest::prelude::*;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::num::NonZero;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

fn ignore<T>(_: T) {}

const SHARE: Duration = Duration::from_millis(350);

impl<S: BuildHasher + Sync> Subject<Values> for FlatHashMap<u32, u32, S> {
    fn answer(&self, call: &Call) -> Option<u32> {
        match *call {
            Call::Get(key) => self.get(&key),
            Call::Insert(key, value) => self.insert(key, value),
            Call::Remove(key) => self.remove(&key),
            Call::GetOrInsert(key, value) => Some(self.get_or_insert_with(key, || value)),
            Call::Add(key, more) => self.update(&key, |value| value + more),
            Call::TakeOdd(key) => self.compute(key, |value| next_even(value.as_ref())),
            Call::Fill(key) => self.insert(key, 0).and(None),
            Call::Shrink => (self.shrink_to_fit(), None).1,
        }
    }
}

fn answers_as_the_sequential_map<S>(calls: &[Call], map: FlatHashMap<u32, u32, S>)
where
    S: BuildHasher + Sync,
{
    let mut model = Values::new();
    for call in calls {
        assert_eq!(Subject::answer(&map, call), Model::answer(&mut model, call), "{call:?}");
        if let Call::Fill(key) = *call {
            model.insert(key, 0);
        }
        assert_eq!(map.len(), model.len());
    }
    let same = |map: &FlatHashMap<u32, u32, S>, model: &Values| {
        assert!(model.iter().all(|(key, value)| map.get(key) == Some(*value)));
        assert_eq!((map.iter().count(), map.len()), (model.len(), model.len()));
        assert_eq!(&map.iter().collect::<Values>(), model);
    };
    same(&map, &model);
    map.shrink_to_fit();
    same(&map, &model);
    map.retain(|_, value| value % 2 == 0);
    model.retain(|_, value| *value % 2 == 0);
    same(&map, &model);
    map.clear();
    assert!(map.is_empty() && map.iter().next().is_none());
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 64, failure_persistence: None, ..ProptestConfig::default()
    })]
    #[test]
    fn flat_map_answers_as_the_sequential_one_does(
        calls in prop::collection::vec(calls_below(40), 0..400),
    ) {
        answers_as_the_sequential_map(&calls, FlatHashMap::<_, _, RandomState>::default());
        answers_as_the_sequential_map(&calls, FlatHashMap::<_, _, Identity>::default());
        answers_as_the_sequential_map(&calls, FlatHashMap::<_, _, OneHash>::default());
    }
}

#[test]
fn histories_of_the_flat_map_are_linearizable_while_it_grows_and_shrinks() {
    let _alone = env::alone();
    let until = env::soak(2 * SHARE);
    let make = |rng: &mut Rng| {
        let buckets = *rng.pick(&[8, 32, 64]);
        let capacity = 8 * buckets * *rng.pick(&[1, 8]);
        let map = FlatHashMap::with_capacity_and_hasher(capacity, Identity::default());
        // Every bucket is full, so that the next key in any lets the map grow; or there is so much
        // room that the map can shrink.
        let fill = (0..8 * buckets as u32).map(|n| (64 * FILL + n, 0));
        (&map).extend(fill);
        map
    };
    match calls::check::<Values, _>(env::seed(), until, make) {
        Ok(histories) => println!("{histories} histories"),
        Err(report) => panic!("{report}"),
    }
}

/// A key of some words, with bits derived from a number.
trait Numbered: Plain + Hash + Eq {
    fn of(number: u64) -> Self;
}

impl Numbered for u8 {
    fn of(number: u64) -> Self {
        number as Self
    }
}

impl Numbered for u64 {
    fn of(number: u64) -> Self {
        number
    }
}

impl<const N: usize> Numbered for [u16; N] {
    fn of(number: u64) -> Self {
        std::array::from_fn(|index| (number * 31 + index as u64) as u16)
    }
}

/// The key's number, a version, and a checksum of both: a torn read shows.
type Checked = [u64; 3];

fn checked(number: u64, version: u64) -> Checked {
    [number, version, (number ^ version).wrapping_mul(0x9E37_79B9_7F4A_7C15)]
}

#[track_caller]
fn check([number, version, sum]: Checked, key: u64) -> u64 {
    assert_eq!((number, sum), (key, checked(number, version)[2]), "version {version}");
    version
}

/// Threads insert, replace and remove keys while the map grows and shrinks. Versions of a key only
/// rise, and no reader sees them fall.
fn stress<K: Numbered + Sync>(keys: usize) {
    const THREADS: usize = 4;
    let seed = env::seed();
    let until = env::soak(SHARE / 2);
    let map = FlatHashMap::<K, Checked>::new();
    let (next, versions) = (AtomicU64::new(0), AtomicU64::new(1));
    map.insert(K::of(0), checked(0, 0));
    let work = |thread: usize| {
        let mut rng = Rng::part(seed, thread as u64);
        let (mut calls, mut balance, mut last) = (0_u64, 0_i64, 0);
        while calls % 64 != 0 || Instant::now() < until {
            calls += 1;
            // Few at first, so that tables are small while they are fought over.
            let below = keys.min(8 + next.fetch_add(1, Relaxed) as usize / 16);
            let number = 1 + rng.below(below - 1) as u64;
            let key = K::of(number);
            match rng.below(8) {
                0..3 => {
                    let old = map.insert(key, checked(number, versions.fetch_add(1, Relaxed)));
                    balance += i64::from(old.map(|old| check(old, number)).is_none());
                }
                3 | 4 => {
                    let old = map.remove(&key).map(|old| check(old, number));
                    balance -= i64::from(old.is_some());
                }
                5 => {
                    let raised = map.update(&K::of(0), |[_, version, _]| checked(0, version + 1));
                    last = check(raised.expect("it stays"), 0);
                }
                6 if calls % 64 == 0 => {
                    let all: Vec<Checked> = map.iter().map(|(_, value)| value).collect();
                    all.into_iter().for_each(|value| ignore(check(value, value[0])));
                }
                6 => {
                    let version = check(map.get(&K::of(0)).expect("it stays"), 0);
                    assert!(version >= last, "{version} after {last}");
                    last = version;
                }
                7 if calls % 64 == 0 => map.shrink_to_fit(),
                _ => ignore(map.get(&key).map(|found| check(found, number))),
            }
        }
        (calls, balance)
    };
    let totals: Vec<(u64, i64)> = thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = (0..THREADS).map(|t| scope.spawn(move || work(t))).collect();
        threads.into_iter().map(|t| t.join().expect("a worker panicked")).collect()
    });
    let (calls, balance) = totals.iter().fold((0, 1), |(c, b), (dc, db)| (c + dc, b + db));
    println!("{calls} calls, seed {seed:#x}");
    assert_eq!(map.len() as i64, balance, "seed {seed:#x}");
    assert_eq!(map.iter().count() as i64, balance, "seed {seed:#x}");
}

#[test]
fn flat_map_under_stress_neither_tears_nor_loses() {
    let _alone = env::alone();
    stress::<u64>(600);
    stress::<u8>(200);
    stress::<[u16; 16]>(3_000);
}

#[test]
fn map_taken_apart_has_every_entry_once_also_if_its_buckets_were_moving() {
    let entry = |n: u32| (n, u64::from(n) << 20);
    // At 512 it grows from 64 buckets, of which an update moves seventeen.
    for n in 1..540_u32 {
        let map = FlatHashMap::new();
        (0..n).map(entry).for_each(|(key, value)| ignore(map.insert(key, value)));
        let (mut keys, mut values): (Vec<_>, Vec<_>) = map.keys().zip(map.values()).unzip();
        keys.sort_unstable();
        values.sort_unstable();
        let mut entries = map.into_iter();
        assert_eq!(entries.len(), n as usize);
        let first = entries.next().expect("it has one");
        assert_eq!(entries.len(), n as usize - 1);
        let mut all: Vec<_> = entries.chain([first]).collect();
        all.sort_unstable();
        assert!(all.into_iter().eq((0..n).map(entry)));
        assert!(keys.into_iter().zip(values).eq((0..n).map(entry)));
    }
    assert_eq!(FlatHashMap::<u32, u32>::new().into_iter().next(), None);
    let entry = [(7_u8, 8_u8)];
    let mut map = FlatHashMap::<u8, u8>::new();
    map.extend(entry.iter().map(|(key, value)| (key, value)));
    assert_eq!(map.get(&7), Some(8));
}

#[test]
fn counts_by_update_lose_nothing_while_the_map_grows() {
    const EACH: u64 = 20_000;
    let _alone = env::alone();
    let map = FlatHashMap::<u64, u64>::new();
    thread::scope(|scope| {
        for thread in 0..4 {
            let map = &map;
            scope.spawn(move || {
                for n in 0..EACH {
                    map.compute(n % 7, |count| Some(count.unwrap_or(0) + 1));
                    map.insert(1_000 + thread * EACH + n, n);
                }
            });
        }
    });
    assert_eq!((0..7).filter_map(|key| map.get(&key)).sum::<u64>(), 4 * EACH);
    assert_eq!(map.len() as u64, 7 + 4 * EACH);
}

#[test]
fn iteration_of_the_flat_map_sees_what_stays_exactly_once_while_it_grows_and_shrinks() {
    let _alone = env::alone();
    for round in 0..5 {
        let map: FlatHashMap<u32, ()> = (0..50).map(|key| (key, ())).collect();
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..4 {
                    (FILL..FILL + 5_000).for_each(|key| ignore(map.insert(key, ())));
                    (FILL..FILL + 5_000).for_each(|key| ignore(map.remove(&key)));
                    map.shrink_to_fit();
                    assert!(map.capacity() < 500, "{}", map.capacity());
                }
                stop.store(true, Relaxed);
            });
            scope.spawn(|| {
                let mut is_over = false;
                while !is_over {
                    is_over = stop.load(Relaxed);
                    let keys = map.iter().map(|(key, ())| key).filter(|key| *key < FILL);
                    let mut seen: Vec<u32> = keys.collect();
                    seen.sort_unstable();
                    assert!(seen.iter().copied().eq(0..50), "round {round}: {seen:?}");
                    assert!((0..50).all(|key| map.contains_key(&key)), "round {round}");
                }
            });
        });
    }
}

/// Entries of many sizes come back as they were inserted, from the table, the overflow and the next
/// table.
#[test]
fn values_of_every_size_keep_their_bits() {
    fn each<V: Plain + PartialEq + std::fmt::Debug>(of: impl Fn(u32) -> V) {
        let map = FlatHashMap::<u32, V>::new();
        (0..2_000).for_each(|n| ignore(map.insert(n, of(n))));
        assert!((0..2_000).all(|n| map.get(&n) == Some(of(n))));
        map.retain(|n, _| *n < 100);
        map.shrink_to_fit();
        assert_eq!(map.iter().count(), 100);
        assert!(map.iter().all(|(n, value)| value == of(n)));
    }
    each(|_| ());
    each(|n| n % 2 == 0);
    each(|n| char::from_u32(n).unwrap_or('?'));
    each(f64::from);
    each(NonZero::<u32>::new);
    each(|n| [n as u8; 7]);
    each(|n| [n as u8; 9]);
    each(|n| u128::from(n) << 77);
    each(|n| [n; 5]);
    each(|n| [u64::from(n); 4]);
    each(|n| (n as u8, u64::from(n), n as u16));
    each(|n| [(n as u8, n); 3]);
    each(|n| ((n as u8, (n % 2 == 0, n)), ()));
    each(|n| [(); 3].map(|()| (n as u8,)));
}

/// An empty map and an entry have the documented sizes.
#[test]
fn flat_map_costs_what_its_page_says() {
    assert!(size_of::<FlatHashMap<u64, u64>>() <= 104, "{}", size_of::<FlatHashMap<u64, u64>>());
    let map = FlatHashMap::<u64, u64>::new();
    assert_eq!(map.capacity(), 0);
    map.insert(1, 1);
    assert_eq!(map.capacity(), if cfg!(miri) { 8 } else { 32 });
}

thread_local! {
    static HASHES: Cell<u32> = const { Cell::new(u32::MAX) };
}

/// A key with a `Hash` that panics after some calls, and gives other hashes from then on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
struct Liar(u32);

// SAFETY: laid out as a number.
unsafe impl Plain for Liar {}

impl Hash for Liar {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let left = HASHES.with(|left| left.replace(left.get().saturating_sub(1)));
        assert_ne!(left, 0, "planned");
        state.write_u32(self.0);
    }
}

#[test]
fn flat_map_is_in_order_after_a_hash_panicked_wherever_it_did() {
    for at in 0..200 {
        let map = FlatHashMap::<Liar, u32>::new();
        let mut model = BTreeMap::new();
        HASHES.set(at);
        let panicked = (0..300).find(|n| {
            let inserted = catch_unwind(AssertUnwindSafe(|| map.insert(Liar(*n), *n)));
            model.extend(inserted.is_ok().then_some((*n, *n)));
            inserted.is_err()
        });
        assert!(panicked.is_some(), "{at}");
        HASHES.set(u32::MAX);
        let there = |map: &FlatHashMap<Liar, u32>| {
            map.iter().map(|(key, value)| (key.0, value)).collect::<BTreeMap<_, _>>()
        };
        assert_eq!((there(&map), map.len()), (model.clone(), model.len()), "{at}");
        (0..300).for_each(|n| ignore(map.insert(Liar(n), n)));
        assert!((0..300).all(|n| map.get(&Liar(n)) == Some(n)), "{at}");
        assert_eq!(map.len(), 300, "{at}");
    }
}

/// A hasher that gives another hash at each call: keys get lost, and nothing else happens.
struct Random;

impl BuildHasher for Random {
    type Hasher = std::hash::DefaultHasher;

    fn build_hasher(&self) -> Self::Hasher {
        RandomState::new().build_hasher()
    }
}

#[test]
fn flat_map_lives_with_hashes_that_change() {
    let map = FlatHashMap::with_hasher(Random);
    (0..3_000_u32).for_each(|n| ignore(map.insert(n, n)));
    assert!(map.iter().all(|(key, value)| key == value));
    (0..3_000).for_each(|n| ignore(map.remove(&n)));
    assert!(map.iter().count() <= 3_000);
    map.shrink_to_fit();
    map.clear();
}

#[test]
fn closures_may_use_the_flat_map() {
    let map = FlatHashMap::from([(1, 10), (2, 20)]);
    assert_eq!(map.update(&1, |value| value + map.get(&2).unwrap_or(0)), Some(30));
    let mut rounds = 0;
    let updated = map.update(&1, |value| {
        rounds += 1;
        if rounds == 1 {
            map.insert(1, 5); // so it begins again
        }
        value + 1
    });
    assert_eq!((updated, rounds), (Some(6), 2));
    assert_eq!(map.remove_if(&1, |value| map.insert(2, *value).is_some()), Some(6));
    map.retain(|key, _| map.remove(key).is_none());
    assert!(map.is_empty());
    let made = map.get_or_insert_with(7, || map.insert(7, 8).unwrap_or(9));
    assert_eq!(made, 8);
    let panicked = catch_unwind(AssertUnwindSafe(|| map.update(&7, |_| panic!("planned"))));
    assert!(panicked.is_err());
    assert_eq!(map.get(&7), Some(8));
}

#[test]
fn reserved_flat_map_does_not_grow_and_threads_may_use_it_in_between() {
    let _alone = env::alone();
    let map = FlatHashMap::<u32, u32>::new();
    thread::scope(|scope| {
        scope.spawn(|| map.reserve(10_000));
        scope.spawn(|| (0..1_000).for_each(|n| ignore(map.insert(n, n))));
    });
    let capacity = map.capacity();
    assert!(capacity >= 10_000);
    (0..10_000).for_each(|n| ignore(map.insert(n, n)));
    assert_eq!((map.capacity(), map.len()), (capacity, 10_000));
}

#[test]
fn clone_of_a_flat_map_is_equal_and_apart() {
    let map: FlatHashMap<u32, u32> = (0..100).map(|n| (n, n)).collect();
    let copy = map.clone();
    assert_eq!(map, copy);
    copy.remove(&7);
    assert!(map != copy && map.get(&7) == Some(7));
    assert_eq!(format!("{:?}", FlatHashMap::from([(1, 2)])), "{1: 2}");
}

#[test]
fn flat_map_is_extended_by_entries_of_its_own_and_by_lent_ones() {
    let mut map: FlatHashMap<u32, u32> = (0..100).map(|key| (key, 0)).collect();
    map.extend((50..200).map(|key| (key, 1)));
    (&map).extend((150..250).map(|key| (key, 2)));
    map.extend(&BTreeMap::from([(249, 3), (250, 3)]));
    let value = |key: u32| match key {
        0..50 => 0,
        50..150 => 1,
        150..249 => 2,
        _ => 3,
    };
    assert!((0..251).all(|key| map.get(&key) == Some(value(key))) && map.len() == 251);
    let mut entries = map.into_iter();
    for left in (0..251).rev() {
        assert!(entries.next().is_some());
        assert_eq!((entries.len(), entries.size_hint()), (left, (left, Some(left))));
    }
    assert_eq!(entries.next(), None);
}

#[test]
fn value_of_the_flat_map_is_exchanged_only_for_the_one_that_was_seen() {
    let map = FlatHashMap::new();
    assert_eq!(map.compare_exchange(&1, 10, 11), Err(None));
    assert_eq!((map.get(&1), map.len()), (None, 0));
    for key in 0..200 {
        map.insert(key, 10);
        assert_eq!(map.compare_exchange(&key, 11, 12), Err(Some(10)), "{key}");
        assert_eq!(map.compare_exchange(&key, 10, 11), Ok(10), "{key}");
        assert_eq!(map.compare_exchange(&key, 10, 12), Err(Some(11)), "{key}");
        assert_eq!((map.get(&key), map.len()), (Some(11), key as usize + 1));
        assert_eq!(map.remove_if(&key, |value| *value == 10), None);
    }
    assert_eq!((map.remove_if(&7, |value| *value == 11), map.len()), (Some(11), 199));
    assert!(!map.is_empty());
    let mut sum = 0;
    map.for_each(|key, value| sum += key + value);
    assert_eq!(sum, (0..200).sum::<u32>() - 7 + 199 * 11);
}

#[test]
fn flat_map_has_the_room_that_was_asked_for() {
    assert_eq!(FlatHashMap::<u32, u32>::new().capacity(), 0);
    assert_eq!(FlatHashMap::<u32, u32>::with_capacity(0).capacity(), 0);
    for asked in [1, 7, 100, 10_000] {
        let map = FlatHashMap::<u32, u32>::with_capacity(asked);
        let least = map.capacity();
        assert!((asked..=4 * asked + 64).contains(&least), "{least} for {asked}");
        let other = FlatHashMap::with_capacity_and_hasher(asked, RandomState::new());
        (0..asked as u32).for_each(|key| ignore(other.insert(key, key)));
        assert_eq!(other.capacity(), least, "it did not grow");
    }
    let map = FlatHashMap::<u32, u32>::new();
    map.reserve(1_000);
    assert!((1_000..8_000).contains(&map.capacity()));
    (0..10_000).for_each(|key| ignore(map.insert(key, key)));
    assert!((10_000..80_000).contains(&map.capacity()));
    assert!(map.contains_key(&9_999) && !map.contains_key(&10_000));
    map.clear();
    assert!(map.is_empty() && !map.contains_key(&9_999));
    map.shrink_to_fit();
    assert!(map.capacity() < 64, "{}", map.capacity());
}

#[test]
fn walk_over_the_flat_map_goes_on_in_a_smaller_table_and_in_a_larger_one() {
    let stays = |key: &u32| key % 50 == 0;
    for is_larger in [false, true] {
        for seen in [0, 1, 10, 100, 1_000] {
            let map: FlatHashMap<u32, u32> = (0..5_000).map(|key| (key, key)).collect();
            let mut walk = map.iter();
            let mut found: Vec<u32> = walk.by_ref().take(seen).map(|(key, _)| key).collect();
            if is_larger {
                map.reserve(40_000);
            } else {
                map.retain(|key, _| stays(key));
                map.shrink_to_fit();
            }
            found.extend(walk.map(|(key, _)| key));
            found.retain(stays);
            found.sort_unstable();
            assert!(found.into_iter().eq((0..5_000).filter(stays)), "{is_larger}, after {seen}");
        }
    }
}

/// Two words that differ in the same bits must still differ when they are compared together.
#[test]
fn keys_and_values_of_two_words_are_equal_in_both_or_not_at_all() {
    let map = FlatHashMap::with_hasher(OneHash::default());
    for key in [[0_u64, 0], [1, 1], [0, 1], [1, 0]] {
        assert_eq!(map.insert(key, key), None);
    }
    assert_eq!(map.len(), 4);
    for key in [[0, 0], [1, 1], [0, 1], [1, 0]] {
        assert_eq!(map.get(&key), Some(key));
        let other = key.map(|word| word ^ 1);
        assert_eq!(map.compare_exchange(&key, other, [7, 7]), Err(Some(key)));
        assert_eq!(map.remove_if(&key, |value| *value == other), None);
    }
    assert_eq!(map.get(&[2, 2]), None);
}
