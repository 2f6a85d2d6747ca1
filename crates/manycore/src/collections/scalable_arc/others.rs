//! Contention on a count, as one thread observes it.
//!
//! Owns: the number of exchanges that a thread lost, and a note of what it left in the word that it
//! last changed. The note serves two purposes.
//! - An uncontended thread exchanges the noted value for the next one without loading the word
//!   first: a locked instruction waits for the loads before it.
//! - Lost exchanges do not reveal a word that many cores change: additions are never lost, and a
//!   core that has waited for the line to load the word keeps it long enough to exchange it (on 48
//!   simulated cores, 99 of 100 exchanges succeed). The note does: when the thread comes back, the
//!   word differs from what it left.
//!
//! Law: a note is a guess. Its count may have been freed and the memory reused, so it is only used
//! as the expected value of an exchange, which fails unless it holds.

use super::count::Head;
use super::word::Word;
use crate::config::{CHANGES_FOR_ROWS, CONTENDED_FOR_LOGS};
use crate::sync::{self, Ordering};
use std::cell::Cell;
use std::ptr;

/// A value that no count has: hot and folding at the same time.
const UNKNOWN: u64 = u64::MAX;

sync::thread_local! {
    /// Exchanges that this thread has lost since it last made an object hot.
    static LOST: Cell<u32> = const { Cell::new(0) };
    static LAST: Last = const {
        Last { word: Cell::new(0), left: Cell::new(UNKNOWN), changes: Cell::new(0) }
    };
}

struct Last {
    /// The word's address.
    word: Cell<usize>,
    /// The value that this thread left there.
    left: Cell<u64>,
    /// The number of visits that found it changed, less those that did not.
    changes: Cell<u32>,
}

impl Head {
    /// Uncounts a handle, if the word is still as this thread left it, and the object is therefore
    /// cold. Returns the previous word. The caller has a central handle.
    #[inline(always)]
    pub(super) fn release_what_was_left(&self) -> Option<Word> {
        // There is no note once the thread-local has been destroyed.
        let left = Word(LAST.try_with(|last| last.left_at(self.address())).ok().flatten()?);
        // ORDER: Release; pairs with the fence in `was_last`: what was done with the value.
        let next = left.one_less();
        let is_same = self.exchange(left, next, Ordering::Release);
        let now = if is_same { next.0 } else { UNKNOWN };
        let _ = LAST.try_with(|last| last.left.set(now));
        is_same.then_some(left)
    }

    /// Notes what this thread found in the word when it counted a handle there, and what it leaves.
    /// Only for a cold object, since the note is used for no other. If other threads have changed
    /// the word nearly each time that this one came back, promotes the object. The caller has a
    /// handle.
    ///
    /// A clone is usually dropped soon, so a drop updates the note of the same word only.
    #[inline(always)]
    pub(super) fn note(&self, found: Word, left: Word) {
        let note = |last: &Last| last.note(self.address(), found.0, left.0);
        if found.is_cold() && matches!(LAST.try_with(note), Ok(true)) {
            self.promote();
        }
    }

    /// Counts a lost exchange. The caller has a handle.
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

/// Forgets the note: its count has ended, and one that begins at the same address has not been
/// changed by other threads.
pub(super) fn forget() {
    let _ = LAST.try_with(|last| last.word.set(0));
}

impl Last {
    /// The value that this thread left in the word at that address, if it has changed no other word
    /// since.
    #[inline(always)]
    fn left_at(&self, word: usize) -> Option<u64> {
        let left = self.left.get();
        (self.word.get() == word && left != UNKNOWN).then_some(left)
    }

    /// Notes what was found in the word at that address and what is left there. True, once in a
    /// while, if other threads have changed it nearly every time in between.
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
