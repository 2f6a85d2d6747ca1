//! Ranges as they are commonly kept: an ordered map by first key.

use std::{
    collections::BTreeMap,
    ops::Bound::Included,
    sync::{Condvar, Mutex, MutexGuard, PoisonError, RwLock},
};

use crossbeam_skiplist::SkipMap;

use super::RangesImpl;

/// Last key and value by first key.
#[derive(Default)]
struct Ordered(BTreeMap<u64, (u64, u64)>);

impl Ordered {
    fn get(&self, key: u64) -> Option<u64> {
        let (_, (last, value)) = self.0.range(..=key).next_back()?;
        (*last >= key).then_some(*value)
    }

    fn insert(&mut self, first: u64, last: u64, value: u64) -> bool {
        let below = self.0.range(..=last).next_back();
        let is_free = below.is_none_or(|(_, (end, _))| *end < first);
        if is_free {
            self.0.insert(first, (last, value));
        }
        is_free
    }

    fn remove(&mut self, first: u64) {
        self.0.remove(&first);
    }
}

/// One thread's own.
pub(super) struct Unshared(Mutex<Ordered>);

impl Unshared {
    /// A free mutex costs the baseline two locked instructions; `Sync` wants something.
    fn lock(&self) -> MutexGuard<'_, Ordered> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RangesImpl for Unshared {
    fn new() -> Self {
        Self(Mutex::default())
    }

    fn get(&self, key: u64) -> Option<u64> {
        self.lock().get(key)
    }

    fn insert(&self, first: u64, last: u64, value: u64) -> bool {
        self.lock().insert(first, last, value)
    }

    fn remove(&self, first: u64, _: u64) {
        self.lock().remove(first);
    }
}

/// Behind std's read-write lock.
pub(super) struct StdRwLock(RwLock<Ordered>);

impl RangesImpl for StdRwLock {
    fn new() -> Self {
        Self(RwLock::default())
    }

    fn get(&self, key: u64) -> Option<u64> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(key)
    }

    fn insert(&self, first: u64, last: u64, value: u64) -> bool {
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(first, last, value)
    }

    fn remove(&self, first: u64, _: u64) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).remove(first);
    }
}

/// The crate `rangemap`.
pub(super) struct ParkingLotRangeMap(parking_lot::RwLock<rangemap::RangeMap<u64, u64>>);

impl RangesImpl for ParkingLotRangeMap {
    fn new() -> Self {
        Self(parking_lot::RwLock::default())
    }

    fn get(&self, key: u64) -> Option<u64> {
        self.0.read().get(&key).copied()
    }

    fn insert(&self, first: u64, last: u64, value: u64) -> bool {
        let mut map = self.0.write();
        let is_free = !map.overlaps(&(first..last + 1));
        if is_free {
            map.insert(first..last + 1, value);
        }
        is_free
    }

    fn remove(&self, first: u64, last: u64) {
        self.0.write().remove(first..last + 1);
    }
}

/// A lock-free list by first key.
pub(super) struct SkipList(SkipMap<u64, (u64, u64)>);

impl RangesImpl for SkipList {
    fn new() -> Self {
        Self(SkipMap::new())
    }

    fn get(&self, key: u64) -> Option<u64> {
        let below = self.0.upper_bound(Included(&key))?;
        let (last, value) = *below.value();
        (last >= key).then_some(value)
    }

    fn insert(&self, first: u64, last: u64, value: u64) -> bool {
        let below = self.0.upper_bound(Included(&last));
        let is_free = below.is_none_or(|below| below.value().0 < first);
        if is_free {
            self.0.insert(first, (last, value));
        }
        is_free
    }

    fn remove(&self, first: u64, _: u64) {
        self.0.remove(&first);
    }
}

/// The list under a range lock: the locked ranges, and what their waiters wait for.
pub(super) struct RangeLocked {
    list: SkipList,
    locked: Mutex<Vec<(u64, u64)>>,
    unlocked: Condvar,
}

impl RangeLocked {
    fn with<R>(&self, first: u64, last: u64, f: impl FnOnce(&SkipList) -> R) -> R {
        let meets = |range: &(u64, u64)| range.0 <= last && first <= range.1;
        let mut locked = self.locked.lock().unwrap_or_else(PoisonError::into_inner);
        while locked.iter().any(meets) {
            locked = self.unlocked.wait(locked).unwrap_or_else(PoisonError::into_inner);
        }
        locked.push((first, last));
        drop(locked);
        let result = f(&self.list);
        let mut locked = self.locked.lock().unwrap_or_else(PoisonError::into_inner);
        locked.retain(|range| *range != (first, last));
        drop(locked);
        self.unlocked.notify_all();
        result
    }
}

impl RangesImpl for RangeLocked {
    fn new() -> Self {
        Self { list: SkipList::new(), locked: Mutex::default(), unlocked: Condvar::new() }
    }

    fn get(&self, key: u64) -> Option<u64> {
        self.list.get(key)
    }

    fn insert(&self, first: u64, last: u64, value: u64) -> bool {
        self.with(first, last, |list| list.insert(first, last, value))
    }

    fn remove(&self, first: u64, last: u64) {
        self.with(first, last, |list| list.remove(first, last));
    }
}
