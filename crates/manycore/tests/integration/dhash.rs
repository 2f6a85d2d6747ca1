//! The distributed hash table, compared with the sequential one under every placement, and checked
//! for linearizability.
//!
//! Local parts must be conserved while elements come and go, and while tables change their size,
//! are distributed and folded. User code panics or uses the table.
//!
//! `MANYCORE_SOAK=60` runs each test for 60 seconds. `MANYCORE_SEED=0x12ab` generates the same
//! programs again.

use crate::common::calls::{self, Model, Subject};
use crate::common::env;
use crate::common::rng::Rng;
use manycore::cluster::Placement;
use manycore::collections::{Contention, DHash, DHashBuilder, Distribution};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Barrier, LazyLock};
use std::thread;
use std::time::{Duration, Instant};

fn ignore<T>(_: T) {}

const SHARE: Duration = Duration::from_millis(250);

const PLACEMENTS: [Placement; 4] =
    [Placement::Shared, Placement::PerNode, Placement::PerLlc, Placement::PerThread];

/// The forms: centralized, distributed, and the default. The default is centralized until it is
/// told to change, or must.
const FORMS: [Distribution; 3] =
    [Distribution::Never, Distribution::Always, Distribution::Contended(Contention::new(1, 1))];

fn built<K, Shared, Local>(
    placement: Placement,
    distribution: Distribution,
) -> DHash<K, Shared, Local>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    Shared: Clone + Send + Sync + 'static,
    Local: Default + Send + 'static,
{
    DHashBuilder::new().placement(placement).distribution(distribution).build()
}

#[allow(missing_docs, reason = "public only as the answer of a public trait must be")]
#[derive(Debug, Clone, Copy)]
pub enum Call {
    Get(u32),
    Insert(u32, u32),
    TryInsert(u32, u32),
    Update(u32, u32),
    /// To the local part.
    Add(u32, u32),
    Sum(u32),
    /// Sums and clears.
    Take(u32),
    Remove(u32),
    /// If nothing was added.
    RemoveIdle(u32),
    Distribution,
    Fold,
}

fn call(keys: u32) -> impl Strategy<Value = Call> {
    let key = 0..keys;
    (0..13_usize, key, 0..100_u32).prop_map(|(which, key, value)| of(which, key, value))
}

fn of(which: usize, key: u32, value: u32) -> Call {
    match which {
        0 => Call::Get(key),
        1 => Call::Insert(key, value),
        2 => Call::TryInsert(key, value),
        3 => Call::Update(key, value),
        4..=6 => Call::Add(key, value),
        7 => Call::Sum(key),
        8 => Call::Take(key),
        9 => Call::Remove(key),
        10 => Call::Distribution,
        11 => Call::Fold,
        _ => Call::RemoveIdle(key),
    }
}

/// The shared part and the sum of the local parts, by key.
type Values = BTreeMap<u32, (u32, u32)>;

type Answer = Option<(u32, u32)>;

impl Model for Values {
    type Call = Call;
    type Answer = Answer;

    fn call(rng: &mut Rng) -> Call {
        of(rng.below(13), rng.below(2) as u32, rng.below(100) as u32)
    }

    fn answer(&mut self, call: &Call) -> Answer {
        match *call {
            Call::Get(key) => self.get(&key).map(|(shared, _)| (*shared, 0)),
            Call::Insert(key, value) => {
                let element = self.entry(key);
                let old = match &element {
                    std::collections::btree_map::Entry::Occupied(old) => Some((old.get().0, 0)),
                    std::collections::btree_map::Entry::Vacant(_) => None,
                };
                element.or_default().0 = value;
                old
            }
            Call::TryInsert(key, value) => {
                let is_new = !self.contains_key(&key);
                self.entry(key).or_insert((value, 0));
                is_new.then_some((0, 0))
            }
            Call::Update(key, value) => {
                self.get_mut(&key).map(|(shared, _)| (std::mem::replace(shared, value), 0))
            }
            Call::Add(key, value) => self.get_mut(&key).map(|(shared, sum)| {
                *sum += value;
                (*shared, 0)
            }),
            Call::Sum(key) => self.get(&key).map(|(_, sum)| (0, *sum)),
            Call::Take(key) => self.get_mut(&key).map(|(_, sum)| (0, std::mem::take(sum))),
            Call::Remove(key) => self.remove(&key),
            Call::RemoveIdle(key) => match self.get(&key) {
                Some((_, 0)) => self.remove(&key),
                _ => None,
            },
            Call::Distribution | Call::Fold => None,
        }
    }
}

type Table = DHash<u32, u32, u32>;

