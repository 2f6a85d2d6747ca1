//! A member's word: its bits, and every transition between its states.
//!
//! ```text
//! bit  63..6 | 5    | 4    | 3      | 2       | 1      | 0
//!      epoch | BUSY | DEAD | QUEUED | APPLIED | BEFORE | ATTACHED
//! ```
//!
//! Owns: the layout. No other file of this module looks at a bit.
//!
//! Laws (U numbers are the parent module's):
//! - ldu_word.M1 `APPLIED` is what the structure has been told. Without `QUEUED` it means nothing:
//!   then the structure knows what `ATTACHED` says.
//! - ldu_word.M2 `BEFORE` is what `ATTACHED` was before the first change that noted the word's
//!   epoch. Only the read that raised the epoch to that number can be at work, and for it `BEFORE`
//!   is the state at the cut (ldu.U6).
//! - ldu_word.M3 The epoch of a word never falls: a change that found an older epoch takes the
//!   word's.
//! - ldu_word.M4 `DEAD` means that only a drain will access the member again. `DEAD` without
//!   `QUEUED` does not last: the thread that sets `DEAD` or clears `QUEUED` frees the member.
//! - ldu_word.M5 `BUSY` is set while the structure is being told.

const ATTACHED: u64 = 1;
const BEFORE: u64 = 2;
const APPLIED: u64 = 4;
const QUEUED: u64 = 8;
const DEAD: u64 = 16;
const BUSY: u64 = 32;
const EPOCH_SHIFT: u32 = 6;

/// What a toggle adds to a word, or subtracts from it.
pub(super) const TOGGLE: u64 = ATTACHED;

/// What a change does to a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    Insert,
    Remove,
    /// Removes the member, and leaves its memory to its last user.
    GiveUp,
    /// Removes the member, and gives it up unless that leaves it idle.
    Recycle,
}

/// All marks of a member (ldu.U5), so that one instruction changes and reads them together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Word(pub(super) u64);

impl Word {
    /// The word of a member that was never in any set.
    pub(super) const NEW: Self = Self(0);

    #[inline(always)]
    pub(super) fn is_attached(self) -> bool {
        self.0 & ATTACHED != 0
    }

    #[inline(always)]
    pub(super) fn is_queued(self) -> bool {
        self.0 & QUEUED != 0
    }

    #[inline(always)]
    pub(super) fn is_dead(self) -> bool {
        self.0 & DEAD != 0
    }

    /// Returns what the structure has been told (ldu_word.M1); only for a queued member.
    #[inline(always)]
    pub(super) fn is_applied(self) -> bool {
        self.0 & APPLIED != 0
    }

    #[inline(always)]
    fn epoch(self) -> u64 {
        self.0 >> EPOCH_SHIFT
    }

    /// Returns true if the member changed in `epoch` or later.
    #[inline(always)]
    pub(super) fn changed_since(self, epoch: u64) -> bool {
        self.epoch() >= epoch
    }

    /// Returns true if the member was attached at a read's cut: changes that noted `cut` or less
    /// count.
    #[inline(always)]
    pub(super) fn at(self, cut: u64) -> bool {
        let bit = if self.epoch() > cut { BEFORE } else { ATTACHED };
        self.0 & bit != 0
    }

    /// Returns true if the structure has nothing to do for the member: not now, and not in any read
    /// that is under way, unless its owner inserts it again. Then its data belong to its owner
    /// (ldu.U4).
    #[inline(always)]
    pub(super) fn is_idle(self) -> bool {
        // ldu_word.M5: while BUSY, the structure may still look at the member.
        self.0 & (ATTACHED | BEFORE | APPLIED | BUSY) == 0
    }

    /// Returns true if a change that found `epoch` only has to toggle the member: it is queued, and
    /// has changed in this epoch before.
    #[inline(always)]
    pub(super) fn is_plain(self, epoch: u64) -> bool {
        self.is_queued() && self.epoch() >= epoch
    }

    /// Returns what a toggle should have made of a member that a drain let go at the last moment.
    #[inline(always)]
    pub(super) fn queued_again(self) -> Self {
        debug_assert!(!self.is_queued(), "queue.Q1: a queued member is to be pushed");
        let told = if self.is_attached() { 0 } else { APPLIED };
        Self(self.0 & !APPLIED | told | QUEUED)
    }

