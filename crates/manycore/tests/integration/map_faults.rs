//! Maps by key: one panic of user code at every place where an operation calls user code, as in
//! `collection_faults`.

use crate::collection_faults::{Operation, Scattering, State, every_fault};
use crate::common::fuse::{Value, alone, interrupted, tick};
use manycore::cluster::Placement;
use manycore::collections::{
    DHash, DHashBuilder, Distribution, FlatHashMap, HashMap, HashSet, Plain, ReplicatedMap,
};
use std::collections::BTreeSet;
use std::hash::{Hash, Hasher};

// ---- Maps by key ----

/// A key that maps keep by value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
struct Word(u32);

// SAFETY: laid out as a number.
unsafe impl Plain for Word {}

impl Hash for Word {
    fn hash<H: Hasher>(&self, state: &mut H) {
        tick();
        state.write_u32(self.0);
    }
}

/// A map or set of numbers.
trait Numbers: Default + PartialEq + Clone + 'static {
    /// It grows to this many buckets of so many entries in several steps.
    const GROWS_AT: usize;
    fn put(&self, number: u32);
    fn take(&self, number: u32);
    fn has(&self, number: u32) -> bool;
    fn numbers(&self) -> Vec<u32>;
    fn entries(&self) -> usize;
    fn room(&self) -> usize;
    fn reserve_more(&self, more: usize);
    fn shrink(&self);
    fn keep(&self, which: fn(u32) -> bool);
    fn put_each(&mut self, numbers: std::ops::Range<u32>);
    fn made_of(numbers: std::ops::Range<u32>) -> Self;
    fn empty(&self);
}

macro_rules! numbers {
    ($Type:ty, $grows_at:literal, $key:expr, $entry:expr, $has:ident, $keys:expr, $keep:expr) => {
        impl Numbers for $Type {
            const GROWS_AT: usize = $grows_at;
            fn put(&self, number: u32) {
                (&*self).extend([$entry(number)]);
            }
            fn take(&self, number: u32) {
                self.remove(&$key(number));
            }
            fn has(&self, number: u32) -> bool {
                self.$has(&$key(number))
            }
            fn numbers(&self) -> Vec<u32> {
                $keys(self)
            }
            fn entries(&self) -> usize {
                self.len()
            }
            fn room(&self) -> usize {
                self.capacity()
            }
            fn reserve_more(&self, more: usize) {
                self.reserve(more);
            }
            fn shrink(&self) {
                self.shrink_to_fit();
            }
            fn keep(&self, which: fn(u32) -> bool) {
                $keep(self, which);
            }
            fn put_each(&mut self, numbers: std::ops::Range<u32>) {
                self.extend(numbers.map($entry));
            }
            fn made_of(numbers: std::ops::Range<u32>) -> Self {
                numbers.map($entry).collect()
            }
            fn empty(&self) {
                self.clear();
            }
        }
    };
}

type Map = HashMap<Value, Value, Scattering>;
type Set = HashSet<Value, Scattering>;
type Flat = FlatHashMap<Word, u32, Scattering>;

numbers!(
    Map,
    96,
    Value::new,
    |number| (Value::new(number), Value::new(number)),
    contains_key,
    |map: &Map| map.enter().keys().map(|key| key.0).collect(),
    |map: &Map, which: fn(u32) -> bool| map.retain(|key, _| (tick(), which(key.0)).1)
);
numbers!(
    Set,
    96,
    Value::new,
    Value::new,
    contains,
    |set: &Set| set.enter().iter().map(|key| key.0).collect(),
    |set: &Set, which: fn(u32) -> bool| set.retain(|key| (tick(), which(key.0)).1)
);
numbers!(
    Flat,
    256,
    Word,
    |number| (Word(number), number),
    contains_key,
    |map: &Flat| map.iter().map(|(key, _)| key.0).collect(),
    |map: &Flat, which: fn(u32) -> bool| map.retain(|key, _| (tick(), which(key.0)).1)
);

fn small<M: Numbers>() -> M {
    let map = M::default();
    (0..5).for_each(|number| map.put(number));
    map
}

/// Returns a map with some of its buckets already moved to the next table.
fn growing<M: Numbers>() -> M {
    let map = M::default();
    let mut number = 0;
    while map.room() <= M::GROWS_AT {
        map.put(number);
        number += 1;
    }
    map
}

/// Returns a large table with few entries.
fn emptied<M: Numbers>() -> M {
    let map = growing::<M>();
    map.keep(|number| number % 16 == 0);
    map
}

