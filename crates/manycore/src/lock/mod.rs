//! Locks for contended and for read-mostly data: ticket, MCS, and a big-reader lock.
//!
//! | Lock | Waiters | For |
//! |---|---|---|
//! | [`TicketLock`] | all look at one word, first come first served | short queues, 24 bytes |
//! | [`McsLock`] | each looks at a word of its own, first come first served | long queues |
//! | [`BrLock`] | readers write only their own line, a writer visits all | reads nearly always |
//!
//! # When not to use them
//!
//! A fair lock (first come, first served) hands itself to a thread that may be parked or preempted.
//! With more threads than cores, `std::sync::Mutex` is faster, because a running thread may barge
//! past the queue. Use these locks if fairness or a bounded wait matters, or if the cores are not
//! oversubscribed. If updates return nothing, [`crate::oplog`] needs no lock at all; for counts,
//! use [`crate::collections::Counter`].
//!
//! # What they have in common
//!
//! - *Waiting*: a waiter spins for at most some tens of microseconds, and then parks (on a futex on
//!   Linux; elsewhere it sleeps for 50 us at a time). It never spins for whole time slices, so
//!   these locks work on a machine with more threads than cores.
//! - *Panics*: no poison. A panic while the lock is held releases the lock; the value stays as the
//!   panic left it. A caller that needs to know keeps a flag in the value.
//! - *Re-entrancy*: a thread that locks what it holds deadlocks with itself, unless a lock says
//!   otherwise.
//! - *Other crates' interfaces*: with the feature `lock_api`, `RawTicketLock`, `RawMcsLock` and
//!   `RawBrLock` are raw locks of the crate `lock_api` 0.4. Use them for `lock_api::Mutex` and
//!   `RwLock`, and for code that is generic over them. None of these locks needs state in a guard.
//! - *Guards* stay on their thread. A forgotten guard leaves the lock locked, and has no other
//!   effect.
//! - *Fork*: a child inherits the lock as it was. A lock that another thread of the parent held
//!   stays locked in the child.
//!
//! Laws. Those of the lock word are in `word`, those of a word that is reserved for one thread in
//! `reservation`, and those of a holder that does the work of its waiters in `rounds`.
//!
//! - lock.K4 Order: ticket and MCS locks are acquired in the order in which the lockers drew a
//!   ticket or swapped themselves into the queue. Each does that by one atomic instruction.
//! - lock.K5 Parking: a thread that parks announces this in memory before its last look. A thread
//!   that releases the lock looks for the announcement after the release (or in the same
//!   instruction). So no wake-up is lost.
//! - lock.K6 Big reader: until its guard is dropped, a reader is counted inside the gate, or is in
//!   the list of strays. A writer has closed the gate, and has since seen every lane and the list
//!   empty (gate.E2, gate.E3, br.R3).
//!
//! Source: J. Mellor-Crummey and M. Scott, *Algorithms for scalable synchronization on
//! shared-memory multiprocessors*, 1991 (ticket, MCS). The MCS variant with no node for the holder
//! is from the K42 operating system; the big-reader lock is that of Linux 2.4. Parallel sections,
//! section 5.1, compares itself with the last two.

mod br;
pub(crate) mod error;
mod exclusive;
mod futex;
pub(crate) mod held;
pub(crate) mod holding;
// A raw lock is made at compile time, which a model checker's lock cannot be.
#[cfg(all(feature = "lock_api", not(manycore_loom), not(manycore_shuttle)))]
mod lock_api;
#[cfg(all(test, manycore_loom))]
mod loom_tests;
mod mcs;
mod pace;
pub(crate) mod reservation;
mod rounds;
#[cfg(all(test, not(manycore_loom), not(manycore_shuttle)))]
mod tests;
mod ticket;
pub(crate) mod wait_graph;
mod word;

#[cfg(all(test, not(manycore_loom), not(manycore_shuttle)))]
pub(crate) use crate::profile::Of;
pub use br::{BrLock, BrReadGuard, BrWriteGuard};
#[cfg(all(feature = "lock_api", not(manycore_loom), not(manycore_shuttle)))]
pub use lock_api::{RawBrLock, RawMcsLock, RawTicketLock};
pub use mcs::{McsGuard, McsLock};
pub(crate) use rounds::{Entered, Rounds};
pub use ticket::{TicketGuard, TicketLock};
pub(crate) use word::{
    HOT, Hold, LOCKED, Refused, hold, hold_told, is_held_by, lock, lock_nested, redirect, try_lock,
    try_lock_plain, unlock, unlock_plain, unlock_unless_hot,
};

use crate::config::SMALL;
use crate::sync::hint;

/// Pause instructions before a waiter parks: some 20 to 60 us, about the time that it takes to wake
/// a parked thread.
const LOOKS: u32 = if SMALL { 1 } else { 1024 };

/// Spins for `LOOKS` pause instructions, and calls `done` after every `pauses` of them. Returns
/// true as soon as `done` does, and false if the time is over.
fn spin_until(pauses: usize, mut done: impl FnMut() -> bool) -> bool {
    let mut spent = 0;
    loop {
        if done() {
            return true;
        }
        if spent >= LOOKS as usize {
            return false;
        }
        for _ in 0..pauses {
            hint::spin_loop();
        }
        spent += pauses;
    }
}
