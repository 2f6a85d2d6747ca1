//! The MCS lock: a queue in which each waiter spins on its own word. Laws lock.K4 and lock.K5 of
//! the parent module.
//!
//! ```text
//! free      tail = null           head = null
//! held      tail = HELD           head = null
//! 2 wait    tail -----------------------------+
//!           head --> [node A] --next--> [node B] --next--> null
//!                    (on the waiters' stacks; the holder has no node)
//! ```
//!
//! Owns: the queue. A waiter's node lies on its stack, and only while the thread waits: the thread
//! that acquires the lock moves its successor into the lock itself. So a holder has no node, a
//! guard is an ordinary guard, and safe code cannot free a node that another thread still points
//! to. (A node in the guard would need pinning; nodes on the heap would cost an allocation or a
//! cache of nodes.)
//!
//! `tail` is null (free), `HELD` (held, no waiters) or the node of the last waiter.
//! - mcs.Q1 If `tail` is null, `head` is null.
//! - mcs.Q2 A thread that swaps itself behind another thread writes the other's `next` once (or
//!   `head`, if it found `HELD`). Before that is done, no thread leaves its node, or leaves `head`
//!   to a successor.
//! - mcs.Q3 The swap of `state` to GRANTED is the last access to a waiter's node.

use super::exclusive::{Raw, exclusive};
use super::{futex, spin_until};
use crate::profile::{Of, Wait};
use crate::sync::{AtomicPtr, AtomicUsize, Backoff, Ordering, const_fn};
use std::ptr;

const WAITING: usize = 0;
const GRANTED: usize = 1;
const ASLEEP: usize = 2;

/// A waiter, aligned to its own cache line, so that waking it takes one transfer.
#[repr(align(128))]
struct Node {
    next: AtomicPtr<Node>,
    state: AtomicUsize,
}

/// The raw lock.
pub(super) struct Mcs {
    tail: AtomicPtr<Node>,
    /// The holder's successor.
    head: AtomicPtr<Node>,
}

/// The tail of a queue with a holder and no waiters. It is no address inside the lock, because a
/// lock may move while a forgotten guard holds it.
const HELD: *mut Node = ptr::without_provenance_mut(1);

impl Mcs {
    const_fn! {
        pub(super) const fn new() -> Self {
            Self { tail: AtomicPtr::new(ptr::null_mut()), head: AtomicPtr::new(ptr::null_mut()) }
        }
    }

    #[cold]
    fn lock_slow(&self, of: Of) {
        let node = Node { next: AtomicPtr::new(ptr::null_mut()), state: AtomicUsize::new(WAITING) };
        let me = ptr::from_ref(&node).cast_mut();
        // ORDER: AcqRel. Release publishes the node to the thread that swaps next. Acquire pairs
        // with the Release of the node before, and with the CAS that freed the lock.
        let before = self.tail.swap(me, Ordering::AcqRel);
        if !before.is_null() {
            let next = if before == HELD {
                &self.head
            } else {
                // SAFETY: mcs.Q2 - the waiter before stays until it has read its `next`.
                unsafe { &(*before).next }
            };
            // ORDER: Release; pairs with Acquire in `await_successor` and `unlock`: the node.
            next.store(me, Ordering::Release);
            let wait = Wait::begin();
            node.wait();
            wait.end(of, 1);
        }
        // This thread holds the lock, and its node must leave the queue. `head` is null again
        // before `tail` can be (mcs.Q1): a thread that frees the lock through `tail` has seen
        // `head` null.
        // ORDER: Acquire; pairs with the Release of the thread that swapped itself behind.
        let successor = node.next.load(Ordering::Acquire);
        // ORDER: Relaxed; the CAS below orders it before the thread that writes `head` next, and
        // otherwise only the holder reads it.
        self.head.store(successor, Ordering::Relaxed);
        if successor.is_null() {
            // ORDER: Release; the empty `head` before the successor's own store to it.
            let alone =
                self.tail.compare_exchange(me, HELD, Ordering::Release, Ordering::Relaxed).is_ok();
            if !alone {
                self.head.store(await_successor(&node.next), Ordering::Relaxed);
            }
        }
    }

    /// Returns the end of the queue, so that a test can see it move.
    #[cfg(all(test, not(manycore_shuttle)))]
    pub(super) fn tail(&self) -> usize {
        self.tail.load(Ordering::Relaxed).addr()
    }
}

/// Waits for a successor that has swapped itself into `tail` but has not linked its node yet. (It
/// may have been preempted in between.)
#[cold]
fn await_successor(next: &AtomicPtr<Node>) -> *mut Node {
    let mut backoff = Backoff::new();
    loop {
        // ORDER: Acquire; pairs with Release in `lock_slow`: the node.
        let successor = next.load(Ordering::Acquire);
        if !successor.is_null() {
            return successor;
        }
        backoff.pause();
    }
}

