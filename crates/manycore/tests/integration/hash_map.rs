//! The map, compared with the sequential one, and checked for linearizability while it grows. Under
//! stress, its keys and values notice when they are used after they were freed. User code panics.
//!
//! `MANYCORE_SOAK=60` runs each test for 60 seconds. `MANYCORE_SEED=0x12ab` generates the same
//! programs again.

use crate::common::calls::{self, Model, Subject};
use crate::common::canary::{Aviary, Canary};
use crate::common::domains::domains;
use crate::common::env;
use crate::common::rng::Rng;
use manycore::collections::HashMap;
use manycore::section::Domain;
use proptest::prelude::*;
use std::cell::Cell;
use std::collections::{BTreeMap, HashMap as Sequential};
use std::hash::{BuildHasher, BuildHasherDefault, Hash, Hasher, RandomState};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

fn ignore<T>(_: T) {}

const SHARE: Duration = Duration::from_millis(350);

/// A hasher under which keys are their own hash, or share a few hashes.
#[derive(Default, Clone, Copy)]
pub(crate) struct Weak<const SHIFT: u32>(u64);

impl<const SHIFT: u32> Hasher for Weak<SHIFT> {
    fn finish(&self) -> u64 {
        self.0.checked_shr(SHIFT).unwrap_or(0)
    }
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.0 = self.0 << 8 | u64::from(*byte));
    }
    fn write_u32(&mut self, number: u32) {
        self.0 = u64::from(number);
    }
}

pub(crate) type Identity = BuildHasherDefault<Weak<0>>;
pub(crate) type OneHash = BuildHasherDefault<Weak<64>>;

#[allow(missing_docs, reason = "public only as the answer of a public trait must be")]
#[derive(Debug, Clone, Copy)]
pub enum Call {
    Get(u32),
    Insert(u32, u32),
    Remove(u32),
    GetOrInsert(u32, u32),
    Add(u32, u32),
    TakeOdd(u32),
    /// A key that is never looked up, so that the map grows.
    Fill(u32),
    Shrink,
}

/// Keys from this on only fill the map.
pub(crate) const FILL: u32 = 1_000;

pub(crate) fn calls_below(keys: u32) -> impl Strategy<Value = Call> {
    let pair = (0..keys, 0..100_u32);
    prop_oneof![
        (0..keys).prop_map(Call::Get),
        pair.clone().prop_map(|(key, value)| Call::Insert(key, value)),
        (0..keys).prop_map(Call::Remove),
        pair.clone().prop_map(|(key, value)| Call::GetOrInsert(key, value)),
        pair.prop_map(|(key, value)| Call::Add(key, value)),
        (0..keys).prop_map(Call::TakeOdd),
        (FILL..FILL + 200).prop_map(Call::Fill),
        Just(Call::Shrink),
    ]
}

pub(crate) type Values = BTreeMap<u32, u32>;

impl Model for Values {
    type Call = Call;
    type Answer = Option<u32>;

    fn call(rng: &mut Rng) -> Call {
        let (key, value) = (rng.below(3) as u32, rng.below(100) as u32);
        match rng.below(9) {
            0 | 1 => Call::Get(key),
            8 => Call::Shrink,
            2 => Call::Insert(key, value),
            3 => Call::Remove(key),
            4 => Call::GetOrInsert(key, value),
            5 => Call::Add(key, value),
            6 => Call::TakeOdd(key),
            _ => Call::Fill(FILL + rng.below(1_000_000) as u32),
        }
    }

    fn answer(&mut self, call: &Call) -> Option<u32> {
        match *call {
            Call::Get(key) => self.get(&key).copied(),
            Call::Insert(key, value) => self.insert(key, value),
            Call::Remove(key) => self.remove(&key),
            Call::GetOrInsert(key, value) => Some(*self.entry(key).or_insert(value)),
            Call::Add(key, more) => self.get_mut(&key).map(|value| {
                *value += more;
                *value
            }),
            Call::TakeOdd(key) => {
                let next = next_even(self.remove(&key).as_ref());
                next.inspect(|next| ignore(self.insert(key, *next)))
            }
            Call::Fill(_) | Call::Shrink => None,
        }
    }
}

/// Returns the next value: an odd value is removed, a missing value becomes 0, an even value grows.
pub(crate) fn next_even(value: Option<&u32>) -> Option<u32> {
    value.map_or(Some(0), |value| (value % 2 == 0).then_some(value + 2))
}

