//! Models of flat_hash_map.F1 to flat_hash_map.F6 on the smallest tables. The header of
//! [`crate::percpu::loom_tests`] says what loom can show and what it cannot. Values have two words
//! that belong together.

use super::{EntryLayout, FlatHashMap};
use crate::percpu::loom_tests::{large_model, model, must_catch, unexplored};
use crate::sync::thread;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

/// Keys are their own hash.
#[derive(Default)]
struct Identity(u64);

impl Hasher for Identity {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0 = u64::from(bytes[0]);
    }
}

type Map = FlatHashMap<u8, [u64; 2], BuildHasherDefault<Identity>>;

const TORN: &str = "the halves of two values";

fn pair(number: u64) -> [u64; 2] {
    [number, !number]
}

fn whole([number, half]: [u64; 2]) -> u64 {
    assert_eq!(half, !number, "{TORN}");
    number
}

/// Makes a map of one bucket with these keys.
fn map(keys: &[u8]) -> Arc<Map> {
    let map = Map::with_capacity_and_hasher(1, BuildHasherDefault::default());
    keys.iter().for_each(|key| _ = map.insert(*key, pair(0)));
    Arc::new(map)
}

fn look(map: &Map, key: u8) -> Option<u64> {
    map.get(&key).map(whole)
}

fn grow(map: &Map) {
    let section = map.enter();
    map.root.grow(map.root.load(&section), &section);
}

/// Makes a map of two buckets with these keys.
fn wide_map(keys: &[u8]) -> Arc<Map> {
    let map = map(&[]);
    unexplored(|| {
        grow(&map);
        keys.iter().for_each(|key| _ = map.insert(*key, pair(0)));
    });
    map
}

/// Merges the two buckets.
fn shrink(map: &Map) {
    assert!(map.halve(&map.enter()));
}

/// Allocates the next overflow bucket.
fn reserve_overflow(map: &Map) {
    let section = map.enter();
    let table = map.root.load(&section).as_ref().expect("the map has a table");
    table.overflow.reserve(1, EntryLayout::<u8, [u64; 2]>::LINES);
}

fn spawn<R: 'static>(map: &Arc<Map>, f: impl FnOnce(&Map) -> R + 'static) -> thread::JoinHandle<R> {
    let map = Arc::clone(map);
    thread::spawn(move || f(&map))
}

#[test]
fn loom_flat_map_get_against_insert_reads_one_value() {
    model(2, || {
        let map = map(&[1]);
        let writer = spawn(&map, |map| map.insert(1, pair(1)).map(whole));
        let (first, second) = (look(&map, 1), look(&map, 1));
        assert!(first <= second, "{first:?} before {second:?}");
        assert_eq!(writer.join().unwrap(), Some(0));
        assert_eq!(look(&map, 1), Some(1));
    });
}

/// A slot is emptied and filled with another key under a reader.
#[test]
fn loom_flat_map_get_against_reuse_of_a_slot() {
    model(2, || {
        let map = map(&[1]);
        let writer = spawn(&map, |map| {
            assert_eq!(map.exchange(&1, Some(pair(0)), None), Ok(()));
            assert_eq!(map.insert(2, pair(7)), None);
        });
        let seen = look(&map, 1);
        assert!(matches!(seen, None | Some(0)), "{seen:?} under another key");
        writer.join().unwrap();
        assert_eq!((look(&map, 1), look(&map, 2), map.len()), (None, Some(7), 1));
    });
}

#[test]
fn loom_flat_map_updates_of_one_key_exclude_each_other() {
    model(2, || {
        let map = map(&[1]);
        let add = |map: &Map| map.update(&1, |value| pair(whole(value) + 1)).map(whole);
        let other = spawn(&map, add);
        let mine = add(&map);
        assert!(mine != other.join().unwrap() && look(&map, 1) == Some(2));
    });
}

const LOST: &str = "an update was lost";

/// Each writer reads which slots are free before it locks the bucket.
#[test]
fn loom_flat_map_insertions_into_one_bucket_take_slots_of_their_own() {
    model(2, || {
        let map = map(&[1]);
        let other = spawn(&map, |map| map.insert(2, pair(2)).map(whole));
        assert_eq!(map.insert(3, pair(3)), None);
        assert_eq!(other.join().unwrap(), None);
        assert_eq!((look(&map, 2), look(&map, 3), map.len()), (Some(2), Some(3), 3), "{LOST}");
    });
}

/// A reader looks for a key that stays in the map, and for a key that is replaced, while the table
/// grows under it and the old table is freed.
#[test]
fn loom_flat_map_get_against_growth() {
    large_model(2, || {
        let map = map(&[1, 2]);
        let reader = spawn(&map, |map| {
            assert_eq!(look(map, 1), Some(0), "{LOST}");
            assert!(look(map, 2).is_some(), "{LOST}");
        });
        grow(&map);
        map.insert(2, pair(1));
        reader.join().unwrap();
        assert_eq!((look(&map, 1), look(&map, 2)), (Some(0), Some(1)), "{LOST}");
    });
}

