//! Late updates: updates of a thread that must not wait and could not append to its log.
//!
//! Owns: their queue, one per hot state. Laws:
//! - late.L1 No user code runs under the queue's mutex, so taking the mutex never waits for user
//!   code.
//! - late.L2 Before a late update returns, it is in the queue, and a full fence orders it before
//!   its thread's later loads. A read calls [`Late::is_empty`] after its own fence.
//! - late.L3 A stamp is taken under the mutex. So an update that is queued after a reader has
//!   counted has a stamp above that reader's cut.
//! - late.L4 Only the lock's holder takes updates out, from the front. If logs have no stamps, it
//!   counts those that it will take ([`Late::count`]) at a moment when all updaters are stopped
//!   (hot_state.C3).
//! - late.L5 After [`Late::seal`] the queue is empty and stays so: the hot state is about to be
//!   freed. An updater that finds the queue sealed loads the object's word again.

use crate::clock::Stamp;
use crate::lock::held;
use crate::percpu::barrier;
use crate::sync::{AtomicBool, Mutex, Ordering};
use std::collections::VecDeque;
use std::sync::PoisonError;

/// The queue of late updates of one hot state.
pub(super) struct Late<Op> {
    /// True if an update is queued; written under the mutex.
    some: AtomicBool,
    queue: Mutex<Queue<Op>>,
}

struct Queue<Op> {
    ops: VecDeque<(Stamp, Op)>,
    is_sealed: bool,
}

impl<Op> Late<Op> {
    pub(super) fn new() -> Self {
        let queue = Queue { ops: VecDeque::new(), is_sealed: false };
        Self { some: AtomicBool::new(false), queue: Mutex::new(queue) }
    }

    fn with<R>(&self, f: impl FnOnce(&mut Queue<Op>) -> R) -> R {
        let _leaf = held::leaf();
        // late.L1: `leaf` makes a debug build refuse user code here; `f` only moves updates.
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        debug_assert!(
            cfg!(manycore_loom) || self.is_empty() == queue.ops.is_empty(),
            "late.L2: the flag is wrong"
        );
        let result = f(&mut queue);
        debug_assert!(!queue.is_sealed || queue.ops.is_empty(), "late.L5: sealed with updates");
        // ORDER: Relaxed; late.L2's fences, or the mutex, order it.
        self.some.store(!queue.ops.is_empty(), Ordering::Relaxed);
        result
    }

    /// Returns true if no update is queued (late.L2).
    pub(super) fn is_empty(&self) -> bool {
        // ORDER: Relaxed; after the caller's fence.
        !self.some.load(Ordering::Relaxed)
    }

    pub(super) fn len(&self) -> usize {
        self.with(|queue| queue.ops.len())
    }

    /// Queues an update, or returns it if the queue is sealed (late.L5).
    pub(super) fn push(&self, op: Op, stamp: impl FnOnce() -> Stamp) -> Result<Stamp, Op> {
        let pushed = self.with(|queue| {
            if queue.is_sealed {
                return Err(op);
            }
            let last = queue.ops.back().map_or(Stamp::ZERO, |(stamp, _)| *stamp);
            let stamp = stamp().max(last);
            debug_assert!(stamp >= last, "late.L3: late updates out of order");
            queue.ops.push_back((stamp, op));
            Ok(stamp)
        });
        // ORDER: late.L2; pairs with the fence of `lock_hot_state`.
        barrier::fence_full();
        pushed
    }

    /// Returns the number of updates with a stamp up to `cut`, for [`pop`](Self::pop) (late.L4).
    pub(super) fn count(&self, cut: Stamp) -> usize {
        if self.is_empty() {
            return 0;
        }
        self.with(|queue| queue.ops.partition_point(|(stamp, _)| *stamp <= cut))
    }

    /// Takes out the oldest update. For the lock's holder.
    pub(super) fn pop(&self) -> Option<(Stamp, Op)> {
        self.with(|queue| queue.ops.pop_front())
    }

    /// Frees the buffer of an empty queue.
    pub(super) fn trim(&self) {
        self.with(|queue| queue.ops.shrink_to_fit());
    }

    /// Seals the queue if it is empty. For the lock's holder.
    pub(super) fn seal(&self) -> bool {
        self.with(|queue| {
            queue.is_sealed = queue.ops.is_empty();
            queue.is_sealed
        })
    }
}

#[cfg(all(test, not(manycore_loom), not(manycore_shuttle)))]
mod tests {
    use super::*;
    use crate::clock::{Clock, FakeClock};
    use crate::oplog::{Deferred, Logs, Op, Ordered};
    use std::sync::Arc;

    fn drain(late: &Late<char>) -> String {
        std::iter::from_fn(|| late.pop()).map(|(_, op)| op).collect()
    }

    #[test]
    fn flag_follows_the_queue_through_every_change() {
        let late = Late::new();
        assert!(late.is_empty());
        for op in ['a', 'b'] {
            assert!(late.push(op, || Stamp::ZERO).is_ok() && !late.is_empty());
        }
        assert!(!late.seal(), "it has updates");
        assert_eq!(late.pop(), Some((Stamp::ZERO, 'a')));
        assert!(!late.is_empty(), "one is left");
        assert_eq!(late.pop(), Some((Stamp::ZERO, 'b')));
        assert!(late.is_empty() && late.seal());
        assert_eq!(late.push('c', || Stamp::ZERO), Err('c'));
        assert!(late.is_empty());
    }

    #[test]
    fn update_with_an_equal_or_earlier_stamp_stays_behind_those_before_it() {
        let (late, time) = (Late::new(), [2, 2, 1, 3].map(Stamp::from_ticks));
        let stamps = ['a', 'b', 'c', 'd'].into_iter().zip(time);
        let given = stamps.map(|(op, time)| late.push(op, || time).map(Stamp::ticks));
        assert_eq!(given.collect::<Vec<_>>(), [Ok(2), Ok(2), Ok(2), Ok(3)]);
        assert_eq!([1, 2, 3].map(|cut| late.count(Stamp::from_ticks(cut))), [0, 3, 4]);
        assert_eq!(drain(&late), "abcd");
    }

    struct Push(char);

    impl Op<String> for Push {
        fn apply(self, text: &mut String) {
            text.push(self.0);
        }
    }

    /// A fake clock moves at each read, so the thread sets its clock back by one between the two
    /// updates. So the late update and the logged one have the same stamp.
    #[test]
    fn late_update_precedes_a_logged_one_with_its_stamp() {
        let time = FakeClock::new();
        let clock = Arc::new(Clock::fake(&time, 0));
        let builder = Deferred::<String, Ordered<Push>>::builder().logs(Logs::Always);
        let object = builder.clock(Arc::clone(&clock)).build(String::new()).unwrap();
        object.append(Push('a'));
        assert_eq!(*object.read(), "a");
        assert!(object.append_late(Push('b')).is_ok());
        assert_eq!(*object.read(), "ab", "no slot has entries");
        assert!(object.append_late(Push('c')).is_ok());
        time.with_skew_on_this_thread(-1);
        object.append(Push('d'));
        time.with_skew_on_this_thread(0);
        assert_eq!(*object.read(), "abcd");
    }
}
