//! The ordered map, compared with the sequential one, and checked for linearizability. Under
//! stress, its keys and values notice when they are used after they were freed. User code panics or
//! lies.
//!
//! `MANYCORE_SOAK=60` runs each test for 60 seconds. `MANYCORE_SEED=0x12ab` generates the same
//! programs again.

use crate::collection_faults::{Operation, State, every_fault};
use crate::common::calls::{self, Model, Subject};
use crate::common::canary::{Aviary, Canary};
use crate::common::env;
use crate::common::fuse::{Value, tick};
use crate::common::rng::Rng;
use crate::common::watchdog::ends;
use manycore::collections::OrderedMap;
use proptest::prelude::*;
use std::cmp;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

fn ignore<T>(_: T) {}

const SHARE: Duration = Duration::from_millis(350);

#[allow(missing_docs, reason = "public only as the answer of a public trait must be")]
#[derive(Debug, Clone, Copy)]
pub enum Call {
    Get(u32),
    Insert(u32, u32),
    Remove(u32),
    GetOrInsert(u32, u32),
    Add(u32, u32),
    TakeOdd(u32),
    First,
    Last,
    PopFirst,
    PopLast,
}

/// The content at the beginning of a history: enough keys for two leaves, or some more.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Values(BTreeMap<u32, u32>);

impl Default for Values {
    fn default() -> Self {
        Self((0..18).map(|key| (3 * key, 0)).collect())
    }
}

fn any_call(keys: u32) -> impl Strategy<Value = Call> {
    let pair = (0..keys, 0..100_u32);
    prop_oneof![
        2 => (0..keys).prop_map(Call::Get),
        6 => pair.clone().prop_map(|(key, value)| Call::Insert(key, value)),
        4 => (0..keys).prop_map(Call::Remove),
        1 => pair.clone().prop_map(|(key, value)| Call::GetOrInsert(key, value)),
        1 => pair.prop_map(|(key, value)| Call::Add(key, value)),
        1 => (0..keys).prop_map(Call::TakeOdd),
        1 => Just(Call::First),
        1 => Just(Call::Last),
        1 => Just(Call::PopFirst),
        1 => Just(Call::PopLast),
    ]
}

/// Returns a key and its value as one number.
fn one((key, value): (u32, u32)) -> u32 {
    key * 1_000 + value
}

/// Returns the next value: an odd value is removed, a missing value becomes 0, an even value grows.
fn next_even(value: Option<&u32>) -> Option<u32> {
    value.map_or(Some(0), |value| (value % 2 == 0).then_some(value + 2))
}

impl Model for Values {
    type Call = Call;
    type Answer = Option<u32>;

    fn call(rng: &mut Rng) -> Call {
        // Some are there, and some of the others come between them.
        let (key, value) = (*rng.pick(&[0, 1, 24, 25, 26, 51]), rng.below(100) as u32);
        match rng.below(12) {
            0 | 1 => Call::Get(key),
            2 | 3 => Call::Insert(key, value),
            4 => Call::Remove(key),
            5 => Call::GetOrInsert(key, value),
            6 => Call::Add(key, value),
            7 => Call::TakeOdd(key),
            8 => Call::First,
            9 => Call::Last,
            10 => Call::PopFirst,
            _ => Call::PopLast,
        }
    }

    fn answer(&mut self, call: &Call) -> Option<u32> {
        let Self(map) = self;
        match *call {
            Call::Get(key) => map.get(&key).copied(),
            Call::Insert(key, value) => map.insert(key, value),
            Call::Remove(key) => map.remove(&key),
            Call::GetOrInsert(key, value) => Some(*map.entry(key).or_insert(value)),
            Call::Add(key, more) => map.get_mut(&key).map(|value| {
                *value += more;
                *value
            }),
            Call::TakeOdd(key) => {
                let next = next_even(map.remove(&key).as_ref());
                next.inspect(|next| ignore(map.insert(key, *next)))
            }
            Call::First => map.first_key_value().map(|(key, value)| one((*key, *value))),
            Call::Last => map.last_key_value().map(|(key, value)| one((*key, *value))),
            Call::PopFirst => map.pop_first().map(one),
            Call::PopLast => map.pop_last().map(one),
        }
    }
}

