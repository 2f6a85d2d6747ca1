//! Models of hash_map.H1 to hash_map.H5 on the smallest tables. The header of
//! [`crate::percpu::loom_tests`] says what loom can show and what it cannot. Values are canaries,
//! as in the models of sections.

use super::HashMap;
use super::table::SLOTS;
use crate::percpu::loom_tests::{huge_model, large_model, model, must_catch, unexplored};
use crate::section::{Domain, Mode};
use crate::sync::{AtomicUsize, Ordering, UnsafeCell, thread};
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::sync::Arc;

struct Canary {
    number: usize,
    alive: UnsafeCell<bool>,
    freed: Arc<AtomicUsize>,
}

impl Canary {
    fn sing(&self) -> usize {
        // SAFETY: no thread writes while a section keeps the entry; loom checks it.
        assert!(self.alive.with(|alive| unsafe { *alive }), "a dead canary sang");
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

/// A map from keys to versions of values, and the number of freed values.
struct Cage {
    map: HashMap<u8, Canary, BuildHasherDefault<DefaultHasher>>,
    freed: Arc<AtomicUsize>,
}

impl Cage {
    fn new(mode: Mode, keys: &[u8]) -> Arc<Self> {
        let domain = Arc::new(Domain::builder().mode(mode).batch_nodes(1).build().unwrap());
        let map = HashMap::<u8, Canary>::builder().domain(domain).capacity(1);
        let cage = Self { map: map.hasher(Default::default()).build(), freed: Arc::default() };
        keys.iter().for_each(|key| cage.put(*key, 0));
        Arc::new(cage)
    }

    fn put(&self, key: u8, number: usize) {
        let freed = Arc::clone(&self.freed);
        let canary = Canary { number, alive: UnsafeCell::new(true), freed };
        self.map.enter().insert(key, canary);
    }

    fn look(&self, key: u8) -> Option<usize> {
        self.map.enter().get(&key).map(Canary::sing)
    }

    fn take(&self, key: u8) -> Option<usize> {
        self.map.enter().remove(&key).map(Canary::sing)
    }

    fn remove(&self, key: u8) -> bool {
        self.take(key).is_some()
    }

    fn grow(&self) {
        let section = self.map.domain.enter();
        self.map.root.grow(self.map.root.load(&section), &section);
    }

    /// Makes a map of two buckets with these keys.
    fn wide(mode: Mode, keys: &[u8]) -> Arc<Self> {
        let cage = Self::new(mode, &[]);
        unexplored(|| {
            cage.grow();
            keys.iter().for_each(|key| cage.put(*key, 0));
        });
        cage
    }

    /// Merges the two buckets.
    fn shrink(&self) {
        let section = self.map.domain.enter();
        let halves = self
            .map
            .root
            .halve(1, &section, |table, old, index| table.move_group(old, index, &section));
        assert!(halves);
    }
}

fn spawn<R: 'static>(
    cage: &Arc<Cage>,
    f: impl FnOnce(&Cage) -> R + 'static,
) -> thread::JoinHandle<R> {
    let cage = Arc::clone(cage);
    thread::spawn(move || f(&cage))
}

fn get_against_remove_and_insert(mode: Mode) {
    model(2, move || {
        let cage = Cage::new(mode, &[1]);
        let writer = spawn(&cage, |cage| {
            assert!(cage.remove(1));
            cage.put(1, 1);
        });
        // The states of the key in their order: the first value, absent, the second value.
        let place = |seen: Option<usize>| seen.map_or(1, |n| 2 * n);
        let (first, second) = (place(cage.look(1)), place(cage.look(1)));
        assert!(first <= second, "{first} before {second}");
        writer.join().unwrap();
        assert_eq!(cage.look(1), Some(1));
        assert_eq!(cage.map.len(), 1);
    });
}

#[test]
fn loom_map_get_against_remove_and_insert_epoch() {
    get_against_remove_and_insert(Mode::Epoch);
}

#[test]
fn loom_map_get_against_remove_and_insert_bounded() {
    get_against_remove_and_insert(Mode::Bounded);
}

/// Iteration looks only at links. A search looks at tags first.
const TAGLESS: &str = "a linked key without a tag";

#[test]
fn loom_map_key_that_iteration_shows_is_found() {
    model(2, || {
        let cage = Cage::new(Mode::Epoch, &[]);
        let writer = spawn(&cage, |cage| cage.put(1, 0));
        let view = cage.map.enter();
        let shown = view.keys().next().is_some();
        assert!(!shown || view.contains_key(&1), "{TAGLESS}");
        drop(view);
        writer.join().unwrap();
    });
}

#[test]
fn loom_map_key_that_is_not_found_is_not_shown() {
    model(2, || {
        let cage = Cage::new(Mode::Epoch, &[1]);
        let writer = spawn(&cage, |cage| assert!(cage.remove(1)));
        let view = cage.map.enter();
        let found = view.contains_key(&1);
        assert!(found || view.keys().next().is_none(), "{TAGLESS}");
        drop(view);
        writer.join().unwrap();
    });
}

const TWICE: &str = "one value was taken twice";

/// An update finds an entry and then locks. By then another update may have removed the entry and
/// reused its slot.
#[test]
fn loom_map_remove_against_remove_and_insert_takes_a_value_once() {
    large_model(2, || {
        let cage = Cage::new(Mode::Bounded, &[1]);
        let other = spawn(&cage, |cage| {
            let taken = cage.take(1);
            cage.put(1, 1);
            taken
        });
        let mine = cage.take(1);
        let theirs = other.join().unwrap();
        assert!(mine.is_none() || mine != theirs, "{TWICE}");
        let left = cage.take(1);
        assert!(left.is_none_or(|left| left == 1 && mine != Some(1)), "{TWICE}");
        assert_eq!(usize::from(mine == Some(1)) + usize::from(left == Some(1)), 1, "{TWICE}");
    });
}

#[test]
fn loom_map_insertions_over_one_entry_replace_each_once() {
    large_model(2, || {
        let cage = Cage::new(Mode::Bounded, &[1]);
        let replace = |cage: &Cage, number| {
            let (freed, alive) = (Arc::clone(&cage.freed), UnsafeCell::new(true));
            let canary = Canary { number, alive, freed };
            cage.map.enter().insert(1, canary).map(Canary::sing)
        };
        let other = spawn(&cage, move |cage| replace(cage, 1));
        let mine = replace(&cage, 2);
        let seen = (mine, other.join().unwrap(), cage.look(1));
        let orders = [(Some(0), Some(2), Some(1)), (Some(1), Some(0), Some(2))];
        assert!(orders.contains(&seen), "{TWICE}: {seen:?}");
    });
}

fn catches(bug: &str, name: &str, sign: &str) {
    must_catch(bug, &format!("collections::hash_map::loom_tests::{name}"), &[sign]);
}

#[test]
fn loom_map_entry_taken_by_its_place_is_caught() {
    catches("replace-by-place", "loom_map_insertions_over_one_entry_replace_each_once", TWICE);
}

#[test]
fn loom_map_entry_linked_before_its_tag_is_caught() {
    catches("link-before-tag", "loom_map_key_that_iteration_shows_is_found", TAGLESS);
}

#[test]
fn loom_map_tag_cleared_before_the_link_is_caught() {
    catches("tag-before-unlink", "loom_map_key_that_is_not_found_is_not_shown", TAGLESS);
}

/// The bucket is full, so its last entry moves to the next bucket of the chain, under a reader.
#[test]
fn loom_map_get_against_a_chain_that_grows() {
    model(2, || {
        let cage = Cage::new(Mode::Epoch, &[]);
        let put = |key| {
            let _growing = cage.map.root.growing.lock();
            cage.put(key, 0);
        };
        unexplored(|| (1..=SLOTS as u8).for_each(put));
        let reader = spawn(&cage, |cage| {
            let is_there = cage.look(0).is_some();
            assert_eq!(cage.look(SLOTS as u8), Some(0), "{LOST}");
            assert!(!is_there || cage.look(0).is_some(), "{LOST}");
        });
        put(0);
        reader.join().unwrap();
        (0..=SLOTS as u8).for_each(|key| assert_eq!(cage.look(key), Some(0)));
        assert_eq!(cage.map.len(), SLOTS + 1);
    });
}

const LOST: &str = "a chain that grew has lost a key";

/// A reader looks for a key that stays in the map, and for a key that is replaced, while the table
/// grows under it and the old table is freed.
fn get_against_growth(mode: Mode) {
    huge_model(2, move || {
        let cage = Cage::new(mode, &[1, 2]);
        let reader = spawn(&cage, |cage| {
            assert_eq!(cage.look(1), Some(0));
            assert!(cage.look(2).is_some());
        });
        cage.grow();
        cage.put(2, 1);
        reader.join().unwrap();
        assert_eq!((cage.look(1), cage.look(2)), (Some(0), Some(1)));
    });
}

#[test]
fn loom_map_get_against_growth_epoch() {
    get_against_growth(Mode::Epoch);
}

#[test]
fn loom_map_get_against_growth_bounded() {
    get_against_growth(Mode::Bounded);
}

#[test]
fn loom_map_iteration_against_growth_sees_each_entry_once() {
    huge_model(2, || {
        let cage = Cage::new(Mode::Bounded, &[1, 2]);
        let reader = spawn(&cage, |cage| {
            let mut keys: Vec<u8> = cage.map.enter().keys().copied().collect();
            keys.sort_unstable();
            assert_eq!(keys, [1, 2]);
        });
        cage.grow();
        cage.put(2, 1);
        reader.join().unwrap();
    });
}

/// A reader looks for a key that stays in the map, while two buckets are merged under it and the
/// old table is freed.
fn get_against_shrinking(mode: Mode) {
    large_model(2, move || {
        let cage = Cage::wide(mode, &[1, 2]);
        let reader = spawn(&cage, |cage| assert_eq!(cage.look(1), Some(0)));
        cage.shrink();
        reader.join().unwrap();
        assert_eq!((cage.look(1), cage.look(2)), (Some(0), Some(0)));
    });
}

#[test]
fn loom_map_get_against_shrinking_epoch() {
    get_against_shrinking(Mode::Epoch);
}

#[test]
fn loom_map_get_against_shrinking_bounded() {
    get_against_shrinking(Mode::Bounded);
}

#[test]
fn loom_map_iteration_against_shrinking_sees_each_entry_once() {
    huge_model(2, || {
        let cage = Cage::wide(Mode::Bounded, &[1, 2]);
        let reader = spawn(&cage, |cage| {
            let mut keys: Vec<u8> = cage.map.enter().keys().copied().collect();
            keys.sort_unstable();
            assert_eq!(keys, [1, 2]);
        });
        cage.shrink();
        reader.join().unwrap();
    });
}

#[test]
fn loom_map_updates_against_shrinking_lose_nothing() {
    huge_model(2, || {
        let cage = Cage::wide(Mode::Bounded, &[1, 2]);
        let other = spawn(&cage, |cage| assert!(cage.remove(1)));
        cage.shrink();
        other.join().unwrap();
        assert_eq!((cage.look(1), cage.look(2), cage.map.len()), (None, Some(0), 1));
    });
}

#[test]
fn loom_map_updates_that_move_buckets_lose_nothing() {
    large_model(2, || {
        let cage = Cage::new(Mode::Bounded, &[1]);
        unexplored(|| cage.grow());
        let other = spawn(&cage, |cage| cage.put(2, 0));
        assert!(cage.remove(1));
        other.join().unwrap();
        assert_eq!((cage.look(1), cage.look(2)), (None, Some(0)));
        unexplored(|| {
            (0..2).for_each(|_| cage.grow());
            cage.put(3, 0);
        });
        assert_eq!((cage.look(2), cage.look(3), cage.map.len()), (Some(0), Some(0), 2));
    });
}

/// A view keeps its table and updates it, while another thread fills a new table from it.
#[test]
fn loom_map_removal_by_a_view_of_a_table_that_moves_is_not_lost() {
    large_model(2, || {
        let cage = Cage::new(Mode::Bounded, &[1]);
        let view = cage.map.enter();
        let other = spawn(&cage, |cage| {
            cage.grow();
            cage.put(2, 0);
        });
        assert_eq!(view.remove(&1).map(Canary::sing), Some(0));
        drop(view);
        other.join().unwrap();
        assert_eq!((cage.look(1), cage.look(2), cage.map.len()), (None, Some(0), 1));
    });
}

#[test]
fn loom_map_frees_every_value_once() {
    large_model(2, || {
        let cage = Cage::new(Mode::Epoch, &[1]);
        let freed = Arc::clone(&cage.freed);
        let other = spawn(&cage, |cage| cage.remove(1));
        cage.grow();
        cage.put(1, 1);
        let removed = other.join().unwrap();
        assert!(removed);
        while Arc::strong_count(&cage) > 1 {
            thread::yield_now();
        }
        unexplored(|| drop(cage));
        assert_eq!(freed.load(Ordering::Relaxed), 2);
    });
}
