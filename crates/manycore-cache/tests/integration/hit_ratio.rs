//! Hit ratios under generated loads, beside those of an exact LRU list. With one thread and a fixed
//! hash function, each run has the same figures. `manycore-bench bench kv --trace` replays recorded
//! traces; `docs/cache.md` has the figures of some.

use manycore_cache::Cache;
use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasherDefault, DefaultHasher};

/// The generator SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

fn zipf(keys: usize, theta: f64, requests: usize) -> Vec<u64> {
    let mut sum = 0.0;
    let mut next = |rank: usize| {
        sum += (rank as f64).powf(-theta);
        sum
    };
    let sums: Vec<f64> = (1..=keys).map(&mut next).collect();
    let mut random = Random(7);
    let mut draw = |_| {
        let drawn = random.unit() * sums[keys - 1];
        sums.partition_point(|sum| *sum < drawn) as u64
    };
    (0..requests).map(&mut draw).collect()
}

/// Returns requests that mostly repeat recent keys. One key in 20 is new; the others are chosen by
/// their depth in an LRU list, where small depths are more frequent.
fn recent(depth: usize, requests: usize) -> Vec<u64> {
    let mut random = Random(9);
    let mut list: Vec<u64> = (0..depth as u64).collect();
    let mut newest = depth as u64;
    let mut draw = |_| {
        let key = if random.next() % 20 == 0 {
            newest += 1;
            list.remove(0);
            newest
        } else {
            let share = 1.0 - random.unit() * (1.0 - (depth as f64).powf(-0.2));
            list.remove(depth - (share.powf(-5.0) as usize).clamp(1, depth))
        };
        list.push(key);
        key
    };
    (0..requests).map(&mut draw).collect()
}

/// Returns the percentage of requests that hit. The cache is empty at first, and a miss is followed
/// by an insertion.
fn ratio(keys: &[u64], mut hits: impl FnMut(u64) -> bool) -> f64 {
    100.0 * keys.iter().filter(|key| hits(**key)).count() as f64 / keys.len() as f64
}

fn ours(keys: &[u64], capacity: usize, weighs: bool) -> f64 {
    let hasher = BuildHasherDefault::<DefaultHasher>::default();
    let mut builder = Cache::builder(capacity as u64).hasher(hasher);
    if weighs {
        builder = builder.weigher(|_, _| 1);
    }
    let cache = builder.build().unwrap();
    let ratio = ratio(keys, |key| {
        let is_hit = cache.get(&key).is_some();
        if !is_hit {
            cache.insert(key, ());
        }
        is_hit
    });
    assert!(cache.len() <= capacity);
    ratio
}

fn by_recency(keys: &[u64], capacity: usize) -> f64 {
    let (mut used, mut order, mut now) = (HashMap::new(), BTreeMap::new(), 0_u64);
    ratio(keys, |key| {
        now += 1;
        let before = used.insert(key, now);
        before.map(|before| order.remove(&before));
        order.insert(now, key);
        if used.len() > capacity {
            let (_, oldest) = order.pop_first().expect("not empty");
            used.remove(&oldest);
        }
        before.is_some()
    })
}

/// Checks that at least `least` percent of the requests hit, with and without a weigher, and at
/// most `below_recency` percent less than with an LRU list.
#[track_caller]
fn check(what: &str, keys: &[u64], capacity: usize, least: f64, below_recency: f64) {
    if cfg!(miri) {
        return;
    }
    let recency = by_recency(keys, capacity);
    let [plain, weighing] = [false, true].map(|weighs| ours(keys, capacity, weighs));
    println!("{what}: {plain:.1}, {weighing:.1} if it weighs, {recency:.1} by recency");
    for ratio in [plain, weighing] {
        assert!(ratio >= least, "{what}: {ratio:.1} % hit");
        assert!(ratio >= recency - below_recency, "{what}: {ratio:.1} %, {recency:.1} by recency");
    }
}

/// With an LRU list none of these requests hits. Here as many hit as can, except for a few keys
/// that are on probation.
#[test]
fn loops_that_are_longer_than_the_cache_hit_in_the_part_that_fits() {
    for (keys, least) in [(3_030_u64, 90.0), (3_300, 75.0), (6_000, 46.0)] {
        let turns: Vec<u64> = (0..30 * keys).map(|n| n % keys).collect();
        check(&format!("a loop of {keys} keys"), &turns, 3_000, least, 0.0);
    }
}

#[test]
fn skewed_keys_hit_more_often_than_by_recency() {
    check("zipf, theta 0.99", &zipf(20_000, 0.99, 300_000), 2_000, 70.0, -4.0);
    check("zipf, theta 0.7", &zipf(20_000, 0.7, 300_000), 2_000, 41.0, -7.0);
}

#[test]
fn a_scan_costs_no_more_than_its_own_misses() {
    let mut keys = zipf(5_000, 0.9, 200_000);
    let alone = ours(&keys, 1_000, false);
    for scan in (1..20_u64).rev() {
        let (at, first) = (10_000 * scan as usize, 5_000 * scan + (1 << 20));
        keys.splice(at..at, first..first + 5_000);
    }
    let hits = ours(&keys, 1_000, false) * keys.len() as f64 / 200_000.0;
    assert!(
        hits > alone - 1.5,
        "{hits:.1} % of the others' requests hit, without scans {alone:.1}"
    );
    check("zipf and scans", &keys, 1_000, 46.0, -4.0);
}

#[test]
fn what_was_used_lately_hits_about_as_often_as_by_recency() {
    let keys = recent(5_000, 100_000);
    for (capacity, below) in [(100, 9.0), (500, 5.0), (1_500, 3.0)] {
        check(&format!("recent keys, {capacity}"), &keys, capacity, 0.0, below);
    }
}
