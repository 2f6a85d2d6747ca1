//! Feature `serde`: documents of maps and sets.

use manycore::collections::{FlatHashMap, HashMap, HashSet, OrderedMap};
use postcard::{from_bytes, to_allocvec};
use serde::Deserialize;
use serde::de::IntoDeserializer;
use serde::de::value::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

#[test]
fn what_is_written_is_read_again_here_and_by_the_standard_library_s_types() {
    let map: HashMap<String, Vec<u32>> = (0..50).map(|n| (n.to_string(), vec![n; 3])).collect();
    let document = to_allocvec(&map).expect("it can be written");
    let again: HashMap<String, Vec<u32>> = from_bytes(&document).expect("it is a map");
    assert_eq!(again, map);
    let plain: std::collections::BTreeMap<String, Vec<u32>> =
        from_bytes(&document).expect("it is a map");
    assert!(plain.len() == 50 && plain["7"] == [7, 7, 7]);

    let map: OrderedMap<String, u32> = (0..50).map(|n| (n.to_string(), n)).collect();
    let document = to_allocvec(&map).expect("it can be written");
    let again: OrderedMap<String, u32> = from_bytes(&document).expect("it is a map");
    assert_eq!(again, map);
    let plain: Vec<(String, u32)> = from_bytes(&document).expect("a map is written like a list");
    assert!(plain.len() == 50 && plain.is_sorted());

    let map: FlatHashMap<u32, char> = ('a'..='z').map(|c| (c as u32, c)).collect();
    let document = to_allocvec(&map).expect("it can be written");
    let again: FlatHashMap<u32, char> = from_bytes(&document).expect("it is a map");
    assert_eq!(again, map);
    let plain: std::collections::BTreeMap<u32, char> = from_bytes(&document).expect("it is a map");
    assert!(plain.into_values().eq('a'..='z'));

    let set: HashSet<u32> = (0..50).collect();
    let document = to_allocvec(&set).expect("it can be written");
    let again: HashSet<u32> = from_bytes(&document).expect("it is a sequence");
    assert_eq!(again, set);
    let plain: Vec<u32> = from_bytes(&document).expect("it is a sequence");
    assert_eq!(plain.len(), 50);
}

#[test]
fn wrong_documents_are_errors_and_doubles_are_one_entry() {
    let doubles = to_allocvec(&[(1_u32, 1_u32), (2, 2), (1, 3)][..]).expect("a list of pairs");
    let map: HashMap<u32, u32> = from_bytes(&doubles).expect("a map is written like one");
    assert_eq!((map.len(), map.get_cloned(&1)), (2, Some(3)));
    let map: FlatHashMap<u32, u32> = from_bytes(&doubles).expect("a map is written like one");
    assert_eq!((map.len(), map.get(&1)), (2, Some(3)));
    let map: OrderedMap<u32, u32> = from_bytes(&doubles).expect("a map is written like one");
    assert!(map.into_iter().eq([(1, 3), (2, 2)]));
    assert!(from_bytes::<HashMap<u32, u32>>(&doubles[..doubles.len() - 1]).is_err(), "it is cut");
    let doubles = to_allocvec(&[1_u32, 1, 2][..]).expect("a list");
    assert_eq!(from_bytes::<HashSet<u32>>(&doubles).expect("a sequence").len(), 2);

    let number = || IntoDeserializer::<Error>::into_deserializer(7_u32);
    let error = HashMap::<u32, u32>::deserialize(number()).expect_err("a number is no map");
    assert_eq!(error.to_string(), "invalid type: integer `7`, expected a map");
    let error = OrderedMap::<u32, u32>::deserialize(number()).expect_err("a number is no map");
    assert_eq!(error.to_string(), "invalid type: integer `7`, expected a map");
    let error = HashSet::<u32>::deserialize(number()).expect_err("a number is no sequence");
    assert_eq!(error.to_string(), "invalid type: integer `7`, expected a sequence");
}

#[test]
fn map_that_changes_while_it_is_written_gives_whole_documents_with_what_stays() {
    let map = HashMap::new();
    (0..100_u32).for_each(|key| assert!(map.insert(key, key)));
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            for turn in 0.. {
                if done.load(Ordering::Relaxed) {
                    break;
                }
                let key = 100 + turn % 1000;
                map.insert(key, key);
                map.remove(&(100 + (turn + 500) % 1000));
            }
        });
        for _ in 0..200 {
            let document = to_allocvec(&map).expect("it can be written");
            let seen: HashMap<u32, u32> = from_bytes(&document).expect("it is whole");
            assert!((0..100).all(|key| seen.get_cloned(&key) == Some(key)));
            seen.for_each(|key, value| assert_eq!(key, value));
        }
        done.store(true, Ordering::Relaxed);
    });
}