fn add<N: std::ops::AddAssign + Copy>(sum: &mut N, part: &mut N) {
    *sum += *part;
}

fn whole((shared, parts): (u32, Vec<u32>)) -> (u32, u32) {
    (shared, parts.iter().sum())
}

impl Subject<Values> for Table {
    fn answer(&self, call: &Call) -> Answer {
        match *call {
            Call::Get(key) => self.get(&key).map(|shared| (shared, 0)),
            Call::Insert(key, value) => self.insert(key, value).map(|old| (old, 0)),
            Call::TryInsert(key, value) => self.try_insert(key, value).ok().map(|()| (0, 0)),
            Call::Update(key, value) => {
                let set = |shared: &mut u32| (std::mem::replace(shared, value), 0);
                self.update_shared(&key, set)
            }
            Call::Add(key, value) => self.with_local(&key, |shared, part| {
                *part += value;
                (*shared, 0)
            }),
            Call::Sum(key) => self.gather(&key, 0, |sum, part| sum + *part).map(|sum| (0, sum)),
            Call::Take(key) => {
                let take = |sum, part: &mut u32| sum + std::mem::take(part);
                self.gather(&key, 0, take).map(|sum| (0, sum))
            }
            Call::Remove(key) => self.remove(&key).map(whole),
            Call::RemoveIdle(key) => {
                let idle = |_: &u32, parts: &mut [&mut u32]| parts.iter().all(|part| **part == 0);
                self.remove_if(&key, idle).map(whole)
            }
            Call::Distribution => {
                self.distribute();
                None
            }
            Call::Fold => {
                self.fold(add);
                None
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn table_answers_as_the_sequential_one_does(
        calls in prop::collection::vec(call(200), 0..300),
        form in 0..FORMS.len(),
    ) {
        let table: Table = built(Placement::PerThread, FORMS[form]);
        let mut model = Values::new();
        for call in &calls {
            prop_assert_eq!(Subject::answer(&table, call), Model::answer(&mut model, call));
            prop_assert!(table.replicas() <= table.len());
        }
        let shared = |(key, (shared, _)): (&u32, &(u32, u32))| (*key, *shared);
        let expected: BTreeMap<u32, u32> = model.iter().map(shared).collect();
        prop_assert_eq!(table.len(), model.len());
        prop_assert_eq!(table.keys().len(), model.len());
        prop_assert_eq!(table.snapshot().into_iter().collect::<BTreeMap<_, _>>(), expected);
        table.clear();
        prop_assert!(table.is_empty() && table.replicas() == 0);
    }
}

#[test]
fn histories_are_linearizable_by_every_placement() {
    let _alone = env::alone();
    let distributed = PLACEMENTS.map(|placement| (placement, Distribution::Always));
    let others = [FORMS[0], FORMS[2]].map(|form| (Placement::PerThread, form));
    for (placement, form) in distributed.into_iter().chain(others) {
        let until = env::soak(SHARE);
        let make = |_: &mut Rng| -> Table { built(placement, form) };
        match calls::check::<Values, _>(env::seed(), until, make) {
            Ok(histories) => println!("{placement:?}, {form:?}: {histories} histories"),
            Err(report) => panic!("{placement:?}, {form:?}: {report}"),
        }
    }
}

/// The checker notices a table that looks at the parts one after the other, and so misses additions
/// or finds them twice.
#[test]
fn parts_that_are_not_taken_at_one_moment_are_not_linearizable() {
    let _alone = env::alone();
    struct Torn(Table);
    impl Subject<Values> for Torn {
        fn answer(&self, call: &Call) -> Answer {
            let Call::Take(key) = *call else { return self.0.answer(call) };
            let sum = self.0.gather(&key, 0, |sum, part| sum + *part)?;
            thread::yield_now();
            self.0.gather(&key, (), |(), part| *part = 0)?;
            Some((0, sum))
        }
    }
    let until = env::deadline("MANYCORE_SOAK", env::UNSEEN);
    let mut caught = false;
    while !caught && Instant::now() < until {
        let soon = until.min(Instant::now() + Duration::from_millis(100));
        let make = |_: &mut Rng| Torn(Table::new());
        caught = calls::check::<Values, _>(env::seed(), soon, make).is_err();
    }
    if !caught {
        env::was_not_seen("parts taken in two steps: it was not caught");
    }
}

/// Gatherings and removals bring home exactly what was added, while tables grow and shrink.
#[test]
fn no_part_is_lost_while_elements_come_and_go_and_tables_change_their_size() {
    const KEYS: u64 = 2_000;
    let _alone = env::alone();
    let seed = env::seed();
    let distributed =
        [Placement::PerThread, Placement::PerLlc].map(|place| (place, Distribution::Always));
    let changing = (Placement::PerThread, Distribution::default());
    for (placement, form) in distributed.into_iter().chain([changing]) {
        let until = env::soak(SHARE);
        let table: DHash<u64, u64, u64> = built(placement, form);
        let over = AtomicBool::new(false);
        let (added, home) = thread::scope(|scope| {
            let adders: Vec<_> = (0..3)
                .map(|thread| {
                    let (table, over) = (&table, &over);
                    scope.spawn(move || {
                        let mut rng = Rng::part(seed, thread);
                        let mut added = 0;
                        while !over.load(Relaxed) {
                            let key = rng.below(KEYS as usize) as u64;
                            added += table
                                .with_local(&key, |shared, part| {
                                    assert_eq!(*shared, key + 1, "another element's part");
                                    *part += 1;
                                    1
                                })
                                .unwrap_or(0);
                        }
                        added
                    })
                })
                .collect();
            let mut home = 0_u64;
            while Instant::now() < until {
                (0..KEYS).for_each(|key| assert_eq!(table.insert(key, key + 1), None));
                // Under load, and with whatever the load does to it.
                assert!(table.distribute());
                thread::yield_now();
                assert_eq!(table.fold(add), form != Distribution::Always);
                for key in 0..KEYS / 10 {
                    let take = |sum, part: &mut u64| sum + std::mem::take(part);
                    home += table.gather(&key, 0, take).expect("it is there");
                }
                for key in 0..KEYS {
                    let (shared, parts) = table.remove(&key).expect("no other thread removes");
                    assert_eq!(shared, key + 1);
                    home += parts.iter().sum::<u64>();
                }
            }
            over.store(true, Relaxed);
            (adders.into_iter().map(|adder| adder.join().unwrap()).sum::<u64>(), home)
        });
        assert_eq!(added, home, "SEED={seed:#x}");
        assert!(table.is_empty() && table.replicas() == 0);
        // 16 shards and some local tables, each at its least.
        assert!(table.capacity() < 1_200, "{} places for nothing", table.capacity());
    }
}

#[test]
fn tables_grow_and_shrink_each_by_its_own_need() {
    let table: Table = built(Placement::PerThread, Distribution::Always);
    (0..20_000).for_each(|key| ignore(table.insert(key, key)));
    let master = table.capacity();
    assert!(master >= 20_000);
    // This thread uses all of them, another one a few.
    (0..20_000).for_each(|key| assert_eq!(table.get(&key), Some(key)));
    let both = table.capacity();
    assert!(both >= master + 20_000);
    thread::scope(|scope| {
        scope.spawn(|| (0..10).for_each(|key| assert_eq!(table.get(&key), Some(key))));
    });
    assert!(table.capacity() < both + 100);
    assert_eq!(table.replicas(), 20_010);
    (10..20_000).for_each(|key| assert!(table.remove(&key).is_some()));
    assert_eq!((table.len(), table.replicas()), (10, 20));
    assert!(table.capacity() < 1_200, "{} places for 10 elements", table.capacity());
}

#[test]
fn removal_and_change_reach_every_place_before_they_return() {
    let table: Table = built(Placement::PerThread, Distribution::Always);
    let barrier = Barrier::new(5);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for round in 0..30 {
                    barrier.wait();
                    assert_eq!(
                        table.with_local(&1, |shared, part| (*shared, *part)),
                        Some((round, 0))
                    );
                    table.with_local(&1, |_, part| *part = 1);
                    barrier.wait();
                    barrier.wait();
                    assert_eq!(table.with_local(&1, |shared, part| (*shared, *part)), Some((7, 2)));
                    barrier.wait();
                    barrier.wait();
                    assert_eq!(table.get(&1), None);
                    barrier.wait();
                }
            });
        }
        for round in 0..30 {
            table.insert(1, round);
            barrier.wait();
            barrier.wait();
            assert!(table.replicas() >= 4, "each thread has a part");
            assert_eq!(
                table.scatter(&1, |shared| std::mem::replace(shared, 7), |part| *part += 1),
                Some(round)
            );
            barrier.wait();
            barrier.wait();
            let (shared, parts) = table.remove(&1).unwrap();
            assert_eq!((shared, parts.iter().sum::<u32>(), table.replicas()), (7, 8, 0));
            barrier.wait();
            barrier.wait();
        }
    });
}

