//! Keys, values and callbacks that lie. A hash changes; an `Eq` is not reflexive, not symmetric or
//! random; a `Borrow` disagrees; clones differ; weights, ends and a clock change. Answers may be
//! wrong. But nothing is used after it was freed, freed twice or leaked, nothing hangs, and the
//! weight is that of the entries.
//!
//! `MANYCORE_SOAK=60` runs each test for 60 seconds, `MANYCORE_SEED=0x12ab` repeats the operations.

use crate::canary::{Aviary, Canary};
use crate::rng::Rng;
use manycore_cache::{Cache, Change, Eviction};
use std::borrow::Borrow;
use std::cell::RefCell;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

const SHARE: Duration = Duration::from_millis(125);
const KEYS: usize = 60;
const CAPACITY: u64 = 40;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lie {
    HashChanges,
    HashIsOne,
    EqNotReflexive,
    EqNotSymmetric,
    EqIsRandom,
    EqIsAlways,
    BorrowDisagrees,
    AllOfThem,
}

const LIES: [Lie; 8] = [
    Lie::HashChanges,
    Lie::HashIsOne,
    Lie::EqNotReflexive,
    Lie::EqNotSymmetric,
    Lie::EqIsRandom,
    Lie::EqIsAlways,
    Lie::BorrowDisagrees,
    Lie::AllOfThem,
];

thread_local! {
    static LIES_OF_THREAD: RefCell<Rng> = RefCell::new(Rng::new(0));
}

/// Returns a random number below the bound.
fn whim(bound: usize) -> usize {
    LIES_OF_THREAD.with_borrow_mut(|rng| rng.below(bound))
}

/// The part that both kinds of keys have: a number, and a way to lie.
#[derive(Debug, Clone, Copy)]
struct Number(u32, Lie);

impl Number {
    fn lies(self, lie: Lie) -> bool {
        self.1 == lie || (self.1 == Lie::AllOfThem && whim(3) == 0)
    }
}

impl Hash for Number {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        if self.lies(Lie::HashChanges) {
            whim(8).hash(hasher);
        } else if !self.lies(Lie::HashIsOne) {
            (self.0 / 3).hash(hasher);
        }
    }
}

impl PartialEq for Number {
    fn eq(&self, other: &Self) -> bool {
        match () {
            () if self.lies(Lie::EqNotReflexive) && self.0 % 2 == 1 => false,
            () if self.lies(Lie::EqNotSymmetric) => self.0 <= other.0,
            () if self.lies(Lie::EqIsRandom) => whim(2) == 0,
            () if self.lies(Lie::EqIsAlways) => true,
            () => self.0 == other.0,
        }
    }
}
impl Eq for Number {}

struct Key {
    number: Number,
    other: Number,
    canary: Canary,
}

impl Key {
    fn new(number: u32, lie: Lie, aviary: &Arc<Aviary>) -> Self {
        let other =
            if Number(number, lie).lies(Lie::BorrowDisagrees) { number + 1 } else { number };
        Self {
            number: Number(number, lie),
            other: Number(other, lie),
            canary: aviary.hatch(number),
        }
    }
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.canary.sing();
        self.number.hash(hasher);
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.canary.sing();
        other.canary.sing();
        self.number == other.number
    }
}
impl Eq for Key {}

impl Borrow<Number> for Key {
    fn borrow(&self) -> &Number {
        self.canary.sing();
        &self.other
    }
}

/// A value with clones that have another number.
struct Value(Canary, Arc<Aviary>);

impl Value {
    fn new(aviary: &Arc<Aviary>) -> Self {
        Self(aviary.hatch(whim(1_000) as u32), aviary.clone())
    }
}

