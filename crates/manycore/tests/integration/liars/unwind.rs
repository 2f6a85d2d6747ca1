//! What may be used across `catch_unwind` without `AssertUnwindSafe`; the compiler checks it.

use manycore::collections::{
    Counter, CounterArray, DHash, EventQueue, HashMap, HashMapIter, HashMapView, Interval,
    IntervalRegistry, Lru, ObjectPool, PageCache, PageStore, Pinned, PrivatePages, RangeMap,
    RangeMapIter, RangeMapView, Registry, ReplicatedMap, ScalableArc, Timer, TimerQueue,
};
use manycore::namespace::IdSpace;
use std::cell::Cell;
use std::panic::{RefUnwindSafe, UnwindSafe, catch_unwind};

struct Store;

impl PageStore for Store {
    type Key = u32;
    type Page = String;
    type Error = ();

    fn load(&self, _: &u32) -> Result<String, ()> {
        Ok(String::new())
    }
    fn write_back(&self, _: &u32, _: &String) -> Result<(), ()> {
        Ok(())
    }
}

fn unwinds<T: UnwindSafe + RefUnwindSafe>() {}

#[test]
fn collections_that_stay_in_order_may_cross_a_catch() {
    unwinds::<Counter>();
    unwinds::<CounterArray>();
    unwinds::<HashMap<String, String>>();
    unwinds::<HashMapView<'_, String, String>>();
    unwinds::<HashMapIter<'_, String, String>>();
    unwinds::<ReplicatedMap<String, String>>();
    unwinds::<RangeMap<String>>();
    unwinds::<RangeMapView<'_, String>>();
    unwinds::<RangeMapIter<'_, String>>();
    unwinds::<PageCache<Store>>();
    unwinds::<Pinned<'_, Store>>();
    unwinds::<Lru<String>>();
    unwinds::<Registry<String>>();
    unwinds::<IntervalRegistry<u32, String>>();
    unwinds::<Interval<'_, u32, String>>();
    unwinds::<TimerQueue<String>>();
    unwinds::<Timer<'_, String>>();
    unwinds::<EventQueue<String>>();
    unwinds::<ScalableArc<String>>();
    unwinds::<IdSpace<'_, String>>();
    let map = HashMap::new();
    let view = map.enter();
    view.insert(1, "one");
    assert!(catch_unwind(|| view.compute(1, |_| panic!("a closure's own"))).is_err());
    assert_eq!(view.get(&1), Some(&"one"));
}

/// As with `RefCell`, a closure that panics may leave a part of these half changed.
#[test]
fn collections_that_lend_parts_to_change_do_not() {
    /// One of its impls applies to every type, the other to those that have the trait: which one is
    /// meant is clear only for those that do not.
    trait Not<A> {
        fn is_clear() {}
    }
    impl<T: ?Sized> Not<()> for T {}
    impl<T: ?Sized + RefUnwindSafe> Not<u8> for T {}
    <DHash<u32, String, u32> as Not<_>>::is_clear();
    <ObjectPool<String> as Not<_>>::is_clear();
    <PrivatePages<Store> as Not<_>>::is_clear();
    <HashMap<u32, Cell<u32>> as Not<_>>::is_clear();
}