#[test]
fn more_threads_than_holders_have_bits() {
    let table: DHash<&str, u32, u32> = built(Placement::PerThread, Distribution::Always);
    table.insert("key", 1);
    let barrier = Barrier::new(80);
    thread::scope(|scope| {
        for _ in 0..80 {
            scope.spawn(|| {
                assert_eq!(table.with_local("key", |_, part| *part += 1), Some(()));
                barrier.wait();
            });
        }
    });
    assert!(table.replicas() >= 64);
    assert_eq!(table.gather("key", 0, |sum, part| sum + *part), Some(80));
    assert_eq!(table.insert("key", 2), Some(1));
    let (shared, parts) = table.remove("key").unwrap();
    assert_eq!((shared, parts.iter().sum::<u32>(), table.replicas()), (2, 80, 0));
}

fn is_refused<T>(call: impl FnOnce() -> T) -> bool {
    let refused = catch_unwind(AssertUnwindSafe(|| ignore(call()))).err();
    refused.is_some_and(|panic| {
        panic.downcast_ref::<&str>().is_some_and(|text| text.contains("under its own lock"))
    })
}

/// The closures run in a hit, in a gathering, and in the decision on a removal.
#[test]
fn closures_that_use_the_table_are_told_and_leave_it_working() {
    for (at, form) in (0..PLACEMENTS.len() * FORMS.len()).map(|at| (at, FORMS[at % 3])) {
        let table: Table = built(PLACEMENTS[at / 3], form);
        table.insert(1, 1);
        table.insert(2, 2);
        let other: Table = built(PLACEMENTS[at / 3], form);
        other.insert(1, 1);
        let uses = || {
            assert!(is_refused(|| table.with_local(&1, |_, _| ())));
            assert!(is_refused(|| table.get(&2)));
            assert!(is_refused(|| table.get(&3)));
            assert!(is_refused(|| table.insert(3, 3)));
            assert!(is_refused(|| table.try_insert(3, 3)));
            assert!(is_refused(|| table.gather(&2, 0, |sum, _| sum)));
            assert!(is_refused(|| table.update_shared(&2, |_| ())));
            assert!(is_refused(|| table.remove(&1)));
            assert!(is_refused(|| table.len()));
            assert!(is_refused(|| table.capacity()));
            assert!(is_refused(|| table.clear()));
            assert!(is_refused(|| table.fold(add)) || form == Distribution::Always);
            let by_another = other.with_local(&1, |_, _| is_refused(|| table.get(&2)));
            assert_eq!(by_another, Some(true));
        };
        assert_eq!(table.with_local(&1, |_, _| uses()), Some(())); // a miss
        assert_eq!(table.with_local(&1, |_, _| uses()), Some(())); // a hit
        assert_eq!(table.gather(&1, (), |(), _| uses()), Some(()));
        assert_eq!(table.update_shared(&2, |_| uses()), Some(())); // not used here before
        let removed = table.remove_if(&1, |_, _| {
            uses();
            true
        });
        assert_eq!(removed.map(whole), Some((1, 0)));
        assert_eq!((table.len(), table.get(&2)), (1, Some(2)));
    }
}

