//! Caches as they are commonly used.

use std::{
    hash::BuildHasher,
    num::NonZeroUsize,
    sync::{Mutex, MutexGuard, PoisonError},
};

use crossbeam_utils::CachePadded;
use foldhash::fast::RandomState;
use lru::LruCache;

use super::{Key, KvHandle, KvImpl, Value, word_of};

type Plain = LruCache<Key, Value, RandomState>;

fn plain(capacity: usize) -> Plain {
    let capacity = NonZeroUsize::new(capacity).unwrap_or(NonZeroUsize::MIN);
    LruCache::with_hasher(capacity, RandomState::default())
}

/// The baseline: a list of recency, locked once by the only thread that uses it.
pub(super) struct Unshared(Mutex<Plain>);

impl KvImpl for Unshared {
    type Handle<'a> = MutexGuard<'a, Plain>;

    fn new(capacity: usize, _: usize) -> Self {
        Self(Mutex::new(plain(capacity)))
    }

    fn handle(&self) -> MutexGuard<'_, Plain> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl KvHandle for MutexGuard<'_, Plain> {
    #[inline]
    fn get(&mut self, key: &Key) -> Option<u64> {
        LruCache::get(self, key).map(word_of)
    }

    #[inline]
    fn set(&mut self, key: Key, value: Value) {
        self.put(key, value);
    }
}

macro_rules! shared_cache {
    ($(#[$doc:meta])* $type:ident, $inner:ty, $capacity:ident, $keys:ident, $new:expr,
     $cache:ident, $key:ident, $value:ident, $get:expr, $set:expr) => {
        $(#[$doc])*
        pub(super) struct $type($inner);

        impl KvImpl for $type {
            type Handle<'a> = &'a $inner;

            fn new($capacity: usize, $keys: usize) -> Self {
                Self($new)
            }

            fn handle(&self) -> &$inner {
                &self.0
            }
        }

        impl KvHandle for &$inner {
            #[inline]
            fn get(&mut self, $key: &Key) -> Option<u64> {
                let $cache = *self;
                $get
            }

            #[inline]
            fn set(&mut self, $key: Key, $value: Value) {
                let $cache = *self;
                $set;
            }
        }
    };
}

shared_cache!(
    /// One list of recency behind std's mutex.
    LruMutex, CachePadded<Mutex<Plain>>, capacity, _keys,
    CachePadded::new(Mutex::new(plain(capacity))),
    cache, key, value,
    LruCache::get(&mut *cache.lock().unwrap_or_else(PoisonError::into_inner), key).map(word_of),
    cache.lock().unwrap_or_else(PoisonError::into_inner).put(key, value)
);
shared_cache!(
    /// quick_cache's.
    Quick,
    quick_cache::sync::Cache<Key, Value, quick_cache::UnitWeighter, RandomState>, capacity, _keys,
    quick_cache::sync::Cache::with(
        capacity, capacity as u64, quick_cache::UnitWeighter, RandomState::default(),
        Default::default(),
    ),
    cache, key, value,
    cache.get(key).map(|value| word_of(&value)),
    cache.insert(key, value)
);
shared_cache!(
    /// moka's.
    Moka, moka::sync::Cache<Key, Value, RandomState>, capacity, keys,
    moka::sync::Cache::builder()
        .max_capacity(capacity as u64)
        .initial_capacity(capacity.min(keys))
        .build_with_hasher(RandomState::default()),
    cache, key, value,
    cache.get(key).map(|value| word_of(&value)),
    cache.insert(key, value)
);
shared_cache!(
    /// mini-moka's.
    MiniMoka, mini_moka::sync::Cache<Key, Value, RandomState>, capacity, keys,
    mini_moka::sync::Cache::builder()
        .max_capacity(capacity as u64)
        .initial_capacity(capacity.min(keys))
        .build_with_hasher(RandomState::default()),
    cache, key, value,
    cache.get(key).map(|value| word_of(&value)),
    cache.insert(key, value)
);
shared_cache!(
    /// dashmap's, which forgets nothing.
    Dash, dashmap::DashMap<Key, Value, RandomState>, _capacity, keys,
    dashmap::DashMap::with_capacity_and_hasher(keys, RandomState::default()),
    cache, key, value,
    cache.get(key).map(|value| word_of(&value)),
    cache.insert(key, value)
);
shared_cache!(
    /// papaya's, which forgets nothing.
    Papaya, papaya::HashMap<Key, Value, RandomState>, _capacity, keys,
    papaya::HashMap::builder().capacity(keys).hasher(RandomState::default()).build(),
    cache, key, value,
    cache.pin().get(key).map(word_of),
    cache.pin().insert(key, value)
);

/// scc's, by the look-up that keeps recency, or by the one that does not.
pub(super) struct Scc<const GET: bool>(scc::HashCache<Key, Value, RandomState>);

impl<const GET: bool> KvImpl for Scc<GET> {
    type Handle<'a> = &'a Self;

    fn new(capacity: usize, keys: usize) -> Self {
        let (least, hasher) = (capacity.min(keys), RandomState::default());
        Self(scc::HashCache::with_capacity_and_hasher(least, capacity, hasher))
    }

    fn handle(&self) -> &Self {
        self
    }
}

impl<const GET: bool> KvHandle for &Scc<GET> {
    #[inline]
    fn get(&mut self, key: &Key) -> Option<u64> {
        if GET {
            return self.0.get_sync(key).map(|entry| word_of(entry.get()));
        }
        self.0.read_sync(key, |_, value| word_of(value))
    }

    #[inline]
    fn set(&mut self, key: Key, value: Value) {
        match self.0.entry_sync(key) {
            scc::hash_cache::Entry::Occupied(mut entry) => {
                entry.put(value);
            }
            scc::hash_cache::Entry::Vacant(entry) => {
                entry.put_entry(value);
            }
        }
    }
}

/// foyer's, with S3-FIFO or, as it comes, with LRU.
#[cfg(feature = "foyer")]
pub(super) struct Foyer<const S3: bool>(foyer_memory::Cache<Key, Value, RandomState>);

#[cfg(feature = "foyer")]
impl<const S3: bool> KvImpl for Foyer<S3> {
    type Handle<'a> = &'a foyer_memory::Cache<Key, Value, RandomState>;

    fn new(capacity: usize, _keys: usize) -> Self {
        let mut builder = foyer_memory::CacheBuilder::new(capacity);
        if S3 {
            builder = builder.with_eviction_config(foyer_memory::S3FifoConfig::default());
        }
        Self(builder.with_hash_builder(RandomState::default()).build())
    }

    fn handle(&self) -> Self::Handle<'_> {
        &self.0
    }
}

#[cfg(feature = "foyer")]
impl KvHandle for &foyer_memory::Cache<Key, Value, RandomState> {
    #[inline]
    fn get(&mut self, key: &Key) -> Option<u64> {
        foyer_memory::Cache::get(self, key).map(|entry| word_of(entry.value()))
    }

    #[inline]
    fn set(&mut self, key: Key, value: Value) {
        self.insert(key, value);
    }
}

/// A table of one line for each entry, of one thread: no look-up can do with less.
pub(super) struct Floor(Mutex<Lines>);

#[repr(align(64))]
#[derive(Clone, Copy)]
struct Line {
    key: Key,
    value: Value,
    is_used: bool,
}

pub(super) struct Lines {
    lines: Vec<Line>,
    hasher: RandomState,
}

impl Lines {
    /// The key's line, or the one where it would be: linear probing, at most half full.
    #[inline(always)]
    fn at(&self, key: &Key) -> usize {
        let mut at = self.hasher.hash_one(key) as usize & (self.lines.len() - 1);
        while self.lines[at].is_used && self.lines[at].key != *key {
            at = (at + 1) & (self.lines.len() - 1);
        }
        at
    }
}

impl KvImpl for Floor {
    type Handle<'a> = MutexGuard<'a, Lines>;

    fn new(_: usize, keys: usize) -> Self {
        let empty = Line { key: [0; 16], value: [0; 32], is_used: false };
        let lines = vec![empty; (2 * keys).next_power_of_two()];
        Self(Mutex::new(Lines { lines, hasher: RandomState::default() }))
    }

    fn handle(&self) -> MutexGuard<'_, Lines> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl KvHandle for MutexGuard<'_, Lines> {
    #[inline]
    fn get(&mut self, key: &Key) -> Option<u64> {
        let line = &self.lines[self.at(key)];
        line.is_used.then(|| word_of(&line.value))
    }

    #[inline]
    fn set(&mut self, key: Key, value: Value) {
        let at = self.at(&key);
        self.lines[at] = Line { key, value, is_used: true };
    }
}
