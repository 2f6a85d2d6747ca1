//! An object that chooses its mode by its load: a lock, logs, or concurrent readers.
//!
//! ```
//! use manycore::cluster::{Adaptive, adaptive::Mode};
//! use manycore::oplog::{Commuting, Op};
//!
//! struct Add(u64);
//! impl Op<u64> for Add {
//!     fn apply(self, sum: &mut u64) {
//!         *sum += self.0;
//!     }
//! }
//!
//! let sum = Adaptive::<u64, Commuting<Add>>::new(0);
//! sum.update(Add(2));
//! assert_eq!(*sum.read(), 2);
//! assert_eq!(sum.mode(), Mode::Direct); // one thread needs nothing else
//! println!("{}", sum.stats()); // its changes of mode, and what decided them
//! ```
//!
//! Which technique is best for a shared object depends on how often it is read and updated, and
//! that is often unknown, or changes. An adaptive object counts its operations, and changes its
//! mode.
//!
//! | [`Mode`] | An update | A read | Best at |
//! |---|---|---|---|
//! | `Direct` | takes the lock | takes the lock | about as many reads as updates, or few of both |
//! | `Logs` | appends to the thread's own log | merges the logs | many updates for each read, by several threads |
//! | `Shared` | keeps readers out | writes the thread's own line | many reads for each update |
//!
//! *Cancelling* is the log's task: with [`Cancelling`](crate::oplog::Cancelling) or
//! [`Absorbing`](crate::oplog::Absorbing) a removal cancels its insertion in the log. The marks of
//! [`ldu`](crate::ldu) are in the members themselves, so they need a value made of members, and
//! don't fit a value of any type; for those there is [`DeferredSet`](crate::ldu::DeferredSet).
//!
//! # Laws
//!
//! Owns: [`Adaptive`], its modes and its policy. Does not own: logs (`oplog`), which it uses as a
//! managed object.
//!
//! Laws: adaptive.A1 to adaptive.A3 and adaptive.A5 in `lanes`, adaptive.A6 and adaptive.A11 in
//! `controller`, adaptive.A7 to adaptive.A9 and adaptive.A12 in `switch`, adaptive.A10 in
//! `probation`.
//!
//! Source: adaptable objects of [K42](crate#sources), section 3.4, with the logs of
//! [OpLog](crate#sources) and the readers of [BRAVO](crate#sources) as the modes to choose from;
//! none of these changes its mode by itself.

mod access;
mod controller;
mod end;
mod guard;
mod lanes;
#[cfg(all(test, manycore_loom))]
mod loom_tests;
mod policy;
mod probation;
mod side_state;
mod stats;
mod switch;

pub use guard::ReadGuard;
pub use policy::{Mode, Policy, Switch, SwitchReason};
pub use stats::Stats;

use self::side_state::SideState;
use crate::oplog::{Deferred, Log};
use crate::sync::{AtomicPtr, Ordering};
use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::ptr;

