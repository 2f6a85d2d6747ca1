//! [`Deferred`]: one word that is a lock while the object is cold and leads to a hot state while it
//! is hot.
//!
//! Owns: the public interface, and the path of an update. Locking is in `acquire`, promotion and
//! demotion in `lifecycle`.
//!
//! The word is a lock word of [`crate::lock`], or with `HOT` it leads to a hot state
//! ([`promotion`]).
//! - oplog.W1 Without `HOT`, the value is inline and guarded by the word. With `HOT`, it is in the
//!   hot state and guarded by the hot state's lock; but see oplog.W2.
//! - oplog.W2 A promotion publishes the hot state locked in the name of the word's holder, with the
//!   value still inline. The holder moves the value when it releases the lock. So any thread may
//!   promote while a guard points to the value: the holder itself, or a thread that must not wait
//!   for the holder. Only a locked word becomes HOT.
//! - oplog.W3 A hot state is freed only after the word no longer leads to it, its updaters and its
//!   lock's waiters have left, it has left the table, and an evictor that had claimed it is done.
//! - oplog.W4 If the last owner of an object is one of its own updates or logs, an eviction of the
//!   object may drop it further down the same stack. Then the evictor, which has the hot state's
//!   lock and perhaps the value borrowed, frees both when it is done. Other calls that take the
//!   object by value or `&mut` panic there.

use super::acquire::{ColdHold, Locked};
use super::builder::Builder;
use super::configurations::ConfigId;
use super::guard::ReadGuard;
use super::hot_state::{HotState, Refusal};
use super::lifecycle::Admission;
use super::log::Log;
use super::promotion::{self, Word};
use super::reader::logs_pay_from;
use super::stats::Stats;
use crate::config;
use crate::lock::error::{TryReadError, would_wait_in_a_circle};
use crate::lock::{self, Refused, held};
use crate::percpu::{self, Slot};
use crate::profile::Of;
use crate::sync::{self, AtomicU32, AtomicUsize, Ordering, Panic, UnsafeCell, panicking};
use std::fmt;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::Deref;
use std::panic::resume_unwind;
use std::ptr;

/// Bits of `contention`: updates since the last read, the contended ones among them, flags.
pub(super) const UPDATES: u32 = 0xffff;
pub(super) const CONTENDED_ONE: u32 = 1 << 16;
pub(super) const CONTENDED: u32 = 0xff << 16;
/// A hint: the word is HOT. Changed under the object's lock.
pub(super) const LOGGED: u32 = 1 << 30;
pub(super) const POISONED: u32 = 1 << 31;

