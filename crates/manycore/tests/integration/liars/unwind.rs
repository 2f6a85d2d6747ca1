//! Types that may be used across `catch_unwind` without `AssertUnwindSafe`; the compiler checks it.

use crate::common::kinds::Add;
use manycore::cluster::Adaptive;
use manycore::collections::*;
use manycore::ldu::{DeferredSet, Element, Structure};
use manycore::namespace::{IdSpace, IdSpaceView};
use manycore::oplog::{Commuting, Deferred, Op};
use std::cell::{Cell, RefCell};
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

/// A structure that a panic may leave half changed.
struct Half(RefCell<u64>);

impl Structure<Element<u8>> for Half {
    fn insert(&mut self, _: &Element<u8>) {}
    fn remove(&mut self, _: &Element<u8>) {}
}

impl Op<Half> for Add {
    fn apply(self, half: &mut Half) {
        *half.0.get_mut() += self.0;
    }
}

fn unwinds<T: UnwindSafe + RefUnwindSafe>() {}

#[test]
fn collections_that_stay_in_order_may_cross_a_catch() {
    unwinds::<Active<'_, u32>>();
    unwinds::<ActiveSet<u32>>();
    unwinds::<BudgetTree>();
    unwinds::<Charge>();
    unwinds::<Counter>();
    unwinds::<CounterArray>();
    unwinds::<EventQueue<Cell<u8>>>();
    unwinds::<EventQueueBuilder<Cell<u8>>>();
    unwinds::<EventQueueIntoIter<Cell<u8>>>();
    unwinds::<EventQueueIter<'_, Cell<u8>>>();
    unwinds::<EventQueueTryIter<'_, Cell<u8>>>();
    unwinds::<Exceeded>();
    unwinds::<Gaps<'_, String>>();
    unwinds::<Gauge>();
    unwinds::<Histogram>();
    unwinds::<HistogramBuckets<'_>>();
    unwinds::<HistogramSnapshot>();
    unwinds::<Interval<'_, u32, String>>();
    unwinds::<IntervalRegistry<u32, String>>();
    unwinds::<IntervalRegistryBuilder<u32, String>>();
    unwinds::<Lru<String>>();
    unwinds::<LruBuilder<String>>();
    unwinds::<Entry<'_, String>>();
    unwinds::<OwnedEntry<String>>();
    unwinds::<PageCache<Store>>();
    unwinds::<OwnedActive<u32>>();
    unwinds::<OwnedInterval<u32, String>>();
    unwinds::<OwnedPinned<Store>>();
    unwinds::<OwnedTimer<String>>();
    unwinds::<Pinned<'_, Store>>();
    unwinds::<PinError<String>>();
    unwinds::<RangeError>();
    unwinds::<RangeGuard<'_, String>>();
    unwinds::<RangeMap<String>>();
    unwinds::<RangeMapIter<'_, String>>();
    unwinds::<RangeMapView<'_, String>>();
    unwinds::<RecvError>();
    unwinds::<RecvFuture<'_, Cell<u8>>>();
    unwinds::<Receiver<Cell<u8>>>();
    unwinds::<Registry<String>>();
    unwinds::<RegistryBuilder<String>>();
    unwinds::<Removed<'_, String>>();
    unwinds::<ReplicatedMap<String, String>>();
    unwinds::<ScalableArc<String>>();
    unwinds::<ScalableWeak<String>>();
    unwinds::<SendError<String>>();
    unwinds::<SendFuture<'_, String>>();
    unwinds::<Sender<Cell<u8>>>();
    unwinds::<Timer<'_, String>>();
    unwinds::<TimerQueue<String>>();
    unwinds::<IdSpace<'_, String>>();
    unwinds::<IdSpaceView<'_, String>>();
}

#[test]
fn maps_that_stay_in_order_may_cross_a_catch() {
    unwinds::<FlatHashMap<u32, u32>>();
    unwinds::<FlatHashMapIntoIter<u32, u32>>();
    unwinds::<FlatHashMapIter<'_, u32, u32>>();
    unwinds::<FlatHashMapKeys<'_, u32, u32>>();
    unwinds::<FlatHashMapValues<'_, u32, u32>>();
    unwinds::<HashMap<String, String>>();
    unwinds::<HashMapBuilder<String, String>>();
    unwinds::<HashMapIntoIter<String, String>>();
    unwinds::<HashMapIter<'_, String, String>>();
    unwinds::<HashMapKeys<'_, String, String>>();
    unwinds::<HashMapValues<'_, String, String>>();
    unwinds::<HashMapOwnedView<'_, String, String>>();
    unwinds::<HashMapView<'_, String, String>>();
    unwinds::<HashSet<String>>();
    unwinds::<HashSetIntoIter<String>>();
    unwinds::<HashSetIter<'_, String>>();
    unwinds::<HashSetView<'_, String>>();
    unwinds::<OrderedMap<String, String>>();
    unwinds::<OrderedMapIntoIter<String, String>>();
    unwinds::<OrderedMapIter<'_, String, String>>();
    unwinds::<OrderedMapKeys<'_, String, String>>();
    unwinds::<OrderedMapValues<'_, String, String>>();
    unwinds::<OrderedMapView<'_, String, String>>();
    let map = HashMap::new();
    let view = map.enter();
    view.insert(1, "one");
    assert!(catch_unwind(|| view.compute(1, |_| panic!("a closure's own"))).is_err());
    assert_eq!(view.get(&1), Some(&"one"));
}

/// Like `Mutex`, these types have poison.
#[test]
fn objects_that_are_poisoned_may_cross_a_catch_with_any_value() {
    unwinds::<Deferred<Half, Commuting<Add>>>();
    unwinds::<Adaptive<u64, Commuting<Add>>>();
    unwinds::<DeferredSet<Half, Element<u8>>>();
}

/// As with `RefCell`, a closure that panics may leave a part of these types half changed.
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
    <ObjectPoolBuilder<String> as Not<_>>::is_clear();
    <OwnedPooled<String> as Not<_>>::is_clear();
    <PoolFuture<'_, String> as Not<_>>::is_clear();
    <Pooled<'_, String> as Not<_>>::is_clear();
    <PrivatePage<'_, Store> as Not<_>>::is_clear();
    <ObjectPool<String> as Not<_>>::is_clear();
    <PrivatePages<Store> as Not<_>>::is_clear();
    <Reclaimer as Not<_>>::is_clear(); // it has a closure of the user's
    <HashMap<u32, Cell<u32>> as Not<_>>::is_clear();
}
