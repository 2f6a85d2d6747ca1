//! Two caches under one limit while the load moves from one to the other, beside two with a fixed
//! half each.
//!
//!     cargo run --release -p manycore-cache --example shared_budget -- 4000000
//!
//! The argument is the number of reads. Each move of the load costs a refill, so the budget pays if
//! the load stays for long: with 4,000,000 reads 80.3 % hit in place of 79.5 %, with 400,000 (ten
//! times as many moves per read) 74.6 % in place of 75.3 %.

use manycore::collections::BudgetTree;
use manycore_cache::{BuildError, Cache};
use std::sync::Arc;

/// Entries of both caches together; each has four times as many keys.
const ENTRIES: u64 = 20_000;
const KEYS: u64 = 4 * ENTRIES;
/// How often the load moves.
const TURNS: u64 = 8;

type Pair = [Arc<Cache<u64, u64>>; 2];

/// A random number below a power of two of the keys, the lower ones more often.
fn skewed(random: &mut u64) -> u64 {
    let mut draw = || {
        *random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (*random >> 11) as f64 / (1_u64 << 53) as f64
    };
    (KEYS as f64).powf(draw()) as u64
}

/// Reads through the caches, nine of ten in the one whose turn it is; the part that hit.
fn hit_ratio(caches: &Pair, reads: u64) -> f64 {
    let (mut random, mut hits) = (1, 0);
    for read in 0..reads {
        let turn = (read * TURNS / reads) % 2;
        let cache = &caches[usize::from((turn == 1) != (read % 10 == 0))];
        let key = skewed(&mut random);
        if cache.get(&key).is_some() {
            hits += 1;
        } else {
            cache.insert(key, key);
        }
    }
    hits as f64 / reads as f64
}

fn main() -> Result<(), BuildError> {
    let reads = std::env::args().nth(1).and_then(|reads| reads.parse().ok()).unwrap_or(200_000);
    let half = || Cache::builder(ENTRIES / 2).build().map(Arc::new);
    let halves = [half()?, half()?];
    let budget = BudgetTree::with_batch(ENTRIES, 16);
    let within = || Cache::builder(ENTRIES).build_within(&budget);
    let shared = [within()?, within()?];
    println!("hits, fixed halves: {:.2} %", 100.0 * hit_ratio(&halves, reads));
    println!("hits, one budget:   {:.2} %", 100.0 * hit_ratio(&shared, reads));
    let [first, second] = shared.map(|cache| cache.weight());
    println!("entries at the end: {first} and {second} of {ENTRIES}");
    assert!(first + second <= ENTRIES);
    Ok(())
}