/// A value whose updates are deferred until the next read.
///
/// For structures that are updated often, by many threads, and read rarely: registries, reverse
/// maps, statistics, recency lists, queues of events. `T` is any single-threaded type; `L` is the
/// kind of log that keeps its updates (see [the kinds](super#reexports)).
///
/// Not for updates that return something, and not for structures that are read about as often as
/// they are updated: below about ten updates per read, a lock is better. (In
/// [`Logs::Auto`](super::Logs::Auto) mode such an object stays a plain locked object.)
///
/// - Consistency: linearizable.
/// - Progress: an update of a hot object waits only for a reader that is collecting this slot's
///   log, or by [`WhenFull`](super::WhenFull); of a cold one, for the lock. Reads wait for each
///   other.
/// - Cost of an update while hot: no write to a shared line, no lock, no read-modify-write when
///   biased and one when not, and a clock read if the log is ordered. Cost of a read: the object's
///   lock; when biased, one `membarrier` if a thread that has updates in its log is no longer busy
///   updating (2 us, and 1 us for each other running thread); one to three cache misses per slot
///   that was written since the last read (on many cores, three for each group of cores:
///   [`MergeStrategy`]), and the updates themselves. Each thread that goes on updating waits for
///   the read once, from some hundred nanoseconds to some microseconds, and may collect other
///   threads' logs while it waits. A read that finds all logs empty costs the lock and a load of
///   the dirty bits.
/// - Memory: the value plus 16 bytes while cold; while hot, about 1.2 KB more and one log per slot
///   that updates it; after an eviction, 256 bytes more (plus the size of a value of over 8 bytes,
///   which stays in the hot state) until the object is next used. While an object is poisoned, its
///   updates are kept without bound.
/// - Source: OpLog, sections 4 to 6, and section 8 for [`MergeStrategy`].
///
/// [`MergeStrategy`]: super::MergeStrategy
/// [`WhenFull`]: super::WhenFull
///
/// ```
/// use manycore::oplog::{Deferred, Op, Ordered};
///
/// enum Update {
///     Add(u32),
///     Remove(u32),
/// }
/// impl Op<Vec<u32>> for Update {
///     fn apply(self, list: &mut Vec<u32>) {
///         match self {
///             Update::Add(x) => list.push(x),
///             Update::Remove(x) => list.retain(|y| *y != x),
///         }
///     }
/// }
///
/// let list = Deferred::<Vec<u32>, Ordered<Update>>::new(Vec::new());
/// std::thread::scope(|s| {
///     for i in 0..4 {
///         let list = &list;
///         s.spawn(move || {
///             list.append(Update::Add(i));
///             list.append(Update::Remove(i));
///         });
///     }
/// });
/// assert!(list.read().is_empty());
/// ```
pub struct Deferred<T: Send + 'static, L: Log<T>> {
    pub(super) word: AtomicUsize,
    pub(super) config: ConfigId,
    pub(super) contention: AtomicU32,
    pub(super) value: Inline<T>,
    log: PhantomData<fn() -> L>,
}

/// The value's place in the object. Its `Send` and `Sync` impls decide those of the object: an
/// `impl` for the object itself would have to repeat `L: Log<T>`, and a type that refers to an
/// object of its own kind could not be proved `Send` (E0275; `tests/own_type.rs`). Logs and updates
/// may cross because every `Log<T>` and its `Op` are `Send`.
pub(super) struct Inline<T>(UnsafeCell<MaybeUninit<T>>);

// SAFETY: a shared object gives its value to the lock's holder alone (oplog.W1), one thread at a
// time. A shared guard, and an `Adaptive`, which admits readers by lanes (adaptive.A1), require `T:
// Sync`.
unsafe impl<T: Send> Sync for Inline<T> {}
// SAFETY: an object that moves takes its value along (`T: Send`); its logs and updates are `Send`
// by `Log`'s own bounds.
unsafe impl<T: Send> Send for Inline<T> {}

impl<T> Deref for Inline<T> {
    type Target = UnsafeCell<MaybeUninit<T>>;

    #[inline(always)]
    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl<T: Send + 'static, L: Log<T>> Deferred<T, L> {
    /// An object with this value, cold, with the default bounds and policies.
    #[must_use]
    pub fn new(value: T) -> Self {
        Self::with_config(value, ConfigId::default())
    }

    /// A builder for an object with other bounds and policies.
    #[must_use]
    pub fn builder() -> Builder<T, L> {
        Builder::new()
    }

    pub(super) fn with_config(value: T, config: ConfigId) -> Self {
        Self {
            word: AtomicUsize::new(0),
            config,
            contention: AtomicU32::new(0),
            value: Inline(UnsafeCell::new(MaybeUninit::new(value))),
            log: PhantomData,
        }
    }

    /// Appends an update; the next read sees it.
    ///
    /// If its log is full, it may apply updates of other threads. Their panics are caught here:
    /// they poison the object for its next reader, and this update is appended.
    ///
    /// # Panics
    /// If the object is cold and applying the update panics.
    #[inline]
    #[track_caller]
    pub fn append(&self, op: L::Op) {
        // ORDER: Relaxed; a hint that keeps the cold path from loading the word that it is about to
        // lock (3 ns in a tight loop). If it is wrong, the slow path corrects it.
        if self.contention.load(Ordering::Relaxed) & LOGGED != 0 {
            self.append_logged(op);
        } else if let Err((op, refusal)) = self.append_cold(op) {
            self.append_slow(op, refusal);
        }
    }