#[test]
fn closures_that_panic_leave_the_element() {
    FORMS.into_iter().for_each(panicking_closures_leave_the_element);
}

fn panicking_closures_leave_the_element(form: Distribution) {
    let table: Table = built(Placement::PerThread, form);
    table.insert(1, 1);
    let panics = || -> u32 { panic!("on purpose") };
    let tries: [&dyn Fn(); 4] = [
        &|| ignore(table.with_local(&1, |_, part| *part = panics())),
        &|| ignore(table.update_shared(&1, |shared| *shared = panics())),
        &|| ignore(table.gather(&1, 0, |_, _| panics())),
        &|| ignore(table.remove_if(&1, |_, _| panics() == 0)),
    ];
    for attempt in tries {
        assert!(catch_unwind(AssertUnwindSafe(attempt)).is_err());
        assert_eq!(table.with_local(&1, |shared, part| (*shared, *part)), Some((1, 0)));
    }
    assert_eq!(table.remove(&1).map(whole), Some((1, 0)));
}

/// A key whose `Eq`, and a part whose `Clone` and `Default`, panic when they are told to.
#[derive(Debug)]
struct Touchy(u32);

static IN: AtomicUsize = AtomicUsize::new(usize::MAX);

fn touch() {
    let left = IN.load(Relaxed);
    IN.store(left.wrapping_sub(1), Relaxed);
    assert!(left != 0, "touchy");
}

