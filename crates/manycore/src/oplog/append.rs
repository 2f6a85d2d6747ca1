//! The paths of an update: the fast one and the slow ones.
//!
//! Owns: appending to a log or applying at once, waiting for a collection, making room, and not
//! waiting at all while the thread is inside an object or log. The header of the parent module has
//! these rules.

use super::contention::Kind;
use super::guard::Locked;
use super::hot_state::HotState;
use super::lifecycle::Admission;
use super::log::Log;
use super::object::Deferred;
use super::promotion::{self, Inside};
use super::push::{ANY_GROWTH, Refusal};
use super::word::Word;
use crate::lock::{self, Refused, held};
use crate::percpu::{self, Slot};
use crate::profile::{Of, Wait};
use crate::sync::{self, Backoff, seeded_bug};
use std::mem::ManuallyDrop;

/// An object with updates that take the short paths of a [`Deferred`]. (A trait and no closure, to
/// keep the caller's location.)
pub(super) trait Rare<Op> {
    /// Makes an update that no short path has made; `refusal` says why the log refused it.
    #[track_caller]
    fn append_rarely(&self, op: Op, refusal: Refusal);
}

impl<T: Send + 'static, L: Log<T>> Rare<L::Op> for Deferred<T, L> {
    #[cold]
    #[inline(never)]
    #[track_caller]
    fn append_rarely(&self, op: L::Op, refusal: Refusal) {
        let done = self.append_while_logged(op, refusal);
        debug_assert!(done.is_ok(), "readers.A4: a shared object that is no `Adaptive`");
    }
}

