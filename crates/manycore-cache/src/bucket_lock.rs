//! The lock of a bucket chain: a byte in the first bucket's line, and an MCS queue of waiters.
//!
//! Readers read that line and the holder writes it, so a waiter that spins on the byte contends
//! with all of them. Therefore only one waiter spins on the byte: the head of the table's queue.
//! The others wait behind it, each on a word of its own.
//!
//! ```text
//! FREE ------ any thread ------------> HELD ---- release ----> FREE
//!                                       |
//!                                       | the owner of the turn marks it
//!                                       v
//! RESERVED <--------- release -------- WANTED
//!     |
//!     +------ the owner of the turn --> HELD
//!
//! HELD, WANTED ------ the table is replaced ------> MOVED
//! ```
//!
//! Laws:
//! - bucket_lock.W1 A thread that finds the byte free may take it, and so barge past the queue. A
//!   thread that finds it held enqueues. It keeps the *turn*, which is the head of the queue, until
//!   it has released the lock.
//! - bucket_lock.W2 The owner of the turn marks a held byte as wanted. The holder leaves a wanted
//!   byte reserved, and only the owner of the turn takes a reserved byte. So no thread waits for
//!   ever while others barge. If the holder's store overwrites a mark, the mark is set again.
//! - bucket_lock.W3 A thread that holds a lock of a table does not wait for that table's turn. A
//!   thread that replaces a table acquires the turn first, and keeps it. So the owner of the turn
//!   does not wait for a thread that waits for the turn.
//! - bucket_lock.W4 The byte of a replaced table stays `MOVED` for ever.
//!
//! Source: the queue follows Mellor-Crummey and Scott (1991). The ParSec paper (EuroSys 2016,
//! section 5.2) gives it to memcached's buckets.

use crate::reentrancy::{self, WAIT_LIMIT};
use crate::sync::{AtomicU8, Ordering, hint, sleep, thread};
use manycore::lock::{McsGuard, McsLock};
use std::time::{Duration, Instant};

const FREE: u8 = 0;
const HELD: u8 = 1;
/// Free for the owner of the turn alone.
const RESERVED: u8 = 2;
/// Held, and wanted by the owner of the turn.
const WANTED: u8 = 4;
const MOVED: u8 = 8;
// A shift releases the lock, in one instruction.
const _: () = assert!(HELD >> 1 == FREE && WANTED >> 1 == RESERVED);

/// From this probe on, a waiter yields its core between probes. Before that it pauses.
const LOOKS_BEFORE_YIELD: u32 = 20;
/// From this probe on, a waiter sleeps between probes, because the holder was preempted.
const LOOKS_BEFORE_SLEEP: u32 = 60;
/// Maximum number of pause instructions between two probes: some microseconds.
const PAUSES: u32 = if cfg!(manycore_loom) { 1 } else { 64 };
const SLEEP: Duration = Duration::from_micros(50);

/// The lock of a bucket chain. Zero means free.
#[repr(transparent)]
pub(crate) struct BucketLock(AtomicU8);

/// The waiters for the locks of a table.
pub(crate) struct Queue(McsLock<()>);

/// The turn: the calling thread is the head of the queue.
pub(crate) struct Turn<'t>(McsGuard<'t, ()>);

/// A held lock. Dropping this releases it.
pub(crate) struct Hold<'t>(&'t BucketLock);

/// A held lock, and the turn if the thread had to wait. The turn is released after the lock.
pub(crate) struct BucketGuard<'t> {
    hold: Hold<'t>,
    turn: Option<McsGuard<'t, ()>>,
}

impl<'t> From<Hold<'t>> for BucketGuard<'t> {
    fn from(hold: Hold<'t>) -> Self {
        Self { hold, turn: None }
    }
}

impl Queue {
    pub(crate) fn new() -> Self {
        Self(McsLock::new(()))
    }

    pub(crate) fn turn(&self) -> Turn<'_> {
        Turn(self.0.lock())
    }
}

impl BucketLock {
    /// Acquires the lock. Returns `None` if the table has been replaced (bucket_lock.W4).
    #[inline]
    pub(crate) fn lock<'t>(&'t self, queue: &'t Queue) -> Option<BucketGuard<'t>> {
        match self.take_free() {
            Ok(hold) => Some(hold.into()),
            Err(MOVED) => None,
            Err(_) => self.lock_in_line(queue),
        }
    }

