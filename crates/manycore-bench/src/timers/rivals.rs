//! Timers as they are commonly kept: a sequential queue behind a lock.

use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use crossbeam_utils::CachePadded;
use hierarchical_hash_wheel_timer::wheels::quad_wheel::{PruneDecision, QuadWheelWithOverflow};
use slab::Slab;

use super::{TimersHandle, TimersImpl};

/// A timer's place and its number: places are used again.
pub(super) type Key = (usize, u64);

/// A queue of timers for one thread at a time.
pub(super) trait Sequential: Default + Send + 'static {
    fn insert(&mut self, deadline: u64, number: u64) -> Key;
    fn cancel(&mut self, timer: Key) -> bool;
    fn advance(&mut self, now: u64, f: impl FnMut(u64));
}

const LEVELS: usize = 4;
const SLOTS: usize = 256;

/// A timer in the wheel.
struct Set {
    deadline: u64,
    number: u64,
    slot: usize,
    at: usize,
}

/// Four wheels of 256 slots, the lowest of one tick each, that turn tick by tick, as in kernels.
pub(super) struct Wheel {
    now: u64,
    timers: Slab<Set>,
    slots: Vec<Vec<usize>>,
}

impl Default for Wheel {
    fn default() -> Self {
        let slots = (0..LEVELS * SLOTS).map(|_| Vec::new()).collect();
        Self { now: 0, timers: Slab::new(), slots }
    }
}

impl Wheel {
    /// Puts a timer into the wheel that turns within the time it has left.
    fn put(&mut self, place: usize) {
        let set = &mut self.timers[place];
        let left = set.deadline.saturating_sub(self.now).max(1);
        let level = (left.ilog2() as usize / 8).min(LEVELS - 1);
        set.slot = level * SLOTS + (set.deadline >> (8 * level)) as usize % SLOTS;
        set.at = self.slots[set.slot].len();
        self.slots[set.slot].push(place);
    }

    fn turn(&mut self, f: &mut impl FnMut(u64)) {
        self.now += 1;
        for level in (1..LEVELS).rev() {
            if self.now.trailing_zeros() as usize >= 8 * level {
                let slot = level * SLOTS + (self.now >> (8 * level)) as usize % SLOTS;
                for place in std::mem::take(&mut self.slots[slot]) {
                    self.put(place);
                }
            }
        }
        let mut due = std::mem::take(&mut self.slots[self.now as usize % SLOTS]);
        due.drain(..).for_each(|place| f(self.timers.remove(place).number));
        self.slots[self.now as usize % SLOTS] = due; // its memory
    }
}

impl Sequential for Wheel {
    #[inline]
    fn insert(&mut self, deadline: u64, number: u64) -> Key {
        let deadline = deadline.max(self.now + 1);
        let place = self.timers.insert(Set { deadline, number, slot: 0, at: 0 });
        self.put(place);
        (place, number)
    }

    #[inline]
    fn cancel(&mut self, (place, number): Key) -> bool {
        if self.timers.get(place).is_none_or(|set| set.number != number) {
            return false;
        }
        let Set { slot, at, .. } = self.timers.remove(place);
        self.slots[slot].swap_remove(at);
        if let Some(moved) = self.slots[slot].get(at) {
            self.timers[*moved].at = at;
        }
        true
    }

    fn advance(&mut self, now: u64, mut f: impl FnMut(u64)) {
        while self.now < now {
            self.turn(&mut f);
        }
    }
}

/// A heap, and which of its timers are still set.
#[derive(Default)]
pub(super) struct Heap {
    order: BinaryHeap<Reverse<(u64, usize, u64)>>,
    timers: Slab<u64>,
}

/// Cancelled timers that the heap keeps in any case.
const SLACK: usize = 64;

impl Sequential for Heap {
    #[inline]
    fn insert(&mut self, deadline: u64, number: u64) -> Key {
        let place = self.timers.insert(number);
        self.order.push(Reverse((deadline, place, number)));
        (place, number)
    }

    #[inline]
    fn cancel(&mut self, (place, number): Key) -> bool {
        let is_set = self.timers.get(place) == Some(&number);
        if is_set {
            self.timers.remove(place);
            if self.order.len() > 2 * self.timers.len() + SLACK {
                let timers = &self.timers;
                self.order.retain(|Reverse((_, place, number))| timers.get(*place) == Some(number));
            }
        }
        is_set
    }

    fn advance(&mut self, now: u64, mut f: impl FnMut(u64)) {
        while let Some(Reverse((deadline, place, number))) = self.order.peek().copied() {
            if deadline > now {
                return;
            }
            self.order.pop();
            if self.timers.get(place) == Some(&number) {
                self.timers.remove(place);
                f(number);
            }
        }
    }
}

