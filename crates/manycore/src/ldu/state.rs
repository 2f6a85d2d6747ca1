//! The state of a set that its threads share: the layout, and the set's lock.
//!
//! Changes are in `change`, reads in `drain`. Laws ldu.U1 to ldu.U7 are in the parent module.

use super::links::Linked;
use super::pending::{Pending, Turn};
use super::queue::Queues;
use super::retired::Retired;
use super::structure::Structure;
use crate::lock::error::would_deadlock;
use crate::lock::{Entered, Refused, Rounds};
use crate::profile::Of;
use crate::sync::{AtomicBool, AtomicU64, Ordering, UnsafeCell};
use std::mem::ManuallyDrop;

/// The bit of the epoch's word that says that the set is eager. It is there because a change loads
/// that word anyway. (Members' words note 58 bits of epochs, so no epoch ever reaches this bit.)
pub(super) const EAGER: u64 = 1 << 63;

/// The part that changes look at. Reads write only the epoch here, and only if something has
/// changed.
#[repr(align(128))]
pub(super) struct UpdateSide {
    /// The number of the last cut plus one. The top bit says whether changes are to be eager: a
    /// hint (eager.E1, `EAGER`).
    pub(super) epoch: AtomicU64,
    pub(super) max_queued: u64,
    /// Ticks; `u64::MAX` if there is no time bound.
    pub(super) max_delay: u64,
    pub(super) queues: Queues,
}

/// The part that reads write.
#[repr(align(128))]
pub(super) struct ReadSide {
    pub(super) rounds: Rounds,
    /// Guarded by the lock, like the next field.
    pub(super) poisoned: AtomicBool,
    /// False if members wait for the next read outside of queues.
    pub(super) is_clean: AtomicBool,
    pub(super) turn: UnsafeCell<Turn>,
}

pub(super) struct State<T, E: Linked> {
    pub(super) update_side: UpdateSide,
    pub(super) read_side: ReadSide,
    /// Before `pending`, so that it is dropped before the members that were given up.
    pub(super) value: UnsafeCell<T>,
    pub(super) pending: UnsafeCell<Pending<E>>,
}

// SAFETY: a state that moves takes along the structure (`T: Send`) and members, which any thread
// may use and free (`Linked` is `Send + Sync`).
unsafe impl<T: Send, E: Linked> Send for State<T, E> {}
// SAFETY: a shared state gives the structure and `pending` only to the lock's holder (rounds.V1,
// kept by `State::lock`), so `T: Send` is enough. Only `read_shared` gives `&T` to several threads,
// and it asks for `T: Sync`. Everything else is atomic.
unsafe impl<T: Send, E: Linked> Sync for State<T, E> {}

impl<T: Structure<E>, E: Linked> State<T, E> {
    pub(super) fn new(value: T, queues: Queues, max_queued: u64, max_delay: u64) -> Self {
        Self {
            update_side: UpdateSide { epoch: AtomicU64::new(0), max_queued, max_delay, queues },
            read_side: ReadSide {
                rounds: Rounds::new(),
                poisoned: AtomicBool::new(false),
                is_clean: AtomicBool::new(true),
                turn: UnsafeCell::new(Turn::default()),
            },
            value: UnsafeCell::new(value),
            pending: UnsafeCell::new(Pending::new()),
        }
    }

    /// Returns the structure, and the members to free after it. No queue has a member any more.
    pub(super) fn dismantle(self) -> (T, Vec<Retired<E>>) {
        let Self { value, pending, .. } = self;
        (value.into_inner(), pending.into_inner().garbage)
    }

    /// Takes the set's lock: the caller then has the structure alone.
    #[track_caller]
    pub(super) fn lock(&self, wait: bool) -> Result<(), Refused> {
        if wait { self.read_side.rounds.lock(self.of()) } else { self.read_side.rounds.try_lock() }
    }

    #[track_caller]
    fn of(&self) -> Of {
        Of::new("DeferredSet", self)
    }

    /// Enters to share the structure. Returns `First` if the caller has to bring it up to date.
    /// `is_current` returns true if it is.
    #[track_caller]
    pub(super) fn enter(&self, is_current: impl Fn() -> bool) -> Result<Entered, Refused> {
        self.read_side.rounds.enter(self.of(), is_current)
    }

    /// Returns true if the structure knows of every change that has returned. A guess if the caller
    /// neither has the lock nor shares the structure, or if a change has not returned yet.
    pub(super) fn is_current(&self) -> bool {
        // ORDER: Relaxed; guarded by the lock.
        self.read_side.is_clean.load(Ordering::Relaxed) && self.update_side.queues.is_empty()
    }

    pub(super) fn is_poisoned(&self) -> bool {
        // ORDER: Relaxed; callers that need more hold the lock.
        self.read_side.poisoned.load(Ordering::Relaxed)
    }
}

/// The set's lock; dropping this releases it.
pub(super) struct Held<'a, T, E: Linked> {
    pub(super) state: &'a State<T, E>,
    pub(super) poison: bool,
}

impl<T, E: Linked> Held<'_, T, E> {
    /// Takes out the members that are to be freed after the lock is released.
    pub(super) fn garbage(&mut self) -> Vec<Retired<E>> {
        debug_assert!(
            cfg!(manycore_loom) || self.state.read_side.rounds.is_locked_by_me(),
            "ldu.U3: members are taken to be freed without the lock"
        );
        // SAFETY: the lock is held, and guards `pending`.
        self.state.pending.with_mut(|pending| unsafe { std::mem::take(&mut (*pending).garbage) })
    }
}

impl<T, E: Linked> Held<'_, T, E> {
    /// Releases the lock and goes on sharing the structure; or returns the lock, if the structure
    /// cannot be shared now (eager.E1).
    pub(super) fn share(self) -> Option<Self> {
        let held = ManuallyDrop::new(self);
        let shared = held.state.read_side.rounds.share();
        (!shared).then(|| ManuallyDrop::into_inner(held))
    }
}

impl<T, E: Linked> Drop for Held<'_, T, E> {
    fn drop(&mut self) {
        if self.poison {
            // ORDER: Relaxed; guarded by the lock.
            self.state.read_side.poisoned.store(true, Ordering::Relaxed);
        }
        self.state.read_side.rounds.unlock();
    }
}

/// Panics because a read has no guard, and says why.
#[cold]
#[track_caller]
pub(super) fn cannot_read(refused: Refused) -> ! {
    if refused == Refused::Deadlock {
        would_deadlock();
    }
    panic!(
        "manycore: this thread reads the set already; drop the guard before reading again, and \
         do not read it from within its own structure"
    )
}
