//! The updater's side of a hot state: an update goes to its slot's log. During a collection the
//! updater waits for the end, and answers and helps meanwhile.
//!
//! Laws hot_state.C1 to hot_state.C9 are in the header of `hot_state`, oplog_gate.G2 in that of
//! `gate`.

use super::gate::Gate;
use super::hot_state::HotState;
use super::log::Log;
use super::promotion;
use super::slot_log::{Local, SlotLog};
use crate::clock::{Clock, Stamp};
use crate::config;
use crate::lock::held;
use crate::percpu::{self, Slot, barrier};
use crate::sync::{Backoff, Ordering, hint, seeded_bug};
use std::ptr;

/// The growth that waives all bounds of a log.
pub(super) const ANY_GROWTH: usize = usize::MAX;

/// Why an update was not logged. The update is returned with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    /// A reader is collecting; the gate opens again soon.
    Closed,
    /// The object has another hot state, or none.
    Stale,
    /// The log is at its bound of entries or bytes.
    Full,
    /// The log is at its time bound.
    Overdue,
    /// An eviction has freed the hot state's logs.
    Evicted,
    /// The object has no hot state, and may have readers through lanes (`readers`).
    Shared,
}

impl<T: Send + 'static, L: Log<T>> HotState<T, L> {
    /// Pushes an update to the slot's log if the log is below its bounds and its slot dirty, which
    /// is nearly always so. Otherwise returns the update, for [`push_slow`](Self::push_slow).
    ///
    /// # Safety
    /// The record of slot `index` announces this hot state as an updater, and the object had this
    /// hot state after that (hot_state.C1). There is neither a time bound nor a skew.
    #[inline(always)]
    pub(super) unsafe fn push(&self, index: usize, op: L::Op) -> Result<(), L::Op> {
        self.in_use();
        debug_assert!(
            cfg!(manycore_loom) || self.is_updated_by(index),
            "hot_state.C1: slot {index} does not announce this"
        );
        // With the announcement before it, the updater's half of hot_state.C1.
        if self.gate.load() != Gate::OPEN {
            return Err(op);
        }
        // SAFETY: log_set.C10 - the caller has announced the hot state, and the gate was open after
        // that.
        let Some(place) = (unsafe { self.near_place(index) }) else { return Err(op) };
        // ORDER: Relaxed; as in `push_slow`.
        // SAFETY: log_set.C10 - freed only by an evictor, which waits for this announced updater.
        let Some(slot) = (unsafe { place.0.load(Ordering::Relaxed).as_ref() }) else {
            return Err(op);
        };
        if slot.gate.load() != Gate::OPEN {
            return Err(op);
        }
        // Not `with_mut`: its closure is not always inlined, which costs an ordered append 2 ns.
        let local = slot.local.get_mut();
        // SAFETY: hot_state.C1 - announced, gates open after that: this thread has exclusive access
        // to this slot's log.
        let local = unsafe { local.deref() };
        if !local.dirty || !self.is_roomy(local) {
            return Err(op);
        }
        self.push_to(slot, local, op);
        Ok(())
    }

    /// As [`push`](Self::push), in each state of log and gates. The log may grow to `growth` times
    /// its bounds. Returns the stamp.
    ///
    /// # Safety
    /// As for [`push`](Self::push), also with a time bound or a skew.
    #[cold]
    #[inline(never)]
    pub(super) unsafe fn push_slow(
        &self,
        index: usize,
        op: L::Op,
        growth: usize,
    ) -> Result<Stamp, (L::Op, Refusal)> {
        let gate = self.gate.load();
        if gate != Gate::OPEN {
            return Err((op, self.refuse(gate, index)));
        }
        // ORDER: Relaxed; only this slot's owner writes it while the gate is open, and the next
        // owner gets it by Release and Acquire (percpu.P2).
        // SAFETY: log_set.C10 - the caller has announced the hot state, and the gate was open after
        // that.
        let near = unsafe { self.near_place(index) }.map(|slot| slot.0.load(Ordering::Relaxed));
        let slot = match near {
            Some(slot) if !slot.is_null() => slot,
            _ => self.find_or_make_slot(index),
        };
        // SAFETY: log_set.C10 - not null, and freed only by an evictor, which waits for this
        // announced updater.
        let slot = unsafe { &*slot };
        let gate = slot.gate.load();
        if gate != Gate::OPEN {
            return Err((op, self.refuse(gate, index)));
        }
        let local = slot.local.get_mut();
        // SAFETY: hot_state.C1 - announced, gates open after that: this thread has exclusive access
        // to this slot's log.
        let local = unsafe { local.deref() };
        let refused =
            if local.dirty { self.is_full(local, growth) } else { self.mark_dirty(index, local) };
        match refused {
            Some(refused) => Err((op, refused)),
            None => Ok(self.push_to(slot, local, op)),
        }
    }

    /// Pushes an update to a log to which the caller has exclusive access (hot_state.C1).
    #[inline(always)]
    fn push_to(&self, slot: &SlotLog<L>, local: &mut Local<L>, op: L::Op) -> Stamp {
        debug_assert!(local.dirty, "hot_state.C2: an entry in a slot that is not dirty");
        let stamp = self.stamp(local);
        held::assert_no_leaf();
        local.log.push(op, stamp);
        slot.count();
        stamp
    }

    #[inline(always)]
    fn stamp(&self, local: &mut Local<L>) -> Stamp {
        if !L::ORDERED {
            return Stamp::ZERO;
        }
        local.next_stamp(|| self.clock_stamp())
    }

    #[inline(always)]
    fn clock_stamp(&self) -> Stamp {
        match self.hardware {
            Some(hardware) => hardware.stamp(),
            None => self.stamp_in_software(),
        }
    }

    /// Not inlined: the first use of the system's clock needs much of the stack.
    #[inline(never)]
    fn stamp_in_software(&self) -> Stamp {
        self.clock().stamp()
    }

    /// Queues an update of a thread that must not wait (`late`). Returns the update if the hot
    /// state is about to be freed. Otherwise returns the clock, if it is skewed: the caller waits
    /// out the skew after it has withdrawn its announcement.
    ///
    /// # Safety
    /// As for [`clock_of_builder`](Self::clock_of_builder).
    pub(super) unsafe fn push_late<'a>(
        &self,
        op: L::Op,
    ) -> Result<Option<(&'a Clock, Stamp)>, L::Op> {
        let stamp = || if L::ORDERED { self.clock_stamp() } else { Stamp::ZERO };
        let stamp = self.late.push(op, stamp)?;
        let skewed = L::ORDERED && self.clock().is_skewed();
        // SAFETY: configurations.O1 - the caller promises to use the clock only while the object
        // that has this hot state is borrowed (# Safety).
        Ok(skewed.then(|| (unsafe { self.clock_of_builder() }, stamp)))
    }

    /// Returns true if the log is below its bounds and has no time bound.
    #[inline(always)]
    fn is_roomy(&self, local: &Local<L>) -> bool {
        local.log.len() < self.unchecked_entries && local.log.bytes() < self.max_bytes
    }

    /// Checks the log against `growth` times its bounds; `ANY_GROWTH` waives them all.
    fn is_full(&self, local: &Local<L>, growth: usize) -> Option<Refusal> {
        if local.log.len() >= self.config.max_entries.saturating_mul(growth)
            || local.log.bytes() >= self.max_bytes.saturating_mul(growth)
        {
            return Some(Refusal::Full);
        }
        let timed = self.is_timed() && growth == 1;
        (timed && self.is_overdue(local)).then_some(Refusal::Overdue)
    }

    fn is_overdue(&self, local: &Local<L>) -> bool {
        self.clock().ticks_now().saturating_sub(local.since) > self.max_delay
    }

    /// Answers the reader that closed a gate (oplog_gate.G2). The calling updater is announced in
    /// the record of slot `index`, has no log in hand, and has found the gate closed.
    #[cold]
    fn refuse(&self, gate: Gate, index: usize) -> Refusal {
        if gate.is_frozen() {
            percpu::records().get(index).answer(gate.answer());
        }
        refusal(gate)
    }

    /// Returns the clock with the skew that an update has to wait out before it returns (oplog.D2).
    /// The clock outlives the announcement: the object keeps its configuration, and the clock in
    /// it.
    ///
    /// # Safety
    /// The result is used only while the object that has this hot state is borrowed.
    #[cold]
    pub(super) unsafe fn clock_of_builder<'a>(&self) -> &'a Clock {
        // SAFETY: the system's clock is static. Any other clock is in the configuration that the
        // object's `ConfigId` keeps alive (configurations.O1), and the caller borrows the object.
        unsafe { &*ptr::from_ref(self.clock()) }
    }

    /// Sets the slot's dirty bit, at the first update since the last collection (hot_state.C2,
    /// hot_state.C3).
    fn mark_dirty(&self, index: usize, local: &mut Local<L>) -> Option<Refusal> {
        debug_assert!(!local.dirty, "hot_state.C2: a dirty slot is marked again");
        // SAFETY: log_set.C10 - `push_slow` calls this for an updater with a log in hand. An
        // updater has one only while it is announced and has found the gate open.
        let word = unsafe { self.open_logs() }.dirty.0.get_or_init(index / 64);
        // ORDER: AcqRel and a full fence, against the gate's closing, the reader's barrier and
        // `list_dirty`: either the reader finds this bit, or the gate is seen closed below. Only
        // after that does the update return, and does its thread load what other threads stored
        // (oplog.D1).
        let before = word.0.fetch_or(1 << (index % 64), Ordering::AcqRel);
        debug_assert!(
            before >> (index % 64) & 1 == 0,
            "hot_state.C2: slot {index} has its bit set"
        );
        barrier::full_after_rmw();
        local.dirty = true;
        if self.is_timed() {
            local.since = self.clock().ticks_now();
        }
        // The second half of hot_state.C3.
        let gate = self.gate.load();
        (gate != Gate::OPEN).then(|| refusal(gate))
    }
}

