//! Which collections may be used across `catch_unwind` as they are.
//!
//! Owns: the implementations of [`UnwindSafe`] and [`RefUnwindSafe`].
//!
//! - A collection stays in order whatever user code panics in it (`tests/liars`). So only the types
//!   that users put into it count, as with the collections of `std`.
//! - Events only pass through their queue, which lends no references to them. So their type does
//!   not count, as with the channels of `std`.
//! - `DHash`, `PrivatePages` and `ObjectPool` lend a part to be changed in place, without poison: a
//!   closure that panics leaves the part as it was at that moment. So they have neither trait
//!   through a reference, like `RefCell`.

use super::{
    ActiveSet, Counter, CounterArray, DHash, Entry, EventQueue, FlatHashMap, FlatHashMapIntoIter,
    FlatHashMapIter, FlatHashMapKeys, FlatHashMapValues, Gaps, HashMap, HashMapIntoIter,
    HashMapIter, HashMapKeys, HashMapValues, HashMapView, Histogram, Interval, IntervalRegistry,
    Lru, ObjectPool, OrderedMap, OrderedMapIntoIter, OrderedMapIter, OrderedMapKeys,
    OrderedMapValues, OrderedMapView, OwnedEntry, PageCache, PageStore, Pinned, RangeGuard,
    RangeMap, RangeMapIter, RangeMapView, Registry, Removed, ReplicatedMap, ScalableArc,
    ScalableWeak, Timer, TimerQueue,
};
use crate::namespace::{IdSpace, IdSpaceView};
use std::hash::{BuildHasher, Hash};
use std::panic::{RefUnwindSafe, UnwindSafe};

/// Implements both traits for types that have their contents to themselves.
macro_rules! owners {
    ($([$($generics:tt)*] $type:ty: $($part:ty),*;)*) => {$(
        impl<$($generics)*> UnwindSafe for $type where $($part: UnwindSafe),* {}
        impl<$($generics)*> RefUnwindSafe for $type where $($part: RefUnwindSafe),* {}
    )*};
}

/// Implements both traits for types that lead to contents that others see, too.
macro_rules! handles {
    ($([$($generics:tt)*] $type:ty: $($part:ty),*;)*) => {$(
        impl<$($generics)*> UnwindSafe for $type where $($part: RefUnwindSafe),* {}
        impl<$($generics)*> RefUnwindSafe for $type where $($part: RefUnwindSafe),* {}
    )*};
}

owners! {
    [] Counter: ;
    [] CounterArray: ;
    [] Histogram: ;
    [K, V, S] HashMap<K, V, S>: K, V, S;
    [K, V, S] HashMapIntoIter<K, V, S>: K, V, S;
    [K, V] OrderedMap<K, V>: K, V;
    [K, V] OrderedMapIntoIter<K, V>: K, V;
    [K, V, S] FlatHashMap<K, V, S>: K, V, S;
    [K, V, S] FlatHashMapIntoIter<K, V, S>: K, V, S;
    [K: Send + Sync + 'static, V: Send + Sync + 'static, S: Clone + Send + Sync + 'static]
        ReplicatedMap<K, V, S>: K, V, S;
    [T: PageStore, S: Send + Sync + 'static] PageCache<T, S>: T, T::Key, T::Page, S;
    [V] RangeMap<V>: V;
    [K: Eq + Hash + Send + 'static] Lru<K>: K;
    [T: Send + Sync + 'static] Registry<T>: T;
    [K: Ord + Clone + Send + Sync + 'static, V: Send + Sync + 'static] IntervalRegistry<K, V>: K, V;
    [T: Send + 'static] TimerQueue<T>: T;
    [K: Ord + Clone + Send + Sync + 'static] ActiveSet<K>: K;
    [E: Send + 'static] EventQueue<E>: ;
    ['d, T] IdSpace<'d, T>: T;
}

handles! {
    ['m, K, V, S] HashMapView<'m, K, V, S>: K, V, S;
    ['m, K, V] OrderedMapView<'m, K, V>: K, V;
    ['v, K, V] OrderedMapIter<'v, K, V>: K, V;
    ['v, K, V] OrderedMapKeys<'v, K, V>: K, V;
    ['v, K, V] OrderedMapValues<'v, K, V>: K, V;
    ['v, K, V] HashMapIter<'v, K, V>: K, V;
    ['v, K, V] HashMapKeys<'v, K, V>: K, V;
    ['v, K, V] HashMapValues<'v, K, V>: K, V;
    ['m, K, V, S] FlatHashMapIter<'m, K, V, S>: K, V, S;
    ['m, K, V, S] FlatHashMapKeys<'m, K, V, S>: K, V, S;
    ['m, K, V, S] FlatHashMapValues<'m, K, V, S>: K, V, S;
    ['m, V] RangeMapView<'m, V>: V;
    ['s, T] IdSpaceView<'s, T>: T;
    ['v, V] RangeMapIter<'v, V>: V;
    ['v, V] Gaps<'v, V>: V;
    ['v, V] Removed<'v, V>: V;
    ['v, V] RangeGuard<'v, V>: V;
    ['a, T: PageStore, S: BuildHasher + Send + Sync + 'static]
        Pinned<'a, T, S>: T, T::Key, T::Page, S;
    ['a, T: Send + Sync + 'static] Entry<'a, T>: T;
    [T: Send + Sync + 'static] OwnedEntry<T>: T;
    ['a, K: Ord + Clone + Send + Sync + 'static, V: Send + Sync + 'static] Interval<'a, K, V>: K, V;
    ['a, T: Send + 'static] Timer<'a, T>: T;
    [T: ?Sized] ScalableArc<T>: T;
    [T: ?Sized] ScalableWeak<T>: T;
}

/// Not through a reference; see the module header.
impl<K, Shared, Local, S> UnwindSafe for DHash<K, Shared, Local, S>
where
    K: UnwindSafe + Send + Sync + 'static,
    Shared: UnwindSafe + Send + Sync + 'static,
    Local: UnwindSafe + Send + 'static,
    S: UnwindSafe + Send + Sync + 'static,
{
}

/// Not through a reference; see the module header.
impl<T: UnwindSafe + Send + 'static> UnwindSafe for ObjectPool<T> {}