#[test]
fn loom_flat_map_updates_that_move_buckets_lose_nothing() {
    large_model(2, || {
        let map = map(&[1]);
        let other = spawn(&map, |map| map.insert(1, pair(1)).map(whole));
        grow(&map);
        map.insert(2, pair(0));
        assert_eq!(other.join().unwrap(), Some(0));
        assert_eq!((look(&map, 1), look(&map, 2)), (Some(1), Some(0)), "{LOST}");
        unexplored(|| {
            (0..2).for_each(|_| grow(&map));
            map.insert(3, pair(0));
        });
        assert_eq!((look(&map, 1), look(&map, 3), map.len()), (Some(1), Some(0), 3), "{LOST}");
    });
}

/// The chain gets its second bucket while a reader goes through it.
#[test]
fn loom_flat_map_get_against_overflow() {
    large_model(2, || {
        let map = map(&[1, 2, 3, 4]); // the bucket is full, the map is not
        unexplored(|| reserve_overflow(&map));
        let writer = spawn(&map, |map| map.insert(5, pair(4)));
        let seen = look(&map, 5);
        assert!(matches!(seen, None | Some(4)), "{seen:?}");
        writer.join().unwrap();
        assert_eq!((look(&map, 4), look(&map, 5)), (Some(0), Some(4)), "{LOST}");
    });
}

/// An entry moves back from the second bucket of the chain, into a slot that was emptied.
#[test]
fn loom_flat_map_get_against_an_entry_that_moves_in_its_chain() {
    model(2, || {
        let map = map(&[1, 2, 3, 4, 5]);
        let writer = spawn(&map, |map| map.exchange(&1, Some(pair(0)), None));
        assert_eq!(look(&map, 5), Some(0), "{LOST}");
        assert_eq!(writer.join().unwrap(), Ok(()));
        assert_eq!((look(&map, 1), look(&map, 5)), (None, Some(0)), "{LOST}");
    });
}

#[test]
fn loom_flat_map_iteration_against_growth_sees_each_entry_once() {
    large_model(2, || {
        let map = map(&[1, 2]);
        let reader = spawn(&map, |map| {
            let mut keys: Vec<u8> = map.iter().map(|(key, _)| key).collect();
            keys.sort_unstable();
            assert_eq!(keys, [1, 2]);
        });
        grow(&map);
        map.insert(2, pair(1));
        reader.join().unwrap();
    });
}

/// A reader looks for a key that stays in the map, and for a key that is replaced, while two
/// buckets are merged under it and the old table is freed.
#[test]
fn loom_flat_map_get_against_shrinking() {
    large_model(2, || {
        let map = wide_map(&[1, 2]);
        let reader = spawn(&map, |map| {
            assert_eq!(look(map, 1), Some(0), "{LOST}");
            assert!(look(map, 2).is_some(), "{LOST}");
        });
        shrink(&map);
        map.insert(2, pair(1));
        reader.join().unwrap();
        assert_eq!((look(&map, 1), look(&map, 2)), (Some(0), Some(1)), "{LOST}");
    });
}

#[test]
fn loom_flat_map_updates_against_shrinking_lose_nothing() {
    large_model(2, || {
        let map = wide_map(&[1, 2]);
        let other = spawn(&map, |map| {
            assert_eq!(map.remove(&1).map(whole), Some(0));
            assert_eq!(map.insert(3, pair(1)), None);
        });
        shrink(&map);
        other.join().unwrap();
        let seen = (look(&map, 1), look(&map, 2), look(&map, 3), map.len());
        assert_eq!(seen, (None, Some(0), Some(1), 2), "{LOST}");
    });
}

#[test]
fn loom_flat_map_iteration_against_shrinking_sees_each_entry_once() {
    large_model(2, || {
        let map = wide_map(&[1, 2]);
        let reader = spawn(&map, |map| {
            let mut keys: Vec<u8> = map.iter().map(|(key, _)| key).collect();
            keys.sort_unstable();
            assert_eq!(keys, [1, 2]);
        });
        shrink(&map);
        reader.join().unwrap();
    });
}

fn catches(bug: &str, name: &str, signs: &[&str]) {
    must_catch(bug, &format!("collections::flat_hash_map::loom_tests::{name}"), signs);
}

#[test]
fn loom_flat_map_reader_that_looks_once_is_caught() {
    catches("flat-single-look", "loom_flat_map_get_against_insert_reads_one_value", &[TORN]);
}

#[test]
fn loom_flat_map_write_that_overtakes_its_lock_is_caught() {
    catches("flat-unfenced-write", "loom_flat_map_get_against_insert_reads_one_value", &[TORN]);
}

#[test]
fn loom_flat_map_entries_that_arrive_late_are_caught() {
    catches("flat-early-arrival", "loom_flat_map_get_against_growth", &[LOST]);
}

#[test]
fn loom_flat_map_entries_that_arrive_late_by_shrinking_are_caught() {
    catches("flat-early-arrival", "loom_flat_map_get_against_shrinking", &[LOST]);
}

#[test]
fn loom_flat_map_bucket_moved_under_a_writer_is_caught() {
    catches(
        "flat-unlocked-move",
        "loom_flat_map_updates_that_move_buckets_lose_nothing",
        &[LOST, TORN, "flat_hash_map.F3: entries arrive"],
    );
}

#[test]
fn loom_flat_map_write_by_what_was_read_under_another_version_is_caught() {
    catches(
        "flat-stale-write",
        "loom_flat_map_insertions_into_one_bucket_take_slots_of_their_own",
        &[LOST],
    );
}
