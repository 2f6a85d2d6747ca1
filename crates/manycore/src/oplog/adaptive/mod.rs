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
//! ```
//!
//! The best technique for a shared object depends on how often it is read and updated, and that is
//! often unknown, or changes. An adaptive object is a [`Deferred`], which is a lock or has logs as
//! its load requires. Where nearly all uses are reads, it also lets readers in side by side.
//!
//! | [`Mode`] | An update | A read | Best at |
//! |---|---|---|---|
//! | `Direct` | takes the lock | takes the lock | about as many reads as updates, or few of both |
//! | `Logs` | appends to the thread's own log | merges the logs | many updates for each read, by several threads |
//! | `Shared` | keeps readers out | writes the thread's own line | many reads for each update |
//!
//! *Cancelling* is up to the log: with [`Cancelling`](crate::oplog::Cancelling), a removal cancels
//! its insertion in the log. The marks of [`ldu`](crate::ldu) are in the members themselves, so
//! they need a value made of members, and do not fit a value of any type. For such values, use
//! [`DeferredSet`](crate::ldu::DeferredSet).
//!
//! # Laws
//!
//! Owns: [`Adaptive`], that is, when an object is shared. Does not own: logs and the lock
//! ([`Deferred`]), and how readers are let in and kept out (`readers`, with the laws readers.A1 to
//! readers.A5).
//!
//! - adaptive.A6 A cold object becomes shared when reads are due (`contention`) and there were
//!   `SHARED_FROM` times as many reads as updates. Some updates later it stops being shared if the
//!   ratio was less than half of that. So a load that alternates changes the mode at most once in
//!   some hundred reads.
//!
//! Source: adaptable objects of [K42](crate#sources), section 3.4, with the logs of
//! [OpLog](crate#sources) and the readers of [BRAVO](crate#sources) as the modes to choose from.
//! None of these changes its mode by itself.

mod guard;
mod steps;

pub use guard::ReadGuard;

use self::guard::Entry;
use super::deferred::{not_held, poisoned};
use super::lifecycle::Admission;
use super::log::Log;
use super::object::Deferred;
use super::readers::Lazy;
use super::stats::Stats;
use crate::config;
use crate::lock::Refused;
use crate::lock::error::TryReadError;
use crate::sync::const_fn;
use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};

/// The mode of an object.
///
/// ```
/// use manycore::cluster::{Adaptive, adaptive::Mode};
/// use manycore::oplog::{Commuting, Op};
///
/// # struct Add(u64);
/// # impl Op<u64> for Add {
/// #     fn apply(self, sum: &mut u64) {
/// #         *sum += self.0;
/// #     }
/// # }
/// let sum = Adaptive::<u64, Commuting<Add>>::new(0);
/// assert_eq!(sum.mode(), Mode::Direct);
/// assert!(sum.pin(Mode::Logs)); // the load is known: many updates for each read
/// sum.update(Add(1));
/// assert_eq!(*sum.read(), 1);
/// assert_eq!(sum.mode(), Mode::Logs);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mode {
    /// A value behind a lock. Every object begins in this mode.
    Direct,
    /// Updates are appended to logs, and a read merges the logs, as a hot
    /// [`Deferred`](crate::oplog::Deferred) does.
    Logs,
    /// Readers read in parallel, and each writes its own line; an update keeps them out.
    Shared,
}

