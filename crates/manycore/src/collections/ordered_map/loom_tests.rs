//! Models of ordered_map.T1 to ordered_map.T4, on trees of a few small nodes. The header of
//! [`crate::percpu::loom_tests`] says what loom can show and what it cannot. Values are canaries,
//! as in the models of sections.

use super::OrderedMap;
use crate::percpu::loom_tests::{large_model, model, must_catch, unexplored};
use crate::sync::{AtomicUsize, Ordering, UnsafeCell, thread};
use std::sync::Arc;

struct Canary {
    number: usize,
    alive: UnsafeCell<bool>,
    freed: Arc<AtomicUsize>,
}

impl Canary {
    fn sing(&self) -> usize {
        // SAFETY: no thread writes while a section keeps the value; loom checks it.
        assert!(self.alive.with(|alive| unsafe { *alive }), "a dead canary sang");
        self.number
    }
}

impl Clone for Canary {
    fn clone(&self) -> Self {
        unreachable!("a value in a block of its own is not cloned")
    }
}

impl Drop for Canary {
    fn drop(&mut self) {
        // SAFETY: the value is freed, so no other thread has access; loom checks it.
        self.alive.with_mut(|alive| unsafe { *alive = false });
        self.freed.fetch_add(1, Ordering::Relaxed);
    }
}

// SAFETY: the tests exist to check the accesses to this cell.
unsafe impl Sync for Canary {}

/// A map from keys to versions of values, and the number of freed values.
struct Cage {
    map: OrderedMap<u8, Canary>,
    freed: Arc<AtomicUsize>,
}

impl Cage {
    fn new(keys: impl IntoIterator<Item = u8>) -> Arc<Self> {
        let cage = Self { map: OrderedMap::new(), freed: Arc::default() };
        unexplored(|| keys.into_iter().for_each(|key| ignore(cage.put(key, 0))));
        Arc::new(cage)
    }

    fn put(&self, key: u8, number: usize) -> Option<usize> {
        let freed = Arc::clone(&self.freed);
        let canary = Canary { number, alive: UnsafeCell::new(true), freed };
        self.map.enter().insert(key, canary).map(Canary::sing)
    }

    fn look(&self, key: u8) -> Option<usize> {
        self.map.enter().get(&key).map(Canary::sing)
    }

    fn take(&self, key: u8) -> Option<usize> {
        self.map.enter().remove(&key).map(Canary::sing)
    }

    fn keys(&self) -> Vec<u8> {
        self.map.enter().keys().copied().collect()
    }
}

fn ignore<T>(_: T) {}

fn spawn<R: 'static>(
    cage: &Arc<Cage>,
    f: impl FnOnce(&Cage) -> R + 'static,
) -> thread::JoinHandle<R> {
    let cage = Arc::clone(cage);
    thread::spawn(move || f(&cage))
}

#[test]
fn loom_ordered_map_insertion_is_seen_whole() {
    model(2, || {
        let cage = Cage::new([2]);
        let reader = spawn(&cage, |cage| {
            let view = cage.map.enter();
            let seen = view.get(&1).map(Canary::sing);
            assert!(matches!(seen, None | Some(7)));
            assert!(seen.is_none() || view.get(&1).is_some());
            assert_eq!(view.get(&2).map(Canary::sing), Some(0));
        });
        assert_eq!(cage.put(1, 7), None);
        reader.join().unwrap();
        assert_eq!(cage.keys(), [1, 2]);
    });
}

#[test]
fn loom_ordered_map_updates_of_one_leaf_lose_none() {
    model(2, || {
        let cage = Cage::new([2]);
        let other = spawn(&cage, |cage| cage.put(1, 1));
        assert_eq!(cage.put(3, 3), None);
        assert_eq!(other.join().unwrap(), None);
        assert_eq!((cage.keys(), cage.map.len()), (vec![1, 2, 3], 3));
    });
}

