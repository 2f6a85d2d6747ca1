//! Updates and reads of an object in each of its modes.

use super::Adaptive;
use super::guard::{Hold, ReadGuard};
use super::lanes::{Lane, SHARED};
use super::policy::{Mode, Policy, SwitchReason, Window};
use super::side_state::SideState;
use super::stats::Stats;
use super::switch::Change;
use crate::config;
use crate::lock::error::would_deadlock;
use crate::lock::{Refused, held};
use crate::oplog::{self, ColdGuard, Deferred, Kind, Log, TryReadError};
use crate::percpu;
use crate::sync::{AtomicPtr, Backoff, const_fn};
use std::ptr;

/// The object's lock, and where the value is.
enum Held<'a, T: Send + Sync + 'static, L: Log<T>> {
    /// The object is cold. The flag says whether this thread had to wait.
    Cold(ColdGuard<'a, T, L>, bool),
    /// The object has logs, which have been merged.
    Logged(oplog::ReadGuard<'a, T, L>),
}

impl<T: Send + Sync + 'static, L: Log<T>> Adaptive<T, L> {
    const_fn! {
        /// An object with this value, behind a lock at first, which changes its mode by the default
        /// policy.
        #[must_use]
        pub const fn new(value: T) -> Self {
            Self {
                object: Deferred::new_managed(value),
                side_state: AtomicPtr::new(ptr::null_mut()),
            }
        }
    }

    /// As [`new`](Self::new), with another policy. Costs some 800 bytes from the start.
    #[must_use]
    pub fn with_policy(value: T, policy: Policy) -> Self {
        let side = Box::into_raw(Box::new(SideState::new(policy)));
        Self { object: Deferred::new_managed(value), side_state: AtomicPtr::new(side) }
    }

    /// Whether the cold object is a value behind a lock and nothing else.
    #[inline(always)]
    pub(super) fn is_plain(&self) -> bool {
        self.side_state().is_none_or(|side| side.gate.state() == 0)
    }

    /// Makes an update; every later read sees it.
    ///
    /// # Panics
    /// If the object has no logs and applying the update panics.
    #[inline(always)]
    #[track_caller]
    pub fn update(&self, op: L::Op) {
        match self.object.update_plain(op, || self.is_plain(), config::OPS_PER_LOOK) {
            Ok(None) => {}
            Ok(Some(hold)) => self.look_cold(hold),
            Err(op) => self.update_rare(op),
        }
    }

    /// An update of an object that has logs, is held, or is not plain.
    #[inline(never)]
    #[track_caller]
    fn update_rare(&self, op: L::Op) {
        let Err(op) = self.object.append_to_logs(op) else { return };
        match self.object.try_hold_cold() {
            // Asked under the lock, which waits for the loads before it.
            Ok(hold) if percpu::has_log() => {
                drop(hold);
                self.update_inside(op);
            }
            Ok(hold) if self.is_plain() => self.update_direct(hold, op),
            Ok(hold) => self.update_closed(hold.settled(), op),
            Err(refused) => self.update_slow(op, refused),
        }
    }

    /// An update of a plain object that this thread has locked.
    fn update_direct(&self, hold: ColdGuard<'_, T, L>, op: L::Op) {
        if hold.is_reserved() {
            // No other thread uses the object: no policy has to look.
            return hold.apply_and_release(op);
        }
        match hold.apply_and_count(op, config::OPS_PER_LOOK) {
            Ok(None) => {}
            Ok(Some(hold)) => self.look_cold(hold),
            Err((hold, op)) => self.update_closed(hold, op),
        }
    }

    #[cold]
    #[track_caller]
    fn update_slow(&self, mut op: L::Op, mut refused: Refused) {
        loop {
            match refused {
                // adaptive.A5: this thread holds the object, and would wait for itself.
                Refused::HeldBySelf => return self.side_state_or_new().defer(op),
                Refused::Busy if held::is_inside() || self.reads_by_lane() => {
                    return self.update_inside(op);
                }
                Refused::Hot => match self.object.append_to_logs(op) {
                    Ok(()) => return,
                    Err(back) => op = back,
                },
                Refused::Busy | Refused::Deadlock => {}
            }
            match self.object.lock_cold(true) {
                Ok((hold, waited)) => {
                    if waited {
                        hold.count_wait();
                    }
                    return if self.is_plain() {
                        self.update_direct(hold, op)
                    } else {
                        self.update_closed(hold, op)
                    };
                }
                Err(other) => refused = other,
            }
        }
    }

    /// An update by a thread that must not wait for the object's holder (`lock::held`): deferred,
    /// or logged if there are logs (adaptive.A12).
    #[cold]
    fn update_inside(&self, mut op: L::Op) {
        let side = self.side_state_or_new();
        let mut backoff = Backoff::new();
        loop {
            op = match side.defer_unless(op, || self.object.has_hot_state()) {
                Ok(()) => return,
                Err(op) => op,
            };
            op = match self.object.append_to_logs(op) {
                Ok(()) => return,
                Err(op) => op,
            };
            backoff.pause();
        }
    }

    fn reads_by_lane(&self) -> bool {
        self.side_state().is_some_and(|side| side.gate.is_read_by_me())
    }

    /// Reads the object, up to date.
    ///
    /// # Panics
    /// - If the object is poisoned: an update panicked. See [`repair`](Self::repair).
    /// - If a deferred update panics while this read applies it; the object is poisoned then.
    /// - If this thread holds the object already. (Not always: a thread that reads in `Shared` may
    ///   be admitted again.)
    /// - If the wait for the object would be a deadlock, because a thread that holds it waits for
    ///   an object that this thread holds. (Two readers in `Shared` do not wait for each other, but
    ///   a read that has updates to apply waits for the others.)
    #[inline(always)]
    #[track_caller]
    pub fn read(&self) -> ReadGuard<'_, T, L> {
        let hold = match self.enter_lane() {
            Some(lane) => Hold::Lane(lane),
            None => match self.object.hold_plain(|| self.is_plain()) {
                Some(hold) if hold.is_reserved() => {
                    hold.keep();
                    Hold::Reserved
                }
                Some(hold) if hold.count(Kind::Read, config::OPS_PER_LOOK) => {
                    self.looked_at_reads(hold)
                }
                Some(hold) => {
                    hold.keep();
                    Hold::Lock(ptr::null())
                }
                None => self.read_rare(),
            },
        };
        ReadGuard::new(self, hold)
    }