/// A value with updates and reads that is a locked object, one with logs, or one with concurrent
/// readers, as its load requires.
///
/// For shared values whose ratio of reads to updates is not known beforehand, or whose load
/// changes. `T` is any single-threaded type; `L` is the kind of log, as for [`Deferred`]. Not for
/// updates that return something (but see [`change`](Self::change)), and not where the ratio is
/// known and never changes: a fixed type needs no counts.
///
/// ```
/// use manycore::cluster::Adaptive;
/// use manycore::cluster::adaptive::Mode;
/// use manycore::oplog::{Commuting, Op};
///
/// struct Visit;
/// impl Op<u64> for Visit {
///     fn apply(self, visits: &mut u64) {
///         *visits += 1;
///     }
/// }
///
/// let visits = Adaptive::<u64, Commuting<Visit>>::new(0);
/// std::thread::scope(|scope| {
///     for _ in 0..4 {
///         scope.spawn(|| (0..50_000).for_each(|_| visits.update(Visit)));
///     }
/// });
/// assert_eq!(*visits.read(), 200_000);
///
/// let stats = visits.stats();
/// assert_eq!(stats.mode, Mode::Logs); // no thread read, so updates went to logs
/// println!("{stats}"); // prints when and why
/// ```
///
/// - Consistency: linearizable, also across changes of mode: an update takes effect at one moment
///   between its call and its return. A guard shows the object as it was when the guard was made:
///   updates by its own thread are deferred until the guard is dropped.
/// - Progress: as a lock's. In `Logs`, updates wait for reads that merge; in `Shared`, reads don't
///   wait for each other, and an update waits for the readers inside.
/// - Cost: in `Direct`, a lock and a count. In `Logs`, see [`Deferred`]. In `Shared`, a read costs
///   one locked instruction on the thread's own line, or none when updates are very rare; an update
///   looks at a line for each thread that has read, and then calls `membarrier` (some
///   microseconds). The object looks at its counts each thousand operations, so it settles within
///   milliseconds of load; see [`Policy`]. Under contention at a ratio that does not decide, it
///   tries another mode for some thousand operations; the interval doubles after each that fails.
/// - Memory: the value plus 24 bytes. Some 900 bytes more once the object has found that its load
///   is one-sided or contended, and 128 for each slot, at least 4 KiB, once it has been `Shared`;
///   in `Logs` as [`Deferred`].
/// - Panics: an update that panics poisons the object, as with [`Deferred`]; see
///   [`repair`](Self::repair). A panic in a reader does not.
/// - Source: see the [module](self).
pub struct Adaptive<T: Send + Sync + 'static, L: Log<T>> {
    object: Deferred<T, L>,
    /// Null until it is needed; freed with the object.
    side_state: AtomicPtr<SideState<L::Op>>,
}

/// As with a `Mutex` of `std`: an update that panics poisons the object.
impl<T: Send + Sync + 'static, L: Log<T>> UnwindSafe for Adaptive<T, L> {}
/// As with a `Mutex` of `std`: an update that panics poisons the object.
impl<T: Send + Sync + 'static, L: Log<T>> RefUnwindSafe for Adaptive<T, L> {}

impl<T: Send + Sync + 'static, L: Log<T>> Adaptive<T, L> {
    #[inline(always)]
    fn side_state(&self) -> Option<&SideState<L::Op>> {
        // ORDER: Acquire; pairs with the exchange in `side_state_or_new`: contents before pointer.
        let side = self.side_state.load(Ordering::Acquire);
        // SAFETY: from a box, and freed only with the object.
        unsafe { side.as_ref() }
    }

    #[cold]
    fn side_state_or_new(&self) -> &SideState<L::Op> {
        if let Some(side) = self.side_state() {
            return side;
        }
        let created = Box::into_raw(Box::new(SideState::new(Policy::default())));
        // ORDER: AcqRel; Release publishes the contents, Acquire reads another thread's.
        let raced = self.side_state.compare_exchange(
            ptr::null_mut(),
            created,
            Ordering::AcqRel,
            Ordering::Acquire,
        );
        match raced {
            // SAFETY: just made, and freed only with the object.
            Ok(_) => unsafe { &*created },
            Err(other) => {
                // SAFETY: made above and shared with no other thread.
                drop(unsafe { Box::from_raw(created) });
                // SAFETY: another thread's, freed only with the object.
                unsafe { &*other }
            }
        }
    }
}

impl<T: Send + Sync + 'static, L: Log<T>> From<T> for Adaptive<T, L> {
    fn from(value: T) -> Self {
        Self::new(value)
    }
}

impl<T: Send + Sync + Default + 'static, L: Log<T>> Default for Adaptive<T, L> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T: Send + Sync + 'static, L: Log<T>> fmt::Debug for Adaptive<T, L> {
    /// Prints the state, not the value: that would take a read.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Adaptive")
            .field("hot", &self.object.is_hot())
            .field("poisoned", &self.is_poisoned())
            .finish_non_exhaustive()
    }
}