/// Returns a map whose shrinking was ended midway by a panic, if shrinking runs user code.
fn shrinking<M: Numbers>() -> M {
    let map = emptied::<M>();
    interrupted(3, || map.shrink());
    map
}

/// Returns whether operations leave the number alone: multiples of four below a thousand. A clear
/// takes these, too.
fn stays(number: u32) -> bool {
    number % 4 == 0 && number < 1_000
}

fn in_order<M: Numbers>(map: &M, expected: &BTreeSet<u32>, what: &str) {
    let numbers = map.numbers();
    let there: BTreeSet<u32> = numbers.iter().copied().collect();
    assert_eq!(there.len(), numbers.len(), "{what}: a key is there twice");
    assert_eq!(map.entries(), numbers.len(), "{what}: the count");
    assert!(numbers.iter().all(|number| map.has(*number)), "{what}: shown, but not found");
    assert!(expected.is_subset(&there), "{what}: lost {:?}", expected - &there);
}

/// Demands that the map works: its entries are there, it grows, and it shrinks.
fn works<M: Numbers>(map: &M, expected: &BTreeSet<u32>) {
    in_order(map, expected, "after the panic");
    (2_000..2_100).for_each(|number| map.put(number));
    assert!((2_000..2_100).all(|number| map.has(number)), "what was put in is not there");
    map.reserve_more(300);
    assert!(map.room() >= map.entries() + 300, "growth has ended: room for {}", map.room());
    map.keep(stays);
    map.shrink();
    assert!(map.room() <= 64.max(4 * map.entries()), "it does not shrink: {}", map.room());
    in_order(map, expected, "after it shrank");
}

fn faults_of_numbers<M: Numbers>(name: &str, more: &[Operation<M>]) {
    let states: [State<M>; 4] =
        [("small", small), ("growing", growing), ("emptied", emptied), ("shrinking", shrinking)];
    let operations: [Operation<M>; 10] = [
        ("put", |map| map.iter().for_each(|map| map.put(1_000))),
        ("put again", |map| map.iter().for_each(|map| map.put(2))),
        ("remove", |map| map.iter().for_each(|map| map.take(1))),
        ("reserve", |map| map.iter().for_each(|map| map.reserve_more(map.room()))),
        ("shrink_to_fit", |map| map.iter().for_each(M::shrink)),
        ("retain", |map| map.iter().for_each(|map| map.keep(stays))),
        ("clone", |map| drop(map.clone())),
        ("==", |map| map.iter().for_each(|map| assert!(M::eq(map, map)))),
        ("extend", |map| map.iter_mut().for_each(|map| map.put_each(1_000..1_100))),
        ("end", |map| drop(map.take())),
    ];
    let collect: Operation<M> = ("collect", |_| drop(M::made_of(0..100)));
    every_fault(name, &states[..1], &[collect], drop);
    for state in states {
        let expected: BTreeSet<u32> =
            alone(|| state.1().numbers().into_iter().filter(|n| stays(*n)).collect());
        let check = move |map: M| works(&map, &expected);
        every_fault(name, &[state], &operations, check.clone());
        every_fault(name, &[state], more, check);
        let clear: Operation<M> = ("clear", |map| map.iter().for_each(M::empty));
        every_fault(name, &[state], &[clear], |map| works(&map, &BTreeSet::new()));
    }
}

#[test]
fn hash_map_is_in_order_after_a_panic_of_any_call() {
    faults_of_numbers::<Map>(
        "HashMap",
        &[
            ("try_insert", |map| {
                let map = map.as_ref().unwrap();
                drop(map.try_insert(Value::new(1_000), Value::new(0)));
                drop(map.try_insert(Value::new(2), Value::new(0)));
            }),
            ("update", |map| {
                let new = |old: &Value| (tick(), Value::new(old.0 + 1)).1;
                map.as_ref().unwrap().update(&Value::new(2), new);
            }),
            ("compute", |map| {
                let map = map.as_ref().unwrap();
                map.compute(Value::new(1), |_| (tick(), None).1);
                map.compute(Value::new(1), |_| (tick(), Some(Value::new(0))).1);
            }),
            ("get_or_insert_with", |map| {
                let make = || (tick(), Value::new(0)).1;
                drop(map.as_ref().unwrap().get_or_insert_with(Value::new(1_000), make));
            }),
            ("remove_if", |map| {
                map.as_ref().unwrap().remove_if(&Value::new(1), |_, _| (tick(), true).1);
            }),
            ("remove_cloned", |map| {
                drop(map.as_ref().unwrap().remove_cloned(&Value::new(1)));
            }),
            ("into_iter", |map| {
                map.take().into_iter().flatten().skip(1).for_each(|entry| drop((tick(), entry)));
            }),
            ("removals, and collect", |map| {
                let map = map.as_ref().unwrap();
                map.remove(&Value::new(1));
                map.insert(Value::new(2), Value::new(3));
                map.domain().collect();
                map.domain().collect();
            }),
        ],
    );
}

