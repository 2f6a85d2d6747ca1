//! Budgets, compared with sequential budgets, and under stress. An oracle checks that no limit is
//! exceeded at any moment, and that nothing is lost.

use crate::common::env;
use crate::common::rng::Rng;
use manycore::collections::{BudgetTree, Charge};
use proptest::prelude::*;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::{Duration, Instant};

const SHARE: Duration = Duration::from_millis(350);

#[derive(Debug, Clone)]
enum Step {
    Charge(usize, u64),
    Release(usize),
    SetLimit(usize, u64),
}

/// The parent of each level: 0 is above 1 and 2, and 1 is above 3 and 4.
const PARENTS: [Option<usize>; 5] = [None, Some(0), Some(0), Some(1), Some(1)];

fn path(level: usize) -> impl Iterator<Item = usize> {
    std::iter::successors(Some(level), |level| PARENTS[*level])
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..5_usize, 0..40_u64).prop_map(|(level, amount)| Step::Charge(level, amount)),
        4 => (0..64_usize).prop_map(Step::Release),
        1 => (0..5_usize, 0..200_u64).prop_map(|(level, limit)| Step::SetLimit(level, limit)),
    ]
}

fn tree(limits: &[u64], batch: u64) -> Vec<BudgetTree> {
    let mut levels: Vec<BudgetTree> = Vec::new();
    for (level, limit) in limits.iter().enumerate() {
        levels.push(match PARENTS[level] {
            None => BudgetTree::with_batch(*limit, batch),
            Some(parent) => levels[parent].child_with_batch(*limit, batch),
        });
    }
    levels
}

/// Runs `f` on one of two threads, each with its own stock.
fn elsewhere<R: Send>(second: bool, f: impl FnOnce() -> R + Send) -> R {
    if second { thread::scope(|scope| scope.spawn(f).join().unwrap()) } else { f() }
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None, cases: 64, ..ProptestConfig::default()
    })]
    #[test]
    fn budget_grants_exactly_what_a_sequential_one_does(
        mut limits in prop::collection::vec(0..200_u64, 5),
        batch in 0..20_u64,
        steps in prop::collection::vec((any::<bool>(), step()), 0..120),
    ) {
        let levels = tree(&limits, batch);
        let mut used = [0_u64; 5];
        let mut charges: Vec<(usize, Charge)> = Vec::new();
        for (second, step) in steps {
            match step {
                Step::Charge(level, amount) => {
                    let fits = path(level).all(|level| used[level] + amount <= limits[level]);
                    let granted = elsewhere(second, || levels[level].charge(amount));
                    // (With nothing to pay, nothing is in the way.)
                    let fits = fits || amount == 0;
                    prop_assert_eq!(granted.is_ok(), fits, "{} of {}", amount, level);
                    if let Ok(charge) = granted {
                        path(level).for_each(|level| used[level] += amount);
                        charges.push((level, charge));
                    }
                }
                Step::Release(which) if !charges.is_empty() => {
                    let (level, charge) = charges.swap_remove(which % charges.len());
                    path(level).for_each(|level| used[level] -= charge.amount());
                    elsewhere(second, || drop(charge));
                }
                Step::Release(_) => (),
                Step::SetLimit(level, limit) => {
                    limits[level] = limit;
                    let beyond = elsewhere(second, || levels[level].set_limit(limit));
                    prop_assert_eq!(beyond, used[level].saturating_sub(limit));
                }
            }
            for level in 0..5 {
                prop_assert_eq!(levels[level].used(), used[level]);
            }
        }
    }
}

/// Threads charge and give back at random. At no moment is more charged than the limit allows.
#[test]
fn no_limit_is_ever_passed_and_nothing_is_lost() {
    const LIMITS: [u64; 5] = [1000, 700, 600, 400, 500];
    let _alone = env::alone();
    let until = env::soak(SHARE);
    for batch in [0, 7, 100] {
        let levels = tree(&LIMITS, batch);
        let charged: Vec<AtomicU64> = LIMITS.iter().map(|_| AtomicU64::new(0)).collect();
        let over = AtomicBool::new(false);
        let granted = AtomicU64::new(0);
        thread::scope(|scope| {
            for thread in 0..4 {
                let (levels, charged, over, granted) = (&levels, &charged, &over, &granted);
                scope.spawn(move || {
                    let mut rng = Rng::part(env::seed(), thread);
                    let mut mine: Vec<(usize, u64)> = Vec::new();
                    // Others may charge what is released: so it is out of the sums before.
                    let release = |(level, amount): (usize, u64)| {
                        for level in path(level) {
                            charged[level].fetch_sub(amount, SeqCst);
                        }
                        levels[level].release(amount);
                    };
                    while !over.load(SeqCst) {
                        let level = rng.below(5);
                        let amount = rng.below(60) as u64;
                        if levels[level].try_charge(amount).is_ok() {
                            for level in path(level) {
                                let sum = charged[level].fetch_add(amount, SeqCst) + amount;
                                assert!(sum <= LIMITS[level], "{sum} charged to level {level}");
                            }
                            granted.fetch_add(1, SeqCst);
                            mine.push((level, amount));
                        }
                        if mine.len() > rng.below(12) {
                            release(mine.swap_remove(rng.below(mine.len())));
                        }
                    }
                    mine.into_iter().for_each(release);
                });
            }
            while Instant::now() < until && granted.load(SeqCst) < 200_000 {
                thread::sleep(Duration::from_millis(1));
            }
            over.store(true, SeqCst);
        });
        for (level, limit) in levels.iter().zip(LIMITS) {
            assert_eq!(level.used(), 0, "nothing is charged any more");
            let most = path(levels.iter().position(|l| std::ptr::eq(l, level)).unwrap());
            let most = most.map(|above| LIMITS[above]).min().unwrap();
            assert!(level.try_charge(most + 1).is_err());
            level.try_charge(most).unwrap_or_else(|e| panic!("{e}, although {limit} are free"));
            level.release(most);
        }
    }
}

