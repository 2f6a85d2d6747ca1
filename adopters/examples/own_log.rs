//! How many different visitors has a site? An object that all threads update at each request, with
//! a log made for it.
//!
//! A list of all visitors would be exact, and large. HyperLogLog is a sketch of it: 1024 bytes that
//! say how many different ones there were, within some 3 %. To add a visitor raises one byte, or
//! changes nothing; so updates commute, and two sketches are merged by taking the greater of each
//! byte. Hence the best *log* of updates is a sketch itself: it never fills up, and a read merges
//! one for each thread.
//!
//!     cargo run --example own_log

use manycore::{
    clock::Stamp,
    oplog::{Deferred, Log},
};
use std::{collections::HashSet, thread};

/// Registers of a sketch; its error is about one over the square root of their number.
const REGISTERS: usize = 1024;

/// Of each visitor the hash says the register, and how rare it is: the count of its leading zeros.
#[derive(Clone)]
struct Sketch([u8; REGISTERS]);

impl Default for Sketch {
    fn default() -> Self {
        Self([0; REGISTERS])
    }
}

impl Sketch {
    fn add(&mut self, Visitor(hash): Visitor) {
        let register = &mut self.0[hash as usize % REGISTERS];
        let rarity = 1 + (hash | (REGISTERS as u64 - 1)).leading_zeros() as u8;
        *register = rarity.max(*register);
    }

    fn merge(&mut self, other: &Self) {
        for (register, other) in self.0.iter_mut().zip(&other.0) {
            *register = (*other).max(*register);
        }
    }

    /// Flajolet and others, "HyperLogLog" (2007), with its correction for small numbers.
    fn estimate(&self) -> f64 {
        let count = REGISTERS as f64;
        let sum: f64 = self.0.iter().map(|&rarity| 0.5_f64.powi(rarity.into())).sum();
        let estimate = 0.7213 / (1.0 + 1.079 / count) * count * count / sum;
        match self.0.iter().filter(|rarity| **rarity == 0).count() {
            empty if empty > 0 && estimate < 2.5 * count => count * (count / empty as f64).ln(),
            _ => estimate,
        }
    }
}

/// An update: a visitor's hash. It owns its data and returns nothing, because it may be applied
/// later, by another thread.
struct Visitor(u64);

impl Visitor {
    fn new(id: u64) -> Self {
        // splitmix64's finalizer.
        let mut hash = id.wrapping_add(0x9e37_79b9_7f4a_7c15);
        hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        Self(hash ^ (hash >> 31))
    }
}

/// What a thread keeps until the next read.
#[derive(Default)]
struct SketchLog {
    sketch: Sketch,
    updates: usize,
}

impl Log<Sketch> for SketchLog {
    type Op = Visitor;
    /// Any two updates commute, so they need no stamps.
    const ORDERED: bool = false;

    /// Of an object that is not contended: no log at all.
    fn apply(visitor: Visitor, visitors: &mut Sketch) {
        visitors.add(visitor);
    }

    fn push(&mut self, visitor: Visitor, _: Stamp) {
        self.sketch.add(visitor);
        self.updates += 1;
    }

    /// One entry, however many updates: so the log is never full.
    fn len(&self) -> usize {
        usize::from(self.updates > 0)
    }

    fn merge(logs: &mut [Self], visitors: &mut Sketch) -> usize {
        let taken = logs.iter_mut().map(std::mem::take);
        taken
            .map(|log| {
                visitors.merge(&log.sketch);
                log.updates
            })
            .sum()
    }
}

const THREADS: u64 = 4;
const REQUESTS: u64 = 100_000;

fn main() {
    let visitors = Deferred::<Sketch, SketchLog>::new(Sketch::default());
    // Each thread has visitors of its own, and some that all have.
    let visitor = |thread, request| (request % 10_000) + thread * 5_000;
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let visitors = &visitors;
            scope.spawn(move || {
                for request in 0..REQUESTS {
                    visitors.append(Visitor::new(visitor(thread, request)));
                }
            });
        }
        // A read at any time has all updates that returned before it.
        println!("so far: {:.0}", visitors.read().estimate());
    });

    let each = |thread| (0..REQUESTS).map(move |request| visitor(thread, request));
    let exact = (0..THREADS).flat_map(each).collect::<HashSet<_>>().len() as f64;
    let estimate = visitors.read().estimate();
    println!("{} requests of about {estimate:.0} visitors; exactly {exact}", THREADS * REQUESTS);
    assert!((estimate / exact - 1.0).abs() < 0.1);

    // The log loses nothing: the sketch is the one that a single thread makes.
    let mut alone = Sketch::default();
    (0..THREADS).flat_map(each).for_each(|id| alone.add(Visitor::new(id)));
    assert_eq!(visitors.read().0, alone.0);
}
