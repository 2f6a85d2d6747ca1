//! The work that each thread does alone, beside others that do the same: memory, maps, strings,
//! sorting.

use std::{
    collections::{BTreeMap, HashMap},
    hint::black_box,
};

use super::{Random, repeated};
use crate::{row::Kind, workload::Entry};

const KEYS: u32 = 1_000;

fn words(index: usize) -> Vec<u32> {
    let mut random = Random::new(index);
    (0..256).map(|_| random.below(1 << 30)).collect()
}

fn is_sorted(words: &[u32]) {
    assert!(black_box(words).is_sorted());
}

/// The cases.
pub(super) static ENTRIES: &[Entry<usize>] = &[
    Entry {
        kind: Kind::Baseline,
        threads_max: 1,
        ..repeated!("unshared", "sum 256 words", |_| (), words, |(), words| {
            black_box(words.iter().map(|&word| u64::from(word)).sum::<u64>());
        })
    },
    repeated!("box-small", "a Box of 64 bytes", |_| (), |_| (), |(), ()| {
        black_box(Box::new([0_u64; 8]));
    }),
    repeated!("box-page", "a Box of 4096 bytes", |_| (), |_| (), |(), ()| {
        black_box(Box::new([0_u64; 512]));
    }),
    repeated!("vec-grown", "a Vec that grows to 100", |_| (), |_| (), |(), ()| {
        let mut vec = Vec::new();
        (0..100_u64).for_each(|word| vec.push(black_box(word)));
        assert_eq!(vec.len(), 100);
    }),
    repeated!("vec-reserved", "... with room for 100", |_| (), |_| (), |(), ()| {
        let mut vec = Vec::with_capacity(100);
        (0..100_u64).for_each(|word| vec.push(black_box(word)));
        assert_eq!(vec.len(), 100);
    }),
    repeated!("string-format", "a formatted String", |_| (), |index| index, |(), own| {
        *own += 1;
        assert!(!black_box(format!("{own}-{:x}", *own * 7)).is_empty());
    }),
    repeated!("string-join", "a String of parts", |_| (), |index| index, |(), own| {
        *own += 1;
        let mut text = own.to_string();
        text.push('-');
        text.push_str("7f");
        assert!(black_box(text).len() > 3);
    }),
    repeated!("fill-hash", "a HashMap of 100", |_| (), Random::new, |(), random| {
        let map: HashMap<u32, u32> = (0..100).map(|n| (random.below(1 << 30), n)).collect();
        assert!(map.len() > 90);
    }),
    repeated!("fill-tree", "a BTreeMap of 100", |_| (), Random::new, |(), random| {
        let map: BTreeMap<u32, u32> = (0..100).map(|n| (random.below(1 << 30), n)).collect();
        assert!(map.len() > 90);
    }),
    repeated!(
        "get-hash",
        "look up in a HashMap",
        |_| (),
        |index| { ((0..KEYS).map(|n| (n * 7, n)).collect::<HashMap<_, _>>(), Random::new(index)) },
        |(), (map, random)| {
            let key = random.below(KEYS);
            assert_eq!(map[&(key * 7)], key);
        }
    ),
    repeated!(
        "get-fold",
        "... with another hash",
        |_| (),
        |index| {
            let map: HashMap<u32, u32, foldhash::fast::FixedState> =
                (0..KEYS).map(|n| (n * 7, n)).collect();
            (map, Random::new(index))
        },
        |(), (map, random)| {
            let key = random.below(KEYS);
            assert_eq!(map[&(key * 7)], key);
        }
    ),
    repeated!(
        "get-tree",
        "... in a BTreeMap",
        |_| (),
        |index| { ((0..KEYS).map(|n| (n * 7, n)).collect::<BTreeMap<_, _>>(), Random::new(index)) },
        |(), (map, random)| {
            let key = random.below(KEYS);
            assert_eq!(map[&(key * 7)], key);
        }
    ),
    repeated!(
        "get-sorted",
        "... in a sorted Vec",
        |_| (),
        |index| { ((0..KEYS).map(|n| (n * 7, n)).collect::<Vec<_>>(), Random::new(index)) },
        |(), (vec, random)| {
            let key = random.below(KEYS);
            assert_eq!(vec.binary_search_by_key(&(key * 7), |pair| pair.0), Ok(key as usize));
        }
    ),
    repeated!("sort", "sort 256 words", |_| (), words, |(), words| {
        let mut copy = words.clone();
        copy.sort();
        is_sorted(&copy);
    }),
    repeated!("sort-unstable", "... in place", |_| (), words, |(), words| {
        let mut copy = words.clone();
        copy.sort_unstable();
        is_sorted(&copy);
    }),
];