impl Subject<Values> for OrderedMap<u32, u32> {
    fn answer(&self, call: &Call) -> Option<u32> {
        let view = self.enter();
        let both = |entry: Option<(&u32, &u32)>| entry.map(|(key, value)| one((*key, *value)));
        let answer = match *call {
            Call::Get(key) => view.get(&key),
            Call::Insert(key, value) => view.insert(key, value),
            Call::Remove(key) => view.remove(&key),
            Call::GetOrInsert(key, value) => Some(view.get_or_insert(key, value)),
            Call::Add(key, more) => view.update(&key, |value| value + more),
            Call::TakeOdd(key) => view.compute(key, next_even),
            Call::First => return both(view.first()),
            Call::Last => return both(view.last()),
            Call::PopFirst => return both(view.pop_first()),
            Call::PopLast => return both(view.pop_last()),
        };
        answer.copied()
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 64, failure_persistence: None, ..ProptestConfig::default()
    })]
    #[test]
    fn ordered_map_answers_as_the_sequential_one_does(
        begin in 0..300_u32,
        calls in prop::collection::vec(any_call(150), 0..400),
        ranges in prop::collection::vec((0..160_u32, 0..160_u32, 0..4_u32, any::<u64>()), 8),
    ) {
        let mut model = Values((0..begin).map(|key| (key * 7 % 150, key % 100)).collect());
        let map: OrderedMap<u32, u32> =
            (0..begin).map(|key| (key * 7 % 150, key % 100)).collect();
        for call in &calls {
            prop_assert_eq!(Subject::answer(&map, call), Model::answer(&mut model, call));
            prop_assert_eq!(map.len(), model.0.len());
        }
        let (view, Values(mut model)) = (map.enter(), model);
        prop_assert!(view.iter().eq(&model));
        prop_assert!(view.iter().rev().eq(model.iter().rev()));
        for (from, to, kind, sides) in ranges {
            let (from, to) = (from.min(to), from.max(to) + 1);
            let (mine, theirs) = match kind {
                0 => (view.range(from..to), model.range(from..to)),
                1 => (view.range(from..=to), model.range(from..=to)),
                2 => (view.range(from..), model.range(from..)),
                _ => (view.range(..to), model.range(..to)),
            };
            from_both_sides(mine, theirs, sides)?;
        }
        drop(view);
        let clone = map.clone();
        prop_assert_eq!(&clone, &map);
        from_both_sides(map.into_iter(), model.clone().into_iter(), begin.into())?;
        clone.retain(|_, value| value % 2 == 0);
        model.retain(|_, value| *value % 2 == 0);
        prop_assert!(clone.enter().iter().eq(&model));
        clone.clear();
        prop_assert!(clone.is_empty() && clone.enter().iter().next().is_none());
        prop_assert_eq!(clone.first_cloned(), None);
    }
}

/// Takes items from both iterators, each time from the side that the next bit of `sides` selects.
fn from_both_sides<T: PartialEq + std::fmt::Debug>(
    mut mine: impl DoubleEndedIterator<Item = T>,
    mut theirs: impl DoubleEndedIterator<Item = T>,
    sides: u64,
) -> Result<(), TestCaseError> {
    for step in 0.. {
        let is_front = sides >> (step % 64) & 1 == 0;
        let (mine, theirs) = if is_front {
            (mine.next(), theirs.next())
        } else {
            (mine.next_back(), theirs.next_back())
        };
        prop_assert_eq!(&mine, &theirs);
        if mine.is_none() {
            break;
        }
    }
    prop_assert_eq!((mine.next(), mine.next_back()), (None, None));
    Ok(())
}

#[test]
fn histories_of_the_ordered_map_are_linearizable() {
    let _alone = env::alone();
    let until = env::soak(3 * SHARE);
    let make = |rng: &mut Rng| {
        let Values(begin) = Values::default();
        // Nodes are full, or half full, or have slots that were used, and few entries.
        let (map, more) = (OrderedMap::new(), *rng.pick(&[0, 0, 1, 100, 1_000]));
        let step = *rng.pick(&[1, 5, 7]);
        for number in 0..18 + more {
            map.insert(3 * (number * step % (18 + more)), 0);
        }
        (0..18 + more).filter(|key| !begin.contains_key(&(3 * key))).for_each(|key| {
            map.remove(&(3 * key));
        });
        begin.keys().for_each(|key| ignore(map.insert(*key, 0)));
        map
    };
    match calls::check::<Values, _>(env::seed(), until, make) {
        Ok(histories) => println!("{histories} histories"),
        Err(report) => panic!("{report}"),
    }
}

