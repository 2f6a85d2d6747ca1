//! The example's lock-free list, in every mode of a domain. It is compared with the sequential set,
//! checked for linearizability, and run under stress with keys that notice when they are used after
//! they were freed.
//!
//! `MANYCORE_SOAK=60` runs each test for 60 seconds. `MANYCORE_SEED=0x12ab` generates the same
//! programs again.

#[path = "../../examples/sorted_list.rs"]
#[allow(dead_code, reason = "an example has a main function")]
mod sorted_list;

use crate::common::calls::{self, Model, Subject};
use crate::common::canary::{Aviary, Canary};
use crate::common::domains::domains;
use crate::common::env;
use crate::common::rng::Rng;
use manycore::section::Domain;
use proptest::prelude::*;
use sorted_list::SortedList;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

const SHARE: Duration = Duration::from_millis(350);

#[allow(missing_docs, reason = "public only as the answer of a public trait must be")]
#[derive(Debug, Clone, Copy)]
pub enum Call {
    Insert(u8),
    Remove(u8),
    Contains(u8),
}

fn calls_below(keys: u8) -> impl Strategy<Value = Call> {
    prop_oneof![
        (0..keys).prop_map(Call::Insert),
        (0..keys).prop_map(Call::Remove),
        (0..keys).prop_map(Call::Contains),
    ]
}

type Keys = BTreeSet<u8>;

impl Model for Keys {
    type Call = Call;
    type Answer = bool;

    fn call(rng: &mut Rng) -> Call {
        let key = rng.below(3) as u8;
        *rng.pick(&[Call::Insert(key), Call::Remove(key), Call::Contains(key)])
    }

    fn answer(&mut self, call: &Call) -> bool {
        match call {
            Call::Insert(key) => self.insert(*key),
            Call::Remove(key) => self.remove(key),
            Call::Contains(key) => self.contains(key),
        }
    }
}

impl Subject<Keys> for SortedList<u8> {
    fn answer(&self, call: &Call) -> bool {
        match call {
            Call::Insert(key) => self.insert(*key),
            Call::Remove(key) => self.remove(key),
            Call::Contains(key) => self.contains(key),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn list_answers_as_the_sequential_set_does(
        calls in prop::collection::vec(calls_below(12), 0..200),
    ) {
        for (name, domain) in domains() {
            let (list, mut set) = (SortedList::new(domain()), Keys::new());
            for call in &calls {
                let expected = Model::answer(&mut set, call);
                prop_assert_eq!(Subject::answer(&list, call), expected, "{}: {:?}", name, call);
            }
            prop_assert_eq!(list.into_keys(), set.into_iter().collect::<Vec<_>>(), "{}", name);
        }
    }
}

#[test]
fn histories_of_the_list_are_linearizable() {
    let _alone = env::alone();
    for (name, domain) in domains() {
        let until = env::soak(SHARE);
        match calls::check::<Keys, _>(env::seed(), until, |_| SortedList::new(domain())) {
            Ok(histories) => println!("{name}: {histories} histories"),
            Err(report) => panic!("{name}: {report}"),
        }
    }
}

/// A broken list: its `contains` looks at an earlier content.
struct Stale(SortedList<u8>, std::sync::Mutex<Option<bool>>);

impl Subject<Keys> for Stale {
    fn answer(&self, call: &Call) -> bool {
        let answer = self.0.answer(call);
        match call {
            Call::Contains(0) => self.1.lock().expect("no panic").replace(answer).unwrap_or(answer),
            _ => answer,
        }
    }
}

#[test]
fn checker_rejects_a_list_that_answers_late() {
    let _alone = env::alone();
    let until = Instant::now() + Duration::from_secs(30);
    let make = |_: &mut Rng| Stale(SortedList::new(Domain::bounded()), Default::default());
    let report = calls::check::<Keys, _>(env::seed(), until, make);
    assert!(report.is_err(), "no history was rejected");
}

/// Every key counts as often as it was inserted, and every node is freed once.
#[test]
fn list_under_stress_frees_every_key_once_and_none_early() {
    const KEYS: usize = 24;
    const THREADS: usize = 4;
    let _alone = env::alone();
    for (name, domain) in domains() {
        let (seed, aviary) = (env::seed(), Aviary::new());
        let until = env::soak(SHARE);
        let list: SortedList<Canary> = SortedList::new(domain());
        let balance: [AtomicI64; KEYS] = Default::default();
        let work = |thread: usize| {
            let mut rng = Rng::part(seed, thread as u64);
            let mut calls = 0_u64;
            while calls % 64 != 0 || Instant::now() < until {
                calls += 1;
                let number = rng.below(KEYS);
                let key = aviary.hatch(number as u32);
                match rng.below(4) {
                    0 | 1 if list.insert(key.clone()) => {
                        balance[number].fetch_add(1, Relaxed);
                    }
                    2 if list.remove(&key) => {
                        balance[number].fetch_sub(1, Relaxed);
                    }
                    _ => {
                        list.contains(&key);
                    }
                }
            }
            calls
        };
        let calls: u64 = thread::scope(|scope| {
            let work = &work;
            let threads = (0..THREADS).map(|thread| scope.spawn(move || work(thread)));
            let threads: Vec<_> = threads.collect();
            threads.into_iter().map(|t| t.join().expect("a worker panicked")).sum()
        });
        println!("{name}: {calls} calls, seed {seed:#x}");
        let expected = (0..KEYS).filter(|key| balance[*key].load(Relaxed) == 1);
        let expected: Vec<u32> = expected.map(|key| key as u32).collect();
        assert!(balance.iter().all(|b| matches!(b.load(Relaxed), 0 | 1)), "{name}: {seed:#x}");
        let keys: Vec<u32> = list.into_keys().iter().map(Canary::sing).collect();
        assert_eq!(keys, expected, "{name}: seed {seed:#x}");
        assert_eq!(aviary.living(), 0, "{name}: keys leaked or freed twice; seed {seed:#x}");
    }
}
