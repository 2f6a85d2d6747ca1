//! [`DeferredSet`]: the set's public interface.

use super::guard::{ReadGuard, SharedGuard};
use super::links::Linked;
use super::pending::Look;
use super::state::{EAGER, Held, State, cannot_read};
use super::structure::Structure;
use crate::lock::error::{TryReadError, would_deadlock};
use crate::lock::{Entered, Refused};
use crate::sync::{self, Ordering};
use std::fmt;
use std::mem::ManuallyDrop;
use std::panic::{RefUnwindSafe, UnwindSafe};

/// A set that defers its insertions and removals until the next read, and lets them cancel each
/// other.
///
/// For sets that many threads change often and that are read rarely: mappings of a file, open
/// connections, active transactions. `T` is what reads want, any single-threaded structure. `E` is
/// a member, which carries its marks ([`Linked`], or [`Element`](super::Element) around any value).
///
/// **Only where operations on different members commute**: not for queues and stacks. Not for sets
/// that are read about as often as they are changed. Compared with
/// [`Deferred`](crate::oplog::Deferred): there, an insertion and its removal cancel if one thread
/// made both; here, they cancel on any threads. There, an update may be anything; here, it is the
/// coming or going of a member.
///
/// ```
/// use manycore::ldu::{DeferredSet, Element, Structure};
/// use std::collections::BTreeSet;
///
/// #[derive(Default)]
/// struct Ports(BTreeSet<u16>);
/// impl Structure<Element<u16>> for Ports {
///     fn insert(&mut self, port: &Element<u16>) {
///         self.0.insert(**port);
///     }
///     fn remove(&mut self, port: &Element<u16>) {
///         self.0.remove(port);
///     }
/// }
///
/// let open = DeferredSet::new(Ports::default());
/// std::thread::scope(|s| {
///     for port in 8000..8004 {
///         let open = &open;
///         s.spawn(move || {
///             let listening = open.add(port); // Attached: in the set
///             let paused = listening.remove(); // Detached: out of it
///             let again = paused.insert(); // never reached the tree
///             drop(again);
///         });
///     }
/// });
/// let admin = open.add(22);
/// assert_eq!(open.read().0, [22].into());
/// drop(admin);
/// assert!(open.read().0.is_empty());
/// ```
///
/// - Consistency: linearizable.
/// - Progress: a change never waits for a read or for another member's change, except if a queue is
///   far over its bound ([`max_queued`](super::Builder::max_queued)). Reads wait for each other.
///   Reads that [share](Self::read_shared) the structure wait for the read that brings it up to
///   date.
/// - Cost of a change: one atomic instruction on the member's own word, and one load of a line that
///   only reads write. The first change of a member after a read also pushes the member: one or two
///   more atomic instructions.
/// - Cost of a read: the lock, an atomic instruction, and a look at each queue that got a member.
///   For each member that changed, a cache miss and, if its changes did not cancel, the structure's
///   own work. A read that finds nothing changed costs the lock and a look; if it shares the
///   structure, an atomic instruction at each end and a look.
/// - Memory: the structure, some 1,250 bytes and the queues ([`Queue`](super::Queue)); 16 bytes for
///   each member. Members that were dropped while queued stay until the next read, within the
///   bounds.
/// - Errors, panics: see [`read`](Self::read), and ldu.U7 of the [module](super).
/// - Source: [LDU](crate#sources), section 2.4.
pub struct DeferredSet<T: Structure<E>, E: Linked> {
    pub(super) state: ManuallyDrop<State<T, E>>,
}

/// As with a `Mutex` of `std`: a structure that panics poisons the set.
impl<T: Structure<E>, E: Linked> UnwindSafe for DeferredSet<T, E> {}
/// As with a `Mutex` of `std`: a structure that panics poisons the set.
impl<T: Structure<E>, E: Linked> RefUnwindSafe for DeferredSet<T, E> {}

