//! Models of range_map.R2 to range_map.R8, on a trie of three levels with two slots in a branch
//! (keys 0 to 7), where no empty branch is kept. The header of [`crate::percpu::loom_tests`] says
//! what loom can show and what it cannot. Values are canaries, as in the models of sections.

use super::RangeMap;
use crate::percpu::loom_tests::{RACE, large_model, model, must_catch, unexplored};
use crate::section::{Domain, Mode};
use crate::sync::{AtomicUsize, Ordering, UnsafeCell, thread};
use std::ops::RangeInclusive;
use std::sync::Arc;

const DEAD: &str = "a dead canary sang";
const CHANGED: &str = "a key was changed under a guard";
const BACK: &str = "a removed key is back";
const BESIDE: &str = "a key beside a range has its value";
const CYCLE: &str = "a wait that ends is refused";
const LOST: &str = "an insertion is lost";

struct Canary {
    number: usize,
    alive: UnsafeCell<bool>,
    freed: Arc<AtomicUsize>,
}

impl Canary {
    fn sing(&self) -> usize {
        // SAFETY: no thread writes while a section keeps the entry; loom checks it.
        assert!(self.alive.with(|alive| unsafe { *alive }), "{DEAD}");
        self.number
    }
}

impl Drop for Canary {
    fn drop(&mut self) {
        // SAFETY: the entry is freed, so no other thread has access; loom checks it.
        self.alive.with_mut(|alive| unsafe { *alive = false });
        self.freed.fetch_add(1, Ordering::Relaxed);
    }
}

// SAFETY: the tests exist to check the accesses to this cell.
unsafe impl Sync for Canary {}

/// A map from ranges to numbers, the number of freed values, and a cell that a lock guards.
struct Cage {
    map: RangeMap<Canary>,
    freed: Arc<AtomicUsize>,
    guarded: UnsafeCell<usize>,
}

// SAFETY: the tests exist to check the accesses to `guarded`.
unsafe impl Sync for Cage {}
// SAFETY: owned data.
unsafe impl Send for Cage {}

impl Cage {
    /// Makes a map with number 0 under the range.
    fn new(range: Option<RangeInclusive<u64>>) -> Arc<Self> {
        unexplored(|| {
            let domain = Domain::builder().mode(Mode::Epoch).batch_nodes(1).build().unwrap();
            let map = RangeMap::with_domain(Arc::new(domain));
            let cage = Self { map, freed: Arc::default(), guarded: UnsafeCell::new(0) };
            range.into_iter().for_each(|range| cage.insert(range, 0));
            Arc::new(cage)
        })
    }

    fn canary(&self, number: usize) -> Canary {
        let freed = Arc::clone(&self.freed);
        Canary { number, alive: UnsafeCell::new(true), freed }
    }

    fn insert(&self, range: RangeInclusive<u64>, number: usize) {
        assert!(self.map.enter().insert(range, self.canary(number)).is_ok());
    }

    fn replace(&self, range: RangeInclusive<u64>, number: usize) {
        assert!(self.map.enter().replace(range, self.canary(number)).is_ok());
    }

    fn remove(&self, range: RangeInclusive<u64>) -> usize {
        let view = self.map.enter();
        view.remove(range).unwrap().inspect(|(_, canary)| _ = canary.sing()).count()
    }

    fn look(&self, key: u64) -> Option<usize> {
        self.map.enter().get(key).map(Canary::sing)
    }

    /// Increments the guarded number under the lock of a range.
    fn count_in(&self, range: RangeInclusive<u64>) {
        let view = self.map.enter();
        let guard = view.lock(range).unwrap();
        // SAFETY: the ranges of all callers overlap, so one thread is here; loom checks it.
        self.guarded.with_mut(|guarded| unsafe { *guarded += 1 });
        drop(guard);
    }
}

fn spawn<R: 'static>(
    cage: &Arc<Cage>,
    f: impl FnOnce(&Cage) -> R + 'static,
) -> thread::JoinHandle<R> {
    let cage = Arc::clone(cage);
    thread::spawn(move || f(&cage))
}

