//! The timeline: when each thread waited, and for what.

use super::{Engine, ThreadId, WaitFor};

/// A wait of a thread, after its end.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Wait {
    /// The thread.
    pub thread: ThreadId,
    /// The core on which the thread waited, or its last core.
    pub core: u32,
    /// The object that it waited for.
    pub waits_for: WaitFor,
    /// When it began to wait, in cycles.
    pub begin: u64,
    /// When it could go on.
    pub end: u64,
    /// The place in the program.
    pub pc: usize,
}

/// The waits that are kept.
#[derive(Default)]
pub(super) struct Timeline {
    limit: usize,
    waits: Vec<Wait>,
    left_out: u64,
}

impl Timeline {
    /// Keeps a wait if the engine's caller wants waits and there is room.
    #[inline]
    pub(super) fn note(&mut self, wait: impl FnOnce() -> Wait) {
        if self.waits.len() < self.limit {
            self.waits.push(wait());
        } else if self.limit != 0 {
            self.left_out += 1;
        }
    }
}

impl Engine {
    /// Keeps up to `limit` waits from now on.
    ///
    /// These are waits for other threads, for a time, or for a busy cache line. A miss that is
    /// served at once is not a wait.
    pub fn keep_waits(&mut self, limit: usize) {
        self.timeline.limit = limit;
    }

    /// Returns true if waits are kept.
    pub fn keeps_waits(&self) -> bool {
        self.timeline.limit > 0
    }

    /// Takes the kept waits in order of their ends, and the number of waits that were left out.
    pub fn take_waits(&mut self) -> (Vec<Wait>, u64) {
        (std::mem::take(&mut self.timeline.waits), std::mem::take(&mut self.timeline.left_out))
    }
}