impl Clone for Value {
    fn clone(&self) -> Self {
        self.0.sing();
        Self::new(&self.1)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Plain,
    Full,
    Bare,
}

fn build(kind: Kind, eviction: Eviction) -> Cache<Key, Value> {
    let end = || (whim(2) == 0).then(|| Duration::from_secs(whim(4) as u64));
    let builder = Cache::builder(CAPACITY).initial_entries(1).eviction(eviction);
    let builder = builder.listener(|key: &Key, value: &Value, _| {
        key.canary.sing();
        value.0.sing();
    });
    let weigh = |key: &Key, value: &Value| {
        key.canary.sing();
        value.0.sing();
        whim(7) as u32
    };
    // A clock that jumps back and forth.
    let builder = builder.clock(|| Duration::from_secs(whim(5) as u64));
    let builder = match kind {
        Kind::Plain => builder,
        Kind::Full => builder.weigher(weigh).expire_after(move |_, _| end()),
        Kind::Bare => builder.weigher(weigh).without_metadata(move |_, _| end()),
    };
    builder.build().unwrap()
}

/// Runs one operation. Its result is looked at, and may be anything.
fn operate(cache: &Cache<Key, Value>, lie: Lie, rng: &mut Rng, aviary: &Arc<Aviary>) {
    let number = rng.below(KEYS) as u32;
    let key = || Key::new(number, lie, aviary);
    let value = || Value::new(aviary);
    let sought = Number(number, lie);
    match rng.below(26) {
        0..5 => _ = cache.insert(key(), value()),
        5 => drop(cache.insert_if(key(), value(), |_| whim(2) == 0)),
        6 => drop(cache.insert_locked_if(key(), value(), |_| whim(2) == 0)),
        7 => drop(cache.remove(&sought)),
        8 => drop(cache.remove_locked_if(&sought, |_| whim(2) == 0)),
        9 => drop(cache.get_locked_if(&sought, |entry| entry.value().0.sing() % 2 == 0)),
        10 => _ = cache.get_or_insert_with(key(), value).0.sing(),
        11 => {
            _ = crate::tasks::block_on(cache.get_or_insert_async(key(), async { value() })).0.sing()
        }
        12 => {
            let keys: Vec<_> = (0..20).map(|_| Number(rng.below(KEYS) as u32, lie)).collect();
            cache.get_many(keys.iter(), |_, entry| {
                entry.inspect(|entry| _ = entry.value().0.sing());
            });
        }
        13 => {
            let keys: Vec<_> = (0..4).map(|_| key()).collect();
            cache.visit_many(keys.iter(), |_, spot| {
                if whim(2) == 0 {
                    spot.get().inspect(|entry| _ = entry.key().canary.sing());
                }
            });
        }
        14 if rng.once_in(8) => cache.iter().for_each(|entry| _ = entry.0.sing()),
        15 if rng.once_in(20) => cache.retain(|_| whim(2) == 0),
        16 if rng.once_in(20) => cache.set_capacity(1 + rng.below(2 * CAPACITY as usize) as u64),
        17 if rng.once_in(20) => cache.purge(),
        18 => _ = (cache.contains_key(&sought), cache.time_left(&sought)),
        19 if rng.once_in(50) => cache.invalidate_all(),
        22 => drop(cache.pin(&sought)),
        23 => _ = cache.unpin(&sought),
        20 | 21 => drop(cache.compute(key(), |entry| {
            _ = entry.map(|entry| (entry.key().canary.sing(), entry.value().0.sing()));
            match whim(3) {
                0 => Change::Keep,
                1 => Change::Put(value()),
                _ => Change::Remove,
            }
        })),
        _ => {
            if let Some(found) = cache.get(&sought) {
                found.key().canary.sing();
                found.0.sing();
            }
        }
    }
}

fn run(kind: Kind, eviction: Eviction, lie: Lie, threads: u64, seed: u64, until: Instant) {
    let aviary = Aviary::new();
    let cache = build(kind, eviction);
    thread::scope(|scope| {
        for thread in 0..threads {
            let (cache, aviary) = (&cache, &aviary);
            scope.spawn(move || {
                let mut rng = Rng::part(seed, thread);
                LIES_OF_THREAD.set(Rng::part(seed ^ 1, thread));
                let mut calls = 0_u32;
                while calls < 300 || (calls % 64 != 0 || Instant::now() < until) {
                    calls += 1;
                    operate(cache, lie, &mut rng, aviary);
                }
            });
        }
    });
    let what = format!("{kind:?}, {eviction:?}, {lie:?}, {threads} threads, seed {seed:#x}");
    cache.invalidate_all();
    assert_eq!(cache.len(), 0, "{what}");
    // A cache without metadata does not keep weights, so its weigher must not lie
    // (`Builder::without_metadata`).
    assert!(kind == Kind::Bare || cache.weight() == 0, "{what}: weighs {}", cache.weight());
    drop(cache);
    assert_eq!(aviary.living(), 0, "{what}: leaked or freed twice");
}

fn all_lies(kind: Kind, threads: u64) {
    let _alone = crate::env::alone();
    let seed = crate::env::seed();
    println!("seed {seed:#x}");
    let soak = crate::env::number("MANYCORE_SOAK").map_or(SHARE, Duration::from_secs);
    let share = soak / (2 * LIES.len() as u32);
    crate::tasks::within(120 + soak.as_secs(), move || {
        for lie in LIES {
            for eviction in [Eviction::Clock, Eviction::ScanResistant] {
                run(kind, eviction, lie, threads, seed, Instant::now() + share);
            }
        }
    });
}

#[test]
fn lies_to_one_thread_do_no_harm() {
    [Kind::Plain, Kind::Full, Kind::Bare].into_iter().for_each(|kind| all_lies(kind, 1));
}

#[test]
fn lies_to_several_threads_do_no_harm() {
    [Kind::Plain, Kind::Full, Kind::Bare].into_iter().for_each(|kind| all_lies(kind, 4));
}
