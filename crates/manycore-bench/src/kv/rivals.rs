//! Caches as they are commonly taken.

use std::{
    num::NonZeroUsize,
    sync::{Mutex, MutexGuard, PoisonError},
};

use crossbeam_utils::CachePadded;
use foldhash::fast::RandomState;
use lru::LruCache;

use super::{Key, KvHandle, KvImpl, ROOM, Value, word_of};

type Plain = LruCache<Key, Value, RandomState>;

fn plain(capacity: usize) -> Plain {
    let capacity = NonZeroUsize::new(capacity).unwrap_or(NonZeroUsize::MIN);
    LruCache::with_hasher(capacity, RandomState::default())
}

/// The baseline: a list of recency, locked once by the only thread that uses it.
pub(super) struct Unshared(Mutex<Plain>);

impl KvImpl for Unshared {
    type Handle<'a> = MutexGuard<'a, Plain>;

    fn new(capacity: usize) -> Self {
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
    ($(#[$doc:meta])* $type:ident, $inner:ty, $capacity:ident, $new:expr,
     $cache:ident, $key:ident, $value:ident, $get:expr, $set:expr) => {
        $(#[$doc])*
        pub(super) struct $type($inner);

        impl KvImpl for $type {
            type Handle<'a> = &'a $inner;

            fn new($capacity: usize) -> Self {
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
    LruMutex, CachePadded<Mutex<Plain>>, capacity,
    CachePadded::new(Mutex::new(plain(capacity))),
    cache, key, value,
    LruCache::get(&mut *cache.lock().unwrap_or_else(PoisonError::into_inner), key).map(word_of),
    cache.lock().unwrap_or_else(PoisonError::into_inner).put(key, value)
);
shared_cache!(
    /// scc's.
    Scc, scc::HashCache<Key, Value, RandomState>, capacity,
    scc::HashCache::with_capacity_and_hasher(capacity.min(ROOM), capacity, RandomState::default()),
    cache, key, value,
    cache.read_sync(key, |_, value| word_of(value)),
    match cache.entry_sync(key) {
        scc::hash_cache::Entry::Occupied(mut entry) => {
            entry.put(value);
        }
        scc::hash_cache::Entry::Vacant(entry) => {
            entry.put_entry(value);
        }
    }
);
shared_cache!(
    /// quick_cache's.
    Quick,
    quick_cache::sync::Cache<Key, Value, quick_cache::UnitWeighter, RandomState>, capacity,
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
    Moka, moka::sync::Cache<Key, Value, RandomState>, capacity,
    moka::sync::Cache::builder()
        .max_capacity(capacity as u64)
        .initial_capacity(capacity.min(ROOM))
        .build_with_hasher(RandomState::default()),
    cache, key, value,
    cache.get(key).map(|value| word_of(&value)),
    cache.insert(key, value)
);
