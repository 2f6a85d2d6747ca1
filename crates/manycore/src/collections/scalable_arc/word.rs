//! The word of a reference count: its bits, and every transition between its states.
//!
//! Owns: the layout. No other file of this module tests or sets a bit.
//!
//! ```text
//!   63      54 53     48 47           7   6         5        4     3      0
//!  |   mark   | changes | central count | RETIRED | FOLDING | HOT | period |
//! ```
//!
//! - *period*: how often the object has become hot.
//! - *mark*: that of the thread that dropped a central handle last.
//! - *changes*: of these drops, how many found another thread's mark, minus how many found their
//!   own.
//!
//! Mark and changes tell contention: only the decision to become hot depends on them. (While
//! folding, a count below zero borrows from them, and the fold gives back what it can.)
//!
//! A handle carries a tag: the period in which it was counted in a row, or zero if it was counted
//! in the word. A handle is *central* unless the object is hot and the tag is its period.

/// One period. The period has the lowest bits, as the tag has in a handle.
const PERIOD: u64 = 1;
const PERIODS: u64 = TAGS * PERIOD;
/// Rows count the handles.
const HOT: u64 = 16;
/// A thread is adding the rows to the word, and has cleared HOT.
const FOLDING: u64 = 32;
/// No weak handle can be upgraded, and the object stays cold.
const RETIRED: u64 = 64;
/// One central handle.
const ONE: u64 = 128;
/// One change, in the bits above the central count.
const CHANGE: u64 = 1 << 48;
/// One thread's mark.
const MARK: u64 = 1 << 54;
const STATE: u64 = ONE - 1;

/// The greatest tag of a handle; the lowest is [`CENTRAL`].
pub(super) const TAGS: u64 = 15;
/// The tag of handles that were counted in the word.
pub(super) const CENTRAL: u64 = 0;
/// More handles than any program makes. A central count below zero looks greater.
pub(super) const TOO_MANY: u64 = CHANGE / ONE / 2;
/// [`TOO_MANY`] central handles, as bits of the word.
const FULL: u64 = TOO_MANY * ONE;
/// The greatest mark of a thread. Zero is the mark of no thread. One more is in no word.
pub(super) const MARKS: usize = (u64::MAX / MARK) as usize - 1;
/// The change of a word when a central handle is made.
pub(super) const ONE_MORE: u64 = ONE;

/// A thread's mark, combined with the least count above one, as [`Word::is_left_by`] compares it.
#[derive(Clone, Copy)]
pub(super) struct Mark(u64);

impl Mark {
    /// Mark of a thread that has not got its mark yet: it is in no word.
    pub(super) const UNKNOWN: Self = Self((MARKS as u64 + 1) * MARK);
    /// Mark of no thread.
    pub(super) const NOBODY: Self = Self(2 * ONE);

    /// Returns the mark of the thread in this slot. Threads far apart may share a mark, and don't
    /// notice each other.
    pub(super) fn of(slot: usize) -> Self {
        Self((slot % MARKS + 1) as u64 * MARK + 2 * ONE)
    }

    pub(super) fn is_unknown(self) -> bool {
        self.0 == Self::UNKNOWN.0
    }
}

/// See the module header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Word(pub(super) u64);

impl Word {
    /// A word with one handle, which is central.
    pub(super) const NEW: Self = Self(ONE);

    /// Returns true if rows count the handles.
    #[inline(always)]
    pub(super) fn is_hot(self) -> bool {
        self.0 & HOT != 0
    }

    /// Returns true if the word counts the handles, and the rows are empty.
    #[inline(always)]
    pub(super) fn is_cold(self) -> bool {
        self.0 & (HOT | FOLDING) == 0
    }

    /// Returns true if the word counts the handles, and there is exactly one.
    #[inline(always)]
    pub(super) fn is_lone(self) -> bool {
        self.0 & (HOT | FOLDING | (CHANGE - ONE)) == ONE
    }

    /// Returns true if the word counts the handles, and has room for one more.
    #[inline(always)]
    pub(super) fn takes_one_more(self) -> bool {
        self.0 & (HOT | FOLDING | FULL) == 0
    }

    /// Returns true if the word counts the handles, there is more than one, no other thread has
    /// dropped one since the thread of this mark did, and the changes are zero.
    #[inline(always)]
    pub(super) fn is_left_by(self, mark: Mark) -> bool {
        // Everything but the count is zero, and the count is two or more. Otherwise the subtraction
        // borrows from the bits above.
        self.0.wrapping_sub(mark.0) & (HOT | FOLDING | !(FULL - 1)) == 0
    }

    /// Returns true if the word is hot in the period of a handle with this tag.
    #[inline(always)]
    pub(super) fn is_hot_with(self, tag: u64) -> bool {
        (self.0 ^ (tag * PERIOD + HOT)) & STATE == 0
    }

    /// Returns true if a thread is adding the rows to the word, which counts handles already
    /// (count.A5).
    #[inline(always)]
    pub(super) fn is_folding(self) -> bool {
        self.0 & FOLDING != 0
    }

    #[inline(always)]
    pub(super) fn is_retired(self) -> bool {
        self.0 & RETIRED != 0
    }

    /// Returns true if the words differ only in their counts.
    #[inline(always)]
    pub(super) fn is_in_state_of(self, other: Self) -> bool {
        (self.0 ^ other.0) & STATE == 0
    }

    /// Returns the tag of handles counted in rows in this period.
    #[inline(always)]
    pub(super) fn tag(self) -> u64 {
        self.0 / PERIOD % (TAGS + 1)
    }

