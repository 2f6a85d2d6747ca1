//! Contention on a count, as threads observe it.
//!
//! Owns: the evidence by which a count gets rows: the exchanges that a thread lost, and the marks
//! that threads leave in the word. Does not own: the word, and promoting it.
//!
//! Lost exchanges do not reveal a word that many cores change. Additions are never lost. And a core
//! that has waited for the line to load the word keeps the line long enough to exchange the word
//! (on 48 simulated cores, 99 of 100 exchanges succeed).
//!
//! Marks do reveal it. A drop leaves the thread's mark in the word. The next drop of the same
//! thread finds another mark if other threads have dropped handles in between. The word itself
//! counts how often. A thread alone finds its own mark, and notes nothing.

use super::word::{Mark, Word};
use crate::config::{CHANGES_FOR_ROWS, CONTENDED_FOR_LOGS};
use crate::percpu::{self, Slot};
use crate::policy::Streak;
use crate::sync;
use std::cell::Cell;

sync::thread_local! {
    static SEEN: Seen = const {
        Seen { mark: Cell::new(Mark::UNKNOWN), lost: Cell::new(Streak::NONE) }
    };
}

/// A thread's observations.
struct Seen {
    /// The thread's own mark, once it has dropped a handle.
    mark: Cell<Mark>,
    /// Exchanges that the thread has lost since it last made an object hot.
    lost: Cell<Streak>,
}

/// Returns the calling thread's mark, if it has one already.
#[inline(always)]
pub(super) fn known_mark() -> Mark {
    // There is none once the thread-local has been destroyed.
    SEEN.try_with(|seen| seen.mark.get()).unwrap_or(Mark::UNKNOWN)
}

/// Returns the calling thread's mark; gives it one if it has none.
pub(super) fn mark() -> Mark {
    let known = known_mark();
    if known.is_unknown() { percpu::own_slot().map_or(Mark::NOBODY, give_mark) } else { known }
}

#[cold]
fn give_mark(slot: Slot) -> Mark {
    let mark = Mark::of(slot.index());
    let _ = SEEN.try_with(|seen| seen.mark.set(mark));
    mark
}

/// Returns true if other threads have changed the word between nearly all drops of each thread. The
/// count should get rows then.
pub(super) fn is_contended(word: Word) -> bool {
    word.changes() >= CHANGES_FOR_ROWS
}

/// Counts a lost exchange. Returns true if the count should get rows.
pub(super) fn note_lost() -> bool {
    let is_due = SEEN.try_with(|seen| {
        let mut lost = seen.lost.get();
        let is_due = lost.observe(true).take(CONTENDED_FOR_LOGS);
        seen.lost.set(lost);
        is_due
    });
    matches!(is_due, Ok(true))
}
