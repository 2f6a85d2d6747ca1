//! The word of a reference count: its bits, and every transition between its states.
//!
//! Owns: the layout. No other file of this module tests or sets a bit.
//!
//! The word holds, from the low end: the period (how often the object has become hot), HOT,
//! FOLDING, RETIRED, and the *central count*. The top 16 bits tell contention: the *mark* of the
//! thread that dropped a central handle last (10 bits), and the *changes* (6 bits), how many more
//! of these drops have found another thread's mark than their own. Nothing but the decision to
//! become hot depends on these two. (While folding, a count below zero borrows from them, and the
//! fold gives back what it can.) A handle carries a tag: the period in which it was counted in a
//! row, or zero if it was counted in the word. A handle is *central* unless its tag is the period
//! of the object and the object is hot.

/// One period. They are the lowest bits, as a handle's tag is.
const PERIOD: u64 = 1;
const PERIODS: u64 = TAGS * PERIOD;
/// Handles are counted in rows.
const HOT: u64 = 16;
/// A thread is adding the rows to the word, which has HOT no more.
const FOLDING: u64 = 32;
/// No weak handle can be upgraded any more, and the object stays cold.
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
/// More handles than any program makes; a central count below zero looks greater.
pub(super) const TOO_MANY: u64 = CHANGE / ONE / 2;
/// As many central handles, in the word.
const FULL: u64 = TOO_MANY * ONE;
/// The greatest mark of a thread. Zero is that of no thread, and one more is never in a word.
pub(super) const MARKS: usize = (u64::MAX / MARK) as usize - 1;
/// The change of a word when a central handle is made.
pub(super) const ONE_MORE: u64 = ONE;

/// A thread's mark, as [`Word::is_left_by`] compares it: with the least count above one.
#[derive(Clone, Copy)]
pub(super) struct Mark(u64);

impl Mark {
    /// A thread that has not got its mark yet: it is in no word.
    pub(super) const UNKNOWN: Self = Self((MARKS as u64 + 1) * MARK);
    /// That of no thread.
    pub(super) const NOBODY: Self = Self(2 * ONE);

    /// That of the thread in this slot. Threads far apart share one, and don't notice each other.
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
    /// One handle, which is central.
    pub(super) const NEW: Self = Self(ONE);

    /// Handles are counted in rows.
    #[inline(always)]
    pub(super) fn is_hot(self) -> bool {
        self.0 & HOT != 0
    }

    /// Handles are counted in the word, and the rows are empty.
    #[inline(always)]
    pub(super) fn is_cold(self) -> bool {
        self.0 & (HOT | FOLDING) == 0
    }

    /// Handles are counted in the word, and there is one.
    #[inline(always)]
    pub(super) fn is_lone(self) -> bool {
        self.0 & (HOT | FOLDING | (CHANGE - ONE)) == ONE
    }

    /// Handles are counted in the word, and there is room for one more.
    #[inline(always)]
    pub(super) fn takes_one_more(self) -> bool {
        self.0 & (HOT | FOLDING | FULL) == 0
    }

    /// Handles are counted in the word, there is more than one, and no other thread has dropped one
    /// since that of this mark did: nor is there a change to take back.
    #[inline(always)]
    pub(super) fn is_left_by(self, mark: Mark) -> bool {
        // Everything but the count is zero, and it is two or more: or this borrows from the bits
        // above.
        self.0.wrapping_sub(mark.0) & (HOT | FOLDING | !(FULL - 1)) == 0
    }

    /// The word as it is counted for a handle with this tag in a row.
    #[inline(always)]
    pub(super) fn is_hot_with(self, tag: u64) -> bool {
        (self.0 ^ (tag * PERIOD + HOT)) & STATE == 0
    }

    /// A thread is adding the rows to the word, where handles are already counted
    /// (scalable_arc.A5).
    #[inline(always)]
    pub(super) fn is_folding(self) -> bool {
        self.0 & FOLDING != 0
    }

    #[inline(always)]
    pub(super) fn is_retired(self) -> bool {
        self.0 & RETIRED != 0
    }

    /// Whether the words differ in nothing but their counts.
    #[inline(always)]
    pub(super) fn is_in_state_of(self, other: Self) -> bool {
        (self.0 ^ other.0) & STATE == 0
    }

    /// The tag of handles counted in rows in this period.
    #[inline(always)]
    pub(super) fn tag(self) -> u64 {
        self.0 / PERIOD % (TAGS + 1)
    }

    /// The central count.
    #[inline(always)]
    pub(super) fn central(self) -> u64 {
        self.0 % CHANGE / ONE
    }

    /// The word after a central handle was made.
    #[inline(always)]
    pub(super) fn one_more(self) -> Self {
        Self(self.0.wrapping_add(ONE_MORE))
    }

    /// The word after a central handle was dropped.
    #[inline(always)]
    pub(super) fn one_less(self) -> Self {
        Self(self.0.wrapping_sub(ONE))
    }

    /// How many more drops have found another thread's mark than their own.
    pub(super) fn changes(self) -> u64 {
        self.0 % MARK / CHANGE
    }

    /// The word with no change counted.
    pub(super) fn unchanged(self) -> Self {
        Self(self.0 - self.changes() * CHANGE)
    }

    /// The word with this mark, and the change counted if it had another thread's.
    pub(super) fn marked(self, mark: Mark) -> Self {
        let (before, now) = (self.0 / MARK, mark.0 / MARK);
        let changes = match self.changes() {
            changes if before == now => changes.saturating_sub(1),
            changes if before != 0 && now != 0 => (changes + 1).min(MARK / CHANGE - 1),
            changes => changes,
        };
        Self(self.0 % CHANGE + changes * CHANGE + now * MARK)
    }

    /// Whether the object may become hot: it is cold, alive, and has a period left
    /// (scalable_arc.A6).
    pub(super) fn may_be_promoted(self) -> bool {
        let has_period = self.0 & PERIODS != PERIODS;
        self.is_cold() && self.central() != 0 && !self.is_retired() && has_period
    }

    /// The hot word of the next period.
    pub(super) fn promoted(self) -> Self {
        debug_assert!(self.may_be_promoted(), "scalable_arc.A6: {self:?} is promoted");
        Self(self.0 % CHANGE + PERIOD + HOT)
    }

    /// The word closed for a fold, which the caller begins.
    pub(super) fn folding(self) -> Self {
        debug_assert!(self.is_hot(), "scalable_arc.A4: {self:?} is folded by two threads");
        debug_assert!(self.central() >= 1, "scalable_arc.A2: {self:?} is hot without an owner");
        Self(self.0 ^ (HOT | FOLDING))
    }

    /// The retired word; folding or not, as before.
    pub(super) fn retired(self) -> Self {
        Self(self.0 | RETIRED)
    }

    /// The change of the word at the end of a fold: adds the rows' sum and makes the word cold.
    pub(super) fn fold(rows: u64) -> u64 {
        rows.wrapping_mul(ONE).wrapping_sub(FOLDING)
    }
}

#[cfg(all(test, not(manycore_loom), not(manycore_shuttle)))]
mod tests {
    use super::*;

    const OWN: usize = 3;

    /// A cold word of so many handles, with the mark of slot 3.
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
        // What a count below two borrows makes the bits above equal.
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