#[test]
fn credits_that_lie_idle_with_others_are_found() {
    let process = BudgetTree::with_batch(1000, 100);
    let child = process.child_with_batch(1000, 100);
    let barrier = Barrier::new(9);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                child.try_charge(1).unwrap();
                child.release(1); // keeps a hundred or so
                barrier.wait();
                barrier.wait();
            });
        }
        barrier.wait();
        assert_eq!((process.used(), child.used()), (0, 0));
        child.try_charge(1000).unwrap();
        assert!(process.try_charge(1).is_err() && child.try_charge(1).is_err());
        child.release(1000);
        process.try_charge(1000).unwrap();
        assert!(child.try_charge(1).is_err());
        barrier.wait();
    });
    process.release(1000);
    assert_eq!(process.used(), 0);
}

#[test]
fn closed_child_gives_back_what_it_has_and_leaves_what_is_charged() {
    let process = BudgetTree::new(1000);
    for _ in 0..10 {
        let child = process.child(1000);
        let charge = child.charge(600).unwrap();
        drop(child);
        assert_eq!(process.used(), 600, "a charge keeps its level");
        drop(charge);
    }
    assert_eq!(process.used(), 0);
    process.child(1000).try_charge(300).unwrap(); // and never given back
    assert_eq!(process.used(), 300);
    process.try_charge(700).unwrap();
    assert!(process.try_charge(1).is_err());
}

#[test]
fn charge_is_resized_within_the_limit() {
    let budget = BudgetTree::new(10);
    let mut charge = budget.charge(4).unwrap();
    assert_eq!(charge.resize(11).unwrap_err().amount, 7);
    assert_eq!((charge.amount(), budget.used()), (4, 4));
    charge.resize(10).unwrap();
    charge.resize(1).unwrap();
    assert_eq!(budget.used(), 1);
    drop(charge);
    assert_eq!(budget.used(), 0);
    assert!(BudgetTree::new(0).try_charge(1).is_err() && BudgetTree::new(0).try_charge(0).is_ok());
    let endless = BudgetTree::new(u64::MAX);
    endless.try_charge(u64::MAX - 1).unwrap();
    assert_eq!(endless.used(), u64::MAX - 1);
}

#[test]
fn release_of_more_than_was_charged_is_noticed() {
    let budget = BudgetTree::with_batch(100, 10);
    budget.try_charge(50).unwrap();
    let wrong = catch_unwind(AssertUnwindSafe(|| budget.release(1000)));
    let panic = wrong.unwrap_err();
    let text = panic.downcast_ref::<String>().cloned();
    let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
    assert!(text.is_some_and(|text| text.contains("more was released")));
}

/// A wrong release is reported only to the call of `release` that notices it, not to a charge, a
/// close or a `Drop`.
#[test]
fn innocents_are_not_told_of_a_wrong_release() {
    let top = BudgetTree::with_batch(100, 10);
    let (wrong, other) = (top.child_with_batch(50, 40), top.child_with_batch(100, 0));
    wrong.release(60); // too small a mistake to be noticed
    let charge = top.charge(5).unwrap();
    let most = other.charge(90).unwrap(); // looks for credits everywhere
    assert!(other.charge(20).is_err(), "what was never charged is worth nothing");
    drop(most);
    let odd = wrong.charge(20).unwrap();
    wrong.release(70);
    drop((odd, wrong)); // the charge, and the level
    drop(charge);
    assert_eq!((top.used(), other.used()), (0, 0));
    other.try_charge(100).unwrap();
    assert!(top.try_charge(1).is_err(), "the limit holds again");
}

/// Other threads give charges back than the threads that took them.
#[test]
fn charges_travel_between_threads() {
    let budget = Arc::new(BudgetTree::with_batch(64, 4));
    let charges: Mutex<Vec<Charge>> = Mutex::default();
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut taken = 0;
                while taken < 2_000 {
                    match budget.charge(3) {
                        Ok(charge) => {
                            charges.lock().unwrap().push(charge);
                            taken += 1;
                        }
                        Err(_) => thread::yield_now(),
                    }
                }
            });
        }
        scope.spawn(|| {
            let mut dropped = 0;
            while dropped < 4_000 {
                let batch = std::mem::take(&mut *charges.lock().unwrap());
                dropped += batch.len();
                if batch.is_empty() {
                    thread::yield_now();
                }
            }
        });
    });
    assert_eq!(budget.used(), 0);
    budget.try_charge(64).unwrap();
}