/// A value with updates and reads. As its load requires, it is a locked object, an object with
/// logs, or one with concurrent readers.
///
/// For shared values with a ratio of reads to updates that is not known beforehand, or that
/// changes. `T` is any single-threaded type; `L` is the kind of log, as for [`Deferred`]. Not for
/// updates that return something (but see [`change`](Self::change)). Not for objects that several
/// threads never read at once: a [`Deferred`] is 8 bytes smaller.
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
/// assert_ne!(visits.mode(), Mode::Shared); // no thread read
/// ```
///
/// - Consistency: linearizable, also across changes of mode: an update takes effect at one moment
///   between its call and its return. A guard shows the object as it was when the guard was made:
///   updates by its own thread wait in a log until the guard is dropped.
/// - Progress: like a lock's. In `Logs`, updates wait for reads that merge. In `Shared`, reads do
///   not wait for each other, and an update waits for the readers inside.
/// - Cost: in `Direct` and `Logs`, as for [`Deferred`]. In `Shared`, a read costs one locked
///   instruction on the thread's own line, or none when updates are very rare. An update looks at a
///   line for each thread that has read, and then calls `membarrier` (some microseconds). The
///   object looks at its counts each thousand reads, so it settles within milliseconds of load.
/// - Memory: the value plus 24 bytes; in `Logs` as for [`Deferred`]. 384 bytes more once the object
///   has been `Shared`, or was updated by a thread that held it. 128 bytes more for each slot that
///   has read it in `Shared`, at least 4 KiB.
/// - Panics: an update that panics poisons the object, as with [`Deferred`]; see
///   [`repair`](Self::repair). A panic in a reader does not.
/// - Source: see the [module](self).
pub struct Adaptive<T: Send + Sync + 'static, L: Log<T>> {
    /// Before `readers`, which its hot state may refer to.
    pub(super) object: Deferred<T, L>,
    /// Made when the object is shared for the first time, or might be.
    readers: Lazy,
}

/// As with a `Mutex` of `std`: an update that panics poisons the object.
impl<T: Send + Sync + 'static, L: Log<T>> UnwindSafe for Adaptive<T, L> {}
/// As with a `Mutex` of `std`: an update that panics poisons the object.
impl<T: Send + Sync + 'static, L: Log<T>> RefUnwindSafe for Adaptive<T, L> {}

