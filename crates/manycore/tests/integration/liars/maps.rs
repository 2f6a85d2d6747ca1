//! Maps by key: `HashMap`, `DHash` centralized and distributed, `ReplicatedMap`.

use super::liar::{KEYS, Key, Ledger, Probe, Soul, Subject, attempt, lies, panics};
use crate::common::rng::Rng;
use manycore::cluster::Placement;
use manycore::collections::{
    DHash, DHashBuilder, Distribution, HashMap, HashMapView, OrderedMap, ReplicatedMap,
};
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::sync::Arc;

type Hasher = BuildHasherDefault<DefaultHasher>;

struct Map(HashMap<Key, Soul, Hasher>);

fn map_step<'v>(
    view: &'v HashMapView<'_, Key, Soul, Hasher>,
    seen: &mut Vec<&'v Soul>,
    ledger: &Arc<Ledger>,
    rng: &mut Rng,
) {
    let (key, probe) = (Key::any(rng, ledger), Probe::any(rng, ledger));
    let value = || Soul::new(ledger);
    let user = || {
        ledger.call();
        Soul::new(ledger)
    };
    seen.extend(match rng.below(19) {
        0..=3 => attempt(|| view.insert(key, value())).flatten(),
        4 => attempt(|| view.get_or_insert(key, value())),
        5 => attempt(|| view.get_or_insert_with(key, user)),
        6 | 7 => attempt(|| view.remove(&probe)).flatten(),
        8 => attempt(|| view.update(&probe, |_| user())).flatten(),
        9 => attempt(|| view.compute(key, |old| old.is_none().then(user))).flatten(),
        10 => attempt(|| view.compute(key, |_| Some(user()))).flatten(),
        11 => {
            let keep = |key: &Key, value: &Soul| {
                key.look();
                value.look();
                ledger.call();
                key != &Key::new(3, ledger)
            };
            attempt(|| view.retain(keep));
            None
        }
        12 if rng.once_in(8) => attempt(|| view.clear()).and(None),
        13 => {
            view.iter().for_each(|(key, value)| (key.look(), value.look()).1);
            None
        }
        14 => attempt(|| view.get_key_value(&probe)).flatten().map(|(key, value)| {
            key.look();
            value
        }),
        15 => attempt(|| view.try_insert(key, value()).ok()).flatten(),
        16 => {
            let remove = |_: &Key, value: &Soul| {
                value.look();
                ledger.call();
                true
            };
            attempt(|| view.remove_if(&probe, remove)).flatten()
        }
        17 => attempt(|| view.update_or_insert_with(key, |_| user(), user)),
        _ => attempt(|| view.get(&probe)).flatten(),
    });
    seen.iter().for_each(|value| value.look());
}

impl Subject for Map {
    const FORMS: usize = 1;

    fn new(_: usize, _: &Arc<Ledger>) -> Self {
        Self(HashMap::with_hasher(Hasher::default()))
    }

    fn run(&self, ledger: &Arc<Ledger>, rng: &mut Rng, steps: usize) {
        for _ in 0..steps / 5 {
            let view = self.0.enter();
            let mut seen = Vec::new();
            (0..5).for_each(|_| map_step(&view, &mut seen, ledger, rng));
        }
    }

    fn check(self, ledger: &Arc<Ledger>) {
        let view = self.0.enter();
        assert_eq!(view.len(), view.iter().count(), "what is counted is there");
        view.iter().for_each(|(key, value)| (key.look(), value.look()).1);
        // More, if some wait for a reader in another thread's batch. None when the map has gone.
        assert!(ledger.living() >= 3 * view.len() as i64, "a key's two and a value's");
    }
}

#[test]
fn hash_map_among_liars() {
    lies::<Map>("HashMap");
}

#[test]
fn hash_map_and_panics_at_every_call() {
    panics::<Map>("HashMap");
}

struct Ordered(OrderedMap<Key, Soul>);