/// Counts of what happened to a set's members so far.
///
/// ```
/// use manycore::ldu::{DeferredSet, Element, Structure};
///
/// # #[derive(Default)]
/// # struct Sum(u64);
/// # impl Structure<Element<u64>> for Sum {
/// #     fn insert(&mut self, number: &Element<u64>) {
/// #         self.0 += **number;
/// #     }
/// #     fn remove(&mut self, number: &Element<u64>) {
/// #         self.0 -= **number;
/// #     }
/// # }
/// let set = DeferredSet::new(Sum(0));
/// let kept = set.add(1);
/// for _ in 0..100 {
///     drop(set.add(2)); // came and went
/// }
/// assert_eq!(set.read().0, 1);
/// assert_eq!(set.stats().applied, 1); // one call of the structure for 201 changes
/// # drop(kept);
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Number of times that a change found its member in no queue and pushed it into one.
    pub queued: u64,
    /// Number of calls of the structure's `insert` and `remove`. All other changes have cancelled
    /// each other.
    pub applied: u64,
    /// Number of times that queues were emptied.
    pub drains: u64,
    /// Number of members that were given up while queued, and that a drain freed.
    pub freed: u64,
    /// Number of members that wait for the next read outside of queues: they changed while the last
    /// read ran, or change all the time.
    pub waiting: usize,
}

impl<T: Structure<E>, E: Linked> DeferredSet<T, E> {
    pub(super) fn around(state: State<T, E>) -> Self {
        Self { state: ManuallyDrop::new(state) }
    }

