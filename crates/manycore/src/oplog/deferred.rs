//! The object: one word that is a lock while it is cold and leads to a core while it is hot.
//!
//! Owns: the public face, and the way of an update. Holding is in `hold`, promotion and demotion in
//! `lifecycle`.
//!
//! The word is a lock word of [`crate::lock`], or with `HOT` the address of a core and its flags.
//! - W1 Without `HOT`, the value is inline and guarded by the word. With `HOT`, it is in the core
//!   and guarded by the core's lock; but see W2.
//! - W2 A promotion publishes the core locked, with the value inline still. Whoever holds the lock
//!   moves it when it gives the lock up. So a promotion may happen under a guard that points to the
//!   value (an update by the thread that reads).
//! - W3 A core is freed after: the word has left it, its updaters are out, its lock's waiters are
//!   out, it has left the table, and an evictor that had claimed it is done.

use super::builder::{Builder, ConfigId, WhenFull};
use super::core::{ANY_GROWTH, BIASED, CLOSING, Core, LONG_WAY, Refusal, address_of};
use super::guard::ReadGuard;
use super::hold::ColdHold;
use super::lifecycle::Admission;
use super::log::Log;
use super::reader::logs_pay_from;
use super::stats::Stats;
use crate::config;
use crate::lock::error::TryReadError;
use crate::lock::{self, HOT, Refused};
use crate::percpu::{self, Slot};
use crate::profile::{Of, Wait};
use crate::sync::{self, AtomicU32, AtomicUsize, Backoff, Ordering, UnsafeCell, panicking};
use std::any::Any;
use std::fmt;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::Deref;
use std::panic::resume_unwind;
use std::ptr;

/// Bits of `heat`: updates since the last read, contended ones among them, flags.
pub(super) const UPDATES: u32 = 0xffff;
pub(super) const CONTENDED_ONE: u32 = 1 << 16;
pub(super) const CONTENDED: u32 = 0xff << 16;
/// A hint: the word is HOT. Changed under the object's lock.
pub(super) const LOGGED: u32 = 1 << 30;
pub(super) const POISONED: u32 = 1 << 31;

/// A value whose updates are put off until somebody reads.
///
/// For structures that are updated often, by many threads, and read rarely: registries, reverse
/// maps, statistics, recency lists, queues of events. `T` is any single-threaded type; `L` says how
/// its updates are kept (see [the kinds](super#reexports)).
///
/// Not for updates that return something, and not for structures that are read about as often as
/// they are updated: below some ten updates a read, a lock is better. (With
/// [`Logs::Auto`](super::Logs::Auto) such an object stays a plain locked object by itself.)
///
/// - Consistency: linearizable.
/// - Progress: an update of a hot object waits only for a reader that is collecting this slot's
///   log, or by [`WhenFull`]; of a cold one, for the lock. Reads wait for each other.
/// - Cost of an update while hot: no shared line written, no lock, no read-modify-write when biased
///   and one when not, and a clock read if the log is ordered. Cost of a read: the object's lock,
///   when biased one `membarrier` if a thread that has written is not at it any more (2 us, and
///   1 us for each other thread that runs), a cache miss or three per slot that was written since
///   the last read (on many cores, three for each group of cores: [`MergeStrategy`]), and the
///   updates themselves. Each thread that goes on updating waits for the read once, some hundred
///   nanoseconds to some microseconds, and may collect others' logs meanwhile. A read that finds
///   no log written costs the lock and a look.
/// - Memory: the value plus 16 bytes while cold; while hot, a core of about 1.6 KiB and one
///   log per slot that updates it. While an object is poisoned its updates are kept without bound.
/// - Source: OpLog, sections 4 to 6, and section 8 for [`MergeStrategy`].
///
/// [`MergeStrategy`]: super::MergeStrategy
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
    pub(super) heat: AtomicU32,
    pub(super) value: Inline<T>,
    log: PhantomData<fn() -> L>,
}

/// The value's place in the object. It says what may cross threads, and the object has it from
/// here: an `impl` for the object itself would have to repeat `L: Log<T>`, and a type that refers
/// to an object of its own kind could not be proved `Send` (E0275; `tests/own_type.rs`). Logs and
/// updates may cross because every `Log<T>` and its `Op` are `Send`.
pub(super) struct Inline<T>(UnsafeCell<MaybeUninit<T>>);

