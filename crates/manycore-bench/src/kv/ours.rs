//! The library's cache.

use std::hint::black_box;

use foldhash::{fast::RandomState, quality};
use manycore_cache::{Cache, Eviction};

use super::{Key, KvHandle, KvImpl, Value};

/// `manycore-cache`: a policy by number, and whether reads come in batches.
pub(super) struct Ours<const CLOCK: bool, const BATCHED: bool>(Cache<Key, Value, RandomState>);

impl<const CLOCK: bool, const BATCHED: bool> KvImpl for Ours<CLOCK, BATCHED> {
    type Handle<'a> = &'a Self;

    fn new(capacity: usize, keys: usize) -> Self {
        let eviction = if CLOCK { Eviction::Clock } else { Eviction::ScanResistant };
        let builder = Cache::builder(capacity as u64).initial_entries(capacity.min(keys));
        let builder = builder.hasher(RandomState::default()).eviction(eviction);
        Self(builder.build().expect("the settings are right"))
    }

    fn handle(&self) -> &Self {
        self
    }
}

impl<const CLOCK: bool, const BATCHED: bool> KvHandle for &Ours<CLOCK, BATCHED> {
    const BATCHED: bool = BATCHED;

    #[inline]
    fn get(&mut self, key: &Key) -> Option<u64> {
        self.0.get(key).map(|value| super::word_of(&value))
    }

    #[inline]
    fn set(&mut self, key: Key, value: Value) {
        self.0.insert(key, value);
    }

    fn get_many(&mut self, keys: &[Key], mut each: impl FnMut(usize, Option<u64>)) {
        self.0.get_many(keys, |index, entry| {
            each(index, entry.map(|entry| super::word_of(entry.value())));
        });
    }
}

/// A cache of bytes by bytes, whose lengths the compiler does not know: what `mc_cache` wraps, and
/// a value is copied out as there.
pub(super) struct Bytes(Cache<Owned, Owned, quality::RandomState>);

type Owned = Box<[u8]>;

impl KvImpl for Bytes {
    type Handle<'a> = &'a Self;

    fn new(capacity: usize, _: usize) -> Self {
        let builder = Cache::builder(super::bytes_of(capacity));
        let weigh = |key: &Owned, value: &Owned| key.len() + value.len();
        let builder = builder.hasher(quality::RandomState::default()).byte_weigher(weigh);
        Self(builder.build().expect("the settings are right"))
    }

    fn handle(&self) -> &Self {
        self
    }
}

impl KvHandle for &Bytes {
    #[inline]
    fn get(&mut self, key: &Key) -> Option<u64> {
        let mut buffer: Value = [0; 32];
        let found = self.0.get(&key[..black_box(key.len())])?;
        buffer.get_mut(..found.len())?.copy_from_slice(&found);
        Some(super::word_of(&buffer))
    }

    #[inline]
    fn set(&mut self, key: Key, value: Value) {
        self.0.insert(key[..].into(), value[..].into());
    }
}