#[test]
fn loom_range_map_get_against_remove_prune_and_insert() {
    model(2, || {
        let cage = Cage::new(Some(2..=2));
        let writer = spawn(&cage, |cage| {
            assert_eq!(cage.remove(2..=2), 1);
            cage.insert(2..=2, 1);
        });
        // The states of the key in their order: the first value, absent, the second value.
        let place = |seen: Option<usize>| seen.map_or(1, |number| 2 * number);
        let (first, second) = (place(cage.look(2)), place(cage.look(2)));
        assert!(first <= second, "{first} before {second}");
        assert_eq!(cage.look(3), None, "{BESIDE}");
        writer.join().unwrap();
        assert_eq!(cage.look(2), Some(1));
    });
}

#[test]
fn loom_range_map_get_beside_a_removal_that_divides_a_slot() {
    model(2, || {
        let cage = Cage::new(Some(0..=3));
        let writer = spawn(&cage, |cage| assert_eq!(cage.remove(1..=1), 1));
        let before = cage.look(1);
        assert_eq!(cage.look(0), Some(0));
        assert!(before.is_some() || cage.look(1).is_none(), "{BACK}");
        writer.join().unwrap();
        assert_eq!(cage.look(1), None, "{BACK}");
        assert_eq!((cage.look(0), cage.look(3)), (Some(0), Some(0)));
    });
}

#[test]
fn loom_range_map_get_while_a_range_takes_the_place_of_a_branch() {
    model(2, || {
        let cage = Cage::new(Some(1..=1));
        let writer = spawn(&cage, |cage| cage.replace(0..=3, 1));
        let seen = (cage.look(1), cage.look(2));
        assert!(matches!(seen, (Some(_), None | Some(1))), "{seen:?}");
        writer.join().unwrap();
        assert_eq!((cage.look(1), cage.look(3)), (Some(1), Some(1)));
    });
}

#[test]
fn loom_range_map_overlapping_replacements_take_place_one_after_the_other() {
    large_model(2, || {
        let cage = Cage::new(None);
        let other = spawn(&cage, |cage| cage.replace(2..=4, 2));
        cage.replace(1..=2, 1);
        other.join().unwrap();
        let seen: Vec<_> = (1..=4).map(|key| cage.look(key)).collect();
        let (one, two) = (Some(1), Some(2));
        assert!([[one, two, two, two], [one, one, two, two]].iter().any(|all| *all == seen[..]));
    });
}

#[test]
fn loom_range_map_locks_of_a_key_exclude_each_other() {
    model(1, || {
        // Makes a branch that has the key's slot.
        let cage = Cage::new(Some(3..=3));
        let other = spawn(&cage, |cage| cage.count_in(2..=2));
        cage.count_in(2..=2);
        other.join().unwrap();
        // SAFETY: the other thread has ended.
        assert_eq!(cage.guarded.with(|guarded| unsafe { *guarded }), 2);
    });
}

#[test]
fn loom_range_map_insert_against_pruning_of_its_branch() {
    model(2, || {
        let cage = Cage::new(Some(0..=0));
        let other = spawn(&cage, |cage| cage.insert(1..=1, 1));
        assert_eq!(cage.remove(0..=0), 1);
        other.join().unwrap();
        assert_eq!(cage.look(1), Some(1), "{LOST}");
        assert_eq!(cage.look(0), None);
    });
}

#[test]
fn loom_range_map_removals_of_parts_free_the_value_once() {
    large_model(2, || {
        let cage = Cage::new(Some(0..=1));
        let freed = Arc::clone(&cage.freed);
        let other = spawn(&cage, |cage| assert_eq!(cage.remove(0..=0), 1));
        assert_eq!(cage.look(1), Some(0));
        assert_eq!(cage.remove(1..=1), 1);
        other.join().unwrap();
        while Arc::strong_count(&cage) > 1 {
            thread::yield_now();
        }
        unexplored(|| drop(cage));
        assert_eq!(freed.load(Ordering::Relaxed), 1);
    });
}