impl PartialEq for Touchy {
    fn eq(&self, other: &Self) -> bool {
        touch();
        self.0 == other.0
    }
}
impl Eq for Touchy {}
impl Hash for Touchy {
    fn hash<H: Hasher>(&self, state: &mut H) {
        0_u32.hash(state); // all in one place, so that they are compared
    }
}
impl Clone for Touchy {
    fn clone(&self) -> Self {
        touch();
        Self(self.0)
    }
}
impl Default for Touchy {
    fn default() -> Self {
        touch();
        Self(0)
    }
}

#[test]
fn user_code_that_panics_anywhere_leaves_one_table() {
    let _alone = env::alone();
    for (calls, form) in (0..180).map(|call| (call / 3, FORMS[call % 3])) {
        let table: DHash<Touchy, Touchy, Touchy> = built(Placement::PerThread, form);
        IN.store(usize::MAX, Relaxed);
        (0..4).for_each(|key| ignore(table.insert(Touchy(key), Touchy(0))));
        let see = |key| table.with_local(&Touchy(key), |shared, part| (shared.0, part.0));
        let there = || {
            thread::scope(|scope| {
                scope.spawn(|| (0..4).map(see).collect::<Vec<_>>()).join().unwrap()
            })
        };
        there();
        IN.store(calls, Relaxed);
        let steps: [&dyn Fn(); 5] = [
            &|| ignore(table.insert(Touchy(1), Touchy(1))),
            &|| ignore(see(0)),
            &|| ignore(table.update_shared(&Touchy(3), |shared| shared.0 += 1)),
            &|| ignore(table.remove(&Touchy(2))),
            &|| ignore(table.gather(&Touchy(0), 0, |sum, part| sum + part.0)),
        ];
        // Every step runs, even after another step panicked.
        let panicked = steps.map(|step| catch_unwind(AssertUnwindSafe(step)).is_err());
        IN.store(usize::MAX, Relaxed);
        let here: Vec<_> = (0..4).map(see).collect();
        assert_eq!(here, there(), "after {calls} calls");
        // Whole steps only: a step that panicked did nothing, and the others did all of their work.
        let did = |step: usize| !panicked[step];
        let expected = [
            Some((0, 0)),
            Some((u32::from(did(0)), 0)),
            (!did(3)).then_some((0, 0)),
            Some((u32::from(did(2)), 0)),
        ];
        assert_eq!(here, expected, "after {calls} calls, panics at {panicked:?}");
    }
}

static TABLES: [LazyLock<DHash<Looks, Looks, Looks>>; 3] = [
    LazyLock::new(|| built(Placement::Shared, Distribution::Always)),
    LazyLock::new(|| built(Placement::PerThread, Distribution::Always)),
    LazyLock::new(|| built(Placement::PerThread, Distribution::default())),
];

/// A key or part with a `Drop` that uses every table. It may do so only while no lock of theirs is
/// held.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
struct Looks(u32);

impl Drop for Looks {
    fn drop(&mut self) {
        for table in &TABLES {
            assert!(table.len() < 100);
        }
    }
}

#[test]
fn nothing_is_dropped_under_a_lock() {
    for table in &TABLES {
        for round in 0..3 {
            for key in 0..5 {
                table.insert(Looks(key), Looks(round));
                assert!(table.try_insert(Looks(key), Looks(round)).is_err());
            }
            thread::scope(|scope| {
                scope.spawn(|| (0..5).for_each(|key| drop(table.get(&Looks(key)))));
            });
            (0..5).for_each(|key| drop(table.get(&Looks(key))));
            assert_eq!(table.update_shared(&Looks(0), |shared| shared.0 = 9), Some(()));
            table.distribute();
            (0..5).for_each(|key| drop(table.get(&Looks(key))));
            table.fold(|sum, part| sum.0 += part.0);
            let (shared, parts) = table.remove(&Looks(round)).unwrap();
            assert!(shared == Looks(if round == 0 { 9 } else { round }) && !parts.is_empty());
        }
        table.clear();
        assert!(table.is_empty());
    }
}

#[test]
fn every_copy_is_dropped_once() {
    let value = Arc::new(());
    let table: DHash<u32, Arc<()>, Option<Arc<()>>> =
        built(Placement::PerThread, Distribution::Always);
    for key in 0..5 {
        table.insert(key, Arc::clone(&value));
    }
    let keep = |shared: &Arc<()>, part: &mut Option<Arc<()>>| *part = Some(Arc::clone(shared));
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| (0..5).for_each(|key| assert!(table.with_local(&key, keep).is_some())));
        }
    });
    assert_eq!(Arc::strong_count(&value), 1 + 5 + 2 * table.replicas());
    table.remove(&0);
    assert_eq!(Arc::strong_count(&value), 1 + 4 + 2 * table.replicas());
    drop(table);
    assert_eq!(Arc::strong_count(&value), 1);
}