impl<S: BuildHasher + Sync> Subject<Values> for HashMap<u32, u32, S> {
    fn answer(&self, call: &Call) -> Option<u32> {
        let view = self.enter();
        let answer = match *call {
            Call::Get(key) => view.get(&key),
            Call::Insert(key, value) => view.insert(key, value),
            Call::Remove(key) => view.remove(&key),
            Call::GetOrInsert(key, value) => Some(view.get_or_insert(key, value)),
            Call::Add(key, more) => view.update(&key, |value| value + more),
            Call::TakeOdd(key) => view.compute(key, next_even),
            Call::Fill(key) => view.insert(key, 0).and(None),
            Call::Shrink => (self.shrink_to_fit(), None).1,
        };
        answer.copied()
    }
}

fn answers_as_the_sequential_map<S>(calls: &[Call], map: &HashMap<u32, u32, S>)
where
    S: BuildHasher + Sync,
{
    let mut model = Values::new();
    for call in calls {
        assert_eq!(Subject::answer(map, call), Model::answer(&mut model, call), "{call:?}");
        if let Call::Fill(key) = *call {
            model.insert(key, 0);
        }
        assert_eq!(map.len(), model.len());
    }
    let view = map.enter();
    assert!(model.iter().all(|(key, value)| view.get(key) == Some(value)));
    let all: Values = view.iter().map(|(key, value)| (*key, *value)).collect();
    assert_eq!((view.iter().count(), &all), (model.len(), &model));
    view.retain(|_, value| value % 2 == 0);
    model.retain(|_, value| *value % 2 == 0);
    assert!(view.keys().all(|key| model.contains_key(key)) && view.len() == model.len());
    view.clear();
    assert!(view.is_empty() && view.iter().next().is_none());
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 64, failure_persistence: None, ..ProptestConfig::default()
    })]
    #[test]
    fn map_answers_as_the_sequential_one_does(
        calls in prop::collection::vec(calls_below(40), 0..400),
    ) {
        answers_as_the_sequential_map(&calls, &HashMap::<_, _, RandomState>::default());
        answers_as_the_sequential_map(&calls, &HashMap::<_, _, Identity>::default());
        answers_as_the_sequential_map(&calls, &HashMap::<_, _, OneHash>::default());
        for (_, domain) in domains() {
            let map = HashMap::builder().domain(Arc::new(domain())).build();
            answers_as_the_sequential_map(&calls, &map);
        }
    }
}

#[test]
fn histories_of_the_map_are_linearizable_while_it_grows_and_shrinks() {
    let _alone = env::alone();
    for (name, domain) in domains() {
        let until = env::soak(SHARE);
        let make = |rng: &mut Rng| {
            let buckets = *rng.pick(&[8, 32, 64]);
            let room = *rng.pick(&[1, 8]);
            let map = HashMap::builder().domain(Arc::new(domain())).capacity(3 * buckets * room);
            let map = map.hasher(Identity::default()).build();
            // Every bucket is full, so that the next key in any lets the map grow; or there is so
            // much room that the map can shrink.
            let fill = (0..5 * buckets as u32).map(|n| (64 * FILL + n, 0));
            (&map).extend(fill);
            map
        };
        match calls::check::<Values, _>(env::seed(), until, make) {
            Ok(histories) => println!("{name}: {histories} histories"),
            Err(report) => panic!("{name}: {report}"),
        }
    }
}