#[test]
fn hash_set_is_in_order_after_a_panic_of_any_call() {
    faults_of_numbers::<Set>(
        "HashSet",
        &[
            ("into_iter", |set| {
                set.take().into_iter().flatten().skip(1).for_each(|member| drop((tick(), member)));
            }),
            ("is_subset", |set| {
                let set = set.as_ref().unwrap();
                assert!(set.is_subset(set) && !set.is_disjoint(set));
            }),
        ],
    );
}

#[test]
fn flat_hash_map_is_in_order_after_a_panic_of_any_call() {
    faults_of_numbers::<Flat>(
        "FlatHashMap",
        &[
            ("update", |map| {
                map.as_ref().unwrap().update(&Word(2), |value| (tick(), value + 1).1);
            }),
            ("compute", |map| {
                let map = map.as_ref().unwrap();
                map.compute(Word(1), |_| (tick(), None).1);
                map.compute(Word(1), |_| (tick(), Some(0)).1);
            }),
            ("get_or_insert_with", |map| {
                map.as_ref().unwrap().get_or_insert_with(Word(1_000), || (tick(), 0).1);
            }),
            ("remove_if", |map| {
                map.as_ref().unwrap().remove_if(&Word(1), |_| (tick(), true).1);
            }),
        ],
    );
}

// ---- Dispersed and replicated tables ----

type Dispersed = DHash<Value, Value, u64, Scattering>;

fn dispersed(distribution: Distribution, entries: u32) -> Dispersed {
    let table = DHashBuilder::new().hasher(Scattering::default()).distribution(distribution);
    let table: Dispersed = table.build();
    (0..entries).for_each(|number| drop(table.insert(Value::new(number), Value::new(number))));
    (0..entries / 2).for_each(|number| {
        table.with_local(&Value::new(number), |_, part| *part += 1);
    });
    table
}

fn dispersed_works(table: &Dispersed, expected: &BTreeSet<u32>) {
    let there: BTreeSet<u32> = table.keys().iter().map(|key| key.0).collect();
    assert_eq!(table.len(), there.len());
    assert!(expected.is_subset(&there), "lost {:?}", expected - &there);
    (2_000..2_040).for_each(|n| drop(table.insert(Value::new(n), Value::new(n))));
    assert!((2_000..2_040).all(|n| table.get(&Value::new(n)).is_some()));
    assert!(there.iter().all(|n| table.with_local(&Value::new(*n), |_, _| ()).is_some()));
    table.clear();
    assert_eq!((table.len(), table.replicas()), (0, 0));
}

