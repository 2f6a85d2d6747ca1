//! Contention on a count, as one thread observes it.
//!
//! Owns: the evidence by which a count gets rows: the exchanges that a thread lost, and a note of
//! what it left in the word that it last changed. Does not own: the word, and promoting it.
//!
//! The note serves two purposes.
//! - An uncontended thread exchanges the noted value for the next one without loading the word
//!   first: a locked instruction waits for the loads before it.
//! - Lost exchanges do not reveal a word that many cores change: additions are never lost, and a
//!   core that has waited for the line to load the word keeps it long enough to exchange it (on 48
//!   simulated cores, 99 of 100 exchanges succeed). The note does: when the thread comes back, the
//!   word differs from what it left.
//!
//! Law: a note is a guess. Its count may have been freed and the memory reused, so it is only used
//! as the expected value of an exchange, which fails unless it holds.

use super::word::Word;
use crate::config::{CHANGES_FOR_ROWS, CONTENDED_FOR_LOGS};
use crate::policy::Streak;
use crate::sync;
use std::cell::Cell;

/// A value that no count has: hot and folding at the same time.
const UNKNOWN: u64 = u64::MAX;

sync::thread_local! {
    static SEEN: Seen = const {
        Seen {
            lost: Cell::new(Streak::NONE),
            word: Cell::new(0),
            left: Cell::new(UNKNOWN),
            changes: Cell::new(Streak::NONE),
        }
    };
}

/// What one thread has seen.
struct Seen {
    /// The exchanges that it has lost since it last made an object hot.
    lost: Cell<Streak>,
    /// The address of the word that it last changed.
    word: Cell<usize>,
    /// The value that it left there.
    left: Cell<u64>,
    /// Its visits that found that word changed, less those that did not.
    changes: Cell<Streak>,
}

/// The value that this thread left in the word at that address, if it has changed no other word
/// since.
#[inline(always)]
pub(super) fn left_at(word: usize) -> Option<Word> {
    // There is no note once the thread-local has been destroyed.
    SEEN.try_with(|seen| seen.left_at(word)).ok().flatten().map(Word)
}

/// Replaces the noted value; `None` if the value in the word is not known any more.
#[inline(always)]
pub(super) fn set_left(left: Option<Word>) {
    let _ = SEEN.try_with(|seen| seen.left.set(left.map_or(UNKNOWN, |left| left.0)));
}

/// Notes what this thread found in the word at that address and what it leaves there. True, once in
/// a while, if other threads have changed it nearly every time in between: the count should get
/// rows.
#[inline(always)]
pub(super) fn note(word: usize, found: Word, left: Word) -> bool {
    matches!(SEEN.try_with(|seen| seen.note(word, found.0, left.0)), Ok(true))
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

/// Forgets the note: its count has ended, and one that begins at the same address has not been
/// changed by other threads.
pub(super) fn forget() {
    let _ = SEEN.try_with(|seen| seen.word.set(0));
}

impl Seen {
    #[inline(always)]
    fn left_at(&self, word: usize) -> Option<u64> {
        let left = self.left.get();
        (self.word.get() == word && left != UNKNOWN).then_some(left)
    }

    #[inline(always)]
    fn note(&self, word: usize, found: u64, left: u64) -> bool {
        let is_changed = self.left.replace(left) != found;
        let mut changes = self.changes.get();
        if self.word.get() != word {
            self.word.set(word);
            self.changes.set(Streak::NONE);
        } else if is_changed || changes != Streak::NONE {
            let is_due = changes.weigh(is_changed).take(CHANGES_FOR_ROWS);
            self.changes.set(changes);
            return is_due;
        }
        false
    }
}
