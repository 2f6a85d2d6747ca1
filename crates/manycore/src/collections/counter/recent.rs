//! A thread's memory of counters. For cold counters: whether other threads add to them, and whether
//! this thread reads them. For a hot counter: that it is in use.

use crate::config::READS_UNNOTED;
use crate::policy::Streak;
use crate::sync;
use std::cell::Cell;

sync::thread_local! {
    pub(super) static RECENT: Recent = const {
        Recent {
            lost: Cell::new(Streak::NONE),
            lost_at: Cell::new(0),
            read: Cell::new(0),
            in_use: Cell::new(0),
            unnoted: Cell::new(0),
        }
    };
}

/// A thread's observations of counters. The numbers are addresses of the counters' words, only to
/// compare.
pub(super) struct Recent {
    /// Adds of this thread that came just after another thread's, since it last promoted a counter.
    /// Adds to a counter that it has read since do not count.
    lost: Cell<Streak>,
    /// Counter of the last such add.
    lost_at: Cell<usize>,
    /// The cold counter that the thread has read last, unless it has added to it since. Rows don't
    /// pay if a thread always reads between its adds. So its next add skips two looks that would
    /// fetch the word's line twice: whether the counter is hot now, and whether other threads have
    /// changed the word.
    read: Cell<usize>,
    /// The hot group whose last noted read found it in use.
    in_use: Cell<usize>,
    /// Further reads that are not noted. Noting a read writes a line that all readers share.
    unnoted: Cell<u32>,
}

impl Recent {
    pub(super) fn note_read(&self, counter: usize) {
        self.read.set(counter);
        if self.lost_at.get() == counter {
            self.lost.set(Streak::NONE);
        }
    }

    /// Returns true if this is the first add since this thread last read the counter.
    #[inline(always)]
    pub(super) fn take_read(&self, counter: usize) -> bool {
        let is_read = self.read.get() == counter;
        if is_read {
            self.read.set(0);
        }
        is_read
    }

    /// Notes that a noted read has found a hot group in use.
    pub(super) fn note_in_use(&self, group: usize) {
        self.in_use.set(group);
        self.unnoted.set(READS_UNNOTED);
    }

    /// Returns true if the present read of a hot group need not be noted.
    #[inline(always)]
    pub(super) fn skip_note(&self, group: usize) -> bool {
        let left = self.unnoted.get();
        let skips = left != 0 && self.in_use.get() == group;
        if skips {
            self.unnoted.set(left - 1);
        }
        skips
    }

    /// Notes an add that came just after another thread's. Returns true if there were enough of
    /// them.
    pub(super) fn note_lost(&self, counter: usize, patience: u32) -> bool {
        self.lost_at.set(counter);
        let mut streak = self.lost.get();
        let is_due = streak.observe(true).take(patience);
        self.lost.set(streak);
        is_due
    }
}
