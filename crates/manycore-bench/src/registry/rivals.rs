//! Registries as they are commonly built. All maps get a fast hash function. They also get enough
//! room that an almost empty one does not shrink and grow.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use crossbeam_utils::CachePadded;
use foldhash::fast::RandomState;
use slab::Slab;

use super::{RegistryHandle, RegistryImpl};

/// The baseline: the slab lives in its only thread's handle.
pub(super) struct Unshared;

impl RegistryImpl for Unshared {
    type Handle<'a> = Slab<u64>;

    fn new(_: usize) -> Self {
        Self
    }

    fn handle(&self, _: usize) -> Slab<u64> {
        Slab::new()
    }
}

impl RegistryHandle for Slab<u64> {
    type Entry = usize;

    #[inline]
    fn register(&mut self, value: u64) -> usize {
        self.insert(value)
    }

    #[inline]
    fn unregister(&mut self, entry: usize) {
        self.remove(entry);
    }

    fn for_each(&mut self, f: impl FnMut(u64)) {
        self.iter().map(|(_, value)| *value).for_each(f);
    }
}

/// A lock around a slab.
trait Exclusive {
    fn with<R>(&self, f: impl FnOnce(&mut Slab<u64>) -> R) -> R;
}

impl Exclusive for Mutex<Slab<u64>> {
    #[inline]
    fn with<R>(&self, f: impl FnOnce(&mut Slab<u64>) -> R) -> R {
        f(&mut self.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Exclusive for parking_lot::Mutex<Slab<u64>> {
    #[inline]
    fn with<R>(&self, f: impl FnOnce(&mut Slab<u64>) -> R) -> R {
        f(&mut self.lock())
    }
}

/// The handle of a slab behind one lock.
pub(super) struct Locked<'a, X>(&'a X);

impl<X: Exclusive> RegistryHandle for Locked<'_, X> {
    type Entry = usize;

    #[inline]
    fn register(&mut self, value: u64) -> usize {
        self.0.with(|slab| slab.insert(value))
    }

    #[inline]
    fn unregister(&mut self, entry: usize) {
        self.0.with(|slab| slab.remove(entry));
    }

    fn for_each(&mut self, f: impl FnMut(u64)) {
        self.0.with(|slab| slab.for_each(f));
    }
}

/// A slab behind std's lock.
pub(super) struct MutexSlab(CachePadded<Mutex<Slab<u64>>>);

impl RegistryImpl for MutexSlab {
    type Handle<'a> = Locked<'a, Mutex<Slab<u64>>>;

    fn new(_: usize) -> Self {
        Self(CachePadded::new(Mutex::new(Slab::new())))
    }

    fn handle(&self, _: usize) -> Self::Handle<'_> {
        Locked(&self.0)
    }
}

/// A slab behind parking_lot's lock.
pub(super) struct ParkingLotSlab(CachePadded<parking_lot::Mutex<Slab<u64>>>);

impl RegistryImpl for ParkingLotSlab {
    type Handle<'a> = Locked<'a, parking_lot::Mutex<Slab<u64>>>;

    fn new(_: usize) -> Self {
        Self(CachePadded::new(parking_lot::Mutex::new(Slab::new())))
    }

    fn handle(&self, _: usize) -> Self::Handle<'_> {
        Locked(&self.0)
    }
}

/// One lock and slab for each thread.
pub(super) struct HandSharded(Box<[CachePadded<Mutex<Slab<u64>>>]>);

impl RegistryImpl for HandSharded {
    type Handle<'a> = Sharded<'a>;

    fn new(threads: usize) -> Self {
        Self((0..threads).map(|_| CachePadded::new(Mutex::new(Slab::new()))).collect())
    }

    fn handle(&self, thread: usize) -> Sharded<'_> {
        Sharded { own: &self.0[thread], shards: &self.0 }
    }
}

/// A thread's own shard, and all of them for walks.
pub(super) struct Sharded<'a> {
    own: &'a Mutex<Slab<u64>>,
    shards: &'a [CachePadded<Mutex<Slab<u64>>>],
}

