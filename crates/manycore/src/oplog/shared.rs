//! Logs that belong to CPUs: the parts of the updater's and the reader's code that differ.
//!
//! A concurrency id selects the log, and a thread may be preempted with that log in hand while
//! another thread runs under the same id. So a slot log has a *turn*, taken by one locked
//! instruction.
//! - oplog.V1 The thread that has the turn has exclusive access to the log. An updater loads the
//!   gate again after taking the turn: either it took the turn before the reader, which then waits
//!   for it, or it took the turn that the reader released, and then sees the gate that the reader
//!   had closed before.
//! - oplog.V2 The turn names its holder. A thread that would wait for itself (an update from within
//!   an update) takes the next log.
//! - oplog.V3 The announcement still keeps the core alive. It is always biased where the platform
//!   allows: only demotion and eviction look at it.

use super::core::{Core, Refusal, SHARED, refusal};
use super::log::Log;
use super::slot_log::SlotLog;
use crate::clock::Stamp;
use crate::percpu;
use crate::sync::{AtomicUsize, Backoff, Ordering};

/// The turn of a slot log; dropping it releases the turn.
pub(super) struct Turn<'a>(&'a AtomicUsize);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        // ORDER: Release; pairs with Acquire in `take_turn` (oplog.V1).
        self.0.store(0, Ordering::Release);
    }
}

impl<L> SlotLog<L> {
    /// Waits for the turn; `None` if the calling thread has it (oplog.V2).
    pub(super) fn take_turn(&self) -> Option<Turn<'_>> {
        let token = percpu::thread_token();
        let mut backoff = Backoff::new();
        loop {
            // ORDER: AcqRel; Acquire pairs with Release in `Turn::drop`.
            match self.turn.compare_exchange(0, token, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return Some(Turn(&self.turn)),
                Err(holder) if holder == token => return None,
                Err(_) => backoff.pause(),
            }
        }
    }
}

impl<T: Send + 'static, L: Log<T>> Core<T, L> {
    /// Whether logs belong to CPUs.
    pub(super) fn is_shared(&self) -> bool {
        self.open == SHARED
    }

    /// Pushes an update when the gate is not plainly `OPEN`: it is closed, or logs belong to CPUs.
    #[cold]
    pub(super) fn push_elsewhere(
        &self,
        gate: u64,
        index: usize,
        op: L::Op,
        growth: usize,
    ) -> Result<Stamp, (L::Op, Refusal)> {
        if gate != SHARED {
            return Err((op, self.refuse(gate, index)));
        }
        let mut index = percpu::mm_cid::current().unwrap_or(index);
        loop {
            // SAFETY: oplog.C10 - not null, and freed only by an evictor, which waits for this
            // announced updater.
            let slot = unsafe { &*self.find_or_make_slot(index) };
            let Some(_turn) = slot.take_turn() else {
                index += 1;
                continue;
            };
            // ORDER: Acquire; after the turn (oplog.V1).
            let gate = self.gate.load(Ordering::Acquire);
            if gate != SHARED {
                return Err((op, refusal(gate)));
            }
            // SAFETY: oplog.V1 - this thread has the turn.
            return unsafe { self.push_to(slot, index, op, growth) };
        }
    }

    /// Takes the turns of these slots, for a reader that needs all their updaters stopped at one
    /// moment.
    pub(super) fn take_turns(&self, slots: &[usize]) -> Vec<Turn<'_>> {
        slots.iter().filter_map(|index| self.slot_log(*index)?.take_turn()).collect()
    }
}