// SAFETY: the value is reached under a lock alone (W1), one thread at a time.
unsafe impl<T: Send> Sync for Inline<T> {}
// SAFETY: as above.
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

    /// Starts an object with other bounds and policies.
    #[must_use]
    pub fn builder() -> Builder<T, L> {
        Builder::new()
    }

    pub(super) fn with_config(value: T, config: ConfigId) -> Self {
        Self {
            word: AtomicUsize::new(0),
            config,
            heat: AtomicU32::new(0),
            value: Inline(UnsafeCell::new(MaybeUninit::new(value))),
            log: PhantomData,
        }
    }

    /// Puts an update down; the next read sees it.
    ///
    /// If its log is full, it may apply what others have put down. A panic of theirs ends here: the
    /// object is poisoned then, as its next reader finds out, and this update is put down.
    ///
    /// # Panics
    /// If the object is cold and applying the update panics.
    #[inline]
    #[track_caller]
    pub fn append(&self, op: L::Op) {
        // ORDER: Relaxed; a hint that keeps the cold path from loading the word that it is about to
        // lock (3 ns in a tight loop). If it is wrong, the slow path sorts it out.
        if self.heat.load(Ordering::Relaxed) & LOGGED != 0 {
            self.append_logged(op);
        } else if let Err((op, refusal)) = self.append_cold(op) {
            self.append_slow(op, refusal);
        }
    }

    /// Apart from [`append`](Self::append), so that the registers it saves do not burden the cold
    /// path: stores in front of a locked instruction are waited for.
    #[inline(never)]
    fn append_logged(&self, op: L::Op) {
        // ORDER: Acquire; pairs with Release at promotion: the core's contents before its address.
        let word = self.word.load(Ordering::Acquire);
        let refused = match percpu::idle_slot() {
            Some(slot) if word & (HOT | CLOSING | LONG_WAY) == HOT => {
                self.append_plain(slot, word, op)
            }
            _ => Err(op),
        };
        if let Err(op) = refused {
            self.append_slow(op, Refusal::Stale);
        }
    }

    /// As [`append_hot`](Self::append_hot), for what nearly all updates are.
    #[inline(always)]
    pub(super) fn append_plain(&self, slot: Slot, word: usize, op: L::Op) -> Result<(), L::Op> {
        let _inside = slot.announce(word, word & BIASED != 0);
        // ORDER: Acquire; as in `append_hot`.
        if self.word.load(Ordering::Acquire) != word {
            return Err(op);
        }
        // SAFETY: W3 - the object has this core, and it will be kept while it is announced.
        let core = unsafe { &*(address_of(word) as *const Core<T, L>) };
        // SAFETY: announced, and checked after that.
        unsafe { core.push_plain(slot.index(), op) }
    }

    #[inline(always)]
    fn append_hot(
        &self,
        slot: Slot,
        word: usize,
        op: L::Op,
        growth: usize,
    ) -> Result<(), (L::Op, Refusal)> {
        let inside = slot.announce(word, word & BIASED != 0);
        // ORDER: Acquire; with the announcement before it, the updater's half of C1 and W3.
        if self.word.load(Ordering::Acquire) != word {
            return Err((op, Refusal::Stale));
        }
        // SAFETY: W3 - the object has this core, and it will be kept while it is announced.
        let core = unsafe { &*(address_of(word) as *const Core<T, L>) };
        // SAFETY: announced, and checked after that.
        let stamp = unsafe { core.push(slot.index(), op, growth) }?;
        if !L::ORDERED || core.stamps_in_hardware() {
            return Ok(());
        }
        let clock = core.clock_of_builder();
        drop(inside);
        clock.settle(stamp);
        Ok(())
    }

    #[inline(always)]
    fn append_cold(&self, op: L::Op) -> Result<(), (L::Op, Refusal)> {
        match lock::try_lock(&self.word, percpu::thread_token()) {
            Ok(()) => self.apply_locked(op, false),
            Err(_) => Err((op, Refusal::Stale)),
        }
    }

    /// Applies an update to the cold object that this thread has locked, and unlocks it.
    #[inline(always)]
    fn apply_locked(&self, op: L::Op, contended: bool) -> Result<(), (L::Op, Refusal)> {
        let mut hold = ColdHold { object: self, poison: false };
        // ORDER: Relaxed (all of `heat`); guarded by the word's lock.
        let heat = self.heat.load(Ordering::Relaxed);
        if heat & POISONED != 0 || self.config.always_logs() {
            return self.promote_instead(op, hold);
        }
        self.apply_held(op, &mut hold);
        // Again: the update may have promoted the object.
        let heat = self.heat.load(Ordering::Relaxed);
        let mut heat = if heat & UPDATES == UPDATES { heat } else { heat + 1 };
        let pays = || heat & UPDATES >= logs_pay_from(percpu::slot_count());
        if contended && pays() && !self.config.never_logs() {
            heat += CONTENDED_ONE;
            // ORDER: Relaxed; only this thread can have changed the word to HOT.
            let promoted = self.word.load(Ordering::Relaxed) & HOT != 0;
            if !promoted && heat & CONTENDED >= config::CONTENDED_FOR_LOGS * CONTENDED_ONE {
                heat &= !CONTENDED;
                self.heat.store(heat, Ordering::Relaxed);
                self.promote_held(hold, Admission::Ask);
                return Ok(());
            }
        }
        self.heat.store(heat, Ordering::Relaxed);
        Ok(())
    }

    #[inline(always)]
    pub(super) fn apply_held(&self, op: L::Op, hold: &mut ColdHold<'_, T, L>) {
        hold.poison = true;
        self.value.with_mut(|value| {
            // SAFETY: W1 - the word is locked by this thread and not HOT.
            L::apply(op, unsafe { (*value).assume_init_mut() });
        });
        hold.poison = false;
    }

    /// The update must be logged, not applied: the object is poisoned, or always has logs.
    #[cold]
    fn promote_instead(&self, op: L::Op, hold: ColdHold<'_, T, L>) -> Result<(), (L::Op, Refusal)> {
        if self.heat.load(Ordering::Relaxed) & POISONED != 0 {
            self.promote_held(hold, Admission::Bypass);
            return Err((op, Refusal::Stale));
        }
        if self.promote_held(hold, Admission::Insist) {
            return Err((op, Refusal::Stale));
        }
        // The table is full of objects in use this moment: this once, apply.
        match lock::lock(&self.word, percpu::thread_token(), Of::new("Deferred", self)) {
            Ok(_) => {
                self.apply_held(op, &mut ColdHold { object: self, poison: false });
                Ok(())
            }
            Err(_) => Err((op, Refusal::Stale)),
        }
    }

    #[cold]
    #[track_caller]
    fn append_slow(&self, op: L::Op, refusal: Refusal) {
        let done = self.append_while_logged(op, refusal);
        debug_assert!(done.is_ok(), "only a managed object gives updates back");
    }

    /// Goes on until the update is done. A managed object that has become cold gives it back.
    #[track_caller]
    pub(super) fn append_while_logged(
        &self,
        mut op: L::Op,
        mut refusal: Refusal,
    ) -> Result<(), L::Op> {
        let mut backoff = Backoff::new();
        let mut growth = 1;
        loop {
            match refusal {
                Refusal::Closed => {
                    self.assert_not_absorbing();
                    let wait = Wait::begin();
                    self.with_core(|core, slot| core.wait_for_collection(slot, &mut backoff));
                    wait.end(Of::new("Deferred", self), 1);
                }
                Refusal::Stale => {}
                Refusal::Full | Refusal::Overdue => {
                    growth = self.make_room(refusal, growth, &mut backoff);
                }
                // What panics is another update, applied on the way: its poison tells of it.
                Refusal::Evicted => sync::contain(|| drop(self.hold(true))),
                Refusal::Cold => return Err(op),
            }
            (op, refusal) = match self.try_append(op, growth) {
                Ok(()) => return Ok(()),
                Err(refused) => refused,
            };
        }
    }

    #[track_caller]
    fn try_append(&self, op: L::Op, growth: usize) -> Result<(), (L::Op, Refusal)> {
        // ORDER: Acquire; as in `append`.
        let word = self.word.load(Ordering::Acquire);
        if word & HOT != 0 {
            if word & CLOSING != 0 {
                return Err((op, Refusal::Closed));
            }
            return percpu::with_slot(|slot| self.append_hot(slot, word, op, growth));
        }
        if self.config.is_managed() {
            return Err((op, Refusal::Cold));
        }
        match lock::lock(&self.word, percpu::thread_token(), Of::new("Deferred", self)) {
            Ok(contended) => self.apply_locked(op, contended),
            Err(Refused::HeldBySelf) => {
                // This thread reads the object, or applies an update of it, right now (W2).
                let hold = std::mem::ManuallyDrop::new(ColdHold { object: self, poison: false });
                self.publish_core(&hold, Admission::Bypass);
                Err((op, Refusal::Stale))
            }
            Err(Refused::Hot | Refused::Busy) => Err((op, Refusal::Stale)),
        }
    }

    /// A log is at its bound: does what the policy says, and returns the growth to try next (D6).
    fn make_room(&self, refusal: Refusal, growth: usize, backoff: &mut Backoff) -> usize {
        let policy = self.config.config().when_full;
        let allowed = match policy {
            WhenFull::Drain { growth } | WhenFull::Grow { growth } => growth,
            WhenFull::Wait => 1,
        };
        match (policy, refusal) {
            (WhenFull::Wait, Refusal::Overdue) => return 2,
            (WhenFull::Wait, _) => {
                if self.is_held_by_this_thread() {
                    return ANY_GROWTH; // waiting for a reader would be waiting for oneself
                }
                backoff.pause();
                return 1;
            }
            (WhenFull::Grow { .. }, Refusal::Full) if growth < allowed => return allowed,
            _ => {}
        }
        // If applying panics, that is another update's panic: the poison tells of it, and this
        // update is logged whatever the bounds say.
        let mut next = ANY_GROWTH;
        sync::contain(|| {
            next = match self.hold(growth >= allowed) {
                Ok(_) => 1,
                Err(Refused::HeldBySelf) => ANY_GROWTH,
                // Busy: somebody is reading; grow meanwhile.
                Err(_) => allowed.max(2),
            };
        });
        next
    }

    /// Brings the object up to date and holds it, for looking at it and for changing it.
    ///
    /// # Panics
    /// - If the object is poisoned: an update panicked. Repair the value through
    ///   [`get_mut`](Self::get_mut) or [`read_poisoned`](Self::read_poisoned) and call
    ///   [`clear_poison`](Self::clear_poison).
    /// - If an update panics while this read applies it; the object is poisoned then.
    /// - If this thread holds the object already, where it would wait for ever.
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

    /// As [`read`](Self::read), also if the object is poisoned: then without the updates that are
    /// queued, for looking at the damage and repairing it.
    ///
    /// # Panics
    /// As [`read`](Self::read), poison apart.
    #[track_caller]
    pub fn read_poisoned(&self) -> ReadGuard<'_, T, L> {
        match self.hold(true) {
            Ok(guard) => guard,
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
        let guard = self.hold(false).map_err(|_| TryReadError::Busy)?;
        if guard.is_poisoned() { Err(TryReadError::Poisoned) } else { Ok(guard) }
    }

    /// Applies what is pending. The same as dropping a [`read`](Self::read) guard at once.
    ///
    /// # Panics
    /// As [`read`](Self::read).
    #[track_caller]
    pub fn synchronize(&self) {
        drop(self.read());
    }

    /// The value, up to date. No other thread can be at it, so this is cheap.
    ///
    /// # Panics
    /// If an update panics while it is applied. (A poisoned object's queued updates are not.)
    pub fn get_mut(&mut self) -> &mut T {
        rethrow(self.settle_down());
        // SAFETY: W1 - the object is cold now, and `&mut self` is exclusive.
        self.value.with_mut(|value| unsafe { (*value).assume_init_mut() })
    }

    /// The value, up to date.
    ///
    /// # Panics
    /// As [`get_mut`](Self::get_mut).
    #[must_use]
    pub fn into_inner(mut self) -> T {
        rethrow(self.settle_down());
        let this = std::mem::ManuallyDrop::new(self);
        // SAFETY: W1 - cold, so the value is inline; `this` is never dropped.
        this.value.with(|value| unsafe { ptr::read(value).assume_init() })
    }

    /// Whether an update, or a reader holding the object, panicked.
    #[must_use]
    pub fn is_poisoned(&self) -> bool {
        // ORDER: Relaxed; whoever needs more holds the lock.
        if self.heat.load(Ordering::Relaxed) & POISONED != 0 {
            return true;
        }
        self.with_core(|core, _| core.poisoned.load(Ordering::Relaxed)).unwrap_or(false)
    }

    /// Says that the value is fit for use again. The next read applies what is queued.
    ///
    /// Takes the object's lock, unless this thread holds the object already.
    pub fn clear_poison(&self) {
        // Under the lock: a read that has merged without applying must find the poison that made it
        // skip that, or it would return without the updates that are queued.
        let core = self.lock_as_it_is();
        // ORDER: Relaxed (both); guarded by the lock.
        self.heat.fetch_and(!POISONED, Ordering::Relaxed);
        self.with_core(|core, _| core.poisoned.store(false, Ordering::Relaxed));
        if let Ok(core) = core {
            // SAFETY: the lock was taken above, and no reference to the value was made.
            unsafe { self.release(core, false) };
        }
    }

    /// Whether updates go to logs now.
    #[must_use]
    pub fn is_logged(&self) -> bool {
        // ORDER: Relaxed; a hint.
        self.word.load(Ordering::Relaxed) & HOT != 0
    }

    /// Gives the object logs now, without waiting for contention. Returns whether it has them: no
    /// if this thread holds the object, or if its place in the [`LogTable`](super::LogTable) is in
    /// use this moment.
    #[track_caller]
    pub fn promote(&self) -> bool {
        match lock::lock(&self.word, percpu::thread_token(), Of::new("Deferred", self)) {
            Ok(_) => self.promote_held(ColdHold { object: self, poison: false }, Admission::Insist),
            Err(refused) => refused == Refused::Hot,
        }
    }

    /// Applies what is pending and takes the logs away. Contention may bring them back.
    ///
    /// # Panics
    /// As [`read`](Self::read).
    #[track_caller]
    pub fn demote(&self) {
        let mut guard = self.read();
        self.demote_guard(&mut guard);
    }

    /// Counts of what happened to this object's updates.
    ///
    /// Takes the object's lock, so not for hot paths. From within an update of this object it says
    /// what it can without looking into logs: see [`Stats`].
    #[must_use]
    pub fn stats(&self) -> Stats {
        if self.is_held_by_this_thread() {
            // SAFETY: this thread holds the core's lock.
            return self.with_core(|core, _| unsafe { core.stats() }).unwrap_or_default();
        }
        loop {
            // ORDER: Relaxed; `lock_core` looks again.
            if self.word.load(Ordering::Relaxed) & HOT == 0 {
                return Stats::default();
            }
            if let Ok(core) = self.lock_core(true) {
                // SAFETY: the lock is held, so the core is alive.
                let stats = unsafe { (*core).stats() };
                // SAFETY: taken just above.
                unsafe { self.release(core, false) };
                return stats;
            }
        }
    }

    /// Whether the object that this thread holds through `core` is poisoned.
    pub(super) fn is_poisoned_held(&self, core: *const Core<T, L>) -> bool {
        // ORDER: Relaxed (both); guarded by the lock that the caller holds.
        // SAFETY: the caller's guard holds the core's lock, so the core is alive.
        self.heat.load(Ordering::Relaxed) & POISONED != 0
            || unsafe { core.as_ref() }.is_some_and(|core| core.poisoned.load(Ordering::Relaxed))
    }
}

fn rethrow(result: Result<(), Box<dyn Any + Send>>) {
    if let Err(panic) = result {
        resume_unwind(panic);
    }
}

impl<T: Send + 'static, L: Log<T>> Drop for Deferred<T, L> {
    /// Applies what is pending, then drops the value. If an update panics, the value is dropped
    /// first and the panic goes on (unless the thread is unwinding already).
    fn drop(&mut self) {
        let settled = self.settle_down();
        // SAFETY: W1 - cold, so the value is inline; it is not used again.
        self.value.with_mut(|value| unsafe { (*value).assume_init_drop() });
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