/// Threads insert, replace and remove keys while nodes are replaced. Every value says its key,
/// whatever is read is alive, and walks are in order. In the end everything was freed once.
#[test]
fn ordered_map_under_stress_frees_everything_once_and_nothing_early() {
    const THREADS: usize = 4;
    let _alone = env::alone();
    let (seed, aviary) = (env::seed(), Aviary::new());
    let until = env::soak(2 * SHARE);
    let map: OrderedMap<Canary, (Canary, u64)> = OrderedMap::new();
    let next = AtomicU64::new(0);
    let work = |thread: usize| {
        let mut rng = Rng::part(seed, thread as u64);
        let (mut calls, mut balance) = (0_u64, 0_i64);
        while calls % 64 != 0 || std::time::Instant::now() < until {
            calls += 1;
            // Up and down again, so that nodes are split and joined.
            let turn = next.fetch_add(1, Relaxed) / 64 % 400;
            let keys = 8 + 3 * turn.min(400 - turn) as usize;
            let number = rng.below(keys) as u32;
            let key = aviary.hatch(number);
            let view = map.enter();
            let is_own = |entry: Option<(&Canary, &(Canary, u64))>| {
                entry.is_none_or(|(key, (value, _))| key.sing() == value.sing())
            };
            match rng.below(12) {
                0..3 => {
                    let old = view.insert(key, (aviary.hatch(number), 0));
                    assert!(old.is_none_or(|(value, _)| value.sing() == number));
                    balance += i64::from(old.is_none());
                }
                3..6 => {
                    let old = view.remove(&key);
                    assert!(old.is_none_or(|(value, _)| value.sing() == number));
                    balance -= i64::from(old.is_some());
                }
                6 => {
                    let new = view.update(&key, |(value, count)| (value.clone(), count + 1));
                    assert!(new.is_none_or(|(value, _)| value.sing() == number));
                }
                7 => {
                    let entry = if calls % 2 == 0 { view.pop_first() } else { view.pop_last() };
                    balance -= i64::from(entry.is_some());
                    assert!(is_own(entry));
                }
                8 if calls % 64 == 0 => {
                    let keys: Vec<u32> = view.keys().map(Canary::sing).collect();
                    assert!(keys.is_sorted_by(|one, next| one < next), "seed {seed:#x}");
                }
                9 => {
                    let from = view.range(&key..).take(20).map(|(key, _)| key.sing());
                    let from: Vec<u32> = from.collect();
                    assert!(from.is_sorted_by(|one, next| one < next), "seed {seed:#x}");
                    assert!(from.first().is_none_or(|first| *first >= number), "seed {seed:#x}");
                }
                10 => assert!(is_own(view.first()) && is_own(view.last())),
                _ => {
                    let found = view.get(&key);
                    assert!(found.is_none_or(|(value, _)| value.sing() == number));
                }
            }
        }
        balance
    };
    let balance: i64 = thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = (0..THREADS).map(|t| scope.spawn(move || work(t))).collect();
        threads.into_iter().map(|t| t.join().expect("a worker panicked")).sum()
    });
    assert_eq!(map.len() as i64, balance, "seed {seed:#x}");
    assert_eq!(map.enter().iter().count() as i64, balance, "seed {seed:#x}");
    drop(map);
    assert_eq!(aviary.living(), 0, "leaked or freed twice; seed {seed:#x}");
}

#[test]
fn walk_sees_what_stays_exactly_once_and_in_order() {
    let _alone = env::alone();
    for round in 0..6 {
        // The keys that stay lie among the keys that come and go, or before them.
        let stays = |key: u32| if round % 2 == 0 { key * 100 } else { key };
        let map: OrderedMap<u32, ()> = (0..50).map(|key| (stays(key), ())).collect();
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                let others = || (50..5_000).filter(|key| key % 100 != 0);
                for _ in 0..4 {
                    others().for_each(|key| ignore(map.insert(key, ())));
                    others().for_each(|key| ignore(map.remove(&key)));
                }
                stop.store(true, Relaxed);
            });
            scope.spawn(|| {
                let mut is_over = false;
                let own = |key: &&u32| **key < 50 && round % 2 == 1 || **key % 100 == 0;
                while !is_over {
                    is_over = stop.load(Relaxed);
                    let view = map.enter();
                    let seen: Vec<u32> = view.keys().filter(own).copied().collect();
                    assert!(seen.iter().copied().eq((0..50).map(stays)), "round {round}: {seen:?}");
                    let seen: Vec<u32> = view.keys().rev().filter(own).copied().collect();
                    assert!(seen.iter().copied().eq((0..50).rev().map(stays)), "round {round}");
                    assert!((0..50).all(|key| view.contains_key(&stays(key))), "round {round}");
                }
            });
        });
    }
}