#[test]
fn loom_ordered_map_value_is_taken_once() {
    model(2, || {
        let cage = Cage::new([1]);
        let other = spawn(&cage, |cage| cage.take(1));
        let mine = cage.put(1, 1);
        let theirs = other.join().unwrap();
        match cage.look(1) {
            // Removed, then inserted; or replaced, and then the new value removed.
            Some(1) => assert_eq!((mine, theirs), (None, Some(0))),
            None => assert_eq!((mine, theirs), (Some(0), Some(1))),
            other => panic!("{other:?}"),
        }
    });
}

/// The leaf is full. An insertion splits it, below a new root.
#[test]
fn loom_ordered_map_split_against_replacement_loses_none() {
    large_model(2, || {
        let cage = Cage::new([10, 20, 30, 40, 50]);
        let other = spawn(&cage, |cage| cage.put(40, 1));
        assert_eq!(cage.put(25, 0), None);
        assert_eq!(other.join().unwrap(), Some(0));
        assert_eq!(cage.look(40), Some(1), "the replacement was lost");
        assert_eq!(cage.keys(), [10, 20, 25, 30, 40, 50]);
    });
}

/// The root has two leaves, one of which is full. A reader always finds the keys of both.
#[test]
fn loom_ordered_map_split_below_a_parent_hides_no_key() {
    large_model(2, || {
        let cage = Cage::new([10, 20, 30, 40, 50, 60, 12]);
        let reader = spawn(&cage, |cage| {
            let view = cage.map.enter();
            assert!(view.contains_key(&10) && view.contains_key(&20), "a key was not found");
            let keys: Vec<u8> = view.keys().copied().filter(|key| key % 10 == 0).collect();
            assert_eq!(keys, [10, 20, 30, 40, 50, 60]);
        });
        assert_eq!(cage.put(14, 0), None);
        reader.join().unwrap();
    });
}

/// A removal joins two leaves, and the root is replaced by its only child.
#[test]
fn loom_ordered_map_join_against_insertion_loses_none() {
    large_model(2, || {
        let cage = Cage::new([10, 20, 30, 40, 50, 60]);
        unexplored(|| [50, 10, 40].into_iter().for_each(|key| ignore(cage.take(key))));
        let other = spawn(&cage, |cage| cage.put(15, 0));
        assert_eq!(cage.take(30), Some(0));
        assert_eq!(other.join().unwrap(), None);
        assert_eq!((cage.keys(), cage.map.len()), (vec![15, 20, 60], 3));
    });
}

#[test]
fn loom_ordered_map_first_entries_are_popped_once() {
    large_model(2, || {
        let cage = Cage::new([1, 2]);
        let pop = |cage: &Cage| cage.map.enter().pop_first().map(|(key, _)| *key);
        let other = spawn(&cage, pop);
        let mine = pop(&cage);
        let mut all = [mine, other.join().unwrap()];
        all.sort_unstable();
        assert_eq!((all, cage.map.len()), ([Some(1), Some(2)], 0));
    });
}

#[test]
fn loom_ordered_map_frees_every_value_once() {
    large_model(2, || {
        let cage = Cage::new([1]);
        let freed = Arc::clone(&cage.freed);
        let other = spawn(&cage, |cage| cage.take(1).is_some());
        cage.put(1, 1);
        other.join().unwrap();
        while Arc::strong_count(&cage) > 1 {
            thread::yield_now();
        }
        unexplored(|| drop(cage));
        assert_eq!(freed.load(Ordering::Relaxed), 2);
    });
}

#[test]
fn loom_ordered_map_bugs_are_caught() {
    let test = |name: &str| format!("collections::ordered_map::loom_tests::{name}");
    let race = ["Causality violation", "a slot has a link", "assertion"];
    must_catch("order-before-entry", &test("loom_ordered_map_insertion_is_seen_whole"), &race);
    let lost = ["assertion"];
    must_catch("stale-order", &test("loom_ordered_map_updates_of_one_leaf_lose_none"), &lost);
    let hidden = test("loom_ordered_map_split_below_a_parent_hides_no_key");
    must_catch("split-in-place", &hidden, &["a key was not found", "assertion"]);
}
