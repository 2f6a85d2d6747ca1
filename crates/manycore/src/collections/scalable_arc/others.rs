//! What a thread knows of other threads' changes of a count.
//!
//! Owns: how often it lost an exchange, and a note of what it left in the word that it last
//! changed. The note serves two ends.
//! - A thread that is alone with a count exchanges what it left for what comes next, without
//!   reading the word first: a locked instruction waits for the loads before it.
//! - A word that many cores change is not told by lost exchanges: additions are never lost, and who
//!   has waited for the line to look at the word has it long enough to exchange it (on 48 cores
//!   under the simulator, 99 of 100 exchanges are won). It is told by this: when the thread comes
//!   back, the word is not as it left it.
//!
//! Law: a note is a guess. It may be of a count that is gone and whose memory is another's, so
//! nothing is done on its word but an exchange that fails unless it holds.

use super::count::Head;
use super::word::Word;
use crate::config::{CHANGES_FOR_ROWS, CONTENDED_FOR_LOGS};
use crate::sync::{self, Ordering};
use std::cell::Cell;
use std::ptr;

/// Nothing that a count can be: it is hot and being folded for ever.
const UNKNOWN: u64 = u64::MAX;

sync::thread_local! {
    /// Exchanges that this thread has lost since it last made an object hot.
    static LOST: Cell<u32> = const { Cell::new(0) };
    static LAST: Last = const {
        Last { word: Cell::new(0), left: Cell::new(UNKNOWN), changes: Cell::new(0) }
    };
}

struct Last {
    /// Where the word is.
    word: Cell<usize>,
    /// What this thread left there.
    left: Cell<u64>,
    /// How many more times it was changed between than not.
    changes: Cell<u32>,
}

impl Head {
    /// Gives a handle up, if the word is still as this thread left it, and the object is therefore
    /// cold. Returns what the word was. The caller has a central handle.
    #[inline(always)]
    pub(super) fn release_what_was_left(&self) -> Option<Word> {
        // Late in the thread's life there is no note.
        let left = Word(LAST.try_with(|last| last.left_at(self.address())).ok().flatten()?);
        // ORDER: Release; pairs with the fence in `was_last`: what was done with the value.
        let next = left.one_less();
        let is_same = self.exchange(left, next, Ordering::Release);
        let now = if is_same { next.0 } else { UNKNOWN };
        let _ = LAST.try_with(|last| last.left.set(now));
        is_same.then_some(left)
    }

    /// Notes what this thread found in the word when it counted a handle there, and what it leaves.
    /// Only of a cold object, since no other is changed by what was left. If others have changed
    /// the word nearly each time that the thread came back, this makes it hot. The caller has a
    /// handle.
    ///
    /// Who clones, drops soon: so a drop notes nothing of another word than the noted one.
    #[inline(always)]
    pub(super) fn note(&self, found: Word, left: Word) {
        let note = |last: &Last| last.note(self.address(), found.0, left.0);
        if found.is_cold() && matches!(LAST.try_with(note), Ok(true)) {
            self.promote();
        }
    }

    /// A lost exchange. The caller has a handle.
    #[cold]
    pub(super) fn note_contention(&self) {
        let is_due = LOST.try_with(|lost| {
            let now = lost.get() + 1;
            lost.set(if now < CONTENDED_FOR_LOGS { now } else { 0 });
            now >= CONTENDED_FOR_LOGS
        });
        if matches!(is_due, Ok(true)) {
            self.promote();
        }
    }

    fn address(&self) -> usize {
        ptr::from_ref(self) as usize
    }
}

/// Forgets the note: the count of which it was is over, and another that begins at its place has
/// not been changed by others.
pub(super) fn forget() {
    let _ = LAST.try_with(|last| last.word.set(0));
}

impl Last {
    /// What this thread left in the word at that address, if it has changed no other since.
    #[inline(always)]
    fn left_at(&self, word: usize) -> Option<u64> {
        let left = self.left.get();
        (self.word.get() == word && left != UNKNOWN).then_some(left)
    }

    /// Notes what was found in the word at that address and what is left there. True, once in a
    /// while, if others have changed it between nearly every time.
    #[inline(always)]
    fn note(&self, word: usize, found: u64, left: u64) -> bool {
        let before = self.left.replace(left);
        let changes = self.changes.get();
        if self.word.get() != word {
            self.word.set(word);
            self.changes.set(0);
        } else if before != found {
            let is_due = changes + 1 >= CHANGES_FOR_ROWS;
            self.changes.set(if is_due { 0 } else { changes + 1 });
            return is_due;
        } else if changes != 0 {
            self.changes.set(changes - 1);
        }
        false
    }
}