/// Threads insert, replace and remove keys while the map grows and shrinks. Every value says its
/// key, and whatever is read is alive. In the end everything was freed once.
fn stress(name: &str, domain: Domain) {
    const KEYS: usize = 600;
    const THREADS: usize = 4;
    let (seed, aviary) = (env::seed(), Aviary::new());
    let until = env::soak(SHARE);
    let map: HashMap<Canary, (Canary, u64)> = HashMap::builder().domain(Arc::new(domain)).build();
    let next = AtomicU64::new(0);
    let work = |thread: usize| {
        let mut rng = Rng::part(seed, thread as u64);
        let (mut calls, mut balance) = (0_u64, 0_i64);
        while calls % 64 != 0 || std::time::Instant::now() < until {
            calls += 1;
            // Few at first, so that tables are small while they are fought over.
            let number = rng.below(KEYS.min(8 + next.fetch_add(1, Relaxed) as usize / 16)) as u32;
            let key = aviary.hatch(number);
            let view = map.enter();
            match rng.below(8) {
                0..3 => {
                    let old = view.insert(key, (aviary.hatch(number), 0));
                    assert!(old.is_none_or(|(value, _)| value.sing() == number));
                    balance += i64::from(old.is_none());
                }
                3 | 4 => {
                    let old = view.remove(&key);
                    assert!(old.is_none_or(|(value, _)| value.sing() == number));
                    balance -= i64::from(old.is_some());
                }
                5 => {
                    let new = view.update(&key, |(value, count)| (value.clone(), count + 1));
                    assert!(new.is_none_or(|(value, _)| value.sing() == number));
                }
                6 if calls % 64 == 0 => {
                    assert!(view.iter().all(|(key, (value, _))| key.sing() == value.sing()));
                }
                7 if calls % 64 == 0 => map.shrink_to_fit(),
                _ => {
                    let found = view.get(&key);
                    assert!(found.is_none_or(|(value, _)| value.sing() == number));
                }
            }
        }
        (calls, balance)
    };
    let totals: Vec<(u64, i64)> = thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = (0..THREADS).map(|t| scope.spawn(move || work(t))).collect();
        threads.into_iter().map(|t| t.join().expect("a worker panicked")).collect()
    });
    let (calls, balance) = totals.iter().fold((0, 0), |(c, b), (dc, db)| (c + dc, b + db));
    println!("{name}: {calls} calls, seed {seed:#x}");
    assert_eq!(map.len() as i64, balance, "{name}: seed {seed:#x}");
    assert_eq!(map.enter().iter().count() as i64, balance, "{name}: seed {seed:#x}");
    drop(map);
    assert_eq!(aviary.living(), 0, "{name}: leaked or freed twice; seed {seed:#x}");
}

#[test]
fn map_under_stress_frees_everything_once_and_nothing_early() {
    let _alone = env::alone();
    domains().into_iter().for_each(|(name, domain)| stress(name, domain()));
}

#[test]
fn iteration_sees_what_stays_exactly_once_while_the_map_grows_and_shrinks() {
    let _alone = env::alone();
    for round in 0..5 {
        let map: HashMap<u32, ()> = (0..50).map(|key| (key, ())).collect();
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
                    let view = map.enter();
                    let mut seen: Vec<u32> = view.keys().copied().filter(|k| *k < FILL).collect();
                    seen.sort_unstable();
                    assert!(seen.iter().copied().eq(0..50), "round {round}: {seen:?}");
                    assert!((0..50).all(|key| view.contains_key(&key)), "round {round}");
                }
            });
        });
    }
}

#[test]
fn value_stays_readable_in_its_view_after_it_was_removed() {
    let map = HashMap::from([(1, String::from("one"))]);
    let view = map.enter();
    let one = view.get(&1).expect("it is there");
    assert_eq!(map.enter().remove(&1).map(String::as_str), Some("one"));
    (0..10_000).for_each(|n| ignore(map.enter().insert(n % 7 + 2, n.to_string())));
    assert_eq!(one, "one");
    assert_eq!(view.get(&1), None);
}

/// A key whose `Eq`, `Hash` or `Drop` panics when told to.
#[derive(Debug)]
struct Trap(u32);

thread_local! {
    static ARMED: Cell<&'static str> = const { Cell::new("") };
}

fn tread(on: &str) {
    if ARMED.get() == on {
        ARMED.set("");
        std::panic::panic_any("planned");
    }
}

impl PartialEq for Trap {
    fn eq(&self, other: &Self) -> bool {
        tread("eq");
        self.0 == other.0
    }
}
impl Eq for Trap {}
impl Hash for Trap {
    fn hash<H: Hasher>(&self, state: &mut H) {
        tread("hash");
        state.write_u32(self.0);
    }
}
impl Drop for Trap {
    fn drop(&mut self) {
        tread("drop");
    }
}

