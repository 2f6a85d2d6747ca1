//! The word of a reference count: its bits, and every transition between its states.
//!
//! Owns: the layout. No other file of this module tests or sets a bit.
//!
//! The word holds, from the low end: HOT, FOLDING, RETIRED, the period (how often the object has
//! become hot), above them the *central count*, and in the top 16 bits the number of drops, modulo
//! 65,536: so the word differs after other threads have made and dropped a handle. A handle carries
//! a tag: the period in which it was counted in a row, or zero if it was counted in the word. A
//! handle is *central* unless its tag is the period of the object and the object is hot.

/// Handles are counted in rows.
const HOT: u64 = 1;
/// A thread is adding the rows to the word.
const FOLDING: u64 = 2;
/// No weak handle can be upgraded any more, and the object stays cold.
const RETIRED: u64 = 4;
/// One period.
const PERIOD: u64 = 8;
const PERIODS: u64 = TAGS * PERIOD;
/// One central handle.
const ONE: u64 = 128;
/// One drop of a central handle, in the bits above the central count.
const DROP: u64 = 1 << 48;
const STATE: u64 = ONE - 1;

/// The greatest tag of a handle; the lowest is [`CENTRAL`].
pub(super) const TAGS: u64 = 15;
/// The tag of handles that were counted in the word.
pub(super) const CENTRAL: u64 = 0;
/// More handles than any program makes; a central count below zero looks greater.
pub(super) const TOO_MANY: u64 = DROP / ONE / 2;
/// The change of a word when a central handle is made.
pub(super) const ONE_MORE: u64 = ONE;
/// The change when one is dropped.
const ONE_LESS: u64 = DROP - ONE;

/// See the module header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Word(pub(super) u64);

impl Word {
    /// One handle, which is central.
    pub(super) const NEW: Self = Self(ONE);

    /// Handles are counted in rows.
    #[inline(always)]
    pub(super) fn is_hot(self) -> bool {
        self.0 & (HOT | FOLDING) == HOT
    }

    /// Handles are counted in the word, and the rows are empty.
    #[inline(always)]
    pub(super) fn is_cold(self) -> bool {
        self.0 & (HOT | FOLDING) == 0
    }

    /// Handles are counted in the word, and there is one.
    #[inline(always)]
    pub(super) fn is_lone(self) -> bool {
        self.0 & (HOT | FOLDING | (DROP - ONE)) == ONE
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
        self.0 % ONE / PERIOD
    }

    /// The central count.
    #[inline(always)]
    pub(super) fn central(self) -> u64 {
        self.0 % DROP / ONE
    }

    /// The word after a central handle was made.
    #[inline(always)]
    pub(super) fn one_more(self) -> Self {
        Self(self.0.wrapping_add(ONE_MORE))
    }

    /// The word after a central handle was dropped.
    #[inline(always)]
    pub(super) fn one_less(self) -> Self {
        Self(self.0.wrapping_add(ONE_LESS))
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
        Self(self.0 + PERIOD + HOT)
    }

    /// The word closed for a fold, which the caller begins.
    pub(super) fn folding(self) -> Self {
        debug_assert!(self.is_hot(), "scalable_arc.A4: {self:?} is folded by two threads");
        debug_assert!(self.central() >= 1, "scalable_arc.A2: {self:?} is hot without an owner");
        Self(self.0 | FOLDING)
    }

    /// The retired word; folding or not, as before.
    pub(super) fn retired(self) -> Self {
        Self(self.0 | RETIRED)
    }

    /// The change of the word at the end of a fold: adds the rows' sum and makes the word cold.
    pub(super) fn fold(rows: u64) -> u64 {
        rows.wrapping_mul(ONE).wrapping_sub(HOT | FOLDING)
    }
}