    /// Brings the structure up to date and holds it.
    ///
    /// # Panics
    /// - If the set is poisoned: the structure panicked. Repair it through
    ///   [`read_poisoned`](Self::read_poisoned) and call [`clear_poison`](Self::clear_poison).
    /// - If the structure panics in this read; the set is poisoned then.
    /// - If the read would wait for ever: this thread already holds or shares the set, or holds
    ///   another object for which one of the set's holders waits.
    #[track_caller]
    pub fn read(&self) -> ReadGuard<'_, T, E> {
        sound(self.read_poisoned())
    }

    /// As [`read`](Self::read). `pace` returns whether changes are to be eager from now on, as in
    /// [`read_shared_at`](Self::read_shared_at).
    #[track_caller]
    pub(crate) fn read_at(
        &self,
        pace: impl FnOnce(&mut T, Look) -> (bool, u32),
    ) -> ReadGuard<'_, T, E> {
        // SAFETY: `hold` passes a set with a lock that this thread has.
        let held = self.hold(true, |state| unsafe {
            state.drain(true);
            state.set_pace(pace);
        });
        sound(held.unwrap_or_else(|refused| cannot_read(refused)))
    }

    /// As [`read`](Self::read), but always makes a cut, and returns it: for an owner that notes the
    /// [`epoch`](Self::epoch) elsewhere, too. `before` is called under the lock, before the epoch
    /// is raised.
    #[track_caller]
    pub(crate) fn read_cut(&self, before: impl FnOnce()) -> (ReadGuard<'_, T, E>, u64) {
        let mut cut = None;
        let held = self.hold(true, |state| {
            before();
            // SAFETY: `hold` passes a set with a lock that this thread has.
            cut = unsafe { state.drain_to(true, true) };
        });
        // A poisoned set makes no cut, and then there is no guard.
        (sound(held.unwrap_or_else(|refused| cannot_read(refused))), cut.unwrap_or_default())
    }

    /// As [`read_shared`](Self::read_shared), with a cut as in [`read_cut`](Self::read_cut). A
    /// reader that makes a cut calls `at` with it before it shares the structure. A reader that has
    /// waited for another reader, or for a change that drained, makes no cut.
    #[track_caller]
    pub(crate) fn share_cut(
        &self,
        before: impl FnOnce(),
        at: impl FnOnce(&mut T, u64),
    ) -> SharedGuard<'_, T, E>
    where
        T: Sync,
    {
        let bring = |state: &State<T, E>| {
            before();
            // SAFETY: `share` passes a set that this thread alone has.
            if let Some(cut) = unsafe { state.drain_to(true, true) } {
                // SAFETY: rounds.V1 - as above.
                state.value.with_mut(|value| at(unsafe { &mut *value }, cut));
            }
        };
        self.share(|| false, bring)
    }

    /// Returns the epoch that a change has to note if it begins now (ldu.U6). The caller's change
    /// is a full fence, and a read sees it before it returns.
    #[inline(always)]
    pub(crate) fn epoch(&self) -> u64 {
        self.state.epoch() & !EAGER
    }

    /// Returns true if the structure knows of every change that had returned before the full fence
    /// that the caller has passed. The caller holds the set.
    pub(crate) fn is_current(&self) -> bool {
        self.state.is_current()
    }

    /// As [`read`](Self::read), but also returns a guard if the set is poisoned. Then the queued
    /// changes are not applied, so the damage can be examined and repaired.
    ///
    /// # Panics
    /// As [`read`](Self::read), except for poison.
    #[track_caller]
    pub fn read_poisoned(&self) -> ReadGuard<'_, T, E> {
        self.hold(true, keeping).unwrap_or_else(|refused| cannot_read(refused))
    }

    /// As [`read`](Self::read), unless that would wait for another reader.
    ///
    /// # Errors
    /// [`TryReadError::Busy`] if a reader holds the set, [`TryReadError::Poisoned`] if the
    /// structure panicked.
    ///
    /// # Panics
    /// If the structure panics in this read.
    pub fn try_read(&self) -> Result<ReadGuard<'_, T, E>, TryReadError> {
        let guard = self.hold(false, keeping).map_err(|_| TryReadError::Busy)?;
        if guard.is_poisoned() { Err(TryReadError::Poisoned) } else { Ok(guard) }
    }

    /// As [`read`](Self::read), in parallel with other shared readers, so the structure cannot be
    /// changed through the guard. A reader that had to wait for another reader to bring the
    /// structure up to date uses that reader's work, if it began after this call.
    ///
    /// # Panics
    /// As [`read`](Self::read); also if this thread already shares or holds the set.
    #[track_caller]
    pub fn read_shared(&self) -> SharedGuard<'_, T, E>
    where
        T: Sync,
    {
        self.share(|| self.is_current(), keeping)
    }

    /// As [`read_shared`](Self::read_shared). If this reader brings the structure up to date,
    /// `pace` returns whether changes are to be eager from now on; then this reader, too, may have
    /// the structure alone.
    #[track_caller]
    pub(crate) fn read_shared_at(
        &self,
        pace: impl FnOnce(&mut T, Look) -> (bool, u32),
    ) -> SharedGuard<'_, T, E>
    where
        T: Sync,
    {
        // SAFETY: `share` passes a set that this thread alone has.
        let bring = |state: &State<T, E>| unsafe {
            state.drain(true);
            state.set_pace(pace);
        };
        self.share(|| self.is_current(), bring)
    }

    /// Holds the set after `bring` has brought it up to date.
    #[track_caller]
    pub(super) fn hold(
        &self,
        wait: bool,
        bring: impl FnOnce(&State<T, E>),
    ) -> Result<ReadGuard<'_, T, E>, Refused> {
        self.state.lock(wait)?;
        let held = Held { state: &self.state, poison: false };
        bring(held.state);
        Ok(ReadGuard::new(held))
    }

    /// Shares the set, after this reader has brought it up to date by `bring`, or another reader
    /// has.
    #[track_caller]
    fn share(
        &self,
        is_current: impl Fn() -> bool,
        bring: impl FnOnce(&State<T, E>),
    ) -> SharedGuard<'_, T, E>
    where
        T: Sync,
    {
        let guard = match self.state.enter(is_current) {
            Ok(Entered::Shared) => SharedGuard::new(&self.state),
            Ok(Entered::First) => {
                // A `First` alone has the structure, until `after` (rounds.V1).
                let held = Held { state: &*self.state, poison: false };
                bring(held.state);
                SharedGuard::after(held)
            }
            Err(refused) => cannot_read(refused),
        };
        assert!(!self.is_poisoned(), "{POISONED}");
        guard
    }

    /// Applies what is pending and frees what was given up: the same as dropping a
    /// [`read`](Self::read) guard at once. For a timer, if queues should not wait for a reader.
    ///
    /// # Panics
    /// As [`read`](Self::read).
    #[track_caller]
    pub fn synchronize(&self) {
        drop(self.read());
    }

    /// Returns the structure, up to date. No other thread can use it, so this is cheap.
    ///
    /// # Panics
    /// If the structure panics. (A poisoned set's changes stay queued.)
    pub fn get_mut(&mut self) -> &mut T {
        // SAFETY: `&mut self` is more than the lock.
        unsafe { self.state.drain(true) };
        // SAFETY: `&mut self` lasts as long as the reference, so no guard and no other thread
        // reaches the structure.
        self.state.value.with_mut(|value| unsafe { &mut *value })
    }

    /// Returns the structure, up to date.
    ///
    /// # Panics
    /// As [`get_mut`](Self::get_mut).
    #[must_use]
    pub fn into_inner(self) -> T {
        let mut this = ManuallyDrop::new(self);
        let finished = this.state.finish();
        // SAFETY: `this` is not used or dropped after this.
        let (value, garbage) = unsafe { ManuallyDrop::take(&mut this.state) }.dismantle();
        sync::resume_first([finished, sync::caught(|| sync::drop_each(garbage))]);
        value
    }

    /// Returns true if the structure, or a reader that held the set, panicked.
    #[must_use]
    pub fn is_poisoned(&self) -> bool {
        self.state.is_poisoned()
    }

    /// Clears the poison flag. The next read applies the queued changes.
    ///
    /// Takes the set's lock, unless this thread holds the set already.
    ///
    /// # Panics
    /// If taking the lock would wait for ever, as [`read`](Self::read).
    pub fn clear_poison(&self) {
        // Under the lock: a read that skipped the queues must find the poison that made it skip
        // them.
        let locked = self.state.lock(true);
        if locked == Err(Refused::Deadlock) {
            would_deadlock();
        }
        let held = locked.map(|()| Held { state: &*self.state, poison: false });
        // ORDER: Relaxed; guarded by the lock.
        self.state.read_side.poisoned.store(false, Ordering::Relaxed);
        drop(held);
    }

    /// Returns counts of what happened to this set's members. Takes the set's lock, so it is not
    /// for hot paths.
    ///
    /// # Panics
    /// If taking the lock would wait for ever, as [`read`](Self::read).
    #[must_use]
    pub fn stats(&self) -> Stats {
        if let Err(refused) = self.state.lock(true) {
            cannot_read(refused);
        }
        let held = Held { state: &*self.state, poison: false };
        let stats = self.state.pending.with(|pending| {
            // SAFETY: the lock is held, and guards `pending`.
            let pending = unsafe { &*pending };
            Stats {
                queued: self.state.update_side.queues.pushed(),
                applied: pending.applied,
                drains: pending.drains,
                freed: pending.freed,
                waiting: pending.waiting(),
            }
        });
        drop(held);
        stats
    }
}