impl<T: Send + 'static, L: Log<T>> Deferred<T, L> {
    /// Makes an update by the short path for the state that the object seems to be in; `of` makes
    /// the update if there is more to do.
    #[inline(always)]
    #[track_caller]
    pub(super) fn append_or(&self, op: L::Op, of: &impl Rare<L::Op>) {
        // A hint that keeps the cold path from loading the word that it is about to lock (3 ns in a
        // tight loop). If it is wrong, `of` corrects it.
        let contention = self.contention.load();
        if contention.is_plain() {
            self.append_locked(op, of);
        } else if contention.is_reserved() {
            self.append_reserved(op, of);
        } else {
            self.append_logged(op, of);
        }
    }

    /// Not inlined into [`append`](Self::append), so that the cold path saves no registers: its
    /// locked instruction would wait for those stores.
    #[inline(never)]
    #[track_caller]
    fn append_logged(&self, op: L::Op, of: &impl Rare<L::Op>) {
        let word = self.word.load();
        let slot = match percpu::idle_slot() {
            Some(slot) if word.is_plain() => slot,
            _ => return of.append_rarely(op, Refusal::Stale),
        };
        let log = percpu::WithLog::only();
        // SAFETY: object.W3 - this is the object's word, and its hot states are freed only as
        // promotion.H4 allows.
        let hot = unsafe { promotion::enter_by::<HotState<T, L>>(slot, self.word.raw(), word) };
        let Some(hot) = hot else {
            drop(log);
            return of.append_rarely(op, Refusal::Stale);
        };
        // SAFETY: hot_state.C1 - `enter_by` has announced the hot state, and has then checked the
        // word, which says that it is plain.
        if let Err(op) = unsafe { hot.push(slot.index(), op) } {
            Self::append_entered(op, slot, (hot, log), of);
        }
    }

    /// Makes an update in a hot state that this thread has entered, when the log is not dirty, is
    /// full, or is closed.
    #[cold]
    #[inline(never)]
    #[track_caller]
    fn append_entered(
        op: L::Op,
        slot: Slot,
        entered: (Inside<HotState<T, L>>, percpu::WithLog),
        of: &impl Rare<L::Op>,
    ) {
        // SAFETY: hot_state.C1 - the caller has announced the hot state, and has then checked the
        // word.
        let pushed = unsafe { entered.0.push_slow(slot.index(), op, 1) };
        drop(entered);
        if let Err((op, refusal)) = pushed {
            of.append_rarely(op, refusal);
        }
    }

    /// As [`append_logged`](Self::append_logged), whatever the word and the log say.
    fn append_hot(
        &self,
        slot: Slot,
        word: Word,
        op: L::Op,
        growth: usize,
    ) -> Result<(), (L::Op, Refusal)> {
        let log = percpu::WithLog::new();
        // SAFETY: object.W3 - this is the object's word, and its hot states are freed only as
        // promotion.H4 allows.
        let hot = unsafe { promotion::enter_by::<HotState<T, L>>(slot, self.word.raw(), word) };
        let Some(hot) = hot else { return Err((op, Refusal::Stale)) };
        // SAFETY: hot_state.C1 - `enter_by` has announced the hot state, and has then checked the
        // word.
        let stamp = unsafe { hot.push_slow(slot.index(), op, growth) }?;
        if !L::ORDERED || !hot.clock().is_skewed() {
            return Ok(());
        }
        // SAFETY: this call borrows the object, which keeps the clock's configuration
        // (configurations.O1).
        let clock = unsafe { hot.clock_of_builder() };
        drop(hot);
        drop(log);
        clock.commit_wait(stamp);
        Ok(())
    }

    /// Makes an update of a cold object that is not reserved: everything rare is behind a branch.
    #[inline(always)]
    #[track_caller]
    fn append_locked(&self, op: L::Op, of: &impl Rare<L::Op>) {
        let token = percpu::thread_token();
        if !lock::try_lock_plain(self.word.raw(), token) {
            return of.append_rarely(op, Refusal::Stale);
        }
        let contention = self.contention.load();
        // Asked under the lock, which waits for the loads before it.
        // BUG: an update acts on the mode that it saw before it took the lock (readers.A4).
        let is_plain = contention.is_plain() || seeded_bug!("unchecked-mode");
        if !is_plain || percpu::has_log() {
            self.let_go();
            return of.append_rarely(op, Refusal::Stale);
        }
        held::enter();
        self.apply_unguarded(op, false);
        held::leave();
        // Another thread may have promoted the object in this thread's name, and this store may
        // lose the flag that says so. That does no harm: this thread sets the flag again.
        let contention = contention.with(Kind::Update);
        self.contention.store(contention);
        if contention.is_due(Kind::Update) {
            return self.look_and_release();
        }
        // SAFETY: object.W1 - this thread has the lock, and no reference to the value is left.
        unsafe { self.release_word(token) };
    }

    /// Makes an update of a cold object that is reserved for this thread, or seems to be.
    #[inline(always)]
    #[track_caller]
    fn append_reserved(&self, op: L::Op, of: &impl Rare<L::Op>) {
        // With a log in hand, the update must be logged.
        if percpu::has_log() {
            return of.append_rarely(op, Refusal::Stale);
        }
        let token = percpu::thread_token();
        if !self.enter_reserved(token) {
            return of.append_rarely(op, Refusal::Stale);
        }
        held::enter();
        self.apply_unguarded(op, true);
        held::leave();
        self.leave_reserved(token);
    }

    /// Looks at the counts of the cold object, which are due. Then releases its lock, or reserves
    /// the object.
    #[cold]
    fn look_and_release(&self) {
        held::enter();
        drop(Locked::of(self, self.look()));
    }

    /// Applies an update to the cold object that this thread has locked, and unlocks it.
    fn apply_locked(
        &self,
        op: L::Op,
        mut hold: Locked<'_, T, L>,
        contended: bool,
    ) -> Result<(), (L::Op, Refusal)> {
        if self.contention.load().is_shared() {
            return Err((op, Refusal::Shared));
        }
        if self.contention.load().is_poisoned() || self.config.always_logs() {
            return match self.promote_instead(op, hold) {
                Some(op) => Err((op, Refusal::Stale)),
                None => Ok(()),
            };
        }
        hold = self.apply_held(op, hold);
        // Loaded again: the object may have been promoted.
        let mut contention = self.contention.load().unreserved().with(Kind::Update);
        let mut wants_logs = false;
        if contended {
            (contention, wants_logs) = contention.after_wait();
        }
        if contention.is_due(Kind::Update) {
            contention = self.looked_at(contention);
        }
        self.contention.store(contention);
        // A hint: `publish_hot_state` decides.
        if wants_logs && !self.config.never_logs() && !self.word.hint().is_hot() {
            self.promote_held(hold, Admission::Ask);
        }
        Ok(())
    }

    /// Applies an update to the cold object. If that panics, the object is released.
    #[inline(always)]
    pub(super) fn apply_held<'a>(&self, op: L::Op, hold: Locked<'a, T, L>) -> Locked<'a, T, L> {
        let hold = ManuallyDrop::new(hold);
        self.apply_unguarded(op, hold.is_reserved());
        ManuallyDrop::into_inner(hold)
    }

    /// As [`apply_held`](Self::apply_held), for a thread that holds the object, by a reservation or
    /// not, and has no guard of it.
    #[inline(always)]
    fn apply_unguarded(&self, op: L::Op, reserved: bool) {
        let user_code = Locked::poisoning(self, reserved);
        self.apply_cold(op);
        std::mem::forget(user_code);
    }

    /// Applies an update. The caller holds the word's lock.
    #[inline(always)]
    pub(super) fn apply_cold(&self, op: L::Op) {
        held::assert_no_leaf();
        self.value.with_mut(|value| {
            // SAFETY: object.W1 - the word is locked by this thread and not HOT.
            L::apply(op, unsafe { (*value).assume_init_mut() });
        });
    }

    /// Promotes the object for an update that must be logged, not applied: the object is poisoned,
    /// or always has logs. Returns the update, unless it was applied all the same.
    #[cold]
    fn promote_instead(&self, op: L::Op, hold: Locked<'_, T, L>) -> Option<L::Op> {
        if self.contention.load().is_poisoned() {
            self.promote_held(hold, Admission::Bypass);
            return Some(op);
        }
        match self.publish_hot_state(&hold, Admission::Insist) {
            Some(eviction) => {
                drop(hold);
                drop(eviction); // runs the victim's updates, now that this thread holds no lock
                Some(op)
            }
            None => {
                // The place is in use at this moment: apply this update instead.
                drop(self.apply_held(op, hold));
                None
            }
        }
    }

    /// Retries until the update is done. Returns the update if the object is shared, or if the
    /// object's holder may make it shared and this thread must not wait for that holder.
    ///
    /// A thread that is inside (`held`) never waits here: the holder of the lock or log may be
    /// waiting for this thread, or be this thread.
    #[track_caller]
    pub(super) fn append_while_logged(
        &self,
        mut op: L::Op,
        mut refusal: Refusal,
    ) -> Result<(), L::Op> {
        let is_inside = held::is_inside();
        let mut backoff = Backoff::new();
        let mut growth = 1;
        loop {
            match refusal {
                Refusal::Closed | Refusal::Evicted if is_inside => {
                    op = match self.append_late(op) {
                        Ok(()) => return Ok(()),
                        Err(op) => op,
                    };
                    backoff.pause(); // the hot state is about to be freed, and runs no user code
                }
                Refusal::Closed => {
                    let wait = Wait::begin();
                    self.with_hot_state(|hot, slot| hot.wait_for_collection(slot, &mut backoff));
                    wait.end(Of::new(self.kind(), self), 1);
                }
                Refusal::Stale => {}
                Refusal::Full | Refusal::Overdue => {
                    growth = self.make_room(growth, is_inside);
                }
                // The panic belongs to another update, applied here: it has poisoned the object.
                Refusal::Evicted => sync::contain(|| drop(self.acquire(true))),
                Refusal::Shared => return Err(op),
            }
            (op, refusal) = match self.try_append(op, growth, is_inside) {
                Ok(()) => return Ok(()),
                Err(refused) => refused,
            };
        }
    }

    #[track_caller]
    fn try_append(
        &self,
        op: L::Op,
        growth: usize,
        is_inside: bool,
    ) -> Result<(), (L::Op, Refusal)> {
        let word = self.word.load();
        if word.is_hot() {
            if !word.is_open() {
                return Err((op, Refusal::Closed));
            }
            return percpu::with_slot(|slot| self.append_hot(slot, word, op, growth));
        }
        if self.contention.load().is_shared() {
            return Err((op, Refusal::Shared)); // the lock's holder would find the same
        }
        let token = percpu::thread_token();
        let locked = if is_inside {
            lock::try_lock(self.lockable_word(), token).map(|()| false)
        } else {
            let of = Of::new(self.kind(), self);
            lock::lock(self.lockable_word(), token, of, Some(self.contention.turns()))
        };
        match locked {
            // With a log in hand, no update is applied: it might read.
            Ok(_) if percpu::has_log() => {
                let hold = Locked::cold(self);
                if self.contention.load().is_shared() {
                    return Err((op, Refusal::Shared));
                }
                self.promote_held(hold, Admission::Bypass);
            }
            Ok(contended) => return self.apply_locked(op, Locked::cold(self), contended),
            // This thread is reading the object or applying an update of it. Or another thread is,
            // and a thread that is inside does not wait for it (object.W2).
            Err(Refused::HeldBySelf | Refused::Busy) if self.config.has_readers() => {
                return Err((op, Refusal::Shared));
            }
            Err(Refused::HeldBySelf | Refused::Busy) => self.publish_for_holder(),
            Err(Refused::Hot | Refused::Deadlock) => {}
        }
        Err((op, Refusal::Stale))
    }

    /// Makes room in a log that is at its bound. Returns the growth to try next (oplog.D6).
    fn make_room(&self, growth: usize, is_inside: bool) -> usize {
        let allowed = self.config.config().growth;
        // If applying panics, the panic belongs to another update and has poisoned the object; this
        // update is logged regardless of the bounds.
        let mut next = ANY_GROWTH;
        sync::contain(|| {
            next = match self.acquire(growth >= allowed && !is_inside) {
                Ok(_) => 1,
                Err(_) if is_inside && growth >= allowed => ANY_GROWTH,
                Err(Refused::HeldBySelf) => ANY_GROWTH,
                // Busy: another thread is reading; grow until it is done.
                Err(_) => allowed.max(2),
            };
        });
        next
    }

    /// Queues an update for the next read without waiting (`late`). Returns the update if the
    /// object is cold or about to be.
    pub(super) fn append_late(&self, op: L::Op) -> Result<(), L::Op> {
        let mut waiting = Some(op);
        let pushed = self.with_hot_state(|hot, _| {
            // SAFETY: this call borrows the object, which keeps the clock's configuration
            // (configurations.O1).
            waiting.take().map(|op| unsafe { hot.push_late(op) })
        });
        match pushed.flatten() {
            Some(Ok(skewed)) => {
                if let Some((clock, stamp)) = skewed {
                    clock.commit_wait(stamp);
                }
                Ok(())
            }
            Some(Err(op)) => Err(op),
            None => waiting.map_or(Ok(()), Err),
        }
    }
}
