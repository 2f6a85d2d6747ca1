//! Sizes and counts at the end of their range: they are refused with a message, or work like any
//! sufficient size.

use manycore::collections::*;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Demands that the call panics, and says why.
fn overflows<R>(call: impl FnOnce() -> R) {
    let done = catch_unwind(AssertUnwindSafe(|| drop(call())));
    let panic = done.expect_err("there is no room for so many");
    let said = panic.downcast_ref::<&str>().map(ToString::to_string);
    let said = said.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap();
    assert!(said.contains("capacity overflow"), "{said}");
}

#[test]
fn room_that_there_cannot_be_is_refused_and_the_map_goes_on() {
    for size in [usize::MAX, usize::MAX / 2 + 2, usize::MAX / 8] {
        overflows(|| CounterArray::new(size));
        overflows(|| HashMap::<u64, u64>::with_capacity(size));
        overflows(|| HashSet::<u64>::with_capacity(size));
        overflows(|| FlatHashMap::<u64, u64>::with_capacity(size));
        let (map, set, flat) = (HashMap::new(), HashSet::new(), FlatHashMap::new());
        map.insert(0, 0);
        set.insert(0);
        flat.insert(0, 0);
        overflows(|| map.reserve(size));
        overflows(|| set.reserve(size));
        overflows(|| flat.reserve(size));
        for number in 0..1000_u64 {
            map.insert(number, number);
            set.insert(number);
            flat.insert(number, number);
        }
        assert_eq!((map.len(), set.len(), flat.len()), (1000, 1000, 1000));
    }
}

#[test]
fn largest_counts_and_limits_are_as_good_as_none() {
    let queue = EventQueue::unbounded();
    (0..3).for_each(|number| queue.send(number).unwrap());
    let mut events = Vec::new();
    assert_eq!(queue.drain_at_most(usize::MAX, &mut events), 3);
    let lru = Lru::new();
    lru.touch(1);
    assert_eq!(lru.evict(usize::MAX), [1]);
    let pool = ObjectPool::new(usize::MAX, || 0_u8);
    drop((pool.get(), pool.get()));
    let budget = BudgetTree::with_batch(u64::MAX, u64::MAX);
    let child = budget.child_with_batch(u64::MAX, u64::MAX);
    child.try_charge(1 << 40).unwrap();
    child.release(1 << 40);
    let timers = TimerQueue::new();
    timers.insert(u64::MAX, 1).detach();
    timers.insert(5, 2).detach();
    assert_eq!(timers.advance(u64::MAX), [(5, 2), (u64::MAX, 1)]);
    let map = RangeMap::new();
    let view = map.enter();
    view.insert(0..=u64::MAX, 7).unwrap();
    assert_eq!(view.get(u64::MAX), Some(&7));
}