/// Brings a set up to date that this thread alone has. Busy members stay queued.
fn keeping<T: Structure<E>, E: Linked>(state: &State<T, E>) {
    // SAFETY: `hold` and `share` pass a set that this thread alone has.
    unsafe { state.drain(true) };
}

const POISONED: &str = "manycore: the set is poisoned, because its structure panicked; repair it \
                        and call clear_poison()";

/// Returns the guard, and panics if its set is poisoned.
#[track_caller]
fn sound<T: Structure<E>, E: Linked>(guard: ReadGuard<'_, T, E>) -> ReadGuard<'_, T, E> {
    assert!(!guard.is_poisoned(), "{POISONED}");
    guard
}

impl<T: Structure<E>, E: Linked> Drop for DeferredSet<T, E> {
    /// Applies what is pending, then drops the structure. If the structure panics, it is dropped
    /// first and then the panic goes on (unless the thread is already unwinding).
    fn drop(&mut self) {
        let finished = self.state.finish();
        // SAFETY: taken only here, and not used afterwards.
        let (value, garbage) = unsafe { ManuallyDrop::take(&mut self.state) }.dismantle();
        let dropped = sync::caught(|| drop(value));
        sync::resume_first([finished, dropped, sync::caught(|| sync::drop_each(garbage))]);
    }
}

impl<T: Structure<E>, E: Linked> From<T> for DeferredSet<T, E> {
    fn from(structure: T) -> Self {
        Self::new(structure)
    }
}

impl<T: Structure<E> + Default, E: Linked> Default for DeferredSet<T, E> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T: Structure<E>, E: Linked> fmt::Debug for DeferredSet<T, E> {
    /// Prints the state, not the structure: printing the structure would take a read.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let held = self.state.read_side.rounds.is_locked_by_me();
        f.debug_struct("DeferredSet")
            .field("poisoned", &self.is_poisoned())
            .field("held_by_this_thread", &held)
            .finish_non_exhaustive()
    }
}
