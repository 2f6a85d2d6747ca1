//! Queues of updates in front of the sequential list: deferred updates, built by hand from a
//! concurrent queue.
//!
//! Updates are pushed. A read takes the list's lock, applies what the queue held at that moment,
//! and walks. Each thread also applies the queue after [`OWN_PUSHES_MAX`] of its own pushes, so
//! memory stays bounded without reads.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crossbeam_utils::CachePadded;

use super::{Element, ElementList, ListHandle, ListImpl, ListOp, locks::sequential};

/// Long enough that draining is cheap per update, short enough to stay in the cache.
const OWN_PUSHES_MAX: u32 = 1024;

/// A queue that many threads push to; first in, first out.
pub(super) trait OpQueue: Default + Send + Sync + 'static {
    /// Puts an update at the end.
    fn push(&self, op: ListOp);
    /// Takes the first update.
    fn pop(&self) -> Option<ListOp>;
    /// How many there are.
    fn len(&self) -> usize;
}

/// crossbeam's unbounded queue.
#[derive(Default)]
pub(super) struct Seg(crossbeam_queue::SegQueue<ListOp>);

impl OpQueue for Seg {
    #[inline]
    fn push(&self, op: ListOp) {
        self.0.push(op);
    }

    #[inline]
    fn pop(&self) -> Option<ListOp> {
        self.0.pop()
    }

    fn len(&self) -> usize {
        self.0.len()
    }
}

/// The unbounded queue of smol.
pub(super) struct Concurrent(concurrent_queue::ConcurrentQueue<ListOp>);

impl Default for Concurrent {
    fn default() -> Self {
        Self(concurrent_queue::ConcurrentQueue::unbounded())
    }
}

impl OpQueue for Concurrent {
    #[inline]
    fn push(&self, op: ListOp) {
        self.0.push(op).expect("the queue is unbounded and never closed");
    }

    #[inline]
    fn pop(&self) -> Option<ListOp> {
        self.0.pop().ok()
    }

    fn len(&self) -> usize {
        self.0.len()
    }
}

/// Updates through crossbeam's SegQueue.
pub(super) type SegQueueList = Queued<Seg>;
/// Updates through concurrent-queue.
pub(super) type ConcurrentQueueList = Queued<Concurrent>;

/// A queue of updates and the list they go to.
pub(super) struct Queued<Q> {
    queue: Q,
    list: CachePadded<Mutex<ElementList>>,
}

impl<Q: OpQueue> Queued<Q> {
    /// Brings the list up to date with everything pushed before the call.
    fn up_to_date(&self) -> MutexGuard<'_, ElementList> {
        let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        // Counted once: with busy producers, "until empty" might never come. Only
        // the lock holder pops, so at least as many are there.
        for _ in 0..self.queue.len() {
            match self.queue.pop() {
                Some(op) => list.apply(op),
                None => break,
            }
        }
        list
    }
}

impl<Q: OpQueue> ListImpl for Queued<Q> {
    type Handle<'a> = Pusher<'a, Q>;

    fn new(threads: usize) -> Self {
        Self { queue: Q::default(), list: CachePadded::new(Mutex::new(sequential(threads))) }
    }

    fn handle(&self, _: usize) -> Pusher<'_, Q> {
        Pusher { shared: self, pushes: 0 }
    }
}

/// A thread's way to the queue.
pub(super) struct Pusher<'a, Q> {
    shared: &'a Queued<Q>,
    pushes: u32,
}

impl<Q: OpQueue> Pusher<'_, Q> {
    #[inline]
    fn push(&mut self, op: ListOp) {
        self.shared.queue.push(op);
        self.pushes += 1;
        if self.pushes == OWN_PUSHES_MAX {
            self.pushes = 0;
            drop(self.shared.up_to_date());
        }
    }
}

impl<Q: OpQueue> ListHandle for Pusher<'_, Q> {
    #[inline]
    fn add(&mut self, element: Element) {
        self.push(ListOp::Add(element));
    }

    #[inline]
    fn remove(&mut self, element: Element) {
        self.push(ListOp::Remove(element));
    }

    fn for_each(&mut self, f: impl FnMut(Element) + Send) {
        self.pushes = 0;
        self.shared.up_to_date().for_each(f);
    }
}
