//! The library's maps.

use foldhash::fast::RandomState;
use manycore::{
    cluster::Placement,
    collections::{DHash, DHashBuilder, Distribution, FlatHashMap, HashMap, ReplicatedMap},
};

use super::{MapHandle, MapImpl};

/// `collections::HashMap`: a section for each call, as every other map pins or locks for each.
pub(super) struct Sections(HashMap<u64, u64, RandomState>);

impl MapImpl for Sections {
    type Handle<'a> = &'a Self;

    fn new(keys: usize) -> Self {
        Self(HashMap::with_capacity_and_hasher(keys, RandomState::default()))
    }

    fn handle(&self) -> &Self {
        self
    }
}

impl MapHandle for &Sections {
    #[inline]
    fn get(&mut self, key: u64) -> Option<u64> {
        self.0.enter().get(&key).copied()
    }

    #[inline]
    fn insert(&mut self, key: u64, value: u64) {
        self.0.enter().insert(key, value);
    }

    #[inline]
    fn remove(&mut self, key: u64) {
        self.0.enter().remove(&key);
    }
}

/// The calls of a map that hands out copies.
macro_rules! by_copy {
    ($map:ty) => {
        impl MapHandle for &$map {
            #[inline]
            fn get(&mut self, key: u64) -> Option<u64> {
                self.0.get(&key)
            }

            #[inline]
            fn insert(&mut self, key: u64, value: u64) {
                self.0.insert(key, value);
            }

            #[inline]
            fn remove(&mut self, key: u64) {
                self.0.remove(&key);
            }
        }
    };
}

/// `collections::FlatHashMap`: entries in the buckets, handed out by copy.
pub(super) struct Flat(FlatHashMap<u64, u64, RandomState>);

impl MapImpl for Flat {
    type Handle<'a> = &'a Self;

    fn new(keys: usize) -> Self {
        Self(FlatHashMap::with_capacity_and_hasher(keys, RandomState::default()))
    }

    fn handle(&self) -> &Self {
        self
    }
}

by_copy!(Flat);

/// `collections::ReplicatedMap`, a cache for each thread.
pub(super) struct Replicated(ReplicatedMap<u64, u64, RandomState>);

impl MapImpl for Replicated {
    type Handle<'a> = &'a Self;

    fn new(_: usize) -> Self {
        Self(ReplicatedMap::with_hasher(Placement::PerThread, RandomState::default()))
    }

    fn handle(&self) -> &Self {
        self
    }
}

by_copy!(Replicated);

/// `collections::DHash`, a table for each thread; the local parts count the look-ups.
pub(super) struct Distributed(DHash<u64, u64, u64, RandomState>);

impl MapImpl for Distributed {
    type Handle<'a> = &'a Self;

    fn new(_: usize) -> Self {
        let table =
            DHashBuilder::new().distribution(Distribution::Always).hasher(RandomState::default());
        Self(table.build())
    }

    fn handle(&self) -> &Self {
        self
    }
}

impl MapHandle for &Distributed {
    #[inline]
    fn get(&mut self, key: u64) -> Option<u64> {
        self.0.with_local(&key, |value, looks| {
            *looks += 1;
            *value
        })
    }

    #[inline]
    fn insert(&mut self, key: u64, value: u64) {
        self.0.insert(key, value);
    }

    #[inline]
    fn remove(&mut self, key: u64) {
        self.0.remove(&key);
    }
}
