//! Idle objects near a thread.
//!
//! Owns: the user's half of law object_pool.P2, and the closer's wait for the user.

use crate::cluster::Placement;
use crate::collections::reentrancy_lock::ReentrancyLock;
use crate::percpu::barrier;
use crate::percpu::gate::{announce, announced, pass_barrier, wait_forever_while, withdraw};
use crate::sync::{AtomicUsize, Ordering, UnsafeCell};

/// Says whether shelves may be used. The word changes only under the pool's lock.
pub(super) struct Doors {
    /// Zero while the pool is open.
    closed: AtomicUsize,
    biased: bool,
    /// True if each shelf belongs to one thread, which announces itself by a plain store.
    pub(super) are_plain: bool,
}

impl Doors {
    pub(super) fn new(placement: Placement) -> Self {
        let biased = barrier::is_asymmetric();
        let are_plain = biased && placement == Placement::PerThread;
        Self { closed: AtomicUsize::new(0), biased, are_plain }
    }

    /// Closes the pool (gate.E2). The caller may take the objects of a shelf once it has waited for
    /// the shelf's user.
    pub(super) fn close(&self) {
        // ORDER: Relaxed; the barrier orders it before the looks at the shelves.
        self.closed.store(1, Ordering::Relaxed);
        pass_barrier(self.biased);
    }

    pub(super) fn open(&self) {
        // ORDER: Release; pairs with Acquire in `Shelf::with` (gate.E3): the emptied shelves.
        self.closed.store(0, Ordering::Release);
    }

    pub(super) fn are_biased(&self) -> bool {
        self.biased
    }

    /// Returns true if the pool is closed. A hint, without an announcement.
    pub(super) fn is_closed(&self) -> bool {
        // ORDER: Relaxed; a hint.
        self.closed.load(Ordering::Relaxed) != 0
    }
}

/// Idle objects, and the line on which their user announces itself.
pub(super) struct Shelf<T> {
    /// One while the user is inside. Written only by the user.
    inside: AtomicUsize,
    /// Number of objects, for threads that are outside.
    count: AtomicUsize,
    things: UnsafeCell<Vec<T>>,
    /// If threads share the shelf, the holder of this lock is the user.
    pub(super) shared: ReentrancyLock<()>,
}

// SAFETY: object_pool.P2 - the objects are used by the shelf's user while it is inside, and by the
// closer when the user is outside. Both may take them along, as they are `Send`.
unsafe impl<T: Send> Sync for Shelf<T> {}

impl<T> Shelf<T> {
    pub(super) fn new() -> Self {
        Self {
            inside: AtomicUsize::new(0),
            count: AtomicUsize::new(0),
            things: UnsafeCell::new(Vec::new()),
            shared: ReentrancyLock::new(()),
        }
    }

    /// Runs `f` on the objects, if the pool is open. `f` returns `None` if it has left them
    /// unchanged.
    ///
    /// # Safety
    /// The caller is the shelf's only user: the thread whose slot it belongs to, or the holder of
    /// `shared`. `biased` is that of the doors (gate.E4). `f` does not panic, and runs no user
    /// code, not even the allocator.
    #[inline(always)]
    pub(super) unsafe fn with<R>(
        &self,
        doors: &Doors,
        biased: bool,
        f: impl FnOnce(&mut Vec<T>) -> Option<R>,
    ) -> Option<R> {
        debug_assert!(
            cfg!(manycore_loom) || announced(&self.inside) == 0,
            "object_pool.P2: a shelf has two users"
        );
        announce(&self.inside, 1, biased);
        // ORDER: Acquire; pairs with Release in `open` (gate.E3): what the closer left here.
        if doors.closed.load(Ordering::Acquire) != 0 {
            withdraw(&self.inside);
            return None;
        }
        let done = self.things.with_mut(|things| {
            // SAFETY: object_pool.P2 - the user is inside, as its only one (# Safety).
            let things = unsafe { &mut *things };
            f(things).map(|done| (done, things.len()))
        });
        let Some((done, count)) = done else {
            withdraw(&self.inside);
            return None;
        };
        // ORDER: Relaxed; an estimate to all but the user and the closer.
        self.count.store(count, Ordering::Relaxed);
        withdraw(&self.inside);
        Some(done)
    }

    /// Returns the number of objects: an estimate while the shelf is in use.
    pub(super) fn count(&self) -> usize {
        // ORDER: Relaxed; an estimate.
        self.count.load(Ordering::Relaxed)
    }

    /// Waits until the user is outside, and moves the objects over.
    ///
    /// # Safety
    /// The caller has closed the pool, under the pool's lock, which it still has.
    pub(super) unsafe fn empty(&self, into: &mut Vec<T>) {
        wait_forever_while(|| announced(&self.inside) != 0);
        self.things.with_mut(|things| {
            // SAFETY: object_pool.P2 - the pool is closed (# Safety), and the user is outside.
            into.append(unsafe { &mut *things });
        });
        // ORDER: Relaxed; an estimate, and ordered by `open` for the user.
        self.count.store(0, Ordering::Relaxed);
    }
}