    /// Returns the word after a change that found `epoch`. The change must push the member unless
    /// it was queued.
    #[inline(always)]
    pub(super) fn after(self, change: Change, epoch: u64) -> Self {
        debug_assert!(!self.is_dead(), "ldu_word.M4: a member that was given up changes");
        debug_assert!(
            self.is_attached() != (change == Change::Insert),
            "ldu.U1: {change:?} of a member that is so already"
        );
        let attached = self.0 & ATTACHED;
        // ldu_word.M2, ldu_word.M3. (Written so that neither is a branch.)
        let before = if epoch > self.epoch() { attached * BEFORE } else { self.0 & BEFORE };
        let applied = if self.is_queued() { self.0 & APPLIED } else { attached * APPLIED };
        let now = match change {
            Change::Insert => ATTACHED,
            Change::Remove => 0,
            Change::GiveUp => DEAD,
            Change::Recycle if before | applied | self.0 & BUSY == 0 => 0,
            Change::Recycle => DEAD,
        };
        let kept = self.0 & (BUSY | DEAD);
        Self(now | before | applied | QUEUED | kept | epoch.max(self.epoch()) << EPOCH_SHIFT)
    }

    /// Returns the word after an owner gives up a member that it removed before (ldu_word.M4).
    #[inline(always)]
    pub(super) fn given_up(self) -> Self {
        debug_assert!(!self.is_attached() && !self.is_dead(), "ldu_word.M4: given up while in use");
        Self(self.0 | DEAD)
    }

    /// Returns the word after an eager change: as a drain leaves a member that it has told
    /// (eager.E2).
    #[inline(always)]
    pub(super) fn after_eager(self, change: Change) -> Self {
        debug_assert!(self.0 & (QUEUED | BUSY | DEAD) == 0, "eager.E1: eager change of {self:?}");
        debug_assert!(
            self.is_attached() != (change == Change::Insert),
            "ldu.U1: {change:?} of a member that is so already"
        );
        let attached = if change == Change::Insert { ATTACHED } else { 0 };
        Self(self.0 >> EPOCH_SHIFT << EPOCH_SHIFT | attached)
    }

    /// Returns the word for a drain that is about to tell the structure that the member is there,
    /// or not.
    pub(super) fn telling(self, attached: bool) -> Self {
        debug_assert!(
            self.is_queued() && self.0 & BUSY == 0,
            "ldu_word.M5: two tell the structure"
        );
        Self(self.0 & !APPLIED | if attached { APPLIED } else { 0 } | BUSY)
    }

    /// Returns the word after the structure has been told. The member stays queued if something
    /// newer came.
    pub(super) fn told(self) -> Self {
        debug_assert!(
            self.is_queued() && self.0 & BUSY != 0,
            "ldu_word.M5: told, and not by telling"
        );
        let told = Self(self.0 & !BUSY);
        if told.is_settled() { told.let_go() } else { told }
    }

    /// Returns true if the structure knows the member's present state.
    #[inline(always)]
    pub(super) fn is_settled(self) -> bool {
        self.is_attached() == self.is_applied()
    }

    /// Returns the word of the member out of all queues.
    #[inline(always)]
    pub(super) fn let_go(self) -> Self {
        debug_assert!(self.is_queued(), "queue.Q1: a member is let go that is in no queue");
        Self(self.0 & !QUEUED)
    }
}

#[cfg(all(test, not(manycore_loom), not(manycore_shuttle)))]
mod tests {
    use super::*;

    /// Returns the word after changes in these epochs, inserts and removes in turn.
    fn changed(epochs: &[u64]) -> Word {
        let mut word = Word::NEW;
        for (turn, epoch) in epochs.iter().enumerate() {
            let change = if turn % 2 == 0 { Change::Insert } else { Change::Remove };
            word = word.after(change, *epoch);
        }
        word
    }

