//! A family of maps with four implementations, for tests that exchange one for another.

use super::manycore;
use super::manycore::cluster::{Clustered, Family, Placement, Rep};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, RwLock};

manycore::family! {
    /// Numbers by key.
    pub trait Table moves Vec<(u32, u32)>;
    /// A table that all threads share.
    handle SharedTable;
    calls {
        /// The key's number.
        fn get(&self, key: u32) -> Option<u32>;
        /// Sets it, and returns what it was.
        fn insert(&self, key: u32, number: u32) -> Option<u32>;
        /// Takes it away.
        fn remove(&self, key: u32) -> Option<u32>;
        /// Adds to a number; to none as to zero.
        fn add(&self, key: u32, more: u32);
    }
}

type Numbers = BTreeMap<u32, u32>;

fn pairs(numbers: &Numbers) -> Vec<(u32, u32)> {
    numbers.iter().map(|(key, number)| (*key, *number)).collect()
}

/// A map behind a lock.
#[derive(Debug, Default)]
pub struct Locked(pub Mutex<Numbers>);

impl Table for Locked {
    fn get(&self, key: u32) -> Option<u32> {
        self.0.lock().unwrap().get(&key).copied()
    }
    fn insert(&self, key: u32, number: u32) -> Option<u32> {
        self.0.lock().unwrap().insert(key, number)
    }
    fn remove(&self, key: u32) -> Option<u32> {
        self.0.lock().unwrap().remove(&key)
    }
    fn add(&self, key: u32, more: u32) {
        *self.0.lock().unwrap().entry(key).or_default() += more;
    }
}

impl Family for Locked {
    type Part = Vec<(u32, u32)>;
    fn export(&self, _: usize) -> Self::Part {
        pairs(&self.0.lock().unwrap())
    }
    fn import(&self, part: Self::Part) {
        self.0.lock().unwrap().extend(part);
    }
}

const SHARDS: usize = 4;

/// Maps for parts of the keys, which are exported as just as many pieces.
#[derive(Debug, Default)]
pub struct Sharded([Mutex<Numbers>; SHARDS]);

impl Sharded {
    fn shard(&self, key: u32) -> std::sync::MutexGuard<'_, Numbers> {
        self.0[key as usize % SHARDS].lock().unwrap()
    }
}

impl Table for Sharded {
    fn get(&self, key: u32) -> Option<u32> {
        self.shard(key).get(&key).copied()
    }
    fn insert(&self, key: u32, number: u32) -> Option<u32> {
        self.shard(key).insert(key, number)
    }
    fn remove(&self, key: u32) -> Option<u32> {
        self.shard(key).remove(&key)
    }
    fn add(&self, key: u32, more: u32) {
        *self.shard(key).entry(key).or_default() += more;
    }
}

impl Family for Sharded {
    type Part = Vec<(u32, u32)>;
    fn parts(&self) -> usize {
        SHARDS
    }
    fn export(&self, part: usize) -> Self::Part {
        pairs(&self.0[part].lock().unwrap())
    }
    fn import(&self, part: Self::Part) {
        for (key, number) in part {
            self.shard(key).insert(key, number);
        }
    }
}

/// A clustered object: one map in the root, and near each caller a copy of what was found there.
pub struct Distributed(Clustered<Near>);

struct Near(Mutex<Numbers>);

impl Rep for Near {
    type Root = RwLock<Numbers>;
    fn create(_: &Self::Root, _: usize) -> Self {
        Self(Mutex::default())
    }
}

impl Default for Distributed {
    fn default() -> Self {
        Self(Clustered::new(Placement::PerThread, RwLock::default()))
    }
}

impl Distributed {
    fn change<R>(&self, key: u32, change: impl FnOnce(&mut Numbers) -> R) -> R {
        let mut root = self.0.root().write().unwrap();
        for (_, near) in self.0.reps() {
            near.0.lock().unwrap().remove(&key);
        }
        change(&mut root)
    }
}

impl Table for Distributed {
    fn get(&self, key: u32) -> Option<u32> {
        let near = self.0.local();
        if let Some(number) = near.0.lock().unwrap().get(&key) {
            return Some(*number);
        }
        let root = self.0.root().read().unwrap();
        let found = root.get(&key).copied();
        if let Some(number) = found {
            near.0.lock().unwrap().insert(key, number);
        }
        found
    }
    fn insert(&self, key: u32, number: u32) -> Option<u32> {
        self.change(key, |numbers| numbers.insert(key, number))
    }
    fn remove(&self, key: u32) -> Option<u32> {
        self.change(key, |numbers| numbers.remove(&key))
    }
    fn add(&self, key: u32, more: u32) {
        self.change(key, |numbers| *numbers.entry(key).or_default() += more);
    }
}

impl Family for Distributed {
    type Part = Vec<(u32, u32)>;
    fn export(&self, _: usize) -> Self::Part {
        pairs(&self.0.root().read().unwrap())
    }
    fn import(&self, part: Self::Part) {
        self.0.root().write().unwrap().extend(part);
    }
}

/// A locked map that panics when it is told to.
#[derive(Debug, Default)]
pub struct Brittle {
    pub inner: Locked,
    pub in_export: AtomicBool,
    pub in_import: AtomicBool,
}

impl Table for Brittle {
    fn get(&self, key: u32) -> Option<u32> {
        self.inner.get(key)
    }
    fn insert(&self, key: u32, number: u32) -> Option<u32> {
        self.inner.insert(key, number)
    }
    fn remove(&self, key: u32) -> Option<u32> {
        self.inner.remove(key)
    }
    fn add(&self, key: u32, more: u32) {
        self.inner.add(key, more);
    }
}

impl Family for Brittle {
    type Part = Vec<(u32, u32)>;
    fn parts(&self) -> usize {
        2
    }
    fn export(&self, part: usize) -> Self::Part {
        assert!(!(self.in_export.load(Relaxed) && part == 1), "brittle in export");
        if part == 0 { self.inner.export(0) } else { Vec::new() }
    }
    fn import(&self, part: Self::Part) {
        assert!(!self.in_import.load(Relaxed), "brittle in import");
        self.inner.import(part);
    }
}

/// Makes the implementation with this number.
pub fn make(which: usize) -> Arc<dyn Table> {
    match which % 4 {
        0 => Arc::new(Locked::default()),
        1 => Arc::new(Sharded::default()),
        2 => Arc::new(Distributed::default()),
        _ => Arc::new(Brittle::default()),
    }
}