impl Ordered {
    fn step(&self, ledger: &Arc<Ledger>, rng: &mut Rng) {
        let view = self.0.enter();
        let (key, probe) = (Key::any(rng, ledger), Probe::any(rng, ledger));
        let value = || Soul::new(ledger);
        let user = || {
            ledger.call();
            Soul::new(ledger)
        };
        let look = |(key, value): (&Key, &Soul)| {
            key.look();
            value.look();
        };
        let seen = match rng.below(20) {
            0..=4 => attempt(|| view.insert(key, value())).flatten(),
            5 => attempt(|| view.get_or_insert(key, value())),
            6..=8 => attempt(|| view.remove(&probe)).flatten(),
            9 => attempt(|| view.update(&probe, |_| user())).flatten(),
            10 => attempt(|| view.compute(key, |old| old.is_none().then(user))).flatten(),
            11 => {
                let keep = |key: &Key, value: &Soul| {
                    key.look();
                    value.look();
                    ledger.call();
                    key != &Key::new(3, ledger)
                };
                attempt(|| view.retain(keep)).and(None)
            }
            12 => {
                attempt(|| view.range::<Probe, _>(&probe..).take(30).for_each(look));
                attempt(|| view.range::<Probe, _>(..&probe).rev().take(30).for_each(look)).and(None)
            }
            13 => {
                let mut walk = view.iter();
                let both = || {
                    while let (Some(one), Some(other)) = (walk.next(), walk.next_back()) {
                        look(one);
                        look(other);
                    }
                };
                attempt(both).and(None)
            }
            14 => attempt(|| view.first()).flatten().map(|(key, value)| (key.look(), value).1),
            15 => attempt(|| view.last()).flatten().map(|(key, value)| (key.look(), value).1),
            16 => attempt(|| view.pop_first()).flatten().map(|entry| entry.1),
            17 => attempt(|| view.pop_last()).flatten().map(|entry| entry.1),
            18 => attempt(|| view.try_insert(key, value()).ok()).flatten(),
            _ => attempt(|| view.get(&probe)).flatten(),
        };
        seen.into_iter().for_each(Soul::look);
    }
}

impl Subject for Ordered {
    const FORMS: usize = 1;

    fn new(_: usize, _: &Arc<Ledger>) -> Self {
        Self(OrderedMap::new())
    }

    fn run(&self, ledger: &Arc<Ledger>, rng: &mut Rng, steps: usize) {
        (0..steps).for_each(|_| self.step(ledger, rng));
    }

    fn check(self, ledger: &Arc<Ledger>) {
        let view = self.0.enter();
        let mut there = 0;
        let mut walk = view.iter();
        // A walk compares no keys, so each entry comes once.
        while let Some((key, value)) = attempt(|| walk.next()).flatten() {
            key.look();
            value.look();
            there += 1;
        }
        assert_eq!(view.len(), there, "what is counted is there");
        assert!(ledger.living() >= 3 * there as i64, "a key's two and a value's");
    }
}

#[test]
fn ordered_map_among_liars() {
    lies::<Ordered>("OrderedMap");
}

#[test]
fn ordered_map_and_panics_at_every_call() {
    panics::<Ordered>("OrderedMap");
}

type Dispersed = DHash<Key, Soul, u64, Hasher>;

struct Elements(Dispersed);

impl Elements {
    fn step(&self, ledger: &Arc<Ledger>, rng: &mut Rng) {
        let Self(table) = self;
        let (key, probe) = (Key::any(rng, ledger), Probe::any(rng, ledger));
        let count = |shared: &Soul, part: &mut u64| {
            shared.look();
            ledger.call();
            *part += 1;
        };
        match rng.below(16) {
            0..=2 => _ = attempt(|| table.insert(key, Soul::new(ledger))),
            3 => _ = attempt(|| table.try_insert(key, Soul::new(ledger))),
            4..=7 => _ = attempt(|| table.with_local(&probe, count)),
            8 => _ = attempt(|| table.remove(&probe)),
            9 => {
                let even = |shared: &Soul, parts: &mut [&mut u64]| {
                    shared.look();
                    ledger.call();
                    parts.iter().map(|part| **part).sum::<u64>() % 2 == 0
                };
                attempt(|| table.remove_if(&probe, even));
            }
            10 => _ = attempt(|| table.update_shared(&probe, |old| *old = Soul::new(ledger))),
            11 => _ = attempt(|| table.scatter(&probe, |_| ledger.call(), |_| ledger.call())),
            12 => _ = attempt(|| table.gather(&probe, 0, |sum, part| sum + *part)),
            13 if rng.once_in(2) => _ = table.distribute(),
            13 => {
                let merge = |into: &mut u64, from: &mut u64| {
                    ledger.call();
                    *into += std::mem::take(from);
                };
                attempt(|| table.fold(merge));
            }
            14 if rng.once_in(8) => _ = attempt(|| table.clear()),
            14 => _ = attempt(|| table.snapshot()),
            _ => _ = attempt(|| table.get(&probe)).flatten().map(|shared| shared.look()),
        }
    }
}

