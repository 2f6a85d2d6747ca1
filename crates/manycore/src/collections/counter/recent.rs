//! What a thread remembers of cold counters: whether others add to them, and whether it reads them.

use crate::policy::Streak;
use crate::sync;
use std::cell::Cell;

sync::thread_local! {
    pub(super) static RECENT: Recent = const {
        Recent { lost: Cell::new(Streak::NONE), lost_at: Cell::new(0), read: Cell::new(0) }
    };
}

/// What a thread has seen of cold counters. (Addresses of their words, only to compare.)
pub(super) struct Recent {
    /// Adds that came just after another thread's, since it last promoted a counter; without those
    /// to a counter that it has read since.
    lost: Cell<Streak>,
    /// The counter of the last one of these.
    lost_at: Cell<usize>,
    /// The cold counter that the thread has read last, unless it has added to it since. Rows don't
    /// pay where that is always so, and the add need not look whether the counter is hot now, nor
    /// whether other threads have changed the word: that would fetch its line twice.
    read: Cell<usize>,
}

impl Recent {
    pub(super) fn note_read(&self, counter: usize) {
        self.read.set(counter);
        if self.lost_at.get() == counter {
            self.lost.set(Streak::NONE);
        }
    }

    /// Whether the counter has been read since the last add, and this is the next.
    #[inline(always)]
    pub(super) fn take_read(&self, counter: usize) -> bool {
        let is_read = self.read.get() == counter;
        if is_read {
            self.read.set(0);
        }
        is_read
    }

    /// An add has come just after another thread's; true if that has been so often enough.
    pub(super) fn note_lost(&self, counter: usize, patience: u32) -> bool {
        self.lost_at.set(counter);
        let mut streak = self.lost.get();
        let is_due = streak.observe(true).take(patience);
        self.lost.set(streak);
        is_due
    }
}