/// A priority queue: each entry is taken once, and each thread takes its entries in order.
#[test]
fn entries_are_popped_once_and_in_order() {
    let _alone = env::alone();
    let map: OrderedMap<u32, u32> = (0..20_000).map(|key| (key, key)).collect();
    let all = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for thread in 0..4 {
            let (map, all) = (&map, &all);
            scope.spawn(move || {
                let pop = || match thread % 2 {
                    0 => map.pop_first_cloned(),
                    _ => map.pop_last_cloned(),
                };
                let mine: Vec<u32> = std::iter::from_fn(pop).map(|(key, _)| key).collect();
                let rises = mine.is_sorted();
                assert!(if thread % 2 == 0 { rises } else { mine.iter().rev().is_sorted() });
                all.lock().unwrap().extend(mine);
            });
        }
    });
    let mut all = all.into_inner().unwrap();
    all.sort_unstable();
    assert!(all.into_iter().eq(0..20_000));
    assert_eq!((map.len(), map.first_cloned()), (0, None));
}

/// A queue with keys that only rise takes no more memory over time, and its first entry is found
/// soon.
#[test]
fn keys_that_only_rise_leave_no_nodes_behind() {
    let map = OrderedMap::new();
    for key in 0..100_000_u64 {
        map.insert(key, key);
        if key >= 100 {
            assert_eq!(map.pop_first_cloned().map(|(key, _)| key), Some(key - 100));
        }
    }
    let keys: Vec<u64> = map.enter().keys().copied().collect();
    assert!(keys.into_iter().eq(99_900..100_000));
}

#[test]
fn value_stays_readable_in_its_view_after_it_was_removed() {
    let map = OrderedMap::from([(1, String::from("one"))]);
    let view = map.enter();
    let one = view.get(&1).expect("it is there");
    assert_eq!(map.enter().remove(&1).map(String::as_str), Some("one"));
    (0..10_000).for_each(|n| ignore(map.enter().insert(n % 70 + 2, n.to_string())));
    assert_eq!((one.as_str(), view.get(&1)), ("one", None));
}

#[test]
fn values_without_size_and_of_great_alignment_work() {
    static ENDED: AtomicU64 = AtomicU64::new(0);
    #[repr(align(128))]
    #[derive(Clone)]
    struct Wide(u8);
    #[repr(align(128))]
    #[derive(Clone)]
    struct Aligned;
    struct Ending;
    impl Clone for Ending {
        fn clone(&self) -> Self {
            unreachable!("a value in a block of its own is never cloned")
        }
    }
    impl Drop for Ending {
        fn drop(&mut self) {
            ENDED.fetch_add(1, Relaxed);
        }
    }
    fn is_aligned<T>(value: &T) -> bool {
        std::ptr::from_ref(value).addr() % align_of::<T>() == 0
    }
    let (set, wide, two) = (OrderedMap::new(), OrderedMap::new(), OrderedMap::new());
    let (aligned, ending) = (OrderedMap::new(), OrderedMap::new());
    for key in 0..500_u16 {
        assert!(set.insert(key, ()) && !set.insert(key, ()));
        wide.insert(key, Wide(key as u8));
        two.insert(key, [u64::from(key), !u64::from(key)]);
        aligned.insert(key, Aligned);
        assert!(ending.insert(key, Ending) && !ending.insert(key, Ending));
    }
    assert!((0..500).all(|key| set.contains_key(&key) && set.remove(&key) && !set.remove(&key)));
    let view = wide.enter();
    assert!(view.iter().all(|(key, wide)| wide.0 == *key as u8 && is_aligned(wide)));
    assert!(aligned.enter().values().all(is_aligned) && aligned.enter().values().count() == 500);
    let view = two.enter();
    assert!(view.iter().all(|(key, two)| *two == [u64::from(*key), !u64::from(*key)]));
    assert!(two.clone().into_iter().all(|(key, [one, other])| one == key.into() && other == !one));
    drop(ending);
    assert_eq!(ENDED.load(Relaxed), 1_000);
}