#[test]
fn dhash_is_in_order_after_a_panic_of_any_call() {
    let states: [State<Dispersed>; 4] = [
        ("central, small", || dispersed(Distribution::Never, 5)),
        ("central, large", || dispersed(Distribution::Never, 60)),
        ("distributed, small", || dispersed(Distribution::Always, 5)),
        ("distributed, large", || dispersed(Distribution::Always, 60)),
    ];
    let operations: [Operation<Dispersed>; 13] = [
        ("insert", |table| {
            let table = table.as_ref().unwrap();
            drop(table.insert(Value::new(1_000), Value::new(0)));
            drop(table.insert(Value::new(1), Value::new(0)));
        }),
        ("try_insert", |table| {
            let table = table.as_ref().unwrap();
            drop(table.try_insert(Value::new(1_000), Value::new(0)));
            drop(table.try_insert(Value::new(1), Value::new(0)));
        }),
        ("extend", |table| {
            let table = table.as_ref().unwrap();
            (1_000..1_040).for_each(|n| drop(table.insert(Value::new(n), Value::new(n))));
        }),
        ("with_local", |table| {
            let table = table.as_ref().unwrap();
            (0..5)
                .for_each(|n| _ = table.with_local(&Value::new(n), |_, part| (tick(), *part += 1)));
        }),
        ("update_shared", |table| {
            let new = |old: &mut Value| (tick(), *old = Value::new(7)).1;
            table.as_ref().unwrap().update_shared(&Value::new(1), new);
        }),
        ("scatter and gather", |table| {
            let table = table.as_ref().unwrap();
            table.scatter(&Value::new(1), |_| tick(), |_| tick());
            table.gather(&Value::new(1), 0, |sum, part| (tick(), sum + *part).1);
        }),
        ("remove", |table| drop(table.as_ref().unwrap().remove(&Value::new(1)))),
        ("remove_if", |table| {
            drop(table.as_ref().unwrap().remove_if(&Value::new(1), |_, _| (tick(), true).1));
        }),
        ("remove many", |table| {
            let table = table.as_ref().unwrap();
            (0..60).filter(|n| !stays(*n)).for_each(|n| drop(table.remove(&Value::new(n))));
        }),
        ("distribute", |table| _ = table.as_ref().unwrap().distribute()),
        ("fold", |table| {
            let merge = |into: &mut u64, from: &mut u64| {
                tick();
                *into += std::mem::take(from);
            };
            table.as_ref().unwrap().fold(merge);
        }),
        ("snapshot", |table| drop(table.as_ref().unwrap().snapshot())),
        ("end", |table| drop(table.take())),
    ];
    for state in states {
        let entries = alone(|| state.1().len()) as u32;
        let expected = (0..entries).filter(|n| stays(*n)).collect();
        let check = move |table| dispersed_works(&table, &expected);
        every_fault("DHash", &[state], &operations, check);
        let clear: Operation<Dispersed> = ("clear", |table| table.as_ref().unwrap().clear());
        every_fault("DHash", &[state], &[clear], |table| dispersed_works(&table, &BTreeSet::new()));
    }
}

type Replicated = ReplicatedMap<Value, Value, Scattering>;

fn replicated(entries: u32, cached_max: usize) -> Replicated {
    let map = Replicated::with_cached_max(Placement::Shared, Scattering::default(), cached_max);
    (0..entries).for_each(|number| drop(map.insert(Value::new(number), Value::new(number))));
    (0..entries).for_each(|number| drop(map.get(&Value::new(number))));
    map
}

#[test]
fn replicated_map_is_in_order_after_a_panic_of_any_call() {
    let states: [State<Replicated>; 3] = [
        ("small", || replicated(5, usize::MAX)),
        ("large", || replicated(60, usize::MAX)),
        ("with few copies", || replicated(60, 10)),
    ];
    let operations: [Operation<Replicated>; 8] = [
        ("insert", |map| {
            let map = map.as_ref().unwrap();
            drop(map.insert(Value::new(1_000), Value::new(0)));
            drop(map.insert(Value::new(1), Value::new(0)));
        }),
        ("extend", |map| {
            let map = map.as_ref().unwrap();
            (1_000..1_040).for_each(|n| drop(map.insert(Value::new(n), Value::new(n))));
        }),
        ("get", |map| {
            let map = map.as_ref().unwrap();
            (0..20).for_each(|number| drop(map.get(&Value::new(number))));
        }),
        ("read", |map| {
            let map = map.as_ref().unwrap();
            (0..3).for_each(|number| _ = map.read(&Value::new(number), |_| tick()));
        }),
        ("remove", |map| drop(map.as_ref().unwrap().remove(&Value::new(1)))),
        ("snapshot", |map| drop(map.as_ref().unwrap().snapshot())),
        ("into_entries", |map| {
            map.take().into_iter().for_each(|map| map.into_entries().skip(1).for_each(drop));
        }),
        ("end", |map| drop(map.take())),
    ];
    let works = |map: Replicated, expected: BTreeSet<u32>| {
        let there: BTreeSet<u32> = map.snapshot().iter().map(|(key, _)| key.0).collect();
        assert_eq!(map.len(), there.len());
        assert!(expected.is_subset(&there), "lost {:?}", &expected - &there);
        (2_000..2_040).for_each(|n| drop(map.insert(Value::new(n), Value::new(n))));
        let found = |n| map.get(&Value::new(n)).is_some();
        assert!((2_000..2_040).all(found) && there.iter().all(|n| found(*n)));
        map.clear();
        assert_eq!((map.len(), map.cached()), (0, 0));
    };
    for state in states {
        let entries = alone(|| state.1().len()) as u32;
        let check = move |map| works(map, (0..entries).filter(|n| stays(*n)).collect());
        every_fault("ReplicatedMap", &[state], &operations, check);
        let clear: Operation<Replicated> = ("clear", |map| map.as_ref().unwrap().clear());
        every_fault("ReplicatedMap", &[state], &[clear], move |map| works(map, BTreeSet::new()));
    }
}
