//! Whether other threads change a word as often as this one does.
//!
//! Owns: what a thread left in the word that it last changed. A word that many cores change is not
//! told by lost exchanges: additions are never lost, and who has waited for the line to look at the
//! word has it long enough to exchange it (on 48 cores under the simulator, 99 of 100 exchanges are
//! won). It is told by this: when the thread comes back, the word is not as it left it.

use crate::config::CHANGES_FOR_ROWS;
use crate::sync;
use std::cell::Cell;

sync::thread_local! {
    static LAST: Last = const {
        Last { word: Cell::new(0), left: Cell::new(0), changes: Cell::new(0) }
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

/// Notes that the thread has found `found` in the word at that address and leaves `left`. True,
/// once in a while, if others have changed it between nearly every time.
#[inline(always)]
pub(super) fn are_at(word: usize, found: u64, left: u64) -> bool {
    let note = |last: &Last| {
        let is_same = last.word.replace(word) == word;
        let changes = last.changes.get();
        if last.left.replace(left) == found || !is_same {
            last.changes.set(changes.saturating_sub(1));
            return false;
        }
        let is_due = changes + 1 >= CHANGES_FOR_ROWS;
        last.changes.set(if is_due { 0 } else { changes + 1 });
        is_due
    };
    // Late in the thread's life there is nothing to note.
    matches!(LAST.try_with(note), Ok(true))
}