#[test]
fn map_is_in_order_after_user_code_panicked() {
    let domain = Domain::builder().batch_nodes(1).build().expect("settings that can work");
    let map = HashMap::builder().domain(Arc::new(domain)).hasher(OneHash::default()).build();
    let caught = |f: &dyn Fn()| assert!(catch_unwind(AssertUnwindSafe(f)).is_err());
    (0..40).for_each(|key| assert!(map.enter().insert(Trap(key), key).is_none()));
    for on in ["eq", "hash"] {
        let arm = || ARMED.set(on);
        caught(&|| (arm(), ignore(map.enter().get(&Trap(3)).copied())).1);
        caught(&|| (arm(), ignore(map.enter().insert(Trap(3), 0).copied())).1);
        caught(&|| (arm(), ignore(map.enter().insert(Trap(99), 0))).1);
        caught(&|| (arm(), ignore(map.enter().remove(&Trap(3)))).1);
    }
    caught(&|| ignore(map.enter().get_or_insert_with(Trap(99), || panic!("planned"))));
    assert_eq!(map.len(), 40);
    // A destructor panics in whichever call frees the entry, with that call's work done.
    ARMED.set("drop");
    let calls = (40..400).filter(|key| {
        catch_unwind(AssertUnwindSafe(|| ignore(map.enter().insert(Trap(key % 40), *key)))).is_err()
    });
    assert_eq!((calls.count(), ARMED.get()), (1, ""));
    let view = map.enter();
    assert_eq!(map.len(), 40);
    (0..40).for_each(|key| assert_eq!(view.get(&Trap(key)), Some(&(360 + key))));
    let sequential: Sequential<u32, u32> =
        view.iter().map(|(key, value)| (key.0, *value)).collect();
    assert_eq!(sequential.len(), 40);
}

/// The map moves its last bucket within an update, and retires the old table. Destructors that this
/// might run must wait until the update is done.
#[test]
fn update_that_retires_the_old_table_is_done_before_a_destructor_panics() {
    let domain = Domain::builder().batch_nodes(1).build().expect("settings that can work");
    let map = HashMap::builder().domain(Arc::new(domain)).hasher(Identity::default()).build();
    for key in 1..2_000 {
        // One entry more waits to be freed, whatever the last call freed.
        map.enter().insert(Trap(0), key);
        ARMED.set("drop");
        let _ = catch_unwind(AssertUnwindSafe(|| ignore(map.enter().insert(Trap(key), key))));
        ARMED.set("");
        assert_eq!(map.enter().get(&Trap(key)), Some(&key), "an update was lost");
    }
}

/// A key with an `Eq` that first does something else.
#[derive(Debug)]
struct Meddler(u32);

impl Hash for Meddler {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u32(self.0);
    }
}

thread_local! {
    static MEDDLE: Cell<Option<fn()>> = const { Cell::new(None) };
}

static MEDDLED: std::sync::LazyLock<HashMap<Meddler, u32>> =
    std::sync::LazyLock::new(HashMap::default);
static OTHER: std::sync::LazyLock<HashMap<Meddler, u32>> =
    std::sync::LazyLock::new(HashMap::default);

impl PartialEq for Meddler {
    fn eq(&self, other: &Self) -> bool {
        if let Some(meddle) = MEDDLE.take() {
            meddle();
        }
        self.0 == other.0
    }
}
impl Eq for Meddler {}

#[test]
fn eq_that_updates_its_map_panics_whatever_the_bucket_and_the_map_lives_on() {
    let insert_in_eq = |meddle: fn(), expected: Option<&str>| {
        MEDDLED.enter().insert(Meddler(0), 0);
        MEDDLE.set(Some(meddle));
        let said = catch_unwind(|| ignore(MEDDLED.enter().insert(Meddler(0), 1)));
        let said = said.err().map(|said| *said.downcast::<&str>().expect("a text"));
        assert_eq!((said, MEDDLE.get()), (expected, None));
    };
    let says = Some("manycore: a key's `Eq` updates the map that calls it");
    // Nearly all keys are in other buckets than the locked bucket.
    insert_in_eq(|| (1..100).for_each(|key| ignore(MEDDLED.enter().remove(&Meddler(key)))), says);
    insert_in_eq(|| ignore(MEDDLED.enter().insert(Meddler(7), 7)), says);
    insert_in_eq(|| MEDDLED.enter().clear(), says);
    // Also by way of another map's `Eq`.
    OTHER.enter().insert(Meddler(0), 0);
    insert_in_eq(
        || {
            MEDDLE.set(Some(|| ignore(MEDDLED.enter().insert(Meddler(7), 7))));
            OTHER.enter().insert(Meddler(0), 1);
        },
        says,
    );
    insert_in_eq(|| ignore(OTHER.enter().insert(Meddler(5), 5)), None);
    insert_in_eq(|| assert_eq!(MEDDLED.enter().get(&Meddler(5)), None), None);
    (0..1_000).for_each(|key| ignore(MEDDLED.enter().insert(Meddler(key), key)));
    assert_eq!((MEDDLED.len(), OTHER.len()), (1_000, 2));
}