    /// Not inlined into [`append`](Self::append), so that the cold path saves no registers: its
    /// locked instruction would wait for those stores.
    #[inline(never)]
    fn append_logged(&self, op: L::Op) {
        // ORDER: Acquire; pairs with Release at promotion: the hot state's contents before its
        // address.
        let word = Word::load(&self.word, Ordering::Acquire);
        let refused = match percpu::idle_slot() {
            Some(slot) if word.is_plain() => self.append_plain(slot, word, op),
            _ => Err(op),
        };
        if let Err(op) = refused {
            self.append_slow(op, Refusal::Stale);
        }
    }

    /// The fast path of [`append_hot`](Self::append_hot), which nearly all updates take.
    #[inline(always)]
    pub(super) fn append_plain(&self, slot: Slot, word: Word, op: L::Op) -> Result<(), L::Op> {
        // SAFETY: oplog.W3 - this is the object's word, and its hot states are freed only as
        // promotion.H4 allows.
        let hot = unsafe { promotion::enter_by::<HotState<T, L>>(slot, &self.word, word) };
        let Some(hot) = hot else { return Err(op) };
        // SAFETY: oplog.C1 - `enter_by` has announced the hot state, and checked the word after
        // that.
        unsafe { hot.push_plain(slot.index(), op) }
    }

    #[inline(always)]
    pub(super) fn append_hot(
        &self,
        slot: Slot,
        word: Word,
        op: L::Op,
        growth: usize,
    ) -> Result<(), (L::Op, Refusal)> {
        // SAFETY: oplog.W3 - this is the object's word, and its hot states are freed only as
        // promotion.H4 allows.
        let hot = unsafe { promotion::enter_by::<HotState<T, L>>(slot, &self.word, word) };
        let Some(hot) = hot else { return Err((op, Refusal::Stale)) };
        // SAFETY: oplog.C1 - `enter_by` has announced the hot state, and checked the word after
        // that.
        let stamp = unsafe { hot.push(slot.index(), op, growth) }?;
        if !L::ORDERED || hot.stamps_in_hardware() {
            return Ok(());
        }
        // SAFETY: this call borrows the object, which keeps the clock's configuration (oplog.O1).
        let clock = unsafe { hot.clock_of_builder() };
        drop(hot);
        clock.settle(stamp);
        Ok(())
    }

    #[inline(always)]
    fn append_cold(&self, op: L::Op) -> Result<(), (L::Op, Refusal)> {
        if percpu::is_announcing() {
            return Err((op, Refusal::Stale)); // a log is in hand: it must be logged
        }
        match lock::try_lock(&self.word, percpu::thread_token()) {
            Ok(()) => self.apply_locked(op, false),
            Err(_) => Err((op, Refusal::Stale)),
        }
    }

    /// Applies an update to the cold object that this thread has locked, and unlocks it.
    #[inline(always)]
    pub(super) fn apply_locked(&self, op: L::Op, contended: bool) -> Result<(), (L::Op, Refusal)> {
        let mut hold = ColdHold::of(self);
        // ORDER: Relaxed (all of `contention`); guarded by the word's lock.
        let contention = self.contention.load(Ordering::Relaxed);
        if contention & POISONED != 0 || self.config.always_logs() {
            return self.promote_instead(op, hold);
        }
        self.apply_held(op, &mut hold);
        // Loaded again: the object may have been promoted.
        let contention = self.contention.load(Ordering::Relaxed);
        let mut contention =
            if contention & UPDATES == UPDATES { contention } else { contention + 1 };
        let pays = || contention & UPDATES >= logs_pay_from(percpu::slot_count());
        if contended && pays() && !self.config.never_logs() {
            contention += CONTENDED_ONE;
            // ORDER: Relaxed; a hint: `publish_hot_state` decides.
            let promoted = Word::load(&self.word, Ordering::Relaxed).is_hot();
            if !promoted && contention & CONTENDED >= config::CONTENDED_FOR_LOGS * CONTENDED_ONE {
                contention &= !CONTENDED;
                self.contention.store(contention, Ordering::Relaxed);
                self.promote_held(hold, Admission::Ask);
                return Ok(());
            }
        }
        self.contention.store(contention, Ordering::Relaxed);
        Ok(())
    }