/// Returns a map of keys that are inserted in this order; and what says how many copies of keys
/// are alive, of which the map's nodes have all but one.
fn counted(keys: impl Iterator<Item = u32>) -> (OrderedMap<Counted, ()>, Arc<()>) {
    let (map, alive) = (OrderedMap::new(), Arc::new(()));
    keys.for_each(|key| assert!(map.insert(Counted(key, Arc::clone(&alive)), ())));
    (map, alive)
}

/// Returns how many keys the nodes have: those of the entries, those of inner nodes, and those
/// that were removed since a node was made.
fn keys_in_nodes(map: &OrderedMap<Counted, ()>, alive: &Arc<()>) -> usize {
    (0..4).for_each(|_| map.domain().collect());
    Arc::strong_count(alive) - 1
}

#[derive(Clone)]
struct Counted(u32, #[allow(dead_code, reason = "it is counted")] Arc<()>);

impl PartialEq for Counted {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for Counted {}

impl PartialOrd for Counted {
    fn partial_cmp(&self, other: &Self) -> Option<cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Counted {
    fn cmp(&self, other: &Self) -> cmp::Ordering {
        self.0.cmp(&other.0)
    }
}

impl std::borrow::Borrow<u32> for Counted {
    fn borrow(&self) -> &u32 {
        &self.0
    }
}

#[test]
fn nodes_are_full_where_keys_come_in_order_and_half_full_or_more_elsewhere() {
    // One inner key for each leaf but the first, and so on.
    let (rising, alive) = counted(0..3_000);
    assert!((3_200..3_300).contains(&keys_in_nodes(&rising, &alive)));
    let (falling, alive) = counted((0..3_000).rev());
    assert!((3_300..3_700).contains(&keys_in_nodes(&falling, &alive)));
    let (mixed, alive) = counted((0..3_000).map(|n| n * 7_919 % 3_000));
    assert!((3_300..3_600).contains(&keys_in_nodes(&mixed, &alive)));
}

#[test]
fn nodes_that_removals_have_emptied_are_joined() {
    for order in [1, 7_919] {
        let (map, alive) = counted((0..3_000).map(|n| n * 7_919 % 3_000));
        for key in (0..3_000).map(|n| n * order % 3_000).filter(|key| key % 100 != 0) {
            assert!(map.remove(&key));
        }
        assert!((30..90).contains(&keys_in_nodes(&map, &alive)) && map.len() == 30);
    }
}

/// (A sanitizer keeps freed blocks back.)
#[cfg(not(manycore_sanitized))]
#[test]
fn block_of_a_removed_value_is_used_again() {
    let (map, mut places) = (OrderedMap::new(), BTreeSet::new());
    for n in 0..10_000_u64 {
        let view = map.enter();
        view.insert(1, [n; 8]);
        places.insert(view.get(&1).map(|value| std::ptr::from_ref(value).addr()));
    }
    // They wait a while, and as many others are taken as long as they do.
    assert!(places.len() < 5_000, "{} blocks", places.len());
}

/// An inner node with one child is joined, or takes some of its neighbour's, before its last leaf
/// is empty for long.
#[test]
fn maps_of_every_shape_are_emptied_from_either_end() {
    ends("pop", || {
        for size in 190..230_u32 {
            let make = || (0..size).map(|key| (key, ())).collect::<OrderedMap<u32, ()>>();
            let (first, last) = (make(), make());
            (0..size).for_each(|key| {
                assert_eq!(first.pop_first_cloned(), Some((key, ())));
                assert_eq!(last.pop_last_cloned(), Some((size - 1 - key, ())));
            });
            assert_eq!((first.pop_first_cloned(), last.pop_last_cloned()), (None, None));
        }
    });
}

/// What came in the place of an entry that is to go is asked about, too.
#[test]
fn retain_keeps_what_has_replaced_an_entry_in_between() {
    let map: OrderedMap<u32, u32> = (0..100).map(|key| (key, 0)).collect();
    map.retain(|key, value| {
        if *value == 0 && key % 3 == 0 {
            map.insert(*key, 1);
        }
        *value == 1
    });
    assert!(map.enter().iter().map(|(key, value)| (*key, *value)).eq((0..34).map(|n| (3 * n, 1))));
}

#[test]
fn own_methods_of_the_ordered_map_answer_as_the_sequential_one() {
    let (map, mut model) = (OrderedMap::<u32, u32>::new(), BTreeMap::<u32, u32>::new());
    for n in 0..4_000_u32 {
        let (key, value) = (n * 7_919 % 101, n);
        // Not in turns: then one call would find its key there each time, and another never.
        match (n.wrapping_mul(0x9e37_79b9) >> 16) % 10 {
            0 | 1 => assert_eq!(map.insert(key, value), model.insert(key, value).is_none()),
            2 => assert_eq!(map.remove(&key), model.remove(&key).is_some()),
            3 => assert_eq!(map.remove_cloned(&key), model.remove(&key)),
            4 => assert_eq!(
                map.get_or_insert_with(key, || value),
                *model.entry(key).or_insert(value)
            ),
            5 => {
                let had = model.get_mut(&key).map(|own| *own += 1).is_some();
                assert_eq!(map.update(&key, |own| own + 1), had);
            }
            6 => {
                let even = model.get(&key).is_some_and(|own| own % 2 == 0);
                assert_eq!(map.remove_if(&key, |_, own| own % 2 == 0), even);
                if even {
                    model.remove(&key);
                }
            }
            7 => {
                let free = !model.contains_key(&key);
                let expected = if free { Ok(()) } else { Err((key, value)) };
                assert_eq!(map.try_insert(key, value), expected);
                model.entry(key).or_insert(value);
            }
            8 => {
                let next = next_even(model.remove(&key).as_ref());
                next.inspect(|next| ignore(model.insert(key, *next)));
                assert_eq!(map.compute(key, next_even), next.is_some());
            }
            _ => {
                assert_eq!(map.pop_last_cloned(), model.pop_last());
                assert_eq!(map.pop_first_cloned(), model.pop_first());
            }
        }
        assert_eq!(map.contains_key(&key), model.contains_key(&key));
        assert_eq!(map.get_cloned(&key), model.get(&key).copied());
        assert_eq!(map.read(&key, |own| own + 1), model.get(&key).map(|own| own + 1));
        let cloned = |entry: Option<(&u32, &u32)>| entry.map(|(key, value)| (*key, *value));
        assert_eq!(map.first_cloned(), cloned(model.first_key_value()));
        assert_eq!(map.last_cloned(), cloned(model.last_key_value()));
        assert_eq!((map.len(), map.is_empty()), (model.len(), model.is_empty()));
    }
    let mut shown = Vec::new();
    map.for_each(|key, value| shown.push((*key, *value)));
    assert!(shown.len() > 20 && shown.into_iter().eq(model));
}

#[test]
fn ordered_map_by_value_says_how_many_are_left() {
    let map: OrderedMap<u32, u32> = (0..100).map(|key| (key, key)).collect();
    map.remove(&50);
    let mut entries = map.into_iter();
    for left in (1..=98).rev() {
        let next = if left % 3 == 0 { entries.next_back() } else { entries.next() };
        assert!(next.is_some());
        assert_eq!((entries.len(), entries.size_hint()), (left, (left, Some(left))));
    }
    assert!(entries.next().is_some() && entries.next().is_none() && entries.next_back().is_none());
    assert_eq!(entries.size_hint(), (0, Some(0)));
}

#[test]
fn ordered_map_is_extended_and_compared_entry_by_entry() {
    let mut map: OrderedMap<u32, u32> = (0..10).map(|key| (key, 0)).collect();
    map.extend((5..30).map(|key| (key, 1)));
    (&map).extend((25..40).map(|key| (key, 2)));
    map.extend(&BTreeMap::from([(39, 3), (40, 3)]));
    let value = |key: u32| match key {
        0..5 => 0,
        5..25 => 1,
        25..39 => 2,
        _ => 3,
    };
    let same: OrderedMap<u32, u32> = (0..=40).map(|key| (key, value(key))).collect();
    assert!(map == same && map.enter().iter().eq(&same.enter()));
    same.insert(40, 4);
    assert!(map != same, "a value is another");
    same.remove(&40);
    assert!(map != same, "one has more");
}

/// A view keeps what it has seen until it is refreshed, and no longer.
#[test]
fn refreshed_view_of_the_ordered_map_holds_nothing_back() {
    let value = Arc::new(());
    let map = OrderedMap::from([(1, Arc::clone(&value))]);
    let mut view = map.enter();
    assert!(map.domain().is_inside() && std::ptr::eq(view.map(), &map));
    assert!(view.get(&1).is_some());
    assert!(map.remove(&1));
    (0..4).for_each(|_| map.domain().collect());
    assert_eq!(Arc::strong_count(&value), 2, "a view may have it");
    view.refresh();
    (0..4).for_each(|_| map.domain().collect());
    assert_eq!(Arc::strong_count(&value), 1);
    assert_eq!((view.len(), view.is_empty()), (0, true));
    map.insert(2, value);
    assert!(!view.is_empty() && view.len() == 1);
}

/// User code may use the map from within `Ord` and `Clone`.
#[test]
fn comparisons_and_clones_may_use_the_map() {
    static MAP: OrderedMap<Meddler, u32> = OrderedMap::new();
    #[derive(PartialEq, Eq)]
    struct Meddler(u32);
    thread_local!(static IS_INSIDE: std::cell::Cell<bool> = const { std::cell::Cell::new(false) });
    fn meddle() {
        if !IS_INSIDE.replace(true) {
            static TURN: AtomicU64 = AtomicU64::new(0);
            let turn = TURN.fetch_add(1, Relaxed) as u32;
            MAP.insert(Meddler(turn * 7 % 1_000), turn);
            MAP.remove(&Meddler(turn * 3 % 1_000));
            IS_INSIDE.set(false);
        }
    }
    impl Ord for Meddler {
        fn cmp(&self, other: &Self) -> cmp::Ordering {
            meddle();
            self.0.cmp(&other.0)
        }
    }
    impl PartialOrd for Meddler {
        fn partial_cmp(&self, other: &Self) -> Option<cmp::Ordering> {
            Some(self.cmp(other))
        }
    }
    impl Clone for Meddler {
        fn clone(&self) -> Self {
            meddle();
            Self(self.0)
        }
    }
    (0..3_000).for_each(|key| ignore(MAP.insert(Meddler(key * 11 % 1_000), key)));
    IS_INSIDE.set(true);
    let keys: Vec<u32> = MAP.enter().keys().map(|key| key.0).collect();
    assert!(keys.is_sorted_by(|one, next| one < next) && keys.len() == MAP.len());
}

/// Makes the first descent go to the left leaf, which is full, and the next descent to the right
/// leaf, whatever the key. So only the last comparison counts.
#[test]
fn comparison_that_contradicts_itself_lets_every_call_end() {
    const SEPARATOR: u32 = 28;
    thread_local!(static ASKED: std::cell::Cell<u32> = const { std::cell::Cell::new(u32::MAX) });
    #[derive(Clone, PartialEq, Eq)]
    struct Fickle(u32);
    impl Ord for Fickle {
        fn cmp(&self, other: &Self) -> cmp::Ordering {
            if self.0 != SEPARATOR || ASKED.get() == u32::MAX {
                return self.0.cmp(&other.0);
            }
            // At the root, at the root of the next descent, and in its leaf.
            let asked = ASKED.replace(ASKED.get() + 1);
            if asked % 3 == 1 { cmp::Ordering::Less } else { cmp::Ordering::Greater }
        }
    }
    impl PartialOrd for Fickle {
        fn partial_cmp(&self, other: &Self) -> Option<cmp::Ordering> {
            Some(self.cmp(other))
        }
    }
    let map = || {
        let map = OrderedMap::new();
        (0..=15).for_each(|key| assert!(map.insert(Fickle(2 * key), key)));
        map.insert(Fickle(1), 0);
        ASKED.set(0);
        map
    };
    ends("insert", move || {
        let map = map();
        map.insert(Fickle(4), 1);
        assert_eq!(ASKED.replace(u32::MAX), 3, "it did not go both ways");
        assert_eq!(map.enter().iter().count(), map.len());
    });
    ends("update", move || {
        let map = map();
        assert!(!map.update(&Fickle(4), |value| value + 1));
        ASKED.set(u32::MAX);
        assert_eq!((map.len(), map.get_cloned(&Fickle(4))), (17, Some(2)));
    });
}

// ---- One panic of user code at every place where an operation calls it ----

type Map = OrderedMap<Value, Value>;

fn entry(number: u32) -> (Value, Value) {
    (Value::new(number), Value::new(number))
}

fn small() -> Map {
    (0..5).map(entry).collect()
}

/// Returns a map in which the next insertion replaces full nodes, up to the root.
fn full() -> Map {
    let map = Map::new();
    (0..400).for_each(|number| ignore(map.insert(Value::new(number * 2), Value::new(number))));
    map
}

/// Returns a map in which the next removals join nodes.
fn sparse() -> Map {
    let map = full();
    (0..400).filter(|number| number % 5 != 0).for_each(|number| {
        map.remove(&Value::new(number * 2));
    });
    map
}

/// Returns whether operations leave the number alone: multiples of 20 below a thousand.
fn stays(number: u32) -> bool {
    number % 20 == 0 && number < 1_000
}

fn works(map: Map, least: &BTreeSet<u32>) {
    let keys: Vec<u32> = map.enter().keys().map(|key| key.0).collect();
    assert!(keys.is_sorted_by(|one, next| one < next), "out of order: {keys:?}");
    assert_eq!(keys.len(), map.len(), "the count");
    assert!(keys.iter().all(|key| map.contains_key(&Value::new(*key))), "shown, but not found");
    let keys: BTreeSet<u32> = keys.into_iter().collect();
    assert!(least.is_subset(&keys), "lost {:?}", least - &keys);
    (2_000..2_100).for_each(|number| ignore(map.insert(Value::new(number), Value::new(0))));
    assert!((2_000..2_100).all(|number| map.remove(&Value::new(number))), "put in and lost");
    while map.pop_first_cloned().is_some() {}
    assert!(map.is_empty() && map.enter().iter().next().is_none());
}

#[test]
fn ordered_map_is_in_order_after_a_panic_of_any_call() {
    let states: [State<Map>; 3] = [("small", small), ("full", full), ("sparse", sparse)];
    let operations: [Operation<Map>; 12] = [
        ("insert", |map| {
            let map = map.as_ref().unwrap();
            (0..8).for_each(|number| ignore(map.insert(Value::new(51 + number), Value::new(0))));
        }),
        ("insert again", |map| {
            map.as_ref().unwrap().insert(Value::new(2), Value::new(0));
        }),
        ("remove", |map| {
            let map = map.as_ref().unwrap();
            (41..60).for_each(|number| ignore(map.remove(&Value::new(number))));
        }),
        ("pop", |map| {
            let map = map.as_ref().unwrap();
            let pop = map.first_cloned().is_some_and(|(key, _)| !stays(key.0));
            drop(pop.then(|| map.pop_first_cloned()));
            let last = map.last_cloned().is_some_and(|(key, _)| !stays(key.0));
            drop(last.then(|| map.pop_last_cloned()));
        }),
        ("update", |map| {
            let new = |old: &Value| (tick(), Value::new(old.0 + 1)).1;
            map.as_ref().unwrap().update(&Value::new(2), new);
        }),
        ("compute", |map| {
            let map = map.as_ref().unwrap();
            map.compute(Value::new(2), |_| (tick(), None).1);
            map.compute(Value::new(2), |_| (tick(), Some(Value::new(0))).1);
        }),
        ("retain", |map| map.as_ref().unwrap().retain(|key, _| (tick(), stays(key.0)).1)),
        ("clone", |map| drop(map.clone())),
        ("==", |map| assert!(map.as_ref() == map.as_ref())),
        ("range", |map| {
            let map = map.as_ref().unwrap();
            let view = map.enter();
            let mut range = view.range(Value::new(3)..Value::new(90));
            while range.next().is_some() && range.next_back().is_some() {}
        }),
        ("into_iter", |map| {
            map.take().into_iter().flatten().skip(1).for_each(|entry| drop((tick(), entry)));
        }),
        ("end", |map| drop(map.take())),
    ];
    let collect: Operation<Map> = ("collect", |_| drop((0..100).rev().map(entry).collect::<Map>()));
    every_fault("OrderedMap", &states[..1], &[collect], drop);
    for state in states {
        let least: BTreeSet<u32> = crate::common::fuse::alone(|| {
            state.1().enter().keys().map(|key| key.0).filter(|key| stays(*key)).collect()
        });
        every_fault("OrderedMap", &[state], &operations, move |map| works(map, &least));
    }
}
