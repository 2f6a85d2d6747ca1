//! Changes of mode, and updates that have to keep readers out.
//!
//! Laws (adaptive.A1 to adaptive.A3 and adaptive.A5 are in `lanes`, adaptive.A6 in `policy`,
//! oplog.W1 to oplog.W5 in `oplog`):
//! - adaptive.A7 A thread that takes the lock of a cold object looks at the gate's word after that,
//!   and closes the gate before it changes the value. The word changes only under the lock, except
//!   for `LATE`.
//! - adaptive.A8 An object changes its mode under its lock, with its gate closed, no reader counted
//!   in a lane, and its logs empty: so each mode begins with the value, and nothing besides. It
//!   gets no logs while updates are deferred: what is logged is newer.
//! - adaptive.A12 A thread that must not wait for the object's holder (`lock::held`) defers its
//!   update, if the object has no logs. Whether it has is decided under the mutex of the deferred
//!   updates, and so is its getting logs: so what was deferred is applied before what is in a log.
//! - adaptive.A9 Deferred updates are applied before any that come later, by the next thread that
//!   has the object exclusively.

use super::controller::Controller;
use super::guard::Hold;
use super::lanes::{Deadlock, LATE, OPEN};
use super::policy::{Mode, Policy, SwitchReason, Window};
use super::side_state::SideState;
use super::{Adaptive, ReadGuard};
use crate::config;
use crate::lock::held;
use crate::oplog::{self, ColdGuard, Kind, Log, Meter};
use crate::percpu::thread_token;
use crate::profile;
use crate::sync::{self, seeded_bug};
use std::ptr;

/// A gate that the lock holder has closed; `open` opens it again, and a panic does not.
struct Closed<'a, Op> {
    side: &'a SideState<Op>,
    was_open: bool,
}

impl<'a, Op> Closed<'a, Op> {
    /// To be called by the lock holder (adaptive.A2).
    fn new(side: &'a SideState<Op>) -> Result<Self, Deadlock> {
        Ok(Self { side, was_open: side.gate.close()? })
    }

    fn open(self) {
        if self.was_open {
            // SAFETY: adaptive.A2 - the lock holder made this, and keeps the object's lock as long
            // as it is alive.
            let biased = unsafe { self.side.control(|control| control.biased) };
            self.side.gate.open(biased);
        }
        std::mem::forget(self);
    }

    /// Leaves the gate closed, and records no change.
    fn keep(self) {
        std::mem::forget(self);
    }
}

impl<Op> Drop for Closed<'_, Op> {
    /// Called only when user code panicked.
    fn drop(&mut self) {
        if self.was_open {
            self.side.gate.leave_shared();
            // SAFETY: adaptive.A2 - a `Closed` is made by the lock holder, and dropped before the
            // lock is released. `switched` does not access the control again.
            unsafe {
                self.side.control(|control| {
                    control.switched(Mode::Direct, SwitchReason::Poisoned, Window::default());
                });
            }
        }
    }
}

