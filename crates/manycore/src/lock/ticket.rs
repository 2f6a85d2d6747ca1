//! The ticket lock: a locker draws a number and waits until that number is served. Laws lock.K4 and
//! lock.K5 of the parent module.

use super::exclusive::{Raw, exclusive};
use super::{futex, spin_until};
use crate::percpu::barrier;
use crate::profile::{Of, Wait};
use crate::sync::{AtomicUsize, Ordering, const_fn, parallelism};

/// The raw lock.
pub(super) struct Ticket {
    /// The number that the next locker draws.
    next: AtomicUsize,
    /// The number of the thread that holds the lock; written only by the holder.
    serving: AtomicUsize,
    /// Number of lockers that are parked or about to park.
    sleepers: AtomicUsize,
}

impl Ticket {
    const_fn! {
        pub(super) const fn new() -> Self {
            Self {
                next: AtomicUsize::new(0),
                serving: AtomicUsize::new(0),
                sleepers: AtomicUsize::new(0),
            }
        }
    }

    /// Returns the number of tickets drawn so far.
    #[cfg(all(test, not(manycore_shuttle)))]
    pub(super) fn drawn(&self) -> usize {
        self.next.load(Ordering::Relaxed)
    }

    #[cold]
    fn wait(&self, mine: usize, of: Of) {
        let wait = Wait::begin();
        // ORDER: Relaxed; only an estimate of the wait.
        let ahead = mine.wrapping_sub(self.serving.load(Ordering::Relaxed));
        // ORDER: Acquire; pairs with the swap in `unlock`: what the holder before wrote.
        let is_served = || self.serving.load(Ordering::Acquire) == mine;
        // If more lockers are ahead than there are cores, this locker waits for a context switch
        // anyway.
        if ahead <= parallelism() && spin_until(ahead.max(1), is_served) {
            return wait.end(of, ahead as u64);
        }
        // lock.K5: announced before the last look, with a full fence between. The kernel looks once
        // more.
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        barrier::full_after_rmw();
        loop {
            // ORDER: Acquire; as above.
            let seen = self.serving.load(Ordering::Acquire);
            if seen == mine {
                break;
            }
            futex::wait_bits(&self.serving, seen, bit_of(mine));
        }
        // ORDER: Relaxed; too high a count only costs a system call.
        self.sleepers.fetch_sub(1, Ordering::Relaxed);
        wait.end(of, ahead as u64);
    }
}

/// Returns the futex bit of a ticket: so one parked locker in 32 is woken, not all.
fn bit_of(ticket: usize) -> u32 {
    1 << (ticket % 32)
}

// SAFETY: a ticket is drawn once (an atomic add, or a CAS from the number that is served), and only
// a holder moves `serving`, by one.
unsafe impl Raw for Ticket {
    #[inline]
    #[track_caller]
    fn lock(&self) {
        // ORDER: Relaxed; the ticket only orders the lockers. `serving` passes on what they wrote.
        let mine = self.next.fetch_add(1, Ordering::Relaxed);
        // ORDER: Acquire; pairs with the swap in `unlock`.
        if self.serving.load(Ordering::Acquire) != mine {
            self.wait(mine, Of::new("TicketLock", self));
        }
    }

    #[inline]
    fn try_lock(&self) -> bool {
        // ORDER: Acquire; pairs with the swap in `unlock`. If the CAS finds that the ticket being
        // served is not drawn, then it is still being served: only its owner could move on.
        let free = self.serving.load(Ordering::Acquire);
        self.next
            .compare_exchange(free, free.wrapping_add(1), Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
    }

    #[inline]
    unsafe fn unlock(&self) {
        // ORDER: Relaxed; only the holder writes it.
        let next = self.serving.load(Ordering::Relaxed).wrapping_add(1);
        debug_assert!(
            cfg!(manycore_loom)
                || self.next.load(Ordering::Relaxed).wrapping_sub(next) <= usize::MAX / 2,
            "lock.K4: a ticket is served that no thread has drawn"
        );
        // ORDER: a full fence between the store and the load; pairs with `wait`'s (lock.K5). The
        // store is a Release; pairs with the Acquire loads of `serving`.
        barrier::swap_full(&self.serving, next);
        if self.sleepers.load(Ordering::Relaxed) != 0 {
            futex::wake_bits(&self.serving, bit_of(next));
        }
    }
}

exclusive! {
    raw: Ticket;
    /// A fair lock that serves threads in the order in which they arrived.
    ///
    /// *For* short critical sections where no thread may be overtaken, and few threads wait at a
    /// time. *Not for* long queues, where every hand-over is a cache miss in each waiter
    /// ([`McsLock`](super::McsLock)), and not for more threads than cores (see the module).
    ///
    /// *Consistency*: mutual exclusion. *Progress*: blocking; first come, first served, so a locker
    /// waits only for those that arrived before it. If a thread is preempted while it holds the
    /// lock, or just after its turn came, all threads behind it stall. *Cost*: two atomic
    /// instructions without contention, like `std`'s. A waiter spins, with rarer looks the longer
    /// the queue, and then parks. A locker parks at once if its queue is longer than the machine
    /// has cores. *Memory*: 24 bytes beside the value. *Panics*: never; a panic of the holder
    /// releases the lock, and the value stays as the panic left it.
    ///
    /// ```
    /// use manycore::lock::TicketLock;
    ///
    /// static LIST: TicketLock<Vec<u32>> = TicketLock::new(Vec::new());
    /// std::thread::scope(|scope| {
    ///     for number in 0..4 {
    ///         scope.spawn(move || LIST.lock().push(number));
    ///     }
    /// });
    /// assert_eq!(LIST.lock().len(), 4);
    /// ```
    #[doc(alias = "fair lock")]
    #[doc(alias = "Mutex")]
    #[doc(alias = "spinlock")]
    lock: TicketLock;
    /// Guard of a [`TicketLock`]: exclusive access to the value. Dropping it releases the lock.
    guard: TicketGuard;
}

#[cfg(all(test, not(manycore_shuttle)))]
impl<T> TicketLock<T> {
    /// Returns the number of lockers that have arrived so far.
    pub(super) fn arrivals(&self) -> usize {
        self.raw.drawn()
    }
}