impl Node {
    fn wait(&self) {
        // ORDER: Acquire; pairs with the swap in `grant`: what the holder before wrote.
        if spin_until(1, || self.state.load(Ordering::Acquire) == GRANTED) {
            return;
        }
        // lock.K5: announced in the word that the granting swap replaces.
        // ORDER: Acquire on failure, as above.
        let asleep =
            self.state.compare_exchange(WAITING, ASLEEP, Ordering::Relaxed, Ordering::Acquire);
        if asleep.is_err() {
            return;
        }
        while self.state.load(Ordering::Acquire) != GRANTED {
            futex::wait(&self.state, ASLEEP);
        }
    }

    /// Hands the lock to the waiter of this node.
    ///
    /// # Safety
    /// The caller holds the lock, and `node` is its successor.
    unsafe fn grant(node: *const Self) {
        // SAFETY: the waiter stays until the swap below; afterwards only the node's address is used
        // (mcs.Q3).
        let state = unsafe { &raw const (*node).state };
        // ORDER: Release; pairs with the Acquire loads in `wait`.
        // SAFETY: mcs.Q3 - the caller promises that `node` is its successor (# Safety). The
        // successor waits, and so keeps its node, until this swap.
        let old = unsafe { (*state).swap(GRANTED, Ordering::Release) };
        debug_assert!(old != GRANTED, "mcs.Q2: the lock is granted to one waiter twice");
        if old == ASLEEP {
            futex::wake_one(state);
        }
    }
}

// SAFETY: mcs.Q2 - one locker gets `tail` from null. Every other locker waits until a holder grants
// it the lock, and with that gives the lock up. Each waiter has one predecessor, so it is granted
// the lock once.
unsafe impl Raw for Mcs {
    #[inline]
    #[track_caller]
    fn lock(&self) {
        if !self.try_lock() {
            self.lock_slow(Of::new("McsLock", self));
        }
    }

    #[inline]
    fn try_lock(&self) -> bool {
        // ORDER: Acquire; pairs with the CAS in `unlock`.
        self.tail
            .compare_exchange(ptr::null_mut(), HELD, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    #[inline]
    unsafe fn unlock(&self) {
        // ORDER: Acquire; pairs with Release in `lock_slow`: the successor's node.
        let mut successor = self.head.load(Ordering::Acquire);
        if successor.is_null() {
            // ORDER: Release; pairs with the Acquire of the next locker.
            let freed = self
                .tail
                .compare_exchange(HELD, ptr::null_mut(), Ordering::Release, Ordering::Relaxed)
                .is_ok();
            if freed {
                return;
            }
            successor = await_successor(&self.head);
        }
        debug_assert!(
            cfg!(manycore_loom) || !self.tail.load(Ordering::Relaxed).is_null(),
            "mcs.Q1: a lock is handed over that is free"
        );
        // SAFETY: mcs.Q2 - the caller holds the lock, and this waiter is next.
        unsafe { Node::grant(successor) };
    }
}

exclusive! {
    raw: Mcs;
    /// A queue lock: each waiter spins on its own cache line.
    ///
    /// *For* contended locks: a hand-over is one transfer of a line, however long the queue. *Not
    /// for* locks that are mostly free (a plain mutex is as good), and not for more threads than
    /// cores (see the module).
    ///
    /// *Consistency*: mutual exclusion. *Progress*: blocking; first come, first served. If a thread
    /// is preempted while it holds the lock, or just after its turn came, all threads behind it
    /// stall. *Cost*: two atomic instructions without contention, like `std`'s, and two more to
    /// enqueue. A waiter spins for some tens of microseconds and then parks. *Memory*: 16 bytes
    /// beside the value, and 128 bytes of stack while a thread waits. *Panics*: never; a panic of
    /// the holder releases the lock, and the value stays as the panic left it.
    ///
    /// ```
    /// use manycore::lock::McsLock;
    ///
    /// let total = McsLock::new(0);
    /// std::thread::scope(|scope| {
    ///     for number in 0..4 {
    ///         let total = &total;
    ///         scope.spawn(move || *total.lock() += number);
    ///     }
    /// });
    /// assert_eq!(total.into_inner(), 6);
    /// ```
    #[doc(alias = "fair lock")]
    #[doc(alias = "Mutex")]
    #[doc(alias = "queue lock")]
    lock: McsLock;
    /// Guard of a [`McsLock`]: exclusive access to the value. Dropping it releases the lock.
    guard: McsGuard;
}

#[cfg(all(test, not(manycore_shuttle)))]
impl<T> McsLock<T> {
    /// Returns the end of the queue: a different number for each waiter.
    pub(super) fn tail(&self) -> usize {
        self.raw.tail()
    }
}