impl RegistryHandle for Sharded<'_> {
    type Entry = usize;

    #[inline]
    fn register(&mut self, value: u64) -> usize {
        self.own.with(|slab| slab.insert(value))
    }

    #[inline]
    fn unregister(&mut self, entry: usize) {
        self.own.with(|slab| slab.remove(entry));
    }

    fn for_each(&mut self, mut f: impl FnMut(u64)) {
        for shard in self.shards {
            shard.with(|slab| slab.for_each(&mut f));
        }
    }
}

type SccMap = scc::HashMap<u64, u64, RandomState>;
type PapayaMap = papaya::HashMap<u64, u64, RandomState>;

/// Entries that a map holds without growing.
const ROOM: usize = 1024;

/// Names for entries where the map does not give any: the thread, and a number of its own.
struct Names {
    next: u64,
}

impl Names {
    fn of(thread: usize) -> Self {
        Self { next: (thread as u64) << 40 }
    }

    #[inline]
    fn take(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}

/// A thread's way to a map, with names for its entries.
pub(super) struct Named<'a, M> {
    map: &'a M,
    names: Names,
}

macro_rules! registry_in_a_map {
    ($type:ident, $map:ty, $new:expr) => {
        impl RegistryImpl for $type {
            type Handle<'a> = Named<'a, $map>;

            fn new(_: usize) -> Self {
                Self($new)
            }

            fn handle(&self, thread: usize) -> Named<'_, $map> {
                Named { map: &self.0, names: Names::of(thread) }
            }
        }
    };
}

/// std's map behind std's lock.
pub(super) struct MutexMap(CachePadded<Mutex<HashMap<u64, u64, RandomState>>>);

registry_in_a_map!(
    MutexMap,
    Mutex<HashMap<u64, u64, RandomState>>,
    CachePadded::new(Mutex::new(HashMap::with_capacity_and_hasher(ROOM, RandomState::default())))
);

impl RegistryHandle for Named<'_, Mutex<HashMap<u64, u64, RandomState>>> {
    type Entry = u64;

    #[inline]
    fn register(&mut self, value: u64) -> u64 {
        let name = self.names.take();
        self.map.lock().unwrap_or_else(PoisonError::into_inner).insert(name, value);
        name
    }

    #[inline]
    fn unregister(&mut self, name: u64) {
        self.map.lock().unwrap_or_else(PoisonError::into_inner).remove(&name);
    }

    fn for_each(&mut self, f: impl FnMut(u64)) {
        let map = self.map.lock().unwrap_or_else(PoisonError::into_inner);
        map.values().copied().for_each(f);
    }
}

/// scc's map.
pub(super) struct Scc(SccMap);

registry_in_a_map!(Scc, SccMap, SccMap::with_capacity_and_hasher(ROOM, RandomState::default()));

impl RegistryHandle for Named<'_, SccMap> {
    type Entry = u64;

    #[inline]
    fn register(&mut self, value: u64) -> u64 {
        let name = self.names.take();
        let _ok_since_names_are_new = self.map.insert_sync(name, value);
        name
    }

    #[inline]
    fn unregister(&mut self, name: u64) {
        self.map.remove_sync(&name);
    }

    fn for_each(&mut self, mut f: impl FnMut(u64)) {
        self.map.iter_sync(|_, value| {
            f(*value);
            true
        });
    }
}

/// papaya's map.
pub(super) struct Papaya(PapayaMap);

registry_in_a_map!(
    Papaya,
    PapayaMap,
    PapayaMap::with_capacity_and_hasher(ROOM, RandomState::default())
);

impl RegistryHandle for Named<'_, PapayaMap> {
    type Entry = u64;

    #[inline]
    fn register(&mut self, value: u64) -> u64 {
        let name = self.names.take();
        self.map.pin().insert(name, value);
        name
    }

    #[inline]
    fn unregister(&mut self, name: u64) {
        self.map.pin().remove(&name);
    }

    fn for_each(&mut self, f: impl FnMut(u64)) {
        self.map.pin().values().copied().for_each(f);
    }
}