    /// Acquires the lock if it is free now. Returns `None` also if the table has been replaced.
    #[inline(always)]
    pub(crate) fn try_lock(&self) -> Option<Hold<'_>> {
        self.take_free().ok()
    }

    /// Takes the byte if it is free; otherwise returns the byte.
    #[inline(always)]
    fn take_free(&self) -> Result<Hold<'_>, u8> {
        // A failed exchange would take the line from the holder, too.
        // ORDER: Relaxed; the exchange decides.
        let seen = self.0.load(Ordering::Relaxed);
        if seen == FREE { self.take(FREE) } else { Err(seen) }
    }

    #[cold]
    fn lock_in_line<'t>(&'t self, queue: &'t Queue) -> Option<BucketGuard<'t>> {
        if reentrancy::is_under_lock() {
            return self.lock_for_callback();
        }
        // bucket_lock.W1: the byte was held, so this thread enqueues, and keeps the turn together
        // with the lock.
        let turn = queue.turn();
        let mut hold = self.lock_in_turn(&turn)?;
        hold.turn = Some(turn.0);
        Some(hold)
    }

    /// Acquires the lock for a thread that holds a lock of another cache. It stays out of the
    /// queue, so that no thread waits behind it, and has a time limit (law reentrancy.U2).
    ///
    /// # Panics
    /// If the lock does not become free in that time.
    fn lock_for_callback(&self) -> Option<BucketGuard<'_>> {
        let (mut looks, begun) = (0, Instant::now());
        loop {
            // ORDER: Relaxed; the exchange decides, or the next probe.
            match self.0.load(Ordering::Relaxed) {
                MOVED => return None,
                FREE => {
                    if let Ok(hold) = self.take(FREE) {
                        return Some(hold.into());
                    }
                }
                _ => assert!(
                    begun.elapsed() < WAIT_LIMIT,
                    "manycore: a callback that runs under a cache's lock waits for the lock of \
                     another cache, which does not become free: callbacks that update each other's \
                     caches?"
                ),
            }
            wait(&mut looks);
        }
    }

    /// Takes a byte that has the value `free`; otherwise returns the byte.
    #[inline(always)]
    fn take(&self, free: u8) -> Result<Hold<'_>, u8> {
        debug_assert!(
            matches!(free, FREE | RESERVED),
            "bucket_lock.W2: a byte of {free} is taken as free"
        );
        // ORDER: Acquire; pairs with Release in `Hold::drop`.
        self.0
            .compare_exchange(free, HELD, Ordering::Acquire, Ordering::Relaxed)
            .map(|_| Hold(self))
    }

    /// Acquires the lock with the table's turn in hand. Returns `None` if the table has been
    /// replaced (bucket_lock.W4).
    pub(crate) fn lock_in_turn(&self, _turn: &Turn<'_>) -> Option<BucketGuard<'_>> {
        let mut looks = 0;
        loop {
            // ORDER: Relaxed; the exchange decides, or the next probe.
            match self.0.load(Ordering::Relaxed) {
                MOVED => return None,
                free @ (FREE | RESERVED) => {
                    if let Ok(hold) = self.take(free) {
                        return Some(hold.into());
                    }
                }
                HELD => {
                    // ORDER: Relaxed; acquiring the lock orders. If this fails, the holder was
                    // faster.
                    let (new, order) = (WANTED, Ordering::Relaxed);
                    let _ = self.0.compare_exchange(HELD, new, order, order);
                }
                _ => {}
            }
            wait(&mut looks);
        }
    }
}

#[cfg(all(test, not(manycore_loom)))]
impl BucketLock {
    /// Stores any byte.
    pub(crate) fn disguise(&self, byte: u8) {
        self.0.store(byte, Ordering::Relaxed);
    }
}