/// The baseline: the wheel lives in its only thread's handle.
pub(super) struct Unshared;

impl TimersImpl for Unshared {
    type Handle<'a> = Wheel;

    fn new() -> Self {
        Self
    }

    fn handle(&self) -> Wheel {
        Wheel::default()
    }
}

impl TimersHandle for Wheel {
    type Timer = Key;

    #[inline]
    fn insert(&mut self, deadline: u64, number: u64) -> Key {
        Sequential::insert(self, deadline, number)
    }

    #[inline]
    fn cancel(&mut self, timer: Key) -> bool {
        Sequential::cancel(self, timer)
    }

    fn advance(&mut self, now: u64, f: impl FnMut(u64)) {
        Sequential::advance(self, now, f);
    }
}

/// A lock around a queue of timers.
pub(super) trait Exclusive: Sync {
    type Queue: Sequential;
    fn with<R>(&self, f: impl FnOnce(&mut Self::Queue) -> R) -> R;
}

impl<Q: Sequential> Exclusive for Mutex<Q> {
    type Queue = Q;

    #[inline]
    fn with<R>(&self, f: impl FnOnce(&mut Q) -> R) -> R {
        f(&mut self.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl<Q: Sequential> Exclusive for parking_lot::Mutex<Q> {
    type Queue = Q;

    #[inline]
    fn with<R>(&self, f: impl FnOnce(&mut Q) -> R) -> R {
        f(&mut self.lock())
    }
}

/// A queue of timers behind one lock.
pub(super) struct Locked<X>(CachePadded<X>);

pub(super) type MutexWheel = Locked<Mutex<Wheel>>;
pub(super) type ParkingLotWheel = Locked<parking_lot::Mutex<Wheel>>;
pub(super) type MutexHeap = Locked<Mutex<Heap>>;

impl<X: Exclusive + Default + 'static> TimersImpl for Locked<X> {
    type Handle<'a> = Shared<'a, X>;

    fn new() -> Self {
        Self(CachePadded::new(X::default()))
    }

    fn handle(&self) -> Shared<'_, X> {
        Shared(&self.0)
    }
}

/// The handle of a queue behind one lock.
pub(super) struct Shared<'a, X>(&'a X);

impl<X: Exclusive> TimersHandle for Shared<'_, X> {
    type Timer = Key;

    #[inline]
    fn insert(&mut self, deadline: u64, number: u64) -> Key {
        self.0.with(|queue| queue.insert(deadline, number))
    }

    #[inline]
    fn cancel(&mut self, timer: Key) -> bool {
        self.0.with(|queue| queue.cancel(timer))
    }

    fn advance(&mut self, now: u64, f: impl FnMut(u64)) {
        self.0.with(|queue| queue.advance(now, f));
    }
}

/// A timer of the crate's wheel: its number, and whether it has fired or was cancelled.
type Counted = (u64, AtomicBool);

/// The crate's wheel, by ticks of a millisecond. Its cancellable form is for one thread; in this
/// one, a timer that its owner has dropped is skipped.
pub(super) struct Pruned {
    now: u64,
    wheel: QuadWheelWithOverflow<Weak<Counted>>,
}

fn prune(timer: &Weak<Counted>) -> PruneDecision {
    if timer.strong_count() > 0 { PruneDecision::Keep } else { PruneDecision::Drop }
}

/// The crate's wheel behind std's lock.
pub(super) struct HashWheel(CachePadded<Mutex<Pruned>>);

impl TimersImpl for HashWheel {
    type Handle<'a> = &'a HashWheel;

    fn new() -> Self {
        let wheel = QuadWheelWithOverflow::new(prune);
        Self(CachePadded::new(Mutex::new(Pruned { now: 0, wheel })))
    }

    fn handle(&self) -> &Self {
        self
    }
}

impl TimersHandle for &HashWheel {
    type Timer = Arc<Counted>;

    #[inline]
    fn insert(&mut self, deadline: u64, number: u64) -> Arc<Counted> {
        let timer = Arc::new((number, AtomicBool::new(false)));
        let weak = Arc::downgrade(&timer);
        let mut timers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let left = Duration::from_millis(deadline.saturating_sub(timers.now).max(1));
        timers.wheel.insert_with_delay(weak, left).expect("it is ahead");
        timer
    }

    #[inline]
    fn cancel(&mut self, timer: Arc<Counted>) -> bool {
        !timer.1.swap(true, Relaxed)
    }

    fn advance(&mut self, now: u64, mut f: impl FnMut(u64)) {
        let mut timers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while timers.now < now {
            timers.now += 1;
            let due = timers.wheel.tick();
            let due = due.iter().filter_map(Weak::upgrade);
            due.filter(|timer| !timer.1.swap(true, Relaxed)).for_each(|timer| f(timer.0));
        }
    }
}