    #[inline(always)]
    pub(super) fn apply_held(&self, op: L::Op, hold: &mut ColdHold<'_, T, L>) {
        hold.poison = true;
        held::assert_no_leaf();
        self.value.with_mut(|value| {
            // SAFETY: oplog.W1 - the word is locked by this thread and not HOT.
            L::apply(op, unsafe { (*value).assume_init_mut() });
        });
        hold.poison = false;
    }

    /// For an update that must be logged, not applied: the object is poisoned, or always has logs.
    #[cold]
    fn promote_instead(
        &self,
        op: L::Op,
        mut hold: ColdHold<'_, T, L>,
    ) -> Result<(), (L::Op, Refusal)> {
        if self.contention.load(Ordering::Relaxed) & POISONED != 0 {
            self.promote_held(hold, Admission::Bypass);
            return Err((op, Refusal::Stale));
        }
        match self.publish_hot_state(&hold, Admission::Insist) {
            Some(eviction) => {
                drop(hold);
                drop(eviction); // runs the victim's updates, now that this thread holds no lock
                Err((op, Refusal::Stale))
            }
            None => {
                // The place is in use at this moment: apply this update instead.
                self.apply_held(op, &mut hold);
                Ok(())
            }
        }
    }

    /// Brings the object up to date and locks it, for reading or changing the value.
    ///
    /// # Panics
    /// - If the object is poisoned, because an update panicked. Repair the value through
    ///   [`get_mut`](Self::get_mut) or [`read_poisoned`](Self::read_poisoned) and call
    ///   [`clear_poison`](Self::clear_poison).
    /// - If an update panics while this read applies it; the object is poisoned then.
    /// - If the read would deadlock: this thread holds the object already, or holds another object
    ///   for which the object's holder waits, or is in [`Log::push`] (see [the module](super)).
    #[track_caller]
    pub fn read(&self) -> ReadGuard<'_, T, L> {
        let guard = self.read_poisoned();
        assert!(
            !guard.is_poisoned(),
            "manycore: the object is poisoned, because an update panicked; repair it and call \
             clear_poison()"
        );
        guard
    }

    /// As [`read`](Self::read), also if the object is poisoned: then the queued updates are not
    /// applied, so that the value can be examined and repaired.
    ///
    /// # Panics
    /// As [`read`](Self::read), except for poison.
    #[track_caller]
    pub fn read_poisoned(&self) -> ReadGuard<'_, T, L> {
        match self.acquire(true) {
            Ok(guard) => guard,
            Err(Refused::Circle) => would_wait_in_a_circle(),
            Err(_) => panic!(
                "manycore: this thread holds the object already; drop the guard before reading \
                 again, and do not read an object from within its own updates"
            ),
        }
    }

    /// As [`read`](Self::read), unless that would wait for another reader.
    ///
    /// # Errors
    /// [`TryReadError::Busy`] if a reader holds the object, [`TryReadError::Poisoned`] if an update
    /// panicked.
    ///
    /// # Panics
    /// If an update panics while this read applies it.
    #[track_caller]
    pub fn try_read(&self) -> Result<ReadGuard<'_, T, L>, TryReadError> {
        let guard = self.acquire(false).map_err(|_| TryReadError::Busy)?;
        if guard.is_poisoned() { Err(TryReadError::Poisoned) } else { Ok(guard) }
    }

    /// Applies pending updates. The same as dropping a [`read`](Self::read) guard at once.
    ///
    /// # Panics
    /// As [`read`](Self::read).
    #[track_caller]
    pub fn synchronize(&self) {
        drop(self.read());
    }

    /// The value, up to date. No other thread can use it, so this is cheap.
    ///
    /// A poisoned object's value is as the panic left it, for repair: queued updates stay queued,
    /// and the first read after [`clear_poison`](Self::clear_poison) applies them.
    ///
    /// # Panics
    /// If an update panics while it is applied; the object is poisoned then, and the updates after
    /// it stay queued. And if it is called from within an update or a log of this object that owns
    /// it.
    #[track_caller]
    pub fn get_mut(&mut self) -> &mut T {
        self.assert_not_in_own_eviction();
        rethrow(self.settle_down());
        let value = self.settled_value();
        // SAFETY: oplog.W1 - `&mut self` is exclusive. The pointer is to what `self` owns, and is
        // used for as long as `self` is borrowed.
        unsafe { (*ptr::from_mut(value.deref())).assume_init_mut() }
    }

    /// The value, up to date.
    ///
    /// # Panics
    /// If the object is poisoned, or an update panics while it is applied: then the value and the
    /// queued updates are dropped. [`try_into_inner`](Self::try_into_inner) keeps them.
    #[must_use]
    #[track_caller]
    pub fn into_inner(self) -> T {
        match self.try_into_inner() {
            Ok(value) => value,
            Err(object) => {
                drop(object);
                panic!(
                    "manycore: the object is poisoned, because an update panicked; repair it and \
                     call clear_poison(), or use try_into_inner()"
                )
            }
        }
    }

    /// The value, up to date, unless the object is poisoned.
    ///
    /// # Errors
    /// The object, if it is poisoned, with its queued updates: repair it through
    /// [`get_mut`](Self::get_mut) and call [`clear_poison`](Self::clear_poison).
    ///
    /// # Panics
    /// If an update panics while it is applied: the value and the updates after it are dropped.
    /// (Call [`synchronize`](Self::synchronize) first if that matters.) Otherwise as
    /// [`get_mut`](Self::get_mut).
    #[track_caller]
    pub fn try_into_inner(mut self) -> Result<T, Self> {
        self.assert_not_in_own_eviction();
        rethrow(self.settle_down());
        if self.is_poisoned() {
            return Err(self);
        }
        let mut this = std::mem::ManuallyDrop::new(self);
        drop(std::mem::take(&mut this.config));
        // SAFETY: `settle_down` has run, and `this` is never dropped.
        Ok(unsafe { this.take_value() })
    }

    /// Whether the object is poisoned: an update, or a reader that held the object, panicked.
    #[must_use]
    pub fn is_poisoned(&self) -> bool {
        // ORDER: Relaxed; a caller that needs more holds the lock.
        if self.contention.load(Ordering::Relaxed) & POISONED != 0 {
            return true;
        }
        self.with_hot_state(|hot, _| hot.poisoned.load(Ordering::Relaxed)).unwrap_or(false)
    }

    /// Clears the poison flag. The next read applies the queued updates.
    ///
    /// Takes the object's lock, unless this thread holds the object already.
    ///
    /// # Panics
    /// If taking the lock would deadlock, as [`read`](Self::read).
    #[track_caller]
    pub fn clear_poison(&self) {
        // Under the lock: a read that has collected without applying must find the poison flag that
        // made it skip the updates, or it would return a value without them.
        let locked = self.lock_as_it_is();
        if matches!(locked, Err(Refused::Circle)) {
            would_wait_in_a_circle();
        }
        // ORDER: Relaxed (both); guarded by the lock.
        self.contention.fetch_and(!POISONED, Ordering::Relaxed);
        self.with_hot_state(|hot, _| hot.poisoned.store(false, Ordering::Relaxed));
    }

    /// Whether updates go to logs now; false once the object has been evicted.
    #[must_use]
    pub fn is_logged(&self) -> bool {
        self.is_hot() && self.with_hot_state(|hot, _| !hot.is_evicted()).unwrap_or(false)
    }

    /// Whether the object has a hot state, perhaps an evicted one; a hint.
    #[inline]
    pub(crate) fn is_hot(&self) -> bool {
        // ORDER: Relaxed; a hint.
        Word::load(&self.word, Ordering::Relaxed).is_hot()
    }

    /// Gives the object logs now, without waiting for contention. Returns whether it has them:
    /// false if this thread holds the object, or if its place in the [`LogTable`](super::LogTable)
    /// is in use at this moment.
    #[track_caller]
    pub fn promote(&self) -> bool {
        if self.is_hot() && !self.is_logged() && !held::is_inside() {
            // Evicted: this demotes the object. A panic is that of an update applied here, and has
            // poisoned the object.
            sync::contain(|| drop(self.acquire(true)));
        }
        let token = percpu::thread_token();
        let locked = if held::is_inside() {
            lock::try_lock(&self.word, token)
        } else {
            lock::lock(&self.word, token, Of::new("Deferred", self)).map(drop)
        };
        match locked {
            Ok(()) => self.promote_held(ColdHold::of(self), Admission::Insist),
            Err(Refused::Busy) => {
                self.publish_for_holder(); // without a place: it must not wait (oplog.T1)
                true
            }
            Err(refused) => refused == Refused::Hot && self.is_logged(),
        }
    }

    /// Applies pending updates and frees the logs. Contention may promote the object again.
    ///
    /// The object keeps its logs if its updates keep appending updates to it.
    ///
    /// # Panics
    /// As [`read`](Self::read).
    #[track_caller]
    pub fn demote(&self) {
        let mut guard = self.read();
        for _ in 0..config::ROUNDS_OF_DEMOTION {
            self.demote_guard(&mut guard);
            if guard.hot.is_null() || guard.is_poisoned() {
                return;
            }
        }
    }

    /// Statistics of this object's updates.
    ///
    /// Takes the object's lock, so not for hot paths. Within an update of this object, or a log's
    /// own code, it returns what is known without reading logs and without waiting: see [`Stats`].
    #[must_use]
    pub fn stats(&self) -> Stats {
        if self.is_held_by_this_thread() {
            // SAFETY: this thread holds the hot state's lock.
            return self.with_hot_state(|hot, _| unsafe { hot.stats() }).unwrap_or_default();
        }
        let waits = !percpu::is_announcing();
        loop {
            match self.lock_hot_state(waits) {
                Ok(hot) => {
                    let _locked = Locked { object: self, hot };
                    // SAFETY: the lock is held, so the hot state is alive.
                    return unsafe { (*hot).stats() };
                }
                Err(Refused::Hot) if self.is_hot() => {}
                Err(_) => return Stats::default(),
            }
        }
    }

    /// Whether the object that this thread holds through `hot` is poisoned.
    pub(super) fn is_poisoned_held(&self, hot: *const HotState<T, L>) -> bool {
        // ORDER: Relaxed (both); guarded by the lock that the caller holds.
        // SAFETY: oplog.W3 - the caller, a guard or the keeper of its lock, holds the lock of
        // `hot` if that is not null, so the hot state is alive.
        self.contention.load(Ordering::Relaxed) & POISONED != 0
            || unsafe { hot.as_ref() }.is_some_and(|hot| hot.poisoned.load(Ordering::Relaxed))
    }
}

fn rethrow(result: Result<(), Panic>) {
    if let Err(panic) = result {
        resume_unwind(panic);
    }
}

impl<T: Send + 'static, L: Log<T>> Drop for Deferred<T, L> {
    /// Applies pending updates, then drops the value. If an update panics, the value is dropped
    /// first and the panic is resumed (unless the thread is already unwinding).
    ///
    /// A poisoned object's queued updates are dropped with it: the panic that poisoned it has
    /// already been reported. [`try_into_inner`](Self::try_into_inner) keeps them.
    fn drop(&mut self) {
        if self.is_in_own_eviction() {
            return self.leave_to_evictor();
        }
        let settled = self.settle_down();
        // SAFETY: `settle_down` has run, and the object is not used again.
        drop(unsafe { self.take_value() });
        if !panicking() {
            rethrow(settled);
        }
    }
}

impl<T: Send + Default + 'static, L: Log<T>> Default for Deferred<T, L> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T: Send + 'static, L: Log<T>> fmt::Debug for Deferred<T, L> {
    /// Prints the state, not the value: that would take a read.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Deferred")
            .field("logged", &self.is_logged())
            .field("poisoned", &self.is_poisoned())
            .finish_non_exhaustive()
    }
}
