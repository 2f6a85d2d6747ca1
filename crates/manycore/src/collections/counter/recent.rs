//! What a thread remembers of counters: of cold ones whether others add to them, and whether it
//! reads them; of a hot one that it is in use.

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

/// What a thread has seen of counters. (Addresses of their words, only to compare.)
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
    /// The hot group whose last noted read found it in use.
    in_use: Cell<usize>,
    /// How many of its next reads are not noted: each would write a line that all readers share.
    unnoted: Cell<u32>,
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

    /// A noted read has found a hot group in use.
    pub(super) fn note_in_use(&self, group: usize) {
        self.in_use.set(group);
        self.unnoted.set(READS_UNNOTED);
    }

    /// Whether the read that has just been made of a hot group need not be noted.
    #[inline(always)]
    pub(super) fn skip_note(&self, group: usize) -> bool {
        let left = self.unnoted.get();
        let skips = left != 0 && self.in_use.get() == group;
        if skips {
            self.unnoted.set(left - 1);
        }
        skips
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
