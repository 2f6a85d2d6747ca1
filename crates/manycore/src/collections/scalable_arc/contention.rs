//! Contention on a count, as threads observe it.
//!
//! Owns: the evidence by which a count gets rows: the exchanges that a thread lost, and the marks
//! that threads leave in the word. Does not own: the word, and promoting it.
//!
//! Lost exchanges do not reveal a word that many cores change: additions are never lost, and a core
//! that has waited for the line to load the word keeps it long enough to exchange it (on 48
//! simulated cores, 99 of 100 exchanges succeed). Marks do: a drop leaves the thread's mark in the
//! word, and the next one of the same thread finds another's if others have dropped handles in
//! between. The word itself counts how often. So a thread alone, which finds its own, notes
//! nothing.

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

/// What one thread has seen.
struct Seen {
    /// The thread's own mark, once it has dropped a handle.
    mark: Cell<Mark>,
    /// The exchanges that it has lost since it last made an object hot.
    lost: Cell<Streak>,
}

/// The calling thread's mark, if it has one already.
#[inline(always)]
pub(super) fn known_mark() -> Mark {
    // There is none once the thread-local has been destroyed.
    SEEN.try_with(|seen| seen.mark.get()).unwrap_or(Mark::UNKNOWN)
}

/// The calling thread's mark.
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

/// Whether other threads have changed a word with these marks nearly every time in between: the
/// count should get rows.
pub(super) fn is_contended(word: Word) -> bool {
    word.changes() >= CHANGES_FOR_ROWS
}

/// Counts a lost exchange. True if the count should get rows.
pub(super) fn note_lost() -> bool {
    let is_due = SEEN.try_with(|seen| {
        let mut lost = seen.lost.get();
        let is_due = lost.observe(true).take(CONTENDED_FOR_LOGS);
        seen.lost.set(lost);
        is_due
    });
    matches!(is_due, Ok(true))
}