/// Returns the refusal that the value of a closed gate means for an updater.
fn refusal(gate: Gate) -> Refusal {
    if gate == Gate::EVICTED { Refusal::Evicted } else { Refusal::Closed }
}

impl<T: Send + 'static, L: Log<T>> HotState<T, L> {
    /// Waits for the end of a collection (hot_state.C8), and answers it. The caller announces the
    /// hot state as a waiter in `slot`'s record (promotion.H3).
    pub(super) fn wait_for_collection(&self, slot: Slot, backoff: &mut Backoff) {
        debug_assert!(
            cfg!(manycore_loom) || !self.is_updated_by(slot.index()),
            "promotion.H3: an updater waits for the collection that waits for it"
        );
        let mut answered = None;
        let mut looks = 0;
        loop {
            // Logs with stamps have separate gates, which a waiter may not touch.
            let gated = L::ORDERED || seeded_bug!("no-cut");
            let seen = if gated { self.collecting.load() } else { self.gate.load() };
            if !seen.is_frozen() {
                if answered.is_none() {
                    backoff.pause(); // the collection is over, or the refusal has another cause
                }
                return;
            }
            if answered != Some(seen) {
                slot.answer(seen.answer());
                answered = Some(seen);
                if seen.is_helped() {
                    self.help_as_updater(seen, slot);
                }
            }
            // Not `<`: the bound is 0 under a model checker, and no `u32` is below 0.
            if looks != config::LOOKS_AT_GATE {
                looks += 1;
                hint::spin_loop();
            } else {
                backoff.pause();
            }
        }
    }

    /// Helps the collection (`combining_tree`), announced as an updater. The branches are in the
    /// log set, which an eviction after the collection may free; an eviction waits for updaters but
    /// not for waiters (log_set.C10).
    #[cold]
    fn help_as_updater(&self, seen: Gate, slot: Slot) {
        // BUG: a helper reads the branches while announced as a waiter, for which no eviction waits
        // (log_set.C10).
        promotion::announce_again(slot, self, seeded_bug!("waiting-helper"));
        // After the announcement, as in `push`.
        if self.gate.load() == seen {
            // SAFETY: announced as an updater; after that, the gate said that the collection is in
            // progress (log_set.C10).
            unsafe { self.help(seen, slot.index()) };
        }
        promotion::announce_again(slot, self, true);
    }
}