/// Waits a while, which is longer after more probes. Locks are held for some tens of instructions,
/// unless the holder was preempted.
#[cold]
fn wait(looks: &mut u32) {
    *looks += 1;
    match *looks {
        ..LOOKS_BEFORE_YIELD => (0..PAUSES.min(1 << *looks)).for_each(|_| hint::spin_loop()),
        LOOKS_BEFORE_YIELD..LOOKS_BEFORE_SLEEP => thread::yield_now(),
        _ => sleep(SLEEP),
    }
}

impl BucketGuard<'_> {
    /// Gives the lock up for ever, because the table has been replaced (bucket_lock.W4).
    pub(crate) fn retire(self) {
        let Self { hold, turn } = self;
        std::mem::ManuallyDrop::new(hold).leave(MOVED);
        drop(turn);
    }
}

impl Hold<'_> {
    /// Releases the byte with this value.
    #[inline(always)]
    fn leave(&self, next: u8) {
        // ORDER: Release; pairs with Acquire in `take`.
        if cfg!(manycore_loom) {
            // loom does not order a store against another thread's exchange: that thread could read
            // its own mark for ever.
            self.0.0.swap(next, Ordering::Release);
        } else {
            self.0.0.store(next, Ordering::Release);
        }
    }
}

impl Drop for Hold<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        // ORDER: Relaxed; the mark orders nothing, and a mark that comes later is set again
        // (bucket_lock.W2).
        let seen = self.0.0.load(Ordering::Relaxed);
        debug_assert!(
            matches!(seen, HELD | WANTED),
            "bucket_lock.W2: a held byte was changed to {seen}"
        );
        self.leave(seen >> 1);
    }
}

#[cfg(all(test, not(manycore_loom)))]
mod tests {
    use super::*;
    use std::cell::UnsafeCell;
    use std::sync::atomic::{AtomicBool, AtomicUsize};

    /// A lock, a value that it guards, and the number of its holders.
    struct Shared {
        lock: BucketLock,
        queue: Queue,
        value: UnsafeCell<u64>,
        holders: AtomicUsize,
    }

    // SAFETY: only the holder of the lock accesses the value.
    unsafe impl Sync for Shared {}

    impl Shared {
        fn new() -> Self {
            Self {
                lock: BucketLock(AtomicU8::new(FREE)),
                queue: Queue::new(),
                value: UnsafeCell::new(0),
                holders: AtomicUsize::new(0),
            }
        }

        /// Returns false if the lock has been given up for ever.
        fn add(&self) -> bool {
            let Some(_hold) = self.lock.lock(&self.queue) else { return false };
            assert_eq!(self.holders.fetch_add(1, Ordering::Relaxed), 0, "two hold it");
            // SAFETY: the lock is held, and the count has shown no other holder.
            unsafe { *self.value.get() += 1 };
            self.holders.fetch_sub(1, Ordering::Relaxed);
            true
        }
    }

    #[test]
    fn many_threads_hold_it_one_at_a_time() {
        let shared = Shared::new();
        std::thread::scope(|scope| {
            let add = || (0..20_000).for_each(|_| assert!(shared.add()));
            (0..8).for_each(|_| drop(scope.spawn(add)));
        });
        assert_eq!(shared.value.into_inner(), 160_000);
        assert_eq!(shared.lock.0.into_inner(), FREE);
    }

    #[test]
    fn who_waits_finds_it_reserved_when_it_is_given_up() {
        for _ in 0..20 {
            let shared = Shared::new();
            let hold = shared.lock.lock(&shared.queue);
            std::thread::scope(|scope| {
                let waiting = scope.spawn(|| shared.add());
                while shared.lock.0.load(Ordering::Relaxed) != WANTED {
                    std::thread::yield_now();
                }
                drop(hold);
                // The byte is free for others only after the waiter had it.
                if shared.lock.0.load(Ordering::Acquire) == FREE {
                    // SAFETY: the thread that added has released the lock.
                    assert_eq!(unsafe { *shared.value.get() }, 1, "others may pass by");
                }
                assert!(waiting.join().unwrap());
            });
            assert_eq!(shared.lock.0.into_inner(), FREE);
        }
    }

