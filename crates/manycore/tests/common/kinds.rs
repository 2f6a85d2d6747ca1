//! The sequential types of the histories, and their updates.
//!
//! Each is made so that a read shows as much as possible. The list shows the order. The sum shows
//! which updates are in it: each adds its own power of two. The set counts, so an update that was
//! applied twice shows.

use super::manycore::clock::Stamp;
use super::manycore::oplog::{Cancel, Combine, Log, Op};
use std::collections::BTreeMap;

/// Appends to a list.
#[derive(Debug, Clone, Copy)]
pub struct Push(pub u8);

pub type List = Vec<u8>;

impl Op<List> for Push {
    fn apply(self, list: &mut List) {
        list.push(self.0);
    }
}

/// Adds to a sum.
#[derive(Debug, Clone, Copy)]
pub struct Add(pub u64);

impl Op<u64> for Add {
    fn apply(self, sum: &mut u64) {
        *sum += self.0;
    }
}

impl Combine for Add {
    type Key = ();
    fn key(&self) {}
    fn combine(&mut self, other: Self) {
        self.0 += other.0;
    }
}

/// Inserts or removes one element of a set.
#[derive(Debug, Clone, Copy)]
pub struct Toggle {
    pub key: u8,
    pub insert: bool,
}

/// For each element, how many more times it was inserted than removed; never zero.
pub type Set = BTreeMap<u8, i8>;

impl Op<Set> for Toggle {
    fn apply(self, set: &mut Set) {
        let count = set.entry(self.key).or_default();
        *count += if self.insert { 1 } else { -1 };
        if *count == 0 {
            set.remove(&self.key);
        }
    }
}

impl Cancel for Toggle {
    type Key = u8;
    fn key(&self) -> u8 {
        self.key
    }
    fn inserts(&self) -> bool {
        self.insert
    }
}

/// The paper's Figure 8, repaired: a counter's log is a number, and merging takes the number out.
#[derive(Debug, Default)]
pub struct SumLog {
    sum: u64,
}

impl Log<u64> for SumLog {
    type Op = Add;
    const ORDERED: bool = false;

    fn apply(add: Add, total: &mut u64) {
        add.apply(total);
    }
    fn push(&mut self, add: Add, _: Stamp) {
        self.sum += add.0;
    }
    fn len(&self) -> usize {
        usize::from(self.sum != 0)
    }
    fn merge(logs: &mut [Self], total: &mut u64) -> usize {
        let sums = logs.iter_mut().map(|log| std::mem::take(&mut log.sum));
        *total += sums.sum::<u64>();
        logs.len()
    }
}
