//! Feature `rayon`: maps and sets that are made, extended and walked in parallel.

use manycore::collections::{FlatHashMap, HashMap, HashSet};
use rayon::prelude::*;

#[test]
fn maps_and_sets_made_in_parallel_have_everything_once() {
    let map: HashMap<u64, u64> = (0..20_000_u64).into_par_iter().map(|n| (n, n * n)).collect();
    assert_eq!(map.len(), 20_000);
    let view = map.enter();
    assert!(view.par_iter().all(|(key, value)| key * key == *value));
    let mut keys: Vec<u64> = view.par_iter().map(|(key, _)| *key).collect();
    keys.sort_unstable();
    assert!(keys.into_iter().eq(0..20_000));

    let set: HashSet<u64> = (0..20_000_u64).into_par_iter().map(|n| n % 1_000).collect();
    assert_eq!((set.len(), set.enter().par_iter().sum::<u64>()), (1_000, 499_500));
    assert_eq!(set.into_par_iter().max(), Some(999));
}

#[test]
fn flat_maps_made_extended_and_walked_in_parallel_have_everything_once() {
    let map: FlatHashMap<u64, u64> = (0..5_000_u64).into_par_iter().map(|n| (n, n * n)).collect();
    rayon::join(
        || (&map).par_extend((5_000..10_000_u64).into_par_iter().map(|n| (n, n * n))),
        || (0..5_000).for_each(|key| assert!(map.remove(&key).is_some())),
    );
    assert!(map.par_iter().all(|(key, value)| key * key == value));
    assert_eq!((map.len(), map.par_iter().count()), (5_000, 5_000));
    let sum: u64 = map.into_par_iter().map(|(key, _)| key).sum();
    assert_eq!(sum, (5_000..10_000).sum());
}

#[test]
fn shared_map_is_extended_beside_other_updates() {
    let mut map = HashMap::from([(0_u64, 0_u64)]);
    map.par_extend((1..5_000).into_par_iter().map(|n| (n, n)));
    rayon::join(
        || (&map).par_extend((5_000..10_000).into_par_iter().map(|n| (n, n))),
        || (0..5_000).for_each(|key| assert!(map.remove(&key))),
    );
    assert_eq!(map.len(), 5_000);
    let sum: u64 = map.into_par_iter().map(|(_, value)| value).sum();
    assert_eq!(sum, (5_000..10_000).sum());
}

#[test]
fn references_stay_valid_while_entries_are_removed() {
    let map: HashMap<u32, String> = (0..2_000).map(|n| (n, n.to_string())).collect();
    let view = map.enter();
    let entries = view.par_iter();
    let (wrong, ()) = rayon::join(
        || entries.filter(|(key, text)| text.parse() != Ok(**key)).count(),
        || (0..2_000).for_each(|key| assert!(map.remove(&key))),
    );
    assert_eq!((wrong, map.len()), (0, 0));
}
