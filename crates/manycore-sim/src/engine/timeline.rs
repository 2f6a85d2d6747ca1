//! The timeline: when each thread waited, and for what.

use super::{Engine, ThreadId, WaitFor};

/// A wait of a thread that is over.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Wait {
    /// The thread.
    pub thread: ThreadId,
    /// The core that it waited on, or had last.
    pub core: u32,
    /// What it waited for.
    pub waits_for: WaitFor,
    /// When it began to wait, in cycles.
    pub begin: u64,
    /// When it could go on.
    pub end: u64,
    /// Where in the program it was.
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
    /// Keeps a wait, if the caller of the engine wants waits and there is room.
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
    /// Keeps so many waits from now on: of threads that wait for each other, for a time, or for a
    /// cache line that is busy. (A miss that is served at once is no wait here.)
    pub fn keep_waits(&mut self, limit: usize) {
        self.timeline.limit = limit;
    }

    /// Whether waits are kept.
    pub fn keeps_waits(&self) -> bool {
        self.timeline.limit > 0
    }

    /// The waits that were kept, in the order of their ends' events, and how many more there were.
    pub fn take_waits(&mut self) -> (Vec<Wait>, u64) {
        (std::mem::take(&mut self.timeline.waits), std::mem::take(&mut self.timeline.left_out))
    }
}