impl Subject for Elements {
    const FORMS: usize = 3;

    fn new(form: usize, _: &Arc<Ledger>) -> Self {
        let builder = match form {
            0 => DHashBuilder::new(),
            1 => DHashBuilder::new().distribution(Distribution::Always),
            _ => {
                DHashBuilder::new().distribution(Distribution::Always).placement(Placement::Shared)
            }
        };
        Self(builder.hasher(Hasher::default()).build())
    }

    fn run(&self, ledger: &Arc<Ledger>, rng: &mut Rng, steps: usize) {
        (0..steps).for_each(|_| self.step(ledger, rng));
    }

    fn check(self, ledger: &Arc<Ledger>) {
        let Self(table) = self;
        // A key has two, a shared part one; a place's part is a copy of both.
        let entries = table.len() + table.replicas();
        assert_eq!(ledger.living(), 3 * entries as i64, "what is counted is there");
        table.clear();
        assert_eq!((table.len(), table.replicas()), (0, 0), "a part outlived its element");
    }
}

#[test]
fn dhash_among_liars() {
    lies::<Elements>("DHash");
}

#[test]
fn dhash_and_panics_at_every_call() {
    panics::<Elements>("DHash");
}

const CACHED_MAX: usize = 4;

struct Replicas(ReplicatedMap<Key, Soul, Hasher>, usize);

impl Subject for Replicas {
    const FORMS: usize = 3;

    fn new(form: usize, _: &Arc<Ledger>) -> Self {
        let hasher = Hasher::default();
        let (placement, max) = match form {
            0 => (Placement::PerThread, usize::MAX),
            1 => (Placement::Shared, usize::MAX),
            _ => (Placement::Shared, CACHED_MAX),
        };
        Self(ReplicatedMap::with_cached_max(placement, hasher, max), max)
    }

    fn run(&self, ledger: &Arc<Ledger>, rng: &mut Rng, steps: usize) {
        let Self(map, max) = self;
        for _ in 0..steps {
            let (key, probe) = (Key::any(rng, ledger), Probe::any(rng, ledger));
            match rng.below(12) {
                0..=3 => _ = attempt(|| map.insert(key, Soul::new(ledger))),
                4 | 5 => _ = attempt(|| map.remove(&probe)),
                6 => {
                    let look = |value: &Soul| (value.look(), ledger.call());
                    attempt(|| map.read(&probe, look));
                }
                7 if rng.once_in(8) => _ = attempt(|| map.clear()),
                7 => _ = attempt(|| map.snapshot()),
                _ => _ = attempt(|| map.get(&probe)).flatten().map(|value| value.look()),
            }
            assert!(map.cached() <= *max, "more copies than the bound: {}", map.cached());
        }
    }

    fn check(self, ledger: &Arc<Ledger>) {
        let Self(map, _) = self;
        let entries = map.len() + map.cached();
        assert_eq!(ledger.living(), 3 * entries as i64, "what is counted is there");
        // Honest keys, of which every one there is is asked for: none is left in a cache.
        let places = 4;
        assert!(map.cached() <= places * map.len(), "copies of what is not in the map");
        map.clear();
        assert_eq!((map.len(), map.cached()), (0, 0), "a copy outlived its entry");
    }
}

#[test]
fn replicated_map_among_liars() {
    lies::<Replicas>("ReplicatedMap");
}

#[test]
fn replicated_map_and_panics_at_every_call() {
    panics::<Replicas>("ReplicatedMap");
}

/// An update ends whatever the copy of its key is like, because it replaces the entry that it has
/// read.
#[test]
fn update_with_a_clone_that_differs_returns() {
    use super::liar::Lie;
    for lie in [Lie::Clone, Lie::EqAlternates, Lie::Hash] {
        let ledger = Ledger::new(lie, 1);
        let map: HashMap<Key, Soul, Hasher> = HashMap::with_hasher(Hasher::default());
        let view = map.enter();
        for number in 0..KEYS as u64 {
            view.insert(Key::new(number, &ledger), Soul::new(&ledger));
            let mut calls = 0;
            let probe = Probe::new(number, &ledger);
            view.update(&probe, |_| {
                calls += 1;
                Soul::new(&ledger)
            });
            view.compute(Key::new(number, &ledger), |_| {
                calls += 1;
                None
            });
            assert!(calls <= 3, "{lie:?}: {calls} calls with no other thread");
        }
    }
}
