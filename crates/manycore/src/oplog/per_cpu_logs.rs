//! Logs that belong to CPUs: a thread takes a log's turn before it uses the log.
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
//! - oplog.V3 The announcement still keeps the hot state alive. It is always biased where the
//!   platform allows: only demotion and eviction look at it.

use crate::percpu;
use crate::sync::{AtomicUsize, Backoff, Ordering};

/// Which thread has a slot's log in hand; unused if logs belong to threads.
pub(super) struct TurnHolder(AtomicUsize);

/// The turn of a slot log; dropping it releases the turn.
pub(super) struct Turn<'a>(&'a AtomicUsize);

impl TurnHolder {
    pub(super) fn none() -> Self {
        Self(AtomicUsize::new(0))
    }

    /// Waits for the turn; `None` if the calling thread has it (oplog.V2).
    pub(super) fn take(&self) -> Option<Turn<'_>> {
        let token = percpu::thread_token();
        debug_assert!(token != 0, "oplog.V2: a turn of no thread");
        let mut backoff = Backoff::new();
        loop {
            // ORDER: AcqRel; Acquire pairs with Release in `Turn::drop`.
            match self.0.compare_exchange(0, token, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return Some(Turn(&self.0)),
                Err(holder) if holder == token => return None,
                Err(_) => backoff.pause(),
            }
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        debug_assert!(
            cfg!(manycore_loom) || self.0.load(Ordering::Relaxed) == percpu::thread_token(),
            "oplog.V2: another thread's turn ends"
        );
        // ORDER: Release; pairs with Acquire in `take` (oplog.V1).
        self.0.store(0, Ordering::Release);
    }
}