    /// A read of an object that has logs, is held, poisoned, or not plain.
    #[inline(never)]
    #[track_caller]
    fn read_rare(&self) -> Hold<'_> {
        let read = match self.object.try_hold_cold() {
            Ok(hold) => self.read_locked(hold.settled(), false),
            Err(_) => self.read_slow(true),
        };
        match read {
            Ok(guard) => checked(guard).into_hold(),
            Err(refused) => not_held(refused),
        }
    }

    #[inline(always)]
    fn enter_lane(&self) -> Option<&Lane> {
        let lane = self.side_state()?.gate.enter()?;
        held::enter();
        Some(lane)
    }

    fn read_by_lane(&self) -> Option<ReadGuard<'_, T, L>> {
        Some(ReadGuard::new(self, Hold::Lane(self.enter_lane()?)))
    }

    /// As [`read`](Self::read), unless that would wait for another thread that holds the object.
    ///
    /// # Errors
    /// [`TryReadError::Busy`] if another thread holds it, [`TryReadError::Poisoned`] if an update
    /// panicked.
    ///
    /// # Panics
    /// If a deferred update panics while this read applies it.
    pub fn try_read(&self) -> Result<ReadGuard<'_, T, L>, TryReadError> {
        let guard = match self.read_by_lane() {
            Some(guard) => guard,
            None => self.read_slow(false).map_err(|_| TryReadError::Busy)?,
        };
        if guard.is_poisoned() { Err(TryReadError::Poisoned) } else { Ok(guard) }
    }

    #[cold]
    #[track_caller]
    fn read_slow(&self, wait: bool) -> Result<ReadGuard<'_, T, L>, Refused> {
        if self.side_state().is_some_and(|side| side.gate.claim()) {
            if let Some(guard) = self.read_by_lane() {
                return Ok(guard);
            }
        }
        match self.hold(wait)? {
            Held::Cold(hold, waited) => self.read_locked(hold, waited),
            Held::Logged(guard) if guard.is_poisoned() => Ok(ReadGuard::logged(self, guard)),
            Held::Logged(guard) => Ok(self.read_logged(guard)),
        }
    }

    /// A read of the cold object that this thread has locked.
    fn read_locked<'a>(
        &'a self,
        mut hold: ColdGuard<'a, T, L>,
        waited: bool,
    ) -> Result<ReadGuard<'a, T, L>, Refused> {
        if waited {
            hold.count_wait();
        }
        if let Some(side) = self.side_state() {
            side.gate.claim(); // for the next time
        }
        self.catch_up(&mut hold)?;
        self.note_read(&mut hold);
        Ok(ReadGuard::locked(self, hold))
    }

    /// Takes the object's lock, in whichever mode it is, and brings an object with logs up to date.
    #[track_caller]
    fn hold(&self, wait: bool) -> Result<Held<'_, T, L>, Refused> {
        if percpu::has_log() {
            assert!(
                !wait,
                "manycore: an object was read from within Log::push or Log::absorb, where updates \
                 are allowed and reads are not"
            );
            return Err(Refused::Busy);
        }
        if self.reads_by_lane() {
            return Err(Refused::HeldBySelf);
        }
        let mut backoff = Backoff::new();
        loop {
            match self.object.lock_cold(wait) {
                Ok((hold, waited)) => return Ok(Held::Cold(hold, waited)),
                Err(Refused::Hot) => {}
                Err(refused) => return Err(refused),
            }
            match self.object.acquire_hot(wait) {
                Ok(guard) => {
                    return Ok(match guard.into_cold() {
                        Ok(hold) => Held::Cold(hold, false), // it was evicted
                        Err(guard) => Held::Logged(guard),
                    });
                }
                Err(Refused::Hot) => backoff.pause(),
                Err(refused) => return Err(refused),
            }
        }
    }

    /// Runs `f` on the value, up to date and exclusively, and returns its result: for an update
    /// whose result is needed at once.
    ///
    /// # Panics
    /// As [`read`](Self::read), and if `f` does; the object is poisoned then.
    #[track_caller]
    pub fn change<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        match self.object.try_hold_reserved() {
            Some(mut hold) if self.is_plain() => return hold.with_value(f),
            hold => drop(hold),
        }
        match self.hold(true) {
            Ok(Held::Cold(mut hold, _)) => {
                if hold.is_poisoned() {
                    drop(hold);
                    poisoned();
                }
                let changed = self.change_cold(&mut hold, f);
                drop(hold);
                changed.unwrap_or_else(|deadlock| not_held(deadlock.into()))
            }
            Ok(Held::Logged(mut guard)) => {
                if guard.is_poisoned() {
                    poisoned();
                }
                f(&mut guard)
            }
            Err(refused) => not_held(refused),
        }
    }

    /// Runs `f` on the value of a poisoned object, without the deferred updates, and clears the
    /// poison flag. The next read or update applies the deferred ones. An object that is not
    /// poisoned is [changed](Self::change).
    ///
    /// # Panics
    /// As [`change`](Self::change), except that poison is no reason.
    #[track_caller]
    pub fn repair<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        let result = match self.hold(true) {
            Ok(Held::Cold(mut hold, _)) => {
                let changed = self.change_cold(&mut hold, f);
                drop(hold);
                changed.unwrap_or_else(|deadlock| not_held(deadlock.into()))
            }
            Ok(Held::Logged(mut guard)) => f(&mut guard),
            Err(refused) => not_held(refused),
        };
        self.object.clear_poison();
        result
    }

    /// Whether an update panicked.
    #[must_use]
    pub fn is_poisoned(&self) -> bool {
        self.object.is_poisoned()
    }

    /// Changes the object's mode now and keeps it there until [`unpin`](Self::unpin). Returns
    /// whether it worked: not if this thread holds the object, if a thread that holds it waits for
    /// an object that this thread holds, if the object is poisoned, or if its slot in the table of
    /// logs is in use at this moment (then it goes on trying).
    ///
    /// # Panics
    /// If a deferred update panics while it is applied.
    pub fn pin(&self, mode: Mode) -> bool {
        let side = self.side_state_or_new();
        let change = Change { to: mode, reason: SwitchReason::Pinned, window: Window::default() };
        // SAFETY: called only under the lock.
        let note = || unsafe { side.control(|control| control.pinned = Some(mode)) };
        match self.hold(true) {
            Err(_) => false,
            Ok(Held::Cold(hold, _)) => {
                note();
                !hold.is_poisoned() && self.switch(hold, change, true)
            }
            Ok(Held::Logged(mut guard)) => {
                note();
                if mode == Mode::Logs || guard.is_poisoned() {
                    return !guard.is_poisoned();
                }
                guard.demote(config::ROUNDS_OF_DEMOTION);
                guard.into_cold().is_ok_and(|hold| self.switch(hold, change, true))
            }
        }
    }

    /// Lets the policy decide again.
    ///
    /// # Panics
    /// If this thread holds the object, unless it was never pinned and is a plain lock still: then
    /// there is nothing to do.
    pub fn unpin(&self) {
        // SAFETY: under the lock.
        self.while_locked(|side| unsafe { side.control(|control| control.pinned = None) });
    }

    /// Runs `f` under the object's lock, if it has a side state.
    fn while_locked<R>(&self, f: impl FnOnce(&SideState<L::Op>) -> R) -> Option<R> {
        let side = self.side_state()?;
        if side.gate.is_read_by_me() {
            not_held(Refused::HeldBySelf);
        }
        Some(self.object.while_locked(|| f(side)).unwrap_or_else(|refused| not_held(refused)))
    }

    /// The object's mode at the moment of the call. It may change at any time.
    #[must_use]
    pub fn mode(&self) -> Mode {
        if self.object.is_hot() {
            Mode::Logs
        } else if self.side_state().is_some_and(|side| side.gate.state() & SHARED != 0) {
            Mode::Shared
        } else {
            Mode::Direct
        }
    }

    /// The object's mode, and why: its last changes with the counts that decided each.
    ///
    /// Takes the object's lock, so not for hot paths.
    ///
    /// # Panics
    /// If this thread holds the object, unless it was never pinned and is a plain lock still: then
    /// there is nothing to lock.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let logs = self.object.stats();
        self.while_locked(|side| {
            // SAFETY: under the lock.
            unsafe { side.control(|control| Stats::of(control, logs, self.object.is_hot())) }
        })
        .unwrap_or_else(|| Stats::of_plain(logs))
    }
}

fn checked<T: Send + Sync + 'static, L: Log<T>>(guard: ReadGuard<'_, T, L>) -> ReadGuard<'_, T, L> {
    if guard.is_poisoned() {
        drop(guard);
        poisoned();
    }
    guard
}

pub(super) fn poisoned() -> ! {
    panic!("manycore: the object is poisoned: an update panicked; see repair()")
}

fn not_held(refused: Refused) -> ! {
    if refused == Refused::Deadlock {
        would_deadlock();
    }
    panic!(
        "manycore: this thread holds the object already: drop the guard first, and do not read an \
         object from within its own updates"
    )
}
