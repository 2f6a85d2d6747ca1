//! Maps as they are commonly shared.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError, RwLock},
};

use crossbeam_utils::CachePadded;
use dashmap::DashMap;
use foldhash::fast::RandomState;

use super::{MapHandle, MapImpl};

type Plain = HashMap<u64, u64, RandomState>;

fn plain(keys: usize) -> Plain {
    HashMap::with_capacity_and_hasher(keys, RandomState::default())
}

/// The baseline: a map that is handed from the thread that fills it to the only one that uses it.
macro_rules! unshared_map {
    ($type:ident, $own:ident, $map:ty, |$keys:ident| $new:expr) => {
        pub(super) struct $type(std::sync::Mutex<$map>);

        /// The map while its thread has it.
        pub(super) struct $own<'a> {
            home: &'a std::sync::Mutex<$map>,
            map: $map,
        }

        impl MapImpl for $type {
            type Handle<'a> = $own<'a>;

            fn new($keys: usize) -> Self {
                Self(std::sync::Mutex::new($new))
            }

            fn handle(&self) -> $own<'_> {
                let mut home = self.0.lock().unwrap_or_else(PoisonError::into_inner);
                $own { home: &self.0, map: std::mem::take(&mut *home) }
            }
        }

        impl Drop for $own<'_> {
            fn drop(&mut self) {
                *self.home.lock().unwrap_or_else(PoisonError::into_inner) =
                    std::mem::take(&mut self.map);
            }
        }

        impl MapHandle for $own<'_> {
            #[inline]
            fn get(&mut self, key: u64) -> Option<u64> {
                self.map.get(&key).copied()
            }

            #[inline]
            fn insert(&mut self, key: u64, value: u64) {
                self.map.insert(key, value);
            }

            #[inline]
            fn remove(&mut self, key: u64) {
                self.map.remove(&key);
            }
        }
    };
}
pub(super) use unshared_map;

unshared_map!(Unshared, Own, Plain, |keys| plain(keys));

macro_rules! shared_map {
    ($(#[$doc:meta])* $type:ident, $inner:ty, |$keys:ident| $new:expr,
     $map:ident, $key:ident, $value:ident, $get:expr, $insert:expr, $remove:expr) => {
        $(#[$doc])*
        pub(super) struct $type($inner);

        impl MapImpl for $type {
            type Handle<'a> = &'a $inner;

            fn new($keys: usize) -> Self {
                Self($new)
            }

            fn handle(&self) -> &$inner {
                &self.0
            }
        }

        impl MapHandle for &$inner {
            #[inline]
            fn get(&mut self, $key: u64) -> Option<u64> {
                let $map = *self;
                $get
            }

            #[inline]
            fn insert(&mut self, $key: u64, $value: u64) {
                let $map = *self;
                $insert;
            }

            #[inline]
            fn remove(&mut self, $key: u64) {
                let $map = *self;
                $remove;
            }
        }
    };
}

pub(super) use shared_map;

shared_map!(
    /// std's map behind std's mutex.
    StdMutex, CachePadded<Mutex<Plain>>, |keys| CachePadded::new(Mutex::new(plain(keys))),
    map, key, value,
    map.lock().unwrap_or_else(PoisonError::into_inner).get(&key).copied(),
    map.lock().unwrap_or_else(PoisonError::into_inner).insert(key, value),
    map.lock().unwrap_or_else(PoisonError::into_inner).remove(&key)
);
shared_map!(
    /// std's map behind std's read-write lock.
    StdRwLock, CachePadded<RwLock<Plain>>,
    |keys| CachePadded::new(RwLock::new(plain(keys))),
    map, key, value,
    map.read().unwrap_or_else(PoisonError::into_inner).get(&key).copied(),
    map.write().unwrap_or_else(PoisonError::into_inner).insert(key, value),
    map.write().unwrap_or_else(PoisonError::into_inner).remove(&key)
);
shared_map!(
    /// dashmap's.
    Dash, DashMap<u64, u64, RandomState>,
    |keys| DashMap::with_capacity_and_hasher(keys, RandomState::default()),
    map, key, value,
    map.get(&key).map(|entry| *entry),
    map.insert(key, value),
    map.remove(&key)
);
shared_map!(
    /// scc's.
    Scc, scc::HashMap<u64, u64, RandomState>,
    |keys| scc::HashMap::with_capacity_and_hasher(keys, RandomState::default()),
    map, key, value,
    map.read_sync(&key, |_, value| *value),
    map.upsert_sync(key, value),
    map.remove_sync(&key)
);
shared_map!(
    /// scc's, whose look-ups take no lock.
    SccIndex, scc::HashIndex<u64, u64, RandomState>,
    |keys| scc::HashIndex::with_capacity_and_hasher(keys, RandomState::default()),
    map, key, value,
    map.peek_with(&key, |_, value| *value),
    match map.entry_sync(key) {
        scc::hash_index::Entry::Occupied(mut entry) => entry.update(value),
        scc::hash_index::Entry::Vacant(entry) => {
            entry.insert_entry(value);
        }
    },
    map.remove_sync(&key)
);
shared_map!(
    /// papaya's.
    Papaya, papaya::HashMap<u64, u64, RandomState>,
    |keys| papaya::HashMap::with_capacity_and_hasher(keys, RandomState::default()),
    map, key, value,
    map.pin().get(&key).copied(),
    map.pin().insert(key, value),
    map.pin().remove(&key)
);