    /// Returns the central count.
    #[inline(always)]
    pub(super) fn central(self) -> u64 {
        self.0 % CHANGE / ONE
    }

    /// Returns the word after a central handle was made.
    #[inline(always)]
    pub(super) fn one_more(self) -> Self {
        Self(self.0.wrapping_add(ONE_MORE))
    }

    /// Returns the word after a central handle was dropped.
    #[inline(always)]
    pub(super) fn one_less(self) -> Self {
        Self(self.0.wrapping_sub(ONE))
    }

    /// Returns how many more drops have found another thread's mark than their own.
    pub(super) fn changes(self) -> u64 {
        self.0 % MARK / CHANGE
    }

    /// Returns the word with no change counted.
    pub(super) fn unchanged(self) -> Self {
        Self(self.0 - self.changes() * CHANGE)
    }

    /// Returns the word with this mark. Counts a change up if the word had another thread's mark,
    /// down if it had this one.
    pub(super) fn marked(self, mark: Mark) -> Self {
        let (before, now) = (self.0 / MARK, mark.0 / MARK);
        let changes = match self.changes() {
            changes if before == now => changes.saturating_sub(1),
            changes if before != 0 && now != 0 => (changes + 1).min(MARK / CHANGE - 1),
            changes => changes,
        };
        Self(self.0 % CHANGE + changes * CHANGE + now * MARK)
    }

    /// Returns true if the object may become hot: it is cold, alive, not retired, and has a period
    /// left (count.A6).
    pub(super) fn may_be_promoted(self) -> bool {
        let has_period = self.0 & PERIODS != PERIODS;
        self.is_cold() && self.central() != 0 && !self.is_retired() && has_period
    }

    /// Returns the hot word of the next period.
    pub(super) fn promoted(self) -> Self {
        debug_assert!(self.may_be_promoted(), "count.A6: {self:?} is promoted");
        Self(self.0 % CHANGE + PERIOD + HOT)
    }

    /// Returns the word closed for a fold, which the caller begins.
    pub(super) fn folding(self) -> Self {
        debug_assert!(self.is_hot(), "count.A4: {self:?} is folded by two threads");
        debug_assert!(self.central() >= 1, "count.A2: {self:?} is hot without an owner");
        Self(self.0 ^ (HOT | FOLDING))
    }

    /// Returns the retired word; folding or not, as before.
    pub(super) fn retired(self) -> Self {
        Self(self.0 | RETIRED)
    }

    /// Returns what to add to the word at the end of a fold: it adds the rows' sum and makes the
    /// word cold.
    pub(super) fn fold(rows: u64) -> u64 {
        rows.wrapping_mul(ONE).wrapping_sub(FOLDING)
    }
}

#[cfg(all(test, not(manycore_loom), not(manycore_shuttle)))]
mod tests {
    use super::*;

    const OWN: usize = 3;

    /// Makes a cold word with this many handles and the mark of slot 3.
    fn left(handles: u64) -> Word {
        Word(handles * ONE).marked(Mark::of(OWN))
    }

    #[test]
    fn straight_drop_is_for_the_thread_that_dropped_last_and_not_for_the_last_handle() {
        let own = Mark::of(OWN);
        for handles in [2, 3, 1000, TOO_MANY - 1] {
            assert!(left(handles).is_left_by(own), "{handles} handles");
        }
        let others = [
            left(0),
            left(1),
            Word(2 * ONE),
            left(2).promoted(),
            left(2).promoted().folding(),
            left(2).marked(Mark::of(OWN + 1)),
            left(2).marked(Mark::of(OWN + 1)).marked(own),
        ];
        for (at, word) in others.into_iter().enumerate() {
            assert!(!word.is_left_by(own), "{at}: {word:?}");
            assert!(!word.is_left_by(Mark::UNKNOWN), "{at}: {word:?}");
        }
        // If the count is below two, what it borrows makes the bits above equal.
        for above in [own.0 / CHANGE * CHANGE + CHANGE, Mark::of(OWN + 1).0 / CHANGE * CHANGE] {
            assert!((0..2).all(|handles| !Word(handles * ONE + above).is_left_by(own)));
        }
    }

    #[test]
    fn changes_are_those_that_found_another_mark_less_the_others() {
        let (one, other) = (Mark::of(0), Mark::of(1));
        let mut word = Word(2 * ONE).marked(one);
        assert_eq!((word.changes(), word.central()), (0, 2));
        let marks = [(other, 1), (one, 2), (one, 1), (Mark::NOBODY, 1), (other, 1), (one, 2)];
        for (mark, changes) in marks {
            word = word.marked(mark);
            assert_eq!((word.changes(), word.central()), (changes, 2));
        }
        (0..100).for_each(|at| word = word.marked(if at % 2 == 0 { other } else { one }));
        assert_eq!(word.changes(), 63);
        assert_eq!(word.unchanged(), Word(2 * ONE).marked(one));
        assert_eq!(word.promoted().changes(), 0);
    }

    #[test]
    fn each_slot_has_a_mark_that_a_word_can_have() {
        let marks: Vec<u64> =
            (0..3000).map(|slot| Word(ONE).marked(Mark::of(slot)).0 / MARK).collect();
        assert!(marks.iter().all(|mark| (1..=MARKS as u64).contains(mark)));
        assert!(marks[..MARKS].windows(2).all(|two| two[1] == two[0] + 1));
    }
}
