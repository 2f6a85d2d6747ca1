//! Late updates: those of a thread that must not wait and could not append to its log.
//!
//! Owns: their queue, one per hot state. Laws:
//! - oplog.L1 No user code runs under the queue's mutex, so taking it never waits for user code.
//! - oplog.L2 A late update is in the queue, and ordered before its thread's later loads by a full
//!   fence, before it returns. A read calls [`Late::is_empty`] after its own fence.
//! - oplog.L3 A stamp is taken under the mutex. So an update queued after a reader has counted has
//!   a stamp above that reader's cut.
//! - oplog.L4 Only the lock's holder takes updates out, from the front. Where logs have no stamps,
//!   it counts those it will take ([`Late::count`]) at a moment when all updaters are stopped
//!   (oplog.C3).
//! - oplog.L5 After [`Late::seal`] the queue is empty and stays so: the hot state is about to be
//!   freed, and an updater that finds it sealed loads the object's word again.

use crate::clock::Stamp;
use crate::lock::held;
use crate::percpu::barrier;
use crate::sync::{AtomicBool, Mutex, Ordering};
use std::collections::VecDeque;
use std::sync::PoisonError;

/// See the module header.
pub(super) struct Late<Op> {
    /// Whether an update is queued; written under the mutex.
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
        // oplog.L1: `leaf` makes a debug build refuse user code here; `f` only moves updates.
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        debug_assert_eq!(self.is_empty(), queue.ops.is_empty(), "oplog.L2: the flag is wrong");
        let result = f(&mut queue);
        debug_assert!(!queue.is_sealed || queue.ops.is_empty(), "oplog.L5: sealed with updates");
        // ORDER: Relaxed; oplog.L2's fences, or the mutex, order it.
        self.some.store(!queue.ops.is_empty(), Ordering::Relaxed);
        result
    }

    /// Whether no update is queued (oplog.L2).
    pub(super) fn is_empty(&self) -> bool {
        // ORDER: Relaxed; after the caller's fence.
        !self.some.load(Ordering::Relaxed)
    }

    pub(super) fn len(&self) -> usize {
        self.with(|queue| queue.ops.len())
    }

    /// Queues an update, or returns it if the queue is sealed (oplog.L5).
    pub(super) fn push(&self, op: Op, stamp: impl FnOnce() -> Stamp) -> Result<Stamp, Op> {
        let pushed = self.with(|queue| {
            if queue.is_sealed {
                return Err(op);
            }
            let last = queue.ops.back().map_or(Stamp::ZERO, |(stamp, _)| *stamp);
            let stamp = stamp().max(last);
            debug_assert!(stamp >= last, "oplog.L3: late updates out of order");
            queue.ops.push_back((stamp, op));
            Ok(stamp)
        });
        // ORDER: oplog.L2; pairs with the fence of `count_dirty`.
        barrier::fence_full();
        pushed
    }

    /// The number of updates with a stamp up to `cut`, for [`pop`](Self::pop) (oplog.L4).
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