impl<T: Send + Sync + 'static, L: Log<T>> Adaptive<T, L> {
    /// An update of the cold object that this thread has locked, when there may be more to do than
    /// to apply it.
    #[cold]
    pub(super) fn update_closed(&self, mut hold: ColdGuard<'_, T, L>, op: L::Op) {
        let side = self.side_state_or_new();
        if hold.is_poisoned() {
            side.defer(op);
            return;
        }
        // Closing the gate waits for readers, and these may wait for what this thread holds.
        let is_inside = held::count() > 1 && side.gate.state() & OPEN != 0;
        if is_inside || side.gate.is_read_by_me() {
            side.defer(op);
            return;
        }
        let Ok(closed) = Closed::new(side) else {
            side.defer(op);
            return;
        };
        if let Err(panic) = sync::caught(|| side.apply_late(&mut hold)) {
            // Another update's panic: the object is poisoned now, as its next reader finds out.
            sync::contain(|| drop(panic));
            side.defer(op);
            return;
        }
        hold.apply(op);
        if !closed.was_open {
            closed.keep();
            if hold.count(Kind::Update, config::OPS_PER_LOOK) {
                self.look_cold(hold);
            }
            return;
        }
        // SAFETY: the lock is held.
        let next = unsafe {
            side.control(|control| {
                control.window.updates += 1;
                let due = control.window.updates >= config::SHARED_UPDATES_PER_LOOK;
                if due { look_shared(side, control, |window| self.tell(window)) } else { None }
            })
        };
        match next {
            None => closed.open(),
            Some(change) => {
                closed.keep();
                sync::contain(|| _ = self.switch(hold, change, false));
            }
        }
    }

    /// Brings a cold object that this thread has locked up to date: applies the deferred updates.
    pub(super) fn catch_up(&self, hold: &mut ColdGuard<'_, T, L>) -> Result<(), Deadlock> {
        let Some(side) = self.side_state() else { return Ok(()) };
        if side.gate.state() & LATE != 0 && !hold.is_poisoned() {
            let closed = Closed::new(side)?;
            side.apply_late(hold);
            closed.open();
        }
        Ok(())
    }

    /// Runs `f` on the value of the cold object that this thread has locked.
    pub(super) fn change_cold<R>(
        &self,
        hold: &mut ColdGuard<'_, T, L>,
        f: impl FnOnce(&mut T) -> R,
    ) -> Result<R, Deadlock> {
        let closed = self.side_state().map(Closed::new).transpose()?;
        if let Some(side) = self.side_state().filter(|_| !hold.is_poisoned()) {
            side.apply_late(hold);
        }
        let result = hold.with_value(f);
        if let Some(closed) = closed {
            closed.open();
        }
        Ok(result)
    }

    /// Whether the locked cold object lets readers in by their lanes.
    fn is_shared(&self) -> bool {
        self.side_state().is_some_and(|side| side.gate.state() & OPEN != 0)
    }

    /// A read under the lock of the cold object: counts it.
    pub(super) fn note_read(&self, hold: &mut ColdGuard<'_, T, L>) {
        if self.is_shared() {
            let side = self.side_state_or_new();
            // SAFETY: the lock is held.
            unsafe { side.control(|control| control.window.reads += 1) };
        } else if hold.count(Kind::Read, config::OPS_PER_LOOK) {
            self.look_at_reads(hold);
        }
    }

    /// Reports the counts to the profile.
    fn tell(&self, window: Window) {
        profile::operations("Adaptive", &self.object, window.updates, window.reads);
    }

    /// The next mode of the cold object, by its meter.
    fn next_of_cold(&self, hold: &ColdGuard<'_, T, L>) -> Option<Change> {
        let Meter { updates, reads, waits } = hold.take_meter();
        let mut window = Window {
            updates: updates.into(),
            reads: reads.into(),
            waits,
            is_waited_for: hold.is_waited_for(),
            by: thread_token(),
            ..Window::default()
        };
        self.tell(window);
        if self.side_state().is_none() && Policy::default().is_content(window) {
            return None; // an object that is content with its mode needs no side state
        }
        let side = self.side_state_or_new();
        // SAFETY: the lock is held.
        unsafe {
            side.control(|control| {
                window.time = control.lap();
                if control.mode == Mode::Logs {
                    control.switched(Mode::Direct, SwitchReason::Evicted, window);
                }
                control.look(window).map(|(to, reason)| Change { to, reason, window })
            })
        }
    }

    /// A look that an update finds due.
    #[cold]
    pub(super) fn look_cold(&self, hold: ColdGuard<'_, T, L>) {
        let is_calm = config::RESERVES_UNASKED && hold.is_calm() && !profile::is_on();
        match self.next_of_cold(&hold) {
            // The panic is another update's, applied on the way: its poison reports it.
            Some(change) => sync::contain(|| _ = self.switch(hold, change, false)),
            None if is_calm && self.is_plain() => hold.release_to_owner(),
            None => {}
        }
    }

    /// As `look_at_reads`, for a read of a plain object, which is then reserved as by
    /// [`look_cold`](Self::look_cold).
    #[cold]
    pub(super) fn looked_at_reads<'a>(&'a self, mut hold: ColdGuard<'a, T, L>) -> Hold<'a> {
        let is_calm = config::RESERVES_UNASKED && hold.is_calm() && !profile::is_on();
        self.look_at_reads(&mut hold);
        if is_calm && self.is_plain() {
            hold.keep_as_owner();
        }
        let reserved = hold.is_reserved();
        hold.keep();
        if reserved { Hold::Reserved } else { Hold::Lock(ptr::null()) }
    }

    /// A look that a read finds due, which goes on holding the lock. (If the object should get
    /// logs, the look of a later update finds it.)
    fn look_at_reads(&self, hold: &mut ColdGuard<'_, T, L>) {
        match self.next_of_cold(hold) {
            Some(change) if change.to != Mode::Logs => {
                self.switch_held(hold, change);
            }
            _ => {}
        }
    }

    /// After many reads by one lane: looks, if no thread holds the object.
    #[cold]
    pub(super) fn look_after_reads(&self) {
        let (Ok(hold), Some(side)) = (self.object.try_lock_cold(), self.side_state()) else {
            return;
        };
        if !self.is_shared() {
            return;
        }
        // SAFETY: the lock is held.
        let biased = unsafe {
            side.control(|control| {
                self.tell(take_window(side, control));
                control.biased
            })
        };
        if biased {
            side.gate.open(true); // adaptive.A3: it was open, so this sets the bias at most
        }
        drop(hold);
    }

    /// A read of the object with logs, which were merged under the lock that `guard` holds.
    pub(super) fn read_logged<'a>(
        &'a self,
        mut guard: oplog::ReadGuard<'a, T, L>,
    ) -> ReadGuard<'a, T, L> {
        let side = self.side_state_or_new();
        let new = guard.window().unwrap_or(0);
        self.tell(Window { updates: new, reads: 1, ..Window::default() });
        // SAFETY: the core's lock is held.
        let next = unsafe {
            side.control(|control| {
                control.window.reads += 1;
                control.window.updates += new;
                if control.window.reads < config::LOGGED_READS_PER_LOOK {
                    return None;
                }
                let mut window = std::mem::take(&mut control.window);
                (window.by, window.time) = (thread_token(), control.lap());
                control.look(window).map(|(to, reason)| Change { to, reason, window })
            })
        };
        let Some(change) = next else { return ReadGuard::logged(self, guard) };
        guard.demote(1);
        match guard.into_cold() {
            Ok(mut hold) => {
                self.switch_held(&mut hold, change);
                ReadGuard::locked(self, hold)
            }
            Err(guard) => ReadGuard::logged(self, guard),
        }
    }

    /// Changes the mode of the cold object that this thread has locked, and releases the lock
    /// (adaptive.A8). Returns whether the object is now in the mode asked for.
    pub(super) fn switch(
        &self,
        mut hold: ColdGuard<'_, T, L>,
        change: Change,
        insist: bool,
    ) -> bool {
        if change.to != Mode::Logs {
            return self.switch_held(&mut hold, change);
        }
        let side = self.side_state_or_new();
        // BUG: a shared object gets logs while its gate is open (adaptive.A8).
        if !seeded_bug!("open-promotion") && self.shut(side, &mut hold).is_err() {
            return false;
        }
        // SAFETY: the lock is held, also in `promote`.
        let note = |to| unsafe {
            side.control(|control| control.switched(to, change.reason, change.window));
        };
        // adaptive.A12: no update is deferred between the look and the logs.
        let eviction = side.while_none_is_deferred(|| hold.publish(insist));
        let admitted = matches!(eviction, Some(Some(_)));
        note(if admitted { Mode::Logs } else { Mode::Direct }); // adaptive.A8
        drop(hold);
        drop(eviction); // runs the victim's updates, now that this call holds no lock
        admitted
    }

    /// As [`switch`](Self::switch), for the modes in which the value stays where it is; the lock is
    /// kept.
    pub(super) fn switch_held(&self, hold: &mut ColdGuard<'_, T, L>, change: Change) -> bool {
        let side = self.side_state_or_new();
        if self.shut(side, hold).is_err() {
            return false;
        }
        // SAFETY: the lock is held.
        let biased = unsafe {
            side.control(|control| {
                control.switched(change.to, change.reason, change.window);
                control.biased = control.policy.wants_bias(false, change.window);
                control.lane_reads = side.gate.reads();
                control.biased
            })
        };
        if change.to == Mode::Shared {
            side.gate.open(biased);
        }
        true
    }

    /// Closes the gate for good and applies the deferred updates.
    fn shut(
        &self,
        side: &SideState<L::Op>,
        hold: &mut ColdGuard<'_, T, L>,
    ) -> Result<(), Deadlock> {
        let closed = Closed::new(side)?;
        if !hold.is_poisoned() {
            side.apply_late(hold);
        }
        closed.keep();
        side.gate.leave_shared();
        Ok(())
    }
}

/// A change of mode that is decided.
pub(super) struct Change {
    pub(super) to: Mode,
    pub(super) reason: SwitchReason,
    pub(super) window: Window,
}

/// The counts of a shared object since the last look; decides on the bias.
fn take_window<Op>(side: &SideState<Op>, control: &mut Controller) -> Window {
    let reads = side.gate.reads();
    let mut window = std::mem::take(&mut control.window);
    window.reads += reads.wrapping_sub(control.lane_reads) as u64;
    control.lane_reads = reads;
    (window.by, window.time) = (thread_token(), control.lap());
    control.biased = control.policy.wants_bias(control.biased, window);
    window
}

/// The next mode of a shared object.
fn look_shared<Op>(
    side: &SideState<Op>,
    control: &mut Controller,
    tell: impl FnOnce(Window),
) -> Option<Change> {
    let window = take_window(side, control);
    tell(window);
    control.look(window).map(|(to, reason)| Change { to, reason, window })
}
