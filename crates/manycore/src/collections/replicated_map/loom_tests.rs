//! Models of laws replicated_map.M1 to replicated_map.M3: copying beside removals and changes.
//!
//! loom's standard hasher is a constant one, so that its choices do not depend on chance. The maps
//! are in loom cells behind the locks.

use super::ReplicatedMap;
use crate::cluster::Placement;
use crate::percpu::loom_tests::{model, must_catch};
use crate::sync::thread;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

#[derive(Default)]
struct Constant;

impl Hasher for Constant {
    fn finish(&self) -> u64 {
        0
    }
    fn write(&mut self, _: &[u8]) {}
}

type Map = ReplicatedMap<u8, u8, BuildHasherDefault<Constant>>;

fn map() -> Arc<Map> {
    let map = Map::with_hasher(Placement::PerThread, BuildHasherDefault::default());
    map.insert(1, 1);
    Arc::new(map)
}

#[test]
fn loom_replicated_map_removed_key_is_found_by_nobody() {
    model(2, || {
        let shared = map();
        let other = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let found = shared.get(&1);
                assert!(found.is_none_or(|value| value == 1));
                // Once gone, it does not come back.
                assert!(found.is_some() || shared.get(&1).is_none());
                shared
            })
        };
        assert_eq!(shared.remove(&1), Some(1));
        assert_eq!(shared.get(&1), None);
        let shared = other.join().unwrap();
        assert_eq!(shared.cached(), 0, "a copy outlived the entry");
    });
}

#[test]
fn loom_replicated_map_copy_made_unlocked_is_caught() {
    let test = "loom_replicated_map_removed_key_is_found_by_nobody";
    let test = format!("collections::replicated_map::loom_tests::{test}");
    must_catch("cached-unlocked", &test, &["a copy outlived the entry"]);
}

/// If a thread has seen a change and then tells another thread, that thread sees it, too.
#[test]
fn loom_replicated_map_changes_are_seen_in_one_order() {
    model(2, || {
        let shared = map();
        let other = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let (first, second) = (shared.get(&1), shared.get(&1));
                assert!(first <= second, "back from {first:?} to {second:?}");
            })
        };
        assert_eq!(shared.insert(1, 2), Some(1));
        assert_eq!(shared.get(&1), Some(2));
        other.join().unwrap();
    });
}