#[test]
fn loom_range_map_update_of_a_slot_of_which_a_part_is_locked() {
    model(2, || {
        // Two keys share a slot without a branch. The guard divides it.
        let cage = Cage::new(Some(2..=3));
        let other = spawn(&cage, |cage| {
            let view = cage.map.enter();
            let guard = view.lock(2..=2).unwrap();
            let look = || guard.get(2).map(Canary::sing);
            assert_eq!(look(), look(), "{CHANGED}");
        });
        cage.replace(2..=2, 1);
        other.join().unwrap();
        assert_eq!((cage.look(2), cage.look(3)), (Some(1), Some(0)));
    });
}

#[test]
fn loom_range_map_updates_of_two_parts_of_a_slot() {
    model(2, || {
        // A list has no more room, so a branch takes its place.
        let cage = Cage::new(Some(2..=2));
        let other = spawn(&cage, |cage| assert_eq!(cage.remove(2..=2), 1));
        cage.insert(3..=3, 1);
        assert_eq!(cage.look(3), Some(1), "{LOST}");
        other.join().unwrap();
        assert_eq!((cage.look(2), cage.look(3)), (None, Some(1)));
    });
}

/// A thread that still seems to wait for the guard's range has locked the range that the guard's
/// owner needs next. That is no cycle.
#[test]
fn loom_range_map_end_of_a_wait_closes_no_cycle() {
    large_model(2, || {
        let cage = Cage::new(Some(1..=2));
        let held = cage.map.enter();
        let guard = held.lock(2..=2).unwrap();
        let other = spawn(&cage, |cage| {
            drop(cage.map.enter().lock(1..=2).expect(CYCLE));
        });
        drop(guard);
        drop(held.lock(0..=1).expect(CYCLE));
        drop(held);
        other.join().unwrap();
    });
}

fn catches(bug: &str, name: &str, signs: &[&str]) {
    must_catch(bug, &format!("collections::range_map::loom_tests::{name}"), signs);
}

#[test]
fn loom_range_map_lock_of_a_dead_branch_is_caught() {
    let name = "loom_range_map_insert_against_pruning_of_its_branch";
    catches("lock-of-the-dead", name, &[LOST, DEAD]);
}

#[test]
fn loom_range_map_pruning_of_a_used_branch_is_caught() {
    let name = "loom_range_map_insert_against_pruning_of_its_branch";
    catches("pruned-though-used", name, &[LOST, DEAD]);
}

#[test]
fn loom_range_map_retirement_by_the_first_is_caught() {
    let name = "loom_range_map_removals_of_parts_free_the_value_once";
    catches("retired-by-the-first", name, &[DEAD, RACE[0], RACE[1], RACE[2], "assertion"]);
}

#[test]
fn loom_range_map_lock_that_two_threads_hold_is_caught() {
    let name = "loom_range_map_locks_of_a_key_exclude_each_other";
    catches("locked-by-two", name, &[RACE[0], RACE[1], RACE[2], "range_map.R2"]);
}

#[test]
fn loom_range_map_look_up_that_compares_no_key_is_caught() {
    let name = "loom_range_map_get_against_remove_prune_and_insert";
    catches("key-not-compared", name, &[BESIDE]);
}

#[test]
fn loom_range_map_part_that_comes_back_is_caught() {
    let name = "loom_range_map_get_beside_a_removal_that_divides_a_slot";
    catches("removed-part-is-back", name, &[BACK]);
}

#[test]
fn loom_range_map_branch_that_is_overlooked_is_caught() {
    let name = "loom_range_map_update_of_a_slot_of_which_a_part_is_locked";
    catches("branch-overlooked", name, &[CHANGED]);
}

#[test]
fn loom_range_map_record_locked_over_its_waiters_is_caught() {
    let name = "loom_range_map_end_of_a_wait_closes_no_cycle";
    catches("locked-over-waiters", name, &[CYCLE, "deadlock"]);
}