impl<T: Send + Sync + 'static, L: Log<T>> Adaptive<T, L> {
    const_fn! {
        /// Makes an object with this value, behind a lock at first.
        #[must_use]
        pub const fn new(value: T) -> Self {
            Self {
                object: Deferred::new_with_readers(value),
                readers: Lazy::new(),
            }
        }
    }

    /// Makes an update; every later read sees it.
    ///
    /// # Panics
    /// If the object has no logs and applying the update panics.
    #[inline(always)]
    #[track_caller]
    pub fn update(&self, op: L::Op) {
        self.object.append_or(op, self);
    }

    /// Reads the object, up to date.
    ///
    /// # Panics
    /// - If the object is poisoned: an update panicked. See [`repair`](Self::repair).
    /// - If an update that waits panics while this read applies it; the object is poisoned then.
    /// - If this thread holds the object already. (Not always: a thread that reads in `Shared` may
    ///   be admitted again.)
    /// - If the wait for the object would be a deadlock, because a thread that holds it waits for
    ///   an object that this thread holds. (Two readers in `Shared` do not wait for each other, but
    ///   a read that has updates to apply waits for the others.)
    #[inline(always)]
    #[track_caller]
    pub fn read(&self) -> ReadGuard<'_, T, L> {
        if let Some(hold) = self.object.hold_cold() {
            return ReadGuard::of_cold(self, Entry::Hold(hold));
        }
        match self.enter_lane() {
            Some(lane) => ReadGuard::of_cold(self, Entry::Lane(lane)),
            None => ReadGuard::new(self, self.read_rare()),
        }
    }

    /// As [`read`](Self::read), unless that would wait for another thread that holds the object.
    ///
    /// # Errors
    /// [`TryReadError::Busy`] if another thread holds it, [`TryReadError::Poisoned`] if an update
    /// panicked.
    ///
    /// # Panics
    /// If an update that waits panics while this read applies it.
    pub fn try_read(&self) -> Result<ReadGuard<'_, T, L>, TryReadError> {
        let entry = self.enter(false).map_err(|_| TryReadError::Busy)?;
        let guard = ReadGuard::new(self, entry);
        if guard.is_poisoned() { Err(TryReadError::Poisoned) } else { Ok(guard) }
    }

    /// Runs `f` on the value, up to date and exclusively, and returns its result: for an update
    /// with a result that is needed at once.
    ///
    /// # Panics
    /// As for [`read`](Self::read), and if `f` panics; then the object is poisoned.
    #[track_caller]
    pub fn change<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        let mut guard = self.exclusive().unwrap_or_else(|refused| not_held(refused));
        if guard.is_poisoned() {
            drop(guard);
            poisoned();
        }
        let result = f(&mut guard);
        self.end(guard);
        result
    }

    /// Runs `f` on the value of a poisoned object, without the waiting updates, and clears the
    /// poison flag. The next read or update applies them. An object that is not poisoned is
    /// [changed](Self::change).
    ///
    /// # Panics
    /// As for [`change`](Self::change), except for poison.
    #[track_caller]
    pub fn repair<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        let mut guard = self.exclusive().unwrap_or_else(|refused| not_held(refused));
        let result = f(&mut guard);
        self.end(guard);
        self.object.clear_poison();
        result
    }

    /// Returns true if an update panicked.
    #[must_use]
    pub fn is_poisoned(&self) -> bool {
        self.object.is_poisoned()
    }

    /// Changes the object's mode now and keeps it there until [`unpin`](Self::unpin). Returns true
    /// if it worked.
    ///
    /// It does not work if the object is poisoned, or if this thread holds it. Nor does it work if
    /// a thread that holds it waits for an object that this thread holds, or if its place in the
    /// table of logs is in use at this moment. A busier object that takes that place later ends a
    /// pin to `Logs`.
    ///
    /// # Panics
    /// If an update that waits panics while it is applied.
    pub fn pin(&self, mode: Mode) -> bool {
        let Ok(mut guard) = self.exclusive() else { return false };
        if guard.is_poisoned() {
            return false;
        }
        if guard.is_hot() {
            if mode == Mode::Logs {
                self.object.contention.pin_to_logs();
                return true;
            }
            for _ in 0..config::ROUNDS_OF_DEMOTION {
                self.object.demote_guard(&mut guard);
            }
            if guard.is_hot() {
                return false;
            }
        }
        let hold = guard.into_cold();
        let contention = self.object.contention.load().unreserved();
        self.object.contention.store(contention.in_mode(mode == Mode::Shared, true));
        match mode {
            Mode::Direct => true,
            Mode::Shared => {
                self.readers.get_or_new().open(false);
                true
            }
            Mode::Logs => match self.object.publish_hot_state(&hold, Admission::Insist) {
                Some(eviction) => {
                    drop(hold);
                    drop(eviction); // runs the victim's updates, now that this call holds no lock
                    true
                }
                None => {
                    self.object.contention.store(contention.in_mode(false, false));
                    false
                }
            },
        }
    }

    /// Lets the load decide on the mode again.
    ///
    /// # Panics
    /// If this thread holds the object.
    pub fn unpin(&self) {
        if self.is_read_by_lane() {
            not_held(Refused::HeldBySelf);
        }
        match self.object.lock_as_it_is() {
            Ok(_locked) => self.object.contention.unpin(),
            Err(refused) => not_held(refused),
        }
    }

    /// Returns the object's mode at the moment of the call. It may change at any time.
    #[must_use]
    pub fn mode(&self) -> Mode {
        if self.object.is_hot() {
            Mode::Logs
        } else if self.object.contention.load().is_shared() {
            Mode::Shared
        } else {
            Mode::Direct
        }
    }

    /// Returns the statistics of the object's logs since it got them.
    ///
    /// Takes the object's lock if it has logs, so it is not for hot paths. While this thread holds
    /// the object, the statistics may be zero.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.object.stats()
    }

    /// Returns the value, up to date. This is cheap, because `&mut self` is exclusive.
    ///
    /// The value of a poisoned object is as the panic left it, and waiting updates go on waiting
    /// (see [`repair`](Self::repair)).
    ///
    /// # Panics
    /// If an update panics while it is applied; the object is poisoned then.
    pub fn get_mut(&mut self) -> &mut T {
        self.object.get_mut()
    }

    /// Returns the value, up to date.
    ///
    /// # Panics
    /// If the object is poisoned, or an update panics while it is applied: then the value and the
    /// waiting updates are dropped.
    #[must_use]
    pub fn into_inner(self) -> T {
        self.object.into_inner()
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
    /// Prints the state, not the value: printing the value would take a read.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Adaptive")
            .field("mode", &self.mode())
            .field("poisoned", &self.is_poisoned())
            .finish_non_exhaustive()
    }
}
