//! Models of laws dhash.M1 to dhash.M3 and dhash.M7.
//!
//! They make local elements beside removals, look at whole elements while their parts change, and
//! do both while the table is distributed and folded.

use super::{DHash, DHashBuilder, Distribution};
use crate::cluster::Placement;
use crate::percpu::loom_tests::{model, must_catch};
use crate::sync::thread;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Arc, Mutex};

/// loom's choices must not depend on chance.
#[derive(Default)]
struct Constant;

impl Hasher for Constant {
    fn finish(&self) -> u64 {
        0
    }
    fn write(&mut self, _: &[u8]) {}
}

type Hash = DHash<u8, u8, u8, BuildHasherDefault<Constant>>;

fn table(placement: Placement) -> Arc<Hash> {
    built(placement, Distribution::Always)
}

fn built(placement: Placement, distribution: Distribution) -> Arc<Hash> {
    let builder = DHashBuilder::new().placement(placement).distribution(distribution);
    let table: Hash = builder.hasher(BuildHasherDefault::default()).build();
    table.insert(1, 1);
    Arc::new(table)
}

#[test]
fn loom_dhash_parts_come_home_with_the_removal() {
    model(2, || {
        let shared = table(Placement::PerThread);
        let other = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let add = || shared.with_local(&1, |_, part| *part += 1).is_some();
                let added = [add(), add()];
                assert!(added[0] || !added[1], "back after it was removed");
                added.iter().filter(|added| **added).count()
            })
        };
        let (one, parts) = shared.remove(&1).unwrap();
        assert_eq!((one, shared.get(&1)), (1, None));
        let added = other.join().unwrap();
        assert_eq!(shared.replicas(), 0, "a copy outlived the element");
        assert_eq!(usize::from(parts.iter().sum::<u8>()), added, "an addition was lost");
    });
}

#[test]
fn loom_dhash_element_brought_unlocked_is_caught() {
    let test = "loom_dhash_parts_come_home_with_the_removal";
    let test = format!("collections::dhash::loom_tests::{test}");
    let signs = ["a copy outlived", "back after it was", "an addition was lost"];
    must_catch("cached-unlocked", &test, &signs);
}

/// A thread with a reference keeps the element, if the removal asks for the sum of references.
#[test]
fn loom_dhash_referenced_element_is_not_removed() {
    model(2, || {
        // One place, so that the other thread has a part from the start.
        let shared = table(Placement::Shared);
        shared.with_local(&1, |_, _| ());
        let other = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                if shared.with_local(&1, |_, taken| *taken += 1).is_some() {
                    let back = shared.with_local(&1, |_, taken| *taken -= 1);
                    assert!(back.is_some(), "removed under a reference");
                }
            })
        };
        let unused = |_: &u8, taken: &mut [&mut u8]| taken.iter().all(|taken| **taken == 0);
        let removed = shared.remove_if(&1, unused).is_some();
        other.join().unwrap();
        assert_eq!(shared.replicas() == 0, removed);
    });
}

#[test]
fn loom_dhash_removal_after_a_torn_look_is_caught() {
    let test = "loom_dhash_referenced_element_is_not_removed";
    let test = format!("collections::dhash::loom_tests::{test}");
    must_catch("torn-gather", &test, &["removed under a reference"]);
}

/// If a thread has seen a change and then tells another thread, that thread sees it, too.
#[test]
fn loom_dhash_shared_part_changes_everywhere_at_once() {
    model(2, || {
        let shared = table(Placement::PerThread);
        shared.get(&1);
        let other = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let (first, second) = (shared.get(&1), shared.get(&1));
                assert!(first <= second, "back from {first:?} to {second:?}");
            })
        };
        assert_eq!(shared.update_shared(&1, |value| std::mem::replace(value, 2)), Some(1));
        assert_eq!(shared.get(&1), Some(2));
        other.join().unwrap();
    });
}

/// Distributes by hits that wait, or by a call. Additions before, beside and after it are kept.
#[test]
fn loom_dhash_spreading_loses_no_part() {
    model(2, || {
        let shared = built(Placement::PerThread, Distribution::default());
        let other = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let add = || shared.with_local(&1, |_, part| *part += 1).is_some();
                usize::from(add()) + usize::from(add())
            })
        };
        shared.with_local(&1, |_, part| *part += 10);
        assert!(shared.distribute());
        let seen = shared.gather(&1, 0, |sum, part| sum + *part).unwrap();
        assert!((10..=12).contains(&seen), "a part was lost: {seen}");
        let (one, parts) = shared.remove(&1).unwrap();
        let added = other.join().unwrap();
        assert_eq!((one, shared.replicas()), (1, 0), "a copy outlived the element");
        assert_eq!(usize::from(parts.iter().sum::<u8>()), 10 + added, "a part was lost");
    });
}

#[test]
fn loom_dhash_part_of_before_the_spread_forgotten_is_caught() {
    let test = "collections::dhash::loom_tests::loom_dhash_spreading_loses_no_part";
    must_catch("forgotten-centre", test, &["a part was lost"]);
}

/// Hits that wait for each other distribute the table by themselves, in some order of events.
#[test]
fn loom_dhash_hits_that_wait_may_spread_and_answer_all_the_same() {
    let distributed = Arc::new(Mutex::new(0));
    let seen = Arc::clone(&distributed);
    model(2, move || {
        let shared = built(Placement::PerThread, Distribution::default());
        let other = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                (0..2).for_each(|_| assert!(shared.with_local(&1, |_, part| *part += 1).is_some()));
            })
        };
        (0..2).for_each(|_| assert!(shared.with_local(&1, |_, part| *part += 1).is_some()));
        other.join().unwrap();
        assert_eq!(shared.gather(&1, 0, |sum, part| sum + *part), Some(4));
        *seen.lock().unwrap() += u32::from(shared.stats().is_distributed);
    });
    assert_ne!(*distributed.lock().unwrap(), 0, "it was never distributed");
}

/// A reference that was taken in a place's part counts while that part is folded.
#[test]
fn loom_dhash_referenced_element_is_not_removed_beside_a_fold() {
    model(2, || {
        let shared = built(Placement::PerThread, Distribution::default());
        assert!(shared.distribute());
        let other = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                shared.with_local(&1, |_, taken| *taken += 1);
                let unused = |_: &u8, taken: &mut [&mut u8]| {
                    taken.iter().fold(0_u8, |sum, taken| sum.wrapping_add(**taken)) == 0
                };
                assert!(shared.remove_if(&1, unused).is_none(), "removed under a reference");
                let back = |_: &u8, taken: &mut u8| *taken = taken.wrapping_sub(1);
                assert!(shared.with_local(&1, back).is_some());
            })
        };
        assert!(shared.fold(|sum, part| *sum = sum.wrapping_add(*part)));
        other.join().unwrap();
        let sum = |sum: u8, part: &mut u8| sum.wrapping_add(*part);
        assert_eq!(shared.gather(&1, 0, sum), Some(0), "a part was lost");
    });
}

#[test]
fn loom_dhash_look_where_the_form_says_is_caught() {
    let test = "loom_dhash_referenced_element_is_not_removed_beside_a_fold";
    let test = format!("collections::dhash::loom_tests::{test}");
    must_catch("form-alone", &test, &["removed under a reference"]);
}