    /// Every sequence of up to five changes with epochs up to 3, a late one among them. At each cut
    /// that a read can make, the word says what the changes up to the cut come to.
    #[test]
    fn word_knows_the_state_at_the_newest_cut_and_now() {
        for code in 0..4_u64.pow(5) {
            for len in 0..=5 {
                let found: Vec<_> = (0..len).map(|at| code / 4_u64.pow(at) % 4).collect();
                let word = changed(&found);
                let newest = found.iter().copied().max().unwrap_or(0);
                // ldu_word.M3: a change counts for the largest epoch that was noted before it.
                let noted = found.iter().scan(0, |most, epoch| {
                    *most = (*most).max(*epoch);
                    Some(*most)
                });
                let noted: Vec<_> = noted.collect();
                for cut in [newest, newest.saturating_sub(1)] {
                    let seen = noted.iter().filter(|epoch| **epoch <= cut).count();
                    let cuts_in_use = newest == 0 || cut == newest || cut + 1 == newest;
                    assert!(cuts_in_use);
                    if newest > 0 || cut == 0 {
                        assert_eq!(word.at(cut), seen % 2 == 1, "{found:?} at {cut}");
                    }
                }
                assert_eq!(word.is_attached(), len % 2 == 1);
                assert_eq!(word.is_queued(), len > 0);
                assert!(!word.is_applied(), "the structure was told nothing");
            }
        }
    }

    #[test]
    fn telling_counts_and_leaves_newer_changes_queued() {
        let word = changed(&[0]);
        let told = word.telling(word.at(0));
        assert!(told.is_applied() && !told.is_idle());
        assert!(!told.told().is_queued(), "nothing newer: out of the queue");
        let newer = told.after(Change::Remove, 1);
        assert!(newer.at(0) && !newer.at(1));
        assert!(newer.told().is_queued() && newer.told().is_applied());
    }

    #[test]
    fn a_member_is_idle_only_if_no_read_can_want_it() {
        assert!(changed(&[0, 0]).is_idle(), "came and went within an epoch");
        assert!(!changed(&[0, 1]).is_idle(), "a read at cut 0 would see it");
        assert!(!changed(&[0]).is_idle());
        assert!(!changed(&[0, 0]).telling(false).is_idle());
    }

    #[test]
    fn toggling_is_a_change_in_the_same_epoch() {
        for word in [changed(&[2]), changed(&[1, 2]), changed(&[1, 2]).telling(true)] {
            assert!(word.is_plain(2) && word.is_plain(1) && !word.is_plain(3));
            let (change, toggled) = match word.is_attached() {
                true => (Change::Remove, Word(word.0 - TOGGLE)),
                false => (Change::Insert, Word(word.0 + TOGGLE)),
            };
            assert_eq!(toggled, word.after(change, 2));
            // Let go between the look and the toggle.
            let (let_go, late) = (word.let_go(), toggled.let_go());
            assert!(!let_go.is_plain(0));
            assert_eq!(late.queued_again(), let_go.after(change, 2));
        }
    }

    /// eager.E2: the word is what a deferred change and a drain would make it.
    #[test]
    fn eager_change_leaves_what_a_drain_would() {
        for epochs in [&[1][..], &[1, 1], &[1, 2], &[1, 2, 2]] {
            let word = changed(epochs);
            let word = if word.is_settled() { word } else { word.telling(word.is_attached()) };
            let there = Word(word.0 & !BUSY).let_go();
            let change = if there.is_attached() { Change::Remove } else { Change::Insert };
            let back = if there.is_attached() { Change::Insert } else { Change::Recycle };
            let eager = there.after_eager(change);
            assert!(eager.is_attached() != there.is_attached() && !eager.is_queued());
            for epoch in [2, 3] {
                let next = eager.after(back, epoch);
                assert_eq!(next.is_attached(), there.is_attached());
                assert_eq!(next.is_applied(), eager.is_attached(), "what the structure knows");
                assert_eq!(next.at(epoch), there.is_attached(), "a read's cut is not older");
                assert_eq!(next.is_dead(), back == Change::Recycle, "it is to be told of that");
            }
        }
    }

    #[test]
    fn recycling_gives_up_what_is_not_idle() {
        let word = changed(&[0]).after(Change::Recycle, 0);
        assert!(word.is_idle() && !word.is_dead());
        for word in [changed(&[0]).after(Change::Recycle, 1), told_of().after(Change::Recycle, 1)] {
            assert!(!word.is_idle() && word.is_dead());
        }
    }

    fn told_of() -> Word {
        changed(&[0]).telling(true).told()
    }

    #[test]
    fn giving_up_marks_and_keeps_the_rest() {
        let word = changed(&[0]).after(Change::GiveUp, 1);
        assert!(word.is_dead() && word.is_queued() && word.at(0) && !word.is_attached());
        assert!(changed(&[0, 0]).given_up().is_dead());
    }
}