    #[test]
    fn all_who_wait_are_refused_when_it_has_moved() {
        let shared = Shared::new();
        let turn = shared.queue.turn();
        let hold = shared.lock.lock_in_turn(&turn).unwrap();
        let begun = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            let add = || {
                begun.fetch_add(1, Ordering::Relaxed);
                shared.add()
            };
            let waiting: Vec<_> = (0..3).map(|_| scope.spawn(add)).collect();
            while begun.load(Ordering::Relaxed) < 3 {
                std::thread::yield_now();
            }
            hold.retire();
            drop(turn);
            assert!(waiting.into_iter().all(|waiting| !waiting.join().unwrap()));
        });
        assert!(!shared.add());
    }

    #[test]
    fn who_replaces_a_table_is_not_passed_by_for_ever() {
        let shared = Shared::new();
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while !is_over.load(Ordering::Relaxed) && shared.add() {
                        hint::spin_loop();
                    }
                });
            }
            for _ in 0..100 {
                let turn = shared.queue.turn();
                assert!(shared.lock.lock_in_turn(&turn).is_some());
            }
            is_over.store(true, Ordering::Relaxed);
        });
    }
}

#[cfg(all(test, manycore_loom))]
impl BucketLock {
    pub(crate) fn free() -> Self {
        Self(AtomicU8::new(FREE))
    }
}

#[cfg(all(test, manycore_loom))]
mod loom_tests {
    use super::*;
    use loom::cell::UnsafeCell;
    use std::sync::Arc;

    struct Shared(BucketLock, Queue, UnsafeCell<usize>);

    // SAFETY: only the holder of the lock accesses the cell; loom checks it.
    unsafe impl Sync for Shared {}
    // SAFETY: the cell belongs to no thread: any thread may hold the lock.
    unsafe impl Send for Shared {}

    impl Shared {
        fn add(&self) -> bool {
            let Some(_hold) = self.0.lock(&self.1) else { return false };
            // SAFETY: the lock is held. loom reports another holder, and a holder that does not see
            // this write.
            self.2.with_mut(|value| unsafe { *value += 1 });
            true
        }

        fn try_add(&self) -> bool {
            let Some(_hold) = self.0.try_lock() else { return false };
            // SAFETY: the lock is held, and loom checks that as above.
            self.2.with_mut(|value| unsafe { *value += 1 });
            true
        }
    }

    fn model(preemptions: usize, scenario: impl Fn(&Arc<Shared>) + Send + Sync + 'static) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = model.preemption_bound.or(Some(preemptions));
        model.max_branches = 5_000;
        let scenario = Arc::new(scenario);
        model.check(move || {
            let scenario = Arc::clone(&scenario);
            // Not on the first thread: loom drops its globals before the locals of that thread.
            let body = move || {
                scenario(&Arc::new(Shared(BucketLock::free(), Queue::new(), UnsafeCell::new(0))));
            };
            thread::spawn(body).join().unwrap();
        });
    }

    fn adder(shared: &Arc<Shared>) -> thread::JoinHandle<bool> {
        let shared = Arc::clone(shared);
        thread::spawn(move || shared.add())
    }

    fn value(shared: &Shared) -> usize {
        // SAFETY: all threads have ended.
        shared.2.with(|value| unsafe { *value })
    }

    #[test]
    fn loom_latch_excludes_and_loses_nobody() {
        model(2, |shared| {
            let others = [adder(shared), adder(shared)];
            assert!(shared.add());
            assert!(others.into_iter().all(|other| other.join().unwrap()));
            assert_eq!(value(shared), 3);
        });
    }

    #[test]
    fn loom_latch_excludes_threads_that_only_try() {
        model(2, |shared| {
            let other = adder(shared);
            let has_tried = shared.try_add();
            assert!(other.join().unwrap());
            assert_eq!(value(shared), 1 + usize::from(has_tried));
            assert!(shared.try_add(), "it is free");
        });
    }

    #[test]
    fn loom_latch_refuses_all_who_wait_when_it_has_moved() {
        model(2, |shared| {
            let others = [adder(shared), adder(shared)];
            let turn = shared.1.turn();
            let hold = shared.0.lock_in_turn(&turn).expect("no other thread gives it up");
            hold.retire();
            drop(turn);
            let added = others.map(|other| other.join().unwrap());
            let added = added.into_iter().filter(|added| *added).count();
            assert!(!shared.add());
            assert_eq!(value(shared), added);
        });
    }
}
