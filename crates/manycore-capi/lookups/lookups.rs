//! Measures the look-ups of `lookups.c` from Rust, with the same keys and hash functions. Prints a
//! line for each: its name, and the smallest nanoseconds of 100 runs. `ci/c.sh lookups` runs both.

#[path = "../src/mixing.rs"]
mod mixing;

use foldhash::quality::RandomState;
use manycore::collections::HashMap;
use manycore_cache::Cache;
use mixing::Mixing;
use std::hint::black_box;
use std::time::Instant;

const LOOKUPS: usize = 65_536;
const RUNS: usize = 100;

fn keys(count: u64) -> Vec<u32> {
    let mut word: u64 = 88_172_645_463_325_252;
    let next = |_| {
        word ^= word << 13;
        word ^= word >> 7;
        word ^= word << 17;
        u32::try_from((word >> 20) % count).expect("counts are small")
    };
    (0..LOOKUPS).map(next).collect()
}

fn print(what: &str, count: u64, mut look_up_all: impl FnMut() -> u64) {
    let (mut least, mut sum) = (f64::MAX, 0_u64);
    for _ in 0..RUNS {
        let start = Instant::now();
        sum = sum.wrapping_add(look_up_all());
        least = least.min(start.elapsed().as_nanos() as f64 / LOOKUPS as f64);
    }
    println!("{what} {count} {least:.2} {sum}");
}

fn time_map(count: u64) {
    let keys = keys(count);
    let map = HashMap::<u64, u64>::builder().hasher(Mixing).build();
    (0..count).for_each(|number| _ = map.enter().insert(number, number + 1));
    let look_up = |key: &u32| map.enter().get(&u64::from(*key)).copied().unwrap_or(0);
    print("map", count, || keys.iter().fold(0, |sum, key| sum.wrapping_add(look_up(key))));
}

fn key_of(number: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_ne_bytes());
    key[8..].copy_from_slice(&number.to_ne_bytes());
    key
}

fn time_cache(count: u64) {
    type Bytes = Box<[u8]>;
    let keys = keys(count);
    let cache = Cache::<Bytes, Bytes>::builder(count * 1000 + (1 << 20))
        .hasher(RandomState::default())
        .byte_weigher(|key: &Bytes, value: &Bytes| key.len() + value.len())
        .build()
        .expect("the settings are in range");
    for number in 0..count {
        let mut value = [0; 32];
        value[..8].copy_from_slice(&(number + 1).to_ne_bytes());
        cache.insert(Box::from(key_of(number).as_slice()), Box::from(value.as_slice()));
    }
    let look_up = |key: &u32| {
        let key = key_of(u64::from(*key));
        let Some(found) = cache.get(black_box(&key[..])) else { return 0 };
        let mut value = [0; 32];
        value[..found.len()].copy_from_slice(&found);
        u64::from_ne_bytes(black_box(&value)[..8].try_into().expect("eight bytes"))
    };
    print("cache", count, || keys.iter().fold(0, |sum, key| sum.wrapping_add(look_up(key))));
}

fn main() {
    time_map(1000);
    time_map(64_000);
    time_cache(1000);
    time_cache(8000);
}
